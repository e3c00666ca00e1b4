"""Few rows of parts brought together in memory, and the rows of parts whose tables change one at a time.

A sample that estimates one number, the rows on which a finished model is measured, and bags are at most some ten
thousand rows, asked for once in a fit. They are brought together, and what is known of rows in memory does the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr.data.design import BinnedMatrix
from rbr.objective import parts_sums
from rbr.objective.backfit import visit_in_turn
from rbr.objective.changes import RowChanges
from rbr.objective.gram import GramSums
from rbr.objective.parts_leaves import Leaf, Part, Whole
from rbr.objective.protocol import Point, Tables, Visits
from rbr.objective.rows import RowBlock, RowObjective, Scores

if TYPE_CHECKING:
    from rbr.objective.parts import PartsObjective
    from rbr.objective.parts_run import Executor, Kept


ROWS_PER_GRAM = 1 << 22


# Rows in memory ----------------------------------------------------------------------------------------------


def rows_in_memory(leaf: Leaf, *kept: np.ndarray, n_sampled: int) -> tuple:
    """A block of the leaf's rows in a sample, their keys, and their part of what is kept by row."""
    rows = leaf.sampled(n_sampled)
    return leaf.block(rows), leaf.keys(rows), *(np.array(own[rows]) for own in kept)


def sample_in_memory(objective: PartsObjective, n_sampled: int) -> RowObjective | None:
    """`row_objective` for a sample that stands for all rows; None if a class has no row in it."""
    sample = row_objective(objective, n_sampled, is_part_of_many=True)
    try:
        objective.loss.validate(np.concatenate([block.y for block in sample._blocks]))
    except ValueError:
        return None
    return sample


def row_objective(objective: PartsObjective, n_sampled: int, is_part_of_many: bool = False) -> RowObjective:
    """The same loss over a sample of the rows, in memory, with the n of the sample."""
    block, _ = _gathered(objective, n_sampled)
    share = float(block.v.sum())
    inside = RowBlock(
        block.design,
        block.y,
        block.v / share,
        block.offset,
        None,
        block.sample_weight,
        block.is_shifted,
        block.given_offset,
        block.given_keys,
    )
    n_total = objective.n_total if n_sampled >= objective._n_rows else objective.n_total * share
    same: dict[str, Any] = {"n_outputs": objective.n_outputs, "n_threads": objective.n_threads}
    same["is_part_of_many"] = is_part_of_many
    return RowObjective([inside], objective.loss, n_total=n_total, options=objective.options, **same)


def _gathered(objective: PartsObjective, n_sampled: int, *kept: Kept) -> tuple[RowBlock, list[np.ndarray]]:
    """(one block of a sample's rows, their part of what is kept by row)."""
    of_leaves = objective._listed(rows_in_memory, *kept, n_sampled=n_sampled)
    blocks, keys, *by_row = zip(*of_leaves, strict=True)
    first = blocks[0]

    def joined(arrays):
        return None if arrays[0] is None else np.concatenate(arrays)

    weight = joined([block.sample_weight for block in blocks])
    own, codes = first.design, np.concatenate([block.design.codes for block in blocks], axis=1)
    design = BinnedMatrix._of_codes(codes, own.offsets, own.missing, own.positions, weight, 1, own.columns, own.grids)
    block = RowBlock(
        design.with_weights(own.weights_kind),
        joined([block.y for block in blocks]),
        joined([block.v for block in blocks]),
        joined([block.offset for block in blocks]),
        None,
        weight,
        first.is_shifted,
        joined([block.given_offset for block in blocks]),
        partial(np.concatenate, keys),
    )
    return block, [np.concatenate(arrays) for arrays in by_row]


def changes(objective: PartsObjective, point: Point) -> RowChanges:
    """See `Objective.changes`: measured on all rows if they are few, otherwise on a sample beside the sums of all."""
    is_all = objective._n_rows <= objective.options.measured_rows
    block, (raw,) = _gathered(
        objective, objective._n_rows if is_all else objective.options.measured_sample, point.handle
    )
    inside = RowObjective(
        [block],
        objective.loss,
        n_outputs=objective.n_outputs,
        n_total=objective.n_total,
        tables=objective.tables,
        options=objective.options,
    )
    at_rows = Point(point.f, point.support, point.intercept, point.loss, Scores([raw + point.intercept]))
    return _PartsChanges(objective, point, inside, at_rows, is_all)


