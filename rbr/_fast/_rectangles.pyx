"""The kernel that cuts grids into few rectangles."""

from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc

# A cut must gain more than another by this part of what the grid could explain, or the first of them is taken: less is
# a rounding error.
cdef double LEAST_GAIN = 1e-10

# A rectangle of a grid, and its best first cut.
cdef struct Leaf:
    Py_ssize_t a
    Py_ssize_t b
    Py_ssize_t c
    Py_ssize_t d
    double net
    int side
    Py_ssize_t place

# Running sums over a grid, so that those of a rectangle are four look-ups: of the weight, then of each output.
cdef struct Sums:
    double *running
    Py_ssize_t width        # columns of the grid and one more
    Py_ssize_t size         # entries of one sum
    Py_ssize_t n_outputs


cdef inline double _sum(
    const Sums *sums, Py_ssize_t q, Py_ssize_t a, Py_ssize_t b, Py_ssize_t c, Py_ssize_t d
) noexcept nogil:
    cdef const double *own = sums.running + q * sums.size
    return (own[b * sums.width + d] - own[a * sums.width + d]) - (own[b * sums.width + c] - own[a * sums.width + c])


cdef inline double _explained(const Sums *sums, Py_ssize_t a, Py_ssize_t b, Py_ssize_t c, Py_ssize_t d) noexcept nogil:
    cdef double w = _sum(sums, 0, a, b, c, d), s, total = 0.0
    cdef Py_ssize_t q
    if not w > 0.0:
        return 0.0
    for q in range(1, sums.n_outputs + 1):
        s = _sum(sums, q, a, b, c, d)
        total += s * s
    return 0.5 * total / w


cdef double _cross_gain(
    const Sums *sums, Py_ssize_t a, Py_ssize_t b, Py_ssize_t c, Py_ssize_t d, int side, double price
) noexcept nogil:
    """What the best cut of a rectangle across a side gains, less its price; 0 if nothing."""
    cdef double whole = _explained(sums, a, b, c, d) + price, most = 0.0
    cdef Py_ssize_t m
    if side == 0:
        for m in range(a + 1, b):
            most = max(most, _explained(sums, a, m, c, d) + _explained(sums, m, b, c, d) - whole)
    else:
        for m in range(c + 1, d):
            most = max(most, _explained(sums, a, b, c, m) + _explained(sums, a, b, m, d) - whole)
    return most


cdef inline double _per_cut(double net, double one, double other) noexcept nogil:
    """The mean gain of a cut alone, with the better one of two more, or with both, whichever is largest."""
    return max(net, max((net + max(one, other)) / 2, (net + min(one, other) + max(one, other)) / 3))


cdef void _find_cut(const Sums *sums, Leaf *leaf, double price, double least) noexcept nogil:
    cdef double whole = _explained(sums, leaf.a, leaf.b, leaf.c, leaf.d) + price, net
    cdef Py_ssize_t m, a = leaf.a, b = leaf.b, c = leaf.c, d = leaf.d
    leaf.net, leaf.side, leaf.place = 0.0, -1, 0
    for m in range(a + 1, b):
        net = _explained(sums, a, m, c, d) + _explained(sums, m, b, c, d) - whole
        net = _per_cut(net, _cross_gain(sums, a, m, c, d, 1, price), _cross_gain(sums, m, b, c, d, 1, price))
        if net > leaf.net + least:
            leaf.net, leaf.side, leaf.place = net, 0, m
    for m in range(c + 1, d):
        net = _explained(sums, a, b, c, m) + _explained(sums, a, b, m, d) - whole
        net = _per_cut(net, _cross_gain(sums, a, b, c, m, 0, price), _cross_gain(sums, a, b, m, d, 0, price))
        if net > leaf.net + least:
            leaf.net, leaf.side, leaf.place = net, 1, m


