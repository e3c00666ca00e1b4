"""Awkward tables, and cases for the projection kernels made from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from helpers import Case, assert_close
from hypothesis import strategies as st

from rbr.reference.projections import SHAPES, level_codes

# The kinds of values that a table may have; shapes, prices and exact or greedy search are drawn besides.
KINDS = ("noise", "steps", "integers", "constant", "sorted", "two scales")
UNTIED = ("noise", "steps", "sorted")


@dataclass
class Stack:
    """Stacked tables with their shapes and limits; `tied` says that several answers may be equally good."""

    f: np.ndarray
    offsets: np.ndarray
    weights: np.ndarray
    positions: np.ndarray
    missing: np.ndarray
    shapes: list[str]
    limits: np.ndarray
    tied: bool
    rows: np.ndarray | None = None  # the share of the rows in each bin; None: the weights
    least_rows: np.ndarray | None = None  # the least share in a piece of each table; None: no minimum

    def __post_init__(self):
        self.rows = self.weights if self.rows is None else self.rows
        self.least_rows = np.zeros(len(self.shapes)) if self.least_rows is None else self.least_rows

    def __len__(self):
        return len(self.shapes)

    def table(self, j):
        return slice(int(self.offsets[j]), int(self.offsets[j + 1]))

    def n_ordered(self, j):
        return int(self.offsets[j + 1] - self.offsets[j] - self.missing[j])

    def level_codes(self):
        codes = [
            level_codes(self.n_ordered(j), min(int(self.limits[j]), self.n_ordered(j)))
            if shape == "levels"
            else np.zeros(0)
            for j, shape in enumerate(self.shapes)
        ]
        return np.concatenate([np.zeros(0), *codes]), np.cumsum([0, *map(len, codes)])

    def centred(self):
        out = self.f.copy()
        for j in range(len(self)):
            out[self.table(j)] -= self.weights[self.table(j)] @ self.f[self.table(j)]
        return out


def _values(rng, kind, n_bins):
    if kind == "noise":
        return rng.standard_normal(n_bins)
    if kind == "steps":
        return np.repeat(rng.standard_normal(n_bins) * 4, 4)[:n_bins] + rng.standard_normal(n_bins)
    if kind == "integers":
        return rng.integers(-2, 3, n_bins).astype(float)
    if kind == "constant":
        return np.full(n_bins, rng.standard_normal())
    if kind == "sorted":
        return np.sort(rng.standard_normal(n_bins))
    return rng.standard_normal(n_bins) * rng.choice([1.0, 1e-8], n_bins)


def _weights(rng, kind, n_bins, equal):
    if equal or kind == "uniform":
        return np.full(n_bins, 1.0 / n_bins)
    weights = rng.random(n_bins) ** (8 if kind == "skewed" else 1) + 1e-9
    if kind == "zeros":
        weights[rng.random(n_bins) < 0.4] = 0.0
    weights[rng.integers(n_bins)] += 0.1
    return weights / weights.sum()


def _positions(rng, kind, n_bins):
    if kind == "index":
        return np.arange(float(n_bins))
    if kind == "ties":
        return np.sort(rng.integers(0, 4, n_bins)).astype(float)
    return np.cumsum(rng.random(n_bins) * rng.choice([1e-3, 1.0, 1e3], n_bins)) - 5.0


def draw_table(rng, shape, n_bins, has_missing, kind, scale, weighting, positioning):
    """Values, weights and positions of one table; at least one of its bins has weight."""
    weights = _weights(rng, weighting, n_bins, equal=shape == "frequency")
    if shape == "frequency" and has_missing:
        weights[-1] *= 3
        weights /= weights.sum()
    return _values(rng, kind, n_bins) * scale, weights, _positions(rng, positioning, n_bins)


@st.composite
def stacks(draw, max_tables=4, max_bins=12, shapes=SHAPES, kinds=KINDS, min_tables=0, with_least_rows=True):
    """One bin, two bins, ties, zero weights, a missing bin, huge and tiny scales, limits above the number of bins.

    Half of the stacks have a least number of rows in a piece; the rows of a bin are its weight, or have nothing to do
    with it, or are none.

    Everything is drawn from one seed: hypothesis, drawing each property, would choose the simplest nearly always.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_tables = int(rng.integers(min_tables, max_tables + 1))
    parts, missing, chosen, limits, tied = [], [], [], [], False
    for _ in range(n_tables):
        shape = shapes[rng.integers(len(shapes))]
        has_missing = bool(rng.random() < 0.3)
        n_ordered = rng.choice([1, 2]) if rng.random() < 0.15 else rng.integers(1, max_bins + 1)
        n_bins = int(n_ordered) + has_missing
        kind = kinds[rng.integers(len(kinds))]
        scale = rng.choice([1.0, 1e-8, 1e8])
        weighting = rng.choice(["counts", "uniform", "skewed", "zeros"])
        positioning = rng.choice(["index", "gaps", "ties"], p=[0.4, 0.4, 0.2])
        parts.append(draw_table(rng, shape, n_bins, has_missing, kind, scale, weighting, positioning))
        missing.append(has_missing)
        chosen.append(shape)
        limits.append(rng.integers(1, 5) if rng.random() < 0.6 else rng.integers(1, n_bins + 3))
        tied |= kind not in UNTIED or (positioning == "ties" and shape in ("linear", "mixed"))
    columns = zip(*parts, strict=True) if parts else [[]] * 3
    f, weights, positions = (np.concatenate([np.zeros(0), *column]) for column in columns)
    offsets = np.cumsum([0, *(len(part[0]) for part in parts)])
    arrays = f, offsets, weights, positions, np.array(missing, dtype=bool)
    frozen = draw(st.booleans())
    for array in arrays:
        array.flags.writeable = not frozen
    rows, least_rows = _rows(rng, offsets, weights) if with_least_rows and rng.random() < 0.5 else (None, None)
    return Stack(*arrays, chosen, np.array(limits, dtype=np.int64), tied, rows, least_rows)


