"""Averages over all ways to cut the tables: the mean itself, what it selects, and how few pieces tell it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import rbr
from rbr import RBRClassifier, RBRRegressor
from rbr.objective.bags import RowBags
from rbr.reference.averages import LEAST_LINE, average_table
from rbr.reference.curves import average_curve, curve_of
from rbr.solvers.averages import average_over_pieces, projected
from rbr.solvers.averaging import Averaging, Mixing


def by_enumeration(sums, weights, prior, odds, line_share):
    """(mean, log evidence, pieces) by all ways to cut and all kinds of pieces, each a Gaussian model of its own."""
    b = len(sums)
    evidences, means, pieces = [], [], []
    for jumps in product([False, True], repeat=b - 1):
        edges = [0, *(k + 1 for k in range(b - 1) if jumps[k]), b]
        spans = list(zip(edges[:-1], edges[1:], strict=True))
        for kinds in product([False, True], repeat=len(spans)):
            if any(is_line and stop - start < LEAST_LINE for is_line, (start, stop) in zip(kinds, spans, strict=True)):
                continue
            log_prior = sum(jumps) * np.log(odds) - (b - 1) * np.log1p(odds)
            columns, precisions = [], []
            for is_line, (start, stop) in zip(kinds, spans, strict=True):
                inside = (np.arange(b) >= start) & (np.arange(b) < stop)
                columns.append(inside.astype(float))
                precisions.append(prior)
                if stop - start >= LEAST_LINE:
                    with np.errstate(divide="ignore"):
                        log_prior += np.log(line_share if is_line else 1 - line_share)
                if is_line:
                    w = weights * inside
                    centre = w @ np.arange(b) / w.sum()
                    away = (np.arange(b) - centre) * inside
                    columns.append(away / np.sqrt(w @ away**2 / w.sum()))
                    precisions.append(3 * prior)
            Z, P = np.array(columns).T, np.diag(precisions)
            A = Z.T @ (weights[:, None] * Z) + P
            pull = Z.T @ sums
            log_dets = np.linalg.slogdet(A)[1] - np.linalg.slogdet(P)[1]
            evidences.append(log_prior + 0.5 * pull @ np.linalg.solve(A, pull) - 0.5 * log_dets)
            means.append(Z @ np.linalg.solve(A, pull))
            pieces.append(len(spans))
    total = np.logaddexp.reduce(evidences)
    shares = np.exp(np.array(evidences) - total)
    return shares @ np.array(means), total, shares @ np.array(pieces)


@pytest.mark.parametrize("line_share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("b", [1, 2, 3, 5, 7])
def test_the_mean_is_that_of_all_ways_to_cut(b, line_share):
    rng = np.random.default_rng(b)
    weights = rng.gamma(1.0, 5.0, b)
    sums = weights * (rng.normal(size=b) + 2 * (np.arange(b) > b / 2))
    found = average_table(sums, weights, 0.7, 0.2, line_share)
    for actual, expected in zip(found[:3], by_enumeration(sums, weights, 0.7, 0.2, line_share), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("b", [1, 2, 3, 8])
def test_a_curve_is_a_gaussian_process_over_the_bins(b, length):
    rng = np.random.default_rng(b)
    weights, prior = rng.gamma(1.0, 5.0, b), 3.0
    sums = weights * rng.normal(size=b)
    # The covariance of two bins: of the level, and of sums of rises less their means over the weights.
    places = np.arange(b - 1)
    alike = np.exp(-np.abs(places[:, None] - places) / (length * (b - 1))) if length else np.eye(b - 1)
    rises = (np.eye(b) - weights / weights.sum()) @ (np.arange(b)[:, None] > places)
    K = np.ones((b, b)) / prior
    if b > 1:
        K = K + rises @ (4 / (prior * alike.sum()) * alike) @ rises.T
    W = np.diag(weights)
    mean, evidence, unknowns = curve_of(sums, weights, prior, length)
    expected = np.linalg.solve(np.eye(b) + K @ W, K @ sums)
    np.testing.assert_allclose(mean, expected, atol=1e-12)
    assert evidence == pytest.approx(0.5 * sums @ expected - 0.5 * np.linalg.slogdet(np.eye(b) + K @ W)[1])
    assert unknowns == pytest.approx(np.trace(np.linalg.solve(np.eye(b) + K @ W, K @ W)))


def test_a_long_curve_is_a_line():
    rng = np.random.default_rng(0)
    k, weights, prior = np.arange(9.0), np.full(9, 2.0), 0.5
    sums = weights * (0.3 * k + rng.normal(size=9))
    # A value, and a slope whose rise from end to end has the variance 4 / prior.
    Z, P = np.column_stack([np.ones(9), (k - 4) / 8]), np.diag([prior, prior / 4])
    A = Z.T @ (weights[:, None] * Z) + P
    mean, evidence, unknowns = curve_of(sums, weights, prior, 1e7)
    np.testing.assert_allclose(mean, Z @ np.linalg.solve(A, Z.T @ sums), atol=1e-6)
    pull = Z.T @ sums
    log_dets = np.linalg.slogdet(A)[1] - np.linalg.slogdet(P)[1]
    assert evidence == pytest.approx(0.5 * pull @ np.linalg.solve(A, pull) - 0.5 * log_dets, abs=1e-5)
    assert unknowns == pytest.approx(np.trace(np.linalg.solve(A, A - P)), abs=1e-5)


def test_the_grid_of_curves_is_averaged_by_evidence():
    rng = np.random.default_rng(1)
    weights, sums = rng.gamma(2.0, 1.0, 6), rng.normal(size=6)
    single = [curve_of(sums, weights, r * 0.7, length) for length in (1.0, 0.1) for r in (1.0, 9.0)]
    mean, evidence, unknowns = average_curve(sums, weights, 0.7, [1.0, 0.1], [1.0, 9.0])
    shares = np.exp([found[1] - evidence for found in single]) / 4
    assert shares.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(mean, sum(share * found[0] for share, found in zip(shares, single, strict=True)))
    assert unknowns == pytest.approx(sum(share * found[2] for share, found in zip(shares, single, strict=True)))


def error_of_the_mean(function, shape, curve_share):
    """(mean squared error of an average of two tables, its probability of curves) over a few draws of the rows."""
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(1500, 2))
        truth = function(X[:, 0]) + X[:, 1]
        binned = rbr.Binner(max_bins=64).fit_transform(X)
        options = rbr.SolverOptions(curve_share=curve_share, projection_price=0.0, projection_share=0.0)
        objective = rbr.make_objective(binned, truth + rng.normal(size=1500), options=options)
        found = average_over_pieces(objective, rbr.Constraints(shape=shape, jump_cost=1.0))
        errors.append(np.mean((found.intercept + binned.matvec(found.f) - truth) ** 2))
    return np.mean(errors)


def test_smooth_curves_are_told_better_where_tables_bend_and_no_worse_where_they_jump():
    def bends(x):
        return np.sin(7 * x)

    def jumps(x):
        return 2.0 * (x > 0.37)

    assert error_of_the_mean(bends, "mixed", 0.5) < 0.9 * error_of_the_mean(bends, "mixed", 0.0)
    assert error_of_the_mean(jumps, "mixed", 0.5) < 1.05 * error_of_the_mean(jumps, "mixed", 0.0)
    # Where no lines are allowed, there are no curves.
    assert error_of_the_mean(bends, "constant", 0.5) == error_of_the_mean(bends, "constant", 0.0)


@pytest.mark.long
def test_the_suggested_prior_is_the_one_that_the_effects_were_drawn_from():
    """Tables of three known pieces, with values of standard deviation 2: the prior settles near 1 / 4."""
    rng = np.random.default_rng(0)
    priors = []
    for _ in range(60):
        values = np.repeat(2.0 * rng.normal(size=3), 20)
        prior = 10.0
        for _ in range(30):
            _, _, _, prior = average_table(1000.0 * values, np.full(60, 1000.0), prior, 0.05, 0.0)
        priors.append(1 / prior)
    assert np.mean(priors) == pytest.approx(4.0, rel=0.3)


# ---------------------------------------------------------------- noise stays out


NOISE = {
    "normal": (RBRRegressor, {}, lambda rng, n: rng.normal(size=n)),
    "t with 3 degrees": (RBRRegressor, {}, lambda rng, n: rng.standard_t(3, size=n)),
    "classes": (RBRClassifier, {}, lambda rng, n: rng.random(n) < 0.5),
    "2% positives": (RBRClassifier, {}, lambda rng, n: rng.random(n) < 0.02),
    "counts": (RBRRegressor, {"loss": "poisson"}, lambda rng, n: rng.poisson(0.5, size=n)),
    "overdispersed": (RBRRegressor, {"loss": "poisson"}, lambda rng, n: rng.poisson(rng.gamma(0.5, 2, size=n))),
    "gamma": (RBRRegressor, {"loss": "gamma"}, lambda rng, n: rng.gamma(2.0, size=n)),
    "huber": (RBRRegressor, {"loss": "huber"}, lambda rng, n: rng.normal(size=n)),
    "quantile": (RBRRegressor, {"loss": "quantile"}, lambda rng, n: rng.normal(size=n)),
    "three classes": (RBRClassifier, {}, lambda rng, n: rng.integers(0, 3, size=n)),
}


def noise_table(rng, n_rows):
    """Plain columns, a category of many levels, heavy ties, and missing values."""
    import pandas as pd

    X = pd.DataFrame(rng.normal(size=(n_rows, 4)), columns=list("abcd"))
    X["levels"] = pd.Categorical(rng.integers(0, 50, n_rows).astype(str))
    X["ties"] = np.where(rng.random(n_rows) < 0.9, 0.0, rng.normal(size=n_rows))
    X.loc[rng.random(n_rows) < 0.2, "d"] = np.nan
    return X


@pytest.mark.parametrize("kind", NOISE)
def test_noise_of_every_kind_stays_out(kind):
    estimator, options, draw = NOISE[kind]
    n_false = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        m = estimator(n_jobs=1, **options).fit(noise_table(rng, 400), draw(rng, 400))
        n_false += len(m.terms_) > 0
    assert n_false <= 2  # with a rate of 1 in 20 three of 12 are a chance of 2%


def test_planted_columns_are_found_among_noise():
    n_false = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(2000, 20))
        y = np.sin(2 * X[:, 0]) + (X[:, 1] > 0) + X[:, 2] / 2 + rng.normal(size=2000)
        found = set(RBRRegressor().fit(X, y).selected_features_.tolist())
        assert {0, 1, 2} <= found
        n_false += len(found) > 3
    assert n_false <= 1


def test_a_steep_line_in_a_skewed_column_is_one_piece_and_lets_nothing_else_in():
    n_false = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = np.exp(1.5 * rng.normal(size=(3000, 8)))
        m = RBRRegressor().fit(X, 2 * X[:, 0] + rng.normal(size=3000))
        n_false += m.selected_features_.tolist() != [0]
        (term,) = [term for term in m.terms_ if term.columns == (0,)]
        assert len(term.pieces) <= 2
        assert len(m.model_.to_sql()) < 1000 or len(m.terms_) > 1
    assert n_false <= 1


@pytest.mark.parametrize("seed", range(3))
def test_a_steep_line_over_few_rows_leaves_nothing_but_noise(seed):
    # Its rise within bins was once taken between bins that are averaged over as one, where there is none: what was left
    # over, thirty to three hundred times the noise, looked like signal of other columns.
    rng = np.random.default_rng([seed, 500, 50])
    X = np.exp(1.5 * rng.normal(size=(500, 50)))
    model = RBRRegressor().fit(X, 2 * X[:, 0] + rng.normal(size=500))
    assert model.selected_features_.tolist() == [0]
    assert model.dispersion_ == pytest.approx(1.0, rel=0.3)


def test_competing_bags_of_a_steep_line_know_their_noise():
    """Of rounds that end early rounding decides where, so one fit in thirty may take noise for signal."""
    n_false = 0
    for seed in (4, 11, 18, 25, 32):
        rng = np.random.default_rng([seed, 5000, 5])
        X = np.exp(1.5 * rng.normal(size=(5000, 5)))
        model = RBRRegressor().fit(X, 2 * X[:, 0] + rng.normal(size=5000))
        n_false += model.selected_features_.tolist() != [0]
    assert n_false <= 1


def test_a_step_is_two_pieces():
    n_pieces = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(2000, 3))
        m = RBRRegressor().fit(X, (X[:, 0] > rng.uniform(-1, 1)) + rng.normal(size=2000))
        n_pieces.append(len(m.terms_[0].pieces))
    assert n_pieces.count(2) >= 9


def test_many_weak_effects_enter_together_if_rows_left_out_say_so(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 30))
    y = 0.8 * X[:, 0] + 0.06 * X[:, 1:] @ rng.choice([-1.0, 1.0], 29) + rng.normal(size=3000)
    train, test = slice(0, 1000), slice(1000, 3000)
    together = RBRRegressor().fit(X[train], y[train])
    monkeypatch.setattr("rbr.solvers.left_out._may_all_be_better", lambda *args: False)
    alone = RBRRegressor().fit(X[train], y[train])
    assert len(together.terms_) > 20 > len(alone.terms_)
    assert together.score(X[test], y[test]) > alone.score(X[test], y[test])


def differences_of_related_columns(seed):
    """(X, y): six columns that share most of what they say, of which y is differences, a step, and noise."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(3000, 6))
    X = np.column_stack([rng.normal(size=3000)[:, None] + 0.15 * own, rng.normal(size=(3000, 4))])
    return X, 0.5 * own @ [1, -1, 1, -1, 1, -1] + (X[:, 6] > 0) + rng.normal(size=3000)


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_columns_that_say_much_together_and_little_alone_are_found_beside_all_others(seed, monkeypatch):
    monkeypatch.setattr("rbr.solvers.left_out._may_all_be_better", lambda *args: False)
    X, y = differences_of_related_columns(seed)
    B = rbr.Binner(max_bins=64).fit_transform(X)
    objective, constraints = rbr.make_objective(B, y), rbr.Constraints(shape="mixed", jump_cost=1.0)
    found, alone = (average_over_pieces(objective, constraints, way=way) for way in (None, "alone"))
    assert found.way == "together"
    assert found.support.tolist() == list(range(7))
    assert (alone.loss - found.loss) * len(y) / found.dispersion > 10.0


