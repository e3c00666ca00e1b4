"""The kernels of averaged tables: what a visit of a table computes, and rounds of visits over rows in memory.

A visit turns sums by bin into precisions, merges the bins that are averaged over as one, takes the average over pieces
(_pieces.pxi) and over curves (_curves.pxi), or over levels, and moves the table. A round is thousands of such visits.
"""

from libc.math cimport INFINITY, exp, fabs, log, log1p, sqrt
from libc.stdint cimport int64_t, uint8_t, uint16_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

ctypedef fused code_t:
    uint8_t
    uint16_t

ctypedef fused target_t:
    double
    int64_t

include "_pieces.pxi"
include "_curves.pxi"
include "_columns.pxi"
include "_visited_rows.pxi"

# The number of the loss of several classes, which is not among LOSSES.
SOFTMAX = -1

# Positive numbers are at least this: they are divided by.
cdef double LEAST = 1e-300

# The log odds of a feature are cut off here, where its share is 0 or 1 to all digits.
cdef double MOST_LOG_ODDS = 700.0


# What the kernels are told; see `visit_tables`.
cdef struct Run:
    Py_ssize_t n_tables
    Py_ssize_t n_outputs
    const int64_t *offsets
    const int64_t *groups
    const int64_t *n_groups
    const int64_t *n_ordered
    const uint8_t *is_grouped
    const uint8_t *has_missing
    const uint8_t *is_forced
    const double *line_shares
    const double *weights
    const double *rises
    const double *curvatures
    const double *growth              # NULL: none
    const double *rows_of_levels
    const double *lengths
    const double *rows_of_curves
    Py_ssize_t n_rows_of_levels
    Py_ssize_t n_lengths
    Py_ssize_t n_rows_of_curves
    double n_total
    double dispersion
    double alpha
    double least_prior_rows
    double most_prior_rows
    double least_jumps
    double most_jumps
    double curve_share
    double n_allowed
    double price
    double step
    double *f
    double *share
    double *evidence
    double *explained
    double *pieces
    double *freedom
    double *jumps
    double *prior_rows


