"""The losses: derivatives by finite differences, laws (weights as repeated rows, bounds), and scikit-learn."""

import math
import warnings

import cases_losses
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize_scalar
from sklearn import metrics

from rbr import _fast, reference
from rbr.losses import ALIASES, LOSSES, Loss, Rows, get_loss
from rbr.losses.roots import LARGEST_INTERCEPT
from rbr.losses.sums import add_to_scores, robust_scale, weighted_quantile

# Every loss in LOSSES, with parameters that cover its range of behaviour.
PARAMETERS = {
    "squared_error": [{}],
    "log_loss": [{}],
    "multinomial": [{"n_classes": 3}],
    "poisson": [{}],
    "gamma": [{}],
    "tweedie": [{"power": q} for q in (1, 1 + 1e-9, 1.2, 1.5, 1.95, 2 - 1e-9, 2)],
    "huber": [{"delta": 0.3}, {"delta": 5.0}],
    "quantile": [{"level": 0.5, "half_width": 0.2}, {"level": 0.9, "half_width": 2.0}],
}
EVERY = [get_loss(name, **params) for name in LOSSES for params in PARAMETERS[name]]
every_loss = pytest.mark.parametrize("loss", EVERY, ids=repr)
one_score = pytest.mark.parametrize("loss", [loss for loss in EVERY if loss.name != "multinomial"], ids=repr)
DEFAULTS = [get_loss(name) for name in LOSSES]


def targets(loss, n, seed=0):
    """A plausible y of the loss's domain."""
    rng = np.random.default_rng(seed)
    if loss.name == "log_loss":
        y = rng.integers(0, 2, n)
    elif loss.name == "multinomial":
        y = rng.integers(0, 3, n)
    elif loss.name == "poisson" or getattr(loss, "power", None) == 1:
        y = rng.poisson(2.0, n)
    elif loss.name == "gamma" or getattr(loss, "power", None) == 2:
        y = rng.gamma(2.0, 1.0, n)
    elif loss.name == "tweedie":
        y = rng.poisson(1.0, n) * rng.gamma(2.0, 1.0, n)
    else:
        y = 1.0 + rng.standard_t(3, n)
    y[:3] = [0, 1, 2] if loss.name == "multinomial" else [1, 0, 1] if loss.name == "log_loss" else y[:3]
    return loss.validate(y)


def scores(loss, n, seed=1, scale=1.0):
    shape = (n, 3) if loss.name == "multinomial" else n
    return scale * np.random.default_rng(seed).normal(size=shape)


def weights(n, seed=2):
    v = np.random.default_rng(seed).random(n) + 0.1
    return v / v.sum()


def a_target(loss):
    """Any single y of the loss's domain, with the extremes that a table of data may hold."""
    if loss.name == "log_loss":
        return st.sampled_from([0.0, 1.0])
    if loss.name == "multinomial":
        return st.sampled_from([0, 1, 2])
    if loss.link == "log":
        positive = st.floats(1e-6, 1e6)
        return positive if loss.name == "gamma" or getattr(loss, "power", 0) == 2 else st.just(0.0) | positive
    return st.floats(-1e6, 1e6)


def a_score(loss, largest):
    one = st.floats(-largest, largest) | st.floats(-3, 3)
    return st.tuples(one, one, one) if loss.name == "multinomial" else one


def rows_of(loss, data, largest):
    y = data.draw(a_target(loss))
    z = data.draw(a_score(loss, largest))
    return np.array([y]), np.array([z], dtype=float)


def largest_score(loss):
    """1000 where the loss stays within the floats; a log link overflows beyond 709."""
    return 250.0 if loss.link == "log" else 1000.0


def test_every_loss_is_tested():
    assert set(PARAMETERS) == set(LOSSES)
    assert len(LOSSES) == 8


# Derivatives ----------------------------------------------------------------------------------------------


def directions(loss):
    return np.eye(3) if loss.name == "multinomial" else [1.0]


@every_loss
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_residual_is_the_negative_derivative(loss, data):
    y, z = rows_of(loss, data, largest_score(loss))
    h = 1e-4 * max(1.0, abs(float(np.abs(z).max())) * 1e-2)
    for k, direction in enumerate(directions(loss)):
        above, below = (loss.values(y, z + sign * h * direction)[0] for sign in (1, -1))
        residual = np.ravel(loss.residual(y, z))[k]
        # Truncation is of the order h^2 (h at the corner of a zone), rounding of the order eps * value / h.
        zone = h * (loss.curvature_bound() or 0.0) if loss.name in ("huber", "quantile") else 0.0
        tolerance = 1e-6 * (1 + abs(residual)) + 1e-11 * max(abs(above), abs(below)) / h * 1e-4 + zone
        assert abs((below - above) / (2 * h) - residual) <= tolerance


