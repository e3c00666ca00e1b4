# Part of _projections.pyx: pieces that must hold a least number of rows.
#
# A piece over the bins start..end-1 is allowed if it holds enough rows. The longer piece holds more, so for every end
# the allowed starts are those up to a last one, which moves right with the end.


cdef void _set_last_starts(Pieces *p, double least_rows, Scratch *s) noexcept nogil:
    """Find the last start for every end, from s.rows; one piece over everything is always allowed."""
    cdef Py_ssize_t e, start = -1
    s.row_sum[0] = 0.0
    s.last_start[0] = -1
    for e in range(1, p.n + 1):
        s.row_sum[e] = s.row_sum[e - 1] + s.rows[e - 1]
        while start + 1 < e and s.row_sum[e] - s.row_sum[start + 1] >= least_rows:
            start += 1
        s.last_start[e] = <int32_t> start
    if start < 0:
        s.last_start[p.n] = 0
    p.last_start = s.last_start


cdef inline Py_ssize_t _after_last_start(Pieces *p, Py_ssize_t e) noexcept nogil:
    """The starts of pieces that may end at e lie before this one."""
    return e if p.last_start == NULL else p.last_start[e] + 1


cdef void _search_constants_with_least_rows(Pieces *p, Scratch *s) noexcept nogil:
    """The best number of priced constant pieces, with the pruning of `_search_constants`.

    A start may drop another only where it is allowed itself. So the envelope is kept at the last start that is allowed,
    and the bins from there to the end are joined as one block to the last piece of every start.
    """
    cdef Py_ssize_t e, least, start = -1
    cdef Envelope envelope
    cdef Window window
    _begin_window(&window)
    s.best[0] = 0.0
    for e in range(1, p.n + 1):
        while start < p.last_start[e]:
            start += 1
            if start == 0:
                _begin_envelope(p, s, &envelope, 0, p.unit)
                continue
            _extend_constants(envelope.n_slots, p.u[start - 1], p.w[start - 1], s.weight, s.mean_u, s.cost)
            if s.best[start] < INFINITY:
                _enter_envelope(p, s, &envelope, start, s.best[start] + p.unit)
        s.best[e] = INFINITY
        if start < 0:
            continue
        _move_window(p, s, &window, start, e)
        costs_with_block(envelope.n_slots, window.weight, window.mean, s.weight, s.mean_u, s.cost, s.around_line)
        least = _leftmost_least(s.around_line, envelope.n_slots)
        s.best[e] = s.around_line[least] + window.cost
        s.split[e] = s.start[least]


cdef struct Window:
    # The bins start..end-1 as one constant piece: the sums of those before the middle are kept for every start, and
    # those from the middle on are running sums. So no bin is ever subtracted, and each is added twice.
    Py_ssize_t middle
    Py_ssize_t end
    double weight_right
    double mean_right
    double cost_right
    double weight
    double mean
    double cost


cdef inline void _begin_window(Window *window) noexcept nogil:
    window.middle = 0
    window.end = 0
    window.weight_right = 0.0
    window.mean_right = 0.0
    window.cost_right = 0.0


