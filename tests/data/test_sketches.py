"""Sketches of a table that is read in blocks: the edges of all rows while they fit, then within the rank error."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import rbr
from rbr.data import sketches
from rbr.data.sketches import LevelCounts, NumberSketch, TableSketch, rank_error


def mixed_table(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "normal": rng.normal(size=n_rows),
            "count": rng.integers(0, 9, n_rows).astype(float),
            "text": rng.choice(list("xyz"), n_rows),
            "zeros": np.where(rng.random(n_rows) < 0.5, 0.0, rng.exponential(size=n_rows)).astype(np.float32),
        }
    )
    table.loc[::7, "normal"] = np.nan
    table.loc[::9, "text"] = None
    return table, rng.integers(0, 3, n_rows).astype(float)


def sketch_of(X, weight, n_blocks, **parameters):
    sketch = TableSketch(rbr.Binner(**parameters))
    for rows in np.array_split(np.arange(len(X)), n_blocks):
        sketch.add(X.iloc[rows], None if weight is None else weight[rows])
    return sketch


def assert_same_bins(found, expected):
    for ours, theirs in zip(found.edges_, expected.edges_, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(found.positions_, expected.positions_)
    np.testing.assert_array_equal(found.missing_, expected.missing_)
    assert found.categories_ == expected.categories_


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("n_blocks", [1, 7])
@pytest.mark.parametrize("parameters", [{}, {"binning": "binomial"}, {"max_bins": {"normal": 9}, "exclude": ["zeros"]}])
def test_bins_of_few_rows_are_those_of_all_rows(is_weighted, n_blocks, parameters):
    X, weight = mixed_table(3000)
    weight = weight if is_weighted else None
    found = sketch_of(X, weight, n_blocks, **parameters)
    assert found.is_exact
    assert_same_bins(found.fit(), rbr.Binner(**parameters).fit(X, weight))


def test_merged_sketches_are_one_sketch():
    X, weight = mixed_table(3000)
    one, other = sketch_of(X[:1000], weight[:1000], 2), sketch_of(X[1000:], weight[1000:], 3)
    one.merge(pickle.loads(pickle.dumps(other)))
    assert_same_bins(one.fit(), rbr.Binner().fit(X, weight))


@pytest.mark.parametrize("is_weighted", [False, True])
def test_sketched_edges_keep_the_stated_rank_error(is_weighted, monkeypatch):
    monkeypatch.setattr(sketches, "MAX_EXACT_ROWS", 5000)
    rng = np.random.default_rng(1)
    x = rng.gamma(0.5, size=60_000)
    weight = rng.choice([0.25, 1.0, 6.0], 60_000) if is_weighted else np.ones(60_000)
    one, other = (TableSketch(rbr.Binner(), unit=float(weight.mean())) for _ in range(2))
    for k, rows in enumerate(np.array_split(np.arange(60_000), 12)):
        (one if k % 2 else other).add(x[rows, None], weight[rows] if is_weighted else None)
    one.merge(pickle.loads(pickle.dumps(other)))
    assert not one.is_exact
    edges = one.fit().edges_[0]
    assert len(edges) == 254
    order = np.argsort(x)
    shares = np.append(0.0, np.cumsum(weight[order])) / weight.sum()
    ranks = shares[np.searchsorted(x[order], edges, side="right")]
    # Twice the error, which one of a hundred sketches exceeds, so that the test is about the code and not about luck.
    assert np.abs(ranks - np.arange(1, 255) / 255).max() < 2 * rank_error()


def test_sketched_values_are_values_of_the_column(monkeypatch):
    monkeypatch.setattr(sketches, "MAX_EXACT_ROWS", 1000)
    ages = np.random.default_rng(0).integers(17, 91, 20_000).astype(float)
    sketch = TableSketch(rbr.Binner())
    for block in np.array_split(ages, 5):
        sketch.add(block[:, None])
    assert not sketch.is_exact
    np.testing.assert_array_equal(sketch.fit().edges_[0], np.arange(17.5, 90.0))


def test_sketches_with_other_units_are_not_merged():
    one, other = NumberSketch(10, unit=1.0), NumberSketch(10, unit=2.0)
    for sketch in (one, other):
        sketch.add(np.arange(20.0), np.ones(20))
    with pytest.raises(ValueError, match="the same unit"):
        one.merge(other)


def test_levels_of_blocks_are_joined_in_the_order_of_all_rows():
    X = pd.DataFrame({"k": ["b", "d", "a", "c", "b"]})
    sketch = sketch_of(X, None, 5)
    assert sketch.fit().categories_ == rbr.Binner().fit(X).categories_
    declared = X.astype(pd.CategoricalDtype(["d", "c", "b", "a", "never"]))
    assert sketch_of(declared, None, 3).fit().categories_ == {0: ("d", "c", "b", "a")}
    one, other = LevelCounts(), LevelCounts()
    one.add(["b"], np.array([0]), "column 'k'", "block 0")
    other.add(["c", "a"], np.array([0, 1, -1]), "column 'k'", "block 1")
    one.merge(other, "column 'k'", "block 1")
    assert one.levels() == ["a", "b", "c"] and one.has_missing


def test_faults_name_the_block_and_the_column():
    sketch = TableSketch(rbr.Binner())
    sketch.add(pd.DataFrame({"a": [1.0, 2.0], "k": ["x", "y"]}), where="block 0")
    with pytest.raises(ValueError, match="block 1: The columns of X must be those of fit.*missing 'k'"):
        sketch.add(pd.DataFrame({"a": [1.0]}), where="block 1")
    with pytest.raises(ValueError, match="block 2: column 'a' holds text, and numbers in earlier blocks"):
        sketch.add(pd.DataFrame({"a": ["u"], "k": ["x"]}), where="block 2")
    with pytest.raises(ValueError, match="block 3: column 'k' holds numbers, and text in earlier blocks"):
        sketch.add(pd.DataFrame({"a": [1.0], "k": [3]}), where="block 3")
    numbered = TableSketch(rbr.Binner(categorical_features=["k"]))
    numbered.add(pd.DataFrame({"k": [1, 2]}), where="block 0")
    with pytest.raises(ValueError, match="column 'k' has the level '1' of type str in block 1, and 2 of type int"):
        numbered.add(pd.DataFrame({"k": ["1"]}), where="block 1")
    with pytest.raises(ValueError, match="no rows of positive weight"):
        TableSketch(rbr.Binner()).fit()


def test_a_column_without_values_so_far_takes_the_kind_of_the_first_block_that_has_some():
    sketch = TableSketch(rbr.Binner())
    for values in ([None, None], ["x", None], [np.nan, np.nan]):
        sketch.add(pd.DataFrame({"k": values}))
    binner = sketch.fit()
    assert binner.categories_ == {0: ("x",)} and binner.missing_[0]
