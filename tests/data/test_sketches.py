"""Sketches of a table that is read in blocks: the bins of the table in memory, whatever the blocks."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import rbr
from rbr.data import cutting, sketches
from rbr.data.sampling import level_of, thinned_rows
from rbr.data.sketches import LevelCounts, TableSketch


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


@pytest.fixture(params=["few rows", "a sample", "a sample of all rows"])
def sampling(request, monkeypatch):
    """Whether 3000 rows are few, or so many that a sample of them gives the edges."""
    if request.param != "few rows":
        n_sample = 300 if request.param == "a sample" else 1900
        monkeypatch.setattr(cutting, "MAX_EXACT_ROWS", 600)
        monkeypatch.setattr(cutting, "SAMPLE_ROWS", (n_sample, n_sample))


@pytest.mark.parametrize("weights", ["none", "equal", "whole", "real"])
@pytest.mark.parametrize("n_blocks", [1, 7, 150])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"binning": "binomial", "random_state": 3}, {"max_bins": {"normal": 9}, "exclude": ["zeros"]}],
)
def test_bins_are_those_of_the_table_in_memory(weights, n_blocks, parameters, sampling):
    X, weight = mixed_table(3000)
    weight = {
        "none": None,
        "equal": np.full(3000, 0.3),
        "whole": weight,
        "real": weight * np.random.default_rng(1).random(3000),
    }[weights]
    found = sketch_of(X, weight, n_blocks, **parameters)
    assert_same_bins(found.fit(), rbr.Binner(**parameters).fit(X, weight))


@pytest.mark.parametrize("knows_total", [False, True])
def test_merged_sketches_are_one_sketch(knows_total, sampling):
    X, weight = mixed_table(3000)
    expected = rbr.Binner(random_state=5).fit(X, weight)
    n_total = int((weight > 0).sum()) if knows_total else None
    parts, first_row = [], 0
    for rows in (slice(0, 100), slice(100, 100), slice(100, 2000), slice(2000, 3000)):
        parts.append(TableSketch(rbr.Binner(random_state=5), first_row, n_total))
        for half in np.array_split(np.arange(3000)[rows], 2):
            if len(half):
                parts[-1].add(X.iloc[half], weight[half])
        first_row += int((weight[rows] > 0).sum())
    parts = pickle.loads(pickle.dumps(parts))
    for other in parts[1:]:
        parts[0].merge(other)
    assert_same_bins(parts[0].fit(), expected)


def test_sketches_of_rows_that_do_not_follow_each_other_are_not_merged():
    one, other = TableSketch(rbr.Binner()), TableSketch(rbr.Binner(), first_row=11)
    for sketch in (one, other):
        sketch.add(np.arange(10.0)[:, None])
    with pytest.raises(ValueError, match="begins at row 11, and the rows before end at 10"):
        one.merge(other, "partition 1")


def test_sampled_edges_have_the_stated_rank_error():
    n_rows, rng = 400_000, np.random.default_rng(1)
    x = rng.permutation(n_rows).astype(float)
    sketch = TableSketch(rbr.Binner())
    for block in np.array_split(x, 9):
        sketch.add(block[:, None])
    edges = sketch.fit().edges_[0]
    assert len(edges) == 254
    # Four standard errors of a sample of 51,000 rows, as the documentation states them.
    assert 0 < np.abs(edges / n_rows - np.arange(1, 255) / 255).max() < 4 * 0.0022
    np.testing.assert_array_equal(edges, rbr.Binner().fit(x[:, None]).edges_[0])
    assert not np.array_equal(edges, rbr.Binner(random_state=1).fit(x[:, None]).edges_[0])


def test_a_sampled_row_stands_for_several():
    assert cutting.SampledRows(1000, 250).scale == 4.0
    assert cutting.SampledRows(1000, 250, np.full(250, 0.3)).scale == pytest.approx(1.2)
    rows = cutting.SampledRows(1000, 250, np.arange(1.0, 251.0))
    assert rows.weights.sum() * rows.scale == pytest.approx(4 * 125.5 * 250)


def test_numbers_of_a_wide_table_take_a_bounded_amount_of_memory(monkeypatch):
    monkeypatch.setattr(sketches, "MAX_KEPT_BYTES", 8 * 4 * 500)
    x = np.random.default_rng(0).random((5000, 4))
    models = []
    for n_blocks in (1, 13):
        sketch = TableSketch(rbr.Binner())
        for block in np.array_split(x, n_blocks):
            sketch.add(block)
            assert sketch._n_kept <= 1001
        assert sketch._n_kept >= 500
        models.append(sketch.fit())
    assert_same_bins(*models)


def test_a_thinned_sample_has_a_row_of_each_run_and_is_part_of_the_one_below():
    rows = np.arange(1000)
    for level in range(8):
        thinner = thinned_rows(0, 1000, level, seed=7)
        assert set(thinner) <= set(rows)
        rows = thinner
        np.testing.assert_array_equal(rows >> level, np.arange(len(rows)))
        assert len(rows) in (1000 >> level, (1000 >> level) + 1)
        pieces = [thinned_rows(a, b, level, seed=7) for a, b in ((0, 130), (130, 131), (131, 900), (900, 1000))]
        np.testing.assert_array_equal(np.concatenate(pieces), rows)
    # Every row of a run is as likely as the others.
    counts = np.bincount(thinned_rows(0, 1 << 20, 4, seed=1) & 15, minlength=16)
    assert np.abs(counts / counts.mean() - 1).max() < 0.08
    assert [level_of(n, 100) for n in (1, 199, 200, 1600)] == [0, 0, 1, 4]


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


@pytest.mark.parametrize("values_first", [False, True])
def test_merged_sketches_take_the_kind_of_the_one_that_has_values(values_first):
    there, nothing = [1.0, 2.0, 4.0], pd.Categorical([None] * 3)
    parts = [TableSketch(rbr.Binner(max_bins=2), first_row) for first_row in (0, 3)]
    for part, has_values in zip(parts, (values_first, not values_first), strict=True):
        x, k = (there, [np.nan] * 3) if has_values else (nothing, ["a", "b", "a"])
        part.add(pd.DataFrame({"x": x, "k": k}), [9.0, 3.0, 1.0] if has_values else [1.0, 1.0, 5.0])
    parts[0].merge(parts[1])
    binner = parts[0].fit()
    np.testing.assert_array_equal(binner.edges_[0], [1.5])
    np.testing.assert_allclose(binner.positions_[:2], [1.0, 2.5])
    assert binner.categories_ == {1: ("a", "b")} and binner.missing_.all()
