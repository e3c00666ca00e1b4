"""The kernel of averages over all ways to halve a grid into rectangles."""

from libc.math cimport INFINITY, exp, fabs, log, log1p, sqrt
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

# A side of fewer bins has no slope; neither has one whose bins' numbers vary less, which is a rounding error.
cdef enum:
    LEAST_PLANE = 3
    MOMENTS = 9
    # Doubles of scratch per rectangle: moments, the plane that its parents leave to it, its evidence and probabilities.
    PER_RECTANGLE = 20
cdef double LEAST_SPREAD = 1e-9
# Another place than the middle must explain more by this part of what the bins could: less is a rounding error.
cdef double LEAST_GAIN = 1e-10

# A rectangle that is less likely than this adds nothing to the average.
cdef double NEVER = 1e-17

# The moments of a rectangle: sums of S, S x, S y, W, W x, W y, W x^2, W y^2, W x y.
cdef enum:
    S = 0
    SX = 1
    SY = 2
    W = 3
    WX = 4
    WY = 5
    WXX = 6
    WYY = 7
    WXY = 8


# The parts of a side: node 0 is the whole side, and the two parts of a node come after it.
cdef struct Halves:
    Py_ssize_t n
    bint has_levels     # whether the whole side may also be cut into all its bins at once
    int64_t *first      # the first bin of each node, and one past the last
    int64_t *last
    int64_t *left       # the nodes of its parts, -1 for a single bin
    int64_t *right


# What a whole rectangle can be: the log evidence of a constant, what a plane gains, and its value and slopes.
cdef struct Whole:
    double constant
    double gain
    double value
    double square
    double slope_x
    double slope_y
    double centre_x
    double centre_y
    double of_slopes    # the mean square of the slopes, in units of their prior's variance
    int n_slopes


# Running sums along a side, by block of the other side: entry (bin, block).
cdef struct Blocks:
    Py_ssize_t n
    double *sums
    double *weights
    double prior
    double least


