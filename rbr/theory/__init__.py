"""The quantities of the paper's theory, computed numerically for its sets, designs and iterations.

Everything here uses the paper's notation: beta in the plain norm, X_bin with the entries sqrt(b_j / n), and squared
loss with the gradient X_bin' (X_bin beta - y). In the rest of rbr, beta^j is the table f_j times sqrt(n / b_j), and the
weights are uniform. Where the theory has a supremum over a non-convex set, a search finds a lower bound of it, and the
docstring says so; where an upper bound is cheap, it is returned as well.

cones         C and C - C, exact projections onto both, Gaussian complexity (definition and bound of appendix D)
designs       regular and binomial designs, the law of a row (appendix E), the coupling of the two
correlation   restricted gradient correlation (definition 3.1)
iteration     Algorithm 1 from zero, its rate and its floor (theorems 3.2 and 3.4)
"""

from rbr.theory.cones import (
    Cone,
    DifferenceCone,
    Estimate,
    gaussian_complexity,
    gaussian_complexity_bound,
    local_complexities,
    sample_scale,
)
from rbr.theory.correlation import GradientCorrelation, gradient_correlation
from rbr.theory.designs import (
    coupled_regular_design,
    largest_stretch,
    moment_norm,
    random_design,
    row_moments,
    worst_row_direction,
)
from rbr.theory.iteration import estimation_errors, iterate, linear_rate, two_minimisers

__all__ = [
    "Cone",
    "DifferenceCone",
    "Estimate",
    "GradientCorrelation",
    "coupled_regular_design",
    "estimation_errors",
    "gaussian_complexity",
    "gaussian_complexity_bound",
    "gradient_correlation",
    "iterate",
    "largest_stretch",
    "linear_rate",
    "local_complexities",
    "moment_norm",
    "random_design",
    "row_moments",
    "sample_scale",
    "two_minimisers",
    "worst_row_direction",
]
