"""Categories whose type changes between training and later are found by what they say, or the column is named."""

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

from rbr import Binner
from rbr.data.levels import UNSEEN, Categories


def positions(categories, levels):
    return Categories(categories).positions(levels, "column 'c'")


@pytest.mark.parametrize(
    ("categories", "levels"),
    [
        (("1", "2"), [1, 2]),
        (("1", "2"), [1.0, 2.0]),
        (("1", "2"), [np.int8(1), np.float32(2)]),
        (("1", "2"), [Decimal("1"), Decimal("2.0")]),
        (("1.0", "2.0"), [1, 2]),
        (("01", "02"), [1, 2]),
        ((1, 2), ["1", "2"]),
        ((1, 2), ["1.0", "02"]),
        ((1, 2), [1.0, np.int64(2)]),
        ((1.5, 2.5), ["1.5", "2.50"]),
        ((False, True), ["False", "true"]),
        ((False, True), ["0", 1]),
        (("False", "True"), [False, np.True_]),
        (("0", "1"), [False, True]),
        (("2020-01-01", "2020-01-02"), [*pd.to_datetime(["2020-01-01", "2020-01-02"]).date]),
        ((9007199254740992, 9007199254740993), ["9007199254740992", "9007199254740993"]),
    ],
)
def test_a_level_of_another_type_is_the_category_that_says_the_same(categories, levels):
    assert positions(categories, levels) == [0, 1]


def test_text_is_compared_with_text_by_its_letters():
    assert positions(("1", "2"), ["01", "2.0", " 1", "2"]) == [UNSEEN, UNSEEN, UNSEEN, 1]


def test_what_says_nothing_that_training_knew_is_unseen():
    assert positions(("1", "north"), [3, "south", 1.5, np.inf, ("a",)]) == [UNSEEN] * 5


def test_the_category_that_is_written_the_same_comes_first():
    assert positions(("1", "1.0", "01"), [1, 1.0]) == [0, 1]
    assert positions(("1", "true"), [1]) == [0]


@pytest.mark.parametrize(
    ("categories", "level"), [(("01", "1.0"), 1), (("1", "true"), True), (("yes", "1", "+1"), 1.0)]
)
def test_an_ambiguous_level_names_its_column(categories, level):
    with pytest.raises(ValueError, match=r"column 'c' holds .* which could be any of the categories '.*; convert the"):
        positions(categories, [level])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_a_binner_finds_them_too(frame):
    binner = Binner().fit(frame({"c": ["1", "2", "3"]}))
    np.testing.assert_array_equal(binner.transform(frame({"c": [3, 1, 7]})).codes, [[2, 0, 3]])
