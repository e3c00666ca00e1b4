"""Fits from GROUP BY sums: the model of the same rows in memory, in every database."""

from __future__ import annotations

import os
import sqlite3

import duckdb
import numpy as np
import pytest

import rbr
import rbr.sql
from rbr import RBRRegressor
from rbr.estimators.inputs import Columns, Training
from rbr.objective import make_objective

DATABASES = ["sqlite", "duckdb", "postgres"]
NAMES = ["size", "rooms", "town", "gap"]


def rows_of(n_rows=1500, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n_rows).round(3)
    rooms = rng.integers(1, 8, n_rows)
    town = rng.choice(["north", "it's south", "east"], n_rows)
    gap = np.where(rng.random(n_rows) < 0.3, np.nan, rng.exponential(size=n_rows))
    price = np.sin(size) + (rooms > 4) + 0.5 * (town == "east") + np.where(np.isnan(gap), 0.5, 0.0)
    price += 10.0 + 0.2 * rng.normal(size=n_rows)
    weight = rng.integers(0, 4, n_rows) * 0.5
    no_town = rng.random(n_rows) < 0.1
    return [
        (
            float(size[i]),
            int(rooms[i]),
            None if no_town[i] else str(town[i]),
            None if np.isnan(gap[i]) else float(gap[i]),
            float(price[i]),
            float(weight[i]),
        )
        for i in range(n_rows)
    ]


def connect(database, rows, table="some houses"):
    types = ("DOUBLE PRECISION", "BIGINT", "TEXT", "DOUBLE PRECISION", "DOUBLE PRECISION", "DOUBLE PRECISION")
    mark = "?"
    if database == "sqlite":
        connection = sqlite3.connect(":memory:")
    elif database == "duckdb":
        connection = duckdb.connect(":memory:")
    else:
        if not os.environ.get("RBR_POSTGRES"):
            pytest.skip("no PostgreSQL server: run .ci/postgres pytest, or set RBR_POSTGRES to the address of one")
        connection, mark = pytest.importorskip("psycopg").connect(os.environ["RBR_POSTGRES"]), "%s"
    named = zip([*NAMES, "price", "weight"], types, strict=True)
    columns = ", ".join(f'"{name}" {kind}' for name, kind in named)
    cursor = (
        connection if database == "duckdb" else connection.cursor()
    )  # a cursor of DuckDB is a connection of its own
    cursor.execute(f'CREATE TEMP TABLE "{table}" ({columns})')
    cursor.executemany(f'INSERT INTO "{table}" VALUES ({", ".join([mark] * 6)})', rows)
    return connection


def frame_of(rows):
    import pandas as pd

    return pd.DataFrame(rows, columns=[*NAMES, "price", "weight"])


def fit_in_memory(frame, weight=None, **parameters):
    """A fit to the same rows without the values within bins, which sums do not have."""
    estimator = RBRRegressor(n_bags=0, **parameters)
    X, y = frame[NAMES], frame.price.to_numpy()
    binner = estimator._binner()
    design = binner.fit_transform(X, weight)
    columns = Columns(tuple(NAMES), len(NAMES))
    constraints = estimator._constraints(columns, binner, *estimator._limits(columns))
    objective = make_objective(design, y, sample_weight=weight)
    estimator.n_features_in_ = len(NAMES)
    estimator._fit_objective(objective, Training(columns, None, "price", binner, constraints, None, None, y))
    return estimator


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("database", DATABASES)
def test_a_fit_in_a_database_is_that_of_the_rows(database, is_weighted):
    rows = rows_of()
    connection, frame = connect(database, rows), frame_of(rows)
    given = {"sample_weight": "weight"} if is_weighted else {}
    parameters = {
        "max_bins": 20,
        "binning": {"gap": [0.2, 0.5, 1.0, 2.0], "rooms": [2, 4, 6]},
        "shape": {"size": "mixed"},
    }
    found = rbr.sql.fit(connection, "some houses", target="price", columns=NAMES, **given, **parameters)
    expected = fit_in_memory(frame, frame.weight.to_numpy() if is_weighted else None, **parameters)
    assert [term.name for term in found.terms_] == [term.name for term in expected.terms_] == NAMES
    np.testing.assert_allclose(found.intercept_, expected.intercept_, atol=1e-9)
    for ours, theirs in zip(found.terms_, expected.terms_, strict=True):
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        np.testing.assert_array_equal(ours.edges, theirs.edges)
        assert ours.categories == theirs.categories
        np.testing.assert_allclose(ours.values, theirs.values, atol=1e-9)
        np.testing.assert_allclose(ours.counts, theirs.counts, atol=1e-9)
        np.testing.assert_allclose(ours.target_sums, theirs.target_sums, atol=1e-6)
    np.testing.assert_allclose(found.predict(frame[NAMES]), expected.model_.predict(frame[NAMES]), atol=1e-9)


