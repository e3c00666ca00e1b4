"""What rows that were left out decide of an average, and the prior that its tables share."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss

import rbr
from rbr import RBRClassifier, RBRRegressor
from rbr.solvers.averaging import Averaging
from rbr.solvers.left_out import Decision, decide, is_nearly_separable


def go_on(point):
    return False


def averaging_of(X, y, loss="squared_error", max_bins=64, **options):
    objective = rbr.make_objective(rbr.Binner(max_bins=max_bins).fit_transform(X), y, loss=loss)
    bound = rbr.Constraints(shape="mixed").bind_to(objective.tables, objective.n_total)
    return Averaging(objective, bound, 0.0, ~bound.excluded, **options)


def related_columns(seed, n=400):
    """(X, y): four columns that are nearly the same, of which y is the sum, and noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=n)[:, None] + 0.3 * rng.normal(size=(n, 4))
    return X, 0.3 * X.sum(axis=1) + rng.normal(size=n)


def test_bins_without_rows_are_told_as_the_bins_before_them():
    """Rows outside of a bag lie in bins that it does not have: at zero they would make any fit look bad."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    B = rbr.Binner(max_bins=255).fit_transform(x[:, None])
    inside = np.sort(rng.permutation(300)[:150])
    objective = rbr.make_objective(B[inside], (2.0 * (x > 0) + 0.1 * rng.normal(size=300))[inside])
    bound = rbr.Constraints(shape="mixed").bind_to(objective.tables, objective.n_total)
    run = Averaging(objective, bound, 0.0, ~bound.excluded)
    f = run.run(go_on).f
    empty = np.flatnonzero(objective.tables.shares == 0)
    assert len(empty) > 50
    first = np.flatnonzero(objective.tables.shares > 0)[0]
    for k in empty:
        assert f[k] == (f[k - 1] if k > first else f[first])
    assert (f[empty] != 0).all()


def test_a_shared_prior_is_the_mean_square_of_all_pieces_and_its_own():
    X, y = related_columns(0)
    run = averaging_of(X, y, uses_all=True)
    run.run(go_on)
    n, rows = (values[:, 0].copy() for values in (run.posterior.pieces, run.posterior.rows))
    more, looseness = run.objective.options.shared_pieces, 2.0
    run.looseness = looseness
    run.share_prior()
    of_all = looseness * np.sum(n / rows) / np.sum(n)
    expected = (n + more) / (n / rows + more * of_all)
    np.testing.assert_allclose(
        run.posterior.rows[:, 0], np.clip(expected, run.least_prior_rows, run.objective.options.most_prior_rows)
    )


def test_related_columns_share_their_effect_once_they_share_their_prior():
    def spread_of_effects(run, point):
        offsets, weights = run.bound.offsets, run.objective.tables.weights
        norms = np.sqrt(np.add.reduceat(weights * point.f**2, offsets[:-1]))
        return norms.std() / norms.mean()

    before, after = [], []
    for seed in range(4):
        run = averaging_of(*related_columns(seed), uses_all=True)
        point = run.run(go_on)
        before.append(spread_of_effects(run, point))
        after.append(spread_of_effects(run, run.settle_on_shared_prior(point, go_on)))
    assert np.mean(after) < 0.8 * np.mean(before)


def test_features_that_were_found_are_held_while_their_prior_is_shared():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 8))
    run = averaging_of(X, 3 * (X[:, 0] > 0) + 0.3 * X[:, 1] + rng.normal(size=600))
    point = run.run(go_on)
    used = run.used().tolist()
    assert used == [0, 1]
    end = run.settle_on_shared_prior(point, go_on)
    assert run.used().tolist() == used and end.support.tolist() == used
    assert (run.posterior.share[used] == 1.0).all()


def test_nearly_separable_classes_are_those_of_few_rows_with_little_loss():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10))
    clear, noisy = (X[:, 0] > 0).astype(int), (X[:, 0] + 2 * rng.normal(size=200) > 0).astype(int)
    for y, loss, expected in ((clear, "log_loss", True), (noisy, "log_loss", False), (clear, "squared_error", False)):
        run = averaging_of(X, y.astype(float), loss)
        assert is_nearly_separable(run, run.run(go_on)) is expected
    many = rng.normal(size=(20_000, 2))
    run = averaging_of(many, (many[:, 0] > 0).astype(float), "log_loss")
    assert not is_nearly_separable(run, run.run(go_on)) or run.objective.n_total < 20_000


def test_a_loss_of_zero_at_the_constant_model_is_no_reason_to_stop():
    """Losses of counts may be zero, or negative, at the constant model."""
    X = np.array([[0.0], [1.0], [2.0]])
    model = RBRRegressor(loss="poisson").fit(X, np.ones(3))
    np.testing.assert_allclose(model.predict(X), 1.0)
    model = RBRRegressor(loss="poisson").fit(X[:2], np.array([0.0, 2.0]))
    np.testing.assert_allclose(model.predict(X[:2]).mean(), 1.0)


def test_columns_of_missing_values_alone_share_no_prior():
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 8, 1000)
    X = np.column_stack([levels, np.full(1000, np.nan)])
    y = rng.poisson(np.exp(2.0 * np.sin(levels))).astype(float)
    model = RBRRegressor(loss="poisson", categorical_features=[0]).fit(X, y)
    assert model.selected_features_.tolist() == [0]
    run = averaging_of(X[:, [1]], y, uses_all=True, shares_prior=True)
    run.run(go_on)
    run.posterior.pieces[:] = 0.0  # as where no curves are allowed
    run.share_prior()
    assert np.isfinite(run.posterior.rows).all() and np.isfinite(run.posterior.f).all()


def test_rounds_that_run_away_end_where_they_were_last_well():
    """A score that is far too high makes counts worse than no model; steps from there lead further away."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, 1000)[:, None].astype(float)
    y = np.where(X[:, 0] == 0, 0.0, np.where(X[:, 0] == 1, 1.0, 15.0 + rng.integers(0, 15, 1000)))
    run = averaging_of(X, y, "poisson", uses_all=True)
    point = run.run(go_on)
    assert point.loss < run.objective.constant_loss
    assert run.has_run_away(point, replace(point, loss=run.objective.constant_loss + 1.0))
    assert run.has_run_away(point, replace(point, loss=np.nan)) and not run.has_run_away(point, point)
    last, round_of_averages = run.posterior.f.copy(), run.round

    def too_far(point, tables):
        round_of_averages(point, tables)
        run.posterior.f -= 20.0 * np.sign(run.posterior.f)

    run.round = too_far
    assert run.go_on(point, go_on) is point
    np.testing.assert_array_equal(run.posterior.f, last)


