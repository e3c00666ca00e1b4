"""An objective over parts fits as rows in memory do, and the cuts between its parts change no bit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from problems import LOSSES, in_parts, make_design, make_target, objective_of
from test_blocks import MANY, assert_same_fit

import rbr
from rbr.constraints import Constraints
from rbr.data.design import BinnedMatrix
from rbr.estimators.bagging import BagFit, bag_average
from rbr.estimators.interactions import fit_with_pairs
from rbr.estimators.refine import refine_cuts
from rbr.losses import get_loss
from rbr.model import AdditiveModel
from rbr.objective import Objective, parts
from rbr.objective.parts import LocalParts, Part, parts_objective
from rbr.objective.parts_tree import Tree, merged
from rbr.solvers.averages import average_over_pieces
from rbr.solvers.pairs import PairSpec

PROTOCOL = {name for name in dir(Objective) if not name.startswith("_")} | set(Objective.__annotations__)


def assert_same_bits(one, other):
    np.testing.assert_array_equal(one.f, other.f)
    np.testing.assert_array_equal(one.intercept, other.intercept)
    assert one.loss == other.loss
    np.testing.assert_array_equal(one.labels, other.labels)


def rows_for(loss, n_rows, seed=1):
    rng = np.random.default_rng(seed)
    shape = (n_rows, 3) if loss == "multinomial" else n_rows
    return {"sample_weight": rng.integers(1, 4, n_rows).astype(float), "offset": 0.3 * rng.normal(size=shape)}


def test_a_tree_has_the_same_bits_whoever_adds():
    rng = np.random.default_rng(0)
    leaves = {k: (rng.normal(size=3) * 10.0 ** rng.integers(-8, 8),) for k in range(45) if k != 13}
    totals = []
    for cuts in ([], [7], [1, 2, 3, 30], list(range(1, 45))):
        trees = []
        for start, end in zip([0, *cuts], [*cuts, 45], strict=True):
            tree = Tree()
            for k in rng.permutation([k for k in leaves if start <= k < end]):
                tree.add(0, int(k), leaves[int(k)])
            trees.append(tree)
        totals.append(merged(trees[i] for i in rng.permutation(len(trees))).total()[0])
    assert all((total == totals[0]).all() for total in totals)
    np.testing.assert_allclose(totals[0], sum(own[0] for own in leaves.values()), rtol=1e-12)


def test_parts_have_all_of_the_protocol():
    design = make_design()
    parts = in_parts(objective_of(design, make_target("squared_error", design)), 2)
    for name in PROTOCOL:
        assert hasattr(parts, name), name


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_fits_from_parts(loss):
    design = make_design()
    y = make_target(loss, design, strength=2.0)
    options = {"constraints": Constraints(4, 3, shape="constant", jump_cost=0.2), "alpha": 0.01, "max_iter": 40}
    plain = objective_of(design, y, loss, **rows_for(loss, design.n_rows))
    expected = rbr.solve(objective=plain, **options)
    one, other = (rbr.solve(objective=in_parts(plain, n, 48), **options) for n in (1, 4))
    assert_same_fit(one, expected)
    assert_same_bits(one, other)


@pytest.mark.long
@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "poisson", "multinomial"])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("most_gathered", [0, parts.MOST_GATHERED_BYTES])
def test_many_rows_in_parts(loss, is_weighted, most_gathered, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MOST_GATHERED_BYTES", most_gathered)
    rng = np.random.default_rng(0)
    design = rbr.BinnedMatrix(rng.integers(0, 24, (6, 8000)), 24 * np.arange(7))
    y = make_target(loss, design, strength=2.0)
    weights = {"sample_weight": rng.uniform(0.5, 2.0, 8000)} if is_weighted else {}
    plain = objective_of(design, y, loss, ns_per_entry_by_rows=0.0, **MANY, **weights)
    options = {"constraints": Constraints(None, 6, shape="mixed", jump_cost=0.5), "alpha": 1e-3}
    expected = rbr.solve(objective=plain, **options)
    one = rbr.solve(objective=in_parts(plain, 1, 512), **options)
    other = rbr.solve(objective=in_parts(plain, 3, 512, str(tmp_path), n_threads=2), **options)
    if loss != "multinomial":
        assert len(one.history[0].support) > 0  # it began on a sample
    assert_same_fit(one, expected)
    assert_same_bits(one, other)
    assert not list(tmp_path.iterdir())


def test_a_sample_of_parts_is_that_of_rows_in_memory():
    rng = np.random.default_rng(0)
    design = rbr.BinnedMatrix(rng.integers(0, 24, (6, 8000)), 24 * np.arange(7))
    y = make_target("log_loss", design, strength=2.0)
    plain = objective_of(design, y, "log_loss", sample_weight=rng.uniform(0.5, 2.0, 8000), **MANY)
    samples = [objective.sample(1 / 4) for objective in (plain, in_parts(plain, 1, 512), in_parts(plain, 3, 512))]
    f, support = 0.1 * rng.normal(size=plain.zero_tables().shape), np.arange(6)
    losses = [sample.point(f, support).loss for sample in samples]
    np.testing.assert_allclose(losses[1:], losses[0], rtol=1e-12)
    assert losses[1] == losses[2] and all(sample.n_total == samples[0].n_total for sample in samples)
    assert all(sample._is_part_of_many for sample in samples)
    y = np.zeros(8000)
    y[1] = 1.0
    rare = objective_of(design, y, "log_loss", **MANY)
    assert rare.sample(1 / 4) is None and in_parts(rare, 3, 512).sample(1 / 4) is None


@pytest.mark.parametrize("weight", [None, "whole", "real"])
def test_cross_tabulations_add_over_parts(weight):
    rng = np.random.default_rng(0)
    design = rbr.BinnedMatrix(rng.integers(0, 24, (4, 3000)), 24 * np.arange(5))
    y = make_target("squared_error", design, strength=2.0)
    weights = {None: {}, "whole": {"sample_weight": rng.integers(1, 4, 3000).astype(float)}}
    weights["real"] = {"sample_weight": rng.uniform(0.5, 2.0, 3000)}
    plain = objective_of(design, y, ns_per_entry_by_rows=np.inf, **MANY, **weights[weight])
    one, other = (in_parts(plain, n, 128).condensed() for n in (1, 5))
    expected = plain.condensed()
    assert type(one) is type(expected) is rbr.objective.GramObjective
    np.testing.assert_array_equal(one._gram, other._gram)
    np.testing.assert_array_equal(one._target, other._target)
    np.testing.assert_allclose(one._gram / one._weight, expected._gram / expected._weight, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(one._target, expected._target, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("loss", ["squared_error", "log_loss", "multinomial"])
@pytest.mark.parametrize("measured", [{}, {"measured_rows": 300, "measured_sample": 200}])
def test_models_and_jumps_from_parts(loss, measured):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 4))
    binner = rbr.Binner(max_bins=12).fit(X)
    design = binner.transform(X)
    y = make_target(loss, design, strength=2.0)
    classes = {"squared_error": None, "log_loss": [0, 1], "multinomial": [0, 1, 2]}[loss]
    plain, models = objective_of(design, y, loss, **measured), []
    for objective in (plain, in_parts(plain, 3)):
        solution = rbr.solve(objective=objective, constraints=Constraints(3, 4, jump_cost=0.2), alpha=0.01)
        models.append(AdditiveModel.from_solution(binner, solution, classes=classes))
    one, other = models
    np.testing.assert_allclose(one.decision_function(X), other.decision_function(X), atol=1e-9)
    for a, b in zip(one.jumps(), other.jumps(), strict=True):
        assert (a.place, a.low, a.high) == (b.place, b.low, b.high)
        assert a.loss_without == pytest.approx(b.loss_without, rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("loss", ["squared_error", "poisson", "multinomial"])
def test_averages_and_bags_of_parts(loss):
    design = make_design()
    y = make_target(loss, design, strength=2.0)
    plain = objective_of(design, y, loss, sample_weight=rows_for(loss, design.n_rows)["sample_weight"])
    constraints = Constraints(jump_cost=1.0, max_features=4)
    expected, one, other = (
        average_over_pieces(objective, constraints) for objective in (plain, in_parts(plain, 1), in_parts(plain, 4))
    )
    assert len(expected.support)
    assert_same_fit(one, expected)
    assert_same_bits(one, other)
    ways = [BagFit("one", constraints, 0.01)]
    bagged = [
        bag_average(rbr.solve(objective=objective, constraints=constraints), ways, n_bags=3, random_state=0)
        for objective in (plain, in_parts(plain, 4))
    ]
    assert_same_fit(bagged[1], bagged[0])


def test_bags_of_many_rows_in_parts_are_refused():
    design = make_design()
    parts = in_parts(objective_of(design, make_target("squared_error", design), many_rows=100), 2)
    with pytest.raises(ValueError, match="240 rows in parts are more than the 100 .* n_bags=0"):
        parts.bags(1, 0.6, 0)


@pytest.mark.long
@pytest.mark.parametrize("loss", ["squared_error", "huber", "multinomial"])
def test_cuts_and_lines_of_parts(loss):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 4)).round(2)
    X[::11, 1] = np.nan
    weight = rng.integers(1, 4, 300).astype(float)
    binner = rbr.Binner(max_bins=8).fit(X, weight)
    design = binner.transform(X, weight)
    y = make_target(loss, rbr.Binner(max_bins=20).fit(X).transform(X), strength=2.0)
    plain = objective_of(design, y, loss, sample_weight=weight, X=X)
    constraints, refined = Constraints(3, 4), []
    for objective in (plain, in_parts(plain, 1), in_parts(plain, 5)):
        solution = rbr.solve(objective=objective, constraints=constraints, alpha=0.01)
        refined.append(refine_cuts(binner, solution, constraints))
    for number in (1, 2):
        for a, b in zip(refined[0][0].edges_, refined[number][0].edges_, strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(refined[0][0].positions_, refined[number][0].positions_, rtol=1e-12)
        assert_same_fit(refined[number][1], refined[0][1])
    assert_same_bits(refined[1][1], refined[2][1])

    tables, slopes = np.array([0, 1]), 0.1 * rng.normal(size=plain.zero_tables().shape)
    f = np.zeros_like(slopes)
    answers = []
    for objective in (plain, in_parts(plain, 5)):
        lines = objective.distances(tables, design.positions)
        point = objective.line_point(f, tables, slopes, lines)
        within = objective.on_lines(slopes, lines)
        answers.append(
            [
                point.loss,
                within.constant_loss,
                objective.line_gradient(point, lines),
                *objective.bin_moments(tables),
            ]
        )
    for a, b in zip(*answers, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    "loss, options",
    [
        *((loss, {}) for loss in ("squared_error", "log_loss", "multinomial")),
        ("log_loss", {"many_rows": 100, "gathered_rows": 450}),
    ],
)
def test_pairs_are_found_from_parts(loss, options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    X[rng.random(900) < 0.1, 1] = np.nan
    score = X[:, 0] + 2.0 * (X[:, 1] > 0) * (X[:, 2] > 0.3)
    y = {
        "log_loss": lambda: (rng.random(900) < 1 / (1 + np.exp(1 - 2 * score))).astype(float),
        "multinomial": lambda: np.digitize(score + 0.5 * rng.normal(size=900), [-0.5, 1.0]).astype(float),
    }.get(loss, lambda: score + 0.3 * rng.normal(size=900))()
    plain = objective_of(rbr.Binner(max_bins=32).fit_transform(X), y, loss, **rows_for(loss, 900), **options)
    pairs = np.array([(a, b) for a in range(3) for b in range(a + 1, 3)])
    fits = []
    for objective in (plain, in_parts(plain, 1, 64), in_parts(plain, 4, 64)):
        solve_mains = partial(average_over_pieces, constraints=Constraints(shape="mixed", jump_cost=1.0))
        spec = PairSpec(pairs, np.empty((0, 2), dtype=np.int64))
        fits.append(fit_with_pairs(objective, solve_mains, spec, np.zeros(3, dtype=bool)))
    (expected, of_rows), (one, of_one), (other, of_other) = fits
    assert [1, 2] in of_rows.pairs.tolist()
    np.testing.assert_array_equal(of_one.pairs, of_rows.pairs)
    # What pairs gain is measured on all rows, or on a sample of them.
    assert np.allclose(of_one.gain, of_rows.gain, rtol=1e-6) == (not options)
    np.testing.assert_array_equal(of_one.gain, of_other.gain)
    np.testing.assert_allclose(of_one.point.f, of_rows.point.f, atol=1e-9)
    np.testing.assert_allclose(one.f, expected.f, atol=1e-9)
    assert_same_bits(one, other)
    np.testing.assert_array_equal(of_one.point.f, of_other.point.f)


def test_bad_targets_are_named_by_the_number_of_their_row():
    design = make_design()
    y = make_target("poisson", design)
    y[200] = -1.0
    own = design.offsets, design.missing, design.positions, design.columns, "counts", design.shares
    parts = [
        Part(BinnedMatrix._from_valid(design.codes[:, a:b], *own), y[a:b], first_leaf=a // 16, rows_per_leaf=16)
        for a, b in ((0, 160), (160, 240))
    ]
    with pytest.raises(ValueError, match=r"loss 'poisson': y\[200\] is -1.0; y must be at least 0"):
        parts_objective(LocalParts(parts), loss="poisson")
    with pytest.raises(ValueError, match="only one class|all rows have|two classes|class"):
        ones = [Part(part.design, np.ones(part.n_rows), first_leaf=part.first_leaf, rows_per_leaf=16) for part in parts]
        parts_objective(LocalParts(ones), loss="log_loss")
    with pytest.raises(ValueError, match="part 1 begins at row 160; 0 rows come before it|part 0 begins at row 160"):
        LocalParts(parts[1:])


def test_a_class_may_be_missing_from_a_part():
    design = make_design()
    y = np.sort(make_target("multinomial", design))
    plain = objective_of(design, y, get_loss("multinomial"))
    constraints = Constraints(4, 3, jump_cost=0.2)
    found, expected = (rbr.solve(objective=o, constraints=constraints) for o in (in_parts(plain, 6), plain))
    assert_same_fit(found, expected)
