"""BinnedMatrix against the matrix it stands for, and the laws it must keep."""

import multiprocessing
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from cases_design import binned, feature_lists, vectors
from helpers import assert_close, assert_same_bits, largest_finite
from hypothesis import given
from hypothesis import strategies as st

from rbr._backend import use_backend
from rbr._parallel import over_ranges
from rbr.data import design
from rbr.data.binning import Binner
from rbr.data.design import BinnedMatrix
from rbr.data.grids import with_pairs

moderate = st.floats(-1e3, 1e3)
BACKENDS = ("fast", "reference")


@pytest.fixture(params=BACKENDS)
def backend(request):
    with use_backend(request.param):
        yield


@pytest.fixture
def threads_for_any_size(monkeypatch):
    monkeypatch.setattr(design, "MIN_ENTRIES_PER_THREAD", 1)


def one_hot(codes, offsets):
    """X by its definition, entry by entry."""
    dense = np.zeros((codes.shape[1], offsets[-1]))
    for j, feature_codes in enumerate(codes):
        for i, code in enumerate(feature_codes):
            if code < offsets[j + 1] - offsets[j]:
                dense[i, offsets[j] + code] = 1.0
    return dense


def random_matrix(n_features=5, n_rows=1000, n_bins=7, seed=0, dtype=np.uint8, **options):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_bins, (n_features, n_rows)).astype(dtype)
    return BinnedMatrix(codes, np.arange(n_features + 1) * n_bins, **options)


# ---------------------------------------------------------------- against the matrix itself


@given(binned(), st.data())
def test_products_are_those_of_the_one_hot_matrix(arrays, data):
    codes, offsets = arrays
    B, X = BinnedMatrix(codes, offsets), one_hot(codes, offsets)
    features = data.draw(feature_lists(B.n_features))
    f, values = data.draw(vectors(B.n_coef, moderate)), data.draw(vectors(B.n_rows, moderate))
    chosen = [np.arange(offsets[j], offsets[j + 1]) for j in features]
    columns = np.concatenate([np.empty(0, dtype=int), *chosen])
    scattered = np.zeros(B.n_coef)
    np.add.at(scattered, columns, X[:, columns].T @ values)

    assert B.shape == X.shape
    assert_close(B.toarray(), X)
    for name in BACKENDS:
        with use_backend(name):
            assert_close(B.matvec(f), X @ f, scale=1e3)
            assert_close(B.rmatvec(values), X.T @ values, scale=1e3)
            assert_close(B.matvec(f, features), X[:, columns] @ f[columns], scale=1e3)
            assert_close(B.rmatvec(values, features), scattered, scale=1e3)
            expected_gram = X[:, columns].T @ (values[:, None] * X[:, columns])
            assert_close(B.gram(features, values), expected_gram, scale=1e3)


@given(binned())
def test_csr_holds_the_paper_s_entries(arrays):
    codes, offsets = arrays
    B, X = BinnedMatrix(codes, offsets), one_hot(codes, offsets)
    plain, scaled = B.tocsr(scaled=False), B.tocsr()
    assert plain.nnz == (X != 0).sum()
    assert plain.has_canonical_format
    assert_close(plain.toarray(), X)
    entry = np.sqrt(np.repeat(B.n_bins, B.n_bins) / max(B.n_rows, 1))
    assert_close(scaled.toarray(), X * entry)
    assert_close(B.toarray(scaled=True), X * entry)


@given(binned(), st.data())
def test_adjoint(arrays, data):
    B = BinnedMatrix(*arrays)
    f, values = data.draw(vectors(B.n_coef, moderate)), data.draw(vectors(B.n_rows, moderate))
    features = data.draw(feature_lists(B.n_features))
    left = B.matvec(f, features) @ values
    right = f @ B.rmatvec(values, features)
    size = len(features) * largest_finite(f) * np.abs(values).sum()
    assert abs(left - right) <= 1e-13 * size