def test_where_nothing_is_to_be_decided_no_bag_is_drawn(monkeypatch):
    X, y = related_columns(0)
    run = averaging_of(X, y)
    point = run.run(go_on)
    monkeypatch.setattr(run.objective, "bags", lambda *args: pytest.fail("a bag was drawn"))
    assert decide(run, point, "alone", False, None, None) == Decision()
    assert decide(run, point, "alone", True, None, None) == Decision(uses_all=True)


def test_scores_of_nearly_separable_classes_are_not_shrunk(monkeypatch):
    """With the prior that steps of the EM algorithm end with, scores are too small."""
    losses = np.zeros((2, 3))
    for seed in range(3):
        X = np.random.default_rng(seed).normal(size=(1200, 6))
        y = (X.sum(axis=1) > 0).astype(int)
        for way, decision in enumerate((None, Decision(uses_all=True))):
            with monkeypatch.context() as patched:
                if decision is not None:
                    patched.setattr("rbr.solvers.averages.decide", lambda *args: decision)  # noqa: B023
                m = RBRClassifier().fit(X[:200], y[:200])
            losses[way, seed] = log_loss(y[200:], m.predict_proba(X[200:]))
    loose, tight = losses.mean(axis=1)
    assert loose < 0.92 * tight


def test_the_same_decision_for_any_number_of_threads():
    X, y = load_breast_cancer(return_X_y=True)
    one, three = (RBRClassifier(n_jobs=n).fit(X, y) for n in (1, 3))
    np.testing.assert_array_equal(one.decision_function(X), three.decision_function(X))


def test_weights_count_as_repeated_rows_in_what_is_decided():
    X, y = related_columns(3, n=150)
    weight = np.random.default_rng(0).integers(1, 4, 150)
    weighted = RBRRegressor().fit(X, y, sample_weight=weight)
    repeated = RBRRegressor().fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-6)
