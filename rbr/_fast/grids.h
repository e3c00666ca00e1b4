/* Rectangles of a grid, a row of them at a time; see average_grids in _grids.pyx. */
#include <math.h>

#include "series.h"
#include "wide.h"

/* A side whose bins' numbers vary by a smaller part of their mean square has no slope, and a rectangle whose product of
   them does, beside that of the parts it is made of, has no twist: that would be rounding errors of the moments. */
#define LEAST_SPREAD 1e-5

/* The moments of a rectangle: sums of S, S x, S y, S x y, W, W x, W y, W x^2, W x y, W y^2, W x^2 y, W x y^2, W x^2 y^2;
   x and y are the bins' numbers, counted from the first bins of the rectangle. */
enum { S_, SX, SY, SXY, W_, WX, WY, WXX, WXY, WYY, WXXY, WXYY, WXXYY, MOMENTS };

/* What whole rectangles add to the mean table (value at the origin of the grid, slopes, twist), their unknowns, and the
   squares of these. */
enum { VALUE, SLOPE_X, SLOPE_Y, TWIST, UNKNOWNS, SQUARES, TOLD };

/* Moment q of rectangle k is at q * stride + k. The second of two parts begins `shift` bins after the first, along x. */
static inline void add_parts(
    long k, long stride, const double *restrict left, const double *restrict right, double shift, double *restrict out
) {
    const double *m = right + k;
    double twice = 2.0 * shift, square = shift * shift, w = m[W_ * stride], wx = m[WX * stride], wy = m[WY * stride];
    double wxy = m[WXY * stride], wyy = m[WYY * stride], wxyy = m[WXYY * stride];
    double moved[MOMENTS];
    moved[S_] = m[S_ * stride];
    moved[SX] = m[SX * stride] + shift * m[S_ * stride];
    moved[SY] = m[SY * stride];
    moved[SXY] = m[SXY * stride] + shift * m[SY * stride];
    moved[W_] = w;
    moved[WX] = wx + shift * w;
    moved[WY] = wy;
    moved[WXX] = m[WXX * stride] + twice * wx + square * w;
    moved[WXY] = wxy + shift * wy;
    moved[WYY] = wyy;
    moved[WXXY] = m[WXXY * stride] + twice * wxy + square * wy;
    moved[WXYY] = wxyy + shift * wyy;
    moved[WXXYY] = m[WXXYY * stride] + twice * wxyy + square * wyy;
    for (int q = 0; q < MOMENTS; q++)
        out[q * stride + k] = left[q * stride + k] + moved[q];
}

ON_WIDE_REGISTERS static void add_moments(
    long n, long stride, const double *restrict left, const double *restrict right, double shift, double *restrict out
) {
    INDEPENDENT for (long k = 0; k < n; k++) add_parts(k, stride, left, right, shift, out);
}

/* The same along y, for rectangles of one bin along x. */
static inline void add_bins(long stride, const double *left, const double *right, double shift, double *out) {
    for (int q = 0; q < MOMENTS; q++) out[q * stride] = 0.0;
    double s = right[S_ * stride], w = right[W_ * stride], wy = right[WY * stride];
    out[S_ * stride] = left[S_ * stride] + s;
    out[SY * stride] = left[SY * stride] + (right[SY * stride] + shift * s);
    out[W_ * stride] = left[W_ * stride] + w;
    out[WY * stride] = left[WY * stride] + (wy + shift * w);
    out[WYY * stride] = left[WYY * stride] + (right[WYY * stride] + 2.0 * shift * wy + shift * shift * w);
}

/* exp(the log evidence of a whole rectangle) = mantissa 2^power, and what it says if it is left whole. May a plane rise
   along x, and the number of the first bin: one number for the row; along y: one for each rectangle. */
