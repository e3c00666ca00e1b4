/* The average of a table over all ways to cut it into pieces; see _pieces.pxi.

   Pieces that end before one bin are worked on side by side, in blocks of starts. The last block goes past the end: what
   is there counts nothing, and nothing there is undefined. */
#include <math.h>

#include "blocks.h"
#include "series.h"
#include "wide.h"

/* Lines have at least this many bins. */
#define LEAST_LINE 3

/* In units of the prior: bins that hardly weigh anything have no spread, up to rounding. */
#define LEAST_SPREAD 1e-150

/* A piece that is less likely than this adds nothing to the average, nor does one whose exponent is that far below. */
#define NEVER 1e-17
#define FAR_BELOW 46.0

/* The running sums of a table, in units of its prior, with entries for b + 1 bins and a last block: of the weights, and
   of weight times value; of the same times the bin's number, and of the weight times its square. */
typedef struct {
    const double *w, *sum, *kw, *ks, *kkw;
} running;

/* exp(x) for x <= 0, and at least 1e-304: a polynomial of degree 10 on |r| <= log(2) / 2, out by 1.2e-15 of itself. */
static inline double exp_above_nothing(double x) {
    const double ROUNDS = 6755399441055744.0; /* 1.5 * 2^52: adding it leaves a whole number */
    x = x < -700.0 ? -700.0 : x; /* NaN stays */
    double k = (x * 1.4426950408889634 + ROUNDS) - ROUNDS;
    double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10, w = r * r;
    double even = 2.7620077278669195e-07, odd = 2.762510384775438e-06;
    even = even * w + 2.4801521319117586e-05;
    odd = odd * w + 0.0001984120875323736;
    even = even * w + 0.0013888888917199078;
    odd = odd * w + 0.008333333353719342;
    even = even * w + 0.04166666666662416;
    odd = odd * w + 0.166666666666483;
    even = even * w + 0.5000000000000001;
    return (1.0 + (r + w * (even + r * odd))) * power_of_two(k, 0);
}

/* For the pieces s <= k < e with all starts s < e: the exponent of what a constant explains, added to the log evidence
   of what is left of s; that of a line, where there is one; and the factors of both. */
static inline void explained(
    const running *restrict sums, const double *restrict before, const double *restrict line_scales, long e,
    double *restrict constant, double *restrict line, double *restrict constant_factor, double *restrict line_factor
) {
    const double *restrict w = sums->w, *restrict sum = sums->sum, *restrict kw = sums->kw, *restrict ks = sums->ks;
    const double *restrict kkw = sums->kkw;
    const double w_e = w[e], sum_e = sum[e], kw_e = kw[e], ks_e = ks[e], kkw_e = kkw[e];
    for (long s = 0; s < IN_BLOCKS(e); s++) {
        double weight = w_e - w[s], total = sum_e - sum[s], moment = kw_e - kw[s];
        weight = weight < 0.0 ? 0.0 : weight; /* past the end */
        double rise = (ks_e - ks[s]) * weight - moment * total, spread = (kkw_e - kkw[s]) * weight - moment * moment;
        rise = spread < LEAST_SPREAD ? 0.0 : rise;
        spread = spread < LEAST_SPREAD ? 1.0 : spread;
        /* One division for the roots of 1 / (weight + 1), of 1 / (weight + 3), and 1 / spread. */
        double root = sqrt(weight + 1.0), root_of_slopes = sqrt(weight + 3.0);
        double product = root * root_of_slopes, inverse = 1.0 / (product * spread), per_product = inverse * spread;
        double known = root_of_slopes * per_product, known_slope = root * per_product;
        double level = total * known, slope = rise * known_slope;
        constant[s] = before[s] + 0.5 * level * level;
        line[s] = line_scales[s] > 0.0 ? constant[s] + 0.5 * slope * slope * (inverse * product) : -INFINITY;
        constant_factor[s] = known;
        line_factor[s] = 1.7320508075688772 * per_product;
    }
}

/* out = scale * factor * exp(exponent - most); 0 in the first blocks, of the longest pieces, as long as these are far
   below. */
static inline void exponentials(
    const double *restrict exponent, const double *restrict scale, const double *restrict factor, double most, long n,
    double *restrict out
) {
    const double bound = most - FAR_BELOW;
    long first = 0;
    while (first < n && exponent[first] < bound)
        first++;
    first -= first % SIDE_BY_SIDE;
    for (long s = 0; s < first; s++)
        out[s] = 0.0;
    for (long s = first; s < n; s++)
        out[s] = scale[s] * factor[s] * exp_above_nothing(exponent[s] - most);
}

