"""Cases for `expit` and `score`: constant and linear pieces of awkward numbers, with one or several outputs."""

from __future__ import annotations

import numpy as np
from cases_binning import AWKWARD
from helpers import Case
from hypothesis import strategies as st


@st.composite
def score_cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_terms, n_outputs = draw(st.integers(0, 4)), draw(st.sampled_from([1, 3]))
    edges, tables, slopes, sizes = [np.empty(0)], [np.empty((0, n_outputs))], [np.empty((0, n_outputs))], [0]
    for _ in range(n_terms):
        own = np.unique(rng.choice([rng.normal(), 0.0, 1e-310, -1e308, 1.0, 2.0, 3.0], draw(st.integers(0, 9))))
        n_pieces = 1 << len(own).bit_length()
        edges.append(np.append(own, np.full(n_pieces - 1 - len(own), np.inf)))
        tables.append(rng.normal(size=(n_pieces + 1, n_outputs)))
        own_slopes = rng.normal(size=tables[-1].shape)
        own_slopes[rng.random(own_slopes.shape) >= draw(st.sampled_from([0.0, 0.5]))] = 0.0
        own_slopes[-1] = 0.0  # of NaN
        slopes.append(own_slopes)
        sizes.append(n_pieces - 1)
    flat = np.concatenate(edges)
    n_rows, n_features = draw(st.sampled_from([0, 1, 5, 127, 128, 300])), draw(st.integers(1, 5))
    finite = flat[np.isfinite(flat)]
    beside = np.nextafter(finite, np.inf), np.nextafter(finite, -np.inf)
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    with np.errstate(over="ignore"):
        values = rng.choice(np.concatenate([finite, *beside, AWKWARD]), (n_rows, n_features)).astype(dtype)
    layout = draw(st.sampled_from(["C", "F", "strided", "reversed"]))
    if layout == "strided":
        values = np.repeat(np.repeat(values, 2, axis=0), 3, axis=1)[::2, ::3]
    elif layout == "reversed":
        values = values[::-1]
    else:
        values = np.asarray(values, order=layout)
    values.flags.writeable = False
    columns = rng.integers(0, n_features, n_terms)
    # The kernel adds to the values in out.
    out = np.asarray(rng.normal(size=(n_rows, n_outputs)), order=draw(st.sampled_from("CF")))
    has_lines = np.array([own.any() for own in slopes[1:]], dtype=np.uint8)
    tables, slopes = np.concatenate(tables), np.concatenate(slopes)
    anchors = rng.choice([0.0, -1.5, 1e9], len(tables))
    args = [values, columns, flat, np.cumsum(sizes, dtype=np.int64), tables, slopes, anchors, has_lines]
    return Case(args, [out], n_rows)


@st.composite
def expit_cases(draw):
    scores = np.array(draw(st.lists(st.floats(), max_size=20)))
    return Case([scores], [np.zeros(len(scores))], len(scores))


CASES = {"score": score_cases(), "expit": expit_cases()}
