/* Sweeps over the bins of a table for many priors at a time, side by side; see average_curves in _curves.pyx. */
#include <math.h>

#include "wide.h"

/* Logarithms are taken of products of this many pivots, each of which lies within 1e-38 and 1e38. */
#define PIVOTS_PER_LOG 8

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

/* Q = L diag(pivots) L', and L^-1 of the sums: n priors side by side, bin after bin. One and two below the diagonal L
   has `first` and `second`. */
ON_WIDE_REGISTERS static void factor(
    long b, long n, const double *restrict weights, const double *restrict sums, const double *restrict ends,
    const double *restrict inner, const double *restrict beside, double *restrict pivots, double *restrict first,
    double *restrict second, double *restrict solved, double *restrict products, double *restrict log_det,
    double *restrict square
) {
    for (long g = 0; g < n; g++) {
        products[g] = 1.0;
        log_det[g] = square[g] = 0.0;
    }
    for (long k = 0; k < b; k++) {
        entries on, next, after;
        entries_of(k, b, &on, &next, &after);
        const double w = weights[k], s = sums[k];
        double *restrict d = pivots + k * n, *restrict l1 = first + k * n, *restrict l2 = second + k * n;
        double *restrict y = solved + k * n;
        if (k > 1) {
            const double *restrict d1 = d - n, *restrict d2 = d - 2 * n, *restrict p1 = l1 - n, *restrict q1 = l2 - n;
            const double *restrict q2 = l2 - 2 * n, *restrict y1 = y - n, *restrict y2 = y - 2 * n;
            for (long g = 0; g < n; g++) {
                double diagonal = on.ends * ends[g] + on.inner * inner[g] + on.beside * beside[g] + w;
                double right = next.ends * ends[g] + next.inner * inner[g] + next.beside * beside[g];
                d[g] = diagonal - p1[g] * p1[g] * d1[g] - q2[g] * q2[g] * d2[g];
                l1[g] = (right - p1[g] * q1[g] * d1[g]) / d[g];
                l2[g] = after.beside * beside[g] / d[g];
                y[g] = s - p1[g] * y1[g] - q2[g] * y2[g];
            }
        } else {
            for (long g = 0; g < n; g++) {
                double diagonal = on.ends * ends[g] + on.inner * inner[g] + on.beside * beside[g] + w;
                double right = next.ends * ends[g] + next.inner * inner[g] + next.beside * beside[g], left = 0.0;
                y[g] = s;
                if (k == 1) {
                    left = first[g];
                    diagonal -= left * left * pivots[g];
                    right -= left * second[g] * pivots[g];
                    y[g] -= left * solved[g];
                }
                d[g] = diagonal;
                l1[g] = right / diagonal;
                l2[g] = after.beside * beside[g] / diagonal;
            }
        }
        for (long g = 0; g < n; g++) {
            products[g] *= d[g];
            square[g] += y[g] * y[g] / d[g];
        }
        if (k % PIVOTS_PER_LOG == PIVOTS_PER_LOG - 1 || k == b - 1)
            for (long g = 0; g < n; g++) {
                log_det[g] += log(products[g]);
                products[g] = 1.0;
            }
    }
}

/* out[k] = the mean over the priors, by their shares, of Q^-1 of the sums; traces = that of W Q^-1. Of Q^-1 only the
   entries next to the diagonal are needed: `corner`, `edge` and `far` are those at (k, k), (k, k + 1) and
   (k + 1, k + 1), of the bins k and k + 1 visited last. */
ON_WIDE_REGISTERS static void solve(
    long b, long n, const double *restrict weights, const double *restrict pivots, const double *restrict first,
    const double *restrict second, const double *restrict shares, double *restrict solved, double *restrict corner,
    double *restrict edge, double *restrict far, double *restrict traces, double *restrict out
) {
    for (long g = 0; g < n; g++)
        corner[g] = edge[g] = far[g] = traces[g] = 0.0;
    for (long k = b - 1; k >= 0; k--) {
        const double *restrict d = pivots + k * n, *restrict l1 = first + k * n, *restrict l2 = second + k * n;
        double *restrict y = solved + k * n;
        const double w = weights[k];
        for (long g = 0; g < n; g++) {
            double to_next = -l1[g] * corner[g] - l2[g] * edge[g], to_after = -l1[g] * edge[g] - l2[g] * far[g];
            far[g] = corner[g];
            corner[g] = 1.0 / d[g] - l1[g] * to_next - l2[g] * to_after;
            edge[g] = to_next;
            traces[g] += w * corner[g];
            y[g] /= d[g];
        }
        if (k + 1 < b) {
            const double *restrict y1 = y + n;
            for (long g = 0; g < n; g++)
                y[g] -= l1[g] * y1[g];
        }
        if (k + 2 < b) {
            const double *restrict y2 = y + 2 * n;
            for (long g = 0; g < n; g++)
                y[g] -= l2[g] * y2[g];
        }
        double mean = 0.0;
        for (long g = 0; g < n; g++)
            mean += shares[g] * y[g];
        out[k] = mean;
    }
}
