"""The kernels of the binned design: look-ups, sums by bin, cross-tabulation.

A code one past a table's last bin means "no bin". Tables are copied into buffers with one more entry for it,
a zero to read or a sum to drop, so that the loops over rows have no branch.

Four features are processed together. In look-ups they share the load and the store of the row's sum. In sums
by bin they share the load of the row's value, and when row after row hits the same bin, only one of four
updates waits. Codes are loaded eight bytes at a time where that pays. What remains is one access per code.
"""

import numpy as np

from libc.math cimport INFINITY
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

cdef extern from "wide.h":
    void FETCH(const void *place) noexcept nogil

ctypedef fused code_t:
    uint8_t
    uint16_t

include "_columns.pxi"

ctypedef fused real_t:
    float
    double

ctypedef fused sum_t:
    double
    uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static inline uint64_t load_word(const void *codes) {
        uint64_t word;
        memcpy(&word, codes, sizeof word);
        return word;
    }

    /* The k-th code of a word, in the order of memory; `bits` is the width of a code. */
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define SHIFT_OF_CODE(k, bits) (64 - (bits) * ((k) + 1))
    #else
    #define SHIFT_OF_CODE(k, bits) ((bits) * (k))
    #endif
    #define CODE_OF_WORD(word, k, bits) (((word) >> SHIFT_OF_CODE(k, bits)) & ((UINT64_C(1) << (bits)) - 1))
    """
    uint64_t load_word(const void *codes) noexcept nogil
    Py_ssize_t CODE_OF_WORD(uint64_t word, int k, int bits) noexcept nogil

# Sizes that rbr._sizes has too, checked by rbr._backend.
cpdef enum:
    TOGETHER = 4

MAX_CODE = (1 << (8 * sizeof(uint16_t))) - 1

cdef enum:
    # The columns of this many rows of a wide row-major table fit in a core's L1 cache.
    ROWS_PER_PICK = 512
    ROWS_AHEAD = 64
    # The doubles of a block of rows stay in a core's L2 cache while all features use them.
    ROWS_PER_BLOCK = 32768
    # A little more than 256, so that the same code of two features does not map to the same set of the L1 cache.
    BYTE_STRIDE = 264


def matvec(
    const code_t[:, :] codes,        # IN  (n_features, n_rows), each row contiguous; n_bins means no bin
    const int64_t[::1] offsets,      # IN  (n_features + 1,)
    const double[::1] f,             # IN  (n_coef,)
    const int64_t[::1] features,     # IN  (n,): the features to sum over
    double[::1] out,                 # OUT (n_rows,), the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[i] = sum over the listed features j of f[offsets[j] + codes[j, i]], in an order that the list fixes."""
    cdef Py_ssize_t block, start, stop, group, t, s, i, n_together, n_listed = features.shape[0]
    cdef double[:, ::1] tables = np.empty((TOGETHER, _widest(offsets, features) + 1))
    cdef const code_t* columns[TOGETHER]
    with nogil:
        for block in range(_n_parts(last - first, ROWS_PER_BLOCK)):
            start = first + block * ROWS_PER_BLOCK
            stop = min(start + ROWS_PER_BLOCK, last)
            for i in range(start, stop):
                out[i] = 0.0
            for group in range(_n_parts(n_listed, TOGETHER)):
                t = group * TOGETHER
                n_together = min(<Py_ssize_t> TOGETHER, n_listed - t)
                for s in range(n_together):
                    columns[s] = &codes[features[t + s], start]
                    _copy_with_no_bin(f, offsets[features[t + s]], offsets[features[t + s] + 1], tables[s])
                if n_together == TOGETHER:
                    _look_up_together(columns, tables, &out[start], stop - start)
                else:
                    for s in range(n_together):
                        _look_up(columns[s], tables[s], &out[start], stop - start)


cdef void _copy_with_no_bin(
    const double[::1] f, Py_ssize_t table_start, Py_ssize_t table_stop, double[::1] table
) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(table_stop - table_start):
        table[k] = f[table_start + k]
    table[table_stop - table_start] = 0.0


cdef void _look_up(
    const code_t* column, const double[::1] table, double* out, Py_ssize_t n_rows
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n_rows):
        out[i] += table[column[i]]


