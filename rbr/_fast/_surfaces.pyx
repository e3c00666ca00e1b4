"""The kernel that smooths grids: a sparse system of equations for each, solved by a Cholesky factor."""

from libc.math cimport sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

# A level's deviation from the mean and the difference of two neighbours are the same up to this many levels, but for a
# factor.
cdef Py_ssize_t FEW_LEVELS = 2

# One part of a grid, with the side of the coupled neighbours inside: cell (i, j) stands at start + i * outer + j * inner.
cdef struct Part:
    Py_ssize_t start
    Py_ssize_t n_outer
    Py_ssize_t n_inner
    Py_ssize_t outer
    Py_ssize_t inner
    bint has_outer_levels
    bint has_inner_levels


cdef void _solve(double *band, double *x, Py_ssize_t n, Py_ssize_t width) noexcept nogil:
    """Solve A x = b in place, for a positive definite A of which row r has the columns r - width .. r of the band."""
    cdef Py_ssize_t r, c, k, first, size = width + 1
    cdef double total
    cdef double *own
    cdef double *other
    for r in range(n):
        first = max(0, r - width)
        own = band + r * size + width - r       # own[k] is column k
        for c in range(first, r + 1):
            other = band + c * size + width - c
            total = own[c]
            for k in range(max(first, c - width), c):
                total -= own[k] * other[k]
            own[c] = total / other[c] if c < r else sqrt(total)
        for k in range(first, r):
            x[r] -= own[k] * x[k]
        x[r] /= own[r]
    for r in range(n - 1, -1, -1):
        own = band + r * size + width - r
        x[r] /= own[r]
        for k in range(max(0, r - width), r):
            x[k] -= own[k] * x[r]


cdef void _add_side(
    double *band, Py_ssize_t width, Py_ssize_t first, Py_ssize_t n, Py_ssize_t step, bint has_levels, double strength
) noexcept nogil:
    """Add the penalty along one line of n cells to the system: between neighbours, or around the mean of levels."""
    cdef Py_ssize_t i, j, size = width + 1
    if n < 2:
        return
    if has_levels and n <= FEW_LEVELS:
        strength, has_levels = strength / 2, False
    for i in range(n):
        if has_levels:
            band[(first + i * step) * size + width] += strength
            for j in range(i + 1):
                band[(first + i * step) * size + width - (i - j) * step] -= strength / n
        else:
            band[(first + i * step) * size + width] += strength * ((i > 0) + (i < n - 1))
            if i > 0:
                band[(first + i * step) * size + width - step] -= strength


cdef void _smooth_neighbours(
    const Part *part, const double *u, const double *w, double strength, double *band, double *x
) noexcept nogil:
    """Cells whose neighbours across stand one inner side apart: a band as wide as that side."""
    cdef Py_ssize_t i, j, at, width = part.n_inner, n = part.n_outer * part.n_inner, size = width + 1
    for i in range(n * size):
        band[i] = 0.0
    for i in range(part.n_outer):
        for j in range(part.n_inner):
            at = part.start + i * part.outer + j * part.inner
            band[(i * part.n_inner + j) * size + width] = w[at]
            x[i * part.n_inner + j] = w[at] * u[at]
        _add_side(band, width, i * part.n_inner, part.n_inner, 1, part.has_inner_levels, strength)
    for j in range(part.n_inner):
        _add_side(band, width, j, part.n_outer, part.n_inner, part.has_outer_levels, strength)
    _solve(band, x, n, width)


cdef void _smooth_levels(
    const Part *part, const double *u, const double *w, double strength, double *band, double *x
) noexcept nogil:
    """Levels along both sides: given the means of the lines the cells are known, so the means are the unknowns."""
    cdef Py_ssize_t i, j, at, n_a = part.n_outer, n_b = part.n_inner, n = n_a + n_b, width = n_a + n_b - 1
    cdef double pull, kept
    for i in range(n * (width + 1)):
        band[i] = 0.0
    for i in range(n):
        x[i] = 0.0
        band[i * n + width] = n_b if i < n_a else n_a
    for i in range(n_a):
        for j in range(n_b):
            at = part.start + i * part.outer + j * part.inner
            pull = strength / (w[at] + 2 * strength)
            band[i * n + width] -= pull
            band[(n_a + j) * n + width] -= pull
            band[(n_a + j) * n + width - (n_a + j - i)] -= pull
            kept = w[at] / (w[at] + 2 * strength)
            x[i] += kept * u[at]
            x[n_a + j] += kept * u[at]
    _solve(band, x, n, width)
    # From the back, since the means stand where the first cells will.
    for i in range(n):
        x[n_a * n_b + i] = x[i]
    for i in range(n_a):
        for j in range(n_b):
            at = part.start + i * part.outer + j * part.inner
            pull = strength / (w[at] + 2 * strength)
            kept = w[at] / (w[at] + 2 * strength)
            x[i * n_b + j] = kept * u[at] + pull * (x[n_a * n_b + i] + x[n_a * n_b + n_a + j])


