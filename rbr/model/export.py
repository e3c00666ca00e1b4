"""A model in other languages: SQL, a scorecard, ONNX.

SQL and ONNX use the merged steps of rbr.model.scoring and add the terms in the same order, so a database that reads
doubles exactly gives the same bits as `decision_function`, or nearly: it may round v + b * (x - x0) in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr.model.scoring import Steps, merged_steps
from rbr.model.terms import Term, column_name, import_pandas

if TYPE_CHECKING:
    from rbr.model import AdditiveModel


def _column(model: AdditiveModel, term: Term) -> str:
    """The name of the one column that a term looks at."""
    (column,) = term.columns
    return column_name(column, model.feature_names_in_)


# SQL ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dialect:
    """How a database quotes the name of a column or table, and text."""

    name: Callable[[str], str]
    text: Callable[[str], str]


def _doubled(mark: str) -> Callable[[str], str]:
    return lambda text: mark + text.replace(mark, mark + mark) + mark


def _escaped(mark: str) -> Callable[[str], str]:
    escapes = {"\\": "\\\\", mark: "\\" + mark, "\n": "\\n", "\r": "\\r"}
    return lambda text: mark + "".join(escapes.get(letter, letter) for letter in text) + mark


_STANDARD = Dialect(_doubled('"'), _doubled("'"))
DIALECTS = {
    "sqlite": _STANDARD,
    "postgres": _STANDARD,
    "duckdb": _STANDARD,
    "bigquery": Dialect(_escaped("`"), _escaped("'")),
}


def to_sql(model: AdditiveModel, table: str | Sequence[str] | None, dialect: str) -> str:
    """See `AdditiveModel.to_sql`."""
    if dialect not in DIALECTS:
        raise ValueError(f"dialect is {dialect!r}; it must be one of {', '.join(map(repr, DIALECTS))}")
    quote = DIALECTS[dialect]
    scores = [_score(model, c, quote) for c in range(model.n_outputs)]
    if model.n_outputs == 1:
        columns = [f"{scores[0]} AS {quote.name('score')}"]
    else:
        names = range(model.n_outputs) if model.classes is None else model.classes.tolist()
        columns = [f"{s} AS {quote.name(f'score_{name}')}" for s, name in zip(scores, names, strict=True)]
    if table is None:
        return scores[0] if model.n_outputs == 1 else ",\n  ".join(columns)
    parts = [table] if isinstance(table, str) else list(table)
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise ValueError(f"table is {table!r}; it must be a name, or a schema and a name")
    listed = ",\n  ".join(["*", *columns])
    return f"SELECT {listed}\nFROM {'.'.join(map(quote.name, parts))}"


def _score(model: AdditiveModel, c: int, quote: Dialect) -> str:
    cases = [_case(term, quote.name(_column(model, term)), c, quote) for term in model.terms]
    return "\n  + ".join([_number(np.atleast_1d(model.intercept)[c]), *cases])


def _number(value: float) -> str:
    """A literal that is a double in every dialect, with all the digits of this one."""
    digits = repr(float(value))
    return digits if "e" in digits else f"{digits}e0"


def _case(term: Term, column: str, c: int, quote: Dialect) -> str:
    missing = 0.0 if term.missing_value is None else np.atleast_1d(term.missing_value)[c]
    whens = [f"WHEN {column} IS NULL THEN {_number(missing)}"]
    if term.kind == "numeric":
        steps = merged_steps(term)
        pieces = [_line(steps, k, c, column) for k in range(len(steps.values))]
        # One class need not jump where another does; a step that changes nothing is left out.
        ends = [k for k in range(len(steps.edges)) if pieces[k] != pieces[k + 1]]
        whens += [f"WHEN {column} <= {_number(steps.edges[k])} THEN {pieces[k]}" for k in ends]
        otherwise = pieces[-1]
    else:
        groups: dict[float, list] = {}
        for category, value in zip(term.categories or (), term.values.reshape(term.n_ordered, -1)[:, c], strict=False):
            groups.setdefault(float(value), []).append(category)
        for value, categories in groups.items():
            listed = ", ".join(_literal(category, term, quote) for category in categories)
            whens.append(f"WHEN {column} IN ({listed}) THEN {_number(value)}")
        otherwise = _number(0.0)
    return f"CASE {' '.join(whens)} ELSE {otherwise} END"


def _line(steps: Steps, k: int, c: int, column: str) -> str:
    """What piece k adds to the score of class c: a number, or value + slope * (x - anchor)."""
    value, slope = steps.values[k, c], steps.slopes[k, c]
    if slope == 0:
        return _number(value)
    return f"{_number(value)} + {_number(slope)} * ({column} - {_number(steps.anchors[k])})"


def _literal(category: Any, term: Term, quote: Dialect) -> str:
    if isinstance(category, str):
        if "\0" in category:
            raise ValueError(f"term {term.name!r} has the category {category!r}; SQL text cannot hold a zero byte")
        return quote.text(category)
    if isinstance(category, bool):
        return "TRUE" if category else "FALSE"
    if isinstance(category, int):
        return str(category)
    if isinstance(category, float) and np.isfinite(category):
        return _number(category)
    raise ValueError(f"term {term.name!r} has the category {category!r}; SQL needs text, finite numbers or bool")


# A scorecard ----------------------------------------------------------------------------------------------


def to_frame(model: AdditiveModel):
    """See `AdditiveModel.to_frame`."""
    pandas = import_pandas("to_frame")
    classes = None if model.n_outputs == 1 else range(model.n_outputs) if model.classes is None else model.classes
    rows = [_row("intercept", "", model.intercept, model.intercept, 1.0, classes)]
    for term in model.terms:
        for piece in term.pieces:
            rows.append(_row(term.name, piece.text, *piece.ends, piece.weight, classes))
        if term.missing_value is not None:
            value = term.missing_value
            rows.append(_row(term.name, "missing", value, value, float(term.weights[-1]), classes))
    return pandas.DataFrame(rows)


def _row(feature: str, text: str, first: Any, last: Any, share: float, classes: Iterable | None) -> dict:
    row: dict[str, Any] = {"feature": feature, "range": text}
    for name, value in (("points", first), ("points_end", last)):
        if classes is None:
            row[name] = float(value)
        else:
            row.update({f"{name}_{label}": float(v) for label, v in zip(classes, value, strict=True)})
    return {**row, "share": share}


# ONNX -----------------------------------------------------------------------------------------------------

_OPSET, _ML_OPSET, _IR_VERSION = 13, 2, 8
_LINKS = {"identity": "Identity", "log": "Exp", "logit": "Sigmoid", "softmax": "Softmax"}


def to_onnx(model: AdditiveModel, path: Any):
    """See `AdditiveModel.to_onnx`."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError('to_onnx needs the package onnx: pip install "rbr[onnx]"') from error
    graph = _Graph(onnx)
    score = graph.constant(np.reshape(model.intercept, (1, -1)))
    for term in model.terms:
        score = graph.add("Add", [score, graph.term(term, _column(model, term))])
    if not model.terms:
        raise ValueError("the model has no terms, so an ONNX graph of it would have no input")
    graph.output("score", score, onnx.TensorProto.DOUBLE, model.n_outputs)
    if model.classes is None:
        prediction = graph.add(_LINKS[model.loss.link], [score])
        graph.output("prediction", prediction, onnx.TensorProto.DOUBLE, model.n_outputs)
    else:
        graph.add_classes(model.classes.tolist(), model.n_outputs, score)
    proto = graph.finish("additive_model")
    if path is not None:
        Path(path).write_bytes(proto.SerializeToString())
    return proto


