"""`RBRRegressor` and `RBRClassifier`: the library as a scikit-learn user knows it.

An estimator only composes: table -> Binner -> BinnedMatrix -> solve -> AdditiveModel. Everything learned is in
`model_`, a value that predicts alone; the estimator adds scikit-learn's parameters, checks and manners.
Looks at: every room below it, scikit-learn.  Seen by: users.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from rbr.bagging import Way, bag_average, ways_to_fit
from rbr.binning import Binner, _generator, by_index, index_of
from rbr.checks import check_choice, check_int, check_real, check_sample_weight
from rbr.constraints import DEFAULT_JUMP_COST, Constraints
from rbr.design import WEIGHTS_KINDS
from rbr.losses import get_loss
from rbr.model import AdditiveModel
from rbr.objective import Objective, make_objective
from rbr.parallel import one_blas_thread, resolve_n_jobs
from rbr.refine import refine_cuts
from rbr.solvers import SOLVERS, Solution, solve
from rbr.tables import is_frame, open_table
from rbr.uncertainty import RESAMPLED_NOISE, Bootstrap, bootstrap_of, resamples, run_all

try:  # scikit-learn 1.9 brought callbacks
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # pragma: no cover - older scikit-learn

    class CallbackSupportMixin:
        """Nothing to support."""

    def with_callbacks(fit):
        return fit


# n_bags="auto": so many bags below so many rows, none from there on (benches/defaults.py), and none where the columns
# are more than so many times the rows: there they cost a hundred fits and find less than one (benches/wide_bags.py).
DEFAULT_BAGS, BAGS_BELOW_ROWS, BAGS_UP_TO_COLUMNS_PER_ROW = 12, 5000, 5

# Integer labels nearer to zero than this are counted.
MOST_COUNTED = 1 << 16

MONOTONE_SHAPES = {1: "increasing", -1: "decreasing"}


def all_or_nothing(fit):
    """A fit that leaves the estimator as it was if it fails or is interrupted."""

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


@dataclass(frozen=True)
class Columns:
    """The columns of X, which a user gives by name or by index."""

    names: tuple[str, ...] | None
    n_features: int

    def label(self, j: int) -> str:
        return f"column {j}" if self.names is None else f"column {self.names[j]!r}"

    def by_index(self, value, parameter: str):
        """A dict by column name or index as a dict by index; anything else as it is."""
        return by_index(value, self, parameter) if isinstance(value, Mapping) else value

    def indices(self, columns, parameter: str) -> tuple[int, ...]:
        """The indices of a list of columns, ascending."""
        if columns is None:
            return ()
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise ValueError(f"{parameter} is {columns!r}; it must be a list of column names or indices")
        return tuple(sorted({index_of(column, self.names, self.n_features, parameter) for column in columns}))


class _RBREstimator(CallbackSupportMixin, BaseEstimator):
    """What the regressor and the classifier share: reading X, fitting, explaining, saving."""

    @one_blas_thread()
    def _fit(self, X, y, sample_weight, offset):
        self._check_parameters()
        previous = self.__dict__.get("_solution_tables") if self.warm_start else None
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
            offset = _check_offset(offset, len(y), n_scores)
        limits = self._limits()

        binner = previous[0] if previous else self._binner()
        design = (binner.transform if previous else binner.fit_transform)(X, sample_weight).with_weights(self.weights)
        constraints = self._constraints(X, binner, *limits)
        warm = None if previous is None or len(previous[1]) != design.n_coef else previous[1]
        arguments = self._solver_arguments(constraints)
        if sample_weight is not counts:
            arguments["dispersion"] = _dispersion_of_weights(counts, sample_weight)
        context = self._begin_callbacks(X, target)
        rows = {"loss": loss, "sample_weight": sample_weight, "offset": offset, "n_jobs": self.n_jobs}
        solution = self._solve(
            make_objective(design, y, X=X if self.refine_cuts else None, **rows),
            arguments,
            n_bags=self._n_bags(design.n_rows, design.n_features),
            random_state=self._bag_random_state(),
            warm_start=warm,
            callback=self._iteration_callback(context),
        )
        if self.refine_cuts:
            binner, solution = refine_cuts(binner, solution, constraints, tol=self.tol)
        model = AdditiveModel.from_solution(binner, solution, classes=classes)
        self._keep(model, solution, binner)
        if context is not None:
            fitted = {name: value for name, value in vars(self).items() if name.endswith("_")}
            context.call_on_fit_task_end(estimator=self, X=X, y=target, reconstruction_attributes=fitted)
        return self

    def _solver_arguments(self, constraints: Constraints) -> dict[str, Any]:
        """What every fit of this estimator's tables shares, on whatever rows."""
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
        self, objective: Objective, arguments: dict[str, Any], *, n_bags: int, random_state, **start
    ) -> Solution:
        """The tables of one fit, bags included."""
        solution, constraints = solve(objective=objective, **start, **arguments), arguments["constraints"]
        if not n_bags:
            return solution
        if self.jump_cost == "default":
            ways = ways_to_fit(constraints, objective.tables, self.alpha)
        else:
            ways = [Way("as asked", constraints, self.alpha)]
        return bag_average(solution, ways, n_bags=n_bags, random_state=random_state, **arguments)

    def _keep(self, model: AdditiveModel, solution: Solution, binner: Binner) -> None:
        self.model_ = model
        self.n_iter_ = solution.n_iter
        self.loss_path_ = solution.loss_path
        self.dispersion_ = solution.dispersion
        self._solution_tables = (binner, solution.f)

    # `_init_callback_context` and `_skl_callbacks` are how scikit-learn 1.9 speaks to estimators with callbacks; they
    # have no public names.
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
        """Judge every value that can be judged without X, before X is looked at."""
        # Its own checks are those of the limits, shapes and prices.
        Constraints(
            max_features=self.max_features,
            max_segments=self.max_segments,
            shape=self.shape,
            position=self.position,
            jump_cost=self._kappa(),
            segmentation=self.segmentation,
        )
        if self.n_bags != "auto":
            check_int(self.n_bags, "n_bags", 0)
        check_real(self.alpha, "alpha", 0.0)
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

    def _kappa(self):
        return DEFAULT_JUMP_COST if self.jump_cost == "default" else self.jump_cost

    def _bag_random_state(self):
        """random_state as scikit-learn's check_random_state takes it, which refuses a Generator."""
        if isinstance(self.random_state, np.random.Generator):
            return int(self.random_state.integers(2**31 - 1))
        return self.random_state

    def _read(self, X, y):
        """X as the Binner reads it: frames stay frames, the rest passes scikit-learn's checks. Names are kept."""
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None")
        X = _with_gaps(X)
        if is_frame(X):
            y = validate_data(self, X="no_validation", y=y)
            validate_data(self, X, skip_check_array=True)  # the last, since it keeps the names of the columns
            if len(X) != len(y):
                raise ValueError(f"Found input variables with inconsistent numbers of samples: {[len(X), len(y)]}")
            if len(X) == 0:
                raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required: X has no rows")
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
        )

    def _limits(self) -> tuple[Constraints, dict[int, str]]:
        """What the parameters ask of columns that they name, and the shapes of those, before any column is binned."""
        names = getattr(self, "feature_names_in_", None)
        columns = Columns(None if names is None else tuple(names), self.n_features_in_)
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
            exclude=columns.indices(self.exclude, "exclude"),
            always_include=columns.indices(self.always_include, "always_include"),
        )
        if self.max_features is not None and len(limits.always_include) > self.max_features:
            raise ValueError(
                f"always_include names {len(limits.always_include)} features; max_features is {self.max_features}, "
                f"and it can name at most so many"
            )
        named = columns.by_index(self.shape, "shape") if isinstance(self.shape, Mapping) else {}
        for j, sign in self._monotone(columns).items():
            if named.setdefault(j, MONOTONE_SHAPES[sign]) != MONOTONE_SHAPES[sign]:
                raise ValueError(
                    f"monotonic_cst of {columns.label(j)} is {sign} and its shape is {named[j]!r}; give one of the two"
                )
        return limits, named

    def _constraints(self, X, binner: Binner, limits: Constraints, named: dict[int, str]) -> Constraints:
        """The limits with a shape for every feature: what the user names, the levels of categories, the default."""
        default = "mixed" if isinstance(self.shape, Mapping) else self.shape
        if isinstance(default, str) and not named and not binner.is_categorical_.any():
            return replace(limits, shape=default)  # one word says it for a million columns
        shapes = np.full(binner.n_features_in_, default, dtype=object)
        for j in np.flatnonzero(binner.is_categorical_).tolist():
            if not _is_ordered(X, j):
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

    def _n_bags(self, n_rows: int, n_features: int) -> int:
        if self.n_bags == "auto":
            small = n_rows < BAGS_BELOW_ROWS and n_features <= BAGS_UP_TO_COLUMNS_PER_ROW * n_rows
            return DEFAULT_BAGS if small and not self.refine_cuts else 0
        return self.n_bags

    def _weigh_classes(self, sample_weight, y, classes):
        return sample_weight

    # Using the model ---------------------------------------------------------------------------------------------

    def _check_X(self, X):
        check_is_fitted(self, "model_")
        X = _with_gaps(X)
        if is_frame(X):
            validate_data(self, X, reset=False, skip_check_array=True)
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

        That of a term is shared equally among the columns that it looks at.
        """
        check_is_fitted(self, "model_")
        importances = np.zeros(self.n_features_in_)
        for term in self.model_.terms:
            importances[list(term.columns)] += term.importance / len(term.columns)
        return importances

    def explain(self, X) -> np.ndarray:
        """Contributions of the terms to each row's score.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features)

        Returns
        -------
        array of shape (n_rows, n_terms), with more than two classes (n_rows, n_terms, n_classes)
            Columns in the order of `terms_`; rows sum to the score less the intercept.
        """
        X = self._check_X(X)
        return self.model_.explain(X)

    def bootstrap(
        self, X, y, n=100, *, sample_weight=None, offset=None, random_state=None, n_jobs=None, verbose=None
    ) -> Bootstrap:
        """How sure the model is: refits on bootstrap resamples of the training rows, with the bins of the fit.

        Parameters
        ----------
        X, y, sample_weight, offset
            The training data, as they were given to `fit`. Whole weights mean repeated rows.
        n : int, default 100
            Resamples.
        random_state : int, Generator, RandomState or None
            None takes that of the estimator, and if that is None too a fixed seed.
        n_jobs : int or None
            Refits at a time, in threads; the result does not depend on it. None takes the n_jobs of the estimator.
        verbose : int, optional
            1 prints the progress. By default that of the estimator.

        Returns
        -------
        Bootstrap
            Bands for every term of the model and selection frequencies for every column; ``plot(bands=...)`` draws
            them. It tells what they mean, and what they leave out.

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
        check_int(n, "n", 1)
        X = self._check_X(X)
        y, classes = self._target_again(y, X)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, len(y))
        by_class = self._weigh_classes(None, y, classes)
        binner = self._solution_tables[0]
        design = binner.transform(X, sample_weight).with_weights(self.weights)
        arguments = self._solver_arguments(self._constraints(X, binner, *self._limits()))
        phi = None if self.dispersion_ is None else RESAMPLED_NOISE * self.dispersion_
        arguments |= {"dispersion": phi, "verbose": 0}
        n_bags = self._n_bags(design.n_rows, design.n_features)
        rng = _generator(self.random_state if random_state is None else random_state)
        stop = threading.Event()

        def refit(number, draw):
            weight = draw() if by_class is None else draw() * by_class
            rows = {"loss": self.model_.loss, "sample_weight": weight, "offset": offset, "n_jobs": 1}
            # A generator that threads shared would give each what the others left.
            options = {"n_bags": n_bags, "random_state": number, "callback": lambda _: stop.is_set()}
            solution = self._solve(make_objective(design, y, **rows), arguments, **options)
            return solution.f, solution.support

        needs_positive = self.model_.loss.link == "log"
        draws = resamples(sample_weight, y, n, rng, is_classifier=classes is not None, needs_positive=needs_positive)
        found = run_all(
            [functools.partial(refit, number, draw) for number, draw in enumerate(draws)],
            min(n, resolve_n_jobs(self.n_jobs if n_jobs is None else n_jobs)),
            stop,
            self.verbose if verbose is None else verbose,
        )
        return bootstrap_of(self.model_, design, found)

    def _target_again(self, y, X):
        """(y as the solver takes it, classes), for the y of an earlier fit."""
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


