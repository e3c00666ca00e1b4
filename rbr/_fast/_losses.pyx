"""The kernels of the log-loss, and of the distance between residuals.

A row costs log(1 + exp(s)), where s = z for y = 0 and s = -z for y = 1.

Everything follows from t = exp(-|s|), which lies in [0, 1]. The two functions that are not arithmetic, exp and log1p,
are short series without branches, so that the compiler works on several rows at a time (wide.h). Both are accurate to
the last bit or two.
"""

cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>

    #include "wide.h"

    /* exp(x) for x <= 0: 2^k exp(r), |r| <= log(2) / 2, by the Taylor series of degree 13. */
    static inline double exp_of_nonpositive(double x) {
        const double ROUNDS = 6755399441055744.0; /* 1.5 * 2^52: adding it leaves k in the low bits */
        const double LOG2_HIGH = 6.93147180369123816490e-01, LOG2_LOW = 1.90821492927058770002e-10;
        double shifted, k, r, w, even, odd, sum, power;
        int64_t bits;
        x = x < -746.0 ? -746.0 : x; /* exp is 0 there; NaN stays */
        shifted = x * 1.4426950408889634 + ROUNDS;
        k = shifted - ROUNDS;
        r = (x - k * LOG2_HIGH) - k * LOG2_LOW;
        w = r * r;
        even = 1.0 / 479001600;
        odd = 1.0 / 6227020800;
        even = even * w + 1.0 / 3628800;
        odd = odd * w + 1.0 / 39916800;
        even = even * w + 1.0 / 40320;
        odd = odd * w + 1.0 / 362880;
        even = even * w + 1.0 / 720;
        odd = odd * w + 1.0 / 5040;
        even = even * w + 1.0 / 24;
        odd = odd * w + 1.0 / 120;
        even = even * w + 0.5;
        odd = odd * w + 1.0 / 6;
        sum = 1.0 + (r + w * (even + r * odd));
        /* 2^(k + 64) is a normal number for every possible k; scaling back may give a subnormal one. */
        memcpy(&bits, &shifted, sizeof bits);
        bits = (int64_t)(((uint64_t)bits + 1087) << 52);
        memcpy(&power, &bits, sizeof power);
        return sum * power * 5.421010862427522e-20;
    }

    /* log(1 + t) for 0 <= t <= 1: 2 artanh(u / (2 + u)), where 1 + u is 1 + t or half of it; ten terms. */
    static inline double log1p_of_share(double t) {
        const double LOG2 = 0.6931471805599453;
        double is_half = t > 0.41421356237309503 ? 1.0 : 0.0;
        double u = t > 0.41421356237309503 ? 0.5 * (t - 1.0) : t;
        double s = u / (2.0 + u), w = s * s, ww = w * w;
        double even = 1.0 / 19, odd = 1.0 / 21;
        even = even * ww + 1.0 / 15;
        odd = odd * ww + 1.0 / 17;
        even = even * ww + 1.0 / 11;
        odd = odd * ww + 1.0 / 13;
        even = even * ww + 1.0 / 7;
        odd = odd * ww + 1.0 / 9;
        even = even * ww + 1.0 / 3;
        odd = odd * ww + 1.0 / 5;
        return is_half * LOG2 + 2.0 * (s + s * w * (even + w * odd));
    }

    static inline double signed_score(double y, double z) { return (1.0 - 2.0 * y) * z; }

    static inline double loss_of(double s, double t) { return log1p_of_share(t) + (s < 0.0 ? 0.0 : s); }

    ON_WIDE_REGISTERS
    static void values_of_rows(const double *restrict y, const double *restrict z, double *restrict out, Py_ssize_t n) {
        for (Py_ssize_t i = 0; i < n; i++) {
            double s = signed_score(y[i], z[i]);
            out[i] = loss_of(s, exp_of_nonpositive(-fabs(s)));
        }
    }

    #define LOG_LOSS_SUMS 6
    #define DISTANCE_SUMS 2
    #define CHUNK 256

    static inline void multiply(double *restrict out, const double *restrict v, Py_ssize_t n) {
        for (Py_ssize_t i = 0; i < n; i++)
            out[i] *= v[i];
    }

    /* Without weights v is NULL. */
    ON_WIDE_REGISTERS
    static void residual_of_rows(
        const double *restrict y, const double *restrict z, const double *restrict v, double *restrict out, Py_ssize_t n
    ) {
        for (Py_ssize_t start = 0; start < n; start += CHUNK) {
            Py_ssize_t stop = n - start < CHUNK ? n : start + CHUNK;
            for (Py_ssize_t i = start; i < stop; i++) {
                double s = signed_score(y[i], z[i]), t = exp_of_nonpositive(-fabs(s));
                out[i] = (2.0 * y[i] - 1.0) * ((s < 0.0 ? t : 1.0) / (1.0 + t));
            }
            if (v)
                multiply(out + start, v + start, stop - start);
        }
    }

    ON_WIDE_REGISTERS
    static void curvature_of_rows(
        const double *restrict z, const double *restrict v, double *restrict out, Py_ssize_t n
    ) {
        for (Py_ssize_t start = 0; start < n; start += CHUNK) {
            Py_ssize_t stop = n - start < CHUNK ? n : start + CHUNK;
            for (Py_ssize_t i = start; i < stop; i++) {
                double t = exp_of_nonpositive(-fabs(z[i])), inverse = 1.0 / (1.0 + t);
                out[i] = t * inverse * inverse;
            }
            if (v)
                multiply(out + start, v + start, stop - start);
        }
    }

    /* The number of independent partial sums. The same on every machine, so that sums have the same bits. */
    #define LANES 16

    static inline void add_lanes(const double *values, Py_ssize_t n, double *sum)
    {
        double lanes[LANES] = {0.0};
        Py_ssize_t i = 0;
        for (; i + LANES <= n; i += LANES)
            for (int lane = 0; lane < LANES; lane++)
                lanes[lane] += values[i + lane];
        for (int lane = 0; i + lane < n; lane++)
            lanes[lane] += values[i + lane];
        for (int half = LANES / 2; half > 0; half /= 2)
            for (int lane = 0; lane < half; lane++)
                lanes[lane] += lanes[lane + half];
        *sum += lanes[0];
    }

    /* The terms of the sums, for a chunk of rows at a time: arrays that the compiler fills several rows at once. */
    ON_WIDE_REGISTERS
    static void sums_of_rows(
        const double *restrict y, const double *restrict z, const double *restrict v, double c, Py_ssize_t n,
        double *restrict sums
    ) {
        double terms[LOG_LOSS_SUMS][CHUNK];
        for (int k = 0; k < LOG_LOSS_SUMS; k++)
            sums[k] = 0.0;
        for (Py_ssize_t start = 0; start < n; start += CHUNK) {
            Py_ssize_t length = n - start < CHUNK ? n - start : CHUNK;
            for (Py_ssize_t i = 0; i < length; i++) {
                double yi = y[start + i], vi = v[start + i];
                double s = signed_score(yi, z[start + i] + c), t = exp_of_nonpositive(-fabs(s));
                double inverse = 1.0 / (1.0 + t);
                double pull = vi * ((s < 0.0 ? t : 1.0) * inverse), curvature = vi * (t * inverse * inverse);
                terms[0][i] = yi * pull;
                terms[1][i] = (1.0 - yi) * pull;
                terms[2][i] = yi * curvature;
                terms[3][i] = (1.0 - yi) * curvature;
                terms[4][i] = vi * loss_of(s, t);
                terms[5][i] = (2.0 * yi - 1.0) * ((s < 0.0 ? -curvature : curvature) * ((1.0 - t) * inverse));
            }
            for (int k = 0; k < LOG_LOSS_SUMS; k++)
                add_lanes(terms[k], length, &sums[k]);
        }
    }

    ON_WIDE_REGISTERS
    static void squares_of_rows(
        const double *restrict a, const double *restrict b, const double *restrict v, Py_ssize_t n,
        double *restrict sums
    ) {
        double terms[DISTANCE_SUMS][CHUNK];
        sums[0] = sums[1] = 0.0;
        for (Py_ssize_t start = 0; start < n; start += CHUNK) {
            Py_ssize_t length = n - start < CHUNK ? n - start : CHUNK;
            for (Py_ssize_t i = 0; i < length; i++) {
                double ai = a[start + i], change = ai - b[start + i], inverse = 1.0 / v[start + i];
                terms[0][i] = change * change * inverse;
                terms[1][i] = ai * ai * inverse;
            }
            add_lanes(terms[0], length, &sums[0]);
            add_lanes(terms[1], length, &sums[1]);
        }
    }
    """
    int _LOG_LOSS_SUMS "LOG_LOSS_SUMS"
    int _DISTANCE_SUMS "DISTANCE_SUMS"
    void values_of_rows(const double *y, const double *z, double *out, Py_ssize_t n) noexcept nogil
    void residual_of_rows(const double *y, const double *z, const double *v, double *out, Py_ssize_t n) noexcept nogil
    void curvature_of_rows(const double *z, const double *v, double *out, Py_ssize_t n) noexcept nogil
    void squares_of_rows(const double *a, const double *b, const double *v, Py_ssize_t n, double *sums) noexcept nogil
    void sums_of_rows(
        const double *y, const double *z, const double *v, double c, Py_ssize_t n, double *sums
    ) noexcept nogil

# Sizes that rbr._sizes has too, checked by rbr._backend.
cpdef enum:
    # Threads share out whole blocks, whose sums are added in order: the same bits for any number of threads.
    ROWS_PER_SUM = 8192

LOG_LOSS_SUMS = _LOG_LOSS_SUMS
DISTANCE_SUMS = _DISTANCE_SUMS


def log_loss_values(
    const double[::1] y,             # IN  (n_rows,), 0 or 1
    const double[::1] z,             # IN  (n_rows,): raw scores
    double[::1] out,                 # OUT (n_rows,), the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[i] = log(1 + exp(s)), s = z[i] for y[i] = 0 and -z[i] for y[i] = 1."""
    if first < last:
        with nogil:
            values_of_rows(&y[first], &z[first], &out[first], last - first)


def log_loss_residual(
    const double[::1] y,             # IN  (n_rows,), 0 or 1
    const double[::1] z,             # IN  (n_rows,): raw scores
    const double[::1] v,             # IN  (n_rows,): weights, or (0,) for none
    double[::1] out,                 # OUT (n_rows,), the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[i] = v[i] * (y[i] - 1 / (1 + exp(-z[i]))), without cancellation."""
    if first < last:
        with nogil:
            residual_of_rows(&y[first], &z[first], &v[first] if v.shape[0] else NULL, &out[first], last - first)


def log_loss_curvature(
    const double[::1] z,             # IN  (n_rows,): raw scores
    const double[::1] v,             # IN  (n_rows,): weights, or (0,) for none
    double[::1] out,                 # OUT (n_rows,), the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[i] = v[i] * q (1 - q), q = 1 / (1 + exp(-z[i]))."""
    if first < last:
        with nogil:
            curvature_of_rows(&z[first], &v[first] if v.shape[0] else NULL, &out[first], last - first)


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
            sums_of_rows(&y[start], &z[start], &v[start], c, min(ROWS_PER_SUM, n_rows - start), &out[b, 0])


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
