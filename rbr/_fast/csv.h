/* The bytes of CSV: where its fields lie, found by the marks among 64 bytes at a time. */
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "decimals.h"

#define QUOTE '"'

/* Bit i: whether byte i of 64 is the separator, a quote or the end of a line. */
static inline uint64_t marks_among_64(const uint8_t *bytes, uint8_t separator) {
    uint64_t marks = 0;
    int i;
#if defined(__SSE2__)
    const __m128i a = _mm_set1_epi8((char)separator), b = _mm_set1_epi8(QUOTE), c = _mm_set1_epi8('\n'),
                  d = _mm_set1_epi8('\r');
    for (i = 0; i < 4; i++) {
        __m128i x = _mm_loadu_si128((const __m128i *)(bytes + 16 * i));
        __m128i is_mark = _mm_or_si128(
            _mm_or_si128(_mm_cmpeq_epi8(x, a), _mm_cmpeq_epi8(x, b)),
            _mm_or_si128(_mm_cmpeq_epi8(x, c), _mm_cmpeq_epi8(x, d))
        );
        marks |= (uint64_t)(uint32_t)_mm_movemask_epi8(is_mark) << (16 * i);
    }
#else
    for (i = 0; i < 64; i++) {
        uint8_t x = bytes[i];
        marks |= (uint64_t)(x == separator || x == QUOTE || x == '\n' || x == '\r') << i;
    }
#endif
    return marks;
}

#if defined(__GNUC__)
#define FIRST_BIT(x) __builtin_ctzll(x)
#else
static inline int FIRST_BIT(uint64_t x) {
    int n = 0;
    for (; !(x & 1); x >>= 1)
        n++;
    return n;
}
#endif

#define BATCH 2048 /* bytes of which the marks are listed at a time */

/* The places of the marks in start <= i < end, at most BATCH: a loop over them is foreseen better than one over bits. */
static int list_marks(const uint8_t *data, Py_ssize_t start, Py_ssize_t end, uint8_t separator, int32_t *out) {
    uint8_t rest[64];
    int n = 0;
    for (; start < end; start += 64) {
        uint64_t marks;
        if (end - start < 64) {
            memset(rest, 0, 64);
            memcpy(rest, data + start, end - start);
            marks = marks_among_64(rest, separator) & ((1ULL << (end - start)) - 1); /* the separator may be a 0 */
        } else
            marks = marks_among_64(data + start, separator);
        while (marks) { /* eight at a time, of which the last may be none */
            for (int k = 0; k < 8; k++) {
                out[n] = (int32_t)start + FIRST_BIT(marks | 1ULL << 63);
                n += marks != 0;
                marks &= marks - 1;
            }
        }
    }
    return n;
}

static Py_ssize_t n_line_ends(const uint8_t *data, Py_ssize_t n) {
    Py_ssize_t found = 0, i = 0;
    for (; i + 128 <= n; i += 128) {
        uint8_t few = 0; /* a byte holds as much, so that the compiler compares many bytes at a time */
        for (int k = 0; k < 128; k++)
            few += (data[i + k] == '\n') + (data[i + k] == '\r');
        found += few;
    }
    for (; i < n; i++)
        found += data[i] == '\n' || data[i] == '\r';
    return found;
}

/* Where the fields of some columns lie: of column j in row i at starts[slots[j] * stride + i], if slots[j] >= 0. */
typedef struct {
    const uint8_t *data;
    const int32_t *slots;
    int32_t *starts, *ends, *n_fields;
    Py_ssize_t n_columns, stride, first, last;
} Places;

static inline void put_field(
    const Places *own, Py_ssize_t row, Py_ssize_t column, Py_ssize_t start, Py_ssize_t end, int is_plainly_quoted
) {
    int32_t slot = column < own->n_columns ? own->slots[column] : -1;
    if (slot >= 0 && row >= own->first) {
        own->starts[slot * own->stride + row] = (int32_t)(start + is_plainly_quoted);
        own->ends[slot * own->stride + row] = (int32_t)(end - is_plainly_quoted);
    }
}

