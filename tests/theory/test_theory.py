"""rbr.theory against closed forms, enumeration, and brute force over every subspace of a small set."""

from itertools import combinations, product

import numpy as np
import pytest
from scipy.fft import idct
from scipy.linalg import block_diag, orth

import rbr
from rbr import Constraints, theory
from rbr.theory.cones import _knapsack

SHAPES = ("constant", "linear", "frequency", "free")


def bases_of_tables(shape, b, limit):
    """An orthonormal basis of each maximal subspace of tables of mean zero within the limit."""
    centre = np.eye(b) - 1 / b
    if shape == "free":
        spans = [np.eye(b)]
    elif shape == "frequency":
        cosines = idct(np.eye(b), axis=0, norm="ortho")[:, 1:]
        spans = [cosines[:, list(kept)] for kept in combinations(range(b - 1), min(limit, b - 1))]
    else:
        spans = []
        for cuts in combinations(range(1, b), min(limit, b) - 1):
            pieces = np.equal.outer(np.searchsorted(cuts, np.arange(b), side="right"), np.arange(len(cuts) + 1))
            lines = pieces * np.arange(b)[:, None]
            spans.append(np.hstack([pieces, lines]) if shape == "linear" else pieces.astype(float))
    bases = [orth(centre @ span, rcond=1e-9) for span in spans]
    return [basis if basis.size else np.zeros((b, 0)) for basis in bases]


def bases_of_cone(cone):
    """An orthonormal basis of each of the subspaces whose union is C."""
    tables = [
        bases_of_tables(shape, b, int(k))
        for shape, b, k in zip(cone.shapes, cone.n_bins, cone.max_segments, strict=True)
    ]
    found = []
    for used in combinations(range(cone.n_features), cone.max_features):
        for chosen in product(*(tables[j] for j in used)):
            basis = np.zeros((cone.n_coef, sum(table.shape[1] for table in chosen)))
            start = 0
            for j, table in zip(used, chosen, strict=True):
                basis[cone.offsets[j] : cone.offsets[j + 1], start : start + table.shape[1]] = table
                start += table.shape[1]
            found.append(basis)
    return found


def bases_of_difference(cone):
    return [orth(np.hstack(pair), rcond=1e-9) for pair in product(bases_of_cone(cone), repeat=2)]


def small_cone(shape, max_features=1, max_segments=2, n_bins=(4, 3, 5)):
    if shape == "frequency":
        max_segments -= 1
    return theory.Cone(Constraints(max_features, max_segments, shape=shape), n_bins)


# ---------------------------------------------------------------- C and C - C


@pytest.mark.parametrize("shape", SHAPES)
def test_projections_against_every_subspace(shape):
    cone = small_cone(shape)
    rng = np.random.default_rng(0)
    for set_, bases in ((cone, bases_of_cone(cone)), (cone.difference(), bases_of_difference(cone))):
        for _ in range(20):
            beta = rng.normal(size=cone.n_coef)
            longest = max(np.linalg.norm(basis.T @ beta) for basis in bases)
            found = set_.project(beta)
            assert np.linalg.norm(found) == pytest.approx(longest, rel=1e-9)
            assert found @ (beta - found) == pytest.approx(0, abs=1e-9)
            np.testing.assert_allclose(set_.project(found), found, rtol=0, atol=1e-9)


