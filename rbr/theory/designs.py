"""Random designs under the paper's assumption 3.1, the law of one row, and the coupling of the two binnings.

Under assumption 3.1 the ranks of independent continuous features are independent uniform permutations. Regular binning
then deals n / b_j rows to each bin in a random order, and binomial binning draws the bin of every entry independently
and uniformly (paper, theorem E.3). So codes are drawn directly, without drawing numbers only to rank them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rbr._checks import check_choice, check_int
from rbr.data.design import BinnedMatrix

BINNINGS = ("regular", "binomial")


def random_design(
    n_rows: int,
    n_bins: Sequence[int],
    binning: str = "regular",
    random_state: int | np.random.Generator | None = None,
) -> BinnedMatrix:
    """A binned matrix of independent continuous features (paper, definition 3.3), with uniform weights.

    Parameters
    ----------
    n_rows : int
    n_bins : sequence of int
        b_j for each feature.
    binning : {"regular", "binomial"}
        "regular": bins of n / b_j rows, or sizes that differ by one where b_j does not divide n.
        "binomial": sizes from the multinomial law (n; 1 / b_j, ...), which makes the rows independent; a bin may be
        empty.
    random_state : int, numpy.random.Generator or None

    Examples
    --------
    >>> B = random_design(12, [3, 4], "regular", random_state=0)
    >>> B.rmatvec(np.ones(12))
    array([4., 4., 4., 3., 3., 3., 3.])
    >>> random_design(12, [3, 4], "binomial", random_state=0).rmatvec(np.ones(12))
    array([6., 3., 3., 1., 1., 7., 3.])
    """
    n_rows = check_int(n_rows, "n_rows", 1)
    check_choice(binning, "binning", BINNINGS)
    rng = np.random.default_rng(random_state)
    if binning == "regular":
        codes = [rng.permutation(np.arange(n_rows) * b // n_rows) for b in n_bins]
    else:
        codes = [rng.integers(0, b, n_rows) for b in n_bins]
    return BinnedMatrix(np.stack(codes), np.concatenate([[0], np.cumsum(n_bins)])).with_weights("uniform")


# ---------------------------------------------------------------- the law of one row


def row_moments(n_bins: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a random encoding vector (paper, definition E.1), by listing all of its values.

    The blocks a^j are independent, and a^j is sqrt(b_j) times a random vector of the standard basis.

    Examples
    --------
    >>> mean, covariance = row_moments([2, 2])
    >>> np.round(covariance, 12) + 0.0
    array([[ 0.5, -0.5,  0. ,  0. ],
           [-0.5,  0.5,  0. ,  0. ],
           [ 0. ,  0. ,  0.5, -0.5],
           [ 0. ,  0. , -0.5,  0.5]])
    """
    codes = np.stack(np.meshgrid(*(range(b) for b in n_bins), indexing="ij")).reshape(len(n_bins), -1)
    B = BinnedMatrix(codes, np.concatenate([[0], np.cumsum(n_bins)]))
    rows = np.sqrt(B.n_rows) * B.toarray(scaled=True)
    mean = rows.mean(axis=0)
    return mean, rows.T @ rows / len(rows) - np.outer(mean, mean)


def moment_norm(values: ArrayLike, probabilities: ArrayLike | None = None) -> float:
    """The subgaussian norm sup_{q >= 1} q^(-1/2) (E |x|^q)^(1/q), the definition that the paper cites.

    Parameters
    ----------
    values : array
        The values that the random variable x can take.
    probabilities : array, optional
        Their probabilities; by default all are equal.

    Examples
    --------
    A random sign has the norm 1, attained at q = 1.

    >>> moment_norm([-1.0, 1.0])
    1.0
    """
    values = np.abs(np.asarray(values, dtype=np.float64))
    weights = np.full(values.shape, 1 / values.size) if probabilities is None else np.asarray(probabilities)
    largest = values.max(initial=0.0)
    if largest == 0:
        return 0.0
    # (E |x|^q)^(1/q) <= max |x|, so large q cannot attain the supremum; ratios to the largest value never overflow.
    norms = [largest * np.sum(weights * (values / largest) ** q) ** (1 / q) / np.sqrt(q) for q in _ORDERS]
    return float(max(norms))


# Orders q of the moments that are tried, 2% apart. The supremum is near q = 2 m log b for a row of m blocks of b bins.
_ORDERS = np.geomspace(1.0, 1000.0, 350)