@every_loss
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_curvature_is_the_second_derivative(loss, data):
    y, z = rows_of(loss, data, largest_score(loss))
    h = 1e-4
    if loss.name in ("huber", "quantile"):
        edge = loss.delta if loss.name == "huber" else loss.half_width
        if abs(abs(float(y[0] - z[0])) - edge) <= 2 * h + 1e-9 * abs(float(y[0])):
            return  # the curvature jumps here
    for k, direction in enumerate(directions(loss)):
        above, below = (np.ravel(loss.residual(y, z + sign * h * direction)) for sign in (1, -1))
        curvature = np.ravel(loss.curvature(y, z))[k]
        hessian = np.ravel(loss.hessian(y, z)(direction * np.ones_like(z)))
        # With y of 1e6, the difference y - (z + h) has lost 10 digits of h; this limits the identity link.
        rounding = 1e-15 * (np.abs(above).max() + np.abs(below).max() + abs(float(y[0])) + np.abs(z).max()) / h
        bound = loss.curvature_bound() or 1.0
        tolerance = 1e-6 * (bound + abs(curvature)) + rounding * max(bound, 1.0)
        assert abs((below[k] - above[k]) / (2 * h) - curvature) <= tolerance
        assert np.abs((below - above) / (2 * h) - hessian).max() <= tolerance


@pytest.mark.parametrize("loss", [loss for loss in EVERY if loss.link != "identity"], ids=repr)
@pytest.mark.parametrize("z", [-3.0, 0.0, 0.7])
def test_curvature_growth_is_the_third_derivative_over_the_second(loss, z):
    if loss.name == "multinomial":
        z = np.array([[z, 0.3, -0.2]])
        y, step = np.array([0]), 1e-4 * np.array([[1.0, 0.0, 0.0]])
    else:
        z, step = np.array([z]), np.array([1e-4])
        y = np.zeros(1) if loss.name == "log_loss" else loss.inverse_link(z)
    growth = np.ravel(loss.curvature_growth(loss.inverse_link(z)))[0]
    above, at, below = (np.ravel(loss.curvature(y, z + t * step))[0] for t in (1, 0, -1))
    assert_allclose(growth, (above - below) / 2e-4 / at, atol=1e-6)


@every_loss
def test_one_sweep_gives_what_the_single_calls_give(loss):
    y, z = targets(loss, 20_000), scores(loss, 20_000, scale=3.0)
    values, residual, curvature = np.empty(20_000), np.empty(z.shape), np.empty(z.shape)
    loss.evaluate(y, z, values=values, residual=residual, curvature=curvature)
    assert_allclose(values, loss.values(y, z), rtol=0, atol=0)
    assert_allclose(residual, loss.residual(y, z), rtol=0, atol=0)
    assert_allclose(curvature, loss.curvature(y, z), rtol=0, atol=0)


@every_loss
def test_settling_is_refitting_the_intercept_adding_it_and_the_value_there(loss):
    y, z, v = targets(loss, 20_000), scores(loss, 20_000, scale=3.0), weights(20_000)
    start = loss.constant_start(y, v)
    expected = loss.refit_intercept(y, z, v, start)
    c, value = loss.refit_intercept_and_value(Rows(y, z, v, n_threads=2), start)
    assert_allclose(c, expected, rtol=0, atol=1e-12)
    assert value is None or value == pytest.approx(loss.value(y, z + c, v), rel=1e-14)
    assert value is not None or loss.name != "log_loss"  # whose sums give the value
    moved = z.copy()
    add_to_scores(moved, c, n_threads=2)
    assert_allclose(moved, z + c, rtol=0, atol=0)


def test_settling_where_one_class_or_an_infinite_score_stands_alone():
    loss, v = get_loss("log_loss"), np.array([0.5, 0.5, 0.0])
    z = np.array([1.0, 2.0, np.inf])
    y = np.array([1.0, 1.0, 0.0])
    c, value = loss.refit_intercept_and_value(Rows(y, z, v), 0.0)
    assert 700 < c <= LARGEST_INTERCEPT and not value and loss.value(y, z + c, v) == 0.0
    y = np.array([0.0, 1.0, 0.0])
    c, value = loss.refit_intercept_and_value(Rows(y, z, v), 0.0)
    expected = np.log1p(np.exp(-0.5))
    assert c == pytest.approx(-1.5, abs=1e-12) and loss.value(y, z + c, v) == pytest.approx(expected, rel=1e-12)
    assert value is None or value == pytest.approx(expected, rel=1e-12)


@every_loss
def test_inputs_are_left_alone_and_may_be_read_only(loss):
    y, z, v = targets(loss, 50), scores(loss, 50), weights(50)
    for array in (y, z, v):
        array.flags.writeable = False
    before = y.copy(), z.copy()
    loss.prepare(y, v).value(y, z, v)
    loss.curvature(y, z)
    loss.residual(y, z)
    loss.refit_intercept(y, z, v, loss.constant_start(y, v))
    loss.dispersion(y, z, v, 50)
    assert (before[0] == y).all() and (before[1] == z).all()


# Bounds ---------------------------------------------------------------------------------------------------


@every_loss
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_curvature_bound_bounds_and_convexity_holds(loss, data):
    y, z = rows_of(loss, data, 1000.0)
    direction = np.array([data.draw(a_score(loss, 1.0))], dtype=float)
    assert (loss.curvature(y, z) >= 0).all()
    if loss.curvature_bound() is not None:
        form = float(np.sum(direction * loss.hessian(y, z)(direction)))
        assert form >= -1e-15 * float(np.sum(direction**2))
        assert form <= loss.curvature_bound() * float(np.sum(direction**2)) * (1 + 1e-12) + 1e-300
        assert loss.curvature_bound(y, z) == loss.curvature_bound()


