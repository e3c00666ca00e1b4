# The rows that a visit reads and changes. Included by _visits.pyx.

cdef extern from "losses.h":
    int CHUNK
    void derivative_of_rows(
        int loss, int order, double a, double b, const double *y, const double *z, const double *v, double *out,
        Py_ssize_t n_rows
    ) noexcept nogil
    void softmax_derivative_of_rows(
        int order, const int64_t *y, const double *z, Py_ssize_t stride, Py_ssize_t n_classes, const double *v,
        double *out, Py_ssize_t n, double *scratch
    ) noexcept nogil

cdef void _raise(const code_t *column, const double *change, Py_ssize_t n_rows, double *scores) noexcept nogil:
    """Add to each score the change of its bin; the last entry of `change`, zero, is for rows without a bin."""
    cdef Py_ssize_t i
    for i in range(n_rows):
        scores[i] += change[column[i]]


cdef void _lower(
    const code_t *column, const double *change, const double *v, Py_ssize_t n_rows, double *residuals
) noexcept nogil:
    """What `_raise` does to the weighted residuals of squared errors."""
    cdef Py_ssize_t i
    for i in range(n_rows):
        residuals[i] -= v[i] * change[column[i]]


cdef Py_ssize_t _scratch_of_residuals(Py_ssize_t n_outputs) noexcept nogil:
    return n_outputs * CHUNK


cdef void _residuals_of_classes(
    const int64_t *y, const double *scores, Py_ssize_t n_classes, const double *v, Py_ssize_t n_rows, double *scratch,
    double *out
) noexcept nogil:
    cdef Py_ssize_t i = 0
    while i < n_rows:
        softmax_derivative_of_rows(
            1, y + i, scores + i, n_rows, n_classes, v + i, out + i, min(<Py_ssize_t> CHUNK, n_rows - i), scratch
        )
        i += CHUNK
