# Sums over the rows of a single column. Included by _design.pyx and _visits.pyx.

# Sums by bin are added up in this many vectors: row after row hits the same bin, and would wait for itself.
cdef enum:
    VECTORS = 4


cdef void _sum_column(
    const code_t *column, const double *values, Py_ssize_t n_rows, Py_ssize_t n_bins, double *scratch, double *out
) noexcept nogil:
    """out[k] = the sum of values over the rows with code k."""
    cdef:
        Py_ssize_t i, k, n = n_bins + 1, n_whole = n_rows - n_rows % VECTORS, four_rows
        double *one = scratch
        double *two = one + n
        double *three = two + n
        double *four = three + n
    memset(scratch, 0, VECTORS * n * sizeof(double))
    for four_rows in range(n_rows // VECTORS):
        i = VECTORS * four_rows
        one[column[i]] += values[i]
        two[column[i + 1]] += values[i + 1]
        three[column[i + 2]] += values[i + 2]
        four[column[i + 3]] += values[i + 3]
    for i in range(n_whole, n_rows):
        one[column[i]] += values[i]
    for k in range(n_bins):
        out[k] = (one[k] + two[k]) + (three[k] + four[k])