@given(binned(no_bin=False))
def test_columns_of_a_block_sum_to_ones(arrays):
    B = BinnedMatrix(*arrays)
    for j in range(B.n_features):
        np.testing.assert_array_equal(B.matvec(np.ones(B.n_coef), [j]), np.ones(B.n_rows))


@given(binned())
def test_gram_of_one_feature_is_diagonal(arrays):
    B = BinnedMatrix(*arrays)
    gram = B.gram()
    np.testing.assert_array_equal(gram, gram.T)
    for j in range(B.n_features):
        block = gram[B.offsets[j] : B.offsets[j + 1], B.offsets[j] : B.offsets[j + 1]]
        np.testing.assert_array_equal(block, np.diag(B.rmatvec(np.ones(B.n_rows), [j])[B.offsets[j] :][: len(block)]))


@pytest.mark.parametrize("n_bins", [2, 7, 40])
def test_rows_are_isotropic_under_binomial_binning(n_bins):
    """Paper: with binomial binning of independent features sqrt(n) x_i has, on the zero-mean subspace, mean
    zero and the identity as its covariance.

    The mean of n products of two entries, each at most sqrt(b) and of variance at most 1, has a standard
    deviation of at most sqrt(b / n); each entry is allowed six of them.
    """
    n_rows, n_features = 20_000, 3
    rng = np.random.default_rng(20170)
    codes = np.empty((n_features, n_rows), dtype=np.uint8)
    for j in range(n_features):
        sizes = rng.multinomial(n_rows, np.full(n_bins, 1 / n_bins))
        codes[j, np.argsort(rng.random(n_rows))] = np.repeat(np.arange(n_bins), sizes)
    B = BinnedMatrix(codes, np.arange(n_features + 1) * n_bins)
    project = np.kron(np.eye(n_features), np.eye(n_bins) - 1 / n_bins)
    rows = np.sqrt(n_rows) * B.toarray(scaled=True) @ project

    bound = 6 * np.sqrt(n_bins / n_rows)
    assert np.abs(rows.mean(axis=0)).max() <= bound
    assert np.abs(rows.T @ rows / n_rows - project).max() <= bound


# ---------------------------------------------------------------- not numbers, classes, threads


def test_nan_and_inf_stay_in_their_bins(backend):
    B = random_matrix(n_features=5, n_rows=101, n_bins=3)
    values = np.ones(101)
    values[[17, 40]] = np.nan, np.inf
    sums = B.rmatvec(values)
    hit_by_nan, hit_by_inf = B.toarray()[17] == 1, B.toarray()[40] == 1
    np.testing.assert_array_equal(np.isnan(sums), hit_by_nan)
    np.testing.assert_array_equal(np.isposinf(sums), hit_by_inf & ~hit_by_nan)

    f = np.zeros(B.n_coef)
    f[4] = np.nan
    np.testing.assert_array_equal(np.isnan(B.matvec(f)), B.toarray()[:, 4] == 1)


def test_row_without_a_bin_meets_no_nan(backend):
    """The entry after the end of a table belongs to the next table; a row without a bin must not read it."""
    B = BinnedMatrix([[1, 0], [0, 0]], [0, 1, 2])
    np.testing.assert_array_equal(B.matvec([5.0, 7.0]), [7.0, 12.0])
    np.testing.assert_array_equal(B.matvec([5.0, np.nan], [0]), [0.0, 5.0])
    np.testing.assert_array_equal(B.rmatvec([np.nan, 3.0], [0]), [3.0, 0.0])


def test_classes_are_columns(backend):
    B = random_matrix()
    rng = np.random.default_rng(1)
    f, values = rng.normal(size=(B.n_coef, 3)), rng.normal(size=(B.n_rows, 3))
    assert B.matvec(f).shape == (B.n_rows, 3)
    assert B.rmatvec(values).shape == (B.n_coef, 3)
    for c in range(3):
        assert_same_bits(B.matvec(f)[:, c], B.matvec(f[:, c]))
        assert_same_bits(B.rmatvec(values)[:, c], B.rmatvec(values[:, c]))
    assert B.matvec(f[:, :0]).shape == (B.n_rows, 0)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("n_bins", [1, 2, 40, 255])