class _Graph:
    """An ONNX graph as it grows: nodes, constants, inputs, outputs."""

    def __init__(self, onnx):
        self.onnx, self.helper = onnx, onnx.helper
        self.nodes: list = []
        self.constants: list = []
        self.inputs: list = []
        self.outputs: list = []

    def add(self, op: str, inputs: Sequence[str], **attributes) -> str:
        out = f"/{op}_{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(op, list(inputs), [out], **attributes))
        return out

    def constant(self, array: Any) -> str:
        name = f"/constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def input(self, name: str, dtype: int) -> str:
        self.inputs.append(self.helper.make_tensor_value_info(name, dtype, ["n_rows", 1]))
        return name

    def output(self, name: str, value: str, dtype: int, width: int | None) -> None:
        self.nodes.append(self.helper.make_node("Identity", [value], [name]))
        shape = ["n_rows"] if width is None else ["n_rows", width]
        self.outputs.append(self.helper.make_tensor_value_info(name, dtype, shape))

    def term(self, term: Term, column: str) -> str:
        """What the term adds, of shape (n_rows, n_outputs); its input has the name of the column."""
        TensorProto = self.onnx.TensorProto
        if term.kind == "numeric":
            x = self.input(column, TensorProto.DOUBLE)
            steps = merged_steps(term)
            below = self.add("Cast", [self.add("Less", [self.constant(steps.edges[None]), x])], to=TensorProto.INT64)
            code = self.add("ReduceSum", [below, self.constant(np.array([1]))], keepdims=0)
            table = np.concatenate([steps.values, steps.missing[None]])
            code = self.where_nan(x, len(table) - 1, code)
            if steps.slopes.any():
                return self.add(
                    "Add", [self.add("Gather", [self.constant(table), code], axis=0), self.rise(steps, x, code)]
                )
        else:
            values = term.values.reshape(term.n_ordered, -1)
            nothing = np.zeros((1, values.shape[1]))
            missing = nothing if term.missing_value is None else np.reshape(term.missing_value, (1, -1))
            table = np.concatenate([values, nothing, missing])
            code = self.category_code(term, column, len(table) - 2)
        return self.add("Gather", [self.constant(table), code], axis=0)

    def rise(self, steps: Steps, x: str, code: str) -> str:
        """slope * (x - anchor) of the piece, and 0 in a constant one, whatever x is."""
        slopes = np.concatenate([steps.slopes, np.zeros_like(steps.missing[None])])
        anchors = np.append(steps.anchors, 0.0)[:, None]
        slope, anchor = (self.add("Gather", [self.constant(a), code], axis=0) for a in (slopes, anchors))
        rise = self.add("Mul", [slope, self.add("Sub", [x, anchor])])
        is_constant = self.add("Equal", [slope, self.constant(np.zeros((1, 1)))])
        return self.add("Where", [is_constant, self.constant(np.zeros((1, 1))), rise])

    def where_nan(self, x: str, code_of_nan: int, code: str) -> str:
        is_nan = self.add("Squeeze", [self.add("IsNaN", [x]), self.constant(np.array([1]))])
        return self.add("Where", [is_nan, self.constant(np.array(code_of_nan)), code])

    def category_code(self, term: Term, column: str, unknown: int) -> str:
        """The bin of a category; `unknown` for an unknown one, `unknown + 1` for a missing one."""
        TensorProto = self.onnx.TensorProto
        categories = term.categories or ()
        index = {category: k for k, category in enumerate(categories)}
        if all(isinstance(category, str) for category in categories):
            x = self.input(column, TensorProto.STRING)
            index.setdefault("", unknown + 1)
            code = self.add(
                "LabelEncoder",
                [x],
                domain="ai.onnx.ml",
                keys_strings=list(index),
                values_int64s=list(index.values()),
                default_int64=unknown,
            )
            return self.add("Squeeze", [code, self.constant(np.array([1]))])
        if any(isinstance(category, str) or float(category) != category for category in categories):
            raise ValueError(f"term {term.name!r} has categories of more than one kind; ONNX needs text or numbers")
        x = self.input(column, TensorProto.DOUBLE)
        equal = self.add("Equal", [self.constant(np.array([categories], dtype=np.float64)), x])
        # At most one category is equal: the sum over the hits of (unknown - bin) is that of the one hit, or 0.
        distances = self.constant(np.array([unknown - k for k in range(len(categories))]))
        hits = self.add("Mul", [self.add("Cast", [equal], to=TensorProto.INT64), distances])
        distance = self.add("ReduceSum", [hits, self.constant(np.array([1]))], keepdims=0)
        return self.where_nan(x, unknown + 1, self.add("Sub", [self.constant(np.array(unknown)), distance]))

    def add_classes(self, labels: list, n_outputs: int, score: str) -> None:
        TensorProto = self.onnx.TensorProto
        if n_outputs == 1:
            both = [self.add("Sigmoid", [self.add("Neg", [score])]), self.add("Sigmoid", [score])]
            probabilities = self.add("Concat", both, axis=1)
            above = self.add("Greater", [score, self.constant(np.zeros((1, 1)))])
            code = self.add("Squeeze", [self.add("Cast", [above], to=TensorProto.INT64), self.constant(np.array([1]))])
        else:
            probabilities = self.add("Softmax", [score], axis=1)
            code = self.add("ArgMax", [score], axis=1, keepdims=0)
        self.output("probabilities", probabilities, TensorProto.DOUBLE, len(labels))
        if all(isinstance(label, str) for label in labels):
            keys = {"keys_int64s": list(range(len(labels))), "values_strings": labels, "default_string": ""}
            label, dtype = self.add("LabelEncoder", [code], domain="ai.onnx.ml", **keys), TensorProto.STRING
        else:
            are_ints = all(type(label) is int and abs(label) < 2**63 for label in labels)
            table = np.array(labels if are_ints else range(len(labels)), dtype=np.int64)
            label, dtype = self.add("Gather", [self.constant(table), code], axis=0), TensorProto.INT64
        self.output("label", label, dtype, None)

    def finish(self, name: str):
        graph = self.helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.constants)
        opsets = [self.helper.make_opsetid("", _OPSET), self.helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
        proto = self.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="rbr")
        self.onnx.checker.check_model(proto)
        return proto
