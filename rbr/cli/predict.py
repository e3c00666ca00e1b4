"""`rbr predict`: scores of rows, written block by block, so that memory does not grow with the file."""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import rbr
from rbr._text import free_name
from rbr.cli.console import Console, UsageError
from rbr.cli.outputs import STDOUT, Labels, check_table, table_writer
from rbr.cli.scoring import add_scoring_arguments, open_rows
from rbr.model import AdditiveModel
from rbr.model.frames import labels_of
from rbr.model.unseen import Tally, tally_for

TYPES = ("default", "probability", "class", "raw")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.json")
    parser.add_argument("data", metavar="DATA", help="CSV, perhaps compressed, or Parquet; - is stdin")
    parser.add_argument(
        "--out", "-o", metavar="SCORES.csv", default=STDOUT, help="CSV, .csv.gz or .parquet; default: -, stdout"
    )
    parser.add_argument(
        "--type",
        choices=TYPES,
        default="default",
        help="default: predictions, for classes also probabilities; probability: of every class; class: the likeliest; "
        "raw: scores before the link",
    )
    add_scoring_arguments(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    check_table(arguments.out, "--out")
    if console.as_json and arguments.out == STDOUT:
        raise UsageError("--json prints on stdout, so --out must name a file")
    model = rbr.load(arguments.model)
    rows = open_rows(model, arguments, console)
    names = output_names(rows.model, arguments.type, rows.ids)
    tally = Tally()
    n_rows, start = 0, time.perf_counter()
    with (
        table_writer(arguments.out, [*rows.ids, *names]) as writer,
        console.progress(f"scoring {rows.source.title}") as status,
    ):

        def score(block: Any, offsets: np.ndarray | None) -> tuple[int, tuple[int, Tally | None, Any]]:
            own = tally_for(arguments.on_unseen)
            scores = rows.model._scores(block, 1, own)
            if offsets is not None:
                scores += offsets[:, None]
            columns = {name: block.texts[name] for name in rows.ids}
            columns |= dict(zip(names, outputs(rows.model, scores, arguments.type), strict=True))
            return len(scores), (len(scores), own, writer.encode(columns))

        for n_own, own, encoded in rows.map(score, arguments.n_jobs):
            if own is not None:
                if arguments.on_unseen == "raise":
                    own.settle("raise")
                tally.add(own)
            writer.write(encoded)
            n_rows += n_own
            status.show(f"{n_rows:,} rows")
    seconds = time.perf_counter() - start
    tally.settle(arguments.on_unseen)
    if arguments.out != STDOUT:
        console.say(f"{arguments.out}: {n_rows:,} rows in {seconds:.1f} s, {', '.join([*rows.ids, *names])}")
    console.finish(
        {
            "out": arguments.out,
            "rows": n_rows,
            "columns": [*rows.ids, *names],
            "seconds": seconds,
            "unseen": [
                {"term": own.term, "unseen": own.n_unseen, "missing": own.n_missing, "levels": list(own.levels)}
                for own in tally.counts
                if own.n_unseen or own.n_missing
            ],
        }
    )
    return 0


def output_names(model: AdditiveModel, kind: str, taken: tuple[str, ...]) -> list[str]:
    """The names of the columns that are added, other than those that are carried over."""
    if kind in ("probability", "class") and model.classes is None:
        raise UsageError(f"--type is {kind!r}, and the model predicts numbers; it must be default or raw")
    labels = [str(label) for label in labels_of(model)]
    if kind == "raw":
        names = ["score"] if model.n_outputs == 1 else [f"score_{label}" for label in labels]
    elif kind == "probability":
        names = [f"probability_{label}" for label in labels]
    elif kind == "class" or model.classes is None:
        names = ["prediction"]
    else:
        # Of two classes the second says all.
        names = ["prediction", *(f"probability_{label}" for label in (labels[1:] if len(labels) == 2 else labels))]
    return [free_name(name, taken) for name in names]


def outputs(model: AdditiveModel, scores: np.ndarray, kind: str) -> list[Any]:
    """The columns of `output_names` from the raw scores, of shape (n_rows, n_outputs)."""
    flat = scores[:, 0] if model.n_outputs == 1 else scores
    if kind == "raw":
        return list(np.ascontiguousarray(scores.T))
    if model.classes is None:
        return [model.loss.inverse_link(flat)]
    if kind == "class":
        return [_labels(model, flat)]
    if kind == "default" and flat.ndim == 1:
        return [_labels(model, flat), model.loss.inverse_link(flat)]
    probabilities = np.ascontiguousarray(model._probabilities_of(flat).T)
    return list(probabilities) if kind == "probability" else [_labels(model, flat), *probabilities]


def _labels(model: AdditiveModel, scores: np.ndarray) -> Labels:
    return Labels(model._likeliest(scores), model.classes_)
