"""The compiled kernels: same names and arguments as `rbr.reference.kernels`, which define them.

They validate nothing, hold no lock and use no Python objects in loops; their callers check, convert and
allocate. Each kernel works on a range of features or rows.
"""

from rbr._fast._binning import cut_binomial, cut_regular, sort_rows, transpose
from rbr._fast._csv import (
    add_field_sizes,
    count_line_ends,
    last_row_end,
    levels_at,
    numbers_at,
    place_fields,
    put_fields,
    write_numbers,
)
from rbr._fast._design import bin_counts, bin_moments, cross_counts, gram, matvec, rmatvec, sum_by_code
from rbr._fast._encoding import encode
from rbr._fast._grids import average_grids
from rbr._fast._losses import (
    log_loss_sums,
    loss_of_rows,
    softmax_hessian_times,
    softmax_of_rows,
    softmax_sums,
    squared_distances,
)
from rbr._fast._model import expit, score
from rbr._fast._outputs import matvec_outputs, rmatvec_outputs
from rbr._fast._projections import center_tables, prox_tables
from rbr._fast._rectangles import cut_grids
from rbr._fast._surfaces import smooth_grids
from rbr._fast._visits import visit_rows, visit_tables

__all__ = [
    "add_field_sizes",
    "average_grids",
    "bin_counts",
    "bin_moments",
    "center_tables",
    "count_line_ends",
    "cross_counts",
    "cut_binomial",
    "cut_grids",
    "cut_regular",
    "encode",
    "expit",
    "gram",
    "last_row_end",
    "levels_at",
    "log_loss_sums",
    "loss_of_rows",
    "matvec",
    "matvec_outputs",
    "numbers_at",
    "place_fields",
    "prox_tables",
    "put_fields",
    "rmatvec",
    "rmatvec_outputs",
    "score",
    "smooth_grids",
    "softmax_hessian_times",
    "softmax_of_rows",
    "softmax_sums",
    "sort_rows",
    "squared_distances",
    "sum_by_code",
    "transpose",
    "visit_rows",
    "visit_tables",
    "write_numbers",
]
