"""Fits from blocks: the answers of rows in memory, whatever the blocks, and clear errors for what sources do wrong."""

from __future__ import annotations

import functools
import os
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rbr
from rbr import ArraySource, BlockSource, CSVSource, ParquetSource, RBRClassifier, RBRRegressor, SolverOptions
from rbr.data import passes
from rbr.data import store as stores
from rbr.estimators import sources
from rbr.objective.parts import PartsObjective
from rbr.objective.stored import stored_objective


class Blocks:
    """The rows of a frame in blocks, as often as they are asked for."""

    def __init__(self, X, y, weight=None, n_blocks=3):
        self.rows = [
            tuple(np.asarray(a)[rows] if a is not X else X.iloc[rows] for a in (X, y, weight) if a is not None)
            for rows in np.array_split(np.arange(len(X)), n_blocks)
        ]

    def __iter__(self):
        return iter(self.rows)


def table(n_rows=3000, seed=0):
    """Numbers, categories and missing values, with an effect of two columns together, and whole weights."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "a": rng.normal(size=n_rows),
            "b": rng.integers(0, 9, n_rows).astype(float),
            "c": rng.choice(list("xyz"), n_rows),
            "d": np.where(rng.random(n_rows) < 0.5, 0, rng.exponential(size=n_rows)),
            "e": rng.normal(size=n_rows),
        }
    )
    score = np.sin(2 * X.a) + 1.0 * (X.c == "x") + 0.15 * X.b * X.e
    X.loc[::7, "a"] = np.nan
    X.loc[::9, "c"] = None
    return X, score.to_numpy(), rng.integers(0, 4, n_rows).astype(float), rng


def problem(name, n_rows=3000):
    X, score, weight, rng = table(n_rows)
    if name == "squared":
        return X, score + 0.3 * rng.normal(size=n_rows), weight, RBRRegressor()
    if name == "poisson":
        return X, rng.poisson(np.exp(score / 2)).astype(float), weight, RBRRegressor("poisson")
    if name == "logistic":
        return X, np.where(score + rng.logistic(size=n_rows) > 0, "yes", "no"), weight, RBRClassifier()
    return X, np.digitize(score + rng.normal(size=n_rows), [-0.5, 0.8]), weight, RBRClassifier()


def assert_same_model(found, expected, X, tolerance=1e-9):
    """The same tables to a tolerance; exactly the same columns, edges and pieces."""
    np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=tolerance)
    assert [term.columns for term in found.terms_] == [term.columns for term in expected.terms_]
    for ours, theirs in zip(found.terms_, expected.terms_, strict=True):
        np.testing.assert_allclose(ours.values, theirs.values, atol=tolerance, rtol=0)
        if len(ours.columns) == 1:
            np.testing.assert_array_equal(ours.labels, theirs.labels)
            np.testing.assert_array_equal(ours.edges, theirs.edges)
            assert ours.categories == theirs.categories
    scores = (m.model_.decision_function(X) for m in (found, expected))
    np.testing.assert_allclose(*scores, atol=10 * tolerance)
    assert (found.model_.classes_ if hasattr(found, "classes_") else None) is None or (
        found.classes_.tolist() == expected.classes_.tolist()
    )


def over_parts(monkeypatch, rows_per_part=None):
    """Make every fit from blocks one over parts, as it is with many rows."""
    options = SolverOptions(averaged_rows=10)
    made = []

    def objective(*args, **kwargs):
        made.append(stored_objective(*args, **kwargs, options=options))
        return made[-1]

    monkeypatch.setattr(sources, "stored_objective", objective)
    return made


@pytest.mark.parametrize("name", ["squared", "three classes"])
def test_averages_from_blocks_are_those_of_rows_in_memory(name):
    X, y, weight, estimator = problem(name, 1000)
    estimator.set_params(interactions=1, max_bins=32)
    expected = type(estimator)(**estimator.get_params()).fit(X, y, sample_weight=weight)
    assert any(len(term.columns) == 2 for term in expected.terms_)
    found = rbr.fit_from(Blocks(X, y, weight, n_blocks=4), estimator=estimator)
    assert found is estimator
    assert_same_model(found, expected, X, tolerance=1e-12)


@pytest.mark.parametrize(
    "name, is_weighted",
    [
        ("squared", True),
        ("logistic", True),
        ("poisson", True),
        ("three classes", True),
        *(pytest.param(n, False, marks=pytest.mark.long) for n in ("squared", "logistic", "poisson", "three classes")),
    ],
)
def test_fits_over_parts_are_those_of_rows_in_memory(name, is_weighted, monkeypatch):
    X, y, weight, estimator = problem(name, 1500)
    weight = weight if is_weighted else None
    estimator.set_params(n_bags=0, interactions=[("b", "e")], max_bins=32)
    expected = type(estimator)(**estimator.get_params()).fit(X, y, sample_weight=weight)
    assert any(len(term.columns) == 2 for term in expected.terms_)
    made = over_parts(monkeypatch)
    models = []
    for n_blocks in (1, 7):
        models.append(rbr.fit_from(Blocks(X, y, weight, n_blocks), estimator=type(estimator), **estimator.get_params()))
        assert_same_model(models[-1], expected, X)
    assert all(isinstance(objective, PartsObjective) for objective in made)
    assert models[0].model_.to_dict() == models[1].model_.to_dict()


def test_parts_of_a_store_do_not_change_a_bit(monkeypatch):
    X, y, weight, _ = problem("logistic", 140_000)
    over_parts(monkeypatch)
    fitted = []
    for rows_per_part in (1 << 16, 1 << 20):
        monkeypatch.setattr(stores, "ROWS_PER_PART", rows_per_part)
        m = rbr.fit_from(Blocks(X, y, weight, 5), estimator=RBRClassifier, n_bags=0, max_bins=32)
        fitted.append(m.model_.to_dict())
    assert fitted[0] == fitted[1]


def test_edges_and_model_of_many_rows_are_those_of_memory():
    X, y, weight, _ = problem("logistic", 290_000)
    assert np.count_nonzero(weight) > 200_000
    parameters = {"interactions": [("b", "e")], "binning": {"d": "binomial"}, "random_state": 3}
    expected = RBRClassifier(**parameters).fit(X, y, sample_weight=weight)
    models = [rbr.fit_from(Blocks(X, y, weight, n), estimator=RBRClassifier, **parameters) for n in (1, 9)]
    assert any(len(term.columns) == 2 for term in expected.terms_)
    assert_same_model(models[0], expected, X)
    assert models[0].model_.to_dict() == models[1].model_.to_dict()


def test_class_weights_and_offsets(tmp_path):
    X, y, weight, _ = problem("logistic", 1500)
    for given in ("balanced", {"yes": 3.0, "no": 1.0}):
        expected = RBRClassifier(class_weight=given).fit(X, y, sample_weight=weight)
        found = rbr.fit_from(Blocks(X, y, weight), estimator=RBRClassifier, class_weight=given)
        assert_same_model(found, expected, X)
        np.testing.assert_allclose(found.terms_[0].target_sums, expected.terms_[0].target_sums)
    X, y, weight, _ = problem("poisson", 1000)
    exposure = np.linspace(-1.0, 1.0, 1000)
    expected = RBRRegressor("poisson").fit(X, y, offset=exposure)
    pq.write_table(pa.Table.from_pandas(X.assign(y=y, log_exposure=exposure)), tmp_path / "rows.parquet")
    found = RBRRegressor("poisson").fit(tmp_path / "rows.parquet", "y", offset="log_exposure")
    assert_same_model(found, expected, X, 1e-12)


# Sources ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder of three Parquet files, and the rows in them."""
    X, y, weight, _ = problem("squared", 900)
    rows = X.assign(y=y, weight=weight)
    for k, part in enumerate(np.array_split(np.arange(900), 3)):
        pq.write_table(pa.Table.from_pandas(rows.iloc[part]), tmp_path / f"part-{k}.parquet", row_group_size=100)
    return tmp_path, rows