def test_curvature_bounds_are_reached():
    at_zero = np.zeros(1)
    reached = {
        "squared_error": 1.0,
        "log_loss": 0.25,
        "huber": 1.0,
        "quantile": 2.5,
    }
    for name, bound in reached.items():
        loss = get_loss(name, **PARAMETERS[name][0])
        assert loss.curvature(at_zero, at_zero)[0] == loss.curvature_bound() == bound
    two_classes = np.array([[0.0, 0.0, -1000.0]])
    loss = get_loss("multinomial")
    direction = np.array([[1.0, -1.0, 0.0]])
    form = np.sum(direction * loss.hessian(np.array([0]), two_classes)(direction)) / 2
    assert form == pytest.approx(loss.curvature_bound())
    assert all(get_loss(name).curvature_bound() is None for name in ("poisson", "gamma", "tweedie"))


@every_loss
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_majorized_curvature_gives_a_parabola_above_the_loss(loss, data):
    y, z = rows_of(loss, data, 50.0)
    y = y if loss.link in ("logit", "softmax") else np.clip(y, -50, 50)
    move = np.array([data.draw(a_score(loss, 100.0))], dtype=float)
    majorized = loss.majorized_curvature(y, z)
    if loss.link == "log":
        assert majorized is None
        return
    parabola = loss.values(y, z)[0] - np.sum(loss.residual(y, z) * move) + np.sum(majorized * move**2) / 2
    assert loss.values(y, z + move)[0] <= parabola + 1e-11 * (1 + abs(parabola))
    if loss.name != "multinomial":
        assert (majorized <= loss.curvature_bound() * (1 + 1e-12)).all()


# Weights --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", DEFAULTS, ids=repr)
def test_weights_are_repeated_rows(loss):
    n = 60
    y, z = targets(loss, n), scores(loss, n)
    repeats = np.random.default_rng(3).integers(0, 4, n)
    repeats[:3] = 2
    total = repeats.sum()
    v = repeats / total
    rows = np.repeat(np.arange(n), repeats)
    same = np.full(total, 1.0 / total)
    offset = scores(loss, n, seed=5)
    weighted, repeated = loss.prepare(y, v, None), loss.prepare(y[rows], same, None)
    for given_loss in (weighted, repeated):
        assert given_loss.__dict__ == pytest.approx(weighted.__dict__)
    assert weighted.value(y, z, v) == pytest.approx(weighted.value(y[rows], z[rows], same), rel=1e-12)
    start = weighted.constant_start(y, v)
    assert_allclose(start, weighted.constant_start(y[rows], same), rtol=0, atol=1e-12)
    with_offset = weighted.constant_start(y, v, offset)
    assert_allclose(with_offset, weighted.constant_start(y[rows], same, offset[rows]), rtol=0, atol=2e-12)
    assert_allclose(
        weighted.refit_intercept(y, z, v, start),
        weighted.refit_intercept(y[rows], z[rows], same, start),
        rtol=0,
        atol=2e-12,
    )
    assert weighted.dispersion(y, z, v, total) == pytest.approx(
        weighted.dispersion(y[rows], z[rows], same, total), rel=1e-12
    )


@every_loss
def test_rows_of_weight_zero_are_not_there(loss):
    y, z, v = targets(loss, 40), scores(loss, 40), weights(40)
    wild = np.r_[y, y[:2]], np.concatenate([z, [z[0] + 1000, z[0] - 1000]]), np.r_[v, 0.0, 0.0]
    if loss.name == "multinomial":
        wild[1][-2:, 1] = 0.0
    with np.errstate(all="raise"):
        assert loss.value(*wild) == pytest.approx(loss.value(y, z, v), rel=1e-13)
        start = loss.constant_start(y, v)
        assert_allclose(loss.constant_start(wild[0], wild[2]), start, rtol=1e-13)
        assert_allclose(loss.refit_intercept(*wild, start), loss.refit_intercept(y, z, v, start), rtol=0, atol=1e-12)


def test_weighted_quantile_does_not_tell_weights_from_rows():
    values = np.arange(10.0)
    for n_copies in (1, 3, 7, 1000):
        v = np.full(10 * n_copies, 0.1 / n_copies)
        rows = np.repeat(values, n_copies)
        assert [weighted_quantile(rows, v, q) for q in (0.1, 0.3, 0.5, 0.7)] == [0.0, 2.0, 4.0, 6.0]
    assert weighted_quantile(values, np.eye(10)[7], 0.01) == 7.0


def test_robust_scale_of_a_normal_of_ties_and_of_a_constant():
    v = np.full(20_001, 1 / 20_001)
    assert robust_scale(np.random.default_rng(0).normal(size=20_001) * 3, v) == pytest.approx(3.0, rel=0.03)
    assert robust_scale(np.array([0.0, 0.0, 0.0, 4.0]), np.full(4, 0.25)) == pytest.approx(1.2533)
    assert robust_scale(np.full(4, 7.0), np.full(4, 0.25)) == 1.0


