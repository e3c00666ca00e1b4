"""What a solver may ask of data, and what it is told: answers of the size of the tables, and never a row.

The tables of a model are stacked in one vector f of n_coef numbers. A solver moves f; an objective tells the loss at a
point, its gradient and its curvature by bin. What an objective must keep by row between two questions (scores,
residuals, curvatures, merged codes) it hands out as a `Handle`, which the solver can only hand back. So the rows may
lie in memory, in blocks, in files or on other machines; how many of them a Hessian or a start needs, and when what was
computed before still serves, is decided behind the protocol.
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
    from rbr.losses import Loss


class Handle:
    """Something that an objective keeps by row. Nobody else looks inside, so it is `Any` to whoever hands it back."""


@dataclass(frozen=True, eq=False)
class Tables:
    """The tables of f: where each stands, its geometry, and the columns of X that it looks at.

    Attributes
    ----------
    offsets : int array of shape (n_tables + 1,)
        Table j has the entries offsets[j] to offsets[j + 1] - 1 of f.
    weights : array of shape (n_coef,)
        The geometry: with sum 1 in each table.
    shares : array of shape (n_coef,)
        The share of the weighted rows in each bin; the same as `weights` unless those are uniform.
    missing : bool array of shape (n_tables,)
        Whether the last bin of a table holds the missing values.
    positions : array of shape (n_coef,) or None
        Where each bin lies on the axis of its column.
    columns : int array of shape (n_tables, n_columns_at_most)
        The columns of X that each table looks at, and -1 where it looks at fewer than others.
    """

    offsets: np.ndarray
    weights: np.ndarray
    shares: np.ndarray
    missing: np.ndarray
    positions: np.ndarray | None
    columns: np.ndarray

    @classmethod
    def of(cls, design: BinnedMatrix) -> Tables:
        """The tables of a binned matrix."""
        shares = design.with_weights("counts").weights
        return cls(design.offsets, design.weights, shares, design.missing, design.positions, design.columns)

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
        """For each table the largest share of a bin over its weight: 1 unless the weights are uniform."""
        ratios = np.divide(self.shares, self.weights, out=np.zeros_like(self.shares), where=self.weights > 0)
        return np.maximum.reduceat(ratios, self.offsets[:-1])

    def columns_of(self, table: int) -> tuple[int, ...]:
        """The columns of X that a table looks at."""
        return tuple(column for column in self.columns[table].tolist() if column >= 0)

    def bins_of(self, tables: np.ndarray) -> np.ndarray:
        """The entries of f that belong to some tables."""
        return bins_of(tables, self.offsets)


@dataclass(frozen=True, eq=False)
class Point:
    """Tables with their refitted intercept, and the mean loss there.

    support : ascending indices of the tables that are used
    handle : what the objective keeps of the rows' scores
    gradient : of the used tables at least, where somebody has computed it
    """

    f: np.ndarray
    support: np.ndarray
    intercept: float | np.ndarray
    loss: float
    handle: Any
    gradient: np.ndarray | None = None


@dataclass
class Work:
    """What has been done: columns of all rows that were read, gradients and Newton steps."""

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

    is_rough : each table's own block is that of all rows and bins; between tables it is off by a few percent
    groups_per_line : between tables the bins of a line are taken together to this many groups; 0: they are not
    n_sampled : between tables this many rows are looked at; None: all
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
    of_bin : int per entry of f, the group of the bin within its table; the number of groups for none
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
        """The entries of f of a table."""
        return slice(self.table_offsets[table], self.table_offsets[table + 1])


@dataclass(frozen=True, eq=False)
class Hessian:
    """The curvature of the loss in the values of merged bins.

    matrix : (n, n) between the groups of all tables
    coupling : (n,) between the groups and the intercept
    total : that of the intercept alone
    by_bin : (n_coef,) the curvature of all rows by bin, of the tables of a rough Hessian; None for an exact one
    """

    matrix: np.ndarray
    coupling: np.ndarray
    total: float
    by_bin: np.ndarray | None = None


class TableChange(Protocol):
    """How the loss answers when the scores of one output change by a number for each bin of one table.

    Arrays by bin have one entry more than the table, the last for the rows without a bin.
    """

    weight: np.ndarray  # of the rows that are looked at, by bin
    f: np.ndarray  # the table, by bin

    def measure(self, change: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rise of the loss by bin, which bins are measured by all rows' parabolas beside a sample)."""

    def rises(self, change: np.ndarray, is_corrected: np.ndarray) -> np.ndarray:
        """The rise of the loss by bin, measured in the way that `measure` chose."""

    def slopes(self, change: np.ndarray, is_corrected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Minus the derivative of `rises`, and the second, by bin."""

    def majorized(self, change: np.ndarray) -> np.ndarray:
        """The curvature of parabolas above the loss, by bin; zero where there are none."""


class TableChanges(Protocol):
    """How the loss answers to changes of one table at a time, around a point."""

    def of(self, table: int, output: int) -> TableChange:
        """Of a table, in the scores of one output."""

    def rise_without(self, table: int) -> float:
        """The rise of the loss without a table, the intercepts of all outputs refitted."""


class Bags(Protocol):
    """Subsamples of the rows, and what fits on them say of the rows that they were not shown."""

    def draw(self) -> Objective:
        """The objective over the rows of the next bag."""

    def add(self, way: int, f: np.ndarray, support: np.ndarray, intercept) -> None:
        """Take the scores of a fit on the last bag, in one of several ways to fit, for the rows that it left out."""

    @property
    def has_left_out(self) -> bool:
        """Whether any bag has left a row out."""

    def loss_of(self, ways: Sequence[int]) -> float:
        """Mean loss of the rows that were left out, at their mean score over bags and ways."""


class Objective(Protocol):
    """The mean loss of c + X f over the weighted rows, minimised over the intercept c.

    Attributes
    ----------
    tables : Tables
    loss : Loss
        Its parameters and its link; not the rows.
    n_total : float
        n, the sum of the sample weights: an integer weight stands for repeated rows.
    n_outputs : int
        Scores per row; with more than one, f has the shape (n_coef, n_outputs).
    n_threads : int
    work : Work
    options : SolverOptions
        What steers fits of it.
    has_many_rows : bool
        Whether passes over the rows are what a fit costs, so that each has to pay.
    weighs_little : bool
        Whether the weights sum to far less than the number of rows, as relative weights do.
    has_constant_target : bool
        Whether y is the same number in every row, without an offset, so that a constant is the best model.
    screening_pays : bool
        Whether to judge a gradient column by bounds takes less time than to sum it.
    has_values : bool
        Whether the values of the columns are at hand, for `rebin`, `better_edges` and lines.
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
    def weighs_little(self) -> bool: ...

    @property
    def has_constant_target(self) -> bool: ...

    @property
    def screening_pays(self) -> bool: ...

    @property
    def has_values(self) -> bool: ...

    @property
    def n_passes(self) -> float:
        """Full passes over the codes so far: columns read over columns there are."""

    @property
    def constant_loss(self) -> float:
        """The loss of the best model without tables."""

    @property
    def constant_curvature(self) -> float:
        """The mean curvature there, of the output where it is largest."""

    def zero_tables(self) -> np.ndarray:
        """f = 0."""

    def point(self, f: np.ndarray, support: np.ndarray, start=None) -> Point:
        """The point at tables that are zero outside the support; `start` is an intercept that may be near."""

    def residuals(self, point: Point) -> Any:
        """The residuals at a point, from which columns of the gradient can be summed one after the other."""

    def gradient(self, point: Point, tables: np.ndarray | None = None, residuals: Any = None) -> np.ndarray:
        """-(1 / w_jk) * sum of v_i residual_i over the rows of bin k, 0 where w_jk = 0; zero outside some tables."""

    def drift(self, residuals: Any, other: Any, rounding: float) -> np.ndarray:
        """sqrt(sum_i v_i (r_i - r'_i)^2) for each output, plus `rounding` times the norm of r."""

    def curvature(self, point: Point, majorize: bool = False, accuracy: Accuracy = EXACT) -> Any:
        """The second derivatives of the rows' losses, of those rows that a Hessian of this accuracy looks at.

        Majorized: of parabolas above the loss that touch it; None where there are none.
        """

    def curvature_sums(
        self, point: Point, tables: np.ndarray, majorize: bool = False, curvature: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(curvature of all rows by bin of some tables and zero elsewhere, its total by output).

        `curvature` is that of all rows at the point, where it is known.
        """

    def still_serves(self, curvature: Any, other: Any) -> bool:
        """Whether a rough Hessian that was built from one serves at the other."""

    def accuracy(self, n_tables: int, n_groups: int, n_unknowns: int) -> Accuracy:
        """Which accuracy pays for a Hessian, from its numbers of tables, groups of bins and unknowns."""

    def merge(self, groups: Groups, accuracy: Accuracy = EXACT) -> Any:
        """The columns of some tables after their bins were merged, kept for Hessians between them."""

    def hessian(self, point: Point, merged: Any, curvature: Any, output: int = 0) -> Hessian:
        """The curvature between merged bins, of one output."""

    def hessian_times(self, point: Point, curvature: Any, tables: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """The Hessian as a map from some tables to sums by bin, the intercept eliminated."""

    def dispersion(self, point: Point, df: float = 1.0) -> float:
        """phi around a point that has chosen df numbers: what one number explains by chance, in units of the loss."""

    def sample(self, share: float) -> Objective | None:
        """The same loss over a share of the rows, n being theirs; None if they are too few to begin a fit on."""

    def representative(self) -> Objective:
        """The same loss over rows enough to estimate one number."""

    def condensed(self) -> Objective:
        """The same loss from sums that answer sooner than rows, if that pays; itself if not."""

    def changes(self, point: Point) -> TableChanges:
        """How the loss answers to changes of one table at a time."""

    def bags(self, n_ways: int, share: float, random_state: Any) -> Bags:
        """Subsamples with a share of the distinct rows, for fits in some number of ways."""

    def better_edges(
        self, point: Point, cuts: Mapping[int, tuple[np.ndarray, np.ndarray, np.ndarray]]
    ) -> dict[int, tuple[float, np.ndarray]]:
        """{table: (decrease of the loss that moved edges promise, edges)}, of tables that have better ones.

        cuts : {table: (edges, labels of its ordered bins by output, positions of the edges that may move)}
        """

    def rebin(self, edges: Mapping[int, np.ndarray]) -> Objective:
        """The same rows with some tables cut at other edges, as many as before."""

    def line_gradient(self, point: Point, tables: np.ndarray, anchors: np.ndarray) -> np.ndarray:
        """Minus the sums of v r and of v r (x - anchor) by bin of some tables: (n_coef, 2) or (n_coef, 2, n_outputs).

        anchors : (n_coef,) one for each bin; x that is not finite counts as the anchor.
        """

    def line_hessian(
        self, point: Point, groups: Groups, anchors: np.ndarray, majorize: bool = False, output: int = 0
    ) -> Hessian | None:
        """The curvature in the values and slopes of groups: (2 n, 2 n), each group's value, then its slope.

        anchors : one for each group, about which x is measured.
        """


def check_objective(objective: Any) -> None:
    """A TypeError that names what an objective cannot answer."""
    methods = [name for name, member in vars(Objective).items() if not name.startswith("_") and callable(member)]
    missing = [name for name in [*Objective.__annotations__, *methods] if not hasattr(objective, name)]
    if missing:
        raise TypeError(
            f"objective is a {type(objective).__name__}, which has no {', '.join(missing)}; rbr.objective.Objective "
            "says what it must answer"
        )
