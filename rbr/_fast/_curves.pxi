# The average of a table over smooth curves. Included by _visits.pyx.
#
# The rises from bin to bin are an autoregression, whose precision P has three diagonals. So the table itself has the
# precision Q = D' P D + W of five, D the differences, and one sweep over the bins and one back give the mean, the
# determinant and the trace. All lengths and priors go side by side. Q leaves the level of a table free: sums that add up
# to zero have a solution of W-mean zero, and the determinant has one unknown more, which the total weight takes out.


cdef extern from "curves.h":
    void factor(
        long b, long n, const double *weights, const double *sums, const double *ends, const double *inner,
        const double *beside, double *pivots, double *first, double *second, double *solved, double *products,
        double *log_det, double *square
    ) noexcept nogil
    void solve(
        long b, long n, const double *weights, const double *pivots, const double *first, const double *second,
        const double *shares, double *solved, double *corner, double *edge, double *far, double *traces, double *out
    ) noexcept nogil


cdef Py_ssize_t _scratch_of_curves(Py_ssize_t b, Py_ssize_t n) noexcept nogil:
    return 4 * b * n + 2 * b + 11 * n


cdef void _average_curves(
    const double *sums, const double *weights, Py_ssize_t b, double per_row, const double *lengths,
    Py_ssize_t n_lengths, const double *rows, Py_ssize_t n_priors, double *out, double *evidence_out,
    double *unknowns_out, double *scratch,
) noexcept nogil:
    """The mean of a table of b bins over smooth curves, its log evidence, and the effective number of its unknowns.

    sums : of weight times value, by bin
    weights : precisions of the values, positive
    per_row : the precision that a row brings on average, positive
    lengths : over which part of the bins rises stay alike, not negative
    rows : how many rows the prior of a value is worth, positive
    """
    cdef:
        Py_ssize_t n = n_lengths * n_priors, k, g, i
        double *ends = scratch                # entries of P: at both ends of its diagonal, within, and beside it
        double *inner = ends + n
        double *beside = inner + n
        double *products = beside + n
        double *log_det = products + n
        double *square = log_det + n
        double *shares = square + n
        double *corner = shares + n
        double *edge = corner + n
        double *far = edge + n
        double *traces = far + n
        double *scaled_weights = traces + n   # in units of a row
        double *scaled_sums = scaled_weights + b
        double *pivots = scaled_sums + b      # (b, n), as all below
        double *below = pivots + b * n
        double *second = below + b * n
        double *solved = second + b * n
        double unit = sqrt(per_row), total = 0.0, level = 0.0, rho, alike, variance, most = 0.0, all_shares = 0.0
        double known = 0.0, table = 0.0
    for k in range(b):
        total += weights[k]
        level += sums[k]
    for k in range(b):
        scaled_weights[k] = weights[k] / per_row
        scaled_sums[k] = (sums[k] - weights[k] * (level / total)) / unit
    total /= per_row
    level /= unit
    for i in range(n_lengths):
        rho = exp(-1.0 / (lengths[i] * (b - 1))) if lengths[i] > 0.0 and b > 1 else 0.0
        alike = _sum_of_powers(rho, b - 1)
        for k in range(n_priors):
            g = i * n_priors + k
            variance = 4.0 / (rows[k] * alike)
            # The precision of one rise is that of its variance; of more, that of an autoregression.
            ends[g] = 1.0 / (variance * (1.0 - rho * rho)) if b > 2 else 1.0 / variance
            inner[g] = (1.0 + rho * rho) * ends[g]
            beside[g] = -rho * ends[g]
            shares[g] = -(b - 1) * log(variance) - (b - 2) * log1p(-rho * rho) if b > 2 else -(b - 1) * log(variance)
    factor(
        b, n, scaled_weights, scaled_sums, ends, inner, beside, pivots, below, second, solved, products, log_det, square
    )
    for g in range(n):
        shares[g] = 0.5 * (shares[g] - log_det[g] + square[g] + log(total))
        shares[g] += 0.5 * level * level / (total + rows[g % n_priors]) - 0.5 * log1p(total / rows[g % n_priors])
        most = shares[g] if g == 0 or shares[g] > most else most
    for g in range(n):
        shares[g] = exp(shares[g] - most)
        all_shares += shares[g]
    for g in range(n):
        shares[g] /= all_shares
        known += shares[g] * total / (total + rows[g % n_priors])
        table += shares[g] * level / (total + rows[g % n_priors])
    solve(b, n, scaled_weights, pivots, below, second, shares, solved, corner, edge, far, traces, out)
    for k in range(b):
        out[k] = (out[k] + table) / unit
    for g in range(n):
        known += shares[g] * (traces[g] - 1.0)
    evidence_out[0] = most + log(all_shares / n)
    unknowns_out[0] = known


cdef double _sum_of_powers(double rho, Py_ssize_t m) noexcept nogil:
    """The sum of rho^|i - k| over all 0 <= i, k < m; 1 for m = 0."""
    cdef double total = m if m > 0 else 1.0, power = 1.0
    cdef Py_ssize_t k
    for k in range(1, m):
        power *= rho
        total += 2.0 * (m - k) * power
    return total
