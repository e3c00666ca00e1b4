"""The protocol between solvers and data: every answer has the size of the tables, and none contains a row.

The tables of a model are stacked in one vector f of n_coef numbers. A solver moves f; an objective computes the loss at
a point, its gradient and its curvature by bin. What an objective must keep by row between two calls (scores, residuals,
curvatures, merged codes) it returns as an opaque `Handle`, which the solver only passes back. So the rows may lie in
memory, in blocks, in files or on other machines, and the objective decides how many of them a Hessian or a start needs,
and when earlier results can be used again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rbr._ragged import bins_of

if TYPE_CHECKING:
    from rbr._options import SolverOptions
    from rbr.data.design import BinnedMatrix
    from rbr.data.grids import CoarseBins
    from rbr.losses import Loss
    from rbr.objective.jumps import BetterJumps, Jumps


class Handle:
    """Data by row that only the objective itself looks into; the protocol annotates it as `Any`."""


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of f: where each is stored, its geometry, and the columns of X that it is a function of.

    Attributes
    ----------
    offsets : int array of shape (n_tables + 1,)
        Table j has the entries offsets[j] to offsets[j + 1] - 1 of f.
    weights : array of shape (n_coef,)
        The geometry; they sum to 1 in each table.
    shares : array of shape (n_coef,)
        The share of the weighted rows in each bin; the same as `weights` unless those are uniform.
    missing : bool array of shape (n_tables,)
        Whether the last bin of a table holds the missing values.
    positions : array of shape (n_coef,) or None
        Where each bin lies on the axis of its column.
    columns : int array of shape (n_tables, n_columns_at_most)
        The columns of X that each table is a function of, padded with -1.
    grids : int array of shape (n_tables, 6) or None
        Of tables of two columns, the sides of their grids: see `BinnedMatrix`.
    coarse : int array of shape (n_coef,) or None
        The bin of a grid's side that each bin of a column lies in, if that is known.
    """

    offsets: np.ndarray
    weights: np.ndarray
    shares: np.ndarray
    missing: np.ndarray
    positions: np.ndarray | None
    columns: np.ndarray
    grids: np.ndarray | None = None
    coarse: np.ndarray | None = None

    @classmethod
    def of(cls, design: BinnedMatrix) -> Tables:
        """The tables of a binned matrix."""
        bins = design.offsets, design.weights, design.shares, design.missing, design.positions
        return cls(*bins, design.columns, design.grids, design.coarse)

    @property
    def n_tables(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_coef(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def n_bins(self) -> np.ndarray:
        return np.diff(self.offsets)

    @cached_property
    def stretch(self) -> np.ndarray:
        """For each table, the largest ratio of a bin's share to its weight: 1 unless the weights are uniform."""
        ratios = np.divide(self.shares, self.weights, out=np.zeros_like(self.shares), where=self.weights > 0)
        return np.maximum.reduceat(ratios, self.offsets[:-1])

    def columns_of(self, table: int) -> tuple[int, ...]:
        """The columns of X that a table is a function of."""
        return tuple(column for column in self.columns[table].tolist() if column >= 0)

    def bins_of(self, tables: np.ndarray) -> np.ndarray:
        """The entries of f that belong to the given tables."""
        return bins_of(tables, self.offsets)


@dataclass(frozen=True, eq=False)
class Point:
    """Tables with their refitted intercept, and the mean loss there.

    support : ascending indices of the tables that are used
    handle : the rows' scores, as the objective keeps them
    gradient : of the used tables at least, if it has been computed
    """

    f: np.ndarray
    support: np.ndarray
    intercept: float | np.ndarray
    loss: float
    handle: Any
    gradient: np.ndarray | None = None


@dataclass
class Work:
    """Counts of the work done: columns read (over all rows), gradients and Newton steps."""

    columns_read: float = 0.0
    gradients: int = 0
    newton_steps: int = 0

    def add(self, other: Work, share: float = 1.0) -> None:
        """Add work that was done on a share of the rows."""
        self.columns_read += share * other.columns_read
        self.gradients += other.gradients
        self.newton_steps += other.newton_steps


@dataclass(frozen=True)
class Accuracy:
    """How exact a Hessian is: of all rows and bins, or rough.

    is_rough : blocks between tables are off by a few percent; each table's own block is that of all rows and bins
    groups_per_line : between tables, the bins of a line are merged into this many groups; 0: they are not merged
    n_sampled : between tables, the number of sampled rows; None: all rows
    """

    is_rough: bool = False
    groups_per_line: int = 0
    n_sampled: int | None = None


EXACT = Accuracy()


@dataclass(frozen=True, eq=False)
class Groups:
    """The bins of some tables, merged into groups.

    tables : indices of the tables
    table_offsets : where each table of f begins
    of_bin : int per entry of f, the group of the bin within its table; the number of groups for a bin in no group
    n_groups : number of groups of each of the tables
    """

    tables: np.ndarray
    table_offsets: np.ndarray
    of_bin: np.ndarray
    n_groups: np.ndarray

    @cached_property
    def offsets(self) -> np.ndarray:
        """Where the groups of each table begin."""
        return np.concatenate([[0], np.cumsum(self.n_groups)])

    def bins(self, table: int) -> slice:
        """The entries of f that belong to a table."""
        return slice(self.table_offsets[table], self.table_offsets[table + 1])


class Hessian(Protocol):
    """The second derivatives of the loss in the values of merged bins.

    total : the second derivative in the intercept
    by_bin : (n_coef,) the curvature of all rows by bin, for a rough Hessian; None for an exact one
    """

    @property
    def total(self) -> float: ...

    @property
    def by_bin(self) -> np.ndarray | None: ...

    def in_coordinates(self, bases: list[np.ndarray], offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(between the coordinates of all tables, between them and the intercept), given a basis by group for each.

        offsets : where the groups of each table begin
        """


class TableChange(Protocol):
    """How the loss changes when the scores of one output change by a number for each bin of one table.

    Arrays by bin have one entry more than the table; the last is for the rows without a bin.
    """

    weight: np.ndarray  # of the rows that are measured, by bin
    f: np.ndarray  # the table, by bin

    def measure(self, change: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rise of the loss by bin, which bins correct a sample's rise by the parabolas of all rows)."""

    def rises(self, change: np.ndarray, is_corrected: np.ndarray) -> np.ndarray:
        """The rise of the loss by bin, with the corrections that `measure` chose."""

    def slopes(self, change: np.ndarray, is_corrected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Minus the first derivative of `rises`, and its second derivative, by bin."""

    def majorized(self, change: np.ndarray) -> np.ndarray:
        """The curvature of parabolas that lie above the loss, by bin; zero where there are none."""


class TableChanges(Protocol):
    """How the loss changes around a point when one table at a time changes."""

    def of(self, table: int, output: int) -> TableChange:
        """Changes of one table, in the scores of one output."""

    def rise_without(self, table: int) -> float:
        """The rise of the loss without a table, with the intercepts of all outputs refitted."""


class Visits(Protocol):
    """What is done to tables that are visited one after the other, each beside the others as they are then."""

    def change(self, table: int, sums: np.ndarray) -> np.ndarray | None:
        """Move a table, given the sums of `Backfit.residual_sums`; its change, None if there is none."""

    def in_kernel(self, tables: np.ndarray) -> tuple[tuple, tuple] | None:
        """What the kernel `visit_rows` is told of such visits, and what it moves; None if no kernel does the same."""


class Backfit(Protocol):
    """The rows around a point whose tables change one at a time; the intercept stays."""

    def visit(self, tables: np.ndarray, visits: Visits) -> None:
        """Visit some tables in this order; the scores change with them."""

    def residual_sums(self, table: int) -> np.ndarray:
        """Sums of v r over the rows of each bin of a table, at the present scores; a column for each output."""

    def add(self, table: int, change: np.ndarray) -> None:
        """Add a number for each bin of a table to the scores."""


class Bags(Protocol):
    """Subsamples of the rows, and the out-of-bag losses of fits on them."""

    def draw(self) -> Objective:
        """The objective over the rows of the next bag."""

    def add(self, way: int, f: np.ndarray, support: np.ndarray, intercept) -> None:
        """Add the scores of a fit on the last bag for the rows that the bag left out; `way` numbers the way to fit."""

    @property
    def has_left_out(self) -> bool:
        """Whether any bag has left a row out."""

    def gain(self, way: int, other: int, outliers: float = 0.0) -> tuple[float, float]:
        """How far the mean loss of the rows left out falls from one way to another, and its standard error.

        The share of the rows whose loss changes most counts no more than the others, so that they do not decide alone.
        """

    def loss_of(self, ways: Sequence[int]) -> float:
        """Mean loss of the rows that were left out, at their mean scores over bags and ways."""


class Objective(Protocol):
    """The mean loss of c + X f over the weighted rows, minimised over the intercept c.

    Attributes
    ----------
    tables : Tables
    loss : Loss
        Its parameters and its link; it holds no rows.
    n_total : float
        n, the sum of the sample weights: an integer weight stands for repeated rows.
    n_outputs : int
        Scores per row; with more than one, f has the shape (n_coef, n_outputs).
    n_threads : int
    work : Work
    options : SolverOptions
        The numbers that steer a fit.
    has_many_rows : bool
        Whether passes over the rows dominate the cost of a fit, so that fits should save passes.
    can_be_averaged : bool
        Whether rounds over the tables, a pass each, cost no more than a fit.
    has_small_weights : bool
        Whether the weights sum to far less than the number of rows, as relative weights do.
    has_constant_target : bool
        Whether y is the same number in every row, without an offset, so that a constant is the best model.
    screening_is_faster : bool
        Whether bounding a gradient column takes less time than summing it.
    has_values : bool
        Whether the values of the columns are available, as `rebin`, `better_jumps` and lines need them.
    """

    tables: Tables
    loss: Loss
    n_total: float
    n_outputs: int
    n_threads: int
    work: Work
    options: SolverOptions

    @property
    def has_many_rows(self) -> bool: ...

    @property
    def can_be_averaged(self) -> bool: ...

    @property
    def has_small_weights(self) -> bool: ...

    @property
    def has_constant_target(self) -> bool: ...

    @property
    def screening_is_faster(self) -> bool: ...

    @property
    def has_values(self) -> bool: ...

    @property
    def n_passes(self) -> float:
        """Full passes over the codes so far: columns read over number of columns."""

    @property
    def constant_loss(self) -> float:
        """The loss of the best model without tables."""

    @property
    def constant_curvature(self) -> float:
        """The mean curvature of the best model without tables, in the output where it is largest."""

    def zero_tables(self) -> np.ndarray:
        """f = 0."""

    def point(self, f: np.ndarray, support: np.ndarray, start=None) -> Point:
        """The point at tables that are zero outside the support; `start` is a first guess of the intercept."""

    def residuals(self, point: Point) -> Any:
        """The residuals at a point, from which the gradient can be summed a few columns at a time."""

    def gradient(self, point: Point, tables: np.ndarray | None = None, residuals: Any = None) -> np.ndarray:
        """-(1 / w_jk) * sum of v_i residual_i over the rows of bin k, 0 where w_jk = 0; zero outside `tables`."""

    def drift(self, residuals: Any, other: Any, rounding: float) -> np.ndarray:
        """sqrt(sum_i v_i (r_i - r'_i)^2) for each output, plus `rounding` times the norm of r."""

    def curvature(self, point: Point, majorize: bool = False, accuracy: Accuracy = EXACT) -> Any:
        """The second derivatives of the rows' losses, for the rows that a Hessian of this accuracy uses.

        Majorized: those of parabolas that lie above the loss and touch it; None if there are none.
        """

    def curvature_sums(
        self, point: Point, tables: np.ndarray, majorize: bool = False, curvature: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(curvature of all rows by bin, zero outside the given tables; its total by output).

        `curvature` is that of all rows at the point, if it is known.
        """

    def can_reuse_hessian(self, curvature: Any, other: Any) -> bool:
        """Whether a rough Hessian that was built from `other` can be used at `curvature`."""

    def accuracy(self, n_tables: int, n_groups: int, n_unknowns: int) -> Accuracy:
        """The accuracy to build a Hessian with, given its numbers of tables, groups of bins and unknowns."""

    def merge(self, groups: Groups, accuracy: Accuracy = EXACT) -> Any:
        """The columns of some tables with their bins merged, to be kept for several Hessians."""

    def preconditioner_accuracy(self, n_unknowns: int) -> Accuracy:
        """The accuracy to build a Hessian with that only guides conjugate gradients."""

    def hessian(self, point: Point, merged: Any, curvature: Any, output: int = 0) -> Hessian:
        """The curvature between merged bins, of one output; `curvature` is that of their rows, or of all rows."""

    def hessian_times(self, point: Point, curvature: Any, tables: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """The Hessian as a map from some tables to sums by bin, with the intercept eliminated."""

    def hessian_of_outputs(self, point: Point, n_unknowns: int, *merged: Any) -> np.ndarray | None:
        """The curvature between merged bins of all outputs, then their intercepts; None if it costs more than it saves.

        `merged` holds the columns of each output. With one output `hessian` has the same; this is never asked for.
        """

    def dispersion(self, point: Point, df: float = 1.0) -> float:
        """phi around a point with df fitted numbers: what one number explains by chance, in units of the loss."""

    def sample(self, share: float) -> Objective | None:
        """The same loss over a share of the rows, with their own n; None if they are too few to begin a fit on."""

    def representative(self) -> Objective:
        """The same loss over enough rows to estimate a single number such as the dispersion."""

    def condensed(self) -> Objective:
        """The same loss computed from sums instead of rows if that makes a fit faster, otherwise itself."""

    def changes(self, point: Point) -> TableChanges:
        """How the loss changes when one table at a time changes."""

    def target_sums(self, tables: np.ndarray) -> np.ndarray:
        """Sums of weight * y over the rows of each bin, zero outside the tables: (n_coef, 1).

        With classes a column for each, with the weight of its rows: (n_coef, n_classes).
        """

    def exposure_sums(self, tables: np.ndarray) -> np.ndarray | None:
        """Sums of weight * exp(offset) over the rows of each bin, for a log link; None without offsets."""

    def backfit(self, point: Point) -> Backfit:
        """The rows around a point, for changes of one table after another."""

    def bags(
        self, n_ways: int, share: float, random_state: Any, whole_rows: bool = False, may_sample: bool = False
    ) -> Bags:
        """Subsamples with a share of the rows, each fitted in up to `n_ways` ways.

        A row of weight k counts as k rows, unless `whole_rows` says that it is one observation drawn k times. With
        `may_sample` rows that lie elsewhere, and are too many to be brought together, are represented by a sample.
        """

    def better_jumps(self, point: Point, jumps: Mapping[int, Jumps]) -> dict[int, BetterJumps]:
        """{table: better jumps}, inside bins too, for the tables that have better ones; see `rbr.objective.jumps`."""

    def rebin(self, edges: Mapping[int, tuple[np.ndarray, np.ndarray]], read: np.ndarray | None = None) -> Objective:
        """The same rows with some tables cut at other edges.

        edges : {table: (edges so far, other edges, as many and ascending)}
        read : the tables that will be read, by default all; what is said of others is undefined
        """

    def bin_moments(self, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(mean and standard deviation of x by bin; least and largest x by given table), over rows with a finite x.

        The first two have the length n_coef; a mean is NaN where there is no such row.
        """

    def distances(self, tables: np.ndarray, positions: np.ndarray) -> Any:
        """x - position of its bin for the rows of some tables, in ascending order; not finite distances count as 0."""

    def line_point(self, f: np.ndarray, support: np.ndarray, slopes: np.ndarray, lines: Any, start=None) -> Point:
        """The point at tables whose bins rise by slopes * (x - position); `slopes` has the shape of f.

        lines : `distances` of the tables with slopes
        """

    def on_lines(self, slopes: np.ndarray, lines: Any) -> Objective:
        """The same rows with slopes * (x - position) among their offsets, so that bins see what lines leave over."""

    def line_gradient(self, point: Point, lines: Any) -> np.ndarray:
        """Minus the sums of v r and of v r (x - position) by bin: (n_coef, 2) or (n_coef, 2, n_outputs).

        Of the used tables; the second sums only of the tables with `distances`.
        """

    def table_scores(self, f: np.ndarray, support: np.ndarray) -> Any:
        """What the tables add to the scores of the rows, without offsets and intercept."""

    def shifted_by(self, scores: Any) -> Objective:
        """The same rows with `table_scores` of another objective over them among their offsets."""

    def over_pairs(self, coarse: CoarseBins, pairs: np.ndarray) -> Objective:
        """The same rows, whose tables are those of pairs: the cells of grids over the coarse bins of two tables.

        pairs : (n_pairs, 2) tables; cell a * n_b + b is the one of the coarse bins a and b
        """

    def joint_sums(
        self, point: Point, coarse: CoarseBins, tables: np.ndarray, majorize: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(sums of v r, of v h, where each table begins) over the rows of each pair of coarse bins of some tables.

        Both have the shape (n_outputs, n, n), n the coarse bins of all these tables. With many rows they are those of a
        sample, scaled to all rows.
        """


def check_objective(objective: Any) -> None:
    """Raise a TypeError that names what an objective lacks of the protocol."""
    methods = [name for name, member in vars(Objective).items() if not name.startswith("_") and callable(member)]
    missing = [name for name in [*Objective.__annotations__, *methods] if not hasattr(objective, name)]
    if missing:
        raise TypeError(
            f"objective is a {type(objective).__name__}, which has no {', '.join(missing)}; rbr.objective.Objective "
            "says what it must answer"
        )
