"""The kernel of averages over all ways to halve a grid into rectangles."""

from libc.math cimport fabs
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

cdef extern from "grids.h":
    enum:
        S_
        W_
        MOMENTS
        TOLD
    ctypedef struct wide_number:
        double mantissa
        double power
    void add_moments(
        long n, long stride, const double *left, const double *right, double shift, double *out
    ) noexcept nogil
    void add_bins(long stride, const double *left, const double *right, double shift, double *out) noexcept nogil
    void whole_rectangles(
        long n, long stride, const double *moments, double rises_x, const double *rises_y, double first_x,
        const double *first_y, double prior, double plane_share, double twist_share, double *mantissa, double *power,
        double *told,
    ) noexcept nogil
    wide_number times(wide_number a, wide_number b) noexcept nogil
    wide_number normal(wide_number a) noexcept nogil
    double with_power(wide_number a, double power) noexcept nogil
    double log_of(wide_number a) noexcept nogil
    void tell_row(
        long n, long stride, const double *p, const double *whole, const double *weights, const double *told,
        double *plane, double *counts,
    ) noexcept nogil
    void leave_to_parts(
        long n, long stride, const double *p, const double *halved, const double *plane, double *reached_left,
        double *reached_right, double *plane_left, double *plane_right,
    ) noexcept nogil

# A side of fewer bins has no slope.
cdef enum:
    LEAST_PLANE = 3
    # Numbers of scratch per rectangle: moments, evidence, what it says, its plane, and probabilities.
    PER_RECTANGLE = MOMENTS + 2 + TOLD + 4 + 4
    # And per node of a side: whether planes rise along it, its first bin, the probabilities of all levels, and counts.
    PER_NODE = 7
# Another place than the middle must explain more by this part of what the bins could: less is a rounding error.
cdef double LEAST_GAIN = 1e-10

# A rectangle that is less likely than this adds nothing to the average.
cdef double NEVER = 1e-17

# The parts of a side: node 0 is the whole side, and the parts of a node come after it.
cdef struct Halves:
    Py_ssize_t n
    bint has_levels     # whether the whole side may also be cut into all its bins at once
    int64_t *first      # the first bin of each node, and one past the last
    int64_t *last
    int64_t *left       # the nodes of its parts, -1 for a single bin
    int64_t *right


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


