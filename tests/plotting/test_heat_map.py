"""Heat maps of pairs: colours, scales, fading, missing values, classes, and room for all of it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import make_term
from pairs import make_axis, make_pair, make_pair_model, model_of, pairs

from rbr.estimators.bootstrap import Bootstrap
from rbr.losses import get_loss
from rbr.model import AdditiveModel, Axis, PairTerm
from rbr.plotting import plot_model
from rbr.plotting.heat_map import FAINTEST, color_limit, readable_scale, sides_of, strengths, with_ends

pyplot = pytest.importorskip("matplotlib.pyplot")
from matplotlib.colors import to_rgb  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures():
    yield
    pyplot.close("all")


AGE, HOURS = Axis(0, "age", [30.0, 45.0], None, False), Axis(1, "hours", [50.0], None, True)
LABELS = np.array([[0, 0, 4], [1, 2, 4], [1, 3, 4]])


def people(values=(0.0, -0.4, 0.2, 0.4, -0.1), counts=None, axes=(AGE, HOURS), labels=LABELS, main=None, **fields):
    counts = np.full(labels.shape, 10.0) if counts is None else np.asarray(counts, dtype=float)
    grid = np.asarray(values)[labels]
    term = PairTerm("age & hours", axes, grid, counts / counts.sum(), counts, labels)
    terms = (term,) if main is None else (main, term)
    return AdditiveModel(terms, 0.0, get_loss("log_loss"), [0, 1], "sold", 2, ("age", "hours"), **fields)


def drawn(axes, gid):
    return [item for item in axes.get_children() if item.get_gid() == gid]


def cells(axes):
    """(left, bottom, width, height, colour) of every cell."""
    (collection,) = drawn(axes, "cells")
    boxes = [path.get_extents() for path in collection.get_paths()]
    return [(b.x0, b.y0, b.width, b.height, tuple(c)) for b, c in zip(boxes, collection.get_facecolor(), strict=True)]


def bar_of(axes):
    (bar,) = [child for child in axes.child_axes if child.get_gid() == "colour bar"]
    return bar


def test_colours_are_centred_at_zero_and_say_the_sign():
    (axes,) = plot_model(people())
    low, high = bar_of(axes).get_ylim()
    assert (low, high) == pytest.approx((-0.4, 0.4))
    found = cells(axes)
    assert len(found) == 9
    # Cells go from the left to the right, then up: hours <= 50, hours > 50, missing hours.
    red, blue = (np.array([c[4][0] for c in found]), np.array([c[4][2] for c in found]))
    expected = np.array([0.0, -0.4, -0.4, 0.0, 0.2, 0.4, -0.1, -0.1, -0.1])
    assert (red[expected > 0] > blue[expected > 0]).all() and (red[expected < 0] < blue[expected < 0]).all()
    assert found[1][4][:3] == pytest.approx(to_rgb("#00798c"), abs=0.01)
    assert found[5][4][:3] == pytest.approx(to_rgb("#d1495b"), abs=0.01)
    assert found[0][4][:3] == pytest.approx(to_rgb("#e6e9ec"), abs=0.01)
    assert bar_of(axes).get_ylabel() == "adds to log-odds of sold = 1"
    assert axes.get_title(loc="left") == "age & hours"


def test_axes_are_in_the_units_of_the_columns():
    (axes,) = plot_model(people())
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("age", "hours")
    assert [t.get_text() for t in axes.get_xticklabels()] == ["30", "45"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["50", "missing"]
    lefts = sorted({round(c[0], 9) for c in cells(axes)})
    # Ticks are where cells begin.
    assert lefts[1:] == pytest.approx(axes.get_xticks().tolist())
    assert axes.get_yticks()[-1] > 1 and max(c[1] + c[3] for c in cells(axes)) == pytest.approx(axes.get_ylim()[1])


def test_a_main_of_the_same_column_gives_the_ends():
    rng = np.random.default_rng(0)
    main = replace(
        make_term("age", 0, rng, n_bins=4, missing=False), edges=[20.0, 40.0, 60.0], positions=[18, 30, 50, 70]
    )
    model = people(main=main)
    (side, _) = sides_of(model.terms[1], {}, {0: (16.0, 80.0)})
    np.testing.assert_allclose(side.starts, [0.0, (30 - 16) / 64, (45 - 16) / 64])
    axes = plot_model(model, "age & hours")[0]
    np.testing.assert_allclose(sorted({c[0] for c in cells(axes)}), side.starts, atol=1e-9)


def test_rare_cells_fade_and_say_so():
    counts = [[40, 0, 10], [40, 40, 10], [40, 40, 10]]
    (axes,) = plot_model(people((0.4, 0.4, 0.4, 0.4, 0.4), counts, labels=np.arange(9).reshape(3, 3) % 5))
    colours = np.array([c[4][:3] for c in cells(axes)])
    faint = colours[3]  # young, many hours
    assert faint.min() > 0.8 and (colours[[0, 1, 4]] < faint).any(axis=1).all()
    (note,) = [text for text in axes.figure.texts if text.get_gid() == "footnotes"]
    assert "fainter cells have fewer rows" in note.get_text()
    assert strengths(np.array([[0.0, 1.0]]), np.ones((1, 2))).tolist() == [[FAINTEST, 1.0]]


def test_rectangles_have_borders_and_values():
    (axes,) = plot_model(people())
    assert [text.get_text() for text in drawn(axes, "value")] == ["0", "-0.4", "+0.2", "+0.4", "-0.1"]
    (borders,) = drawn(axes, "borders")
    # None between the two cells of a rectangle, nor across the gap before missing values.
    assert len(borders.get_segments()) == 5
    sideways = (Axis(0, "age", [30.0], None, True), Axis(1, "hours", [50.0], None, False))
    (axes,) = plot_model(people(axes=sideways, labels=np.array([[0, 1], [0, 2], [3, 3]])))
    (borders,) = drawn(axes, "borders")
    assert len(borders.get_segments()) == 3
    surface = people(np.linspace(-1, 1, 9), labels=np.arange(9).reshape(3, 3))
    (axes,) = plot_model(surface)
    assert not drawn(axes, "borders") and not drawn(axes, "value")


def test_categories_are_on_the_vertical_axis_with_their_names():
    kind = Axis(0, "kind", [], (("a", "b"), ("a long name of a level", "c")), False)
    (axes,) = plot_model(people(axes=(kind, HOURS), labels=np.array([[0, 1, 4], [2, 3, 4]])))
    assert axes.get_ylabel() == "kind" and axes.get_xlabel() == "hours"
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a, b", "a long nam… level +1"]
    low, high = axes.get_ylim()
    assert low > high  # the first group is at the top
    # The value of kind a or b with few hours is 0, the grey one.
    first = min(cells(axes), key=lambda c: (c[1], c[0]))
    assert first[4][:3] == pytest.approx(to_rgb("#e6e9ec"), abs=0.01)


def test_classes_have_a_map_each():
    rng = np.random.default_rng(1)
    term = make_pair((AGE, HOURS), rng, n_outputs=3)
    model = AdditiveModel((term,), np.zeros(3), get_loss("multinomial"), ["x", "y", "z"], None, 2, None)
    (axes,) = plot_model(model)
    maps = [child for child in axes.child_axes if child.get_gid() != "colour bar"]
    assert [m.get_title() for m in maps] == ["x", "y", "z"]
    for c, small in enumerate(maps):
        brightest = max(cells(small), key=lambda cell: cell[4][0] - cell[4][2])
        i, j = np.unravel_index(np.argmax(term.values[:, :, c]), term.shape)
        side = sides_of(term, {}, {})
        assert brightest[:2] == pytest.approx((side[0].starts[i], side[1].starts[j]))


def test_equal_counts_of_skewed_columns_stay_readable():
    skewed = np.quantile(np.random.default_rng(0).lognormal(0, 3, 10_000), np.arange(1, 33) / 33)
    assert readable_scale(with_ends(skewed, None), "auto").name == "log"
    assert readable_scale(with_ends(np.arange(20.0), None), "auto").name == "linear"
    assert readable_scale(with_ends(skewed, None), "linear").name == "linear"
    side = sides_of(people(axes=(Axis(0, "a", skewed[[0, 10]], None, False), HOURS)).terms[0], {"a": "rank"}, {})[0]
    np.testing.assert_allclose(side.starts, [0, 1 / 3, 2 / 3])


def test_ends_keep_the_sign_of_a_column():
    assert with_ends(np.array([1.0, 50.0]), (2.0, 1e5))[0] == 0.5
    assert with_ends(np.array([1.0, 50.0]), None)[0] == 0.5
    assert with_ends(np.array([1.0, 50.0]), (-3.0, 60.0))[0] == -3.0
    assert with_ends(np.array([1.0, 50.0]), (0.0, 60.0)).tolist() == [0.0, 1.0, 50.0, 60.0]


def test_one_far_cell_does_not_take_all_the_colours():
    counts = np.full((3, 3), 100.0)
    counts[0, 1] = 1
    labels = np.arange(9).reshape(3, 3)
    values = np.full(9, 0.1)
    values[1] = -9.0
    model = people(values, counts, labels=labels)
    assert color_limit(model.terms[0]) == 0.1
    (axes,) = plot_model(model)
    assert bar_of(axes).get_ylim() == pytest.approx((-0.1, 0.1))
    (axes,) = plot_model(model, y_limits=(-2.0, 1.0))
    assert bar_of(axes).get_ylim() == pytest.approx((-2.0, 2.0))
    assert color_limit(people(np.zeros(5)).terms[0]) == 1.0


@settings(deadline=None, max_examples=25)
@given(pairs(), st.booleans())
def test_any_pair_can_be_drawn_and_stays_on_its_figure(drawn_pair, is_alone):
    term, rng = drawn_pair
    model = model_of(term, rng)
    model = replace(model, terms=(term,)) if is_alone else model
    panels = plot_model(model)
    figure = panels[0].figure
    figure.canvas.draw()
    boxes = [panel.get_tightbbox() for panel in panels]
    width, height = figure.canvas.get_width_height()
    for box in boxes:
        assert box.x0 >= -2 and box.y0 >= -2 and box.x1 <= width + 2 and box.y1 <= height + 2
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            overlap = min(one.x1, other.x1) - max(one.x0, other.x0), min(one.y1, other.y1) - max(one.y0, other.y0)
            assert min(overlap) < 3
    pyplot.close("all")


def test_given_axes_and_choices_of_terms():
    model = make_pair_model(4)
    _, grid = pyplot.subplots(1, 2)
    name = model.terms[5].name
    panels = plot_model(model, [name, "b"], axes=grid)
    assert panels[0] is grid[0] and len(drawn(panels[0], "cells")) == 1
    assert len(plot_model(model)) == 8
    with pytest.raises(ValueError, match="x_scale of 'b' is 'cubic'"):
        plot_model(model, x_scale={"b": "cubic"})


def test_cells_whose_band_includes_zero_are_hatched():
    rng = np.random.default_rng(0)
    main = make_term("age", 0, rng, n_bins=4, missing=False)
    model = people(main=main)
    pair = model.terms[1]
    refits = pair.all_values + np.linspace(-0.15, 0.15, 9)[:, None, None]
    own = (main, pair), (rng.normal(size=(9, 4, 1)), refits), np.ones(2), ("age", "hours"), np.ones(2)
    bands = Bootstrap(*own)
    panels = plot_model(model, ["age", "age & hours"], bands=bands)
    assert drawn(panels[0], "band") and not drawn(panels[1], "band") and not drawn(panels[0], "unsure")
    assert "of refits" in panels[0].get_title(loc="right") and "refits" not in panels[1].get_title(loc="right")
    (unsure,) = drawn(panels[1], "unsure")
    # Of the five rectangles those at 0.0 and -0.1 may have the other sign: two cells, and three.
    boxes = {path.get_extents().bounds for path in unsure.get_paths()}
    (drawn_cells,) = drawn(panels[1], "cells")
    is_small = (np.abs(pair.values) < 0.14).T.ravel()
    assert boxes == {
        p.get_extents().bounds for p, small in zip(drawn_cells.get_paths(), is_small, strict=True) if small
    }
    assert len(boxes) == is_small.sum() == 5
    notes = " ".join(text.get_text() for text in panels[0].figure.texts)
    assert "of hatched ones the refits do not agree on the sign" in notes
    (alone,) = plot_model(model, ["age & hours"])
    assert not drawn(alone, "unsure")
    with pytest.raises(ValueError, match="the terms of the bootstrap are 'age'"):
        plot_model(model, ["age & hours"], bands=Bootstrap(*((part[0],) for part in own[:2]), *own[2:4], np.ones(1)))


def test_bands_of_pairs_of_classes_and_their_frame():
    rng = np.random.default_rng(0)
    axes = AGE, Axis(1, "kind", [], (("a",), ("b", "c")), True)
    pair = make_pair(axes, rng, n_outputs=3)
    refits = pair.all_values + np.linspace(-1.0, 1.0, 5)[:, None, None] * np.array([0.0, 10.0, 0.0])
    bands = Bootstrap((pair,), (refits,), np.ones(2), ("age", "kind"), np.ones(1))
    model = AdditiveModel((pair,), np.zeros(3), get_loss("multinomial"), [0, 1, 2], "y", 2, ("age", "kind"))
    (axes,) = plot_model(model, bands=bands)
    assert [len(drawn(small, "unsure")) for small in axes.child_axes if drawn(small, "cells")] == [0, 1, 0]
    frame = bands.to_frame("age & kind", level=0.5)
    assert list(frame) == ["age", "kind", "class", "value", "low", "high", "share"] and len(frame) == 27
    cell = frame[(frame["age"] == "(30, 45]") & (frame["kind"] == "b or c") & (frame["class"] == 1)]
    value = pair.values[1, 1, 1]
    assert cell[["value", "low", "high", "share"]].to_numpy()[0] == pytest.approx(
        [value, value - 5, value + 5, pair.weights[1, 1]]
    )
    assert set(frame["kind"]) == {"a", "b or c", "missing"}


def test_the_frame_of_a_band_of_one_column():
    rng = np.random.default_rng(0)
    term = make_term("age", 0, rng, n_bins=3, missing=True)
    refits = term.all_values + rng.normal(size=(7, 4, 1))
    bands = Bootstrap((term,), (refits,), np.ones(1), ("age",), np.ones(1))
    frame = bands.to_frame(0)
    low, high = bands.band("age")
    assert list(frame) == ["age", "value", "low", "high", "share"] and frame["age"].iloc[-1] == "missing"
    np.testing.assert_array_equal(frame[["low", "high"]], np.hstack([low, high]))
    np.testing.assert_array_equal(frame["value"], term.all_values[:, 0])


def test_an_axis_without_cuts():
    everywhere = Axis(0, "age", [], None, False)
    (axes,) = plot_model(people((0.2, -0.2), axes=(everywhere, HOURS), labels=np.array([[0, 0, 1]])))
    assert [t.get_text() for t in axes.get_xticklabels()] == ["any"]
    assert make_axis(0, "a", np.random.default_rng(0), n_bins=1).n_ordered == 1


def test_ticks_at_cuts_leave_room_for_their_numbers():
    from rbr.plotting.heat_map import ROOM_FOR_CUT, _signed, _ticks
    from rbr.plotting.panels import Scale

    straight = Scale("linear", {}, np.asarray, np.asarray)
    cuts, edges = np.array([0.485, 0.615, 0.825]), np.array([0.0, 0.485, 0.615, 0.825, 1.0])
    ticks, texts = _ticks(cuts, edges, straight)
    assert ticks == [0.485, 0.825] and texts == ["0.485", "0.825"]
    assert min(np.diff(ticks)) >= ROOM_FOR_CUT
    assert [_signed(value, 5.5) for value in (0.839, -5.5, -6.8e-5)] == ["+0.84", "-5.5", "0"]
