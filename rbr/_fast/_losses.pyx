"""The kernels of the losses, and of the distance between residuals. What a row costs stands in losses.h."""

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
