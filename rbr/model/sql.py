"""A model as SQL: the intercept plus one CASE expression for each term, and what the link makes of their sum.

The merged steps of rbr.model.scoring are added in the same order, so a database that reads doubles exactly gives the
bits of `decision_function`, or nearly: it may round v + b * (x - x0) in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._checks import check_choice
from rbr._text import free_name
from rbr.model.frames import labels_of
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.scoring import Steps, merged_steps
from rbr.model.terms import Term, column_name

if TYPE_CHECKING:
    from rbr.model import AdditiveModel

# The outputs, and the links for which they exist.
OUTPUTS = {
    "score": ("identity", "log", "logit", "softmax"),
    "mean": ("identity", "log"),
    "probability": ("logit", "softmax"),
}

# Beyond this, exponentials leave the range of a double, which is an error in PostgreSQL.
MAX_EXPONENT = 700.0


@dataclass(frozen=True)
class Dialect:
    """How a database writes things.

    Attributes
    ----------
    name, text : the quoted name of a column or table, and quoted text
    number : a literal of the type double, from its digits
    is_nan : whether a column is NaN; None if the database has no NaN
    least, greatest : the functions that give the smaller and the larger of two numbers
    qualifies : whether columns are written with their table. SQLite takes a quoted name that is no column for text, and
        then compares with that text in silence; a qualified one it refuses.
    """

    name: Callable[[str], str]
    text: Callable[[str], str]
    number: Callable[[str], str]
    is_nan: Callable[[str], str] | None = None
    least: str = "LEAST"
    greatest: str = "GREATEST"
    qualifies: bool = False

    def literal(self, value: float) -> str:
        """A number with all its digits."""
        return self.number(repr(float(value)))


def _doubled(mark: str) -> Callable[[str], str]:
    return lambda text: mark + text.replace(mark, mark + mark) + mark


def _escaped(mark: str) -> Callable[[str], str]:
    escapes = {"\\": "\\\\", mark: "\\" + mark, "\n": "\\n", "\r": "\\r"}
    return lambda text: mark + "".join(escapes.get(letter, letter) for letter in text) + mark


def _with_exponent(digits: str) -> str:
    """Digits with an exponent are a double; those without are a decimal, except in SQLite."""
    return digits if "e" in digits else f"{digits}e0"


_STANDARD = _doubled('"'), _doubled("'")
DIALECTS = {
    "sqlite": Dialect(*_STANDARD, str, least="min", greatest="max", qualifies=True),
    # In PostgreSQL all literals are decimals of any length. NaN equals NaN there, and in DuckDB.
    "postgres": Dialect(*_STANDARD, lambda digits: f"{digits}::float8", lambda x: f"{x} = 'NaN'::float8"),
    "duckdb": Dialect(*_STANDARD, _with_exponent, lambda x: f"{x} = 'NaN'::DOUBLE"),
    "bigquery": Dialect(_escaped("`"), _escaped("'"), _with_exponent, lambda x: f"IS_NAN({x})"),
}


def to_sql(model: AdditiveModel, table: str | Sequence[str] | None, dialect: str, output: str, name: str | None) -> str:
    """See `AdditiveModel.to_sql`."""
    quote = DIALECTS[check_choice(dialect, "dialect", DIALECTS)]
    if model.loss.link not in OUTPUTS[check_choice(output, "output", OUTPUTS)]:
        allowed = ", ".join(repr(other) for other, links in OUTPUTS.items() if model.loss.link in links)
        raise ValueError(f"output is {output!r}; a model with the loss {model.loss.name!r} has {allowed}")
    if name is not None and not (isinstance(name, str) and name):
        raise ValueError(f"name is {name!r}; it must be the name of the column that is added, or None")
    query = _Query(model, quote, parts_of_table(table), name)
    if model.loss.link == "softmax" and output == "probability":
        return query.softmax()
    expressions = [query.applied(score, output) for score in query.scores()]
    columns = query.named(expressions, query.names(output))
    if table is None:
        return expressions[0] if len(expressions) == 1 else ",\n  ".join(columns)
    return query.select(columns)


def parts_of_table(table: str | Sequence[str] | None) -> list[str]:
    """The parts of the name of a table: itself, or a schema and a name."""
    parts = [] if table is None else [table] if isinstance(table, str) else list(table)
    if table is not None and (not parts or not all(isinstance(part, str) and part for part in parts)):
        raise ValueError(f"table is {table!r}; it must be a name, or a schema and a name")
    return parts


class _Query:
    """The parts of a query for one model in one dialect."""

    def __init__(self, model: AdditiveModel, quote: Dialect, table: list[str], name: str | None):
        self.model, self.quote, self.table, self.name = model, quote, table, name

    def names(self, output: str) -> list[str]:
        """The names of the added columns, none of which is that of a column of the training table."""
        name = self.name or output
        names = [name] if self.model.n_outputs == 1 else [f"{name}_{label}" for label in labels_of(self.model)]
        free = [free_name(own, self.model.feature_names_in_ or ()) for own in names]
        if self.name is not None and free != names:
            raise ValueError(
                f"name is {self.name!r}; the training table has a column of that name, so give another one"
            )
        return free

    def named(self, expressions: Sequence[str], names: Sequence[str]) -> list[str]:
        return [f"{text} AS {self.quote.name(name)}" for text, name in zip(expressions, names, strict=True)]

    def select(self, columns: Sequence[str]) -> str:
        listed = ",\n  ".join(["*", *columns])
        return f"SELECT {listed}\nFROM {'.'.join(map(self.quote.name, self.table))}"

    def softmax(self) -> str:
        """The probabilities of several classes, from their scores in an inner query."""
        if not self.table:
            raise ValueError(
                "output is 'probability' without a table; with several classes it needs one, because the "
                "probabilities are computed from the scores of an inner query"
            )
        inner = _Query(self.model, self.quote, self.table, None if self.name is None else f"{self.name}_score")
        names = inner.names("score")
        of_class = [f"scored.{self.quote.name(name)}" for name in names]
        one = self.quote.literal(1.0)
        shares = []
        for own in of_class:
            ratios = [one if other == own else self.exponential(f"{other} - {own}") for other in of_class]
            shares.append(f"{one} / ({' + '.join(ratios)})")
        listed = ",\n  ".join(["*", *self.named(shares, self.names("probability"))])
        return f"SELECT {listed}\nFROM (\n{inner.select(inner.named(inner.scores(), names))}\n) AS scored"

    def applied(self, score: str, output: str) -> str:
        """What the link makes of a score."""
        if output == "score" or self.model.loss.link == "identity":
            return score
        if output == "mean":
            return self.exponential(score)
        one = self.quote.literal(1.0)
        return f"{one} / ({one} + {self.exponential(f'-({score})')})"

    def exponential(self, exponent: str) -> str:
        low, high = map(self.quote.literal, (-MAX_EXPONENT, MAX_EXPONENT))
        return f"exp({self.quote.greatest}({self.quote.least}({exponent}, {high}), {low}))"

    def scores(self) -> list[str]:
        """The score of each output."""
        model, intercepts = self.model, np.atleast_1d(self.model.intercept)
        return [
            "\n  + ".join([self.quote.literal(intercept), *(self.case(term, c) for term in model.terms)])
            for c, intercept in enumerate(intercepts)
        ]

    def column(self, column: int) -> str:
        """The name of the column at an index of X."""
        name = self.quote.name(column_name(column, self.model.feature_names_in_))
        return f"{self.quote.name(self.table[-1])}.{name}" if self.quote.qualifies and self.table else name

    def case(self, term: AnyTerm, c: int) -> str:
        if isinstance(term, PairTerm):
            from rbr.model.pair_sql import pair_case

            return pair_case(term, c, self)
        quote, column = self.quote, self.column(term.feature)
        missing = 0.0 if term.missing_value is None else np.atleast_1d(term.missing_value)[c]
        whens = [f"WHEN {self.is_missing(term, column)} THEN {quote.literal(missing)}"]
        if term.kind == "numeric":
            steps = merged_steps(term)
            pieces = [_line(steps, k, c, column, quote) for k in range(len(steps.values))]
            # One class need not jump where another does; a step that changes nothing is left out.
            ends = [k for k in range(len(steps.edges)) if pieces[k] != pieces[k + 1]]
            whens += [f"WHEN {column} <= {quote.literal(steps.edges[k])} THEN {pieces[k]}" for k in ends]
            otherwise = pieces[-1]
        else:
            values = term.values.reshape(term.n_ordered, -1)[:, c]
            groups: dict[float, list] = {}
            for category, value in zip(term.categories or (), values, strict=False):
                groups.setdefault(float(value), []).append(category)
            for value, categories in groups.items():
                listed = ", ".join(category_literal(category, term, quote) for category in categories)
                whens.append(f"WHEN {column} IN ({listed}) THEN {quote.literal(value)}")
            otherwise = quote.literal(0.0)
        return "\n      ".join(["CASE", *whens, f"ELSE {otherwise}"]) + "\n    END"

    def is_missing(self, term: Term, column: str) -> str:
        """The test for a missing value: NULL, and NaN where a column of numbers can hold one."""
        of_numbers = term.kind == "numeric" or all(type(category) in (int, float) for category in term.categories or ())
        if self.quote.is_nan is None or not of_numbers:
            return f"{column} IS NULL"
        return f"{column} IS NULL OR {self.quote.is_nan(column)}"


def _line(steps: Steps, k: int, c: int, column: str, quote: Dialect) -> str:
    """What piece k adds to the score of class c: a number, or value + slope * (x - anchor)."""
    value, slope = steps.values[k, c], steps.slopes[k, c]
    if slope == 0:
        return quote.literal(value)
    return f"{quote.literal(value)} + {quote.literal(slope)} * ({column} - {quote.literal(steps.anchors[k])})"


def category_literal(category: Any, term: AnyTerm, quote: Dialect) -> str:
    """A category as a literal."""
    if isinstance(category, str):
        if "\0" in category:
            raise ValueError(f"term {term.name!r} has the category {category!r}; SQL text cannot hold a zero byte")
        return quote.text(category)
    if isinstance(category, bool):
        return "TRUE" if category else "FALSE"
    if isinstance(category, int):
        return str(category)
    if isinstance(category, float) and np.isfinite(category):
        return quote.literal(category)
    raise ValueError(f"term {term.name!r} has the category {category!r}; SQL needs text, finite numbers or bool")
