"""Model files: versioned JSON that holds all of a model and no code.

Numbers are written so that they read back to the last bit (Python's repr); those that JSON cannot write are "NaN",
"Infinity" or "-Infinity". rbr writes a checksum of the content: a file that was cut short or changed is refused. One
without a checksum was written by a person or another program, and is read like any other: every field is checked as it
is read, so that a model that loads can also predict. Optional fields, such as the user's metadata, may be absent.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Set
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from rbr._files import whole_file
from rbr.losses import get_loss
from rbr.model import AdditiveModel
from rbr.model.pairs import AnyTerm, PairTerm
from rbr.model.terms import Term

FORMAT = "rbr-model"
VERSION = 5

_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_CLASS_KINDS = "biufUO"


def load(path: str | os.PathLike) -> AdditiveModel:
    """Read a model that `AdditiveModel.save` wrote.

    Loading runs no code from the file. Files written by earlier versions load as the same model. A file that was cut
    short or changed, that is not a model, or that a later version wrote gives a ValueError that names the file and the
    problem. Whoever edits a file by hand removes its "checksum", and vouches for the content.

    Parameters
    ----------
    path : path of the file

    Examples
    --------
    >>> import rbr
    >>> rbr.load("model.json")
    Traceback (most recent call last):
        ...
    FileNotFoundError: [Errno 2] No such file or directory: 'model.json'
    """
    data = Path(path).read_bytes()
    try:
        return _from_bytes(data)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r} cannot be loaded: {error}") from error


def save(model: AdditiveModel, path: str | os.PathLike) -> None:
    """Write the model as JSON with its checksum."""
    content = model_to_dict(model)
    content["checksum"] = _checksum(content)
    write_whole(path, json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False).encode())


def write_whole(path: str | os.PathLike, data: bytes) -> None:
    """Write a file whole or not at all."""
    with whole_file(path) as temporary:
        temporary.write_bytes(data)


def _from_bytes(data: bytes) -> AdditiveModel:
    try:
        content = json.loads(data.decode(), parse_constant=_refuse_constant)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON, or was cut short ({error})") from error
    _check_format(content)
    if "checksum" in content and content.pop("checksum") != _checksum(content):
        raise ValueError(
            "its checksum does not fit its content: the file was changed or damaged (if you have changed it yourself, "
            "remove the checksum)"
        )
    return model_from_dict(content)


def _refuse_constant(name: str):
    raise ValueError(f"it holds the bare number {name}, which rbr never writes")


def _checksum(content: dict) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


# Out ------------------------------------------------------------------------------------------------------


def model_to_dict(model: AdditiveModel) -> dict:
    """Plain Python values, from which `model_from_dict` makes an equal model."""
    import rbr

    loss = {f.name: _plain(getattr(model.loss, f.name)) for f in fields(model.loss)}
    names = model.feature_names_in_
    return {
        "format": FORMAT,
        "version": VERSION,
        "rbr_version": rbr.__version__,
        "metadata": _metadata_out(model.metadata, "metadata"),
        "loss": {"name": model.loss.name, "parameters": loss},
        "target": model.target,
        "classes": None if model.classes is None else _classes_out(model.classes),
        "n_features_in": model.n_features_in_,
        "feature_names_in": None if names is None else list(names),
        "training_loss": number_out(model.training_loss),
        "intercept": numbers_out(model.intercept),
        "terms": [_term_out(term) for term in model.terms],
    }


def _term_out(term: AnyTerm) -> dict:
    if isinstance(term, PairTerm):
        from rbr.model.pair_file import pair_out

        return pair_out(term)
    return {
        "name": term.name,
        "columns": list(term.columns),
        "kind": term.kind,
        "edges": numbers_out(term.edges),
        "categories": None if term.categories is None else [category_out(c, term) for c in term.categories],
        "values": numbers_out(term.values),
        "missing_value": None if term.missing_value is None else numbers_out(term.missing_value),
        "weights": numbers_out(term.weights),
        "counts": numbers_out(term.counts),
        "positions": numbers_out(term.positions),
        "labels": term.labels.tolist(),
        "grouped": term.grouped,
        "loss_drop": number_out(term.loss_drop),
        "jump_facts": numbers_out(term.jump_facts),
        "slopes": numbers_out(term.slopes),
        "bounds": numbers_out(term.bounds),
        "target_sums": numbers_out(term.target_sums),
        "exposures": numbers_out(term.exposures),
    }


def _metadata_out(value: Any, where: str) -> Any:
    """A copy of the user's metadata, of values that JSON gives back as they are (but tuples, as lists)."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{where} has the key {key!r}; keys must be text")
        return {key: _metadata_out(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_metadata_out(item, f"{where}[{k}]") for k, item in enumerate(value)]
    value = _plain(value)
    if value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ValueError(
        f"{where} is {value!r:.60} of type {type(value).__name__}; a file can hold text, finite numbers, bool, None, "
        f"and lists and dicts of these"
    )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def number_out(value: float) -> float | str:
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def numbers_out(values: Any) -> Any:
    if np.ndim(values) == 0:
        return number_out(values)
    return [numbers_out(value) for value in values]


def category_out(category: Any, term: AnyTerm) -> Any:
    if isinstance(category, float) and not math.isfinite(category):
        return {"number": number_out(category)}
    if isinstance(category, (str, bool, int, float)):
        return category
    raise ValueError(
        f"term {term.name!r} has the category {category!r} of type {type(category).__name__}; "
        "a file can hold categories that are text, numbers or bool"
    )


def _classes_out(classes: np.ndarray) -> dict:
    values = classes.tolist()
    if classes.dtype.kind not in _CLASS_KINDS or not all(isinstance(v, (str, bool, int, float)) for v in values):
        raise ValueError(f"classes are {values[:3]}… of dtype {classes.dtype}; a file can hold text, numbers and bool")
    if classes.dtype.kind == "f":
        values = numbers_out(classes)
    return {"dtype": "object" if classes.dtype.kind == "O" else classes.dtype.str, "values": values}


# In -------------------------------------------------------------------------------------------------------


def model_from_dict(content: dict) -> AdditiveModel:
    """The model of a dict, or a ValueError that says what is wrong with it."""
    _check_format(content)
    content = _upgraded(content)
    fields_of_model = Fields(content, "the model", extra={"format", "version"})
    fields_of_loss = Fields(fields_of_model.get("loss", dict), "loss")
    name, parameters = fields_of_loss.get("name", str), fields_of_loss.get("parameters", dict)
    fields_of_loss.done()
    try:
        loss = get_loss(name, **parameters)
    except TypeError as error:
        raise ValueError(f"loss has parameters {parameters!r}: {error}") from error
    names = fields_of_model.get("feature_names_in", list, None)
    if names is not None and not all(isinstance(n, str) for n in names):
        raise ValueError("feature_names_in must be a list of text")
    classes = fields_of_model.get("classes", dict, None)
    model = AdditiveModel(
        terms=tuple(_term_in(item, k) for k, item in enumerate(fields_of_model.get("terms", list))),
        intercept=fields_of_model.numbers("intercept", (0, 1)),
        loss=loss,
        classes=None if classes is None else _classes_in(classes),
        target=fields_of_model.get("target", str, None),
        n_features_in_=fields_of_model.integer("n_features_in"),
        feature_names_in_=None if names is None else tuple(names),
        training_loss=fields_of_model.numbers("training_loss", (0,)),
        metadata=fields_of_model.get("metadata", dict, optional=True) or {},
    )
    fields_of_model.get("rbr_version", str, optional=True)  # for people and bug reports
    fields_of_model.done()
    return model


def _check_format(content: Any) -> None:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"it is not an rbr model: it must be an object with the format {FORMAT!r}")
    version = content.get("version")
    if type(version) is not int or version < 1:
        raise ValueError(f"version is {version!r}; it must be a positive integer")
    if version > VERSION:
        raise ValueError(f"it has version {version}, and this rbr reads up to {VERSION}; a newer rbr wrote it")


