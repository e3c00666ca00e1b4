"""The kernel of averages over smooth curves.

The rises from bin to bin are an autoregression, whose precision P has three diagonals. So the table itself has the
precision Q = D' P D + W of five, D the differences, and one sweep over the bins and one back give the mean, the
determinant and the trace. All lengths and priors go side by side. Q leaves the level of a table free: sums that add up
to zero have a solution of W-mean zero, and the determinant has one unknown more, which the total weight takes out.
"""

from libc.math cimport exp, log, log1p, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

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


def average_curves(
    const int64_t[::1] offsets,      # IN  (n_tables + 1,)
    const double[::1] sums,          # IN  (offsets[-1],): of weight times value, by bin
    const double[::1] weights,       # IN  (offsets[-1],): precisions of the values, positive
    const double[::1] per_row,       # IN  (n_tables,): the precision that a row brings on average, positive
    const double[::1] lengths,       # IN  (n_lengths,): over which part of the bins rises stay alike, not negative
    const double[::1] rows,          # IN  (n_priors,): how many rows the prior of a value is worth, positive
    double[::1] out,                 # OUT (offsets[-1],), the tables first <= t < last
    double[::1] evidence_out,        # OUT (n_tables,)
    double[::1] unknowns_out,        # OUT (n_tables,)
    Py_ssize_t first,
    Py_ssize_t last,
):
    """The mean of each table over smooth curves, its log evidence, and the effective number of its unknowns."""
    cdef Py_ssize_t t, largest = 0, n = lengths.shape[0] * rows.shape[0]
    cdef double *scratch
    for t in range(first, last):
        largest = max(largest, offsets[t + 1] - offsets[t])
    with nogil:
        scratch = <double *> malloc((4 * largest * n + 2 * largest + 11 * n + 1) * sizeof(double))
        if scratch == NULL:
            with gil:
                raise MemoryError
        for t in range(first, last):
            if offsets[t] < offsets[t + 1]:
                _average(
                    &sums[offsets[t]], &weights[offsets[t]], offsets[t + 1] - offsets[t], per_row[t], lengths, rows,
                    &out[offsets[t]], &evidence_out[t], &unknowns_out[t], scratch
                )
            else:
                evidence_out[t] = unknowns_out[t] = 0.0
        free(scratch)


cdef void _average(
    const double *sums, const double *weights, Py_ssize_t b, double per_row, const double[::1] lengths,
    const double[::1] rows, double *out, double *evidence_out, double *unknowns_out, double *scratch,
) noexcept nogil:
    cdef:
        Py_ssize_t n_priors = rows.shape[0], n = lengths.shape[0] * n_priors, k, g, i
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
    for i in range(lengths.shape[0]):
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
