"""Wide tables: read once, in blocks, with no Python call per column; a saved model holds only the used columns."""

import cProfile
import json
import pstats
import tracemalloc

import numpy as np
import pytest
from helpers import assert_same_bits

import rbr
from rbr import BinnedMatrix, Binner, Constraints, RBRClassifier, RBRRegressor
from rbr.constraints import BoundConstraints
from rbr.data import cutting
from rbr.objective.bags import RowBags


def table(n_rows, n_features, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal((n_rows, n_features)).astype(dtype)


def mapped(X, path, order):
    out = np.lib.format.open_memmap(path, mode="w+", dtype=X.dtype, shape=X.shape, fortran_order=order == "F")
    out[:] = X
    out.flush()
    return np.load(path, mmap_mode="r")


def assert_same_bins(binner, design, other, other_design):
    assert_same_bits(design.codes, other_design.codes)
    for name in ("n_bins_", "missing_", "offsets_", "positions_", "_edges"):
        assert_same_bits(getattr(binner, name), getattr(other, name))
    assert_same_bits(design.weights, other_design.weights)


@pytest.mark.parametrize("n_jobs", [1, 2, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("order", ["C", "F"])
def test_one_reading_gives_what_two_give(tmp_path, order, dtype, n_jobs):
    X = mapped(table(70, 9000) * 9, tmp_path / "X.npy", order)
    if dtype == np.int16:
        X = np.asarray(X, order=order).astype(dtype)
    elif dtype == np.float64:
        X = X.astype(dtype, order=order)
        X[::7, 5::90] = np.nan
    whole = Binner(max_bins=16).fit(X)
    binner = Binner(max_bins=16, n_jobs=n_jobs)
    assert_same_bins(binner, binner.fit_transform(X), whole, whole.transform(X))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("max_bins", [16, 255, {0: 300}, {1: 8}])
@pytest.mark.parametrize("kind", ["array", "frame", "binomial"])
def test_one_reading_of_samples_weights_and_frames(monkeypatch, kind, max_bins, exact, weighted):
    """Missing values outside the sampled rows are found, and those in rows of weight zero do not count."""
    if not exact:
        monkeypatch.setattr(cutting, "MAX_EXACT_ROWS", 500)
        monkeypatch.setattr(cutting, "SAMPLE_ROWS", (400, 400))
    X = table(3000, 6, np.float64)
    X[17, 2] = X[5, 4] = np.nan
    weight = np.ones(3000)
    weight[5] = 0.0
    weight = weight if weighted else None
    options = {"max_bins": max_bins}
    if kind == "frame":
        X = pytest.importorskip("pandas").DataFrame(X, columns=list("abcdef"))
    elif kind == "binomial":
        options["binning"] = {0: "binomial", 3: "binomial"}
    apart, binner = Binner(**options).fit(X, weight), Binner(**options, n_jobs=2)
    assert_same_bins(binner, binner.fit_transform(X, weight), apart, apart.transform(X, weight))
    assert binner.missing_.tolist() == [False, False, True, False, not weighted, False]


def test_the_reference_backend_bins_a_wide_table_alike():
    X = table(40, 500)
    fast, slow = Binner(max_bins=8, n_jobs=2), Binner(max_bins=8, n_jobs=2)
    B = fast.fit_transform(X)
    with rbr.use_backend("reference"):
        slow_B = slow.fit_transform(X)
    assert_same_bits(B.codes, slow_B.codes)
    assert_same_bits(fast._edges, slow._edges)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_mapped_table_is_never_copied_whole(tmp_path, order):
    n_rows, n_features = 500, 40_000
    X = mapped(table(n_rows, n_features), tmp_path / "X.npy", order)
    tracemalloc.start()
    design = Binner(max_bins=4).fit_transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The codes, some vectors over all bins, and the blocks being read; a float32 copy would add 4 bytes per entry.
    allowed = design.codes.nbytes + 20 * 8 * design.n_coef + 16 * 2**20
    assert peak <= allowed < design.codes.nbytes + X.nbytes


def test_progress_is_shown(capsys, monkeypatch):
    monkeypatch.setattr(cutting, "SECONDS_BETWEEN_REPORTS", 0.0)
    Binner(max_bins=4, verbose=1).fit_transform(table(2000, 300))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert lines[-1].startswith("cutting: 300 of 300 columns, ")
    Binner(max_bins=4).fit_transform(table(2000, 300))
    assert capsys.readouterr().out == ""


def planted(n_features, estimator=RBRRegressor):
    X = table(400, n_features)
    y = 3 * np.sign(X[:, 3]) + 2 * X[:, 7] + 0.1 * X[:, 11]
    y = y if estimator is RBRRegressor else (y > 0).astype(int)
    return estimator(max_bins=16, max_segments=4, max_features=5, n_bags=0, position="rank", jump_cost=0.5).fit(X, y), X


@pytest.mark.parametrize("estimator", [RBRRegressor, RBRClassifier])
def test_no_python_call_per_column(estimator):
    """Twenty times as many columns take about the same number of function calls."""
    planted(50, estimator)
    calls = []
    for n_features in (1000, 20_000):
        profile = cProfile.Profile()
        profile.enable()
        planted(n_features, estimator)
        profile.disable()
        calls.append(pstats.Stats(profile).total_calls)
    assert calls[1] < calls[0] + 8000  # one for each column would be 19,000 more


def test_a_saved_model_holds_the_used_columns_only(tmp_path):
    sizes = []
    for n_features in (100, 10_000):
        m, X = planted(n_features)
        path = tmp_path / f"{n_features}.json"
        m.save(path)
        sizes.append(path.stat().st_size)
        loaded = rbr.load(path)
        assert_same_bits(loaded.predict(X), m.predict(X))
        with pytest.raises(ValueError, match=f"X has {n_features - 1} features, but .* is expecting {n_features}"):
            loaded.predict(X[:, 1:])
        assert len(json.loads(path.read_text())["terms"]) == len(m.terms_) <= 5
    assert sizes[1] < 2 * sizes[0]


@pytest.mark.parametrize(("n_features", "n_draws"), [(19, 2), (21, 0)])
def test_all_features_compete_only_if_there_are_rows_for_them(n_features, n_draws, monkeypatch):
    drawn, draw = [], RowBags.draw
    monkeypatch.setattr(RowBags, "draw", lambda self: drawn.append(1) or draw(self))
    X = table(200, n_features)
    m = RBRRegressor(max_bins=8).fit(X, 3 * np.sign(X[:, 0]))
    assert m.selected_features_.tolist() == [0]
    assert bool(drawn) == bool(n_draws)


def test_columns_far_more_than_rows_are_averaged_without_a_call_for_each():
    calls = []
    for n_features in (1000, 10_000):
        X = table(300, n_features)
        y = 3 * np.sign(X[:, 3]) + 2 * np.sign(X[:, 7])
        profile = cProfile.Profile()
        profile.enable()
        m = RBRRegressor(max_bins=8).fit(X, y)
        profile.disable()
        assert {3, 7} <= set(m.selected_features_.tolist())
        calls.append(pstats.Stats(profile).total_calls)
    assert calls[1] < calls[0] + 8000


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
@pytest.mark.parametrize("forced", [(), (7,), tuple(range(200))])
@pytest.mark.parametrize("n_kept", [10, 30])
def test_candidates_find_what_all_columns_find_with_fewer_searches(loss, forced, n_kept, monkeypatch):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 60, (200, 400)).astype(np.uint8)
    design = BinnedMatrix(codes, 60 * np.arange(201))
    z = 3.0 * (codes[3] > 25) + 2.5 * (codes[50] < 15) + 2.0 * (codes[199] > 40) - 2.5
    y = z + rng.normal(size=400) if loss == "squared_error" else (z + rng.logistic(size=400) > 0).astype(float)
    constraints = Constraints(max_segments=4, jump_cost=0.5, always_include=forced)
    prox, n_searched = BoundConstraints.prox, 0

    def counted(self, *args, **kwargs):
        nonlocal n_searched
        found = prox(self, *args, **kwargs)
        n_searched += found.n_searched
        return found

    monkeypatch.setattr(BoundConstraints, "prox", counted)
    fits, searches = [], []
    for least in (200, n_kept):
        n_searched, options = 0, rbr.SolverOptions(min_candidates=least)
        fits.append(rbr.solve(design, y, loss=loss, constraints=constraints, alpha=0.01, options=options))
        searches.append(n_searched)
    of_all, of_few = fits
    assert {3, 50}.issubset(of_few.support) and of_few.converged
    # If all features enter free of charge there are many local minima, and the two fits may end in different ones.
    slack = 0.15 if len(forced) == 200 else 1e-3
    assert of_few.loss_path[-1] <= of_all.loss_path[-1] + slack * abs(of_all.loss_path[-1])
    assert searches[1] < searches[0] or len(forced) == 200
    # The answer is a fixed point of a step over all columns.
    problem, step = of_few.problem, of_few.step_size
    gradient = problem.objective.gradient(of_few.point)
    moved = problem.constraints.prox(of_few.f - step * gradient, step, problem.scale, alpha=problem.alpha)
    np.testing.assert_allclose(moved.f, of_few.f, rtol=0, atol=1e-4)
