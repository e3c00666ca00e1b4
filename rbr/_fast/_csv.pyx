"""Text tables, compiled: where the fields of CSV lie, the numbers and categories in them, and rows written as CSV.

Fields are found once, by place, and read column by column, so that columns that nobody needs cost next to nothing and
each loop meets one kind of value. A number is the double nearest to what is written, as Python's float() gives it, and
is written with the fewest digits that give it back, as repr() does.
"""

import numpy as np

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

cdef extern from "csv.h":
    ctypedef struct Places:
        const uint8_t *data
        const int32_t *slots
        int32_t *starts
        int32_t *ends
        int32_t *n_fields
        Py_ssize_t n_columns
        Py_ssize_t stride
        Py_ssize_t first
        Py_ssize_t last
    Py_ssize_t _place_fields "place_fields"(
        const Places *own, Py_ssize_t n_bytes, uint8_t separator
    ) noexcept nogil
    Py_ssize_t n_line_ends(const uint8_t *data, Py_ssize_t n) noexcept nogil
    int number_of_text(const uint8_t *p, const uint8_t *end, uint8_t point, double *out) noexcept nogil
    int number_of_8_bytes(
        const uint8_t *p, int n, uint8_t point, int is_negative, double *out
    ) noexcept nogil
    int text_of_number(double x, uint8_t *out) noexcept nogil
    Py_ssize_t bytes_in_csv(const uint8_t *text, Py_ssize_t n) noexcept nogil
    uint8_t *write_quoted(const uint8_t *text, Py_ssize_t n, uint8_t *out) noexcept nogil
    uint64_t hash_of_text(const uint8_t *text, Py_ssize_t n) noexcept nogil
    enum:
        NOT_PLAIN
        PLAIN
        TOO_CLOSE
        FIRST_POWER
        LAST_POWER
        _NUMBER_WIDTH "NUMBER_WIDTH"
    uint64_t *POWERS

cdef enum:
    MINUS = 45
    ROWS_PER_BLOCK = 1024

# A size that rbr._sizes has too, checked by rbr._backend.
NUMBER_WIDTH = _NUMBER_WIDTH


def _fill_powers():
    cdef int q
    cdef object one = 1, whole
    for q in range(FIRST_POWER, LAST_POWER + 1):
        whole = pow(10, abs(q))
        power = (whole << 128) >> whole.bit_length() if q >= 0 else (one << (127 + whole.bit_length())) // whole
        POWERS[2 * (q - FIRST_POWER)] = power >> 64
        POWERS[2 * (q - FIRST_POWER) + 1] = power & 0xFFFFFFFFFFFFFFFF


_fill_powers()


