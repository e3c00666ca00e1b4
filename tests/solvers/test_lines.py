"""Lines in x, and the last refit: what a person reads is what is predicted, and few rows say little."""

import sqlite3

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import rbr
from rbr import RBRClassifier, RBRRegressor
from rbr.solvers.last_refit import last_refit

SINGLE = {"n_bags": 0, "jump_cost": 1.0}


def skewed(n_rows=2000, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.exp(rng.normal(size=n_rows)), rng.normal(size=n_rows)])
    return X, 2 * X[:, 0] + rng.normal(size=n_rows)


def in_sqlite(model, X):
    """What a database says."""
    names = [f"x{j}" for j in range(X.shape[1])]
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE t ({', '.join(f'{name} REAL' for name in names)})")
    rows = [[None if np.isnan(x) else x for x in row] for row in X.tolist()]
    connection.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(names))})", rows)
    return np.array([row[-1] for row in connection.execute(model.to_sql("t"))])


@pytest.mark.parametrize("seed", range(3))
def test_a_line_in_a_skewed_column_is_one_piece_and_a_short_formula(seed):
    X, y = skewed(8000, seed)
    model = RBRRegressor(**SINGLE).fit(X, y).model_
    assert [term.name for term in model.terms] == ["x0"]
    assert model.n_pieces <= 2
    assert len(model.to_sql("t")) < 1000
    assert max(piece.slope for piece in model["x0"].pieces) == pytest.approx(2.0, abs=0.05)


def test_sql_says_what_predict_says_within_and_beyond_the_training_range():
    X, y = skewed()
    y = y + np.where(X[:, 1] > 0.3, 3 * X[:, 1], 0.0)
    X[::7, 1] = np.nan
    model = RBRRegressor(**SINGLE).fit(X, y).model_
    assert any(term.has_slopes for term in model.terms)
    far = np.array([[1e-9, 50.0], [1e9, -50.0], [np.inf, -np.inf], [np.nan, np.nan], [-np.inf, 1.0]])
    rows = np.concatenate([X, far])
    assert_allclose(in_sqlite(model, rows), model.decision_function(rows), rtol=1e-12, atol=1e-12)
    # Beyond the range of the training rows a line keeps its value at the end.
    low, high = model["x0"].bounds[0, 0], model["x0"].bounds[-1, 1]
    assert (low, high) == (X[:, 0].min(), X[:, 0].max())
    ends = model.explain(np.array([[high, 0.0], [1e9, 0.0], [np.inf, 0.0]]))[:, 0]
    assert ends[0] == ends[1] == ends[2] == model["x0"].pieces[-1].ends[1]


