"""The protocol of an objective: a solver that uses nothing else, and no array larger than the tables, fits the same.

`Sealed` wraps an objective that keeps its rows in three blocks. It passes on the members of the protocol and nothing
else; what the objective keeps by row is put into a box that the solver cannot open.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from problems import LOSSES, SHAPES, make_design, make_target, objective_of, split_in_three_blocks, with_even_bins

import rbr
from rbr.constraints import Constraints
from rbr.estimators.bagging import BagFit, bag_average
from rbr.estimators.interactions import fit_with_pairs
from rbr.estimators.refine import refine_cuts
from rbr.model import AdditiveModel
from rbr.objective import Handle, Objective, Point, RowObjective
from rbr.solvers.averages import average_over_pieces
from rbr.solvers.pairs import PairSpec

PROTOCOL = {name for name in dir(Objective) if not name.startswith("_")} | set(Objective.__annotations__)
ROWS = ("y", "v", "codes", "design", "offset", "row_weights", "raw", "_blocks", "_n_rows", "sample_weight")


class Box(Handle):
    """A handle whose content only its maker can take out."""

    def __init__(self, content, key):
        object.__setattr__(self, "_Box__content", (content, key))

    def open(self, key):
        content, own = object.__getattribute__(self, "_Box__content")
        assert key is own, "opened by somebody else"
        return content

    def __getattribute__(self, name):
        if name in ("open", "__class__"):
            return object.__getattribute__(self, name)
        raise AssertionError(f"{name} of something that is kept by row")


class Sealed:
    """An objective with the members of the protocol only, which raises if an answer is larger than the tables.

    Objectives over the same rows that come from one another have the same key.
    """

    def __init__(self, objective, key=None):
        self.__dict__["_Sealed__objective"] = objective
        self.__dict__["_Sealed__key"] = object() if key is None else key

    def __getattr__(self, name):
        assert name in PROTOCOL, f"{name} is no part of the protocol"
        return self._wrapped(getattr(self.__dict__["_Sealed__objective"], name))

    def _wrapped(self, answer):
        if callable(answer) and not hasattr(answer, "curvature_bound"):
            return lambda *args, **kwargs: self._wrapped(
                answer(*map(self._opened, args), **{k: self._opened(v) for k, v in kwargs.items()})
            )
        if isinstance(answer, RowObjective):
            return (
                self if answer is self.__dict__["_Sealed__objective"] else Sealed(answer, self.__dict__["_Sealed__key"])
            )
        if isinstance(answer, Point):
            return replace(answer, handle=Box(answer.handle, self.__dict__["_Sealed__key"]))
        if isinstance(answer, Handle) and not isinstance(answer, Box):
            return Box(answer, self.__dict__["_Sealed__key"])
        if isinstance(answer, np.ndarray):
            assert len(answer) <= self.n_outputs * (self.tables.n_coef + 1), f"an array of {len(answer)} numbers"
        return Draws(answer, self) if type(answer).__name__ == "RowBags" else answer

    def _opened(self, argument):
        if isinstance(argument, Point):
            return replace(argument, handle=argument.handle.open(self.__dict__["_Sealed__key"]))
        return argument.open(self.__dict__["_Sealed__key"]) if isinstance(argument, Box) else argument


class Draws:
    """Bags whose objectives are sealed too."""

    def __init__(self, bags, sealed):
        self._bags = bags

    def draw(self):
        return Sealed(self._bags.draw())

    def __getattr__(self, name):
        assert name in ("add", "gain", "has_left_out", "loss_of"), name
        return getattr(self._bags, name)


def both(design, y, loss, **rows):
    """The plain objective, and the sealed one over blocks."""
    plain = objective_of(design, y, loss, **rows)
    return plain, Sealed(split_in_three_blocks(objective_of(design, y, loss, **rows)))


def assert_same_pieces(found, expected):
    """The same labels; of a `mixed` table only the same code length.

    Of three bins, a line over two and a constant over one fit perfectly in either order and cost the same, so rounding
    decides which of them is found.
    """
    constraints = found.problem.constraints
    for j in range(constraints.n_features):
        bins = slice(constraints.offsets[j], constraints.offsets[j + 1])
        ours, theirs = (s.labels[bins].reshape(constraints.n_bins[j], -1).T for s in (found, expected))
        if constraints.spec(j).name == "mixed":
            priced, own = constraints.with_jump_cost(1.0), np.array([j])
            assert priced.cost(found.labels, own, 1.0) == priced.cost(expected.labels, own, 1.0)
        else:
            np.testing.assert_array_equal(ours, theirs)


def assert_same_fit(found, expected, tolerance=1e-9):
    np.testing.assert_array_equal(found.support, expected.support)
    assert_same_pieces(found, expected)
    scale = max(1.0, np.abs(expected.f).max())
    np.testing.assert_allclose(found.f, expected.f, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(found.intercept, expected.intercept, rtol=0, atol=tolerance * scale)
    assert found.loss == pytest.approx(expected.loss, rel=1e-9, abs=1e-12)
    # The fits behind it end at a tolerance of 1e-3: rounding may decide whether there is a last step.
    assert found.dispersion == (expected.dispersion and pytest.approx(expected.dispersion, rel=10 * tolerance))


def on_one_of_two_draws(compare):
    """compare(seed) for one seed, or else for another.

    Where two ways to go on are equal but for rounding, the machine's linear algebra decides between them, and sums in
    another order may decide otherwise. That is chance, and rare; what is wrong is wrong for every draw.
    """
    try:
        compare(1)
    except AssertionError:
        compare(2)


@pytest.mark.parametrize("name", ROWS)
def test_a_sealed_objective_gives_no_rows_away(name):
    design = make_design()
    _, sealed = both(design, make_target("squared_error", design), "squared_error")
    with pytest.raises(AssertionError, match="is no part of the protocol"):
        getattr(sealed, name)
    point = sealed.point(sealed.zero_tables(), np.zeros(0, dtype=np.int64))
    with pytest.raises(AssertionError, match="kept by row"):
        _ = point.handle.raw


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["auto", "algorithm1"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_and_shape_fits_from_three_blocks(loss, shape, solver):
    on_one_of_two_draws(partial(check_a_loss_and_shape, loss, shape, solver))


def check_a_loss_and_shape(loss, shape, solver, seed):
    design = with_even_bins() if shape == "frequency" else make_design()
    y = make_target(loss, design, strength=2.0)
    rng = np.random.default_rng(seed)
    rows = {}
    if shape != "frequency":
        rows["sample_weight"] = rng.integers(0, 4, design.n_rows).astype(float)
    if LOSSES.index(loss) % 2:
        rows["offset"] = 0.3 * rng.normal(size=(design.n_rows, 3) if loss == "multinomial" else design.n_rows)
    for jump_cost in (0.0, 0.2):
        constraints = Constraints(4, 3, shape=shape, jump_cost=jump_cost)
        options = {"constraints": constraints, "alpha": 0.01, "solver": solver, "max_iter": 40}
        plain, sealed = both(design, y, loss, **rows)
        found, expected = (rbr.solve(objective=o, **options) for o in (sealed, plain))
        assert_same_fit(found, expected)
        if loss != "quantile":  # at its kinks rounding decides how often a step is halved
            assert found.n_passes == pytest.approx(expected.n_passes)


# Options for which 8,000 rows are many: fits start on a sample, Hessians are rough, columns are screened.
MANY = {
    "many_rows": 1000,
    "min_sample_rows": 400,
    "representative_rows": 3000,
    "rough_from_rows": 1000,
    "hessian_rows": 1000,
    "hessian_rows_per_unknown": 16,
}


BY_ROWS = [(loss, False) for loss in ("squared_error", "log_loss", "poisson", "quantile", "multinomial")]


@pytest.mark.parametrize(("loss", "by_gram"), [*BY_ROWS, ("squared_error", True)])
def test_many_rows_in_blocks(loss, by_gram):
    on_one_of_two_draws(partial(check_many_rows, loss, by_gram))


def check_many_rows(loss, by_gram, seed):
    rng = np.random.default_rng(seed)
    design = rbr.BinnedMatrix(rng.integers(0, 24, (8, 8000)), 24 * np.arange(9))
    y = make_target(loss, design, strength=2.0)
    plain, sealed = both(design, y, loss, ns_per_entry_by_rows=np.inf if by_gram else 0.0, **MANY)
    options = {"constraints": Constraints(None, 6, shape="mixed", jump_cost=0.5), "alpha": 1e-3}
    found, expected = (rbr.solve(objective=o, **options) for o in (sealed, plain))
    if not by_gram and loss in ("squared_error", "log_loss", "poisson"):
        assert len(found.history[0].support) > 0  # it began on a sample
    assert_same_fit(found, expected, tolerance=1e-8)


def check_models_and_certificates(loss, **options):
    """Models, jumps, importances and certificates are the same for one block and for three sealed ones."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 4))
    binner = rbr.Binner(max_bins=12).fit(X)
    design = binner.transform(X)
    y = make_target(loss, design, strength=2.0)
    classes = {"squared_error": None, "log_loss": [0, 1], "multinomial": [0, 1, 2]}[loss]
    constraints = Constraints(3, 4, jump_cost=0.2)
    models, certificates = [], []
    for objective in both(design, y, loss, **options):
        solution = rbr.solve(objective=objective, constraints=constraints, alpha=0.01)
        models.append(AdditiveModel.from_solution(binner, solution, classes=classes))
        certificates.append(solution.certificate)
    one, other = models
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-9)
    for a, b in zip(one.jumps(), other.jumps(), strict=True):
        assert (a.place, a.low, a.high) == (b.place, b.low, b.high)
        assert a.loss_without == pytest.approx(b.loss_without, rel=1e-9)
    for a, b in zip(one.importances, other.importances, strict=True):
        assert a.loss_drop == pytest.approx(b.loss_drop, rel=1e-8)
    assert certificates[0].is_local_optimum == certificates[1].is_local_optimum
    assert certificates[0].unrestricted == pytest.approx(certificates[1].unrestricted, rel=1e-6)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial"])
