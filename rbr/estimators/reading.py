"""What a person reads of a fitted estimator: thin methods that ask its model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn import get_config
from sklearn.utils.validation import check_is_fitted

from rbr._checks import check_choice
from rbr.model import AdditiveModel

OUTPUTS = ("default", "pandas", "polars")


class ReadingMixin:
    """Summary, tables and explanations of an estimator with a `model_`."""

    model_: AdditiveModel
    _had_offset: bool
    on_unseen: str

    def _offset_facts(self) -> dict:
        """What decides which offsets rows with a known target must have."""
        return {"n_outputs": self.model_.n_outputs, "had_offset": self._had_offset}

    # What a notebook shows: scikit-learn's diagram until there is a model to show.
    def _repr_html_inner(self):
        return self.model_._repr_html_() if "model_" in vars(self) else super()._repr_html_inner()

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle and "model_" in vars(self):
            bundle["text/html"] = self.model_._repr_html_()
        return bundle

    def summary(self) -> str:
        """The terms in a table for the terminal, the most important first; the same as ``model_.summary()``."""
        check_is_fitted(self, "model_")
        return self.model_.summary()

    def report(
        self,
        file,
        X=None,
        y=None,
        *,
        title=None,
        sample_weight=None,
        offset=None,
        max_rows=1000,
        path=None,
        bands=None,
    ) -> Path:
        """Write the model as one interactive page of HTML, which opens offline; see `AdditiveModel.report`."""
        check_is_fitted(self, "model_")
        options = {"title": title, "sample_weight": sample_weight, "offset": offset, "max_rows": max_rows}
        return self.model_.report(file, X, y, path=path, bands=bands, **options)

    def show(self, X=None, y=None, **options) -> Path:
        """Open the report in a browser, from a temporary folder, and return its path; see `AdditiveModel.show`."""
        check_is_fitted(self, "model_")
        return self.model_.show(X, y, **options)

    def to_frame(self, points=None, *, odds_of=None, output="pandas") -> Any:
        """The model as a table, one row per piece; see `AdditiveModel.to_frame`."""
        check_is_fitted(self, "model_")
        return self.model_.to_frame(points, odds_of=odds_of, output=output)

    def set_output(self, *, transform=None):
        """Choose what `explain` returns, in the way of scikit-learn's transformers.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None
            "default" is an array; None changes nothing. Without it, ``sklearn.set_config(transform_output=...)`` holds.
        """
        if transform is not None:
            # The attribute of scikit-learn's own mixin, which `clone` copies.
            self._sklearn_output_config = {"transform": check_choice(transform, "transform", OUTPUTS)}
        return self

    def explain(self, X, *, output=None, purified=False) -> Any:
        """Contributions of the terms to each row's score.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features)
        output : {"default", "pandas", "polars", "dict"} or None
            A frame has the names of the terms as columns. None follows `set_output`, or else scikit-learn's
            ``transform_output``; "default" is an array.
        purified : bool, default False
            Tell what a pair says of one of its columns alone with that column; see `AdditiveModel.purified`.

        Returns
        -------
        array of shape (n_rows, n_terms), with more than two classes (n_rows, n_terms, n_classes), or frame
            Columns in the order of `terms_`; rows sum to the score less the intercept. With more than two classes a
            frame has a column for each term and class.
        """
        X = self._check_X(X)  # type: ignore[attr-defined]  # of the estimator
        if output is None:
            chosen = getattr(self, "_sklearn_output_config", {}).get("transform")
            output = chosen or get_config()["transform_output"]
        return self.model_.explain(X, on_unseen=self.on_unseen, output=output, purified=purified)

    def explain_row(self, row, n=5, *, offset=None, label=None) -> Any:
        """The prediction of one row and its largest reasons, in words; see `AdditiveModel.explain_row`.

        Examples
        --------
        >>> import numpy as np
        >>> import pandas as pd
        >>> from rbr import RBRRegressor
        >>> X = pd.DataFrame({"age": np.arange(200) % 80, "sex": np.repeat(["f", "m"], 100)})
        >>> y = pd.Series(np.where(X["age"] > 39, 3.0, 1.0) + (X["sex"] == "m"), name="charge")
        >>> m = RBRRegressor(n_bags=0, prior_rows=0).fit(X, y)
        >>> print(m.explain_row({"age": 50, "sex": "f"}))
        charge is 3: before any reason 2.3
          age is 50, > 39.5: adds 1.2 to charge
          sex is f: takes 0.5 from charge
        """
        check_is_fitted(self, "model_")
        return self.model_.explain_row(row, n, offset=offset, label=label)