cdef void _smooth_part(
    const Part *part, const double *u, const double *w, double strength, double *band, double *x, double *shifted,
    double *out
) noexcept nogil:
    """Write the smoothed cells of a part; a part without weight becomes zero."""
    cdef Py_ssize_t i, j, at, origin = -1
    cdef double total = 0.0, miss = 0.0
    for i in range(part.n_outer):
        for j in range(part.n_inner):
            at = part.start + i * part.outer + j * part.inner
            total += w[at]
            if origin < 0 and w[at] > 0:
                origin = at
    # Measured from one of its values, a constant part stays as it is to the last bit.
    for i in range(part.n_outer):
        for j in range(part.n_inner):
            at = part.start + i * part.outer + j * part.inner
            shifted[at] = u[at] - u[origin] if origin >= 0 and w[at] > 0 else 0.0
            x[i * part.n_inner + j] = shifted[at]
    if origin >= 0 and strength > 0:
        if part.has_outer_levels and part.has_inner_levels and part.n_outer > FEW_LEVELS and part.n_inner > FEW_LEVELS:
            _smooth_levels(part, shifted, w, strength, band, x)
        else:
            _smooth_neighbours(part, shifted, w, strength, band, x)
        for i in range(part.n_outer):
            for j in range(part.n_inner):
                at = part.start + i * part.outer + j * part.inner
                miss += w[at] * (shifted[at] - x[i * part.n_inner + j])
    for i in range(part.n_outer):
        for j in range(part.n_inner):
            at = part.start + i * part.outer + j * part.inner
            out[at] = 0.0
            if origin >= 0 and (strength > 0 or w[at] > 0):
                out[at] = u[origin] + x[i * part.n_inner + j] + miss / total


def smooth_grids(
    const int64_t[::1] offsets,      # IN  (n_grids + 1,): where the cells of each grid begin, row by row
    const int64_t[:, ::1] sides,     # IN  (n_grids, 6): bins along both sides, whether each has a missing one, or levels
    const double[::1] values,        # IN  (offsets[-1],): by cell
    const double[::1] weights,       # IN  (offsets[-1],): at least 0
    const double[::1] strengths,     # IN  (n_grids,): of the penalty, at least 0
    double[::1] out,                 # OUT (offsets[-1],), the grids first <= t < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """The surface nearest to each grid under a penalty on its roughness; missing values are surfaces of their own."""
    cdef:
        Py_ssize_t t, row, column, n_rows, n_columns, cells = 1, most_sums = 1, widest = 1
        bint is_turned
        Part part
        double *band
        double *x
        double *shifted
        int64_t[3] at_a
        int64_t[3] at_b
    for t in range(first, last):
        n_rows, n_columns = sides[t, 0] + sides[t, 2], sides[t, 1] + sides[t, 3]
        cells = max(cells, n_rows * n_columns)
        # A band is never wider than the longer side, a system of means never larger than both sides together.
        widest = max(widest, max(n_rows, n_columns) + 1)
        most_sums = max(most_sums, (n_rows + n_columns) * (n_rows + n_columns))
    with nogil:
        band = <double *> malloc(max(cells * widest, most_sums) * sizeof(double))
        x = <double *> malloc((2 * cells + widest + 2) * sizeof(double))
        shifted = <double *> malloc(cells * sizeof(double))
        if band == NULL or x == NULL or shifted == NULL:
            free(band)
            free(x)
            free(shifted)
            with gil:
                raise MemoryError
        for t in range(first, last):
            n_rows, n_columns = sides[t, 0] + sides[t, 2], sides[t, 1] + sides[t, 3]
            at_a[0], at_a[1], at_a[2] = 0, sides[t, 0], n_rows
            at_b[0], at_b[1], at_b[2] = 0, sides[t, 1], n_columns
            for row in range(2):
                for column in range(2):
                    if at_a[row] == at_a[row + 1] or at_b[column] == at_b[column + 1]:
                        continue
                    part.start = at_a[row] * n_columns + at_b[column]
                    part.n_outer, part.n_inner = at_a[row + 1] - at_a[row], at_b[column + 1] - at_b[column]
                    part.outer, part.inner = n_columns, 1
                    part.has_outer_levels = sides[t, 4] and row == 0
                    part.has_inner_levels = sides[t, 5] and column == 0
                    # The inner side is the one whose cells are all coupled, or the shorter one.
                    is_turned = part.n_outer < part.n_inner
                    if part.has_outer_levels != part.has_inner_levels:
                        is_turned = part.has_outer_levels
                    if is_turned:
                        part.n_outer, part.n_inner = part.n_inner, part.n_outer
                        part.outer, part.inner = part.inner, part.outer
                        part.has_outer_levels, part.has_inner_levels = part.has_inner_levels, part.has_outer_levels
                    if part.has_outer_levels and part.n_outer > FEW_LEVELS and part.n_inner <= FEW_LEVELS:
                        part.n_outer, part.n_inner = part.n_inner, part.n_outer
                        part.outer, part.inner = part.inner, part.outer
                        part.has_outer_levels, part.has_inner_levels = part.has_inner_levels, part.has_outer_levels
                    _smooth_part(
                        &part, &values[offsets[t]], &weights[offsets[t]], strengths[t], band, x, shifted,
                        &out[offsets[t]],
                    )
        free(band)
        free(x)
        free(shifted)
