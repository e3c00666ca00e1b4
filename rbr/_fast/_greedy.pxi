# Part of _projections.pyx: bottom-up merging (Keogh et al. 2001), the search of segmentation="greedy".
#
# Pairs of neighbouring pieces wait in a heap, ordered by the cost of merging them.


cdef struct Fit:
    double weight
    double mean_u
    double mean_x
    double spread
    double slope
    double around_mean
    double around_line


cdef Py_ssize_t _search_greedy(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """Bottom-up merging with a heap, whose outdated entries are skipped when they reach the top.

    As long as there are pieces with too few rows, only pairs with one of those are merged, and no cut is taken.
    """
    cdef Py_ssize_t n = p.n, i, left, right, size = 0, n_merges, best_merges = 0, n_pieces, n_too_small = 0
    cdef double loss, total = 0.0, value, least = INFINITY
    cdef Fit fit
    for i in range(n):
        _begin(s, i, i, 0.0, p.u[i], p.x[i])
        s.weight[i] = p.w[i]
        s.cost[i] = _piece_cost(p, 0.0, 0.0)
        total += s.cost[i]
        s.next_start[i] = <int32_t> (i + 1)
        s.previous_start[i] = <int32_t> (i - 1)
        s.stamp[i] = 0
        s.removed_at[i] = <int32_t> n
        n_too_small += _is_too_small(p, s, i)
    for i in range(n - 1):
        size = _push_pair(p, s, size, i)
    for n_merges in range(n):
        if n - n_merges <= limit and n_too_small == 0:
            value = total + _count_price(p, n - n_merges)
            if value <= least:
                least = value
                best_merges = n_merges
        if n_merges == n - 1:
            break
        while True:
            size = _pop(s, size)
            left = s.heap_left[size]
            if s.heap_stamp[size] == s.stamp[left]:
                loss = s.heap_loss[size]
                break
        right = s.next_start[left]
        n_too_small -= _is_too_small(p, s, left) + _is_too_small(p, s, right)
        fit = _joined(s, left, right)
        s.weight[left] = fit.weight
        s.mean_u[left] = fit.mean_u
        s.mean_x[left] = fit.mean_x
        s.spread[left] = fit.spread
        s.slope[left] = fit.slope
        s.around_mean[left] = fit.around_mean
        s.around_line[left] = fit.around_line
        s.cost[left] = _piece_cost(p, fit.around_mean, fit.around_line)
        total += loss
        s.removed_at[right] = <int32_t> n_merges
        s.stamp[left] += 1
        s.stamp[right] += 1
        s.next_start[left] = s.next_start[right]
        n_too_small += _is_too_small(p, s, left)
        if s.next_start[left] < n:
            s.previous_start[s.next_start[left]] = <int32_t> left
            size = _push_pair(p, s, size, left)
        if left > 0:
            size = _push_pair(p, s, size, s.previous_start[left])
    n_pieces = 0
    for i in range(n):
        if s.removed_at[i] >= best_merges:
            s.cut[n_pieces] = <int32_t> i
            n_pieces += 1
    return n_pieces


cdef inline bint _is_too_small(Pieces *p, Scratch *s, Py_ssize_t start) noexcept nogil:
    """Whether the piece that begins at a start holds too few rows."""
    return p.last_start != NULL and p.last_start[s.next_start[start]] < start


cdef Fit _joined(Scratch *s, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """The fits to two neighbouring pieces joined, from the fits to each: again, only sums of squares."""
    cdef Fit fit
    cdef double share = s.weight[b] / (s.weight[a] + s.weight[b])
    cdef double f = share * s.weight[a]
    cdef double du = s.mean_u[b] - s.mean_u[a], dx = s.mean_x[b] - s.mean_x[a], turn_a, turn_b, miss
    fit.weight = s.weight[a] + s.weight[b]
    fit.mean_u = s.mean_u[a] + share * du
    fit.mean_x = s.mean_x[a] + share * dx
    fit.around_mean = s.around_mean[a] + s.around_mean[b] + f * (du * du)
    fit.spread = s.spread[a] + s.spread[b] + f * (dx * dx)
    fit.slope = 0.0
    if fit.spread > 0.0:
        fit.slope = (s.spread[a] * s.slope[a] + s.spread[b] * s.slope[b] + f * dx * du) / fit.spread
    fit.around_line = s.around_line[a] + s.around_line[b]
    if s.spread[a] + s.spread[b] > 0.0 or fit.spread == 0.0:
        turn_a = fit.slope - s.slope[a]
        turn_b = fit.slope - s.slope[b]
        miss = du - fit.slope * dx
        fit.around_line += s.spread[a] * turn_a * turn_a + s.spread[b] * turn_b * turn_b + f * (miss * miss)
    return fit


cdef Py_ssize_t _push_pair(Pieces *p, Scratch *s, Py_ssize_t size, Py_ssize_t left) noexcept nogil:
    cdef Py_ssize_t right = s.next_start[left]
    cdef Fit fit = _joined(s, left, right)
    cdef double joined = _piece_cost(p, fit.around_mean, fit.around_line)
    cdef bint is_late = not (_is_too_small(p, s, left) or _is_too_small(p, s, right))
    return _push(s, size, joined - s.cost[left] - s.cost[right], left, is_late)


cdef Py_ssize_t _push(Scratch *s, Py_ssize_t size, double loss, Py_ssize_t left, bint is_late) noexcept nogil:
    """Push the pair that begins at `left`, which makes its older entries outdated; return the new size."""
    cdef Py_ssize_t i = size
    s.stamp[left] += 1
    s.heap_loss[i] = loss
    s.heap_left[i] = <int32_t> left
    s.heap_stamp[i] = s.stamp[left]
    s.heap_is_late[i] = is_late
    while i > 0 and _precedes(s, i, (i - 1) // 2):
        _swap(s, i, (i - 1) // 2)
        i = (i - 1) // 2
    return size + 1


cdef Py_ssize_t _pop(Scratch *s, Py_ssize_t size) noexcept nogil:
    """Move the first entry of the heap to its end; return the new size, which is the entry's index now."""
    cdef Py_ssize_t i = 0, child
    size -= 1
    _swap(s, 0, size)
    while True:
        child = 2 * i + 1
        if child >= size:
            return size
        if child + 1 < size and _precedes(s, child + 1, child):
            child += 1
        if not _precedes(s, child, i):
            return size
        _swap(s, i, child)
        i = child


cdef inline bint _precedes(Scratch *s, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Order of the heap: pairs with too few rows first, then the least loss, ties to the leftmost pair."""
    if s.heap_is_late[i] != s.heap_is_late[j]:
        return s.heap_is_late[i] < s.heap_is_late[j]
    if s.heap_loss[i] != s.heap_loss[j]:
        return s.heap_loss[i] < s.heap_loss[j]
    return s.heap_left[i] < s.heap_left[j]


cdef inline void _swap(Scratch *s, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    s.heap_loss[i], s.heap_loss[j] = s.heap_loss[j], s.heap_loss[i]
    s.heap_left[i], s.heap_left[j] = s.heap_left[j], s.heap_left[i]
    s.heap_stamp[i], s.heap_stamp[j] = s.heap_stamp[j], s.heap_stamp[i]
    s.heap_is_late[i], s.heap_is_late[j] = s.heap_is_late[j], s.heap_is_late[i]
