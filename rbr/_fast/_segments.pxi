# Part of _projections.pyx: constant pieces, with functional pruning.
#
# The cost of a start is a parabola in the value of the last piece. A start that is cheapest for no value is dropped;
# in a table with noise about ten remain.

cdef enum:
    UNPRUNED_UP_TO = 64  # with fewer bins pruning costs more than it saves


cdef void _search_constants(
    Pieces *p, Py_ssize_t first_start, bint priced, double *before, double *best, int32_t *split, Scratch *s
) noexcept nogil:
    """best[e] = min over first_start <= s < e of before[s] + unit + D(s, e) / 2, with functional pruning.

    priced : before is best itself (optimal partitioning, FPOP: Maidstone et al. 2017); otherwise it is the row
        for one piece fewer (pDPA: Rigaill 2015)

    As a function of the value m of the last piece, the start s costs cost_s + weight_s (m - mean_s)^2 / 2.
    Adding a bin does not change the difference of two such functions, so a start never regains a value m that
    it has lost to another. The range of u is cut into intervals, each owned by the start that is cheapest there.
    A new start e enters with the constant before[e] + unit and takes over the m where the owner costs more;
    starts that own nothing are dropped. If u ascends, so does the mean of a growing piece: values below an
    owner's mean need no owner.
    """
    cdef Py_ssize_t n = p.n, e, least
    cdef Envelope envelope
    _begin_envelope(p, s, &envelope, first_start, before[first_start] + p.unit)
    for e in range(first_start + 1, n + 1):
        _extend_constants(envelope.n_slots, p.u[e - 1], p.w[e - 1], s.weight, s.mean_u, s.cost)
        s.n_compared += envelope.n_slots
        least = _leftmost_least(s.cost, envelope.n_slots)
        best[e] = s.cost[least]
        split[e] = s.start[least]
        if e < n:
            _enter_envelope(p, s, &envelope, e, (best[e] if priced else before[e]) + p.unit)


cdef struct Envelope:
    # The starts that are cheapest for some value of the last piece: their slots, and the intervals that they own.
    Py_ssize_t n_slots
    Py_ssize_t n_intervals
    int side                # of the two lists of intervals, the one to read
    bint prune
    double slack            # far above the rounding of a mean


cdef void _begin_envelope(
    Pieces *p, Scratch *s, Envelope *envelope, Py_ssize_t first_start, double entry
) noexcept nogil:
    """One start, which owns all values."""
    cdef Py_ssize_t i
    cdef double low = p.u[first_start], high = p.u[first_start]
    for i in range(first_start, p.n):
        if p.u[i] < low:
            low = p.u[i]
        if p.u[i] > high:
            high = p.u[i]
    if low == high:
        high = low + 1.0
    envelope.slack = 1e-9 * (fabs(low) + fabs(high))
    envelope.prune = p.n - first_start > UNPRUNED_UP_TO
    envelope.side = 0
    envelope.n_slots = 1
    _begin(s, 0, first_start, entry, p.u[first_start], 0.0)
    envelope.n_intervals = _own(low, high, 0, s.low[0], s.high[0], s.owner[0], 0)


cdef inline void _enter_envelope(
    Pieces *p, Scratch *s, Envelope *envelope, Py_ssize_t e, double entry
) noexcept nogil:
    """Let the start e take over the values where the owner costs more than the entry; drop starts that own nothing."""
    if 3 * envelope.n_intervals > s.interval_capacity:
        # Only rounding makes an envelope of parabolas this long. Searching on without pruning is still exact.
        envelope.prune = False
    if envelope.prune:
        _prune_envelope(p, s, envelope, e, entry)
    else:
        _begin(s, envelope.n_slots, e, entry, p.u[e], 0.0)
        envelope.n_slots += 1


