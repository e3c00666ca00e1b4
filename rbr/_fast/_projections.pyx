"""P_zm and P_L, and the priced form of P_L: compiled twins of `center_tables` and `prox_tables`.

All searches minimise a cost, half the squared distance plus a price, rather than maximise a gain: distances
are sums of squares, so they lose no digits, and an exact fit costs exactly zero. A start s that may still
begin the last piece carries running sums of that piece (Welford's updates), which are updated as the end e
moves right. Only the search among sorted values takes differences of prefix sums.

The other names follow `rbr.reference.projections`: `unit` is price * log b.

The searches share inner loops that the compiler inlines, so they form one extension module. Its parts are included
below: the memory of a search, the cost of a piece, the exact searches, the greedy one, and the shapes.
"""

from libc.math cimport INFINITY, cos, fabs, log, sqrt
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

# rbr.reference has these too; rbr._backend checks that they agree.
cpdef enum Shape:
    CONSTANT, LINEAR, MIXED, INCREASING, DECREASING, LEVELS, FREQUENCY, FREE

SHAPES = tuple(shape.name.lower() for shape in Shape)

cpdef enum:
    NO_PIECE = -1

include "_scratch.pxi"
include "_running_sums.pxi"
include "_exact.pxi"
include "_lines.pxi"
include "_least_rows.pxi"
include "_segments.pxi"
include "_sorted.pxi"
include "_by_count.pxi"
include "_greedy.pxi"
include "_shapes.pxi"


def center_tables(
    const double[::1] f,  # IN  (n_coef,)
    const int64_t[::1] offsets,  # IN  (n_features + 1,)
    const double[::1] weights,  # IN  (n_coef,) each table's sum to 1
    double[::1] out,  # OUT (n_coef,) the slices of the tables first <= j < last
    double[::1] squared_norms,  # OUT (n_features,) those of the same tables, after centring
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
    const double[::1] rows,  # IN  (n_coef,) the share of the rows in each bin
    const double[::1] least_rows,  # IN  (n_features,) least share in a piece that is not the only one; 0: no minimum
    double price,  # IN  mu * lambda * kappa
    const double[::1] level_codes,  # IN  flat, of `levels` tables: the code of k = 1..min(limit, b) levels, increasing
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
            t.rows = &rows[begin]
            t.least_rows = least_rows[j]
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
    """Cut u into at most `limit` constant pieces by the pruned or the plain search, whatever the size.

    Writes the starts of the pieces to `starts`; returns their number, and how many starts the pruned search
    compared. Not a kernel: `prox_tables` chooses the search itself.
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
            p.last_start = NULL
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