def worst_row_direction(n_bins: int, random_state: int | np.random.Generator | None = None) -> tuple[float, np.ndarray]:
    """The subgaussian norm of a block of a row on the zero-mean subspace (paper, theorem E.2), and its direction.

    For each q, E |<a, v>|^q = b^(q/2 - 1) sum_k |v_k|^q is convex in v, so replacing v by the direction of the gradient
    never lowers it. Starts: a single bin, two bins of opposite sign, two even halves, and random vectors.

    Returns
    -------
    value : float
        A lower bound of the norm, from a search over directions.
    direction : array of shape (n_bins,)
        A unit vector of mean zero.

    Examples
    --------
    With two bins there is one direction, and <a, v> is a random sign.

    >>> round(worst_row_direction(2)[0], 12)
    1.0
    """
    b = check_int(n_bins, "n_bins", 2)
    rng = np.random.default_rng(random_state)
    starts = [np.arange(b) == 0, 1.0 * (np.arange(b) == 0) - (np.arange(b) == 1), np.arange(b) < b // 2]
    starts = [_centred_unit(np.asarray(start, dtype=np.float64)) for start in starts]
    starts += [_centred_unit(rng.standard_normal(b)) for _ in range(3)]
    best = max(starts, key=lambda v: moment_norm(np.sqrt(b) * v))
    for q in np.geomspace(1.0, 4 * np.log(b) + 4, 12):
        for v in starts:
            for _ in range(50):
                v = _centred_unit(np.sign(v) * np.abs(v) ** (q - 1))
            best = max(best, v, key=lambda u: moment_norm(np.sqrt(b) * u))
    return moment_norm(np.sqrt(b) * best), best


def _centred_unit(v: np.ndarray) -> np.ndarray:
    v = v - v.mean()
    size = np.linalg.norm(v)
    return v / size if size > 0 else v


# ---------------------------------------------------------------- regular against binomial


def coupled_regular_design(
    binomial: BinnedMatrix, random_state: int | np.random.Generator | None = None
) -> BinnedMatrix:
    """The regular design that the proof of theorem E.5 builds from a binomial one.

    In each feature the bins that hold more than n / b_j rows give away their excess, chosen at random, and the bins
    that hold fewer are filled from it at random. The result has the law of a regular design.

    Parameters
    ----------
    binomial : BinnedMatrix
        With b_j dividing n for every feature.
    random_state : int, numpy.random.Generator or None

    Examples
    --------
    >>> S = random_design(12, [3, 4], "binomial", random_state=0)
    >>> B = coupled_regular_design(S, random_state=0)
    >>> B.rmatvec(np.ones(12))
    array([4., 4., 4., 3., 3., 3., 3.])
    >>> int((B.codes != S.codes).sum())
    6
    """
    rng = np.random.default_rng(random_state)
    codes = binomial.codes.astype(np.int64)
    for j, b in enumerate(binomial.n_bins.tolist()):
        share, rest = divmod(binomial.n_rows, b)
        if rest:
            raise ValueError(
                f"binomial has {binomial.n_rows} rows and {b} bins in feature {j}; "
                f"the number of rows must be a multiple of the number of bins"
            )
        counts = np.bincount(codes[j], minlength=b)
        excess = [
            rng.choice(np.flatnonzero(codes[j] == k), counts[k] - share, replace=False)
            for k in np.flatnonzero(counts > share)
        ]
        moved = rng.permutation(np.concatenate([np.zeros(0, dtype=np.int64), *excess]))
        codes[j, moved] = np.repeat(np.arange(b), np.maximum(share - counts, 0))
    return BinnedMatrix(codes, binomial.offsets).with_weights("uniform")


def largest_stretch(
    difference: Sequence[BinnedMatrix],
    max_features: int,
    *,
    n_starts: int = 10,
    max_rounds: int = 30,
    random_state: int | np.random.Generator | None = None,
) -> tuple[float, float]:
    """max ||(B - S) v|| over unit v with at most s_G non-zero blocks (paper, theorem E.5), from below and above.

    From below: ascent v <- P_G(D' D v), D = B - S, from random blocks and from the blocks of the largest norm. From
    above: the square root of the sum of the s_G largest ||D^j||^2, which is at most the paper's sqrt(s_G) max_j ||D^j||
    (lemma E.6).

    Parameters
    ----------
    difference : pair of BinnedMatrix
        B and S, with the same bins.
    max_features : int
        s_G.
    n_starts, max_rounds : int
    random_state : int, numpy.random.Generator or None

    Returns
    -------
    found, bound : float
        The largest value found, and a bound that no v exceeds; equal for s_G = 1.

    Examples
    --------
    >>> S = random_design(120, [3, 4, 4], "binomial", random_state=0)
    >>> B = coupled_regular_design(S, random_state=0)
    >>> found, bound = largest_stretch((B, S), max_features=1, random_state=0)
    >>> abs(found - bound) < 1e-6
    True
    """
    check_int(max_features, "max_features", 1)
    check_int(n_starts, "n_starts", 1)
    rng = np.random.default_rng(random_state)
    first, second = difference
    D = first.tocsr(scaled=True) - second.tocsr(scaled=True)
    gram = (D.T @ D).toarray()
    offsets = first.offsets
    blocks = [slice(a, b) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    tops = [np.linalg.eigh(gram[block, block]) for block in blocks]
    squares = np.array([values[-1] for values, _ in tops])
    n_used = min(max_features, len(blocks))
    bound = float(np.sqrt(np.sort(squares)[::-1][:n_used].sum()))

    def best_on(features: np.ndarray) -> float:
        bins = np.concatenate([np.arange(offsets[j], offsets[j + 1]) for j in features])
        return float(np.linalg.eigvalsh(gram[np.ix_(bins, bins)])[-1])

    orders = [np.argsort(-squares, kind="stable")] + [rng.permutation(len(blocks)) for _ in range(n_starts)]
    best = 0.0
    for order in orders:
        v = np.zeros(first.n_coef)
        for j in order[:n_used]:
            v[blocks[j]] = tops[j][1][:, -1]
        for _ in range(max_rounds):
            image = gram @ v
            norms = np.add.reduceat(image**2, offsets[:-1])
            kept = np.argsort(-norms, kind="stable")[:n_used]
            v = np.where(np.repeat(np.isin(np.arange(len(blocks)), kept), first.n_bins), image, 0.0)
            size = np.linalg.norm(v)
            if size == 0:
                break
            v /= size
        best = max(best, best_on(kept))
    return float(np.sqrt(max(best, 0.0))), bound
