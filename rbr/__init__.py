"""rbr: sparse additive models that are accurate and readable.

Each feature is cut into bins, a model is one lookup table per feature, and the tables are fitted by
projected gradient descent onto tables of few features and few pieces (Oymak, Mahdavi, Chen 2017).

The names below are imported when they are first used, so that `import rbr` stays light.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

# Every public name and the module it lives in; a name that is itself a module stands for that module.
_HOMES = {
    "AdditiveModel": "rbr.model",
    "BinnedEmbedding": "rbr.embedding",
    "BinnedMatrix": "rbr.data.design",
    "Binner": "rbr.data.binning",
    "Bootstrap": "rbr.estimators",
    "Constraints": "rbr.constraints",
    "RBRClassifier": "rbr.estimators",
    "RBRRegressor": "rbr.estimators",
    "SolverOptions": "rbr._options",
    "SparseJL": "rbr.embedding",
    "UnseenError": "rbr.model.unseen",
    "UnseenWarning": "rbr.model.unseen",
    "baselines": "rbr.baselines",
    "cli": "rbr.cli",
    "datasets": "rbr.datasets",
    "embedding": "rbr.embedding",
    "load": "rbr.model.file",
    "losses": "rbr.losses",
    "make_objective": "rbr.objective",
    "objective": "rbr.objective",
    "plotting": "rbr.plotting",
    "reference": "rbr.reference",
    "reoptimise": "rbr.model.reoptimise",
    "shapes": "rbr.shapes",
    "show_versions": "rbr._show_versions",
    "solve": "rbr.solvers",
    "theory": "rbr.theory",
    "use_backend": "rbr._backend",
}

if TYPE_CHECKING:  # the same names again, for tools that read the code without running it
    from rbr import baselines as baselines
    from rbr import cli as cli
    from rbr import datasets as datasets
    from rbr import embedding as embedding
    from rbr import losses as losses
    from rbr import objective as objective
    from rbr import plotting as plotting
    from rbr import reference as reference
    from rbr import shapes as shapes
    from rbr import theory as theory
    from rbr._backend import use_backend as use_backend
    from rbr._options import SolverOptions as SolverOptions
    from rbr._show_versions import show_versions as show_versions
    from rbr.constraints import Constraints as Constraints
    from rbr.data.binning import Binner as Binner
    from rbr.data.design import BinnedMatrix as BinnedMatrix
    from rbr.embedding import BinnedEmbedding as BinnedEmbedding
    from rbr.embedding import SparseJL as SparseJL
    from rbr.estimators import Bootstrap as Bootstrap
    from rbr.estimators import RBRClassifier as RBRClassifier
    from rbr.estimators import RBRRegressor as RBRRegressor
    from rbr.model import AdditiveModel as AdditiveModel
    from rbr.model.file import load as load
    from rbr.model.reoptimise import reoptimise as reoptimise
    from rbr.model.unseen import UnseenError as UnseenError
    from rbr.model.unseen import UnseenWarning as UnseenWarning
    from rbr.objective import make_objective as make_objective
    from rbr.solvers import solve as solve

    __version__: str

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> object:
    if name == "__version__":
        value: object = _installed_version()
    elif name in _HOMES:
        module = _import_module(_HOMES[name])
        value = module if _HOMES[name] == f"{__name__}.{name}" else getattr(module, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _installed_version() -> str:
    """The installed version; a source tree that was only built in place has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(__name__)
    except PackageNotFoundError:
        return "0+unknown"


def _require_compiled_kernels() -> None:
    try:
        _import_module("rbr._fast._build_info")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("rbr._fast."):
            raise
        raise ImportError(
            f"the compiled kernels of rbr are missing for this Python: {error.name} was not found in "
            f"{__path__[0]}. If this is a source tree, build it with `pip install -e .`; if rbr is installed "
            "elsewhere, leave the folder that holds the source tree and import it from there."
        ) from error


_require_compiled_kernels()