def test_parquet_files_with_chosen_columns_and_rows(folder):
    path, rows = folder
    source = ParquetSource(
        path, "y", columns=["a", "c"], filters=[("b", ">=", 2)], sample_weight="weight", block_rows=77
    )
    kept = rows[rows.b >= 2]
    expected = RBRRegressor().fit(kept[["a", "c"]], kept.y, sample_weight=kept.weight)
    found = RBRRegressor().fit(source)
    assert_same_model(found, expected, kept, 1e-12)
    assert found.feature_names_in_.tolist() == ["a", "c"]
    assert found.model_.target == "y"
    assert {len(block.y) for block in source.blocks()} <= set(range(1, 78))


def test_partitioned_folders_and_datasets(tmp_path):
    import pyarrow.dataset as ds

    X, y, _, _ = problem("squared", 300)
    rows = pa.Table.from_pandas(X.assign(y=y, year=np.repeat([2020, 2021, 2022], 100)))
    pq.write_to_dataset(rows, tmp_path, partition_cols=["year"])
    source = ParquetSource(tmp_path, target="y", filters=[("year", ">", 2020)])
    assert sum(len(block.y) for block in source.blocks()) == 200
    assert "year" in next(source.blocks()).X.schema.names
    by_dataset = rbr.fit_from(ds.dataset(tmp_path, partitioning="hive"), target="y", columns=["a", "b"])
    assert by_dataset.n_features_in_ == 2