class _PartsChanges(RowChanges):
    """`RowChanges` of gathered rows, beside the sums by bin of all rows of the parts."""

    def __init__(self, objective: PartsObjective, point: Point, inside: RowObjective, at_rows: Point, is_all: bool):
        super().__init__(inside, at_rows)
        self.is_all = is_all
        if not is_all:
            gradient = objective.gradient(point, point.support) if point.gradient is None else point.gradient
            self.pull_by_bin = -(objective.tables.weights * gradient.T).T
            self.curvature_by_bin, _ = objective.curvature_sums(point, point.support)


# One table after another -------------------------------------------------------------------------------------


def residual_sums(leaf: Leaf, raw: np.ndarray, *, loss, intercept, table: int) -> np.ndarray:
    weighted = parts_sums.weighted_residuals(leaf, raw, loss=loss, intercept=intercept)
    return parts_sums.bin_sums(leaf, weighted, tables=np.array([table]))


class PartsBackfit:
    """Parts around a point; see `rbr.objective.protocol.Backfit`.

    A change is not waited for: parts make it before the next sums.
    """

    def __init__(self, objective: PartsObjective, point: Point):
        self._objective, self._raw, self._intercept = objective, point.handle, point.intercept

    def visit(self, tables: np.ndarray, visits: Visits) -> None:
        visit_in_turn(self, tables, visits)

    def residual_sums(self, table: int) -> np.ndarray:
        objective = self._objective
        objective.work.columns_read += 1
        return objective._total(
            residual_sums, self._raw, loss=objective.loss, intercept=self._intercept, table=int(table)
        )

    def add(self, table: int, change: np.ndarray) -> None:
        self._objective.work.columns_read += 1
        self._raw = self._objective._rows(parts_sums.moved, self._raw, table=int(table), change=np.array(change))


# Cross-tabulations of whole numbers, which add without rounding ------------------------------------------------


def gram_of_part(part: Part, whole: Whole) -> np.ndarray:
    """The cross-tabulation of a part, many leaves at a time: a large matrix is seldom added."""
    own, total = part.design, np.zeros(1)
    fields = own.offsets, own.missing, own.positions, own.columns, own.weights_kind, own.shares
    for start in range(0, part.n_rows, ROWS_PER_GRAM):
        rows = slice(start, min(start + ROWS_PER_GRAM, part.n_rows))
        design = BinnedMatrix._from_valid(np.ascontiguousarray(own.codes[:, rows]), *fields)
        weight = None if part.weight is None else np.asarray(part.weight[rows], dtype=np.float64)
        gram = GramSums.of(design, np.zeros(design.n_rows), weight, n_threads=whole.n_threads).gram
        total = gram if start == 0 else total + gram
    return total


def target_sums_of_gram(leaf: Leaf, *, origin: float) -> tuple:
    """What `GramSums` has beside the matrix."""
    shifted = (leaf.y if leaf.offset is None else leaf.y - leaf.offset) - origin
    weight = leaf.part.weight
    weight = np.ones(leaf.n_rows) if weight is None else np.asarray(weight[leaf.rows], dtype=np.float64)
    weighted = weight * shifted
    target = parts_sums.bin_sums(leaf, weighted, tables=np.arange(leaf.part.design.n_features))
    return target, float(weight.sum()), float(weighted.sum()), float((weighted * shifted).sum())


# What is asked before there is an objective ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LeafFacts:
    n_rows: int
    layout: Tables
    is_uniform: bool
    has_weight: bool
    has_offset: bool
    has_values: bool
    least_weight: float
    most_weight: float
    has_whole_weights: bool


def facts_of(leaf: Leaf) -> LeafFacts:
    part = leaf.part
    weight = np.ones(1) if part.weight is None else np.asarray(part.weight[leaf.rows], dtype=np.float64)
    return LeafFacts(
        leaf.n_rows,
        Tables.of(part.design),
        part.design.weights_kind == "uniform",
        part.weight is not None,
        part.offset is not None,
        part.values is not None,
        float(weight.min()),
        float(weight.max()),
        bool((weight == np.floor(weight)).all()),
    )


def with_row_number(error: ValueError, parts: Executor, whole: Whole, witnesses: np.ndarray) -> ValueError:
    """An error about the targets that stand for all, with the number of a row that has the target it complains of."""
    named = re.search(r"y\[(\d+)\]", str(error))
    if named is None:
        return error
    target = float(witnesses[int(named[1])])
    rows = parts.listed(whole, parts_sums.first_row_with, target=target)
    return ValueError(str(error).replace(named[0], f"y[{min(row for row in rows if row >= 0)}]"))
