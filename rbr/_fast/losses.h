/* The losses of one row as scalar functions, and the loops over rows that are made of them.

   A loss has three functions of (y, z, a, b): NAME_value, NAME_residual (-dloss/dz) and NAME_curvature (d2loss/dz2);
   a and b are its parameters. A line in EACH_LOSS makes the loops of a loss and gives it its number.

   The functions that are not arithmetic, exp, expm1 and log1p, are short series without branches, so that the compiler works on
   several rows at a time (wide.h). They are accurate to the last bit or two. */
#include <math.h>
#include <stdint.h>

#include "series.h"
#include "wide.h"

static inline double exp_of_any(double x) {
    x = x < -746.0 ? -746.0 : x > 746.0 ? 746.0 : x; /* exp is 0 and infinite there; NaN stays */
    double power, p = exp_series(x, x > 0.0 ? 64 : -64, &power);
    return (1.0 + p) * power * (x > 0.0 ? TWO_TO_64 : 1.0 / TWO_TO_64);
}

/* exp(x) - 1, with all its digits near 0. */
static inline double expm1_of_any(double x) {
    x = x < -40.0 ? -40.0 : x > 746.0 ? 746.0 : x; /* -1 to all digits, and infinite there */
    double power, p = exp_series(x, 64, &power);
    return (p * power + (power - 1.0 / TWO_TO_64)) * TWO_TO_64;
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

#define SCALAR static inline double
#define ROW double y, double z, double a, double b

/* (y - z)^2 / 2 */

SCALAR squared_error_value(ROW) { return (y - z) * (y - z) * 0.5; }
SCALAR squared_error_residual(ROW) { return y - z; }
SCALAR squared_error_curvature(ROW) { return 1.0; }

/* log(1 + exp(s)), where s = z for y = 0 and s = -z for y = 1. Everything follows from t = exp(-|s|), in [0, 1]. */

SCALAR signed_score(double y, double z) { return (1.0 - 2.0 * y) * z; }
SCALAR log_loss_of(double s, double t) { return log1p_of_share(t) + (s < 0.0 ? 0.0 : s); }

SCALAR log_loss_value(ROW) {
    double s = signed_score(y, z);
    return log_loss_of(s, exp_of_nonpositive(-fabs(s)));
}

SCALAR log_loss_residual(ROW) {
    double s = signed_score(y, z), t = exp_of_nonpositive(-fabs(s));
    return (2.0 * y - 1.0) * ((s < 0.0 ? t : 1.0) / (1.0 + t));
}

SCALAR log_loss_curvature(ROW) {
    double t = exp_of_nonpositive(-fabs(z)), inverse = 1.0 / (1.0 + t);
    return t * inverse * inverse;
}

/* With a log link: what pulls z up, y exp((1 - q) z), is 0 where y is, also if the exponential overflows. */

SCALAR poisson_value(ROW) { return expm1_of_any(z) - (y == 0.0 ? 0.0 : y * z); }
SCALAR poisson_residual(ROW) { return y - exp_of_any(z); }
SCALAR poisson_curvature(ROW) { return exp_of_any(z); }

SCALAR gamma_value(ROW) { return z + y * expm1_of_any(-z); }
SCALAR gamma_residual(ROW) { return y * exp_of_any(-z) - 1.0; }
SCALAR gamma_curvature(ROW) { return y * exp_of_any(-z); }

/* Tweedie: q is a, above 1 and below 2. */

SCALAR pull_up(double y, double z, double q) { return y == 0.0 ? 0.0 : y * exp_of_any((1.0 - q) * z); }
SCALAR pull_down(double z, double q) { return exp_of_any((2.0 - q) * z); }

SCALAR tweedie_value(ROW) {
    double up = y == 0.0 ? 0.0 : y * (expm1_of_any((1.0 - a) * z) / (1.0 - a));
    return expm1_of_any((2.0 - a) * z) / (2.0 - a) - up;
}
SCALAR tweedie_residual(ROW) { return pull_up(y, z, a) - pull_down(z, a); }
SCALAR tweedie_curvature(ROW) { return (2.0 - a) * pull_down(z, a) + (a - 1.0) * pull_up(y, z, a); }

/* Huber: delta is a. Inside, r^2 / 2, and outside, delta (|r| - delta / 2), are both c (r - c / 2) for the clipped c. */

SCALAR clipped(double r, double most) { return r < -most ? -most : r > most ? most : r; }

SCALAR huber_value(ROW) {
    double r = y - z, c = clipped(r, a);
    return (r - 0.5 * c) * c;
}
SCALAR huber_residual(ROW) { return clipped(y - z, a); }
SCALAR huber_curvature(ROW) { return fabs(y - z) <= a ? 1.0 : 0.0; }

/* Quantile: the level is a, the half-width b. r residual + b (1/4 - slope^2): the last term vanishes outside the zone. */

SCALAR slope_within(double r, double b) { return clipped(r * (0.5 / b), 0.5); }

SCALAR quantile_value(ROW) {
    double r = y - z, slope = slope_within(r, b);
    return (slope + (a - 0.5)) * r - (slope * slope - 0.25) * b;
}
SCALAR quantile_residual(ROW) { return slope_within(y - z, b) + (a - 0.5); }
SCALAR quantile_curvature(ROW) { return fabs(y - z) <= b ? 0.5 / b : 0.0; }

#define EACH_LOSS(DO) \
    DO(squared_error) DO(log_loss) DO(poisson) DO(gamma) DO(tweedie) DO(huber) DO(quantile)

/* ------------------------------------------------------------------------------------------------ loops over rows */

#define LOOP(name, what) \
    ON_WIDE_REGISTERS \
    static void name##_##what##_of_rows( \
        const double *restrict y, const double *restrict z, double a, double b, double *restrict out, Py_ssize_t n \
    ) { \
        for (Py_ssize_t i = 0; i < n; i++) \
            out[i] = name##_##what(y[i], z[i], a, b); \
    }

