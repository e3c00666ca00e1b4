"""An item of the experiments: what is measured, what is concluded from it, and how it is drawn.

An item is a module with three functions, and one line in rbr.experiments.items.ITEMS:

    measure(setting) -> dict                the numbers that the other two need, in a form that JSON can hold
    judge(numbers) -> list of Claim         what the paper says, what the numbers say, and whether they agree
    draw(numbers, figure) -> None           the picture, onto an empty matplotlib figure

Only `measure` takes long, so its numbers are saved and the other two can be run again from them.
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
    """Raised by `measure` with the reason why the item cannot be measured here, such as missing data."""


@dataclass(frozen=True)
class Claim:
    """One row of RESULTS.md: what the paper says, what was measured, and whether it holds.

    `notes` become footnotes, such as which peers were not installed or how columns were read.
    """

    paper: str
    measured: str
    holds: Verdict
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Setting:
    """What `measure` may know about the run: its size, seed and data, and how to distribute its work."""

    quick: bool = False
    seed: int = 0
    jobs: int = 1
    data: Path | None = None
    progress: Callable[[int, int], None] = field(default=lambda done, total: None, repr=False)

    def pick(self, full: Any, quick: Any) -> Any:
        """`full` in a full run, `quick` in a quick one."""
        return quick if self.quick else full

    def rng(self, *key: int) -> np.random.Generator:
        """A generator that depends only on the seed and the key, whatever else is run."""
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
    """An entry of the list: its number, the name of its module, and its title.

    `guess` is roughly how many seconds a full run takes in one process: the first estimate of the time left.
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