def last_row_end(
    const uint8_t[::1] data,          # IN  CSV
    int separator,                    # IN  the byte between two fields
    int64_t[::1] out,                 # OUT (1,)
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[0] = where the last row ends that has an end of line; an end of line within quotes is none."""
    cdef Places places
    out[first:last] = 0
    if first < last and data.shape[0] > 0:
        # Without columns nothing is written, whatever the rows are.
        places.data, places.n_columns, places.first, places.last = &data[0], 0, INT64_MAX, INT64_MAX
        with nogil:
            out[0] = _place_fields(&places, data.shape[0], <uint8_t> separator)


def count_line_ends(
    const uint8_t[::1] data,          # IN  CSV
    int64_t[::1] out,                 # OUT (1,)
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[0] = how many bytes end a line, also within quotes: the rows are one more at most."""
    out[first:last] = 0
    if first < last and data.shape[0] > 0:
        with nogil:
            out[0] = n_line_ends(&data[0], data.shape[0])


def place_fields(
    const uint8_t[::1] data,          # IN  rows of CSV, at most 2 GB
    int separator,                    # IN  the byte between two fields
    const int32_t[::1] slots,         # IN  (n_columns,) the place of each column in `starts`, -1 if it is not needed
    int32_t[:, ::1] starts,           # OUT (n_needed, n_rows) where fields start; 0 where a row is too short
    int32_t[:, ::1] ends,             # OUT (n_needed, n_rows) where they end
    int32_t[::1] n_fields,            # OUT (n_rows,) the fields of each row; 0 after the last row
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Where the fields of the rows first <= i < last lie, without the quotes around them.

    Where that does not give the text, because it holds quotes or goes on after them, the field starts with its quote.
    """
    cdef Places places
    n_fields[first:last] = 0
    if first >= last or data.shape[0] == 0:
        return
    places.data, places.slots, places.n_fields = &data[0], &slots[0], &n_fields[0]
    places.starts = &starts[0, 0] if starts.shape[0] else NULL
    places.ends = &ends[0, 0] if starts.shape[0] else NULL
    places.n_columns, places.stride, places.first, places.last = slots.shape[0], starts.shape[1], first, last
    with nogil:
        _place_fields(&places, data.shape[0], <uint8_t> separator)


def numbers_at(
    const uint8_t[::1] data,          # IN  text
    const int32_t[:, ::1] starts,     # IN  (n_columns, n_rows)
    const int32_t[:, ::1] ends,       # IN  (n_columns, n_rows)
    int point,                        # IN  the decimal sign
    double[:, ::1] out,               # OUT (n_columns, n_rows), the rows first <= i < last; NaN for no text
    uint8_t[:, ::1] is_odd,           # OUT (n_columns, n_rows) whether the text is no plain number; out is NaN then
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[j, i] = float(the text there): digits with perhaps a sign, a decimal sign and an exponent, in blanks."""
    cdef Py_ssize_t i, j, stop
    cdef int outcome
    cdef const uint8_t* bytes = &data[0] if data.shape[0] else NULL
    with nogil:
        # The rows of a block stay in the cache while the columns take turns.
        while first < last:
            stop = min(first + <Py_ssize_t> ROWS_PER_BLOCK, last)
            for j in range(starts.shape[0]):
                for i in range(first, stop):
                    outcome = _number(bytes, data.shape[0], starts[j, i], ends[j, i], <uint8_t> point, &out[j, i])
                    is_odd[j, i] = outcome == NOT_PLAIN
                    if outcome == NOT_PLAIN:
                        number_of_text(bytes, bytes, <uint8_t> point, &out[j, i])
                    elif outcome == TOO_CLOSE:
                        with gil:
                            out[j, i] = _by_python(data[starts[j, i]:ends[j, i]], point)
            first = stop


cdef inline int _number(
    const uint8_t* bytes, Py_ssize_t n_bytes, Py_ssize_t start, Py_ssize_t end, uint8_t point, double* out
) noexcept nogil:
    cdef int is_negative = start < end and bytes[start] == MINUS
    cdef Py_ssize_t first_digit = start + is_negative, n = end - first_digit
    if (
        0 < n <= 8 and first_digit + 8 <= n_bytes
        and number_of_8_bytes(bytes + first_digit, <int> n, point, is_negative, out)
    ):
        return PLAIN
    return number_of_text(bytes + start, bytes + end, point, out)


def _by_python(const uint8_t[::1] text, int point):
    return float(bytes(text).replace(bytes([point]), b"."))


def levels_at(
    const uint8_t[::1] data,          # IN  text
    const int32_t[:, ::1] starts,     # IN  (n_columns, n_rows)
    const int32_t[:, ::1] ends,       # IN  (n_columns, n_rows)
    int64_t[:, ::1] codes,            # OUT (n_columns, n_rows)
    int64_t[:, ::1] first_rows,       # OUT (n_columns, n_rows) for each distinct text the first row that has it
    int64_t[::1] n_levels,            # OUT (n_columns,)
    Py_ssize_t first,
    Py_ssize_t last,
):
    """The distinct texts of the columns first <= j < last in the order of their first rows, and which one a row has."""
    cdef Py_ssize_t j, n_rows = starts.shape[1], n_places = 16
    while n_places < 2 * n_rows:
        n_places *= 2
    cdef int64_t[::1] table = np.empty(n_places, dtype=np.int64)
    cdef const uint8_t* bytes = &data[0] if data.shape[0] else NULL
    if n_rows == 0:
        n_levels[first:last] = 0
        return
    with nogil:
        for j in range(first, last):
            table[:] = -1
            n_levels[j] = _levels_of_column(
                bytes, &starts[j, 0], &ends[j, 0], n_rows, &table[0], n_places - 1, &codes[j, 0], &first_rows[j, 0]
            )


cdef int64_t _levels_of_column(
    const uint8_t* bytes,
    const int32_t* starts,
    const int32_t* ends,
    Py_ssize_t n_rows,
    int64_t* table,                   # of the levels by hash; -1 is none
    uint64_t mask,
    int64_t* codes,
    int64_t* first_rows,
) noexcept nogil:
    cdef int64_t n_levels = 0, level, known
    cdef Py_ssize_t i, n
    cdef uint64_t place
    for i in range(n_rows):
        n = ends[i] - starts[i]
        place = hash_of_text(bytes + starts[i], n) & mask
        while True:
            level = table[place]
            if level < 0:
                table[place] = level = n_levels
                first_rows[n_levels] = i
                n_levels += 1
                break
            known = first_rows[level]
            if ends[known] - starts[known] == n and memcmp(bytes + starts[known], bytes + starts[i], n) == 0:
                break
            place = (place + 1) & mask
        codes[i] = level
    return n_levels


def write_numbers(
    const double[::1] values,         # IN  (n_rows,)
    uint8_t[:, ::1] out,              # OUT (n_rows, NUMBER_WIDTH)
    int32_t[::1] n_bytes,             # OUT (n_rows,)
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[i, :n_bytes[i]] = repr(values[i])."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(first, last):
            n_bytes[i] = text_of_number(values[i], &out[i, 0])


def add_field_sizes(
    const uint8_t[::1] data,          # IN  text
    const int32_t[::1] starts,        # IN  (n_rows,)
    const int32_t[::1] ends,          # IN  (n_rows,)
    bint is_plain,                    # IN  whether no text needs quotes
    int64_t[::1] out,                 # IN/OUT (n_rows,)
    Py_ssize_t first,
    Py_ssize_t last,
):
    """out[i] += the bytes that the text of row i takes in CSV, with what follows it."""
    cdef Py_ssize_t i, n
    cdef const uint8_t* bytes = &data[0] if data.shape[0] else NULL
    with nogil:
        for i in range(first, last):
            n = ends[i] - starts[i]
            out[i] += (n if is_plain else bytes_in_csv(bytes + starts[i], n)) + 1


def put_fields(
    const uint8_t[::1] data,          # IN  text
    const int32_t[::1] starts,        # IN  (n_rows,)
    const int32_t[::1] ends,          # IN  (n_rows,)
    bint is_plain,                    # IN  whether no text needs quotes
    int follower,                     # IN  the byte that follows: a comma, or the end of the line
    int64_t[::1] places,              # IN/OUT (n_rows,) where the field of each row goes, and then where the next does
    uint8_t[::1] out,                 # OUT the bytes of the rows
    Py_ssize_t first,
    Py_ssize_t last,
):
    """Writes the text of each row as CSV, in quotes if it needs them."""
    cdef Py_ssize_t i, n
    cdef const uint8_t* bytes = &data[0] if data.shape[0] else NULL
    cdef const uint8_t* text
    cdef uint8_t* place
    with nogil:
        for i in range(first, last):
            n = ends[i] - starts[i]
            text, place = bytes + starts[i], &out[0] + places[i]
            if is_plain or bytes_in_csv(text, n) == n:
                memcpy(place, text, n)
                place += n
            else:
                place = write_quoted(text, n, place)
            place[0] = <uint8_t> follower
            places[i] = place + 1 - &out[0]
