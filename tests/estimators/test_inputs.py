"""Inputs of the estimators: every kind of table, categories, missing values, and columns by name."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

from rbr import RBRClassifier, RBRRegressor
from rbr.data.tables import PandasTable, PolarsTable

N = 300
# Strict enough that noise is never selected, so that the tests know what is.
STRICT = {"jump_cost": 3.0, "n_bags": 0, "prior_rows": 0.0}
GROUPS = np.array(["north", "south", "east", "west"])


@pytest.fixture(scope="module")
def numbers():
    """Three columns; y depends on the first two."""
    rng = np.random.default_rng(0)
    X = rng.integers(-20, 20, size=(N, 3)).astype(np.float64)
    return X, np.where(X[:, 0] > 3, 2.0, -1.0) + 0.1 * X[:, 1] + 0.1 * rng.normal(size=N)


@pytest.fixture(scope="module")
def groups():
    """A column of text on which y depends, and a number on which it does not."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 4, N)
    y = np.array([0.0, 3.0, 0.0, 1.0])[codes] + 0.1 * rng.normal(size=N)
    return GROUPS[codes], rng.normal(size=N), y


def assert_same_model(one, other):
    assert one.intercept == other.intercept
    assert [term.columns for term in one.terms] == [term.columns for term in other.terms]
    for a, b in zip(one.terms, other.terms, strict=True):
        np.testing.assert_array_equal(a.values, b.values)
        np.testing.assert_array_equal(a.edges, b.edges)


# ---------------------------------------------------------------- kinds of tables


@pytest.mark.parametrize(
    "convert",
    [
        lambda X: X.astype(np.float32),
        lambda X: X.astype(np.float16),
        lambda X: X.astype(np.int8),
        lambda X: X.astype(np.int64),
        lambda X: X.astype(object),
        lambda X: X.tolist(),
        lambda X: X.astype(str),
        lambda X: np.asfortranarray(X),
        lambda X: np.ma.array(X, mask=False),
        lambda X: sparse.csr_array(X),
        lambda X: sparse.csc_matrix(X),
        lambda X: sparse.coo_array(X),
        lambda X: pd.DataFrame(X),
        lambda X: pd.DataFrame(X).astype("Int16"),
        lambda X: pd.DataFrame(X).astype("Float64"),
        lambda X: pd.DataFrame(X).astype(pd.SparseDtype(float)),
        lambda X: pl.DataFrame(X),
        lambda X: pl.DataFrame(X).cast(pl.Int32),
    ],
)
def test_every_kind_of_table_gives_the_same_model(convert, numbers):
    X, y = numbers
    plain = RBRRegressor(**STRICT).fit(X, y)
    assert plain.selected_features_.tolist() == [0, 1]
    other = RBRRegressor(**STRICT).fit(convert(X), y)
    assert_same_model(plain.model_, other.model_)
    np.testing.assert_allclose(other.predict(convert(X)), plain.predict(X), atol=1e-12)
    np.testing.assert_array_equal(other.explain(convert(X)), plain.explain(X))


def test_booleans_are_numbers():
    x = np.tile([True, False], 50)
    y = np.where(x, 1.0, 0.0)
    for X in (x[:, None], pd.DataFrame({"x": x}), pd.DataFrame({"x": x}, dtype="boolean"), pl.DataFrame({"x": x})):
        m = RBRRegressor(**STRICT).fit(X, y)
        assert m.terms_[0].kind == "numeric"
        np.testing.assert_allclose(m.predict(X), y, atol=1e-7)


def test_gaps_of_every_kind_are_one_gap(numbers):
    X, y = numbers
    gap = np.zeros(X.shape, dtype=bool)
    gap[::7, 0] = True
    holed = np.where(gap, np.nan, X)
    y = np.where(gap[:, 0], 5.0, y)
    m = RBRRegressor(**STRICT).fit(holed, y)
    assert m.terms_[0].missing_value > 1
    names = ["a", "b", "c"]
    as_objects = np.where(gap, None, X.astype(object))
    frames = [
        pd.DataFrame(holed, columns=names),
        pd.DataFrame(as_objects, columns=names).astype("Int64"),
        pd.DataFrame(as_objects, columns=names),
        pl.DataFrame({name: as_objects[:, j].tolist() for j, name in enumerate(names)}),
    ]
    for other in [*frames, as_objects, np.ma.array(X, mask=gap), np.ma.array(X.astype(int), mask=gap)]:
        n = RBRRegressor(**STRICT).fit(other, y)
        assert_same_model(m.model_, n.model_)
        np.testing.assert_array_equal(n.predict(other), m.predict(holed))


