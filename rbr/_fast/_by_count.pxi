# Part of _projections.pyx: the best k pieces of any kind for every k up to the limit, without pruning.
#
# Also here: the search for two pieces, which needs no table of costs, and the price of a number of pieces.

cdef enum:
    KEEP_COSTS_UP_TO = 512  # with more bins the costs of all pieces are too many to keep


cdef Py_ssize_t _search_by_count_plain(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """The best of 1, 2, ..., limit pieces of any kind in one pass over all (start, end); -1 if there is no memory.

    Row e holds the least costs of 1, 2, ... pieces over the bins 0..e-1. Only costs are kept; the starts are
    found on the way back, from the costs of all pieces if those fit into a cache, else from costs computed again.
    """
    cdef Py_ssize_t n = p.n, k, e, start, block, n_pieces = 1
    cdef Py_ssize_t n_blocks = (limit + 6) // 8, stride = 1 + 8 * n_blocks
    cdef bint keep = n <= KEEP_COSTS_UP_TO
    cdef double least_cost, total
    cdef double *rows
    cdef double *piece
    cdef double *pieces
    if _need_by_count(s, (n + 1) * stride + (n * (n + 1) // 2 if keep else 0)) < 0:
        return -1
    rows = s.by_count
    pieces = s.by_count + (n + 1) * stride
    for e in range(1, n + 1):
        if p.line_code > 0.0:
            _begin(s, e - 1, e - 1, 0.0, p.u[e - 1], p.x[e - 1])
            _extend_lines(e, p.u[e - 1], p.w[e - 1], p.x[e - 1], s.weight, s.mean_u, s.mean_x, s.spread,
                          s.slope, s.around_mean, s.around_line)
            _line_costs(e, p, s.before, s.around_mean, s.around_line, s.cost)
        else:
            _begin(s, e - 1, e - 1, p.unit, p.u[e - 1], 0.0)
            _extend_constants(e, p.u[e - 1], p.w[e - 1], s.weight, s.mean_u, s.cost)
        if keep:
            piece = pieces + e * (e - 1) // 2
            for start in range(e):
                piece[start] = s.cost[start]
        rows[e * stride] = s.cost[0] if _after_last_start(p, e) > 0 else INFINITY
        for block in range(n_blocks):
            # k pieces need at least k bins, so earlier starts are impossible.
            k = 8 * block + 1
            _extend_by_one_piece(k, _after_last_start(p, e), s.cost, rows + k - 1, stride, rows + e * stride + k)

    least_cost = rows[n * stride] + _count_price(p, 1)
    for k in range(2, limit + 1):
        total = rows[n * stride + k - 1] + _count_price(p, k)
        # The added term exceeds what `tiny` adds to the cost of perfect fits, which must not count as a gain.
        if total + 1e-280 < least_cost:
            least_cost = total
            n_pieces = k
    e = n
    for k in range(n_pieces, 1, -1):
        if keep:
            piece = pieces + e * (e - 1) // 2
        else:
            _costs_leftwards(p, e, s.cost)
            piece = s.cost
        e = _best_last_start(rows + k - 2, stride, piece, k - 1, _after_last_start(p, e), &least_cost)
        s.cut[k - 1] = <int32_t> e
    s.cut[0] = 0
    return n_pieces


cdef void _extend_by_one_piece(
    Py_ssize_t first_start, Py_ssize_t after_last, const double *piece, const double *rows, Py_ssize_t stride,
    double *best
) noexcept nogil:
    """best[k] = min over first_start <= s < after_last of rows[s][k] + piece[s], for eight counts k at once.

    The eight minima do not depend on one another, which keeps the processor busy without vector instructions.
    """
    cdef Py_ssize_t start
    cdef const double *row
    cdef double c, t
    cdef double b0 = INFINITY, b1 = INFINITY, b2 = INFINITY, b3 = INFINITY
    cdef double b4 = INFINITY, b5 = INFINITY, b6 = INFINITY, b7 = INFINITY
    for start in range(first_start, after_last):
        row = rows + start * stride
        c = piece[start]
        t = row[0] + c
        b0 = t if t < b0 else b0
        t = row[1] + c
        b1 = t if t < b1 else b1
        t = row[2] + c
        b2 = t if t < b2 else b2
        t = row[3] + c
        b3 = t if t < b3 else b3
        t = row[4] + c
        b4 = t if t < b4 else b4
        t = row[5] + c
        b5 = t if t < b5 else b5
        t = row[6] + c
        b6 = t if t < b6 else b6
        t = row[7] + c
        b7 = t if t < b7 else b7
    best[0] = b0
    best[1] = b1
    best[2] = b2
    best[3] = b3
    best[4] = b4
    best[5] = b5
    best[6] = b6
    best[7] = b7


cdef Py_ssize_t _search_two(Pieces *p, Scratch *s) noexcept nogil:
    """The best of one and two pieces: for every place of the jump, the costs of the pieces to its left and right."""
    cdef Py_ssize_t e, start
    cdef double weight = 0.0, mean_u = p.u[0], mean_x = p.x[0], spread = 0.0, slope = 0.0
    cdef double around_mean = 0.0, around_line = 0.0, least
    for e in range(1, p.n + 1):
        _extend_lines(1, p.u[e - 1], p.w[e - 1], p.x[e - 1], &weight, &mean_u, &mean_x, &spread, &slope,
                      &around_mean, &around_line)
        s.best[e] = _piece_cost(p, around_mean, around_line) if _after_last_start(p, e) > 0 else INFINITY
    _costs_leftwards(p, p.n, s.cost)
    start = _best_last_start(s.best, 1, s.cost, 1, _after_last_start(p, p.n), &least)
    s.cut[0] = 0
    s.cut[1] = <int32_t> start
    # The added term exceeds what `tiny` adds to the cost of perfect fits, which must not count as a gain.
    return 2 if least + _count_price(p, 2) + 1e-280 < s.best[p.n] + _count_price(p, 1) else 1


cdef void _costs_leftwards(Pieces *p, Py_ssize_t end, double *cost) noexcept nogil:
    """cost[start] of the piece start..end-1 for every start, its bins added from the right."""
    cdef Py_ssize_t start
    cdef double weight = 0.0, mean_u = p.u[end - 1], mean_x = p.x[end - 1], spread = 0.0, slope = 0.0
    cdef double around_mean = 0.0, around_line = 0.0
    for start in range(end - 1, -1, -1):
        _extend_lines(1, p.u[start], p.w[start], p.x[start], &weight, &mean_u, &mean_x, &spread, &slope,
                      &around_mean, &around_line)
        cost[start] = _piece_cost(p, around_mean, around_line)


cdef Py_ssize_t _best_last_start(
    const double *before, Py_ssize_t stride, const double *piece, Py_ssize_t first_start, Py_ssize_t after_last,
    double *least_cost
) noexcept nogil:
    """The leftmost start that minimises before[start * stride] + piece[start], and that least cost."""
    cdef Py_ssize_t start, least = first_start
    cdef double total
    least_cost[0] = INFINITY
    for start in range(first_start, after_last):
        total = before[start * stride] + piece[start]
        if total < least_cost[0]:
            least_cost[0] = total
            least = start
    return least


cdef inline double _count_price(Pieces *p, Py_ssize_t k) noexcept nogil:
    return 0.0 if p.count_codes == NULL else p.count_price * p.count_codes[k - 1]


cdef inline double _least_cost_from(Pieces *p, Py_ssize_t k) noexcept nogil:
    """The least that k or more pieces can cost: the price of k, if they fit perfectly."""
    if p.count_codes == NULL:
        return k * p.unit * (p.constant_code if p.constant_code > 0.0 else p.line_code)
    return _count_price(p, k)
