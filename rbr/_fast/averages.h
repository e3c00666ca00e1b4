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
        line[s] = constant[s] + 0.5 * rise * rise / spread * known_slope;
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
