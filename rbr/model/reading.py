"""What a person reads of a model: summary, reasons, tables and scorecards, as methods of `AdditiveModel`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from rbr.estimators import Bootstrap
    from rbr.model import AdditiveModel
    from rbr.model.purify import PurifiedView
    from rbr.model.reasons import RowExplanation
    from rbr.model.whole_points import Scorecard


class ModelReading:
    """Methods for reading a model; each asks the module that knows how."""

    @property
    def _model(self) -> AdditiveModel:
        return cast("AdditiveModel", self)

    def report(
        self,
        file: str | os.PathLike,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        title: str | None = None,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        max_rows: int = 1000,
        path: Any = None,
        bands: Bootstrap | None = None,
    ) -> Path:
        """Write the model as one interactive page of HTML, which opens offline: no request leaves it.

        It has an overview, every term and pair as a picture with its table, what-if with the waterfall and the reasons
        of a row, a printable scorecard, and an editor that saves the edited model for `rbr.load`.

        Parameters
        ----------
        file : path of the page
            Written whole or not at all.
        X : array, frame or sparse matrix, optional
            Rows to try and to judge edits by; at most `max_rows` of them go into the page, in the used columns.
        y : array, optional
            Their targets, at best of rows that the fit has not seen: adds calibration, ROC curves or residuals, gains
            and scores, over all rows of X.
        title : str, optional
        sample_weight, offset : optional
            Of the rows of X.
        max_rows : int, default 1000
            The most rows that the page carries, fewer if it would exceed 5 MB; 0 for none, for example if X is private.
        path : list of (number of features, score), optional
            Adds a picture of the path.
        bands : Bootstrap, optional
            From `estimator.bootstrap`: adds the middle 90% of the refits to the terms.

        Returns
        -------
        Path of the page

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from rbr import RBRRegressor
        >>> X = np.column_stack([np.arange(100.0), np.tile([0.0, 1.0], 50)])
        >>> model = RBRRegressor().fit(X, np.where(X[:, 0] > 39, 3.0, 1.0)).model_
        >>> file = model.report(Path(tempfile.mkdtemp()) / "report.html", X, title="Two steps")
        >>> file.name, 1e6 < file.stat().st_size < 5e6
        ('report.html', True)
        """
        from rbr.report import write_report

        options: dict[str, Any] = {"title": title, "sample_weight": sample_weight, "offset": offset}
        return write_report(self._model, file, X, y, max_rows=max_rows, path=path, bands=bands, **options)

    def show(self, X: Any = None, y: ArrayLike | None = None, **options: Any) -> Path:
        """Write the report into a temporary folder and open it in a browser; returns its path.

        Takes the arguments of `report`, but for the path of the page.
        """
        from rbr.report import show_report

        return show_report(self._model, X, y, **options)

    def summary(self) -> str:
        """The terms in a table for the terminal, the most important first."""
        from rbr.model.summary import as_text

        return as_text(self._model)

    def _repr_html_(self) -> str:
        """Every term as a line that opens, for notebooks."""
        from rbr.report.compact import compact_view

        return compact_view(self._model)

    def purified(self) -> PurifiedView:
        """The model with what pairs say of one column alone moved into the terms of that column, for reading.

        The pure part of a pair has the weighted mean zero along every row and every column of its grid. The rest, two
        step functions with the cuts of the pair, is added to the terms of the columns, which may be new and may have
        more pieces than a fit allows. Predictions stay the same.

        Returns
        -------
        PurifiedView
            `summary`, `plot`, `to_frame`, `terms`, `importances` and `explain` of the purified terms.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr.losses import get_loss
        >>> from rbr.model import AdditiveModel, Axis, PairTerm
        >>> axes = Axis(0, "age", [30.0], None, False), Axis(1, "hours", [50.0], None, False)
        >>> shares, rows, labels = np.full((2, 2), 0.25), np.full((2, 2), 25), [[0, 1], [2, 3]]
        >>> term = PairTerm("age & hours", axes, [[-2.0, -2.0], [1.0, 3.0]], shares, rows, labels)
        >>> model = AdditiveModel((term,), 0.0, get_loss("squared_error"), None, None, 2, ("age", "hours"))
        >>> for term in model.purified().terms:
        ...     print(term.name, term.values.round(3).tolist())
        age [-2.0, 2.0]
        hours [-0.5, 0.5]
        age & hours [[0.5, -0.5], [-0.5, 0.5]]
        >>> model.explain([[40.0, 60.0]]), model.explain([[40.0, 60.0]], purified=True).round(3)
        (array([[3.]]), array([[2. , 0.5, 0.5]]))
        """
        from rbr.model.purify import PurifiedView

        return PurifiedView(self._model)

    def explain_row(
        self, row: Any, n: int | None = 5, *, offset: ArrayLike | None = None, label: Any = None
    ) -> RowExplanation:
        """The prediction of one row and its largest reasons, in words.

        What training did not have, an unknown category for example, is told too, whatever `on_unseen` is elsewhere.

        Parameters
        ----------
        row : dict or Series by column name, sequence of the values of all columns, or table of one row
        n : int or None, default 5
            The number of reasons that are listed; None lists all. The others are added up.
        offset : float, or one per class with more than two classes, optional
            Added to the score.
        label : class label, optional
            With more than two classes, whose score to explain; by default that of the predicted class.

        Returns
        -------
        RowExplanation
            `print` it; `reasons` holds a `Reason` for each listed term, and the numbers are attributes.
        """
        from rbr.model.reasons import explain_row

        return explain_row(self._model, row, n, offset, label)

    def to_frame(self, points: ArrayLike | None = None, *, odds_of: Any = None, output: str = "pandas") -> Any:
        """The model as a table: one row for the intercept, and for each piece and missing value of each term.

        Parameters
        ----------
        points : (points, odds, double), optional
            For two classes: a column of points on this scale. (600, 50, 20) means 600 points at odds of 50 to 1, and 20
            more where the odds double. The points of a row's pieces and of the intercept add up to its scaled score.
            `scorecard` finds whole numbers.
        odds_of : class label, optional
            Whose odds these are; by default those of the second class.
        output : {"pandas", "polars", "dict"}
            A frame, or a dict of arrays, which needs no other package.

        Returns
        -------
        frame with the columns
            term, kind : "intercept", "constant", "line", "level", "step" (of a line over ranks) or "missing"; of a pair
            "rectangle", "cell" of a surface, or "cells" that are no rectangle
            range : in words; `lower` < x <= `upper` for numbers; of the second column of a pair `lower_2` and `upper_2`
            value : what is added to the score, in a line at x = `anchor`; with several score columns value_<class>
            relativity : exp(value), for a log link; odds_ratio : exp(value), for two classes
            points, points_slope : if `points` are given; in a line at `anchor`
            rows, share : the training rows of the piece (by sample weight, without class weights), and their share
            mean_target : of those rows; for two classes positive_share, that of the second, for more classes
            share_of_<class>. NaN if not known
            exposure, rate : the sum of exp(offset), and the target over it, for a log link with offsets
            slope, anchor, line_from, line_to : within a line, what is added is value + slope * (x - anchor), where x is
            clipped to the range from line_from to line_to
        """
        from rbr.model.scorecard import to_frame

        return to_frame(self._model, points, odds_of, output)

    def scorecard(
        self,
        points: ArrayLike = (600, 50, 20),
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        odds_of: Any = None,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Scorecard:
        """A scorecard in whole points, for two classes, and what rounding costs; see `rbr.model.whole_points`.

        Parameters
        ----------
        points, odds_of
            The scale, as in `to_frame`.
        X, y, sample_weight, offset : optional
            Rows and their classes, at best not those of the fit: the points then have the least log-loss on them that a
            coordinate search finds. Without rows they are nearest to the exact points over the training shares.

        Returns
        -------
        Scorecard
            `points(X)`, `predict_proba(X)`, `to_frame()`; `rounding` says how far whole points are from exact ones.
            Lines become steps; what that costs where a line is steep within a bin, only rows show.
        """
        from rbr.model.scorecard import point_scale
        from rbr.model.whole_points import scorecard

        return scorecard(self._model, point_scale(self._model, points, odds_of), X, y, sample_weight, offset)