cdef void _prune_envelope(Pieces *p, Scratch *s, Envelope *envelope, Py_ssize_t e, double entry) noexcept nogil:
    cdef Py_ssize_t i, slot, n_slots = envelope.n_slots, n_written = 0, n_seen = 0
    cdef int side = envelope.side
    cdef double low, high, keep_low, keep_high, room, mean, half_weight, radius
    cdef double *lows = s.low[1 - side]
    cdef double *highs = s.high[1 - side]
    cdef int32_t *owners = s.owner[1 - side]
    cdef double slack = envelope.slack
    cdef bint ascending = p.ascending
    s.last_seen[n_slots] = 0
    for i in range(envelope.n_intervals):
        slot = s.owner[side][i]
        low = s.low[side][i]
        high = s.high[side][i]
        mean = s.mean_u[slot]
        if ascending and low < mean - slack:
            low = mean - slack
            if low >= high:
                continue
        keep_low = low
        keep_high = high
        room = entry - s.cost[slot]
        half_weight = 0.5 * s.weight[slot]
        if half_weight * max((low - mean) * (low - mean), (high - mean) * (high - mean)) > room:
            radius = sqrt(max(room, 0.0) / half_weight)
            keep_low = max(low, mean - radius)
            keep_high = min(high, mean + radius)
            if keep_low >= keep_high:
                keep_low = high
                keep_high = high
            if low < keep_low:
                n_written = _own(low, keep_low, n_slots, lows, highs, owners, n_written)
                s.last_seen[n_slots] = <int32_t> e
        if keep_low < keep_high:
            n_written = _own(keep_low, keep_high, slot, lows, highs, owners, n_written)
            if s.last_seen[slot] != e:
                s.last_seen[slot] = <int32_t> e
                n_seen += 1
        if keep_high < high:
            n_written = _own(keep_high, high, n_slots, lows, highs, owners, n_written)
            s.last_seen[n_slots] = <int32_t> e
    envelope.side = 1 - side
    envelope.n_intervals = n_written
    if s.last_seen[n_slots] == e:
        _begin(s, n_slots, e, entry, p.u[e], 0.0)
        n_slots += 1
        n_seen += 1
    if 4 * n_seen + 8 < 3 * n_slots:
        n_slots = _forget_unseen(s, n_slots, e, owners, n_written)
    envelope.n_slots = n_slots


cdef inline Py_ssize_t _own(
    double low, double high, Py_ssize_t slot, double *lows, double *highs, int32_t *owners, Py_ssize_t n
) noexcept nogil:
    """Append an interval to a list of n, or widen the last one; return the new n."""
    if n > 0 and owners[n - 1] == slot and highs[n - 1] == low:
        highs[n - 1] = high
        return n
    lows[n] = low
    highs[n] = high
    owners[n] = <int32_t> slot
    return n + 1


cdef Py_ssize_t _forget_unseen(
    Scratch *s, Py_ssize_t n_slots, Py_ssize_t e, int32_t *owners, Py_ssize_t n
) noexcept nogil:
    """Close the gaps left by starts without an interval; return the number of slots."""
    cdef Py_ssize_t j, kept = 0
    for j in range(n_slots):
        if s.last_seen[j] == e:
            s.start[kept] = s.start[j]
            s.weight[kept] = s.weight[j]
            s.mean_u[kept] = s.mean_u[j]
            s.cost[kept] = s.cost[j]
            s.renamed[j] = <int32_t> kept
            kept += 1
    for j in range(n):
        owners[j] = s.renamed[owners[j]]
    return kept


cdef Py_ssize_t _search_by_count_pruned(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """The best of 1, 2, ..., limit constant pieces, one pruned pass each; -1 if there is no memory."""
    cdef Py_ssize_t n = p.n, k, e, n_pieces = 1
    cdef int64_t n_compared
    cdef double least
    cdef double *before = s.best_before
    cdef double *best = s.best
    cdef double *swap
    cdef int32_t *split
    if _reserve_splits(s, 4 * (n + 1)) < 0:
        return -1
    _begin(s, 0, 0, p.unit, p.u[0], 0.0)
    for e in range(1, n + 1):
        _extend_constants(1, p.u[e - 1], p.w[e - 1], s.weight, s.mean_u, s.cost)
        before[e] = s.cost[0]
        s.splits[e] = 0
    least = before[n]
    for k in range(2, limit + 1):
        if least <= _least_cost_from(p, k):
            break
        if _reserve_splits(s, k * (n + 1)) < 0:
            return -1
        split = s.splits + (k - 1) * (n + 1)
        if k < limit:
            n_compared = s.n_compared
            _search_constants(p, k - 1, False, before, best, split, s)
            if _plain_is_cheaper(n, limit - k, limit, s.n_compared - n_compared):
                return _search_by_count_plain(p, limit, s)
        else:
            # The last pass needs only the last end.
            _costs_leftwards(p, n, s.cost)
            split[n] = <int32_t> _best_last_start(before, 1, s.cost, k - 1, n, &best[n])
        if best[n] < least:
            least = best[n]
            n_pieces = k
        swap = before
        before = best
        best = swap
    _follow_by_count(s.splits, n, n_pieces, s.cut)
    return n_pieces


cdef inline bint _plain_is_cheaper(
    Py_ssize_t n, Py_ssize_t n_passes, Py_ssize_t limit, int64_t n_compared
) noexcept nogil:
    """Whether n_passes more passes, each comparing n_compared starts, cost more than the plain search.

    The factors are measured nanoseconds. A smooth table without noise leaves little to prune: nearly every
    start is the best for some value of the last piece.
    """
    cdef double pruned = 10.0 * n_compared * n_passes
    cdef double plain = 0.5 * n * n * (2.0 + 2.5 * ((limit + 6) // 8))
    return pruned > plain
