"""Bootstrap: refits on resamples of the rows of one design."""

import dataclasses
import pickle
import threading
import time
import warnings

import numpy as np
import pytest
from models import make_model, make_term, with_columns
from numpy.testing import assert_allclose, assert_array_equal

import rbr
from rbr import RBRClassifier, RBRRegressor
from rbr.data.design import BinnedMatrix
from rbr.estimators import bootstrap
from rbr.model import Axis, PairTerm


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    X[:40, 1] = np.nan
    y = 2.0 * np.sign(X[:, 3]) + np.where(np.isnan(X[:, 1]), 1.0, X[:, 1]) + 0.5 * rng.normal(size=400)
    return X, y


@pytest.fixture(scope="module")
def regressor(data):
    return RBRRegressor(n_bags=0, max_features=3, max_bins=24, position="rank", prior_rows=0).fit(*data)


@pytest.fixture(scope="module")
def boot(regressor, data):
    return regressor.bootstrap(*data, n=20, random_state=0)


def test_there_is_a_band_for_every_term_and_a_frequency_for_every_feature(regressor, boot):
    assert boot.n_refits == 20
    assert [term.name for term in boot.terms] == [term.name for term in regressor.terms_]
    assert boot.frequencies.shape == (6,)
    assert (0 <= boot.frequencies).all() and (boot.frequencies <= 1).all()
    assert boot.frequencies[3] == boot.frequencies[1] == 1.0
    # No refit uses more features than the estimator may.
    assert boot.frequencies.sum() <= 3 + 1e-9
    assert boot.frequency("x3") == 1.0
    # Without pairs, a term is used exactly when its column is.
    assert_array_equal(boot.term_frequencies, boot.frequencies[regressor.selected_features_])
    for term, table in zip(boot.terms, boot.tables, strict=True):
        assert table.shape == (20, *term.all_values.shape)


def test_bands_are_quantiles_and_hold_most_of_the_model(regressor, boot):
    for name in ("x1", "x3"):
        term = regressor.model_[name]
        low, high = boot.band(name, 0.8)
        table = boot.tables[boot._position(name)]
        assert_allclose(low, np.quantile(table, 0.1, axis=0))
        assert_allclose(high, np.quantile(table, 0.9, axis=0))
        low, high = boot.band(name, 0.95)
        inside = (low <= term.all_values) & (term.all_values <= high)
        assert term.weights @ inside[:, 0] > 0.7
        # The bands are not trivially wide: on average narrower than the effect.
        assert term.weights @ (high - low)[:, 0] < np.ptp(term.all_values)


def test_tables_are_centred_like_the_model(boot):
    for term, table in zip(boot.terms, boot.tables, strict=True):
        assert_allclose(np.einsum("k,rkc->rc", term.weights, table), 0.0, atol=1e-10)


def test_a_refit_is_the_fit_of_its_resample(regressor, data):
    """One refit is reproduced by `solve`, from the bins of the model and the drawn rows as weights."""
    X, y = data
    rng = np.random.default_rng(5)
    (draw,) = bootstrap.resamples(None, y, 1, rng, is_classifier=False)
    counts = draw()
    assert counts.sum() == len(y) and (counts == counts.astype(int)).all() and (counts == 0).any()
    boot = regressor.bootstrap(X, y, n=1, random_state=5)
    B = regressor._solution_tables[0].transform(X)
    s = rbr.solve(
        B,
        y,
        constraints=rbr.Constraints(max_features=3, shape="mixed", jump_cost=rbr.constraints.DEFAULT_JUMP_COST),
        sample_weight=counts,
        dispersion=2 * regressor.dispersion_,  # repeated rows double the noise
    )
    assert_array_equal(np.flatnonzero(boot.frequencies), s.support)
    for term, table in zip(boot.terms, boot.tables, strict=True):
        (j,) = term.columns
        f = s.f[B.offsets[j] : B.offsets[j + 1]]
        assert_allclose(table[0, :, 0], f - term.weights @ f, atol=1e-12)


