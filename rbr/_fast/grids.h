/* Rectangles of a grid, a row of them at a time; see average_grids in _grids.pyx. */
#include <math.h>

#include "series.h"
#include "wide.h"

/* A side whose bins' numbers vary less has no slope: that is a rounding error. */
#define LEAST_SPREAD 1e-9
/* Less of a determinant than this part of its diagonal is a rounding error. */
#define LEAST_DETERMINANT 1e-15

/* The moments of a rectangle: sums of S, S x, S y, W, W x, W y, W x^2, W y^2, W x y. */
enum { S_, SX, SY, W_, WX, WY, WXX, WYY, WXY, MOMENTS };

/* What whole rectangles add to the mean table (value at the origin, slopes), their unknowns, and the squares of these. */
enum { VALUE, SLOPE_X, SLOPE_Y, UNKNOWNS, SQUARES, TOLD };

/* Entry q of rectangle k is at q * stride + k. */
ON_WIDE_REGISTERS static void add_moments(
    long n, long stride, const double *restrict left, const double *restrict right, double *restrict out
) {
    for (long q = 0; q < MOMENTS; q++)
        for (long k = 0; k < n; k++)
            out[q * stride + k] = left[q * stride + k] + right[q * stride + k];
}

/* exp(the log evidence of a whole rectangle) = mantissa 2^power, and what it says if it is left whole. May a plane rise
   along x: one number for the row; along y: one for each rectangle. */
ON_WIDE_REGISTERS static void whole_rectangles(
    long n, long stride, const double *restrict moments, double rises_x, const double *restrict rises_y, double prior,
    double plane_share, double *restrict mantissa, double *restrict power, double *restrict told
) {
    const double slope_prior = 3.0 * prior, constant_share = 1.0 - plane_share;
    const double *restrict s_ = moments + S_ * stride, *restrict sx = moments + SX * stride;
    const double *restrict sy = moments + SY * stride, *restrict w_ = moments + W_ * stride;
    const double *restrict wx = moments + WX * stride, *restrict wy = moments + WY * stride;
    const double *restrict wxx = moments + WXX * stride, *restrict wyy = moments + WYY * stride;
    const double *restrict wxy = moments + WXY * stride;
    double *restrict value_ = told + VALUE * stride, *restrict slope_x = told + SLOPE_X * stride;
    double *restrict slope_y = told + SLOPE_Y * stride, *restrict unknowns = told + UNKNOWNS * stride;
    double *restrict squares = told + SQUARES * stride;
    for (long k = 0; k < n; k++) {
        double w = w_[k], s = s_[k], has_rows = w > 0.0 ? 1.0 : 0.0, per_w = 1.0 / (w > 0.0 ? w : 1.0);
        double known = 1.0 / (w + prior), value = s * known;
        double x = wx[k] * per_w, y = wy[k] * per_w, var_x = wxx[k] * per_w - x * x, var_y = wyy[k] * per_w - y * y;
        double has_x = var_x > LEAST_SPREAD ? rises_x : 0.0, has_y = var_y > LEAST_SPREAD ? rises_y[k] : 0.0;
        double rise_x = has_x * (sx[k] - s * x), rise_y = has_y * (sy[k] - s * y);
        var_x = has_x > 0.0 ? var_x : 1.0;
        var_y = has_y > 0.0 ? var_y : 1.0;
        /* The precision of both slopes; a side without one has its prior alone. */
        double on_x = var_x * (slope_prior + has_x * w), on_y = var_y * (slope_prior + has_y * w);
        double off = has_x * has_y * (wxy[k] - w * x * y), product = on_x * on_y, det = product - off * off;
        det = det > LEAST_DETERMINANT * product ? det : LEAST_DETERMINANT * product;
        double per_det = 1.0 / det;
        double b_x = (on_y * rise_x - off * rise_y) * per_det, b_y = (on_x * rise_y - off * rise_x) * per_det;
        double gain = 0.5 * (rise_x * b_x + rise_y * b_y), n_slopes = has_x + has_y;
        double of_slopes = b_x * b_x * var_x + b_y * b_y * var_y;
        of_slopes = 3.0 * (of_slopes + (has_x * var_x * on_y + has_y * var_y * on_x) * per_det);
        double plane = n_slopes > 0.0 ? plane_share : 0.0, constant = n_slopes > 0.0 ? constant_share : 1.0;
        plane *= sqrt(slope_prior * var_x * (slope_prior * var_y * per_det));
        double both = constant * exp_of_nonpositive(-gain) + plane, p = plane / both;
        double k2, fraction = exp_parts(0.5 * s * value + gain, &k2);
        mantissa[k] = sqrt(prior * known) * both * (1.0 + fraction);
        power[k] = k2;
        value_[k] = value - p * (b_x * x + b_y * y);
        slope_x[k] = p * b_x;
        slope_y[k] = p * b_y;
        unknowns[k] = has_rows * (1.0 + p * n_slopes);
        squares[k] = has_rows * (value * value + known + p * of_slopes);
    }
}

/* Numbers beyond the range of doubles: mantissa 2^power. */
typedef struct {
    double mantissa, power;
} wide_number;

static inline wide_number times(wide_number a, wide_number b) {
    wide_number product = {a.mantissa * b.mantissa, a.power + b.power};
    return product;
}

/* The same number with 1 <= mantissa < 2. */
static inline wide_number normal(wide_number a) {
    int64_t bits;
    memcpy(&bits, &a.mantissa, sizeof bits);
    a.power += (double)((bits >> 52) - 1023);
    bits = (bits & INT64_C(0x000FFFFFFFFFFFFF)) | INT64_C(0x3FF0000000000000);
    memcpy(&a.mantissa, &bits, sizeof bits);
    return a;
}

/* The mantissa of a number with another, larger power; 0 if it is next to nothing. */
static inline double with_power(wide_number a, double power) {
    double less = a.power - power;
    return less < -1000.0 ? 0.0 : a.mantissa * power_of_two(less, 0);
}

static inline double log_of(wide_number a) { return log(a.mantissa) + a.power * 0.69314718055994530942; }

/* Add what rectangles are left whole with probability p * whole, and leave their planes to both parts, if any: these are
   reached by p * halved more. */
ON_WIDE_REGISTERS static void tell_row(
    long n, long stride, const double *restrict p, const double *restrict whole, const double *restrict weights,
    const double *restrict told, double *restrict plane, double *restrict counts
) {
    for (long k = 0; k < n; k++) {
        double w = p[k] * whole[k];
        plane[k] += w * told[VALUE * stride + k];
        plane[stride + k] += w * told[SLOPE_X * stride + k];
        plane[2 * stride + k] += w * told[SLOPE_Y * stride + k];
        counts[k] += weights[k] > 0.0 ? w : 0.0;
        counts[n + k] += w * told[UNKNOWNS * stride + k];
        counts[2 * n + k] += w * told[SQUARES * stride + k];
    }
}

ON_WIDE_REGISTERS static void leave_to_parts(
    long n, long stride, const double *restrict p, const double *restrict halved, const double *restrict plane,
    double *restrict reached_left, double *restrict reached_right, double *restrict plane_left,
    double *restrict plane_right
) {
    for (long k = 0; k < n; k++) {
        reached_left[k] += p[k] * halved[k];
        reached_right[k] += p[k] * halved[k];
    }
    for (long q = 0; q < 3; q++)
        for (long k = 0; k < n; k++) {
            plane_left[q * stride + k] += plane[q * stride + k];
            plane_right[q * stride + k] += plane[q * stride + k];
        }
}
