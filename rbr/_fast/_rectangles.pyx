"""The kernel that cuts grids into few rectangles: the best ones of small grids, good ones of large grids."""

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


# The best cuts of all rectangles of a part of a grid into at most k, for k = 1 .. most.
cdef struct Programme:
    Py_ssize_t a
    Py_ssize_t b
    Py_ssize_t c
    Py_ssize_t d
    Py_ssize_t most
    double *best


# How a rectangle is cut: the side (below zero if it is not), the place, and the number of parts before it.
cdef struct Split:
    double net
    int side
    Py_ssize_t place
    Py_ssize_t before


cdef inline Py_ssize_t _n_intervals(Py_ssize_t n) noexcept nogil:
    return n * (n + 1) // 2


cdef inline double _best(
    const Programme *own, Py_ssize_t a, Py_ssize_t b, Py_ssize_t c, Py_ssize_t d, Py_ssize_t k
) noexcept nogil:
    """What the best cuts of a rectangle into at most k gain."""
    return own.best[_place(own, a, b, c, d) + min(k, (b - a) * (d - c)) - 1]


cdef inline Py_ssize_t _place(
    const Programme *own, Py_ssize_t a, Py_ssize_t b, Py_ssize_t c, Py_ssize_t d
) noexcept nogil:
    cdef Py_ssize_t i = a - own.a, j = c - own.c, n = own.b - own.a, m = own.d - own.c
    cdef Py_ssize_t rows = i * n - i * (i - 1) // 2 + b - a - 1, columns = j * m - j * (j - 1) // 2 + d - c - 1
    return (rows * _n_intervals(m) + columns) * own.most


cdef Split _best_split(
    const Programme *own, Py_ssize_t a, Py_ssize_t b, Py_ssize_t c, Py_ssize_t d, Py_ssize_t k, double net,
    double price, double least
) noexcept nogil:
    """The first best way to cut a rectangle into at most k, if it gains more than a given net."""
    cdef Split found
    cdef Py_ssize_t m, n, width = d - c, height = b - a
    cdef double one
    found.net, found.side, found.place, found.before = net, -1, 0, 0
    for m in range(a + 1, b):
        for n in range(max(1, k - (b - m) * width), min(k - 1, (m - a) * width) + 1):
            one = _best(own, a, m, c, d, n) + _best(own, m, b, c, d, k - n) - price
            if one > found.net + least:
                found.net, found.side, found.place, found.before = one, 0, m, n
    for m in range(c + 1, d):
        for n in range(max(1, k - (d - m) * height), min(k - 1, (m - c) * height) + 1):
            one = _best(own, a, b, c, m, n) + _best(own, a, b, m, d, k - n) - price
            if one > found.net + least:
                found.net, found.side, found.place, found.before = one, 1, m, n
    return found


cdef void _solve(const Sums *sums, Programme *own, double price, double least) noexcept nogil:
    """Fill in the best cuts, of small rectangles first."""
    cdef Py_ssize_t height, width, a, c, k, at
    cdef double net
    for height in range(1, own.b - own.a + 1):
        for width in range(1, own.d - own.c + 1):
            for a in range(own.a, own.b - height + 1):
                for c in range(own.c, own.d - width + 1):
                    at = _place(own, a, a + height, c, c + width)
                    net = _explained(sums, a, a + height, c, c + width)
                    own.best[at] = net
                    for k in range(2, min(own.most, height * width) + 1):
                        net = _best_split(own, a, a + height, c, c + width, k, net, price, least).net
                        own.best[at + k - 1] = net


cdef void _trace(
    const Sums *sums, const Programme *own, Py_ssize_t a, Py_ssize_t b, Py_ssize_t c, Py_ssize_t d, Py_ssize_t k,
    double price, double least, Leaf *leaves, Py_ssize_t *n_leaves
) noexcept nogil:
    """Append the rectangles of the best cuts of a rectangle into at most k."""
    cdef Split split
    k = min(k, (b - a) * (d - c))
    while k > 1:
        split = _best_split(own, a, b, c, d, k, _best(own, a, b, c, d, k - 1), price, least)
        if split.side == 0:
            _trace(sums, own, a, split.place, c, d, split.before, price, least, leaves, n_leaves)
            _trace(sums, own, split.place, b, c, d, k - split.before, price, least, leaves, n_leaves)
            return
        if split.side == 1:
            _trace(sums, own, a, b, c, split.place, split.before, price, least, leaves, n_leaves)
            _trace(sums, own, a, b, split.place, d, k - split.before, price, least, leaves, n_leaves)
            return
        k -= 1
    leaves[n_leaves[0]].a, leaves[n_leaves[0]].b = a, b
    leaves[n_leaves[0]].c, leaves[n_leaves[0]].d = c, d
    n_leaves[0] += 1


cdef Py_ssize_t _share_out(
    Programme *parts, Py_ssize_t n_parts, Py_ssize_t limit, double least, double *net, Py_ssize_t *counts
) noexcept nogil:
    """How many rectangles each part gets, at most `limit` in all; net and counts hold a row for each part.

    net[p, k] is the most that the first p + 1 parts gain with at most k + p + 1 rectangles, counts[p, k] the number
    of the last of them."""
    cdef Py_ssize_t p, k, n, spare = limit - n_parts
    cdef double one, before
    cdef Programme *own
    for p in range(n_parts):
        own = &parts[p]
        for k in range(spare + 1):
            counts[p * (spare + 1) + k] = 0
            for n in range(1, min(k + 1, own.most) + 1):
                before = net[(p - 1) * (spare + 1) + k + 1 - n] if p > 0 else 0.0
                one = before + _best(own, own.a, own.b, own.c, own.d, n)
                if n == 1 or one > net[p * (spare + 1) + k] + least:
                    net[p * (spare + 1) + k], counts[p * (spare + 1) + k] = one, n
    return spare


