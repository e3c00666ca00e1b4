"""What steers a fit: every number that decides when a solver tries, accepts, samples or stops, in one place.

None of them changes what a single fit minimises; those of averages and bags decide what is averaged, and how the
average is told. Each has its reason here. benches/options.py halves and doubles each of them, and docs/performance.md
says what came of it, except for those of averages, for which it is still to be measured. They are not meant to be tuned
for one table, but a test, a bench or a curious user can pass others: ``rbr.solve(B, y,
options=SolverOptions(many_rows=1000))``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real


@dataclass(frozen=True)
class SolverOptions:
    """The numbers that steer a fit.

    Examples
    --------
    >>> from rbr import SolverOptions
    >>> SolverOptions(first_features=8).first_features
    8
    >>> SolverOptions(usual_gain_ratio=-1.0)
    Traceback (most recent call last):
        ...
    ValueError: usual_gain_ratio is -1.0; it must be a number of at least 0
    """

    # Proposing. At the start every table can explain much of y alone: let few in at first, then twice as many as there
    # are.
    first_features: int = 4
    # Above this ratio of residual to noise dispersion, features are still missing, and new pieces pay its price.
    max_dispersion_ratio: float = 1.5
    # A step is halved this often before single moves are tried.
    max_step_halvings: int = 12
    # Where rows are few and columns many, a fit keeps to this many columns, or this part of them, that promise most.
    min_candidates: int = 256
    candidate_share: float = 1 / 16
    # A loss that curves this many times less than its bound, at the constant model, is flat: steps may be longer.
    flat: float = 2.5

    # Accepting. New pieces must lower the objective by this part of its first value: more than rounding, and enough
    # that separable classes, whose loss has no minimum, come to an end.
    descent: float = 1e-10
    # With many rows new pieces, a single move and a further Newton step must gain this many units of log-likelihood, or
    # this part of the objective: twice as many units count as equally good places of a jump, and each costs passes.
    least_gain: float = 1.0
    least_relative_gain: float = 1e-5
    # Of the moves of single jumps this many are tried: all of a table's best together, then the best alone.
    shifts_tried: int = 1

    # With several outputs the parabola of a bin, under which pieces are searched, has its least value within this many
    # units of the score: beyond, the curvature of a class says little.
    reach_of_parabolas: float = 2.0

    # Refitting. Newton steps at most, for proposed pieces, for a single move, and for the last digits.
    newton_per_proposal: int = 2
    newton_per_move: int = 4
    newton_to_finish: int = 12
    # A Newton step that does not lower the objective is halved this often.
    max_newton_halvings: int = 6
    # A step usually gains this part of what the one before gained; one that gains more than `slow_gain_ratio` of it
    # shows that the Hessian was too rough.
    usual_gain_ratio: float = 0.03
    slow_gain_ratio: float = 0.1
    # Up to these sizes the Hessian is built and factored; beyond, it is applied by passes over the used columns.
    max_dense_features: int = 64
    max_dense_groups: int = 4000
    max_dense_unknowns: int = 2000
    # Conjugate gradients, where it is only applied: relative residual, and steps at most. With many rows the first
    # Newton step within some pieces ends at the third number, each further one at a tenth of that.
    cg_tol: float = 1e-3
    cg_steps: int = 25
    cg_first_tol: float = 0.1
    # What guides them is the Hessian of each class, from at least this many rows, and this many for each unknown.
    preconditioner_rows: int = 2048
    preconditioner_rows_per_unknown: int = 16
    # One of all classes together may cost as much as this many products with the Hessian of all rows, which it saves.
    products_saved: float = 12.0

    # Rows. From here on passes over the rows are what a fit costs.
    many_rows: int = 50_000
    # A fit begins on this share of the rows, where that is enough of them, with a larger tolerance and few iterations.
    sample_share: float = 1 / 16
    min_sample_rows: int = 15_000
    sample_tol: float = 1e-2
    sample_iterations: int = 30
    # With fewer rows a gradient column is summed sooner than it is judged by bounds.
    screened_rows: int = 4096
    # The curvature of the constant model, which sets the length of some steps, is that of at most this many rows.
    curvature_rows: int = 1 << 16
    # A fit by rows costs this many nanoseconds per row and column, all its passes together: what the choice between
    # rows and their cross-tabulation goes by. 25 where columns are independent, hundreds where they are not
    # (docs/performance.md). 0 never takes the cross-tabulation.
    ns_per_entry_by_rows: float = 44.0
    # Its Hessians, most of them of samples, and the Python around them cost as much as these rows more.
    rows_besides: int = 100_000

    # Hessians. Rough above this many rows, or with more cells than this and than there are entries.
    rough_from_rows: int = 50_000
    rough_from_cells: int = 1 << 20
    # Between tables the bins of a line are taken together to this many groups, which is off by a sixty-fourth; to half
    # as many where a sample of rows is off by more.
    line_groups: int = 8
    # A sample has at least this many rows, and this many for each unknown: it is off by about sqrt(unknowns / rows).
    hessian_rows: int = 1 << 15
    hessian_rows_per_unknown: int = 64
    # Groups with this many sampled rows are shrunk by half.
    few_rows: int = 10
    # A rough Hessian is used again while the curvature of the rows has moved by at most this part of itself. Without a
    # bound a quantile fit of many rows ended 0.1% higher.
    max_curvature_change: float = 0.02

    # Lines that gain this many units of log-likelihood per row within bins, where bins cannot see it, make a fit look
    # again: for squared error, a noise that is less by one part in a hundred.
    least_gain_within_bins: float = 0.005
    # An average looks again at most this often: how far a steep table rises shows only beside the noise that is left.
    rounds_within_bins: int = 3

    # The dispersion is estimated from at most this many rows, until it moves by at most this part, in rounds at most.
    representative_rows: int = 20_000
    dispersion_settled: float = 0.05
    dispersion_rounds: int = 4

    # Averages over all ways to cut the tables, up to this many rows: there a single fit takes as long, has as many
    # pieces and is as accurate; with fewer rows it is less accurate.
    averaged_rows: int = 200_000
    # The prior of an effect is worth this many rows at least and at most.
    # Bins that hold a single class would have no finite value without it.
    least_prior_rows: float = 0.1
    least_prior_rows_of_classes: float = 1.0
    most_prior_rows: float = 100.0
    # The prior share of lines among pieces, and the most jumps that are expected per bin.
    line_share: float = 0.75
    # The prior share of smooth curves among tables that may have lines.
    curve_share: float = 0.5
    # A feature also pays for the two numbers of its prior, which are estimated from it. With classes half of that: no
    # row can lie far out, and features of noise enter no more often than at the full price.
    price_of_prior: float = 2.0
    price_of_prior_of_classes: float = 1.0
    most_jumps: float = 0.25
    least_jumps: float = 1.0
    # Once features are chosen, the mean square of all their effects counts in the prior of each like this many pieces
    # of its own. That prior follows the tables for some rounds, then it is held: it would go on moving when the loss
    # hardly changes.
    shared_pieces: float = 10.0
    rounds_of_shared_prior: int = 4
    # If classes are told apart so well that at most this part of the loss is left, and if that part of the rows is less
    # than this number for each feature, rows left out choose how much wider the prior is, up to the third number, among
    # as many as the fourth, evenly by their logarithms.
    nearly_separable: float = 0.5
    rows_per_feature_to_loosen: float = 20.0
    loosest_prior: float = 30.0
    loosenesses_tried: int = 3
    # Bins are merged to this many at most.
    most_averaged_bins: int = 255
    # Where a row can lie far out, bins of fewer rows are merged, so that a few of them make no piece, and all until
    # they have this many rows on average, but not to fewer than the third number.
    least_rows_with_outliers: float = 10.0
    rows_per_bin_with_outliers: float = 20.0
    least_averaged_bins: int = 32
    # Tables are visited in rounds, until one changes the loss by at most this many units of log-likelihood; those with
    # log odds below minus `least_log_odds` only when all are looked at again. Correlated features take turns in
    # explaining the same: where that is heading is told from the last rounds.
    averaging_rounds: int = 50
    # A round that ends worse than the constant model by more units of log-likelihood than this is taken back.
    least_runaway: float = 10.0
    # The tables of several classes are updated at once, and each knows only its own curvature: where two classes share
    # the rows, both steps together are twice too long. Whole steps made rounds swing between two losses.
    step_of_classes: float = 0.7
    mixed_rounds: int = 5
    settled: float = 0.03
    least_log_odds: float = 3.0
    averaging_searches: int = 3
    # All features, and those with evidence, compete on bags if there are this many rows per feature, and if those left
    # out could explain this much per row together. A gain or loss of this many standard errors ends the competition,
    # and so does a loss on the least number of bags.
    competing_bags: int = 5
    least_bags: int = 3
    rows_per_feature: float = 10.0
    least_promise: float = 0.001
    clear_gain: float = 2.0
    # Together, rows left out must gain this many units of log-likelihood: log 20, for a chance of one in twenty. So
    # much better must features be that have evidence beside all others, not one after the other.
    least_gain_in_all: float = 3.0
    # This share of the rows, those that gain or lose most, counts no more than others: rows far out do not decide.
    share_of_outliers: float = 0.01
    # The projected average has this many times the jumps that its tables have on average.
    jumps_kept: float = 3.0
    # Whether a table is a single step or line is asked at twice the price of chance: at that price itself, one step in
    # ten gets a second jump by chance. It may lose this many units of log-likelihood against the average.
    price_when_simple: float = 2.0
    lost_when_simple: float = 5.0
    # If the limits take more than this part of what an average explains, a single fit takes its place.
    most_lost_by_limits: float = 0.1
    # A piece of the projected average must be worth this part of the jump cost of a fit, at least. The more an average
    # explains, the less is lost by a piece of the same price: the price is also this times the units of log-likelihood
    # that it explains, so that a hundred pieces take about a five-hundredth of that. Several classes share the price.
    projection_price: float = 0.005
    projection_share: float = 4e-6
    bag_settled: float = 1.0

    # Pairs. The sides of their grids have this many bins at most, and fewer while all pairs are judged, on a sample of
    # this many rows.
    grid_bins: int = 64
    judged_bins: int = 16
    rows_by_pairs: int = 50_000
    # Of more candidates than this all are judged once, with half as many bins, and then the most promising of them.
    many_pairs: int = 10_000
    # The prior probability that a rectangle is cut. More than 1/2, since a tree that ends too soon loses more than one
    # that goes on: benches/RESULTS.md has what .5 to .9 gave. And those that one which is left whole is a plane, or a
    # twisted plane.
    cut_share: float = 0.7
    plane_share: float = 0.25
    twist_share: float = 0.25
    # Where rows cannot lie far out, as with classes, the sides of a grid are cut where that explains most, summed over
    # this many blocks of the other side; otherwise always in the middle.
    blocks_across_cuts: int = 8
    # There a pair enters by the odds of features, less these units of log-likelihood: a few more weak pairs predict
    # better. But its odds are never higher than these before the rows have spoken, or pairs would make one another
    # likely.
    discount_of_pairs: float = 2.0
    most_odds_of_pairs: float = 3.0
    # What pairs gain is measured on at most this many bags.
    bags_of_pairs: int = 3
    # On rows outside bags a pair must gain more than this many standard errors, and as many units of log-likelihood in
    # all. On up to this many rows (those of classes count by how much they say) it must also gain this multiple of the
    # log of the number of candidates, twice the price of an entry; on n rows a part few / n of it. Weaker pairs gained
    # nothing on new rows of small tables (32 splits of titanic and mammography); at any number of rows this would cost
    # .0021 R^2 on kin8nm and .0006 AUC on HR.
    proven_gain: float = 0.5
    least_gain_of_pairs: float = 7.0
    gain_per_log_candidates: float = 4.0
    few_rows_of_pairs: float = 2000.0
    # The prior of a rectangle is worth at most this many rows; where a row can lie far out, at least this many.
    most_prior_rows_of_pairs: float = 3000.0
    least_prior_rows_with_outliers: float = 10.0
    # The number of promising pairs that are tried at a time, and how often; all pairs in use are refitted in between.
    pairs_per_search: int = 16
    pair_searches: int = 4
    # While pairs are looked for, rounds end when one changes the loss by at most this for each pair in use, in units of
    # log-likelihood. Not those of classes, which go on growing in small steps: -.0016 AUC on mlc_churn.
    settled_per_pair: float = 0.25
    # Rows and columns of a grid are merged while that loses at most this part of the evidence of the pair.
    lost_when_thinned: float = 0.005

    # Bags. Share of the rows in a bag: what a bootstrap sample holds of distinct rows on average.
    bag_share: float = 0.632
    # Averaging has removed most of the noise that the jump cost guards against; the projection pays this part of it.
    bag_projection_price: float = 0.05
    # Inside the bags, half the price of chance: averaging removes the noise that it buys.
    bag_jump_cost: float = 0.5
    # The ridge of a bag, at least: few rows in a bin say little of its level. It is worth a number of rows, so that it
    # fades as they grow, but not more than a part of the loss.
    bag_ridge: float = 10.0
    bag_alpha: float = 0.01
    # Fits that are only averaged need few digits.
    bag_tol: float = 1e-3
    bag_iterations: int = 30
    # Out-of-bag losses after this many bags tell the ways to fit apart well enough to go on with this many of them.
    bags_for_all_ways: int = 4
    ways_kept: int = 2

    # Jumps inside bins. A refit changes the best places a little; a second round costs as much and changes no share of
    # benches/steps.py.
    refinement_rounds: int = 1
    # With many rows those in the bins beside jumps are sorted, up to this share of all rows, over all used tables.
    opened_share: float = 0.0625

    # What pairs gain is measured on bags of at most this many rows, if rows lie in files or on other machines.
    gathered_rows: int = 200_000

    # A finished model. Up to this many rows jumps are measured on all of them; with more, on a sample beside parabolas.
    measured_rows: int = 50_000
    measured_sample: int = 1 << 13

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, Real) or isinstance(value, bool) or not value >= 0:
                raise ValueError(f"{field.name} is {value!r}; it must be a number of at least 0")


DEFAULTS = SolverOptions()
