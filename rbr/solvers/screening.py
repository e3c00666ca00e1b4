"""Safe screening: gradient columns of features that cannot enter are not even summed.

What a proximal step makes of a feature at zero depends on its gradient g_j alone: on its norm ||P_zm g_j||_w, and on
its net, the largest gain of a table of allowed pieces less the cost of the pieces. Both are suprema of inner products
<g_j, u>_w, so they change slowly with g_j, and g_j changes slowly with the residual r, since taking bin means is a
contraction. With v the row weights (sum 1), D = sqrt(sum_i v_i (r_i - r'_i)^2) and x_j = D max_k sqrt(m_jk / w_jk),
m_jk the share of bin k in v (x_j = D for `counts` weights), the norm at r is at most G + x_j, G being the norm at r'.

For the net, let G_d be the norm of the best table of code length d, and V_q = max_d (G_d^2 / 2 - q d) the net over the
squared step at r' and at a price q. No G_d changes by more than x_j, so at r and a price of q' >= q the net is at most

    max_d (G_d + x_j)^2 / 2 - q' d    <=    V_q + G x_j + x_j^2 / 2                            since G_d <= G, and also
                                      <=    (1 + t) V_q + (1 + 1 / t) x_j^2 / 2                for 0 < t <= q' / q - 1,

by 2 G_d x_j <= t G_d^2 + x_j^2 / t. The second is the better one where many pieces together have a large norm but are
not worth their cost; to use it, nets are computed at a somewhat lower price than the current one
(SCREENING_PRICE_FACTOR). Without a price, q = 0, every t is allowed, and the best one gives (sqrt(2 V_0) + x_j)^2 /
2, where sqrt(2 V_0) is the norm of P_L P_zm g_j, itself a supremum. The naive rule, the norm of the chosen table +
x_j, is wrong: another number of pieces may overtake the chosen one. Searches that are not exact (merging; sorting or
pooling with a least number of rows in a piece) satisfy none of these bounds; for them only the norm before the search
can be used.

For each feature, (G, V) at the residual where it was last read is kept, and its drift since: the sum of D along the
iterates, by the triangle inequality. So only the residuals of the last iterate are kept. A point off the path of the
iterates (a swap that is tried) adds its own distance while it is examined.
"""

from __future__ import annotations

import numpy as np

from rbr.constraints import SCREENING_PRICE_FACTOR, BoundConstraints, Prox, Unread
from rbr.objective.protocol import Handle, Objective, Point

# Rounding changes a sum by bin by far less than this part of the residual's norm, and a net by less than this part of
# the squared norm. Bounds are raised by it, so that rounding cannot make them wrong.
ROUNDING = 1e-9


class Screen:
    """What is known of every feature's gradient at the residuals where it was last read."""

    def __init__(self, objective: Objective, constraints: BoundConstraints):
        self.objective = objective
        self.stretch = np.sqrt(objective.tables.stretch)
        # Without screening every column is read at every step; the iterates are the same to the bit.
        self.is_enabled = objective.screening_is_faster
        self.exact_search = constraints.has_exact_search
        shape = objective.n_outputs, objective.tables.n_tables
        self.norms = np.full(shape, np.inf)
        self.nets = np.full(shape, np.inf)
        self.prices = np.full(shape[1], np.inf)  # at which the nets were computed, over the squared step
        self.drift = np.zeros(shape)
        self.residuals: Handle | None = None

    def move_to(self, point: Point) -> ScreenedGradient:
        """The gradient at the next iterate; the change of the residual adds to every feature's drift."""
        gradient = ScreenedGradient(self, point, is_on_path=True)
        if self.is_enabled:
            if self.residuals is not None:
                self.drift += self._distance(gradient)
            self.residuals = gradient.residuals
        gradient.drift = self.drift
        return gradient

    def look_at(self, point: Point) -> ScreenedGradient:
        """The gradient at a point off the path of the iterates; nothing is remembered of it."""
        gradient = ScreenedGradient(self, point, is_on_path=False)
        gradient.drift = self.drift + (np.inf if self.residuals is None else self._distance(gradient))
        return gradient

    def _distance(self, gradient: ScreenedGradient) -> np.ndarray:
        """D for each output, with a margin for rounding."""
        return self.objective.drift(gradient.residuals, self.residuals, ROUNDING)[:, None]

    def forget(self, features: np.ndarray) -> None:
        """Discard what is known of these features."""
        self.norms[:, features], self.nets[:, features], self.prices[features] = np.inf, np.inf, np.inf

    def remember(self, norms: np.ndarray, features: np.ndarray) -> None:
        """Store the norms of the gradients of features at zero, read at the last iterate."""
        self.forget(features)
        self.norms[:, features], self.drift[:, features] = norms[:, features], 0.0

    def remember_nets(self, nets: np.ndarray, features: np.ndarray, price: float) -> None:
        """Store nets computed at the last iterate, unless those stored are at a lower price and so hold for longer."""
        features = features[price <= self.prices[features]]
        self.nets[:, features], self.prices[features] = np.maximum(nets[:, features], 0.0), price

    def bounds(self, drift: np.ndarray, price: float) -> tuple[np.ndarray, np.ndarray]:
        """For features at zero, upper bounds on the norm of the gradient and on the net over the squared step."""
        # An unknown feature has an infinite norm; infinity times a drift of zero is NaN, which counts as no bound.
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            x, nets = self.stretch * drift, self.nets
            norms = (self.norms + x) * (1 + ROUNDING)
            by_norm = nets + self.norms * x + 0.5 * x**2
            t = np.fmin(np.where(self.prices == 0, np.inf, price / self.prices) - 1, x / np.sqrt(2 * nets))
            by_price = np.where(nets > 0, (1 + t) * nets, 0.0) + 0.5 * (1 + 1 / t) * x**2
            nets = np.fmin(by_norm, np.where(t > 0, by_price, np.inf)) + ROUNDING * norms**2
        is_known = (price >= self.prices) & self.exact_search
        return np.where(norms >= 0, norms, np.inf), np.where(is_known & (nets >= 0), nets, np.inf)