def test_prepare_is_explicit_and_keeps_what_is_given():
    y, v = 10 * targets(get_loss("huber"), 500), weights(500)
    assert get_loss("huber", delta=2.0).prepare(y, v).delta == 2.0
    assert get_loss("huber").prepare(y, v).delta == 1.345 * robust_scale(y, v)
    assert get_loss("quantile", smoothing=0.2).prepare(y, v).half_width == 0.2 * robust_scale(y, v)
    assert get_loss("quantile", half_width=3.0).prepare(y, v).half_width == 3.0
    assert get_loss("huber").prepare(y, v, offset=y - 1.0).delta == 1.345  # constant up to rounding
    for name, parameter in (("huber", "delta"), ("quantile", "half_width")):
        with pytest.raises(ValueError, match=f"loss '{name}': {parameter} is None; call prepare"):
            get_loss(name).value(y, y, v)


# Intercepts -----------------------------------------------------------------------------------------------


@one_score
@pytest.mark.parametrize("start", [0.0, 30.0, -30.0])
def test_intercept_is_the_minimiser(loss, start):
    y, z, v = targets(loss, 300), scores(loss, 300, scale=2.0), weights(300)
    c = loss.refit_intercept(y, z, v, start)
    found = minimize_scalar(lambda c: loss.value(y, z + c, v), bounds=(-30, 30), options={"xatol": 1e-9})
    assert c == pytest.approx(found.x, abs=1e-6)
    assert loss.value(y, z + c, v) <= found.fun * (1 + 1e-15) + 1e-15
    # Accurate to 1e-12: the derivative changes sign within that distance (up to its own rounding).
    slope = float(v @ loss.curvature(y, z + c))
    assert abs(float(v @ loss.residual(y, z + c))) <= 1e-12 * slope + 1e-15 * float(v @ np.abs(loss.residual(y, z)))


@one_score
def test_constant_start_is_the_minimiser(loss):
    y, v = targets(loss, 300), weights(300)
    offset = scores(loss, 300)
    for given_offset, z in ((None, np.zeros(300)), (offset, offset)):
        c = loss.constant_start(y, v, given_offset)
        found = minimize_scalar(lambda c, z=z: loss.value(y, z + c, v), bounds=(-9, 9), options={"xatol": 1e-9})
        assert c == pytest.approx(found.x, abs=1e-6)
        assert loss.value(y, z + c, v) <= found.fun + 1e-14 * float(v @ np.abs(loss.values(y, z + c)))
        assert abs(float(v @ loss.residual(y, z + c))) <= 1e-14 * (1 + float(v @ np.abs(y)))


def test_constant_starts_in_closed_form():
    v = np.array([0.1, 0.2, 0.3, 0.4])
    y = np.array([0.0, 1.0, 1.0, 0.0])
    assert get_loss("squared").constant_start(y, v) == pytest.approx(0.5, abs=1e-16)
    assert get_loss("logistic").constant_start(y, v) == pytest.approx(0.0, abs=1e-15)
    assert get_loss("poisson").constant_start(4 * y, v) == pytest.approx(math.log(2.0), abs=1e-15)
    shares = get_loss("multinomial").constant_start(np.array([0, 1, 1, 2]), v)
    assert_allclose(np.exp(shares) / np.exp(shares).sum(), [0.1, 0.5, 0.4], rtol=1e-14)
    assert abs(shares.sum()) <= 1e-15


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 300.0])
@pytest.mark.parametrize("start", [0.0, 5.0, 100.0])
def test_multinomial_intercept_has_sum_zero_and_no_score(scale, start):
    loss = get_loss("multinomial")
    y, z, v = targets(loss, 300), scores(loss, 300, scale=scale), weights(300)
    c = loss.refit_intercept(y, z, v, start * np.array([1.0, -2.0, 1.0]))
    assert abs(c.sum()) <= 1e-12 * (1 + np.abs(c).max())
    assert_allclose(v @ loss.residual(y, z + c), 0.0, atol=1e-13)
    if scale == 0:
        assert_allclose(c, loss.constant_start(y, v), atol=1e-12)


@every_loss
def test_sums_for_the_intercept_add_up_over_rows(loss):
    y, z, v = targets(loss, 90), scores(loss, 90), weights(90)
    start = loss.constant_start(y, v)
    parts = [slice(0, 10), slice(10, 80), slice(80, 90)]

    def sums_at(c):
        return sum(loss.intercept_sums(y[rows], z[rows], v[rows], c) for rows in parts)

    assert_allclose(loss.minimize_intercept(sums_at, start), loss.refit_intercept(y, z, v, start), rtol=0, atol=1e-12)


