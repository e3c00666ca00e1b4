"""Pictures of models show what is in their tables."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from models import fit, make_model
from numpy.testing import assert_allclose, assert_array_equal

import rbr
from rbr.losses import get_loss
from rbr.model import AdditiveModel
from rbr.model.terms import Term, labels_of_groups
from rbr.plotting import panels, plot_model
from rbr.plotting.value_axis import ValueScale

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    pyplot.close("all")


def artists(axes, gid):
    return [artist for artist in axes.get_children() if artist.get_gid() == gid]


def numeric_term(values, labels, edges, positions=None, *, weights=None, missing_value=None, name="x", column=0):
    values = np.asarray(values, dtype=float)
    n_bins = len(values) + (missing_value is not None)
    weights = np.full(n_bins, 1 / n_bins) if weights is None else weights
    if positions is None:
        positions = np.arange(len(values)) + 0.0
    return Term(
        name, (column,), "numeric", edges, None, values, missing_value, weights, 100 * weights, positions, labels, False
    )


def category_term(values, names, *, weights=None, missing_value=None, name="c", column=0, grouped=True, labels=None):
    values = np.asarray(values, dtype=float)
    n_bins = len(values) + (missing_value is not None)
    weights = np.full(n_bins, 1 / n_bins) if weights is None else np.asarray(weights)
    counts = 100 * weights
    if labels is None:
        labels = labels_of_groups([tuple(np.atleast_1d(row)) for row in values])
    positions = np.arange(len(values))
    return Term(
        name, (column,), "category", [], names, values, missing_value, weights, counts, positions, labels, grouped
    )


def model_of(*terms, loss="squared_error", classes=None, target=None):
    intercept = 0.0 if terms[0].values.ndim == 1 else np.zeros(terms[0].n_outputs)
    return AdditiveModel(terms, intercept, get_loss(loss), classes, target, len(terms), None)


# ---------------------------------------------------------------- one numeric term


def test_constant_pieces_are_one_segment_each_and_jumps_are_verticals():
    term = numeric_term([1.0, 1.0, -2.0, -2.0], [0, 0, 2, 2], [0.5, 1.5, 2.5])
    (axes,) = plot_model(model_of(term))
    (pieces,), (jumps,) = artists(axes, "pieces"), artists(axes, "jumps")
    # An outer bin is drawn as wide on the outer side of its mean as on the inner one.
    assert_allclose(pieces.get_segments(), [[[-0.5, 1.0], [1.5, 1.0]], [[1.5, -2.0], [3.5, -2.0]]])
    assert_allclose(jumps.get_segments(), [[[1.5, 1.0], [1.5, -2.0]]])


def test_lines_pass_through_the_values_of_their_bins():
    n = 40
    edges, positions, values = np.arange(1.0, n), np.arange(n) + 0.3, np.linspace(-1, 1, n)
    (axes,) = plot_model(model_of(numeric_term(values, np.ones(n, int), edges, positions)))
    (pieces,) = artists(axes, "pieces")
    (path,) = pieces.get_segments()
    assert_allclose(path[1:-1], np.column_stack([positions, values]))
    assert path[0, 1] == values[0] and path[-1, 1] == values[-1]


def test_steep_lines_are_drawn_as_the_steps_they_are():
    (axes,) = plot_model(model_of(numeric_term([-0.2, 1.0], [1, 1], [0.5])))
    (pieces,), (jumps,) = artists(axes, "pieces"), artists(axes, "jumps")
    assert [set(path[:, 1]) for path in pieces.get_segments()] == [{-0.2}, {1.0}]
    assert_allclose(jumps.get_segments(), [[[0.5, -0.2], [0.5, 1.0]]])
    assert_array_equal(axes.get_xticks(), [0.0, 1.0])


def test_density_strip_is_the_share_of_the_rows_per_width():
    weights = np.array([0.1, 0.8, 0.1])
    (axes,) = plot_model(
        model_of(numeric_term([0.0, 1.0, 0.0], [0, 2, 4], [0.5, 2.5], [0.0, 1.5, 3.0], weights=weights))
    )
    (strip,) = artists(axes, "density")
    heights, edges, _ = strip.get_data()
    density = weights / np.diff(edges)
    assert_allclose(heights / heights.max(), np.cbrt(density / density.max()))


def test_missing_value_has_a_mark_of_its_own_beside_the_data():
    term = numeric_term([-1.0, 1.0], [0, 2], [0.5], missing_value=0.7)
    (axes,) = plot_model(model_of(term))
    (mark,) = artists(axes, "missing")
    assert mark.get_ydata() == [0.7]
    end_of_data = axes.transAxes.inverted().transform(axes.transData.transform((1.5, 0.0)))[0]
    assert end_of_data < mark.get_xdata()[0] < 1
    assert any(text.get_text() == "missing\n33%" for text in axes.texts)


@pytest.mark.parametrize(
    ("edges", "name"),
    [
        (np.linspace(-3, 7, 50), "linear"),
        (np.concatenate([[-50.0], np.geomspace(100, 1e5, 60)]), "symlog"),
        (np.geomspace(1, 1e6, 60), "log"),
        (np.concatenate([[0.0], np.arange(1950.0, 2000)]), "rank"),
        (np.array([0.0, 1.0, 2.0]), "linear"),
    ],
)
def test_an_outlier_does_not_take_the_axis(edges, name):
    scale = panels.choose_scale(edges)
    assert scale.name == name
    assert not scale.is_crowded(edges)
    assert_allclose(scale.inverse(scale.forward(edges)), edges, atol=1e-9)
    n = len(edges) - 1
    term = numeric_term(np.arange(n), 2 * np.arange(n), edges[1:-1], (edges[1:] + edges[:-1]) / 2)
    (axes,) = plot_model(model_of(term))
    axes.figure.canvas.draw()
    ticks = axes.get_xticks()
    places = axes.transAxes.inverted().transform(axes.transData.transform(np.column_stack([ticks, 0 * ticks])))[:, 0]
    inside = places[(places >= 0) & (places <= 1)]
    assert len(inside) >= 2 and (np.diff(inside) > 0.05).all()


def test_x_scale_is_the_users_if_given():
    edges = np.geomspace(1, 1e6, 60)
    term = numeric_term(np.arange(59), 2 * np.arange(59), edges[1:-1], (edges[1:] + edges[:-1]) / 2)
    assert plot_model(model_of(term))[0].get_xscale() == "log"
    assert plot_model(model_of(term), x_scale="linear")[0].get_xscale() == "linear"
    assert plot_model(model_of(term), x_scale={"x": "rank"})[0].get_xscale() == "function"


def test_few_far_values_do_not_squeeze_the_others_and_are_still_drawn():
    weights = np.array([0.5, 0.499, 0.001])
    term = numeric_term([-1.0, 1.0, 40.0], [0, 2, 4], [0.5, 1.5], weights=weights)
    (axes,) = plot_model(model_of(term))
    low, high = axes.get_ylim()
    assert low < -1 and high > 40
    at = axes.transAxes.inverted().transform(axes.transData.transform([(0, -1), (0, 1), (0, 40)]))[:, 1]
    assert at[1] - at[0] > 0.4
    assert at[2] < 1
    assert artists(axes, "far")
    # The tick nearest to the far value is on the axis.
    assert axes.get_yticks().max() == 20.0
    (pieces,) = artists(axes, "pieces")
    assert pieces.get_segments()[-1][0][1] == 40.0
    # With limits given by the user the scale is linear.
    (axes,) = plot_model(model_of(term), y_limits=(-2, 2))
    assert axes.get_yscale() == "linear" and not artists(axes, "far")


def footnotes(figure):
    return [text.get_text() for text in figure.texts if text.get_gid() == "footnotes"]


def test_an_axis_that_bends_is_explained_on_the_picture():
    far = numeric_term([-1.0, 0.0, 1.0, 50.0], [0, 2, 4, 6], [1, 2, 3], weights=np.array([0.4, 0.3, 0.299, 0.001]))
    model = AdditiveModel((far,), 0.0, get_loss("squared_error"), None, None, 1, None)
    (axes,) = plot_model(model)
    (note,) = footnotes(axes.figure)
    assert note.startswith("Shaded (outside -1 to 1): the axis of effects is logarithmic there")
    _, (one, last) = pyplot.subplots(1, 2)
    plot_model(model, [0, 0], axes=[one, last], share_y=False)
    assert not artists(one, "footnotes")
    assert artists(last, "footnotes")[0].get_text().startswith("Shaded (outside -1 to 1): the axis of effects")
    further = numeric_term([-1.0, 0.0, 3.0, 50.0], [0, 2, 4, 6], [1, 2, 3], name="b", column=1, weights=far.weights)
    two = AdditiveModel((far, further), 0.0, get_loss("squared_error"), None, None, 2, None)
    assert footnotes(plot_model(two, share_y=False)[0].figure)[0].startswith("Shaded: the axis of effects")
    (axes,) = plot_model(model, y_limits=(-2, 60))
    assert not any(note.startswith("Shaded") for note in footnotes(axes.figure))


def test_value_scale_has_an_inverse():
    scale = ValueScale((-30.0, 50.0), (-1.0, 2.0))
    y = np.linspace(-30, 50, 101)
    assert (np.diff(scale.forward(y)) > 0).all()
    assert_allclose(scale.inverse(scale.forward(y)), y)
    assert_allclose(scale.forward(np.array([-1.0, 0.3, 2.0])), [-1.0, 0.3, 2.0])


# ---------------------------------------------------------------- categories


def row_texts(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def test_categories_are_sorted_by_value_and_fused_levels_share_a_bar():
    term = category_term(
        [2.0, -1.0, 2.0, 0.5], ("a", "b", "c", "d"), weights=[0.1, 0.2, 0.3, 0.3, 0.1], missing_value=-0.4
    )
    (axes,) = plot_model(model_of(term))
    # The more frequent of two fused levels comes first.
    assert row_texts(axes) == ["c", "a", "d", "b", "missing"]
    bars = artists(axes, "level")
    assert [bar.get_width() for bar in bars] == [2.0, 0.5, -1.0]
    tall, *others = [bar.get_height() for bar in bars]
    assert tall > 1 and all(height < 1 for height in others)
    (mark,) = artists(axes, "missing")
    assert mark.get_xdata() == [-0.4]
    assert [text.get_text() for text in artists(axes, "share")] == ["30%", "10%", "30%", "20%", "10%"]


def test_ordered_categories_keep_their_order_and_levels_of_a_line_their_values():
    term = category_term([1.0, 1.0, -1.0, 3.0], tuple("abcd"), grouped=False, labels=[0, 0, 3, 3])
    (axes,) = plot_model(model_of(term))
    assert row_texts(axes) == ["a", "b", "c", "d"]
    assert [bar.get_width() for bar in artists(axes, "level")] == [1.0, -1.0, 3.0]


def test_fifty_long_names_fit():
    names = tuple(f"Department of Something with a very long name, branch {i}" for i in range(50))
    term = category_term(np.arange(50) % 7, names)
    (axes,) = plot_model(model_of(term))
    texts = row_texts(axes)
    assert len(set(texts)) == 50 and max(map(len, texts)) <= panels.LONGEST_NAME
    axes.figure.canvas.draw()
    boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(box.x0 >= 0 for box in boxes)
    assert all(upper.y0 >= lower.y1 - 1 for upper, lower in zip(boxes[:-1], boxes[1:], strict=True))


def test_more_levels_than_can_be_shown_are_gathered_by_value():
    term = category_term(np.repeat([1.0, -1.0], 100), tuple(f"c{i}" for i in range(200)))
    (axes,) = plot_model(model_of(term), max_levels=20)
    texts = row_texts(axes)
    assert len(texts) == 22 and texts.count("… 90 more") == 2
    assert sum(int(text.get_text().rstrip("%")) for text in artists(axes, "share") if text.get_text() == "45%") == 90


def test_a_name_may_look_like_a_formula(recwarn):
    term = category_term([1.0, -1.0], ("$a_", "b$"), name="cost $x_{")
    (axes,) = plot_model(model_of(term))
    axes.figure.canvas.draw()
    assert axes.get_title(loc="left") == r"cost \$x_{"


# ---------------------------------------------------------------- whole models


def test_panels_are_sorted_by_importance_and_share_one_scale():
    small = numeric_term([-0.1, 0.1], [0, 2], [0.5], name="small", column=0)
    large = numeric_term([-3.0, 3.0], [0, 2], [0.5], name="large", column=1)
    bars = category_term([1.0, -1.0], ("a", "b"), name="bars", column=2)
    model = model_of(small, large, bars)
    axes = plot_model(model)
    assert isinstance(axes, np.ndarray) and axes.shape == (3,)
    assert [panel.get_title(loc="left") for panel in axes] == ["large", "bars", "small"]
    assert axes[0].get_ylim() == axes[2].get_ylim()
    assert axes[1].get_xlim()[0] < -3 and axes[1].get_xlim()[1] > 3
    own = plot_model(model, share_y=False)
    assert own[2].get_ylim()[1] < 1 < own[0].get_ylim()[1]
    assert [panel.get_title(loc="left") for panel in plot_model(model, max_terms=1)] == ["large"]
    chosen = plot_model(model, ["small", 2])
    assert [panel.get_title(loc="left") for panel in chosen] == ["small", "bars"]
    assert plot_model(model, "bars").shape == (1,)


def test_panels_begin_on_common_lines_and_titles_below_each_other():
    rng = np.random.default_rng(0)
    terms = [numeric_term(rng.normal(size=4), [0, 2, 4, 6], [1, 2, 3], name=f"x{j}", column=j) for j in range(4)]
    for j, n_levels in enumerate((2, 12, 40), start=4):
        names = tuple(f"a level {k} with a name" for k in range(n_levels))
        terms.append(category_term(rng.normal(size=n_levels), names, name=f"c{j}", column=j))
    model = AdditiveModel(tuple(terms), 0.0, get_loss("squared_error"), None, None, 7, None)
    axes = plot_model(model, n_cols=3)
    figure = axes[0].figure
    figure.canvas.draw()
    width, height = figure.get_size_inches()
    tops = np.array([panel.get_position().y1 * height for panel in axes])
    below = (tops.max() - tops) / 2.3
    assert_allclose(below, below.round(), atol=1e-9)
    assert len(set(below.round())) < len(axes)
    ends = {round(panel.get_position().x1 * width, 6) for panel in axes}
    assert len(ends) == 3
    starts = [panel._left_title.get_window_extent().x0 / figure.dpi for panel in axes]
    assert len({round(start % (width / 3), 1) for start in starts}) == 1


def test_panels_do_not_overlap_and_stay_on_the_figure():
    names = tuple(f"a level with a long name, number {i}" for i in range(30))
    terms = [numeric_term([-1.0, 1.0], [0, 2], [0.5], name=f"n{j}", column=j) for j in range(6)]
    terms += [category_term(np.arange(30.0) + j, names, name=f"c{j}", column=6 + j) for j in range(6)]
    axes = plot_model(model_of(*terms), n_cols=4)
    boxes = [panel.get_position() for panel in axes]
    assert all(0 < box.x0 < box.x1 < 1 and 0 < box.y0 < box.y1 < 1 for box in boxes)
    for i, one in enumerate(boxes):
        assert not any(one.overlaps(other) for other in boxes[i + 1 :])


@pytest.mark.parametrize(
    ("loss", "classes", "label"),
    [
        ("squared_error", None, "adds to target"),
        ("poisson", None, "adds to log target"),
        ("log_loss", ["no", "yes"], "adds to log-odds of yes"),
        ("log_loss", [0, 1], "adds to log-odds of target = 1"),
    ],
)
def test_the_link_is_named_on_the_axis_of_values(loss, classes, label):
    term = numeric_term([-1.0, 1.0], [0, 2], [0.5])
    bars = category_term([-1.0, 1.0], ("a", "b"), column=1)
    axes = plot_model(model_of(term, bars, loss=loss, classes=classes, target="target"), ["x", "c"])
    assert axes[0].get_ylabel() == label
    assert axes[1].get_xlabel() == label


def test_every_class_has_its_line_and_a_name():
    values = np.array([[1.0, -1.0, 0.0], [-1.0, 0.5, 0.5]])
    model = model_of(
        numeric_term(values, [0, 2], [0.5], missing_value=[0.1, 0.2, -0.3]),
        category_term(values, ("a", "b"), column=1),
        loss="multinomial",
        classes=["red", "green", "blue"],
    )
    axes = plot_model(model, ["x", "c"])
    drawn = [collection.get_segments()[0][0][1] for collection in artists(axes[0], "pieces")]
    assert drawn == [1.0, -1.0, 0.0]
    assert [float(mark.get_ydata()[0]) for mark in artists(axes[0], "missing")] == [0.1, 0.2, -0.3]
    (legend,) = axes[0].figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["red", "green", "blue"]
    colors = [collection.get_colors()[0].tolist() for collection in artists(axes[0], "pieces")]
    assert len({tuple(color) for color in colors}) == 3
    figure, given = pyplot.subplots()
    plot_model(model, "x", axes=given)
    assert [text.get_text() for text in given.get_legend().get_texts()] == ["red", "green", "blue"]


@pytest.mark.parametrize("n_outputs", [1, 3, 12])
def test_awkward_models_can_be_drawn(n_outputs):
    loss, classes = ("squared_error", None) if n_outputs == 1 else ("multinomial", np.arange(n_outputs))
    axes = plot_model(make_model(3, loss=loss, classes=classes, n_outputs=n_outputs))
    axes[0].figure.canvas.draw()
    assert len(axes) == 5


def test_a_loaded_model_draws_the_same_picture(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[:30, 0] = np.nan
    model = fit(X, np.where(X[:, 0] > 0, 1.0, -1.0) + X[:, 1])[-1]
    model.save(tmp_path / "model.json")
    for one, other in zip(model.plot(), rbr.load(tmp_path / "model.json").plot(), strict=True):
        for a, b in zip(artists(one, "pieces"), artists(other, "pieces"), strict=True):
            for left, right in zip(a.get_segments(), b.get_segments(), strict=True):
                assert_array_equal(left, right)


def test_a_saved_ordered_category_can_be_loaded(tmp_path):
    """Its pieces have boundaries but no edges; saved files used to name edges that did not exist."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 500)
    X = pandas.DataFrame({"size": pandas.Categorical.from_codes(codes, ["s", "m", "l"], ordered=True)})
    m = rbr.RBRRegressor().fit(X, 2.0 * (codes == 2) + 0.1 * rng.normal(size=500))
    m.save(tmp_path / "model.json")
    assert rbr.load(tmp_path / "model.json") == m.model_
    assert row_texts(m.plot()[0]) == ["s", "m", "l"]


