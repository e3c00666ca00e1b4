"""Binning, compiled: cutting sorted columns into bins, and finding the bin of a number.

The half-open rule: a number x has the code k if edges[k - 1] < x <= edges[k]; that is, its code is the
number of edges below it. NaN has the code one past the ordered bins.
"""

import numpy as np

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define DIGIT_BITS 11
    #define N_DIGITS (1 << DIGIT_BITS)
    #define DIGIT(key, place) (((key) >> (DIGIT_BITS * (place))) & (N_DIGITS - 1))

    /* Radix sort of n numbers, the last digit first. Keys are in the same order as their numbers: the bits with the
       sign flipped for a positive number, all bits flipped for a negative one. -0 becomes 0, and the key of NaN is all
       ones. Works in two arrays of n keys; counts has room for N_DIGITS per place. */
    #define DEFINE_SORT(name, real, word, signed_word, n_places)                                                     \
        static void name(real *values, Py_ssize_t n, void *one, void *other, uint32_t *counts) {                    \
            const int last_bit = 8 * sizeof(word) - 1;                                                               \
            const word sign = (word)1 << last_bit;                                                                   \
            word *from = (word *)one, *to = (word *)other, *swapped, key;                                            \
            memset(counts, 0, sizeof(uint32_t) * N_DIGITS * n_places);                                               \
            for (Py_ssize_t i = 0; i < n; i++) {                                                                     \
                real x = values[i] + (real)0;                                                                        \
                memcpy(&key, &x, sizeof key);                                                                        \
                key ^= (word)((signed_word)key >> last_bit) | sign;                                                  \
                from[i] = key = x == x ? key : (word)-1;                                                             \
                for (int place = 0; place < n_places; place++)                                                       \
                    counts[N_DIGITS * place + DIGIT(key, place)]++;                                                  \
            }                                                                                                        \
            for (int place = 0; place < n_places; place++) {                                                         \
                uint32_t *next = counts + N_DIGITS * place, sum = 0;                                                 \
                if (n == 0 || next[DIGIT(from[0], place)] == (uint32_t)n)                                            \
                    continue; /* all have the same digit */                                                          \
                for (int digit = 0; digit < N_DIGITS; digit++) {                                                     \
                    uint32_t count = next[digit];                                                                    \
                    next[digit] = sum;                                                                               \
                    sum += count;                                                                                    \
                }                                                                                                    \
                for (Py_ssize_t i = 0; i < n; i++)                                                                   \
                    to[next[DIGIT(from[i], place)]++] = from[i];                                                     \
                swapped = from, from = to, to = swapped;                                                             \
            }                                                                                                        \
            for (Py_ssize_t i = 0; i < n; i++) {                                                                     \
                key = from[i] ^ (from[i] & sign ? sign : (word)-1);                                                  \
                memcpy(&values[i], &key, sizeof key);                                                                \
            }                                                                                                        \
        }

    DEFINE_SORT(sort_floats, float, uint32_t, int32_t, 3)
    DEFINE_SORT(sort_doubles, double, uint64_t, int64_t, 6)
    """
    int N_DIGITS
    void sort_floats(float *values, Py_ssize_t n, void *one, void *other, uint32_t *counts) noexcept nogil
    void sort_doubles(double *values, Py_ssize_t n, void *one, void *other, uint32_t *counts) noexcept nogil

ctypedef fused real_t:
    float
    double

ctypedef fused code_t:
    uint8_t
    uint16_t

# rbr._sizes has it too; rbr._backend checks that they agree.
MAX_CODE = (1 << (8 * sizeof(uint16_t))) - 1

cdef enum:
    TILE_FEATURES = 64        # encoded together: their look-up tables (6 kB at 255 bins) share a cache
    TILE_EDGES = 65536
    BLOCK_ROWS = 128
    MIN_ROWS_FOR_CELLS = 512  # for fewer rows the cells cost more than they save
    CELLS_PER_EDGE = 8
    MAX_CELLS = 16384
    TILE_ROWS = 64            # of a transposition: as many pages of a row-major table are in use at a time
    TILE_COLUMNS = 16         # a cache line of float32


def transpose(
    const real_t[:, :] values,      # IN  (n_rows, n_features), any strides
    const int64_t[::1] rows,        # IN  (n,): the rows that are wanted, or (0,) for all
    real_t[:, ::1] out,             # OUT (n_features, n), the rows first <= j < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[j, i] = values[rows[i], j], in tiles: a row of a wide table is pages away from the next."""
    cdef Py_ssize_t n_rows = out.shape[1], i0 = 0, j0, i, j, row
    cdef bint is_all = rows.shape[0] == 0
    with nogil:
        while i0 < n_rows:
            j0 = first
            while j0 < last:
                for i in range(i0, min(i0 + TILE_ROWS, n_rows)):
                    row = i if is_all else rows[i]
                    for j in range(j0, min(j0 + TILE_COLUMNS, last)):
                        out[j, i] = values[row, j]
                j0 += TILE_COLUMNS
            i0 += TILE_ROWS