class ScreenedGradient:
    """The gradient at a point, read column by column as proximal steps ask for it.

    values : (n_coef,) or (n_coef, n_outputs), zero in the columns that were not read
    is_read : bool per table
    """

    def __init__(self, screen: Screen, point: Point, is_on_path: bool):
        self.screen, self.point, self.is_on_path = screen, point, is_on_path
        self.residuals = screen.objective.residuals(point)
        self.values = screen.objective.zero_tables()
        self.is_read = np.zeros(screen.objective.tables.n_tables, dtype=bool)
        self.drift: np.ndarray  # the screen sets it
        self._remembered = np.zeros_like(self.is_read)

    def read(self, tables: np.ndarray) -> None:
        """Sum the columns of those of the tables that have not been summed yet."""
        tables = np.asarray(tables, dtype=np.int64)
        tables = tables[~self.is_read[tables]]
        if not len(tables):
            return
        gradient = self.screen.objective.gradient(self.point, tables, self.residuals)
        self.values = self.values + gradient if self.is_read.any() else gradient + 0.0
        self.is_read[tables] = True

    @property
    def of_used(self) -> np.ndarray:
        """The gradient, in the columns of the used tables at least."""
        self.read(self.point.support)
        return self.values

    @property
    def n_read(self) -> int:
        """How many columns were read here."""
        return int(self.is_read.sum())

    def step(self, constraints: BoundConstraints, step: float, scale: float, *, alpha=0.0, n_threads=1) -> Prox:
        """P(f - step * gradient), the proximal step from the point."""
        return self._prox(constraints, step, scale, alpha, n_threads, self.point.support, self.point.f)

    def step_of_others(
        self, constraints: BoundConstraints, step: float, scale: float, without: np.ndarray, *, alpha=0.0, n_threads=1
    ) -> Prox:
        """The proximal step from zero of all features except `without`, whose tables are zero in the result."""
        constraints = constraints.excluding(without)
        return self._prox(constraints, step, scale, alpha, n_threads, np.zeros(0, dtype=np.int64), 0.0)

    def _prox(self, constraints, step, scale, alpha, n_threads, used, f) -> Prox:
        shrunk = step / (1.0 + step * alpha)
        price = constraints.prices(1.0, scale)[0] / shrunk
        if not self.screen.is_enabled:
            self.read(np.flatnonzero(~constraints.excluded))
            return constraints.prox(f - step * self.values, step, scale, alpha=alpha, n_threads=n_threads)
        norms, nets = self.screen.bounds(self.drift, price)
        is_unknown = ~np.isfinite(norms).all(axis=0) & ~constraints.excluded
        is_unknown[used] = True
        self.read(np.flatnonzero(is_unknown))

        def tables_with(features):
            self.read(features)
            return f - step * self.values

        is_free = np.ones(len(self.is_read), dtype=bool)
        is_free[used] = False
        unread = Unread(~self.is_read, is_free, shrunk * norms, shrunk**2 * nets, tables_with)
        found = constraints.prox(f - step * self.values, step, scale, alpha=alpha, n_threads=n_threads, unread=unread)
        if self.is_on_path and f is self.point.f:
            self._remember(unread, shrunk, price)
        return found

    def _remember(self, unread: Unread, step: float, price: float) -> None:
        at_zero = self.is_read.copy()
        at_zero[self.point.support] = False
        new = at_zero & ~self._remembered
        self.screen.remember(unread.found_norms / step, np.flatnonzero(new))
        self._remembered |= new
        searched = unread.searched[at_zero[unread.searched]]
        self.screen.remember_nets(unread.found_nets / step**2, searched, SCREENING_PRICE_FACTOR * price)
        self.screen.forget(self.point.support)
