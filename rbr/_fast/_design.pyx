"""The kernels of the binned design: look-ups, sums by bin, cross-tabulation.

A code one past a table's last bin means "no bin". Tables are copied into buffers with one more entry for it,
a zero to be read or a sum to be dropped, so that the loops over rows have no branch.
"""

import numpy as np

from libc.stdint cimport int64_t, uint8_t, uint16_t

ctypedef fused code_t:
    uint8_t
    uint16_t


def matvec(
    const code_t[:, ::1] codes,      # IN  (n_features, n_rows); n_bins of the feature means no bin
    const int64_t[::1] offsets,      # IN  (n_features + 1,)
    const double[::1] f,             # IN  (n_coef,)
    const int64_t[::1] features,     # IN  (n,): the features to sum over
    double[::1] out,                 # OUT (n_rows,), the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[i] = sum over the listed features j of f[offsets[j] + codes[j, i]], in the order of the list."""
    cdef Py_ssize_t t, k, i, j, n_bins
    cdef double[::1] table = np.empty(_widest(offsets, features) + 1)
    with nogil:
        for i in range(first, last):
            out[i] = 0.0
        for t in range(features.shape[0]):
            j = features[t]
            n_bins = offsets[j + 1] - offsets[j]
            for k in range(n_bins):
                table[k] = f[offsets[j] + k]
            table[n_bins] = 0.0
            for i in range(first, last):
                out[i] += table[codes[j, i]]


def rmatvec(
    const code_t[:, ::1] codes,      # IN  (n_features, n_rows)
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
    cdef Py_ssize_t t, k, i, j, n_bins
    cdef double[::1] sums = np.empty(_widest(offsets, features) + 1)
    with nogil:
        for t in range(first, last):
            j = features[t]
            n_bins = offsets[j + 1] - offsets[j]
            sums[:n_bins + 1] = 0.0
            for i in range(row_start, row_stop):
                sums[codes[j, i]] += values[i]
            for k in range(n_bins):
                out[offsets[j] + k] += sums[k]


def gram(
    const code_t[:, ::1] codes,      # IN  (n_features, n_rows)
    const int64_t[::1] offsets,      # IN  (n_features + 1,)
    const int64_t[::1] features,     # IN  (n,): the chosen features
    const double[::1] row_weights,   # IN  (n_rows,)
    const int64_t[::1] out_offsets,  # IN  (n + 1,): where the block of the t-th chosen feature starts in out
    double[:, ::1] out,              # OUT (out_offsets[-1], out_offsets[-1]), both blocks of each pair in the range
    Py_ssize_t first,
    Py_ssize_t last,
):
    """X_S.T @ diag(row_weights) @ X_S, by pairs t <= u of the list: (0, 0), (0, 1), …, (1, 1), …"""
    cdef Py_ssize_t _pair, i, k, l, t = 0, u
    cdef Py_ssize_t n_listed = features.shape[0], n_rows = codes.shape[1]
    cdef Py_ssize_t t_start, u_start, t_bins, u_bins
    cdef const code_t[::1] t_codes, u_codes
    with nogil:
        u = first
        while t < n_listed and u >= n_listed - t:
            u -= n_listed - t
            t += 1
        u += t
        for _pair in range(first, last):
            t_start, t_bins = out_offsets[t], out_offsets[t + 1] - out_offsets[t]
            u_start, u_bins = out_offsets[u], out_offsets[u + 1] - out_offsets[u]
            t_codes, u_codes = codes[features[t]], codes[features[u]]
            out[t_start:t_start + t_bins, u_start:u_start + u_bins] = 0.0
            for i in range(n_rows):
                k, l = t_codes[i], u_codes[i]
                if k < t_bins and l < u_bins:
                    out[t_start + k, u_start + l] += row_weights[i]
            if t < u:
                for k in range(t_bins):
                    for l in range(u_bins):
                        out[u_start + l, t_start + k] = out[t_start + k, u_start + l]
            u += 1
            if u == n_listed:
                t += 1
                u = t


cdef Py_ssize_t _widest(const int64_t[::1] offsets, const int64_t[::1] features):
    """The largest number of bins among the listed features."""
    cdef Py_ssize_t t, widest = 0
    for t in range(features.shape[0]):
        widest = max(widest, offsets[features[t] + 1] - offsets[features[t]])
    return widest
