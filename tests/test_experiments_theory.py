"""The items on the theory at their quick sizes: their numbers fit in JSON, and their verdicts can go either way."""

import copy
import json
from importlib import import_module

import numpy as np
import pytest

from rbr.experiments.item import Setting
from rbr.experiments.scaling import fit_power_law, verdict

NAMES = (
    "gradient_correlation",
    "linear_convergence",
    "sample_complexity",
    "gaussian_complexity",
    "binomial_rows",
    "regular_versus_binomial",
    "runtime",
)


def module(name):
    return import_module(f"rbr.experiments.{name}")


@pytest.fixture(scope="module")
def quick():
    """The numbers of each item at its quick size, measured on first use."""
    kept = {}

    def numbers(name):
        if name not in kept:
            kept[name] = module(name).measure(Setting(quick=True))
        return copy.deepcopy(kept[name])

    return numbers


def verdicts(name, numbers):
    return [claim.holds for claim in module(name).judge(numbers)]


@pytest.mark.parametrize("name", NAMES)
def test_numbers_claims_and_picture(name, quick):
    from matplotlib.figure import Figure

    numbers = quick(name)
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers
    for claim in module(name).judge(numbers):
        assert claim.holds in ("yes", "no", "partly")
        assert claim.paper and claim.measured and not any("nan" in text for text in (claim.measured, *claim.notes))
    figure = Figure()
    module(name).draw(numbers, figure)
    figure.canvas.draw()
    for axes in figure.axes:
        assert axes.has_data()
        if not axes.get_label().startswith("<colorbar"):
            assert axes.get_title(loc="left") and axes.get_xlabel()


def leaves(numbers):
    if isinstance(numbers, dict):
        numbers = [numbers[key] for key in sorted(numbers)]
    return [leaf for one in numbers for leaf in leaves(one)] if isinstance(numbers, list) else [numbers]


@pytest.mark.parametrize("name", ["gaussian_complexity", "regular_versus_binomial"])
def test_numbers_depend_on_the_seed_and_on_nothing_else(name, quick):
    """Up to the order of summation in linear algebra, which depends on the number of threads of a process."""
    found, expected = leaves(module(name).measure(Setting(quick=True, jobs=2))), leaves(quick(name))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one == (pytest.approx(other, rel=1e-9) if isinstance(other, float) else other)
    assert module(name).measure(Setting(quick=True, seed=1)) != quick(name)


def test_progress_is_reported():
    seen = []
    module("gaussian_complexity").measure(Setting(quick=True, progress=lambda done, total: seen.append((done, total))))
    assert seen[-1][0] == seen[-1][1] == len(seen)


# ---------------------------------------------------------------- verdicts


def test_gradient_correlation(quick):
    numbers = quick("gradient_correlation")
    assert verdicts("gradient_correlation", numbers) == ["yes", "yes", "yes", "no"]
    for case in numbers["cases"]:
        assert case["random_pairs"] <= case["random_starts"] <= max(case["epsilons"]) <= case["above"] + 1e-9
        case["epsilons"] = [0.4 + 1e-3 * np.log(case["n"])] * len(case["epsilons"])
        case["converged"] = [False] * len(case["converged"])
    numbers["signs"]["probabilities"] = [np.exp(-0.01 * n) for n in numbers["signs"]["rows"]]
    assert verdicts("gradient_correlation", numbers) == ["no", "no", "no", "yes"]


def test_a_rate_above_the_promised_one_is_seen(quick):
    numbers = quick("gradient_correlation")
    for case in numbers["cases"]:
        case["rates"] = [0.999] * len(case["rates"])
    assert verdicts("gradient_correlation", numbers)[2] == "partly"


def test_probability_of_a_mean_of_signs_against_every_sequence():
    """Sixteen signs: a sum of exactly eight is two standard deviations, and not beyond them."""
    from rbr.experiments.gradient_correlation import probability_beyond

    for n in (11, 16):
        sums = np.array([2 * word.bit_count() - n for word in range(2**n)])
        assert probability_beyond(n, 2.0) == pytest.approx(np.mean(np.abs(sums) > 2 * np.sqrt(n)), rel=1e-12)


