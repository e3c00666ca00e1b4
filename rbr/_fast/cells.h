/* Codes by cells: the edges below a number are those in the cells before its own, counted in advance, and some in its
   own cell. Cells of equal width suit columns with two tails. Where many edges would share one, as near the start of a
   single long tail, cells hold equally many doubles instead: the bits of positive doubles are in the order of the
   doubles, so the cell follows from the bits of x - low. Both are monotone in x, even with rounding, so edges in earlier
   cells are below x, and edges in later cells are not.

   The cells of a block of rows come first, for up to LANES neighbouring columns at once where the numbers of a row are
   neighbours in memory: that is arithmetic on wide registers (wide.h). Then each column looks up its codes in tables
   that stay in the first-level cache. Nothing branches on the data. */
#include <stdint.h>
#include <string.h>

#include "wide.h"

#define LANES 8

typedef struct {
    double low;    /* the first edge */
    double scale;  /* cells per unit, if they have equal width */
    int64_t key;   /* otherwise the bits of the distance from `low` at which cell 0 ends, minus one cell, */
    int64_t shift; /* and a cell holds 2 ** shift neighbouring doubles */
    int64_t last;  /* the last cell */
    int64_t is_even;
} Cells;

/* Those of LANES columns, side by side. */
typedef struct {
    double low[LANES], scale[LANES], last[LANES];
    int64_t key[LANES], shift[LANES], last_by_bits[LANES], is_even[LANES];
} SideBySide;

static inline int64_t bits_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline int32_t even_cell(double x, double low, double scale, double last) {
    double place = (x - low) * scale;
    place = place > 0.0 ? place : 0.0; /* NaN too */
    return (int32_t)(place < last ? place : last);
}

static inline int32_t cell_by_bits(double x, double low, int64_t key, int64_t shift, int64_t last) {
    double distance = x - low;
    distance = distance > 0.0 ? distance : 0.0; /* NaN too */
    int64_t beyond = bits_of(distance) - key;
    int64_t cell = (int64_t)((uint64_t)(beyond > 0 ? beyond : 0) >> shift);
    return (int32_t)(cell < last ? cell : last);
}

static inline int32_t cell_of(const Cells *own, double x) {
    if (own->is_even)
        return even_cell(x, own->low, own->scale, (double)own->last);
    return cell_by_bits(x, own->low, own->key, own->shift, own->last);
}

static inline void put_beside(SideBySide *all, int k, const Cells *own) {
    all->low[k] = own->low, all->scale[k] = own->scale, all->last[k] = (double)own->last;
    all->key[k] = own->key, all->shift[k] = own->shift, all->last_by_bits[k] = own->last;
    all->is_even[k] = own->is_even;
}

/* cells[i] of n numbers `stride` bytes apart; that of NaN is one past the last. */
#define CELLS_OF_COLUMN(real) \
    ON_WIDE_REGISTERS \
    static void cells_of_column_##real( \
        const real *source, Py_ssize_t stride, Py_ssize_t n, const Cells *given, int32_t *cells \
    ) { \
        const Cells own = *given; \
        const double last = (double)own.last; \
        const int32_t of_nan = (int32_t)own.last + 1; \
        const char *place = (const char *)source; \
        if (own.is_even && stride == sizeof(real)) { \
            INDEPENDENT for (Py_ssize_t i = 0; i < n; i++) { \
                const double x = source[i]; \
                const int32_t cell = even_cell(x, own.low, own.scale, last); \
                cells[i] = x == x ? cell : of_nan; \
            } \
        } else if (own.is_even) { \
            for (Py_ssize_t i = 0; i < n; i++, place += stride) { \
                const double x = *(const real *)place; \
                const int32_t cell = even_cell(x, own.low, own.scale, last); \
                cells[i] = x == x ? cell : of_nan; \
            } \
        } else { \
            for (Py_ssize_t i = 0; i < n; i++, place += stride) { \
                const double x = *(const real *)place; \
                const int32_t cell = cell_by_bits(x, own.low, own.key, own.shift, own.last); \
                cells[i] = x == x ? cell : of_nan; \
            } \
        } \
    }

/* cells[LANES * i + k] of n rows of LANES neighbouring columns; rows `ahead` further on are fetched meanwhile. */
#define CELLS_OF_ROWS(real) \
    ON_WIDE_REGISTERS \
    static void cells_of_rows_##real( \
        const real *source, Py_ssize_t stride, Py_ssize_t n, Py_ssize_t ahead, const SideBySide *given, \
        int32_t *cells \
    ) { \
        const SideBySide own = *given; \
        int64_t all_even = 1; \
        for (int k = 0; k < LANES; k++) \
            all_even &= own.is_even[k]; \
        for (Py_ssize_t i = 0; i < n; i++) { \
            const real *row = (const real *)((const char *)source + i * stride); \
            int32_t *out = cells + LANES * i; \
            FETCH((const char *)row + ahead * stride); \
            ON_ONE_REGISTER for (int k = 0; k < LANES; k++) { \
                const double x = row[k]; \
                const int32_t cell = even_cell(x, own.low[k], own.scale[k], own.last[k]); \
                out[k] = x == x ? cell : (int32_t)own.last[k] + 1; \
            } \
        } \
        for (Py_ssize_t i = 0; i < (all_even ? 0 : n); i++) { \
            const real *row = (const real *)((const char *)source + i * stride); \
            int32_t *out = cells + LANES * i; \
            ON_ONE_REGISTER for (int k = 0; k < LANES; k++) { \
                const double x = row[k]; \
                const int32_t cell = cell_by_bits(x, own.low[k], own.key[k], own.shift[k], own.last_by_bits[k]); \
                out[k] = own.is_even[k] | (x != x) ? out[k] : cell; \
            } \
        } \
    }

/* codes[i] = below[cell] and the edges of the cell below x, of which a search by halving finds up to 2 * top - 1. */
#define CODES_OF_CELLS(real, code) \
    static void codes_of_cells_##real##_##code( \
        const real *source, Py_ssize_t stride, Py_ssize_t n, const int32_t *cells, Py_ssize_t step, \
        const code *below, const double *edges, Py_ssize_t top, code *codes \
    ) { \
        const char *place = (const char *)source; \
        if (top == 1) { \
            for (Py_ssize_t i = 0; i < n; i++, place += stride) { \
                const double x = *(const real *)place; \
                const Py_ssize_t known = below[cells[i * step]]; \
                codes[i] = (code)(known + (edges[known] < x)); \
            } \
        } else if (top == 2) { \
            for (Py_ssize_t i = 0; i < n; i++, place += stride) { \
                const double x = *(const real *)place; \
                Py_ssize_t known = below[cells[i * step]]; \
                known += 2 * (edges[known + 1] < x); \
                codes[i] = (code)(known + (edges[known] < x)); \
            } \
        } else { \
            for (Py_ssize_t i = 0; i < n; i++, place += stride) { \
                const double x = *(const real *)place; \
                Py_ssize_t known = below[cells[i * step]]; \
                for (Py_ssize_t half = top; half > 0; half >>= 1) \
                    known += half * (edges[known + half - 1] < x); \
                codes[i] = (code)known; \
            } \
        } \
    }

CELLS_OF_COLUMN(float)
CELLS_OF_COLUMN(double)
CELLS_OF_ROWS(float)
CELLS_OF_ROWS(double)
CODES_OF_CELLS(float, uint8_t)
CODES_OF_CELLS(float, uint16_t)
CODES_OF_CELLS(double, uint8_t)
CODES_OF_CELLS(double, uint16_t)