@every_loss
def test_a_warm_refit_needs_few_passes(loss):
    y, z, v = targets(loss, 500), scores(loss, 500), weights(500)
    optimum = loss.refit_intercept(y, z, v, loss.constant_start(y, v))
    passes = []

    def sums_at(c):
        passes.append(c)
        return loss.intercept_sums(y, z, v, c)

    shift = np.array([0.01, -0.01, 0.0]) if loss.name == "multinomial" else 0.01
    loss.minimize_intercept(sums_at, optimum + shift)
    closed_form = loss.link == "log" or loss.name == "squared_error"
    assert len(passes) <= (1 if closed_form else 6 if loss.name in ("huber", "quantile") else 3)


def test_intercepts_without_a_finite_optimum_are_bounded():
    v, z = np.full(3, 1 / 3), np.array([0.0, 1.0, -2.0])
    logistic = get_loss("logistic")
    with np.errstate(all="raise"):
        for y, sign in ((np.zeros(3), -1), (np.ones(3), 1)):
            assert logistic.constant_start(y, v) == sign * LARGEST_INTERCEPT
            c = logistic.refit_intercept(y, z, v, 0.0)
            assert 700 < sign * c <= LARGEST_INTERCEPT
            assert logistic.value(y, z + c, v) == 0.0
        poisson = get_loss("poisson")
        assert poisson.constant_start(np.zeros(3), v) == -LARGEST_INTERCEPT
        assert poisson.refit_intercept(np.zeros(3), z, v, 0.0) == -LARGEST_INTERCEPT
        three = get_loss("multinomial", n_classes=3)
        c = three.refit_intercept(np.array([0, 1, 1]), np.zeros((3, 3)), v, np.zeros(3))
        assert np.isfinite(c).all() and three.inverse_link(c[None])[0, 2] < 1e-12


# Numbers at the edge --------------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize("z", [1000.0, -1000.0])
def test_scores_of_a_thousand(loss, z):
    y, v = targets(loss, 30), weights(30)
    z = np.full(30, z) if loss.name != "multinomial" else np.tile([z, -z, 0.0], (30, 1))
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        value, residual, curvature = loss.value(y, z, v), loss.residual(y, z), loss.curvature(y, z)
        loss.inverse_link(z[:1]) if loss.link != "log" else None
        c = loss.refit_intercept(y, z, v, loss.constant_start(y, v))
        moved = loss.value(y, z + c, v)
    assert not np.isnan(residual).any() and not np.isnan(curvature).any()
    assert not math.isnan(value) and value > -math.inf
    if loss.link != "log":
        assert np.isfinite(value) and np.isfinite(residual).all() and np.isfinite(curvature).all()
    # The intercept undoes the shift, however large.
    assert moved <= loss.value(y, 0 * z + loss.constant_start(y, v), v) + 1e-11 * abs(moved)


def test_log_loss_and_multinomial_keep_their_digits_far_out():
    z = np.array([40.0, 300.0, 700.0])
    exact = np.exp(-z)
    logistic, three = get_loss("log_loss"), get_loss("multinomial")
    assert_allclose(logistic.values(np.ones(3), z), exact, rtol=1e-14)
    assert_allclose(logistic.residual(np.ones(3), z), exact, rtol=1e-14)
    assert_allclose(logistic.residual(np.zeros(3), -z), -exact, rtol=1e-14)
    assert_allclose(logistic.curvature(np.ones(3), z), exact, rtol=1e-14)
    scores = np.column_stack([z, 0 * z])
    assert_allclose(three.residual(np.zeros(3, dtype=int), scores)[:, 0], exact, rtol=1e-14)
    assert_allclose(three.residual(np.zeros(3, dtype=int), scores)[:, 1], -exact, rtol=1e-14)
    assert logistic.value(np.array([0.0, 1.0]), np.array([1000.0, -1000.0]), np.full(2, 0.5)) == 1000.0


def test_an_overflow_is_infinite_and_silent():
    v, one = np.ones(1), np.ones(1)
    with np.errstate(all="raise"):
        assert get_loss("poisson").value(one, 1000 * one, v) == math.inf
        assert get_loss("gamma").value(one, -1000 * one, v) == math.inf
        assert get_loss("tweedie", power=1.1).value(one, 1000 * one, v) == math.inf
        assert get_loss("tweedie", power=1.9).value(one, -1000 * one, v) == math.inf
        assert get_loss("tweedie", power=1.9).value(0 * one, -1000 * one, v) == pytest.approx(-10.0)
        assert get_loss("tweedie", power=1.9).residual(0 * one, -1000 * one)[0] == pytest.approx(-np.exp(-100))
        assert get_loss("poisson").inverse_link(1000 * one)[0] == math.inf


@pytest.mark.parametrize("loss", [loss for loss in DEFAULTS if loss.link in ("identity", "log")], ids=repr)
@pytest.mark.parametrize("factor", [1e-12, 1.0, 1e12])
def test_tiny_and_huge_targets(loss, factor):
    y, v = targets(loss, 100) * factor, weights(100)
    with np.errstate(all="raise"):
        prepared = loss.prepare(y, v)
        c = prepared.constant_start(y, v)
        z = np.full(100, c)
        assert np.isfinite(prepared.value(y, z, v)) and np.isfinite(prepared.dispersion(y, z, v, 100))
    reference = loss.prepare(y / factor, v).constant_start(y / factor, v)
    expected = reference + math.log(factor) if loss.link == "log" else reference * factor
    assert c == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in ("log_loss", "multinomial")])