class RBRRegressor(RegressorMixin, _RBREstimator):
    """A sparse additive model for numbers: few features, each a table of few pieces.

    Parameters
    ----------
    loss : {"squared_error", "poisson", "gamma", "tweedie", "huber", "quantile"} or a loss of rbr.losses
        A loss object carries its own parameters, such as ``rbr.losses.Quantile(level=0.9)``.
    {parameters}
    Examples
    --------
    >>> import numpy as np
    >>> from rbr import RBRRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 20))
    >>> y = np.where(X[:, 3] > 0, 2.0, -1.0) + np.abs(X[:, 7]) + 0.1 * rng.normal(size=500)
    >>> m = RBRRegressor(max_features=2).fit(X, y)
    >>> m.selected_features_
    array([3, 7])
    >>> bool(m.score(X, y) > 0.97)
    True
    """

    def __init__(
        self,
        loss="squared_error",
        *,
        max_features=None,
        max_segments=32,
        max_bins=255,
        shape="mixed",
        jump_cost="default",
        binning="regular",
        categorical_features="from_dtype",
        monotonic_cst=None,
        exclude=None,
        always_include=None,
        alpha=0.0,
        n_bags="auto",
        solver="auto",
        step_size="auto",
        max_iter=200,
        tol=1e-5,
        weights="counts",
        position="rank",
        segmentation="exact",
        refine_cuts=False,
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        self.loss = loss
        self.max_features = max_features
        self.max_segments = max_segments
        self.max_bins = max_bins
        self.shape = shape
        self.jump_cost = jump_cost
        self.binning = binning
        self.categorical_features = categorical_features
        self.monotonic_cst = monotonic_cst
        self.exclude = exclude
        self.always_include = always_include
        self.alpha = alpha
        self.n_bags = n_bags
        self.solver = solver
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.weights = weights
        self.position = position
        self.segmentation = segmentation
        self.refine_cuts = refine_cuts
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    @all_or_nothing
    @with_callbacks
    def fit(self, X, y, sample_weight=None, offset=None) -> RBRRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features)
        y : array of shape (n_rows,)
        sample_weight : array of shape (n_rows,), optional
        offset : array of shape (n_rows,), optional
            Added to the score of each row, before the link.
        """
        return self._fit(X, y, sample_weight, offset)

    def _check_parameters(self):
        super()._check_parameters()
        if get_loss(self.loss).name in ("log_loss", "multinomial"):
            raise ValueError(f"loss is {self.loss!r}, a loss for classes; use RBRClassifier")

    def _target(self, y):
        return np.asarray(y, dtype=np.float64), get_loss(self.loss), None

    def predict(self, X, offset=None) -> np.ndarray:
        """The prediction in the units of y."""
        X = self._check_X(X)
        return self.model_.predict(X, offset=offset)


class RBRClassifier(ClassifierMixin, _RBREstimator):
    """A sparse additive model for two or more classes: few features, each a table of few pieces.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weights of the classes, multiplied with sample_weight. "balanced": classes of equal weight in all. Unlike a
        sample weight, that of a class adds no rows: the jump cost rises as far as uneven weights make noise louder.
    {parameters}
    Examples
    --------
    >>> import numpy as np
    >>> from rbr import RBRClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 20))
    >>> y = np.where(np.abs(X[:, 3]) + X[:, 7] + 0.3 * rng.normal(size=1000) > 0.7, "yes", "no")
    >>> m = RBRClassifier().fit(X, y)
    >>> m.selected_features_
    array([3, 7])
    >>> m.predict(X[:3]).shape, m.predict_proba(X[:3]).shape
    ((3,), (3, 2))
    """

    def __init__(
        self,
        *,
        max_features=None,
        max_segments=32,
        max_bins=255,
        shape="mixed",
        jump_cost="default",
        binning="regular",
        categorical_features="from_dtype",
        monotonic_cst=None,
        exclude=None,
        always_include=None,
        alpha=1e-4,
        n_bags="auto",
        class_weight=None,
        solver="auto",
        step_size="auto",
        max_iter=200,
        tol=1e-5,
        weights="counts",
        position="rank",
        segmentation="exact",
        refine_cuts=False,
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        self.max_features = max_features
        self.max_segments = max_segments
        self.max_bins = max_bins
        self.shape = shape
        self.jump_cost = jump_cost
        self.binning = binning
        self.categorical_features = categorical_features
        self.monotonic_cst = monotonic_cst
        self.exclude = exclude
        self.always_include = always_include
        self.alpha = alpha
        self.n_bags = n_bags
        self.class_weight = class_weight
        self.solver = solver
        self.step_size = step_size
        self.max_iter = max_iter
        self.tol = tol
        self.weights = weights
        self.position = position
        self.segmentation = segmentation
        self.refine_cuts = refine_cuts
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    @all_or_nothing
    @with_callbacks
    def fit(self, X, y, sample_weight=None, offset=None) -> RBRClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array, frame or sparse matrix of shape (n_rows, n_features)
        y : array of class labels, shape (n_rows,)
        sample_weight : array of shape (n_rows,), optional
        offset : array of shape (n_rows,), with more than two classes (n_rows, n_classes), optional
            Added to the score of each row.
        """
        return self._fit(X, y, sample_weight, offset)

    def _target(self, y):
        y = np.asarray(y)
        if y.dtype.kind not in "iub":  # integers are labels as they come, and the check would sort them
            check_classification_targets(y)
        classes, codes = _classes_and_codes(y)
        if len(classes) < 2:
            raise ValueError(
                f"y has only one class, {classes.tolist()[0]!r}: This classifier needs samples of at least 2 classes"
            )
        return codes, get_loss("log_loss" if len(classes) == 2 else "multinomial"), classes

    def _check_parameters(self):
        super()._check_parameters()
        given = self.class_weight
        if isinstance(given, Mapping):
            for label, weight in given.items():
                check_real(weight, f"class_weight[{label!r}]", 0.0)
        elif given is not None and not (isinstance(given, str) and given == "balanced"):
            raise ValueError(f"class_weight is {given!r}; it must be a dict of classes, 'balanced' or None")

    def _weigh_classes(self, sample_weight, y, classes):
        if self.class_weight is None:
            return sample_weight
        codes = y.astype(np.int64)
        sample_weight = np.ones(len(y)) if sample_weight is None else sample_weight
        if self.class_weight == "balanced":
            # By their weights, so that a row of weight 2 counts as two rows here too.
            totals = np.bincount(codes, sample_weight, minlength=len(classes))
            of_class = totals.sum() / len(classes) / np.where(totals > 0, totals, 1.0)
            return sample_weight * of_class[codes]
        return sample_weight * compute_sample_weight(self.class_weight, classes[codes])

    def _keep(self, model, solution, binner):
        super()._keep(model, solution, binner)
        self.classes_ = model.classes_

    def decision_function(self, X, offset=None) -> np.ndarray:
        """The score: the log-odds of the second of two classes, or one column per class."""
        X = self._check_X(X)
        return self.model_.decision_function(X, offset=offset)

    def predict_proba(self, X, offset=None) -> np.ndarray:
        """Probability of each class, in the order of `classes_`."""
        X = self._check_X(X)
        return self.model_.predict_proba(X, offset=offset)

    def predict_log_proba(self, X, offset=None) -> np.ndarray:
        """Logarithm of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X, offset=offset))

    def predict(self, X, offset=None) -> np.ndarray:
        """The most probable class."""
        X = self._check_X(X)
        return self.model_.predict(X, offset=offset)


_PARAMETERS = """max_features : int or None
        s_G, the most features that the model may use; None leaves it to the jump cost.
    max_segments : int or dict {column name or index: int}
        s_L, the most pieces of a feature's table; columns that a dict leaves out get 32.
    max_bins : int or dict {column name or index: int}
        The most bins of a feature, 2 to 65535. Categories keep all their levels.
    shape : str or dict {column name or index: str}
        "constant", "linear", "mixed" (each piece constant or a line, whichever pays), "increasing", "decreasing",
        "levels" (categories fused into groups; their default), "frequency" or "free".
    jump_cost : float or "default"
        kappa, the price of features and pieces. 0 is the paper: then give max_features, or all features are used. The
        default is 0.5, and with bags what does best out of bag.
    binning : "regular", "binomial" or dict {column: one of these, or an array of edges}
    categorical_features : "from_dtype", list of names or indices, mask or None
        "from_dtype": frame columns of dtype category, string, or object with text. Ordered categories keep their order.
    monotonic_cst : array or dict {column name or index: -1, 0 or 1}, optional
        1 makes a feature's table increasing, -1 decreasing. A ValueError if a dict of shapes gives the feature another
        one, or if it is a category without an order.
    exclude, always_include : list of column names or indices, optional
        Features that are never used, and features that enter first and without paying for it.
    alpha : float
        Ridge penalty on the tables. The classifier's small default keeps the scores of pure bins finite and readable.
    n_bags : int or "auto"
        Average the tables of so many fits on subsamples and project the average back into the constraint set; 0 is a
        single fit. With the default jump cost the strictness of those fits is chosen by their out-of-bag loss.
        "auto" is 12 below 5,000 rows and 0 from there on; 0 also where there are more than 5 columns per row.
    solver : {"auto", "algorithm1"}
    step_size, max_iter, tol
        As in `rbr.solve`.
    weights : {"counts", "uniform"}
        The geometry of the tables: the shares of the bins, or equal weights as in the paper.
    position : {"rank", "index", "value"}
        Where a bin stands when a line is drawn.
    segmentation : {"exact", "greedy"}
    refine_cuts : bool
        After the fit, move each jump between constant pieces from the edge of its bin to the place between data values
        where the training loss is least. Not done for bags, whose jumps are averages already.
    n_jobs : int or None
        Threads; the result does not depend on their number.
    random_state : int, Generator, RandomState or None
        For binomial bins, for the rows that quantiles are taken from, and for bags.
    verbose : int
        1 prints a line per iteration.
    warm_start : bool
        Keep the bins of the last fit and start from its tables.

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