@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_a_gap_where_training_had_none_adds_nothing(numbers):
    X, y = numbers
    m = RBRRegressor(**STRICT).fit(X, y)
    row = X[:1].copy()
    contributions = m.explain(row)[0]
    row[0, 0] = np.nan
    np.testing.assert_array_equal(m.explain(row)[0], [0.0, contributions[1]])
    assert m.predict(row)[0] == pytest.approx(m.intercept_ + contributions[1])


def test_a_column_of_gaps_alone_and_a_constant_one_are_not_used(numbers):
    X, y = numbers
    m = RBRRegressor(**STRICT).fit(np.column_stack([np.full(N, np.nan), np.ones(N), X]), y)
    assert m.selected_features_.tolist() == [2, 3]


def test_infinities_are_the_ends(numbers):
    X, y = numbers
    m = RBRRegressor(**STRICT).fit(np.where(X == X.max(), np.inf, np.where(X == X.min(), -np.inf, X)), y)
    ends = np.array([[np.inf, -np.inf, 0.0]])
    np.testing.assert_array_equal(m.explain(ends), [[m.terms_[0].pieces[-1].ends[1], m.terms_[1].pieces[0].ends[0]]])


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": np.arange(4.0), "when": pd.date_range("2020-01-01", periods=4)}),
        pd.DataFrame({"a": np.arange(4.0), "when": pd.date_range("2020-01-01", periods=4, tz="UTC")}),
        pd.DataFrame({"a": np.arange(4.0), "when": pd.to_timedelta(np.arange(4), unit="D")}),
        pd.DataFrame({"a": np.arange(4.0), "when": pd.period_range("2020-01", periods=4, freq="M")}),
        pl.DataFrame({"a": np.arange(4.0), "when": pd.date_range("2020-01-01", periods=4).to_numpy()}),
    ],
)
def test_dates_are_refused_by_name(frame):
    with pytest.raises(
        ValueError, match="column 'when' has the dtype .*; dates and durations must be converted to numbers"
    ):
        RBRRegressor(**STRICT).fit(frame, np.arange(4.0))


WHOLE_COLUMNS = {
    "periods": pd.period_range("2020-01-01", periods=4, freq="D"),
    "dates": [datetime.date(2020, 1, 1)] * 4,
    "times": [datetime.time(1)] * 4,
    "datetimes": pd.Series([datetime.datetime(2020, 1, 1)] * 4, dtype=object),
    "lists": [[1, 2]] * 4,
    "dicts": [{"a": 1}] * 4,
    "intervals": pd.interval_range(0, 4),
    "complex": np.ones(4) * 1j,
}


@pytest.mark.parametrize("kind", WHOLE_COLUMNS)
def test_what_is_no_number_is_refused_by_name_unless_it_is_excluded(kind):
    frame = pd.DataFrame({"a": np.tile([0.0, 1.0], 20), "when": [*WHOLE_COLUMNS[kind]] * 10})
    y = frame["a"] * 2
    with pytest.raises((TypeError, ValueError), match="column 'when' "):
        RBRRegressor(**STRICT).fit(frame, y)
    m = RBRRegressor(exclude=["when"], **STRICT).fit(frame, y)
    assert m.selected_features_.tolist() == [0]
    np.testing.assert_allclose(m.predict(frame), y, atol=1e-6)
    m.bootstrap(frame, y, n=2)