cdef double _add_up(const double *values, const double *weights, Py_ssize_t n_rows, Sums *sums) noexcept nogil:
    """Fill the running sums; returns what one rectangle would explain if all values had the same sign."""
    cdef Py_ssize_t i, j, q, cell, n_columns = sums.width - 1
    cdef double row, total, all_weights = 0.0, size = 0.0, one
    cdef double *own
    for q in range(sums.n_outputs + 1):
        own = sums.running + q * sums.size
        total = 0.0
        for j in range(sums.width):
            own[j] = 0.0
        for i in range(n_rows):
            row = 0.0
            own[(i + 1) * sums.width] = 0.0
            for j in range(n_columns):
                cell = i * n_columns + j
                one = weights[cell] * (values[cell * sums.n_outputs + q - 1] if q > 0 else 1.0)
                row += one
                total += fabs(one)
                own[(i + 1) * sums.width + j + 1] = own[i * sums.width + j + 1] + row
        if q == 0:
            all_weights = total
        else:
            size += total * total
    return 0.5 * size / all_weights if all_weights > 0.0 else 0.0


def cut_grids(
    const int64_t[::1] offsets,      # IN  (n_grids + 1,): where the cells of each grid begin, row by row
    const int64_t[:, ::1] sides,     # IN  (n_grids, 4 or more): bins along both sides, whether each has a missing one
    const double[:, ::1] values,     # IN  (offsets[-1], n_outputs): by cell
    const double[::1] weights,       # IN  (offsets[-1],): at least 0
    const int64_t[::1] limits,       # IN  (n_grids,): the most rectangles
    const double[::1] prices,        # IN  (n_grids,): of a cut, at least 0
    int32_t[::1] labels_out,         # OUT (offsets[-1],): the rectangle of each cell, of the grids first <= t < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Rectangles of each grid, best first, looking one cross cut ahead; missing values lie outside the cuts.

    The ordered bins, the row and the column of missing values and the cell that these share are cut apart first, even
    if the limit is less."""
    cdef:
        Py_ssize_t t, n_rows, n_columns, most_cells = 1, most_sums = 1, n, k, best, i, j, row, column
        Sums sums
        Leaf *leaves
        Leaf cut
        double least
        int64_t[3] at_a
        int64_t[3] at_b
    sums.n_outputs = values.shape[1]
    for t in range(first, last):
        n_rows, n_columns = sides[t, 0] + sides[t, 2], sides[t, 1] + sides[t, 3]
        most_cells = max(most_cells, n_rows * n_columns)
        most_sums = max(most_sums, (n_rows + 1) * (n_columns + 1))
    with nogil:
        sums.running = <double *> malloc((sums.n_outputs + 1) * most_sums * sizeof(double))
        leaves = <Leaf *> malloc((most_cells + 4) * sizeof(Leaf))
        if sums.running == NULL or leaves == NULL:
            free(sums.running)
            free(leaves)
            with gil:
                raise MemoryError
        for t in range(first, last):
            n_rows, n_columns = sides[t, 0] + sides[t, 2], sides[t, 1] + sides[t, 3]
            sums.width, sums.size = n_columns + 1, (n_rows + 1) * (n_columns + 1)
            if offsets[t] == offsets[t + 1]:
                continue
            least = LEAST_GAIN * _add_up(&values[offsets[t], 0], &weights[offsets[t]], n_rows, &sums)
            at_a[0], at_a[1], at_a[2] = 0, sides[t, 0], n_rows
            at_b[0], at_b[1], at_b[2] = 0, sides[t, 1], n_columns
            n = 0
            for row in range(2):
                for column in range(2):
                    if at_a[row] < at_a[row + 1] and at_b[column] < at_b[column + 1]:
                        leaves[n].a, leaves[n].b = at_a[row], at_a[row + 1]
                        leaves[n].c, leaves[n].d = at_b[column], at_b[column + 1]
                        _find_cut(&sums, &leaves[n], prices[t], least)
                        n += 1
            while n < limits[t]:
                best = 0
                for k in range(1, n):
                    if leaves[k].net > leaves[best].net + least:
                        best = k
                if not leaves[best].net > 0.0:
                    break
                cut = leaves[best]
                leaves[n] = cut
                if cut.side == 0:
                    leaves[best].b = leaves[n].a = cut.place
                else:
                    leaves[best].d = leaves[n].c = cut.place
                _find_cut(&sums, &leaves[best], prices[t], least)
                _find_cut(&sums, &leaves[n], prices[t], least)
                n += 1
            for k in range(n):
                for i in range(leaves[k].a, leaves[k].b):
                    for j in range(leaves[k].c, leaves[k].d):
                        labels_out[offsets[t] + i * n_columns + j] = <int32_t> k
        free(sums.running)
        free(leaves)
