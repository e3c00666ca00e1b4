"""P_zm and P_L, and the priced form of P_L: compiled twins of `center_tables` and `prox_tables`.

All searches minimise a cost, half the squared distance plus a price, rather than maximise a gain: distances
are sums of squares, so they lose no digits, and an exact fit costs exactly zero. A start s that may still
begin the last piece carries running sums of that piece (Welford's updates), which are moved along as the end
e moves right; nothing is a difference of prefix sums.

The rest of the names follow `rbr.reference.projections`: `unit` is price * log b.
"""

from libc.math cimport INFINITY, cos, fabs, log, sqrt
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

# The loops over starts, several at a time. Seven vectors are too many for a compiler to compare for overlap at run
# time; it must be told there is none.
cdef extern from *:
    """
    #include "wide.h"

    typedef double *CYTHON_RESTRICT rbr_vector;

    /* One more bin for the constant pieces in the first n slots. */
    ON_WIDE_REGISTERS
    static void extend_constants(
        Py_ssize_t n, double u, double w, rbr_vector weight, rbr_vector mean, rbr_vector cost
    ) {
        for (Py_ssize_t j = 0; j < n; j++) {
            double share = w / (weight[j] + w), du = u - mean[j];
            mean[j] += share * du;
            cost[j] += 0.5 * (share * weight[j]) * (du * du);
            weight[j] += w;
        }
    }

    /* One more bin for the lines in the first n slots: recursive least squares around the means. mean_x stays exactly x
       until a second position comes, so spread > 0 counts positions; it is no threshold. */
    ON_WIDE_REGISTERS
    static void extend_lines(
        Py_ssize_t n, double u, double w, double x, rbr_vector weight, rbr_vector mean_u, rbr_vector mean_x,
        rbr_vector spread, rbr_vector slope, rbr_vector around_mean, rbr_vector around_line
    ) {
        /* Makes spread / wider 1 while there is one position, and 0 at the second, without a branch in the loop. */
        const double tiny = 1e-300;
        for (Py_ssize_t j = 0; j < n; j++) {
            double share = w / (weight[j] + w), f = share * weight[j];
            double du = u - mean_u[j], dx = x - mean_x[j], miss = du - slope[j] * dx;
            double wider = spread[j] + f * (dx * dx), narrower = 1.0 / (wider + tiny);
            around_mean[j] += f * (du * du);
            around_line[j] += f * (miss * miss) * ((spread[j] + tiny) * narrower);
            slope[j] += f * dx * miss * narrower;
            spread[j] = wider;
            mean_u[j] += share * du;
            mean_x[j] += share * dx;
            weight[j] += w;
        }
    }

    /* cost = before + the cost of the last piece as a line, or as the better of line and constant. */
    ON_WIDE_REGISTERS
    static void costs_of_lines(Py_ssize_t n, double line, rbr_vector before, rbr_vector around_line, rbr_vector cost) {
        for (Py_ssize_t j = 0; j < n; j++)
            cost[j] = before[j] + (0.5 * around_line[j] + line);
    }

    ON_WIDE_REGISTERS
    static void costs_of_either(
        Py_ssize_t n, double constant, double line, rbr_vector before, rbr_vector around_mean, rbr_vector around_line,
        rbr_vector cost
    ) {
        for (Py_ssize_t j = 0; j < n; j++) {
            double a = 0.5 * around_mean[j] + constant, b = 0.5 * around_line[j] + line;
            cost[j] = before[j] + (b < a ? b : a);
        }
    }

    #define LANES 8

    /* Whether no start costs more than the bound, even if its piece were as good as a line and free. */
    ON_WIDE_REGISTERS
    static int none_is_beaten(Py_ssize_t n, double bound, rbr_vector before, rbr_vector around_line) {
        Py_ssize_t n_beaten = 0;
        for (Py_ssize_t j = 0; j < n; j++)
            n_beaten += before[j] + 0.5 * around_line[j] > bound;
        return n_beaten == 0;
    }

    /* The first of the least of n costs, n > 0, none of them NaN. */
    ON_WIDE_REGISTERS
    static Py_ssize_t leftmost_least(const double *cost, Py_ssize_t n) {
        double lanes[LANES], least = cost[0];
        Py_ssize_t j = 0;
        if (n >= LANES) {
            for (int lane = 0; lane < LANES; lane++)
                lanes[lane] = cost[lane];
            for (j = LANES; j + LANES <= n; j += LANES)
                for (int lane = 0; lane < LANES; lane++)
                    lanes[lane] = cost[j + lane] < lanes[lane] ? cost[j + lane] : lanes[lane];
            for (int lane = 0; lane < LANES; lane++)
                least = lanes[lane] < least ? lanes[lane] : least;
        }
        for (; j < n; j++)
            least = cost[j] < least ? cost[j] : least;
        for (j = 0; cost[j] != least; j++)
            ;
        return j;
    }
    """
    ctypedef double *vector "rbr_vector"
    void _extend_constants "extend_constants"(
        Py_ssize_t n, double u, double w, vector weight, vector mean, vector cost
    ) noexcept nogil
    void _extend_lines "extend_lines"(
        Py_ssize_t n, double u, double w, double x, vector weight, vector mean_u, vector mean_x,
        vector spread, vector slope, vector around_mean, vector around_line
    ) noexcept nogil
    void costs_of_lines(Py_ssize_t n, double line, vector before, vector around_line, vector cost) noexcept nogil
    void costs_of_either(
        Py_ssize_t n, double constant, double line, vector before, vector around_mean, vector around_line, vector cost
    ) noexcept nogil
    bint none_is_beaten(Py_ssize_t n, double bound, vector before, vector around_line) noexcept nogil
    Py_ssize_t _leftmost_least "leftmost_least"(const double *cost, Py_ssize_t n) noexcept nogil

