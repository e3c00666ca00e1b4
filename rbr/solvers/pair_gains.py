"""What each pair brings on rows that it has not seen.

Bags are drawn, the pairs are fitted on the rows inside, and the rows outside say how far their loss rises without each
of them. The mains are among the offsets, and have seen all rows; so has the search that found the pairs. A pair of
noise fits the rows inside at the expense of those outside all the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rbr.objective.protocol import Objective, Point
from rbr.solvers.pair_fit import PairFit


def held_out_gains(fit: PairFit, fit_bag: Callable[[Objective], Point]) -> tuple[np.ndarray, np.ndarray]:
    """(gain, its standard error) of each pair: the mean loss of rows outside bags without the pair, less that with it.

    Parameters
    ----------
    fit : PairFit
    fit_bag : fits all of the pairs on an objective over their cells

    NaN if no row can be left out, as where a class has too few.
    """
    objective, options, n = fit.objective, fit.objective.options, fit.n_pairs
    bags = objective.bags(1 + n, options.bag_share, None, may_sample=True)
    gains, errors = np.full((2, n), np.nan)
    everything = np.arange(n)
    for _ in range(options.bags_of_pairs):
        point = fit_bag(bags.draw())
        bags.add(0, point.f, everything, point.intercept)
        for k in range(n):
            bags.add(1 + k, point.f, np.delete(everything, k), point.intercept)
        if not bags.has_left_out:
            break
        gains, errors = np.transpose([bags.gain(1 + k, 0, options.share_of_outliers) for k in range(n)])
        if (np.abs(gains) > options.clear_gain * errors).all():
            break
    return gains, errors
