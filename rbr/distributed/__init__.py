"""Fits on a Dask cluster: `DaskRBRRegressor` and `DaskRBRClassifier`.

The solver runs on the client, over an objective whose parts stay on the workers (`rbr.objective.parts`). An iteration
sends tables to the workers and gets sums of their size back; rows stay where they are. The package needs the extra
`dask`: ``pip install 'rbr[dask]'``.
"""

from rbr.distributed.estimators import DaskRBRClassifier, DaskRBRRegressor

__all__ = ["DaskRBRClassifier", "DaskRBRRegressor"]