def test_csv_files_arrays_and_frames_are_one_model(tmp_path):
    X, y, _, _ = problem("squared", 600)
    expected = RBRRegressor().fit(X, y)
    rows = X.assign(y=y)
    rows.iloc[:200].to_csv(tmp_path / "a.csv", index=False)
    rows.iloc[200:].to_csv(tmp_path / "b.csv.gz", index=False)
    assert_same_model(rbr.fit_from(tmp_path, target="y", block_rows=50), expected, X, 1e-12)
    assert_same_model(rbr.fit_from([tmp_path / "a.csv", tmp_path / "b.csv.gz"], target="y"), expected, X, 1e-12)
    assert_same_model(RBRRegressor().fit(ArraySource(X, y, block_rows=99)), expected, X, 1e-12)
    numbers = X.drop(columns="c").to_numpy()
    mapped = np.memmap(tmp_path / "rows.bin", np.float64, "w+", shape=numbers.shape)
    mapped[:] = numbers
    assert_same_model(rbr.fit_from(mapped, target=y), RBRRegressor().fit(numbers, y), numbers, 1e-12)


def test_estimators_take_lists_of_blocks_too():
    X, y, weight, _ = problem("logistic", 400)
    expected = RBRClassifier().fit(X, y, sample_weight=weight)
    assert_same_model(RBRClassifier().fit(list(Blocks(X, y, weight))), expected, X, 1e-12)
    assert isinstance(rbr.fit_from(Blocks(X, y)), RBRClassifier)
    assert isinstance(rbr.fit_from(Blocks(X, X.b)), RBRRegressor)


def test_values_that_are_not_stored_are_read_when_they_are_needed(folder, monkeypatch):
    path, rows = folder
    monkeypatch.setattr(passes, "MAX_VALUES_BYTES", 0)
    expected = RBRRegressor(n_bags=0).fit(rows.drop(columns=["y", "weight"]), rows.y)
    seen = []
    found = rbr.fit_from(
        ParquetSource(path, "y", columns=list("abcde")), estimator=RBRRegressor(n_bags=0), callback=seen.append
    )
    assert_same_model(found, expected, rows, 1e-12)
    assert any(progress.stage == "values" for progress in seen)


def test_progress_reaches_the_callback_and_the_screen(capsys):
    X, y, _, _ = problem("squared", 600)
    seen = []
    rbr.fit_from(Blocks(X, y), n_bags=0, verbose=1, callback=seen.append)
    stages = [progress.stage for progress in seen]
    assert stages[:6] == ["first pass"] * 3 + ["second pass"] * 3 and "fit" in stages
    assert [progress.n_rows for progress in seen[:3]] == [200, 400, 600] and seen[3].n_total == 600
    assert "second pass: 600 of 600 rows" in capsys.readouterr().out


# Faults ----------------------------------------------------------------------------------------------------------


def rewrite(path, change):
    pq.write_table(change(pq.read_table(path)), path)


def test_a_column_missing_in_one_file(folder):
    path, _ = folder
    rewrite(path / "part-1.parquet", lambda rows: rows.drop_columns(["b"]))
    with pytest.raises(ValueError, match=r"part-1.parquet has no column 'b'"):
        rbr.fit_from(path, target="y")
    (path / "rows.csv").write_text("a,y\n1,2\n")
    (path / "more.csv").write_text("y\n2\n")
    with pytest.raises(ValueError, match=r"more.csv has no column 'a'"):
        rbr.fit_from([path / "rows.csv", path / "more.csv"], target="y")
    with pytest.raises(ValueError, match=r"rows.csv has no column 'price'"):
        rbr.fit_from(path / "rows.csv", target="price")