def test_given_axes_are_used():
    terms = [numeric_term([-1.0, 1.0], [0, 2], [0.5], name=f"n{j}", column=j) for j in range(2)]
    figure, given = pyplot.subplots(1, 3)
    axes = plot_model(model_of(*terms), axes=given)
    assert list(axes) == list(given[:2])
    with pytest.raises(ValueError, match="axes has 1 Axes; the 2 terms need one each"):
        plot_model(model_of(*terms), axes=given[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"terms": ["x", "nothing"]}, "term is 'nothing'; it must be the name of a term .* the terms are 'x'"),
        ({"terms": []}, "terms is empty"),
        ({"max_terms": 0}, "max_terms is 0; it must be at least 1"),
        ({"n_cols": 0}, "n_cols is 0"),
        ({"x_scale": "cubic"}, "x_scale is 'cubic'"),
        ({"x_scale": {"x": "cubic"}}, "x_scale of 'x' is 'cubic'"),
        ({"x_scale": {"y": "log"}}, "term is 'y'"),
        ({"y_limits": (1.0, 1.0)}, "y_limits is"),
        ({"level": 1.0}, "level is 1.0; it must be below 1"),
        ({"max_levels": 0}, "max_levels is 0"),
    ],
)
def test_errors_name_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        plot_model(model_of(numeric_term([-1.0, 1.0], [0, 2], [0.5])), **options)


