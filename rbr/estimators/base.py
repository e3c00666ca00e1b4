"""The common part of the regressor and the classifier.

An estimator only composes: table -> Binner -> BinnedMatrix -> objective -> solve -> AdditiveModel. Everything learned
is in `model_`, which predicts without the estimator; the latter adds scikit-learn's parameters, checks and conventions.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from rbr._checks import check_choice, check_int, check_real, check_sample_weight
from rbr._parallel import one_blas_thread, resolve_n_jobs
from rbr.constraints import DEFAULT_JUMP_COST, Constraints
from rbr.data.binning import Binner
from rbr.data.choices import generator_of
from rbr.data.design import WEIGHTS_KINDS
from rbr.data.sources import is_source
from rbr.data.tables import is_frame
from rbr.estimators.bagging import BagFit, bag_average, candidate_fits
from rbr.estimators.bootstrap import RESAMPLED_NOISE, Bootstrap, bootstrap_of, resamples, run_all
from rbr.estimators.inputs import (
    Columns,
    Training,
    as_checkable,
    check_offset,
    dispersion_of_weights,
    hint_at_names,
    is_ordered,
    name_of,
    with_text_names,
)
from rbr.estimators.interactions import (
    check_columns_of_pairs,
    check_interactions,
    fit_with_pairs,
    given_pairs,
    pair_spec,
    wants_pairs,
)
from rbr.estimators.reading import ReadingMixin
from rbr.estimators.refine import refine_cuts
from rbr.estimators.sources import SourceMixin, both_callbacks
from rbr.model import AdditiveModel
from rbr.model.from_pairs import pair_terms
from rbr.model.unseen import ON_UNSEEN
from rbr.objective import Objective, Tables, make_objective
from rbr.solvers import SOLVERS, Solution, solve
from rbr.solvers.averages import average_over_pieces, can_average, is_spoiled
from rbr.solvers.last_refit import last_refit
from rbr.solvers.lines import draw_lines, look_within_bins, on_objective, short_lines_as_steps
from rbr.solvers.pairs import PairSpec

try:  # callbacks are new in scikit-learn 1.9
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # pragma: no cover - older scikit-learn

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Without callbacks there is nothing to support."""

    def with_callbacks(fit):
        return fit


MONOTONE_SHAPES = {1: "increasing", -1: "decreasing"}


def all_or_nothing(fit):
    """Decorate `fit` so that it leaves the estimator unchanged if it fails or is interrupted."""

    @functools.wraps(fit)
    def guarded(self, *args, **kwargs):
        before = dict(vars(self))
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return guarded