ON_WIDE_REGISTERS static void whole_rectangles(
    long n, long stride, const double *restrict moments, double rises_x, const double *restrict rises_y, double first_x,
    const double *restrict first_y, double prior, double plane_share, double twist_share, double *restrict mantissa,
    double *restrict power, double *restrict told
) {
    const double slope_prior = 3.0 * prior, slope_share = plane_share + twist_share;
    const double may_twist = twist_share > 0.0 ? 1.0 : 0.0, *restrict m = moments;
    INDEPENDENT for (long k = 0; k < n; k++) {
        double w = m[W_ * stride + k], s = m[S_ * stride + k], has_rows = w > 0.0 ? 1.0 : 0.0;
        double per_w = 1.0 / (w > 0.0 ? w : 1.0), known = 1.0 / (w + prior), value = s * known;
        double sx = m[SX * stride + k], sy = m[SY * stride + k], x = m[WX * stride + k] * per_w;
        double y = m[WY * stride + k] * per_w, xx = m[WXX * stride + k] * per_w, xy = m[WXY * stride + k] * per_w;
        double yy = m[WYY * stride + k] * per_w, var_x = xx - x * x, var_y = yy - y * y, cov = xy - x * y;
        double has_x = var_x > LEAST_SPREAD * xx ? rises_x : 0.0, has_y = var_y > LEAST_SPREAD * yy ? rises_y[k] : 0.0;
        double rise_x = has_x * (sx - s * x), rise_y = has_y * (sy - s * y);
        var_x = has_x * var_x + (1.0 - has_x);
        var_y = has_y * var_y + (1.0 - has_y);
        /* The precision of both slopes; a side without one has its prior alone. */
        double on_x = var_x * (slope_prior + has_x * w), on_y = var_y * (slope_prior + has_y * w);
        double off = has_x * has_y * w * cov, det = on_x * on_y - off * off;
        /* Correlations are at most 1, but for rounding errors. */
        double least_det = var_x * var_y * slope_prior * (2.0 * has_x * has_y * w + slope_prior);
        det = det > least_det ? det : least_det;
        double per_det = 1.0 / det;
        double b_x = (on_y * rise_x - off * rise_y) * per_det, b_y = (on_x * rise_y - off * rise_x) * per_det;
        double gain = 0.5 * (rise_x * b_x + rise_y * b_y);
        double unknown = (has_x * var_x * on_y + has_y * var_y * on_x) * per_det;
        double of_slopes = 3.0 * (b_x * b_x * var_x + b_y * b_y * var_y + unknown);
        /* The twist: the product of both numbers, each less its mean, less the mean of the product. */
        double xxy = m[WXXY * stride + k] * per_w, xyy = m[WXYY * stride + k] * per_w;
        double uuv = xxy - 2.0 * x * xy - y * xx + 2.0 * x * x * y, uvv = xyy - 2.0 * y * xy - x * yy + 2.0 * x * y * y;
        double xxyy = m[WXXYY * stride + k] * per_w;
        double uuvv = xxyy - 2.0 * (y * xxy + x * xyy) + y * y * xx + x * x * yy
            + 4.0 * x * y * xy - 3.0 * x * x * y * y;
        double var_t = uuvv - cov * cov;
        double has_t = may_twist * has_x * has_y * (var_t > LEAST_SPREAD * (xxyy + xx * yy) ? 1.0 : 0.0);
        double rise_t = has_t * (m[SXY * stride + k] - x * sy - y * sx + s * (x * y - cov));
        var_t = has_t * var_t + (1.0 - has_t);
        /* Beside the slopes, which it changes by d for each unit of its own. */
        double t_x = has_t * w * uuv, t_y = has_t * w * uvv;
        double d_x = (on_y * t_x - off * t_y) * per_det, d_y = (on_x * t_y - off * t_x) * per_det;
        double left = var_t * (slope_prior + has_t * w) - t_x * d_x - t_y * d_y, least_left = slope_prior * var_t;
        left = left > least_left ? left : least_left;
        double per_left = 1.0 / left;
        rise_t -= t_x * b_x + t_y * b_y;
        double b_t = rise_t * per_left, gain_t = 0.5 * rise_t * b_t, e_x = b_x - d_x * b_t, e_y = b_y - d_y * b_t;
        unknown += (has_x * var_x * d_x * d_x + has_y * var_y * d_y * d_y + has_t * var_t) * per_left;
        double of_twist = 3.0 * (e_x * e_x * var_x + e_y * e_y * var_y + b_t * b_t * var_t + unknown);
        /* Constant, plane or twisted plane: what each explains times its prior share. */
        double has_slopes = has_x + has_y - has_x * has_y, twist = has_t * twist_share;
        double constant = 1.0 - has_slopes * slope_share, plane = has_slopes * slope_share - twist;
        double shrunk = sqrt(slope_prior * var_x * (slope_prior * var_y * per_det));
        double without_twist = exp_of_nonpositive(-gain_t);
        constant *= exp_of_nonpositive(-gain - gain_t);
        plane *= shrunk * without_twist;
        twist *= shrunk * sqrt(slope_prior * var_t * per_left);
        double all = constant + plane + twist, p = plane / all, t = twist / all;
        double whole_power, fraction = exp_parts(0.5 * s * value + gain + gain_t, &whole_power);
        mantissa[k] = sqrt(prior * known) * all * (1.0 + fraction);
        power[k] = whole_power;
        double at_x = x + first_x, at_y = y + first_y[k], slope_x = p * b_x + t * e_x, slope_y = p * b_y + t * e_y;
        b_t *= t;
        told[VALUE * stride + k] = value - slope_x * at_x - slope_y * at_y + b_t * (at_x * at_y - cov);
        told[SLOPE_X * stride + k] = slope_x - b_t * at_y;
        told[SLOPE_Y * stride + k] = slope_y - b_t * at_x;
        told[TWIST * stride + k] = b_t;
        told[UNKNOWNS * stride + k] = has_rows * (1.0 + p * (has_x + has_y) + 3.0 * t);
        told[SQUARES * stride + k] = has_rows * (value * value + known + p * of_slopes + t * of_twist);
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

/* Add what rectangles say that are left whole, with probability p * whole. */
ON_WIDE_REGISTERS static void tell_row(
    long n, long stride, const double *restrict p, const double *restrict whole, const double *restrict weights,
    const double *restrict told, double *restrict plane, double *restrict counts
) {
    for (long k = 0; k < n; k++) {
        double w = p[k] * whole[k];
        plane[k] += w * told[VALUE * stride + k];
        plane[stride + k] += w * told[SLOPE_X * stride + k];
        plane[2 * stride + k] += w * told[SLOPE_Y * stride + k];
        plane[3 * stride + k] += w * told[TWIST * stride + k];
        counts[k] += weights[k] > 0.0 ? w : 0.0;
        counts[n + k] += w * told[UNKNOWNS * stride + k];
        counts[2 * n + k] += w * told[SQUARES * stride + k];
    }
}

/* Leave planes to both parts, which are reached by p * halved more. */
ON_WIDE_REGISTERS static void leave_to_parts(
    long n, long stride, const double *restrict p, const double *restrict halved, const double *restrict plane,
    double *restrict reached_left, double *restrict reached_right, double *restrict plane_left,
    double *restrict plane_right
) {
    for (long k = 0; k < n; k++) {
        reached_left[k] += p[k] * halved[k];
        reached_right[k] += p[k] * halved[k];
    }
    for (long q = 0; q < 4; q++)
        for (long k = 0; k < n; k++) {
            plane_left[q * stride + k] += plane[q * stride + k];
            plane_right[q * stride + k] += plane[q * stride + k];
        }
}