def test_a_single_row(name):
    loss, v = get_loss(name), np.ones(1)
    y = loss.validate([2.0])
    loss = loss.prepare(y, v)
    c = loss.constant_start(y, v)
    assert loss.inverse_link(np.array([c]))[0] == pytest.approx(2.0)
    assert loss.refit_intercept(y, np.array([c]), v, 0.0) == pytest.approx(0.0, abs=1e-12)
    assert np.isfinite(loss.dispersion(y, np.array([c]), v, 1.0))


# scikit-learn ---------------------------------------------------------------------------------------------


def test_log_loss_and_multinomial_agree_with_scikit_learn():
    v = weights(200)
    for name, labels in (("log_loss", [0, 1]), ("multinomial", [0, 1, 2])):
        loss = get_loss(name)
        y, z = targets(loss, 200), scores(loss, 200, scale=2.0)
        expected = metrics.log_loss(y, loss.inverse_link(z), sample_weight=v, labels=labels)
        assert loss.value(y, z, v) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("power", [1, 1.3, 1.5, 1.9, 2])
def test_log_link_losses_are_half_deviances_up_to_a_constant(power):
    loss = get_loss("tweedie", power=power)
    y, v, z, other = targets(loss, 200), weights(200), scores(loss, 200), scores(loss, 200, seed=9)
    fall = metrics.mean_tweedie_deviance(y, np.exp(z), sample_weight=v, power=power)
    fall -= metrics.mean_tweedie_deviance(y, np.exp(other), sample_weight=v, power=power)
    assert 2 * (loss.value(y, z, v) - loss.value(y, other, v)) == pytest.approx(fall, rel=1e-11)
    named = {1: ("poisson", metrics.mean_poisson_deviance), 2: ("gamma", metrics.mean_gamma_deviance)}
    if power in named:
        name, deviance = named[power]
        same = get_loss(name)
        assert_allclose(same.values(y, z), loss.values(y, z), rtol=1e-15)
        fall = deviance(y, np.exp(z), sample_weight=v) - deviance(y, np.exp(other), sample_weight=v)
        assert 2 * (same.value(y, z, v) - same.value(y, other, v)) == pytest.approx(fall, rel=1e-11)


def test_tweedie_is_continuous_in_its_power():
    y, z = targets(get_loss("gamma"), 50), scores(get_loss("gamma"), 50)
    for end, near in ((1, 1 + 1e-12), (2, 2 - 1e-12)):
        assert_allclose(
            get_loss("tweedie", power=near).values(y, z),
            get_loss("tweedie", power=end).values(y, z),
            rtol=1e-9,
        )


@pytest.mark.parametrize("level", [0.05, 0.5, 0.9])
def test_smoothed_quantile_tends_to_the_pinball_loss(level):
    y, z, v = targets(get_loss("quantile"), 400), scores(get_loss("quantile"), 400), weights(400)
    pinball = metrics.mean_pinball_loss(y, z, alpha=level, sample_weight=v)
    for half_width in (1.0, 1e-3, 1e-9):
        smoothed = get_loss("quantile", level=level, half_width=half_width).value(y, z, v)
        assert -1e-15 <= smoothed - pinball <= half_width / 4 + 1e-15
    narrow = get_loss("quantile", level=level, half_width=1e-9)
    assert narrow.constant_start(y, v) == pytest.approx(weighted_quantile(y, v, level), abs=1e-8)


def test_default_smoothing_moves_a_normal_quantile_by_little():
    y = np.random.default_rng(0).normal(size=200_000)
    v = np.full(y.shape[0], 1 / y.shape[0])
    c = get_loss("quantile", level=0.9).prepare(y, v).constant_start(y, v)
    assert 0.0 < c - np.quantile(y, 0.9) < 0.004


def test_squared_error_is_half_the_mean_squared_error_and_huber_its_limit():
    y, z, v = targets(get_loss("squared"), 100), scores(get_loss("squared"), 100), weights(100)
    half = metrics.mean_squared_error(y, z, sample_weight=v) / 2
    assert get_loss("squared").value(y, z, v) == pytest.approx(half, rel=1e-14)
    assert get_loss("huber", delta=1e3).value(y, z, v) == pytest.approx(half, rel=1e-14)
    absolute = metrics.mean_absolute_error(y, z, sample_weight=v)
    assert get_loss("huber", delta=1e-9).value(y, z, v) / 1e-9 == pytest.approx(absolute, rel=1e-8)


