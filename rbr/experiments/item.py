"""What an item of the experiments is: something to measure, something to conclude, something to draw.

An item is a module with three functions, and one line in rbr.experiments.items.ITEMS:

    measure(setting) -> dict                the numbers: all that the other two need, as JSON can hold it
    judge(numbers) -> list of Claim         what the paper says, what the numbers say, and whether they agree
    draw(numbers, figure) -> None           the picture, onto an empty matplotlib figure

Only `measure` takes time, so its numbers are kept and the other two are run again from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

Verdict = Literal["yes", "no", "partly", "not run"]


class NotRun(Exception):
    """Raised by `measure` when an item cannot be measured here, with the reason: data that are not there, say."""


@dataclass(frozen=True)
class Claim:
    """One row of RESULTS.md: what the paper says, what was measured, and whether it holds.

    `notes` become footnotes: peers that were not installed, how columns were read.
    """

    paper: str
    measured: str
    holds: Verdict
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """What `measure` may know of the run: its size, its seed, its data, and how to share out its work."""

    quick: bool = False
    seed: int = 0
    jobs: int = 1
    data: Path | None = None
    progress: Callable[[int, int], None] = field(default=lambda done, total: None, repr=False)

    def pick(self, full: Any, quick: Any) -> Any:
        """The size of a full run or of a quick one."""
        return quick if self.quick else full

    def rng(self, *key: int) -> np.random.Generator:
        """A stream of random numbers of its own for every key, the same whatever runs beside it."""
        return np.random.default_rng([self.seed, *key])

    def map(self, function: Callable, tasks: Iterable[tuple]) -> list:
        """[function(*task) for task in tasks], on `jobs` processes, in order, with progress reported."""
        tasks = list(tasks)
        if self.jobs == 1:
            found = (function(*task) for task in tasks)
        else:
            from joblib import Parallel, delayed

            found = Parallel(n_jobs=self.jobs, return_as="generator")(delayed(function)(*task) for task in tasks)
        results = []
        for result in found:
            results.append(result)
            self.progress(len(results), len(tasks))
        return results


@dataclass(frozen=True)
class Item:
    """An entry of the list: its number in the list, the stem of its files, a title, and the module that knows it.

    `guess` is about how many seconds one process needs for a full run of it: the first estimate of the time left.
    """

    number: int
    name: str
    title: str
    guess: float = 60.0

    @property
    def module(self) -> ModuleType:
        return import_module(f"rbr.experiments.{self.name}")

    @property
    def stem(self) -> str:
        return f"{self.number:02d}-{self.name.replace('_', '-')}"