@pytest.mark.parametrize("n_features", [1, 6, 13])
def test_threads_do_not_change_a_bit(dtype, n_bins, n_features, backend, threads_for_any_size):
    """More rows than a block of any kernel, so that the ranges of threads begin and end inside blocks."""
    B = random_matrix(n_features, 30_011, n_bins, dtype=dtype)
    rng = np.random.default_rng(2)
    f, values = rng.normal(size=B.n_coef), rng.normal(size=B.n_rows)
    for n_threads in (2, 7):
        assert_same_bits(B.matvec(f, n_threads=n_threads), B.matvec(f))
        assert_same_bits(B.rmatvec(values, n_threads=n_threads), B.rmatvec(values))
        chosen = [0, n_features - 1]
        assert_same_bits(B.gram(chosen, values, n_threads=n_threads), B.gram(chosen, values))


@pytest.mark.parametrize("most", [3, 32])
def test_sums_over_stretches_of_rows_are_those_over_all(most, monkeypatch, threads_for_any_size):
    B = random_matrix(13, 30_011, 40)
    values = np.random.default_rng(2).normal(size=B.n_rows)
    some = [11, 0, 5]
    whole = B.rmatvec(values), B.rmatvec(values, some)
    monkeypatch.setattr(design, "ROWS_PER_STRETCH", 2048)
    monkeypatch.setattr(design, "MAX_STRETCHES", most)
    one_thread = B.rmatvec(values), B.rmatvec(values, some)
    for actual, expected in zip(one_thread, whole, strict=True):
        assert_close(actual, expected)
        assert (actual != expected).any()  # added up in another order
    for n_threads in (2, 7):
        assert_same_bits(B.rmatvec(values, n_threads=n_threads), one_thread[0])
        assert_same_bits(B.rmatvec(values, some, n_threads=n_threads), one_thread[1])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("n_bins", [1, 2, 40, 255])
@pytest.mark.parametrize("n_features", [1, 2, 5, 11])
def test_long_columns_agree_with_the_reference(dtype, n_bins, n_features):
    """Enough rows for every path that a kernel keeps for long columns."""
    rng = np.random.default_rng(3)
    n_rows = 30_011
    codes = (rng.random((n_features, n_rows)) ** 2 * (n_bins + 1)).astype(dtype)
    B = BinnedMatrix(codes, np.arange(n_features + 1) * n_bins)
    f, values = rng.normal(size=B.n_coef), rng.normal(size=n_rows)
    with use_backend("reference"):
        expected = B.matvec(f), B.rmatvec(values), B.gram([0, n_features - 1], values)
    actual = B.matvec(f), B.rmatvec(values), B.gram([0, n_features - 1], values)
    for actual_one, expected_one in zip(actual, expected, strict=True):
        assert_close(actual_one, expected_one)


def test_little_work_stays_on_one_thread(monkeypatch):
    asked = []
    B, large = random_matrix(n_features=2, n_rows=1000), random_matrix(n_features=10, n_rows=30_000)
    monkeypatch.setattr(
        design, "over_ranges", lambda kernel, n_items, n_threads, *args, per_call: asked.append(n_threads)
    )
    B.matvec(np.zeros(B.n_coef), n_threads=8)
    large.matvec(np.zeros(large.n_coef), n_threads=2)
    assert asked == [1, 2]


def _products(B, f, values):
    return B.matvec(f, n_threads=2), B.rmatvec(values, n_threads=2)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_computes():
    """The pool's threads do not exist in the child; it must make its own."""
    B = random_matrix(n_features=10, n_rows=100_000)
    rng = np.random.default_rng(4)
    f, values = rng.normal(size=B.n_coef), rng.normal(size=B.n_rows)
    here = _products(B, f, values)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        there = pool.apply_async(_products, (B, f, values)).get(timeout=60)
    for actual, expected in zip(there, here, strict=True):
        assert_same_bits(actual, expected)


