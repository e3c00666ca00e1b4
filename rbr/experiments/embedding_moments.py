"""Item 14: the squared error of lengths under sparse embeddings (paper, section 5, Theorem 5.1).

Three measurements:

small    every possible matrix of a few small sizes is written out, and the moments of the closed forms in
         rbr.embedding are compared with the means over all of them;
large    Monte Carlo on vectors of 20 blocks of 64 features, with confidence intervals;
digits   scikit-learn's digits. A vector is 20 images side by side: 20 blocks, one image each, so that "a block with two
         non-zeros" is an image with two lit pixels. Distances between such vectors under four embeddings with the same
         number of non-zeros and under a dense Gaussian one, and the CPU time of each.

The rules of `judge`, fixed before anything was measured:

- an interval is a mean over independent draws +- z standard errors, with z such that all intervals of one run hold
  simultaneously with 99% (Bonferroni, normal);
- the inequality: "yes" if in every small case the mean over all matrices equals the closed form to 1e-10 and is no
  larger for X_bin than for S, and every Monte Carlo interval contains its closed form; "no" if it is larger for X_bin
  in some small case, or if an interval of the difference S - X_bin lies wholly below zero; else "partly";
- strictness: "yes" if among the small cases the difference is positive exactly where a block has two non-zeros, and
  the interval of the difference lies above zero for the vector inside one block and contains zero for the vector
  with one non-zero per block; "no" if a small case fails; else "partly";
- "better for the same number of non-zeros": "yes" if on digits, for every size, the exact mean over the pairs is
  smaller for X_bin than for S and for SparseRandomProjection, and every Monte Carlo interval contains its exact mean;
  "no" if it is not smaller for some size; else "partly". Times are reported but not judged: the paper claims none.
"""

from __future__ import annotations

import time
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr.experiments.item import Claim, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_BLOCKS = 20
BLOCK_SIZE = 64  # pixels of an image
CONFIDENCE = 0.99

# n_components, n_nonzeros, features: blocks of n_components // n_nonzeros, the last one smaller.
SMALL_SIZES = ((4, 2, 3), (4, 2, 4), (5, 2, 3), (4, 1, 6), (3, 1, 5), (6, 2, 3))
N_SMALL_VECTORS = 4

METHODS = {
    "binned": "X_bin (BinnedEmbedding)",
    "sparse_jl": "S (SparseJL)",
    "sklearn_sparse": "SparseRandomProjection",
    "gaussian": "Gaussian, as many components",
    "gaussian_equal_nonzeros": "Gaussian, as many non-zeros",
}


# ---------------------------------------------------------------- measure


