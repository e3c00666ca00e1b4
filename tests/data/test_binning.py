"""The laws of binning on every kind of table, and the error messages for invalid input."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from cases_binning import columns
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import rbr.data.cutting
import rbr.data.tables
from rbr import _fast, reference
from rbr._backend import use_backend
from rbr.data.binning import Binner

NAN = np.nan


def column(values, dtype=np.float64):
    return np.array(values, dtype=dtype)[:, None]


def codes_of(binner, X):
    return binner.transform(X).codes


def counts_of(X, **params):
    """The rows in each bin of a table of one feature."""
    B = Binner(**params).fit_transform(X)
    return np.bincount(B.codes[0], minlength=B.n_coef)


def assert_same_bins(one, other):
    np.testing.assert_array_equal(one.n_bins_, other.n_bins_)
    np.testing.assert_array_equal(one.missing_, other.missing_)
    for own, others in zip(one.edges_, other.edges_, strict=True):
        np.testing.assert_array_equal(own, others)
    assert one.categories_ == other.categories_


# ---- regular binning


@given(st.integers(1, 300), st.integers(2, 40), st.integers(0, 2**32 - 1))
def test_counts_differ_by_at_most_one_without_ties(n, max_bins, seed):
    X = np.random.default_rng(seed).permutation(n).astype(float)[:, None] ** 3
    counts = counts_of(X, max_bins=max_bins)
    assert len(counts) == min(n, max_bins)
    assert counts.max() - counts.min() <= 1


@given(columns(max_rows=80), st.integers(2, 9))
def test_bins_are_ordered_and_equal_values_share_one(values, max_bins):
    for X in values:
        binner = Binner(max_bins=max_bins).fit(X[:, None])
        codes = codes_of(binner, X[:, None])[0].astype(int)
        present = X[~np.isnan(X)].astype(float)
        assert (np.diff(codes[~np.isnan(X)][np.argsort(present)]) >= 0).all()
        for x in present:
            assert len(set(codes[X == x])) == 1
        n_distinct = len(np.unique(present[np.isfinite(present)]))
        assert binner.n_bins_[0] - binner.missing_[0] <= max(1, min(n_distinct, max_bins))
        # Every bin has rows; only in a column without finite values may the single bin be empty.
        if n_distinct:
            assert len(set(codes)) == binner.n_bins_[0]
        edges, positions = binner.edges_[0], binner.positions_[: binner.n_bins_[0] - binner.missing_[0]]
        assert (np.diff(edges) > 0).all() and np.isfinite(edges).all() and np.isfinite(positions).all()
        assert (positions[:-1] <= edges).all() and (edges < positions[1:]).all()


def test_few_values_have_a_bin_each():
    X = column([3, 1, 1, 1, 1, 1, 1, 2, 7])
    binner = Binner(max_bins=4).fit(X)
    np.testing.assert_array_equal(binner.edges_[0], [1.5, 2.5, 5.0])
    np.testing.assert_array_equal(binner.positions_, [1, 2, 3, 7])


def test_a_heavy_value_leaves_the_other_bins_to_the_others():
    X = column(np.concatenate([np.zeros(900), np.arange(1, 101)]))
    counts = counts_of(X, max_bins=11)
    np.testing.assert_array_equal(counts, [900] + [10] * 10)


def test_values_that_are_heavy_only_once_others_are_set_aside():
    # 0 exceeds an equal share of all rows, 1 only one of the remaining rows; the 40 others share the last two bins.
    X = column(np.concatenate([np.zeros(900), np.ones(60), np.arange(2, 42)]))
    np.testing.assert_array_equal(counts_of(X, max_bins=4), [900, 60, 20, 20])


@pytest.mark.parametrize("backend", ["fast", "reference"])
def test_a_value_of_just_its_share_is_not_heavy(backend):
    # Six rows in three bins: the two ones are exactly a share, so they are cut by mid-rank like the other values.
    with use_backend(backend):
        np.testing.assert_array_equal(counts_of(column([0, 1, 1, 2, 3, 4]), max_bins=3), [1, 3, 2])


def test_a_bin_does_not_span_a_heavy_value():
    light = np.concatenate([np.arange(-30, 0), np.arange(1, 11)])
    X = column(np.concatenate([np.zeros(100), light]))
    binner = Binner(max_bins=4).fit(X)
    zero = codes_of(binner, column([0.0]))[0, 0]
    counts = np.bincount(codes_of(binner, X)[0])
    assert counts[zero] == 100
    assert len(counts) == 4


@given(st.lists(st.tuples(st.integers(-4, 30), st.integers(0, 5)), min_size=1, max_size=60), st.integers(2, 9))
def test_integer_weights_are_repeated_rows(pairs, max_bins):
    values, weights = np.array(pairs, dtype=float).T
    if not weights.any():
        weights[0] = 1
    repeated = np.repeat(values, weights.astype(int))[:, None]
    for binning in ("regular", "binomial"):
        params = {"max_bins": max_bins, "binning": binning, "random_state": 3}
        weighted = Binner(**params).fit(values[:, None], weights)
        plain = Binner(**params).fit(repeated)
        assert_same_bins(weighted, plain)
        np.testing.assert_allclose(weighted.positions_, plain.positions_)
    # The scale of the weights does not matter, even where their sum would overflow.
    assert_same_bins(Binner(max_bins).fit(values[:, None], weights * 2.0**1000), Binner(max_bins).fit(repeated))


@given(arrays(np.float64, st.integers(1, 60), elements=st.integers(-50, 50).map(float)), st.integers(2, 9))
def test_bins_do_not_depend_on_scale_or_order(values, max_bins):
    codes = Binner(max_bins).fit_transform(values[:, None]).codes
    for scale in (2.0**-1060, 2.0**900, 3.7):
        np.testing.assert_array_equal(Binner(max_bins).fit_transform(values[:, None] * scale).codes, codes)
    np.testing.assert_array_equal(Binner(max_bins).fit_transform(values[::-1, None]).codes, codes[:, ::-1])


def test_rows_of_weight_zero_do_not_exist():
    X = np.array([[1.0], [2.0], [NAN], [9.0]])
    assert_same_bins(Binner().fit(X, [1, 1, 0, 0]), Binner().fit(X[:2]))


def test_edges_do_not_overflow_or_round_into_the_right_value():
    huge, next_to_one = 1.7e308, np.nextafter(1.0, 2.0)
    np.testing.assert_array_equal(Binner().fit(column([2.0**1023, 1.5 * 2.0**1023])).edges_[0], [1.25 * 2.0**1023])
    np.testing.assert_array_equal(Binner().fit(column([-huge, huge])).edges_[0], [0.0])
    for left, right in [(1.0, next_to_one), (next_to_one, np.nextafter(next_to_one, 2.0)), (0.0, 5e-324)]:
        (edge,) = Binner().fit(column([left, right])).edges_[0]
        assert left <= edge < right


def test_one_row_and_a_constant_column():
    for X in (column([5.0]), column([5.0] * 7)):
        binner = Binner().fit(X)
        assert binner.n_bins_[0] == 1
        np.testing.assert_array_equal(binner.positions_, [5.0])
        np.testing.assert_array_equal(codes_of(binner, column([-9.0, 5.0, 9.0])), [[0, 0, 0]])
        assert binner.bin_labels(0) == ["any number"]


# ---- infinities, missing values, values not seen in training


def test_infinities_go_to_the_end_bins_and_do_not_cut():
    finite = np.arange(10.0)
    X = column(np.concatenate([finite, [np.inf] * 50, [-np.inf] * 20]))
    binner = Binner(max_bins=5).fit(X)
    assert_same_bins(binner, Binner(max_bins=5).fit(finite[:, None]))
    np.testing.assert_array_equal(codes_of(binner, column([-np.inf, -1e9, 1e9, np.inf])), [[0, 0, 4, 4]])


@pytest.mark.parametrize("values", [[np.inf], [-np.inf, np.inf], [NAN, NAN], [NAN, np.inf]])
def test_nothing_finite_is_one_ordered_bin(values):
    for binning in ("regular", "binomial", {0: [1.0]}, {0: []}):
        binner = Binner(binning=binning).fit(column(values))
        n_user_edges = len(binning[0]) if isinstance(binning, dict) else 0
        assert binner.missing_[0] == np.isnan(values).any()
        assert binner.n_bins_[0] == 1 + n_user_edges + binner.missing_[0]
        assert np.isfinite(binner.positions_).all()
        assert len(binner.bin_labels(0)) == binner.n_bins_[0]
        binner.transform(column(values))


def test_missing_values_have_the_last_bin_if_training_had_any():
    X = np.array([[1.0, 1.0], [NAN, 2.0], [3.0, 3.0]])
    binner = Binner().fit(X)
    np.testing.assert_array_equal(binner.missing_, [True, False])
    np.testing.assert_array_equal(binner.n_bins_, [3, 3])
    np.testing.assert_array_equal(codes_of(binner, X), [[0, 2, 1], [0, 1, 2]])
    # A code one past the last bin means no bin, which contributes zero.
    B = binner.transform(np.array([[NAN, NAN]]))
    np.testing.assert_array_equal(B.codes, [[2], [3]])
    np.testing.assert_array_equal(B.matvec(np.ones(6)), [1.0])
    assert binner.bin_labels(0) == ["<= 2", "> 2", "missing"]


def test_codes_are_bytes_up_to_256_bins():
    full = np.arange(256.0)
    assert codes_of(Binner(256).fit(full[:, None]), full[:, None]).dtype == np.uint8
    assert codes_of(Binner(256).fit(full[:, None]), column([NAN])).dtype == np.uint16
    assert codes_of(Binner(256).fit(full[:, None]), column([NAN])).item() == 256
    with_missing = column([*full[:255], NAN])
    B = Binner(255).fit_transform(with_missing)
    assert B.codes.dtype == np.uint8 and B.codes.max() == 255
    B = Binner(256).fit_transform(column([*full, NAN]))
    assert B.codes.dtype == np.uint16 and B.codes.max() == 256
    many = np.arange(70_000.0)[:, None]
    B = Binner(65535).fit_transform(many)
    assert B.codes.dtype == np.uint16 and B.n_coef == 65535
    np.testing.assert_array_equal(np.unique(np.bincount(B.codes[0])), [1, 2])
    names = [f"c{k:03}" for k in range(256)]
    binner = Binner().fit(pd.DataFrame({"a": names}))
    assert codes_of(binner, pd.DataFrame({"a": names})).dtype == np.uint8
    assert codes_of(binner, pd.DataFrame({"a": ["new"]})).item() == 256


# ---- binomial binning and user-given edges


def test_binomial_bin_sizes_are_the_multinomial_draw():
    X = np.random.default_rng(1).permutation(1000.0 * np.arange(500))[:, None]
    counts = counts_of(X, max_bins=7, binning="binomial", random_state=5)
    expected = np.random.default_rng(5).multinomial(500, np.full(7, 1 / 7))
    np.testing.assert_array_equal(counts, expected)
    assert counts.max() - counts.min() > 1


def test_binomial_empty_bins_vanish():
    counts = counts_of(column(np.arange(6.0)), max_bins=50, binning="binomial")
    assert (counts > 0).all() and counts.sum() == 6


def test_binomial_depends_on_random_state_alone():
    X = np.random.default_rng(0).random((200, 3))
    first = Binner(9, "binomial", random_state=1).fit(X)
    assert_same_bins(first, Binner(9, "binomial", random_state=1).fit(X))
    assert_same_bins(first, Binner(9, "binomial", random_state=np.random.default_rng(1)).fit(X))
    assert_same_bins(Binner(9, "binomial").fit(X), Binner(9, "binomial").fit(X))
    legacy = [Binner(9, "binomial", random_state=np.random.RandomState(1)).fit(X) for _ in range(2)]
    assert_same_bins(*legacy)
    assert not np.array_equal(first.edges_[0], Binner(9, "binomial", random_state=2).fit(X).edges_[0])


def test_user_edges_are_kept():
    X = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0], [8.0, 4.0]])
    binner = Binner(max_bins={1: 2}, binning={0: [1.0, 3.0, 5.0], 1: "regular"}).fit(X, [1, 1, 3, 1])
    np.testing.assert_array_equal(binner.edges_[0], [1.0, 3.0, 5.0])
    np.testing.assert_array_equal(binner.edges_[1], [2.5])
    # The position of the empty bin is the middle of its edges; a value equal to an edge belongs to the bin on its left.
    np.testing.assert_array_equal(binner.positions_[:4], [0.5, 2.0, 4.0, 8.0])
    np.testing.assert_array_equal(codes_of(binner, X)[0], [0, 0, 1, 3])
    assert binner.bin_labels(0) == ["<= 1", "(1, 3]", "(3, 5]", "> 5"]


def test_methods_and_limits_by_name_or_index():
    X = pd.DataFrame(np.random.default_rng(0).random((90, 4)), columns=list("abcd"))
    binner = Binner(max_bins={"a": 3, 2: 5}, binning={"b": "binomial", 3: [0.5]}).fit(X)
    np.testing.assert_array_equal(binner.n_bins_[[0, 2, 3]], [3, 5, 2])
    assert binner.n_bins_[1] > 50


# ---- categories


def test_categories_of_frames_keep_their_order():
    X = pd.DataFrame(
        {
            "declared": pd.Categorical(["b", "a", None, "b"], categories=["z", "b", "a"]),
            "ordered": pd.Categorical(["lo", "hi", "hi", "lo"], categories=["lo", "mid", "hi"], ordered=True),
            "text": pd.Series(["y", "x", None, "y"], dtype="string"),
            "object": pd.Series(["q", None, "p", "q"], dtype=object),
            "bool": [True, False, True, True],
        }
    )
    binner = Binner().fit(X)
    assert binner.categories_ == {0: ("b", "a"), 1: ("lo", "hi"), 2: ("x", "y"), 3: ("p", "q")}
    np.testing.assert_array_equal(binner.missing_, [True, False, True, True, False])
    expected = [[0, 1, 2, 0], [0, 1, 1, 0], [1, 0, 2, 1], [1, 2, 0, 1], [1, 0, 1, 1]]
    np.testing.assert_array_equal(codes_of(binner, X), expected)
    assert binner.bin_labels("text") == ["x", "y", "missing"]
    np.testing.assert_array_equal(binner.positions_[:3], [0, 1, 2])


def test_unknown_categories_have_no_bin():
    binner = Binner().fit(pd.DataFrame({"a": ["x", "y"], "b": ["x", None]}))
    B = binner.transform(pd.DataFrame({"a": ["new", None, "y"], "b": ["new", None, "x"]}))
    np.testing.assert_array_equal(B.codes, [[2, 2, 1], [2, 1, 0]])


def test_categories_of_weight_zero_do_not_exist():
    binner = Binner().fit(pd.DataFrame({"a": ["x", "y", None]}), [1, 0, 0])
    assert binner.categories_ == {0: ("x",)} and binner.n_bins_[0] == 1


def test_category_of_missing_values_only():
    X = pd.DataFrame({"a": pd.Series([None, None], dtype="category")})
    binner = Binner().fit(X)
    assert binner.bin_labels("a") == ["no category", "missing"]
    np.testing.assert_array_equal(codes_of(binner, X), [[1, 1]])


def test_polars_categories():
    X = pl.DataFrame(
        {
            "enum": pl.Series(["b", "a", None], dtype=pl.Enum(["b", "z", "a"])),
            "text": ["y", "x", None],
            "cat": pl.Series(["y", "x", None], dtype=pl.Categorical),
        }
    )
    binner = Binner().fit(X)
    assert binner.categories_ == {0: ("b", "a"), 1: ("x", "y"), 2: ("x", "y")}
    np.testing.assert_array_equal(codes_of(binner, X), [[0, 1, 2], [1, 0, 2], [1, 0, 2]])


@pytest.mark.parametrize("named", [[1], [False, True], np.array([1]), (np.int64(1),)])
def test_named_categories_of_an_array(named):
    X = np.array([[1.5, "b"], [2.5, None], [3.5, "a"]], dtype=object)
    binner = Binner(categorical_features=named).fit(X)
    assert binner.categories_ == {1: ("a", "b")}
    np.testing.assert_array_equal(codes_of(binner, X), [[0, 1, 2], [1, 2, 0]])


def test_numbers_can_be_categories():
    X = np.array([[30.0, 1], [10.0, 2], [NAN, 3], [30.0, 4]])
    binner = Binner(categorical_features=[0]).fit(X)
    assert binner.categories_ == {0: (10.0, 30.0)}
    np.testing.assert_array_equal(codes_of(binner, X)[0], [1, 0, 2, 1])
    # Equal numbers of other dtypes and in other kinds of table are the same categories.
    np.testing.assert_array_equal(codes_of(binner, np.array([[30, 1], [11, 1]]))[0], [1, 3])
    for other in (pd.DataFrame(X), pl.DataFrame(X), sp.csc_array(X), X.astype(object)):
        np.testing.assert_array_equal(codes_of(Binner(categorical_features=[0]).fit(other), other)[0], [1, 0, 2, 1])


def test_categories_ignore_max_bins_and_mixed_types_sort_by_type():
    X = pd.DataFrame({"a": pd.Series(["x", 2, 1, "y"], dtype=object)})
    assert Binner(max_bins=2).fit(X).categories_ == {0: (1, 2, "x", "y")}


def test_too_many_categories():
    X = np.arange(65536.0)[:, None]
    with pytest.raises(ValueError, match="column 0 has 65536 categories; a feature must have at most 65535"):
        Binner(categorical_features=[0]).fit(X)
    assert Binner(categorical_features=[0]).fit(X[1:]).n_bins_[0] == 65535


# ---- every kind of table


@pytest.fixture
def numbers():
    rng = np.random.default_rng(7)
    X = np.round(rng.standard_normal((300, 4)) * 20)
    X[rng.random(X.shape) < 0.5] = 0.0
    return X


def test_every_layout_gives_the_same(numbers, tmp_path):
    expected = Binner(12).fit(numbers)
    codes = codes_of(expected, numbers)
    np.save(tmp_path / "X.npy", numbers)
    read_only = numbers.copy()
    read_only.flags.writeable = False
    wide = np.zeros((600, 12))
    wide[::2, ::3] = numbers
    tables = {
        "F": np.asfortranarray(numbers),
        "strided": wide[::2, ::3],
        "read-only": read_only,
        "memmap": np.load(tmp_path / "X.npy", mmap_mode="r"),
        "big endian": numbers.astype(">f8"),
        "list": numbers.tolist(),
        "object": numbers.astype(object),
        "text": numbers.astype(str),
        "decimal": np.array([[decimal.Decimal(x) for x in row] for row in numbers.tolist()]),
        "pandas": pd.DataFrame(numbers),
        "pandas Int64": pd.DataFrame(numbers).astype("Int64"),
        "pandas Float32": pd.DataFrame(numbers).astype("Float32"),
        "pandas object": pd.DataFrame(numbers).astype(object),
        "polars": pl.DataFrame(numbers),
        "polars int": pl.DataFrame(numbers.astype(np.int16)),
        "csr": sp.csr_matrix(numbers),
        "csc": sp.csc_matrix(numbers),
        "coo": sp.coo_array(numbers),
        "sparse int": sp.csr_array(numbers.astype(np.int32)),
    }
    for dtype in (np.float32, np.float16, np.longdouble, np.int8, np.int16, np.int32, np.int64):
        tables[np.dtype(dtype).name] = numbers.astype(dtype)
    for name, X in tables.items():
        before = X.copy() if name in ("F", "csc") else None
        binner = Binner(12).fit(X)
        np.testing.assert_array_equal(codes_of(binner, X), codes, err_msg=name)
        np.testing.assert_array_equal(codes_of(expected, X), codes, err_msg=name)
        assert_same_bins(binner, expected)
        np.testing.assert_allclose(binner.positions_, expected.positions_)
        if before is not None:
            np.testing.assert_array_equal(sp.csc_array(X).toarray(), sp.csc_array(before).toarray())


@pytest.mark.parametrize("weighted", [False, True])
def test_missing_values_of_every_kind(numbers, weighted):
    X = numbers.copy()
    X[::7, 1] = NAN
    X[5, 3] = NAN
    weights = np.random.default_rng(0).integers(0, 4, len(X)) if weighted else None
    expected = Binner(9).fit(X, weights)
    codes = codes_of(expected, X)
    is_missing = np.isnan(X)
    objects = X.astype(object)
    objects[is_missing] = None
    with_na = objects.copy()
    with_na[is_missing] = pd.NA
    stored = sp.csc_matrix(X)
    tables = [
        objects,
        with_na,
        np.ma.MaskedArray(numbers, is_missing),
        np.ma.MaskedArray(numbers.astype(int), is_missing),
        pd.DataFrame(X),
        pd.DataFrame(X).astype("Int64"),
        pd.DataFrame(X).astype("Float64"),
        pd.DataFrame(with_na),
        pl.DataFrame(X),
        pl.DataFrame(X).fill_nan(None),
        pl.DataFrame(X).fill_nan(None).cast(pl.Int32),
        pl.DataFrame(X).cast(pl.Float32).fill_nan(None),
        stored,
        stored.tocsr(),
    ]
    for table in tables:
        binner = Binner(9).fit(table, weights)
        assert_same_bins(binner, expected)
        np.testing.assert_array_equal(codes_of(binner, table), codes)


@given(arrays(np.float64, (30, 2), elements=st.integers(-5, 5).map(float)), st.integers(2, 6))
def test_sparse_zeros_have_the_weight_of_their_rows(X, max_bins):
    weights = np.arange(30) % 4
    for binning in ("regular", "binomial"):
        dense = Binner(max_bins, binning).fit(X, weights)
        sparse = Binner(max_bins, binning).fit(sp.csr_array(X), weights)
        assert_same_bins(dense, sparse)
        np.testing.assert_allclose(dense.positions_, sparse.positions_, atol=1e-12)


def test_booleans_are_numbers():
    truth = np.array([[True], [False], [True]])
    missing = pd.DataFrame({"a": pd.array([True, None, False], dtype="boolean")})
    for X in (truth, pd.DataFrame(truth), pl.DataFrame(truth), sp.csr_array(truth)):
        binner = Binner().fit(X)
        np.testing.assert_array_equal(binner.edges_[0], [0.5])
        np.testing.assert_array_equal(codes_of(binner, X), [[1, 0, 1]])
    np.testing.assert_array_equal(Binner().fit_transform(missing).codes, [[1, 2, 0]])
    np.testing.assert_array_equal(Binner().fit_transform(pl.DataFrame({"a": [True, None, False]})).codes, [[1, 2, 0]])


def test_sparse_duplicates_are_summed_and_the_input_is_left_alone():
    duplicated = sp.csc_matrix((np.array([1.0, 2.0, 5.0]), np.array([0, 0, 2]), np.array([0, 3])), shape=(3, 1))
    binner = Binner().fit(duplicated)
    np.testing.assert_array_equal(binner.edges_[0], [1.5, 4.0])
    assert duplicated.nnz == 3


def test_a_frame_of_two_dtypes_and_a_frame_without_names():
    X = pd.DataFrame({0: np.arange(5, dtype=np.float32), 1: [2**40 + k for k in range(5)]})
    binner = Binner().fit(X)
    assert binner.feature_names_in_ is None
    np.testing.assert_array_equal(codes_of(binner, X), [range(5), range(5)])


@pytest.mark.parametrize("n_jobs", [2, 7, -1])
@pytest.mark.parametrize("layout", ["C", "F"])
def test_threads_do_not_change_a_bit(n_jobs, layout):
    rng = np.random.default_rng(0)
    X = np.asarray(rng.standard_normal((150_000, 8)), order=layout)
    weights = rng.random(len(X))
    one, many = Binner().fit(X, weights), Binner(n_jobs=n_jobs).fit(X, weights)
    assert_same_bins(one, many)
    np.testing.assert_array_equal(one.positions_, many.positions_)
    np.testing.assert_array_equal(codes_of(one, X), codes_of(many, X))


def test_the_reference_backend_gives_the_same(numbers):
    numbers[3, 0] = NAN
    for params in ({"max_bins": 6}, {"max_bins": 6, "binning": "binomial"}):
        fast = Binner(**params).fit(numbers)
        with use_backend("reference"):
            slow = Binner(**params).fit(numbers)
            codes = codes_of(slow, numbers)
        assert_same_bins(fast, slow)
        np.testing.assert_array_equal(codes_of(fast, numbers), codes)


def test_columns_are_read_in_blocks(numbers, monkeypatch):
    expected = Binner(9, "binomial").fit(numbers)
    monkeypatch.setattr(rbr.data.tables, "ENTRIES_PER_BLOCK", 2 * len(numbers))
    assert_same_bins(Binner(9, "binomial").fit(numbers), expected)
    np.testing.assert_array_equal(codes_of(expected, numbers.astype(int)), codes_of(expected, numbers))


# ---- a sample of the rows


@pytest.fixture
def small_sample(monkeypatch):
    monkeypatch.setattr(rbr.data.cutting, "MAX_EXACT_ROWS", 2000)
    monkeypatch.setattr(rbr.data.cutting, "SAMPLE_ROWS", (1000, 1000))


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, pl.DataFrame, sp.csr_matrix])
def test_a_sample_places_the_edges_and_all_rows_tell_what_is_missing(make, small_sample):
    # No sample of a fifth of the rows is likely to hold all six missing values.
    X = np.random.default_rng(0).random((5000, 7))
    rows = [17, 999, 2500, 3333, 4321, 4999]
    X[rows, range(1, 7)] = NAN
    binner = Binner(4).fit(make(X))
    np.testing.assert_array_equal(binner.missing_, [False] + [True] * 6)
    # The standard deviation of a quartile of 1000 rows is at most 0.016.
    np.testing.assert_allclose(binner.edges_[0], [0.25, 0.5, 0.75], atol=0.08)
    assert not np.array_equal(binner.edges_[0], Binner(4).fit(make(X[:2000])).edges_[0])
    assert_same_bins(binner, Binner(4).fit(make(X)))
    # Missing values in rows of weight zero do not count.
    weights = np.ones(5000)
    weights[rows] = 0
    assert not Binner(4).fit(make(X), weights).missing_.any()


def test_a_sample_is_taken_from_the_rows_of_positive_weight(small_sample):
    X = np.random.default_rng(0).random((9000, 1))
    X[:4500] += 5.0
    weights = np.repeat([0.0, 1.0], 4500)
    np.testing.assert_allclose(Binner(2).fit(X, weights).edges_[0], [0.5], atol=0.08)


def test_a_sample_sees_every_category(small_sample):
    X = pd.DataFrame({"a": ["common"] * 5000})
    X.loc[4999, "a"] = "rare"
    assert Binner().fit(X).categories_ == {0: ("common", "rare")}


def test_binomial_sizes_of_a_sample_are_those_of_all_rows(small_sample):
    X = np.arange(5000.0)[:, None]
    counts = counts_of(X, max_bins=4, binning="binomial")
    assert np.abs(counts - 1250).max() < 300


# ---- names and labels


def test_names_are_recorded_and_compared():
    X = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]})
    binner = Binner().fit(X)
    assert binner.feature_names_in_ == ("a", "b", "c")
    np.testing.assert_array_equal(codes_of(binner, X.to_numpy()), codes_of(binner, pl.from_dict(X.to_dict("list"))))
    with pytest.raises(ValueError, match=r"in another order: 'b', 'a'"):
        binner.transform(X[["b", "a", "c"]])
    with pytest.raises(ValueError, match=r"missing 'c'; not seen in fit: 'd'"):
        binner.transform(X.rename(columns={"c": "d"}))
    with pytest.raises(ValueError, match="X has 2 features, but Binner is expecting 3 features"):
        binner.transform(X.to_numpy()[:, :2])


def test_labels_are_short_but_tell_the_edges_apart():
    edges = [
        [23.5, 27.5],
        [0.1, 0.1 + 1e-9],
        [1987.5, 1988.5],
        [1234567.8, 2e6],
        [1e-7, 2e-7],
        [1e300, 1.5e300],
        [0.0],
    ]
    binner = Binner(binning=dict(enumerate(edges))).fit(np.zeros((1, len(edges))))
    assert binner.bin_labels(0) == ["<= 23.5", "(23.5, 27.5]", "> 27.5"]
    assert binner.bin_labels(1) == ["<= 0.1", "(0.1, 0.100000001]", "> 0.100000001"]
    assert binner.bin_labels(2)[1] == "(1987.5, 1988.5]"
    assert binner.bin_labels(3)[1] == "(1230000, 2000000]"
    assert binner.bin_labels(4)[1] == "(1e-07, 2e-07]"
    assert binner.bin_labels(5)[1] == "(1e+300, 1.5e+300]"
    assert binner.bin_labels(6) == ["<= 0", "> 0"]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30, unique=True))
def test_labels_are_distinct(edges):
    binner = Binner(binning={0: np.unique(edges)}).fit(np.zeros((1, 1)))
    assert len(set(binner.bin_labels(0))) == len(np.unique(edges)) + 1


def test_edges_are_a_lazy_sequence():
    binner = Binner().fit(np.array([[1.0, 5.0], [2.0, 5.0]]))
    assert len(binner.edges_) == 2 and [len(own) for own in binner.edges_] == [1, 0]
    assert len(binner.edges_[-1]) == 0 and len(binner.edges_[:1]) == 1
    with pytest.raises(IndexError):
        binner.edges_[2]
    with pytest.raises(ValueError, match="read-only"):
        binner.edges_[0][0] = 7.0


def test_weights_of_the_transformed_rows_are_the_geometry():
    B = Binner().fit_transform(column([1.0, 2.0]), [1.0, 3.0])
    np.testing.assert_array_equal(B.weights, [0.25, 0.75])
    np.testing.assert_array_equal(B.positions, [1.0, 2.0])


# ---- errors

ONE = np.array([[1.0], [2.0], [3.0]])
NAMED = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
PARAMETER_ERRORS = [
    ({"max_bins": 1}, ONE, "max_bins is 1; it must be between 2 and 65535"),
    ({"max_bins": 65536}, ONE, "max_bins is 65536; it must be between 2 and 65535"),
    ({"max_bins": 2.5}, ONE, "max_bins is 2.5; it must be an integer"),
    ({"max_bins": {"a": 1}}, NAMED, "max_bins of column 'a' is 1; it must be between"),
    ({"max_bins": {"z": 4}}, NAMED, "max_bins names the column 'z'; the columns are 'a', 'b'"),
    ({"max_bins": {3: 4}}, ONE, "max_bins names the column 3; indices must be between 0 and 0"),
    ({"max_bins": {"a": 4}}, ONE, "names the column 'a', but the columns of X have no names"),
    ({"max_bins": {1.5: 4}}, ONE, "names the column 1.5; a column must be given by its name or index"),
    ({"max_bins": {"a": 4, 0: 5}}, NAMED, "max_bins names column 'a' twice"),
    (
        {"binning": "quantile"},
        ONE,
        "binning is 'quantile'; it must be one of 'regular', 'binomial', or a dict",
    ),
    ({"binning": [1.0]}, ONE, r"binning is \[1.0\]; it must be one of"),
    (
        {"binning": {0: "even"}},
        ONE,
        "binning of column 0 is 'even'; it must be one of 'regular', 'binomial', or an inc",
    ),
    (
        {"binning": {0: [1.0, 1.0]}},
        ONE,
        "binning of column 0 has the edges 1.0, 1.0 at 0; edges must increase",
    ),
    ({"binning": {0: [1.0, NAN]}}, ONE, "binning of column 0 has the edge nan at 1; edges must be finite"),
    ({"binning": {0: [[1.0]]}}, ONE, r"binning of column 0 has shape \(1, 1\); edges must be a vector"),
    (
        {"binning": {0: ["x"]}},
        ONE,
        r"binning of column 0 is \['x'\]; it must be a name or an increasing array",
    ),
    ({"binning": {"b": [1.0]}}, NAMED, "binning gives edges for column 'b', which is a category"),
    (
        {"categorical_features": "all"},
        ONE,
        "categorical_features is 'all'; it must be 'from_dtype', None, or a list",
    ),
    (
        {"categorical_features": [True, False]},
        ONE,
        "a mask of length 2; it must have one bool for each of the 1 col",
    ),
    ({"categorical_features": ["z"]}, NAMED, "categorical_features names the column 'z'"),
    ({"random_state": -1}, ONE, "random_state is -1; it must be at least 0"),
    ({"n_jobs": 0}, ONE, "n_jobs is 0"),
]


@pytest.mark.parametrize(("params", "X", "message"), PARAMETER_ERRORS)
def test_a_wrong_parameter_is_named(params, X, message):
    binner = Binner(**params)
    with pytest.raises(ValueError, match=message):
        binner.fit(X)


DATES = [datetime.datetime(2020, 1, 1)] * 2
TABLE_ERRORS = [
    (np.zeros((0, 2)), r"0 sample\(s\) \(shape=\(0, 2\)\) while a minimum of 1 is required"),
    (np.zeros((2, 0)), r"0 feature\(s\) \(shape=\(2, 0\)\) while a minimum of 1 is required"),
    (np.zeros(3), "Expected 2D array, got 1D array.*Reshape your data"),
    (np.zeros((2, 2, 2)), "Expected 2D array, got 3D array"),
    (np.array([[1j]]), "Complex data not supported"),
    (sp.csr_array(np.array([[1j]])), "Complex data not supported"),
    (pd.DataFrame({"a": [1j]}), "Complex data not supported: column 'a'"),
    (
        np.array([["1", "x"]]),
        "column 1 holds the text 'x'; it must hold numbers, or be named in categorical_features",
    ),
    (np.array([[1.0, "x"]], dtype=object), "column 1 holds the text 'x'"),
    (
        np.array(DATES, dtype="M8[s]")[:, None],
        "column 0 has the dtype datetime64.*must be converted to numbers first",
    ),
    (pd.DataFrame({"a": DATES}), "column 'a' has the dtype datetime64"),
    (
        pd.DataFrame({"a": DATES}).apply(lambda s: s.dt.tz_localize("UTC")),
        "column 'a' has the dtype datetime64",
    ),
    (pl.DataFrame({"a": DATES}), "column 'a' has the dtype Datetime"),
    (pl.DataFrame({"a": DATES}).lazy(), "LazyFrame; it must be a DataFrame"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column named 'a'"),
    (np.zeros(3, dtype=[("a", float)]).reshape(3, 1), "it must hold numbers"),
]


@pytest.mark.parametrize(("X", "message"), TABLE_ERRORS)
def test_a_wrong_table_is_described(X, message):
    with pytest.raises(ValueError, match=message):
        Binner().fit(X)


def test_what_is_no_number_at_all_is_the_type_error_of_float():
    X = np.array([[{}], [1.0]], dtype=object)
    with pytest.raises(TypeError, match=r"float\(\) argument must be"):
        Binner().fit(X)
    with pytest.raises(TypeError, match="column 0 cannot be a category"):
        Binner(categorical_features=[0]).fit(X)


def test_a_text_column_in_transform_is_named():
    binner = Binner().fit(pd.DataFrame({"age": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="column 'age' holds the text 'old'"):
        binner.transform(pd.DataFrame({"age": ["old"]}))


@pytest.mark.parametrize("method", ["fit", "transform"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, -1, 1], r"sample_weight\[1\] is -1.0"),
        ([1, NAN, 1], r"sample_weight\[1\] is nan"),
        ([1, 1], r"sample_weight has shape \(2,\); it must be a vector of length 3"),
    ],
)
def test_wrong_weights_are_named(method, weights, message):
    binner = Binner().fit(ONE)
    with pytest.raises(ValueError, match=message):
        getattr(binner, method)(ONE, weights)


def test_weights_of_zero_only():
    with pytest.raises(ValueError, match="sample_weight is zero everywhere"):
        Binner().fit(ONE, [0, 0, 0])


def test_transform_before_fit():
    with pytest.raises(ValueError, match="not fitted"):
        Binner().transform(ONE)
    with pytest.raises(ValueError, match="not fitted"):
        Binner().bin_labels(0)


def test_labels_of_an_unknown_feature():
    with pytest.raises(ValueError, match="feature names the column 1"):
        Binner().fit(ONE).bin_labels(1)


def test_the_constructor_keeps_what_it_is_given():
    max_bins = {"a": 1}
    assert Binner(max_bins).max_bins is max_bins


@pytest.mark.parametrize("edges", [[0.0, 5e-324, 1.0], [-1e308, -1e308 + 1e292, 1e308], [0.0, 1e-310]])
def test_numbers_far_above_edges_that_nearly_touch(edges):
    """Enough rows that `encode` uses cells, and cells so wide that a distance plus one cell exceeds 64 bits."""
    values = np.resize([1.7e308, np.inf, -np.inf, 1.0, 0.0, 5e-324, -1.0, 1e300], 600)[:, None]
    args = values, np.array(edges), np.array([0, len(edges)])
    actual, expected = np.zeros((2, 1, 600), dtype=np.uint8)
    _fast.encode(*args, actual, 0, 600)
    reference.kernels.encode(*args, expected, 0, 600)
    np.testing.assert_array_equal(actual, expected)