# The order of rbr.reference.projections.SHAPES.
cdef enum Shape:
    CONSTANT, LINEAR, MIXED, INCREASING, DECREASING, LEVELS, FREQUENCY, FREE

cdef int32_t NO_PIECE = -1

cdef enum:
    UNPRUNED_UP_TO = 64     # below, pruning costs more than it saves
    KEEP_COSTS_UP_TO = 512  # beyond, the costs of all pieces are too many to keep

cdef double PI = 3.141592653589793


cdef struct Pieces:
    # The search's view of a table: its bins of positive weight, or its isotonic blocks, or its sorted values.
    Py_ssize_t n
    double *u
    double *w
    double *x
    bint ascending          # u does not decrease: the search may use it
    double unit             # price of one unit of piece code
    double constant_code    # 0 where constant pieces are not allowed
    double line_code        # 0 where lines are not allowed
    const double *count_codes     # code of k pieces at [k - 1], or NULL
    double count_price            # of one unit of it


cdef struct Scratch:
    # One allocation of doubles and one of ints, cut into vectors; two more grow when a search needs them.
    double *doubles
    int32_t *ints
    # the bins of positive weight
    double *u
    double *w
    double *x
    int32_t *live
    int32_t *order
    int32_t *spare
    # blocks of an isotonic fit
    double *block_u
    double *block_w
    int32_t *block_start
    # running sums of the last piece, one entry per start that is alive
    int32_t *start
    double *before          # cost of what lies left of the start
    double *weight
    double *mean_u
    double *mean_x
    double *spread          # sum of w (x - mean_x)^2
    double *slope
    double *around_mean     # sum of w (u - mean_u)^2
    double *around_line
    double *cost            # of everything up to the end, this start taken
    # prefix sums of w and w u with the errors of their rounding; they share memory with the sums for lines
    double *weight_sum
    double *weight_rest
    double *moment_sum
    double *moment_rest
    # costs and splits by end
    double *best
    double *best_before
    int32_t *split
    int32_t *cut            # the starts of the chosen pieces
    # values of the last piece, cut into intervals by the start that owns them: a list to read, one to write
    Py_ssize_t interval_capacity
    double *low[2]
    double *high[2]
    int32_t *owner[2]
    int32_t *last_seen
    int32_t *renamed
    # the heap of the greedy search
    double *heap_loss
    int32_t *heap_left
    int32_t *heap_stamp
    int32_t *next_start
    int32_t *previous_start
    int32_t *stamp
    int32_t *removed_at
    # DCT
    double *cosines
    Py_ssize_t cosines_for
    # growing
    int32_t *splits
    Py_ssize_t splits_capacity
    double *by_count
    Py_ssize_t by_count_capacity
    int64_t n_compared      # starts compared so far, over all ends


