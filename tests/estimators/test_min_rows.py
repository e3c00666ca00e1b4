"""`min_rows`: every piece of a fitted model holds at least that many training rows, whatever the fit does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from problems import LOSSES, SHAPES, make_design, make_target

import rbr
from rbr import Constraints, RBRClassifier, RBRRegressor
from rbr.estimators.refine import refine_cuts
from rbr.solvers.moves import resegmented, shifts

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

COUNTED = [shape for shape in SHAPES if shape not in ("frequency", "free")]


def rows_of_pieces(solution):
    """The shares of the rows in every piece of every table (and class) that has more than one piece."""
    tables, bound = solution.problem.objective.tables, solution.problem.constraints
    labels = solution.labels[:, None] if solution.labels.ndim == 1 else solution.labels
    found = [np.ones(1)]
    for j in range(tables.n_tables):
        ordered = slice(tables.offsets[j], tables.offsets[j] + bound.n_ordered[j])
        for column in labels[ordered].T:
            pieces, which = np.unique(column, return_inverse=True)
            if len(pieces) > 1:
                found.append(np.bincount(which, tables.shares[ordered]))
    return np.concatenate(found)


# ---------------------------------------------------------------- the solver


@pytest.mark.parametrize("shape", COUNTED)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_piece_of_a_solution_holds_enough_rows(loss, shape):
    n_pieces = 0
    for seed, min_rows in enumerate((25, 0.15)):
        weights = (None, np.random.default_rng(seed).integers(0, 4, 240))[seed]
        n = 240 if weights is None else weights.sum()
        design = make_design(seed, n_bins=(12, 9, 8, 14, 3)).with_weights(("counts", "uniform")[seed])
        constraints = Constraints(3, 5, shape=shape, jump_cost=0.02 * seed, min_rows=min_rows)
        y = make_target(loss, design, seed, strength=2.0)
        least = min_rows / n if isinstance(min_rows, int) else min_rows
        for solver in ("auto", "algorithm1"):
            arguments = {"loss": loss, "constraints": constraints, "sample_weight": weights, "solver": solver}
            found = rbr.solve(design, y, alpha=0.01, max_iter=10, step_size=0.3, **arguments)
            rows = rows_of_pieces(found)
            assert rows.min() >= least * (1 - 1e-9)
            n_pieces += len(rows) - 1
    assert n_pieces > 8


def test_a_minimum_of_all_rows_leaves_no_jump_and_a_minimum_of_one_changes_nothing():
    design = make_design(missing=False, empty_bin=False)
    y = make_target("squared_error", design, strength=2.0)
    plain, one, all_rows = (rbr.solve(design, y, constraints=Constraints(3, 3, min_rows=k)) for k in (0, 1, 240))
    np.testing.assert_allclose(one.f, plain.f, atol=1e-9)
    assert len(plain.support) == 3 and len(all_rows.support) == 0


@pytest.mark.parametrize("shape", ["constant", "mixed", "increasing"])
@pytest.mark.parametrize("loss", ["squared_error", "multinomial", "huber"])
def test_moves_leave_enough_rows_in_every_piece(loss, shape):
    """Shifts and searches of all pieces, from the pieces of random tables, where many moves pay."""
    n_moves = n_refused = 0
    for seed in range(6):
        design = make_design(seed, n_bins=(9, 8, 14, 9, 6))
        y = make_target(loss, design, seed, strength=2.0)
        start = np.random.default_rng(seed).normal(size=(design.n_coef, 3) if loss == "multinomial" else design.n_coef)
        constraints = Constraints(4, 3, shape=shape, jump_cost=0.02, min_rows=0.18)
        arguments = {"loss": loss, "warm_start": start, "step_size": 1e-9, "max_iter": 1, "solver": "algorithm1"}
        s = rbr.solve(design, y, constraints=constraints, tol=0.0, **arguments)
        gradient = s.problem.objective.gradient(s.point, s.point.support)
        proposals = list(shifts(s.problem, s.point, s.labels, gradient))
        searched = resegmented(s.problem, s.point, s.labels, gradient)
        for proposal in [*proposals, *([searched] if searched else [])]:
            assert rows_of_pieces(replace(s, labels=proposal.labels)).min() >= 0.18 - 1e-9
        bound = Constraints(4, 3, shape=shape, jump_cost=0.02).bind_to(s.problem.objective.tables)
        without = replace(s.problem, constraints=bound)
        n_moves += len(proposals)
        n_refused += len(list(shifts(without, s.point, s.labels, gradient))) > len(proposals)
    assert n_moves > 0 and n_refused > 0


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "quantile"])
def test_a_fit_that_begins_on_a_sample_leaves_enough_rows_in_every_piece(loss):
    """With many rows a sample proposes the first pieces, and those of all tables are searched again by curvature."""
    rng = np.random.default_rng(0)
    design = rbr.BinnedMatrix((30 * rng.random((4, 8000)) ** 2).astype(np.uint8), 30 * np.arange(5))
    y = make_target(loss, design, strength=3.0)
    options = rbr.SolverOptions(many_rows=1000, min_sample_rows=500, ns_per_entry_by_rows=0.0)
    for shape in ("constant", "mixed", "increasing", "levels"):
        free, bound = (
            rbr.solve(design, y, loss=loss, constraints=Constraints(shape=shape, min_rows=k), options=options)
            for k in (0, 900)
        )
        assert rows_of_pieces(free).min() < 0.1125 <= rows_of_pieces(bound).min() + 1e-9
        assert len(rows_of_pieces(bound)) > 3
        assert free.loss < bound.loss


def test_the_certificate_moves_no_jump_that_a_piece_needs():
    """The jump belongs behind bin 1, but the first piece would then hold 20 rows."""
    codes = np.repeat(np.arange(4), [10, 10, 20, 60])
    y = np.array([0.0, 0.0, 5.0, 5.0])[codes]
    B = rbr.BinnedMatrix([codes], offsets=[0, 4])
    s = rbr.solve(B, y, constraints=Constraints(1, 2, min_rows=30))
    np.testing.assert_array_equal(s.labels, [0, 0, 0, 2])
    assert s.certificate.is_local_optimum
    assert s.certificate.shift == (None, 0.0)


# ---------------------------------------------------------------- cut refinement


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial"])
@pytest.mark.parametrize("min_rows", [0, 90])
def test_moved_edges_leave_enough_rows_in_every_piece(loss, min_rows):
    n_moved, least = 0, 1.0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(600, 2))
        z = 3.0 * (X[:, 0] > 0.86) - 3.0 * (X[:, 1] < 0.11) + 2.0 * (X[:, 0] > 0.4)
        y = z + 0.3 * rng.normal(size=600)
        if loss != "squared_error":
            y = np.digitize(y, [0.5] if loss == "log_loss" else [0.0, 2.0])
        binner = rbr.Binner(max_bins=12).fit(X)
        constraints = Constraints(max_segments=4, jump_cost=0.1, min_rows=min_rows)
        objective = rbr.make_objective(binner.transform(X), y, loss=loss, X=X)
        solution = rbr.solve(objective=objective, constraints=constraints, alpha=0.01)
        refined, better = refine_cuts(binner, solution, constraints)
        n_moved += better is not solution
        least = min(least, rows_of_pieces(better).min())
    if min_rows:  # jumps that would leave too few rows stay where they are
        assert least >= 0.15 - 1e-12
    else:
        assert least < 0.15 and n_moved > 3


# ---------------------------------------------------------------- the estimators


def table(seed, n_rows=400):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "steps": rng.integers(0, 30, n_rows).astype(float),
            "smooth": rng.normal(size=n_rows),
            "rare": rng.exponential(size=n_rows),
            "group": pd.Categorical.from_codes(np.minimum(rng.geometric(0.25, n_rows) - 1, 11), list("abcdefghijkl")),
        }
    )
    z = (X["steps"] > 27) * 2.0 + np.sin(2 * X["smooth"]) + (X["rare"] > 3) + X["group"].isin(["k", "d", "b"])
    X.loc[rng.random(n_rows) < 0.1, "smooth"] = np.nan
    return X, z.to_numpy() + 0.2 * rng.normal(size=n_rows), rng.integers(0, 3, n_rows)


def smallest_piece(model, X, weights):
    """The least weight of the training rows in a piece of any term that has several, counted from the rows.

    With classes every class has pieces of its own, which are told by their values.
    """
    smallest = np.inf
    for term in model.model_.terms:
        column = X[term.name]
        if term.categories is not None:
            codes = pd.Index(term.categories).get_indexer(column.astype(object))
        else:
            codes = np.where(column.isna(), -1, np.searchsorted(term.edges, column, side="left"))
        has_bin = codes >= 0
        for values in np.atleast_2d(term.values.T):
            by_value = np.unique(values, return_inverse=True)[1]
            runs = by_value if term.grouped else np.cumsum(np.diff(by_value, prepend=-1) != 0)
            held = np.bincount((term.labels if term.values.ndim == 1 else runs)[codes[has_bin]], weights[has_bin])
            held = held[held > 0]
            smallest = min(smallest, held.min() if len(held) > 1 else np.inf)
    return smallest


SETTINGS = {
    "mixed": {},
    "constant": {"shape": "constant", "segmentation": "greedy"},
    "linear": {"shape": "linear", "max_bins": 40},
    "monotone": {"monotonic_cst": {"steps": 1, "rare": 1}, "jump_cost": 0.1},
    "refined": {"refine_cuts": True, "max_bins": 20},
    "uniform": {"weights": "uniform", "solver": "algorithm1"},
}


@pytest.mark.parametrize("n_bags", [0, 3])
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("min_rows", [0, 45, 0.1])
def test_every_piece_of_a_model_holds_enough_rows(setting, n_bags, min_rows):
    X, y, weights = table(len(setting))
    model = RBRRegressor(n_bags=n_bags, min_rows=min_rows, random_state=0, **SETTINGS[setting])
    for own in (None, weights):
        counts = np.ones(len(y)) if own is None else own
        smallest = smallest_piece(model.fit(X, y, sample_weight=own), X, counts)
        if min_rows:
            least = min_rows if isinstance(min_rows, int) else min_rows * counts.sum()
            assert least * (1 - 1e-9) <= smallest < np.inf
        else:
            assert smallest < 40


@pytest.mark.parametrize("n_bags", [0, 3])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_piece_of_a_classifier_holds_enough_rows(n_classes, n_bags):
    X, y, _ = table(1, n_rows=600)
    y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    for min_rows in (0, 60):
        model = RBRClassifier(shape="constant", n_bags=n_bags, min_rows=min_rows, random_state=0, jump_cost=0.3)
        smallest = smallest_piece(model.fit(X, y), X, np.ones(600))
        assert 60 <= smallest < np.inf if min_rows else smallest < 50


def test_a_bag_asks_for_the_same_share(monkeypatch):
    """45 rows of 400 are 11.25 percent of a bag too."""
    asked, solve = [], rbr.estimators.bagging.solve

    def listening(objective, **arguments):
        asked.append((objective.n_total, arguments["constraints"].min_rows))
        return solve(objective=objective, **arguments)

    monkeypatch.setattr(rbr.estimators.bagging, "solve", listening)
    X, y, _ = table(0)
    RBRRegressor(n_bags=2, min_rows=45).fit(X, y)
    assert asked and all(n_total < 400 and min_rows == 45 / 400 for n_total, min_rows in asked)