def _rows(rng, offsets, weights):
    """The rows of all bins, and the least share in a piece of each table, from nearly none to more than there are."""
    rows = weights.copy() if rng.random() < 0.5 else rng.random(len(weights)) ** 4 * (rng.random(len(weights)) < 0.8)
    rows /= np.repeat(np.maximum(np.add.reduceat(rows, offsets[:-1]), 1e-300), np.diff(offsets)) if len(rows) else 1.0
    return rows, rng.choice([0.0, 1e-6, 0.1, 0.3, 0.6, 1.2], len(offsets) - 1) * rng.uniform(0.8, 1.0)


def prices(stack):
    """Prices from zero, at which every piece pays, up to one at which none does."""
    squares = [stack.weights[stack.table(j)] @ stack.f[stack.table(j)] ** 2 for j in range(len(stack))]
    worth = max(squares, default=1.0) or 1.0
    factors = st.just(0.0) | st.floats(-5, 1).map(lambda exponent: 10.0**exponent * 0.977)
    return factors.map(lambda factor: factor * worth)


def prox_args(stack, tables, price, greedy):
    """Arguments of the kernel `prox_tables`, and its outputs as they are before the call."""
    shapes = np.array([SHAPES.index(shape) for shape in stack.shapes], dtype=np.int8)
    n = len(stack)
    args = [
        tables,
        stack.centred(),
        stack.offsets,
        stack.weights,
        stack.positions,
        stack.missing.view(np.uint8),
        shapes,
        stack.limits,
        stack.rows,
        stack.least_rows,
        price,
        *stack.level_codes(),
        greedy,
    ]
    outs = [
        np.full(len(stack.f), np.nan),
        np.full(len(stack.f), -7, dtype=np.int32),
        np.zeros(n),
        np.zeros(n),
    ]
    return args, outs


def assert_tables_agree(stack, tables, price, greedy):
    """Equal tables; where several are equally good, equal nets.

    Bins of weight zero are not compared: two equally good cuts may extend different lines over them. The tests of
    what the labels mean cover them.
    """

    def agree(actual_outs, expected_outs):
        centred = stack.centred()
        for actual, expected in zip(actual_outs, expected_outs, strict=True):
            assert actual.dtype == expected.dtype
        for j in set(range(len(stack))) - set(tables.tolist()):
            assert np.isnan(actual_outs[0][stack.table(j)]).all()
            assert (actual_outs[1][stack.table(j)] == -7).all()
        for j in tables:
            table = stack.table(j)
            live = stack.weights[table] > 0
            (out, labels, net, code), (out_, labels_, net_, code_) = (
                (outs[0][table][live], outs[1][table][live], outs[2][j], outs[3][j])
                for outs in (actual_outs, expected_outs)
            )
            # Centring keeps the rounding errors of the uncentred values.
            square = stack.weights[table] @ (centred[table] ** 2 + 1e-18 * stack.f[table] ** 2)
            if greedy and stack.tied:
                continue
            assert abs(net - net_) <= 1e-12 * square
            if not stack.tied:
                assert_close(out, out_, scale=np.abs(centred[table]).max())
                assert abs(code - code_) <= 1e-12 * code_
                assert (labels >= 0).any() == (labels_ >= 0).any()

    return agree


@st.composite
def prox_tables_cases(draw):
    kinds = draw(st.sampled_from([UNTIED, KINDS]))
    stack = draw(stacks(max_tables=8, max_bins=draw(st.sampled_from([3, 12, 40])), kinds=kinds))
    listed = draw(st.permutations(range(len(stack))))
    tables = np.array(listed[draw(st.sampled_from([0, 0, 1])) :], dtype=np.int64)
    price, greedy = draw(prices(stack)), draw(st.booleans())
    args, outs = prox_args(stack, tables, price, greedy)
    return Case(args, outs, len(tables), assert_tables_agree(stack, tables, price, greedy))


@st.composite
def center_tables_cases(draw):
    stack = draw(stacks())
    largest = np.abs(stack.f).max(initial=0.0)

    def agree(actual_outs, expected_outs):
        assert_close(actual_outs[0], expected_outs[0], scale=largest)
        assert_close(actual_outs[1], expected_outs[1], scale=largest**2)

    outs = [np.full(len(stack.f), np.nan), np.full(len(stack), np.nan)]
    return Case([stack.f, stack.offsets, stack.weights], outs, len(stack), agree)


CASES = {"center_tables": center_tables_cases(), "prox_tables": prox_tables_cases()}