def test_tables_are_found_by_their_columns():
    """Tables in any order, one of them of two columns: a column is used if any used table has it."""
    rng = np.random.default_rng(0)
    a, b = (make_term(name, j, rng, n_bins=3, missing=False) for name, j in (("a", 1), ("b", 2)))
    pair = with_columns(make_term("a & b", 0, rng, n_bins=2, missing=False), 1, 2)
    model = dataclasses.replace(make_model(0), terms=(a, b, pair), n_features_in_=4, feature_names_in_=None)
    design = BinnedMatrix(
        np.zeros((5, 9), dtype=np.uint8),
        [0, 2, 5, 6, 9, 10],
        columns=[[1, 2], [2, -1], [0, -1], [1, -1], [3, -1]],
    )
    f = np.arange(10.0)
    refits = [dataclasses.replace(model, terms=terms) for terms in ((a, pair), (b,), (pair,))]
    found = bootstrap.bootstrap_of(model, design, rbr.Binner(), [f, 2 * f, f], refits)
    for term, table, bins in zip(model.terms, found.tables, (slice(6, 9), slice(2, 5), slice(0, 2)), strict=True):
        values = np.stack([f[bins], 2 * f[bins], f[bins]])
        shift = (values - term.values) @ term.weights
        assert_allclose(table[:, :, 0], values - shift[:, None], atol=1e-12)
    # The first refit uses column 1 in two terms, which counts once.
    assert_allclose(found.frequencies, [0, 2 / 3, 1, 0])
    assert_allclose(found.term_frequencies, [1 / 3, 1 / 3, 2 / 3])
    assert [found.frequency(name) for name in ("a", "b", "a & b")] == found.term_frequencies.tolist()
    assert found.feature_names == ("x0", "x1", "x2", "x3")
    with pytest.raises(ValueError, match=r"columns is \(0,\); one feature must look at just these, and none does"):
        bootstrap.bootstrap_of(
            dataclasses.replace(model, terms=(dataclasses.replace(a, columns=(0,)),)),
            BinnedMatrix(np.zeros((1, 9), dtype=np.uint8), [0, 3], columns=[[1]]),
            rbr.Binner(),
            [f],
            [model],
        )


def test_a_pair_has_a_band_in_its_own_cells():
    """A refit on the same grid gives its values; on another one means over the bins inside a cell, by the rows."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 4, 400) * 1.0, rng.integers(0, 2, 400) * 1.0])
    X[:30, 1] = np.nan
    binner = rbr.Binner(categorical_features=[1]).fit(X)
    design = binner.transform(X)
    shares = design.shares[:4]
    levels = Axis(1, "x1", [], ((0.0,), (1.0,)), True)

    def pair(edges, values):
        axes = Axis(0, "x0", edges, None, False), levels
        n = len(edges) + 1
        return PairTerm(
            "x0 & x1", axes, values, np.full((n, 3), 1 / 3 / n), np.ones((n, 3)), np.arange(3 * n).reshape(n, 3)
        )

    model = dataclasses.replace(
        make_model(0), terms=(pair([1.5], np.zeros((2, 3))),), n_features_in_=2, feature_names_in_=None
    )
    fine = rng.normal(size=(4, 3))
    turned = Axis(1, "x1", [], ((1.0,), (0.0,)), True)
    same = rng.normal(size=(2, 3))
    other = dataclasses.replace(pair([1.5], same[:, [1, 0, 2]]), axes=(Axis(0, "x0", [1.5], None, False), turned))
    refits = [dataclasses.replace(model, terms=(term,)) for term in (pair([0.5, 1.5, 2.5], fine), other)]
    refits.append(dataclasses.replace(model, terms=()))
    found = bootstrap.bootstrap_of(model, design, binner, [np.zeros(design.n_coef)] * 3, refits)
    halves = np.stack([shares[k : k + 2] @ fine[k : k + 2] / shares[k : k + 2].sum() for k in (0, 2)])
    for table, values in zip(found.tables[0][:, :, 0], (halves, same, np.zeros((2, 3))), strict=True):
        assert_allclose(table, (values - values.mean()).ravel(), atol=1e-12)
    assert found.band(0)[0].shape == (6, 1)
    assert_allclose(found.frequencies, [2 / 3, 2 / 3])
    assert found.frequency("x0 & x1") == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="bands: term 'x0 & x1' has other bins than in the bootstrap"):
        found.check_terms(refits[0].terms)


def test_refits_leave_noise_out_as_the_model_does():
    """At the model's own price, repeated rows would earn their own pieces and columns of noise would be selected."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 8))
    y = np.sign(X[:, 0]) + rng.normal(size=500)
    m = RBRRegressor(max_bins=24).fit(X, y)
    assert m.selected_features_.tolist() == [0]
    boot = m.bootstrap(X, y, n=10)
    assert boot.frequencies[0] == 1.0
    assert boot.frequencies[1:].mean() < 0.15