static inline double largest_of(const double *restrict values, long n) {
    double most[SIDE_BY_SIDE];
    for (int k = 0; k < SIDE_BY_SIDE; k++)
        most[k] = -INFINITY;
    for (long s = 0; s < n; s += SIDE_BY_SIDE)
        for (int k = 0; k < SIDE_BY_SIDE; k++)
            most[k] = values[s + k] > most[k] ? values[s + k] : most[k];
    for (int half = SIDE_BY_SIDE / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            most[k] = most[k + half] > most[k] ? most[k + half] : most[k];
    return most[0];
}

static inline double sum_of(const double *restrict values, long n) {
    double sums[SIDE_BY_SIDE] = {0.0};
    for (long s = 0; s < n; s += SIDE_BY_SIDE)
        for (int k = 0; k < SIDE_BY_SIDE; k++)
            sums[k] += values[s + k];
    return added(sums);
}

/* The weights of all pieces that end before e, constants and lines, and their sum, in units of exp(most), which is
   returned. The scales are the prior shares of constants and lines by start: none of lines that are too short, nothing
   past the end. `scratch` has room for four rows. */
ON_WIDE_REGISTERS static double weigh_pieces(
    const running *restrict sums, const double *restrict before, const double *restrict constant_scales,
    const double *restrict line_scales, int has_lines, long e, long row, double *restrict scratch,
    double *restrict constants, double *restrict lines, double *restrict total
) {
    double *constant = scratch, *line = constant + row, *constant_factor = line + row;
    double *line_factor = constant_factor + row;
    long n = IN_BLOCKS(e);
    explained(sums, before, line_scales, e, constant, line, constant_factor, line_factor);
    double most = largest_of(constant, n), most_of_lines = has_lines ? largest_of(line, n) : -INFINITY;
    most = most_of_lines > most ? most_of_lines : most;
    exponentials(constant, constant_scales, constant_factor, most, n, constants);
    *total = sum_of(constants, n);
    if (has_lines) {
        exponentials(line, line_scales, line_factor, most, n, lines);
        *total += sum_of(lines, n);
    } else
        for (long s = 0; s < n; s++)
            lines[s] = 0.0;
    return most;
}

/* Sums over pieces, side by side: their probabilities, those of lines, the squares of their numbers, and the value and
   the slope that end with them. */
typedef struct {
    double all[SIDE_BY_SIDE], lines[SIDE_BY_SIDE], squares[SIDE_BY_SIDE], value[SIDE_BY_SIDE], slope[SIDE_BY_SIDE];
} totals_of_pieces;

/* Add a block of pieces that start at s and end before e, with probabilities share * constants and share * lines. */
static inline void add_block(
    const running *sums, long s, long e, double share, const double *restrict constants, const double *restrict lines,
    double *restrict is_end, double *restrict value, double *restrict slope, totals_of_pieces *restrict out
) {
    const double w_e = sums->w[e], sum_e = sums->sum[e], kw_e = sums->kw[e], ks_e = sums->ks[e], kkw_e = sums->kkw[e];
    for (int k = 0; k < SIDE_BY_SIDE; k++) {
        double p_line = share * lines[s + k], p = share * constants[s + k] + p_line;
        double w = w_e - sums->w[s + k], total = sum_e - sums->sum[s + k], moment = kw_e - sums->kw[s + k];
        w = w < 0.0 ? 0.0 : w; /* past the end */
        double rise = (ks_e - sums->ks[s + k]) * w - moment * total;
        double spread = (kkw_e - sums->kkw[s + k]) * w - moment * moment;
        /* Without spread a line has its prior's slope, none. */
        double has_spread = spread < LEAST_SPREAD ? 0.0 : 1.0, own = spread < LEAST_SPREAD ? 1.0 : w;
        spread = spread < LEAST_SPREAD ? 1.0 : spread;
        /* One division for 1 / (w + 1), 1 / w, 1 / (w + 3) and 1 / spread. */
        double level_parts = (w + 1.0) * own, slope_parts = (w + 3.0) * spread;
        double inverse = 1.0 / (level_parts * slope_parts), of_slope = inverse * level_parts;
        double of_level = inverse * slope_parts, known = of_level * own, per_weight = of_level * (w + 1.0);
        double mean = total * known, rate = has_spread * (rise * w * of_slope), in_value = rate * per_weight;
        double square = in_value * in_value * spread + of_slope * spread;
        rate *= p_line;
        double level = p * mean - rate * (moment * per_weight);
        out->all[k] += p;
        out->lines[k] += p_line;
        out->squares[k] += p * (mean * mean + known) + 3.0 * p_line * square;
        out->value[k] += level;
        out->slope[k] += rate;
        value[s + k] += level;
        slope[s + k] += rate;
        is_end[s + k] += p;
    }
}

/* Add all pieces that end before e; blocks that are less likely than NEVER are left out. */
ON_WIDE_REGISTERS static void add_pieces(
    const running *sums, long e, double share, const double *restrict constants, const double *restrict lines,
    double *restrict is_end, double *restrict value, double *restrict slope, double *restrict unknowns,
    double *restrict squares, double *restrict pieces
) {
    totals_of_pieces all = {{0.0}, {0.0}, {0.0}, {0.0}, {0.0}};
    for (long s = 0; s < e; s += SIDE_BY_SIDE) {
        double likely = 0.0;
        for (int k = 0; k < SIDE_BY_SIDE; k++)
            likely = constants[s + k] + lines[s + k] > likely ? constants[s + k] + lines[s + k] : likely;
        if (share * likely >= NEVER) add_block(sums, s, e, share, constants, lines, is_end, value, slope, &all);
    }
    double p = added(all.all);
    *pieces += p;
    *unknowns += p + added(all.lines);
    *squares += added(all.squares);
    value[e] -= added(all.value);
    slope[e] -= added(all.slope);
}