def test_the_bound_on_the_evidence_of_one_table_is_its_evidence():
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    objective = rbr.make_objective(rbr.Binner(max_bins=16).fit_transform(x[:, None]), np.sin(x) + rng.normal(size=500))
    bound = rbr.Constraints(shape="mixed").bind_to(objective.tables, objective.n_total)
    run = Averaging(objective, bound, 0.0, ~bound.excluded, known_dispersion=1.0, uses_all=True, settled=0.0)
    point = run.run(lambda point: False)
    unused = Averaging(objective, bound, 0.0, ~bound.excluded, known_dispersion=1.0)
    nothing = unused.point()
    unused.estimate_dispersion(nothing)
    gain = run.worth(point) - unused.worth(nothing)
    assert gain == pytest.approx(run.posterior.evidence[0, 0] - objective.options.price_of_prior, rel=1e-6)


def test_rounds_over_two_classes_do_not_swing():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 3))
    z = 2 * np.sin(2 * X[:, 0]) + X[:, 1] + 2 * (X[:, 2] > 0)
    y = (rng.random(2000) < 1 / (1 + np.exp(1 - 1.5 * z))).astype(int)
    objective = rbr.make_objective(rbr.Binner(max_bins=64).fit_transform(X), y, loss="multinomial")
    found = average_over_pieces(objective, rbr.Constraints(shape="mixed", jump_cost=1.0), way="alone")
    losses = np.array([iteration.loss for iteration in found.history[:-1]])
    assert np.diff(losses).max() < 0.005  # 0.02 with whole steps


