"""Rows that look into every corner of a model: every bin, both sides of every edge, missing and unknown values."""

from __future__ import annotations

import numpy as np

KINDS = {
    "regression": {},
    "binary": {"loss": "log_loss", "classes": ["no", "yes"]},
    "multiclass": {"loss": "multinomial", "classes": [3, 5, 7], "n_outputs": 3},
}


def probes(term):
    """Values in every bin of a term, at and next to every edge, and beyond them; missing and unknown ones."""
    if term.kind == "category":
        unknown = "never seen" if isinstance(term.categories[0], str) else 77
        return [*term.categories, None, unknown]
    edges = term.edges
    beside = [*np.nextafter(edges, np.inf), *np.nextafter(edges, -np.inf)]
    middle = 0.5 * (edges[1:] + edges[:-1])
    return [float(x) for x in [*edges, *beside, *middle, edges[0] - 1, edges[-1] + 1, np.inf, -np.inf]] + [None]


def rows_of_probes(model, rng):
    """Rows that contain every probe of every term, and many pairs of probes of neighbouring terms."""
    columns = {term.name: probes(term) for term in model.terms}
    n_rows = 2 * max(map(len, columns.values())) + 200
    rows = []
    for k in range(n_rows):
        row = {name: None for name in model.feature_names_in_}
        for name, values in columns.items():
            row[name] = values[k] if k < len(values) else values[rng.integers(len(values))]
        rows.append(row)
    return rows


def as_array(rows, model):
    X = np.empty((len(rows), model.n_features_in_), dtype=object)
    for i, row in enumerate(rows):
        X[i] = [row[name] for name in model.feature_names_in_]
    return X