@pytest.mark.parametrize("values", [[[1, 2]] * 4, [{"a": 1}] * 4, [datetime.date(2020, 1, 1)] * 4])
def test_polars_columns_that_are_no_numbers_are_refused_by_name(values):
    frame = pl.DataFrame({"a": np.tile([0.0, 1.0], 20), "when": values * 10})
    y = frame["a"].to_numpy() * 2
    with pytest.raises((TypeError, ValueError), match="column 'when' "):
        RBRRegressor(**STRICT).fit(frame, y)
    assert RBRRegressor(exclude=["when"], **STRICT).fit(frame, y).selected_features_.tolist() == [0]


@pytest.mark.parametrize("convert", [np.asarray, pd.DataFrame, sparse.csc_array])
@pytest.mark.parametrize("exclude", [[0], [1], [0, 2], [2, 3]])
def test_excluded_columns_are_not_read(convert, exclude, numbers):
    X, y = numbers
    X = np.column_stack([X, X[:, 0]])
    m = RBRRegressor(exclude=exclude, **STRICT).fit(convert(X), y)
    emptied = X.copy()
    emptied[:, exclude] = np.nan
    assert_same_model(m.model_, RBRRegressor(exclude=exclude, **STRICT).fit(convert(emptied), y).model_)
    others = np.setdiff1d(np.arange(4), exclude)
    alone = RBRRegressor(**STRICT).fit(X[:, others], y)
    assert m.selected_features_.tolist() == others[alone.selected_features_].tolist()


def test_lazy_frames_are_refused(numbers):
    X, y = numbers
    with pytest.raises(ValueError, match="X is a polars LazyFrame; it must be a DataFrame"):
        RBRRegressor(**STRICT).fit(pl.DataFrame(X).lazy(), y)


@pytest.mark.parametrize("table", [PandasTable, PolarsTable])
def test_frames_are_read_a_column_at_a_time(table, numbers, monkeypatch):
    X, y = numbers
    widths = []
    read = table.numbers

    def watched(self, start, stop, rows=None):
        columns = read(self, start, stop, rows)
        widths.append(columns.shape[1])
        return columns

    monkeypatch.setattr(table, "numbers", watched)
    monkeypatch.setattr("rbr.data.tables.ENTRIES_PER_SORT", N)
    wide = np.tile(X, 4)
    frame = pd.DataFrame(wide) if table is PandasTable else pl.DataFrame(wide)
    RBRRegressor(**STRICT).fit(frame, y).predict(frame)
    assert widths and set(widths) == {1}


# ---------------------------------------------------------------- categories


def every_way_to_say_category(text, x):
    """(X, categorical_features) with the text in column 1."""
    frame = pd.DataFrame({"x": x, "where": text})
    array = np.empty((len(x), 2), dtype=object)
    array[:, 0], array[:, 1] = x, text
    codes = np.column_stack([x, np.searchsorted(np.sort(GROUPS), text)])
    yield frame, "from_dtype"
    yield frame.astype({"where": "category"}), "from_dtype"
    yield frame.astype({"where": "string"}), "from_dtype"
    yield frame.astype({"where": object}), "from_dtype"
    yield frame, ["where"]
    yield frame, [1]
    yield frame, [False, True]
    yield pl.DataFrame({"x": x, "where": text.tolist()}), "from_dtype"
    yield (
        pl.DataFrame({"x": x, "where": text.tolist()}).with_columns(pl.col("where").cast(pl.Categorical)),
        "from_dtype",
    )
    enum = pl.Enum(sorted(GROUPS))
    yield pl.DataFrame({"x": x, "where": text.tolist()}).with_columns(pl.col("where").cast(enum)), "from_dtype"
    yield array, [1]
    yield array, np.array([False, True])
    yield codes, [1]
    yield sparse.csc_array(codes), [1]


def test_categories_by_dtype_name_index_and_mask(groups):
    text, x, y = groups
    first = None
    for X, which in every_way_to_say_category(text, x):
        m = RBRRegressor(categorical_features=which, max_segments=3, **STRICT).fit(X, y)
        assert m.selected_features_.tolist() == [1]
        (term,) = m.terms_
        assert term.kind == "category" and len(term.pieces) == 3  # north and east are one group
        first = first or m
        np.testing.assert_array_equal(term.values, first.terms_[0].values)
        np.testing.assert_array_equal(m.predict(X), first.predict(pd.DataFrame({"x": x, "where": text})))
    assert first.terms_[0].categories == ("east", "north", "south", "west")


