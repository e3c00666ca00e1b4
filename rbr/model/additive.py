"""The fitted model: an intercept and the tables that a fit has used.

An `AdditiveModel` is immutable, holds no training data and needs no scikit-learn: rows in, predictions out. Edits
(rbr.model.edits) return another model; files (rbr.model.file) and exports to other languages (rbr.model.export) write
down the same few tables.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rbr._checks import check_choice, check_vector
from rbr.losses import Loss
from rbr.model.editable import Editable
from rbr.model.pairs import AnyTerm
from rbr.model.reading import ModelReading
from rbr.model.scoring import Scorer, is_plain, open_by_name
from rbr.model.serving import Servable
from rbr.model.terms import HasColumns, Record, place_of, read_only, same
from rbr.model.unseen import Tally, tally_for

if TYPE_CHECKING:
    from rbr.data.binning import Binner
    from rbr.data.tables import Table
    from rbr.solvers import Solution

__all__ = ["AdditiveModel", "Importance"]


@dataclass(frozen=True)
class Importance(HasColumns):
    """How much a term matters: the mean size of what it adds, and how far the training loss rises without it."""

    term: str
    columns: tuple[int, ...]
    mean_contribution: float
    loss_drop: float


@dataclass(frozen=True, eq=False)
class AdditiveModel(ModelReading, Editable, Servable):
    """An intercept plus functions of the used columns, each a table over bins.

    A model is made by a fit (`RBRRegressor.model_`, `RBRClassifier.model_`), by `rbr.load`, or by `from_solution`.

    Attributes
    ----------
    terms : tuple of Term and PairTerm
        What is added to the intercept: functions of one column, ordered by column, then those of two.
    intercept : float, or array of shape (n_classes,) with several score columns
    loss : a loss of rbr.losses
        What was minimised; its link turns scores into predictions.
    classes : array or None
        The class labels of a classifier: two if there is one score column, else one per column. Same as `classes_`.
    target : str or None
        The name of what is predicted.
    n_features_in_ : int
    feature_names_in_ : tuple of str or None
        The columns of the training table.
    training_loss : float
        The mean loss on the training rows. NaN if not known, as after an edit.
    metadata : dict
        Notes of the user, such as a name, an owner or a date of approval: JSON values, which the file keeps. The one
        part of a model that may be changed in place; every edit copies it. "edits" lists the edits that were made.

    Examples
    --------
    >>> import numpy as np
    >>> import rbr
    >>> X = np.column_stack([np.arange(100.0), np.tile([0.0, 1.0], 50)])
    >>> y = np.where(X[:, 0] > 39, 3.0, 1.0)
    >>> binner = rbr.Binner(max_bins=10).fit(X)
    >>> B = binner.transform(X)
    >>> s = rbr.solve(B, y, constraints=rbr.Constraints(max_features=1, max_segments=2))
    >>> model = rbr.AdditiveModel.from_solution(binner, s)
    >>> model
    AdditiveModel(squared_error, 1 term of 2 features, 2 pieces)
    >>> model.predict([[0.0, 1.0], [70.0, np.nan]])
    array([1., 3.])
    >>> [(piece.text, round(piece.value, 3)) for piece in model.terms[0].pieces]
    [('<= 39.5', -1.2), ('> 39.5', 0.8)]
    """

    terms: tuple[Any, ...]  # of Term and PairTerm
    intercept: float | np.ndarray
    loss: Loss
    classes: np.ndarray | None
    target: str | None
    n_features_in_: int
    feature_names_in_: tuple[str, ...] | None
    training_loss: float = math.nan
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        put = object.__setattr__
        put(self, "terms", tuple(self.terms))
        put(self, "n_features_in_", int(self.n_features_in_))
        put(self, "training_loss", float(self.training_loss))
        put(self, "metadata", copy.deepcopy(self.metadata))
        if np.ndim(self.intercept) == 0:
            put(self, "intercept", float(self.intercept))
        else:
            put(self, "intercept", read_only(self.intercept))
        if self.classes is not None:
            put(self, "classes", read_only(self.classes, None))
        if self.feature_names_in_ is not None:
            put(self, "feature_names_in_", tuple(map(str, self.feature_names_in_)))
        _check(self)

    @classmethod
    def from_solution(
        cls,
        binner: Binner,
        solution: Solution,
        *,
        classes: ArrayLike | None = None,
        target: str | None = None,
        measure: bool = True,
    ) -> AdditiveModel:
        """The model of a solution: its tables in the units of the binner.

        Parameters
        ----------
        binner : Binner
            Fitted; it made the design.
        solution : Solution
            What `rbr.solve` found on the training rows. Its tables look at one column, or at two in the bins of
            `rbr.data.grids.with_pairs`.
        classes : array, optional
            The labels of the classes, for a classifier: two for "log_loss", one for each column of the tables for
            "multinomial".
        target : str, optional
            The name of what is predicted.
        measure : bool, default True
            Whether to measure, on the training rows, the drops in loss and the places of the jumps. This takes a few
            passes over the used columns; without it they are NaN.
        """
        from rbr.model.from_solution import terms_of

        return cls(
            terms=terms_of(binner, solution, measure),
            intercept=solution.intercept,
            loss=solution.problem.objective.loss,
            classes=None if classes is None else np.asarray(classes),
            target=target,
            n_features_in_=binner.n_features_in_,
            feature_names_in_=binner.feature_names_in_,
            training_loss=solution.loss,
        )

    # A value ----------------------------------------------------------------------------------------------

    def __reduce__(self):
        return AdditiveModel, tuple(getattr(self, f.name) for f in fields(self))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AdditiveModel):
            return NotImplemented
        return all(same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        return hash((self.terms, self.n_features_in_))

    def __repr__(self) -> str:
        n_pairs = sum(len(term.columns) == 2 for term in self.terms)
        pairs = f" ({n_pairs} pair{'s' * (n_pairs != 1)})" if n_pairs else ""
        kind = self.loss.name if self.classes is None else f"{self.loss.name}, {len(self.classes)} classes"
        terms, features, pieces = (
            f"{n} {word}{'s' * (n != 1)}"
            for n, word in ((len(self.terms), "term"), (self.n_features_in_, "feature"), (self.n_pieces, "piece"))
        )
        return f"AdditiveModel({kind}, {terms}{pairs} of {features}, {pieces})"

    @property
    def classes_(self) -> np.ndarray:
        """The class labels; for classifiers only."""
        if self.classes is None:
            raise AttributeError("this model is not a classifier: it has no classes_")
        return self.classes

    @property
    def n_outputs(self) -> int:
        """Score columns: one, or one per class."""
        return 1 if isinstance(self.intercept, float) else len(self.intercept)

    @property
    def n_pieces(self) -> int:
        """Pieces of all terms together."""
        return sum(term.n_pieces for term in self.terms)

    def __getitem__(self, term: str | int) -> AnyTerm:
        """The term with a given name, or at a given position in `terms`."""
        return self.terms[self._position(term)]

    def _position(self, term: str | int) -> int:
        if isinstance(term, str):
            for t, own in enumerate(self.terms):
                if own.name == term:
                    return t
        elif isinstance(term, (int, np.integer)) and not isinstance(term, bool):
            if -len(self.terms) <= term < len(self.terms):
                return range(len(self.terms))[term]
        names = ", ".join(repr(own.name) for own in self.terms) or "none"
        raise ValueError(f"term is {term!r}; it must be the name of a term or its position, and the terms are {names}")

    # Predictions ------------------------------------------------------------------------------------------

    @cached_property
    def _scorer(self) -> Scorer:
        return Scorer(self.terms, self.n_outputs)

    def _open(self, X: Any) -> Table:
        used = [column for term in self.terms for column in term.columns]
        return open_by_name(X, self.feature_names_in_, self.n_features_in_, used, "AdditiveModel")

    def _scores(self, X: Any, n_jobs: int | None, tally: Tally | None) -> np.ndarray:
        """The raw scores, of shape (n_rows, n_outputs)."""
        scorer = self._scorer
        if scorer.only_numbers and is_plain(X) and X.shape[1] == self.n_features_in_:
            out = np.empty((len(X), scorer.n_outputs))
            out[:] = self.intercept
            scorer.add_array(X, out, n_jobs, tally)
            return out
        table = self._open(X)
        out = np.empty((table.n_rows, scorer.n_outputs))
        out[:] = self.intercept
        scorer.add_table(table, out, n_jobs, tally)
        return out

    def decision_function(
        self, X: Any, offset: ArrayLike | None = None, n_jobs: int | None = None, on_unseen: str = "warn"
    ) -> np.ndarray:
        """The raw scores: intercept plus what each term adds; log-odds for two classes, logs for a log link.

        Parameters
        ----------
        X : array, frame or sparse matrix, shape (n_rows, n_features)
            A table with names has the columns that the terms use, in any order; its other columns are ignored. Without
            names, in X or in training, it has all columns of the training table, in that order. A missing value in a
            column that had none in training adds 0, and so does an unknown category; values beyond the training range
            belong to the end pieces. A category whose type has changed, such as 1 for "1", is found by its text; a
            ValueError names the column if that is ambiguous.
        offset : array of shape (n_rows,), or (n_rows, n_classes) with several score columns, optional
            Added to the scores.
        n_jobs : int or None
            Threads; the result does not depend on their number.
        on_unseen : {"warn", "raise", "ignore"}
            What to do about categories that training did not have, and missing values where it had none. "warn": an
            `UnseenWarning` if they are more than 5% of the rows of a column. "raise": an `UnseenError`, which is a
            ValueError, if there are any. Both carry `counts`. "ignore": nothing.

        Returns
        -------
        array of shape (n_rows,) or (n_rows, n_classes)
        """
        tally = tally_for(on_unseen)
        scores = self._scores(X, n_jobs, tally)
        if tally is not None:
            tally.settle(on_unseen)
        if offset is not None:
            scores += _check_offset(offset, scores.shape)
        return scores[:, 0] if self.n_outputs == 1 else scores

    def predict(
        self, X: Any, offset: ArrayLike | None = None, n_jobs: int | None = None, on_unseen: str = "warn"
    ) -> np.ndarray:
        """Predictions in the units of the target; for a classifier the most probable class. See `decision_function`."""
        scores = self.decision_function(X, offset, n_jobs, on_unseen)
        return self.loss.inverse_link(scores) if self.classes is None else self._labels_of(scores)

    def _labels_of(self, scores: np.ndarray) -> np.ndarray:
        """The most probable class of each row of raw scores."""
        return self.classes_[self._likeliest(scores)]

    @staticmethod
    def _likeliest(scores: np.ndarray) -> np.ndarray:
        """The place of the most probable class of each row among the classes."""
        return (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)

    def predict_proba(
        self, X: Any, offset: ArrayLike | None = None, n_jobs: int | None = None, on_unseen: str = "warn"
    ) -> np.ndarray:
        """The probability of each class, in the order of `classes_`; for classifiers only. See `decision_function`."""
        if self.classes is None:
            raise AttributeError("this model is not a classifier: it has no predict_proba, see predict")
        return self._probabilities_of(self.decision_function(X, offset, n_jobs, on_unseen))

    def _probabilities_of(self, scores: np.ndarray) -> np.ndarray:
        """The probability of each class, from raw scores."""
        if scores.ndim == 2:
            return self.loss.inverse_link(scores)
        probabilities = np.empty((len(scores), 2))
        probabilities[:, 1] = self.loss.inverse_link(scores)
        # 1 - p would lose the digits of a small probability of the first class.
        probabilities[:, 0] = self.loss.inverse_link(-scores)
        return probabilities

    def explain(
        self,
        X: Any,
        n_jobs: int | None = None,
        on_unseen: str = "warn",
        output: str = "default",
        *,
        purified: bool = False,
    ) -> Any:
        """What each term adds to the score of each row.

        Parameters
        ----------
        X, n_jobs, on_unseen
            As in `decision_function`.
        output : {"default", "pandas", "polars", "dict"}
            "default" is an array; the others carry the names of the terms.
        purified : bool, default False
            Whether what pairs say of one column alone is told with that column: the columns are then those of
            `purified().terms`, which may be more.

        Returns
        -------
        array of shape (n_rows, n_terms), or (n_rows, n_terms, n_classes) with several score columns
            Columns in the order of `terms`; rows sum to `decision_function` minus the intercept. A frame has one column
            for each term, with several score columns for each term and class.
        """
        check_choice(output, "output", ("default", "pandas", "polars", "dict"))
        if purified:
            return self.purified().explain(X, n_jobs, on_unseen, output)
        table, tally = self._open(X), tally_for(on_unseen)
        out = np.zeros((table.n_rows, len(self.terms), self.n_outputs))
        for t, scorer in enumerate(self._scorer_of_each):
            scorer.add_table(table, out[:, t], n_jobs, tally)
        if tally is not None:
            tally.settle(on_unseen)
        if output != "default":
            from rbr.model.frames import contributions_as_frame

            return contributions_as_frame(self, X, out, output)
        return out[:, :, 0] if self.n_outputs == 1 else out

    @cached_property
    def _scorer_of_each(self) -> list[Scorer]:
        return [Scorer([term], self.n_outputs) for term in self.terms]

    # What a person reads ----------------------------------------------------------------------------------

    @property
    def importances(self) -> Record:
        """An `Importance` for each term, in the order of `terms`.

        `mean_contribution` is the mean of |what the term adds| over the training rows. `loss_drop` is how far the term
        lowers the training loss: the loss without it and with the intercept refitted, minus the loss with it. With up
        to 50,000 training rows all of them are used. With more, the loss is approximated by a parabola in each bin over
        all rows, corrected by a sample of rows; with more than two classes the sample alone is used. After an edit
        `loss_drop` is NaN.
        """
        return Record(Importance(term.name, term.columns, term.importance, term.loss_drop) for term in self.terms)

    def jumps(self) -> Record:
        """Every jump of the numeric terms, as a tuple of `Jump`; `.to_frame()` makes a pandas frame of it.

        A jump has its place and size; the range of places that fit the data equally well; and what the training loss
        would be without it. Range and loss were measured at the fit, with everything else held fixed: with up to 50,000
        training rows on all of them, with more by a parabola in each bin over all rows, corrected by a sample of rows.
        A place is equally good if the mean loss rises by at most 2 * dispersion / n when the jump moves there (two
        units of log-likelihood, about a 95% interval). For the loss without the jump, the two pieces beside it are
        replaced by one and that is refitted. Both are NaN after an edit.
        """
        return Record(jump for term in self.terms for jump in term.jumps)

    def plot(self, terms: Sequence[str | int] | str | int | None = None, **options):
        """Draw the terms, one panel each, the most important first; needs matplotlib: pip install "rbr[plot]".

        Takes the options of `rbr.plotting.plot_model`, such as `max_terms`, `n_cols` and `bands`, and returns the Axes.
        """
        from rbr.plotting import plot_model

        return plot_model(self, terms, **options)


def _check_offset(offset: ArrayLike, shape: tuple[int, int]) -> np.ndarray:
    if shape[1] == 1:
        return check_vector(offset, shape[0], "offset")[:, None]
    offset = np.asarray(offset, dtype=np.float64)
    if offset.shape != shape or not np.isfinite(offset).all():
        raise ValueError(f"offset has shape {offset.shape}; it must be finite and of shape {shape}")
    return offset


def _check(model: AdditiveModel) -> None:
    if not isinstance(model.loss, Loss):
        raise ValueError(f"loss is {model.loss!r}; it must be a loss of rbr.losses")
    if not np.isfinite(model.intercept).all():
        raise ValueError(f"intercept is {model.intercept}; it must be finite")
    if model.target is not None and not isinstance(model.target, str):
        raise ValueError(f"target is {model.target!r}; it must be text or None")
    if not isinstance(model.metadata, dict):
        raise ValueError(f"metadata is {model.metadata!r:.60}; it must be a dict of JSON values")
    names = model.feature_names_in_
    if names is not None and len(names) != model.n_features_in_:
        raise ValueError(f"there are {len(names)} feature names, but n_features_in_ is {model.n_features_in_}")
    places = [place_of(term) for term in model.terms]
    if any(b <= a for a, b in zip(places[:-1], places[1:], strict=True)):
        listed = ", ".join(str(term.columns) for term in model.terms)
        raise ValueError(f"the terms look at the columns {listed}; they must increase")
    for term in model.terms:
        if max(term.columns) >= model.n_features_in_:
            raise ValueError(
                f"term {term.name!r} looks at a column outside 0 to {model.n_features_in_ - 1}: "
                f"its columns are {term.columns}"
            )
        has_one = term.values.ndim == term.weights.ndim
        if has_one != isinstance(model.intercept, float) or term.n_outputs != model.n_outputs:
            raise ValueError(f"term {term.name!r} has {term.n_outputs} score columns, the intercept {model.n_outputs}")
    if model.classes is not None:
        n_classes = 2 if model.n_outputs == 1 else model.n_outputs
        if model.classes.shape != (n_classes,):
            raise ValueError(f"classes has shape {model.classes.shape}; it must be ({n_classes},)")