cdef int _allocate(Scratch *s, Py_ssize_t n) noexcept nogil:
    """Vectors for tables of up to n bins; -1 if there is no memory."""
    cdef Py_ssize_t n_doubles = 0, n_ints = 0, m = n + 2, i
    cdef Py_ssize_t n_intervals = 4 * m + 16
    s.splits = NULL
    s.by_count = NULL
    s.splits_capacity = 0
    s.by_count_capacity = 0
    s.cosines_for = 0
    s.n_compared = 0
    s.interval_capacity = n_intervals
    s.doubles = <double *> malloc((16 * m + 4 * m + 4 * m + 4 * n_intervals) * sizeof(double))
    s.ints = <int32_t *> malloc((13 * m + 3 * m + 3 * m + 2 * n_intervals) * sizeof(int32_t))
    if s.doubles == NULL or s.ints == NULL:
        return -1
    cdef double **double_vectors[16]
    double_vectors[0] = &s.u
    double_vectors[1] = &s.w
    double_vectors[2] = &s.x
    double_vectors[3] = &s.block_u
    double_vectors[4] = &s.block_w
    double_vectors[5] = &s.before
    double_vectors[6] = &s.weight
    double_vectors[7] = &s.mean_u
    double_vectors[8] = &s.mean_x
    double_vectors[9] = &s.spread
    double_vectors[10] = &s.slope
    double_vectors[11] = &s.around_mean
    double_vectors[12] = &s.around_line
    double_vectors[13] = &s.cost
    double_vectors[14] = &s.best
    double_vectors[15] = &s.best_before
    for i in range(16):
        double_vectors[i][0] = s.doubles + n_doubles
        n_doubles += m
    s.weight_sum = s.mean_x
    s.weight_rest = s.spread
    s.moment_sum = s.slope
    s.moment_rest = s.around_mean
    # Every merge makes at most two new pairs.
    s.heap_loss = s.doubles + n_doubles
    n_doubles += 4 * m
    s.cosines = s.doubles + n_doubles
    n_doubles += 4 * m
    for i in range(2):
        s.low[i] = s.doubles + n_doubles
        s.high[i] = s.doubles + n_doubles + n_intervals
        n_doubles += 2 * n_intervals
    cdef int32_t **int_vectors[13]
    int_vectors[0] = &s.live
    int_vectors[1] = &s.order
    int_vectors[2] = &s.spare
    int_vectors[3] = &s.block_start
    int_vectors[4] = &s.start
    int_vectors[5] = &s.split
    int_vectors[6] = &s.cut
    int_vectors[7] = &s.last_seen
    int_vectors[8] = &s.next_start
    int_vectors[9] = &s.previous_start
    int_vectors[10] = &s.stamp
    int_vectors[11] = &s.removed_at
    int_vectors[12] = &s.renamed
    for i in range(13):
        int_vectors[i][0] = s.ints + n_ints
        n_ints += m
    s.heap_left = s.ints + n_ints
    n_ints += 3 * m
    s.heap_stamp = s.ints + n_ints
    n_ints += 3 * m
    for i in range(2):
        s.owner[i] = s.ints + n_ints
        n_ints += n_intervals
    return 0


cdef void _release(Scratch *s) noexcept nogil:
    free(s.doubles)
    free(s.ints)
    free(s.splits)
    free(s.by_count)


cdef int _need_splits(Scratch *s, Py_ssize_t size) noexcept nogil:
    cdef int32_t *grown
    if size <= s.splits_capacity:
        return 0
    if size < 2 * s.splits_capacity:
        size = 2 * s.splits_capacity
    grown = <int32_t *> realloc(s.splits, size * sizeof(int32_t))
    if grown == NULL:
        return -1
    s.splits = grown
    s.splits_capacity = size
    return 0


cdef int _need_by_count(Scratch *s, Py_ssize_t size) noexcept nogil:
    cdef double *grown
    if size <= s.by_count_capacity:
        return 0
    grown = <double *> realloc(s.by_count, size * sizeof(double))
    if grown == NULL:
        return -1
    s.by_count = grown
    s.by_count_capacity = size
    return 0


# ---------------------------------------------------------------- running sums


cdef inline void _begin(
    Scratch *s, Py_ssize_t slot, Py_ssize_t start, double before, double u, double x
) noexcept nogil:
    """A start takes a slot before its first bin (u, x) is added; means begin there: exact for ties."""
    s.start[slot] = <int32_t> start
    s.before[slot] = before
    s.cost[slot] = before
    s.weight[slot] = 0.0
    s.mean_u[slot] = u
    s.mean_x[slot] = x
    s.spread[slot] = 0.0
    s.slope[slot] = 0.0
    s.around_mean[slot] = 0.0
    s.around_line[slot] = 0.0


cdef void _line_costs(
    Py_ssize_t n, Pieces *p, vector before, vector around_mean, vector around_line, vector cost
) noexcept nogil:
    """cost = before + the cost of the last piece, as a line or as the better of the two."""
    cdef double constant = p.unit * p.constant_code, line = p.unit * p.line_code
    if p.constant_code == 0.0:
        costs_of_lines(n, line, before, around_line, cost)
    else:
        costs_of_either(n, constant, line, before, around_mean, around_line, cost)


cdef inline double _piece_cost(Pieces *p, double around_mean, double around_line) noexcept nogil:
    cdef double constant = 0.5 * around_mean + p.unit * p.constant_code
    cdef double line = 0.5 * around_line + p.unit * p.line_code
    if p.line_code == 0.0:
        return constant
    if p.constant_code == 0.0:
        return line
    return line if line < constant else constant