for _estimator in (RBRRegressor, RBRClassifier) if __doc__ else ():  # python -OO has no docstrings
    _estimator.__doc__ = _estimator.__doc__.replace("{parameters}", _PARAMETERS)


def _classes_and_codes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The labels in ascending order, and each row's place among them; of small integers by counting, else by sorting.

    >>> _classes_and_codes(np.array([7, 5, 7, 9]))
    (array([5, 7, 9]), array([1., 0., 1., 2.]))
    """
    if y.dtype.kind in "iub" and len(y):
        low, high = int(y.min()), int(y.max())
        if -MOST_COUNTED < low and high < MOST_COUNTED and high - low < len(y):
            from_low = y.astype(np.int64, copy=False)
            from_low = from_low - low if low else from_low
            occurs = np.bincount(from_low) > 0
            classes = (np.flatnonzero(occurs) + low).astype(y.dtype)
            return classes, np.take(np.cumsum(occurs) - 1.0, from_low)
    classes, codes = np.unique(y, return_inverse=True)
    return classes, codes.astype(np.float64)


def _dispersion_of_weights(counts: np.ndarray | None, weights: np.ndarray) -> float:
    """phi of a loss whose rows stand for `counts` rows each and weigh more or less than that: sum c w^2 / sum c w.

    A row that weighs three times as much as its information is worth makes the loss fall three times as far by
    chance; by equal weights the unit of the jump cost does not change.
    """
    used = weights > 0
    counts = np.ones(used.sum()) if counts is None else counts[used]
    return float(np.sum(weights[used] ** 2 / counts) / np.sum(weights[used]))


def _with_gaps(X: Any) -> Any:
    """X with NaN where a masked array of numbers is masked, which scikit-learn's checks would uncover."""
    if type(X).__module__.startswith("polars") and not is_frame(X):
        open_table(X)  # raises: it is lazy, or a single column
    if isinstance(X, np.ma.MaskedArray) and X.dtype.kind in "fiub":
        return X.astype(np.result_type(X.dtype, np.float32)).filled(np.nan)
    return X


def _check_offset(offset, n_rows: int, n_scores: int) -> np.ndarray:
    shape = (n_rows,) if n_scores == 1 else (n_rows, n_scores)
    try:
        offset = np.asarray(offset, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"offset is {offset!r}; it must be numbers of shape {shape}") from error
    if offset.shape != shape:
        raise ValueError(f"offset has shape {offset.shape}; it must have the shape {shape}")
    if not np.isfinite(offset).all():
        raise ValueError(f"offset holds {offset[~np.isfinite(offset)][0]}; all of it must be finite")
    return offset


def _is_ordered(X: Any, j: int) -> bool:
    """Whether column j of a pandas frame is an ordered category."""
    dtypes = getattr(X, "dtypes", None)
    return bool(hasattr(dtypes, "iloc") and getattr(dtypes.iloc[j], "ordered", False))
