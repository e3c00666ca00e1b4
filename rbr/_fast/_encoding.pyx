"""The bins of numbers, compiled.

The half-open rule: a number x has the code k if edges[k - 1] < x <= edges[k]; that is, its code is the
number of edges below it. NaN has the code one past the ordered bins.
"""

import numpy as np

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t

cdef extern from "cells.h":
    enum: LANES
    ctypedef struct Cells:
        double low
        double scale
        int64_t key
        int64_t shift
        int64_t last
        int64_t is_even
    ctypedef struct SideBySide:
        pass
    int64_t bits_of(double x) noexcept nogil
    int32_t cell_of(const Cells* own, double x) noexcept nogil
    void put_beside(SideBySide* all, int k, const Cells* own) noexcept nogil
    void cells_of_column_float(
        const float* source, Py_ssize_t stride, Py_ssize_t n, const Cells* own, int32_t* cells
    ) noexcept nogil
    void cells_of_column_double(
        const double* source, Py_ssize_t stride, Py_ssize_t n, const Cells* own, int32_t* cells
    ) noexcept nogil
    void cells_of_rows_float(
        const float* source, Py_ssize_t stride, Py_ssize_t n, Py_ssize_t ahead, const SideBySide* all, int32_t* cells
    ) noexcept nogil
    void cells_of_rows_double(
        const double* source, Py_ssize_t stride, Py_ssize_t n, Py_ssize_t ahead, const SideBySide* all, int32_t* cells
    ) noexcept nogil
    void codes_of_cells_float_uint8_t(
        const float* source, Py_ssize_t stride, Py_ssize_t n, const int32_t* cells, Py_ssize_t step,
        const uint8_t* below, const double* edges, Py_ssize_t top, uint8_t* codes
    ) noexcept nogil
    void codes_of_cells_float_uint16_t(
        const float* source, Py_ssize_t stride, Py_ssize_t n, const int32_t* cells, Py_ssize_t step,
        const uint16_t* below, const double* edges, Py_ssize_t top, uint16_t* codes
    ) noexcept nogil
    void codes_of_cells_double_uint8_t(
        const double* source, Py_ssize_t stride, Py_ssize_t n, const int32_t* cells, Py_ssize_t step,
        const uint8_t* below, const double* edges, Py_ssize_t top, uint8_t* codes
    ) noexcept nogil
    void codes_of_cells_double_uint16_t(
        const double* source, Py_ssize_t stride, Py_ssize_t n, const int32_t* cells, Py_ssize_t step,
        const uint16_t* below, const double* edges, Py_ssize_t top, uint16_t* codes
    ) noexcept nogil

ctypedef fused real_t:
    float
    double

ctypedef fused code_t:
    uint8_t
    uint16_t

# rbr._sizes has it too; rbr._backend checks that they agree.
MAX_CODE = (1 << (8 * sizeof(uint16_t))) - 1

cdef enum:
    TILE_FEATURES = 64        # encoded together: their look-up tables (4 kB at 255 bins) share a cache
    TILE_EDGES = 65536
    BLOCK_ROWS = 256          # their numbers and cells in LANES columns stay in the first-level cache
    MIN_ROWS_FOR_CELLS = 512  # for fewer rows the cells cost more than they save
    CELLS_PER_EDGE = 8
    MAX_CELLS = 16384


cdef struct Search:
    Cells cells
    const void* below             # below[c]: number of edges in the cells before c; that of NaN after the last cell
    const double* edges           # padded with +inf, so that a search by halving stays inside
    Py_ssize_t half               # the first step of that search; 0 if there is nothing to search