cdef void _look_up_together(
    const code_t** columns, const double[:, ::1] tables, double* out, Py_ssize_t n_rows
) noexcept nogil:
    """Both loops over rows add in the same order: a row's bits do not depend on where a range begins."""
    cdef const code_t* column_0 = columns[0]
    cdef const code_t* column_1 = columns[1]
    cdef const code_t* column_2 = columns[2]
    cdef const code_t* column_3 = columns[3]
    cdef const double[::1] table_0 = tables[0], table_1 = tables[1], table_2 = tables[2], table_3 = tables[3]
    cdef uint64_t word_0, word_1, word_2, word_3
    cdef Py_ssize_t word, i
    cdef int k, bits = 8 * sizeof(code_t), codes_per_word = 8 // sizeof(code_t)
    for word in range(n_rows // codes_per_word):
        i = word * codes_per_word
        word_0, word_1 = load_word(column_0 + i), load_word(column_1 + i)
        word_2, word_3 = load_word(column_2 + i), load_word(column_3 + i)
        for k in range(codes_per_word):
            out[i + k] += (
                (table_0[CODE_OF_WORD(word_0, k, bits)] + table_1[CODE_OF_WORD(word_1, k, bits)])
                + (table_2[CODE_OF_WORD(word_2, k, bits)] + table_3[CODE_OF_WORD(word_3, k, bits)])
            )
    for i in range(n_rows - n_rows % codes_per_word, n_rows):
        out[i] += (
            (table_0[column_0[i]] + table_1[column_1[i]])
            + (table_2[column_2[i]] + table_3[column_3[i]])
        )


def rmatvec(
    const code_t[:, :] codes,        # IN  (n_features, n_rows), each row contiguous
    const int64_t[::1] offsets,      # IN  (n_features + 1,)
    const int64_t[::1] features,     # IN  (n,): the features to compute, none twice; first, last count in it
    const double[::1] values,        # IN  (n_rows,)
    Py_ssize_t row_start,            # IN  the rows row_start <= i < row_stop are summed
    Py_ssize_t row_stop,
    double[::1] out,                 # IN/OUT (n_coef,), the slices of the features at first <= t < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[offsets[j] + k] += sum of values[i] over the rows with codes[j, i] == k."""
    cdef Py_ssize_t block, start, stop, group, t, s, n_together
    cdef double[:, ::1] sums = np.empty((TOGETHER, _widest(offsets, features[first:last]) + 1))
    cdef const code_t* columns[TOGETHER]
    # A feature's sums have one owner, and do not depend on which features share its group: the same bits for any range.
    with nogil:
        for block in range(_n_parts(row_stop - row_start, ROWS_PER_BLOCK)):
            start = row_start + block * ROWS_PER_BLOCK
            stop = min(start + ROWS_PER_BLOCK, row_stop)
            for group in range(_n_parts(last - first, TOGETHER)):
                t = first + group * TOGETHER
                n_together = min(<Py_ssize_t> TOGETHER, last - t)
                for s in range(n_together):
                    columns[s] = &codes[features[t + s], start]
                    sums[s, :offsets[features[t + s] + 1] - offsets[features[t + s]] + 1] = 0.0
                if n_together == TOGETHER:
                    if code_t is uint8_t:
                        _sum_by_byte_together(columns, &values[start], sums, stop - start)
                    else:
                        _sum_by_bin_together(columns, &values[start], sums, stop - start)
                else:
                    for s in range(n_together):
                        _sum_by_bin(columns[s], &values[start], sums[s], stop - start)
                for s in range(n_together):
                    _add_without_no_bin(
                        sums[s], out, offsets[features[t + s]], offsets[features[t + s] + 1]
                    )


cdef void _add_without_no_bin(
    const double[::1] sums, double[::1] out, Py_ssize_t table_start, Py_ssize_t table_stop
) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(table_stop - table_start):
        out[table_start + k] += sums[k]


cdef void _sum_by_bin(
    const code_t* column, const double* values, double[::1] sums, Py_ssize_t n_rows
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n_rows):
        sums[column[i]] += values[i]


cdef void _sum_by_bin_together(
    const code_t** columns, const double* values, double[:, ::1] sums, Py_ssize_t n_rows
) noexcept nogil:
    cdef const code_t* column_0 = columns[0]
    cdef const code_t* column_1 = columns[1]
    cdef const code_t* column_2 = columns[2]
    cdef const code_t* column_3 = columns[3]
    cdef double[::1] sums_0 = sums[0], sums_1 = sums[1], sums_2 = sums[2], sums_3 = sums[3]
    cdef Py_ssize_t i
    for i in range(n_rows):
        sums_0[column_0[i]] += values[i]
        sums_1[column_1[i]] += values[i]
        sums_2[column_2[i]] += values[i]
        sums_3[column_3[i]] += values[i]


cdef void _sum_by_byte_together(
    const uint8_t** columns, const double* values, double[:, ::1] sums, Py_ssize_t n_rows
) noexcept nogil:
    """The same for codes of one byte: the 256 sums of a feature fit on the stack, at fixed places."""
    cdef const uint8_t* column_0 = columns[0]
    cdef const uint8_t* column_1 = columns[1]
    cdef const uint8_t* column_2 = columns[2]
    cdef const uint8_t* column_3 = columns[3]
    cdef double by_code[TOGETHER * BYTE_STRIDE]
    cdef uint64_t word_0, word_1, word_2, word_3
    cdef Py_ssize_t word, i, s
    cdef int k
    cdef double value
    memset(by_code, 0, sizeof(by_code))
    for word in range(n_rows // 8):
        i = 8 * word
        word_0, word_1 = load_word(column_0 + i), load_word(column_1 + i)
        word_2, word_3 = load_word(column_2 + i), load_word(column_3 + i)
        for k in range(8):
            value = values[i + k]
            by_code[CODE_OF_WORD(word_0, k, 8)] += value
            by_code[BYTE_STRIDE + CODE_OF_WORD(word_1, k, 8)] += value
            by_code[2 * BYTE_STRIDE + CODE_OF_WORD(word_2, k, 8)] += value
            by_code[3 * BYTE_STRIDE + CODE_OF_WORD(word_3, k, 8)] += value
    for i in range(n_rows - n_rows % 8, n_rows):
        value = values[i]
        by_code[column_0[i]] += value
        by_code[BYTE_STRIDE + column_1[i]] += value
        by_code[2 * BYTE_STRIDE + column_2[i]] += value
        by_code[3 * BYTE_STRIDE + column_3[i]] += value
    for s in range(TOGETHER):
        for i in range(min(sums.shape[1], <Py_ssize_t> 256)):
            sums[s, i] = by_code[s * BYTE_STRIDE + i]


def sum_by_code(
    const code_t[::1] codes,         # IN  (n_rows,), below n_codes
    const double[:, ::1] values,     # IN  (n, n_rows)
    double[:, ::1] out,              # OUT (n, n_codes), the rows first <= t < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[t, k] = sum of values[t, i] over the rows with codes[i] == k."""
    cdef Py_ssize_t t, n_codes = out.shape[1]
    cdef double[::1] scratch = np.empty(VECTORS * (n_codes + 1))
    if codes.shape[0] == 0:
        out[first:last] = 0.0
        return
    with nogil:
        for t in range(first, last):
            _sum_column(&codes[0], &values[t, 0], codes.shape[0], n_codes, &scratch[0], &out[t, 0])


def gram(
    const code_t[:, ::1] codes,      # IN  (n_features, n_rows)
    const int64_t[::1] offsets,      # IN  (n_features + 1,)
    const int64_t[::1] features,     # IN  (n,): the chosen features
    const double[::1] row_weights,   # IN  (n_rows,)
    const int64_t[::1] out_offsets,  # IN  (n + 1,): where the block of the t-th chosen feature starts in out
    double[:, ::1] out,              # OUT square of out_offsets[-1], both blocks of the pairs in the range
    Py_ssize_t first,
    Py_ssize_t last,
):
    """X_S.T @ diag(row_weights) @ X_S, by pairs t <= u of the list: (0, 0), (0, 1), …, (1, 1), …"""
    cdef Py_ssize_t pair, t, u, t_bins, u_bins, n_listed = features.shape[0]
    cdef double[::1] sums = np.empty((_widest(offsets, features) + 1) ** 2)
    with nogil:
        for pair in range(first, last):
            t, u = _pair_at(pair, n_listed)
            t_bins, u_bins = out_offsets[t + 1] - out_offsets[t], out_offsets[u + 1] - out_offsets[u]
            _cross_tabulate(codes[features[t]], codes[features[u]], row_weights, t_bins, u_bins, sums)
            _write_pair(sums, out_offsets[t], t_bins, out_offsets[u], u_bins, out)


cdef (Py_ssize_t, Py_ssize_t) _pair_at(Py_ssize_t number, Py_ssize_t n_listed) noexcept nogil:
    """The pair t <= u at this place of the list (0, 0), (0, 1), …, (1, 1), …"""
    cdef Py_ssize_t t = 0
    while number >= n_listed - t:
        number -= n_listed - t
        t += 1
    return t, t + number


cdef void _write_pair(
    const sum_t[::1] sums,
    Py_ssize_t t_start,
    Py_ssize_t t_bins,
    Py_ssize_t u_start,
    Py_ssize_t u_bins,
    double[:, ::1] out,
) noexcept nogil:
    """The block of a pair of features and its transpose, from sums whose last row and column are "no bin"."""
    cdef Py_ssize_t k, m, stride = u_bins + 1
    for k in range(t_bins):
        for m in range(u_bins):
            out[t_start + k, u_start + m] = sums[k * stride + m]
    if t_start == u_start:
        return
    for m in range(u_bins):
        for k in range(t_bins):
            out[u_start + m, t_start + k] = sums[k * stride + m]


cdef void _cross_tabulate(
    const code_t[::1] row_codes,
    const code_t[::1] column_codes,
    const double[::1] row_weights,
    Py_ssize_t n_row_bins,
    Py_ssize_t n_column_bins,
    double[::1] sums,
) noexcept nogil:
    """sums[k * (n_column_bins + 1) + m] = sum of the weights of the rows with codes k and m, "no bin" included."""
    cdef Py_ssize_t i, stride = n_column_bins + 1
    for i in range((n_row_bins + 1) * stride):
        sums[i] = 0.0
    for i in range(row_codes.shape[0]):
        sums[row_codes[i] * stride + column_codes[i]] += row_weights[i]


def cross_counts(
    const code_t[:, ::1] codes,      # IN  (n_features, n_rows), fewer than 2^32 rows
    const int64_t[::1] offsets,      # IN  (n_features + 1,)
    const int64_t[::1] features,     # IN  (n,): the chosen features
    const int64_t[::1] out_offsets,  # IN  (n + 1,): where the block of the t-th chosen feature starts in out
    double[:, ::1] out,              # OUT square of out_offsets[-1], both blocks of the pairs in the range
    Py_ssize_t first,
    Py_ssize_t last,
):
    """`gram` with all row weights 1.

    Four-byte integers halve the table that rows are counted in, so more of it stays in cache, and an addition takes
    one cycle.
    """
    cdef Py_ssize_t pair, i, t, u, t_bins, u_bins, stride, n_rows = codes.shape[1], n_listed = features.shape[0]
    cdef uint32_t[::1] counts = np.empty((_widest(offsets, features) + 1) ** 2, dtype=np.uint32)
    cdef const code_t* t_codes
    cdef const code_t* u_codes
    with nogil:
        for pair in range(first, last):
            t, u = _pair_at(pair, n_listed)
            t_bins, u_bins = out_offsets[t + 1] - out_offsets[t], out_offsets[u + 1] - out_offsets[u]
            stride = u_bins + 1
            memset(&counts[0], 0, (t_bins + 1) * stride * sizeof(uint32_t))
            if n_rows > 0:
                t_codes, u_codes = &codes[features[t], 0], &codes[features[u], 0]
                for i in range(n_rows):
                    counts[t_codes[i] * stride + u_codes[i]] += 1
            _write_pair(counts, out_offsets[t], t_bins, out_offsets[u], u_bins, out)


def bin_counts(
    const code_t[:, ::1] codes,      # IN  (n_features, n_rows), fewer than 2^32 rows
    const int64_t[::1] offsets,      # IN  (n_features + 1,)
    double[::1] out,                 # OUT (n_coef,), the slices of the features first <= j < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[offsets[j] + k] = number of rows with codes[j, i] == k."""
    cdef Py_ssize_t n_rows = codes.shape[1], i, j, k, s, n_bins, n_whole = n_rows - n_rows % TOGETHER
    cdef const code_t* column
    # Rows take turns at four tables: when row after row hits the same bin, only one of four updates waits.
    cdef uint32_t[:, ::1] counts = np.empty(
        (TOGETHER, _widest(offsets, np.arange(first, last)) + 1), dtype=np.uint32
    )
    cdef uint32_t[::1] counts_0 = counts[0], counts_1 = counts[1], counts_2 = counts[2], counts_3 = counts[3]
    with nogil:
        for j in range(first, last):
            n_bins = offsets[j + 1] - offsets[j]
            for s in range(TOGETHER):
                memset(&counts[s, 0], 0, (n_bins + 1) * sizeof(uint32_t))
            if n_rows > 0:
                column = &codes[j, 0]
                for s in range(n_rows // TOGETHER):
                    i = s * TOGETHER
                    counts_0[column[i]] += 1
                    counts_1[column[i + 1]] += 1
                    counts_2[column[i + 2]] += 1
                    counts_3[column[i + 3]] += 1
                for i in range(n_whole, n_rows):
                    counts_0[column[i]] += 1
            for k in range(n_bins):
                out[offsets[j] + k] = (
                    <double> counts_0[k] + <double> counts_1[k] + <double> counts_2[k] + <double> counts_3[k]
                )


def bin_moments(
    const code_t[:, :] codes,        # IN  (n_features, n_rows), each row contiguous; n_bins means no bin
    const int64_t[::1] features,     # IN  (n,) none twice; first and last count in this list
    const int64_t[::1] out_offsets,  # IN  (n + 1,) where the bins of each begin in `near` and `sums`
    const real_t[:, :] values,       # IN  (n_rows, n_columns), any strides
    const int64_t[::1] columns,      # IN  (n,) the column of `values` with the x of each listed feature
    const double[::1] v,             # IN  (n_rows,)
    const double[::1] near,          # IN  (m,)
    const double[::1] per_unit,      # IN  (n,)
    double[:, ::1] sums,             # IN/OUT (m, 3)
    double[:, ::1] bounds,           # IN/OUT (n, 2)
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Add to `sums` v, v d and v d^2 by bin, d = (x - near) * per_unit, and widen `bounds`; over rows with finite x."""
    cdef Py_ssize_t n_rows = v.shape[0], b, i, t
    with nogil:
        # A block of rows stays in the cache while the features pick their columns out of it.
        for b in range((n_rows + ROWS_PER_PICK - 1) // ROWS_PER_PICK):
            i = b * ROWS_PER_PICK
            for t in range(first, last):
                _add_moments(
                    &codes[features[t], i], out_offsets[t + 1] - out_offsets[t],
                    &values[i, columns[t]], values.strides[0], &v[i], min(<Py_ssize_t> ROWS_PER_PICK, n_rows - i),
                    &near[out_offsets[t]], per_unit[t], &sums[out_offsets[t], 0], &bounds[t, 0],
                )


cdef void _add_moments(
    const code_t* codes,
    Py_ssize_t n_bins,
    const real_t* values,
    Py_ssize_t stride,               # in bytes
    const double* v,
    Py_ssize_t n_rows,
    const double* near,
    double per_unit,
    double* sums,                    # IN/OUT (n_bins, 3)
    double* bounds,                  # IN/OUT (2,)
) noexcept nogil:
    cdef Py_ssize_t i
    cdef double x, d, moment, low = bounds[0], high = bounds[1]
    cdef const char* place = <const char*> values
    cdef double* own
    for i in range(n_rows):
        x = (<const real_t*> place)[0]
        FETCH(place + ROWS_AHEAD * stride)
        place += stride
        if not -INFINITY < x < INFINITY:
            continue
        low = x if x < low else low
        high = x if x > high else high
        if codes[i] < n_bins:
            own = sums + 3 * codes[i]
            d = (x - near[codes[i]]) * per_unit
            moment = v[i] * d
            own[0] += v[i]
            own[1] += moment
            own[2] += moment * d
    bounds[0], bounds[1] = low, high


cdef inline Py_ssize_t _n_parts(Py_ssize_t n_items, Py_ssize_t part_size) noexcept nogil:
    return (n_items + part_size - 1) // part_size


cdef Py_ssize_t _widest(const int64_t[::1] offsets, const int64_t[::1] features):
    """The largest number of bins among the listed features."""
    cdef Py_ssize_t t, widest = 0
    for t in range(features.shape[0]):
        widest = max(widest, offsets[features[t] + 1] - offsets[features[t]])
    return widest