def _upgraded(content: dict) -> dict:
    """The content of a file of an earlier version, converted to this one. Only terms have ever changed."""
    for version in range(content["version"], VERSION):
        terms = content.get("terms")
        if isinstance(terms, list):  # anything else is refused where terms are read
            terms = [_UPGRADES[version](item, f"term {k}") for k, item in enumerate(terms)]
            content = {**content, "terms": terms}
        content = {**content, "version": version + 1}
    return content


def _from_1_to_2(item: Any, where: str) -> dict:
    """In version 1 a term had one column, called "feature"."""
    feature = Fields(item, where).integer("feature")
    if "columns" in item:
        raise ValueError(f"{where} has the unknown field 'columns'")
    return {"columns": [feature], **{name: value for name, value in item.items() if name != "feature"}}


def _from_2_to_3(item: Any, where: str) -> dict:
    """Up to version 2 lines were staircases, with one step per bin."""
    values = Fields(item, where).numbers("values", (1, 2))
    for name in ("slopes", "bounds"):
        if name in item:
            raise ValueError(f"{where} has the unknown field {name!r}")
    return {**item, "slopes": np.zeros_like(values).tolist(), "bounds": [["-Infinity", "Infinity"]] * len(values)}


def _from_3_to_4(item: Any, where: str) -> dict:
    """Up to version 3 a term did not say what was observed in its bins."""
    item = Fields(item, where).content
    for name in ("target_sums", "exposures"):
        if name in item:
            raise ValueError(f"{where} has the unknown field {name!r}")
    return {**item, "target_sums": [], "exposures": []}


