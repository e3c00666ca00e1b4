"""Terms of two columns for tests: random ones that hold everything awkward, rows for them, and what they must add."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from models import make_model, make_term

from rbr.losses import get_loss
from rbr.model import AdditiveModel, Axis, PairTerm

LEVELS = ("plain", "it's", 'say "so"', "new\nline", "zwölf €", " ", "x & y")


def make_axis(column, name, rng, *, kind="numeric", n_bins=4, missing=True, levels=LEVELS):
    if kind == "numeric":
        edges = np.unique(np.round(rng.normal(size=n_bins - 1) * 10.0 ** rng.integers(-2, 5), 6))
        return Axis(column, name, edges, None, missing)
    shuffled = [levels[k] for k in rng.permutation(len(levels))]
    cuts = np.sort(rng.choice(np.arange(1, len(levels)), min(n_bins, len(levels)) - 1, replace=False))
    return Axis(column, name, [], tuple(map(tuple, np.split(np.array(shuffled, dtype=object), cuts))), missing)


def make_pair(axes, rng, *, n_outputs=1, n_rectangles=None, observed=False):
    """A pair with random values: of guillotine rectangles, or with a label for every cell."""
    shape = axes[0].n_bins, axes[1].n_bins
    labels = np.arange(shape[0] * shape[1]).reshape(shape)
    if n_rectangles is not None:
        labels = guillotine(shape, n_rectangles, rng)
    of_label = rng.normal(size=(labels.max() + 1, n_outputs))
    values = of_label[labels]
    counts = rng.integers(0, 50, shape)
    counts.flat[0] += 1
    facts = {}
    if observed:
        facts = {"target_sums": rng.normal(size=(counts.size, 1)), "exposures": rng.random(counts.size)}
    return PairTerm(
        name=f"{axes[0].name} & {axes[1].name}",
        axes=axes,
        values=values[..., 0] if n_outputs == 1 else values,
        weights=counts / counts.sum(),
        counts=counts,
        labels=labels,
        loss_drop=rng.random(),
        gain=rng.random(),
        **facts,
    )


def guillotine(shape, n_rectangles, rng):
    """Labels of rectangles from random cuts through a whole rectangle each."""
    found = [(0, shape[0], 0, shape[1])]
    for _ in range(n_rectangles - 1):
        a, b, c, d = found.pop(int(rng.integers(len(found))))
        if b - a > 1 and (d - c == 1 or rng.random() < 0.5):
            cut = int(rng.integers(a + 1, b))
            found += [(a, cut, c, d), (cut, b, c, d)]
        elif d - c > 1:
            cut = int(rng.integers(c + 1, d))
            found += [(a, b, c, cut), (a, b, cut, d)]
        else:
            found.append((a, b, c, d))
    labels = np.zeros(shape, dtype=int)
    for k, (a, b, c, d) in enumerate(found):
        labels[a:b, c:d] = k
    return labels


def bin_of(axis, x):
    """The bin of a value, in plain Python; None if it has none."""
    if x is None or (isinstance(x, float) and math.isnan(x)):
        return axis.n_ordered if axis.has_missing else None
    if axis.kind == "numeric":
        return sum(edge < x for edge in axis.edges.tolist())
    return next((k for k, group in enumerate(axis.groups) if x in group), None)


def added(term, row):
    """What a pair adds to the score of a row, in plain Python."""
    i, j = (bin_of(axis, row[axis.column]) for axis in term.axes)
    return np.zeros(term.n_outputs) if i is None or j is None else np.atleast_1d(term.values[i, j])


def rows_for(axis, rng, n):
    """Values of a column: beside and at the edges, infinite, missing, unknown."""
    if axis.kind == "numeric":
        near = np.concatenate([axis.edges, np.nextafter(axis.edges, np.inf), np.nextafter(axis.edges, -np.inf)])
        return rng.choice(np.concatenate([near, [np.nan, np.inf, -np.inf, 0.0]]), n).tolist()
    return [([*axis.levels, None, "unknown"])[k] for k in rng.integers(0, len(axis.levels) + 2, n)]


def frame_for(model, rng, n=60):
    """A frame with all columns of the model; those that no term uses are numbers."""
    columns = {name: rng.normal(size=n).tolist() for name in model.feature_names_in_}
    for term in model.terms:
        for axis in term.axes if isinstance(term, PairTerm) else ():
            columns[model.feature_names_in_[axis.column]] = rows_for(axis, rng, n)
    return pd.DataFrame(columns)


@st.composite
def pairs(draw, n_outputs=None):
    """(term, generator): any pair over the columns 1 and 3."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    axes = tuple(
        make_axis(
            column,
            name,
            rng,
            kind=draw(st.sampled_from(["numeric", "category"])),
            n_bins=draw(st.integers(1, 6)),
            missing=draw(st.booleans()),
        )
        for column, name in ((1, "age"), (3, "kind of work"))
    )
    rectangles = draw(st.sampled_from([None, 1, 2, 5]))
    outputs = draw(st.sampled_from([1, 3])) if n_outputs is None else n_outputs
    return make_pair(axes, rng, n_outputs=outputs, n_rectangles=rectangles, observed=draw(st.booleans())), rng


NAMES = ("first", "age", "third", "kind of work", "last")


def model_of(pair, rng, loss=None, classes=None):
    """A model with mains of both columns' neighbours and one pair."""
    n_outputs = pair.n_outputs
    terms = (make_term("first", 0, rng, n_outputs=n_outputs), make_term("third", 2, rng, n_outputs=n_outputs), pair)
    intercept = rng.normal() if n_outputs == 1 else rng.normal(size=n_outputs)
    loss = loss or ("squared_error" if n_outputs == 1 else "multinomial")
    return AdditiveModel(terms, intercept, get_loss(loss), classes, "target", len(NAMES), NAMES)


def make_pair_model(seed, *, n_outputs=1, loss="squared_error", classes=None, n_rectangles=5):
    """The awkward model of tests.models with pairs of numbers and categories beside its mains."""
    model = make_model(seed, loss=loss, classes=classes, n_outputs=n_outputs)
    rng = np.random.default_rng(seed + 1)
    names = model.feature_names_in_
    text, number = model.terms[1].categories, model.terms[3].categories

    def axis(column, **options):
        return make_axis(column, names[column], rng, **options)

    pairs = [
        make_pair((axis(0, n_bins=5), axis(2, n_bins=6, missing=False)), rng, n_outputs=n_outputs),
        make_pair(
            (axis(1, kind="category", levels=text, n_bins=3), axis(2, n_bins=5)),
            rng,
            n_outputs=n_outputs,
            n_rectangles=n_rectangles,
        ),
        make_pair(
            (axis(1, kind="category", levels=text, missing=False), axis(4, kind="category", levels=number, n_bins=3)),
            rng,
            n_outputs=n_outputs,
            n_rectangles=n_rectangles,
        ),
    ]
    return replace(model, terms=(*model.terms, *pairs))
