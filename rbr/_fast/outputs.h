/* Look-ups and sums by bin for several outputs at a time: WIDTH of them lie side by side, in the rows and in the tables,
   so that a code is read once for all of them, and the compiler works on all of them at once (wide.h). */
#include <stdint.h>

#include "wide.h"

/* The numbers of a row, or of an entry of a table, as one value where the compiler knows such values. */
#if defined(__GNUC__)
typedef double side_4 __attribute__((vector_size(32), aligned(8)));
typedef double side_8 __attribute__((vector_size(64), aligned(8)));
#define AT(WIDTH, start, i) (((side_##WIDTH *)(start))[(Py_ssize_t)(i)])
#define ADD(WIDTH, to, ti, from, fi) (AT(WIDTH, to, ti) += AT(WIDTH, from, fi))
#define ADD_4(WIDTH, to, i, t, c0, c1, c2, c3) \
    (AT(WIDTH, to, i) += (AT(WIDTH, t[0], c0) + AT(WIDTH, t[1], c1)) + (AT(WIDTH, t[2], c2) + AT(WIDTH, t[3], c3)))
#else
#define AT(WIDTH, start, i) ((start) + WIDTH * (Py_ssize_t)(i))
#define ADD(WIDTH, to, ti, from, fi) \
    for (int k = 0; k < WIDTH; k++) \
        AT(WIDTH, to, ti)[k] += AT(WIDTH, from, fi)[k]
#define ADD_4(WIDTH, to, i, t, c0, c1, c2, c3) \
    for (int k = 0; k < WIDTH; k++) \
        AT(WIDTH, to, i)[k] += (AT(WIDTH, t[0], c0)[k] + AT(WIDTH, t[1], c1)[k]) \
            + (AT(WIDTH, t[2], c2)[k] + AT(WIDTH, t[3], c3)[k])
#endif

/* rows[i] += tables[s][code of column s in row i], for four columns together, and for one. */
#define LOOK_UPS(WIDTH, code_t) \
    ON_WIDE_REGISTERS \
    static void look_up_4_##WIDTH##_##code_t( \
        const code_t *const *columns, const double *const *tables, double *rows, Py_ssize_t n \
    ) { \
        const code_t *c0 = columns[0], *c1 = columns[1], *c2 = columns[2], *c3 = columns[3]; \
        const double *const t[4] = {tables[0], tables[1], tables[2], tables[3]}; \
        for (Py_ssize_t i = 0; i < n; i++) { \
            ADD_4(WIDTH, rows, i, t, c0[i], c1[i], c2[i], c3[i]); \
        } \
    } \
    ON_WIDE_REGISTERS \
    static void look_up_1_##WIDTH##_##code_t( \
        const code_t *column, const double *table, double *rows, Py_ssize_t n \
    ) { \
        for (Py_ssize_t i = 0; i < n; i++) { \
            ADD(WIDTH, rows, i, table, column[i]); \
        } \
    }

/* sums[s][code of column s in row i] += rows[i], likewise. Of four updates only one waits when row after row has the
   same code. */
#define SUMS_BY_BIN(WIDTH, code_t) \
    ON_WIDE_REGISTERS \
    static void sum_by_bin_1_##WIDTH##_##code_t( \
        const code_t *column, const double *rows, double *sums, Py_ssize_t n \
    ) { \
        for (Py_ssize_t i = 0; i < n; i++) { \
            ADD(WIDTH, sums, column[i], rows, i); \
        } \
    } \
    ON_WIDE_REGISTERS \
    static void sum_by_bin_4_##WIDTH##_##code_t( \
        const code_t *const *columns, const double *rows, double *const *sums, Py_ssize_t n \
    ) { \
        const code_t *c0 = columns[0], *c1 = columns[1], *c2 = columns[2], *c3 = columns[3]; \
        double *s0 = sums[0], *s1 = sums[1], *s2 = sums[2], *s3 = sums[3]; \
        for (Py_ssize_t i = 0; i < n; i++) { \
            ADD(WIDTH, s0, c0[i], rows, i); \
            ADD(WIDTH, s1, c1[i], rows, i); \
            ADD(WIDTH, s2, c2[i], rows, i); \
            ADD(WIDTH, s3, c3[i], rows, i); \
        } \
    }

#define OF_WIDTH(WIDTH) \
    LOOK_UPS(WIDTH, uint8_t) LOOK_UPS(WIDTH, uint16_t) SUMS_BY_BIN(WIDTH, uint8_t) SUMS_BY_BIN(WIDTH, uint16_t)
OF_WIDTH(4)
OF_WIDTH(8)

/* By the number of bytes of a code, 1 or 2, and the width, 4 or 8. */
#define CHOOSE(name, code_bytes, width, columns, other, rows, n) \
    do { \
        if (code_bytes == 1 && width == 4) \
            name##_4_uint8_t((const void *)(columns), other, rows, n); \
        else if (code_bytes == 1) \
            name##_8_uint8_t((const void *)(columns), other, rows, n); \
        else if (width == 4) \
            name##_4_uint16_t((const void *)(columns), other, rows, n); \
        else \
            name##_8_uint16_t((const void *)(columns), other, rows, n); \
    } while (0)

static void look_up_rows(
    int code_bytes, int width, int n_together, const void *const *columns, const double *const *tables, double *rows,
    Py_ssize_t n
) {
    if (n_together == 4)
        CHOOSE(look_up_4, code_bytes, width, columns, tables, rows, n);
    else
        for (int s = 0; s < n_together; s++)
            CHOOSE(look_up_1, code_bytes, width, columns[s], tables[s], rows, n);
}

static void sum_rows_by_bin(
    int code_bytes, int width, int n_together, const void *const *columns, const double *rows, double *const *sums,
    Py_ssize_t n
) {
    if (n_together == 4)
        CHOOSE(sum_by_bin_4, code_bytes, width, columns, rows, sums, n);
    else
        for (int s = 0; s < n_together; s++)
            CHOOSE(sum_by_bin_1, code_bytes, width, columns[s], rows, sums[s], n);
}
