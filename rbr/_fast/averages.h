/* The weights of all pieces of a table that end before one bin; see average_tables in _averages.pyx. */
#include <math.h>

#include "series.h"
#include "wide.h"

/* For the pieces s <= k < e with all starts s < e, whose sums are those up to e less those up to s: the exponent of what
   a constant explains, added to the log evidence of what is left of s; that of a line; and the factors of both.
   w, sum: of the weights, and of weight times value; kw, ks, kkw: of the same times the bin's number, and of the weight
   times its square. */
ON_WIDE_REGISTERS static void explained(
    const double *restrict w, const double *restrict sum, const double *restrict kw, const double *restrict ks,
    const double *restrict kkw, const double *restrict before, long e, double prior, double *restrict constant,
    double *restrict line, double *restrict constant_factor, double *restrict line_factor
) {
    const double w_e = w[e], sum_e = sum[e], kw_e = kw[e], ks_e = ks[e], kkw_e = kkw[e], prior_of_slopes = 3.0 * prior;
    for (long s = 0; s < e; s++) {
        double weight = w_e - w[s], total = sum_e - sum[s], moment = kw_e - kw[s];
        double known = 1.0 / (weight + prior), known_slope = 1.0 / (weight + prior_of_slopes);
        double rise = (ks_e - ks[s]) * weight - moment * total, spread = (kkw_e - kkw[s]) * weight - moment * moment;
        double share = prior * known;
        constant[s] = before[s] + 0.5 * total * total * known;
        /* Bins without weight beside the others have no spread, up to rounding. */
        line[s] = constant[s] + (spread > 0.0 ? 0.5 * rise * rise / spread * known_slope : 0.0);
        constant_factor[s] = sqrt(share);
        line_factor[s] = sqrt(share * prior_of_slopes * known_slope);
    }
}

/* out = scale * factor * exp(exponent - most) */
ON_WIDE_REGISTERS static void exponentials(
    const double *restrict exponent, const double *restrict factor, double scale, double most, long n,
    double *restrict out
) {
    for (long s = 0; s < n; s++) out[s] = scale * factor[s] * exp_of_nonpositive(exponent[s] - most);
}

/* The number of independent partial sums, the same on every machine. */
#define SIDE_BY_SIDE 8

ON_WIDE_REGISTERS static double largest_of(const double *restrict values, long n) {
    double most[SIDE_BY_SIDE];
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        most[k] = -INFINITY;
    long s = 0;
    for (; s + SIDE_BY_SIDE <= n; s += SIDE_BY_SIDE)
        for (int k = 0; k < SIDE_BY_SIDE; k++)
            most[k] = values[s + k] > most[k] ? values[s + k] : most[k];
    for (int k = 0; s + k < n; k++)
        most[k] = values[s + k] > most[k] ? values[s + k] : most[k];
    for (int half = SIDE_BY_SIDE / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            most[k] = most[k + half] > most[k] ? most[k + half] : most[k];
    return most[0];
}

static inline double added(double *sums) {
    for (int half = SIDE_BY_SIDE / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            sums[k] += sums[k + half];
    return sums[0];
}

ON_WIDE_REGISTERS static double sum_of(const double *restrict values, long n) {
    double sums[SIDE_BY_SIDE] = {0.0};
    long s = 0;
    for (; s + SIDE_BY_SIDE <= n; s += SIDE_BY_SIDE)
        for (int k = 0; k < SIDE_BY_SIDE; k++)
            sums[k] += values[s + k];
    for (int k = 0; s + k < n; k++)
        sums[k] += values[s + k];
    return added(sums);
}

/* The running sums of a table: see `explained`. */
typedef struct {
    const double *w, *sum, *kw, *ks, *kkw;
} running;

/* Sums over pieces, side by side: their probabilities, those of lines, the squares of their numbers, and the value and
   the slope that end with them. */
typedef struct {
    double all[SIDE_BY_SIDE], lines[SIDE_BY_SIDE], squares[SIDE_BY_SIDE], value[SIDE_BY_SIDE], slope[SIDE_BY_SIDE];
} totals_of_pieces;

/* Add n pieces that start at s and end before e, with probabilities share * constants and share * lines. */
static inline void add_side_by_side(
    const running *sums, long s, long e, int n, double prior, double share, const double *restrict constants,
    const double *restrict lines, double *restrict is_end, double *restrict value, double *restrict slope,
    totals_of_pieces *restrict out
) {
    const double prior_of_slopes = 3.0 * prior;
    for (int k = 0; k < n; k++) {
        double p_line = share * lines[s + k], p = share * constants[s + k] + p_line;
        double w = sums->w[e] - sums->w[s + k], total = sums->sum[e] - sums->sum[s + k];
        double moment = sums->kw[e] - sums->kw[s + k], known = 1.0 / (w + prior), mean = total * known;
        double rise = (sums->ks[e] - sums->ks[s + k]) * w - moment * total;
        double spread = (sums->kkw[e] - sums->kkw[s + k]) * w - moment * moment;
        double has_spread = spread > 0.0 ? 1.0 : 0.0, inverse = has_spread > 0.0 ? 1.0 / w : 0.0;
        spread = has_spread > 0.0 ? spread : 1.0;
        double per_spread = 1.0 / (spread * (w + prior_of_slopes));
        double is_line = p_line > 0.0 ? 1.0 : 0.0;
        rise = is_line * has_spread > 0.0 ? rise * w * per_spread : 0.0;
        double square = is_line > 0.0 ? rise * rise * spread * inverse * inverse + spread * per_spread : 0.0;
        double centre = is_line > 0.0 ? moment * inverse : 0.0;
        rise *= p_line;
        double level = p * mean - rise * centre;
        out->all[k] += p;
        out->lines[k] += p_line;
        out->squares[k] += p * (mean * mean + known) + 3.0 * p_line * square;
        out->value[k] += level;
        out->slope[k] += rise;
        value[s + k] += level;
        slope[s + k] += rise;
        is_end[s + k] += p;
    }
}

/* Add all pieces that end before e; those that are less likely than `never`, SIDE_BY_SIDE of them together, are left out.
   `lines` is 0 where a piece is too short for a line. */
ON_WIDE_REGISTERS static void add_pieces(
    const running *sums, long e, double prior, double share, double never, const double *restrict constants,
    const double *restrict lines, double *restrict is_end, double *restrict value, double *restrict slope,
    double *restrict unknowns, double *restrict squares, double *restrict pieces
) {
    totals_of_pieces all = {{0.0}, {0.0}, {0.0}, {0.0}, {0.0}};
    long s = 0;
    for (; s + SIDE_BY_SIDE <= e; s += SIDE_BY_SIDE) {
        double likely = 0.0;
        for (int k = 0; k < SIDE_BY_SIDE; k++)
            likely = constants[s + k] + lines[s + k] > likely ? constants[s + k] + lines[s + k] : likely;
        if (share * likely >= never)
            add_side_by_side(
                sums, s, e, SIDE_BY_SIDE, prior, share, constants, lines, is_end, value, slope, &all
            );
    }
    add_side_by_side(sums, s, e, (int)(e - s), prior, share, constants, lines, is_end, value, slope, &all);
    double p = added(all.all);
    *pieces += p;
    *unknowns += p + added(all.lines);
    *squares += added(all.squares);
    value[e] -= added(all.value);
    slope[e] -= added(all.slope);
}
