"""Options of `rbr fit` that name columns, or give a value to some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rbr.cli.console import UsageError
from rbr.data.tables import few
from rbr.losses import LOSSES, Loss, get_loss

SIGNS = {"increasing": 1, "+1": 1, "1": 1, "decreasing": -1, "-1": -1}
LOSS_PARAMETERS = {"quantile": "level", "tweedie": "power", "huber": "delta"}
CLASS_LOSSES = ("log_loss", "multinomial")


def listed(given: Sequence[str], names: Sequence[str], option: str) -> list[str]:
    """Column names that may be separated by commas; a name that holds a comma is found too.

    >>> listed(["age,sex", "a,b"], ["age", "sex", "a,b"], "--exclude")
    ['age', 'sex', 'a,b']
    """
    found: list[str] = []
    for text in given:
        parts = [text] if text in names else [part.strip() for part in text.split(",") if part.strip()]
        if unknown := [part for part in parts if part not in names]:
            raise UsageError(f"{option} names {unknown[0]!r}; the columns are {few(names)}")
        found += parts
    return list(dict.fromkeys(found))


def by_column(
    given: Sequence[str], names: Sequence[str], option: str, parse: Callable[[str, str], Any]
) -> tuple[Any, dict[str, Any]]:
    """(value for all columns or None, {column: value}) of values such as "8" and "age=4".

    >>> by_column(["8", "age=4"], ["age", "sex"], "--max-segments", lambda text, option: int(text))
    (8, {'age': 4})
    """
    for_all, own = None, {}
    for text in given:
        column, sign, value = text.rpartition("=")
        if not sign:
            for_all = parse(value, option)
        elif column not in names:
            raise UsageError(f"{option} names {column!r}; the columns are {few(names)}")
        else:
            own[column] = parse(value, f"{option} of {column}")
    return for_all, own


def merged(for_all: Any, own: dict[str, Any], names: Sequence[str], default: Any) -> Any:
    """One value, or a dict with a value for each of the names."""
    if not own:
        return default if for_all is None else for_all
    return own if for_all is None else {name: own.get(name, for_all) for name in names}


def whole(text: str, option: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{option} is {text!r}; it must be a whole number") from None


def sign(text: str, option: str) -> int:
    if text not in SIGNS:
        raise UsageError(f"{option} is {text!r}; it must be increasing or decreasing")
    return SIGNS[text]


def as_is(text: str, option: str) -> str:
    return text


def pairs(text: str, names: Sequence[str]) -> Any:
    """A number of pairs, "auto", or the pairs "age:hours,sex:age".

    >>> pairs("3", []), pairs("auto", []), pairs("age:hours", ["age", "hours"])
    (3, 'auto', [('age', 'hours')])
    """
    if text == "auto":
        return text
    if text.isdecimal():
        return int(text)
    found = []
    for part in text.split(","):
        cuts = [k for k, c in enumerate(part) if c == ":" and part[:k] in names and part[k + 1 :] in names]
        if not cuts:
            raise UsageError(
                f"--interactions is {part!r}; it must be a number, auto, or pairs of columns as in age:hours"
            )
        found.append((part[: cuts[0]], part[cuts[0] + 1 :]))
    return found


def loss(text: str) -> Loss:
    """The loss of a text such as "poisson", "quantile:0.9" or "tweedie:1.5".

    >>> loss("tweedie:1.2")
    Tweedie(power=1.2)
    """
    name, _, value = text.partition(":")
    allowed = [own for own in LOSSES if own not in CLASS_LOSSES]
    if name not in allowed or (value and name not in LOSS_PARAMETERS):
        raise UsageError(
            f"--loss is {text!r}; it must be one of {', '.join(allowed)}, where "
            f"{', '.join(LOSS_PARAMETERS)} may have a parameter, as in quantile:0.9"
        )
    if not value:
        return get_loss(name)
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"--loss is {text!r}; {LOSS_PARAMETERS[name]} must be a number") from None
    return get_loss(name, **{LOSS_PARAMETERS[name]: number})