def test_a_line_is_a_line_between_its_ends():
    X, y = skewed()
    term = RBRRegressor(**SINGLE).fit(X, y).model_["x0"]
    model = rbr.AdditiveModel((term,), 0.0, rbr.losses.get_loss("squared_error"), None, None, 2, None)
    for piece in term.pieces:
        low, high = np.clip([piece.low, piece.high], *term.bounds[piece.start])
        x = np.linspace(low, high, 50)[1:]
        expected = piece.value + piece.slope * (x - piece.anchor)
        assert_allclose(model.predict(np.column_stack([x, x])), expected, rtol=1e-12)
        assert_allclose(np.interp(x, [low, high], piece.ends), expected, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_terms_with_lines_have_mean_zero_over_the_training_rows(weighted):
    X, y = skewed()
    X[::11, 0] = np.nan
    y = np.where(np.isnan(X[:, 0]), 1.0, y) + X[:, 1] ** 2
    weight = np.random.default_rng(1).integers(1, 5, len(y)).astype(float) if weighted else np.ones(len(y))
    model = RBRRegressor(**SINGLE).fit(X, y, sample_weight=weight).model_
    assert any(term.has_slopes for term in model.terms)
    assert_allclose(np.average(model.explain(X), axis=0, weights=weight), 0.0, atol=1e-10)
    loss = np.average((y - model.predict(X)) ** 2 / 2, weights=weight)
    assert model.training_loss == pytest.approx(loss, rel=1e-10)


@pytest.mark.parametrize(("scale", "shift"), [(1e-3, 1e6), (1e200, 0.0), (1e-200, 0.0)])
def test_the_unit_and_the_origin_of_a_column_do_not_matter(scale, shift):
    X, y = skewed()
    moved = X * scale + shift
    one, other = (RBRRegressor(**SINGLE).fit(Z, y) for Z in (X, moved))
    assert one.model_.n_pieces == other.model_.n_pieces
    assert_allclose(other.predict(moved), one.predict(X), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("loss", ["squared_error", "poisson", "huber"])
def test_the_last_refit_lowers_the_loss_of_lines(loss):
    X, y = skewed()
    y = np.random.default_rng(1).poisson(np.exp(0.1 * X[:, 0])).astype(float) if loss == "poisson" else y
    binner = rbr.Binner(max_bins=8).fit(X)  # wide bins: within them the line matters
    objective = rbr.make_objective(binner.transform(X), y, loss=loss, X=X)
    constraints = rbr.Constraints(shape="linear", max_segments=2, max_features=1, position="value")
    from rbr.solvers.last_refit import last_refit
    from rbr.solvers.lines import draw_lines

    solution = rbr.solve(objective=objective, constraints=constraints)
    drawn = draw_lines(solution, np.array([True, True]))
    refitted = last_refit(drawn, 0.0)
    assert refitted.loss < drawn.loss
    assert rbr.AdditiveModel.from_solution(binner, refitted).training_loss == refitted.loss
    # With the pieces held nothing is lower: the gradient in every value and slope is zero.
    distances = objective.distances(refitted.lines.tables, refitted.lines.positions)
    gradient = objective.line_gradient(refitted.point, distances)
    for piece in np.unique(refitted.labels[refitted.labels >= 0]):
        bins = np.flatnonzero(refitted.labels == piece)
        x = refitted.lines.positions[bins]
        assert abs(gradient[bins, 0].sum()) < 1e-5
        if refitted.lines.slopes[bins].any():  # otherwise a piece of two bins, which is two steps
            assert abs((gradient[bins, 1] + gradient[bins, 0] * (x - x.mean())).sum()) < 1e-5 * np.ptp(X[:, 0])


def test_a_piece_of_few_rows_is_shrunk_by_a_prior_worth_that_many_rows():
    """One category: the minimum of the loss plus c / 2n times the squared values, of mean zero."""
    rng = np.random.default_rng(0)
    levels = np.repeat(["a", "b", "c"], [200, 90, 10])
    y = np.select([levels == "a", levels == "b"], [0.0, 2.0], 9.0) + 0.1 * rng.normal(size=300)
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"level": pandas.Series(levels, dtype="string")})
    share = np.array([200, 90, 10]) / 300
    for prior_rows in (0.0, 5.0, 50.0):
        model = RBRRegressor(**SINGLE, prior_rows=prior_rows).fit(X, y).model_
        means = np.array([y[levels == name].mean() for name in "abc"])

        def objective(u, prior_rows=prior_rows, means=means):
            values = u[1:] - share @ u[1:]
            return share @ (means - u[0] - values) ** 2 / 2 + prior_rows / 600 * (values @ values)

        best = minimize(objective, np.zeros(4), tol=1e-14).x
        assert_allclose(model["level"].values, best[1:] - share @ best[1:], atol=1e-5)


@pytest.mark.parametrize("hessian_rows", [500, 5000])
def test_the_last_refit_of_many_rows_and_classes_finds_what_one_of_all_rows_does(hessian_rows):
    """With more than 50,000 rows Hessians are rough; those of several classes used to end in a TypeError."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    y = np.argmax(X + rng.gumbel(size=X.shape), axis=1).astype(float)
    design = rbr.Binner(max_bins=16).fit_transform(X)
    rough = {"rough_from_rows": 1000, "hessian_rows": hessian_rows, "hessian_rows_per_unknown": 1}

    def refitted(**options):
        options = rbr.SolverOptions(**options)
        s = rbr.solve(design, y, loss="multinomial", options=options)
        return last_refit(s, 50.0)

    assert_allclose(refitted(**rough).f, refitted().f, atol=0.02)


@pytest.mark.parametrize("prior_rows", [0.0, 5.0])
def test_codes_that_are_the_same_rows_in_many_columns_do_not_cancel(prior_rows):
    """Twenty columns with -9 in the same rows: many ways to say one thing, of which the least is told."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 20))
    unknown = rng.random(3000) < 0.1
    X[unknown] = -9.0
    y = np.where(unknown, 2.0, X[:, 0] + X[:, 1] * (X[:, 1] > 0) - X[:, 2]) + 0.5 * rng.normal(size=3000)
    options = {"alpha": 0.0, "always_include": list(range(20)), "jump_cost": 1.0, "n_bags": 0}
    model = RBRRegressor(**options, prior_rows=prior_rows).fit(X, y).model_
    told = model.explain(X[unknown][:1])[0]
    assert told.sum() + model.intercept == pytest.approx(2.0, abs=0.2)
    assert np.abs(told).max() < 2.0
    assert np.abs(told).sum() < 1.5 * abs(told.sum()) + 1.0