@pytest.mark.parametrize(
    "estimator", [RBRRegressor(max_features=2, max_bins=24), RBRRegressor(max_features=2, max_bins=24, n_bags=2)]
)
def test_the_result_does_not_depend_on_the_threads(estimator, data):
    estimator.fit(*data)
    one, two = (estimator.bootstrap(*data, n=5, random_state=3, n_jobs=n_jobs) for n_jobs in (1, 2))
    for a, b in zip(one.tables, two.tables, strict=True):
        assert_array_equal(a, b)
    assert_array_equal(one.frequencies, two.frequencies)


def test_random_state(regressor, data):
    def tables(random_state):
        return regressor.bootstrap(*data, n=2, random_state=random_state).tables[1]

    assert_array_equal(tables(None), tables(None))
    assert_array_equal(tables(7), tables(np.random.default_rng(7)))
    assert (tables(7) != tables(8)).any()
    # The first resamples do not depend on their number.
    assert_array_equal(tables(7), regressor.bootstrap(*data, n=4, random_state=7).tables[1][:2])


def test_rows_of_weight_zero_do_not_count(data):
    X, y = data
    weight = np.ones(len(y))
    weight[200:] = 0.0
    other = np.where(weight > 0, y, 1e3)
    one, two = (
        RBRRegressor(max_features=2, max_bins=24).fit(X, target, weight).bootstrap(X, target, n=3, sample_weight=weight)
        for target in (y, other)
    )
    for a, b in zip(one.tables, two.tables, strict=True):
        assert_array_equal(a, b)


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_weights_are_honoured(factor):
    """Integer weights are repeated rows, which are drawn one by one; other weights stay with their rows."""
    y = np.zeros(1000)
    weight = factor * np.where(np.arange(1000) < 500, 1.0, 3.0)
    (draw,) = bootstrap.resamples(weight, y, 1, np.random.default_rng(0), is_classifier=False)
    drawn = draw()
    assert drawn[500:].sum() / drawn.sum() == pytest.approx(0.75, abs=0.05)
    if factor == 1.0:
        assert drawn.sum() == 2000
        assert (drawn[500:] % 3 != 0).any()
    else:
        assert (drawn[500:] % 1.5 == 0).all()


def test_every_resample_holds_every_class():
    y = np.array([0.0] * 30 + [1.0])
    draws = bootstrap.resamples(None, y, 30, np.random.default_rng(0), is_classifier=True)
    assert all(draw()[-1] > 0 for draw in draws)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers(data, n_classes):
    X, y = data
    labels = np.array(["a", "b", "c"])[np.digitize(y, [0.0, 2.0][: n_classes - 1])]
    m = RBRClassifier(max_features=2, max_bins=24, alpha=1e-2, class_weight="balanced").fit(X, labels)
    boot = m.bootstrap(X, labels, n=3)
    assert all(table.shape[2] == (1 if n_classes == 2 else 3) for table in boot.tables)
    with pytest.raises(ValueError, match=r"y has the classes \['no', 'yes'\]; the model was fitted to \['a', 'b'"):
        m.bootstrap(X, np.where(y > 0, "yes", "no"), n=3)


def test_it_works_on_frames_and_tells_the_names():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame({"kind": pandas.Categorical(rng.choice(list("abc"), 200)), "noise": rng.normal(size=200)})
    y = (X["kind"] == "b") * 3.0 + rng.normal(size=200)
    boot = RBRRegressor(max_features=1).fit(X, y).bootstrap(X, y, n=4)
    frame = boot.to_frame()
    assert frame.columns.tolist() == ["feature", "frequency"]
    assert frame["feature"].tolist() == ["kind", "noise"] and frame["frequency"].tolist() == [1.0, 0.0]