def test_a_model_without_terms_has_no_picture():
    model = AdditiveModel((), 1.0, get_loss("squared_error"), None, None, 2, None)
    with pytest.raises(ValueError, match="the model has no terms"):
        model.plot()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "rbr\[plot\]"'):
        model_of(numeric_term([-1.0, 1.0], [0, 2], [0.5])).plot()


def test_what_few_rows_support_is_drawn_faintly():
    term = numeric_term([1.0, -1.0, 2.0], [0, 2, 4], [1, 2], weights=np.array([0.99, 0.008, 0.002]))
    term = replace(term, counts=np.array([9900.0, 80.0, 20.0]))
    names = category_term([2.0, -1.0], ["often", "seldom"], weights=[0.999, 0.001], column=1)
    names = replace(names, counts=np.array([9990.0, 10.0]))
    model = AdditiveModel((term, names), 0.0, get_loss("squared_error"), None, None, 2, None)
    axes = plot_model(model, [0, 1])
    (pieces,), (jumps,) = artists(axes[0], "pieces"), artists(axes[0], "jumps")
    assert pieces.get_colors()[:, 3].tolist() == [1.0, 0.65, 0.45]
    assert list(pieces.get_linewidths()) == [2.0, 2.0, 1.2]
    assert jumps.get_colors()[0, 3] > jumps.get_colors()[1, 3]
    often, seldom = (np.mean(line.get_color()) for line in artists(axes[1], "pieces"))
    assert often < seldom < 1
    assert "Fainter lines and bars: pieces of fewer than 100 training rows." in footnotes(axes[0].figure)[0]
    loud = replace(model, terms=(replace(term, counts=np.full(3, 100.0)),))
    assert not footnotes(plot_model(loud, y_limits=(-2, 3))[0].figure)
