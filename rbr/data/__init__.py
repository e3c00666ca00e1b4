"""From tables to codes: one face for arrays, frames and sparse matrices; `Binner`; `BinnedMatrix`."""

from rbr.data.binning import Binner
from rbr.data.design import BinnedMatrix

__all__ = ["BinnedMatrix", "Binner"]