def test_certificates_jumps_and_models_ask_the_objective(loss):
    check_models_and_certificates(loss)


def test_jumps_of_many_rows_ask_the_objective():
    check_models_and_certificates("log_loss", measured_rows=300, measured_sample=200)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss"])
def test_bags_ask_the_objective(loss):
    design = make_design()
    y = make_target(loss, design, strength=2.0)
    weight = np.random.default_rng(3).integers(0, 3, design.n_rows).astype(float)
    constraints = Constraints(3, 3, jump_cost=0.2)
    ways = [BagFit("one", constraints, 0.01), BagFit("other", replace(constraints, jump_cost=0.5), 0.01)]
    averages = []
    for objective in both(design, y, loss, sample_weight=weight):
        solution = rbr.solve(objective=objective, constraints=constraints)
        averages.append(bag_average(solution, ways, n_bags=5, random_state=0))
    assert_same_fit(averages[1], averages[0])


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "poisson", "huber", "multinomial"])
def test_averages_ask_the_objective(loss):
    design = make_design()
    y = make_target(loss, design, strength=2.0)
    weight = np.random.default_rng(3).integers(0, 3, design.n_rows).astype(float)
    averages = [
        average_over_pieces(objective, Constraints(jump_cost=1.0, max_features=4))
        for objective in both(design, y, loss, sample_weight=weight)
    ]
    assert len(averages[0].support)
    assert_same_fit(averages[1], averages[0], tolerance=1e-7)


