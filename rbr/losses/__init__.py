"""The losses: what a raw score z costs when the truth is y, with the derivatives that a descent needs.

A fit minimises sum_i v_i loss(y_i, z_i), v the sample weights scaled to sum 1 by the caller. Every loss is
convex in z, and an object of this room holds its parameters and nothing else, so one object serves every
fit. A row costs (constants that do not depend on z are dropped, and the log-link losses are 0 at z = 0):

=============  ==============================================================  =========  =================
name           loss(y, z)                                                      link       curvature bound
=============  ==============================================================  =========  =================
squared_error  (y - z)^2 / 2                                                   identity   1
log_loss       log(1 + exp(z)) - y z, y in {0, 1}                              logit      1 / 4
multinomial    log sum_k exp(z_k) - z_y, y in {0, ..., K-1}                    softmax    1 / 2
poisson        exp(z) - 1 - y z, y >= 0                                        log        none
gamma          z + y (exp(-z) - 1), y > 0                                      log        none
tweedie        expm1((2-q) z) / (2-q) - y expm1((1-q) z) / (1-q), 1 <= q <= 2  log        none
huber          (y - z)^2 / 2 up to abs(y - z) = delta, straight lines beyond   identity   1
quantile       the pinball loss, a parabola where abs(y - z) <= h              identity   1 / (2 h)
=============  ==============================================================  =========  =================

tweedie is poisson at q = 1 and gamma at q = 2. Differences of the log-link losses are differences of half
the unit deviance.

**Dispersion.** The jump cost is paid in units of lambda = phi / n, so phi must say how far the mean loss
falls by chance. Let one parameter t move the scores by t x_i, where x has nothing to do with y. With
residual r = -dloss/dz and curvature h at the best z, the mean loss as a function of t is  -t mean(r x) +
t^2 / 2 mean(h x^2): it falls by mean(r x)^2 / (2 mean(h x^2)), whose expectation is  phi / (2 n)  with

    phi = E[r^2] / E[h],

the ratio of the two halves of the sandwich. Likelihoods with a known variance have E[r^2] = E[h], so phi =
1 (log_loss, multinomial, poisson); squared_error gives the mean squared error; gamma and tweedie the
Pearson statistic, since E[r^2] / E[h] = E (y - mu)^2 / mu^q row by row; huber and quantile the same ratio
with their own r and h.

**Sums over rows.** Whoever holds the rows may hold them in several blocks, in files or on other machines. So what
needs all of them (`prepare_of`, `constant_start_of`, `refit_intercept_of`, `refit_intercept_and_value`,
`dispersion_of`) asks for sums that add over blocks, through a `RowSums`; quantiles are found by a search over such
sums. The same names without `_of` take the arrays of rows in memory. Within a block rows are read in stretches that
stay in cache, and their sums are added in a fixed order, so they have the same bits whatever the number of threads.
"""

from rbr.losses.base import Loss
from rbr.losses.classes import LogLoss, Multinomial
from rbr.losses.identity import Huber, Quantile, SquaredError
from rbr.losses.log_link import Gamma, Poisson, Tweedie
from rbr.losses.registry import ALIASES, LOSSES, get_loss, register, unregister
from rbr.losses.sums import Rows, RowSums

__all__ = [
    "ALIASES",
    "LOSSES",
    "Gamma",
    "Huber",
    "LogLoss",
    "Loss",
    "Multinomial",
    "Poisson",
    "Quantile",
    "RowSums",
    "Rows",
    "SquaredError",
    "Tweedie",
    "get_loss",
    "register",
    "unregister",
]