def test_two_features_in_the_difference():
    """With s_G = 2, one feature may use the pieces of both points, at the cost of another feature."""
    cone = small_cone("constant", max_features=2, n_bins=(4, 4, 4))
    bases = bases_of_difference(cone)
    rng = np.random.default_rng(1)
    for _ in range(10):
        beta = rng.normal(size=12)
        longest = max(np.linalg.norm(basis.T @ beta) for basis in bases)
        assert np.linalg.norm(cone.difference().project(beta)) == pytest.approx(longest, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_draws_are_unit_vectors_of_their_set(shape):
    cone = theory.Cone(Constraints(2, 3, shape=shape), [6, 9, 7, 8])
    rng = np.random.default_rng(0)
    for set_ in (cone, cone.difference()):
        for _ in range(10):
            beta = set_.draw(rng)
            assert np.linalg.norm(beta) == pytest.approx(1)
            np.testing.assert_allclose(set_.project(beta), beta, rtol=0, atol=1e-9)


def test_blocks_of_few_and_many_bins_compete_by_their_norms():
    """In tables f = beta sqrt(b) the same block would look larger where there are more bins."""
    cone = theory.Cone(Constraints(1, shape="free"), [2, 50])
    beta = np.concatenate([[1.0, -1.0], np.tile([0.19, -0.19], 25)])
    assert cone.block_norms(cone.project(beta)) == pytest.approx([np.sqrt(2), 0.0])


def test_knapsack_against_every_choice():
    rng = np.random.default_rng(0)
    for budget in (0, 1, 2, 3, 12):
        gains = np.vstack([np.zeros(5), np.sort(rng.exponential(size=(2, 5)), axis=0)])
        totals = {
            units: sum(gains[u, j] for j, u in enumerate(units))
            for units in product(range(3), repeat=5)
            if sum(units) <= budget
        }
        assert tuple(_knapsack(gains, budget)) == max(totals, key=totals.get)


def test_sets_that_cannot_be_split_are_refused():
    cone = theory.Cone(Constraints(1, 2, shape=["constant", "levels"]), [4, 4])
    with pytest.raises(ValueError, match="shape of feature 1 is 'levels'; it must be one of 'constant', 'linear'"):
        cone.difference()
    with pytest.raises(ValueError, match="jump_cost 0.5; the paper's set has none: 0"):
        theory.Cone(Constraints(jump_cost=0.5), [4])


# ---------------------------------------------------------------- Gaussian complexity


def test_complexity_of_a_subspace_is_its_dimension():
    omega = theory.gaussian_complexity(theory.Cone(Constraints(shape="free"), [4, 7]), 4000, random_state=0)
    assert omega.low < 9 < omega.high
    assert omega.high - omega.low == pytest.approx(2 * 1.96 * np.sqrt(2 * 9 / 4000), rel=0.1)


def test_complexity_of_the_larger_of_two_lines():
    """Two bins leave one dimension, and the larger of two squared normal numbers has mean 1 + 2 / pi."""
    omega = theory.gaussian_complexity(theory.Cone(Constraints(1, 2), [2, 2]), 4000, random_state=0)
    assert omega.low < 1 + 2 / np.pi < omega.high


def test_local_complexities_add_up_without_selection():
    cone = theory.Cone(Constraints(None, 3), [8, 5])
    local = theory.local_complexities(cone, 500, random_state=0)
    omega = theory.gaussian_complexity(cone, 500, random_state=0)
    assert local.sum() == pytest.approx(omega.value, rel=1e-12)


def test_bound_takes_the_largest_terms():
    cone = theory.Cone(Constraints(2, [1, 4, 3]), [10, 5, 20])
    assert theory.gaussian_complexity_bound(cone) == pytest.approx(4 * np.log(5) + 3 * np.log(20) + 2 * np.log(3))
    assert theory.sample_scale(cone) == pytest.approx(7 * np.log(35))


# ---------------------------------------------------------------- restricted gradient correlation


def full_factorial(n_bins):
    codes = np.stack(np.meshgrid(*(range(b) for b in n_bins), indexing="ij")).reshape(len(n_bins), -1)
    return rbr.BinnedMatrix(codes, np.concatenate([[0], np.cumsum(n_bins)]))


def test_no_defect_in_an_orthonormal_design():
    found = theory.gradient_correlation(full_factorial((4, 3, 5)), small_cone("constant"), random_state=0)
    assert found.value < 1e-12 and found.unrestricted < 1e-12


@pytest.mark.parametrize("step_size", [1.0, 0.7])
@pytest.mark.parametrize("binning", ["regular", "binomial"])
@pytest.mark.parametrize("shape", ["constant", "linear"])
def test_search_against_every_pair_of_subspaces(shape, binning, step_size):
    cone = small_cone(shape)
    design = theory.random_design(60, cone.n_bins, binning, random_state=3)
    X = design.tocsr(scaled=True).toarray()
    M = np.eye(cone.n_coef) - step_size * X.T @ X
    bases = bases_of_difference(cone)
    largest = max(np.linalg.norm(u.T @ M @ v, 2) for u in bases for v in bases)
    found = theory.gradient_correlation(design, cone, step_size=step_size, random_state=0)
    assert found.value == pytest.approx(largest, rel=1e-4)
    assert found.random_pairs <= found.random_starts <= found.value <= found.unrestricted + 1e-12
    assert abs(found.v @ M @ found.z) == pytest.approx(found.value)
    for vector in (found.v, found.z):
        assert np.linalg.norm(vector) == pytest.approx(1)
        np.testing.assert_allclose(cone.difference().project(vector), vector, rtol=0, atol=1e-9)


def test_other_bins_are_refused():
    with pytest.raises(ValueError, match=r"cone has the bins \[4, 3, 5\], design has \[4, 4\]"):
        theory.gradient_correlation(theory.random_design(8, [4, 4]), small_cone("constant"))


# ---------------------------------------------------------------- designs


def test_rows_have_identity_covariance_on_the_zero_mean_subspace():
    mean, covariance = theory.row_moments([3, 2, 4])
    np.testing.assert_allclose(mean, np.repeat(1 / np.sqrt([3, 2, 4]), [3, 2, 4]), rtol=1e-12)
    expected = block_diag(*(np.eye(b) - 1 / b for b in (3, 2, 4)))
    np.testing.assert_allclose(covariance, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("binning", ["regular", "binomial"])
def test_mean_squared_length_of_a_prediction(binning):
    """E ||X_bin beta||^2 is ||beta||^2 for tables of mean zero; otherwise the products of the means are added."""
    n_bins, rng = np.array([3, 4, 6]), np.random.default_rng(0)
    beta = rng.normal(size=13)
    means = np.array([block.mean() for block in np.split(beta, [3, 7])])
    centred = beta - np.repeat(means, n_bins)
    cross = np.sum(np.sqrt(n_bins) * means) ** 2 - np.sum(n_bins * means**2)
    for table, expected in ((centred, centred @ centred), (beta, beta @ beta + cross)):
        designs = (theory.random_design(12, n_bins, binning, rng).tocsr() for _ in range(1000))
        lengths = np.array([np.sum((X @ table) ** 2) for X in designs])
        assert lengths.mean() == pytest.approx(expected, abs=4 * lengths.std() / np.sqrt(1000))
    assert abs(cross) > 0.2 * (beta @ beta)


@pytest.mark.parametrize("binning", ["regular", "binomial"])
def test_binning_of_continuous_features_gives_the_designs_that_are_drawn(binning):
    """How often two rows share a bin: 1/b if rows are independent, (n/b - 1)/(n - 1) if bins are equal."""
    n, b, n_draws = 6, 3, 4000
    rng = np.random.default_rng(0)
    drawn = theory.random_design(n, [b] * n_draws, binning, random_state=0).codes
    numbers = rng.normal(size=(n, n_draws))
    binned = rbr.Binner(b, binning, random_state=0).fit(numbers).transform(numbers).codes
    expected = 1 / b if binning == "binomial" else (n / b - 1) / (n - 1)
    margin = 4 * np.sqrt(expected * (1 - expected) / n_draws)
    for codes in (drawn, binned):
        assert np.mean(codes[:, 0] == codes[:, 1]) == pytest.approx(expected, abs=margin)


def test_moment_norm_of_two_values():
    """x is sqrt(b) with probability 1/b, else 0: q^(-1/2) sqrt(b) b^(-1/q) is largest at q = 2 log b."""
    b = 1000.0
    expected = np.sqrt(b / (2 * np.e * np.log(b)))
    assert theory.moment_norm([np.sqrt(b), 0.0], [1 / b, 1 - 1 / b]) == pytest.approx(expected, rel=1e-3)
    assert theory.moment_norm([0.0, 0.0]) == 0.0


@pytest.mark.parametrize("b", [3, 5, 16])
def test_no_direction_of_a_row_is_worse_than_the_one_found(b):
    value, direction = theory.worst_row_direction(b, random_state=0)
    assert np.linalg.norm(direction) == pytest.approx(1) and direction.sum() == pytest.approx(0, abs=1e-12)
    assert value == pytest.approx(theory.moment_norm(np.sqrt(b) * direction))
    rng = np.random.default_rng(1)
    for _ in range(300):
        v = rng.standard_normal(b) * (rng.uniform(size=b) < rng.uniform())
        v -= v.mean()
        if np.linalg.norm(v) > 0:
            assert theory.moment_norm(np.sqrt(b) * v / np.linalg.norm(v)) <= value + 1e-12
    assert value <= np.sqrt(b)


# ---------------------------------------------------------------- the coupling


def test_coupling_moves_the_excess_and_nothing_else():
    S = theory.random_design(120, [4, 5, 6], "binomial", random_state=0)
    B = theory.coupled_regular_design(S, random_state=1)
    for j, b in enumerate(S.n_bins):
        before, after = (np.bincount(design.codes[j], minlength=b) for design in (S, B))
        np.testing.assert_array_equal(after, 120 // b)
        moved = B.codes[j] != S.codes[j]
        assert moved.sum() == np.maximum(before - 120 // b, 0).sum()
        assert (before[S.codes[j][moved]] > 120 // b).all()
        assert (before[B.codes[j][moved]] < 120 // b).all()


def test_coupling_has_the_law_of_a_regular_design():
    """Four rows in two bins have six arrangements, all equally likely (within four standard deviations)."""
    n_draws = 6000
    S = theory.random_design(4, [2] * n_draws, "binomial", random_state=0)
    arrangements, counts = np.unique(theory.coupled_regular_design(S, random_state=0).codes, axis=0, return_counts=True)
    assert len(arrangements) == 6
    assert np.abs(counts - n_draws / 6).max() <= 4 * np.sqrt(n_draws * 5 / 36)


def test_coupling_needs_bins_that_divide_the_rows():
    with pytest.raises(ValueError, match="binomial has 10 rows and 4 bins in feature 1"):
        theory.coupled_regular_design(theory.random_design(10, [5, 4], "binomial"))


@pytest.mark.parametrize("max_features", [1, 2, 3])
def test_stretch_against_every_set_of_features(max_features):
    S = theory.random_design(120, [3, 4, 5, 6, 4], "binomial", random_state=2)
    B = theory.coupled_regular_design(S, random_state=2)
    D = (B.tocsr() - S.tocsr()).toarray()
    blocks = [D[:, a:b] for a, b in zip(S.offsets[:-1], S.offsets[1:], strict=True)]
    exact = max(np.linalg.norm(np.hstack(chosen), 2) for chosen in combinations(blocks, max_features))
    found, bound = theory.largest_stretch((B, S), max_features, random_state=0)
    assert found == pytest.approx(exact, rel=1e-9)
    assert exact <= bound + 1e-12


# ---------------------------------------------------------------- the iteration


def test_iterate_is_algorithm_1_of_the_reference():
    """On a regular design, with y of mean zero, the intercept is zero at every step."""
    rng = np.random.default_rng(0)
    cone = theory.Cone(Constraints(2, 3), [6, 4, 5, 3])
    B = theory.random_design(120, cone.n_bins, random_state=1)
    y = B.tocsr() @ cone.draw(0) + 0.1 * rng.standard_normal(120)
    y -= y.mean()
    for n_steps, beta in enumerate(theory.iterate(B, y, cone, 4, step_size=0.8)):
        if n_steps:
            solution = rbr.reference.solve(B, y, constraints=cone.constraints, step_size=0.8, max_iter=n_steps, tol=0.0)
            tables = beta * np.repeat(np.sqrt(B.n_bins / 120), B.n_bins)
            np.testing.assert_allclose(tables, solution.f, rtol=0, atol=1e-12)


@pytest.mark.parametrize("binning", ["regular", "binomial"])
def test_second_bound_of_the_convergence_theorem(binning):
    """It holds at every step with eps_R replaced by its upper bound, the norm of M on all tables of mean zero."""
    cone = theory.Cone(Constraints(2, 3), [6] * 8)
    rng = np.random.default_rng(0)
    for seed in range(5):
        B = theory.random_design(1200, cone.n_bins, binning, random_state=seed)
        epsilon = theory.gradient_correlation(B, cone, n_starts=1, random_state=0).unrestricted
        assert epsilon < 0.5
        truth, noise = cone.draw(rng), 0.02 * rng.standard_normal(1200)
        errors = theory.estimation_errors(B, cone, truth, noise, n_steps=12)
        floor = np.linalg.norm(cone.difference().project(B.tocsr().T @ noise))
        steps = np.arange(len(errors))
        assert (errors <= (2 * epsilon) ** steps + 2 / (1 - 2 * epsilon) * floor).all()
        assert errors[-1] < 0.5 * errors[0]


def test_first_bound_of_the_convergence_theorem_needs_a_gradient_of_zero():
    """One of two axes: the unique minimiser is on the second, eps_R < 1/2, and the iteration stays on the first."""
    found = theory.two_minimisers()
    X, y = np.diag(np.sqrt([1.1, 0.8])), np.array([1.0, 0.89]) / np.sqrt([1.1, 0.8])

    def loss(beta):
        return np.sum((X @ beta - y) ** 2)

    grid = [np.array(point) for t in np.linspace(-3, 3, 6001) for point in ((t, 0.0), (0.0, t))]
    np.testing.assert_allclose(found.minimiser, min(grid, key=loss), rtol=0, atol=1e-3)
    assert np.linalg.norm(np.eye(2) - X.T @ X, 2) == pytest.approx(found.gradient_correlation)
    step = found.reached - X.T @ (X @ found.reached - y)
    np.testing.assert_allclose(np.where(np.abs(step) == np.abs(step).max(), step, 0.0), found.reached, atol=1e-12)
    epsilon = found.gradient_correlation
    distance = np.linalg.norm(found.reached - found.minimiser)
    assert distance > (2 * epsilon) ** 200 * np.linalg.norm(found.minimiser)
    # The second bound does hold; C - C is the whole plane.
    assert distance <= 2 / (1 - 2 * epsilon) * np.linalg.norm(X.T @ (X @ found.minimiser - y))


def test_linear_rate_of_an_iteration_that_is_stuck():
    assert theory.linear_rate([1.0, 0.5, 0.5, 0.5, 0.5]) == pytest.approx(0.5**0.25)
    assert theory.linear_rate([2.0, 0.0]) == pytest.approx(1e-16)
    with pytest.raises(ValueError, match="errors has 1 entries"):
        theory.linear_rate([1.0])
