"""The parameters and attributes that both estimators have, as their docstrings tell them."""

PARAMETERS = """max_features : int or None
        s_G, the most features that the model may use; None leaves it to the jump cost.
    max_segments : int or dict {column name or index: int}
        s_L, the most pieces of a feature's table; columns that a dict leaves out get 128.
    min_rows : int, or float between 0 and 1
        The least number of training rows in a piece, or their share; rows count by their weights. 0: no minimum. A bin
        of missing values and the shapes "frequency" and "free" have none.
    max_bins : int or dict {column name or index: int}
        The most bins of a feature, 2 to 65535. Categories keep all their levels.
    shape : str or dict {column name or index: str}
        "constant", "linear", "mixed" (each piece constant or a line, whichever lowers the penalised loss more),
        "increasing", "decreasing", "levels" (categories fused into groups; their default), "frequency" or "free".
    jump_cost : float or "default"
        kappa, the price of features and pieces in a single fit. With 0, as in the paper, set max_features too, or all
        features are used. The default is 1, the price of chance; averages and bags choose their own.
    binning : "regular", "binomial" or dict {column: one of these, or an array of edges}
    categorical_features : "from_dtype", list of names or indices, mask or None
        "from_dtype": frame columns of dtype category, string, or object with text. Ordered categories keep their order.
    monotonic_cst : array or dict {column name or index: -1, 0 or 1}, optional
        1 makes a feature's table increasing, -1 decreasing. A ValueError if a dict of shapes gives the feature another
        one, or if it is a category without an order.
    interactions : int, "auto" or list of pairs
        Terms of two columns, beside those of one. 0: none. A number: at most that many, those with the most evidence.
        "auto": all that have evidence. A list of pairs of column names or indices: these, whatever their evidence.
        Monotone columns are in no pair unless a list names it; the table of such a pair is then monotone too.
    interaction_cst : "pairwise", "no_interactions", or list of lists of column names or indices, optional
        Which columns may be in a pair with each other: any two, none, or two of the same list.
    heredity : bool
        Whether only columns that the mains use are looked at for pairs (strong heredity): faster, and easier to read.
    max_rectangles : int or None
        The most constant rectangles of a pair. None leaves the mean over all ways to cut its grid as it is, a surface.
    exclude, always_include : list of column names or indices, optional
        Features that are never used, and features that always enter, at no cost.
    alpha : float
        Ridge penalty on the tables. The classifier's small default keeps the scores of pure bins finite and readable.
    prior_rows : float
        A piece of m rows is shrunk by about m / (m + prior_rows) towards the mean of its table, in the last refit.
        Averages of bags have none.
    n_bags : int or "auto"
        "auto": up to 200,000 rows, and with the default jump cost and solver, the tables are averages over all ways to
        cut them into pieces, weighted by how well they explain the rows, projected back into the constraint set; else a
        single fit. 0: a single fit. A number: the average of this many fits on subsamples, projected back; with the
        default jump cost the strictness of those fits is chosen by their out-of-bag loss.
    solver : {"auto", "algorithm1"}
    step_size, max_iter, tol
        As in `rbr.solve`.
    weights : {"counts", "uniform"}
        The geometry of the tables: the shares of the bins, or equal weights as in the paper.
    position : {"rank", "index", "value"}
        The axis of lines. "value": the column's own units, so that a line is v + b (x - x0); "rank" and "index": a line
        is a staircase with a step per bin.
    segmentation : {"exact", "greedy"}
    refine_cuts : bool
        As the last stage of a fit, let jumps between constant pieces lie inside bins, at the place between data values
        where the training loss is least, and replace two jumps by one where that pays. With bags jumps are joined but
        not moved, since their places are averages already. Edges that `binning` gives stay. False leaves all jumps at
        the edges of the bins.
    n_jobs : int or None
        Threads; the result does not depend on their number.
    random_state : int, Generator, RandomState or None
        For binomial bins, for the rows that quantiles are taken from, and for bags.
    verbose : int
        1 prints a line per iteration.
    warm_start : bool
        Keep the bins of the last fit; a single fit also starts from its tables. With `refine_cuts` jumps may still
        move inside bins.
    on_unseen : {"warn", "raise", "ignore"}
        What predictions do about categories that training did not have, and missing values where it had none, which
        add 0: warn if they are more than 5% of the rows of a column, raise an error if there are any, or nothing. It
        is a parameter of the estimator, since pipelines and searches call `predict` without arguments; the methods of
        `model_` take it themselves.

    Attributes
    ----------
    model_ : AdditiveModel
    intercept_, terms_ : of the model
    selected_features_ : array of int
        Ascending indices of the used columns.
    feature_importances_ : array of shape (n_features,)
        Mean absolute contribution of each column.
    n_iter_, loss_path_, dispersion_ : of the fit
    n_features_in_, feature_names_in_ : of the training table
"""


def with_parameters(estimator):
    """Put the shared parameters into the docstring of an estimator."""
    if estimator.__doc__:  # python -OO has no docstrings
        estimator.__doc__ = estimator.__doc__.replace("{parameters}", PARAMETERS)
    return estimator
