"""What rows that were left out decide of an average: whether all features are used, and how loose their prior is.

Evidence looks at one table at a time. On few rows many features can each have too little of it and together explain
much, and where classes are all but separable the Gaussian at a fit says too little of how large effects may be. Both
show only in rows that were left out of a fit. The looks at rows are bags (`rbr.objective.protocol.Bags`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rbr.objective.protocol import Bags, Objective, Point
from rbr.solvers.averaging import Averaging

# Whether a contender uses the features found, or all.
FOUND, ALL = False, True


@dataclass(frozen=True)
class Decision:
    """Whether all features are used, and by what factor their shared prior is wider than their effects."""

    uses_all: bool = FOUND
    looseness: float = 1.0


def decide(
    run: Averaging, point: Point, found: str, uses_all: bool | None, dispersion: float | None, random_state: Any
) -> Decision:
    """What predicts rows best that were left out of fits.

    Parameters
    ----------
    run, point : the features that have evidence, and where their rounds ended
    found : how they were found
    uses_all : whether all features are used; None: if they are better, clearly
    dispersion : of fits on bags; None if it is to be estimated
    """
    options = run.objective.options
    sides = [uses_all] if uses_all is not None else [FOUND, ALL] if _may_all_be_better(run) else [FOUND]
    n_tried = options.loosenesses_tried if is_nearly_separable(run, point) else 1
    contenders = [
        Decision(side, float(looseness))
        for side in sides
        for looseness in np.geomspace(1.0, options.loosest_prior, n_tried)
    ]
    if len(contenders) == 1:
        return contenders[0]
    bags = run.objective.bags(len(contenders), options.bag_share, random_state)
    best, gain = (contenders[0], contenders[-1]), 0.0
    for n_drawn in range(1, options.competing_bags + 1):
        inside = bags.draw()
        if not bags.has_left_out:
            return contenders[0]  # a bag without some class would be no sample: it has all rows
        _fit_on(inside, run, found, dispersion, bags, contenders)
        best = _ranked(bags, contenders)
        plain, other = (contenders.index(contender) for contender in best)
        gain, error = bags.gain(plain, other, options.share_of_outliers)
        if abs(gain) > options.clear_gain * error or (gain <= 0.0 and n_drawn >= options.least_bags):
            break
    # On rows that were left out chance gains more than t with a probability of at most exp(-t).
    is_clear = gain * run.objective.n_total / run.dispersion > options.least_gain_in_all
    return best[1] if is_clear else best[0]


def is_nearly_separable(run: Averaging, point: Point) -> bool:
    """Whether classes are told apart so well, by so few rows for each feature, that the width of a prior matters.

    What a row says of its score is its curvature p (1 - p), which is as small as what is left of the loss.
    """
    objective, options = run.objective, run.objective.options
    if not run.has_bounded_rows or objective.has_many_rows:
        return False
    left = point.loss / objective.constant_loss
    rows = left * objective.n_total
    return bool(left < options.nearly_separable and rows < options.rows_per_feature_to_loosen * run.n_allowed)


def _may_all_be_better(run: Averaging) -> bool:
    """Whether what is not used could matter: even if each feature explained as much as one that is just left out."""
    objective, options = run.objective, run.objective.options
    # With many rows a feature that matters has evidence of its own.
    if objective.has_many_rows or not run.has_rows_for_all or not 0 < len(run.used()) < run.n_allowed:
        return False
    # With several classes each has tables of its own.
    n_unused = int((run.posterior.share[run.allowed] <= 0.5).sum())
    return options.least_log_odds * n_unused >= options.least_promise * objective.n_total


def _fit_on(
    inside: Objective, run: Averaging, found: str, dispersion: float | None, bags: Bags, contenders: list[Decision]
) -> None:
    """Fit all contenders on a bag, and add what they say of the rows outside."""
    bound, settled = run.bound.on(inside.tables.weights), run.objective.options.bag_settled

    def fresh(uses_all: bool) -> Averaging:
        own = Averaging(inside, bound, run.alpha, run.allowed, dispersion, settled=settled, rising=run.rising)
        own.uses_all = own.shares_prior = uses_all
        return own

    runs: dict[bool, tuple[Averaging, Point]] = {}
    if found == "together" or any(contender.uses_all for contender in contenders):
        with_all = fresh(ALL)
        runs[ALL] = with_all, with_all.run(go_on)
    if not all(contender.uses_all for contender in contenders):
        if found == "together":
            few = runs[ALL][0].copy()
            runs[FOUND] = few, few.narrow(runs[ALL][1], go_on)
        else:
            few = fresh(FOUND)
            runs[FOUND] = few, few.run(go_on)
        if len(few.used()):
            runs[FOUND] = few, few.settle_on_shared_prior(runs[FOUND][1], go_on)
    for number, contender in enumerate(contenders):
        on_bag, point = runs[contender.uses_all]
        if contender.looseness != on_bag.looseness:
            point = on_bag.loosened(contender.looseness, point, go_on)
            runs[contender.uses_all] = on_bag, point
        bags.add(number, point.f, point.support, point.intercept)


def _ranked(bags: Bags, contenders: list[Decision]) -> tuple[Decision, Decision]:
    """(the best of the plainer side, the best of the other side): features found and all, or as wide as effects and
    looser.
    """
    losses = {contender: bags.loss_of((number,)) for number, contender in enumerate(contenders)}
    plain = [c for c in contenders if c.uses_all == contenders[0].uses_all]
    others = [c for c in contenders if c not in plain]
    if not others:
        plain, others = plain[:1], plain[1:]
    return min(plain, key=losses.__getitem__), min(others, key=losses.__getitem__)


def go_on(point: Point) -> bool:
    """A report that stops nothing."""
    return False
