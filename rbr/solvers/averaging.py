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

import numpy as np
from scipy.special import gammaln

from rbr._backend import kernels
from rbr._parallel import over_ranges
from rbr.constraints import BoundConstraints
from rbr.objective.protocol import Objective, Point

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


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Some tables one after the other, each of one output: where their bins stand, and where those averaged over do.

    tables, outputs, starts : the tables, the output and the first bin of each
    table, output : of each bin, the place of its table among them, and its output
    weights, rises : of the bins, and what their tables are known to rise within the bins that are averaged over as one
    grouped : (place among the tables, bins) of those whose bins have no order
    is_ordered, ordered, of_output : the others, and their outputs
    bins, places : which bins are averaged over, and as which of the merged ones
    offsets, n_groups : where the merged bins of an ordered table begin, and their number
    line_shares : the prior share of lines among the pieces of an ordered table
    has_missing, missing : which ordered tables have a bin for missing values, and those bins
    """

    tables: np.ndarray
    outputs: np.ndarray
    starts: np.ndarray
    table: np.ndarray
    output: np.ndarray
    weights: np.ndarray
    rises: np.ndarray
    grouped: list[tuple[int, slice]]
    is_ordered: np.ndarray
    ordered: np.ndarray
    of_output: np.ndarray
    bins: np.ndarray
    places: np.ndarray
    offsets: np.ndarray
    n_groups: np.ndarray
    line_shares: np.ndarray
    has_missing: np.ndarray
    missing: np.ndarray

    @classmethod
    def of(cls, run: Averaging, tables: np.ndarray, outputs: np.ndarray) -> SideBySide:
        ends = np.cumsum(run.bound.n_bins[tables])
        starts = ends - run.bound.n_bins[tables]
        table, in_all = np.repeat(np.arange(len(tables)), ends - starts), run.objective.tables.bins_of(tables)
        is_ordered, output = ~run.is_grouped[tables], outputs[table]
        grouped = [(t, slice(starts[t], ends[t])) for t in np.flatnonzero(~is_ordered).tolist()]
        ordered, group = tables[is_ordered], run.group[in_all]
        n_groups = run.n_groups[ordered]
        offsets = np.concatenate([[0], np.cumsum(n_groups)]).astype(np.int64)
        first = np.zeros(len(tables), dtype=np.int64)
        first[is_ordered] = offsets[:-1]
        bins = np.flatnonzero((group >= 0) & is_ordered[table])
        has_missing = run.bound.missing[ordered]
        return cls(
            *(tables, outputs, starts, table, output),
            run.objective.tables.weights[in_all],
            run.rises[in_all, output],
            grouped,
            *(is_ordered, ordered, outputs[is_ordered]),
            *(bins, group[bins] + first[table[bins]], offsets, n_groups, run.line_shares[ordered]),
            *(has_missing, ends[is_ordered][has_missing] - 1),
        )


@dataclass(eq=False)
class Averaging:
    """A run of rounds over the tables.

    objective, bound : what is fitted, and the shapes and limits of the tables
    allowed : bool per table, which may be used
    known_dispersion : of the rows; None if it is to be estimated
    uses_all : whether every feature is used, whatever its evidence
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
    settled: float | None = None
    rising: np.ndarray | None = None
    dispersion: float = field(init=False)
    growth: np.ndarray = field(init=False)

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
        self.group = np.full(offsets[-1], -1)
        self.group[bins] = rank * self.n_groups[table[bins]] // np.maximum(n_begun, 1)[table[bins]]
        self.rises = np.zeros_like(self.posterior.f) if self.rising is None else self._within_groups(self.rising)
        self.is_grouped = ~self.bound.flags("has_jumps")
        lines = np.where(self.bound.flags("is_never_flat"), 1.0, self.objective.options.line_share)
        self.line_shares = np.where(self.bound.flags("has_lines"), lines, 0.0)
        self.can_overshoot = self.objective.loss.link != "identity"
        self._alone: dict[int, SideBySide] = {}

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
        other.posterior = Posterior(**{name: values.copy() for name, values in vars(self.posterior).items()})
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

    def side_by_side(self, tables: np.ndarray, outputs: np.ndarray) -> SideBySide:
        """Where the bins of some tables stand, each of one output."""
        return SideBySide.of(self, tables, outputs)

    def alone(self, table: int) -> SideBySide:
        """A single table for each output; remembered, since it is visited again and again."""
        if table not in self._alone:
            n = self.objective.n_outputs
            self._alone[table] = self.side_by_side(np.full(n, table), np.arange(n))
        return self._alone[table]

    def precisions(self, at: SideBySide, G: np.ndarray, H: np.ndarray, f: np.ndarray):
        """(S, W) by bin of some tables: W the precision of a bin's value, S that times the value.

        G and H are the sums of residuals and curvatures. The value of a bin is what a Newton step gives it, with the
        curvature H + t G / 3 if that grows by the part t of itself as the score rises by one: what is gained is then
        G^2 / 2 (H + t G / 3), to third order, for bins and for the pieces made of them, since G and H add up. So a few
        rare positives are worth what they are worth, and not what H alone says. A step is no longer than three units.
        The mean is the intercept's: it is taken out.
        """
        if self.can_overshoot:
            H = np.maximum(H + self.growth[at.output] * G / 3.0, np.abs(G) / 3.0)
        scale = self.objective.n_total / self.dispersion
        S, W = scale * (G + H * f), scale * (H + self.alpha * at.weights)
        mean = np.add.reduceat(S, at.starts) / np.maximum(np.add.reduceat(W, at.starts), 1e-300)
        return S - W * mean[at.table], W

    def average(self, at: SideBySide, S: np.ndarray, W: np.ndarray) -> np.ndarray:
        """Update the evidence, pieces and priors of some tables; returns their means, side by side.

        S and W have the bins of these tables, one after the other.
        """
        posterior = self.posterior
        means, totals = np.zeros(len(S)), np.add.reduceat(W, at.starts) / self.objective.n_total
        for t, bins in at.grouped:
            own = at.tables[t], at.outputs[t]
            means[bins], posterior.evidence[own], pieces = _levels(S[bins], W[bins], totals[t])
            posterior.pieces[own], posterior.freedom[own] = pieces, _freedom(pieces, self.bound.n_ordered[own[0]])
        if len(at.ordered):
            self._average_ordered(at, S, W, totals[at.is_ordered], means)
        found, left = means - at.rises, S - W * at.rises
        posterior.explained[at.tables, at.outputs] = np.add.reduceat(found * (left - 0.5 * W * found), at.starts)
        return means

    def _average_ordered(self, at: SideBySide, S, W, totals, means) -> None:
        """The part of `average` for tables whose bins have an order; writes their means."""
        posterior, options, own = self.posterior, self.objective.options, (at.ordered, at.of_output)
        # Without any bin, as in a column of missing values alone, bincount counts in integers.
        rises = at.rises[at.bins]
        sums, weights = (
            np.bincount(at.places, by_bin, minlength=at.offsets[-1]).astype(np.float64, copy=False)
            for by_bin in (S[at.bins] - W[at.bins] * rises, W[at.bins])
        )
        weights = np.maximum(weights, 1e-300)
        priors = np.maximum(posterior.rows[own] * totals, 1e-300)
        jumps = np.minimum(posterior.jumps[own] / np.maximum(at.n_groups - 1, 1), 0.5)
        out, (evidence, pieces, suggested) = np.zeros(at.offsets[-1]), np.zeros((3, len(at.ordered)))
        inputs = sums, weights, priors, jumps / (1.0 - jumps), at.line_shares
        outputs = out, evidence, pieces, suggested
        over_ranges(kernels().average_tables, len(at.ordered), self.objective.n_threads, at.offsets, *inputs, *outputs)
        rows = suggested / np.maximum(totals, 1e-300)
        posterior.rows[own] = np.minimum(np.maximum(rows, self.least_prior_rows), options.most_prior_rows)
        most = np.maximum(options.most_jumps * at.n_groups, options.least_jumps)
        posterior.jumps[own] = np.minimum(np.maximum(pieces - 1.0, options.least_jumps), most)
        freedom = _freedom(pieces, self.bound.n_ordered[at.ordered])
        if options.curve_share and at.line_shares.any():
            curved, curve, of_curves, unknowns = self._curves(at, sums, weights, totals, evidence)
            out += np.repeat(curved, at.n_groups) * (curve - out)
            pieces, freedom = pieces + curved * (1.0 + unknowns / 2.0 - pieces), freedom + curved * (unknowns - freedom)
            evidence = of_curves
        means[at.bins] = out[at.places] + rises
        if len(at.missing):
            last, prior = at.missing, priors[at.has_missing]
            means[last] = S[last] / (W[last] + prior)
            evidence[at.has_missing] += 0.5 * S[last] ** 2 / (W[last] + prior) - 0.5 * np.log1p(W[last] / prior)
        for name, found in (("evidence", evidence), ("pieces", pieces), ("freedom", freedom)):
            getattr(posterior, name)[own] = found

    def _curves(self, at: SideBySide, sums, weights, totals, evidence) -> tuple[np.ndarray, ...]:
        """(probability of a curve rather than pieces, its mean, log evidence of both, unknowns of the curve)."""
        own, share = at.ordered, self.objective.options.curve_share
        curve, (of_curve, unknowns) = np.zeros(at.offsets[-1]), np.zeros((2, len(own)))
        inputs = sums, weights, np.maximum(totals, 1e-300), LENGTHS_OF_CURVES, ROWS_OF_CURVES
        outputs = curve, of_curve, unknowns
        over_ranges(kernels().average_curves, len(own), self.objective.n_threads, at.offsets, *inputs, *outputs)
        # Where no lines are allowed, neither are curves.
        of_curve[at.line_shares == 0] = -np.inf
        both = np.logaddexp(np.log1p(-share) + evidence, np.log(share) + of_curve)
        return np.exp(np.log(share) + of_curve - both), curve, both, unknowns

    def include(self, table: int, means: np.ndarray) -> np.ndarray:
        """The mean table of each output, counted with the probability of the feature and centred."""
        log_odds = self.log_odds(np.array([table]))[0]
        share = 1.0 / (1.0 + np.exp(-np.minimum(np.maximum(log_odds, -700.0), 700.0)))
        self.posterior.share[table] = share
        bins = slice(self.bound.offsets[table], self.bound.offsets[table + 1])
        counted = share * means
        return counted - self.objective.tables.weights[bins] @ counted

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
        G, H = G * self.objective.tables.weights[:, None], H.reshape(len(H), -1)
        bins = self.objective.tables.bins_of(tables)
        for c in range(self.objective.n_outputs):
            at = self.side_by_side(tables, np.full(len(tables), c))
            self.average(at, *self.precisions(at, G[bins, c], H[bins, c], self.posterior.f[bins, c]))

    @property
    def majorizes(self) -> bool:
        """Whether parabolas above the loss replace its curvature, which is zero in most rows (Huber, quantile)."""
        return self.objective.loss.is_straight_in_places

    def round(self, point: Point, tables: np.ndarray) -> None:
        """Visit some tables, those that explain most first."""
        H, _ = self.objective.curvature_sums(point, tables, self.majorizes)
        H = H.reshape(len(H), -1)
        rows = self.objective.backfit(point)
        step = 1.0 if self.objective.n_outputs == 1 else self.objective.options.step_of_classes
        # Tables that say the same of the rows are visited in the order of their columns, whatever rounding says.
        first = np.argsort(-self.posterior.evidence[tables].max(axis=1).round(DIGITS_OF_EVIDENCE), kind="stable")
        for j in tables[first].tolist():
            bins = slice(self.bound.offsets[j], self.bound.offsets[j + 1])
            G, before, at = rows.residual_sums(j), self.posterior.f[bins].copy(), self.alone(j)
            # One output after the other, as they stand side by side.
            by_bin = (by_output.reshape(bins.stop - bins.start, -1).T.ravel() for by_output in (G, H[bins], before))
            means = self.average(at, *self.precisions(at, *by_bin)).reshape(before.shape[::-1]).T
            self.posterior.f[bins] += step * (self.include(j, means) - before)
            change = self.posterior.f[bins] - before
            if change.any():
                rows.add(j, change[:, 0] if self.objective.n_outputs == 1 else change)

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

    def narrow(self, point: Point, report: Callable[[Point], bool]) -> Point:
        """From where all features are used, rounds with those that have evidence; the point where they end."""
        everything = np.flatnonzero(self.allowed)
        self.uses_all = False
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

    def _settle(self, point: Point, active: np.ndarray, report) -> tuple[Point, bool]:
        """Rounds over some tables until the loss settles; the point where they end, and whether to stop there.

        Correlated features take turns in explaining the same, which takes hundreds of rounds if each goes on from the
        tables where the last one ended; `Mixing` finds where they are heading.
        """
        options = self.objective.options
        settled = options.settled if self.settled is None else self.settled
        bins, mixing = self.objective.tables.bins_of(active), Mixing(options.mixed_rounds)
        weights = np.sqrt(self.objective.tables.weights[bins, None])
        for _ in range(options.averaging_rounds):
            f = self.posterior.f[bins]
            self.round(point, active)
            self.posterior.f[bins] = mixing.next(f, self.posterior.f[bins], weights)
            before, point = point, self.point(point.intercept)
            self.estimate_dispersion(point)
            if report(point):
                return point, True
            change = abs(before.loss - point.loss) * self.objective.n_total / self.dispersion
            if not change > settled:
                break
        return point, False


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


def _freedom(pieces, n_bins) -> np.ndarray:
    """The degrees of freedom of pieces: their values, and the places of the jumps between them."""
    return pieces + np.maximum(pieces - 1.0, 0.0) * np.log(np.maximum(n_bins, 2))


def _levels(S: np.ndarray, W: np.ndarray, per_row: float) -> tuple[np.ndarray, float, float]:
    """(mean, log evidence, effective number) of levels with one Gaussian prior, averaged over its width."""
    priors = np.maximum(ROWS_OF_LEVELS * per_row, 1e-300)[:, None]
    evidence = (0.5 * S**2 / (W + priors) - 0.5 * np.log1p(W / priors)).sum(axis=1)
    most = evidence.max()
    shares = np.exp(evidence - most)
    total = shares.sum()
    mean = (shares / total) @ (S / (W + priors))
    known = (shares / total) @ (W / (W + priors)).sum(axis=1)
    return mean, float(most + np.log(total / len(shares))), float(known)