cdef void _move_window(Pieces *p, Scratch *s, Window *window, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    """The sums of the bins start..end-1, neither of which is less than before."""
    cdef Py_ssize_t i
    cdef double weight = 0.0, mean = 0.0, cost = 0.0
    if start >= window.middle:
        for i in range(end - 1, start - 1, -1):
            _join(&weight, &mean, &cost, p.w[i], p.u[i], 0.0)
            s.window_weight[i] = weight
            s.window_mean[i] = mean
            s.window_cost[i] = cost
        window.middle = end
        window.weight_right = 0.0
        window.cost_right = 0.0
    else:
        for i in range(window.end, end):
            _join(&window.weight_right, &window.mean_right, &window.cost_right, p.w[i], p.u[i], 0.0)
    window.end = end
    window.weight = s.window_weight[start]
    window.mean = s.window_mean[start]
    window.cost = s.window_cost[start]
    if window.weight_right > 0.0:
        _join(&window.weight, &window.mean, &window.cost, window.weight_right, window.mean_right, window.cost_right)


cdef inline void _join(
    double *weight, double *mean, double *cost, double other_weight, double other_mean, double other_cost
) noexcept nogil:
    """Join another constant piece to one, which may still be empty."""
    cdef double share = other_weight / (weight[0] + other_weight), du = other_mean - mean[0]
    if weight[0] == 0.0:
        mean[0] = other_mean
        cost[0] = other_cost
    else:
        mean[0] += share * du
        cost[0] += other_cost + 0.5 * (share * weight[0]) * (du * du)
    weight[0] += other_weight


cdef void _search_lines_with_least_rows(Pieces *p, Scratch *s) noexcept nogil:
    """The best number of priced pieces, lines among them, with the pruning of `_search_priced_lines`.

    A start that a later start e beats is the better one for as long as no piece may begin at e. So it is only marked,
    and dropped at the first end for which e is allowed.
    """
    cdef Py_ssize_t e, least, n_allowed, n_slots = 0, first_mark = p.n
    cdef int32_t *beaten_by = s.last_seen
    s.best[0] = 0.0
    for e in range(1, p.n + 1):
        if s.best[e - 1] < INFINITY:
            _begin(s, n_slots, e - 1, s.best[e - 1], p.u[e - 1], p.x[e - 1])
            beaten_by[n_slots] = <int32_t> p.n
            n_slots += 1
        if first_mark <= p.last_start[e]:
            n_slots = _drop_beaten(p, s, n_slots, p.last_start[e], beaten_by, &first_mark)
        _extend_lines(n_slots, p.u[e - 1], p.w[e - 1], p.x[e - 1], s.weight, s.mean_u, s.mean_x, s.spread,
                      s.slope, s.around_mean, s.around_line)
        n_allowed = n_slots
        while n_allowed > 0 and s.start[n_allowed - 1] > p.last_start[e]:
            n_allowed -= 1
        s.best[e] = INFINITY
        if n_allowed == 0:
            continue
        _line_costs(n_allowed, p, s.before, s.around_mean, s.around_line, s.cost)
        least = _leftmost_least(s.cost, n_allowed)
        s.best[e] = s.cost[least]
        s.split[e] = s.start[least]
        if mark_beaten(n_slots, s.best[e] * (1.0 + 1e-12), s.before, s.around_line, beaten_by, <int32_t> p.n,
                       <int32_t> e) > 0 and first_mark == p.n:
            first_mark = e


cdef Py_ssize_t _drop_beaten(
    Pieces *p, Scratch *s, Py_ssize_t n_slots, Py_ssize_t last_start, int32_t *beaten_by, Py_ssize_t *first_mark
) noexcept nogil:
    """Drop the slots of starts that an allowed start beats; return how many are left, and the first of their marks."""
    cdef Py_ssize_t j, kept = 0
    first_mark[0] = p.n
    for j in range(n_slots):
        if beaten_by[j] > last_start:
            if kept < j:
                _move_slot(s, j, kept)
                beaten_by[kept] = beaten_by[j]
            first_mark[0] = min(first_mark[0], beaten_by[j])
            kept += 1
    return kept


cdef inline void _move_slot(Scratch *s, Py_ssize_t source, Py_ssize_t target) noexcept nogil:
    s.start[target] = s.start[source]
    s.before[target] = s.before[source]
    s.weight[target] = s.weight[source]
    s.mean_u[target] = s.mean_u[source]
    s.mean_x[target] = s.mean_x[source]
    s.spread[target] = s.spread[source]
    s.slope[target] = s.slope[source]
    s.around_mean[target] = s.around_mean[source]
    s.around_line[target] = s.around_line[source]
    s.cost[target] = s.cost[source]