@pytest.mark.parametrize("database", DATABASES)
def test_edges_of_many_values_are_quantiles(database, monkeypatch):
    monkeypatch.setattr(rbr.sql, "MAX_EXACT_ROWS", 100)
    monkeypatch.setattr(rbr.sql, "N_QUANTILES", 500)
    rows = rows_of()
    m = rbr.sql.fit(connect(database, rows), "some houses", target="price", max_bins=16, where='"rooms" > 2')
    size = np.sort([row[0] for row in rows if row[1] > 2])
    edges = next(term.edges for term in m.terms_ if term.name == "size")
    ranks = np.searchsorted(size, edges) / len(size)
    np.testing.assert_allclose(ranks, np.arange(1, 16) / 16, atol=1 / 500 + 1 / len(size))
    assert m.terms_[0].counts.sum() == len(size)


def test_a_database_is_only_read_from():
    rows = rows_of(300)
    connection = connect("sqlite", rows)
    before = connection.total_changes
    connection.execute("PRAGMA query_only = ON")
    rbr.sql.fit(connection, "some houses", target="price", max_bins=8)
    assert connection.total_changes == before


def test_faults_are_named():
    rows = rows_of(100)
    connection = connect("sqlite", rows)

    def fit(**options):
        return rbr.sql.fit(connection, "some houses", **{"target": "price", "max_bins": 8, **options})

    with pytest.raises(ValueError, match="'some houses' has no column 'cost'"):
        fit(target="cost")
    with pytest.raises(ValueError, match="loss is 'poisson'; in a database it must be 'squared_error'"):
        fit(loss="poisson")
    with pytest.raises(ValueError, match="interactions is 'auto'; in a database it must be 0"):
        fit(interactions="auto")
    with pytest.raises(ValueError, match="column 'town' are bad; it must hold numbers, and holds text"):
        fit(target="town", where='"town" IS NOT NULL')
    with pytest.raises(ValueError, match="column 'gap' are bad; it must be a number, since it is the target"):
        fit(target="gap")
    with pytest.raises(ValueError, match="column 'size' are bad; it must not be missing or below 0"):
        fit(sample_weight="size")
    with pytest.raises(ValueError, match="no rows of positive weight"):
        fit(where='"rooms" > 99')
    with pytest.raises(ValueError, match="columns have .* bins in all, whose cross-tabulation takes"):
        fit(max_bins=60_000, binning={"size": np.arange(20_000.0)})
    with pytest.raises(ValueError, match="give the dialect"):
        rbr.sql.fit(object(), "some houses", target="price")
    with pytest.raises(TypeError, match="it must be an RBRRegressor"):
        rbr.sql.fit(connection, "some houses", target="price", estimator=rbr.RBRClassifier())
    m = RBRRegressor()
    with pytest.raises(ValueError, match="no column 'cost'"):
        rbr.sql.fit(connection, "some houses", target="cost", estimator=m)
    assert not hasattr(m, "model_")
