"""Certificates: gains by brute force on tiny problems, and the unrestricted fit against other libraries."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from problems import LOSSES, make_design, make_target
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import rbr
from rbr.constraints import Constraints
from rbr.data.design import BinnedMatrix
from rbr.solvers.proposal import Entry, Shift, Swap


def early(design, y, constraints, **options):
    """A solution that stopped before it ran out of moves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return rbr.solve(design, y, constraints=constraints, **{"max_iter": 1, **options})


def least_squares(design, cuts, y):
    """The mean loss of the best tables with given cuts {feature: cuts}."""
    columns = [np.ones(len(y))]
    columns += [design.codes[j] >= cut for j, places in cuts.items() for cut in places]
    A = np.stack(columns, axis=1).astype(float)
    return np.mean((y - A @ np.linalg.lstsq(A, y, rcond=None)[0]) ** 2) / 2


def cuts_of(solution, design):
    tables = (solution.labels[design.offsets[j] : design.offsets[j + 1]] for j in solution.support)
    return {int(j): (np.flatnonzero(np.diff(t)) + 1).tolist() for j, t in zip(solution.support, tables, strict=True)}


@pytest.mark.parametrize("seed", range(6))
def test_gains_are_those_of_brute_force(seed):
    """Independent features of four bins, two pieces each: every swap, shift and entry is tried by least squares.

    The certificate tries only the most promising ones; with independent features these are the best, up to 2%.
    """
    rng = np.random.default_rng(seed)
    design = BinnedMatrix(rng.integers(0, 4, (5, 2000)), 4 * np.arange(6))
    y = design.matvec(rng.normal(size=20)) + rng.standard_normal(2000)
    start = np.where(np.repeat(np.arange(5), 4) < 2, np.tile([0.0, 0, 0, 1], 5), 0.0)  # two features, poor cuts
    solution = early(design, y, Constraints(2, 2), solver="algorithm1", warm_start=start, step_size=1e-9)
    certificate, cuts = solution.certificate, cuts_of(solution, design)
    assert cuts == {0: [3], 1: [3]}
    here = certificate.objective
    swaps = {(o, i): here - min(least_squares(design, {1 - o: [3], i: [c]}, y) for c in (1, 2, 3))
             for o, i in product((0, 1), (2, 3, 4))}  # fmt: skip
    shifts = {(j, c): here - least_squares(design, {1 - j: [3], j: [c]}, y) for j, c in product((0, 1), (1, 2))}
    swap, swap_gain = certificate.swap
    assert isinstance(swap, Swap)
    assert swap_gain == pytest.approx(swaps[swap.out, swap.into], rel=1e-6)
    assert swap_gain >= 0.98 * max(swaps.values())
    shift, shift_gain = certificate.shift
    if max(shifts.values()) > 0.01 * here:
        assert isinstance(shift, Shift) and shift.start == 3
        assert shift_gain == pytest.approx(shifts[shift.feature, shift.stop], rel=1e-6)
    assert shift_gain >= 0.98 * max(shifts.values()) - 1e-3 * here
    assert certificate.entry == (None, 0.0)  # the limit leaves no room
    assert not certificate.is_local_optimum
    roomy = early(design, y, Constraints(3, 2), solver="algorithm1", warm_start=start, step_size=1e-9).certificate
    entry, gain = roomy.entry
    assert isinstance(entry, Entry)
    by_hand = [here - least_squares(design, {0: [3], 1: [3], entry.into: [c]}, y) for c in (1, 2, 3)]
    assert gain == pytest.approx(max(by_hand), rel=1e-6)


def test_a_swap_that_pays_is_found_and_taken():
    """Feature 0 is the sum of two others: alone it is the best, in a pair it is not."""
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 2, (2, 600))
    design = BinnedMatrix(np.stack([a + b, a, b, rng.integers(0, 3, 600)]), [0, 3, 5, 7, 10])
    y = 1.0 * a + 1.2 * b + 0.01 * rng.standard_normal(600)
    solution = rbr.solve(design, y, constraints=Constraints(2, 2))
    np.testing.assert_array_equal(solution.support, [1, 2])
    start = np.array([-1.0, 0.0, 0.0, -0.2, 0.2, 0, 0, 0, 0, 0])
    stuck = early(design, y, Constraints(2, 2), solver="algorithm1", warm_start=start, step_size=1e-9).certificate
    swap, gain = stuck.swap
    assert swap == Swap(0, 2) and gain == pytest.approx(stuck.objective - solution.loss, rel=1e-3)


@pytest.mark.parametrize("jump_cost", [0.0, 0.5])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_solution_is_a_local_optimum_above_the_unrestricted_fit(loss, jump_cost):
    design = make_design()
    y = make_target(loss, design)
    solution = rbr.solve(design, y, loss=loss, constraints=Constraints(3, 3, jump_cost=jump_cost), alpha=0.01)
    certificate = solution.certificate
    assert certificate is solution.certificate
    assert certificate.gap >= 0
    assert certificate.objective == pytest.approx(solution.loss_path[-1], rel=1e-12)
    assert certificate.relative_residual <= 1e-5 and certificate.step == solution.step_size
    # The certificate tries the swaps and entries that the solver tried last; the solver may have left single shifts.
    assert certificate.swap[1] <= 1e-9
    assert certificate.entry[1] <= 1e-9
    assert "gap to the unrestricted fit" in repr(certificate)


def test_unrestricted_is_least_squares_with_a_ridge():
    design = make_design(n_rows=300, missing=False, empty_bin=False)
    y = make_target("squared_error", design)
    X, w = design.toarray(), design.weights
    plain = rbr.solve(design, y, constraints=Constraints(1, 2)).certificate.unrestricted
    A = np.column_stack([X, np.ones(300)])
    assert plain == pytest.approx(np.mean((y - A @ np.linalg.lstsq(A, y, rcond=None)[0]) ** 2) / 2, rel=1e-6)
    alpha = 0.1
    penalised = rbr.solve(design, y, constraints=Constraints(1, 2), alpha=alpha).certificate.unrestricted
    H = A.T @ A / 300 + alpha * np.diag(np.append(w, 0.0))
    f = np.linalg.solve(H, A.T @ y / 300)
    expected = np.mean((y - A @ f) ** 2) / 2 + alpha / 2 * w @ f[:-1] ** 2
    assert penalised == pytest.approx(expected, rel=1e-6)


def test_unrestricted_is_logistic_regression():
    design = make_design(n_rows=600, missing=False)
    y = make_target("log_loss", design)
    X = design.toarray()
    model = LogisticRegression(C=1e8, tol=1e-10, max_iter=10_000).fit(X, y)
    z = model.decision_function(X)
    expected = np.mean(np.logaddexp(0, z) - y * z)
    solution = rbr.solve(design, y, loss="log_loss", constraints=Constraints(1, 2))
    assert solution.certificate.unrestricted == pytest.approx(expected, rel=1e-5)
    assert solution.certificate.gap == pytest.approx(solution.loss - expected, rel=1e-3)


def test_without_limits_the_gap_closes():
    design = make_design()
    y = make_target("log_loss", design)
    solution = rbr.solve(design, y, loss="log_loss", constraints=Constraints(None, 7, shape="free"), alpha=0.01)
    assert 0 <= solution.certificate.gap < 1e-6
    assert solution.certificate.is_local_optimum
