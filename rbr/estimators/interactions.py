"""The pairs of an estimator: which may be used, and the fit of mains and pairs in turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rbr._checks import check_int
from rbr.estimators.inputs import Columns
from rbr.objective.protocol import Objective, Point
from rbr.solvers import Iteration, Solution
from rbr.solvers.lines import on_objective
from rbr.solvers.pairs import PairFit, PairSearch, PairSpec, grids_of

# More candidates than this are not judged: pairs are then looked for among the columns that the mains use.
MOST_CANDIDATES = 1_000_000

# The most pairs that "auto" uses, for each column.
AUTO_PAIRS_PER_COLUMN = 2

NO_PAIRS = np.empty((0, 2), dtype=np.int64)


def check_interactions(interactions: Any, interaction_cst: Any, heredity: Any, max_rectangles: Any) -> None:
    """Raise a ValueError for what cannot be right whatever the table is."""
    if not isinstance(heredity, (bool, np.bool_)):
        raise ValueError(f"heredity is {heredity!r}; it must be True or False")
    if max_rectangles is not None:
        check_int(max_rectangles, "max_rectangles", 2)
    if isinstance(interactions, str):
        if interactions != "auto":
            raise ValueError(f'interactions is {interactions!r}; it must be a number, "auto" or a list of pairs')
    elif not isinstance(interactions, Iterable):
        check_int(interactions, "interactions", 0)
    if isinstance(interaction_cst, str) and interaction_cst not in ("pairwise", "no_interactions"):
        raise ValueError(
            f'interaction_cst is {interaction_cst!r}; it must be "pairwise", "no_interactions" or a list of sets'
        )


def check_columns_of_pairs(interactions: Any, interaction_cst: Any, columns: Columns) -> None:
    """Raise a ValueError that names a pair or a column which the table does not have."""
    if isinstance(interactions, Iterable) and not isinstance(interactions, str):
        _given_pairs(interactions, columns)
    _groups(interaction_cst, columns)


def _groups(interaction_cst: Any, columns: Columns) -> list[tuple[int, ...]] | None:
    """The groups of columns that may meet; None for any."""
    if interaction_cst is None or isinstance(interaction_cst, str):
        return None
    if not isinstance(interaction_cst, Iterable) or any(
        isinstance(group, str) or not isinstance(group, Iterable) for group in interaction_cst
    ):
        raise ValueError(
            f'interaction_cst is {interaction_cst!r}; it must be "pairwise", "no_interactions" or a list of lists of '
            "column names or indices"
        )
    return [columns.indices(list(group), "interaction_cst") for group in interaction_cst]


def wants_pairs(interactions: Any, interaction_cst: Any) -> bool:
    """Whether any pair may be used."""
    if isinstance(interaction_cst, str) and interaction_cst == "no_interactions":
        return False
    return interactions == "auto" or bool(
        len(list(interactions)) if isinstance(interactions, Iterable) else interactions
    )


def pair_spec(interactions: Any, interaction_cst: Any, columns: Columns, allowed: np.ndarray) -> PairSpec:
    """Which pairs may be used.

    Parameters
    ----------
    interactions, interaction_cst
        As the estimators take them.
    columns : Columns
    allowed : bool per column
        Whether pairs may be looked for among it: not excluded, not monotone, of two bins or more.
    """
    if isinstance(interactions, Iterable) and not isinstance(interactions, str):
        return PairSpec(NO_PAIRS, _given_pairs(interactions, columns))
    may_meet = np.flatnonzero(allowed).tolist()
    most = AUTO_PAIRS_PER_COLUMN * len(may_meet) if interactions == "auto" else int(interactions)
    groups = _groups(interaction_cst, columns)
    if groups is None:
        if len(may_meet) * (len(may_meet) - 1) // 2 > MOST_CANDIDATES:
            return PairSpec(NO_PAIRS, NO_PAIRS, most, among=np.array(may_meet))
        return PairSpec(_all_pairs(may_meet), NO_PAIRS, most)
    found = {pair for group in groups for pair in itertools.combinations(sorted(set(group) & set(may_meet)), 2)}
    return PairSpec(np.array(sorted(found), dtype=np.int64).reshape(-1, 2), NO_PAIRS, most)


def _all_pairs(columns: list[int]) -> np.ndarray:
    own = np.array(columns, dtype=np.int64)
    first, second = np.triu_indices(len(own), 1)
    return np.column_stack([own[first], own[second]])


def _given_pairs(interactions: Iterable, columns: Columns) -> np.ndarray:
    found = set()
    for pair in interactions:
        if isinstance(pair, str) or not isinstance(pair, Iterable) or len(list(pair)) != 2:
            raise ValueError(f"interactions holds {pair!r}; each of its pairs must be two column names or indices")
        (a,), (b,) = (columns.indices([column], "interactions") for column in pair)
        if a == b:
            raise ValueError(f"interactions holds {pair!r}; the columns of a pair must differ")
        found.add((min(a, b), max(a, b)))
    return np.array(sorted(found), dtype=np.int64).reshape(-1, 2)


def given_pairs(pairs: Sequence[tuple[int, ...]]) -> PairSpec | None:
    """Just these pairs of columns; None if there are none."""
    return PairSpec(NO_PAIRS, np.array(sorted(pairs), dtype=np.int64)) if pairs else None


def among_used(spec: PairSpec, used: np.ndarray) -> PairSpec:
    """The candidates between columns that the mains use."""
    if spec.among is not None:
        return replace(spec, candidates=_all_pairs(np.intersect1d(spec.among, used).tolist()))
    return replace(spec, candidates=spec.candidates[np.isin(spec.candidates, used).all(axis=1)])


def fit_with_pairs(
    objective: Objective,
    solve_mains: Callable[..., Solution],
    spec: PairSpec,
    is_category: np.ndarray,
    *,
    heredity: bool = False,
    max_rectangles: int | None = None,
    monotone: dict[int, int] | None = None,
    alpha: float = 0.0,
    dispersion: float | None = None,
    verbose: int = 0,
    callback: Callable[[Iteration], bool | None] | None = None,
) -> tuple[Solution, PairFit | None]:
    """The mains, then the pairs beside them, then both again; the solution of the mains is beside the pairs.

    Parameters
    ----------
    objective : Objective over the tables of all columns
    solve_mains : fits the mains on an objective over the same rows, and may be told the `way` of the mains before
    spec : PairSpec
    is_category : bool per column
    heredity : bool
        Whether the candidates are pairs of columns that the mains use.
    max_rectangles : int or None
        The most rectangles of a pair; None leaves its table as it is averaged.
    monotone : {column: 1 or -1}
        Along these columns the tables of pairs never fall, or never rise.
    alpha, dispersion, verbose, callback
        As in `rbr.solve`.
    """
    mains = solve_mains(objective)
    if heredity or spec.among is not None:
        spec = among_used(spec, mains.support)
    if not len(spec.candidates) and not len(spec.forced):
        return mains, None
    report = _Report(objective, verbose, callback)
    coarse = grids_of(objective, is_category)
    search = PairSearch(objective, coarse, spec, alpha=alpha, known_dispersion=dispersion, report=report)
    fit = search.find(_scores(mains), _numbers(mains))
    if fit is not None and not report.is_stopped:
        fit = search.proven(_scores(mains), fit)
    if fit is None:
        return mains, None
    if not report.is_stopped:
        mains = solve_mains(objective.shifted_by(fit.scores()), way=mains.way)
        fit = search.again(_scores(mains), _numbers(mains), fit)
    if fit is not None:
        fit = fit.told(max_rectangles, monotone or {})
    beside = objective if fit is None else objective.shifted_by(fit.scores())
    return on_objective(mains, beside), fit


def _scores(mains: Solution) -> Any:
    return mains.problem.objective.table_scores(mains.f, mains.support)


def _numbers(mains: Solution) -> float:
    """How many numbers the mains are made of."""
    return 1.0 + mains.problem.constraints.degrees_of_freedom(mains.labels, mains.support)


class _Report:
    """Prints a line for each round over pairs, and asks the callback whether to stop."""

    def __init__(self, objective: Objective, verbose: int, callback):
        self.objective, self.verbose, self.callback, self.n_rounds = objective, verbose, callback, 0
        self.is_stopped = False

    def __call__(self, point: Point) -> bool:
        self.n_rounds += 1
        if self.verbose:
            print(f"pairs: round {self.n_rounds}, {len(point.support)} pairs, loss {point.loss:.6g}")
        if self.callback is None:
            return False
        row = Iteration(
            index=self.n_rounds,
            loss=point.loss,
            objective=point.loss,
            step=0.0,
            support=point.support,
            residual=np.nan,
            columns=len(point.support),
            passes=self.objective.n_passes,
            seconds=0.0,
        )
        self.is_stopped = bool(self.callback(row))
        return self.is_stopped