cdef Py_ssize_t _cut_exactly(
    const Sums *sums, Leaf *leaves, Py_ssize_t n_parts, Py_ssize_t limit, double price, double least
) noexcept nogil:
    """Replace the parts, which stand first among the leaves, by the best rectangles; their number, or -1 of no memory.
    """
    cdef:
        Py_ssize_t p, k, n_leaves = 0, spare, cells = 0, size = 0
        Programme[4] parts
        Py_ssize_t[4] chosen
        double *memory
        double *net
        Py_ssize_t *counts
    for p in range(n_parts):
        parts[p].a, parts[p].b, parts[p].c, parts[p].d = leaves[p].a, leaves[p].b, leaves[p].c, leaves[p].d
        cells += (leaves[p].b - leaves[p].a) * (leaves[p].d - leaves[p].c)
    limit = max(min(limit, cells), n_parts)
    for p in range(n_parts):
        parts[p].most = min(limit - n_parts + 1, (parts[p].b - parts[p].a) * (parts[p].d - parts[p].c))
        size += _n_intervals(parts[p].b - parts[p].a) * _n_intervals(parts[p].d - parts[p].c) * parts[p].most
    memory = <double *> malloc(size * sizeof(double))
    net = <double *> malloc(n_parts * (limit - n_parts + 1) * sizeof(double))
    counts = <Py_ssize_t *> malloc(n_parts * (limit - n_parts + 1) * sizeof(Py_ssize_t))
    if memory == NULL or net == NULL or counts == NULL:
        free(memory)
        free(net)
        free(counts)
        return -1
    size = 0
    for p in range(n_parts):
        parts[p].best = memory + size
        size += _n_intervals(parts[p].b - parts[p].a) * _n_intervals(parts[p].d - parts[p].c) * parts[p].most
        _solve(sums, &parts[p], price, least)
    spare = _share_out(parts, n_parts, limit, least, net, counts)
    k = spare
    for p in range(n_parts - 1, -1, -1):
        chosen[p] = counts[p * (spare + 1) + k]
        k -= chosen[p] - 1
    for p in range(n_parts):
        _trace(
            sums, &parts[p], parts[p].a, parts[p].b, parts[p].c, parts[p].d, chosen[p], price, least, leaves, &n_leaves
        )
    free(memory)
    free(net)
    free(counts)
    return n_leaves


cdef Py_ssize_t _cut_greedily(
    const Sums *sums, Leaf *leaves, Py_ssize_t n, Py_ssize_t limit, double price, double least
) noexcept nogil:
    """Cut the parts, which stand first among the leaves, best first; returns the number of rectangles."""
    cdef Py_ssize_t best, k
    cdef Leaf cut
    for k in range(n):
        _find_cut(sums, &leaves[k], price, least)
    while n < limit:
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
        _find_cut(sums, &leaves[best], price, least)
        _find_cut(sums, &leaves[n], price, least)
        n += 1
    return n


def cut_grids(
    const int64_t[::1] offsets,      # IN  (n_grids + 1,): where the cells of each grid begin, row by row
    const int64_t[:, ::1] sides,     # IN  (n_grids, 4 or more): bins along both sides, whether each has a missing one
    const double[:, ::1] values,     # IN  (offsets[-1], n_outputs): by cell
    const double[::1] weights,       # IN  (offsets[-1],): at least 0
    const int64_t[::1] limits,       # IN  (n_grids,): the most rectangles
    const double[::1] prices,        # IN  (n_grids,): of a cut, at least 0
    Py_ssize_t most_exact,           # IN  grids of at most this many ordered bins a side are cut exactly
    int32_t[::1] labels_out,         # OUT (offsets[-1],): the rectangle of each cell, of the grids first <= t < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """The best rectangles of each small grid; of others good ones, best first, looking one cross cut ahead.

    The ordered bins, the row and the column of missing values and the cell that these share are cut apart first, even
    if the limit is less."""
    cdef:
        Py_ssize_t t, n_rows, n_columns, most_cells = 1, most_sums = 1, n, k, i, j, row, column
        bint is_out_of_memory = False
        Sums sums
        Leaf *leaves
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
        is_out_of_memory = sums.running == NULL or leaves == NULL
        for t in range(first, last):
            n_rows, n_columns = sides[t, 0] + sides[t, 2], sides[t, 1] + sides[t, 3]
            sums.width, sums.size = n_columns + 1, (n_rows + 1) * (n_columns + 1)
            if is_out_of_memory or offsets[t] == offsets[t + 1]:
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
                        n += 1
            if max(sides[t, 0], sides[t, 1]) <= most_exact:
                n = _cut_exactly(&sums, leaves, n, limits[t], prices[t], least)
                is_out_of_memory = n < 0
            else:
                n = _cut_greedily(&sums, leaves, n, limits[t], prices[t], least)
            for k in range(n):
                for i in range(leaves[k].a, leaves[k].b):
                    for j in range(leaves[k].c, leaves[k].d):
                        labels_out[offsets[t] + i * n_columns + j] = <int32_t> k
        free(sums.running)
        free(leaves)
    if is_out_of_memory:
        raise MemoryError
