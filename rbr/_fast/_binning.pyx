"""Binning, compiled: sorting columns and cutting them into bins; `_encoding` finds the bin of a number."""

import numpy as np

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define DIGIT_BITS 11
    #define N_DIGITS (1 << DIGIT_BITS)
    #define DIGIT(key, bit) (((key) >> (bit)) & (N_DIGITS - 1))
    #define N_PLACES 3

    /* Sorts n numbers by their keys, which are in the same order: the bits with the sign flipped for a positive number,
       all bits flipped for a negative one. -0 becomes 0, and the key of NaN is all ones. A radix sort, the last digit
       first, by the first N_PLACES digits in which keys differ brings nearly all into their places, and insertion the
       others; where these are many, all digits are sorted by. Works in two arrays of n keys; counts has room for
       N_DIGITS per place. */
    #define DEFINE_SORT(name, real, word, signed_word)                                                               \
        static word *by_digits_##name(                                                                               \
            word *from, word *to, Py_ssize_t n, int first_bit, int n_places, uint32_t *counts                        \
        ) {                                                                                                          \
            word *swapped;                                                                                           \
            memset(counts, 0, sizeof(uint32_t) * N_DIGITS * n_places);                                               \
            for (Py_ssize_t i = 0; i < n; i++)                                                                       \
                for (int place = 0; place < n_places; place++)                                                       \
                    counts[N_DIGITS * place + DIGIT(from[i], first_bit + DIGIT_BITS * place)]++;                     \
            for (int place = 0; place < n_places; place++) {                                                         \
                const int bit = first_bit + DIGIT_BITS * place;                                                      \
                uint32_t *next = counts + N_DIGITS * place, sum = 0;                                                 \
                if (next[DIGIT(from[0], bit)] == (uint32_t)n)                                                        \
                    continue; /* all have the same digit */                                                          \
                for (int digit = 0; digit < N_DIGITS; digit++) {                                                     \
                    uint32_t count = next[digit];                                                                    \
                    next[digit] = sum;                                                                               \
                    sum += count;                                                                                    \
                }                                                                                                    \
                for (Py_ssize_t i = 0; i < n; i++)                                                                   \
                    to[next[DIGIT(from[i], bit)]++] = from[i];                                                       \
                swapped = from, from = to, to = swapped;                                                             \
            }                                                                                                        \
            return from;                                                                                             \
        }                                                                                                            \
                                                                                                                     \
        /* Whether insertion has sorted the keys, in no more moves than there are keys. */                           \
        static int by_insertion_##name(word *keys, Py_ssize_t n) {                                                   \
            Py_ssize_t left = n, i, k;                                                                               \
            for (i = 1; i < n && left > 0; i++) {                                                                    \
                const word key = keys[i];                                                                            \
                for (k = i; k > 0 && keys[k - 1] > key; k--, left--)                                                 \
                    keys[k] = keys[k - 1];                                                                           \
                keys[k] = key;                                                                                       \
            }                                                                                                        \
            return left > 0;                                                                                         \
        }                                                                                                            \
                                                                                                                     \
        static void name(real *values, Py_ssize_t n, void *one, void *other, uint32_t *counts) {                     \
            const int last_bit = 8 * sizeof(word) - 1;                                                               \
            const word sign = (word)1 << last_bit;                                                                   \
            word *from = (word *)one, *to = (word *)other, *sorted, key, differing = 0;                              \
            int n_bits = 0, first_bit;                                                                               \
            for (Py_ssize_t i = 0; i < n; i++) {                                                                     \
                real x = values[i] + (real)0;                                                                        \
                memcpy(&key, &x, sizeof key);                                                                        \
                key ^= (word)((signed_word)key >> last_bit) | sign;                                                  \
                from[i] = key = x == x ? key : (word)-1;                                                             \
                differing |= key ^ from[0];                                                                          \
            }                                                                                                        \
            while (n_bits <= last_bit && differing >> n_bits)                                                        \
                n_bits++;                                                                                            \
            first_bit = n_bits > DIGIT_BITS * N_PLACES ? n_bits - DIGIT_BITS * N_PLACES : 0;                         \
            sorted = by_digits_##name(from, to, n, first_bit, N_PLACES, counts);                                     \
            if (first_bit > 0 && !by_insertion_##name(sorted, n))                                                    \
                sorted = by_digits_##name(                                                                           \
                    sorted, sorted == from ? to : from, n, 0, (n_bits + DIGIT_BITS - 1) / DIGIT_BITS, counts         \
                );                                                                                                   \
            for (Py_ssize_t i = 0; i < n; i++) {                                                                     \
                key = sorted[i] ^ (sorted[i] & sign ? sign : (word)-1);                                              \
                memcpy(&values[i], &key, sizeof key);                                                                \
            }                                                                                                        \
        }

    DEFINE_SORT(sort_floats, float, uint32_t, int32_t)
    DEFINE_SORT(sort_doubles, double, uint64_t, int64_t)
    """
    int N_DIGITS
    void sort_floats(float *values, Py_ssize_t n, void *one, void *other, uint32_t *counts) noexcept nogil
    void sort_doubles(double *values, Py_ssize_t n, void *one, void *other, uint32_t *counts) noexcept nogil

cdef extern from "wide.h":
    void FETCH(const void *place) noexcept nogil

ctypedef fused real_t:
    float
    double

cdef enum:
    FEW_ROWS = 16             # with this many in a bin on average, sums go bin by bin
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
                    if not is_all and i + TILE_ROWS < n_rows:
                        FETCH(&values[rows[i + TILE_ROWS], j0])
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
    cdef double total
    cdef double[::1] distinct = np.empty(n_values)
    cdef double[::1] weight = np.empty(n_values)
    cdef uint8_t[::1] heavy = np.empty(n_values, dtype=np.uint8)
    cdef int64_t[::1] starts = np.empty(n_values + 1, dtype=np.int64)
    cdef double[::1] bin_weight = np.empty(n_values + 1)
    with nogil:
        for j in range(first, last):
            n_distinct = _distinct(values, weights, j, distinct, weight)
            total = -1.0 if weights.shape[1] > 0 else _n_finite(values, j)
            n_bins[j] = _start_regular(weight, total, n_distinct, max_bins[j], heavy, starts, bin_weight)
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
    cdef Py_ssize_t i = 0, start, n = 0, n_values = values.shape[1]
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
    # From the beginning of a value to that of the next is how often it occurs.
    start = i
    while i < n_values and values[j, i] < INFINITY:
        x = values[j, i]
        if n == 0 or x != last:
            if n > 0:
                weight[n - 1] = i - start
            distinct[n], start = x, i
            last = x
            n += 1
        i += 1
    if n > 0:
        weight[n - 1] = i - start
    return n


cdef Py_ssize_t _n_finite(const real_t[:, ::1] values, Py_ssize_t j) noexcept nogil:
    """The finite numbers of row j, whose numbers ascend, NaN last."""
    cdef Py_ssize_t first = 0, last = values.shape[1]
    while first < last and values[j, first] == -INFINITY:
        first += 1
    while last > first and not values[j, last - 1] < INFINITY:
        last -= 1
    return last - first


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
    double total,                   # the sum of the weights, where it is known to the bit; below 0 where it is not
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

    for i in range(n_distinct):
        heavy[i] = 0
    light_weight = total if total >= 0.0 else _light_weight(weight, heavy, n_distinct)
    if _n_above(weight, n_distinct, light_weight / light_bins) == 0:
        return _start_at_shares(weight, light_weight, n_distinct, light_bins, starts)

    # 1. Heavy values: heavier than an equal share of the remaining bins. The share shrinks as they are removed.
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


cdef Py_ssize_t _n_above(const double[::1] weight, Py_ssize_t n, double limit) noexcept nogil:
    cdef Py_ssize_t i, n_above = 0
    for i in range(n):
        n_above += weight[i] > limit
    return n_above


cdef Py_ssize_t _start_at_shares(
    const double[::1] weight,
    double total,
    Py_ssize_t n_distinct,
    Py_ssize_t n_shares,
    int64_t[::1] starts,            # OUT
) noexcept nogil:
    """Step 2 where no value is heavy, so that a bin is a share; returns how many there are."""
    cdef Py_ssize_t i, k, last_k = -1, n_bins = 0
    cdef double before = 0.0, middle, surely_before = 0.0
    for i in range(n_distinct):
        middle = (before + 0.5 * weight[i]) * n_shares
        if middle >= surely_before:
            k = min(<Py_ssize_t> (middle / total), n_shares - 1)
            surely_before = (k + 1) * total * (1.0 - 1e-12)
            if k != last_k:
                starts[n_bins] = i
                n_bins += 1
                last_k = k
        before += weight[i]
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
    for k in range(1, n_bins):
        edges[k - 1] = _between(distinct[starts[k] - 1], distinct[starts[k]])
    k = 0
    while k < n_bins:
        if k + 4 < n_bins and starts[k + 4] - starts[k] > 4 * FEW_ROWS:
            _describe_four(distinct, weight, &starts[k], &positions[k])
            k += 4
            continue
        start = starts[k]
        stop = starts[k + 1] if k + 1 < n_bins else n_distinct
        total, mean = 0.0, 0.0
        for i in range(start, stop):
            total += weight[i]
        # Shares times values cannot overflow, up to the last bit. Rounding must not move the mean out of the bin.
        share = 1.0 / total
        if share < INFINITY:
            for i in range(start, stop):
                mean += weight[i] * share * distinct[i]
        else:
            for i in range(start, stop):
                mean += weight[i] / total * distinct[i]
        positions[k] = min(max(mean, distinct[start]), distinct[stop - 1])
        k += 1


cdef void _describe_four(
    const double[::1] distinct, const double[::1] weight, const int64_t* starts, double* positions
) noexcept nogil:
    """The means in four bins at a time: the sums of a bin are chains of additions that wait for one another."""
    cdef Py_ssize_t i, k, shortest = starts[1] - starts[0]
    cdef double[4] total
    cdef double[4] share
    cdef double[4] mean
    for k in range(4):
        shortest = min(shortest, starts[k + 1] - starts[k])
        total[k] = mean[k] = 0.0
    for i in range(shortest):
        for k in range(4):
            total[k] += weight[starts[k] + i]
    for k in range(4):
        for i in range(starts[k] + shortest, starts[k + 1]):
            total[k] += weight[i]
        share[k] = 1.0 / total[k]
    for i in range(shortest):
        for k in range(4):
            mean[k] += weight[starts[k] + i] * share[k] * distinct[starts[k] + i]
    for k in range(4):
        for i in range(starts[k] + shortest, starts[k + 1]):
            mean[k] += weight[i] * share[k] * distinct[i]
        if share[k] == INFINITY:
            mean[k] = 0.0
            for i in range(starts[k], starts[k + 1]):
                mean[k] += weight[i] / total[k] * distinct[i]
        positions[k] = min(max(mean[k], distinct[starts[k]]), distinct[starts[k + 1] - 1])


cdef inline double _between(double left, double right) noexcept nogil:
    """A number m with left <= m < right, halfway up to rounding, without overflow."""
    cdef double middle = left + right
    if -INFINITY < middle < INFINITY:
        middle = 0.5 * middle
    else:
        middle = 0.5 * left + 0.5 * right
    return middle if middle < right else left