#define LOOPS(name) LOOP(name, value) LOOP(name, residual) LOOP(name, curvature)
EACH_LOSS(LOOPS)

#define NUMBER(name) LOSS_##name,
enum { EACH_LOSS(NUMBER) N_LOSSES };

#define TEXT(name) #name,
static const char *const LOSS_NAMES[] = {EACH_LOSS(TEXT)};

#define CASE(name) \
    case LOSS_##name: \
        if (order == 0) \
            name##_value_of_rows(y, z, a, b, out, n); \
        else if (order == 1) \
            name##_residual_of_rows(y, z, a, b, out, n); \
        else \
            name##_curvature_of_rows(y, z, a, b, out, n); \
        break;

#define CHUNK 256

/* The derivative of a given order, times the weights v; v is NULL where there are none. */
static void derivative_of_rows(
    int loss, int order, double a, double b, const double *y, const double *z, const double *v, double *out,
    Py_ssize_t n_rows
) {
    /* In chunks, so that out is still in cache when it is multiplied. */
    for (; n_rows > 0; n_rows -= CHUNK, y += CHUNK, z += CHUNK, out += CHUNK) {
        Py_ssize_t n = n_rows < CHUNK ? n_rows : CHUNK;
        switch (loss) { EACH_LOSS(CASE) }
        if (v) {
            for (Py_ssize_t i = 0; i < n; i++)
                out[i] *= v[i];
            v += CHUNK;
        }
    }
}

/* ----------------------------------------------------------------------------------------------------- their sums */

