"""Averages over all ways to cut the tables into pieces.

Noise has a say in where jumps lie and in which of several related features enter, and the mean over all that could be
true predicts better than the best single guess. Bags estimate such a mean by fits on subsamples. Here it is computed:
given the other tables, the mean of a table over all ways to cut it, weighted by how well they explain the rows, is a
sum that a recursion over bins takes exactly (`rbr.reference.averages`). The tables are visited in turn until the loss
settles, which is coordinate ascent of a mean-field posterior; nothing is drawn at random.

What the prior says:
- A feature is used with the odds (k + 1) / (p - k), k the number of the others in use: with p candidates and none in
  use the first must be p times as likely as chance, and where most are in use the next need not (Scott and Berger
  2010). A feature that is less likely used than not is left out in the end.
- The number of jumps and the size of the effects are those of the table itself, as estimated in the last round (a step
  of the EM algorithm), within wide limits. A feature pays for these two numbers.
- The levels of a category have one Gaussian prior; its width is averaged over a grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rbr._backend import kernels
from rbr._parallel import over_ranges
from rbr.constraints import BoundConstraints, Constraints, Prox
from rbr.objective.protocol import Objective, Point
from rbr.shapes import shape_names
from rbr.solvers.options import Ending
from rbr.solvers.problem import Problem
from rbr.solvers.solution import Iteration, Recorder, Solution

# The prior of a level, in rows: means are averaged over these widths by their evidence.
ROWS_OF_LEVELS = np.array([1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0])


@dataclass(eq=False)
class Posterior:
    """What is known of each table, by table and output.

    f : the mean tables, which count with the probability of the feature
    share : the probability that the feature is used
    evidence : log odds of the data under a table against none
    pieces : the mean number of pieces
    jumps, rows : the prior's number of jumps, and of rows that an effect is worth
    """

    f: np.ndarray
    share: np.ndarray
    evidence: np.ndarray
    pieces: np.ndarray
    jumps: np.ndarray
    rows: np.ndarray

    @classmethod
    def at_first(cls, objective: Objective) -> Posterior:
        shape, options = (objective.tables.n_tables, objective.n_outputs), objective.options
        return cls(
            np.zeros((objective.tables.n_coef, objective.n_outputs)),
            *(np.zeros(shape), np.full(shape, -np.inf), np.ones(shape)),
            *(np.full(shape, options.least_jumps), np.full(shape, options.most_prior_rows)),
        )


@dataclass(eq=False)
class Averaging:
    """A run of rounds over the tables.

    objective, bound : what is fitted, and the shapes and limits of the tables
    allowed : bool per table, which may be used
    known_dispersion : of the rows; None if it is to be estimated
    uses_all : whether every feature is used, whatever its evidence
    settled : rounds end when one changes the loss by at most this many units of log-likelihood; None: by default
    """

    objective: Objective
    bound: BoundConstraints
    alpha: float
    allowed: np.ndarray
    posterior: Posterior = field(init=False)
    known_dispersion: float | None = None
    uses_all: bool = False
    settled: float | None = None
    dispersion: float = field(init=False)

    def __post_init__(self):
        self.posterior = Posterior.at_first(self.objective)
        # The bins that are averaged over: neighbours merged where they have too few rows or are too many; -1 for those
        # without rows and for missing values.
        offsets, shares = self.bound.offsets, self.objective.tables.shares
        table, place = np.repeat(np.arange(self.bound.n_features), self.bound.n_bins), np.arange(offsets[-1])
        live = (shares > 0) & (place < (offsets[:-1] + self.bound.n_ordered)[table])
        rows = np.cumsum(np.where(live, shares, 0.0)) - 0.5 * shares
        rows -= (rows + 0.5 * shares - np.where(live, shares, 0.0))[offsets[:-1]][table]
        stretch = np.floor(rows * self.objective.n_total / max(self.least_rows, 1e-300)) if self.least_rows else place
        bins = np.flatnonzero(live)
        begins = np.ones(len(bins), dtype=np.int64)
        begins[1:] = (stretch[bins[1:]] != stretch[bins[:-1]]) | (table[bins[1:]] != table[bins[:-1]])
        n_begun = np.bincount(table[bins], begins, minlength=self.bound.n_features).astype(np.int64)
        rank = np.cumsum(begins) - 1 - (np.cumsum(n_begun) - n_begun)[table[bins]]
        self.n_groups = np.minimum(n_begun, self.most_groups)
        self.group = np.full(offsets[-1], -1)
        self.group[bins] = rank * self.n_groups[table[bins]] // np.maximum(n_begun, 1)[table[bins]]
        self.is_grouped = ~self.bound.flags("has_jumps")
        lines = np.where(self.bound.flags("is_never_flat"), 1.0, self.objective.options.line_share)
        self.line_shares = np.where(self.bound.flags("has_lines"), lines, 0.0)
        self.can_overshoot = self.objective.loss.link != "identity"

    @property
    def most_groups(self) -> int:
        options = self.objective.options
        by_rows = int(self.objective.n_total / options.rows_per_averaged_bin)
        return max(options.least_averaged_bins, min(options.most_averaged_bins, by_rows))

    @property
    def has_bounded_rows(self) -> bool:
        """Whether no row can lie far out, as with classes."""
        return self.objective.loss.has_known_dispersion

    @property
    def least_rows(self) -> float:
        """The least rows of a bin: where a row can lie far out, a few of them must not make a piece."""
        return 0.0 if self.has_bounded_rows else self.objective.options.least_rows_with_outliers

    # One round -------------------------------------------------------------------------------------------------

    def log_odds(self, tables: np.ndarray) -> np.ndarray:
        """The log odds of some features, by output."""
        share = self.posterior.share
        others = share.sum(axis=0) - share[tables]
        price = np.log((self.allowed.sum() - others) / (others + 1.0)) + self.objective.options.price_of_prior
        price[self.bound.forced[tables] | self.uses_all] = -np.inf
        return self.posterior.evidence[tables] - price

    def precisions(self, tables: np.ndarray, G: np.ndarray, H: np.ndarray, f: np.ndarray):
        """(S, W) by bin of some tables, of one output: W the precision of a bin's value, S that times the value.

        G and H are the sums of residuals and curvatures. The value of a bin is what a Newton step gives it. Where the
        loss curves more as the score moves, as on a log scale, a step is no longer than one unit. The mean is the
        intercept's: it is taken out.
        """
        H = np.maximum(H, np.abs(G)) if self.can_overshoot else H
        scale, sizes = self.objective.n_total / self.dispersion, self.bound.n_bins[tables]
        weights = self.objective.tables.weights[self.objective.tables.bins_of(tables)]
        S, W = scale * (G + H * f), scale * (H + self.alpha * weights)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        mean = np.add.reduceat(S, starts) / np.maximum(np.add.reduceat(W, starts), 1e-300)
        return S - W * np.repeat(mean, sizes), W

    def average(self, tables: np.ndarray, output: int, S: np.ndarray, W: np.ndarray) -> np.ndarray:
        """Update the evidence, pieces and priors of some tables of one output; returns their means, side by side.

        S and W have the bins of these tables, one after the other.
        """
        posterior, sizes = self.posterior, self.bound.n_bins[tables]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        means, totals = np.zeros(len(S)), np.add.reduceat(W, starts[:-1]) / self.objective.n_total
        is_grouped = self.is_grouped[tables]
        for t in np.flatnonzero(is_grouped):
            bins = slice(starts[t], starts[t + 1])
            found = _levels(S[bins], W[bins], totals[t])
            means[bins], posterior.evidence[tables[t], output], posterior.pieces[tables[t], output] = found
        if not is_grouped.all():
            self._average_ordered(tables, output, starts, S, W, totals, means)
        return means

    def _average_ordered(self, tables, output, starts, S, W, totals, means) -> None:
        """The part of `average` for tables whose bins have an order; writes their means."""
        posterior, options, is_ordered = self.posterior, self.objective.options, ~self.is_grouped[tables]
        own, totals, group = tables[is_ordered], totals[is_ordered], self.group[self.objective.tables.bins_of(tables)]
        sizes = self.n_groups[own]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        first = np.zeros(len(tables), dtype=np.int64)
        first[is_ordered] = offsets[:-1]
        bins = np.flatnonzero((group >= 0) & np.repeat(is_ordered, np.diff(starts)))
        places = group[bins] + np.repeat(first, np.diff(starts))[bins]
        sums = np.bincount(places, S[bins], minlength=offsets[-1])
        weights = np.maximum(np.bincount(places, W[bins], minlength=offsets[-1]), 1e-300)
        priors = np.maximum(posterior.rows[own, output] * totals, 1e-300)
        jumps = np.minimum(posterior.jumps[own, output] / np.maximum(sizes - 1, 1), 0.5)
        out, (evidence, pieces, suggested) = np.zeros(offsets[-1]), np.zeros((3, len(own)))
        arguments = (
            sums,
            weights,
            priors,
            jumps / (1.0 - jumps),
            self.line_shares[own],
            out,
            evidence,
            pieces,
            suggested,
        )
        over_ranges(kernels().average_tables, len(own), self.objective.n_threads, offsets, *arguments)
        means[bins] = out[places]
        rows = suggested / np.maximum(totals, 1e-300)
        least = options.least_prior_rows_of_classes if self.has_bounded_rows else options.least_prior_rows
        posterior.rows[own, output] = np.clip(rows, least, options.most_prior_rows)
        most = np.maximum(options.most_jumps * sizes, options.least_jumps)
        posterior.jumps[own, output] = np.clip(pieces - 1.0, options.least_jumps, most)
        has_missing = self.bound.missing[own]
        last, prior = starts[1:][is_ordered][has_missing] - 1, priors[has_missing]
        means[last] = S[last] / (W[last] + prior)
        evidence[has_missing] += 0.5 * S[last] ** 2 / (W[last] + prior) - 0.5 * np.log1p(W[last] / prior)
        posterior.evidence[own, output], posterior.pieces[own, output] = evidence, pieces

    def include(self, table: int, output: int, mean: np.ndarray) -> np.ndarray:
        """The mean table, counted with the probability of the feature and centred."""
        log_odds = self.log_odds(np.array([table]))[0, output]
        share = 1.0 / (1.0 + np.exp(-np.clip(log_odds, -700.0, 700.0)))
        self.posterior.share[table, output] = share
        bins = slice(self.bound.offsets[table], self.bound.offsets[table + 1])
        counted = share * mean
        return counted - self.objective.tables.weights[bins] @ counted

    # Rounds ----------------------------------------------------------------------------------------------------

    def point(self, start=None) -> Point:
        f = self.posterior.f[:, 0] if self.objective.n_outputs == 1 else self.posterior.f
        support = np.flatnonzero(np.logical_or.reduceat((self.posterior.f != 0).any(axis=1), self.bound.offsets[:-1]))
        return self.objective.point(f.copy(), support, start)

    def estimate_dispersion(self, point: Point) -> None:
        posterior = self.posterior
        places = np.log(np.maximum(self.bound.n_ordered, 2))[:, None]
        df = 1.0 + float(
            (posterior.share * (posterior.pieces + np.maximum(posterior.pieces - 1.0, 0.0) * places)).sum()
        )
        if self.known_dispersion is None:
            self.dispersion = max(self.objective.dispersion(point, min(df, self.objective.n_total / 2)), 1e-300)
        else:
            self.dispersion = self.known_dispersion

    def look_at_all(self, point: Point, tables: np.ndarray) -> None:
        """The evidence of some tables that are not used, all at the same point."""
        if not len(tables):
            return
        H, _ = self.objective.curvature_sums(point, tables, self.majorizes)
        G = -self.objective.gradient(point, tables).reshape(len(H), -1)
        G, H = G * self.objective.tables.weights[:, None], H.reshape(len(H), -1)
        bins = self.objective.tables.bins_of(tables)
        for c in range(self.objective.n_outputs):
            S, W = self.precisions(tables, G[bins, c], H[bins, c], self.posterior.f[bins, c])
            self.average(tables, c, S, W)

    @property
    def majorizes(self) -> bool:
        """Whether parabolas above the loss replace its curvature, which is zero in most rows (Huber, quantile)."""
        return not self.can_overshoot and self.objective.loss.name != "squared_error"

    def round(self, point: Point, tables: np.ndarray) -> None:
        """Visit some tables, those that explain most first."""
        H, _ = self.objective.curvature_sums(point, tables, self.majorizes)
        H = H.reshape(len(H), -1)
        rows = self.objective.backfit(point)
        for j in tables[np.argsort(-self.posterior.evidence[tables].max(axis=1), kind="stable")]:
            bins = slice(self.bound.offsets[j], self.bound.offsets[j + 1])
            G = rows.residual_sums(j).reshape(bins.stop - bins.start, -1)
            before = self.posterior.f[bins].copy()
            for c in range(self.objective.n_outputs):
                S, W = self.precisions(np.array([j]), G[:, c], H[bins, c], before[:, c])
                mean = self.average(np.array([j]), c, S, W)
                self.posterior.f[bins, c] = self.include(j, c, mean)
            change = self.posterior.f[bins] - before
            if change.any():
                rows.add(j, change[:, 0] if self.objective.n_outputs == 1 else change)

    def run(self, report: Callable[[Point], bool]) -> Point:
        """Rounds over the tables that may be used, until the loss settles; the point where they end."""
        options = self.objective.options
        everything = np.flatnonzero(self.allowed)
        point = self.point()
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
        self.posterior.f[np.setdiff1d(np.arange(len(weights)), self.objective.tables.bins_of(kept))] = 0.0
        self.posterior.share[np.setdiff1d(np.arange(self.bound.n_features), kept)] = 0.0
        self.allowed = np.isin(np.arange(self.bound.n_features), kept)
        point, _ = self._settle(self.point(point.intercept), kept, report)
        return point, self.used()

    def _settle(self, point: Point, active: np.ndarray, report) -> tuple[Point, bool]:
        options = self.objective.options
        settled = options.settled if self.settled is None else self.settled
        for _ in range(options.averaging_rounds):
            self.round(point, active)
            before, point = point, self.point(point.intercept)
            self.estimate_dispersion(point)
            if report(point):
                return point, True
            change = abs(before.loss - point.loss) * self.objective.n_total / self.dispersion
            if not change > settled:
                break
        return point, False


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


# The finished average --------------------------------------------------------------------------------------------


def can_average(objective: Objective, bound: BoundConstraints) -> bool:
    """Whether tables of these shapes can be averaged: not those made of frequencies."""
    return bool(bound.flags("has_pieces").all()) and not objective.has_constant_target


def is_spoiled(solution: Solution) -> bool:
    """Whether the limits leave too little of an average: one line in a skewed column may be far from it.

    A fit that looks for the best tables within the limits then does better.
    """
    before, after = solution.history[-2].loss, solution.history[-1].loss
    explained = solution.problem.objective.constant_loss - before
    return after - before > solution.problem.options.most_lost_by_limits * explained


def average_over_pieces(
    objective: Objective,
    constraints: Constraints,
    *,
    alpha: float = 0.0,
    dispersion: float | None = None,
    is_numeric: np.ndarray | None = None,
    random_state: Any = None,
    uses_all: bool | None = None,
    verbose: int = 0,
    callback: Callable[[Iteration], bool | None] | None = None,
) -> Solution:
    """The solution whose tables are the mean over all ways to cut them, projected back into the constraint set.

    Parameters
    ----------
    objective : Objective
    constraints : Constraints
        The limits that the result keeps; its jump cost, with `SolverOptions.projection_price`, says what a piece of the
        result must be worth.
    alpha, dispersion, verbose, callback
        As in `rbr.solve`.
    is_numeric : bool array by table, optional
        Which tables are of numbers. If their values are at hand and rise much within bins, as in the tail of a skewed
        column, the solution is on an objective with that among its offsets.
    random_state : int, RandomState or None
        For the bags on which the two ways to choose features compete; None stands for a fixed seed.
    uses_all : bool, optional
        Whether features are used that have no evidence of their own. By default rows that were left out decide.
    """
    bound = constraints.bind_to(objective.tables, objective.n_total)
    run = Averaging(objective, bound, alpha, ~bound.excluded, dispersion)
    problem = Problem(objective, bound, alpha, (dispersion or 1.0) / objective.n_total)
    recorder = Recorder(problem, verbose, callback)

    def report(point: Point) -> bool:
        no_labels = np.full(point.f.shape, -1, dtype=np.int32)
        return recorder.record(
            replace(point, support=run.used()), no_labels, problem.natural_step, np.inf, run.bound.n_features
        )

    point = run.run(report)
    within = None if is_numeric is None else _on_slopes(run, point, is_numeric)
    if within is not None:
        objective, problem = within, replace(problem, objective=within)
        run = Averaging(objective, bound, alpha, ~bound.excluded, dispersion)
        point = run.run(report)
    if _all_features_do_better(run, random_state) if uses_all is None else uses_all:
        run = Averaging(objective, bound, alpha, ~bound.excluded, run.dispersion, uses_all=True)
        point = run.run(report)
    used = run.used()
    if bound.max_features is not None and len(used) > bound.max_features:
        point, used = run.limited(point, used, bound.max_features, report)
    problem = replace(problem, scale=run.dispersion / objective.n_total)
    problem = replace(problem, constraints=replace(bound, limits=run.limits()))
    simple, means = _told_simply(problem, run, point, used)
    problem = replace(problem, constraints=simple)
    solution = projected(problem, means, point, recorder, price=objective.options.projection_price)
    return replace(solution, uses_all=run.uses_all)


def _on_slopes(run: Averaging, point: Point, is_numeric: np.ndarray) -> Objective | None:
    """The objective with what the mean tables rise within bins among its offsets; None if that explains little.

    Within a bin a table is taken to rise as it does between the neighbouring bins. In the tail of a skewed column that
    explains rows better than bins can, and what bins leave over would look like signal to other features.
    """
    objective, bound = run.objective, run.bound
    used = run.used()
    tables = used[(is_numeric & bound.flags("has_lines"))[used]] if len(used) else used
    if not objective.has_values or not len(tables):
        return None
    means, _, _ = objective.bin_moments(tables)
    slopes, columns = np.zeros_like(run.posterior.f), run.posterior.f
    for j in tables:
        bins = np.arange(bound.offsets[j], bound.offsets[j] + bound.n_ordered[j])
        bins = bins[np.isfinite(means[bins]) & (bound.weights[bins] > 0)]
        if len(bins) > 2:
            x = means[bins]
            left, right = np.arange(len(bins)) - 1, np.arange(len(bins)) + 1
            left[0], right[-1] = 0, len(bins) - 1
            run_, rise = x[right] - x[left], columns[bins[right]] - columns[bins[left]]
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                slope = rise / run_[:, None]
            slopes[bins] = np.where(np.isfinite(slope), slope, 0.0)
    slopes = slopes[:, 0] if objective.n_outputs == 1 else slopes
    distances = objective.distances(tables, np.where(np.isfinite(means), means, 0.0))
    sloped = objective.line_point(point.f, point.support, slopes, distances, point.intercept)
    gain = (point.loss - sloped.loss) / max(run.dispersion, 1e-300)
    return objective.on_lines(slopes, distances) if gain > objective.options.least_gain_within_bins else None


def _all_features_do_better(run: Averaging, random_state: Any) -> bool:
    """Whether all features predict rows that were left out better than those with evidence, clearly.

    On few rows many features can each have too little evidence and together explain much. That shows only in rows
    that were left out.
    """
    objective, options = run.objective, run.objective.options
    n_unused = int(run.allowed.sum()) - len(run.used())
    if not len(run.used()) or objective.n_total < options.rows_per_feature * run.allowed.sum():
        return False  # where nothing has evidence, a gain of everything is chance
    if options.least_log_odds * n_unused < options.least_promise * objective.n_total:
        return False  # even if each of them explained as much as one that is just left out
    bags = objective.bags(2, options.bag_share, random_state)
    for _ in range(options.competing_bags):
        inside = bags.draw()
        for way, uses_all in enumerate((False, True)):
            own = run.bound.on(inside.tables.weights)
            fit = Averaging(inside, own, run.alpha, run.allowed, run.dispersion, uses_all, options.bag_settled)
            point = fit.run(lambda point: False)
            bags.add(way, point.f, point.support, point.intercept)
        if not bags.has_left_out:
            return False  # a bag without some class would be no sample: it has all rows
        gain, error = bags.gain(0, 1, options.share_of_outliers)
        if abs(gain) > options.clear_gain * error:
            break
    # On rows that were left out chance gains more than t with a probability of at most exp(-t).
    in_all = gain * objective.n_total / run.dispersion
    return gain > options.likely_gain * error and in_all > options.least_gain_in_all


def projected(problem: Problem, average: np.ndarray, near: Point, recorder: Recorder, price: float) -> Solution:
    """The solution nearest to average tables, with a price on pieces, in the geometry of the curvature at a point.

    A piece must be worth `price` times the jump cost of a fit: averages have little noise left, and pieces are for
    reading. `converged` is False, because an average is a fixed point only by chance.
    """
    found = _nearest(problem, average, near, price)
    point, step = problem.objective.point(found.f, found.support, near.intercept), problem.natural_step
    gradient = problem.screen.look_at(point)
    _, residual = problem.step_from(gradient, step)
    recorder.record(point, found.labels, step, residual, gradient.n_read)
    ending = Ending(point, found.labels, step, residual, False, "average")
    return Solution.of(problem, ending, recorder.history, problem.scale * problem.objective.n_total)


def _told_simply(
    problem: Problem, run: Averaging, point: Point, used: np.ndarray
) -> tuple[BoundConstraints, np.ndarray]:
    """(constraints with some tables limited to a single step or line, mean tables), where a fit tells a table so.

    The place of a step is uncertain, and its average is a short slope. To tell that in more pieces gains next to
    nothing, and reads as if there were more to it. The fit at the full price must be close to the average, and the
    feature must have evidence of its own: many weak effects that a fit would tell so are curves. If it explains the
    rows better than the average does, as a steep line can, it replaces the average.
    """
    objective, bound, means = problem.objective, problem.constraints, run.means(used)
    if objective.n_outputs > 1 or run.uses_all or not len(used):
        return bound, means
    H, _ = objective.curvature_sums(point, used, run.majorizes)
    pull = -objective.gradient(point, used) * objective.tables.weights
    values = np.divide(pull, H, out=np.zeros_like(H), where=H > 0) + means
    told = _nearest(problem, values, point, 1.0)
    steps, lines, most = [], [], np.full(bound.n_features, 2)
    for j in used[bound.flags("has_jumps")[used]].tolist():
        table = slice(bound.offsets[j], bound.offsets[j] + bound.n_ordered[j])
        pieces = np.unique(told.labels[table])
        # A step inside a bin gives that bin a piece of its own, until jumps move into bins.
        in_between = len(pieces) == 3 and (told.labels[table] == pieces[1]).sum() == 1
        if (len(pieces) == 2 or in_between) and not (pieces % 2).any():
            steps.append(j)
            most[j] = len(pieces)
        elif len(pieces) == 1:
            lines.append(j)
    simple = bound.as_steps(np.array(steps, dtype=np.int64), most).as_lines(np.array(lines, dtype=np.int64))
    near = _nearest(replace(problem, constraints=simple), means, point, 0.0)
    unit = 0.5 * objective.n_total / run.dispersion

    def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Between tables, in units of log-likelihood; their means do not count."""
        by_table = [np.add.reduceat(part, bound.offsets[:-1]) for part in (H * (a - b) ** 2, H * (a - b), H)]
        return unit * (by_table[0] - by_table[1] ** 2 / np.maximum(by_table[2], 1e-300))

    is_close = distance(means, near.f) <= objective.options.lost_when_simple
    is_better = distance(values, told.f) < distance(values, means)
    for j in [*steps, *lines]:
        if is_better[j] and not is_close[j]:
            bins = slice(bound.offsets[j], bound.offsets[j + 1])
            means[bins] = told.f[bins]
    keep = [np.array([j for j in own if is_close[j] or is_better[j]], dtype=np.int64) for own in (steps, lines)]
    return bound.as_steps(keep[0], most).as_lines(keep[1]), means


