# The average of a table over all ways to cut it into pieces. Included by _visits.pyx.

cdef extern from "averages.h":
    void explained(
        const double *w, const double *sum, const double *kw, const double *ks, const double *kkw, const double *before,
        long e, double prior, double *constant, double *line, double *constant_factor, double *line_factor
    ) noexcept nogil
    void exponentials(
        const double *exponent, const double *factor, double scale, double most, long n, double *out
    ) noexcept nogil
    double largest_of(const double *values, long n) noexcept nogil
    double sum_of(const double *values, long n) noexcept nogil
    ctypedef struct running:
        const double *w
        const double *sum
        const double *kw
        const double *ks
        const double *kkw
    void add_pieces(
        const running *sums, long e, double prior, double share, double never, const double *constants,
        const double *lines, double *is_end, double *value, double *slope, double *unknowns, double *squares,
        double *pieces
    ) noexcept nogil

# Lines have at least this many bins.
cdef enum:
    LEAST_LINE = 3

# A piece that is less likely than this adds nothing to the average.
cdef double NEVER = 1e-17


cdef Py_ssize_t _scratch_of_pieces(Py_ssize_t b) noexcept nogil:
    return 2 * b * b + 14 * (b + 1)


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
        Py_ssize_t n = b + 1, k, s, e, ended, n_lines
        double *cum_w = scratch
        double *cum_s = cum_w + n
        double *cum_kw = cum_s + n
        double *cum_ks = cum_kw + n
        double *cum_kkw = cum_ks + n
        double *log_before = cum_kkw + n      # log evidence of the bins before s, with the price of a jump at s
        double *totals = log_before + n       # sum of the weights of the pieces that end before e
        double *is_end = totals + n           # probability that a piece ends before e
        double *constant = is_end + n         # exponents and factors of the pieces that end before e
        double *line = constant + n
        double *constant_factor = line + n
        double *line_factor = constant_factor + n
        double *value = line_factor + n       # changes of the mean table from bin to bin: a value and a slope
        double *slope = value + n
        double *constants = slope + n         # (b, b): weights of the pieces; row e - 1 has those that end before e
        double *lines = constants + b * b
        double most, v, rise, pieces = 0.0, unknowns = 0.0, squares = 0.0
        running cumulated = running(cum_w, cum_s, cum_kw, cum_ks, cum_kkw)
    cum_w[0] = cum_s[0] = cum_kw[0] = cum_ks[0] = cum_kkw[0] = 0.0
    for k in range(b):
        cum_w[k + 1] = cum_w[k] + weights[k]
        cum_s[k + 1] = cum_s[k] + sums[k]
        cum_kw[k + 1] = cum_kw[k] + k * weights[k]
        cum_ks[k + 1] = cum_ks[k] + k * sums[k]
        cum_kkw[k + 1] = cum_kkw[k] + <double> k * k * weights[k]

    # Forward: the evidence of the first e bins is a sum over the start of their last piece.
    log_before[0] = 0.0
    for e in range(1, n):
        explained(
            cum_w, cum_s, cum_kw, cum_ks, cum_kkw, log_before, e, prior, constant, line, constant_factor, line_factor
        )
        n_lines = e - LEAST_LINE + 1 if e >= LEAST_LINE and line_share > 0.0 else 0
        most = max(largest_of(line, n_lines), largest_of(constant + n_lines, e - n_lines))
        ended = (e - 1) * b
        exponentials(constant, constant_factor, 1.0 - line_share, most, n_lines, constants + ended)
        exponentials(constant + n_lines, constant_factor + n_lines, 1.0, most, e - n_lines, constants + ended + n_lines)
        exponentials(line, line_factor, line_share, most, n_lines, lines + ended)
        for s in range(n_lines, e):
            lines[ended + s] = 0.0
        totals[e] = sum_of(constants + ended, e) + sum_of(lines + ended, n_lines)
        log_before[e] = most + log(totals[e]) + log(odds)
    evidence_out[0] = log_before[b] - log(odds) - (b - 1) * log1p(odds)

    # Backward: given that a piece ends before e, its start has the shares of the forward sum.
    for k in range(n):
        is_end[k] = value[k] = slope[k] = 0.0
    is_end[b] = 1.0
    for e in range(b, 0, -1):
        if is_end[e] < NEVER:
            continue
        ended = (e - 1) * b
        add_pieces(
            &cumulated, e, prior, is_end[e] / totals[e], NEVER, constants + ended, lines + ended, is_end, value, slope,
            &unknowns, &squares, &pieces
        )
    pieces_out[0] = pieces
    prior_out[0] = unknowns / squares
    v = rise = 0.0
    for k in range(b):
        v += value[k]
        rise += slope[k]
        out[k] = v + rise * k
