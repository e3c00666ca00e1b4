"""Pairs: which of them matter beside the mains, and their tables.

The table of a pair is the mean over all ways to halve its grid into rectangles, weighted by how well they explain the
rows (`rbr.reference.grids`), as the table of a column is the mean over all ways to cut it. What that mean explains is
evidence in the same units, so pairs are found by it: all candidates are judged by the joint sums of residuals and
curvatures over coarse grids; the most promising are fitted in rounds, each beside the others; those that are less
likely used than not are dropped; and the other candidates are judged again. A tree of halves that explains nothing
before its second cut is one of the ways, so nothing needs to look ahead.

The mains enter as offsets, so any solver may have fitted them. They are fitted again beside the pairs, and then the
pairs once more, by whoever owns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from rbr._backend import kernels
from rbr._options import SolverOptions
from rbr._parallel import over_ranges
from rbr.constraints import Constraints
from rbr.data.grids import CoarseBins, coarse_bins
from rbr.objective.protocol import Objective, Point, Visits
from rbr.solvers.averaging import Averaging, change_of
from rbr.solvers.pair_fit import PairFit
from rbr.solvers.pair_gains import held_out_gains

# Pairs are judged in tiles of this many tables, so that the joint sums of one tile are held at a time.
TABLES_PER_TILE = 128

# The log odds of a pair are cut off here, where its share is 0 or 1 to all digits.
MOST_LOG_ODDS = 700.0

# While all pairs are judged, the prior of a rectangle is worth this many rows: between those of sharp and weak effects.
JUDGED_PRIOR_ROWS = 100.0


@dataclass(frozen=True, eq=False)
class PairSpec:
    """Which pairs may be used.

    candidates : (n, 2) tables of the pairs that may be found
    forced : (m, 2) those that are used whatever their evidence
    most : the most pairs, or None
    among : if any two of these tables were too many candidates, these; the candidates are then chosen among them later
    """

    candidates: np.ndarray
    forced: np.ndarray
    most: int | None = None
    among: np.ndarray | None = None


@dataclass(eq=False)
class GridAveraging(Averaging):
    """Rounds over the grids of pairs.

    n_candidates : the pairs that could have been chosen
    used_df : the numbers that the mains have been fitted with
    is_last : whether the tables are kept as they are in the end
    """

    n_candidates: int = 1
    used_df: float = 0.0
    is_last: bool = False

    def __post_init__(self):
        super().__post_init__()
        self.posterior.rows[:] = JUDGED_PRIOR_ROWS
        # Pairs that are used whatever their evidence need none, and have it for one output after the other.
        self.posterior.evidence[self.bound.forced] = 0.0

    def price_beside(self, n_used: np.ndarray) -> np.ndarray:
        return price_of_pair(self.n_candidates, n_used, self.has_bounded_rows, self.objective.options)

    @property
    def least_prior_rows(self) -> float:
        options = self.objective.options
        if self.has_bounded_rows:
            return options.least_prior_rows_of_classes
        return options.least_prior_rows_with_outliers

    def visits(self, H: np.ndarray) -> Visits:
        return GridVisits(self, H)

    def estimate_dispersion(self, point: Point) -> None:
        df = self.used_df + float((self.posterior.share * self.posterior.pieces).sum())
        self.dispersion = self.known_dispersion or max(
            self.objective.dispersion(point, min(df, self.objective.n_total / 2)), 1e-300
        )

    def settle(self, point: Point, report: Callable[[Point], bool]) -> tuple[Point, bool]:
        """Rounds over all pairs until the loss settles.

        If their tables only decide which pairs are used, less is asked of the loss: what decides between pairs is more.
        But tables of classes go on growing in small steps.
        """
        self.measure_growth(point)
        self.estimate_dispersion(point)
        everything, options = np.arange(self.bound.n_features), self.objective.options
        self.settled, n_pairs, is_stopped = np.inf, len(everything), False
        while not is_stopped:
            settled = options.bag_settled
            if not (self.is_last or self.has_bounded_rows):
                settled = max(settled, options.settled_per_pair * n_pairs)
            if settled >= self.settled:
                break
            self.settled = settled
            point, is_stopped = self._settle(point, everything, report)
            n_pairs = len(self.used())
        return point, is_stopped


class GridVisits:
    """The visits of a round over grids; see `rbr.objective.protocol.Visits`.

    They do what `rbr.reference.visits` says of columns, but average over grids. All outputs stand side by side.

    H : sums of curvatures, by cell and output
    """

    def __init__(self, run: GridAveraging, H: np.ndarray):
        self._run, self._H = run, H

    def in_kernel(self, tables: np.ndarray) -> None:
        return None

    def change(self, table: int, sums: np.ndarray) -> np.ndarray | None:
        run, bins = self._run, self._run.bins(table)
        f, w = run.posterior.f[bins], run.objective.tables.weights[bins, None]
        S, W = self._precisions(sums.reshape(f.shape), self._H[bins], f, w)
        means = self._average(table, S, W)
        share = self._share_of_use(table)
        counted = share * means
        change = run.step * (counted - (w * counted).sum(axis=0) - f)
        run.posterior.share[table] = share
        f += change
        return change_of(change)

    def _precisions(self, G, H, f, w) -> tuple[np.ndarray, np.ndarray]:
        """`rbr.reference.visits.precisions`."""
        run = self._run
        if run.can_overshoot:
            H = np.maximum(H + run.growth * G / 3.0, np.abs(G) / 3.0)
        scale = run.objective.n_total / run.dispersion
        S, W = scale * (G + H * f), scale * (H + run.alpha * w)
        return S - W * (S.sum(axis=0) / np.maximum(W.sum(axis=0), 1e-300)), W

    def _average(self, table: int, S: np.ndarray, W: np.ndarray) -> np.ndarray:
        """The mean grid of each output; its evidence, its number of rectangles and its prior are kept."""
        run, (n_cells, n) = self._run, S.shape
        posterior, options, objective = run.posterior, run.objective.options, run.objective
        totals = np.maximum(W.sum(axis=0) / objective.n_total, 1e-300)
        priors = np.maximum(posterior.rows[table] * totals, 1e-300)
        offsets = n_cells * np.arange(n + 1, dtype=np.int64)
        sides = np.repeat(cast(np.ndarray, objective.tables.grids)[[table]], n, axis=0)
        means, evidence, rectangles, suggested = averaged_grids(
            *(offsets, sides, S.T.ravel(), W.T.ravel(), priors, options, objective.n_threads),
            n_blocks=options.blocks_across_cuts if run.has_bounded_rows else 0,
        )
        posterior.evidence[table], posterior.pieces[table] = evidence, rectangles
        most = options.most_prior_rows_of_pairs
        posterior.rows[table] = np.clip(suggested / totals, run.least_prior_rows, most)
        return means.reshape(n, n_cells).T

    def _share_of_use(self, table: int) -> np.ndarray:
        """The probability by output that a pair is used."""
        log_odds = self._run.log_odds(np.array([table]))[0]
        return 1.0 / (1.0 + np.exp(-np.clip(log_odds, -MOST_LOG_ODDS, MOST_LOG_ODDS)))


def price_of_pair(n_candidates: int, n_used: Any, has_bounded_rows: bool, options: SolverOptions) -> np.ndarray:
    """The evidence that makes one more pair as likely used as not, beside those in use."""
    odds = np.log(np.maximum(n_candidates - n_used, 1.0) / (n_used + 1.0))
    if not has_bounded_rows:
        return odds + options.price_of_prior
    return np.maximum(odds - options.discount_of_pairs, -np.log(options.most_odds_of_pairs))


def averaged_grids(
    offsets, sides, S, W, priors, options, n_threads: int, *, only_constants: bool = False, n_blocks: int = 0
):
    """(means, evidence, number of rectangles, suggested priors) of grids that stand side by side."""
    n = len(sides)
    out, results = np.zeros(len(S)), np.zeros((3, n))
    shares = options.cut_share, *((0.0, 0.0) if only_constants else (options.plane_share, options.twist_share))
    inputs = offsets, sides, np.ascontiguousarray(S), np.ascontiguousarray(W), priors, *shares, n_blocks
    over_ranges(kernels().average_grids, n, min(n_threads, n), *inputs, out, *results)
    return out, *results


def grids_of(objective: Objective, is_category: np.ndarray) -> CoarseBins:
    """Coarse bins of all tables; the levels of categories are sorted by the mean residual of the constant model.

    Levels of few rows count as if they had ten more at the mean: their own says little.
    """
    tables, options = objective.tables, objective.options
    order: list[np.ndarray | None] = [None] * tables.n_tables
    categories = np.flatnonzero(is_category)
    if len(categories):
        point = objective.point(objective.zero_tables(), np.zeros(0, dtype=np.int64))
        pulls = -objective.gradient(point, categories).reshape(tables.n_coef, -1)[:, -1]
        pulls = pulls * tables.weights / np.maximum(tables.weights + 10.0 / objective.n_total, 1e-300)
        for j in categories.tolist():
            order[j] = pulls[tables.offsets[j] : tables.offsets[j + 1] - tables.missing[j]]
    return coarse_bins(tables.offsets, tables.shares, tables.missing, options.grid_bins, order)


class PairSearch:
    """The search for pairs beside mains.

    Parameters
    ----------
    objective : Objective over the tables of columns
    coarse : CoarseBins
    spec : PairSpec
    alpha : float
    known_dispersion : float or None
    report : called with the point after each round; returns whether to stop
    """

    def __init__(
        self,
        objective: Objective,
        coarse: CoarseBins,
        spec: PairSpec,
        *,
        alpha: float = 0.0,
        known_dispersion: float | None = None,
        report: Callable[[Point], bool] = lambda point: False,
    ):
        self.objective, self.coarse, self.spec = objective, coarse, spec
        self.alpha, self.known_dispersion, self.report = alpha, known_dispersion, report
        self.candidates = spec.candidates  # those that are still judged

    def find(self, mains: Any, used_df: float) -> PairFit | None:
        """The pairs that matter beside the mains, whose scores are given; None if there are none."""
        rows, options = self.objective.shifted_by(mains), self.objective.options
        fit, is_stopped = None, False
        if len(self.spec.forced):
            fit, is_stopped = self._rounds(rows, used_df, fit, self.spec.forced)
        tried = self.spec.forced
        for _ in range(options.pair_searches if len(self.spec.candidates) else 0):
            if is_stopped or (fit is not None and self._is_full(fit)):
                break
            new = self._promising(rows, used_df, fit, tried)
            if not len(new):
                break
            tried = np.concatenate([tried, new])
            before = 0 if fit is None else fit.n_pairs
            fit, is_stopped = self._rounds(rows, used_df, fit, new)
            if fit.n_pairs <= before:
                break
        return None if fit is None or not fit.n_pairs else fit

    def again(self, mains: Any, used_df: float, fit: PairFit) -> PairFit | None:
        """The same pairs beside other mains."""
        rows = self.objective.shifted_by(mains)
        found, _ = self._rounds(rows, used_df, fit, np.empty((0, 2), dtype=np.int64), is_last=True)
        if not found.n_pairs:
            return None
        gains = dict(zip(map(tuple, fit.pairs.tolist()), fit.gain.tolist(), strict=True))
        return replace(found, gain=np.array([gains[a, b] for a, b in found.pairs.tolist()]))

    def proven(self, mains: Any, fit: PairFit) -> PairFit | None:
        """The same with what each pair gains on rows outside bags; those that do not gain clearly are left out.

        Pairs enter at a low price, and in tables of classes their grids are cut where the rows suggest, so some are
        noise. Pairs that the user named stay.
        """
        gains, errors = held_out_gains(fit, lambda inside: self._on_bag(inside, fit))
        options, in_all = self.objective.options, gains * self.objective.n_total / fit.dispersion
        is_noise = (gains <= options.proven_gain * errors) | (in_all <= self._least_gain)
        is_kept = ~is_noise | self._is_forced(fit.pairs)
        fit = replace(fit, gain=gains)
        if is_kept.all():
            return fit
        if not is_kept.any():
            return None
        return self._only(self.objective.shifted_by(mains), fit, np.flatnonzero(is_kept))

    @property
    def _least_gain(self) -> float:
        """What a pair must gain on all rows, in units of log-likelihood.

        The best of many candidates gains about the log of their number by chance, and the mains and the search have
        seen the rows outside bags too. To keep a pair wrongly costs some units in all, which is much for each row only
        where rows are few; on many rows weak pairs together predict better.
        """
        options, loss, n = self.objective.options, self.objective.loss, self.objective.n_total
        if loss.has_known_dispersion:  # rows of rare classes say little
            n *= min(self.objective.constant_curvature / (loss.curvature_bound() or 1.0), 1.0)
        of_best = options.gain_per_log_candidates * np.log(max(len(self.spec.candidates), 1))
        return max(options.least_gain_of_pairs, of_best * min(options.few_rows_of_pairs / n, 1.0))

    def _on_bag(self, inside: Objective, fit: PairFit) -> Point:
        bound = Constraints(shape="free").bind_to(inside.tables, inside.n_total)
        run = GridAveraging(*(inside, bound, self.alpha, np.ones(fit.n_pairs, dtype=bool), fit.dispersion, True))
        run.posterior.rows[:], run.posterior.evidence[:] = fit.prior_rows, fit.evidence
        return run.settle(run.point(), lambda point: False)[0]

    # Rounds ----------------------------------------------------------------------------------------------------

    def _is_forced(self, pairs: np.ndarray) -> np.ndarray:
        number = [self.objective.tables.n_tables, 1]
        return np.isin(pairs @ number, self.spec.forced @ number)

    def _is_full(self, fit: PairFit) -> bool:
        return self.spec.most is not None and fit.n_pairs >= self.spec.most

    def _rounds(
        self, rows: Objective, used_df: float, fit: PairFit | None, new: np.ndarray, is_last: bool = False
    ) -> tuple[PairFit, bool]:
        """Rounds over the pairs so far and some new ones; those without evidence are dropped at the end."""
        run, pairs = self._begin(rows, used_df, fit, new, is_last)
        point, is_stopped = run.settle(run.point(), self.report)
        used = np.flatnonzero((run.posterior.share > 0.5).any(axis=1))
        n_forced = int(run.bound.forced.sum())
        most = len(used) if self.spec.most is None else max(self.spec.most, n_forced)
        by_evidence = np.where(run.bound.forced[used], np.inf, run.posterior.evidence[used].max(axis=1))
        kept = np.sort(used[np.argsort(-by_evidence, kind="stable")[:most]])
        found = self._finished(run, point, pairs)
        if len(kept) < len(pairs):
            found = self._only(rows, found, kept)
            if len(kept):
                run, _ = self._begin(rows, used_df, found, np.empty((0, 2), dtype=np.int64), is_last)
                point, is_stopped = run.settle(run.point(point.intercept), self.report)
                found = self._finished(run, point, found.pairs)
        return found, is_stopped

    def _begin(self, rows: Objective, used_df: float, fit: PairFit | None, new: np.ndarray, is_last: bool):
        pairs = new if fit is None else np.concatenate([fit.pairs, new])
        order = np.lexsort(pairs.T[::-1])
        pairs = pairs[order]
        objective = rows.over_pairs(self.coarse, pairs)
        bound = Constraints(shape="free").bind_to(objective.tables, objective.n_total)
        bound = replace(bound, forced=self._is_forced(pairs))
        own = self.alpha, np.ones(len(pairs), dtype=bool), self.known_dispersion
        run = GridAveraging(
            *(objective, bound, *own),
            n_candidates=len(self.spec.candidates) + len(self.spec.forced),
            used_df=used_df,
            is_last=is_last,
        )
        if fit is not None:
            self._go_on(run, fit, np.argsort(order)[: fit.n_pairs])
        return run, pairs

    def _go_on(self, run: GridAveraging, fit: PairFit, places: np.ndarray) -> None:
        """Begin where an earlier fit ended: its pairs have these places now."""
        f = fit.point.f.reshape(len(fit.point.f), -1)
        run.posterior.f[run.objective.tables.bins_of(places)] = f
        for name, own in (("share", fit.share), ("rows", fit.prior_rows), ("evidence", fit.evidence)):
            getattr(run.posterior, name)[places] = own

    def _finished(self, run: GridAveraging, point: Point, pairs: np.ndarray) -> PairFit:
        posterior = run.posterior
        return PairFit(
            *(pairs, self.coarse, run.objective, point, posterior.evidence.copy(), posterior.pieces.copy()),
            *(posterior.rows.copy(), posterior.share.copy(), run.dispersion, np.full(len(pairs), np.nan)),
        )

    def _only(self, rows: Objective, fit: PairFit, kept: np.ndarray) -> PairFit:
        """Some of the pairs, with the tables that they have."""
        objective = rows.over_pairs(self.coarse, fit.pairs[kept])
        f = fit.point.f[fit.objective.tables.bins_of(kept)]
        point = objective.point(f, np.arange(len(kept)), fit.point.intercept)
        by_pair = {
            name: getattr(fit, name)[kept]
            for name in ("pairs", "evidence", "rectangles", "prior_rows", "share", "gain")
        }
        return replace(fit, objective=objective, point=point, **by_pair)

    # Judging ---------------------------------------------------------------------------------------------------

    def _promising(self, rows: Objective, used_df: float, fit: PairFit | None, tried: np.ndarray) -> np.ndarray:
        """The candidates that promise most at the residuals of mains and pairs, at most `pairs_per_search`."""
        options = rows.options
        rows = rows if fit is None else rows.shifted_by(fit.scores())
        point = rows.point(rows.zero_tables(), np.zeros(0, dtype=np.int64))
        phi = self.known_dispersion or max(rows.dispersion(point, min(used_df, rows.n_total / 2)), 1e-300)
        pairs, evidence = [], []
        for own, found in self._judged(rows, point, phi):
            pairs.append(own)
            evidence.append(found)
        if not pairs:
            return np.empty((0, 2), dtype=np.int64)
        pairs_, evidence_ = np.concatenate(pairs), np.concatenate(evidence)
        # What promises least among many will hardly be the best of all in the next search.
        self.candidates = pairs_[np.argsort(-evidence_, kind="stable")[: options.many_pairs]]
        is_new = ~np.isin(pairs_ @ [rows.tables.n_tables, 1], tried @ [rows.tables.n_tables, 1])
        n_used = 0 if fit is None else fit.n_pairs
        price = price_of_pair(len(self.spec.candidates), n_used, rows.loss.has_known_dispersion, options)
        is_new &= evidence_ - price > -options.least_log_odds
        order = np.argsort(-evidence_[is_new], kind="stable")[: options.pairs_per_search]
        return pairs_[is_new][order]

    def _judged(self, rows: Objective, point: Point, phi: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(pairs, evidence) of the candidates, a tile of tables after the other."""
        candidates, options = self.candidates, rows.options
        n_bins = options.judged_bins if len(candidates) <= options.many_pairs else options.judged_bins // 2
        coarse = self.coarse.merged(n_bins)
        tiles = np.unique(candidates) // TABLES_PER_TILE
        tile_of = candidates // TABLES_PER_TILE
        for one in np.unique(tiles):
            for other in np.unique(tiles[tiles >= one]):
                pairs = candidates[(tile_of == [one, other]).all(axis=1)]
                if len(pairs):
                    yield pairs, self._evidence(rows, point, phi, coarse, pairs)

    def _evidence(self, rows: Objective, point: Point, phi: float, coarse: CoarseBins, pairs: np.ndarray) -> np.ndarray:
        """The evidence of some pairs, from their joint sums over coarse grids; the largest of all outputs."""
        tables = np.unique(pairs)
        G, H, starts = rows.joint_sums(point, coarse, tables, rows.loss.is_straight_in_places)
        a, b = np.searchsorted(tables, pairs.T)
        sides = coarse.sides(pairs)
        sizes = coarse.n_bins[pairs].prod(axis=1)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        table = np.repeat(np.arange(len(pairs)), sizes)
        # The entry of each cell in the matrices of joint sums.
        within = np.arange(offsets[-1]) - offsets[table]
        n_b = coarse.n_bins[pairs[:, 1]][table]
        entries = starts[a][table] + within // n_b, starts[b][table] + within % n_b
        best = np.full(len(pairs), -np.inf)
        for g, h in zip(G, H, strict=True):
            S, W = g[entries] * rows.n_total / phi, h[entries] * rows.n_total / phi
            total = np.maximum(np.add.reduceat(W, offsets[:-1]), 1e-300)
            S = S - W * (np.add.reduceat(S, offsets[:-1]) / total)[table]
            priors = np.maximum(JUDGED_PRIOR_ROWS * total / rows.n_total, 1e-300)
            found = averaged_grids(offsets, sides, S, W, priors, rows.options, rows.n_threads, only_constants=True)
            best = np.maximum(best, found[1])
        return best