#define LOG_LOSS_SUMS 6
#define DISTANCE_SUMS 2

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
static void log_loss_sums_of_rows(
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
            terms[4][i] = vi * log_loss_of(s, t);
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

/* ------------------------------------------------------------------------------------------------ several classes */

/* log(1 + t) for t >= 0: for t >= 1, 1 + t is 2^e m with 1 <= m < 2. NaN stays. */
static inline double log1p_of_sum(double t) {
    const double LOG2 = 0.6931471805599453;
    double s = 1.0 + t, m, e, is_small = s < 2.0 ? 1.0 : 0.0;
    uint64_t bits;
    memcpy(&bits, &s, sizeof bits);
    uint64_t mantissa = (bits & UINT64_C(0xFFFFFFFFFFFFF)) | UINT64_C(0x3FF0000000000000);
    /* The exponent as a double: a small whole number in the low bits of 2^52. */
    uint64_t exponent = (bits >> 52) | UINT64_C(0x4330000000000000);
    memcpy(&m, &mantissa, sizeof m);
    memcpy(&e, &exponent, sizeof e);
    e = (e - 4503599627370496.0) - 1023.0;
    return (is_small > 0.0 ? 0.0 : e * LOG2) + log1p_of_share(s >= 2.0 ? m - 1.0 : t);
}

/* Chunks of rows: weights[k * CHUNK + i] = exp(z of class k less the largest score), with their sum over the classes
   and that of all but the (first) largest. */
ON_WIDE_REGISTERS
static void softmax_weights(
    const double *restrict z, Py_ssize_t stride, const double *restrict c, Py_ssize_t n_classes, Py_ssize_t n,
    double *restrict weights, double *restrict largest, double *restrict others
) {
    double which[CHUNK];
    double shift = c ? c[0] : 0.0;
    for (Py_ssize_t i = 0; i < n; i++) {
        weights[i] = largest[i] = z[i] + shift;
        which[i] = 0.0;
        others[i] = 0.0;
    }
    for (Py_ssize_t k = 1; k < n_classes; k++) {
        const double *restrict own = z + k * stride;
        double number = (double)k;
        shift = c ? c[k] : 0.0;
        for (Py_ssize_t i = 0; i < n; i++) {
            double score = own[i] + shift;
            weights[k * CHUNK + i] = score;
            which[i] = score > largest[i] ? number : which[i];
            largest[i] = score > largest[i] ? score : largest[i];
        }
    }
    for (Py_ssize_t k = 0; k < n_classes; k++) {
        double *restrict own = weights + k * CHUNK;
        double number = (double)k;
        for (Py_ssize_t i = 0; i < n; i++) {
            own[i] = exp_of_nonpositive(own[i] - largest[i]);
            /* The largest is 1, unless it is not finite: then it is NaN, and so is everything. */
            others[i] += which[i] == number ? own[i] - 1.0 : own[i];
        }
    }
}

/* The loss of each row (order 0; out has one row), or -dloss/dz and d2loss/dz2 by class, times v. `scratch` has room
   for CHUNK numbers of each class. */
ON_WIDE_REGISTERS
static void softmax_derivative_of_rows(
    int order, const int64_t *restrict y, const double *restrict z, Py_ssize_t stride, Py_ssize_t n_classes,
    const double *restrict v, double *restrict out, Py_ssize_t n, double *restrict scratch
) {
    double largest[CHUNK], others[CHUNK], own_score[CHUNK], scale[CHUNK];
    softmax_weights(z, stride, 0, n_classes, n, scratch, largest, others);
    if (order == 0) {
        for (Py_ssize_t i = 0; i < n; i++)
            own_score[i] = z[y[i] * stride + i];
        for (Py_ssize_t i = 0; i < n; i++)
            out[i] = (v ? v[i] : 1.0) * (log1p_of_sum(others[i]) + (largest[i] - own_score[i]));
        return;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        scale[i] = 1.0 / (1.0 + others[i]);
    if (order == 2) {
        for (Py_ssize_t k = 0; k < n_classes; k++)
            for (Py_ssize_t i = 0; i < n; i++) {
                double p = scratch[k * CHUNK + i] * scale[i];
                out[k * stride + i] = (v ? v[i] : 1.0) * (p * (1.0 - p));
            }
        return;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        scratch[y[i] * CHUNK + i] = 0.0;
    /* The residual of a row's own class is the sum of the other probabilities, which keeps its digits when that is
       small. */
    for (Py_ssize_t i = 0; i < n; i++)
        own_score[i] = 0.0;
    for (Py_ssize_t k = 0; k < n_classes; k++)
        for (Py_ssize_t i = 0; i < n; i++) {
            double p = scratch[k * CHUNK + i] * scale[i];
            own_score[i] += p;
            out[k * stride + i] = (v ? -v[i] : -1.0) * p;
        }
    for (Py_ssize_t i = 0; i < n; i++)
        out[y[i] * stride + i] = (v ? v[i] : 1.0) * own_score[i];
}

/* Adds to sums, at the scores z + c, the weighted loss, the probability of each class, and the products of the
   probabilities of each two classes k >= l. */
ON_WIDE_REGISTERS
static void softmax_sums_of_rows(
    const int64_t *restrict y, const double *restrict z, Py_ssize_t stride, Py_ssize_t n_classes,
    const double *restrict v, const double *restrict c, Py_ssize_t n, double *restrict scratch, double *restrict sums
) {
    double largest[CHUNK], others[CHUNK], terms[CHUNK], scale[CHUNK];
    softmax_weights(z, stride, c, n_classes, n, scratch, largest, others);
    for (Py_ssize_t i = 0; i < n; i++)
        terms[i] = z[y[i] * stride + i] + c[y[i]];
    for (Py_ssize_t i = 0; i < n; i++) {
        terms[i] = v[i] * (log1p_of_sum(others[i]) + (largest[i] - terms[i]));
        scale[i] = 1.0 / (1.0 + others[i]);
    }
    add_lanes(terms, n, sums++);
    for (Py_ssize_t k = 0; k < n_classes; k++) {
        double *restrict own = scratch + k * CHUNK;
        for (Py_ssize_t i = 0; i < n; i++) {
            own[i] *= scale[i];
            terms[i] = v[i] * own[i];
        }
        add_lanes(terms, n, sums++);
    }
    for (Py_ssize_t k = 0; k < n_classes; k++)
        for (Py_ssize_t l = 0; l <= k; l++) {
            const double *restrict one = scratch + k * CHUNK, *restrict other = scratch + l * CHUNK;
            for (Py_ssize_t i = 0; i < n; i++)
                terms[i] = v[i] * one[i] * other[i];
            add_lanes(terms, n, sums++);
        }
}

/* out = v (p d - p (p . d)) for each row: its Hessian diag(p) - p p' times a direction d. */
ON_WIDE_REGISTERS
static void softmax_times_rows(
    const double *restrict p, const double *restrict d, Py_ssize_t stride, Py_ssize_t n_classes,
    const double *restrict v, double *restrict out, Py_ssize_t n
) {
    double mean[CHUNK];
    for (Py_ssize_t i = 0; i < n; i++)
        mean[i] = 0.0;
    for (Py_ssize_t k = 0; k < n_classes; k++)
        for (Py_ssize_t i = 0; i < n; i++)
            mean[i] += p[k * stride + i] * d[k * stride + i];
    for (Py_ssize_t k = 0; k < n_classes; k++)
        for (Py_ssize_t i = 0; i < n; i++)
            out[k * stride + i] = v[i] * (p[k * stride + i] * (d[k * stride + i] - mean[i]));
}