def encode(
    const real_t[:, :] values,      # IN  (n_rows, n_features), any strides
    const double[::1] edges,        # IN  the edges of all features, ascending within each
    const int64_t[::1] edge_offsets,  # IN  (n_features + 1,) where each feature's edges lie in `edges`
    code_t[:, ::1] codes,           # OUT (n_features, n_rows), the columns first <= i < last
    Py_ssize_t first,
    Py_ssize_t last,
):
    """codes[j, i] = number of edges of feature j below values[i, j]; for NaN one more than it has edges.

    A binary search halves the edges eight times for 255 bins. Cells (cells.h) save nearly all of that: the cell of a
    number usually holds no more than one edge.
    """
    cdef Py_ssize_t n_features = values.shape[1], most_edges = 0, t, b, j0, j1, j, i0
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
    cdef code_t[:, ::1] below = np.empty((tile, max_cells + 1), dtype=np.uint8 if code_t is uint8_t else np.uint16)
    cdef double[:, ::1] padded = np.empty((tile, 3 * most_edges + 2))
    cdef uint8_t[:, ::1] memory = np.empty((tile, sizeof(Search)), dtype=np.uint8)
    cdef Search* searches = <Search*> &memory[0, 0]
    cdef int32_t[::1] cells = np.empty(LANES * BLOCK_ROWS, dtype=np.int32)
    # A row-major table is read once: a block of its rows stays in the cache while the features take turns.
    cdef bint by_rows = 0 < values.strides[1] < values.strides[0]
    cdef bint in_lanes = by_rows and values.strides[1] == sizeof(real_t)
    cdef Py_ssize_t n_blocks = (last - first + BLOCK_ROWS - 1) // BLOCK_ROWS, n_together
    with nogil:
        for t in range(n_tiles):
            j0, j1 = t * tile, min((t + 1) * tile, n_features)
            for j in range(j0, j1):
                _prepare(
                    edges, edge_offsets[j], edge_offsets[j + 1] - edge_offsets[j], max_cells,
                    &searches[j - j0], &below[j - j0, 0], &padded[j - j0, 0],
                )
            n_together = LANES if in_lanes and j1 - j0 >= LANES else 1
            if by_rows:
                for b in range(n_blocks):
                    i0, j = first + b * BLOCK_ROWS, j0
                    while j < j1:
                        _encode_block(
                            values, i0, min(i0 + BLOCK_ROWS, last), j, min(j + n_together, j1), n_together, j0,
                            searches, &cells[0], codes,
                        )
                        j += n_together
            else:
                for j in range(j0, j1):
                    for b in range(n_blocks):
                        i0 = first + b * BLOCK_ROWS
                        _encode_block(
                            values, i0, min(i0 + BLOCK_ROWS, last), j, j + 1, 1, j0, searches, &cells[0], codes,
                        )


cdef void _encode_block(
    const real_t[:, :] values,
    Py_ssize_t first,
    Py_ssize_t last,
    Py_ssize_t start,               # the columns start <= j < stop
    Py_ssize_t stop,
    Py_ssize_t n_together,          # LANES, or 1
    Py_ssize_t j0,                  # searches[0] is that of column j0
    const Search* searches,
    int32_t* cells,                 # SCRATCH (LANES * BLOCK_ROWS,)
    code_t[:, ::1] codes,           # OUT
) noexcept nogil:
    # The last columns share their lanes with some that are done already.
    cdef Py_ssize_t n = last - first, stride = values.strides[0], j, k, own = max(j0, stop - n_together)
    cdef SideBySide beside
    cdef const Search* search
    if n_together == 1:
        if real_t is float:
            cells_of_column_float(&values[first, start], stride, n, &searches[start - j0].cells, cells)
        else:
            cells_of_column_double(&values[first, start], stride, n, &searches[start - j0].cells, cells)
    else:
        for k in range(LANES):
            put_beside(&beside, <int> k, &searches[own - j0 + k].cells)
        if real_t is float:
            cells_of_rows_float(&values[first, own], stride, n, BLOCK_ROWS, &beside, cells)
        else:
            cells_of_rows_double(&values[first, own], stride, n, BLOCK_ROWS, &beside, cells)
    for j in range(start, stop):
        search = &searches[j - j0]
        if real_t is float and code_t is uint8_t:
            codes_of_cells_float_uint8_t(
                &values[first, j], stride, n, cells + (j - own), n_together, <const code_t*> search.below,
                search.edges, search.half, &codes[j, first],
            )
        elif real_t is float:
            codes_of_cells_float_uint16_t(
                &values[first, j], stride, n, cells + (j - own), n_together, <const code_t*> search.below,
                search.edges, search.half, &codes[j, first],
            )
        elif code_t is uint8_t:
            codes_of_cells_double_uint8_t(
                &values[first, j], stride, n, cells + (j - own), n_together, <const code_t*> search.below,
                search.edges, search.half, &codes[j, first],
            )
        else:
            codes_of_cells_double_uint16_t(
                &values[first, j], stride, n, cells + (j - own), n_together, <const code_t*> search.below,
                search.edges, search.half, &codes[j, first],
            )