def measure(setting: Setting) -> dict[str, Any]:
    """The numbers of all three measurements."""
    n_draws = setting.pick(4000, 600)
    n_batches = setting.pick(20, 4)
    components = setting.pick((128, 256, 512), (128, 256))
    n_pairs = setting.pick(1500, 300)
    n_digit_draws = setting.pick(400, 40)
    tasks: list[tuple] = [("small", size, setting.seed) for size in SMALL_SIZES]
    tasks += [
        ("large", (256, 256 // BLOCK_SIZE), n_draws // n_batches, setting.seed, batch) for batch in range(n_batches)
    ]
    tasks += [("digits", m, n_pairs, n_digit_draws, setting.seed) for m in components]
    results = setting.map(_run, tasks)
    small = [case for task, cases in zip(tasks, results, strict=True) if task[0] == "small" for case in cases]
    batches = [found for task, found in zip(tasks, results, strict=True) if task[0] == "large"]
    return {
        "small": small,
        "large": _pool(batches, 256),
        "digits": [found for task, found in zip(tasks, results, strict=True) if task[0] == "digits"],
        "speed": _time_methods(setting.rng(3), components[-1], setting.pick(2000, 400)),
    }


def _run(kind: str, *task) -> Any:
    return {"small": _small_cases, "large": _large_draws, "digits": _digits}[kind](*task)


def moment_by_enumeration(vector: np.ndarray, n_components: int, n_nonzeros: int, block_size: int) -> float:
    """E[(||S v||^2 - 1)^2] as the mean over all matrices that can be drawn, which are equally likely."""
    vector = np.asarray(vector, dtype=float)
    images = np.zeros((1, n_components))
    for first in range(0, len(vector), block_size):
        block = _images_of_block(vector[first : first + block_size], n_components, n_nonzeros)
        images = (images[:, None, :] + block[None, :, :]).reshape(-1, n_components)
    return float(np.mean((np.sum(images**2, axis=1) - 1.0) ** 2))


def _images_of_block(part: np.ndarray, n_components: int, n_nonzeros: int) -> np.ndarray:
    """S^k v^k for every assignment of components to the columns of a block, and all signs."""

    def supports(free: frozenset, n_columns: int):
        if n_columns == 0:
            yield ()
            return
        for support in combinations(sorted(free), n_nonzeros):
            for rest in supports(free - set(support), n_columns - 1):
                yield (support, *rest)

    signs = np.array(list(product((-1.0, 1.0), repeat=len(part) * n_nonzeros)))
    values = signs * np.repeat(part, n_nonzeros) / np.sqrt(n_nonzeros)
    found = []
    for chosen in supports(frozenset(range(n_components)), len(part)):
        image = np.zeros((len(values), n_components))
        image[:, np.concatenate(chosen)] = values
        found.append(image)
    return np.concatenate(found)


def _small_cases(size: tuple[int, int, int], seed: int) -> list[dict[str, Any]]:
    """Closed forms against the mean over all matrices, for random vectors with and without two non-zeros in a block."""
    from rbr.embedding import squared_distortion

    n_components, n_nonzeros, n_features = size
    block_size = n_components // n_nonzeros
    rng = np.random.default_rng([seed, 1, *size])
    cases = []
    for number in range(N_SMALL_VECTORS):
        vector = rng.normal(size=n_features)
        if number == 0:  # one non-zero per block
            vector[np.arange(n_features) % block_size != 0] = 0.0
        vector /= np.linalg.norm(vector)
        case: dict[str, Any] = {
            "n_components": n_components,
            "n_nonzeros": n_nonzeros,
            "vector": vector.tolist(),
            "two_in_a_block": bool(
                any(np.count_nonzero(vector[k : k + block_size]) > 1 for k in range(0, n_features, block_size))
            ),
        }
        for method, width in (("binned", block_size), ("sparse_jl", 1)):
            case[method] = {
                "closed_form": float(squared_distortion([vector], n_components, width)[0]),
                "enumerated": moment_by_enumeration(vector, n_components, n_nonzeros, width),
            }
        cases.append(case)
    return cases


def large_vectors() -> dict[str, np.ndarray]:
    """Unit vectors of 20 blocks of 64 on which the two embeddings should differ most, somewhat, little, not at all."""
    rng = np.random.default_rng(14)
    n_features = N_BLOCKS * BLOCK_SIZE
    vectors = {
        "inside one block": np.r_[np.ones(BLOCK_SIZE), np.zeros(n_features - BLOCK_SIZE)],
        "inside two blocks": np.r_[np.ones(2 * BLOCK_SIZE), np.zeros(n_features - 2 * BLOCK_SIZE)],
        "spread over all blocks": rng.normal(size=n_features),
        "one non-zero per block": np.where(np.arange(n_features) % BLOCK_SIZE == 0, 1.0, 0.0),
    }
    return {name: vector / np.linalg.norm(vector) for name, vector in vectors.items()}


def _large_draws(size: tuple[int, int], n_draws: int, seed: int, batch: int) -> dict[str, list]:
    """Squared distortion of each large vector under n_draws matrices of each kind."""
    from rbr.embedding import draw_signs

    n_components, n_nonzeros = size
    vectors = np.array(list(large_vectors().values()))
    n_features = vectors.shape[1]
    rng = np.random.default_rng([seed, 2, batch])
    found = {}
    for method, width in (("binned", BLOCK_SIZE), ("sparse_jl", 1)):
        # All matrices are drawn in one call: blocks divide the features, so the matrices are independent draws.
        signs = draw_signs(rng, n_draws * n_features, n_components, n_nonzeros, width).astype(float)
        images = [vectors @ signs[k * n_features : (k + 1) * n_features] for k in range(n_draws)]
        lengths = np.sum(np.array(images) ** 2, axis=2) / n_nonzeros
        found[method] = ((lengths - 1.0) ** 2).T.tolist()
    return found


def _pool(batches: list[dict[str, list]], n_components: int) -> list[dict[str, Any]]:
    """Means and standard errors over the draws of all batches, with the closed forms."""
    from rbr.embedding import squared_distortion

    pooled = []
    for row, (name, vector) in enumerate(large_vectors().items()):
        draws = {method: np.concatenate([batch[method][row] for batch in batches]) for method in batches[0]}
        entry: dict[str, Any] = {"vector": name, "n_components": n_components, "n_draws": len(draws["binned"])}
        for method, width in (("binned", BLOCK_SIZE), ("sparse_jl", 1)):
            entry[method] = {
                **_mean_and_error(draws[method]),
                "closed_form": float(squared_distortion([vector], n_components, width)[0]),
            }
        pooled.append(entry)
    return pooled


def _mean_and_error(draws: np.ndarray) -> dict[str, float]:
    return {"mean": float(draws.mean()), "error": float(draws.std(ddof=1) / np.sqrt(len(draws)))}


def stacked_digits(rng: np.random.Generator, n_vectors: int | None = None) -> np.ndarray:
    """Vectors of 20 images each: all images once in random order, or n_vectors vectors of images drawn at random."""
    from sklearn.datasets import load_digits

    images = load_digits().data
    if n_vectors is None:
        order = rng.permutation(len(images))[: len(images) // N_BLOCKS * N_BLOCKS]
    else:
        order = rng.integers(len(images), size=n_vectors * N_BLOCKS)
    return images[order].reshape(-1, N_BLOCKS * BLOCK_SIZE)


def _embeddings(n_components: int) -> dict[str, Any]:
    """The five embeddings: all but the first Gaussian have n_components // 64 non-zeros per feature."""
    from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

    from rbr.embedding import BinnedEmbedding, SparseJL

    n_nonzeros = n_components // BLOCK_SIZE
    return {
        "binned": BinnedEmbedding(n_components, n_nonzeros=n_nonzeros),
        "sparse_jl": SparseJL(n_components, n_nonzeros=n_nonzeros),
        "sklearn_sparse": SparseRandomProjection(n_components, density=1 / BLOCK_SIZE),
        "gaussian": GaussianRandomProjection(n_components),
        "gaussian_equal_nonzeros": GaussianRandomProjection(n_nonzeros),
    }


def _exact_moments(differences: np.ndarray, n_components: int) -> dict[str, np.ndarray]:
    from rbr.embedding import squared_distortion, squared_distortion_of_iid_entries

    return {
        "binned": squared_distortion(differences, n_components, BLOCK_SIZE),
        "sparse_jl": squared_distortion(differences, n_components),
        "sklearn_sparse": squared_distortion_of_iid_entries(differences, n_components, kurtosis=BLOCK_SIZE),
        "gaussian": squared_distortion_of_iid_entries(differences, n_components, kurtosis=3),
        "gaussian_equal_nonzeros": squared_distortion_of_iid_entries(
            differences, n_components // BLOCK_SIZE, kurtosis=3
        ),
    }


def _digits(n_components: int, n_pairs: int, n_draws: int, seed: int) -> dict[str, Any]:
    """Squared error of squared distances between pairs of stacked digits, over draws of each embedding."""
    rng = np.random.default_rng([seed, 4, n_components])
    vectors = stacked_digits(rng)
    first, second = np.triu_indices(len(vectors), k=1)
    chosen = rng.permutation(len(first))[:n_pairs]
    differences = vectors[first[chosen]] - vectors[second[chosen]]
    squared_distances = np.sum(differences**2, axis=1)
    result: dict[str, Any] = {
        "n_components": n_components,
        "n_nonzeros": n_components // BLOCK_SIZE,
        "n_pairs": len(chosen),
        "n_draws": n_draws,
    }
    exact = _exact_moments(differences, n_components)
    for method, embedding in _embeddings(n_components).items():
        squared, largest, n_stored = [], [], []
        for draw in range(n_draws):
            embedding.set_params(random_state=int(rng.integers(2**31)))
            images = embedding.fit_transform(vectors)
            moved = images[first[chosen]] - images[second[chosen]]
            distortion = np.sum(moved**2, axis=1) / squared_distances - 1.0
            squared.append(np.mean(distortion**2))
            largest.append(np.abs(distortion).max())
            if draw == 0:
                n_stored = getattr(embedding.components_, "nnz", np.size(embedding.components_))
        result[method] = {
            **_mean_and_error(np.array(squared)),
            "exact": float(exact[method].mean()),
            "largest": float(np.mean(largest)),
            "n_stored": int(n_stored),
        }
    return result


def _time_methods(rng: np.random.Generator, n_components: int, n_vectors: int) -> dict[str, Any]:
    """CPU seconds of a fit and of a transform of dense and of sparse stacked digits: the best of five."""
    from scipy import sparse

    dense = stacked_digits(rng, n_vectors)
    tables = {"dense": dense, "sparse": sparse.csr_array(dense)}
    result: dict[str, Any] = {"n_components": n_components, "n_vectors": n_vectors}
    for method, embedding in _embeddings(n_components).items():
        embedding.set_params(random_state=0)
        seconds = {"fit": _cpu_seconds(lambda embedding=embedding: embedding.fit(dense))}
        for kind, table in tables.items():
            seconds[kind] = _cpu_seconds(lambda embedding=embedding, table=table: embedding.transform(table))
        result[method] = seconds
    return result


def _cpu_seconds(function, n_times: int = 5) -> float:
    seconds = []
    for _ in range(n_times):
        start = time.process_time()
        function()
        seconds.append(time.process_time() - start)
    return min(seconds)


# ---------------------------------------------------------------- judge


def _half_widths(numbers: dict[str, Any]) -> float:
    """z: how many standard errors each interval of the run extends to either side."""
    from scipy.stats import norm

    # Two means and their difference for each large vector; one mean per method for each size on digits.
    n_intervals = 3 * len(numbers["large"]) + len(METHODS) * len(numbers["digits"])
    return float(norm.ppf(1 - (1 - CONFIDENCE) / (2 * n_intervals)))


def _contains(estimate: dict[str, float], value: float, z: float) -> bool:
    # An exact isometry has an interval of length zero, up to rounding.
    return abs(estimate["mean"] - value) <= z * estimate["error"] + 1e-12


def _difference(entry: dict[str, Any]) -> dict[str, float]:
    """S - X_bin; the two were drawn independently."""
    return {
        "mean": entry["sparse_jl"]["mean"] - entry["binned"]["mean"],
        "error": float(np.hypot(entry["sparse_jl"]["error"], entry["binned"]["error"])),
    }


def judge(numbers: dict[str, Any]) -> list[Claim]:
    """The rules are in the docstring of the module."""
    z = _half_widths(numbers)
    return [_judge_inequality(numbers, z), _judge_strictness(numbers, z), _judge_digits(numbers, z)]


def _judge_inequality(numbers: dict[str, Any], z: float) -> Claim:
    small, large = numbers["small"], numbers["large"]
    gaps = [abs(case[m]["closed_form"] - case[m]["enumerated"]) for case in small for m in ("binned", "sparse_jl")]
    n_reversed = sum(case["binned"]["enumerated"] > case["sparse_jl"]["enumerated"] + 1e-12 for case in small)
    differences = [_difference(entry) for entry in large]
    is_below = any(d["mean"] + z * d["error"] < -1e-12 for d in differences)
    n_inside = sum(_contains(entry[m], entry[m]["closed_form"], z) for entry in large for m in ("binned", "sparse_jl"))
    if n_reversed or is_below:
        holds = "no"
    else:
        holds = "yes" if max(gaps) <= 1e-10 and n_inside == 2 * len(large) else "partly"
    return Claim(
        "Theorem 5.1: E[(||S v||^2 - 1)^2] >= E[(||X_bin v||^2 - 1)^2] for every unit v",
        f"closed forms (2/m)(1 - sum_j v_j^4) for S and (2/m)(1 - sum_k ||v^k||^4) for X_bin: within "
        f"{max(gaps):.0e} of the mean over every matrix in {len(small)} small cases, {n_reversed} of them the other "
        f"way round; Monte Carlo ({large[0]['n_draws']} draws, m = {large[0]['n_components']}, 20 blocks of 64): "
        f"{n_inside} of {2 * len(large)} intervals contain the closed form",
        holds,
        ("Neither moment depends on the number of non-zeros per column.",),
    )


def _judge_strictness(numbers: dict[str, Any], z: float) -> Claim:
    small = numbers["small"]
    n_right = sum(
        (case["sparse_jl"]["enumerated"] - case["binned"]["enumerated"] > 1e-12) == case["two_in_a_block"]
        for case in small
    )
    large = {entry["vector"]: entry for entry in numbers["large"]}
    inside = _difference(large["inside one block"])
    apart = _difference(large["one non-zero per block"])
    is_above = inside["mean"] - z * inside["error"] > 0
    is_equal = _contains(apart, 0.0, z)
    holds = "no" if n_right < len(small) else "yes" if is_above and is_equal else "partly"
    m = numbers["large"][0]["n_components"]
    return Claim(
        "Theorem 5.1: the inequality is strict if a block of v has two non-zeros",
        f"strict exactly then in {n_right} of {len(small)} small cases; Monte Carlo, in units of 2/m: difference "
        f"{inside['mean'] * m / 2:.3f} +- {z * inside['error'] * m / 2:.3f} for a vector inside one block (exactly: "
        f"{_exact_difference(large['inside one block']) * m / 2:.3f}), {apart['mean'] * m / 2:.3f} +- "
        f"{z * apart['error'] * m / 2:.3f} with one non-zero per block (exactly: 0)",
        holds,
    )


def _exact_difference(entry: dict[str, Any]) -> float:
    return entry["sparse_jl"]["closed_form"] - entry["binned"]["closed_form"]


def _judge_digits(numbers: dict[str, Any], z: float) -> Claim:
    sizes, speed = numbers["digits"], numbers["speed"]
    rivals = ("sparse_jl", "sklearn_sparse")
    is_smaller = all(size["binned"]["exact"] < size[rival]["exact"] for size in sizes for rival in rivals)
    n_inside = sum(_contains(size[method], size[method]["exact"], z) for size in sizes for method in METHODS)
    n_intervals = len(sizes) * len(METHODS)
    holds = "no" if not is_smaller else "yes" if n_inside == n_intervals else "partly"
    shares = {
        method: np.mean([size["binned"]["exact"] / size[method]["exact"] for size in sizes]) for method in METHODS
    }
    times = "; ".join(
        f"{METHODS[method]} {1e3 * speed[method]['fit']:.1f}, {1e3 * speed[method]['dense']:.1f}, "
        f"{1e3 * speed[method]['sparse']:.1f}"
        for method in METHODS
    )
    return Claim(
        "Section 5: X_bin embeds better than S for the same number of non-zeros",
        f"digits, 20 images per vector, m = {', '.join(str(size['n_components']) for size in sizes)}: mean squared "
        f"error of squared distances {1 - shares['sparse_jl']:.1%} below S, {1 - shares['sklearn_sparse']:.1%} below "
        f"SparseRandomProjection, {1 - shares['gaussian']:.1%} below a dense Gaussian of as many components, and "
        f"{1 / shares['gaussian_equal_nonzeros']:.0f} times below one of as many non-zeros; {n_inside} of "
        f"{n_intervals} Monte Carlo intervals contain the exact value",
        holds,
        (
            f"CPU milliseconds of a fit, of {speed['n_vectors']} dense rows and of the same rows sparse, at m = "
            f"{speed['n_components']}: {times}.",
            "A vector is 20 of scikit-learn's digits side by side, a block is one image, and n_nonzeros is m / 64.",
        ),
    )


# ---------------------------------------------------------------- draw

COLORS = {
    "binned": "tab:blue",
    "sparse_jl": "tab:orange",
    "sklearn_sparse": "tab:green",
    "gaussian": "tab:gray",
    "gaussian_equal_nonzeros": "tab:gray",
}


def draw(numbers: dict[str, Any], figure: Figure) -> None:
    """Moments of large vectors, distances of digits, and CPU time."""
    figure.set_size_inches(14, 4.8)
    figure.set_layout_engine("constrained")
    left, middle, right = figure.subplots(1, 3)
    z = _half_widths(numbers)
    _draw_large(numbers["large"], z, left)
    _draw_digits(numbers["digits"], z, middle)
    _draw_speed(numbers["speed"], right)
    figure.legend(*middle.get_legend_handles_labels(), loc="outside lower left", ncols=4, fontsize=9, frameon=False)
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower right", ncols=3, fontsize=9, frameon=False)


def _draw_large(large: list[dict[str, Any]], z: float, axes) -> None:
    for method, shift in (("sparse_jl", 0.13), ("binned", -0.13)):
        places = np.arange(len(large))[::-1] + shift
        unit = np.array([2 / entry["n_components"] for entry in large])
        means = [entry[method]["mean"] for entry in large] / unit
        errors = [z * entry[method]["error"] for entry in large] / unit
        exact = [entry[method]["closed_form"] for entry in large] / unit
        color = COLORS[method]
        axes.errorbar(means, places, xerr=errors, fmt="o", ms=4, color=color, capsize=3)
        axes.plot(exact, places, "|", ms=16, color=color)
    axes.set_yticks(np.arange(len(large))[::-1], [entry["vector"] for entry in large])
    axes.set_xlabel("E[(||S v||² − 1)²] in units of 2/m")
    axes.set_title("Vectors of 20 blocks (bar: exact, dot: Monte Carlo)", fontsize=10)
    axes.set_xlim(left=-0.05)


def _draw_digits(sizes: list[dict[str, Any]], z: float, axes) -> None:
    components = np.array([size["n_components"] for size in sizes])
    methods = [method for method in METHODS if method != "gaussian_equal_nonzeros"]
    for k, method in enumerate(methods):
        unit = 2 / components
        axes.plot(components, [s[method]["exact"] for s in sizes] / unit, "-", color=COLORS[method])
        axes.errorbar(
            components * 1.03 ** (k - 1.5),
            [s[method]["mean"] for s in sizes] / unit,
            yerr=[z * s[method]["error"] for s in sizes] / unit,
            fmt="o",
            ms=4,
            capsize=3,
            color=COLORS[method],
            label=METHODS[method],
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(components, [str(m) for m in components])
    axes.minorticks_off()
    axes.set_xlabel("m, components")
    axes.set_ylabel("mean squared error in units of 2/m")
    axes.set_title("Distances of digits (line: exact, dot: Monte Carlo)", fontsize=10)


def _draw_speed(speed: dict[str, Any], axes) -> None:
    methods = list(METHODS)[::-1]
    places = np.arange(len(methods))
    kinds = {
        "fit": ("fit", "0.75"),
        "dense": ("transform, dense rows", "0.5"),
        "sparse": ("transform, sparse rows", "0.2"),
    }
    for k, (kind, (label, gray)) in enumerate(kinds.items()):
        milliseconds = [1e3 * speed[method][kind] for method in methods]
        axes.barh(places + 0.27 * (1 - k), milliseconds, height=0.25, color=gray, label=label)
    axes.set_yticks(places, [METHODS[m] for m in methods], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("CPU milliseconds")
    axes.set_title(f"{speed['n_vectors']} vectors of 1280, m = {speed['n_components']}", fontsize=10)
