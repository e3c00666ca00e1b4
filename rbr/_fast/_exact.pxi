# Part of _projections.pyx: the choice of the fastest exact search.
#
# With a price, the search finds the number of pieces too. Without one, or where the limit binds, every number up to
# the limit is tried.


cdef Py_ssize_t _search_exact(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """Fill s.cut with the starts of the best pieces and return their number; -1 if there is no memory."""
    cdef Py_ssize_t n_pieces
    if limit == 1:
        s.cut[0] = 0
        return 1
    if p.unit > 0.0:
        if limit == 2:
            return _search_two(p, s)
        if p.line_code > 0.0 and p.last_start != NULL:
            _search_lines_with_least_rows(p, s)
        elif p.line_code > 0.0:
            _search_priced_lines(p, s)
        elif p.last_start != NULL:
            _search_constants_with_least_rows(p, s)
        else:
            s.best[0] = 0.0
            _search_constants(p, 0, True, s.best, s.best, s.split, s)
        n_pieces = _trace_back(s.split, p.n, s.cut)
        if n_pieces <= limit:
            return n_pieces
    elif p.count_codes == NULL and p.last_start == NULL:
        n_pieces = _cut_exact_fit(p, limit, s)
        if n_pieces > 0:
            return n_pieces
    if limit == 2:
        return _search_two(p, s)
    if p.line_code > 0.0 or p.n <= UNPRUNED_UP_TO:
        return _search_by_count_plain(p, limit, s)
    if p.ascending or _is_sorted(p):
        return _search_by_count_sorted(p, limit, s)
    # In a table with noise, about ten starts per end survive the pruning, which knows no least number of rows.
    if p.last_start != NULL or _plain_is_cheaper(p.n, limit - 2, limit, 10 * p.n):
        return _search_by_count_plain(p, limit, s)
    return _search_by_count_pruned(p, limit, s)


cdef Py_ssize_t _cut_exact_fit(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """Pieces that fit every value exactly: runs of equal values, or pairs of bins for lines; 0 if that fails."""
    cdef Py_ssize_t i, n_pieces = 0
    if p.constant_code > 0.0:
        for i in range(p.n):
            if i == 0 or p.u[i] != p.u[i - 1]:
                if n_pieces == limit:
                    return 0
                s.cut[n_pieces] = <int32_t> i
                n_pieces += 1
        return n_pieces
    if p.n > 2 * limit:
        return 0
    for i in range(1, p.n):
        if p.x[i] == p.x[i - 1]:
            return 0
    for i in range(0, p.n, 2):
        s.cut[i // 2] = <int32_t> i
    return (p.n + 1) // 2


cdef bint _is_sorted(Pieces *p) noexcept nogil:
    cdef Py_ssize_t i
    cdef bint rises = False, falls = False
    for i in range(1, p.n):
        rises = rises or p.u[i] > p.u[i - 1]
        falls = falls or p.u[i] < p.u[i - 1]
        if rises and falls:
            return False
    return True


cdef Py_ssize_t _trace_back(const int32_t *split, Py_ssize_t n, int32_t *cut) noexcept nogil:
    """The starts of the pieces, left to right; split[e] is the start of the last piece over the bins 0..e-1."""
    cdef Py_ssize_t n_pieces = 0, e = n, i
    while e > 0:
        n_pieces += 1
        e = split[e]
    e = n
    for i in range(n_pieces - 1, -1, -1):
        e = split[e]
        cut[i] = <int32_t> e
    return n_pieces


cdef void _follow_by_count(
    const int32_t *splits, Py_ssize_t n, Py_ssize_t n_pieces, int32_t *cut
) noexcept nogil:
    """The same from one row of n + 1 splits per number of pieces."""
    cdef Py_ssize_t k, e = n
    for k in range(n_pieces, 0, -1):
        e = splits[(k - 1) * (n + 1) + e]
        cut[k - 1] = <int32_t> e