cdef void _prepare(
    const double[::1] edges,
    Py_ssize_t start,
    Py_ssize_t n_edges,
    Py_ssize_t max_cells,
    Search* search,                 # OUT
    code_t* below,                  # OUT (max_cells + 1,)
    double* padded,                 # OUT (3 * n_edges + 2,)
) noexcept nogil:
    cdef Py_ssize_t k, half = 0, most, most_by_bits
    cdef int64_t nearest = 0, farthest = 0
    cdef double low = edges[start] if n_edges > 0 else 0.0
    cdef Cells* cells = &search.cells
    cells.low, cells.last, cells.is_even, cells.key, cells.shift = low, max_cells - 1, True, 0, 0
    # Any number, even 0 or infinity, gives cells that are monotone in x.
    cells.scale = (max_cells - 1) / (edges[start + n_edges - 1] - low) if n_edges > 1 else 0.0
    most = _count_below(edges, start, n_edges, cells, below)
    if most > 1:
        nearest = bits_of(edges[start + 1] - low)
        farthest = bits_of(edges[start + n_edges - 1] - low)
        while ((farthest - nearest) >> cells.shift) + 2 > max_cells and cells.shift < 62:
            cells.shift += 1
        # At least this, so that the bits of an infinite distance minus the key do not overflow.
        cells.key = max(nearest - ((<int64_t> 1) << cells.shift), 1 - ((<int64_t> 1) << 52))
        cells.last = min(max_cells - 1, ((farthest - nearest) >> cells.shift) + 1)
        cells.is_even = False
        most_by_bits = _count_below(edges, start, n_edges, cells, below)
        if most_by_bits < most:
            most = most_by_bits
        else:
            cells.last, cells.is_even = max_cells - 1, True
            _count_below(edges, start, n_edges, cells, below)
    # The smallest power of two with 2 * half - 1 >= most.
    while 2 * half < most + 1 and most > 0:
        half = max(2 * half, 1)
    for k in range(n_edges):
        padded[k] = edges[start + k]
    for k in range(n_edges, n_edges + 2 * half + 1):
        padded[k] = INFINITY
    search.below, search.edges, search.half = below, padded, half


cdef Py_ssize_t _count_below(
    const double[::1] edges,
    Py_ssize_t start,
    Py_ssize_t n_edges,
    const Cells* cells,
    code_t* below,                  # OUT (cells.last + 2,)
) noexcept nogil:
    """Count the edges in the cells before each one; returns the most edges in a cell."""
    cdef Py_ssize_t c = 0, k, own, in_cell = 0, most = 0, n_cells = <Py_ssize_t> cells.last + 1
    for k in range(n_edges):
        own = cell_of(cells, edges[start + k])
        in_cell = in_cell + 1 if k > 0 and own < c else 1
        most = max(most, in_cell)
        while c <= own:
            below[c] = <code_t> k
            c += 1
    while c < n_cells:
        below[c] = <code_t> n_edges
        c += 1
    # Sums of edges below find nothing beyond it, so this is the code.
    below[n_cells] = <code_t> (n_edges + 1)
    return most