static inline void end_row(const Places *own, Py_ssize_t row, Py_ssize_t n_fields) {
    if (row < own->first)
        return;
    own->n_fields[row] = (int32_t)n_fields;
    for (Py_ssize_t column = n_fields; column < own->n_columns; column++) /* a row that is too short */
        put_field(own, row, column, 0, 0, 0);
}

/* Finds the fields of the rows first <= i < last, and returns where the last row ends that has an end of line. */
static Py_ssize_t place_fields(const Places *own, Py_ssize_t n_bytes, uint8_t separator) {
    const uint8_t *data = own->data;
    int32_t marks[BATCH + 8];
    Py_ssize_t row = 0, column = 0, begin = 0, closed = -1, k, start, whole = 0;
    int is_inside = 0, has_pairs = 0, m, n_marks; /* between quotes; two quotes in a row there mean one */
    for (start = 0; start < n_bytes && row < own->last; start += BATCH) {
        n_marks = list_marks(data, start, start + BATCH < n_bytes ? start + BATCH : n_bytes, separator, marks);
        for (m = 0; m < n_marks; m++) {
            k = marks[m];
            if (is_inside) {
                if (data[k] == QUOTE) {
                    is_inside = 0;
                    closed = k;
                }
            } else if (data[k] == QUOTE) {
                if (k == begin)
                    is_inside = 1;
                else if (k == closed + 1 && closed > begin)
                    is_inside = has_pairs = 1;
            } else if (data[k] == separator) {
                put_field(own, row, column++, begin, k, closed == k - 1 && closed > begin && !has_pairs);
                begin = k + 1;
                has_pairs = 0;
            } else {
                if (column || k > begin) { /* else a line without anything, which is no row */
                    put_field(own, row, column, begin, k, closed == k - 1 && closed > begin && !has_pairs);
                    end_row(own, row++, column + 1);
                    whole = k + 1;
                }
                column = has_pairs = 0;
                begin = k + 1;
                if (row == own->last)
                    return whole;
            }
        }
    }
    if (row < own->last && (column || begin < n_bytes)) {
        put_field(own, row, column, begin, n_bytes, closed == n_bytes - 1 && closed > begin && !has_pairs);
        end_row(own, row, column + 1);
    }
    return whole;
}

/* The bytes that a text takes in CSV: with quotes around it and each quote doubled, if it holds what needs them. */
static inline Py_ssize_t bytes_in_csv(const uint8_t *text, Py_ssize_t n) {
    Py_ssize_t n_quotes = 0, i;
    int needs_quotes = 0;
    for (i = 0; i < n; i++) {
        uint8_t x = text[i];
        n_quotes += x == QUOTE;
        needs_quotes |= x == QUOTE || x == ',' || x == '\n' || x == '\r';
    }
    return n + n_quotes + 2 * needs_quotes;
}

/* Writes a text in quotes, and returns where it ends. */
static inline uint8_t *write_quoted(const uint8_t *text, Py_ssize_t n, uint8_t *out) {
    *out++ = QUOTE;
    for (Py_ssize_t i = 0; i < n; i++) {
        if (text[i] == QUOTE)
            *out++ = QUOTE;
        *out++ = text[i];
    }
    *out++ = QUOTE;
    return out;
}

/* A number for a text, spread over all bits: texts that differ rarely have the same. */
static inline uint64_t hash_of_text(const uint8_t *text, Py_ssize_t n) {
    uint64_t hash = (uint64_t)n, part;
    for (; n >= 8; n -= 8, text += 8) {
        memcpy(&part, text, 8);
        hash = (hash ^ part) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 32;
    }
    for (part = 0; n > 0; n--)
        part = part << 8 | text[n - 1];
    hash = (hash ^ part) * 0x9E3779B97F4A7C15ULL;
    return hash ^ hash >> 32;
}