# ---------------------------------------------------------------- weights, rows, layout


@given(binned(), st.data())
def test_weights_are_shares_of_the_rows_with_a_bin(arrays, data):
    codes, offsets = arrays
    sample_weight = data.draw(vectors(codes.shape[1], st.sampled_from([0.0, 1.0, 2.5, 1e-300])))
    B = BinnedMatrix(codes, offsets, sample_weight=sample_weight)
    sums = one_hot(codes, offsets).T @ sample_weight
    for j in range(B.n_features):
        table = slice(offsets[j], offsets[j + 1])
        total = sums[table].sum()
        expected = sums[table] / total if total > 0 else np.full(B.n_bins[j], 1 / B.n_bins[j])
        assert_close(B.weights[table], expected)
        assert_close(B.with_weights("uniform").weights[table], np.full(B.n_bins[j], 1 / B.n_bins[j]))


def test_integer_weights_are_repeated_rows():
    B = random_matrix(n_rows=50)
    times = np.random.default_rng(5).integers(0, 4, 50)
    assert_close(B.with_weights("counts", sample_weight=times).weights, B[np.repeat(np.arange(50), times)].weights)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200, 1.7e308])
def test_shares_do_not_depend_on_the_scale_of_the_weights(scale):
    B = random_matrix(n_rows=50)
    weights = B.with_weights("counts", sample_weight=np.full(50, scale)).weights
    assert_close(weights, B.weights)


def test_with_weights_keeps_the_shares_and_shares_the_codes():
    B = random_matrix(sample_weight=np.arange(1000.0))
    uniform = B.with_weights("uniform")
    assert (B.weights_kind, uniform.weights_kind) == ("counts", "uniform")
    assert np.shares_memory(B.codes, uniform.codes)
    assert_same_bits(uniform.with_weights("counts").weights, B.weights)
    assert np.abs(B.weights - uniform.weights).max() > 0
    reweighted = uniform.with_weights("uniform", sample_weight=np.ones(1000)).with_weights("counts")
    assert_same_bits(reweighted.weights, random_matrix().weights)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize(
    "rows",
    [
        slice(None),
        slice(5, 90, 3),
        slice(None, None, -1),
        slice(0, 0),
        [4, 4, -1, 0],
        np.array([], dtype=int),
        [],
    ],
    ids=str,
)
def test_row_selection(rows, dtype):
    missing, positions = np.arange(5) % 2 == 0, np.arange(35.0)
    B = random_matrix(n_rows=100, dtype=dtype, missing=missing, positions=positions)
    chosen = B[rows]
    expected = BinnedMatrix(B.codes[:, rows if isinstance(rows, slice) else np.array(rows, dtype=int)], B.offsets)
    assert chosen.codes.dtype == dtype
    assert chosen.codes.flags.c_contiguous
    np.testing.assert_array_equal(chosen.codes, expected.codes)
    assert_same_bits(chosen.weights, expected.weights)
    np.testing.assert_array_equal(chosen.missing, missing)
    np.testing.assert_array_equal(chosen.positions, positions)
    assert B.with_weights("uniform")[rows].weights_kind == "uniform"


def test_row_selection_by_mask():
    B = random_matrix(n_rows=100)
    mask = np.arange(100) % 3 == 0
    np.testing.assert_array_equal(B[mask].codes, B.codes[:, mask])
    assert B[np.zeros(100, dtype=bool)].shape == (0, B.n_coef)


@pytest.mark.parametrize(
    "layout",
    [
        np.asfortranarray,
        lambda codes: codes[::-1][::-1],
        lambda codes: np.repeat(codes, 2, axis=1)[:, ::2],
        lambda codes: codes.astype(np.int64),
        lambda codes: codes.astype(np.uint64),
        lambda codes: codes.astype(">u2"),
        lambda codes: codes.tolist(),
    ],
    ids=["fortran", "reversed twice", "strided", "int64", "uint64", "big endian", "lists"],
)
def test_any_layout_of_codes(layout):
    expected = random_matrix()
    B = BinnedMatrix(layout(np.array(expected.codes)), list(expected.offsets))
    np.testing.assert_array_equal(B.codes, expected.codes)
    assert B.codes.flags.c_contiguous
    f = np.random.default_rng(6).normal(size=2 * B.n_coef)[::2]
    assert_same_bits(B.matvec(f), expected.matvec(f.copy()))
    assert_same_bits(B.matvec(f.astype(np.float32)), expected.matvec(f.astype(np.float32).astype(float)))