def test_classes_have_lines_of_their_own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    y = np.argmax(
        np.column_stack([X[:, 0], -X[:, 0], np.where(X[:, 1] > 0, 1.0, -1.0)]) + rng.gumbel(size=(1500, 3)), 1
    )
    model = RBRClassifier(**SINGLE).fit(X, y)
    term = model.model_["x0"]
    assert term.has_slopes and term.slopes.shape == (term.n_ordered, 3)
    assert term.slopes[:, 0].max() > 0.5 > -0.5 > term.slopes[:, 1].min()
    assert_allclose(model.explain(X).sum(axis=1) + model.intercept_, model.decision_function(X), atol=1e-10)
    assert_allclose(model.explain(X).mean(axis=0), 0.0, atol=1e-9)


def test_threads_and_files_change_no_bit(tmp_path):
    X, y = skewed()
    one, two = (RBRRegressor(**SINGLE, n_jobs=n).fit(X, y) for n in (1, 2))
    assert one.model_ == two.model_
    one.save(tmp_path / "m.json")
    loaded = rbr.load(tmp_path / "m.json")
    assert loaded == one.model_
    np.testing.assert_array_equal(loaded.predict(X), one.predict(X))


def test_ranks_are_still_there_as_staircases():
    X, y = skewed()
    term = RBRRegressor(**SINGLE, position="rank").fit(X, y).model_["x0"]
    assert not term.has_slopes and any(piece.kind == "line" for piece in term.pieces)


def test_a_line_is_not_drawn_out_into_a_gap():
    """Its last edge lies midway between its last value and the next, which may be far away."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(0, 1, 1000), rng.uniform(100, 101, 1000)])
    y = np.where(x < 50, 3 * x, -1.0) + 0.1 * rng.normal(size=2000)
    model = RBRRegressor(**SINGLE, max_bins=32).fit(x[:, None], y).model_
    line = model.terms[0].pieces[0]
    assert line.kind == "line" and line.high > 40
    values = model.predict(np.array([[0.5], [1.0], [2.0], [30.0], [80.0]]))
    assert values[0] == pytest.approx(1.5, abs=0.1)
    assert (np.abs(values[1:4] - 3.0) < 0.5).all()
    assert values[4] == pytest.approx(-1.0, abs=0.1)
    assert_allclose(in_sqlite(model, x[:, None]), model.decision_function(x[:, None]), rtol=1e-12, atol=1e-12)


def test_the_steps_of_one_class_beside_the_line_of_another():
    """A line over two bins is two steps; for another class the same bins may lie on a line in x."""
    rng = np.random.default_rng(4)
    for _ in range(12):
        X = rng.normal(size=(150, 2))
        y = np.argmax(
            X @ rng.normal(size=(2, 3)) + np.abs(X[:, :1]) * rng.normal(size=3) + rng.gumbel(size=(150, 3)), 1
        )
        model = RBRClassifier(n_bags=0, jump_cost=0.1, max_bins=12).fit(X, y)
        assert_allclose(model.explain(X).sum(axis=1) + model.intercept_, model.decision_function(X), atol=1e-10)


@pytest.mark.parametrize("estimator", [RBRRegressor, RBRClassifier])
def test_onnx_says_what_predict_says_of_lines(estimator):
    pytest.importorskip("onnx", reason="the graph is made with onnx")
    onnxruntime = pytest.importorskip("onnxruntime", reason="the graph is run in onnxruntime")
    X, y = skewed(600)
    X[::9, 1] = np.nan
    y = y + np.where(np.isnan(X[:, 1]), 2.0, X[:, 1] ** 2)
    y = y if estimator is RBRRegressor else np.digitize(y, [1.5, 4.0])  # three classes
    model = estimator(n_bags=0, jump_cost=0.2).fit(X, y).model_
    assert any(term.has_slopes for term in model.terms)
    rows = np.concatenate([X, [[np.inf, -np.inf], [1e9, 50.0], [np.nan, np.nan]]])
    graph = onnxruntime.InferenceSession(model.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = {own.name: rows[:, [int(own.name[1:])]] for own in graph.get_inputs()}
    (score,) = graph.run(["score"], inputs)
    expected = model.decision_function(rows).reshape(len(rows), -1)
    assert_allclose(score, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"max_segments": 1}, {"max_segments": 1, "n_bags": 0}])
@pytest.mark.parametrize(("seed", "skew"), [(3, 3), (1, 1), (4, 2)])
def test_a_line_never_spoils_what_bins_have_found(seed, skew, options):
    """With a log link, a line through the mean of a tail bin may explode at the largest values in it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(1000, 2))
    X = np.column_stack([np.exp(skew * x[:, 0]), x[:, 1]])
    y = rng.poisson(np.exp(x[:, 0] + (x[:, 1] > 0.3))).astype(float)
    model = RBRRegressor(loss="poisson", **options).fit(X, y).model_
    constant = rbr.losses.get_loss("poisson").values(y, np.full(len(y), np.log(y.mean()))).mean()
    assert model.training_loss < constant - 0.2
    assert model.predict(X).max() < 3 * y.max()