def test_linear_convergence(quick):
    numbers = quick("linear_convergence")
    assert verdicts("linear_convergence", numbers) == ["yes", "yes", "yes", "partly"]
    for case in numbers["cases"]:
        case["rates"] = [0.5 + 1e-6 * case["n"]] * len(case["rates"])
        case["floors"] = [[2.5 * case["n"] ** -0.2] * len(floors) for floors in case["floors"]]
        case["from_design"] = [2.5]
    numbers["counterexample"]["distance"] = 0.0
    assert verdicts("linear_convergence", numbers) == ["no", "partly", "no", "yes"]


def test_sample_complexity(quick):
    numbers = quick("sample_complexity")
    for line in numbers["lines"]:
        line["transition"] = 0.7 * line["scale"]
    assert verdicts("sample_complexity", numbers) == ["yes", "yes"]
    for line in numbers["lines"]:
        line["transition"] = line["scale"] ** 2
    assert verdicts("sample_complexity", numbers) == ["yes", "partly"]
    for line in numbers["lines"]:
        line["transition"] = line["scale"] ** -2.0
    numbers["lines"][0]["shares"][-1] = 0.9
    assert verdicts("sample_complexity", numbers) == ["no", "no"]


def test_enough_rows_succeed_and_too_few_do_not(quick):
    for line in quick("sample_complexity")["lines"]:
        assert line["shares"][-1] == 1.0
        assert line["value"] == 1 or line["shares"][0] < 0.5


def test_gaussian_complexity(quick):
    numbers = quick("gaussian_complexity")
    assert verdicts("gaussian_complexity", numbers) == ["yes", "yes", "yes"]
    for case in numbers["cases"]:
        case["omega"] = [case["bound"] ** 1.5] * 3
        case["selection_upper"] = 2.5
        if case["local"] is not None:
            case["local"] = (case["s_L"] * np.log(case["b"])) ** (1.5 if case["shape"] == "linear" else 1.0)
    assert verdicts("gaussian_complexity", numbers) == ["no", "partly", "no"]


def test_binomial_rows(quick):
    numbers = quick("binomial_rows")
    assert verdicts("binomial_rows", numbers) == ["yes", "yes", "yes", "yes"]
    numbers["measured"][0]["p_values"][0] = 1e-6
    numbers["shared"][0]["shares"]["binomial"] = 0.2
    numbers["norm"][0]["norm"] = 1.5
    numbers["norm"][-1]["spread"][-1] = 10.0
    assert verdicts("binomial_rows", numbers) == ["partly", "no", "no", "no"]


def test_regular_versus_binomial(quick):
    numbers = quick("regular_versus_binomial")
    assert verdicts("regular_versus_binomial", numbers) == ["yes", "yes", "yes"]
    for case in numbers["cases"]:
        assert (np.array(case["found"]) <= np.array(case["above"]) + 1e-9).all()
        case["found"] = [case["s_G"] * case["n"] ** 0.1] * len(case["found"])
        case["entries"] = [case["n_over_b"]] * len(case["entries"])
    assert verdicts("regular_versus_binomial", numbers) == ["no", "partly", "partly"]


def test_runtime(quick):
    numbers = quick("runtime")
    for case in numbers["cases"]:
        case["gradient"] = 1e-9 * case["n"] * case["p"]
        p_bin = case["p"] * case["b"]
        case["merging"] = case["exact"] = case["projection"] = 1e-12 * p_bin * np.log(p_bin)
    assert verdicts("runtime", numbers) == ["yes", "yes", "yes"]
    for case in numbers["cases"]:
        case["gradient"] = 1e-18 * (case["n"] * case["p"]) ** 1.5
        case["merging"] = 1e-6 * case["b"] ** 2.0
    assert verdicts("runtime", numbers) == ["no", "no", "no"]


# ---------------------------------------------------------------- power laws


def test_interval_of_an_exponent_covers_it():
    """The share of 500 fits whose interval covers it is within four standard deviations of 95%."""
    rng = np.random.default_rng(0)
    x = np.geomspace(10, 1000, 8)
    laws = [fit_power_law(x, 3 * x**-0.5 * np.exp(0.2 * rng.standard_normal(8))) for _ in range(500)]
    assert np.mean([law["exponent"] for law in laws]) == pytest.approx(-0.5, abs=0.02)
    covered = np.mean([law["low"] <= -0.5 <= law["high"] for law in laws])
    assert covered == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 500))


def test_verdict_of_an_exponent_at_its_margin():
    assert [verdict(e, 1.0) for e in (0.86, 1.14, 0.84, 1.16, -1.0)] == ["yes", "yes", "partly", "partly", "no"]