def _nearest(problem: Problem, average: np.ndarray, near: Point, price: float) -> Prox:
    """The pieces of an average; levels are cut where they are sorted, like neighbouring bins.

    A code for groups that have been searched for would be too dear here: an average has been searched for nothing.
    """
    objective, bound = problem.objective, problem.constraints
    H, total = objective.curvature_sums(near, np.arange(bound.n_features))
    H = np.maximum(H.reshape(len(H), -1).mean(axis=1), 0.0)
    order = np.arange(len(H))
    is_grouped = bound.flags("is_grouped")
    shapes = np.where(is_grouped, shape_names().index("constant"), bound.shapes)
    for j in np.flatnonzero(is_grouped):
        bins = slice(bound.offsets[j], bound.offsets[j] + bound.n_ordered[j])
        key = average[bins] if average.ndim == 1 else average[bins, 0]
        order[bins] = bins.start + np.argsort(np.where(bound.weights[bins] > 0, key, np.inf), kind="stable")
    sums = np.repeat(np.add.reduceat(H, bound.offsets[:-1]), bound.n_bins)
    # Half of the weight goes by rows: where classes are pure there is no curvature, and yet the tables should be close.
    weights = 0.5 * bound.weights + 0.5 * np.where(sums > 0, H / np.maximum(sums, 1e-300), bound.weights)
    weights = np.where(bound.weights > 0, weights, 0.0)
    weights /= np.repeat(np.add.reduceat(weights, bound.offsets[:-1]), bound.n_bins)
    # Whether a feature is used has been decided.
    is_used = np.logical_or.reduceat((average.reshape(len(order), -1) != 0).any(axis=1), bound.offsets[:-1])
    sorted_ = replace(bound, shapes=shapes, shares=bound.shares[order], forced=is_used).on(weights[order])
    step = 1.0 / max(float(np.mean(total)), 1e-300)
    found = sorted_.prox(average[order], step, price * problem.scale, n_threads=problem.n_threads)
    f, labels = np.empty_like(found.f), np.empty_like(found.labels)
    f[order], labels[order] = found.f, found.labels
    for j in found.support:
        bins = slice(bound.offsets[j], bound.offsets[j + 1])
        f[bins] -= bound.weights[bins] @ f[bins]
    return replace(found, f=f, labels=labels)
