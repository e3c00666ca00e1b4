# Part of _projections.pyx: the best number of priced lines, with inequality pruning.


cdef void _search_priced_lines(Pieces *p, Scratch *s) noexcept nogil:
    """Optimal partitioning with inequality pruning (PELT, Killick et al. 2012).

    Joining two pieces never lowers the distance to their lines: D(s, T) >= D(s, e) + D(e, T). So once
    best[s] + D(s, e) / 2 exceeds best[e], a piece of either kind that starts at e beats one that starts at s, for
    all later ends.
    """
    cdef Py_ssize_t e, j, kept, least, n_alive = 0
    cdef double bound
    s.best[0] = 0.0
    for e in range(1, p.n + 1):
        _begin(s, n_alive, e - 1, s.best[e - 1], p.u[e - 1], p.x[e - 1])
        n_alive += 1
        _extend_lines(n_alive, p.u[e - 1], p.w[e - 1], p.x[e - 1], s.weight, s.mean_u, s.mean_x, s.spread,
                      s.slope, s.around_mean, s.around_line)
        _line_costs(n_alive, p, s.before, s.around_mean, s.around_line, s.cost)
        least = _leftmost_least(s.cost, n_alive)
        s.best[e] = s.cost[least]
        s.split[e] = s.start[least]
        bound = s.best[e] * (1.0 + 1e-12)
        if none_is_beaten(n_alive, bound, s.before, s.around_line):
            continue
        kept = 0
        for j in range(n_alive):
            if s.before[j] + 0.5 * s.around_line[j] <= bound:
                if kept < j:
                    _move_slot(s, j, kept)
                kept += 1
        n_alive = kept
