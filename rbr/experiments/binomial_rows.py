"""Item 11. Rows of the binomial matrix (paper, theorems E.2 and E.3).

A row of sqrt(n) X_bin is a random encoding vector: block j is sqrt(b_j) times a random basis vector. Its mean and
covariance are computed by listing all its values. On designs that `Binner(binning="binomial")` makes of normal
numbers, they are tested through what they imply for counts: the bins of two features are independent and uniform.
Independence of the rows is tested by how often two of them share a bin: 1/b if they are independent, against
(n/b - 1) / (n - 1) under regular binning. The subgaussian norm, sup_q q^(-1/2) (E |<a, v>|^q)^(1/q), is computed for
the worst direction v of mean zero in one block, and for directions spread evenly over m blocks, a single bin in each.

Rules. Two of them were changed after a first quick run. The first rule compared covariances with normal tails, which
do not fit counts of about a dozen (it rejected at 40 bins); the chi-squared test fits counts. The last rule allowed no
excess at all, which is stricter than the theorem's "proportional to".
- Mean and covariance: "yes" if the listed moments are exact to 1e-12 and no chi-squared test of a pair of features
  rejects, at 0.1% over all pairs together; "partly" if only one of the two.
- Independence: "yes" if 1/b lies in the 99.9% interval of the binomial share and not in that of the regular one;
  "partly" if it lies in the first but the two cannot be told apart; else "no".
- Norm of a block: "yes" if it is at most sqrt(b) for all b; else "no". Its growth in b is reported.
- Norm of a row: "yes" if spreading over m blocks never gives more than 1.1 times the larger of one block's norm and a
  normal number's; else "no".
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binom, chisquare
from scipy.stats import norm as normal

from rbr import theory
from rbr.data.binning import Binner
from rbr.experiments.item import Claim, Setting
from rbr.experiments.scaling import fit_power_law, label, log_scale, plain_ticks
from rbr.plotting.panels import CLASS_COLORS, QUIET_COLOR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.999
EXCESS = 1.1
# sup_q q^(-1/2) (E |g|^q)^(1/q) of a standard normal number, attained at q = 1.
NORMAL_NORM = float(np.sqrt(2 / np.pi))
STYLES = (("o", CLASS_COLORS[1]), ("s", CLASS_COLORS[2]), ("^", CLASS_COLORS[3]))


def measure(setting: Setting) -> dict:
    tasks = [("listed", n_bins, 0, setting.rng(11, 0)) for n_bins in ([2, 3], [4, 5, 3], [2, 2, 6, 4])]
    n_rows = setting.pick(200_000, 20_000)
    tasks += [("measured", [b] * 3, n_rows, setting.rng(11, 1, b)) for b in (2, 8, 40)]
    n_features = setting.pick(200_000, 20_000)
    tasks += [("shared", [4], n_features, setting.rng(11, 2))]
    bins = setting.pick([2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024], [2, 4, 8, 16, 64, 256])
    tasks += [("norm", [b], 0, setting.rng(11, 3, b)) for b in bins]
    found = setting.map(_one_task, tasks)
    kinds = [task[0] for task in tasks]
    return {
        kind: [result for other, result in zip(kinds, found, strict=True) if other == kind]
        for kind in ("listed", "measured", "shared", "norm")
    }


def _one_task(kind: str, n_bins: list[int], size: int, rng) -> dict:
    return {"listed": _listed, "measured": _measured, "shared": _shared, "norm": _norm}[kind](n_bins, size, rng)


def _zero_mean(n_bins: list[int]) -> np.ndarray:
    """The projection onto the subspace of tables of mean zero."""
    offsets = np.concatenate([[0], np.cumsum(n_bins)])
    matrix = np.eye(offsets[-1])
    for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
        matrix[start:stop, start:stop] -= 1 / (stop - start)
    return matrix


def _listed(n_bins: list[int], _, rng) -> dict:
    mean, covariance = theory.row_moments(n_bins)
    project = _zero_mean(n_bins)
    return {
        "n_bins": n_bins,
        "mean": float(np.abs(project @ mean).max()),
        "covariance": float(np.abs(project @ covariance @ project - project).max()),
    }


def _measured(n_bins: list[int], n_rows: int, rng) -> dict:
    """Tests that the bins of every two features are uniform and independent, on a design made by Binner."""
    numbers = rng.standard_normal((n_rows, len(n_bins)))
    design = Binner(n_bins[0], "binomial", random_state=rng).fit(numbers).transform(numbers)
    gram, offsets = design.gram(), design.offsets
    pairs = combinations(range(len(n_bins)), 2)
    tables = [gram[offsets[j] : offsets[j + 1], offsets[k] : offsets[k + 1]] for j, k in pairs]
    return {
        "n_bins": n_bins,
        "n_rows": n_rows,
        "p_values": [float(chisquare(table.ravel()).pvalue) for table in tables],
    }


def _shared(n_bins: list[int], n_features: int, rng) -> dict:
    """The share of the features that put the first two of sixteen rows into one bin, for both binnings."""
    n_rows, b = 16, n_bins[0]
    shares = {}
    for binning in ("binomial", "regular"):
        codes = theory.random_design(n_rows, [b] * n_features, binning, rng).codes
        shares[binning] = float(np.mean(codes[:, 0] == codes[:, 1]))
    return {"b": b, "n_rows": n_rows, "n_features": n_features, "shares": shares}


def _norm(n_bins: list[int], _, rng) -> dict:
    b = n_bins[0]
    value, direction = theory.worst_row_direction(b, rng)
    single = np.sqrt(b) * (np.arange(b) == 0) - 1 / np.sqrt(b)
    single /= np.sqrt(1 - 1 / b)
    counts = [1, 2, 4, 8, 16, 32]
    spread = []
    for m in counts:  # with one bin against the others in each of m blocks, <a, v> is a shifted binomial
        hits = np.arange(m + 1)
        sums = (hits * single[0] + (m - hits) * single[1]) / np.sqrt(m)
        spread.append(theory.moment_norm(sums, binom.pmf(hits, m, 1 / b)))
    return {
        "b": b,
        "norm": value,
        "single_bin": theory.moment_norm(single),
        "largest_entry": float(np.abs(direction).max()),
        "blocks": counts,
        "spread": spread,
    }


def judge(numbers: dict) -> list[Claim]:
    exact = max(max(case["mean"], case["covariance"]) for case in numbers["listed"])
    p_values = [p_value for case in numbers["measured"] for p_value in case["p_values"]]
    moments = [exact <= 1e-12, min(p_values) * len(p_values) >= 1 - LEVEL]
    shared = numbers["shared"][0]
    intervals = {
        binning: [
            share + sign * normal.ppf((1 + LEVEL) / 2) * np.sqrt(share * (1 - share) / shared["n_features"])
            for sign in (-1, 1)
        ]
        for binning, share in shared["shares"].items()
    }
    inside = {binning: low <= 1 / shared["b"] <= high for binning, (low, high) in intervals.items()}
    cases = numbers["norm"]
    bins, norms = np.array([case["b"] for case in cases]), np.array([case["norm"] for case in cases])
    wide = bins >= 8
    law = fit_power_law(bins[wide], norms[wide])
    sharper = norms[wide] / np.sqrt(bins[wide] / np.log(bins[wide]))
    excess = max(max(case["spread"]) / max(case["norm"], NORMAL_NORM) for case in cases)
    return [
        Claim(
            "Rows have mean zero and identity covariance on the zero-mean subspace (theorem E.2)",
            f"listed: largest deviation {exact:.0e}; on designs of {numbers['measured'][0]['n_rows']} rows, "
            f"{len(p_values)} chi-squared tests of pairs of features: smallest p-value {min(p_values):.3f}",
            "yes" if all(moments) else "partly" if any(moments) else "no",
        ),
        Claim(
            "Binomial binning makes the rows independent (theorem E.3)",
            f"two of {shared['n_rows']} rows share one of {shared['b']} bins in {shared['shares']['binomial']:.4f} of "
            f"the cases (independent: {1 / shared['b']:.4f}); regular binning {shared['shares']['regular']:.4f}",
            "no" if not inside["binomial"] else "partly" if inside["regular"] else "yes",
        ),
        Claim(
            "The subgaussian norm of a block is at most of the order sqrt(b) (theorem E.2)",
            f"at most {(norms / np.sqrt(bins)).max():.2f} sqrt(b); exponent in b from 8 bins on {law['exponent']:.2f}",
            "yes" if (norms <= np.sqrt(bins)).all() else "no",
            (
                "the sharper order is sqrt(b / log b), attained by a single bin: norm / sqrt(b / log b) is between "
                f"{sharper.min():.2f} and {sharper.max():.2f}",
            ),
        ),
        Claim(
            "The norm of a row of many blocks is of the order of its worst block (theorem E.2)",
            f"spread evenly over 1 to {cases[0]['blocks'][-1]} blocks, at most {excess:.3f} times the norm of one",
            "yes" if excess <= EXCESS else "no",
            ("with many bins it does not fall either: the moment of order 2 m log b sees all m blocks hit at once",),
        ),
    ]


def draw(numbers: dict, figure: Figure) -> None:
    figure.set_size_inches(8.5, 3.6)
    left, right = figure.subplots(1, 2)
    cases = numbers["norm"]
    bins = np.array([case["b"] for case in cases], dtype=np.float64)
    left.plot(bins, [case["norm"] for case in cases], "o", color=CLASS_COLORS[1], markersize=5, label="worst direction")
    left.plot(
        bins, [case["single_bin"] for case in cases], "x", color=CLASS_COLORS[0], markersize=5, label="a single bin"
    )
    left.plot(bins, np.sqrt(bins), color=QUIET_COLOR, linestyle=":", linewidth=1.2, label="sqrt(b), the paper's order")
    wide = bins[bins >= 4]
    left.plot(
        wide, np.sqrt(wide / (2 * np.e * np.log(wide))), color=QUIET_COLOR, linewidth=1, label="sqrt(b / (2e log b))"
    )
    left.set(xscale="log")
    log_scale(left, "y")
    plain_ticks(left, "x", [case["b"] for case in cases], 6)
    label(left, "Subgaussian norm of one block", "bins b", "norm")
    left.legend(fontsize=7, frameon=False)
    shown = [case for case in cases if case["b"] in (4, 16, 64)]
    for (marker, color), case in zip(STYLES, shown, strict=False):
        right.plot(case["blocks"], case["spread"], color=color, marker=marker, markersize=4, label=f"{case['b']} bins")
    right.axhline(NORMAL_NORM, color=QUIET_COLOR, linestyle=":", linewidth=1.2, label="normal number")
    right.set(xscale="log", ylim=(0, None))
    plain_ticks(right, "x", cases[0]["blocks"], 6)
    label(right, "A direction spread over m blocks", "blocks m", "norm")
    right.legend(fontsize=7, frameon=False)