def test_a_rare_count_leaves_no_row_out_of_a_bag_and_the_features_with_evidence_stay():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = rng.poisson(np.exp(X[:, 0]))
    y[0] = 19
    m = RBRRegressor(loss="poisson").fit(X, y)
    assert 0 in m.selected_features_


# ---------------------------------------------------------------- promises


def table_and_target(n_rows=600, seed=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 6)).round(1)
    X[rng.random(n_rows) < 0.1, 2] = np.nan
    y = np.sin(X[:, 0]) + (X[:, 1] > 0.3) + np.where(np.isnan(X[:, 2]), 1.0, 0.0) + 0.5 * rng.normal(size=n_rows)
    return X, y


@pytest.mark.parametrize("estimator", [RBRRegressor, RBRClassifier])
def test_an_average_has_the_same_bits_for_any_number_of_threads_and_every_time(estimator):
    X, y = table_and_target()
    y = y if estimator is RBRRegressor else y > 0.5
    models = [estimator(n_jobs=n_jobs).fit(X, y).model_ for n_jobs in (1, 3, 1)]
    assert models[0] == models[1] == models[2]


def test_weights_are_repeated_rows():
    X, y = table_and_target()
    k = np.random.default_rng(1).integers(0, 4, len(y))
    weighted = RBRRegressor().fit(X, y, sample_weight=k)
    repeated = RBRRegressor().fit(np.repeat(X, k, axis=0), np.repeat(y, k))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"max_features": 2},
        {"max_segments": 2},
        {"always_include": [5]},
        {"exclude": [0]},
        {"monotonic_cst": {0: 1}},
        {"min_rows": 0.2},
        {"shape": "constant"},
        {"shape": "linear"},
        {"weights": "uniform"},
        {"alpha": 0.1},
    ],
    ids=str,
)
def test_an_average_keeps_the_limits(options):
    X, y = table_and_target()
    m = RBRRegressor(**options).fit(X, y)
    used = m.selected_features_.tolist()
    assert used and len(used) <= options.get("max_features", 6)
    assert set(options.get("always_include", [])) <= set(used) and not set(options.get("exclude", [])) & set(used)
    for term in m.terms_:
        values = np.append(term.values, [] if term.missing_value is None else term.missing_value)
        assert abs(term.weights @ values) < 1e-10 or "weights" in options
        n_pieces = sum(piece.kind != "missing" for piece in term.pieces)
        assert n_pieces <= options.get("max_segments", 32)
        if term.columns == (0,) and "monotonic_cst" in options:
            assert (np.diff(term.values) >= 0).all()
        if "min_rows" in options and n_pieces > 1:
            assert all(piece.weight >= 0.2 * (1 - 0.11) for piece in term.pieces if piece.kind != "missing")
        assert options.get("shape") != "constant" or not term.has_slopes


