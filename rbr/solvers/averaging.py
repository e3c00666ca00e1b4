"""Averages over all ways to cut the tables into pieces.

Noise has a say in where jumps lie and in which of several related features enter, and the mean over all that could be
true predicts better than the best single guess. Bags estimate such a mean by fits on subsamples. Here it is computed:
given the other tables, the mean of a table over all ways to cut it, weighted by how well they explain the rows, is a
sum that a recursion over bins takes exactly (`rbr.reference.averages`). A table that bends slowly is told only roughly
by pieces: beside all ways to cut it stand smooth curves (`rbr.reference.curves`), by their evidence. The tables are
visited in turn until the loss settles. That is coordinate ascent of a mean-field posterior; nothing is drawn at random.

What the prior says:
- A feature is used with the odds (k + 1) / (p - k), k the number of the others in use: with p candidates and none in
  use the first must be p times as likely as chance, and where most are in use the next need not (Scott and Berger
  2010). A feature that is less likely used than not is left out in the end.
- The number of jumps and the size of the effects are those of the table itself, as estimated in the last round (a step
  of the EM algorithm), within wide limits. A feature pays for these two numbers.
- The levels of a category have one Gaussian prior; its width is averaged over a grid, as are the height of a curve and
  the length over which it bends.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from rbr._backend import kernels
from rbr._parallel import over_ranges
from rbr.constraints import BoundConstraints
from rbr.objective.protocol import Objective, Point, Visits

# The prior of a level, in rows: means are averaged over these widths by their evidence.
ROWS_OF_LEVELS = np.array([1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0])

# The priors of a curve: over which part of its bins rises stay alike, and how many rows its value at an end is worth.
LENGTHS_OF_CURVES = np.array([1.0, 0.25, 0.0625, 0.0])
ROWS_OF_CURVES = np.array([0.1, 0.3, 1.0, 3.0, 10.0, 30.0])

# Evidence that differs by less is the same, and its last bits depend on the order of the rows.
DIGITS_OF_EVIDENCE = 6


@dataclass(eq=False)
class Posterior:
    """What is known of each table, by table and output.

    f : the mean tables, which count with the probability of the feature
    share : the probability that the feature is used
    evidence : log odds of the data under a table against none
    explained : what the mean table explains, in units of log-likelihood; more than the evidence, since it was searched
    pieces : the mean number of pieces; a curve takes one for two unknowns, as lines do
    freedom : the degrees of freedom, with the places of jumps, which were searched for
    jumps, rows : the prior's number of jumps, and of rows that an effect is worth
    """

    f: np.ndarray
    share: np.ndarray
    evidence: np.ndarray
    explained: np.ndarray
    pieces: np.ndarray
    freedom: np.ndarray
    jumps: np.ndarray
    rows: np.ndarray

    @classmethod
    def at_first(cls, objective: Objective) -> Posterior:
        shape, options = (objective.tables.n_tables, objective.n_outputs), objective.options
        return cls(
            np.zeros((objective.tables.n_coef, objective.n_outputs)),
            *(np.zeros(shape), np.full(shape, -np.inf), np.zeros(shape), np.ones(shape), np.ones(shape)),
            *(np.full(shape, number, dtype=np.float64) for number in (options.least_jumps, options.most_prior_rows)),
        )

    def copy(self) -> Posterior:
        return Posterior(**{name: values.copy() for name, values in vars(self).items()})


@dataclass(eq=False)
class Averaging:
    """A run of rounds over the tables.

    objective, bound : what is fitted, and the shapes and limits of the tables
    allowed : bool per table, which may be used
    known_dispersion : of the rows; None if it is to be estimated
    uses_all : whether every feature is used, whatever its evidence
    shares_prior : whether what effects are worth in one table says something of the others
    looseness : by what factor the prior that they share is wider than their effects are
    settled : rounds end when one changes the loss by at most this many units of log-likelihood; None: by default
    rising : tables of which is known how they rise within the bins that are averaged over as one; None: not at all
    """

    objective: Objective
    bound: BoundConstraints
    alpha: float
    allowed: np.ndarray
    posterior: Posterior = field(init=False)
    known_dispersion: float | None = None
    uses_all: bool = False
    shares_prior: bool = False
    looseness: float = 1.0
    settled: float | None = None
    rising: np.ndarray | None = None
    dispersion: float = field(init=False)
    growth: np.ndarray = field(init=False)
    held_rows: np.ndarray | None = field(init=False, default=None)

    def __post_init__(self):
        self.posterior = Posterior.at_first(self.objective)
        # The bins that are averaged over: neighbours merged where they have too few rows or are too many; -1 for those
        # without rows and for missing values.
        offsets, shares = self.bound.offsets, self.objective.tables.shares
        table, place = np.repeat(np.arange(self.bound.n_features), self.bound.n_bins), np.arange(offsets[-1])
        live = (shares > 0) & (place < (offsets[:-1] + self.bound.n_ordered)[table])
        rows = np.cumsum(np.where(live, shares, 0.0)) - 0.5 * shares
        rows -= (rows + 0.5 * shares - np.where(live, shares, 0.0))[offsets[:-1]][table]
        # Whole numbers of rows are whole whatever the rounding errors of their shares are.
        filled = rows * (self.objective.n_total / max(self.least_rows, 1e-300))
        stretch = np.floor(filled + 1e-9) if self.least_rows else place
        bins = np.flatnonzero(live)
        begins = np.ones(len(bins), dtype=np.int64)
        begins[1:] = (stretch[bins[1:]] != stretch[bins[:-1]]) | (table[bins[1:]] != table[bins[:-1]])
        n_begun = np.bincount(table[bins], begins, minlength=self.bound.n_features).astype(np.int64)
        rank = np.cumsum(begins) - 1 - (np.cumsum(n_begun) - n_begun)[table[bins]]
        self.n_groups = np.minimum(n_begun, self.most_groups)
        self.group = np.full(offsets[-1], -1, dtype=np.int64)
        self.group[bins] = rank * self.n_groups[table[bins]] // np.maximum(n_begun, 1)[table[bins]]
        self._tell_empty_bins(table, place)
        self.rises = np.zeros_like(self.posterior.f) if self.rising is None else self._within_groups(self.rising)
        self.is_grouped = ~self.bound.flags("has_jumps")
        lines = np.where(self.bound.flags("is_never_flat"), 1.0, self.objective.options.line_share)
        self.line_shares = np.where(self.bound.flags("has_lines"), lines, 0.0)
        self.can_overshoot = self.objective.loss.link != "identity"

    def _tell_empty_bins(self, table: np.ndarray, place: np.ndarray) -> None:
        """Ordered bins without rows are told as those before them, the first ones as those after them.

        A bag has such bins, and rows outside of it lie in them.
        """
        ordered = np.flatnonzero(
            (place < (self.bound.offsets[:-1] + self.bound.n_ordered)[table]) & (self.n_groups > 0)[table]
        )
        if len(ordered):
            last = np.maximum.accumulate(np.where(self.group[ordered] >= 0, ordered, -1))
            self.group[ordered] = np.where(last < self.bound.offsets[table[ordered]], 0, self.group[last])

    def _within_groups(self, tables: np.ndarray) -> np.ndarray:
        """Tables less their means over the bins that are averaged over as one."""
        bins = np.flatnonzero(self.group >= 0)
        table = np.repeat(np.arange(self.bound.n_features), self.bound.n_bins)[bins]
        begins = np.diff(self.group[bins], prepend=-1) | np.diff(table, prepend=-1)
        group, shares = np.cumsum(begins != 0) - 1, self.objective.tables.shares[bins]
        totals, out = np.bincount(group, shares), np.zeros_like(tables)
        for c, own in enumerate(tables[bins].T):
            out[bins, c] = own - (np.bincount(group, shares * own) / totals)[group]
        return out

    @property
    def most_groups(self) -> int:
        options = self.objective.options
        if self.has_bounded_rows:
            return options.most_averaged_bins
        by_rows = int(self.objective.n_total / options.rows_per_bin_with_outliers)
        return max(options.least_averaged_bins, min(options.most_averaged_bins, by_rows))

    @property
    def has_bounded_rows(self) -> bool:
        """Whether no row can lie far out, as with classes."""
        return self.objective.loss.has_known_dispersion

    @property
    def least_rows(self) -> float:
        """The least rows of a bin: where a row can lie far out, a few of them must not make a piece."""
        return 0.0 if self.has_bounded_rows else self.objective.options.least_rows_with_outliers

    @property
    def least_prior_rows(self) -> float:
        options = self.objective.options
        return options.least_prior_rows_of_classes if self.has_bounded_rows else options.least_prior_rows

    @property
    def price_of_prior(self) -> float:
        options = self.objective.options
        return options.price_of_prior_of_classes if self.has_bounded_rows else options.price_of_prior

    @property
    def has_rows_for_all(self) -> bool:
        """Whether there are rows enough to fit all features that may be used together."""
        return self.objective.n_total >= self.objective.options.rows_per_feature * self.n_allowed

    def copy(self) -> Averaging:
        """A run that stays as it is while this one goes on."""
        other = copy(self)
        other.posterior = self.posterior.copy()
        return other

    @property
    def n_allowed(self) -> float:
        """The number of features that may be used."""
        return self.allowed.sum()

    # One round -------------------------------------------------------------------------------------------------

    def log_odds(self, tables: np.ndarray) -> np.ndarray:
        """The log odds of some features, by output."""
        share = self.posterior.share
        odds = self.posterior.evidence[tables] - self.price_beside(share.sum(axis=0) - share[tables])
        odds[self.bound.forced[tables] | self.uses_all] = np.inf
        return odds

    def price_beside(self, n_used: np.ndarray) -> np.ndarray:
        """The evidence that makes a feature as likely used as not, if `n_used` of the others are in use."""
        return np.log((self.n_allowed - n_used) / (n_used + 1.0)) + self.price_of_prior

    def told(self, tables: np.ndarray, H: np.ndarray, step: float) -> tuple:
        """What the kernels of visits are told: see `rbr.reference.visits.visit_tables`."""
        bound, options, geometry = self.bound, self.objective.options, self.objective.tables
        return (
            *(np.ascontiguousarray(tables, dtype=np.int64), bound.offsets, self.group, self.n_groups),
            *(bound.n_ordered, self.is_grouped.view(np.uint8), bound.missing.view(np.uint8)),
            *((bound.forced | self.uses_all).view(np.uint8), self.line_shares, geometry.weights, self.rises),
            *(np.ascontiguousarray(H.reshape(len(H), -1)), self.growth if self.can_overshoot else np.zeros(0)),
            *(ROWS_OF_LEVELS, LENGTHS_OF_CURVES, ROWS_OF_CURVES),
            *(self.objective.n_total, self.dispersion, self.alpha),
            # A prior that is shared has its limits once it is.
            *((0.0, np.inf) if self.shares_prior else (self.least_prior_rows, options.most_prior_rows)),
            *(options.least_jumps, options.most_jumps),
            *(options.curve_share, float(self.n_allowed), self.price_of_prior, step),
        )

    def bins(self, table: int) -> slice:
        return slice(self.bound.offsets[table], self.bound.offsets[table + 1])

    def moved(self) -> tuple:
        """What the kernels of visits move."""
        own = self.posterior
        return own.f, own.share, own.evidence, own.explained, own.pieces, own.freedom, own.jumps, own.rows

    def visits(self, H: np.ndarray) -> Visits:
        """What a round does to the tables that it visits, given the sums of curvatures."""
        return TableVisits(self, H)

    # Rounds ----------------------------------------------------------------------------------------------------

    def point(self, start=None) -> Point:
        f = self.posterior.f[:, 0] if self.objective.n_outputs == 1 else self.posterior.f
        support = np.flatnonzero(np.logical_or.reduceat((self.posterior.f != 0).any(axis=1), self.bound.offsets[:-1]))
        return self.objective.point(f.copy(), support, start)

    def estimate_dispersion(self, point: Point) -> None:
        df = 1.0 + float((self.posterior.share * self.posterior.freedom).sum())
        if self.known_dispersion is None:
            self.dispersion = max(self.objective.dispersion(point, min(df, self.objective.n_total / 2)), 1e-300)
        else:
            self.dispersion = self.known_dispersion

    def measure_growth(self, point: Point) -> None:
        """By what part of itself the curvature grows as a score rises by one, at the mean prediction."""
        mean = self.objective.loss.inverse_link(np.reshape(point.intercept, (1, -1)))
        self.growth = np.ravel(self.objective.loss.curvature_growth(mean))

    def look_at_all(self, point: Point, tables: np.ndarray) -> None:
        """The evidence of some tables that are not used, all at the same point."""
        if not len(tables):
            return
        H, _ = self.objective.curvature_sums(point, tables, self.majorizes)
        G = -self.objective.gradient(point, tables).reshape(len(H), -1)
        pulls = np.ascontiguousarray(G * self.objective.tables.weights[:, None])
        threads = self.objective.n_threads
        over_ranges(kernels().visit_tables, len(tables), threads, *self.told(tables, H, 0.0), pulls, *self.moved())

    @property
    def majorizes(self) -> bool:
        """Whether parabolas above the loss replace its curvature, which is zero in most rows (Huber, quantile)."""
        return self.objective.loss.is_straight_in_places

    def round(self, point: Point, tables: np.ndarray) -> None:
        """Visit some tables, those that explain most first."""
        H, _ = self.objective.curvature_sums(point, tables, self.majorizes)
        # Tables that say the same of the rows are visited in the order of their columns, whatever rounding says.
        first = np.argsort(-self.posterior.evidence[tables].max(axis=1).round(DIGITS_OF_EVIDENCE), kind="stable")
        self.objective.backfit(point).visit(tables[first], self.visits(H.reshape(len(H), -1)))
        if self.shares_prior and self.held_rows is None:
            self.share_prior()
        elif self.shares_prior:
            self.posterior.rows[:] = self.held_rows

    def share_prior(self) -> None:
        """Let the prior of each table lean on that of all.

        A visit leaves one over the mean square of the pieces as the prior of a table. Here the mean square of the
        pieces of all tables counts in it like `shared_pieces` more pieces: one or two of its own say little. Without
        it, one of several related columns has large effects and thus a wide prior, the others a narrow one and no
        effects.
        """
        options, posterior = self.objective.options, self.posterior
        for c in range(self.objective.n_outputs):
            # A column of missing values alone has no pieces.
            has_pieces = ~self.is_grouped & (self.n_groups > 0)
            tables = np.flatnonzero(has_pieces & self.allowed & (posterior.share[:, c] > 0.5))
            if len(tables):
                n, rows, more = posterior.pieces[tables, c], posterior.rows[tables, c], options.shared_pieces
                rows = np.clip(rows, 1e-300, 1e300)
                squares = n / rows
                of_all = self.looseness * squares.sum() / n.sum()
                posterior.rows[tables, c] = (n + more) / (squares + more * of_all)
        posterior.rows[:] = np.clip(posterior.rows, self.least_prior_rows, options.most_prior_rows)

    @property
    def step(self) -> float:
        """How far tables go towards their means: where classes share rows, both steps together would be too long."""
        return 1.0 if self.objective.n_outputs == 1 else self.objective.options.step_of_classes

    def run(self, report: Callable[[Point], bool]) -> Point:
        """Rounds over the tables that may be used, until the loss settles; the point where they end."""
        options = self.objective.options
        everything = np.flatnonzero(self.allowed)
        point = self.point()
        self.measure_growth(point)
        self.estimate_dispersion(point)
        self.look_at_all(point, everything)
        is_stopped = report(point)
        for _ in range(options.averaging_searches):
            is_active = (self.log_odds(everything) > -options.least_log_odds).any(axis=1)
            active = everything[is_active]
            if is_stopped or not len(active):
                break
            point, is_stopped = self._settle(point, active, report)
            others = np.setdiff1d(everything, active, assume_unique=True)
            if is_stopped or not len(others):
                break
            self.look_at_all(point, others)
            if not (self.log_odds(others) > 0.0).any():
                break
        return point

    def go_on(self, point: Point, report: Callable[[Point], bool]) -> Point:
        """More rounds over all features that may be used; the point where they end."""
        return self._settle(point, np.flatnonzero(self.allowed), report)[0]

    def settle_on_shared_prior(self, point: Point, report: Callable[[Point], bool]) -> Point:
        """More rounds over the features in use, whose priors now lean on one another; the point where they end.

        They are held: what a shared prior is for, many weak effects, has little evidence one by one.
        """
        used = self.used()
        self.leave_out(np.setdiff1d(np.flatnonzero(self.allowed), used))
        self.allowed = np.isin(np.arange(self.bound.n_features), used)
        self.uses_all = self.shares_prior = True
        return self._settle_prior_and_tables(self.point(point.intercept), used, report)

    def loosened(self, looseness: float, point: Point, report: Callable[[Point], bool]) -> Point:
        """More rounds with a shared prior that is wider by some factor; the point where they end."""
        self.looseness = looseness
        return self._settle_prior_and_tables(point, np.flatnonzero(self.allowed), report)

    def _settle_prior_and_tables(self, point: Point, active: np.ndarray, report) -> Point:
        """Some rounds in which the shared prior follows the tables, and then rounds with that prior."""
        self.held_rows = None
        self.share_prior()
        point, is_stopped = self._settle(point, active, report, self.objective.options.rounds_of_shared_prior)
        self.held_rows = self.posterior.rows.copy()
        return point if is_stopped else self._settle(point, active, report)[0]

    def narrow(self, point: Point, report: Callable[[Point], bool]) -> Point:
        """From where all features are used, rounds with those that have evidence; the point where they end."""
        everything = np.flatnonzero(self.allowed)
        self.uses_all = self.shares_prior = False
        self.round(point, everything)
        is_active = (self.log_odds(everything) > -self.objective.options.least_log_odds).any(axis=1)
        self.leave_out(everything[~is_active])
        return self._settle(self.point(point.intercept), everything[is_active], report)[0]

    def leave_out(self, tables: np.ndarray) -> None:
        """Use some features no more."""
        self.posterior.f[self.objective.tables.bins_of(tables)] = 0.0
        self.posterior.share[tables] = 0.0

    def worth(self, point: Point) -> float:
        """The bound that mean-field rounds raise on the log evidence of all tables together, up to a constant.

        It is the log-likelihood of the mean tables, less what each explains beyond its evidence, and less the prior of
        using those features: all numbers of features are as likely, and all choices of as many.
        """
        share, posterior = self.posterior.share, self.posterior
        n_used, n = share.sum(axis=0), float(self.n_allowed)
        choices = gammaln(n + 1.0) - gammaln(n_used + 1.0) - gammaln(n - n_used + 1.0)
        paid = posterior.explained - posterior.evidence + self.price_of_prior
        paid = share * np.where(share > 0, paid, 0.0)
        return float(-point.loss * self.objective.n_total / self.dispersion - paid.sum() - choices.sum())

    def used(self) -> np.ndarray:
        """The features that are more likely used than not."""
        return np.flatnonzero((self.posterior.share > 0.5).any(axis=1))

    def means(self, used: np.ndarray) -> np.ndarray:
        """The mean tables of the used features, zero elsewhere."""
        f, bins = np.zeros_like(self.posterior.f), self.objective.tables.bins_of(used)
        f[bins] = self.posterior.f[bins]
        return f[:, 0] if self.objective.n_outputs == 1 else f

    def limits(self) -> np.ndarray:
        """The most pieces of each table, from the jumps that it has on average."""
        jumps = np.floor(self.objective.options.jumps_kept * (self.posterior.pieces.max(axis=1) - 1.0))
        most = 1 + np.maximum(jumps, 1).astype(self.bound.limits.dtype)
        return np.where(self.is_grouped, self.bound.limits, np.minimum(self.bound.limits, most))

    def limited(self, point: Point, used: np.ndarray, most: int, report) -> tuple[Point, np.ndarray]:
        """More rounds with those features only, at most `most`, whose tables are largest."""
        weights = self.objective.tables.weights[:, None]
        norms = np.add.reduceat((weights * self.posterior.f**2).sum(axis=1), self.bound.offsets[:-1])[used]
        norms = np.where(self.bound.forced[used], np.inf, norms)
        kept = np.sort(used[np.argsort(-norms, kind="stable")[:most]])
        self.leave_out(np.setdiff1d(np.arange(self.bound.n_features), kept))
        self.allowed = np.isin(np.arange(self.bound.n_features), kept)
        point, _ = self._settle(self.point(point.intercept), kept, report)
        return point, self.used()

    def _settle(self, point: Point, active: np.ndarray, report, most: int | None = None) -> tuple[Point, bool]:
        """Rounds over some tables until the loss settles; the point where they end, and whether to stop there.

        Correlated features take turns in explaining the same, which takes hundreds of rounds if each goes on from the
        tables where the last one ended; `Mixing` finds where they are heading.
        """
        options = self.objective.options
        settled = options.settled if self.settled is None else self.settled
        bins, mixing = self.objective.tables.bins_of(active), Mixing(options.mixed_rounds)
        weights = np.sqrt(self.objective.tables.weights[bins, None])
        for _ in range(options.averaging_rounds if most is None else most):
            f, last = self.posterior.f[bins], self.posterior.copy()
            self.round(point, active)
            self.posterior.f[bins] = mixing.next(f, self.posterior.f[bins], weights)
            before, point = point, self.point(point.intercept)
            if self.has_run_away(before, point):
                self.posterior = last
                return before, False
            self.estimate_dispersion(point)
            if report(point):
                return point, True
            change = abs(before.loss - point.loss) * self.objective.n_total / self.dispersion
            if not change > settled:
                break
        return point, False

    def has_run_away(self, before: Point, after: Point) -> bool:
        """Whether a round ends clearly worse than it began, and than the constant model.

        Under a log link a long step can raise the loss beyond all bounds, and the next rounds would only go further.
        """
        rise = after.loss - max(before.loss, self.objective.constant_loss)
        return not rise * self.objective.n_total / self.dispersion <= self.objective.options.least_runaway


class TableVisits:
    """The visits of a round; see `rbr.objective.protocol.Visits`.

    H : sums of curvatures, by bin and output
    """

    def __init__(self, run: Averaging, H: np.ndarray):
        self._run, self._H = run, H

    @cached_property
    def _alone(self) -> tuple[np.ndarray, np.ndarray, tuple]:
        """(table, pulls, arguments) of the kernel for a single table at a time, where no kernel reads the rows."""
        table, pulls, run = np.zeros(1, dtype=np.int64), np.zeros(self._H.shape), self._run
        return table, pulls, (*run.told(table, self._H, run.step), pulls, *run.moved())

    def in_kernel(self, tables: np.ndarray) -> tuple[tuple, tuple] | None:
        return self._run.told(tables, self._H, self._run.step), self._run.moved()

    def change(self, table: int, sums: np.ndarray) -> np.ndarray | None:
        f, bins, (alone, pulls, arguments) = self._run.posterior.f, self._run.bins(table), self._alone
        before, alone[0] = f[bins].copy(), table
        pulls[bins] = sums.reshape(before.shape)
        kernels().visit_tables(*arguments, 0, 1)
        return change_of(f[bins] - before)


def change_of(difference: np.ndarray) -> np.ndarray | None:
    """A change of a table as the rows expect it, None if there is none."""
    if not difference.any():
        return None
    return difference[:, 0] if difference.shape[1] == 1 else difference


class Mixing:
    """Where rounds are heading: the mix of the last rounds whose change, to first order, is least (Anderson 1965).

    Round k takes x_k to g_k. With r_k = g_k - x_k, and differences D of successive x, g and r,

        next x = g_k - sum_i a_i Dg_i,    a = argmin || r_k - sum_i a_i Dr_i ||.

    If a change is larger than the last one, the mix has failed, and rounds go on from the last tables alone.
    """

    def __init__(self, most: int):
        self.most = most
        self.last: tuple[np.ndarray, np.ndarray] | None = None
        self.dg: list[np.ndarray] = []
        self.dr: list[np.ndarray] = []

    def next(self, x: np.ndarray, g: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The tables to go on from, after a round from x to g, in the norm of weighted bins."""
        r = (weights * (g - x)).ravel()
        if self.last is not None:
            g_last, r_last = self.last
            if r @ r > r_last @ r_last:
                self.dg, self.dr = [], []
            else:
                self.dg = [*self.dg, g - g_last][-self.most :]
                self.dr = [*self.dr, r - r_last][-self.most :]
        self.last = g, r
        if not self.dr:
            return g.copy()
        shares = np.linalg.lstsq(np.column_stack(self.dr), r, rcond=1e-6)[0]
        return g - sum(share * d for share, d in zip(shares, self.dg, strict=True))