# Dispersion -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", DEFAULTS, ids=repr)
def test_a_useless_parameter_lowers_the_loss_by_half_the_dispersion_over_n(loss):
    """The law that makes phi / n the unit of the jump cost."""
    n, n_parameters = 1000, 300
    y, v, rng = targets(loss, n), np.full(n, 1 / n), np.random.default_rng(11)
    loss = loss.prepare(y, v)
    start = loss.constant_start(y, v)
    z = np.tile(start, (n, 1)) if loss.name == "multinomial" else np.full(n, start)
    phi = loss.dispersion(y, z, v, n)
    before = loss.value(y, z, v)
    falls = []
    for _ in range(n_parameters):
        x = rng.choice([-1.0, 1.0], n)
        column = np.outer(x, [1.0, 0.0, 0.0]) if loss.name == "multinomial" else x
        best = minimize_scalar(lambda t, c=column: loss.value(y, z + t * c, v), bounds=(-1, 1), method="bounded")
        falls.append(before - best.fun)
    # The falls are phi / (2 n) times chi-square: their mean has a relative error of sqrt(2 / 300) = 8%.
    assert np.mean(falls) * 2 * n == pytest.approx(phi, rel=0.3)


def test_dispersion_is_one_for_a_known_variance_and_pearson_for_the_log_link():
    for name in ("log_loss", "multinomial"):
        loss = get_loss(name)
        assert loss.dispersion(targets(loss, 50), scores(loss, 50), weights(50), 50, 4) == 1.0
    for power in (1, 1.5, 2):
        loss = get_loss("tweedie", power=power)
        y, z, v = targets(loss, 50), scores(loss, 50), weights(50)
        pearson = v @ ((y - np.exp(z)) ** 2 / np.exp(z) ** power)
        assert loss.dispersion(y, z, v, 50, df=5) == pytest.approx(pearson * 50 / 45, rel=1e-12)
    # Counts vary as much as their mean, or more.
    poisson, y, z, v = get_loss("poisson"), np.array([0.0, 9.0]), np.log([4.0, 5.0]), np.full(2, 0.5)
    assert poisson.dispersion(y, z, v, 2, df=0) == pytest.approx((16 / 4 + 16 / 5) / 2)
    assert poisson.dispersion(np.array([4.0, 5.0]), z, v, 2, df=0) == 1.0
    y, z, v = targets(get_loss("huber"), 50), scores(get_loss("huber"), 50), weights(50)
    assert get_loss("squared").dispersion(y, z, v, 50, df=0) == pytest.approx(v @ (y - z) ** 2)
    assert get_loss("huber", delta=1e6).dispersion(y, z, v, 50, 2) == get_loss("squared").dispersion(y, z, v, 50, 2)
    assert np.isfinite(get_loss("huber", delta=1e-9).dispersion(y, z, v, 50))


# Errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LOSSES, *ALIASES])
def test_targets_that_no_loss_takes(name):
    loss = get_loss(name)
    who = f"^loss '{loss.name}': "
    for bad, message in (
        ([1.0, math.nan], r"y\[1\] is nan; y must be finite"),
        ([math.inf, 1.0], r"y\[0\] is inf; y must be finite"),
        ([], "y has no rows; at least one is needed"),
        ([[1.0], [0.0]], r"y has shape \(2, 1\); it must be a vector"),
        (["a", "b"], "y has dtype <U1 and holds .*'a'.*; y must be numbers"),
    ):
        with pytest.raises(ValueError, match=who + message):
            loss.validate(bad)
    with pytest.raises(ValueError, match=who + "all weights are zero"):
        loss.validate([0, 1], v=np.zeros(2))
    with pytest.raises(ValueError, match=who + r"v has shape \(3,\); it must be that of y, \(2,\)"):
        loss.validate([0, 1], v=np.ones(3))


@pytest.mark.parametrize(
    ("loss", "y", "message"),
    [
        (get_loss("log_loss"), [0, 1, 2], r"y\[2\] is 2.0; y must be 0 or 1"),
        (get_loss("log_loss"), [-1, 1], r"y\[0\] is -1.0; y must be 0 or 1"),
        (get_loss("log_loss"), [1, 1], "y is 1 in every row that counts; two classes are needed"),
        (get_loss("multinomial"), [2, 2], "y is 2 in every row that counts; two classes are needed"),
        (get_loss("multinomial"), [0, 1.5], r"y\[1\] is 1.5; y must be class codes 0, 1, ..."),
        (get_loss("multinomial"), [0, -1], r"y\[1\] is -1.0; y must be class codes"),
        (get_loss("multinomial"), [0, 2**40], r"y\[1\] is 1099511627776.0; y must be class codes"),
        (get_loss("multinomial"), [0, 1, 3], "no row has class code 2, but the largest is 3"),
        (get_loss("multinomial"), [0, 2**30], f"no row has class code 1, but the largest is {2**30}"),
        (get_loss("multinomial", n_classes=3), [0, 1, 3], r"y\[2\] is 3.0; y must be class codes .* up to 2"),
        (get_loss("poisson"), [1, -2], r"y\[1\] is -2.0; y must be at least 0"),
        (get_loss("poisson"), [0, 0], "y is 0 in every row that counts; at least one must be above 0"),
        (get_loss("gamma"), [1, 0], r"y\[1\] is 0.0; y must be above 0"),
        (get_loss("tweedie"), [1, -1], r"y\[1\] is -1.0; y must be at least 0"),
        (get_loss("tweedie"), [0, 0], "y is 0 in every row that counts"),
        (get_loss("tweedie", power=2), [1, 0], r"y\[1\] is 0.0; y must be above 0 where power is 2"),
    ],
)
def test_targets_outside_the_domain(loss, y, message):
    with pytest.raises(ValueError, match=f"^loss '{loss.name}': {message}"):
        loss.validate(y)