def test_predictions_add_up_to_the_target():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 5))
    rare = rng.random(3000) < 1 / (1 + np.exp(3.5 - X[:, 0] - (X[:, 1] > 1)))
    m = RBRClassifier().fit(X, rare)
    p = m.predict_proba(X)[:, 1]
    assert p.sum() == pytest.approx(rare.sum(), rel=1e-6)
    # The reliability curve is straight: in each fifth of the scores the share of positives is the mean prediction.
    order = np.argsort(p)
    for part in np.array_split(order, 5):
        assert abs(rare[part].sum() - p[part].sum()) <= 3 * np.sqrt(p[part].sum())
    counts = rng.poisson(np.exp(0.5 * X[:, 0] - 1))
    mean = RBRRegressor(loss="poisson").fit(X, counts).predict(X)
    assert mean.sum() == pytest.approx(counts.sum(), rel=1e-6)


def test_a_callback_stops_an_average():
    X, y = table_and_target()
    objective = rbr.make_objective(rbr.Binner().fit_transform(X), y)
    seen = []
    solution = rbr.solvers.averages.average_over_pieces(
        objective, rbr.Constraints(jump_cost=1.0), callback=lambda row: seen.append(row.loss) or len(seen) == 2
    )
    assert len(seen) >= 2 and solution.status == "average"


