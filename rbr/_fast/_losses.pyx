"""The kernels of the losses, and of the distance between residuals. What a row costs stands in losses.h."""

import numpy as np

from libc.stdint cimport int64_t

cdef extern from "losses.h":
    int _LOG_LOSS_SUMS "LOG_LOSS_SUMS"
    int _DISTANCE_SUMS "DISTANCE_SUMS"
    int N_LOSSES
    const char **LOSS_NAMES
    void derivative_of_rows(
        int loss, int order, double a, double b, const double *y, const double *z, const double *v, double *out,
        Py_ssize_t n_rows
    ) noexcept nogil
    void squares_of_rows(const double *a, const double *b, const double *v, Py_ssize_t n, double *sums) noexcept nogil
    void log_loss_sums_of_rows(
        const double *y, const double *z, const double *v, double c, Py_ssize_t n, double *sums
    ) noexcept nogil
    int CHUNK
    void softmax_derivative_of_rows(
        int order, const int64_t *y, const double *z, Py_ssize_t stride, Py_ssize_t n_classes, const double *v,
        double *out, Py_ssize_t n, double *scratch
    ) noexcept nogil
    void softmax_sums_of_rows(
        const int64_t *y, const double *z, Py_ssize_t stride, Py_ssize_t n_classes, const double *v, const double *c,
        Py_ssize_t n, double *scratch, double *sums
    ) noexcept nogil
    void softmax_times_rows(
        const double *p, const double *d, Py_ssize_t stride, Py_ssize_t n_classes, const double *v, double *out,
        Py_ssize_t n
    ) noexcept nogil

# Sizes that rbr._sizes has too, checked by rbr._backend.
cpdef enum:
    # Threads share out whole blocks, whose sums are added in order: the same bits for any number of threads.
    ROWS_PER_SUM = 8192

LOG_LOSS_SUMS = _LOG_LOSS_SUMS
DISTANCE_SUMS = _DISTANCE_SUMS

# The losses by number.
LOSSES = tuple([LOSS_NAMES[loss].decode() for loss in range(N_LOSSES)])