def test_what_must_occur_must_occur_in_rows_that_count():
    with pytest.raises(ValueError, match="y is 0 in every row that counts; two classes"):
        get_loss("logistic").validate([0, 0, 1], v=np.array([0.5, 0.5, 0.0]))
    with pytest.raises(ValueError, match="y is 0 in every row that counts; at least one"):
        get_loss("poisson").validate([0, 0, 1], v=np.array([0.5, 0.5, 0.0]))
    with pytest.raises(ValueError, match="no row has class code 2"):
        get_loss("multinomial").validate([0, 1, 2], v=np.array([0.5, 0.5, 0.0]))


def test_validated_targets_have_the_dtype_of_the_loss():
    assert get_loss("logistic").validate(np.array([True, False])).dtype == np.float64
    assert get_loss("multinomial").validate([0.0, 1.0]).dtype == np.int64
    assert get_loss("multinomial", n_classes=4).n_outputs(np.array([0, 1])) == 4
    assert get_loss("multinomial").n_outputs(np.array([0, 4])) == 5
    assert get_loss("poisson").n_outputs(np.array([0, 4])) == 1
    strided = np.arange(10, dtype=np.float32)[::2]
    assert get_loss("squared").validate(strided).flags.c_contiguous


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("hinge", {}, "loss is 'hinge'; it must be one of 'squared_error', .*'squared', 'logistic'"),
        (None, {}, "loss is None; it must be one of"),
        (["squared"], {}, "it must be one of"),
        ("squared", {"delta": 1.0}, "loss 'squared_error' has no parameter 'delta'; it takes no parameters"),
        (
            "quantile",
            {"alpha": 0.5},
            "loss 'quantile' has no parameter 'alpha'; it takes level, smoothing, half",
        ),
        ("tweedie", {"power": 2.5}, "loss 'tweedie': power is 2.5; it must be between 1 and 2"),
        ("tweedie", {"power": "x"}, "loss 'tweedie': power is 'x'; it must be between 1 and 2"),
        ("tweedie", {"power": math.nan}, "loss 'tweedie': power is nan"),
        ("huber", {"delta": 0.0}, "loss 'huber': delta is 0.0; it must be a finite number above 0, or None"),
        ("huber", {"delta": math.inf}, "loss 'huber': delta is inf"),
        ("quantile", {"level": 1.0}, "loss 'quantile': level is 1.0; it must be strictly between 0 and 1"),
        ("quantile", {"smoothing": 0}, "loss 'quantile': smoothing is 0; it must be a finite number above 0"),
        ("quantile", {"half_width": -1}, "loss 'quantile': half_width is -1; it must be a finite number"),
        (
            "multinomial",
            {"n_classes": 1},
            "loss 'multinomial': n_classes is 1; it must be an int >= 2, or None",
        ),
        ("multinomial", {"n_classes": 2.5}, "loss 'multinomial': n_classes is 2.5"),
    ],
)
def test_names_and_parameters_that_do_not_exist(name, params, message):
    with pytest.raises(ValueError, match=message):
        get_loss(name, **params)


def test_get_loss_takes_names_aliases_and_objects():
    for name in LOSSES:
        assert get_loss(name).name == name and isinstance(get_loss(name), Loss)
        assert get_loss(name) == get_loss(name) and hash(get_loss(name)) == hash(get_loss(name))
        assert get_loss(name).link in ("identity", "logit", "log", "softmax")
    assert {alias: get_loss(alias).name for alias in ALIASES} == ALIASES
    loss = get_loss("huber", delta=2.0)
    assert get_loss(loss) is loss
    with pytest.raises(ValueError, match="loss is an object, .*'delta'.* cannot be given"):
        get_loss(loss, delta=3.0)


@every_loss
def test_sums_do_not_depend_on_where_the_blocks_end(loss):
    """More rows than a block holds: the same value and intercept as from one long vector."""
    n = 20_011
    y, z, v = targets(loss, n), scores(loss, n), weights(n)
    assert loss.value(y, z, v) == pytest.approx(float(np.sum(v * loss.values(y, z))), rel=1e-12)
    c = loss.refit_intercept(y, z, v, loss.constant_start(y, v))
    score = v @ loss.residual(y, z + c)
    assert_allclose(score, 0.0, atol=1e-14 * (1 + np.abs(loss.residual(y, z)).max()))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("loss", cases_losses.LOSSES)
def test_kernels_agree_for_every_combination_of_awkward_truths_and_scores(loss, order):
    truths = np.array([0.0, 1.0] if loss == "log_loss" else cases_losses.TRUTHS)
    scores = np.array(cases_losses.awkward)
    y, z = (np.ravel(grid) for grid in np.meshgrid(truths, scores))
    for a, b in cases_losses.PARAMETERS.get(loss, [(np.nan, np.nan)]):
        case = cases_losses.row_case(loss, order, a, b, y, z, np.empty(0))
        case.assert_agree(case.call(_fast.loss_of_rows), case.call(reference.kernels.loss_of_rows))