def visit_tables(
    const int64_t[::1] tables,            # IN  (n,): the tables to visit; first and last count in this list
    const int64_t[::1] offsets,           # IN  (n_tables + 1,)
    const int64_t[::1] groups,            # IN  (n_coef,): bins of one number are averaged over as one; -1: left out
    const int64_t[::1] n_groups,          # IN  (n_tables,)
    const int64_t[::1] n_ordered,         # IN  (n_tables,): bins that have an order
    const uint8_t[::1] is_grouped,        # IN  (n_tables,): whether the bins are levels without an order
    const uint8_t[::1] has_missing,       # IN  (n_tables,): whether the last bin is the missing one
    const uint8_t[::1] is_forced,         # IN  (n_tables,): whether the table is used whatever its evidence
    const double[::1] line_shares,        # IN  (n_tables,): the prior share of lines; 0: neither lines nor curves
    const double[::1] weights,            # IN  (n_coef,): of the bins; they sum to 1 in each table
    const double[:, ::1] rises,           # IN  (n_coef, n_outputs): of a table, within the bins averaged over as one
    const double[:, ::1] curvatures,      # IN  (n_coef, n_outputs): sums of v h over the rows of the bins
    const double[::1] growth,             # IN  (n_outputs,): by what part curvatures grow with the score; (0,): none
    const double[::1] rows_of_levels,     # IN  (n,): how many rows the prior of a level is worth, positive
    const double[::1] lengths,            # IN  (n,): of curves: over which part of the bins rises stay alike
    const double[::1] rows_of_curves,     # IN  (n,): how many rows the prior of a curve's value is worth, positive
    double n_total,                       # IN  the rows
    double dispersion,                    # IN  of the rows
    double alpha,                         # IN  the ridge
    double least_prior_rows,              # IN  the limits of what the prior of a piece is worth, in rows
    double most_prior_rows,
    double least_jumps,                   # IN  the limits of the jumps that a table is expected to have: a number,
    double most_jumps,                    #     and a share of its merged bins
    double curve_share,                   # IN  the prior share of curves beside pieces
    double n_allowed,                     # IN  the tables that may be used
    double price,                         # IN  the evidence that a table pays for the numbers of its prior
    double step,                          # IN  how far tables go towards their means; 0: they are only looked at
    const double[:, ::1] pulls,           # IN  (n_coef, n_outputs): sums of v r over the rows of the bins
    double[:, ::1] f,                     # IN/OUT (n_coef, n_outputs), the tables at first <= t < last
    double[:, ::1] share,                 # IN/OUT (n_tables, n_outputs), likewise, as all below: probability of use
    double[:, ::1] evidence,              # OUT log odds of the data under the table against none
    double[:, ::1] explained,             # OUT what the mean table explains
    double[:, ::1] pieces,                # OUT the mean number of pieces
    double[:, ::1] freedom,               # OUT the degrees of freedom
    double[:, ::1] jumps,                 # IN/OUT the prior's number of jumps
    double[:, ::1] prior_rows,            # IN/OUT the number of rows that the prior of a piece is worth
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Visit some tables: average each over all ways to cut it, over curves or levels, and move it towards its mean."""
    cdef Py_ssize_t t, c, j, n_outputs = f.shape[1]
    cdef Run run
    cdef double *scratch
    _tell(
        &run, offsets, groups, n_groups, n_ordered, is_grouped, has_missing, is_forced, line_shares, weights, rises,
        curvatures, growth, rows_of_levels, lengths, rows_of_curves, n_total, dispersion, alpha, least_prior_rows,
        most_prior_rows, least_jumps, most_jumps, curve_share, n_allowed, price, step, f, share, evidence, explained,
        pieces, freedom, jumps, prior_rows
    )
    with nogil:
        scratch = <double *> malloc(_scratch_of_visits(&run, tables, first, last) * sizeof(double))
        if scratch == NULL:
            with gil:
                raise MemoryError
        for t in range(first, last):
            j = tables[t]
            for c in range(n_outputs):
                _visit(&run, j, c, &pulls[offsets[j], c], n_outputs, scratch)
        free(scratch)


def visit_rows(
    const code_t[:, :] codes,             # IN  (n_features, n_rows), each row contiguous; n_bins means no bin
    const target_t[::1] y,                # IN  (n_rows,); int64 classes for softmax
    const double[::1] v,                  # IN  (n_rows,): weights
    int loss,                             # IN  its number in LOSSES; -1: softmax
    double a,                             # IN  its parameters, as in `loss_of_rows`
    double b,
    const int64_t[::1] tables,            # IN  as in `visit_tables`, here and below
    const int64_t[::1] offsets,
    const int64_t[::1] groups,
    const int64_t[::1] n_groups,
    const int64_t[::1] n_ordered,
    const uint8_t[::1] is_grouped,
    const uint8_t[::1] has_missing,
    const uint8_t[::1] is_forced,
    const double[::1] line_shares,
    const double[::1] weights,
    const double[:, ::1] rises,
    const double[:, ::1] curvatures,
    const double[::1] growth,
    const double[::1] rows_of_levels,
    const double[::1] lengths,
    const double[::1] rows_of_curves,
    double n_total,
    double dispersion,
    double alpha,
    double least_prior_rows,
    double most_prior_rows,
    double least_jumps,
    double most_jumps,
    double curve_share,
    double n_allowed,
    double price,
    double step,
    double[:, ::1] scores,                # IN/OUT (n_outputs, n_rows); of squared error (n_outputs, 0)
    double[:, ::1] residuals,             # IN/OUT (n_outputs, n_rows): v times the residuals at the scores
    double[:, ::1] f,
    double[:, ::1] share,
    double[:, ::1] evidence,
    double[:, ::1] explained,
    double[:, ::1] pieces,
    double[:, ::1] freedom,
    double[:, ::1] jumps,
    double[:, ::1] prior_rows,
    Py_ssize_t first,
    Py_ssize_t last,
):
    """`visit_tables` one after the other, each with the sums of v r at the scores that the last one has left behind."""
    cdef Py_ssize_t t, c, k, j, start, n_bins, most_bins = 0, n_rows = codes.shape[1], n_outputs = f.shape[1]
    cdef Run run
    cdef double *scratch
    cdef double *pulls
    cdef double *change
    cdef double *more
    cdef double *by_bin
    cdef bint is_changed
    _tell(
        &run, offsets, groups, n_groups, n_ordered, is_grouped, has_missing, is_forced, line_shares, weights, rises,
        curvatures, growth, rows_of_levels, lengths, rows_of_curves, n_total, dispersion, alpha, least_prior_rows,
        most_prior_rows, least_jumps, most_jumps, curve_share, n_allowed, price, step, f, share, evidence, explained,
        pieces, freedom, jumps, prior_rows
    )
    if n_rows == 0:
        return
    with nogil:
        for t in range(first, last):
            most_bins = max(most_bins, offsets[tables[t] + 1] - offsets[tables[t]])
        by_bin = <double *> malloc(
            ((1 + n_outputs + VECTORS) * (most_bins + 1) + _scratch_of_residuals(n_outputs)) * sizeof(double)
        )
        scratch = <double *> malloc(_scratch_of_visits(&run, tables, first, last) * sizeof(double))
        if by_bin == NULL or scratch == NULL:
            free(by_bin)
            free(scratch)
            with gil:
                raise MemoryError
        pulls = by_bin
        change = pulls + most_bins + 1                          # by output, each with a zero for rows without a bin
        more = change + n_outputs * (most_bins + 1)
        for t in range(first, last):
            j = tables[t]
            start, n_bins, is_changed = offsets[j], offsets[j + 1] - offsets[j], False
            # The residuals of all outputs are those before the visit; so are their changes.
            for c in range(n_outputs):
                _sum_column(&codes[j, 0], &residuals[c, 0], n_rows, n_bins, more, pulls)
                for k in range(n_bins):
                    change[c * (n_bins + 1) + k] = -f[start + k, c]
                _visit(&run, j, c, pulls, 1, scratch)
                for k in range(n_bins):
                    change[c * (n_bins + 1) + k] += f[start + k, c]
                    is_changed = is_changed or change[c * (n_bins + 1) + k] != 0.0
                change[c * (n_bins + 1) + n_bins] = 0.0
            if not is_changed:
                continue
            if scores.shape[1] == 0:
                for c in range(n_outputs):
                    _lower(&codes[j, 0], change + c * (n_bins + 1), &v[0], n_rows, &residuals[c, 0])
                continue
            for c in range(n_outputs):
                _raise(&codes[j, 0], change + c * (n_bins + 1), n_rows, &scores[c, 0])
            if target_t is double:
                derivative_of_rows(loss, 1, a, b, &y[0], &scores[0, 0], &v[0], &residuals[0, 0], n_rows)
            else:
                _residuals_of_classes(
                    &y[0], &scores[0, 0], n_outputs, &v[0], n_rows, more, &residuals[0, 0]
                )
        free(by_bin)
        free(scratch)


cdef void _tell(
    Run *run, const int64_t[::1] offsets, const int64_t[::1] groups, const int64_t[::1] n_groups,
    const int64_t[::1] n_ordered, const uint8_t[::1] is_grouped, const uint8_t[::1] has_missing,
    const uint8_t[::1] is_forced, const double[::1] line_shares, const double[::1] weights,
    const double[:, ::1] rises, const double[:, ::1] curvatures, const double[::1] growth,
    const double[::1] rows_of_levels, const double[::1] lengths, const double[::1] rows_of_curves, double n_total,
    double dispersion, double alpha, double least_prior_rows, double most_prior_rows, double least_jumps,
    double most_jumps, double curve_share, double n_allowed, double price, double step, double[:, ::1] f,
    double[:, ::1] share, double[:, ::1] evidence, double[:, ::1] explained, double[:, ::1] pieces,
    double[:, ::1] freedom, double[:, ::1] jumps, double[:, ::1] prior_rows,
) noexcept:
    run.n_tables, run.n_outputs = share.shape[0], share.shape[1]
    run.offsets, run.groups, run.n_groups, run.n_ordered = &offsets[0], &groups[0], &n_groups[0], &n_ordered[0]
    run.is_grouped, run.has_missing, run.is_forced = &is_grouped[0], &has_missing[0], &is_forced[0]
    run.line_shares, run.weights, run.rises = &line_shares[0], &weights[0], &rises[0, 0]
    run.curvatures, run.growth = &curvatures[0, 0], &growth[0] if growth.shape[0] else NULL
    run.rows_of_levels, run.n_rows_of_levels = &rows_of_levels[0], rows_of_levels.shape[0]
    run.lengths, run.n_lengths = &lengths[0], lengths.shape[0]
    run.rows_of_curves, run.n_rows_of_curves = &rows_of_curves[0], rows_of_curves.shape[0]
    run.n_total, run.dispersion, run.alpha = n_total, dispersion, alpha
    run.least_prior_rows, run.most_prior_rows = least_prior_rows, most_prior_rows
    run.least_jumps, run.most_jumps, run.curve_share = least_jumps, most_jumps, curve_share
    run.n_allowed, run.price, run.step = n_allowed, price, step
    run.f, run.share, run.evidence, run.explained = &f[0, 0], &share[0, 0], &evidence[0, 0], &explained[0, 0]
    run.pieces, run.freedom, run.jumps, run.prior_rows = &pieces[0, 0], &freedom[0, 0], &jumps[0, 0], &prior_rows[0, 0]


# One table ------------------------------------------------------------------------------------------------------------


cdef Py_ssize_t _scratch_of_visits(
    const Run *run, const int64_t[::1] tables, Py_ssize_t first, Py_ssize_t last
) noexcept nogil:
    cdef Py_ssize_t t, j, most_bins = 0, most_groups = 0
    for t in range(first, last):
        j = tables[t]
        most_bins = max(most_bins, run.offsets[j + 1] - run.offsets[j])
        if not run.is_grouped[j]:
            most_groups = max(most_groups, run.n_groups[j])
    return 3 * most_bins + 2 * run.n_rows_of_levels + 4 * most_groups + max(
        _scratch_of_pieces(most_groups), _scratch_of_curves(most_groups, run.n_lengths, run.n_rows_of_curves)
    )


cdef inline double _at_least(double least, double value) noexcept nogil:
    """NaN stays."""
    return least if value < least else value


cdef inline double _at_most(double most, double value) noexcept nogil:
    return most if value > most else value


cdef void _visit(
    const Run *run, Py_ssize_t j, Py_ssize_t c, const double *pulls, Py_ssize_t stride, double *scratch
) noexcept nogil:
    """Visit table j of output c; the pull of its bin k is pulls[k * stride]."""
    cdef:
        Py_ssize_t start = run.offsets[j], b = run.offsets[j + 1] - run.offsets[j], n = run.n_outputs, k
        Py_ssize_t own = j * n + c
        const double *rises = run.rises + start * n + c
        double *f = run.f + start * n + c
        double *S = scratch
        double *W = S + b
        double *means = W + b
        double total, found, explained = 0.0, share, mean = 0.0
    total = _precisions(run, j, c, pulls, stride, S, W)
    if run.is_grouped[j]:
        _average_levels(run, own, S, W, b, total, means, means + b)
        run.freedom[own] = _freedom(run.pieces[own], run.n_ordered[j])
    else:
        _average_ordered(run, j, c, S, W, total, means, means + b)
    for k in range(b):
        found = means[k] - rises[k * n]
        explained += found * (S[k] - W[k] * rises[k * n] - 0.5 * W[k] * found)
    run.explained[own] = explained
    if run.step == 0.0:
        return
    share = _share_of_use(run, j, c)
    run.share[own] = share
    for k in range(b):
        mean += run.weights[start + k] * (share * means[k])
    for k in range(b):
        f[k * n] += run.step * (share * means[k] - mean - f[k * n])


cdef double _precisions(
    const Run *run, Py_ssize_t j, Py_ssize_t c, const double *pulls, Py_ssize_t stride, double *S, double *W
) noexcept nogil:
    """By bin, the precision W of its value, and S, that times the value; returns the sum of W for each row.

    The value of a bin is what a Newton step gives it, with a curvature that grows along the way where the loss bends
    so, and no longer than three units. The mean is the intercept's: it is taken out.
    """
    cdef:
        Py_ssize_t start = run.offsets[j], b = run.offsets[j + 1] - run.offsets[j], n = run.n_outputs, k
        const double *f = run.f + start * n + c
        const double *curvatures = run.curvatures + start * n + c
        double scale = run.n_total / run.dispersion, growth, h, total = 0.0, level = 0.0
    growth = run.growth[c] if run.growth != NULL else 0.0
    for k in range(b):
        h = curvatures[k * n]
        if run.growth != NULL:
            h = _at_least(fabs(pulls[k * stride]) / 3.0, h + growth * pulls[k * stride] / 3.0)
        S[k] = scale * (pulls[k * stride] + h * f[k * n])
        W[k] = scale * (h + run.alpha * run.weights[start + k])
        level += S[k]
        total += W[k]
    level /= _at_least(LEAST, total)
    for k in range(b):
        S[k] -= W[k] * level
    return total / run.n_total


cdef void _average_ordered(
    const Run *run, Py_ssize_t j, Py_ssize_t c, const double *S, const double *W, double per_row, double *means,
    double *scratch
) noexcept nogil:
    """The mean over pieces and curves of a table whose bins have an order, beside its missing bin."""
    cdef:
        Py_ssize_t start = run.offsets[j], b = run.offsets[j + 1] - run.offsets[j], n = run.n_outputs, k, g
        Py_ssize_t own = j * n + c, m = run.n_groups[j]
        const double *rises = run.rises + start * n + c
        const int64_t *groups = run.groups + start
        double *sums = scratch
        double *weights = sums + m
        double *mean = weights + m
        double *curve = mean + m
        double *more = curve + m
        double prior, jumps, evidence = 0.0, pieces = 0.0, suggested, freedom, of_curve = 0.0, unknowns = 0.0, curved
        double most
    for g in range(m):
        sums[g] = weights[g] = 0.0
    for k in range(b):
        if groups[k] >= 0:
            sums[groups[k]] += S[k] - W[k] * rises[k * n]
            weights[groups[k]] += W[k]
    for g in range(m):
        weights[g] = _at_least(LEAST, weights[g])
    prior = suggested = _at_least(LEAST, run.prior_rows[own] * per_row)
    jumps = _at_most(0.5, run.jumps[own] / max(m - 1, 1))
    per_row = _at_least(LEAST, per_row)
    if m:
        _average_pieces(
            sums, weights, m, prior, jumps / (1.0 - jumps), run.line_shares[j], mean, &evidence, &pieces, &suggested,
            more
        )
    run.prior_rows[own] = _at_most(run.most_prior_rows, _at_least(run.least_prior_rows, suggested / per_row))
    most = _at_least(run.least_jumps, run.most_jumps * m)
    run.jumps[own] = _at_most(most, _at_least(run.least_jumps, pieces - 1.0))
    freedom = _freedom(pieces, run.n_ordered[j])
    if run.curve_share > 0.0 and run.line_shares[j] > 0.0:
        if m:
            _average_curves(
                sums, weights, m, per_row, run.lengths, run.n_lengths, run.rows_of_curves, run.n_rows_of_curves,
                curve, &of_curve, &unknowns, more
            )
        evidence += log1p(-run.curve_share)
        of_curve += log(run.curve_share)
        most = of_curve if of_curve > evidence else evidence
        most += log(exp(evidence - most) + exp(of_curve - most))
        curved, evidence = exp(of_curve - most), most
        for g in range(m):
            mean[g] += curved * (curve[g] - mean[g])
        pieces += curved * (1.0 + unknowns / 2.0 - pieces)
        freedom += curved * (unknowns - freedom)
    for k in range(b):
        means[k] = mean[groups[k]] + rises[k * n] if groups[k] >= 0 else 0.0
    if run.has_missing[j]:
        k = b - 1
        means[k] = S[k] / (W[k] + prior)
        evidence += 0.5 * S[k] * S[k] / (W[k] + prior) - 0.5 * log1p(W[k] / prior)
    run.evidence[own], run.pieces[own], run.freedom[own] = evidence, pieces, freedom


cdef void _average_levels(
    const Run *run, Py_ssize_t own, const double *S, const double *W, Py_ssize_t b, double per_row, double *means,
    double *scratch
) noexcept nogil:
    """The mean of levels with one Gaussian prior, averaged over its width by evidence."""
    cdef:
        Py_ssize_t n = run.n_rows_of_levels, k, i
        double *shares = scratch
        double *known = scratch + n
        double prior, most, inverse, total = 0.0, pieces = 0.0
    for i in range(n):
        prior = _at_least(LEAST, run.rows_of_levels[i] * per_row)
        shares[i] = known[i] = 0.0
        for k in range(b):
            inverse = 1.0 / (W[k] + prior)
            shares[i] += 0.5 * S[k] * S[k] * inverse - 0.5 * log1p(W[k] / prior)
            known[i] += W[k] * inverse
    most = shares[0]
    for i in range(n):
        most = shares[i] if shares[i] > most else most
    for i in range(n):
        shares[i] = exp(shares[i] - most)
        total += shares[i]
    for k in range(b):
        means[k] = 0.0
    for i in range(n):
        prior = _at_least(LEAST, run.rows_of_levels[i] * per_row)
        pieces += shares[i] / total * known[i]
        for k in range(b):
            means[k] += shares[i] / total * (S[k] / (W[k] + prior))
    run.evidence[own], run.pieces[own] = most + log(total / n), pieces


cdef double _freedom(double pieces, Py_ssize_t n_bins) noexcept nogil:
    """The degrees of freedom of pieces: their values, and the places of the jumps between them."""
    return pieces + _at_least(0.0, pieces - 1.0) * log(<double> max(n_bins, 2))


cdef double _share_of_use(const Run *run, Py_ssize_t j, Py_ssize_t c) noexcept nogil:
    """The probability that a table is used, by its evidence, beside the others that are in use."""
    cdef Py_ssize_t t
    cdef double n_used = 0.0, odds
    if run.is_forced[j]:
        odds = MOST_LOG_ODDS
    else:
        for t in range(run.n_tables):
            n_used += run.share[t * run.n_outputs + c]
        n_used -= run.share[j * run.n_outputs + c]
        odds = run.evidence[j * run.n_outputs + c] - run.price - log((run.n_allowed - n_used) / (n_used + 1.0))
    return 1.0 / (1.0 + exp(-_at_most(MOST_LOG_ODDS, _at_least(-MOST_LOG_ODDS, odds))))
