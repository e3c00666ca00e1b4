"""The losses by name."""

from __future__ import annotations

from dataclasses import fields

from rbr.losses.base import Loss
from rbr.losses.classes import LogLoss, Multinomial
from rbr.losses.identity import Huber, Quantile, SquaredError
from rbr.losses.log_link import Gamma, Poisson, Tweedie

_CLASSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (SquaredError, LogLoss, Multinomial, Poisson, Gamma, Tweedie, Huber, Quantile)
}

#: The names of all losses.
LOSSES = tuple(_CLASSES)

#: The paper's names, accepted everywhere.
ALIASES = {"squared": "squared_error", "logistic": "log_loss"}


def register(cls: type[Loss]) -> type[Loss]:
    """Add a loss, which `solve`, the estimators and model files then take by its name; a class decorator.

    The class is a frozen dataclass, a subclass of `Loss`; its fields are its parameters.
    """
    if not (isinstance(cls, type) and issubclass(cls, Loss)):
        raise TypeError(f"cls is {cls!r}; it must be a subclass of rbr.losses.Loss")
    if cls.name in _CLASSES or cls.name in ALIASES:
        raise ValueError(f"the name of the loss is {cls.name!r}; there is a loss of that name already")
    _CLASSES[cls.name] = cls
    return cls


def unregister(name: str) -> None:
    """Remove a loss that was registered, as tests do."""
    if name in LOSSES or name not in _CLASSES:
        raise ValueError(f"name is {name!r}; only a loss that was registered can be removed")
    del _CLASSES[name]


def get_loss(loss: str | Loss, **params) -> Loss:
    """The loss of a name, with its parameters; a loss object is returned as it is.

    Parameters
    ----------
    loss : str or Loss
        A name in `LOSSES`, "squared" or "logistic", or a loss object.
    **params
        `power` (tweedie), `delta` (huber), `level`, `smoothing`, `half_width` (quantile), `n_classes`
        (multinomial).

    Examples
    --------
    >>> get_loss("logistic")
    LogLoss()
    >>> get_loss("tweedie", power=1.2)
    Tweedie(power=1.2)
    >>> get_loss("hinge")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: loss is 'hinge'; it must be one of 'squared_error', 'log_loss', ...
    """
    if isinstance(loss, Loss):
        if params:
            raise ValueError(f"loss is an object, {loss!r}, and has its parameters; {sorted(params)} cannot be given")
        return loss
    name = ALIASES.get(loss, loss) if isinstance(loss, str) else loss
    if not isinstance(name, str) or name not in _CLASSES:
        raise ValueError(f"loss is {loss!r}; it must be one of {', '.join(map(repr, (*_CLASSES, *ALIASES)))}")
    cls = _CLASSES[name]
    allowed = [field.name for field in fields(cls)]
    for parameter in params:
        if parameter not in allowed:
            takes = ", ".join(allowed) if allowed else "no parameters"
            raise ValueError(f"loss '{name}' has no parameter {parameter!r}; it takes {takes}")
    return cls(**params)
