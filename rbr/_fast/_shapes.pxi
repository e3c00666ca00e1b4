# Part of _projections.pyx: one table and its shape.
#
# A shape decides what is cut into pieces (the bins, the blocks of an isotonic fit, the sorted values), runs the
# search and writes the values and labels of the bins. Bins of weight zero take no part in the search.

cdef double PI = 3.141592653589793


cdef struct Table:
    # One table, ordered bins first; if has_missing, bin n_ordered is the missing one.
    Py_ssize_t n_ordered
    bint has_missing
    const double *u
    const double *w
    const double *x
    Shape shape
    Py_ssize_t limit
    const double *rows
    double least_rows
    double price
    const double *level_codes
    bint greedy
    double *out
    int32_t *labels


cdef int _prox_table(Table *t, Scratch *s, double *net, double *code) noexcept nogil:
    cdef Py_ssize_t i, n_bins = t.n_ordered + t.has_missing
    cdef int32_t top = NO_PIECE
    cdef int failed = 0
    cdef bint is_zero
    cdef double low = INFINITY, high = -INFINITY
    for i in range(n_bins):
        t.out[i] = 0.0
        t.labels[i] = NO_PIECE
    if t.shape == FREE:
        _choose_free(t, code)
    elif t.shape == FREQUENCY:
        _choose_frequency(t, s, code)
    elif t.shape == LEVELS:
        failed = _choose_levels(t, s, code)
    elif t.shape == INCREASING or t.shape == DECREASING:
        failed = _choose_monotone(t, s, code)
    else:
        failed = _choose_pieces(t, s, code)
    if failed < 0:
        return -1
    for i in range(t.n_ordered):
        if t.labels[i] > top:
            top = t.labels[i]
    is_zero = top == 0 and not (t.has_missing and t.w[t.n_ordered] > 0.0)
    if t.has_missing:
        i = t.n_ordered
        t.out[i] = t.u[i] if t.w[i] > 0.0 else 0.0
        t.labels[i] = 0 if top == NO_PIECE else 2 * (top // 2 + 1)
        code[0] += 1.0
    net[0] = 0.0
    for i in range(n_bins):
        if t.w[i] > 0.0:
            low = min(low, t.out[i])
            high = max(high, t.out[i])
        net[0] += t.w[i] * (t.out[i] * t.out[i])
    net[0] = net[0] / 2 - t.price * code[0]
    # A constant table of mean zero is zero, though rounding may leave a small net.
    if is_zero or low == high or not net[0] > 0.0:
        net[0] = 0.0
        code[0] = 0.0
        for i in range(n_bins):
            t.out[i] = 0.0
            t.labels[i] = NO_PIECE
    return 0


cdef int _choose_pieces(Table *t, Scratch *s, double *code) noexcept nogil:
    """constant, linear, mixed: the best cut, then the fit of each piece by direct sums."""
    cdef Py_ssize_t n = _collect_live(t, s), n_pieces, piece, first, last, first_bin, last_bin, i
    cdef double log_b = log(<double> t.n_ordered), origin, extent, mean, center, slope, spread, product
    cdef double dx, du, around_mean, around_line
    cdef Pieces p
    cdef bint line
    code[0] = 0.0
    if n == 0:
        return 0
    p.n = n
    p.u = s.u
    p.w = s.w
    p.x = s.x
    p.ascending = False
    p.unit = t.price * log_b
    p.constant_code = 1.0 if t.shape == CONSTANT or (t.shape == MIXED and t.price > 0.0) else 0.0
    p.line_code = 2.0 if t.shape != CONSTANT else 0.0
    p.count_codes = NULL
    _set_last_starts_of_bins(&p, t, s)
    n_pieces = _search(&p, t, s)
    if n_pieces < 0:
        return -1
    code[0] = -1.0
    for piece in range(n_pieces):
        first = s.cut[piece]
        last = s.cut[piece + 1] if piece + 1 < n_pieces else n
        mean = _mean(s.u, s.w, first, last)
        slope = 0.0
        center = 0.0
        line = p.constant_code == 0.0
        origin = t.x[s.live[first]]
        extent = 0.5 * t.x[s.live[last - 1]] - 0.5 * origin
        if p.line_code > 0.0 and t.x[s.live[last - 1]] != origin:
            # Positions from 0 to 1 over the piece: their differences are exact, their squares in range.
            for i in range(first, last):
                s.x[i] = (0.5 * t.x[s.live[i]] - 0.5 * origin) / extent
            center = _mean(s.x, s.w, first, last)
            spread = 0.0
            product = 0.0
            for i in range(first, last):
                dx = s.x[i] - center
                spread += s.w[i] * dx * dx
                product += s.w[i] * dx * (s.u[i] - mean)
            slope = product / spread if spread > 0.0 else 0.0
            if p.constant_code > 0.0:
                around_mean = 0.0
                around_line = 0.0
                for i in range(first, last):
                    du = s.u[i] - mean
                    around_mean += s.w[i] * du * du
                    du -= slope * (s.x[i] - center)
                    around_line += s.w[i] * du * du
                if last - first == 2:
                    around_line = 0.0
                line = 0.5 * around_line + p.unit * p.line_code < 0.5 * around_mean + p.unit * p.constant_code
        code[0] += p.line_code if line else p.constant_code
        # Bins of weight zero belong to the piece on their left, the first ones to the first piece.
        first_bin = s.live[first] if piece > 0 else 0
        last_bin = s.live[last] if last < n else t.n_ordered
        for i in range(first_bin, last_bin):
            t.out[i] = mean
            t.labels[i] = <int32_t> (2 * piece + line)
        if line and t.x[s.live[last - 1]] != origin:
            for i in range(first_bin, last_bin):
                t.out[i] = mean + slope * ((0.5 * t.x[i] - 0.5 * origin) / extent - center)
    code[0] *= log_b
    return 0


cdef int _choose_monotone(Table *t, Scratch *s, double *code) noexcept nogil:
    """increasing, decreasing: pool adjacent violators, then the best cut of the blocks.

    With a least number of rows, cuts within blocks are allowed. Then pieces of one block, which rounding may have cut,
    are joined, and so are pieces whose means fall.
    """
    cdef Py_ssize_t n = _collect_live(t, s), n_blocks = 0
    cdef Py_ssize_t n_pieces, piece, first, last, i, first_bin, last_bin
    cdef double sign = 1.0 if t.shape == INCREASING else -1.0, mean, log_b = log(<double> t.n_ordered)
    cdef Pieces p
    code[0] = 0.0
    if n == 0:
        return 0
    for i in range(n):
        s.block_u[n_blocks] = sign * s.u[i]
        s.block_w[n_blocks] = s.w[i]
        s.block_start[n_blocks] = <int32_t> i
        while n_blocks > 0 and s.block_u[n_blocks - 1] >= s.block_u[n_blocks]:
            n_blocks -= 1
            s.block_u[n_blocks] += (
                s.block_w[n_blocks + 1] * (s.block_u[n_blocks + 1] - s.block_u[n_blocks])
                / (s.block_w[n_blocks] + s.block_w[n_blocks + 1])
            )
            s.block_w[n_blocks] += s.block_w[n_blocks + 1]
        n_blocks += 1
    if t.least_rows > 0.0:
        n_blocks = _split_blocks(n, n_blocks, s)
    p.n = n_blocks
    p.u = s.block_u
    p.w = s.block_w
    p.x = s.block_u
    p.ascending = True
    p.unit = t.price * log_b
    p.constant_code = 1.0
    p.line_code = 0.0
    p.count_codes = NULL
    _set_last_starts_of_bins(&p, t, s)
    n_pieces = _search(&p, t, s)
    if n_pieces < 0:
        return -1
    if t.least_rows > 0.0:
        n_pieces = _pool_pieces(&p, n_pieces, s)
        for i in range(n):
            s.block_u[i] = sign * s.u[i]
        n_pieces = _pool_pieces(&p, n_pieces, s)
    for piece in range(n_pieces):
        first = s.cut[piece]
        last = s.cut[piece + 1] if piece + 1 < n_pieces else n_blocks
        mean = sign * _mean(s.block_u, s.block_w, first, last)
        first_bin = s.live[s.block_start[first]] if piece > 0 else 0
        last_bin = s.live[s.block_start[last]] if last < n_blocks else t.n_ordered
        for i in range(first_bin, last_bin):
            t.out[i] = mean
            t.labels[i] = <int32_t> (2 * piece)
    code[0] = (n_pieces - 1) * log_b
    return 0


cdef Py_ssize_t _split_blocks(Py_ssize_t n, Py_ssize_t n_blocks, Scratch *s) noexcept nogil:
    """Make every bin a block of its own, with the value of the block that it was in; return their number."""
    cdef Py_ssize_t i, block = n_blocks - 1
    for i in range(n - 1, -1, -1):
        s.block_u[i] = s.block_u[block]
        s.block_w[i] = s.w[i]
        if i == s.block_start[block]:
            block -= 1
    for i in range(n):
        s.block_start[i] = <int32_t> i
    return n


cdef Py_ssize_t _pool_pieces(Pieces *p, Py_ssize_t n_pieces, Scratch *s) noexcept nogil:
    """Join neighbouring pieces in s.cut until their means increase; return the number that is left."""
    cdef Py_ssize_t piece, last, kept = 0
    for piece in range(n_pieces):
        last = s.cut[piece + 1] if piece + 1 < n_pieces else p.n
        s.cut[kept] = s.cut[piece]
        s.best[kept] = _mean(p.u, p.w, s.cut[kept], last)
        while kept > 0 and s.best[kept - 1] >= s.best[kept]:
            kept -= 1
            s.best[kept] = _mean(p.u, p.w, s.cut[kept], last)
        kept += 1
    return kept


cdef int _choose_levels(Table *t, Scratch *s, double *code) noexcept nogil:
    """levels: the best cut of the sorted values; a price by the number of groups."""
    cdef Py_ssize_t n = _collect_live(t, s), n_pieces, piece, first, last, i, bin, nearest = 0
    cdef double mean, nearest_value = 0.0
    cdef Pieces p
    code[0] = 0.0
    if n == 0:
        return 0
    _sort(s.u, n, s.order, s.spare)
    for i in range(n):
        s.block_u[i] = s.u[s.order[i]]
        s.block_w[i] = s.w[s.order[i]]
    p.n = n
    p.u = s.block_u
    p.w = s.block_w
    p.x = s.block_u
    p.ascending = True
    p.unit = 0.0
    p.constant_code = 1.0
    p.line_code = 0.0
    p.count_codes = t.level_codes if t.price > 0.0 else NULL
    p.count_price = t.price
    p.last_start = NULL
    if t.least_rows > 0.0:
        for i in range(n):
            s.rows[i] = t.rows[s.live[s.order[i]]]
        _set_last_starts(&p, t.least_rows, s)
    n_pieces = _search(&p, t, s)
    if n_pieces < 0:
        return -1
    for piece in range(n_pieces):
        first = s.cut[piece]
        last = s.cut[piece + 1] if piece + 1 < n_pieces else n
        mean = _mean(s.block_u, s.block_w, first, last)
        if piece == 0 or fabs(mean) < fabs(nearest_value):
            nearest_value = mean
            nearest = piece
        for i in range(first, last):
            bin = s.live[s.order[i]]
            t.out[bin] = mean
            t.labels[bin] = <int32_t> (2 * piece)
    for i in range(t.n_ordered):
        if not t.w[i] > 0.0:
            t.out[i] = nearest_value
            t.labels[i] = <int32_t> (2 * nearest)
    code[0] = t.level_codes[n_pieces - 1]
    return 0


cdef void _choose_frequency(Table *t, Scratch *s, double *code) noexcept nogil:
    """frequency: the orthonormal DCT-II by its definition, then hard thresholding."""
    cdef Py_ssize_t n = t.n_ordered, i, k, phase, kept
    cdef double log_b, total, largest = 0.0
    code[0] = 0.0
    if n == 0:
        return
    log_b = log(<double> n)
    if s.cosines_for != n:
        for i in range(4 * n):
            s.cosines[i] = cos(PI * i / (2 * n))
        s.cosines_for = n
    for k in range(n):
        # cos(pi (2 i + 1) k / (2 n)), whose phase (2 i + 1) k is taken modulo 4 n
        total = 0.0
        phase = k
        for i in range(n):
            total += t.u[i] * s.cosines[phase]
            phase += 2 * k
            if phase >= 4 * n:
                phase -= 4 * n
        s.u[k] = total * sqrt((1.0 if k == 0 else 2.0) / n)
        largest = max(largest, fabs(s.u[k]))
    for k in range(n):
        if fabs(s.u[k]) <= 1e-14 * largest:     # rounding of the transform
            s.u[k] = 0.0
        s.w[k] = -fabs(s.u[k])
    _sort(s.w + 1, n - 1, s.order, s.spare)
    for i in range(n):
        t.out[i] = s.u[0] * sqrt(1.0 / n)
    t.labels[0] = 0
    kept = 0
    while kept < n - 1 and kept < t.limit:
        k = 1 + s.order[kept]
        if not t.w[0] * (s.u[k] * s.u[k]) / 2 > t.price * log_b:
            break
        kept += 1
        t.labels[k] = <int32_t> (2 * k)
        phase = k
        for i in range(n):
            t.out[i] += s.u[k] * sqrt(2.0 / n) * s.cosines[phase]
            phase += 2 * k
            if phase >= 4 * n:
                phase -= 4 * n
    code[0] = kept * log_b


cdef void _choose_free(Table *t, double *code) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(t.n_ordered):
        if t.w[i] > 0.0:
            t.out[i] = t.u[i]
            t.labels[i] = <int32_t> (2 * i)
    code[0] = t.n_ordered - 1.0 if t.n_ordered > 0 else 0.0


cdef Py_ssize_t _collect_live(Table *t, Scratch *s) noexcept nogil:
    """Collect the bins of positive weight, with positions mapped to 0..1; return their number."""
    cdef Py_ssize_t i, n = 0
    cdef double origin, extent
    for i in range(t.n_ordered):
        if t.w[i] > 0.0:
            s.live[n] = <int32_t> i
            s.u[n] = t.u[i]
            s.w[n] = t.w[i]
            n += 1
    if n > 0:
        origin = t.x[s.live[0]]
        extent = 0.5 * t.x[s.live[n - 1]] - 0.5 * origin
        for i in range(n):
            s.x[i] = (0.5 * t.x[s.live[i]] - 0.5 * origin) / extent if extent > 0.0 else 0.0
    return n


cdef Py_ssize_t _affordable_count(Pieces *p, Py_ssize_t limit) noexcept nogil:
    """The largest number of constant pieces whose price alone is below the cost of one piece, at most `limit`."""
    cdef Py_ssize_t i
    cdef double mean, cost = 0.0
    if p.count_codes == NULL:
        return limit
    mean = _mean(p.u, p.w, 0, p.n)
    for i in range(p.n):
        cost += 0.5 * p.w[i] * ((p.u[i] - mean) * (p.u[i] - mean))
    cost += _count_price(p, 1)
    while limit > 1 and _count_price(p, limit) >= cost:
        limit -= 1
    return limit


cdef void _set_last_starts_of_bins(Pieces *p, Table *t, Scratch *s) noexcept nogil:
    """The last starts of pieces of neighbouring bins.

    The rows of a bin of weight zero count for the bin of positive weight whose piece it belongs to.
    """
    cdef Py_ssize_t i, k
    p.last_start = NULL
    if not t.least_rows > 0.0:
        return
    for k in range(p.n):
        s.rows[k] = 0.0
        for i in range(s.live[k] if k > 0 else 0, s.live[k + 1] if k + 1 < p.n else t.n_ordered):
            s.rows[k] += t.rows[i]
    _set_last_starts(p, t.least_rows, s)


cdef Py_ssize_t _search(Pieces *p, Table *t, Scratch *s) noexcept nogil:
    cdef Py_ssize_t limit = _affordable_count(p, min(t.limit, p.n))
    if t.greedy:
        return _search_greedy(p, limit, s)
    return _search_exact(p, limit, s)


cdef void _sort(const double *u, Py_ssize_t n, int32_t *order, int32_t *spare) noexcept nogil:
    """order := the bins 0..n-1 by value, ties by index (merge sort)."""
    cdef Py_ssize_t width = 1, first, middle, last, a, b, k
    cdef int32_t *source = order
    cdef int32_t *target = spare
    cdef int32_t *swap
    for k in range(n):
        source[k] = <int32_t> k
    while width < n:
        first = 0
        while first < n:
            middle = min(first + width, n)
            last = min(first + 2 * width, n)
            a = first
            b = middle
            for k in range(first, last):
                if a < middle and (b >= last or u[source[a]] <= u[source[b]]):
                    target[k] = source[a]
                    a += 1
                else:
                    target[k] = source[b]
                    b += 1
            first = last
        swap = source
        source = target
        target = swap
        width *= 2
    if source != order:
        for k in range(n):
            order[k] = source[k]
