"""The databases in which tests run queries, each behind the same function: a query over one small table."""

from __future__ import annotations

import os
import sqlite3
import sys

import pytest


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def sql_types(model, text="TEXT", integer="BIGINT", number="DOUBLE PRECISION"):
    """A type for each column of the training table: that of its term, and a number where there is none."""
    types = dict.fromkeys(model.feature_names_in_, number)
    for term in model.terms:
        if term.kind == "category":
            types[model.feature_names_in_[term.columns[0]]] = text if isinstance(term.categories[0], str) else integer
    return types


def _fill(cursor, types, rows, table, mark):
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
    cursor.execute(f"CREATE TEMP TABLE {quoted(table)} ({columns})")
    marks = ", ".join([mark] * len(types))
    cursor.executemany(f"INSERT INTO {quoted(table)} VALUES ({marks})", [[row[n] for n in types] for row in rows])


def _result(cursor):
    return [column[0] for column in cursor.description], cursor.fetchall()


def run_sqlite(sql, rows, types, table="some table"):
    """(names, rows) of a query; a name that `types` gives no type to has none in the table either."""
    types = types if isinstance(types, dict) else dict.fromkeys(types, "")
    cursor = sqlite3.connect(":memory:").cursor()
    _fill(cursor, types, rows, table, "?")
    return _result(cursor.execute(sql))


def run_duckdb(sql, rows, types, table="some table"):
    duckdb = pytest.importorskip("duckdb", reason="the query is run in DuckDB: pip install duckdb")
    with duckdb.connect(":memory:") as connection:
        _fill(connection, types, rows, table, "?")
        return _result(connection.execute(sql))


def run_postgres(sql, rows, types, table="some table"):
    """In the server that RBR_POSTGRES names, in a temporary table that ends with the connection."""
    address = os.environ.get("RBR_POSTGRES")
    if not address:
        absent = "no PostgreSQL server: run .ci/postgres pytest, or set RBR_POSTGRES to the address of one"
        # .ci/run starts one where there are Debian's packages; there a skipped test would be an untested promise.
        (pytest.fail if os.environ.get("CI") and sys.platform == "linux" else pytest.skip)(absent)
    psycopg = pytest.importorskip("psycopg", reason="PostgreSQL is reached through psycopg: pip install psycopg")
    with psycopg.connect(address) as connection, connection.cursor() as cursor:
        _fill(cursor, types, rows, table, "%s")
        return _result(cursor.execute(sql))


DATABASES = {"sqlite": run_sqlite, "duckdb": run_duckdb, "postgres": run_postgres}