def _from_4_to_5(item: Any, where: str) -> dict:
    """Up to version 4 no term had two columns."""
    item = Fields(item, where).content
    if item.get("kind") == "pair":
        raise ValueError(f"{where}: kind is 'pair', which files have from version 5 on")
    return item


# By version: the function that converts a term to the next version.
_UPGRADES = {1: _from_1_to_2, 2: _from_2_to_3, 3: _from_3_to_4, 4: _from_4_to_5}


def _term_in(item: Any, k: int) -> AnyTerm:
    where = f"term {k}"
    given = Fields(item, where)
    if given.content.get("kind") == "pair":
        from rbr.model.pair_file import pair_in

        return pair_in(given)
    columns = given.get("columns", list)
    if not all(type(column) is int for column in columns):
        raise ValueError(f"{where}: columns is {columns!r:.60}; it must be a list of integers")
    categories = given.get("categories", list, None)
    labels = given.get("labels", list)
    if not all(type(label) is int and 0 <= label < 2**31 for label in labels):
        raise ValueError(f"{where}: labels must be integers of at least 0")
    facts = given.numbers("jump_facts", (1, 2))
    if facts.size and (facts.ndim != 2 or facts.shape[1] != 5):
        raise ValueError(f"{where}: jump_facts has shape {facts.shape}; it must have 5 columns")
    missing_value = given.get("missing_value", (int, float, list), None)
    term = Term(
        name=given.get("name", str),
        columns=tuple(columns),
        kind=given.get("kind", str),
        edges=given.numbers("edges", (1,)),
        categories=None if categories is None else tuple(category_in(c, where) for c in categories),
        values=given.numbers("values", (1, 2)),
        missing_value=None if missing_value is None else given.numbers("missing_value", (0, 1)),
        weights=given.numbers("weights", (1,)),
        counts=given.numbers("counts", (1,)),
        positions=given.numbers("positions", (1,)),
        labels=np.array(labels, dtype=np.int32),
        grouped=given.get("grouped", bool),
        loss_drop=given.numbers("loss_drop", (0,)),
        jump_facts=facts,
        slopes=given.numbers("slopes", (1, 2)),
        bounds=given.numbers("bounds", (2,)),
        target_sums=given.numbers("target_sums", (1, 2)),
        exposures=given.numbers("exposures", (1,)),
    )
    edges = term.jump_facts[:, 1:4]
    if edges.size and not ((edges >= 0) & (edges < len(term.edges)) & (edges == np.floor(edges))).all():
        raise ValueError(f"{where}: jump_facts names an edge that the term does not have")
    given.done()
    return term