@pytest.mark.parametrize("loss", ["squared_error", "huber", "multinomial"])
def test_cut_refinement_asks_the_objective(loss):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 4)).round(2)
    X[::11, 1] = np.nan
    weight = rng.integers(1, 4, 300).astype(float)
    binner = rbr.Binner(max_bins=8).fit(X, weight)
    design = binner.transform(X, weight)
    y = make_target(loss, rbr.Binner(max_bins=20).fit(X).transform(X), strength=2.0)
    constraints = Constraints(3, 4)
    refined = []
    for objective in both(design, y, loss, sample_weight=weight, X=X):
        solution = rbr.solve(objective=objective, constraints=constraints, alpha=0.01)
        refined.append(refine_cuts(binner, solution, constraints))
    assert any((a != b).any() for a, b in zip(refined[0][0].edges_, binner.edges_, strict=True))
    for a, b in zip(refined[0][0].edges_, refined[1][0].edges_, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(refined[0][0].positions_, refined[1][0].positions_, rtol=1e-12)
    assert_same_fit(refined[1][1], refined[0][1])


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "poisson", "multinomial", "huber"])
def test_pairs_are_found_from_three_blocks(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    X[rng.random(1500) < 0.1, 1] = np.nan
    score = X[:, 0] + 2.0 * (X[:, 1] > 0) * (X[:, 2] > 0.3)
    y = {
        "log_loss": lambda: (rng.random(1500) < 1 / (1 + np.exp(1 - 2 * score))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(score / 2)).astype(float),
        "multinomial": lambda: np.digitize(score + 0.5 * rng.normal(size=1500), [-0.5, 1.0]).astype(float),
    }.get(loss, lambda: score + 0.3 * rng.normal(size=1500))()
    design = rbr.Binner().fit_transform(X)
    rows = {"sample_weight": rng.integers(1, 3, 1500).astype(float)}
    pairs = np.array([(a, b) for a in range(4) for b in range(a + 1, 4)])
    fits = []
    for objective in both(design, y, loss, **rows):
        solve_mains = partial(average_over_pieces, constraints=Constraints(shape="mixed", jump_cost=1.0))
        spec = PairSpec(pairs, np.empty((0, 2), dtype=np.int64))
        fits.append(fit_with_pairs(objective, solve_mains, spec, np.zeros(4, dtype=bool)))
    (expected, one), (found, other) = fits
    assert [1, 2] in one.pairs.tolist()
    np.testing.assert_array_equal(other.pairs, one.pairs)
    np.testing.assert_allclose(other.point.f, one.point.f, atol=1e-6)
    np.testing.assert_allclose(found.f, expected.f, atol=1e-6)
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