def test_equal_rows_are_thinned_as_one_weight():
    """Bags group rows by 64 bits of their content: the same groups as by the content itself."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (500, 3)).astype(float)
    y = rng.integers(0, 2, 500).astype(float)
    objective = rbr.make_objective(rbr.Binner().fit_transform(X), y)
    bags = RowBags(objective, 1, 0.5, None)
    distinct = np.unique(np.column_stack([X, y]), axis=0)
    assert len(bags._first) == len(distinct)
    assert bags._weight.sum() == 500


def test_mixed_rounds_find_where_slow_rounds_are_heading():
    """A linear round that leaves 99% of the distance needs a thousand plain rounds for four digits, mixed a few."""
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(6, 6)))
    slow = basis @ np.diag([0.99, 0.95, 0.5, 0.1, 0.0, 0.0]) @ basis.T
    limit, weights = rng.normal(size=(6, 1)), np.ones((6, 1))
    x, plain, mixing = np.zeros((6, 1)), np.zeros((6, 1)), Mixing(5)
    for _ in range(12):
        x = mixing.next(x, limit + slow @ (x - limit), weights)
        plain = limit + slow @ (plain - limit)
    assert np.abs(x - limit).max() < 1e-4 < 1e-1 < np.abs(plain - limit).max()


def test_mixed_rounds_over_copies_of_a_feature_are_fewer_and_end_where_plain_ones_do(monkeypatch):
    """Ten noisy copies of one column take turns in explaining it."""
    rounds, plain_rounds = 0, 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(2000, 1))
        X = x + 0.3 * rng.normal(size=(2000, 10))
        y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=2000)
        mixed = RBRRegressor().fit(X, y)
        with monkeypatch.context() as patch:
            patch.setattr(Mixing, "next", lambda self, x, g, weights: g)
            plain = RBRRegressor().fit(X, y)
        assert np.abs(mixed.predict(X) - plain.predict(X)).mean() < 0.03
        rounds, plain_rounds = rounds + mixed.n_iter_, plain_rounds + plain.n_iter_
    assert rounds < plain_rounds


@pytest.mark.parametrize("interactions", [0, "auto"])
def test_a_column_of_missing_values_alone_is_left_out(interactions):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:, 1] = np.nan
    model = RBRRegressor(interactions=interactions).fit(X, 2 * X[:, 0] + rng.normal(size=200))
    np.testing.assert_array_equal(model.selected_features_, [0])


def test_options_may_be_whole_numbers():
    """Priors that were whole numbers made vectors of integers, in which estimates were cut to zero."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400, 2))
    y = np.sin(x[:, 0]) + 0.3 * rng.normal(size=400)
    design = rbr.Binner(max_bins=32).fit_transform(x)
    found = [
        average_over_pieces(
            rbr.make_objective(design, y, options=rbr.SolverOptions(most_prior_rows=kind(100), least_jumps=kind(1))),
            rbr.Constraints(shape="mixed"),
        )
        for kind in (int, float)
    ]
    np.testing.assert_array_equal(found[0].f, found[1].f)


