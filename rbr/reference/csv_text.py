"""Text tables: the places of the fields of CSV, the numbers in them, and texts as CSV writes them.

CSV is read by the rules of Python's module csv: a field that begins with a quote goes on to the next single quote, two
quotes in a row there are one, and what follows belongs to the field up to the next separator; elsewhere a quote is a
character like others. A line without any character is no row.
"""

import re

import numpy as np

NUMBER_WIDTH = 24  # repr of a double is not longer

_QUOTE, _ENDS = ord('"'), b"\r\n"
_PLAIN = r"[ \t]*[+-]?(\d+{point}?\d*|{point}\d+)([eE][+-]?\d+)?[ \t]*"


def rows_of(data, separator):
    """(fields, end) of each row, where a field is its (start, end), and `end` that of the row with its end of line.

    `end` is None for a last row without an end of line.
    """
    fields, begin, i = [], 0, 0
    while i < len(data):
        if i == begin and data[i] == _QUOTE:
            i = _end_of_quotes(data, i + 1)
            continue
        if data[i] == separator:
            fields.append(field(data, begin, i))
            begin = i + 1
        elif data[i] in _ENDS:
            if fields or i > begin:
                yield [*fields, field(data, begin, i)], i + 1
            fields, begin = [], i + 1
        i += 1
    if fields or begin < len(data):
        yield [*fields, field(data, begin, len(data))], None


def _end_of_quotes(data, i):
    """Where a text in quotes ends that starts at i: after its quote."""
    while i < len(data):
        if data[i] == _QUOTE:
            if data[i + 1 : i + 2] != b'"':
                return i + 1
            i += 1
        i += 1
    return i


def field(data, begin, end):
    """The place of a text within its quotes, if these are all the quotes that it has."""
    text = data[begin:end]
    is_plainly_quoted = len(text) > 1 and text[:1] == text[-1:] == b'"' and text.count(b'"') == 2
    return begin + is_plainly_quoted, end - is_plainly_quoted


def number_of(text, point):
    """The number that a text says, NaN if it is empty, None if it is no plain number."""
    if not text:
        return np.nan
    if not re.fullmatch(_PLAIN.format(point=re.escape(chr(point))).encode(), text):
        return None
    return float(text.replace(bytes([point]), b"."))


def in_csv(text):
    """A text as a field of CSV, in quotes if it needs them."""
    needs_quotes = any(character in text for character in (b",", b'"', b"\r", b"\n"))
    return b'"' + text.replace(b'"', b'""') + b'"' if needs_quotes else text
