"""The list of all items, in the order of the paper."""

from __future__ import annotations

from rbr.experiments.item import Item

ITEMS = (
    Item(1, "one_curve", "Bins of one feature, and three fits of one curve", guess=2),
    Item(2, "planted_curves", "Planted nonlinearities, recovered", guess=25),
    Item(3, "feature_selection", "Planted features found, against the number of rows", guess=400),
    Item(4, "planted_roc", "ROC on planted labels", guess=50),
    Item(5, "hr_roc", "ROC on HR", guess=130),
    Item(6, "adult_roc", "ROC on Adult", guess=400),
    Item(7, "gradient_correlation", "Restricted gradient correlation"),
    Item(8, "linear_convergence", "Linear convergence of Algorithm 1"),
    Item(9, "sample_complexity", "Sample complexity"),
    Item(10, "gaussian_complexity", "Gaussian complexity of the constraint set"),
    Item(11, "binomial_rows", "Rows of the binomial matrix"),
    Item(12, "regular_versus_binomial", "Regular against binomial binning"),
    Item(13, "runtime", "Time of an iteration"),
    Item(14, "embedding_moments", "Second moments of sparse embeddings"),
)
