"""Sparse embeddings: scikit-learn's contract, what is drawn, what it costs, and Theorem 5.1."""

import pickle
import tracemalloc
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.exceptions import DataDimensionalityWarning, NotFittedError
from sklearn.random_projection import (
    GaussianRandomProjection,
    SparseRandomProjection,
    johnson_lindenstrauss_min_dim,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

from rbr import BinnedEmbedding, SparseJL
from rbr.embedding import (
    _draw_without_replacement,
    _times,
    draw_signs,
    squared_distortion,
    squared_distortion_of_iid_entries,
)
from rbr.experiments import embedding_moments
from rbr.experiments.item import Setting

EMBEDDINGS = (BinnedEmbedding, SparseJL)

# n_components, n_nonzeros, n_features: with and without remainders, and blocks larger than the number of features.
SIZES = ((12, 3, 20), (13, 3, 30), (10, 10, 7), (9, 1, 40), (32, 2, 11), (1, 1, 5))


def build(kind, m, s, **options):
    return kind(n_components=m, n_nonzeros=s, **{"random_state": 0, **options})


# "auto" would ask for more components than the small tables of these checks have features, as in scikit-learn's own.
@parametrize_with_checks(
    [kind(n_components=2, **options) for kind in EMBEDDINGS for options in ({}, {"compute_inverse_components": True})]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataDimensionalityWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# ---------------------------------------------------------------- what is drawn


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataDimensionalityWarning")
@pytest.mark.parametrize("kind", EMBEDDINGS)
@pytest.mark.parametrize(("m", "s", "d"), SIZES)
def test_columns_have_s_entries_and_length_1(kind, m, s, d):
    S = build(kind, m, s).fit(np.zeros((2, d))).components_
    assert isinstance(S, sparse.csr_array)
    assert S.shape == (m, d)
    dense = S.toarray()
    assert_array_equal(np.count_nonzero(dense, axis=0), s)
    assert_allclose(np.abs(dense[dense != 0]), s**-0.5, rtol=1e-15)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataDimensionalityWarning")
@pytest.mark.parametrize(("m", "s", "d"), SIZES)
def test_columns_of_a_block_share_no_component(m, s, d):
    embedding = build(BinnedEmbedding, m, s).fit(np.zeros((2, d)))
    assert embedding.block_size_ == min(m // s, d)
    used = (embedding.components_ != 0).toarray().astype(int)
    for first in range(0, d, embedding.block_size_):
        assert used[:, first : first + embedding.block_size_].sum(axis=1).max() == 1


def test_a_whole_block_is_a_binning():
    """Each of the b = m / s columns gets s components, and each component one column: the paper's regular binning."""
    used = (build(BinnedEmbedding, 12, 3).fit(np.zeros((2, 20))).components_ != 0).toarray()
    for first in range(0, 20, 4):
        assert_array_equal(used[:, first : first + 4].sum(axis=1), 1)


@pytest.mark.parametrize("scratch", [1, 2**20])
def test_draws_are_uniform(monkeypatch, scratch):
    """All ordered pairs of 5 items are equally likely, also if a shuffle starts from the order the last one left."""
    monkeypatch.setattr("rbr.embedding.SCRATCH_ENTRIES", scratch)
    n_draws = 4000
    picks = _draw_without_replacement(np.random.default_rng(0), n_draws, 2, 5)
    assert (picks[:, 0] != picks[:, 1]).all()
    pairs = [f"{a}{b}" for a in range(5) for b in range(5) if a != b]
    found = pd.Series(picks[:, 0].astype(str)) + pd.Series(picks[:, 1].astype(str))
    assert stats.chisquare(found.value_counts().reindex(pairs, fill_value=0)).pvalue > 1e-3
    # Successive draws are independent.
    follows = pd.crosstab(picks[:-1, 0], picks[1:, 0])
    assert stats.chi2_contingency(follows).pvalue > 1e-3


def test_signs_are_fair_and_independent_of_place():
    drawn = draw_signs(np.random.default_rng(0), 4000, 8, 2, 4)
    up = np.array([(drawn.indices[drawn.data > 0] == k).sum() for k in range(8)])
    assert stats.chisquare(np.r_[up, 1000 - up]).pvalue > 1e-3


def test_every_support_of_a_column_is_as_likely():
    drawn = draw_signs(np.random.default_rng(1), 6000, 4, 2, 2)
    supports = pd.Series(list(map(tuple, drawn.indices.reshape(-1, 2))))
    for rows in (supports[::2], supports[1::2]):  # the first and the second column of a block
        counts = rows.value_counts().reindex(list(combinations(range(4), 2)), fill_value=0)
        assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_random_state(kind):
    X = np.random.default_rng(0).normal(size=(5, 60))

    def image(random_state):
        return build(kind, 20, 4, random_state=random_state).fit_transform(X)

    assert_array_equal(image(3), image(3))
    assert_array_equal(image(np.random.RandomState(3)), image(3))
    assert_array_equal(image(np.random.default_rng(3)), image(np.random.default_rng(3)))
    assert not np.array_equal(image(3), image(4))
    assert not np.array_equal(image(None), image(None))
    embedding = build(kind, 20, 4, random_state=3).fit(X)
    assert_array_equal(pickle.loads(pickle.dumps(embedding)).transform(X), image(3))
    assert_array_equal(embedding.fit(X.astype(np.float32)).transform(X), image(3))


# ---------------------------------------------------------------- products


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataDimensionalityWarning")
@pytest.mark.parametrize("kind", EMBEDDINGS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("m", "s", "d"), SIZES)
def test_transform_is_the_product_with_the_components(kind, m, s, d, dtype):
    rng = np.random.default_rng(m)
    X = (rng.normal(size=(150, d)) * (rng.random((150, d)) < 0.4)).astype(dtype)
    embedding = build(kind, m, s).fit(X)
    assert embedding.components_.dtype == dtype
    expected = X @ embedding.components_.toarray().T
    tolerance = 1e-13 if dtype is np.float64 else 1e-5
    image = embedding.transform(X)
    assert image.dtype == dtype
    assert_allclose(image, expected, rtol=0, atol=tolerance)
    for container in (sparse.csr_array, sparse.csc_array, sparse.csr_matrix, sparse.csc_matrix):
        image = embedding.transform(container(X))
        assert image.format == "csr"
        assert isinstance(image, sparse.sparray) == issubclass(container, sparse.sparray)
        assert image.dtype == dtype
        assert_allclose(image.toarray(), expected, rtol=0, atol=tolerance)
    embedding.set_params(dense_output=True)
    assert_allclose(embedding.transform(sparse.csr_array(X)), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_slabs_change_nothing(monkeypatch, dtype):
    signs = draw_signs(np.random.default_rng(0), 30, 12, 3, 4)
    X = np.random.default_rng(1).normal(size=(101, 30)).astype(dtype)
    whole = X @ signs
    for smallest in (1, 7, 100, 101, 102):
        monkeypatch.setattr("rbr.embedding.SMALLEST_SLAB", smallest)
        monkeypatch.setattr("rbr.embedding.SLAB_ENTRIES", 0)
        assert_array_equal(_times(X, signs), whole)


@pytest.mark.parametrize("kind", EMBEDDINGS)
@pytest.mark.parametrize("as_sparse", [False, True])
def test_memory_is_that_of_the_non_zeros(kind, as_sparse):
    """A dense S would take 320 MB; its non-zeros take 0.4 MB at 5 bytes each."""
    m, s, d = 2000, 4, 20_000
    X = sparse.csr_array(sparse.random(5, d, density=0.01, random_state=0))
    X = X if as_sparse else X.toarray()
    embedding = build(kind, m, s)
    tracemalloc.start()
    image = embedding.fit(X).transform(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert image.shape == (5, m)
    assert embedding.components_.nnz == d * s
    assert peak < 16e6
    assert len(pickle.dumps(embedding)) < 5 * d * s + 4 * (d + 1) + 2000  # entries, starts of the columns, the rest


def test_a_sparse_row_costs_only_its_non_zeros():
    """The image of a row with k non-zeros has at most k s entries, of which none is stored twice."""
    X = sparse.csr_array(([1.0, -2.0], ([0, 0], [17, 400])), shape=(1, 1000))
    image = build(SparseJL, 300, 5).fit(X).transform(X)
    assert image.nnz <= 10
    assert image.has_canonical_format or len(set(image.indices.tolist())) == image.nnz


# ---------------------------------------------------------------- the inverse


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataDimensionalityWarning")
@pytest.mark.parametrize("kind", EMBEDDINGS)
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(("m", "s", "d"), SIZES)
def test_inverse_is_the_pseudo_inverse(kind, prepared, m, s, d):
    """Also if S does not have full rank: equal columns, components that no column uses."""
    embedding = build(kind, m, s, compute_inverse_components=prepared).fit(np.zeros((2, d)))
    inverse = np.linalg.pinv(embedding.components_.toarray())
    Z = np.random.default_rng(0).normal(size=(6, m))
    assert_allclose(embedding.inverse_transform(Z), Z @ inverse.T, rtol=0, atol=1e-10)
    assert_allclose(embedding.inverse_transform(sparse.csr_array(Z)), Z @ inverse.T, rtol=0, atol=1e-10)
    assert embedding.inverse_transform(Z.astype(np.float32)).dtype == np.float32
    if prepared:
        assert_allclose(embedding.inverse_components_, inverse, rtol=0, atol=1e-10)
    else:
        assert not hasattr(embedding, "inverse_components_")


@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_the_image_of_the_inverse_is_the_image(kind):
    X = np.random.default_rng(0).normal(size=(8, 200))
    embedding = build(kind, 40, 5, compute_inverse_components=True)
    Z = embedding.fit_transform(X)
    assert_allclose(embedding.transform(embedding.inverse_transform(Z)), Z, rtol=0, atol=1e-10)


def test_a_second_fit_forgets_the_first_inverse():
    X = np.zeros((2, 30))
    embedding = build(SparseJL, 10, 2, compute_inverse_components=True).fit(X)
    embedding.set_params(compute_inverse_components=False, random_state=9).fit(X)
    Z = np.eye(10)
    assert_allclose(embedding.inverse_transform(Z), np.linalg.pinv(embedding.components_.toarray()).T, atol=1e-10)


# ---------------------------------------------------------------- parameters


def test_auto_components_follow_the_lemma():
    X = sparse.csr_array((50, 3000))
    for kind in EMBEDDINGS:
        embedding = kind(eps=0.3, random_state=0).fit(X)
        assert embedding.n_components_ == johnson_lindenstrauss_min_dim(50, eps=0.3)
        assert embedding.n_nonzeros_ == round(embedding.n_components_ / 3000**0.5)
        assert embedding.density_ == pytest.approx(3000**-0.5, rel=0.1)
        assert len(embedding.get_feature_names_out()) == embedding.n_components_


def test_names_and_frames():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(4, 9)), columns=list("abcdefghi"))
    embedding = build(BinnedEmbedding, 6, 2).set_output(transform="pandas")
    image = embedding.fit_transform(X)
    assert list(image.columns) == [f"binnedembedding{k}" for k in range(6)]
    assert_allclose(image, clone(embedding).set_output(transform="default").fit_transform(X))
    assert_array_equal(build(SparseJL, 3, 1).fit(X).get_feature_names_out(), ["sparsejl0", "sparsejl1", "sparsejl2"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components is 0; it must be at least 1"),
        ({"n_components": 2.5}, "n_components is 2.5; it must be an integer"),
        ({"n_components": "many"}, "n_components is 'many'; it must be 'auto' or an integer of at least 1"),
        ({"n_components": "auto", "eps": 0.0}, "eps is 0.0; it must be finite and above 0"),
        ({"n_components": "auto", "eps": 1.0}, "eps is 1.0; it must be above 0 and below 1"),
        ({"n_components": "auto"}, r"eps=0.1 and 8 samples asks for 1782 .* between 1 and n_features=6"),
        ({"n_nonzeros": 5}, "n_nonzeros is 5; it must be between 1 and 4"),
        ({"n_nonzeros": "few"}, "n_nonzeros is 'few'; it must be 'auto' or an integer between 1 and n_components=4"),
        ({"dense_output": "yes"}, "dense_output is 'yes'; it must be True or False"),
        ({"compute_inverse_components": 1}, "compute_inverse_components is 1; it must be True or False"),
        ({"random_state": "x"}, "random_state is 'x'; it must be None, an integer"),
    ],
)
@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_bad_parameters_are_named(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**{"n_components": 4, **options}).fit(np.zeros((8, 6)))


def test_more_components_than_features_is_a_warning():
    with pytest.warns(DataDimensionalityWarning, match="n_components is 7, more than the 6 features"):
        SparseJL(n_components=7).fit(np.zeros((8, 6)))


def test_bad_calls_are_named():
    embedding = build(SparseJL, 4, 2)
    for call in (embedding.transform, embedding.inverse_transform, embedding.squared_distortion):
        with pytest.raises(NotFittedError):
            call(np.zeros((1, 6)))
    embedding.fit(np.zeros((8, 6)))
    with pytest.raises(ValueError, match="X has 6 columns; it must have n_components=4"):
        embedding.inverse_transform(np.zeros((1, 6)))
    with pytest.raises(ValueError, match="block_size is 0; it must be at least 1"):
        squared_distortion([[1.0]], 4, block_size=0)
    with pytest.raises(ValueError, match="kurtosis is 0.5; it must be finite and at least 1"):
        squared_distortion_of_iid_entries([[1.0]], 4, kurtosis=0.5)


# ---------------------------------------------------------------- Theorem 5.1


@pytest.mark.parametrize(
    ("m", "s", "d", "block_size"),
    [
        (m, s, d, block_size)
        for m, s, d in [(4, 2, 4), (5, 2, 3), (3, 1, 5), (4, 1, 5), (6, 2, 3), (3, 3, 3)]
        for block_size in range(1, m // s + 1)
    ],
)
def test_closed_form_is_the_mean_over_all_matrices(m, s, d, block_size):
    rng = np.random.default_rng([m, s, d])
    for _ in range(3):
        v = rng.normal(size=d)
        v /= np.linalg.norm(v)
        enumerated = embedding_moments.moment_by_enumeration(v, m, s, block_size)
        assert_allclose(squared_distortion([v], m, block_size), enumerated, rtol=1e-12, atol=1e-15)


def test_enumeration_by_hand():
    """Two features, two components, one entry each: half of the draws collide, with cross term +-2 v_1 v_2."""
    v = np.array([0.6, 0.8])
    assert embedding_moments.moment_by_enumeration(v, 2, 1, 1) == pytest.approx((2 * 0.48) ** 2 / 2)
    assert embedding_moments.moment_by_enumeration(v, 2, 1, 2) == pytest.approx(0.0)


def test_binned_is_never_worse_and_strictly_better_with_two_in_a_block():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 1.5, size=(200, 24)) * (rng.random((200, 24)) < 0.15)
    X = X[X.any(axis=1)]
    binned, alone = squared_distortion(X, 30, block_size=6), squared_distortion(X, 30)
    two_in_a_block = (np.count_nonzero(X.reshape(-1, 4, 6), axis=2) > 1).any(axis=1)
    assert 20 < two_in_a_block.sum() < len(X) - 20
    assert (binned[two_in_a_block] < alone[two_in_a_block] - 1e-6).all()
    assert_allclose(binned[~two_in_a_block], alone[~two_in_a_block], rtol=0, atol=1e-15)


def test_moments_of_rows_are_scale_free_and_take_sparse_rows():
    X = np.array([[3.0, 4.0, 0.0], [3e200, 4e200, 0.0], [3e-200, 4e-200, 0.0], [0.0, 0.0, 0.0]])
    expected = np.array([1.0, 1.0, 1.0, 0.0]) * 2 / 5 * (1 - 0.6**4 - 0.8**4)
    assert_allclose(squared_distortion(X, 5), expected, rtol=1e-14)
    assert_allclose(squared_distortion(sparse.csr_array(X), 5), expected, rtol=1e-14)
    assert_allclose(squared_distortion(sparse.csr_matrix(X), 5, block_size=2), 0.0, atol=1e-15)
    of_entries = squared_distortion_of_iid_entries(sparse.csr_array(X), 5, kurtosis=3)
    assert_allclose(of_entries, [0.4, 0.4, 0.4, 0.0], rtol=1e-14)


def test_a_block_is_an_isometry():
    X = np.random.default_rng(0).normal(size=(6, 10))
    with pytest.warns(DataDimensionalityWarning):
        embedding = build(BinnedEmbedding, 40, 4).fit(X)
    assert_allclose(embedding.transform(X) @ embedding.transform(X).T, X @ X.T, atol=1e-13)
    assert_allclose(embedding.squared_distortion(X), 0.0, atol=1e-15)
    assert_allclose(embedding.inverse_transform(embedding.transform(X)), X, atol=1e-12)


def draws_of_squared_length(embedding, x, n_draws):
    rng = np.random.RandomState(0)
    return np.array(
        [np.sum(clone(embedding).set_params(random_state=rng).fit_transform([x]) ** 2) for _ in range(n_draws)]
    )


@pytest.mark.parametrize("kind", EMBEDDINGS)
def test_lengths_are_kept_on_average_with_the_moment_of_the_closed_form(kind):
    x = np.random.default_rng(0).normal(size=50)
    x /= np.linalg.norm(x)
    embedding = build(kind, 20, 3)  # 2 components are left over in each block
    lengths = draws_of_squared_length(embedding, x, 1500)
    assert abs(lengths.mean() - 1) < 4 * lengths.std() / 1500**0.5
    squared = (lengths - 1) ** 2
    exact = embedding.fit([x]).squared_distortion([x])[0]
    assert abs(squared.mean() - exact) < 4 * squared.std() / 1500**0.5


@pytest.mark.parametrize(
    ("embedding", "kurtosis"), [(SparseRandomProjection(20, density=0.15), 1 / 0.15), (GaussianRandomProjection(20), 3)]
)
def test_moment_of_independent_entries(embedding, kurtosis):
    x = np.r_[0.7, np.full(50, (0.51 / 50) ** 0.5)]
    squared = (draws_of_squared_length(embedding, x, 1500) - 1) ** 2
    exact = squared_distortion_of_iid_entries([x], 20, kurtosis)[0]
    assert abs(squared.mean() - exact) < 4 * squared.std() / 1500**0.5


# ---------------------------------------------------------------- item 14


@pytest.fixture(scope="module")
def numbers():
    class Tiny(Setting):
        """A setting smaller than quick: it replaces the sizes that an item picks."""

        def pick(self, full, quick):
            return {600: 80, 4: 2, 300: 40, 40: 10, 400: 30}.get(quick, (128,)) if np.isscalar(quick) else (128,)

    return embedding_moments.measure(Tiny(quick=True))


def test_item_says_what_it_measured(numbers):
    claims = embedding_moments.judge(numbers)
    assert [claim.holds for claim in claims] == ["yes", "yes", "yes"]
    assert "24 of 24 small cases" in claims[1].measured


def test_item_is_drawn_from_its_json(numbers):
    import json

    from matplotlib.figure import Figure

    figure = Figure()
    embedding_moments.draw(json.loads(json.dumps(numbers)), figure)
    assert len(figure.axes) == 3
    assert embedding_moments.judge(json.loads(json.dumps(numbers))) == embedding_moments.judge(numbers)


def altered(numbers, path, value):
    import copy

    changed = copy.deepcopy(numbers)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return [claim.holds for claim in embedding_moments.judge(changed)]


def test_item_can_say_no_and_partly(numbers):
    assert altered(numbers, ("small", 5, "binned", "enumerated"), 9.0) == ["no", "no", "yes"]
    assert altered(numbers, ("small", 5, "binned", "closed_form"), 9.0)[0] == "partly"
    assert altered(numbers, ("large", 0, "binned", "mean"), 9.0)[:2] == ["no", "partly"]
    assert altered(numbers, ("large", 2, "sparse_jl", "closed_form"), 9.0)[0] == "partly"
    assert altered(numbers, ("digits", 0, "sparse_jl", "exact"), 1e-6)[2] == "no"
    assert altered(numbers, ("digits", 0, "gaussian", "mean"), 9.0)[2] == "partly"


def test_digits_have_twenty_blocks_and_equal_non_zeros(numbers):
    vectors = embedding_moments.stacked_digits(np.random.default_rng(0))
    assert vectors.shape == (89, 20 * 64)
    size = numbers["digits"][0]
    assert size["binned"]["n_stored"] == size["sparse_jl"]["n_stored"] == 1280 * 2
    assert size["gaussian_equal_nonzeros"]["n_stored"] == 1280 * 2
    assert size["sklearn_sparse"]["n_stored"] == pytest.approx(1280 * 2, rel=0.1)
