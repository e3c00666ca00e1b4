"""A model as an ONNX graph: the merged steps of rbr.model.scoring, added in the order of `decision_function`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rbr._text import free_name
from rbr.model.pair_scoring import padded_grid
from rbr.model.pairs import AnyTerm, Axis, PairTerm
from rbr.model.scoring import Steps, merged_steps
from rbr.model.terms import column_name

if TYPE_CHECKING:
    from rbr.model import AdditiveModel

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
        names = [column_name(column, model.feature_names_in_) for column in term.columns]
        score = graph.add("Add", [score, graph.term(term, names)])
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
        """The input with the name of a column; terms of the same column share it."""
        known = next((own for own in self.inputs if own.name == name), None)
        if known is None:
            self.inputs.append(self.helper.make_tensor_value_info(name, dtype, ["n_rows", 1]))
        elif known.type.tensor_type.elem_type != dtype:
            raise ValueError(f"column {name!r} is text in one term and a number in another; ONNX needs one type")
        return name

    def output(self, name: str, value: str, dtype: int, width: int | None) -> None:
        # Inputs and outputs share their names, and inputs have those of the columns.
        name = free_name(name, [own.name for own in self.inputs])
        self.nodes.append(self.helper.make_node("Identity", [value], [name]))
        shape = ["n_rows"] if width is None else ["n_rows", width]
        self.outputs.append(self.helper.make_tensor_value_info(name, dtype, shape))

    def term(self, term: AnyTerm, names: Sequence[str]) -> str:
        """What the term adds, of shape (n_rows, n_outputs); its inputs have the names of the columns."""
        if isinstance(term, PairTerm):
            return self.pair(term, names)
        (column,) = names
        if term.kind == "numeric":
            x = self.input(column, self.onnx.TensorProto.DOUBLE)
            steps = merged_steps(term)
            table = np.concatenate([steps.values, steps.missing[None]])
            code = self.number_code(x, steps.edges)
            if steps.slopes.any():
                return self.add(
                    "Add", [self.add("Gather", [self.constant(table), code], axis=0), self.rise(steps, x, code)]
                )
        else:
            values = term.values.reshape(term.n_ordered, -1)
            nothing = np.zeros((1, values.shape[1]))
            missing = nothing if term.missing_value is None else np.reshape(term.missing_value, (1, -1))
            table = np.concatenate([values, nothing, missing])
            index = {category: k for k, category in enumerate(term.categories or ())}
            code = self.category_code(index, term.name, column, len(table) - 2)
        return self.add("Gather", [self.constant(table), code], axis=0)

    def pair(self, term: PairTerm, names: Sequence[str]) -> str:
        """What a term of two columns adds: a look-up of the cell, from the bins of both axes."""
        first, second = (self.axis_code(axis, name, term.name) for axis, name in zip(term.axes, names, strict=True))
        n_second = self.constant(np.array(term.axes[1].n_ordered + 2))
        cell = self.add("Add", [self.add("Mul", [first, n_second]), second])
        return self.add("Gather", [self.constant(padded_grid(term)), cell], axis=0)

    def axis_code(self, axis: Axis, column: str, owner: str) -> str:
        if axis.groups is None:
            return self.number_code(self.input(column, self.onnx.TensorProto.DOUBLE), axis.edges)
        index = {level: k for k, group in enumerate(axis.groups) for level in group}
        return self.category_code(index, owner, column, axis.n_ordered + 1, axis.n_ordered)

    def number_code(self, x: str, edges: np.ndarray) -> str:
        """The bin of a number between edges; len(edges) + 1 for NaN."""
        below = self.add("Cast", [self.add("Less", [self.constant(edges[None]), x])], to=self.onnx.TensorProto.INT64)
        code = self.add("ReduceSum", [below, self.constant(np.array([1]))], keepdims=0)
        return self.where_nan(x, len(edges) + 1, code)

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

    def category_code(
        self, index: dict[Any, int], owner: str, column: str, unknown: int, missing: int | None = None
    ) -> str:
        """The bin of a category; `unknown` for an unknown one, and `missing`, or unknown + 1, for a missing one."""
        TensorProto = self.onnx.TensorProto
        missing = unknown + 1 if missing is None else missing
        categories = list(index)
        if all(isinstance(category, str) for category in categories):
            x = self.input(column, TensorProto.STRING)
            index.setdefault("", missing)
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
            raise ValueError(f"term {owner!r} has categories of more than one kind; ONNX needs text or numbers")
        x = self.input(column, TensorProto.DOUBLE)
        equal = self.add("Equal", [self.constant(np.array([categories], dtype=np.float64)), x])
        # At most one category is equal: the sum over the hits of (unknown - bin) is that of the one hit, or 0.
        distances = self.constant(np.array([unknown - k for k in index.values()]))
        hits = self.add("Mul", [self.add("Cast", [equal], to=TensorProto.INT64), distances])
        distance = self.add("ReduceSum", [hits, self.constant(np.array([1]))], keepdims=0)
        return self.where_nan(x, missing, self.add("Sub", [self.constant(np.array(unknown)), distance]))

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