def test_bins_are_merged_to_hold_rows_only_where_a_row_can_lie_far_out():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(900, 1))
    design = rbr.Binner(max_bins=200).fit_transform(x)
    for loss, n_groups in (("squared_error", 45), ("log_loss", 200)):
        objective = rbr.make_objective(design, (x[:, 0] > 0).astype(float), loss=loss)
        bound = rbr.Constraints(shape="mixed").bind_to(objective.tables, objective.n_total)
        assert Averaging(objective, bound, 0.0, ~bound.excluded).n_groups == n_groups


@pytest.mark.parametrize("loss, n_outputs", [("squared_error", 1), ("log_loss", 1), ("multinomial", 3)])
def test_classes_pay_less_for_a_prior_and_share_the_price_of_pieces(monkeypatch, loss, n_outputs):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(600, 2))
    y = {"squared_error": x[:, 0], "log_loss": x[:, 0] > 0, "multinomial": np.digitize(x[:, 0], [-0.5, 0.5])}[loss]
    objective = rbr.make_objective(rbr.Binner(max_bins=32).fit_transform(x), y.astype(float), loss=loss)
    bound = rbr.Constraints(shape="mixed").bind_to(objective.tables, objective.n_total)
    options, prices = objective.options, []
    run = Averaging(objective, bound, 0.0, ~bound.excluded)
    expected = options.price_of_prior if loss == "squared_error" else options.price_of_prior_of_classes
    assert run.price_beside(np.zeros(1)) == pytest.approx(np.log(2.0) + expected)

    def keep(*given, price):
        prices.append(price)
        return projected(*given, price=price)

    monkeypatch.setattr("rbr.solvers.averages.projected", keep)
    average_over_pieces(objective, rbr.Constraints(shape="mixed", jump_cost=1.0))
    least = max(options.projection_price, options.projection_share * objective.constant_loss * objective.n_total)
    assert options.projection_price / n_outputs <= prices[0]
    if loss != "squared_error":
        assert prices[0] == pytest.approx(least / n_outputs)
