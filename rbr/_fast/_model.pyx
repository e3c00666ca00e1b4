"""Scoring, compiled: the raw scores of rows from the terms of a model, without computing codes.

A term is a function of constant and linear pieces, padded to 2 ** m of them and searched in m halvings that do not branch on the data, so the
processor works on many rows at once. Blocks of rows stay in the cache while the terms take turns.
"""

from libc.math cimport exp
from libc.stdint cimport int64_t, uint8_t

ctypedef fused real_t:
    float
    double

cdef enum:
    BLOCK_ROWS = 128


def score(
    const real_t[:, :] values,        # IN  (n_rows, n_features), any strides
    const int64_t[::1] columns,       # IN  (n_terms,) the feature of each term
    const double[::1] edges,          # IN  the edges of all terms, ascending within each; 2 ** m - 1 per term
    const int64_t[::1] edge_offsets,  # IN  (n_terms + 1,) where each term's edges lie in `edges`
    const double[:, ::1] tables,      # IN  (all pieces, n_outputs); 2 ** m rows per term, then one for NaN
    const double[:, ::1] slopes,      # IN  (all pieces, n_outputs), likewise: 0 in constant pieces
    const double[::1] anchors,        # IN  (all pieces,), likewise: where a line has its value in `tables`
    const uint8_t[::1] has_lines,     # IN  (n_terms,) whether any slope of the term is not 0
    double[:, :] out,                 # IN/OUT (n_rows, n_outputs), the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[i] += the sum over the terms of their pieces at values[i, column]: see the definition in rbr.reference."""
    cdef Py_ssize_t n_terms = columns.shape[0], i0, n, t, n_pieces, row
    cdef const double* table
    cdef const double* all_edges = NULL
    if edges.shape[0] > 0:
        all_edges = &edges[0]
    if first >= last or n_terms == 0:
        return
    with nogil:
        i0 = first
        while i0 < last:
            n = min(<Py_ssize_t> BLOCK_ROWS, last - i0)
            for t in range(n_terms):
                n_pieces = edge_offsets[t + 1] - edge_offsets[t] + 1
                # A term has two more entries in `tables` than in `edges`.
                row = edge_offsets[t] + 2 * t
                table = &tables[row, 0]
                if has_lines[t]:
                    _add_lines(
                        &values[i0, columns[t]], values.strides[0], n, all_edges + edge_offsets[t], n_pieces,
                        table, &slopes[row, 0], &anchors[row], tables.shape[1], &out[i0, 0], out.strides[0],
                        out.strides[1],
                    )
                elif tables.shape[1] == 1:
                    _add_run(
                        &values[i0, columns[t]], values.strides[0], n, all_edges + edge_offsets[t], n_pieces,
                        table, &out[i0, 0], out.strides[0],
                    )
                else:
                    _add_run_of_classes(
                        &values[i0, columns[t]], values.strides[0], n, all_edges + edge_offsets[t], n_pieces,
                        table, tables.shape[1], &out[i0, 0], out.strides[0], out.strides[1],
                    )
            i0 += n


cdef inline Py_ssize_t _piece(double x, const double* edges, Py_ssize_t n_pieces) noexcept nogil:
    """The number of edges below x; n_pieces for NaN."""
    cdef Py_ssize_t piece = 0, half = n_pieces >> 1
    while half > 0:
        piece += half & -<Py_ssize_t> (edges[piece + half - 1] < x)
        half >>= 1
    return piece if x == x else n_pieces


cdef void _add_run(
    const real_t* source,
    Py_ssize_t stride,                # in bytes
    Py_ssize_t n,
    const double* edges,
    Py_ssize_t n_pieces,
    const double* table,
    double* out,                      # IN/OUT
    Py_ssize_t out_stride,            # in bytes
) noexcept nogil:
    cdef const char* place = <const char*> source
    cdef char* target = <char*> out
    cdef Py_ssize_t i = 0, half, p0, p1, p2, p3
    cdef double x0, x1, x2, x3
    # The halvings of one row wait for one another; those of four rows do not. A mask is used because for a product the
    # compiler may choose a multiplication or a branch.
    while i + 4 <= n:
        x0 = (<const real_t*> place)[0]
        x1 = (<const real_t*> (place + stride))[0]
        x2 = (<const real_t*> (place + 2 * stride))[0]
        x3 = (<const real_t*> (place + 3 * stride))[0]
        p0 = p1 = p2 = p3 = 0
        half = n_pieces >> 1
        while half > 0:
            p0 += half & -<Py_ssize_t> (edges[p0 + half - 1] < x0)
            p1 += half & -<Py_ssize_t> (edges[p1 + half - 1] < x1)
            p2 += half & -<Py_ssize_t> (edges[p2 + half - 1] < x2)
            p3 += half & -<Py_ssize_t> (edges[p3 + half - 1] < x3)
            half >>= 1
        (<double*> target)[0] += table[p0 if x0 == x0 else n_pieces]
        (<double*> (target + out_stride))[0] += table[p1 if x1 == x1 else n_pieces]
        (<double*> (target + 2 * out_stride))[0] += table[p2 if x2 == x2 else n_pieces]
        (<double*> (target + 3 * out_stride))[0] += table[p3 if x3 == x3 else n_pieces]
        place += 4 * stride
        target += 4 * out_stride
        i += 4
    while i < n:
        (<double*> target)[0] += table[_piece((<const real_t*> place)[0], edges, n_pieces)]
        place += stride
        target += out_stride
        i += 1


cdef void _add_run_of_classes(
    const real_t* source,
    Py_ssize_t stride,                # in bytes
    Py_ssize_t n,
    const double* edges,
    Py_ssize_t n_pieces,
    const double* table,
    Py_ssize_t n_outputs,
    double* out,                      # IN/OUT
    Py_ssize_t out_stride,            # in bytes
    Py_ssize_t class_stride,          # in bytes
) noexcept nogil:
    cdef const char* place = <const char*> source
    cdef char* target = <char*> out
    cdef const double* entry
    cdef Py_ssize_t _i, c
    for _i in range(n):
        entry = table + n_outputs * _piece((<const real_t*> place)[0], edges, n_pieces)
        for c in range(n_outputs):
            (<double*> (target + c * class_stride))[0] += entry[c]
        place += stride
        target += out_stride


cdef void _add_lines(
    const real_t* source,
    Py_ssize_t stride,                # in bytes
    Py_ssize_t n,
    const double* edges,
    Py_ssize_t n_pieces,
    const double* table,
    const double* slopes,
    const double* anchors,
    Py_ssize_t n_outputs,
    double* out,                      # IN/OUT
    Py_ssize_t out_stride,            # in bytes
    Py_ssize_t class_stride,          # in bytes
) noexcept nogil:
    cdef const char* place = <const char*> source
    cdef char* target = <char*> out
    cdef double x, slope
    cdef Py_ssize_t _i, c, piece, entry
    for _i in range(n):
        x = (<const real_t*> place)[0]
        piece = _piece(x, edges, n_pieces)
        for c in range(n_outputs):
            entry = n_outputs * piece + c
            slope = slopes[entry]
            # A constant piece may hold infinite values, and NaN has an entry without a slope.
            (<double*> (target + c * class_stride))[0] += table[entry] + (
                slope * (x - anchors[piece]) if slope != 0.0 else 0.0
            )
        place += stride
        target += out_stride


def expit(
    const double[::1] scores,         # IN  (n_rows,)
    double[::1] out,                  # OUT (n_rows,), the rows first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[i] = 1 / (1 + exp(-scores[i])): the probability of the second of two classes."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(first, last):
            out[i] = 1.0 / (1.0 + exp(-scores[i]))
