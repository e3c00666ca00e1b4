"""From tables to codes: a common interface to arrays, frames and sparse matrices, `Binner` and `BinnedMatrix`."""

from rbr.data.binning import Binner
from rbr.data.design import BinnedMatrix

__all__ = ["BinnedMatrix", "Binner"]