cdef void _cut(Halves *side, const Blocks *blocks, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t node = 0, first, last, middle, m
    cdef double both, most
    side.n, side.first[0], side.last[0] = 1, 0, n
    while node < side.n:
        first, last = side.first[node], side.last[node]
        side.left[node] = side.right[node] = -1
        if last - first > 1:
            middle = (first + last) // 2
            if blocks.n:
                most = _explained(blocks, first, middle) + _explained(blocks, middle, last)
                for m in range(first + 1, last):
                    both = _explained(blocks, first, m) + _explained(blocks, m, last)
                    if both > most + blocks.least:
                        middle, most = m, both
            side.left[node], side.right[node] = side.n, side.n + 1
            side.first[side.n], side.last[side.n] = first, middle
            side.first[side.n + 1], side.last[side.n + 1] = middle, last
            side.n += 2
        node += 1


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
    _cut(side, &blocks, n)


# The rectangles of a grid, by node of the first side and of the second; `moments`, `told` and `plane` by number, too.
cdef struct Rectangles:
    Py_ssize_t n
    double *moments
    double *mantissa   # of the evidence
    double *power
    double *told       # what each adds if it is left whole
    double *plane      # what is left to the parts of its parents
    double *reached    # probability of being a part
    double *whole      # probabilities of being left whole, and of being halved along a and b
    double *by_a
    double *by_b
    double *levels_a   # and of being cut into all bins of a, or of b, at once
    double *levels_b
    double *rises      # whether planes may rise along b, by node
    double *firsts     # the first bin of each node of b
    double *counts     # rectangles, unknowns and their squares, by node of b


cdef Rectangles _rectangles(Py_ssize_t n_a, Py_ssize_t n_b, double *scratch) noexcept nogil:
    cdef Rectangles at
    at.n = n_a * n_b
    at.moments = scratch
    at.mantissa = at.moments + MOMENTS * at.n
    at.power = at.mantissa + at.n
    at.told = at.power + at.n
    at.plane = at.told + TOLD * at.n
    at.reached = at.plane + 4 * at.n
    at.whole = at.reached + at.n
    at.by_a = at.whole + at.n
    at.by_b = at.by_a + at.n
    at.levels_b = at.by_b + at.n
    at.levels_a = at.levels_b + n_a
    at.rises = at.levels_a + n_b
    at.firsts = at.rises + n_b
    at.counts = at.firsts + n_b
    return at


cdef void _sum_cells(
    const double *sums, const double *weights, Py_ssize_t stride, const Halves *a, const Halves *b, Py_ssize_t i,
    Rectangles *at,
) noexcept nogil:
    """The moments of row i of the rectangles, which is a single bin of a."""
    cdef:
        Py_ssize_t j, q, cell
        double *row = at.moments + i * b.n
    for j in range(b.n - 1, -1, -1):
        if b.left[j] < 0:
            cell = a.first[i] * stride + b.first[j]
            for q in range(MOMENTS):
                row[q * at.n + j] = 0.0
            row[S_ * at.n + j], row[W_ * at.n + j] = sums[cell], weights[cell]
        else:
            add_bins(at.n, row + b.left[j], row + b.right[j], b.first[b.right[j]] - b.first[j], row + j)


cdef wide_number _evidence(const Rectangles *at, Py_ssize_t k) noexcept nogil:
    cdef wide_number found
    found.mantissa, found.power = at.mantissa[k], at.power[k]
    return found


cdef wide_number _of_levels(const Rectangles *at, const Halves *side, Py_ssize_t k, Py_ssize_t step) noexcept nogil:
    """The evidence of all single bins of a side together; that of node t is at k + t * step."""
    cdef:
        Py_ssize_t t
        wide_number total
    total.mantissa, total.power = 1.0, 0.0
    for t in range(side.n):
        if side.left[t] < 0:
            total = normal(times(total, _evidence(at, k + t * step)))
    return total


cdef void _reach_levels(const Halves *side, double *reached, Py_ssize_t step, double p) noexcept nogil:
    cdef Py_ssize_t t
    for t in range(side.n):
        if side.left[t] < 0:
            reached[t * step] += p


cdef void _weigh(
    Rectangles *at, const Halves *a, const Halves *b, Py_ssize_t i, Py_ssize_t j, double cut_share
) noexcept nogil:
    """The evidence of rectangle (i, j) from that of its parts, and the probabilities of its ways to be cut."""
    cdef:
        Py_ssize_t k = i * b.n + j
        bint in_a = a.left[i] >= 0, in_b = b.left[j] >= 0, all_a = i == 0 and a.has_levels, all_b = j == 0 and b.has_levels
        wide_number whole = _evidence(at, k), by_a, by_b, of_a, of_b, total
        double share, power
    whole = normal(whole)
    at.whole[k], at.by_a[k], at.by_b[k] = 1.0, 0.0, 0.0
    if not at.moments[W_ * at.n + k] > 0.0 or not (in_a or in_b):
        at.mantissa[k], at.power[k] = whole.mantissa, whole.power
        return
    share = cut_share / (in_a + in_b + all_a + all_b)
    whole.mantissa *= 1.0 - cut_share
    by_a.mantissa = by_b.mantissa = of_a.mantissa = of_b.mantissa = 0.0
    by_a.power = by_b.power = of_a.power = of_b.power = power = whole.power
    if in_a:
        by_a = times(_evidence(at, a.left[i] * b.n + j), _evidence(at, a.right[i] * b.n + j))
        power = max(power, by_a.power)
    if in_b:
        by_b = times(_evidence(at, i * b.n + b.left[j]), _evidence(at, i * b.n + b.right[j]))
        power = max(power, by_b.power)
    if all_a:
        of_a = _of_levels(at, a, j, b.n)
        power = max(power, of_a.power)
    if all_b:
        of_b = _of_levels(at, b, i * b.n, 1)
        power = max(power, of_b.power)
    at.whole[k] = with_power(whole, power)
    at.by_a[k], at.by_b[k] = share * with_power(by_a, power), share * with_power(by_b, power)
    of_a.mantissa, of_b.mantissa = share * with_power(of_a, power), share * with_power(of_b, power)
    total.mantissa = at.whole[k] + at.by_a[k] + at.by_b[k] + of_a.mantissa + of_b.mantissa
    total.power = power
    share = 1.0 / total.mantissa
    at.whole[k] *= share
    at.by_a[k] *= share
    at.by_b[k] *= share
    if all_a:
        at.levels_a[j] = of_a.mantissa * share
    if all_b:
        at.levels_b[i] = of_b.mantissa * share
    total = normal(total)
    at.mantissa[k], at.power[k] = total.mantissa, total.power


cdef void _reach(Rectangles *at, const Halves *a, const Halves *b, Py_ssize_t i) noexcept nogil:
    """The probabilities with which row i is halved along b; those of next to nothing are nothing."""
    cdef:
        Py_ssize_t j
        double *p = at.reached + i * b.n
        const double *halved = at.by_b + i * b.n
    for j in range(b.n):
        if not p[j] > NEVER:
            p[j] = 0.0
            continue
        if j == 0 and at.levels_b[i] > 0.0:
            _reach_levels(b, p, 1, p[0] * at.levels_b[i])
        if b.left[j] >= 0:
            p[b.left[j]] += p[j] * halved[j]
            p[b.right[j]] += p[j] * halved[j]
        if i == 0 and at.levels_a[j] > 0.0:
            _reach_levels(a, at.reached + j, b.n, p[j] * at.levels_a[j])


cdef void _tell_cells(
    Rectangles *at, const Halves *a, const Halves *b, Py_ssize_t i, Py_ssize_t stride, double *out
) noexcept nogil:
    """The mean of the cells of row i of the rectangles, which is a single bin of a."""
    cdef:
        Py_ssize_t j, q
        double *v
    for j in range(b.n):
        v = at.plane + i * b.n + j
        if b.left[j] < 0:
            out[a.first[i] * stride + b.first[j]] = v[0] + v[at.n] * a.first[i] + (v[2 * at.n] + v[3 * at.n] * a.first[i]) * b.first[j]
            continue
        for q in range(4):
            v[q * at.n + b.left[j] - j] += v[q * at.n]
            v[q * at.n + b.right[j] - j] += v[q * at.n]


cdef void _average(
    const double *sums, const double *weights, Py_ssize_t stride, Halves *a, Halves *b, double prior, double cut_share,
    double plane_share, double twist_share, double *out, double *totals, double *scratch,
) noexcept nogil:
    """Adds the log evidence, the numbers of rectangles and unknowns, and the squares of the unknowns to totals."""
    cdef:
        Py_ssize_t i, j, row, left, right
        Rectangles at = _rectangles(a.n, b.n, scratch)
        bint rises_x
    for j in range(b.n):
        at.firsts[j] = b.first[j]
        at.rises[j] = plane_share + twist_share > 0.0 and b.last[j] - b.first[j] >= LEAST_PLANE
        at.levels_a[j] = 0.0
    for i in range(3 * b.n):
        at.counts[i] = 0.0
    for i in range(a.n):
        at.levels_b[i] = 0.0
    for i in range(4 * at.n):
        at.plane[i] = 0.0
    for i in range(at.n):
        at.reached[i] = 0.0
    for i in range(a.n - 1, -1, -1):
        row, left, right = i * b.n, a.left[i] * b.n, a.right[i] * b.n
        if a.left[i] < 0:
            _sum_cells(sums, weights, stride, a, b, i, &at)
        else:
            add_moments(
                b.n, at.n, at.moments + left, at.moments + right, a.first[a.right[i]] - a.first[i], at.moments + row
            )
        rises_x = plane_share + twist_share > 0.0 and a.last[i] - a.first[i] >= LEAST_PLANE
        whole_rectangles(
            b.n, at.n, at.moments + row, rises_x, at.rises, a.first[i], at.firsts, prior, plane_share, twist_share,
            at.mantissa + row, at.power + row, at.told + row,
        )
        for j in range(b.n - 1, -1, -1):
            _weigh(&at, a, b, i, j, cut_share)
    totals[0] += log_of(_evidence(&at, 0))
    at.reached[0] = 1.0
    for i in range(a.n):
        row, left, right = i * b.n, a.left[i] * b.n, a.right[i] * b.n
        _reach(&at, a, b, i)
        tell_row(
            b.n, at.n, at.reached + row, at.whole + row, at.moments + W_ * at.n + row, at.told + row,
            at.plane + row, at.counts,
        )
        if a.left[i] < 0:
            _tell_cells(&at, a, b, i, stride, out)
        else:
            leave_to_parts(
                b.n, at.n, at.reached + row, at.by_a + row, at.plane + row, at.reached + left, at.reached + right,
                at.plane + left, at.plane + right,
            )
    for i in range(3):
        for j in range(b.n):
            totals[1 + i] += at.counts[i * b.n + j]


def average_grids(
    const int64_t[::1] offsets,      # IN  (n_grids + 1,): where the cells of each grid begin, row by row
    const int64_t[:, ::1] sides,     # IN  (n_grids, 6): bins along both sides, whether each has a missing one, or levels
    const double[::1] sums,          # IN  (offsets[-1],): of weight times value, by cell
    const double[::1] weights,       # IN  (offsets[-1],): precisions of the values, at least 0
    const double[::1] priors,        # IN  (n_grids,): the precision of the prior of a rectangle's value, positive
    double cut_share,                # IN  the prior probability that a rectangle is halved
    double plane_share,              # IN  the prior share of planes among rectangles that are left whole
    double twist_share,              # IN  that of twisted planes
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
        scratch = <double *> malloc((PER_RECTANGLE * 4 * most_a * most_b + PER_NODE * n_nodes) * sizeof(double))
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
                            stride, &a[row], &b[column], priors[t], cut_share, plane_share, twist_share,
                            &out[offsets[t]] + at_a[row] * stride + at_b[column], totals, scratch,
                        )
            evidence_out[t], pieces_out[t] = totals[0], totals[1]
            priors_out[t] = totals[2] / totals[3] if totals[3] > 0.0 else priors[t]
        free(scratch)
        free(nodes)