def test_codes_are_as_narrow_as_they_may_be():
    assert BinnedMatrix([[0, 255]], [0, 300]).codes.dtype == np.uint8
    assert BinnedMatrix([[0, 256]], [0, 300]).codes.dtype == np.uint16
    assert BinnedMatrix([[0, 65535]], [0, 65535]).codes.dtype == np.uint16
    assert BinnedMatrix(np.zeros((1, 2), dtype=np.uint16), [0, 3]).codes.dtype == np.uint16


def test_codes_are_not_copied_and_nothing_can_be_written():
    codes = np.zeros((2, 3), dtype=np.uint8)
    B = BinnedMatrix(codes, [0, 1, 3], positions=[0.0, 1.0, 2.0])
    assert np.shares_memory(codes, B.codes)
    assert codes.flags.writeable
    for array in (B.codes, B.offsets, B.weights, B.missing, B.positions, B.columns, B.n_bins):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_memory_is_a_byte_per_entry():
    B = random_matrix(n_features=20, n_rows=10_000, n_bins=40)
    assert 1.0 <= B.nbytes / B.codes.size < 1.1
    csr = B.tocsr()
    assert B.nbytes * 11 < csr.data.nbytes + csr.indices.nbytes + csr.indptr.nbytes


# ---------------------------------------------------------------- the columns that a feature looks at


def test_by_default_feature_j_looks_at_column_j():
    for B in (random_matrix(n_features=3), Binner().fit_transform(np.arange(6.0).reshape(2, 3))):
        assert B.columns.dtype == np.int64
        np.testing.assert_array_equal(B.columns, [[0], [1], [2]])
        assert B.columns_of(2) == (2,)
    assert BinnedMatrix(np.empty((0, 4), dtype=np.uint8), [0]).columns.shape == (0, 1)


def test_columns_are_kept_by_whatever_makes_another_matrix():
    given = np.array([[4, -1], [0, -1], [0, 4]], dtype=np.int32)
    B = random_matrix(n_features=3, columns=given)
    given[0, 0] = 7
    made = BinnedMatrix._of_codes(B.codes, B.offsets, B.missing, None, None, columns=B.columns)
    for other in (B, B.with_weights("uniform"), B[::2], B[[5, 1]], B.at([3, 3]), pickle.loads(pickle.dumps(B)), made):
        assert other.columns.dtype == np.int64
        np.testing.assert_array_equal(other.columns, [[4, -1], [0, -1], [0, 4]])


def test_grids_are_those_of_pairs_of_features_and_are_kept():
    """The cell of a row follows from its codes; a row without a bin on one side has no cell."""
    codes = np.array([[0, 1, 2, 3, 1, 4], [1, 0, 2, 1, 3, 0], [0, 1, 0, 1, 1, 0]])
    B = BinnedMatrix(codes, offsets=[0, 4, 7, 9], missing=[False, True, False], columns=[[5], [2], [0]])
    C = with_pairs(B, [(0, 1), (2, 0)], categories=[2])
    np.testing.assert_array_equal(C.grids, [[0] * 6] * 3 + [[4, 2, 0, 1, 0, 0], [2, 4, 0, 0, 1, 0]])
    assert (C.columns_of(0), C.columns_of(3), C.columns_of(4)) == ((5,), (5, 2), (0, 5))
    np.testing.assert_array_equal(C.codes[:3], codes)
    np.testing.assert_array_equal(C.codes[3], [1, 3, 8, 10, 12, 12])
    np.testing.assert_array_equal(C.codes[4], [0, 5, 2, 7, 5, 8])
    for other in (C.with_weights("uniform"), C[::2], C.at([3, 3]), pickle.loads(pickle.dumps(C))):
        np.testing.assert_array_equal(other.grids, C.grids)
    assert with_pairs(B, [(0, 1)], max_bins=3).grids[3].tolist() == [3, 2, 0, 1, 0, 0]
    with pytest.raises(ValueError, match=r"pairs holds \(0, 0\); a pair is of two features"):
        with_pairs(B, [(0, 0)])
    with pytest.raises(ValueError, match=r"pairs holds \(3, 1\); a pair is of two features that look at one column"):
        with_pairs(C, [(3, 1)])