class RBREstimator(SourceMixin, ReadingMixin, CallbackSupportMixin, BaseEstimator):
    """Base class of the regressor and the classifier: reading X, fitting, explaining, saving."""

    @one_blas_thread()
    def _fit(self, X, y, sample_weight, offset):
        if is_source(X, y):
            return self._fit_source(X, y, sample_weight, offset)
        self._check_parameters()
        previous = self.__dict__.get("_solution_tables") if self.warm_start else None
        target_name = name_of(y)
        X, target = self._read(X, y)
        y, loss, classes = self._target(target)
        if previous and classes is not None and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"warm_start is True, and y has the classes {classes.tolist()}; it must have those of the last fit, "
                f"{self.classes_.tolist()}"
            )
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, len(y))
        counts, sample_weight = sample_weight, self._weigh_classes(sample_weight, y, classes)
        if offset is not None:
            n_scores = len(classes) if loss.name == "multinomial" else 1
            offset = check_offset(offset, len(y), n_scores)
        limits = self._limits(X)

        binner = previous[0] if previous else self._binner()
        rows = {"loss": loss, "sample_weight": sample_weight, "offset": offset, "n_jobs": self.n_jobs}
        objective = self._objective(X, y, binner.transform if previous else binner.fit_transform, rows)
        constraints = self._constraints(X, binner, *limits)
        training = Training(
            *(X, target, target_name, binner, constraints, classes, counts, y),
            dispersion=None if sample_weight is counts else dispersion_of_weights(counts, sample_weight),
            warm_start=None if previous is None or len(previous[1]) != objective[0].tables.n_coef else previous[1],
        )
        self._fit_objective(objective.pop(), training)
        self._had_offset = offset is not None
        return self

    def _objective(self, X, y, bin_rows, rows: dict[str, Any]) -> list[Objective]:
        """The objective over the rows of X in a list, from which the fit takes it to free it when jumps have moved."""
        design = bin_rows(X, rows["sample_weight"]).with_weights(self.weights)
        return [make_objective(design, y, X=X, **rows)]

    def _fit_objective(self, objective: Objective, given: Training) -> None:
        """Fit the model to an objective over rows, wherever they are, and keep it."""
        X, target, binner, constraints = given.X, given.target, given.binner, given.constraints
        arguments = self._solver_arguments(constraints)
        if given.dispersion is not None:
            arguments["dispersion"] = given.dispersion
        context = self._begin_callbacks(X, target)
        start = {"is_numeric": ~binner.is_categorical_, "random_state": self._bag_random_state()}
        start |= {"warm_start": given.warm_start}
        start["callback"] = both_callbacks(self._iteration_callback(context), given.on_iteration)
        spec = self._pair_spec(X, constraints, objective.tables)
        solution, pairs = self._solve_with_pairs(objective, arguments, spec, **start)
        del objective
        pair_binner = binner
        if self.refine_cuts:
            # An average of bags joins jumps at the price of a fit. In one over all ways to cut, jumps in a row say that
            # their place is uncertain; but a single step may have a piece between its two.
            kept = {"keeps_levels": solution.status == "average", "keep_edges": binner.columns_with_given_edges()}
            if solution.status == "average" and self.n_bags == "auto":
                kept |= {"price": solution.problem.options.projection_price, "most_pieces": 3}
            binner, solution = refine_cuts(binner, solution, constraints, tol=self.tol, **kept)
        finished = self._finish(solution, binner, constraints, arguments.get("dispersion"))
        model = AdditiveModel.from_solution(binner, finished, classes=given.classes, target=given.target_name)
        model = replace(model, terms=(*model.terms, *pair_terms(pair_binner, pairs)))
        model = self._without_class_weights(model, given.counts, given.y, given.classes)
        self._keep(model, solution, binner)
        if context is not None:
            fitted = {name: value for name, value in vars(self).items() if name.endswith("_")}
            context.call_on_fit_task_end(estimator=self, X=X, y=target, reconstruction_attributes=fitted)

    def _solver_arguments(self, constraints: Constraints) -> dict[str, Any]:
        """The arguments of `solve` that all fits of this estimator share: the main one, bags and bootstrap refits."""
        return {
            "constraints": constraints,
            "alpha": self.alpha,
            "solver": self.solver,
            "step_size": self.step_size,
            "max_iter": self.max_iter,
            "tol": self.tol,
            "verbose": self.verbose,
        }

    def _solve(
        self,
        objective: Objective,
        arguments: dict[str, Any],
        *,
        is_numeric: np.ndarray,
        random_state,
        way: str | None = None,
        **start,
    ) -> Solution:
        """The tables of one fit: averaged, or single and then perhaps bagged.

        An average chooses its features in a given way; by default the rows decide.
        """
        if self._averages(objective, arguments["constraints"]):
            taken = ("constraints", "alpha", "dispersion", "verbose")
            own: dict[str, Any] = {name: arguments[name] for name in taken if name in arguments}
            own |= {"is_numeric": is_numeric, "random_state": random_state, "callback": start.get("callback")}
            average = average_over_pieces(objective, way=way, **own)
            if not is_spoiled(average):
                return on_objective(average, objective)
        solution = solve(objective=objective, **start, **arguments)
        solution = look_within_bins(solution, is_numeric, functools.partial(solve, **{**start, **arguments}))
        if self.n_bags not in ("auto", 0):
            bags = {"n_bags": self.n_bags, "random_state": random_state}
            average = self._average(solution, arguments, **bags)
            # An average that its projection has spoiled, as one line in a skewed column can, is no model.
            solution = average if average.loss <= max(solution.loss, objective.constant_loss) else solution
        return on_objective(solution, objective)

    def _pair_spec(self, X, constraints: Constraints, tables: Tables) -> PairSpec | None:
        """Which pairs may be used; None for none. Monotone columns stay out unless the user names their pair."""
        if not wants_pairs(self.interactions, self.interaction_cst):
            return None
        bound = constraints.bind_to(tables)
        is_monotone = np.isin([bound.spec(j).name for j in range(bound.n_features)], list(MONOTONE_SHAPES.values()))
        allowed = ~bound.excluded & ~is_monotone & (bound.n_bins > 1)
        return pair_spec(self.interactions, self.interaction_cst, Columns.of(X), allowed)

    def _solve_with_pairs(self, objective: Objective, arguments: dict[str, Any], spec: PairSpec | None, **start):
        """(solution of the mains, fitted pairs or None)."""
        if spec is None:
            return self._solve(objective, arguments, **start), None

        def solve_mains(own: Objective, way: str | None = None) -> Solution:
            if own is objective:
                return self._solve(own, arguments, **start)
            # What was known of the tables before they had pairs beside them is no start for the second fit.
            return self._solve(own, arguments, **{**start, "warm_start": None, "way": way})

        signs = {name: sign for sign, name in MONOTONE_SHAPES.items()}
        bound = arguments["constraints"].bind_to(objective.tables)
        shapes = {j: bound.spec(j).name for j in np.unique(spec.forced).tolist()}
        return fit_with_pairs(
            objective,
            solve_mains,
            spec,
            ~start["is_numeric"],
            heredity=self.heredity,
            max_rectangles=self.max_rectangles,
            monotone={j: signs[name] for j, name in shapes.items() if name in signs},
            alpha=self.alpha,
            dispersion=arguments.get("dispersion"),
            verbose=self.verbose,
            callback=start.get("callback"),
        )

    def _averages(self, objective: Objective, constraints: Constraints) -> bool:
        """Whether the fit is an average over all ways to cut the tables."""
        is_default = self.n_bags == "auto" and self.jump_cost == "default" and self.solver == "auto"
        bound = constraints.bind_to(objective.tables, objective.n_total)
        return is_default and can_average(objective, bound)

    def _finish(
        self, solution: Solution, binner: Binner, constraints: Constraints, dispersion: float | None = None
    ) -> Solution:
        """The solution with lines in x and, unless it is an average, the last refit."""
        objective = solution.problem.objective
        solution = draw_lines(short_lines_as_steps(solution, constraints), ~binner.is_categorical_)
        if solution.status == "average":
            return solution
        # Class weights make rows louder, not more; the dispersion says by how much, and the prior's rows follow.
        has_known_dispersion = objective.loss.has_known_dispersion
        rows_per_row = (dispersion or 1.0) if has_known_dispersion else 1.0
        return last_refit(solution, float(self.prior_rows) * rows_per_row)

    def _average(self, solution: Solution, arguments: dict[str, Any], **bags) -> Solution:
        """The average of fits on bags."""
        objective, constraints = solution.problem.objective, arguments["constraints"]
        if self.jump_cost == "default":
            ways = candidate_fits(constraints, objective, self.alpha)
        else:
            ways = [BagFit("as asked", constraints, self.alpha)]
        return bag_average(solution, ways, **bags, **arguments)

    def _keep(self, model: AdditiveModel, solution: Solution, binner: Binner) -> None:
        self.model_ = model
        self.n_iter_ = solution.n_iter
        self.loss_path_ = solution.loss_path
        self.dispersion_ = solution.dispersion
        self._solution_tables = (binner, solution.f)
        self._way = solution.way

    # scikit-learn 1.9 passes callbacks to estimators through `_init_callback_context` and `_skl_callbacks`, which have
    # no public counterparts.
    def _begin_callbacks(self, X, y):
        if not hasattr(self, "_init_callback_context"):
            return None
        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        return context

    def _iteration_callback(self, context):
        """Report each iteration as a subtask; a callback that returns True stops the fit."""
        if context is None or not getattr(self, "_skl_callbacks", None):
            return None

        def report(iteration) -> bool:
            task = context.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(estimator=self)
            return bool(task.call_on_fit_task_end(estimator=self))

        return report

    # Reading what the user gave ----------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Check every parameter that can be checked without X, before X is read."""
        # Constraints checks the limits, shapes and prices itself.
        Constraints(
            max_features=self.max_features,
            max_segments=self.max_segments,
            shape=self.shape,
            position=self.position,
            jump_cost=self._kappa(),
            segmentation=self.segmentation,
            min_rows=self.min_rows,
        )
        if self.n_bags != "auto":
            check_int(self.n_bags, "n_bags", 0)
        check_real(self.alpha, "alpha", 0.0)
        check_real(self.prior_rows, "prior_rows", 0.0)
        if not isinstance(self.refine_cuts, (bool, np.bool_)):
            raise ValueError(f"refine_cuts is {self.refine_cuts!r}; it must be True or False")
        check_choice(self.solver, "solver", SOLVERS)
        if self.step_size != "auto":
            check_real(self.step_size, "step_size", 0.0, strict=True)
        check_int(self.max_iter, "max_iter", 1)
        check_real(self.tol, "tol", 0.0)
        check_choice(self.weights, "weights", WEIGHTS_KINDS)
        if not isinstance(self.verbose, bool):
            check_int(self.verbose, "verbose", 0)
        if not isinstance(self.warm_start, (bool, np.bool_)):
            raise ValueError(f"warm_start is {self.warm_start!r}; it must be True or False")
        check_choice(self.on_unseen, "on_unseen", ON_UNSEEN)
        check_interactions(self.interactions, self.interaction_cst, self.heredity, self.max_rectangles)

    def _kappa(self):
        return DEFAULT_JUMP_COST if self.jump_cost == "default" else self.jump_cost

    def _bag_random_state(self):
        """random_state in a form that scikit-learn's check_random_state accepts; it rejects a Generator."""
        if isinstance(self.random_state, np.random.Generator):
            return int(self.random_state.integers(2**31 - 1))
        return self.random_state

    def _read(self, X, y):
        """X and y, checked: frames stay frames, the rest goes through scikit-learn's checks. Stores column names."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None")
        X = as_checkable(X)
        if is_frame(X):
            y = validate_data(self, X="no_validation", y=y)
            validate_data(self, with_text_names(X), skip_check_array=True)  # last, because it stores the column names
            if len(X) != len(y):
                raise ValueError(f"Found input variables with inconsistent numbers of samples: {[len(X), len(y)]}")
            return X, y
        return validate_data(
            self,
            X,
            y,
            accept_sparse=("csr", "csc"),
            dtype=None,
            ensure_all_finite=False,
            y_numeric=False,
            multi_output=False,
        )

    def _binner(self) -> Binner:
        return Binner(
            max_bins=self.max_bins,
            binning=self.binning,
            categorical_features=self.categorical_features,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            exclude=self.exclude,
        )

    def _limits(self, X) -> tuple[Constraints, dict[int, str]]:
        """(constraints without shapes, shapes of the columns that the user names), checked before binning."""
        columns = Columns.of(X)
        check_columns_of_pairs(self.interactions, self.interaction_cst, columns)
        for parameter in ("max_segments", "shape"):
            value = getattr(self, parameter)
            if not isinstance(value, Mapping) and np.ndim(value) and len(value) != columns.n_features:
                raise ValueError(f"{parameter} has {len(value)} entries; X has {columns.n_features} features")
        limits = Constraints(
            max_features=self.max_features,
            max_segments=columns.by_index(self.max_segments, "max_segments"),
            position=self.position,
            jump_cost=self._kappa(),
            segmentation=self.segmentation,
            min_rows=self.min_rows,
            exclude=columns.indices(self.exclude, "exclude"),
            always_include=columns.indices(self.always_include, "always_include"),
        )
        if self.max_features is not None and len(limits.always_include) > self.max_features:
            raise ValueError(
                f"always_include names {len(limits.always_include)} features; it may name "
                f"at most max_features={self.max_features}"
            )
        named = columns.by_index(self.shape, "shape") if isinstance(self.shape, Mapping) else {}
        for j, sign in self._monotone(columns).items():
            if named.setdefault(j, MONOTONE_SHAPES[sign]) != MONOTONE_SHAPES[sign]:
                raise ValueError(
                    f"monotonic_cst of {columns.label(j)} is {sign} and its shape is {named[j]!r}; give one of the two"
                )
        return limits, named

    def _constraints(self, X, binner: Binner, limits: Constraints, named: dict[int, str]) -> Constraints:
        """The limits with a shape for each feature: the one the user names, "levels" for categories, or the default."""
        default = "mixed" if isinstance(self.shape, Mapping) else self.shape
        if isinstance(default, str) and not named and not binner.is_categorical_.any():
            return replace(limits, shape=default)  # one string, even for a million columns
        shapes = np.full(binner.n_features_in_, default, dtype=object)
        for j in np.flatnonzero(binner.is_categorical_).tolist():
            if not is_ordered(X, j):
                shapes[j] = "levels"
                if named.get(j) in MONOTONE_SHAPES.values():
                    raise ValueError(
                        f"the shape of {binner.name_of(j)!r} (by shape or monotonic_cst) is {named[j]!r}, and it is a "
                        f"category without an order; only numbers and ordered categories can be monotone"
                    )
        for j, shape in named.items():
            shapes[j] = shape
        return replace(limits, shape=shapes)

    def _monotone(self, columns: Columns) -> dict[int, int]:
        """{feature: +1 or -1} from scikit-learn's three forms of monotonic_cst."""
        given = self.monotonic_cst
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            if isinstance(given, str) or np.ndim(given) != 1:
                raise ValueError(f"monotonic_cst is {given!r}; it must be an array or a dict of -1, 0 and 1")
            if len(given) != columns.n_features:
                raise ValueError(f"monotonic_cst has {len(given)} entries; X has {columns.n_features} features")
            given = dict(enumerate(given))
        signs = columns.by_index(given, "monotonic_cst")
        for j, sign in signs.items():
            if sign not in (-1, 0, 1):
                raise ValueError(f"monotonic_cst of {columns.label(j)} is {sign!r}; it must be -1, 0 or 1")
        return {j: int(sign) for j, sign in signs.items() if sign}

    def _weigh_classes(self, sample_weight, y, classes):
        return sample_weight

    def _without_class_weights(self, model: AdditiveModel, sample_weight, y, classes) -> AdditiveModel:
        return model

    # Using the model ---------------------------------------------------------------------------------------------

    def _check_X(self, X):
        check_is_fitted(self, "model_")
        X = as_checkable(X)
        if is_frame(X):
            named = with_text_names(X) if hasattr(self, "feature_names_in_") else X
            with hint_at_names():
                validate_data(self, named, reset=False, skip_check_array=True)
            return X
        return validate_data(self, X, reset=False, accept_sparse=("csr", "csc"), dtype=None, ensure_all_finite=False)

    @property
    def intercept_(self):
        check_is_fitted(self, "model_")
        return self.model_.intercept

    @property
    def terms_(self):
        check_is_fitted(self, "model_")
        return self.model_.terms

    @property
    def selected_features_(self) -> np.ndarray:
        """Ascending indices of the columns that the model uses."""
        check_is_fitted(self, "model_")
        return np.unique(np.array([j for term in self.model_.terms for j in term.columns], dtype=np.int64))

    @property
    def feature_importances_(self) -> np.ndarray:
        """Mean absolute contribution of each column over the training rows, zero for those that are not used.

        The contribution of a term is divided equally among its columns.
        """
        check_is_fitted(self, "model_")
        importances = np.zeros(self.n_features_in_)
        for term in self.model_.terms:
            importances[list(term.columns)] += term.importance / len(term.columns)
        return importances

    def bootstrap(
        self, X, y, n=100, *, sample_weight=None, offset=None, random_state=None, n_jobs=None, verbose=None
    ) -> Bootstrap:
        """Uncertainty of the model: refits on bootstrap resamples of the training rows, with the bins of the fit.

        Parameters
        ----------
        X, y, sample_weight, offset
            The training data, as they were given to `fit`. Whole weights mean repeated rows.
        n : int, default 100
            Number of resamples.
        random_state : int, Generator, RandomState or None
            None uses that of the estimator, or a fixed seed if that is None too.
        n_jobs : int or None
            Number of refits at a time, in threads; the result does not depend on it. None uses that of the estimator.
        verbose : int, optional
            1 prints the progress. None uses that of the estimator.

        Returns
        -------
        Bootstrap
            Bands for every term of the model and selection frequencies for every column; ``plot(bands=...)`` draws
            the bands. See `Bootstrap` for what they mean and what they leave out.

        Examples
        --------
        >>> import numpy as np
        >>> from rbr import RBRRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 6))
        >>> y = 2 * np.sign(X[:, 4]) + rng.normal(size=300)
        >>> m = RBRRegressor(max_features=1).fit(X, y)
        >>> boot = m.bootstrap(X, y, n=10)
        >>> boot
        Bootstrap(10 refits, bands of 1 term, 1 of 6 features in at least half of the refits)
        >>> boot.frequencies
        array([0., 0., 0., 0., 1., 0.])
        >>> low, high = boot.band("x4")
        >>> bool((low <= high).all())
        True
        """
        check_is_fitted(self, "model_")
        if "_solution_tables" not in vars(self):
            raise NotFittedError(
                "bootstrap refits with the bins and parameters of the fit, which a model alone does not hold; call fit"
            )
        check_int(n, "n", 1)
        X = self._check_X(X)
        y, classes = self._check_target(y, X)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, len(y))
        by_class = self._weigh_classes(None, y, classes)
        binner = self._solution_tables[0]
        design = binner.transform(X, sample_weight).with_weights(self.weights)
        arguments = self._solver_arguments(self._constraints(X, binner, *self._limits(X)))
        phi = None if self.dispersion_ is None else RESAMPLED_NOISE * self.dispersion_
        arguments |= {"dispersion": phi, "verbose": 0}
        rng = generator_of(self.random_state if random_state is None else random_state)
        stop = threading.Event()
        spec = given_pairs([term.columns for term in self.model_.terms if len(term.columns) == 2])

        def refit(number, draw):
            weight = draw() if by_class is None else draw() * by_class
            rows = {"loss": self.model_.loss, "sample_weight": weight, "offset": offset, "n_jobs": 1}
            # A number, not a generator: what threads draw from a shared generator would depend on their order.
            options = {"random_state": number, "callback": lambda _: stop.is_set()}
            # Features are chosen as the fit did: in a resample copies of a row lie in and out of a bag.
            options |= {"is_numeric": ~binner.is_categorical_, "way": self._way}
            solution, pairs = self._solve_with_pairs(make_objective(design, y, **rows), arguments, spec, **options)
            solution = self._finish(solution, binner, arguments["constraints"])
            own = AdditiveModel.from_solution(binner, solution, classes=classes, measure=False)
            own = replace(own, terms=(*own.terms, *pair_terms(binner, pairs, measure=False)))
            return solution.f, own

        needs_positive = self.model_.loss.link == "log"
        draws = resamples(sample_weight, y, n, rng, is_classifier=classes is not None, needs_positive=needs_positive)
        found = run_all(
            [functools.partial(refit, number, draw) for number, draw in enumerate(draws)],
            min(n, resolve_n_jobs(self.n_jobs if n_jobs is None else n_jobs)),
            stop,
            self.verbose if verbose is None else verbose,
        )
        solutions, models = zip(*found, strict=True)
        return bootstrap_of(self.model_, design, binner, solutions, models)

    def _check_target(self, y, X):
        """(y as the solver takes it, classes) for the y of the fit, passed again; its classes must be the same."""
        y = column_or_1d(y, warn=True)
        n_rows = X.shape[0]
        if len(y) != n_rows:
            raise ValueError(f"y has length {len(y)}, but X has {n_rows} rows; they must agree")
        y, _, classes = self._target(y)
        if classes is not None and not np.array_equal(classes, self.classes_):
            raise ValueError(f"y has the classes {classes.tolist()}; the model was fitted to {self.classes_.tolist()}")
        return y, classes

    def save(self, path) -> None:
        """Write the model to a JSON file, which `rbr.load` reads; the same as ``model_.save(path)``."""
        check_is_fitted(self, "model_")
        self.model_.save(path)

    def plot(self, terms=None, **options):
        """Draw the terms of the model, one panel each, and return the Axes; see `rbr.plotting.plot_model`."""
        check_is_fitted(self, "model_")
        return self.model_.plot(terms, **options)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        tags.input_tags.string = False
        return tags