def sort_rows(
    real_t[:, ::1] values,          # IN/OUT (n_features, n_values), the rows first <= j < last; below 2^32 values
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Sort each row: -0 counts as 0, and NaNs come last."""
    cdef Py_ssize_t n_values = values.shape[1], j
    cdef uint64_t[:, ::1] keys = np.empty((2, n_values), dtype=np.uint64)
    cdef uint32_t[::1] counts = np.empty(6 * N_DIGITS, dtype=np.uint32)
    if n_values == 0:
        return
    with nogil:
        for j in range(first, last):
            if real_t is float:
                sort_floats(&values[j, 0], n_values, &keys[0, 0], &keys[1, 0], &counts[0])
            else:
                sort_doubles(&values[j, 0], n_values, &keys[0, 0], &keys[1, 0], &counts[0])


def cut_regular(
    const real_t[:, ::1] values,    # IN  (n_features, n_values), each row ascending, NaN last
    const double[:, ::1] weights,   # IN  (n_features, n_values) above 0, or (n_features, 0): all are 1
    const int64_t[::1] max_bins,    # IN  (n_features,)
    double[:, ::1] edges,           # OUT (n_features, >= n_bins - 1), the rows first <= j < last
    double[:, ::1] positions,       # OUT (n_features, >= n_bins), likewise: mean of the values in each bin
    int64_t[::1] n_bins,            # OUT (n_features,), likewise
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Bins of equal weight, with heavy values in bins of their own: see the twin in rbr.reference."""
    cdef Py_ssize_t n_values = values.shape[1], j, n_distinct
    cdef double[::1] distinct = np.empty(n_values)
    cdef double[::1] weight = np.empty(n_values)
    cdef uint8_t[::1] heavy = np.empty(n_values, dtype=np.uint8)
    cdef int64_t[::1] starts = np.empty(n_values + 1, dtype=np.int64)
    cdef double[::1] bin_weight = np.empty(n_values + 1)
    with nogil:
        for j in range(first, last):
            n_distinct = _distinct(values, weights, j, distinct, weight)
            n_bins[j] = _start_regular(weight, n_distinct, max_bins[j], heavy, starts, bin_weight)
            _describe(distinct, weight, n_distinct, starts, n_bins[j], edges[j], positions[j])


def cut_binomial(
    const real_t[:, ::1] values,    # IN  (n_features, n_values), each row ascending, NaN last
    const double[:, ::1] weights,   # IN  (n_features, n_values) above 0, or (n_features, 0): all are 1
    const double[:, ::1] cuts,      # IN  (n_features, max_bins - 1), ascending: cumulated weights to cut at
    double[:, ::1] edges,           # OUT (n_features, >= n_bins - 1), the rows first <= j < last
    double[:, ::1] positions,       # OUT (n_features, >= n_bins), likewise: mean of the values in each bin
    int64_t[::1] n_bins,            # OUT (n_features,), likewise
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Bins that end at the given cumulated weights: see the twin in rbr.reference."""
    cdef Py_ssize_t n_values = values.shape[1], n_cuts = cuts.shape[1], j, i, k, n_distinct
    cdef double before
    cdef double[::1] distinct = np.empty(n_values)
    cdef double[::1] weight = np.empty(n_values)
    cdef int64_t[::1] starts = np.empty(n_values + 1, dtype=np.int64)
    cdef bint new
    with nogil:
        for j in range(first, last):
            n_distinct = _distinct(values, weights, j, distinct, weight)
            n_bins[j] = 0
            before, k = 0.0, 0
            for i in range(n_distinct):
                new = i == 0
                while k < n_cuts and cuts[j, k] <= before + 0.5 * weight[i]:
                    new = True
                    k += 1
                if new:
                    starts[n_bins[j]] = i
                    n_bins[j] += 1
                before += weight[i]
            n_bins[j] = max(n_bins[j], 1)
            _describe(distinct, weight, n_distinct, starts, n_bins[j], edges[j], positions[j])


cdef Py_ssize_t _distinct(
    const real_t[:, ::1] values,
    const double[:, ::1] weights,
    Py_ssize_t j,
    double[::1] distinct,           # OUT
    double[::1] weight,             # OUT
) noexcept nogil:
    """The distinct finite values of row j with their summed weights; returns how many there are."""
    cdef Py_ssize_t i = 0, k, n = 0, n_values = values.shape[1]
    cdef double x, last = 0.0
    while i < n_values and values[j, i] == -INFINITY:
        i += 1
    if weights.shape[1] > 0:
        while i < n_values and values[j, i] < INFINITY:
            x = values[j, i]
            if n == 0 or x != last:
                distinct[n] = last = x
                weight[n] = 0.0
                n += 1
            weight[n - 1] += weights[j, i]
            i += 1
        return n
    # Where each value begins: the difference to the next beginning is how often the value occurs.
    while i < n_values and values[j, i] < INFINITY:
        x = values[j, i]
        if n == 0 or x != last:
            distinct[n] = last = x
            weight[n] = i
            n += 1
        i += 1
    for k in range(n - 1):
        weight[k] = weight[k + 1] - weight[k]
    if n > 0:
        weight[n - 1] = i - weight[n - 1]
    return n


cdef bint _all_once(const double[::1] weight, Py_ssize_t n) noexcept nogil:
    """Whether each of the values weighs 1."""
    cdef Py_ssize_t i
    cdef bint all_once = True
    for i in range(n):
        all_once &= weight[i] == 1.0
    return all_once


cdef Py_ssize_t _start_of_share(Py_ssize_t k, Py_ssize_t n, Py_ssize_t n_shares) noexcept nogil:
    """The first of n values of weight 1 whose mid-rank is in share k, by the quotient that defines the shares."""
    cdef Py_ssize_t i = k * n // n_shares
    while i > 0 and <Py_ssize_t> ((i - 0.5) * n_shares / n) >= k:
        i -= 1
    while i < n and <Py_ssize_t> ((i + 0.5) * n_shares / n) < k:
        i += 1
    return i


cdef Py_ssize_t _start_regular(
    const double[::1] weight,
    Py_ssize_t n_distinct,
    Py_ssize_t max_bins,
    uint8_t[::1] heavy,             # SCRATCH
    int64_t[::1] starts,            # OUT index of the first distinct value of each bin
    double[::1] bin_weight,         # SCRATCH
) noexcept nogil:
    """Where the regular bins start; returns how many there are."""
    cdef Py_ssize_t i, k, last_k, share = 0, lightest, found, n_bins, light_bins = max_bins
    cdef double light_weight, limit, before, middle, surely_before = 0.0
    if n_distinct <= max_bins:
        for i in range(n_distinct):
            starts[i] = i
        return max(n_distinct, 1)
    if _all_once(weight, n_distinct):
        for k in range(max_bins):
            starts[k] = _start_of_share(k, n_distinct, max_bins)
        return max_bins

    # 1. Heavy values: heavier than an equal share of the remaining bins. The share shrinks as they are removed.
    for i in range(n_distinct):
        heavy[i] = 0
    light_weight = _light_weight(weight, heavy, n_distinct)
    while light_bins > 1:
        limit = light_weight / light_bins
        found = 0
        for i in range(n_distinct):
            if not heavy[i] and weight[i] > limit:
                heavy[i] = 1
                found += 1
        if found == 0:
            break
        light_bins = max(light_bins - found, 1)
        light_weight = _light_weight(weight, heavy, n_distinct)

    # 2. The rest is cut by its own mid-ranks; a bin ends at a heavy value.
    n_bins, last_k, before = 0, -1, 0.0
    for i in range(n_distinct):
        if heavy[i]:
            k = -1
        else:
            # A division per value would be slow: below this bound the share is certainly that of the last value.
            middle = (before + 0.5 * weight[i]) * light_bins
            if middle >= surely_before:
                share = min(<Py_ssize_t> (middle / light_weight), light_bins - 1)
                surely_before = (share + 1) * light_weight * (1.0 - 1e-12)
            k = share
            before += weight[i]
        if heavy[i] or k != last_k:
            starts[n_bins] = i
            bin_weight[n_bins] = 0.0
            n_bins += 1
        bin_weight[n_bins - 1] += weight[i]
        last_k = k

    # 3. Heavy values may have split too many bins: join the lightest neighbours, ties to the leftmost.
    while n_bins > max_bins:
        lightest = 0
        for k in range(1, n_bins - 1):
            if bin_weight[k] + bin_weight[k + 1] < bin_weight[lightest] + bin_weight[lightest + 1]:
                lightest = k
        bin_weight[lightest] += bin_weight[lightest + 1]
        n_bins -= 1
        for k in range(lightest + 1, n_bins):
            bin_weight[k] = bin_weight[k + 1]
            starts[k] = starts[k + 1]
    return n_bins


cdef double _light_weight(const double[::1] weight, const uint8_t[::1] heavy, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0.0
    for i in range(n):
        if not heavy[i]:
            total += weight[i]
    return total


cdef void _describe(
    const double[::1] distinct,
    const double[::1] weight,
    Py_ssize_t n_distinct,
    const int64_t[::1] starts,
    Py_ssize_t n_bins,
    double[::1] edges,              # OUT
    double[::1] positions,          # OUT
) noexcept nogil:
    """The edges between the bins, and the mean in each bin."""
    cdef Py_ssize_t i, k, start, stop
    cdef double total, mean, share
    if n_distinct == 0:
        positions[0] = 0.0
        return
    for k in range(n_bins):
        start = starts[k]
        stop = starts[k + 1] if k + 1 < n_bins else n_distinct
        if k > 0:
            edges[k - 1] = _between(distinct[start - 1], distinct[start])
        total = 0.0
        for i in range(start, stop):
            total += weight[i]
        # Shares times values cannot overflow, up to the last bit. Rounding must not move the mean out of the bin.
        mean, share = 0.0, 1.0 / total
        if share < INFINITY:
            for i in range(start, stop):
                mean += weight[i] * share * distinct[i]
        else:
            for i in range(start, stop):
                mean += weight[i] / total * distinct[i]
        positions[k] = min(max(mean, distinct[start]), distinct[stop - 1])


cdef inline double _between(double left, double right) noexcept nogil:
    """A number m with left <= m < right, halfway up to rounding, without overflow."""
    cdef double middle = left + right
    if -INFINITY < middle < INFINITY:
        middle = 0.5 * middle
    else:
        middle = 0.5 * left + 0.5 * right
    return middle if middle < right else left


cdef struct Search:
    # The edges below a number are those in the cells before its own, counted in advance, and some in its own cell.
    double low                    # the first edge
    int64_t key                   # bits of the distance from `low` at which cell 0 ends, minus one cell
    int shift                     # a cell holds 2 ** shift neighbouring numbers
    int64_t last_cell
    const uint16_t* below         # below[c]: number of edges in the cells before c
    const double* edges           # padded with +inf, so that a search by halving stays inside
    Py_ssize_t half               # the first step of that search; 0 if there is nothing to search
    Py_ssize_t nan_code


def encode(
    const real_t[:, :] values,      # IN  (n_rows, n_features), any strides
    const double[::1] edges,        # IN  the edges of all features, ascending within each
    const int64_t[::1] edge_offsets,  # IN  (n_features + 1,) where each feature's edges lie in `edges`
    code_t[:, ::1] codes,           # OUT (n_features, n_rows), the columns first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """codes[j, i] = number of edges of feature j below values[i, j]; for NaN one more than it has edges.

    A binary search halves the edges eight times for 255 bins. Cells save most of that. The cell of x is taken
    from the bits of x - low: the bits of positive doubles are in the order of the doubles, so the cell is
    monotone in x, even with rounding. Edges in earlier cells are below x, edges in later cells are not, and its
    own cell usually holds one or two. Cells with equal numbers of doubles are narrow near the first edge and
    wide in a long tail, as quantiles are. Nothing branches on the data, so the processor works on many numbers
    at once.
    """
    cdef Py_ssize_t n_features = values.shape[1], most_edges = 0, t, b, j0, j1, j, i0, n
    if first >= last or n_features == 0:
        return
    for j in range(n_features):
        most_edges = max(most_edges, edge_offsets[j + 1] - edge_offsets[j])
    cdef Py_ssize_t max_cells = min(<Py_ssize_t> MAX_CELLS, CELLS_PER_EDGE * most_edges + 2)
    if last - first < MIN_ROWS_FOR_CELLS:
        max_cells = 1
    cdef Py_ssize_t tile = min(<Py_ssize_t> TILE_FEATURES, TILE_EDGES // (most_edges + 1))
    tile = max(1, min(tile, n_features))
    # Tiles of equal width, rather than a narrow one at the end.
    cdef Py_ssize_t n_tiles = (n_features + tile - 1) // tile
    tile = (n_features + n_tiles - 1) // n_tiles
    cdef uint16_t[:, ::1] below = np.empty((tile, max_cells), dtype=np.uint16)
    cdef double[:, ::1] padded = np.empty((tile, 3 * most_edges + 2))
    cdef uint8_t[:, ::1] memory = np.empty((tile, sizeof(Search)), dtype=np.uint8)
    cdef Search* searches = <Search*> &memory[0, 0]
    # A row-major table is read once: a block of its rows stays in the cache while the features take turns.
    cdef Py_ssize_t n_block = BLOCK_ROWS if values.strides[1] < values.strides[0] else last - first
    cdef Py_ssize_t n_blocks = (last - first + n_block - 1) // n_block
    with nogil:
        for t in range(n_tiles):
            j0, j1 = t * tile, min((t + 1) * tile, n_features)
            for j in range(j0, j1):
                _prepare(
                    edges, edge_offsets[j], edge_offsets[j + 1] - edge_offsets[j], max_cells,
                    &searches[j - j0], &below[j - j0, 0], &padded[j - j0, 0],
                )
            for b in range(n_blocks):
                i0 = first + b * n_block
                n = min(n_block, last - i0)
                for j in range(j0, j1):
                    _encode_run(&values[i0, j], values.strides[0], n, &searches[j - j0], &codes[j, i0])


cdef inline int64_t _bits(double x) noexcept nogil:
    cdef int64_t bits
    memcpy(&bits, &x, sizeof(double))
    return bits


cdef inline Py_ssize_t _cell(double x, double low, int64_t key, int shift, int64_t last_cell) noexcept nogil:
    cdef double distance = x - low
    distance = distance if distance > 0.0 else 0.0  # NaN too
    cdef int64_t cell = (_bits(distance) - key) >> shift
    cell = cell if cell > 0 else 0
    return cell if cell < last_cell else last_cell


cdef void _prepare(
    const double[::1] edges,
    Py_ssize_t start,
    Py_ssize_t n_edges,
    Py_ssize_t max_cells,
    Search* search,                 # OUT
    uint16_t* below,                # OUT (max_cells,)
    double* padded,                 # OUT (3 * n_edges + 2,)
) noexcept nogil:
    cdef Py_ssize_t k, c, in_cell, n_below = 0, most = 0, half = 0
    cdef int64_t nearest = 0, farthest = 0
    search.low = edges[start] if n_edges > 0 else 0.0
    search.shift = 0
    if n_edges > 1:
        nearest = _bits(edges[start + 1] - search.low)
        farthest = _bits(edges[start + n_edges - 1] - search.low)
    while ((farthest - nearest) >> search.shift) + 2 > max_cells and search.shift < 62:
        search.shift += 1
    # At least this, so that the bits of an infinite distance minus the key do not overflow.
    search.key = max(nearest - ((<int64_t> 1) << search.shift), 1 - ((<int64_t> 1) << 52))
    search.last_cell = min(max_cells - 1, ((farthest - nearest) >> search.shift) + 1)
    for c in range(search.last_cell + 1):
        below[c] = 0
    for k in range(n_edges):
        below[_cell(edges[start + k], search.low, search.key, search.shift, search.last_cell)] += 1
        padded[k] = edges[start + k]
    for c in range(search.last_cell + 1):
        in_cell = below[c]
        most = max(most, in_cell)
        below[c] = <uint16_t> n_below
        n_below += in_cell
    # The smallest power of two with 2 * half - 1 >= most.
    while 2 * half < most + 1 and most > 0:
        half = max(2 * half, 1)
    for k in range(n_edges, n_edges + 2 * half):
        padded[k] = INFINITY
    search.below = below
    search.edges = padded
    search.half = half
    search.nan_code = n_edges + 1


cdef void _encode_run(
    const real_t* source,
    Py_ssize_t stride,              # in bytes
    Py_ssize_t n,
    const Search* search,
    code_t* codes,                  # OUT (n,)
) noexcept nogil:
    # Copies of the fields: codes are bytes, so the compiler must assume that writing them changes the fields.
    cdef double low = search.low, x
    cdef int64_t key = search.key, last_cell = search.last_cell
    cdef int shift = search.shift
    cdef const uint16_t* below = search.below
    cdef const double* edges = search.edges
    cdef Py_ssize_t top = search.half, nan_code = search.nan_code, half, code, i
    cdef const char* place = <const char*> source
    if top == 1:
        for i in range(n):
            x = (<const real_t*> place)[0]
            place += stride
            code = below[_cell(x, low, key, shift, last_cell)]
            code += edges[code] < x
            codes[i] = <code_t> (code if x == x else nan_code)
    elif top == 2:
        for i in range(n):
            x = (<const real_t*> place)[0]
            place += stride
            code = below[_cell(x, low, key, shift, last_cell)]
            code += 2 * (edges[code + 1] < x)
            code += edges[code] < x
            codes[i] = <code_t> (code if x == x else nan_code)
    else:
        for i in range(n):
            x = (<const real_t*> place)[0]
            place += stride
            code = below[_cell(x, low, key, shift, last_cell)]
            half = top
            while half > 0:
                code += half * (edges[code + half - 1] < x)
                half >>= 1
            codes[i] = <code_t> (code if x == x else nan_code)
