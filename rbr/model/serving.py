"""The methods of a model that take it to other places: new data, other languages, files, scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import ArrayLike

from rbr.model.terms import Record
from rbr.model.unseen import Tally

if TYPE_CHECKING:
    from rbr.estimators import RBRClassifier, RBRRegressor
    from rbr.model.additive import AdditiveModel
    from rbr.model.drift import Check


class Servable:
    """What an `AdditiveModel` can do where it is used."""

    @property
    def _model(self) -> AdditiveModel:
        return cast("AdditiveModel", self)

    # New data ---------------------------------------------------------------------------------------------

    def count_unseen(self, X: Any, n_jobs: int | None = None) -> Record:
        """How many rows of X hold what training did not have: an `Unseen` for each term, for monitoring.

        Examples
        --------
        >>> import pandas as pd
        >>> from rbr import RBRRegressor
        >>> X = pd.DataFrame({"size": ["S", "M", "L", "M"] * 50})
        >>> model = RBRRegressor().fit(X, [1.0, 2.0, 3.0, 2.0] * 50).model_
        >>> (count,) = model.count_unseen(pd.DataFrame({"size": ["M", "XL", None]}))
        >>> count.n_rows, count.n_unseen, count.n_missing, count.levels
        (3, 1, 1, ('XL',))
        """
        tally = Tally()
        self._model._scores(X, n_jobs, tally)
        return Record(tally.counts)

    def check(self, X: Any, sample_weight: ArrayLike | None = None) -> Check:
        """Compare new data with the training data, of which every term keeps the shares by bin.

        Parameters
        ----------
        X : as in `decision_function`
        sample_weight : array of shape (n_rows,), optional

        Returns
        -------
        Check
            It prints as a report: for each term unknown categories, missing values, the population stability index,
            and how far it moves the mean score. `ok`, `changes`, `shift`, `terms`, `to_dict` and `to_frame` give the
            same to a program.

        Examples
        --------
        >>> import pandas as pd
        >>> from rbr import RBRRegressor
        >>> X = pd.DataFrame({"size": ["S", "M", "L", "M"] * 50})
        >>> model = RBRRegressor().fit(X, [1.0, 2.0, 3.0, 2.0] * 50).model_
        >>> report = model.check(pd.DataFrame({"size": ["M", "XL", "L", "L"] * 50}))
        >>> report.ok, report.changes[0]
        (False, "size: 25% of the rows hold categories that training did not have ('XL')")
        """
        from rbr.model.drift import check

        return check(self._model, self._model._open(X), sample_weight)

    # Other languages --------------------------------------------------------------------------------------

    def to_sql(
        self,
        table: str | Sequence[str] | None = None,
        dialect: str = "sqlite",
        output: str = "score",
        name: str | None = None,
    ) -> str:
        """The model as SQL: the intercept plus a CASE expression for each term.

        Parameters
        ----------
        table : str or sequence of str, optional
            The table to score, such as "customers" or ("schema", "customers"). Without one the expression alone is
            returned (with several score columns: the expressions, named and with commas between them).
        dialect : {"sqlite", "postgres", "duckdb", "bigquery"}
            The database.
        output : {"score", "probability", "mean"}
            "score": the raw score, `decision_function`. "probability", for classes: that of the second of two classes,
            or of each of several, which needs a table and adds the scores too. "mean", for numbers: `predict`, without
            an offset; beside log(exposure) multiply it by the exposure. SQLite needs its mathematical functions for the
            last two. Exponents beyond 700 count as 700.
        name : str, optional
            The name of the added column; with several classes "<name>_<class>" each. By default that of the output,
            with "model_" before it if the training table has such a column.

        Returns
        -------
        str
            With a table, a SELECT of all its columns, followed by the output. A missing value is NULL or, where columns
            can hold it, NaN. Text is compared by the rules of the database, and a column of truth values that the model
            takes as numbers must be cast to a number. Scores are those of `decision_function` to about the last digit.
            SQLite 3.40 reads about one long number in ten thousand wrong in the last bit: a value exactly at such an
            edge may then fall on its other side. Without a table, SQLite takes the name of a column that is not there
            for text.

        Examples
        --------
        >>> import numpy as np
        >>> import rbr
        >>> X = np.arange(8.0)[:, None]
        >>> binner = rbr.Binner().fit(X)
        >>> B = binner.transform(X)
        >>> s = rbr.solve(B, np.repeat([1.0, 3.0], 4), constraints=rbr.Constraints(max_segments=2))
        >>> model = rbr.AdditiveModel.from_solution(binner, s)
        >>> model = model.set_piece("x0", 0, -1.0).set_piece("x0", 1, 1.5)
        >>> print(model.to_sql("points", name="estimate"))
        SELECT *,
          2.0
          + CASE
              WHEN "points"."x0" IS NULL THEN 0.0
              WHEN "points"."x0" <= 3.5 THEN -1.0
              ELSE 1.5
            END AS "estimate"
        FROM "points"
        """
        from rbr.model.sql import to_sql

        return to_sql(self._model, table, dialect, output, name)

    def to_onnx(self, path: Any = None) -> Any:
        """The model as an ONNX graph of double numbers; needs the package onnx: pip install "rbr[onnx]".

        Parameters
        ----------
        path : path, optional
            Where to write the graph.

        Returns
        -------
        onnx.ModelProto
            It has one input of shape (n_rows, 1) for each used column, named after it. Numbers are doubles, and NaN is
            missing. Categories are strings if they are text, with "" for missing (unless "" is itself a category), and
            otherwise doubles. The outputs are "score" (n_rows, n_outputs), and "prediction" (n_rows, 1) or, for a
            classifier, "probabilities" (n_rows, n_classes) and "label" (n_rows,). Classes that are neither all text nor
            all integers are represented in "label" by their positions. An output whose name is that of an input has
            "model_" before it, since ONNX keeps both in one list.
        """
        from rbr.model.export import to_onnx

        return to_onnx(self._model, path)

    # Files ------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict:
        """The model as a dict of plain Python values, the content of its file; `from_dict` is the inverse."""
        from rbr.model.file import model_to_dict

        return model_to_dict(self._model)

    @classmethod
    def from_dict(cls, content: dict) -> AdditiveModel:
        """The model of a dict that `to_dict` made, or a ValueError that says what is wrong with it."""
        from rbr.model.file import model_from_dict

        return model_from_dict(content)

    def save(self, path: Any) -> None:
        """Write the model to a file, as JSON; `rbr.load` reads it.

        The file also holds `metadata`, the version of rbr, and a checksum. It is replaced in one step: if writing
        fails, an existing file is left unchanged.
        """
        from rbr.model.file import save

        save(self._model, path)

    def to_estimator(self) -> RBRRegressor | RBRClassifier:
        """A fitted scikit-learn estimator around this model.

        Returns
        -------
        RBRRegressor, or RBRClassifier if the model has classes
            It predicts, explains, plots, saves and can be cloned and fitted again. What a model does not know is not
            there: parameters other than the loss have their defaults, whatever those of the fit were, and a loss of
            which the fit has estimated a part keeps it; `n_iter_`, `loss_path_` and `dispersion_` are absent; and
            `bootstrap`, which needs the bins of the fit, asks for a fit.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr import RBRRegressor
        >>> X = np.arange(100.0)[:, None]
        >>> m = RBRRegressor(max_segments=2).fit(X, X[:, 0] > 39)
        >>> again = m.model_.to_estimator()
        >>> again, bool((again.predict(X) == m.predict(X)).all())
        (RBRRegressor(), True)
        """
        from rbr.estimators.from_model import estimator_of

        return estimator_of(self._model)
