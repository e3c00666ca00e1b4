# The average of a table over smooth curves. Included by _visits.pyx.
#
# The rises from bin to bin are an autoregression, whose precision P has three diagonals. So the table itself has the
# precision Q = D' P D + W of five, D the differences, and one sweep over the bins and one back give the mean, the
# determinant and the trace. All lengths and priors go side by side. Q leaves the level of a table free: sums that add up
# to zero have a solution of W-mean zero, and the determinant has one unknown more, which the total weight takes out.


cdef extern from "curves.h":
    void factor(
        long b, long n, const double *weights, const double *sums, const double *ends, const double *inner,
        const double *beside, double *inverses, double *first, double *second, double *solved, double *edge,
        double *products, double *powers, double *log_det, double *square
    ) noexcept nogil
    void solve(
        long b, long n, const double *weights, const double *inverses, const double *first, const double *second,
        const double *shares, double *solved, double *corner, double *edge, double *far, double *traces, double *out
    ) noexcept nogil


cdef Py_ssize_t _scratch_of_curves(Py_ssize_t b, Py_ssize_t n_lengths, Py_ssize_t n_priors) noexcept nogil:
    return (4 * b + 14) * IN_BLOCKS(n_lengths * n_priors) + 2 * b + 2 * n_lengths + n_priors


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
        Py_ssize_t n = n_lengths * n_priors, side = IN_BLOCKS(n), k, g, i
        double *ends = scratch                # entries of P: at both ends of its diagonal, within, and beside it
        double *inner = ends + side
        double *beside = inner + side
        double *products = beside + side
        double *powers = products + side
        double *log_det = powers + side
        double *square = log_det + side
        double *shares = square + side
        double *corner = shares + side
        double *edge = corner + side
        double *far = edge + side
        double *traces = far + side
        double *inverses = traces + side      # (b, side), as all below; `solved` has two rows more
        double *below = inverses + b * side
        double *second = below + b * side
        double *solved = second + b * side
        double *scaled_weights = solved + (b + 2) * side  # in units of a row
        double *scaled_sums = scaled_weights + b
        double *rhos = scaled_sums + b        # by length
        double *alikes = rhos + n_lengths
        double *of_levels = alikes + n_lengths  # by prior: the log evidence of the level
        double unit = sqrt(per_row), total = 0.0, level = 0.0, rho, variance, most = -INFINITY, all_shares = 0.0
        double known = 0.0, table = 0.0, of_length
    for k in range(b):
        total += weights[k]
        level += sums[k]
    for k in range(b):
        scaled_weights[k] = weights[k] / per_row
        scaled_sums[k] = (sums[k] - weights[k] * (level / total)) / unit
    total /= per_row
    level /= unit
    for i in range(n_lengths):
        rhos[i] = exp(-1.0 / (lengths[i] * (b - 1))) if lengths[i] > 0.0 and b > 1 else 0.0
    _sums_of_powers(rhos, n_lengths, b - 1, products, alikes)  # `products` has room
    for k in range(n_priors):
        of_levels[k] = level * level / (total + rows[k]) - log1p(total / rows[k]) + (b - 1) * log(rows[k] / 4.0)
        of_levels[k] += log(total)
    for i in range(n_lengths):
        rho = rhos[i]
        of_length = (b - 1) * log(alikes[i]) - (b - 2) * log1p(-rho * rho) if b > 2 else (b - 1) * log(alikes[i])
        for k in range(n_priors):
            g = i * n_priors + k
            variance = 4.0 / (rows[k] * alikes[i])
            # The precision of one rise is that of its variance; of more, that of an autoregression.
            ends[g] = 1.0 / (variance * (1.0 - rho * rho)) if b > 2 else 1.0 / variance
            inner[g] = (1.0 + rho * rho) * ends[g]
            beside[g] = -rho * ends[g]
            shares[g] = of_length + of_levels[k]
    # The last block is filled with what is there already, which counts nothing.
    for g in range(n, side):
        ends[g], inner[g], beside[g], shares[g] = ends[0], inner[0], beside[0], 0.0
    factor(
        b, side, scaled_weights, scaled_sums, ends, inner, beside, inverses, below, second, solved, edge, products,
        powers, log_det, square
    )
    for g in range(n):
        shares[g] = 0.5 * (shares[g] - log_det[g] + square[g])
        most = shares[g] if shares[g] > most else most
    for g in range(n):
        shares[g] = exp(shares[g] - most)
        all_shares += shares[g]
    for g in range(n):
        shares[g] /= all_shares
        known += shares[g] * total / (total + rows[g % n_priors])
        table += shares[g] * level / (total + rows[g % n_priors])
    solve(b, side, scaled_weights, inverses, below, second, shares, solved, corner, edge, far, traces, out)
    for k in range(b):
        out[k] = (out[k] + table) / unit
    for g in range(n):
        known += shares[g] * (traces[g] - 1.0)
    evidence_out[0] = most + log(all_shares / n)
    unknowns_out[0] = known


cdef void _sums_of_powers(
    const double *rhos, Py_ssize_t n, Py_ssize_t m, double *powers, double *out
) noexcept nogil:
    """The sums of rho^|i - k| over all 0 <= i, k < m; 1 for m = 0.

    A sum of sums of powers, by Horner's rule: m + 2 rho sum_k (1 + rho + ... + rho^k), k < m - 1.
    """
    cdef Py_ssize_t i, _k
    for i in range(n):
        powers[i] = out[i] = 0.0
    # Side by side: each waits for its last sum.
    for _k in range(m - 1):
        for i in range(n):
            powers[i] = 1.0 + rhos[i] * powers[i]
            out[i] += powers[i]
    for i in range(n):
        out[i] = m + 2.0 * rhos[i] * out[i] if m > 0 else 1.0
