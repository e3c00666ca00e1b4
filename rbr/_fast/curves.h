/* Sweeps over the bins of a table for many priors at a time, side by side; see average_curves in _curves.pyx. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "blocks.h"
#include "wide.h"

/* The powers of two are taken out of products of this many pivots, each of which lies within 1e-38 and 1e38. */
#define PIVOTS_PER_PRODUCT 8

/* The mantissa of a positive number, 1 <= mantissa < 2; its power of two is added to `power`. What is no number stays. */
static inline double mantissa_of(double x, double *power) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t exponent = (bits >> 52) - 1023;
    if (!(x > 0.0 && x < INFINITY)) return x;
    bits -= exponent << 52;
    memcpy(&x, &bits, sizeof bits);
    *power += (double)exponent;
    return x;
}

/* Row k of Q = D' P D + W is a sum of entries of P, which is the same along each diagonal but at its ends: how many of
   each there are in (k, k), (k, k + 1) and (k, k + 2). */
typedef struct {
    double ends, inner, beside;
} entries;

static inline void entries_of(long k, long b, entries *diagonal, entries *next, entries *after) {
    const long m = b - 1; /* rises; rise i leads from bin i to bin i + 1 */
    entries none = {0.0, 0.0, 0.0};
    *diagonal = *next = *after = none;
    if (k > 0) *(k == 1 || k == m ? &diagonal->ends : &diagonal->inner) += 1.0;
    if (k < m) *(k == 0 || k == m - 1 ? &diagonal->ends : &diagonal->inner) += 1.0;
    if (k > 0 && k < m) diagonal->beside = -2.0;
    if (k < m) {
        *(k == 0 || k == m - 1 ? &next->ends : &next->inner) = -1.0;
        next->beside = (k > 0 ? 1.0 : 0.0) + (k + 1 < m ? 1.0 : 0.0);
    }
    if (k + 1 < m) after->beside = -1.0;
}

/* Q = L diag(1 / inverses) L', and L^-1 of the sums: n priors side by side, in whole blocks, bin after bin. One and two
   below the diagonal L has `first` and `second`. `edge` and `powers` are scratch. */
ON_WIDE_REGISTERS static void factor(
    long b, long n, const double *restrict weights, const double *restrict sums, const double *restrict ends,
    const double *restrict inner, const double *restrict beside, double *restrict inverses, double *restrict first,
    double *restrict second, double *restrict solved, double *restrict edge, double *restrict products,
    double *restrict powers, double *restrict log_det, double *restrict square
) {
    for (long g = 0; g < n; g++) {
        products[g] = 1.0;
        powers[g] = square[g] = edge[g] = 0.0;
    }
    double from_last = 0.0; /* the part of `beside` in the entry (k - 1, k + 1) */
    for (long k = 0; k < b; k++) {
        entries on, next, after;
        entries_of(k, b, &on, &next, &after);
        const double w = weights[k], s = sums[k];
        double *restrict inverse = inverses + k * n, *restrict l1 = first + k * n, *restrict l2 = second + k * n;
        double *restrict y = solved + k * n;
        if (k > 1) {
            const double *restrict p1 = l1 - n, *restrict q2 = l2 - 2 * n, *restrict y1 = y - n, *restrict y2 = y - 2 * n;
            for (long g = 0; g < n; g++) {
                double pivot = on.ends * ends[g] + on.inner * inner[g] + on.beside * beside[g] + w;
                double right = next.ends * ends[g] + next.inner * inner[g] + next.beside * beside[g];
                pivot = pivot - p1[g] * edge[g] + q2[g] * beside[g]; /* the entry (k - 2, k) is -beside */
                right -= p1[g] * (from_last * beside[g]);
                double of_bin = s - p1[g] * y1[g] - q2[g] * y2[g], known = 1.0 / pivot;
                edge[g] = right;
                inverse[g] = known;
                l1[g] = right * known;
                l2[g] = after.beside * beside[g] * known;
                y[g] = of_bin;
                products[g] *= pivot;
                square[g] += of_bin * of_bin * known;
            }
        } else {
            for (long g = 0; g < n; g++) {
                double pivot = on.ends * ends[g] + on.inner * inner[g] + on.beside * beside[g] + w;
                double right = next.ends * ends[g] + next.inner * inner[g] + next.beside * beside[g];
                double left = k == 1 ? first[g] : 0.0, of_bin = k == 1 ? s - left * solved[g] : s;
                pivot -= left * edge[g];
                right -= left * (from_last * beside[g]);
                edge[g] = right;
                inverse[g] = 1.0 / pivot;
                l1[g] = right / pivot;
                l2[g] = after.beside * beside[g] / pivot;
                y[g] = of_bin;
                products[g] *= pivot;
                square[g] += of_bin * of_bin / pivot;
            }
        }
        from_last = after.beside;
        if (k % PIVOTS_PER_PRODUCT == PIVOTS_PER_PRODUCT - 1)
            for (long g = 0; g < n; g++)
                products[g] = mantissa_of(products[g], &powers[g]);
    }
    for (long g = 0; g < n; g++)
        log_det[g] = log(products[g]) + powers[g] * 0.69314718055994530942;
}

/* out[k] = the mean over the priors, by their shares, of Q^-1 of the sums; traces = that of W Q^-1. Of Q^-1 only the
   entries next to the diagonal are needed: `corner`, `edge` and `far` are those at (k, k), (k, k + 1) and
   (k + 1, k + 1), of the bins k and k + 1 visited last. Two rows past the end of `solved` are zeros. */
ON_WIDE_REGISTERS static void solve(
    long b, long n, const double *restrict weights, const double *restrict inverses, const double *restrict first,
    const double *restrict second, const double *restrict shares, double *restrict solved, double *restrict corner,
    double *restrict edge, double *restrict far, double *restrict traces, double *restrict out
) {
    for (long g = 0; g < n; g++)
        corner[g] = edge[g] = far[g] = traces[g] = solved[b * n + g] = solved[(b + 1) * n + g] = 0.0;
    for (long k = b - 1; k >= 0; k--) {
        const double *restrict inverse = inverses + k * n, *restrict l1 = first + k * n, *restrict l2 = second + k * n;
        double *restrict y = solved + k * n;
        const double *restrict y1 = y + n, *restrict y2 = y + 2 * n;
        const double w = weights[k];
        double mean[SIDE_BY_SIDE] = {0.0};
        for (long start = 0; start < n; start += SIDE_BY_SIDE)
            for (int i = 0; i < SIDE_BY_SIDE; i++) {
                long g = start + i;
                double to_next = -l1[g] * corner[g] - l2[g] * edge[g], to_after = -l1[g] * edge[g] - l2[g] * far[g];
                double on = inverse[g] - l1[g] * to_next - l2[g] * to_after;
                double of_bin = y[g] * inverse[g] - l1[g] * y1[g] - l2[g] * y2[g];
                far[g] = corner[g];
                corner[g] = on;
                edge[g] = to_next;
                traces[g] += w * on;
                y[g] = of_bin;
                mean[i] += shares[g] * of_bin;
            }
        out[k] = added(mean);
    }
}