def test_columns_of_a_feature_and_back():
    B = random_matrix(n_features=4, columns=[[4, -1], [0, -1], [0, 4], [4, 0]])
    assert [B.columns_of(j) for j in range(4)] == [(4,), (0,), (0, 4), (4, 0)]
    assert [B.feature_of(B.columns_of(j)) for j in range(4)] == [0, 1, 2, 3]
    for columns in ((1,), (0, 1), (0, 4, 5), ()):
        with pytest.raises(ValueError, match=re.escape(f"columns is {columns}; one feature must look at just these")):
            B.feature_of(columns)
    twice = random_matrix(n_features=2, columns=[[4], [4]])
    with pytest.raises(ValueError, match="and 2 do"):
        twice.feature_of((4,))


def test_read_only_memmap(tmp_path):
    expected = random_matrix()
    expected.codes.tofile(tmp_path / "codes")
    B = BinnedMatrix(np.memmap(tmp_path / "codes", np.uint8, "r", shape=expected.codes.shape), expected.offsets)
    values = np.arange(1000.0)
    assert_same_bits(B.rmatvec(values), expected.rmatvec(values))


def test_pickle():
    B = random_matrix(sample_weight=np.arange(1000.0)).with_weights("uniform")
    again = pickle.loads(pickle.dumps(B))
    np.testing.assert_array_equal(again.codes, B.codes)
    assert_same_bits(again.with_weights("counts").weights, B.with_weights("counts").weights)


def test_wide_table_is_made_without_a_call_per_feature():
    """Python calls and objects are counted, not seconds: they must not grow with the number of features."""

    def calls(n_features):
        codes, offsets = np.zeros((n_features, 2), dtype=np.uint8), np.arange(n_features + 1)
        counted = 0

        def count(frame, event, arg):
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            BinnedMatrix(codes, offsets)
        finally:
            sys.setprofile(None)
        return counted

    calls(1)
    assert calls(1000) == calls(10)


def test_scipy_is_imported_only_to_make_a_csr_matrix():
    lines = "import sys, rbr.data.design; assert 'scipy.sparse' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", lines], env={"PYTHONPATH": ":".join(filter(None, sys.path))})
    assert run.returncode == 0


def test_repr():
    B = random_matrix(n_features=2, n_rows=3, n_bins=4, dtype=np.uint16)
    assert repr(B) == "BinnedMatrix(3 rows, 2 features, 8 bins, uint16 codes, counts weights)"


# ---------------------------------------------------------------- errors

