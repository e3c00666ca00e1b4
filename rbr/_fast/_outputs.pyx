"""Look-ups and sums by bin for several outputs (classes): `matvec` and `rmatvec` of all of them in one pass.

Up to eight outputs lie side by side, in the rows and in the tables, so that a code is read once and serves all of them.
A code one past a table's last bin means "no bin"; tables have one more entry for it.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint16_t
from libc.string cimport memset

ctypedef fused code_t:
    uint8_t
    uint16_t

cdef extern from "outputs.h":
    void look_up_rows(
        int code_bytes, int width, int n_together, const void **columns, const double **tables, double *rows,
        Py_ssize_t n
    ) noexcept nogil
    void sum_rows_by_bin(
        int code_bytes, int width, int n_together, const void **columns, const double *rows, double **sums,
        Py_ssize_t n
    ) noexcept nogil

cdef enum:
    TOGETHER = 4
    # The rows of a block, eight outputs each, stay in a core's L2 cache while all features use them.
    ROWS_PER_BLOCK = 4096


def matvec_outputs(
    const code_t[:, :] codes,        # IN  (n_features, n_rows), each row contiguous; n_bins means no bin
    const int64_t[::1] offsets,      # IN  (n_features + 1,)
    const double[:, ::1] f,          # IN  (n_outputs, n_coef)
    const int64_t[::1] features,     # IN  (n,): the features to sum over
    double[:, ::1] out,              # OUT (n_outputs, n_rows), the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[c, i] = sum over the listed features j of f[c, offsets[j] + codes[j, i]], in an order that the list fixes."""
    cdef Py_ssize_t n_outputs = f.shape[0], n_listed = features.shape[0], output, block, start, stop, t, s, i, c
    cdef int width, n_together
    cdef int64_t[::1] starts = _starts(offsets, features)
    cdef double[::1] tables = np.empty(8 * starts[n_listed] + 1)
    cdef double[::1] rows = np.empty(8 * ROWS_PER_BLOCK)
    cdef const void* columns[TOGETHER]
    cdef const double* own[TOGETHER]
    with nogil:
        output = 0
        while output < n_outputs:
            width = _width(n_outputs - output)
            _lay_out(f, offsets, features, starts, output, width, tables)
            for block in range(_n_parts(last - first, ROWS_PER_BLOCK)):
                start = first + block * ROWS_PER_BLOCK
                stop = min(start + ROWS_PER_BLOCK, last)
                memset(&rows[0], 0, (stop - start) * width * sizeof(double))
                t = 0
                while t < n_listed:
                    n_together = <int> min(<Py_ssize_t> TOGETHER, n_listed - t)
                    for s in range(n_together):
                        columns[s] = &codes[features[t + s], start]
                        own[s] = &tables[width * starts[t + s]]
                    look_up_rows(sizeof(code_t), width, n_together, columns, own, &rows[0], stop - start)
                    t += n_together
                for c in range(min(<Py_ssize_t> width, n_outputs - output)):
                    for i in range(stop - start):
                        out[output + c, start + i] = rows[width * i + c]
            output += width


def rmatvec_outputs(
    const code_t[:, :] codes,        # IN  (n_features, n_rows), each row contiguous
    const int64_t[::1] offsets,      # IN  (n_features + 1,)
    const int64_t[::1] features,     # IN  (n,): the features to compute, none twice; first, last count in it
    const double[:, ::1] values,     # IN  (n_outputs, n_rows)
    Py_ssize_t row_start,            # IN  the rows row_start <= i < row_stop are summed
    Py_ssize_t row_stop,
    double[:, ::1] out,              # IN/OUT (n_outputs, n_coef), the slices of the features at first <= t < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[c, offsets[j] + k] += sum of values[c, i] over the rows with codes[j, i] == k."""
    cdef Py_ssize_t n_outputs = values.shape[0], n_used, output, block, start, stop, t, s, i, c
    cdef int width, n_together
    cdef int64_t[::1] starts = _starts(offsets, features)
    cdef double[::1] sums = np.empty(8 * (starts[last] - starts[first]) + 1)
    cdef double[::1] rows = np.zeros(8 * ROWS_PER_BLOCK)
    cdef const void* columns[TOGETHER]
    cdef double* own[TOGETHER]
    with nogil:
        output = 0
        while output < n_outputs:
            width = _width(n_outputs - output)
            n_used = min(<Py_ssize_t> width, n_outputs - output)
            memset(&sums[0], 0, width * (starts[last] - starts[first]) * sizeof(double))
            for block in range(_n_parts(row_stop - row_start, ROWS_PER_BLOCK)):
                start = row_start + block * ROWS_PER_BLOCK
                stop = min(start + ROWS_PER_BLOCK, row_stop)
                for c in range(width):
                    for i in range(stop - start):
                        rows[width * i + c] = values[output + c, start + i] if c < n_used else 0.0
                t = first
                while t < last:
                    n_together = <int> min(<Py_ssize_t> TOGETHER, last - t)
                    for s in range(n_together):
                        columns[s] = &codes[features[t + s], start]
                        own[s] = &sums[width * (starts[t + s] - starts[first])]
                    sum_rows_by_bin(sizeof(code_t), width, n_together, columns, &rows[0], own, stop - start)
                    t += n_together
            for t in range(first, last):
                for c in range(n_used):
                    for i in range(offsets[features[t] + 1] - offsets[features[t]]):
                        out[output + c, offsets[features[t]] + i] += sums[width * (starts[t] - starts[first] + i) + c]
            output += width


cdef int _width(Py_ssize_t n_left) noexcept nogil:
    """How many outputs lie side by side."""
    return 8 if n_left > 4 else 4


cdef void _lay_out(
    const double[:, ::1] f,
    const int64_t[::1] offsets,
    const int64_t[::1] features,
    const int64_t[::1] starts,
    Py_ssize_t output,
    int width,
    double[::1] tables,
) noexcept nogil:
    """The tables of `width` outputs side by side, with zeros for "no bin" and for outputs that there are not."""
    cdef Py_ssize_t t, k, c, n_bins
    memset(&tables[0], 0, width * starts[features.shape[0]] * sizeof(double))
    for t in range(features.shape[0]):
        n_bins = offsets[features[t] + 1] - offsets[features[t]]
        for c in range(min(<Py_ssize_t> width, f.shape[0] - output)):
            for k in range(n_bins):
                tables[width * (starts[t] + k) + c] = f[output + c, offsets[features[t]] + k]


cdef int64_t[::1] _starts(const int64_t[::1] offsets, const int64_t[::1] features):
    """Where the entries of each listed feature begin, with one more than it has bins; then their number."""
    cdef Py_ssize_t t
    cdef int64_t[::1] starts = np.zeros(features.shape[0] + 1, dtype=np.int64)
    for t in range(features.shape[0]):
        starts[t + 1] = starts[t] + offsets[features[t] + 1] - offsets[features[t]] + 1
    return starts


cdef inline Py_ssize_t _n_parts(Py_ssize_t n_items, Py_ssize_t part_size) noexcept nogil:
    return (max(n_items, 0) + part_size - 1) // part_size
