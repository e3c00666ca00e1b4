# The average of a table over all ways to cut it into pieces. Included by _visits.pyx.

cdef extern from "averages.h":
    int LEAST_LINE
    double NEVER
    long IN_BLOCKS(long n) noexcept nogil
    ctypedef struct running:
        const double *w
        const double *sum
        const double *kw
        const double *ks
        const double *kkw
    double weigh_pieces(
        const running *sums, const double *before, const double *constant_scales, const double *line_scales,
        int has_lines, long e, long row, double *scratch, double *constants, double *lines, double *total
    ) noexcept nogil
    void add_pieces(
        const running *sums, long e, double share, const double *constants, const double *lines, double *is_end,
        double *value, double *slope, double *unknowns, double *squares, double *pieces
    ) noexcept nogil


cdef Py_ssize_t _scratch_of_pieces(Py_ssize_t b) noexcept nogil:
    return (2 * b + 16) * IN_BLOCKS(b + 1)


cdef void _average_pieces(
    const double *sums, const double *weights, Py_ssize_t b, double prior, double odds, double line_share,
    double *out, double *evidence_out, double *pieces_out, double *prior_out, double *scratch,
) noexcept nogil:
    """The mean of a table of b bins over all ways to cut it into pieces, its log evidence, the mean number of pieces, and
    the prior that their values and slopes suggest (a step of the EM algorithm).

    sums : of weight times value, by bin
    weights : precisions of the values, positive
    prior : the precision of the prior of a piece's value, positive
    odds : the prior odds of a jump between two bins, positive
    line_share : the prior share of lines among pieces of three bins or more

    The sums of a piece are differences of running sums: one of a millionth of the weight has six digits less.
    """
    cdef:
        Py_ssize_t row = IN_BLOCKS(b + 1), k, e
        double *cum_w = scratch               # in units of the prior, as all below
        double *cum_s = cum_w + row
        double *cum_kw = cum_s + row
        double *cum_ks = cum_kw + row
        double *cum_kkw = cum_ks + row
        double *log_before = cum_kkw + row    # log evidence of the bins before s, with the price of a jump at s
        double *constant_scales = log_before + row
        double *line_scales = constant_scales + row
        double *totals = line_scales + row    # sum of the weights of the pieces that end before e
        double *is_end = totals + row         # probability that a piece ends before e
        double *value = is_end + row          # changes of the mean table from bin to bin: a value and a slope
        double *slope = value + row
        double *weighed = slope + row
        double *constants = weighed + 4 * row  # (b, row): weights of the pieces; row e - 1 has those that end before e
        double *lines = constants + b * row
        double most, v, rise, pieces = 0.0, unknowns = 0.0, squares = 0.0
        double per_prior = 1.0 / prior, unit = sqrt(per_prior), log_odds = log(odds)
        running cumulated = running(cum_w, cum_s, cum_kw, cum_ks, cum_kkw)
    cum_w[0] = cum_s[0] = cum_kw[0] = cum_ks[0] = cum_kkw[0] = 0.0
    for k in range(row):
        v, rise = (weights[k] * per_prior, sums[k] * unit) if k < b else (0.0, 0.0)
        if k + 1 < row:
            cum_w[k + 1] = cum_w[k] + v
            cum_s[k + 1] = cum_s[k] + rise
            cum_kw[k + 1] = cum_kw[k] + k * v
            cum_ks[k + 1] = cum_ks[k] + k * rise
            cum_kkw[k + 1] = cum_kkw[k] + <double> k * k * v
        log_before[k] = -INFINITY
        constant_scales[k] = line_scales[k] = is_end[k] = value[k] = slope[k] = 0.0

    # Forward: the evidence of the first e bins is a sum over the start of their last piece.
    log_before[0] = 0.0
    for e in range(1, b + 1):
        constant_scales[e - 1] = 1.0
        if e >= LEAST_LINE:
            constant_scales[e - LEAST_LINE] = 1.0 - line_share
            line_scales[e - LEAST_LINE] = line_share
        most = weigh_pieces(
            &cumulated, log_before, constant_scales, line_scales, line_share > 0.0 and e >= LEAST_LINE, e, row, weighed,
            constants + (e - 1) * row, lines + (e - 1) * row, &totals[e]
        )
        log_before[e] = most + log(totals[e]) + log_odds
    evidence_out[0] = log_before[b] - log_odds - (b - 1) * log1p(odds)

    # Backward: given that a piece ends before e, its start has the shares of the forward sum.
    is_end[b] = 1.0
    for e in range(b, 0, -1):
        if is_end[e] < NEVER:
            continue
        add_pieces(
            &cumulated, e, is_end[e] / totals[e], constants + (e - 1) * row, lines + (e - 1) * row, is_end, value, slope,
            &unknowns, &squares, &pieces
        )
    pieces_out[0] = pieces
    prior_out[0] = prior * (unknowns / squares)
    v = rise = 0.0
    for k in range(b):
        v += value[k]
        rise += slope[k]
        out[k] = unit * (v + rise * k)