CODES = np.array([[0, 1, 2], [1, 0, 1]])
OFFSETS = [0, 3, 5]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"codes": [0, 1]}, ValueError, "codes has shape (2,); it must have two axes, (n_features, n_rows)"),
        ({"codes": CODES[:1]}, ValueError, "codes has 1 rows, one per feature, but offsets has length 3"),
        ({"codes": CODES * 1.0}, TypeError, "codes has dtype float64; it must hold integers"),
        ({"codes": CODES > 0}, TypeError, "codes has dtype bool; it must hold integers"),
        ({"codes": [[0, 1, 2], [1, 3, 1]]}, ValueError, "codes of feature 1 hold 3; it has 2 bins"),
        ({"codes": [[0, 1, -1], [1, 1, 1]]}, ValueError, "codes of feature 0 hold -1; it has 3 bins"),
        (
            {"codes": np.array([[4], [0]], dtype=np.uint8)},
            ValueError,
            "codes of feature 0 hold 4; it has 3 bins, so its codes must lie between 0 and 2, or be 3",
        ),
        (
            {"codes": [[0], [65536]], "offsets": [0, 1, 70_000]},
            ValueError,
            "codes of feature 1 hold 65536; codes must be at most 65535",
        ),
        ({"offsets": [0, 3]}, ValueError, "offsets has length 2"),
        ({"offsets": [1, 3, 5]}, ValueError, "offsets must start at 0"),
        ({"offsets": [0, 3, 3]}, ValueError, "offsets must start at 0 and increase by at least 1"),
        ({"offsets": [0.0, 3.0, 5.0]}, ValueError, "offsets has shape (3,) and dtype float64"),
        (
            {"missing": [True]},
            ValueError,
            "missing has shape (1,) and dtype bool; it must hold one bool for each",
        ),
        ({"missing": [0, 1]}, ValueError, "missing has shape (2,) and dtype int64"),
        ({"positions": [1.0]}, ValueError, "positions has shape (1,); it must be a vector of length 5"),
        (
            {"positions": [0.0, np.nan, 1.0, 2.0, 3.0]},
            ValueError,
            "positions[1] is nan; all of positions must be",
        ),
        (
            {"columns": [0, 1]},
            ValueError,
            "columns has shape (2,) and dtype int64; it must hold a row of integers for each of the 2 features",
        ),
        ({"columns": [[0], [1], [2]]}, ValueError, "columns has shape (3, 1)"),
        ({"columns": np.empty((2, 0), dtype=int)}, ValueError, "columns has shape (2, 0)"),
        ({"columns": [[0.0], [1.0]]}, ValueError, "columns has shape (2, 1) and dtype float64"),
        ({"columns": [[False], [True]]}, ValueError, "columns has shape (2, 1) and dtype bool"),
        (
            {"columns": [[0], [-1]]},
            ValueError,
            "columns of feature 1 are [-1]; they must be one or more indices of at least 0, and after these nothing",
        ),
        ({"columns": [[0, -1], [-1, 1]]}, ValueError, "columns of feature 1 are [-1, 1]; they must be one or more"),
        ({"columns": [[0, -1, 1], [1, 0, -1]]}, ValueError, "columns of feature 0 are [0, -1, 1]; they must be one"),
        ({"columns": [[0, 1], [1, -2]]}, ValueError, "columns of feature 1 are [1, -2]; they must be one or more"),
        ({"columns": [[0, -1, -1], [1, 2, 1]]}, ValueError, "columns of feature 1 are [1, 2, 1]; they must differ"),
        (
            {"sample_weight": [1.0, 2.0]},
            ValueError,
            "sample_weight has shape (2,); it must be a vector of length 3",
        ),
        (
            {"sample_weight": [1.0, np.nan, 1.0]},
            ValueError,
            "sample_weight[1] is nan; all of sample_weight must be",
        ),
        (
            {"sample_weight": [1.0, 1.0, np.inf]},
            ValueError,
            "sample_weight[2] is inf; all of sample_weight must be",
        ),
        (
            {"sample_weight": [1.0, -0.5, 1.0]},
            ValueError,
            "sample_weight[1] is -0.5; all of sample_weight must be",
        ),
    ],
)
def test_errors_of_the_constructor(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        BinnedMatrix(**{"codes": CODES, "offsets": OFFSETS, **arguments})


def test_position_of_a_missing_bin_may_be_nan():
    B = BinnedMatrix(CODES, OFFSETS, missing=[True, False], positions=[0.0, 1.0, np.nan, 2.0, 3.0])
    assert np.isnan(B.positions[2])
    with pytest.raises(ValueError, match=re.escape("positions[4] is nan")):
        BinnedMatrix(CODES, OFFSETS, missing=[True, False], positions=[0.0, 1.0, np.nan, 2.0, np.nan])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda B: B.matvec([1.0]), ValueError, "f has shape (1,); it must be (5,) or (5, n_classes)"),
        (lambda B: B.matvec(np.ones((5, 1, 1))), ValueError, "f has shape (5, 1, 1)"),
        (
            lambda B: B.rmatvec(np.ones(2)),
            ValueError,
            "values has shape (2,); it must be (3,) or (3, n_classes)",
        ),
        (lambda B: B.rmatvec(1.0), ValueError, "values has shape ()"),
        (lambda B: B.gram(row_weights=[1.0]), ValueError, "row_weights has shape (1,)"),
        (
            lambda B: B.matvec(np.ones(5), [2]),
            ValueError,
            "features holds 2; it must hold indices from 0 to 1",
        ),
        (
            lambda B: B.rmatvec(np.ones(3), [-1]),
            ValueError,
            "features holds -1; it must hold indices from 0 to 1",
        ),
        (lambda B: B.gram([0.5]), ValueError, "features has shape (1,) and dtype float64"),
        (lambda B: B.gram([True, False]), ValueError, "features has shape (2,) and dtype bool"),
        (lambda B: B.matvec(np.ones(5), 1), ValueError, "features has shape () and dtype int64"),
        (lambda B: B.matvec(np.ones(5), n_threads=0), ValueError, "n_threads is 0; it must be at least 1"),
        (
            lambda B: B.with_weights("count"),
            ValueError,
            "kind is 'count'; it must be one of 'counts', 'uniform'",
        ),
        (lambda B: B.with_weights("counts", [1.0, -1.0, 1.0]), ValueError, "sample_weight[1] is -1.0"),
        (lambda B: B[1], IndexError, "rows has shape () and dtype int64; it must be a slice"),
        (lambda B: B[[0.5]], IndexError, "rows has shape (1,) and dtype float64"),
        (lambda B: B[[0, -4]], IndexError, "rows holds -4; it must hold indices of the 3 rows"),
        (lambda B: B[[3]], IndexError, "rows holds 3; it must hold indices of the 3 rows"),
        (lambda B: B[np.array([True])], IndexError, "rows is a mask of length 1; it must be as long"),
    ],
)
def test_errors_of_the_methods(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call(BinnedMatrix(CODES, OFFSETS))


def test_long_work_comes_up_for_air(monkeypatch):
    """With at most 10 entries in a call the products are the same, and no call is longer."""
    B = random_matrix(n_features=5, n_rows=40)
    f, values = np.arange(B.n_coef, dtype=float), np.arange(40.0)
    whole = _products(B, f, values)
    monkeypatch.setattr(design, "MAX_ENTRIES_PER_CALL", 10)
    for n_threads in (1, 2, 7):
        lengths = []

        def spy(kernel, n_items, n_threads, *args, per_call, lengths=lengths):
            def counted(*args):
                lengths.append(args[-1] - args[-2])
                kernel(*args)

            over_ranges(counted, n_items, n_threads, *args, per_call=per_call)

        monkeypatch.setattr(design, "over_ranges", spy)
        assert_same_bits(B.matvec(f, n_threads=n_threads), whole[0])
        assert len(lengths) > 1 and max(lengths) <= 2 and sum(lengths) == 40


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_codes_may_be_some_columns_of_more_rows(dtype, shape, backend):
    rng = np.random.default_rng(0)
    codes, offsets = rng.integers(0, 9, (6, 500)).astype(dtype), 9 * np.arange(7)
    f, values = np.asfortranarray(rng.normal(size=(54, *shape))), np.asfortranarray(rng.normal(size=(201, *shape)))
    nothing = np.zeros(6, dtype=bool), None, np.arange(6)[:, None], "counts", np.zeros(54)
    there, copied = (
        BinnedMatrix._from_valid(c, offsets, *nothing) for c in (codes[:, 99:300], codes[:, 99:300].copy())
    )
    assert not there.codes.flags.c_contiguous
    assert_same_bits(there.matvec(f), copied.matvec(f))
    assert_same_bits(there.rmatvec(values), copied.rmatvec(values))