def test_the_backend_in_use_reaches_the_threads(regressor, data, monkeypatch):
    from rbr._backend import kernels

    seen = set()
    solve = rbr.estimators.base.solve

    def spy(*args, **kwargs):
        seen.add((kernels().__name__, threading.current_thread() is threading.main_thread()))
        return solve(*args, **kwargs)

    monkeypatch.setattr(rbr.estimators.base, "solve", spy)
    with rbr.use_backend("reference"):
        regressor.bootstrap(*data, n=2, n_jobs=2)
    assert seen == {("rbr.reference.kernels", False)}


def test_progress_is_printed(regressor, data, capsys):
    regressor.bootstrap(*data, n=3, verbose=1)
    assert [line.split(" refits")[0] for line in capsys.readouterr().out.splitlines()] == [
        "bootstrap: 1 of 3",
        "bootstrap: 2 of 3",
        "bootstrap: 3 of 3",
    ]
    regressor.bootstrap(*data, n=3)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_interrupt_stops_the_others(n_threads):
    stop, ended = threading.Event(), []

    def interrupted():
        raise KeyboardInterrupt

    def patient():
        while not stop.is_set():
            time.sleep(0.01)
        ended.append(True)

    before = list(warnings.filters)
    tasks = [interrupted, *[patient] * 10]
    with pytest.raises(KeyboardInterrupt):
        bootstrap.run_all(tasks, n_threads, stop)
    # Running tasks have noticed it and ended; waiting ones never started.
    assert len(ended) <= 2
    assert warnings.filters == before


def test_it_is_a_value(boot):
    with pytest.raises(AttributeError):
        boot.frequencies = None
    with pytest.raises(ValueError, match="read-only"):
        boot.tables[0][0] = 1.0
    copy = pickle.loads(pickle.dumps(boot))
    assert_array_equal(copy.band("x3")[0], boot.band("x3")[0])
    assert_array_equal(copy.term_frequencies, boot.term_frequencies)
    assert repr(boot).startswith("Bootstrap(20 refits, bands of ")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, X, y: m.bootstrap(X, y, n=0), "n is 0; it must be at least 1"),
        (lambda m, X, y: m.bootstrap(X, y[:-1]), "y has length 399, but X has 400 rows"),
        (lambda m, X, y: m.bootstrap(X, y, sample_weight=-np.ones(400)), "sample_weight|Negative"),
        (lambda m, X, y: m.bootstrap(X[:, :2], y), "features"),
        (lambda m, X, y: m.bootstrap(X, y, n=2).band("z"), "term is 'z'; the terms of the bootstrap are 'x"),
        (lambda m, X, y: m.bootstrap(X, y, n=2).band("x3", 1.5), "level is 1.5; it must be below 1"),
    ],
)
def test_errors_name_what_is_wrong(regressor, data, call, message):
    with pytest.raises(ValueError, match=message):
        call(regressor, *data)


# ---------------------------------------------------------------- pictures


def test_bands_are_drawn(regressor, boot):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    axes = regressor.plot(["x3", "x1"], bands=boot, level=0.5)
    (band,) = [artist for artist in axes[0].get_children() if artist.get_gid() == "band"]
    low, high = boot.band("x3", 0.5)
    drawn = band.get_data()
    assert_array_equal(drawn.values, high[:, 0])
    assert_array_equal(drawn.baseline, low[:, 0])
    importance = regressor.model_["x3"].importance
    assert axes[0].get_title(loc="right") == f"mean |effect| {importance:.2g}\nused in 100% of refits"
    (note,) = [text.get_text() for text in axes[0].figure.texts if text.get_gid() == "footnotes"]
    assert "the middle 50% of 20 refits" in note
    pyplot.close("all")


@pytest.mark.parametrize("share_y", [True, False])
def test_bands_fit_into_the_picture(boot, regressor, share_y):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    wide = dataclasses.replace(boot, tables=tuple(3.0 * table for table in boot.tables))
    axes = regressor.plot("x3", bands=wide, level=0.9, share_y=share_y)
    low, high = wide.band("x3", 0.9)
    bottom, top = axes[0].get_ylim()
    assert bottom < low.min() and high.max() < top
    pyplot.close("all")


def test_bands_of_another_model_are_refused(data, boot):
    pytest.importorskip("matplotlib.pyplot")
    X, y = data
    other = RBRRegressor(max_features=3, max_bins=7).fit(X, y)
    with pytest.raises(ValueError, match="bands: term 'x[0-9]' has other bins than in the bootstrap"):
        other.plot(["x3"], bands=boot)
