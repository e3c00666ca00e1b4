"""Sparse random embeddings: a signed binned matrix in place of a sparse Johnson-Lindenstrauss one.

An embedding x -> S x takes d features to m components and keeps lengths on average. Every column of S has s
entries +-1 / sqrt(s) with independent signs. Two ways to place them (paper, section 5):

- `SparseJL`: every column draws its s components independently of the others;
- `BinnedEmbedding`: b = m // s neighbouring columns, a block, share out the m components among them, as the bins of
  one feature share out the rows of a binned matrix. Columns of a block are then exactly orthogonal.

So SparseJL is the case of blocks of one column, and one class serves both. The signs are kept as 8-bit integers in a
CSR array of shape (d, m): 5 bytes per entry where floats need 12. SciPy computes the products: S is laid out by
features, so each feature's values are read once, and the rows of X are processed in slabs that stay in cache. A
compiled kernel was tried and rejected: it was 1.6 times as fast at best, and slower with 32-bit floats and many
non-zeros.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy import linalg, sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import DataDimensionalityWarning
from sklearn.random_projection import johnson_lindenstrauss_min_dim
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from rbr._checks import check_int, check_real

__all__ = ["BinnedEmbedding", "SparseJL", "squared_distortion", "squared_distortion_of_iid_entries"]

FLOATS = [np.float64, np.float32]

# A slab of X and its image take about a megabyte, which the second-level cache of a core holds.
SLAB_ENTRIES = 2**17
SMALLEST_SLAB = 64

# The scratch array of a draw has at most this many entries, or as many as are drawn if that is more.
SCRATCH_ENTRIES = 2**20


# ---------------------------------------------------------------- the moments


def squared_distortion(X, n_components: int, block_size: int = 1) -> np.ndarray:
    """E[(||S x||^2 / ||x||^2 - 1)^2] for each row x of X, exactly, over the draw of S.

    For x of length 1, ||S x||^2 - 1 = 2 sum_{j < l} x_j x_l Z_jl with Z_jl = <S_j, S_l>, since columns have
    length 1. Signs are independent, so E[Z_jl Z_gh] = 0 for two different pairs, and E[Z_jl^2] = E|common
    components of j and l| / s^2. Two columns drawn independently share s^2 / m components on average; two columns of
    a block share none. Hence, with x^k the part of x in block k,

        E[(||S x||^2 - 1)^2] = (4 / m) sum over pairs j < l in different blocks of x_j^2 x_l^2
                             = (2 / m) (1 - sum_k ||x^k||^4).

    It does not depend on s. Blocks of one column are `SparseJL`: (2 / m) (1 - sum_j x_j^4); blocks of b columns
    are `BinnedEmbedding`, and the difference of the two, (2 / m) sum_k (||x^k||^4 - sum_{j in k} x_j^4), is
    positive as soon as one block holds two non-zeros and zero otherwise: Theorem 5.1 of the paper.

    Parameters
    ----------
    X : array-like or sparse of shape (n_samples, n_features)
    n_components : int
        m, the rows of S.
    block_size : int, default=1
        Neighbouring features that share one draw; the last block may be smaller.

    Returns
    -------
    moments : array of shape (n_samples,)
        0 for a row of zeros, which every embedding keeps.

    Examples
    --------
    >>> x = [[0.5, 0.5, 0.5, 0.5]]
    >>> squared_distortion(x, 10), squared_distortion(x, 10, block_size=2), squared_distortion(x, 10, block_size=4)
    (array([0.15]), array([0.1]), array([0.]))
    """
    X = check_array(X, accept_sparse="csr", dtype=np.float64)
    n_components = check_int(n_components, "n_components", 1)
    block_size = check_int(block_size, "block_size", 1)
    fourth, is_zero = _sum_of_fourth_powers(X, block_size)
    return np.where(is_zero, 0.0, 2.0 / n_components * (1.0 - fourth))


def squared_distortion_of_iid_entries(X, n_components: int, kurtosis: float) -> np.ndarray:
    """E[(||R x||^2 / ||x||^2 - 1)^2] for each row x of X, for R of independent entries of mean 0 and variance 1/m.

    The rows of R x are independent, and each has fourth moment (3 + (kurtosis - 3) sum_j x_j^4) / m^2 for x of length
    1. Hence

        E[(||R x||^2 - 1)^2] = (2 + (kurtosis - 3) sum_j x_j^4) / m.

    Parameters
    ----------
    X : array-like or sparse of shape (n_samples, n_features)
    n_components : int
        m, the rows of R.
    kurtosis : float
        Fourth moment of an entry over its squared variance: 3 for scikit-learn's GaussianRandomProjection,
        1 / density for its SparseRandomProjection.

    Returns
    -------
    moments : array of shape (n_samples,)
        0 for a row of zeros, which every embedding keeps.

    Examples
    --------
    >>> squared_distortion_of_iid_entries([[0.5, 0.5, 0.5, 0.5], [0.0, 1.0, 0.0, 0.0]], 10, kurtosis=11)
    array([0.4, 1. ])
    """
    X = check_array(X, accept_sparse="csr", dtype=np.float64)
    n_components = check_int(n_components, "n_components", 1)
    kurtosis = check_real(kurtosis, "kurtosis", 1.0)
    fourth, is_zero = _sum_of_fourth_powers(X, 1)
    return np.where(is_zero, 0.0, (2.0 + (kurtosis - 3.0) * fourth) / n_components)


def _squares(X):
    return X.multiply(X).tocsr() if sparse.issparse(X) else X * X


def _sum_of_fourth_powers(X, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """sum_k ||x^k||^4 over the blocks of each row, the row scaled to length 1; and whether the row is zero."""
    n_features = X.shape[1]
    scale = abs(X).max(axis=1)
    scale = scale.toarray().ravel() if sparse.issparse(scale) else scale
    # Divided by the largest entry before squaring, so that the squares of 1e200 or 1e-200 do not overflow or underflow.
    shrink = 1.0 / np.where(scale > 0, scale, 1.0)
    energies = _squares(sparse.diags_array(shrink) @ X if sparse.issparse(X) else X * shrink[:, None])
    member_of = np.arange(n_features) // block_size
    blocks = sparse.csr_array((np.ones(n_features), member_of, np.arange(n_features + 1)))
    by_block = energies @ blocks
    fourth = np.asarray(_squares(by_block).sum(axis=1)).ravel()
    total = np.asarray(energies.sum(axis=1)).ravel()
    is_zero = total == 0
    return fourth / np.where(is_zero, 1.0, total) ** 2, is_zero


# ---------------------------------------------------------------- the draw


def _draw_without_replacement(rng: np.random.Generator, n_draws: int, n_picks: int, n_items: int) -> np.ndarray:
    """n_picks different items of range(n_items), in random order, for each of n_draws: O(n_draws * n_picks).

    The first n_picks steps of a Fisher-Yates shuffle. The result is uniform whatever order it starts from, so the
    scratch array is never reset.
    """
    picks = np.empty((n_draws, n_picks), dtype=np.int32)
    n_together = min(n_draws, max(1, max(SCRATCH_ENTRIES, n_draws * n_picks) // n_items))
    scratch = np.tile(np.arange(n_items, dtype=np.int32), (n_together, 1))
    for first in range(0, n_draws, n_together):
        last = min(first + n_together, n_draws)
        order, rows = scratch[: last - first], np.arange(last - first)
        for step in range(n_picks):
            chosen = rng.integers(step, n_items, size=last - first)
            picked = order[rows, chosen]
            order[rows, chosen] = order[:, step]
            order[:, step] = picked
        picks[first:last] = order[:, :n_picks]
    return picks


def draw_signs(
    rng: np.random.Generator, n_features: int, n_components: int, n_nonzeros: int, block_size: int
) -> sparse.csr_array:
    """S.T * sqrt(n_nonzeros) as 8-bit signs: n_nonzeros per feature, disjoint within a block of features."""
    n_blocks = -(-n_features // block_size)
    picks = _draw_without_replacement(rng, n_blocks, block_size * n_nonzeros, n_components)
    components = np.sort(picks.reshape(n_blocks * block_size, n_nonzeros)[:n_features], axis=1)
    signs = 2 * rng.integers(0, 2, size=components.size, dtype=np.int8) - 1
    n_entries = components.size
    indptr = np.arange(0, n_entries + 1, n_nonzeros, dtype=np.int32 if n_entries < 2**31 else np.int64)
    drawn = sparse.csr_array((signs, components.ravel(), indptr), shape=(n_features, n_components))
    drawn.has_canonical_format = True
    return drawn


def _times(X: np.ndarray, matrix) -> np.ndarray:
    """X @ matrix for dense X, by slabs of rows."""
    n_rows = X.shape[0]
    step = max(SMALLEST_SLAB, SLAB_ENTRIES // sum(matrix.shape))
    if n_rows <= step:
        return X @ matrix
    matrix = matrix.astype(X.dtype, copy=False)
    out = np.empty((n_rows, matrix.shape[1]), dtype=X.dtype)
    for first in range(0, n_rows, step):
        out[first : first + step] = X[first : first + step] @ matrix
    return out


# ---------------------------------------------------------------- the estimators


class _SparseEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """The common part of both embeddings, which differ only in how many features share one draw."""

    def __init__(
        self,
        n_components="auto",
        *,
        n_nonzeros="auto",
        eps=0.1,
        dense_output=False,
        compute_inverse_components=False,
        random_state=None,
    ):
        self.n_components = n_components
        self.n_nonzeros = n_nonzeros
        self.eps = eps
        self.dense_output = dense_output
        self.compute_inverse_components = compute_inverse_components
        self.random_state = random_state

    @abstractmethod
    def _largest_block(self) -> int:
        """How many neighbouring features may share one draw."""

    def fit(self, X, y=None):
        """Draw the embedding. Only the shape, dtype and column names of X matter.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self
        """
        X = validate_data(self, X, accept_sparse=["csr", "csc"], dtype=FLOATS)
        n_samples, n_features = X.shape
        for name in ("dense_output", "compute_inverse_components"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be True or False")
        rng = _generator(self.random_state)
        self.n_components_ = self._count_components(n_samples, n_features)
        self.n_nonzeros_ = self._count_nonzeros(n_features)
        self.block_size_ = min(self._largest_block(), n_features)
        self._signs = draw_signs(rng, n_features, self.n_components_, self.n_nonzeros_, self.block_size_)
        self._dtype = X.dtype
        self._n_features_out = self.n_components_
        # A second fit must not keep the inverse of the first.
        self._inverse_gram = self._invert_gram() if self.compute_inverse_components else None
        return self

    def _count_components(self, n_samples: int, n_features: int) -> int:
        if isinstance(self.n_components, str):
            if self.n_components != "auto":
                raise ValueError(
                    f"n_components is {self.n_components!r}; it must be 'auto' or an integer of at least 1"
                )
            eps = check_real(self.eps, "eps", 0.0, strict=True)
            if eps >= 1:
                raise ValueError(f"eps is {self.eps}; it must be above 0 and below 1")
            n_components = int(johnson_lindenstrauss_min_dim(n_samples, eps=eps))
            if not 1 <= n_components <= n_features:
                raise ValueError(
                    f"n_components is 'auto', which for eps={self.eps} and {n_samples} samples asks for "
                    f"{n_components} components; it must come to between 1 and n_features={n_features}: give a number, "
                    "or another eps"
                )
            return n_components
        n_components = check_int(self.n_components, "n_components", 1)
        if n_components > n_features:
            warnings.warn(
                f"n_components is {n_components}, more than the {n_features} features of X: nothing is reduced",
                DataDimensionalityWarning,
                stacklevel=3,
            )
        return n_components

    def _count_nonzeros(self, n_features: int) -> int:
        if isinstance(self.n_nonzeros, str):
            if self.n_nonzeros != "auto":
                raise ValueError(
                    f"n_nonzeros is {self.n_nonzeros!r}; it must be 'auto' or an integer between 1 and "
                    f"n_components={self.n_components_}"
                )
            return max(1, round(self.n_components_ / np.sqrt(n_features)))
        return check_int(self.n_nonzeros, "n_nonzeros", 1, self.n_components_)

    @property
    def components_(self) -> sparse.csr_array:
        """S of shape (n_components, n_features), sparse. Built at each access, so changing it changes nothing else."""
        check_is_fitted(self, "_signs")
        scaled = self._signs.astype(self._dtype) * self._dtype.type(self._scale())
        return scaled.T.tocsr()

    @property
    def density_(self) -> float:
        """The share of entries of S that are not zero."""
        check_is_fitted(self, "_signs")
        return self.n_nonzeros_ / self.n_components_

    @property
    def inverse_components_(self) -> np.ndarray:
        """The pseudo-inverse of S, dense (n_features, n_components). Built at each access, like `components_`."""
        check_is_fitted(self, "_signs")
        if self._inverse_gram is None:
            raise AttributeError("inverse_components_ is there only after a fit with compute_inverse_components=True")
        return self.inverse_transform(np.eye(self.n_components_, dtype=self._dtype)).T

    def _scale(self) -> float:
        return 1.0 / np.sqrt(self.n_nonzeros_)

    def transform(self, X):
        """S x for each row x of X: n_nonzeros additions per non-zero of a sparse X, per entry of a dense one.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_features)

        Returns
        -------
        X_new : array or CSR of shape (n_samples, n_components)
            Sparse only if X is and `dense_output` is False.
        """
        check_is_fitted(self, "_signs")
        X = validate_data(self, X, accept_sparse=["csr", "csc"], reset=False, dtype=FLOATS)
        scale = X.dtype.type(self._scale())
        if not sparse.issparse(X):
            out = _times(X, self._signs)
            out *= scale
            return out
        product = (X.tocsr() @ self._signs).tocsr()
        product.data *= scale
        if self.dense_output:
            return product.toarray()
        return sparse.csr_array(product) if isinstance(X, sparse.sparray) else sparse.csr_matrix(product)

    def inverse_transform(self, X):
        """The shortest x whose embedding is nearest to each row of X: the pseudo-inverse of S applied to it.

        S+ = S^T (S S^T)+, or (S^T S)+ S^T where n_components > n_features, so that besides sparse products only a
        square array of side min(n_components, n_features) is needed: its pseudo-inverse costs the cube of that side.
        It is computed in `fit` with compute_inverse_components=True, else in each call. Singular values
        of S below about 1e-7 of the largest count as zero.

        Parameters
        ----------
        X : {array-like, sparse} of shape (n_samples, n_components)

        Returns
        -------
        X_original : array of shape (n_samples, n_features)
        """
        check_is_fitted(self, "_signs")
        X = check_array(X, accept_sparse=["csr", "csc"], dtype=FLOATS)
        if X.shape[1] != self.n_components_:
            raise ValueError(f"X has {X.shape[1]} columns; it must have n_components={self.n_components_}")
        inverse_gram = self._invert_gram() if self._inverse_gram is None else self._inverse_gram
        # With T = S sqrt(s), the signs: S+ = T+ sqrt(s).
        n_features = self._signs.shape[0]
        if self.n_components_ <= n_features:
            out = _times(np.asarray(X @ inverse_gram), self._signs.T)
        else:
            spread = X @ self._signs.T.astype(np.float64)
            out = np.asarray(spread @ inverse_gram)
        return (out / self._scale()).astype(X.dtype, copy=False)

    def _invert_gram(self) -> np.ndarray:
        """The pseudo-inverse of T T^T or T^T T, whichever is smaller, for the signs T = S sqrt(n_nonzeros)."""
        signs = self._signs.astype(np.float64)
        gram = signs.T @ signs if self.n_components_ <= signs.shape[0] else signs @ signs.T
        return linalg.pinvh(gram.toarray(), check_finite=False)

    def squared_distortion(self, X) -> np.ndarray:
        """E[(||S x||^2 / ||x||^2 - 1)^2] for each row x of X, over all draws: `rbr.embedding.squared_distortion`."""
        check_is_fitted(self, "_signs")
        X = validate_data(self, X, accept_sparse=["csr", "csc"], reset=False, dtype=FLOATS)
        return squared_distortion(X, self.n_components_, self.block_size_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.input_tags.sparse = True
        return tags


class BinnedEmbedding(_SparseEmbedding):
    """Random projection by a signed binned matrix: as sparse as `SparseJL`, and nearer to an isometry.

    Blocks of n_components // n_nonzeros neighbouring features share out the components among them, n_nonzeros
    each: a regular binning matrix with random signs (paper, section 5). Lengths are kept on average,
    and their squared error is never larger than that of `SparseJL` in expectation; it is smaller for every
    vector with two non-zeros in a block (Theorem 5.1). A table of no more features than a block holds is
    embedded without any distortion.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        m, the dimension of the image. "auto": scikit-learn's johnson_lindenstrauss_min_dim for the number of
        samples in `fit` and `eps`, which is conservative.
    n_nonzeros : int or "auto", default="auto"
        s, the non-zeros per feature, between 1 and n_components. "auto": n_components / sqrt(n_features), the
        density that scikit-learn's SparseRandomProjection uses.
    eps : float, default=0.1
        For n_components="auto": the relative error of squared distances to be kept, above 0 and below 1.
    dense_output : bool, default=False
        Return an array even for a sparse X.
    compute_inverse_components : bool, default=False
        Prepare `inverse_transform` in `fit`: an array of side min(n_components, n_features) is kept.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Seed or generator of the draw; None gives a different draw in each fit.

    Attributes
    ----------
    n_components_, n_nonzeros_ : int
        The values used.
    block_size_ : int
        Neighbouring features that share one draw.
    components_ : sparse CSR array of shape (n_components, n_features)
        S, built from 8-bit signs at each access.
    density_ : float
        n_nonzeros_ / n_components_.
    inverse_components_ : array of shape (n_features, n_components)
        The pseudo-inverse, built at each access; only with compute_inverse_components=True.
    n_features_in_ : int
    feature_names_in_ : array of str
        If X in `fit` had names.

    See Also
    --------
    SparseJL : every feature draws independently.
    sklearn.random_projection.SparseRandomProjection : independent entries.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr import BinnedEmbedding
    >>> X = np.random.default_rng(0).normal(size=(100, 5000))
    >>> embedding = BinnedEmbedding(n_components=400, n_nonzeros=8, random_state=0)
    >>> embedding.fit_transform(X).shape, embedding.block_size_
    ((100, 400), 50)
    """

    def _largest_block(self) -> int:
        return self.n_components_ // self.n_nonzeros_


class SparseJL(_SparseEmbedding):
    """Sparse Johnson-Lindenstrauss transform: n_nonzeros entries +-1 / sqrt(n_nonzeros) per feature.

    Every feature draws its components independently, without replacement (Kane and Nelson 2014; the matrix S of the
    paper's section 5).

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        m, the dimension of the image. "auto": scikit-learn's johnson_lindenstrauss_min_dim for the number of
        samples in `fit` and `eps`, which is conservative.
    n_nonzeros : int or "auto", default="auto"
        s, the non-zeros per feature, between 1 and n_components. "auto": n_components / sqrt(n_features), the
        density that scikit-learn's SparseRandomProjection uses.
    eps : float, default=0.1
        For n_components="auto": the relative error of squared distances to be kept, above 0 and below 1.
    dense_output : bool, default=False
        Return an array even for a sparse X.
    compute_inverse_components : bool, default=False
        Prepare `inverse_transform` in `fit`: an array of side min(n_components, n_features) is kept.
    random_state : int, numpy.random.RandomState, numpy.random.Generator or None, default=None
        Seed or generator of the draw; None gives a different draw in each fit.

    Attributes
    ----------
    n_components_, n_nonzeros_ : int
        The values used.
    block_size_ : int
        Neighbouring features that share one draw.
    components_ : sparse CSR array of shape (n_components, n_features)
        S, built from 8-bit signs at each access.
    density_ : float
        n_nonzeros_ / n_components_.
    inverse_components_ : array of shape (n_features, n_components)
        The pseudo-inverse, built at each access; only with compute_inverse_components=True.
    n_features_in_ : int
    feature_names_in_ : array of str
        If X in `fit` had names.

    See Also
    --------
    BinnedEmbedding : blocks of features share out the components; its error is never larger.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr import SparseJL
    >>> X = np.random.default_rng(0).normal(size=(100, 5000))
    >>> Z = SparseJL(n_components=400, n_nonzeros=8, random_state=0).fit_transform(X)
    >>> Z.shape
    (100, 400)
    """

    def _largest_block(self) -> int:
        return 1


def _generator(random_state: Any) -> np.random.Generator:
    """The generator that random_state stands for."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    try:
        legacy = check_random_state(random_state)
    except ValueError:
        raise ValueError(
            f"random_state is {random_state!r}; it must be None, an integer between 0 and 2**32 - 1, a "
            "numpy.random.RandomState or a numpy.random.Generator"
        ) from None
    return np.random.default_rng(legacy.randint(0, 2**32, size=4, dtype=np.uint32))