def test_files_with_other_categories_are_joined_and_with_other_types_refused(folder):
    path, rows = folder

    def renamed(own):
        levels = ["v" if level == "x" else level for level in own["c"].to_pylist()]
        return own.set_column(own.schema.get_field_index("c"), "c", pa.array(levels).dictionary_encode())

    rewrite(path / "part-2.parquet", renamed)
    m = rbr.fit_from(path, target="y", columns=list("abcde"))
    term = next(term for term in m.terms_ if term.name == "c")
    assert term.categories == ("v", "x", "y", "z")
    rewrite(path / "part-1.parquet", lambda own: own.set_column(2, "c", pa.array(np.arange(300.0))))
    with pytest.raises(
        ValueError, match=r"part-1.parquet, rows 0 to 299: column 'c' holds numbers, and text in earlier"
    ):
        rbr.fit_from(path, target="y")


def test_empty_and_broken_files(folder):
    path, rows = folder
    expected = rbr.fit_from(path, target="y")
    rewrite(path / "part-0.parquet", lambda own: own)
    pq.write_table(pq.read_table(path / "part-0.parquet").slice(0, 0), path / "part-00.parquet")
    assert_same_model(rbr.fit_from(path, target="y"), expected, rows, 1e-12)
    (path / "part-00.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"part-00.parquet"):
        rbr.fit_from(path, target="y")
    (path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match=r"empty.csv is empty"):
        rbr.fit_from(path / "empty.csv", target="y")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        rbr.fit_from(path / "nowhere", target="y")
    with pytest.raises(ValueError, match="has no rows"):
        rbr.fit_from(path / "part-1.parquet", target="y", filters=[("b", ">", 99)])


def test_text_in_a_csv_column_of_numbers_names_the_file(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n" * 100)
    (tmp_path / "b.csv").write_text("x,y\n" + "1.5,2\n" * 100 + "none,3\n")
    with pytest.raises(ValueError, match=r"b.csv cannot be read.*'none'.*types"):
        rbr.fit_from(tmp_path, target="y")
    source = CSVSource(tmp_path, "y", types={"x": pa.string()})
    assert RBRRegressor().fit(source).model_.n_features_in_ == 1


def test_a_block_without_a_class_and_a_source_with_one():
    X, y, _, _ = problem("three classes", 900)
    order = np.argsort(y, kind="stable")
    X, y = X.iloc[order], y[order]
    blocks = Blocks(X, y, n_blocks=6)
    assert len(np.unique(blocks.rows[0][1])) == 1
    assert_same_model(rbr.fit_from(blocks, estimator=RBRClassifier), RBRClassifier().fit(X, y), X, 1e-12)
    with pytest.raises(ValueError, match="only one class, 0"):
        rbr.fit_from(blocks.rows[:1], estimator=RBRClassifier)
    mixed = [blocks.rows[0], (X[:5], np.array(["a", "b", "a", "b", "a"]))]
    with pytest.raises(ValueError, match="block 1: y has classes such as 'a', and earlier blocks such as 0"):
        rbr.fit_from(mixed, estimator=RBRClassifier)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_targets_that_are_no_numbers_name_the_block(bad):
    X, y, _, _ = problem("squared", 600)
    y[450] = bad
    with pytest.raises(ValueError, match=r"block 2: loss 'squared_error': y\[50\] is"):
        rbr.fit_from(Blocks(X, y))
    with pytest.raises(ValueError, match=r"block 2: .*y\[50\] is"):
        rbr.fit_from(Blocks(X, np.where(np.isfinite(y), 1.0, y)), estimator=RBRClassifier)
    counts = np.ones(600)
    counts[10] = -1
    with pytest.raises(ValueError, match=r"block 0: loss 'poisson': y\[10\] is -1.0; y must be at least 0"):
        rbr.fit_from(Blocks(X, counts), loss="poisson")


def test_null_targets_and_weights_name_the_file(folder):
    path, _ = folder
    rewrite(path / "part-1.parquet", lambda own: own.set_column(5, "y", pa.array([None] + [1.0] * 299)))
    with pytest.raises(ValueError, match=r"part-1.parquet, rows 0 to 99: the target 'y' is missing in 1 rows"):
        rbr.fit_from(path, target="y", block_rows=100)
    X, y, weight, _ = problem("squared", 600)
    weight[:] = 1.0
    weight[300] = -2.0
    with pytest.raises(ValueError, match="block 1: sample_weight"):
        rbr.fit_from(Blocks(X, y, weight))


class Changing:
    """A source with another number of blocks each time that it is read, from the third time on."""

    def __init__(self, blocks, change):
        self.blocks, self.change, self.n_read = list(blocks), change, 0

    def __iter__(self):
        self.n_read += 1
        n_blocks = len(self.blocks) + (self.change if self.n_read > 2 else 0)
        return iter((self.blocks * 2)[:n_blocks])


@pytest.mark.parametrize("change, n_now", [(-1, "400"), (1, "more than 600")])
def test_a_source_that_changes_between_the_passes(change, n_now):
    X, y, _, _ = problem("squared", 600)
    with pytest.raises(ValueError, match=f"gave 600 rows when it was first read, and {n_now} in the second pass"):
        rbr.fit_from(Changing(Blocks(X, y), change), estimator=RBRRegressor)


def test_generators_and_other_things_that_are_no_sources():
    X, y, _, _ = problem("squared", 600)
    with pytest.raises(ValueError, match="a generator, which can be read only once"):
        rbr.fit_from(block for block in Blocks(X, y))
    with pytest.raises(ValueError, match="a generator, which can be read only once"):
        RBRRegressor().fit(block for block in Blocks(X, y))
    with pytest.raises(ValueError, match="the source has no rows"):
        rbr.fit_from([(X[:0], y[:0])])
    with pytest.raises(TypeError, match="source is a int"):
        rbr.fit_from(3)
    with pytest.raises(ValueError, match="block 0 is a list; it must be a tuple"):
        rbr.fit_from([[X, y]])
    with pytest.raises(ValueError, match="block 0: y has shape"):
        rbr.fit_from([(X, y[:-1])])
    with pytest.raises(ValueError, match="target is None; with files"):
        rbr.fit_from("rows.parquet")
    with pytest.raises(ValueError, match="leave it out"):
        rbr.fit_from([(X, y)], target="y")
    with pytest.raises(ValueError, match="warm_start"):
        rbr.fit_from([(X, y)], warm_start=True)
    with pytest.raises(ValueError, match="block 1: .*missing 'b'"):
        rbr.fit_from([(X, y), (X.drop(columns="b"), y)])
    with pytest.raises(ValueError, match="requires y to be passed"):
        RBRRegressor().fit(X)


def temporary_folders():
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("rbr-")}


def test_the_store_is_removed_after_success_failure_and_interruption(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    X, y, _, _ = problem("squared", 600)
    seen = []

    def look(progress):
        seen.append(temporary_folders())

    m = rbr.fit_from(Blocks(X, y), n_bags=0, callback=look)
    assert seen[-1] and not temporary_folders()
    for error in (KeyboardInterrupt, RuntimeError):
        for stage in ("second pass", "fit"):

            def fail(progress, stage=stage, error=error):
                if progress.stage == stage:
                    assert temporary_folders()
                    raise error

            before = dict(vars(m))
            with pytest.raises(error):
                rbr.fit_from(Blocks(X, y), estimator=m, callback=fail)
            assert not temporary_folders()
            assert vars(m) == before


def test_a_full_disk_is_an_error_that_says_how_much_is_needed(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(stores.os, "posix_fallocate", full, raising=False)
    X, y, _, _ = problem("squared", 600)
    with pytest.raises(OSError, match=r"has no place for .* GB \(codes of 600 rows\): No space left.*are free"):
        rbr.fit_from(Blocks(X, y))
    assert not temporary_folders()


# The cache -------------------------------------------------------------------------------------------------------


def fit_cached(source, cache, stages=None, **parameters):
    seen = []
    m = rbr.fit_from(source, cache_dir=cache, callback=seen.append, n_bags=0, **parameters)
    if stages is not None:
        stages[:] = sorted({progress.stage for progress in seen} - {"fit"})
    return m


@pytest.mark.parametrize("name", ["squared", "logistic", "three classes"])
def test_a_cache_is_used_again_for_the_same_rows_and_bins_only(name, folder, tmp_path_factory, monkeypatch):
    path, rows = folder
    cache, stages = tmp_path_factory.mktemp("cache"), []
    X, y, _, estimator = problem(name, 900)
    rows = X.assign(y=y)
    for k, part in enumerate(np.array_split(np.arange(900), 3)):
        pq.write_table(pa.Table.from_pandas(rows.iloc[part]), path / f"part-{k}.parquet")
    fit = functools.partial(fit_cached, cache=cache, stages=stages, estimator=type(estimator))
    first = fit(ParquetSource(path, "y"))
    assert stages == ["first pass", "second pass"]
    again = fit(ParquetSource(path, "y"))
    assert stages == []
    assert again.model_.to_dict() == first.model_.to_dict()
    fit(ParquetSource(path, "y"), max_bins=9)
    assert stages == ["first pass", "second pass"]
    fit(ParquetSource(path, "y", filters=[("b", ">", 0)]))
    assert stages == ["first pass", "second pass"]
    os.utime(path / "part-0.parquet", ns=(1, 1))
    fit(ParquetSource(path, "y"))
    assert stages == ["first pass", "second pass"]
    monkeypatch.setattr(rbr, "__version__", "99")
    fit(ParquetSource(path, "y"))
    assert stages == ["first pass", "second pass"]
    assert not [name for name in os.listdir(cache) if "unfinished" in name]
    endings = {file.suffix for file in Path(cache).rglob("*") if file.is_file()}
    assert endings == {".bin", ".json"}


def test_values_that_were_read_later_stay_in_the_cache(folder, tmp_path_factory, monkeypatch):
    path, _ = folder
    cache, stages = tmp_path_factory.mktemp("cache"), []
    monkeypatch.setattr(passes, "MAX_VALUES_BYTES", 0)
    first = fit_cached(ParquetSource(path, "y"), cache, stages)
    assert stages == ["first pass", "second pass", "values"]
    again = fit_cached(ParquetSource(path, "y"), cache, stages)
    assert stages == []
    assert again.model_.to_dict() == first.model_.to_dict()


@pytest.mark.parametrize("harm", ["shorter", "changed", "no facts", "bad facts", "other format", "missing"])
def test_a_broken_cache_is_made_again(harm, folder, tmp_path_factory):
    path, _ = folder
    cache, stages = tmp_path_factory.mktemp("cache"), []
    first = fit_cached(ParquetSource(path, "y"), cache, stages)
    (inside,) = cache.iterdir()
    codes, facts = inside / "codes.bin", inside / "store.json"
    if harm == "shorter":
        os.truncate(codes, 10)
    elif harm == "changed":
        codes.write_bytes(b"\xff" * codes.stat().st_size)
    elif harm == "missing":
        codes.unlink()
    elif harm == "no facts":
        facts.unlink()
    elif harm == "bad facts":
        facts.write_text("{")
    else:
        facts.write_text(re.sub(r'"format": \d+', '"format": 999', facts.read_text()))
    with pytest.warns(UserWarning, match=f"the cache in {re.escape(str(inside))} is broken and is made again"):
        again = fit_cached(ParquetSource(path, "y"), cache, stages)
    assert stages == ["first pass", "second pass"]
    assert again.model_.to_dict() == first.model_.to_dict()
    fit_cached(ParquetSource(path, "y"), cache, stages)
    assert stages == []


def test_a_cache_folder_that_cannot_be_written_to_and_rows_that_say_nothing_of_themselves(tmp_path):
    X, y, _, _ = problem("squared", 600)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cache_dir .*file.* cannot be written to"):
        rbr.fit_from(ArraySource(X, y), cache_dir=tmp_path / "file" / "inside")
    with pytest.raises(ValueError, match="BlockSource\\(blocks, key=...\\)"):
        rbr.fit_from(Blocks(X, y), cache_dir=tmp_path / "cache")
    stages = []
    for key, expected in (("may", ["first pass", "second pass"]), ("may", []), ("june", ["first pass", "second pass"])):
        fit_cached(BlockSource(Blocks(X, y), key=key), tmp_path / "cache", stages)
        assert stages == expected


def test_arrays_are_told_apart_by_their_content_and_maps_by_their_file(tmp_path):
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10.0)
    mapped = np.memmap(tmp_path / "rows.bin", np.float64, "w+", shape=(10, 2))
    assert ArraySource(X, y).fingerprint() == ArraySource(X.copy(), y).fingerprint()
    assert ArraySource(X, y).fingerprint() != ArraySource(X + 1, y).fingerprint()
    assert "hash" not in ArraySource(mapped, y).fingerprint()["X"]
    assert ArraySource(mapped[:5], y[:5]).fingerprint() != ArraySource(mapped[5:], y[:5]).fingerprint()


def test_missing_packages_are_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"Parquet files are read by pyarrow: pip install 'rbr\[files\]'"):
        ParquetSource(tmp_path, "y")
