"""`rbr explain`: why rows have their predictions, in words, or what every term adds to every row."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

import rbr
from rbr._arguments import whole_number
from rbr._text import free_name, one_line
from rbr.cli.console import Console, Refusal, UsageError
from rbr.cli.outputs import STDOUT, check_table, table_writer
from rbr.cli.scoring import Rows, add_scoring_arguments, open_rows
from rbr.data.tables import few
from rbr.model import AdditiveModel
from rbr.model.frames import labels_of

FIRST_ROWS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.json")
    parser.add_argument("data", metavar="DATA", nargs="?", help="CSV, perhaps compressed, or Parquet; - is stdin")
    parser.add_argument(
        "--rows", metavar="NUMBERS", help=f"which rows to tell in words, such as 1,5-7; default: 1-{FIRST_ROWS}"
    )
    parser.add_argument(
        "--set",
        metavar="COLUMN=VALUE",
        action="append",
        default=[],
        help="a value of a row of your own, or another value for the rows that are told; may be repeated",
    )
    parser.add_argument(
        "--n", metavar="N", type=whole_number(1), default=5, help="reasons per row; default: %(default)s"
    )
    parser.add_argument(
        "--out", "-o", metavar="FILE.csv", help="write what every term adds to every row; - is stdout; also .parquet"
    )
    add_scoring_arguments(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    model = rbr.load(arguments.model)
    if arguments.data is None:
        if not arguments.set:
            raise UsageError("DATA or --set is needed: rows to explain, or the values of one")
        row = _typed(model, arguments.set)
        if absent := [name for name in _used(model) if name not in row]:
            raise UsageError(f"--set gives no value of {few(absent)}; --set {absent[0]}= means that it is missing")
        return _tell([("the row", row, None)], model, arguments.n, console)
    if arguments.out is not None:
        if arguments.rows is not None or arguments.set:
            raise UsageError("--out writes all rows, as they are; --rows and --set are for rows that are told in words")
        return _write(model, arguments, console)
    rows = open_rows(model, arguments, console)
    changes = _typed(rows.model, arguments.set)
    return _tell(_picked(rows, parse_rows(arguments.rows), changes), rows.model, arguments.n, console)


def parse_rows(text: str | None) -> list[int]:
    """Numbers of rows, the first of which is 1, from a list of numbers and ranges.

    >>> parse_rows("1,5-7")
    [1, 5, 6, 7]
    """
    if text is None:
        return list(range(1, FIRST_ROWS + 1))
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if (
            not first.isdecimal()
            or not (last or first).isdecimal()
            or int(first) < 1
            or int(last or first) < int(first)
        ):
            raise UsageError(f"--rows is {text!r}; it must be numbers from 1 on and ranges, such as 1,5-7")
        found += range(int(first), int(last or first) + 1)
    return found


def _used(model: AdditiveModel) -> dict[str, str]:
    """The kinds of the columns that the model uses."""
    return {own.name: own.kind for term in model.terms for own in getattr(term, "axes", (term,))}


def _typed(model: AdditiveModel, given: list[str]) -> dict[str, Any]:
    """The values of a row that was typed in; those of numeric columns are numbers."""
    used = _used(model)
    row: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in used:
            raise UsageError(f"--set is {text!r}; it must be COLUMN=VALUE, and the model uses {', '.join(used)}")
        row[name] = None if value == "" else value
        if used[name] == "numeric" and value != "":
            try:
                row[name] = float({"true": "1", "false": "0"}.get(value.lower(), value))
            except ValueError:
                raise UsageError(f"--set is {text!r}; {name} must be a number, or empty if it is missing") from None
    return row


def _picked(rows: Rows, numbers: list[int], changes: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """(title, values by name, offset) of the rows with these numbers."""
    wanted, n_seen = set(numbers), 0
    names = [*rows.numbers, *rows.categories]
    for block, offsets in rows.blocks():
        n_block = len(block)
        for number in sorted(own for own in wanted if n_seen < own <= n_seen + n_block):
            k = number - n_seen - 1
            values = {name: block.value(name, k) for name in names}
            ids = ", ".join(f"{one_line(name)} {one_line(block.text(name, k))}" for name in rows.ids)
            title = f"row {number:,}" + (f" ({ids})" if ids else "")
            yield title, values | changes, None if offsets is None else float(offsets[k])
        n_seen += n_block
        if n_seen >= max(wanted):
            return
    if beyond := [own for own in numbers if own > n_seen]:
        if n_seen == 0 or min(beyond) > FIRST_ROWS:  # the default asks for more rows than a short file has
            raise Refusal(f"--rows names row {beyond[0]:,}; {rows.source.title} has {n_seen:,} rows")


def _tell(picked: Any, model: AdditiveModel, n: int, console: Console) -> int:
    told: list[dict[str, Any]] = []
    for title, values, offset in picked:
        found = model.explain_row(values, n, offset=offset)
        console.say(f"{'' if not told else chr(10)}{title}: {found}")
        told.append(
            {
                "row": title,
                "prediction": found.prediction,
                "score": found.score,
                "intercept": found.intercept,
                "reasons": [
                    {"term": own.term, "value": own.value, "range": own.range, "effect": own.effect, "text": own.text}
                    for own in (*found.reasons, *found.unseen)
                ],
                "rest": found.rest,
            }
        )
    console.finish({"rows": told})
    return 0


def _write(model: AdditiveModel, arguments: argparse.Namespace, console: Console) -> int:
    """What each term adds to each row; the columns of a row sum to its score."""
    if console.as_json and arguments.out == STDOUT:
        raise UsageError("--json prints on stdout, so --out must name a file")
    check_table(arguments.out, "--out")
    rows = open_rows(model, arguments, console)
    model = rows.model
    has_offset = rows.exposure is not None or rows.offset is not None
    names = ["intercept", *(term.name for term in model.terms), *(["offset"] if has_offset else []), "score"]
    if model.n_outputs > 1:
        names = [f"{name}_{label}" for name in names for label in labels_of(model)]
    names = [free_name(name, rows.ids) for name in names]
    n_rows = 0
    with (
        table_writer(arguments.out, [*rows.ids, *names]) as writer,
        console.progress(f"explaining {rows.source.title}") as status,
    ):
        for block, offsets in rows.blocks(arguments.n_jobs):
            parts = model.explain(block, on_unseen=arguments.on_unseen)
            parts = parts.reshape(len(parts), len(model.terms), model.n_outputs)
            n_block = len(parts)
            first = np.broadcast_to(np.reshape(model.intercept, (1, 1, -1)), (n_block, 1, model.n_outputs))
            added = [first, parts]
            if offsets is not None:
                added.append(np.broadcast_to(offsets[:, None, None], first.shape))
            flat = np.concatenate([*added, sum(own.sum(axis=1, keepdims=True) for own in added)], axis=1)
            flat = flat.reshape(n_block, -1)
            columns = {name: block.texts[name] for name in rows.ids}
            columns |= dict(zip(names, np.ascontiguousarray(flat.T), strict=True))
            writer.write(writer.encode(columns))
            n_rows += n_block
            status.show(f"{n_rows:,} rows")
    if arguments.out != STDOUT:
        console.say(f"{arguments.out}: what {len(model.terms)} terms add to {n_rows:,} rows")
    console.finish({"out": arguments.out, "rows": n_rows, "columns": [*rows.ids, *names]})
    return 0