def test_without_categories_text_is_refused_by_name(groups):
    text, x, y = groups
    frame = pd.DataFrame({"x": x, "where": text})
    with pytest.raises(ValueError, match="column 'where' holds the text .*named in categorical_features"):
        RBRRegressor(categorical_features=None).fit(frame, y)


def test_an_ordered_category_keeps_its_order_and_gets_the_numeric_shape():
    rng = np.random.default_rng(2)
    levels = ["tiny", "small", "medium", "large", "huge"]
    codes = rng.integers(0, 5, N)
    y = np.array([0.0, 0.0, 4.0, 4.0, 0.0])[codes] + 0.1 * rng.normal(size=N)
    ordered = pd.DataFrame({"size": pd.Categorical.from_codes(codes, levels, ordered=True)})
    nominal = pd.DataFrame({"size": pd.Categorical.from_codes(codes, levels)})
    m = RBRRegressor(shape="constant", max_segments=3, n_bags=0).fit(ordered, y)
    assert m.terms_[0].categories == tuple(levels)
    assert [piece.categories for piece in m.terms_[0].pieces] == [("tiny", "small"), ("medium", "large"), ("huge",)]
    # Two pieces of neighbouring levels cannot fit what two groups of arbitrary levels can.
    assert RBRRegressor(shape="constant", max_segments=2, n_bags=0).fit(ordered, y).score(ordered, y) < 0.8
    assert RBRRegressor(shape="constant", max_segments=2, n_bags=0).fit(nominal, y).score(nominal, y) > 0.99
    rising = RBRRegressor(monotonic_cst={"size": 1}, n_bags=0).fit(ordered, y).terms_[0]
    assert (np.diff(rising.values) >= 0).all() and np.ptp(rising.values) > 1
    with pytest.raises(ValueError, match="'size'.* is 'increasing'.* category without an order"):
        RBRRegressor(monotonic_cst={"size": 1}, n_bags=0).fit(nominal, y)


@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_unknown_and_missing_categories(groups):
    text, x, y = groups
    frame = pd.DataFrame({"x": x, "where": text}).astype({"where": object})
    new = pd.DataFrame({"x": [0.0, 0.0], "where": ["moon", None]})
    m = RBRRegressor(**STRICT).fit(frame, y)
    np.testing.assert_array_equal(m.explain(new), [[0.0], [0.0]])
    np.testing.assert_array_equal(m.predict(new), [m.intercept_] * 2)
    frame.loc[::5, "where"] = None
    m = RBRRegressor(**STRICT).fit(frame, np.where(frame["where"].isna(), 9.0, y))
    np.testing.assert_array_equal(m.explain(new), [[0.0], [m.terms_[0].missing_value]])
    assert m.predict(new)[1] == pytest.approx(9.0, abs=0.1)


@pytest.mark.parametrize("n_levels", [256, 300])
@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_more_levels_than_bins_are_all_kept(n_levels):
    rng = np.random.default_rng(3)
    codes = np.concatenate([np.arange(n_levels), rng.integers(0, n_levels, 5 * n_levels)])
    text = np.array([f"level {k:03d}" for k in range(n_levels)])[codes]
    y = np.where(codes % 2, 1.0, -1.0)
    frame = pd.DataFrame({"name": text})
    m = RBRRegressor(max_bins=16, n_bags=0, prior_rows=0).fit(frame, y)
    assert len(m.terms_[0].categories) == n_levels
    np.testing.assert_allclose(m.predict(frame), y)
    assert m.explain(pd.DataFrame({"name": ["level 999"]})).item() == 0.0


# ---------------------------------------------------------------- columns


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_are_checked_by_name(frame, numbers):
    X, y = numbers
    columns = dict(zip("abc", X.T, strict=True))
    m = RBRRegressor(**STRICT).fit(frame(columns), y)
    assert m.feature_names_in_.tolist() == ["a", "b", "c"]
    assert [term.name for term in m.terms_] == ["a", "b"]
    for wrong in ("bac", "abd", "ab", "abcd"):
        table = frame({name: X[:, 0] for name in wrong})
        for method in (m.predict, m.explain):
            with pytest.raises(ValueError, match="feature names"):
                method(table)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        m.predict(X)