cdef inline double _mean(const double *u, const double *w, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0.0, moment = 0.0
    for i in range(first, last):
        total += w[i]
        moment += w[i] * (u[i] - u[first])
    return u[first] + moment / total


# ---------------------------------------------------------------- exact searches


cdef Py_ssize_t _follow(const int32_t *split, Py_ssize_t n, int32_t *cut) noexcept nogil:
    """The starts of the pieces, left to right, from the start of the last piece by its end."""
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
    """The same where there is a row of n + 1 splits for every number of pieces."""
    cdef Py_ssize_t k, e = n
    for k in range(n_pieces, 0, -1):
        e = splits[(k - 1) * (n + 1) + e]
        cut[k - 1] = <int32_t> e


cdef Py_ssize_t _search_priced_lines(Pieces *p, Scratch *s) noexcept nogil:
    """Optimal partitioning with inequality pruning (PELT, Killick et al. 2012).

    Distances around lines only grow by joining: D(s, T) >= D(s, e) + D(e, T). So once best[s] + D(s, e) / 2
    exceeds best[e], a piece that starts at e beats one that starts at s for ever, whichever kind it is.
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
                    s.start[kept] = s.start[j]
                    s.before[kept] = s.before[j]
                    s.weight[kept] = s.weight[j]
                    s.mean_u[kept] = s.mean_u[j]
                    s.mean_x[kept] = s.mean_x[j]
                    s.spread[kept] = s.spread[j]
                    s.slope[kept] = s.slope[j]
                    s.around_mean[kept] = s.around_mean[j]
                    s.around_line[kept] = s.around_line[j]
                kept += 1
        n_alive = kept
    return _follow(s.split, p.n, s.cut)


cdef inline Py_ssize_t _own(
    double low, double high, Py_ssize_t slot, double *lows, double *highs, int32_t *owners, Py_ssize_t n
) noexcept nogil:
    """Append an interval to a list of n, or widen the last one; returns the new n."""
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
    """Close the gaps that starts without an interval leave; returns the number of slots."""
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


cdef void _search_constants(
    Pieces *p, Py_ssize_t first_start, bint priced, double *before, double *best, int32_t *split, Scratch *s
) noexcept nogil:
    """best[e] = min over first_start <= s < e of before[s] + unit + D(s, e) / 2, with functional pruning.

    priced : before is best itself (optimal partitioning, FPOP: Maidstone et al. 2017); else it is the row of
        one piece less (pDPA: Rigaill 2015)

    As a function of the value m of the last piece, the start s costs cost_s + weight_s (m - mean_s)^2 / 2.
    Two such functions keep their difference when a bin is added, so what a start has lost to another it has
    lost for ever. We hold the range of u cut into intervals, each with the start that is cheapest there. A
    new start e comes in with the constant before[e] + unit and takes the m where the owner is dearer; starts
    that own nothing go. If u ascends, the mean of a growing piece does too: what lies below an owner's mean
    need not be owned.
    """
    cdef Py_ssize_t n = p.n, e, i, least, slot, n_slots, n_intervals, n_written, n_seen
    cdef int side = 0
    cdef bint prune = n - first_start > UNPRUNED_UP_TO
    cdef double entry, low, high, keep_low, keep_high, room, mean, half_weight, radius, slack
    cdef double *lows
    cdef double *highs
    cdef int32_t *owners

    low = p.u[first_start]
    high = p.u[first_start]
    for i in range(first_start, n):
        if p.u[i] < low:
            low = p.u[i]
        if p.u[i] > high:
            high = p.u[i]
    if low == high:
        high = low + 1.0
    slack = 1e-9 * (fabs(low) + fabs(high))     # far above the rounding of a mean

    _begin(s, 0, first_start, before[first_start] + p.unit, p.u[first_start], 0.0)
    n_slots = 1
    n_intervals = _own(low, high, 0, s.low[0], s.high[0], s.owner[0], 0)
    for e in range(first_start + 1, n + 1):
        _extend_constants(n_slots, p.u[e - 1], p.w[e - 1], s.weight, s.mean_u, s.cost)
        s.n_compared += n_slots
        least = _leftmost_least(s.cost, n_slots)
        best[e] = s.cost[least]
        split[e] = s.start[least]
        if e == n:
            break
        entry = (best[e] if priced else before[e]) + p.unit
        if 3 * n_intervals > s.interval_capacity:
            # Only rounding makes an envelope of parabolas so long; the rest is right without pruning too.
            prune = False
        if not prune:
            _begin(s, n_slots, e, entry, p.u[e], 0.0)
            n_slots += 1
            continue

        lows = s.low[1 - side]
        highs = s.high[1 - side]
        owners = s.owner[1 - side]
        n_written = 0
        n_seen = 0
        s.last_seen[n_slots] = 0
        for i in range(n_intervals):
            slot = s.owner[side][i]
            low = s.low[side][i]
            high = s.high[side][i]
            mean = s.mean_u[slot]
            if p.ascending and low < mean - slack:
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
        side = 1 - side
        n_intervals = n_written
        if s.last_seen[n_slots] == e:
            _begin(s, n_slots, e, entry, p.u[e], 0.0)
            n_slots += 1
            n_seen += 1
        if 4 * n_seen + 8 < 3 * n_slots:
            n_slots = _forget_unseen(s, n_slots, e, owners, n_intervals)


cdef inline double _count_price(Pieces *p, Py_ssize_t k) noexcept nogil:
    return 0.0 if p.count_codes == NULL else p.count_price * p.count_codes[k - 1]


cdef double _least_price_beyond(Pieces *p, Py_ssize_t k, Py_ssize_t limit) noexcept nogil:
    """What more than k pieces cost at least, even if they fit perfectly."""
    cdef Py_ssize_t more
    cdef double least
    if p.count_codes == NULL:
        return (k + 1) * p.unit * (p.constant_code if p.constant_code > 0.0 else p.line_code)
    least = INFINITY
    for more in range(k + 1, limit + 1):
        if _count_price(p, more) < least:
            least = _count_price(p, more)
    return least


cdef inline bint _plain_is_cheaper(
    Py_ssize_t n, Py_ssize_t n_passes, Py_ssize_t limit, int64_t n_compared
) noexcept nogil:
    """Whether n_passes more passes that compare that many starts each cost more than the plain search.

    The factors are nanoseconds, measured. A smooth table without noise leaves little to prune: there nearly
    every start is the best for some value of the last piece.
    """
    cdef double pruned = 10.0 * n_compared * n_passes
    cdef double plain = 0.5 * n * n * (2.0 + 2.5 * ((limit + 6) // 8))
    return pruned > plain


cdef void _costs_leftwards(Pieces *p, Py_ssize_t end, double *cost) noexcept nogil:
    """cost[start] of the piece start..end-1 for every start, its bins added from the right."""
    cdef Py_ssize_t start
    cdef double weight = 0.0, mean_u = p.u[end - 1], mean_x = p.x[end - 1], spread = 0.0, slope = 0.0
    cdef double around_mean = 0.0, around_line = 0.0
    for start in range(end - 1, -1, -1):
        _extend_lines(1, p.u[start], p.w[start], p.x[start], &weight, &mean_u, &mean_x, &spread, &slope,
                      &around_mean, &around_line)
        cost[start] = _piece_cost(p, around_mean, around_line)


cdef Py_ssize_t _join(
    const double *before, Py_ssize_t stride, const double *piece, Py_ssize_t first_start, Py_ssize_t end,
    double *least_cost
) noexcept nogil:
    """The leftmost start that minimises before[start * stride] + piece[start], and that least cost."""
    cdef Py_ssize_t start, least = first_start
    cdef double total
    least_cost[0] = INFINITY
    for start in range(first_start, end):
        total = before[start * stride] + piece[start]
        if total < least_cost[0]:
            least_cost[0] = total
            least = start
    return least


cdef Py_ssize_t _search_two(Pieces *p, Scratch *s) noexcept nogil:
    """The best of one and two pieces: for every place of the jump a piece from the left and one from the right."""
    cdef Py_ssize_t e, start
    cdef double weight = 0.0, mean_u = p.u[0], mean_x = p.x[0], spread = 0.0, slope = 0.0
    cdef double around_mean = 0.0, around_line = 0.0, least
    for e in range(1, p.n + 1):
        _extend_lines(1, p.u[e - 1], p.w[e - 1], p.x[e - 1], &weight, &mean_u, &mean_x, &spread, &slope,
                      &around_mean, &around_line)
        s.best[e] = _piece_cost(p, around_mean, around_line)
    _costs_leftwards(p, p.n, s.cost)
    start = _join(s.best, 1, s.cost, 1, p.n, &least)
    s.cut[0] = 0
    s.cut[1] = <int32_t> start
    # What is added keeps the traces of `tiny` in perfect fits apart from a gain.
    return 2 if least + _count_price(p, 2) + 1e-280 < s.best[p.n] + _count_price(p, 1) else 1


cdef Py_ssize_t _search_by_count_pruned(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """The best of 1, 2, ..., limit constant pieces, one pruned pass each; -1 if there is no memory."""
    cdef Py_ssize_t n = p.n, k, e, n_pieces = 1
    cdef int64_t n_compared
    cdef double least
    cdef double *before = s.best_before
    cdef double *best = s.best
    cdef double *swap
    cdef int32_t *split
    if _need_splits(s, 4 * (n + 1)) < 0:
        return -1
    _begin(s, 0, 0, p.unit, p.u[0], 0.0)
    for e in range(1, n + 1):
        _extend_constants(1, p.u[e - 1], p.w[e - 1], s.weight, s.mean_u, s.cost)
        before[e] = s.cost[0]
        s.splits[e] = 0
    least = before[n]
    for k in range(2, limit + 1):
        if least <= _least_price_beyond(p, k - 1, limit):
            break
        if _need_splits(s, k * (n + 1)) < 0:
            return -1
        split = s.splits + (k - 1) * (n + 1)
        if k < limit:
            n_compared = s.n_compared
            _search_constants(p, k - 1, False, before, best, split, s)
            if _plain_is_cheaper(n, limit - k, limit, s.n_compared - n_compared):
                return _search_by_count_plain(p, limit, s)
        else:
            # The last pass is asked for one end only.
            _costs_leftwards(p, n, s.cost)
            split[n] = <int32_t> _join(before, 1, s.cost, k - 1, n, &best[n])
        if best[n] < least:
            least = best[n]
            n_pieces = k
        swap = before
        before = best
        best = swap
    _follow_by_count(s.splits, n, n_pieces, s.cut)
    return n_pieces


cdef inline void _add(double *high, double *low, double x) noexcept nogil:
    """high + low += x, without loss (Knuth's two-sum)."""
    cdef double total = high[0] + x
    cdef double part = total - high[0]
    low[0] += (high[0] - (total - part)) + (x - part)
    high[0] = total


cdef void _search_sorted_ends(
    Scratch *s, Py_ssize_t first_end, Py_ssize_t last_end, Py_ssize_t first_start, Py_ssize_t last_start,
    const double *before, double unit, double *best, int32_t *split
) noexcept nogil:
    """best[e] for first_end <= e < last_end, whose splits lie in first_start..last_start, by halving."""
    cdef Py_ssize_t e, start, least
    cdef double weight, moment, cost, least_cost
    while first_end < last_end:
        e = (first_end + last_end) // 2
        least = first_start
        least_cost = INFINITY
        for start in range(first_start, min(last_start + 1, e)):
            weight = (s.weight_sum[e] - s.weight_sum[start]) + (s.weight_rest[e] - s.weight_rest[start])
            moment = (s.moment_sum[e] - s.moment_sum[start]) + (s.moment_rest[e] - s.moment_rest[start])
            cost = before[start] - 0.5 * (moment * moment / weight)
            if cost < least_cost:
                least_cost = cost
                least = start
        best[e] = least_cost + unit
        split[e] = <int32_t> least
        _search_sorted_ends(s, first_end, e, first_start, least, before, unit, best, split)
        first_end = e + 1
        first_start = least


cdef Py_ssize_t _search_by_count_sorted(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """The best of 1, 2, ..., limit constant pieces of sorted values, O(n log n) each; -1: no memory.

    Between sorted values the cost is Monge, so the best start moves right with the end. This search needs
    pieces in any order, hence prefix sums: with their rounding errors carried along, and around the mean.
    Costs are less by ||u - mean||^2 / 2 than elsewhere until the end is reached.
    """
    cdef Py_ssize_t n = p.n, k, e, n_pieces = 1
    cdef double least, total, center = _mean(p.u, p.w, 0, n), half_square = 0.0
    cdef double *before = s.best_before
    cdef double *best = s.best
    cdef double *swap
    if _need_splits(s, 4 * (n + 1)) < 0:
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
    least = best[n] + half_square + _count_price(p, 1)
    for k in range(2, limit + 1):
        if least <= _least_price_beyond(p, k - 1, limit):
            break
        if _need_splits(s, k * (n + 1)) < 0:
            return -1
        swap = before
        before = best
        best = swap
        _search_sorted_ends(s, k, n + 1, k - 1, n - 1, before, p.unit, best, s.splits + (k - 1) * (n + 1))
        total = best[n] + half_square + _count_price(p, k)
        if total < least:
            least = total
            n_pieces = k
    _follow_by_count(s.splits, n, n_pieces, s.cut)
    return n_pieces


cdef void _extend_by_one_piece(
    Py_ssize_t first_start, Py_ssize_t end, const double *piece, const double *rows, Py_ssize_t stride,
    double *best
) noexcept nogil:
    """best[k] = min over first_start <= s < end of rows[s][k] + piece[s], for eight counts k at once.

    Eight minima that do not wait for one another: no vector instruction is needed to keep the processor busy.
    """
    cdef Py_ssize_t start
    cdef const double *row
    cdef double c, t
    cdef double b0 = INFINITY, b1 = INFINITY, b2 = INFINITY, b3 = INFINITY
    cdef double b4 = INFINITY, b5 = INFINITY, b6 = INFINITY, b7 = INFINITY
    for start in range(first_start, end):
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


cdef Py_ssize_t _search_by_count_plain(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """The best of 1, 2, ..., limit pieces of any kind in one pass over all (start, end); -1: no memory.

    Row e holds the least costs of 1, 2, ... pieces over the bins 0..e-1. Only costs are kept; the starts are
    found again on the way back, from the costs of all pieces while those fit into a cache, or computed anew.
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
        rows[e * stride] = s.cost[0]
        for block in range(n_blocks):
            # k pieces need k bins at least, so shorter starts have nothing to offer.
            k = 8 * block + 1
            _extend_by_one_piece(k, e, s.cost, rows + k - 1, stride, rows + e * stride + k)

    least_cost = rows[n * stride] + _count_price(p, 1)
    for k in range(2, limit + 1):
        total = rows[n * stride + k - 1] + _count_price(p, k)
        # What is added keeps the traces of `tiny` in perfect fits apart from a gain.
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
        e = _join(rows + k - 2, stride, piece, k - 1, e, &least_cost)
        s.cut[k - 1] = <int32_t> e
    s.cut[0] = 0
    return n_pieces


cdef Py_ssize_t _cut_exact_fit(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """Pieces that meet every value: runs of equal values, pairs for lines; 0 if `limit` are not enough."""
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


cdef Py_ssize_t _search_exact(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """Fills s.cut with the starts of the best pieces and returns their number; -1 if there is no memory."""
    cdef Py_ssize_t n_pieces
    if limit == 1:
        s.cut[0] = 0
        return 1
    if p.unit > 0.0:
        if limit == 2:
            return _search_two(p, s)
        if p.line_code > 0.0:
            n_pieces = _search_priced_lines(p, s)
        else:
            s.best[0] = 0.0
            _search_constants(p, 0, True, s.best, s.best, s.split, s)
            n_pieces = _follow(s.split, p.n, s.cut)
        if n_pieces <= limit:
            return n_pieces
    elif p.count_codes == NULL:
        n_pieces = _cut_exact_fit(p, limit, s)
        if n_pieces > 0:
            return n_pieces
    if limit == 2:
        return _search_two(p, s)
    if p.line_code > 0.0 or p.n <= UNPRUNED_UP_TO:
        return _search_by_count_plain(p, limit, s)
    if p.ascending or _is_sorted(p):
        return _search_by_count_sorted(p, limit, s)
    # With noise in it, a table keeps about ten starts per end.
    if _plain_is_cheaper(p.n, limit - 2, limit, 10 * p.n):
        return _search_by_count_plain(p, limit, s)
    return _search_by_count_pruned(p, limit, s)


# ---------------------------------------------------------------- bottom-up merging


cdef struct Fit:
    double weight
    double mean_u
    double mean_x
    double spread
    double slope
    double around_mean
    double around_line


cdef Fit _joined(Scratch *s, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """The fits over two neighbouring pieces from the fits over each: sums of squares only, as ever."""
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


cdef inline bint _precedes(Scratch *s, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Order of the heap: the least loss, ties to the leftmost pair."""
    if s.heap_loss[i] != s.heap_loss[j]:
        return s.heap_loss[i] < s.heap_loss[j]
    return s.heap_left[i] < s.heap_left[j]


cdef inline void _swap(Scratch *s, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    s.heap_loss[i], s.heap_loss[j] = s.heap_loss[j], s.heap_loss[i]
    s.heap_left[i], s.heap_left[j] = s.heap_left[j], s.heap_left[i]
    s.heap_stamp[i], s.heap_stamp[j] = s.heap_stamp[j], s.heap_stamp[i]


cdef Py_ssize_t _push(Scratch *s, Py_ssize_t size, double loss, Py_ssize_t left) noexcept nogil:
    """Put the pair that begins at `left` on the heap; older entries of it are void. Returns the new size."""
    cdef Py_ssize_t i = size
    s.stamp[left] += 1
    s.heap_loss[i] = loss
    s.heap_left[i] = <int32_t> left
    s.heap_stamp[i] = s.stamp[left]
    while i > 0 and _precedes(s, i, (i - 1) // 2):
        _swap(s, i, (i - 1) // 2)
        i = (i - 1) // 2
    return size + 1


cdef Py_ssize_t _pop(Scratch *s, Py_ssize_t size) noexcept nogil:
    """Move the first entry of the heap to its end; returns the new size, which is where the entry now is."""
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


cdef Py_ssize_t _push_pair(Pieces *p, Scratch *s, Py_ssize_t size, Py_ssize_t left) noexcept nogil:
    cdef Py_ssize_t right = s.next_start[left]
    cdef Fit fit = _joined(s, left, right)
    cdef double joined = _piece_cost(p, fit.around_mean, fit.around_line)
    return _push(s, size, joined - s.cost[left] - s.cost[right], left)


cdef Py_ssize_t _search_greedy(Pieces *p, Py_ssize_t limit, Scratch *s) noexcept nogil:
    """Bottom-up merging with a heap whose void entries are skipped when they surface."""
    cdef Py_ssize_t n = p.n, i, left, right, size = 0, n_merges, best_merges = 0, n_pieces
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
    for i in range(n - 1):
        size = _push_pair(p, s, size, i)
    for n_merges in range(n):
        if n - n_merges <= limit:
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


# ---------------------------------------------------------------- shapes


cdef struct Table:
    # One table, its ordered bins first; has_missing says that bin n_ordered exists.
    Py_ssize_t n_ordered
    bint has_missing
    const double *u
    const double *w
    const double *x
    Shape shape
    Py_ssize_t limit
    double price
    const double *level_codes
    bint greedy
    double *out
    int32_t *labels


cdef Py_ssize_t _collect_live(Table *t, Scratch *s) noexcept nogil:
    """The bins of positive weight, positions mapped to 0..1; returns their number."""
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


cdef Py_ssize_t _search(Pieces *p, Table *t, Scratch *s) noexcept nogil:
    cdef Py_ssize_t limit = min(t.limit, p.n)
    if t.greedy:
        return _search_greedy(p, limit, s)
    return _search_exact(p, limit, s)


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
    """increasing, decreasing: pool adjacent violators, then the best cut of the blocks."""
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
    p.n = n_blocks
    p.u = s.block_u
    p.w = s.block_w
    p.x = s.block_u
    p.ascending = True
    p.unit = t.price * log_b
    p.constant_code = 1.0
    p.line_code = 0.0
    p.count_codes = NULL
    n_pieces = _search(&p, t, s)
    if n_pieces < 0:
        return -1
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
    # A constant of mean zero is zero, though rounding may leave a trace of it that looks like a net.
    if is_zero or low == high or not net[0] > 0.0:
        net[0] = 0.0
        code[0] = 0.0
        for i in range(n_bins):
            t.out[i] = 0.0
            t.labels[i] = NO_PIECE
    return 0


# ---------------------------------------------------------------- kernels


def center_tables(
    const double[::1] f,  # IN  (n_coef,)
    const int64_t[::1] offsets,  # IN  (n_features + 1,)
    const double[::1] weights,  # IN  (n_coef,) each table's sum to 1
    double[::1] out,  # OUT (n_coef,) the slices of the tables first <= j < last
    double[::1] squared_norms,  # OUT (n_features,) likewise, after centring
    Py_ssize_t first,
    Py_ssize_t last,
):
    """P_zm of the tables first <= j < last, and their squared w-norms after it."""
    cdef Py_ssize_t j, i
    cdef double mean, total
    with nogil:
        for j in range(first, last):
            mean = 0.0
            for i in range(offsets[j], offsets[j + 1]):
                mean += weights[i] * f[i]
            total = 0.0
            for i in range(offsets[j], offsets[j + 1]):
                out[i] = f[i] - mean
                total += weights[i] * (out[i] * out[i])
            squared_norms[j] = total


def prox_tables(
    const int64_t[::1] tables,  # IN  (n,) the tables to compute; first and last count in this list
    const double[::1] centred,  # IN  (n_coef,) tables of mean zero
    const int64_t[::1] offsets,  # IN  (n_features + 1,)
    const double[::1] weights,  # IN  (n_coef,)
    const double[::1] positions,  # IN  (n_coef,) not decreasing within the ordered bins of a table
    const uint8_t[::1] missing,  # IN  (n_features,) 1 if the last bin is the missing one
    const int8_t[::1] shapes,  # IN  (n_features,) index into SHAPES
    const int64_t[::1] limits,  # IN  (n_features,) s_L,j
    double price,  # IN  mu * lambda * kappa
    const double[::1] level_codes,  # IN  flat, of `levels` tables: log S(b, k) + k - 1, k = 1..min(limit, b)
    const int64_t[::1] level_code_offsets,  # IN  (n_features + 1,)
    bint greedy,  # IN  bottom-up merging instead of the exact search
    double[::1] out,  # OUT (n_coef,) the slices of the given tables
    int32_t[::1] labels,  # OUT (n_coef,) likewise: 2 * piece + is_line
    double[::1] nets,  # OUT (n_features,) likewise: gain / 2 - price * code
    double[::1] codes,  # OUT (n_features,) likewise: code lengths
    Py_ssize_t first,
    Py_ssize_t last,
):
    """P_L, or its priced form, of the listed tables."""
    cdef Py_ssize_t i, j, begin, n_most = 0
    cdef int failed
    cdef Scratch scratch
    cdef Table t
    if first >= last:
        return
    with nogil:
        for i in range(first, last):
            j = tables[i]
            n_most = max(n_most, offsets[j + 1] - offsets[j])
        failed = _allocate(&scratch, n_most)
        for i in range(first, last):
            if failed < 0:
                break
            j = tables[i]
            begin = offsets[j]
            t.has_missing = missing[j] != 0
            t.n_ordered = offsets[j + 1] - begin - t.has_missing
            t.u = &centred[begin]
            t.w = &weights[begin]
            t.x = &positions[begin]
            t.shape = <Shape> shapes[j]
            t.limit = limits[j]
            t.price = price
            t.level_codes = NULL
            if t.shape == LEVELS and t.n_ordered > 0:
                t.level_codes = &level_codes[level_code_offsets[j]]
            t.greedy = greedy
            t.out = &out[begin]
            t.labels = &labels[begin]
            failed = _prox_table(&t, &scratch, &nets[j], &codes[j])
        _release(&scratch)
    if failed < 0:
        raise MemoryError(f"no memory to search a table of up to {n_most} bins")


# ---------------------------------------------------------------- for tests and benches


def cut_constants(
    const double[::1] u, const double[::1] w, Py_ssize_t limit, int32_t[::1] starts, bint prune
):
    """The cut of u into at most `limit` constant pieces by one search or the other, whatever the size.

    Returns the number of pieces, whose starts are in `starts`, and how many starts the pruned search
    compared. Not a kernel: `prox_tables` chooses the search.
    """
    cdef Py_ssize_t i, n = u.shape[0], n_pieces
    cdef Scratch scratch
    cdef Pieces p
    with nogil:
        n_pieces = _allocate(&scratch, n)
        if n_pieces == 0:
            for i in range(n):
                scratch.u[i] = u[i]
                scratch.w[i] = w[i]
            p.n = n
            p.u = scratch.u
            p.w = scratch.w
            p.x = scratch.u
            p.ascending = False
            p.unit = 0.0
            p.constant_code = 1.0
            p.line_code = 0.0
            p.count_codes = NULL
            if prune:
                n_pieces = _search_by_count_pruned(&p, limit, &scratch)
            else:
                n_pieces = _search_by_count_plain(&p, limit, &scratch)
            for i in range(n_pieces):
                starts[i] = scratch.cut[i]
        _release(&scratch)
    if n_pieces < 0:
        raise MemoryError(f"no memory to search a table of {n} bins")
    return n_pieces, scratch.n_compared
