"""Cases for the kernels of visits: one bin, one group, none, levels, missing bins, no lines, tiny and huge weights.

Also no curvature at all, tables that are forced, and tables that are only looked at. Rounds over rows have every loss,
one output and several, and rows without a bin.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from helpers import Case
from hypothesis import strategies as st

from rbr._sizes import LOSSES, SOFTMAX
from rbr.reference.visits import residuals_of


def assert_near(actual_outs, expected_outs):
    """To the rounding of exponents, which are as large as the evidence, and of running sums.

    The kernel takes the sums of a piece as differences of running sums: a piece of a millionth of the weight has six
    digits less. Rows follow their tables.
    """
    evidence = expected_outs[-6]
    size = 1.0 + np.abs(evidence[np.isfinite(evidence)]).max(initial=0.0)
    for actual, expected in zip(actual_outs, expected_outs, strict=True):
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
        np.testing.assert_allclose(actual, expected, rtol=1e-8 * size, atol=1e-8 * size * scale)


@st.composite
def told(draw, offsets, shares, n_outputs, curvatures, n_total, step):
    """What both kernels are told, from `offsets` to `step`, with tables of these bins."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, n_coef = len(offsets) - 1, offsets[-1]
    is_grouped, has_missing = (draw(st.lists(st.booleans(), min_size=n, max_size=n)) for _ in range(2))
    groups, n_groups, n_ordered = np.full(n_coef, -1, dtype=np.int64), *np.zeros((2, n), dtype=np.int64)
    for j, (start, stop) in enumerate(zip(offsets[:-1], offsets[1:], strict=True)):
        ordered = np.arange(start, stop - has_missing[j])
        n_ordered[j] = len(ordered)
        live = ordered[shares[ordered] > 0]
        most = draw(st.sampled_from([1, 3, 20]))
        n_groups[j] = min(most, len(live))
        groups[live] = np.arange(len(live)) * n_groups[j] // max(len(live), 1)
    is_forced = rng.random(n) < 0.2
    rises = draw(st.sampled_from([0.0, 0.1])) * rng.normal(size=(n_coef, n_outputs)) * (groups >= 0)[:, None]
    growth = draw(st.sampled_from([np.zeros(0), rng.uniform(-1.0, 1.0, n_outputs)]))
    arrays = (
        *(offsets, groups, n_groups, n_ordered),
        *(np.array(flags, dtype=np.uint8).reshape(n) for flags in (is_grouped, has_missing, is_forced)),
        *(rng.choice([0.0, 0.5, 1.0], n), shares, rises, curvatures, growth),
        np.array(draw(st.sampled_from([[10.0], [1.0, 30.0, 1000.0]]))),
        np.array(draw(st.sampled_from([[0.0], [1.0, 0.0], [100.0, 0.3]]))),
        np.array(draw(st.sampled_from([[10.0], [0.1, 1.0, 30.0]]))),
    )
    for array in arrays:
        array.setflags(write=False)
    least_rows, most_rows = draw(st.sampled_from([(0.1, 100.0), (1.0, 1.0)]))
    numbers = (
        *(n_total, draw(st.sampled_from([0.3, 1.0])), draw(st.sampled_from([0.0, 0.01])), least_rows, most_rows),
        *(1.0, 0.25, draw(st.sampled_from([0.0, 0.5])), n + 1.0, draw(st.sampled_from([1.0, 2.0])), step),
    )
    return *arrays, *numbers


def moved(rng, n, n_coef, n_outputs, scale=1.0):
    """f, share, evidence, explained, pieces, freedom, jumps, prior_rows, as a round finds them."""
    shape = n, n_outputs
    return [
        scale * rng.normal(size=(n_coef, n_outputs)) * rng.choice([0.0, 0.1]),
        rng.choice([0.0, 0.3, 1.0], shape),
        *(np.zeros(shape) for _ in range(4)),
        rng.choice([1.0, 4.0], shape),
        rng.choice([0.1, 10.0, 100.0], shape),
    ]