def test_the_target_may_come_from_a_frame(numbers):
    X, y = numbers
    m = RBRRegressor(**STRICT).fit(X, y)
    for target in (y.tolist(), pd.Series(y, index=np.arange(N)[::-1]), pl.Series(y), y.astype(object)):
        for table in (X, pd.DataFrame(X)):
            np.testing.assert_array_equal(RBRRegressor(**STRICT).fit(table, target).predict(X), m.predict(X))
    labels = np.where(y > 0, "yes", "no")
    for target in (labels, pd.Series(labels), pd.Series(labels, dtype="category"), pl.Series(labels.tolist())):
        assert RBRClassifier(n_bags=0).fit(pd.DataFrame(X), target).classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame])
@pytest.mark.parametrize("estimator", [RBRRegressor(**STRICT), RBRClassifier(n_bags=0)])
def test_targets_that_cannot_be(make, estimator, numbers):
    X, y = numbers
    y = (y > 0).astype(float)
    with pytest.raises(ValueError, match="y contains NaN"):
        estimator.fit(make(X), np.append(np.nan, y[1:]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        estimator.fit(make(X), y[1:])
    with pytest.raises(ValueError, match="requires y to be passed"):
        estimator.fit(make(X), None)
    with pytest.raises(ValueError, match="0 sample"):
        estimator.fit(make(X)[:0], y[:0])


BAD_WEIGHTS = {
    "text": (["heavy"] * N, "it must be numbers"),
    "a gap": (pd.array([None] + [1.0] * (N - 1), dtype="Float64"), "must be (numbers|finite)"),
    "too short": (np.ones(N - 1), rf"has shape \({N - 1},\); it must be a vector of length {N}"),
    "a column": (np.ones((N, 1)), rf"has shape \({N}, 1\); it must be a vector of length {N}"),
    "NaN": (np.where(np.arange(N) == 2, np.nan, 1.0), r"\[2\] is nan; all of sample_weight must be finite"),
    "negative": (np.where(np.arange(N) == 2, -1.0, 1.0), r"\[2\] is -1.0; all of sample_weight must be at least 0"),
    "negative number": (-1.0, r"\[0\] is -1.0; all of sample_weight must be at least 0"),
    "all zero": (np.zeros(N), "is all zero; at least one row must have a positive weight"),
}


@pytest.mark.parametrize("kind", BAD_WEIGHTS)
def test_bad_weights_are_refused_by_name(kind, numbers):
    weight, message = BAD_WEIGHTS[kind]
    m = RBRRegressor(**STRICT)
    with pytest.raises(ValueError, match=rf"^sample_weight\b.*{message}"):
        m.fit(*numbers, sample_weight=weight)
    with pytest.raises(ValueError, match=rf"^sample_weight\b.*{message}"):
        m.fit(*numbers).bootstrap(*numbers, sample_weight=weight, n=1)


@pytest.mark.parametrize(
    "convert", [list, pd.Series, pl.Series, lambda w: w.astype(np.float32), lambda w: np.repeat(w, 2)[::2]]
)
def test_weights_of_every_kind_give_the_same_model(convert, numbers):
    weight = np.random.default_rng(2).integers(0, 3, N)
    expected = RBRRegressor(**STRICT).fit(*numbers, sample_weight=weight).model_
    assert_same_model(RBRRegressor(**STRICT).fit(*numbers, sample_weight=convert(weight)).model_, expected)


def test_one_weight_for_all_rows(numbers):
    expected = RBRRegressor(**STRICT).fit(*numbers, sample_weight=np.full(N, 2.0)).model_
    assert_same_model(RBRRegressor(**STRICT).fit(*numbers, sample_weight=2).model_, expected)


def test_one_class_is_refused(numbers):
    X, y = numbers
    with pytest.raises(ValueError, match="y has only one class, 'a'"):
        RBRClassifier(n_bags=0).fit(X, ["a"] * N)