def category_in(category: Any, where: str) -> Any:
    if isinstance(category, dict) and set(category) == {"number"} and category["number"] in ("Infinity", "-Infinity"):
        return _NOT_FINITE[category["number"]]
    if not isinstance(category, (str, bool, int, float)):
        raise ValueError(f"{where}: {category!r} is no category; it must be text, a number or bool")
    return category


def _classes_in(content: dict) -> np.ndarray:
    given = Fields(content, "classes")
    name, values = given.get("dtype", str), given.get("values", list)
    given.done()
    try:
        dtype = np.dtype(name)
    except TypeError:
        raise ValueError(f"classes: dtype is {name!r}, which is not a NumPy dtype") from None
    if dtype.kind not in _CLASS_KINDS or not all(isinstance(v, (str, bool, int, float)) for v in values):
        raise ValueError(f"classes: dtype is {name!r}; classes must be text, numbers or bool")
    if dtype.kind == "O":
        classes = np.empty(len(values), dtype=object)
        classes[:] = values
        return classes
    wanted = {"b": bool, "U": str, "i": int, "u": int}.get(dtype.kind)
    if wanted is not None and not all(type(v) is wanted for v in values):
        raise ValueError(f"classes: they must all be {wanted.__name__} for the dtype {name!r}")
    try:
        return _numbers_in(values, "classes").astype(dtype) if dtype.kind == "f" else np.array(values, dtype=dtype)
    except OverflowError as error:
        raise ValueError(f"classes: {error}") from None


class Fields:
    """A JSON object whose fields are taken one by one, each with the type it must have."""

    def __init__(self, content: Any, where: str, extra: Set[str] = frozenset()):
        if not isinstance(content, dict):
            raise ValueError(f"{where} is {type(content).__name__}; it must be an object")
        self.content, self.where, self.taken = content, where, set(extra)

    def has(self, name: str, optional: bool) -> bool:
        """Whether the field is there; one that is not optional must be."""
        self.taken.add(name)
        if name not in self.content and not optional:
            raise ValueError(f"{self.where} has no {name!r}")
        return name in self.content

    def get(self, name: str, types: type | tuple[type, ...], *default: None, optional: bool = False) -> Any:
        """The value of a field; None for null with a `default`, and for an `optional` field that is absent."""
        if not self.has(name, optional):
            return None
        value = self.content[name]
        if value is None and (default or optional):
            return None
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise ValueError(f"{self.where}: {name} is {value!r:.60}, of the wrong type {type(value).__name__}")
        return value

    def integer(self, name: str) -> int:
        return self.get(name, int)

    def numbers(self, name: str, n_axes: tuple[int, ...], optional: bool = False) -> Any:
        """The numbers of a field with as many axes as `n_axes` allows; None for an `optional` field that is absent."""
        if not self.has(name, optional):
            return None
        array = _numbers_in(self.content[name], f"{self.where}: {name}")
        if array.ndim not in n_axes:
            raise ValueError(f"{self.where}: {name} has shape {array.shape}; the wrong number of axes")
        return float(array) if array.ndim == 0 else array

    def done(self) -> None:
        unknown = sorted(set(self.content) - self.taken, key=str)
        if unknown:
            raise ValueError(f"{self.where} has the unknown field {unknown[0]!r}")


def _numbers_in(values: Any, where: str) -> np.ndarray:
    """An array from a number or nested lists, with the keys of _NOT_FINITE for numbers that are not finite."""

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(item) for item in value]
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{where} holds {value!r:.60}; it must hold numbers")
        return value

    try:
        return np.array(number(values), dtype=np.float64)
    except (OverflowError, ValueError) as error:
        raise ValueError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