@st.composite
def visit_tables_cases(draw):
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 9, 17]), min_size=1, max_size=4))
    n_outputs = draw(st.sampled_from([1, 2]))
    offsets, n = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), len(sizes)
    n_coef, rng = offsets[-1], np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = rng.choice([0.0, 1.0, 10.0, 1e-4], n_coef) * rng.uniform(0.5, 2.0, n_coef)
    totals = np.repeat(np.add.reduceat(rows, offsets[:-1]), sizes)
    shares = np.divide(rows, totals, out=np.repeat(1.0 / np.array(sizes), sizes), where=totals > 0)
    # Values of size 1 / scale have curvatures of size scale^2, as where y is measured in other units.
    scale = draw(st.sampled_from([1e-20, 1e-3, 1.0, 100.0, 1e20]))
    curvatures = scale**2 * shares[:, None] * rng.choice([1.0, 0.3], (n_coef, n_outputs))
    curvatures *= draw(st.sampled_from([0.0, 1.0, 1.0, 1.0]))
    values = draw(st.sampled_from([0.0, 0.1, 3.0])) * rng.normal(size=(n_coef, n_outputs)) / scale
    step = draw(st.sampled_from([0.0, 0.0, 0.7, 1.0]))
    n_total = draw(st.sampled_from([1.0, 50.0, 1000.0]))
    arguments = draw(told(offsets, shares, n_outputs, curvatures, n_total, step))
    # Tables that are moved see one another, and go one after the other; those that are looked at go in any order.
    tables = np.array(draw(st.permutations(range(n))), dtype=np.int64)[: n if step == 0.0 else 1]
    pulls, outs = curvatures * values, moved(rng, n, n_coef, n_outputs, 1.0 / scale)

    def assert_near_in_units(actual, expected):
        assert_near(*([outs[0] * scale, *outs[1:]] for outs in (actual, expected)))

    return Case((tables, *arguments, pulls), outs, len(tables), assert_near_in_units)


@dataclass
class InTurn(Case):
    """A kernel whose items see one another: one range after the other, whatever the number of threads."""

    def call(self, kernel, n_threads=1) -> list[np.ndarray]:
        outs = [out.copy() for out in self.outs]
        for first in range(0, self.n_items, n_threads):
            kernel(*self.args, *outs, first, min(first + n_threads, self.n_items))
        return outs


@st.composite
def visit_rows_cases(draw):
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 9]), min_size=1, max_size=3))
    loss = draw(st.sampled_from([SOFTMAX, *range(len(LOSSES))]))
    n_outputs = 3 if loss == SOFTMAX else 1
    offsets, n = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), len(sizes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    # Rows go in fours, and losses in chunks.
    n_rows = draw(st.sampled_from([1, 3, 4, 50, 1030]))
    codes = np.array([rng.integers(0, size + draw(st.integers(0, 1)), n_rows) for size in sizes])
    codes = codes.astype(draw(st.sampled_from([np.uint8, np.uint16])))
    v = rng.uniform(0.5, 2.0, n_rows)
    v /= v.sum()
    y = rng.integers(0, 2, n_rows) if loss == SOFTMAX else rng.integers(0, 2, n_rows).astype(np.float64)
    name = "softmax" if loss == SOFTMAX else LOSSES[loss]
    y = y + 0.5 if name == "gamma" else y
    a, b = {"tweedie": (1.5, 0.0), "huber": (0.4, 0.0), "quantile": (0.3, 0.5)}.get(name, (0.0, 0.0))
    counts = [np.bincount(own, minlength=size + 1)[:size] for own, size in zip(codes, sizes, strict=True)]
    shares = np.concatenate([own / max(own.sum(), 1) for own in counts])
    curvatures = np.repeat(shares[:, None], n_outputs, axis=1) * rng.choice([0.2, 1.0])
    arguments = draw(told(offsets, shares, n_outputs, curvatures, float(n_rows), draw(st.sampled_from([0.7, 1.0]))))
    tables = np.array([*draw(st.permutations(range(n))), 0], dtype=np.int64)
    outs = moved(rng, n, offsets[-1], n_outputs)
    scores = rng.normal(size=(n_outputs, 0 if name == "squared_error" else n_rows))
    residuals = rng.normal(size=(n_outputs, n_rows)) * v
    if name != "squared_error":
        residuals = v * np.atleast_2d(residuals_of(loss, a, b, y, scores))
    for array in (codes, y, v, tables):
        array.setflags(write=False)
    return InTurn((codes, y, v, loss, a, b, tables, *arguments), [scores, residuals, *outs], len(tables), assert_near)


CASES = {"visit_rows": visit_rows_cases(), "visit_tables": visit_tables_cases()}
