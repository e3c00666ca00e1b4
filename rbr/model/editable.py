"""The methods of a model that edit it. Each returns another model; rbr.model.edits says what happens to a term.

Every edit that changes predictions is recorded in the model's metadata, so that a file says what was done by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from rbr.model import edits
from rbr.model.pairs import AnyTerm


class Editable:
    """Edits of an `AdditiveModel`."""

    if TYPE_CHECKING:
        terms: tuple[Any, ...]
        intercept: Any

        def _position(self, term: str | int) -> int: ...

    def _changed(self, **fields: Any) -> Self:
        return replace(cast(Any, self), **fields)

    def _edited(self, term: str | int, edit: Callable[..., AnyTerm], **arguments: Any) -> Self:
        t = self._position(term)
        changed = edit(self.terms[t], *arguments.values())
        if changed is self.terms[t]:
            return self
        edited = self._with_terms([changed if own is self.terms[t] else own for own in self.terms])
        n = len(self.terms[t].pieces)
        if "pieces" in arguments:
            arguments["pieces"] = sorted({int(piece) % n for piece in arguments["pieces"]})
        elif not isinstance(arguments.get("piece", ""), str):
            arguments["piece"] = int(arguments["piece"]) % n
        return with_edit(edited, {"edit": edit.__name__, "term": self.terms[t].name, **arguments})

    def _with_terms(self, terms: Sequence[AnyTerm]) -> Self:
        """The model with other terms; its training loss is then unknown."""
        return self._changed(terms=tuple(term.edited() for term in terms), training_loss=math.nan)

    def set_piece(self, term: str | int, piece: int | str, value: ArrayLike) -> Self:
        """A model with another value in one piece of a term.

        Parameters
        ----------
        term : str or int
            The name of the term, or its position in `terms`.
        piece : int or "missing"
            The position in the term's `pieces`, or "missing" for the value of missing values. A line becomes a
            constant. Missing values of a pair are among its rectangles.
        value : float, or one per class

        Returns
        -------
        AdditiveModel
            The mean of the term is no longer zero; `recentre` moves it into the intercept.
        """
        return self._edited(term, edits.set_piece, piece=piece, value=value)

    def set_rectangle(self, term: str | int, rectangle: int, value: ArrayLike) -> Self:
        """A model with another value in one rectangle of a pair: `set_piece` for a term of two columns.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr.losses import get_loss
        >>> from rbr.model import AdditiveModel, Axis, PairTerm
        >>> axes = Axis(0, "age", [30.0], None, False), Axis(1, "hours", [50.0], None, False)
        >>> shares, rows = np.full((2, 2), 0.25), np.full((2, 2), 25)
        >>> term = PairTerm("age & hours", axes, [[0.1, 0.1], [-0.5, 0.3]], shares, rows, [[0, 0], [1, 2]])
        >>> model = AdditiveModel((term,), 1.0, get_loss("squared_error"), None, None, 2, ("age", "hours"))
        >>> [piece.text for piece in model["age & hours"].pieces]
        ['age <= 30', 'age > 30 and hours <= 50', 'age > 30 and hours > 50']
        >>> model.set_rectangle("age & hours", 2, 0.7).predict([[40.0, 60.0]])
        array([1.7])
        """
        if len(self.terms[self._position(term)].columns) != 2:
            raise ValueError(f"term {term!r} looks at one column; rectangles are those of pairs, see set_piece")
        return self._edited(term, edits.set_piece, piece=rectangle, value=value)

    def zero(self, term: str | int) -> Self:
        """A model in which a term is kept but adds nothing; `drop` removes it."""
        return self._edited(term, edits.zero)

    def drop(self, term: str | int) -> Self:
        """A model without a term. The intercept is unchanged, since terms have mean zero."""
        t = self._position(term)
        dropped = self._with_terms([own for k, own in enumerate(self.terms) if k != t])
        return with_edit(dropped, {"edit": "drop", "term": self.terms[t].name})

    def merge(self, term: str | int, pieces: Sequence[int]) -> Self:
        """A model in which some pieces of a term are merged into one, at their mean under the training weights.

        Parameters
        ----------
        term : str or int
            The name of the term, or its position in `terms`.
        pieces : sequence of int
            Positions in the term's `pieces`; they must be neighbours, unless the pieces are levels, or rectangles of a
            pair. If rectangles together are no rectangle, their cells still become one piece, of the kind "cells".
        """
        return self._edited(term, edits.merge, pieces=list(pieces))

    def smooth(self, term: str | int, bandwidth: float = 0.05) -> Self:
        """A model in which a numeric term has its jumps rounded off.

        Each bin takes the mean of the bins around it under the training weights and a Gaussian window, and then all of
        them are shifted to preserve the mean of the term. Every bin whose value differs from its neighbours' is then a
        piece.

        Parameters
        ----------
        term : str or int
            The name of the term, or its position in `terms`.
        bandwidth : float, default 0.05
            The standard deviation of the window, as a share of the training rows.
        """
        return self._edited(term, edits.smooth, bandwidth=bandwidth)

    def make_monotone(self, term: str | int, increasing: bool = True) -> Self:
        """A model in which a numeric term never falls (or never rises): isotonic regression of its table.

        Under the training weights this is the nearest such table, and it has the same mean. Lines that rise stay lines,
        and end where they meet their neighbours. The value of missing values is unchanged.
        """
        return self._edited(term, edits.make_monotone, increasing=increasing)

    def recentre(self) -> Self:
        """A model with the same predictions whose terms have mean zero under the training weights.

        The means go into the intercept, so an unknown category, and a missing value where training had none, get the
        mean of the term instead of 0.
        """
        pairs = [edits.recentred(term) for term in self.terms]
        intercept = self.intercept + sum(mean for _, mean in pairs)
        return self._changed(terms=tuple(term for term, _ in pairs), intercept=intercept)


def with_edit(model: Any, edit: dict[str, Any]) -> Any:
    """The model with an edit at the end of the list ``metadata["edits"]``; notes of the user by that name stay."""
    known = model.metadata.get("edits", [])
    if not isinstance(known, list):
        return model
    plain = {name: np.asarray(value).tolist() for name, value in edit.items()}
    return replace(model, metadata={**model.metadata, "edits": [*known, plain]})
