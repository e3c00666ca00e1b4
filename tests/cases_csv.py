"""Cases for the kernels of text tables: awkward CSV, numbers near the middle of two doubles, texts that need quotes."""

from __future__ import annotations

import numpy as np
from helpers import Case, assert_same_bits
from hypothesis import strategies as st

SEPARATOR, POINT = ord(","), ord(".")

# Every mark of CSV is frequent; blocks of 64 bytes are longer than most fields.
CSV = st.one_of(
    st.text(alphabet='a"",,\n\n\r;é ', max_size=80),
    st.lists(
        st.sampled_from(["", "1.5", '"a ""b"""', '"x,\ny"', 'a"b', '"a"b,"', "é" * 40, ",", "\n", "\r\n", "\n\n"]),
        max_size=60,
    ).map("".join),
).map(str.encode)


def same(actual, expected):
    for one, other in zip(actual, expected, strict=True):
        assert_same_bits(one, other)


def bytes_of(text):
    data = np.frombuffer(text, np.uint8)
    data.flags.writeable = False
    return data


def placed(texts):
    """(data, starts, ends) of some texts with something between them."""
    ends = np.cumsum([len(text) + 1 for text in texts], dtype=np.int32) - 1
    return bytes_of(b"|".join([*texts, b""])), ends - [len(text) for text in texts] if texts else ends, ends


def int32(array):
    return np.asarray(array, dtype=np.int32)


@st.composite
def place_cases(draw):
    data = bytes_of(draw(CSV))
    n_columns = draw(st.integers(1, 4))
    needed = draw(st.permutations(range(n_columns)))[: draw(st.integers(0, n_columns))]
    slots = np.full(n_columns, -1, dtype=np.int32)
    slots[needed] = np.arange(len(needed))
    n_rows = draw(st.integers(0, 8))
    places = np.full((len(needed), n_rows), -1, dtype=np.int32)
    args = [data, draw(st.sampled_from([SEPARATOR, ord(";")])), slots]
    return Case(args, [places, places, np.full(n_rows, -1, dtype=np.int32)], n_rows, same)


@st.composite
def row_end_cases(draw):
    return Case([bytes_of(draw(CSV)), SEPARATOR], [np.array([-1])], 1, same)


@st.composite
def line_end_cases(draw):
    return Case([bytes_of(draw(CSV) * draw(st.sampled_from([1, 10])))], [np.array([-1])], 1, same)


def middle_of(x):
    """Digits of the middle between a double and the next one: all of them, or cut."""
    from fractions import Fraction

    middle = (Fraction(x) + Fraction(float(np.nextafter(x, np.inf)))) / 2
    n_digits = middle.denominator.bit_length() - 1
    return f"{middle.numerator * 5**n_digits}e-{n_digits}"


POSITIVE = st.floats(min_value=0, max_value=1e300, exclude_min=True)
NUMBERS = st.one_of(
    st.from_regex(r"-?[0-9]{0,8}\.?[0-9]{0,3}", fullmatch=True),
    st.text(alphabet="0123456789.-,:/e", max_size=9),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"[ \t]{0,2}[+-]?[0-9]{0,22}\.?[0-9]{0,22}([eE][+-]?[0-9]{0,4})?[ \t]?", fullmatch=True),
    st.tuples(POSITIVE.map(middle_of), st.integers(1, 800)).map(lambda p: cut_digits(*p)),
    st.sampled_from(
        ["", " ", "-", ".", "1e", "1e+", "NA", "nan", "1_0", "1.2.3", "0x1p3", "9007199254740993", "2e-324"]
    ),
)


def cut_digits(text, n):
    digits, exponent = text.split("e")
    dropped = max(0, len(digits) - n)
    return f"{digits[: len(digits) - dropped]}e{int(exponent) + dropped}"


@st.composite
def number_cases(draw):
    n_columns, n_rows = draw(st.integers(1, 3)), draw(st.integers(0, 8))
    n = n_columns * n_rows
    data, starts, ends = placed([text.encode() for text in draw(st.lists(NUMBERS, min_size=n, max_size=n))])
    shape = n_columns, n_rows
    args = [data, int32(starts).reshape(shape), int32(ends).reshape(shape), draw(st.sampled_from([POINT, ord(",")]))]
    return Case(args, [np.zeros(shape), np.full(shape, 7, dtype=np.uint8)], n_rows, same)


@st.composite
def level_cases(draw):
    n_columns, n_rows = draw(st.integers(0, 3)), draw(st.integers(0, 30))
    texts = st.one_of(
        st.sampled_from([b"", b"a", b"b", b"ab", b"\0", b"12345678", b"123456789"]), st.binary(max_size=20)
    )
    data, starts, ends = placed(draw(st.lists(texts, min_size=n_columns * n_rows, max_size=n_columns * n_rows)))
    shape = n_columns, n_rows
    places = [int32(own).reshape(shape) for own in (starts, ends)]
    outs = [np.full(shape, -1), np.full(shape, -1), np.full(n_columns, -1)]
    return Case([data, *places], outs, n_columns, same)


@st.composite
def write_cases(draw):
    values = np.array(draw(st.lists(st.one_of(st.floats(), st.integers(-(10**17), 10**17).map(float)), max_size=20)))
    return Case([values], [np.zeros((len(values), 24), np.uint8), np.zeros(len(values), np.int32)], len(values), same)


@st.composite
def texts_cases(draw):
    """Texts, whether none needs quotes, and their places."""
    is_plain = draw(st.booleans())
    texts = draw(st.lists(st.text(alphabet="abé" if is_plain else 'ab,"\n\ré').map(str.encode), max_size=20))
    return texts, *placed(texts), is_plain


@st.composite
def size_cases(draw):
    _, data, starts, ends, is_plain = draw(texts_cases())
    return Case([data, int32(starts), int32(ends), is_plain], [np.arange(len(ends))], len(ends), same)


@st.composite
def put_cases(draw):
    texts, data, starts, ends, is_plain = draw(texts_cases())
    room = np.array([2 * len(text) + 4 for text in texts], dtype=np.int64)
    outs = [np.cumsum(room) - room, np.zeros(room.sum() + 1, dtype=np.uint8)]
    args = [data, int32(starts), int32(ends), is_plain, draw(st.sampled_from([SEPARATOR, ord("\n")]))]
    return Case(args, outs, len(ends), same)


CASES = {
    "count_line_ends": line_end_cases(),
    "place_fields": place_cases(),
    "last_row_end": row_end_cases(),
    "numbers_at": number_cases(),
    "levels_at": level_cases(),
    "write_numbers": write_cases(),
    "add_field_sizes": size_cases(),
    "put_fields": put_cases(),
}