cdef double _explained(const Blocks *blocks, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    cdef Py_ssize_t k
    cdef double s, total = 0.0
    for k in range(blocks.n):
        s = blocks.sums[last * blocks.n + k] - blocks.sums[first * blocks.n + k]
        total += s * s / (blocks.weights[last * blocks.n + k] - blocks.weights[first * blocks.n + k] + blocks.prior)
    return 0.5 * total


cdef Py_ssize_t _cut(Halves *side, const Blocks *blocks, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    cdef Py_ssize_t node = side.n, middle = (first + last) // 2, m
    cdef double both, most
    side.n += 1
    side.first[node] = first
    side.last[node] = last
    side.left[node] = side.right[node] = -1
    if last - first > 1:
        if blocks.n:
            most = _explained(blocks, first, middle) + _explained(blocks, middle, last)
            for m in range(first + 1, last):
                both = _explained(blocks, first, m) + _explained(blocks, m, last)
                if both > most + blocks.least:
                    middle, most = m, both
        side.left[node] = _cut(side, blocks, first, middle)
        side.right[node] = _cut(side, blocks, middle, last)
    return node


cdef void _cut_side(
    Halves *side, const double *sums, const double *weights, Py_ssize_t n, Py_ssize_t n_other, Py_ssize_t stride,
    Py_ssize_t stride_other, Py_ssize_t n_blocks, double prior, double *scratch,
) noexcept nogil:
    """Cut a side of n bins in the middle, or where that explains most, summed over blocks of the other side."""
    cdef:
        Py_ssize_t i, j, k
        Blocks blocks
        double w
    blocks.n, blocks.prior = min(n_blocks, n_other), prior
    blocks.sums, blocks.weights = scratch, scratch + (n + 1) * blocks.n
    cdef double *size = scratch + 2 * (n + 1) * blocks.n
    for k in range(blocks.n):
        blocks.sums[k] = blocks.weights[k] = size[k] = 0.0
    for i in range(n if blocks.n else 0):
        for k in range(i * blocks.n, (i + 1) * blocks.n):
            blocks.sums[k + blocks.n], blocks.weights[k + blocks.n] = blocks.sums[k], blocks.weights[k]
        for j in range(n_other):
            k = (i + 1) * blocks.n + j * blocks.n // n_other
            blocks.sums[k] += sums[i * stride + j * stride_other]
            blocks.weights[k] += weights[i * stride + j * stride_other]
            size[j * blocks.n // n_other] += fabs(sums[i * stride + j * stride_other])
    blocks.least = 0.0
    for k in range(blocks.n):
        w = blocks.weights[n * blocks.n + k]
        blocks.least += LEAST_GAIN * 0.5 * size[k] * size[k] / (w + prior)
    _cut(side, &blocks, 0, n)


cdef double _of_levels(const Halves *side, const double *evidence, Py_ssize_t at, Py_ssize_t stride) noexcept nogil:
    """The log evidence of all single bins of a side together; node k has the entry at + k * stride."""
    cdef Py_ssize_t k
    cdef double total = 0.0
    for k in range(side.n):
        if side.left[k] < 0:
            total += evidence[at + k * stride]
    return total


cdef void _reach_levels(const Halves *side, double *reached, Py_ssize_t at, Py_ssize_t stride, double p) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(side.n):
        if side.left[k] < 0:
            reached[at + k * stride] += p


cdef Whole _whole(const double *m, Py_ssize_t n_x, Py_ssize_t n_y, double prior, bint has_planes) noexcept nogil:
    cdef:
        Whole found
        double w = m[W], s = m[S], var_x, var_y, x = 0.0, y = 0.0, between, on, off, det
        double slope_prior = 3.0 * prior
        bint along_x, along_y
    found.value = s / (w + prior)
    found.constant = 0.5 * s * found.value - 0.5 * log1p(w / prior)
    found.square = found.value * found.value + 1.0 / (w + prior)
    found.centre_x = m[WX] / w
    found.centre_y = m[WY] / w
    found.slope_x = found.slope_y = found.gain = found.of_slopes = 0.0
    var_x = m[WXX] / w - found.centre_x * found.centre_x
    var_y = m[WYY] / w - found.centre_y * found.centre_y
    along_x = has_planes and n_x >= LEAST_PLANE and var_x > LEAST_SPREAD
    along_y = has_planes and n_y >= LEAST_PLANE and var_y > LEAST_SPREAD
    found.n_slopes = along_x + along_y
    if along_x:
        x = (m[SX] - s * found.centre_x) / sqrt(var_x)
    if along_y:
        y = (m[SY] - s * found.centre_y) / sqrt(var_y)
    on = w + slope_prior
    if along_x and along_y:
        between = (m[WXY] / w - found.centre_x * found.centre_y) / sqrt(var_x * var_y)
        off = w * between
        det = on * on - off * off
        found.slope_x = (on * x - off * y) / det
        found.slope_y = (on * y - off * x) / det
        found.gain = -0.5 * log(det / (slope_prior * slope_prior))
        found.of_slopes = 2.0 * on / det
    elif along_x or along_y:
        found.slope_x = x / on
        found.slope_y = y / on
        found.gain = -0.5 * log1p(w / slope_prior)
        found.of_slopes = 1.0 / on
    found.gain += 0.5 * (x * found.slope_x + y * found.slope_y)
    found.of_slopes += found.slope_x * found.slope_x + found.slope_y * found.slope_y
    found.of_slopes *= 3.0
    if along_x:
        found.slope_x /= sqrt(var_x)
    if along_y:
        found.slope_y /= sqrt(var_y)
    return found


cdef void _average(
    const double *sums, const double *weights, Py_ssize_t stride, Halves *a, Halves *b, double prior, double cut_share,
    double plane_share, double *out, double *totals, double *scratch,
) noexcept nogil:
    """Adds the log evidence, the numbers of rectangles and unknowns, and the squares of the unknowns to totals."""
    cdef:
        Py_ssize_t n_a = a.n, n_b = b.n, n = n_a * n_b, i, j, k, one, other, q, cell
        double *moments = scratch                # MOMENTS for each rectangle
        double *plane = moments + MOMENTS * n    # value at the origin and slopes, which are left to the parts
        double *evidence = plane + 3 * n
        double *reached = evidence + n           # probability of being a part
        double *by_a = reached + n               # probabilities of being halved along a and b, and of being a plane
        double *by_b = by_a + n
        double *is_plane = by_b + n
        double *levels_a = is_plane + n          # and of being cut into all bins of a, or of b, at once
        double *levels_b = levels_a + n
        double *m
        double *v
        double log_cut = log(cut_share), log_whole = log1p(-cut_share), log_one, most, whole, p, p_plane, z_a, z_b, w
        double all_a, all_b
        int n_ways
        double log_plane = log(plane_share) if plane_share > 0.0 else -INFINITY, log_constant = log1p(-plane_share)
        Whole found
    for i in range(n_a - 1, -1, -1):
        for j in range(n_b - 1, -1, -1):
            k = i * n_b + j
            m = moments + MOMENTS * k
            if a.left[i] < 0 and b.left[j] < 0:
                cell = a.first[i] * stride + b.first[j]
                m[S], m[W] = sums[cell], weights[cell]
                m[SX], m[SY] = m[S] * a.first[i], m[S] * b.first[j]
                m[WX], m[WY] = m[W] * a.first[i], m[W] * b.first[j]
                m[WXX], m[WYY], m[WXY] = m[WX] * a.first[i], m[WY] * b.first[j], m[WX] * b.first[j]
            else:
                one = a.left[i] * n_b + j if a.left[i] >= 0 else i * n_b + b.left[j]
                other = a.right[i] * n_b + j if a.left[i] >= 0 else i * n_b + b.right[j]
                for q in range(MOMENTS):
                    m[q] = moments[MOMENTS * one + q] + moments[MOMENTS * other + q]
            plane[3 * k] = plane[3 * k + 1] = plane[3 * k + 2] = 0.0
            reached[k] = evidence[k] = by_a[k] = by_b[k] = is_plane[k] = levels_a[k] = levels_b[k] = 0.0
            if not m[W] > 0.0:
                continue
            found = _whole(m, a.last[i] - a.first[i], b.last[j] - b.first[j], prior, plane_share > 0.0)
            whole, p_plane = found.constant, 0.0
            if found.n_slopes:
                most = max(log_constant, log_plane + found.gain)
                p_plane = exp(log_plane + found.gain - most)
                p = p_plane + exp(log_constant - most)
                whole += most + log(p)
                p_plane /= p
            if a.left[i] < 0 and b.left[j] < 0:
                evidence[k], is_plane[k] = whole, p_plane
                continue
            n_ways = (a.left[i] >= 0) + (b.left[j] >= 0) + (i == 0 and a.has_levels) + (j == 0 and b.has_levels)
            log_one = log_cut - log(<double> n_ways)
            whole += log_whole
            z_a = z_b = all_a = all_b = -INFINITY
            if a.left[i] >= 0:
                z_a = log_one + evidence[a.left[i] * n_b + j] + evidence[a.right[i] * n_b + j]
            if b.left[j] >= 0:
                z_b = log_one + evidence[i * n_b + b.left[j]] + evidence[i * n_b + b.right[j]]
            if i == 0 and a.has_levels:
                all_a = log_one + _of_levels(a, evidence, j, n_b)
            if j == 0 and b.has_levels:
                all_b = log_one + _of_levels(b, evidence, i * n_b, 1)
            most = max(max(whole, max(z_a, z_b)), max(all_a, all_b))
            z_a, z_b, whole = exp(z_a - most), exp(z_b - most), exp(whole - most)
            all_a, all_b = exp(all_a - most), exp(all_b - most)
            p = z_a + z_b + whole + all_a + all_b
            evidence[k] = most + log(p)
            by_a[k], by_b[k], is_plane[k] = z_a / p, z_b / p, p_plane
            levels_a[k], levels_b[k] = all_a / p, all_b / p

    totals[0] += evidence[0]
    reached[0] = 1.0
    for i in range(n_a):
        for j in range(n_b):
            k = i * n_b + j
            m, v, p = moments + MOMENTS * k, plane + 3 * k, reached[k]
            if p > NEVER and m[W] > 0.0:
                w = p * (1.0 - by_a[k] - by_b[k] - levels_a[k] - levels_b[k])
                if w > NEVER:
                    found = _whole(m, a.last[i] - a.first[i], b.last[j] - b.first[j], prior, plane_share > 0.0)
                    p_plane = w * is_plane[k]
                    v[0] += w * found.value
                    v[0] -= p_plane * (found.slope_x * found.centre_x + found.slope_y * found.centre_y)
                    v[1] += p_plane * found.slope_x
                    v[2] += p_plane * found.slope_y
                    totals[1] += w
                    totals[2] += w + p_plane * found.n_slopes
                    totals[3] += w * found.square + p_plane * found.of_slopes
                if a.left[i] >= 0:
                    reached[a.left[i] * n_b + j] += p * by_a[k]
                    reached[a.right[i] * n_b + j] += p * by_a[k]
                if b.left[j] >= 0:
                    reached[i * n_b + b.left[j]] += p * by_b[k]
                    reached[i * n_b + b.right[j]] += p * by_b[k]
                if levels_a[k] > 0.0:
                    _reach_levels(a, reached, j, n_b, p * levels_a[k])
                if levels_b[k] > 0.0:
                    _reach_levels(b, reached, i * n_b, 1, p * levels_b[k])
            if a.left[i] < 0 and b.left[j] < 0:
                cell = a.first[i] * stride + b.first[j]
                out[cell] = v[0] + v[1] * a.first[i] + v[2] * b.first[j]
                continue
            one = a.left[i] * n_b + j if a.left[i] >= 0 else i * n_b + b.left[j]
            other = a.right[i] * n_b + j if a.left[i] >= 0 else i * n_b + b.right[j]
            for q in range(3):
                plane[3 * one + q] += v[q]
                plane[3 * other + q] += v[q]


def average_grids(
    const int64_t[::1] offsets,      # IN  (n_grids + 1,): where the cells of each grid begin, row by row
    const int64_t[:, ::1] sides,     # IN  (n_grids, 6): bins along both sides, whether each has a missing one, or levels
    const double[::1] sums,          # IN  (offsets[-1],): of weight times value, by cell
    const double[::1] weights,       # IN  (offsets[-1],): precisions of the values, at least 0
    const double[::1] priors,        # IN  (n_grids,): the precision of the prior of a rectangle's value, positive
    double cut_share,                # IN  the prior probability that a rectangle is halved
    double plane_share,              # IN  the prior share of planes among rectangles that are left whole
    Py_ssize_t n_blocks,             # IN  of the other side, over which a cut place is chosen; 0 for the middle
    double[::1] out,                 # OUT (offsets[-1],), the grids first <= t < last
    double[::1] evidence_out,        # OUT (n_grids,)
    double[::1] pieces_out,          # OUT (n_grids,)
    double[::1] priors_out,          # OUT (n_grids,)
    Py_ssize_t first,
    Py_ssize_t last,
):
    """The mean of each grid over all ways to halve it, its log evidence, the mean number of rectangles, and the prior
    that the values and slopes of the rectangles suggest (a step of the EM algorithm; the given one without any)."""
    cdef:
        Py_ssize_t t, row, column, stride, most_a = 1, most_b = 1, n_nodes
        double *scratch
        int64_t *nodes
        double[4] totals
        Halves[2] a
        Halves[2] b
        int64_t[2] at_a
        int64_t[2] at_b
        const double *s
        const double *w
    for t in range(first, last):
        most_a, most_b = max(most_a, sides[t, 0]), max(most_b, sides[t, 1])
    n_nodes = 2 * max(most_a, most_b)
    with nogil:
        scratch = <double *> malloc(PER_RECTANGLE * 4 * most_a * most_b * sizeof(double))
        nodes = <int64_t *> malloc(4 * 4 * n_nodes * sizeof(int64_t))
        if scratch == NULL or nodes == NULL:
            free(scratch)
            free(nodes)
            with gil:
                raise MemoryError
        for row in range(2):
            a[row].first = nodes + 8 * row * n_nodes
            b[row].first = nodes + (8 * row + 4) * n_nodes
            a[row].last, b[row].last = a[row].first + n_nodes, b[row].first + n_nodes
            a[row].left, b[row].left = a[row].last + n_nodes, b[row].last + n_nodes
            a[row].right, b[row].right = a[row].left + n_nodes, b[row].left + n_nodes
        for t in range(first, last):
            stride = sides[t, 1] + sides[t, 3]
            for row in range(4):
                totals[row] = 0.0
            a[0].n = a[1].n = b[0].n = b[1].n = 0
            # Two bins are cut into both by halving.
            a[0].has_levels, b[0].has_levels = sides[t, 4] and sides[t, 0] > 2, sides[t, 5] and sides[t, 1] > 2
            a[1].has_levels = b[1].has_levels = False
            # The second part of a side is the bin of missing values.
            s, w = &sums[offsets[t]], &weights[offsets[t]]
            _cut_side(&a[0], s, w, sides[t, 0], sides[t, 1], stride, 1, n_blocks, priors[t], scratch)
            _cut_side(&b[0], s, w, sides[t, 1], sides[t, 0], 1, stride, n_blocks, priors[t], scratch)
            _cut_side(&a[1], s, w, 1, 1, stride, 1, 0, priors[t], scratch)
            _cut_side(&b[1], s, w, 1, 1, stride, 1, 0, priors[t], scratch)
            at_a[0], at_a[1] = 0, sides[t, 0]
            at_b[0], at_b[1] = 0, sides[t, 1]
            for row in range(2):
                for column in range(2):
                    if (row == 0 or sides[t, 2]) and (column == 0 or sides[t, 3]):
                        _average(
                            &sums[offsets[t]] + at_a[row] * stride + at_b[column],
                            &weights[offsets[t]] + at_a[row] * stride + at_b[column],
                            stride, &a[row], &b[column], priors[t], cut_share, plane_share,
                            &out[offsets[t]] + at_a[row] * stride + at_b[column], totals, scratch,
                        )
            evidence_out[t], pieces_out[t] = totals[0], totals[1]
            priors_out[t] = totals[2] / totals[3] if totals[3] > 0.0 else priors[t]
        free(scratch)
        free(nodes)
