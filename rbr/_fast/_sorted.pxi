# Part of _projections.pyx: constant pieces of sorted values (levels, isotonic fits), by divide and conquer.


cdef Py_ssize_t _search_by_count_sorted(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """The best of 1, 2, ..., limit constant pieces of sorted values, O(n log n) each; -1 if there is no memory.

    For sorted values the cost is Monge, so the best start moves right with the end. This search visits pieces
    in any order, so it needs prefix sums: of deviations from the mean, with their rounding errors carried along.
    Until the last end is reached, costs are lower by ||u - mean||^2 / 2 than in the other searches.

    The cost stays Monge if pieces with too few rows cost infinity: whatever contains an allowed piece is allowed.
    Of k pieces, those that end before `first_end` are all infinite.
    """
    cdef Py_ssize_t n = p.n, k, e, n_pieces = 1, first_end = 0, first_start
    cdef double least, total, center = _mean(p.u, p.w, 0, n), half_square = 0.0
    cdef double *before = s.best_before
    cdef double *best = s.best
    cdef double *swap
    if _reserve_splits(s, 4 * (n + 1)) < 0:
        return -1
    s.weight_sum[0] = s.weight_rest[0] = s.moment_sum[0] = s.moment_rest[0] = 0.0
    for e in range(1, n + 1):
        s.weight_sum[e] = s.weight_sum[e - 1]
        s.weight_rest[e] = s.weight_rest[e - 1]
        s.moment_sum[e] = s.moment_sum[e - 1]
        s.moment_rest[e] = s.moment_rest[e - 1]
        _add(&s.weight_sum[e], &s.weight_rest[e], p.w[e - 1])
        _add(&s.moment_sum[e], &s.moment_rest[e], p.w[e - 1] * (p.u[e - 1] - center))
        half_square += 0.5 * p.w[e - 1] * (p.u[e - 1] - center) * (p.u[e - 1] - center)
        best[e] = p.unit - 0.5 * (s.moment_sum[e] * s.moment_sum[e] / s.weight_sum[e])
        s.splits[e] = 0
    while _after_last_start(p, first_end) < 1:
        first_end += 1
    least = best[n] + half_square + _count_price(p, 1)
    for k in range(2, limit + 1):
        if least <= _least_cost_from(p, k):
            break
        first_start = first_end
        while first_end <= n and _after_last_start(p, first_end) <= first_start:
            first_end += 1
        if first_end > n:
            break
        if _reserve_splits(s, k * (n + 1)) < 0:
            return -1
        swap = before
        before = best
        best = swap
        _search_sorted_ends(p, s, first_end, n + 1, first_start, n - 1, before, best, s.splits + (k - 1) * (n + 1))
        total = best[n] + half_square + _count_price(p, k)
        if total < least:
            least = total
            n_pieces = k
    _follow_by_count(s.splits, n, n_pieces, s.cut)
    return n_pieces


cdef void _search_sorted_ends(
    Pieces *p, Scratch *s, Py_ssize_t first_end, Py_ssize_t last_end, Py_ssize_t first_start, Py_ssize_t last_start,
    const double *before, double *best, int32_t *split
) noexcept nogil:
    """best[e] for first_end <= e < last_end, whose splits lie in first_start..last_start, by halving."""
    cdef Py_ssize_t e, start, least
    cdef double weight, moment, cost, least_cost
    while first_end < last_end:
        e = (first_end + last_end) // 2
        least = first_start
        least_cost = INFINITY
        for start in range(first_start, min(last_start + 1, _after_last_start(p, e))):
            weight = (s.weight_sum[e] - s.weight_sum[start]) + (s.weight_rest[e] - s.weight_rest[start])
            moment = (s.moment_sum[e] - s.moment_sum[start]) + (s.moment_rest[e] - s.moment_rest[start])
            cost = before[start] - 0.5 * (moment * moment / weight)
            if cost < least_cost:
                least_cost = cost
                least = start
        best[e] = least_cost + p.unit
        split[e] = <int32_t> least
        _search_sorted_ends(p, s, first_end, e, first_start, least, before, best, split)
        first_end = e + 1
        first_start = least


cdef inline void _add(double *high, double *low, double x) noexcept nogil:
    """high + low += x, without loss (Knuth's two-sum)."""
    cdef double total = high[0] + x
    cdef double part = total - high[0]
    low[0] += (high[0] - (total - part)) + (x - part)
    high[0] = total