def loss_of_rows(
    int loss,                        # IN  its number in LOSSES
    int order,                       # IN  0: the loss; 1: the residual, -dloss/dz; 2: the curvature, d2loss/dz2
    double a,                        # IN  its parameters: power (tweedie), delta (huber), level (quantile),
    double b,                        #     half-width (quantile); unused ones are ignored
    const double[::1] y,             # IN  (n_rows,)
    const double[::1] z,             # IN  (n_rows,): raw scores
    const double[::1] v,             # IN  (n_rows,): weights, or (0,) for none
    double[::1] out,                 # OUT (n_rows,), the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[i] = v[i] times the loss of row i, or a derivative of it."""
    if first < last:
        with nogil:
            derivative_of_rows(
                loss, order, a, b, &y[first], &z[first], &v[first] if v.shape[0] else NULL, &out[first], last - first
            )


def log_loss_sums(
    const double[::1] y,             # IN  (n_rows,), 0 or 1
    const double[::1] z,             # IN  (n_rows,): raw scores
    const double[::1] v,             # IN  (n_rows,): weights
    double c,                        # IN  added to every score
    double[:, ::1] out,              # OUT (n_blocks, 6), the blocks first <= b < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Weighted sums over blocks of ROWS_PER_SUM rows, at the scores z + c.

    Of |residual| where y = 1, and where y = 0; of the curvature where y = 1, and where y = 0; of the loss; of its third
    derivative.
    """
    cdef Py_ssize_t b, start, n_rows = y.shape[0]
    with nogil:
        for b in range(first, last):
            start = b * ROWS_PER_SUM
            log_loss_sums_of_rows(&y[start], &z[start], &v[start], c, min(ROWS_PER_SUM, n_rows - start), &out[b, 0])


def squared_distances(
    const double[::1] a,             # IN  (n_rows,)
    const double[::1] b,             # IN  (n_rows,)
    const double[::1] v,             # IN  (n_rows,): weights, above zero
    double[:, ::1] out,              # OUT (n_blocks, 2), the blocks first <= b < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Sums of (a - b)^2 / v and of a^2 / v over blocks of ROWS_PER_SUM rows.

    For weighted residuals a = v r and b = v r' they are sums of v (r - r')^2 and of v r^2.
    """
    cdef Py_ssize_t block, start, n_rows = a.shape[0]
    with nogil:
        for block in range(first, last):
            start = block * ROWS_PER_SUM
            squares_of_rows(&a[start], &b[start], &v[start], min(ROWS_PER_SUM, n_rows - start), &out[block, 0])


def softmax_of_rows(
    int order,                       # IN  0: the loss; 1: the residuals, -dloss/dz; 2: the curvatures, d2loss/dz_k^2
    const int64_t[::1] y,            # IN  (n_rows,): classes
    const double[:, ::1] z,          # IN  (n_classes, n_rows): raw scores
    const double[::1] v,             # IN  (n_rows,): weights, or (0,) for none
    double[:, ::1] out,              # OUT (n_classes, n_rows), for the loss (1, n_rows); the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[k, i] = v[i] times a derivative of row i's loss in the score of class k; out[0, i] the loss itself."""
    cdef Py_ssize_t chunk, i, n_rows = y.shape[0], n_classes = z.shape[0]
    cdef double[::1] scratch = np.empty(n_classes * CHUNK)
    with nogil:
        for chunk in range(_n_chunks(first, last)):
            i = first + chunk * CHUNK
            softmax_derivative_of_rows(
                order, &y[i], &z[0, i], n_rows, n_classes, &v[i] if v.shape[0] else NULL, &out[0, i],
                min(<Py_ssize_t> CHUNK, last - i), &scratch[0]
            )


def softmax_sums(
    const int64_t[::1] y,            # IN  (n_rows,): classes
    const double[:, ::1] z,          # IN  (n_classes, n_rows): raw scores
    const double[::1] v,             # IN  (n_rows,): weights
    const double[::1] c,             # IN  (n_classes,): added to the scores of each class
    double[:, ::1] out,              # OUT (n_blocks, 1 + K + K (K + 1) / 2), K = n_classes; blocks first <= b < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Weighted sums over blocks of ROWS_PER_SUM rows, at the scores z + c.

    Of the loss; of the probability of each class; of the products of two of them, classes k >= l: (0, 0), (1, 0), ...
    """
    cdef Py_ssize_t b, chunk, i, start, stop, n_rows = y.shape[0], n_classes = z.shape[0]
    cdef double[::1] scratch = np.empty(n_classes * CHUNK)
    with nogil:
        for b in range(first, last):
            out[b, :] = 0.0
            start = b * ROWS_PER_SUM
            stop = min(start + ROWS_PER_SUM, n_rows)
            for chunk in range(_n_chunks(start, stop)):
                i = start + chunk * CHUNK
                softmax_sums_of_rows(
                    &y[i], &z[0, i], n_rows, n_classes, &v[i], &c[0], min(<Py_ssize_t> CHUNK, stop - i), &scratch[0],
                    &out[b, 0]
                )


def softmax_hessian_times(
    const double[:, ::1] probabilities,  # IN  (n_classes, n_rows)
    const double[:, ::1] direction,      # IN  (n_classes, n_rows)
    const double[::1] v,                 # IN  (n_rows,): weights
    double[:, ::1] out,                  # OUT (n_classes, n_rows), the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[:, i] = v[i] (diag(p) - p p') d, where p and d are the columns i of `probabilities` and `direction`."""
    cdef Py_ssize_t chunk, i, n_rows = v.shape[0], n_classes = probabilities.shape[0]
    with nogil:
        for chunk in range(_n_chunks(first, last)):
            i = first + chunk * CHUNK
            softmax_times_rows(
                &probabilities[0, i], &direction[0, i], n_rows, n_classes, &v[i], &out[0, i],
                min(<Py_ssize_t> CHUNK, last - i)
            )


cdef Py_ssize_t _n_chunks(Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    return (max(last - first, 0) + CHUNK - 1) // CHUNK