def test_a_table_of_frequencies_has_no_lines():
    X = np.random.default_rng(0).normal(size=(300, 1))
    options = {"shape": "frequency", "weights": "uniform", "max_bins": 16, "n_bags": 0}
    model = RBRRegressor(**options).fit(X, np.sin(3 * X[:, 0])).model_
    assert model.n_pieces > 4 and not model.terms[0].has_slopes


def test_a_huge_prior_leaves_next_to_nothing():
    X, y = skewed(300)
    model = RBRRegressor(**SINGLE, prior_rows=1e9).fit(X, y).model_
    assert np.abs(model.explain(X)).max() < 1e-3


@pytest.mark.parametrize("weight", [1e8, 1e14])
@pytest.mark.parametrize("prior_rows", [0, 10])
def test_equal_columns_with_huge_weights(weight, prior_rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    y = np.where(x > 0, 3.0, 0.0) + x + 0.3 * rng.normal(size=200)
    model = RBRRegressor(n_bags=0, prior_rows=prior_rows, always_include=[0, 1, 2])
    X = np.column_stack([x, x, 2 * x])
    assert model.fit(X, y, sample_weight=np.full(200, weight)).score(X, y) > 0.9


def of_pairs(n_rows=800, seed=1):
    """A design in which pairs of neighbouring values are told as lines where pieces are few, and what they tell."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 12, n_rows).astype(float)
    levels = np.array([0, 4, -3, 3, 5, -4, 2, -1, 6, 0, 3, -2.0])
    X = np.where(rng.random(n_rows) < 0.1, np.nan, x)[:, None]
    return X, levels[x.astype(int)] + 0.1 * rng.normal(size=n_rows)


@pytest.mark.parametrize("limit, n_pieces, n_short", [(6, 6, 6), (9, 9, 3), (12, 12, 0), (128, 12, 0)])
def test_two_bins_are_two_steps_where_the_limits_allow_it(limit, n_pieces, n_short):
    X, y = of_pairs()
    model = RBRRegressor(**SINGLE, max_segments=limit, prior_rows=0).fit(X, y).model_
    pieces = model["x0"].pieces
    short = [piece for piece in pieces if piece.kind == "line" and len(piece.bins) == 2]
    assert (len(pieces), len(short)) == (n_pieces, n_short)
    assert all(np.ptp(model["x0"].values[list(piece.bins)]) == 0 for piece in pieces if piece.kind == "constant")
    assert model["x0"].missing_value is not None
    in_bins = np.vstack([np.arange(12.0)[:, None], [[np.nan]]])
    assert_allclose(model.predict(in_bins)[:12], [0, 4, -3, 3, 5, -4, 2, -1, 6, 0, 3, -2], atol=0.3)


def test_two_steps_that_would_have_too_few_rows_stay_one_piece():
    X, y = of_pairs()
    model = RBRRegressor(**SINGLE, min_rows=90).fit(X, y).model_
    assert all(piece.weight * len(y) >= 90 - 1e-6 for piece in model["x0"].pieces)
    assert any(piece.kind == "line" for piece in model["x0"].pieces)


def test_a_default_fit_has_no_lines_of_two_bins():
    X, y = of_pairs(3000)
    m = RBRClassifier().fit(np.column_stack([X, X[::-1]]), y > 1)
    assert m.model_.n_pieces > 6
    assert not any(p.kind == "line" and len(p.bins) < 3 for term in m.terms_ for p in term.pieces)
