"""Rows of a file through a model, block by block: what `rbr predict`, `rbr explain` and `rbr compare` share."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rbr._parallel import resolve_n_jobs
from rbr.cli.blocks import BadRow, Block, Wanted
from rbr.cli.console import Console, Refusal
from rbr.cli.options import listed
from rbr.cli.tables import Source, add_format_arguments, open_source
from rbr.cli.training import log_of_exposure
from rbr.model import AdditiveModel
from rbr.model.pairs import PairTerm
from rbr.model.unseen import ON_UNSEEN


def add_scoring_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of rows that a model scores."""
    parser.add_argument(
        "--id", metavar="COLUMNS", action="append", default=[], help="columns to carry over as they are"
    )
    parser.add_argument("--exposure", metavar="COLUMN", help="default: that of the fit, if the data have it")
    parser.add_argument("--offset", metavar="COLUMN", help="default: that of the fit, if the data have it")
    parser.add_argument("--no-offset", action="store_true", help="use neither; rates are then per unit of exposure")
    parser.add_argument(
        "--on-unseen",
        choices=ON_UNSEEN,
        default="warn",
        help="what to do about categories that training did not have; default: %(default)s",
    )
    parser.add_argument("--n-jobs", metavar="N", type=int, help="threads; default: one per core")
    add_format_arguments(parser)


@dataclass(frozen=True)
class Rows:
    """Rows that a model can score.

    Attributes
    ----------
    source : Source
    model : AdditiveModel, with the names of the table's columns
    numbers, categories : the columns that it uses
    ids : the columns to carry over
    exposure, offset : columns, or None
    """

    source: Source
    model: AdditiveModel
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    ids: tuple[str, ...]
    exposure: str | None
    offset: str | None

    def blocks(self, n_jobs: int | None = None) -> Iterator[tuple[Block, np.ndarray | None]]:
        """(block, its offsets), in order."""
        yield from self.map(lambda block, offsets: (len(block), (block, offsets)), n_jobs)

    def map(
        self, function: Callable[[Block, np.ndarray | None], tuple[int, Any]], n_jobs: int | None = None
    ) -> Iterator[Any]:
        """What a function makes of each block and its offsets, in order; threads work on several blocks side by side.

        The function returns the number of rows beside its result.
        """
        beside = tuple(name for name in (self.exposure, self.offset) if name is not None)
        wanted = Wanted(tuple(dict.fromkeys((*self.numbers, *beside))), self.categories, self.ids)

        def work(chunk: Any) -> tuple[int, Any]:
            block = self.source.block(chunk, wanted)
            return function(block, self._offsets(block))

        n_rows = 0
        results = in_order(work, self.source.chunks(wanted), resolve_n_jobs(-1 if n_jobs is None else n_jobs))
        try:
            for n_own, result in results:
                yield result
                n_rows += n_own
        except BadRow as error:
            raise error.after(n_rows) from error
        finally:
            results.close()

    def _offsets(self, block: Block) -> np.ndarray | None:
        name = self.exposure or self.offset
        if name is None:
            return None
        values = block.values[name]
        if np.isnan(values).any():
            raise Refusal(f"column {name!r} of {self.source.title} has missing values; it must be complete")
        return log_of_exposure(values, name) if self.exposure is not None else values


def in_order(function: Callable[[Any], Any], items: Iterable[Any], n_threads: int) -> Generator[Any, None, None]:
    """The function of each item, in their order, computed by threads; few items are under way at a time.

    >>> list(in_order(abs, [-3, 2, -1], n_threads=2))
    [3, 2, 1]
    """
    if n_threads == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(n_threads)
    waiting: deque[Any] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > n_threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def open_rows(model: AdditiveModel, arguments: argparse.Namespace, console: Console) -> Rows:
    """The rows of DATA, which must have the columns that the model uses."""
    known = model.metadata.get("fit")
    known = known if isinstance(known, dict) else {}
    arguments.missing = [*map(str, known.get("missing", [])), *arguments.missing]
    source = open_source(arguments.data, arguments)
    model = _with_names(model, source)
    names = model.feature_names_in_ or ()
    sides = [side for term in model.terms for side in _sides(term)]
    kinds = {names[column]: kind for column, kind in sides}
    source.require(list(kinds), "which the model uses")
    exposure, offset = arguments.exposure, arguments.offset
    if exposure is not None and offset is not None:
        raise Refusal("--exposure and --offset are both given; an exposure is an offset, its logarithm")
    if exposure is None and offset is None and not arguments.no_offset:
        exposure, offset = (_of_fit(known.get(word), word, source, console) for word in ("exposure", "offset"))
    source.require([name for name in (exposure, offset) if name is not None], "which is asked for")
    return Rows(
        source,
        model,
        tuple(name for name, kind in kinds.items() if kind == "numeric"),
        tuple(name for name, kind in kinds.items() if kind == "category"),
        tuple(listed(arguments.id, source.names, "--id")),
        exposure,
        offset,
    )


def _sides(term: Any) -> Sequence[tuple[int, str]]:
    """(column, kind) of each column that a term uses."""
    kinds = [axis.kind for axis in term.axes] if isinstance(term, PairTerm) else [term.kind]
    return list(zip(term.columns, kinds, strict=True))


def _with_names(model: AdditiveModel, source: Source) -> AdditiveModel:
    """A model that was fitted to an array finds its columns by their places."""
    if model.feature_names_in_ is not None:
        return model
    if len(source.names) != model.n_features_in_:
        raise Refusal(
            f"{source.title} has {len(source.names)} columns; the model was fitted to {model.n_features_in_} columns "
            f"without names, so there must be as many, in that order"
        )
    return replace(model, feature_names_in_=source.names)


def _of_fit(name: Any, word: str, source: Source, console: Console) -> str | None:
    """The column of the fit's exposure or offset, if the data have it."""
    if not isinstance(name, str):
        return None
    if name not in source.names:
        console.note(
            f"The model was fitted with the {word} {name!r}, which {source.title} does not have: it counts as "
            f"{1 if word == 'exposure' else 0}."
        )
        return None
    console.note(f"{word}: {name}, as in the fit")
    return name
