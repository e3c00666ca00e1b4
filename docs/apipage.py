"""The page of the API, made from the public names of rbr, so that no name can be missing."""

import inspect
from pathlib import Path

import rbr

HEAD = """\
API reference
=============

Every public name. Those of the first groups can be imported from ``rbr`` itself; the modules at the end hold the rest.

"""

GROUPS = {
    "Estimators": ["RBRRegressor", "RBRClassifier", "RBRRegressorCV", "RBRClassifierCV", "Bootstrap"],
    "Models": ["AdditiveModel", "load", "UnseenWarning", "UnseenError"],
    "Parts of a fit": ["Binner", "BinnedMatrix", "Constraints", "solve", "make_objective", "SolverOptions"],
    "Embeddings": ["BinnedEmbedding", "SparseJL"],
    "Tools": ["use_backend", "show_versions"],
}
# What reading a model returns is reached through attributes, so it has no name in `rbr` itself.
INNER = {
    "What a model is made of": [
        "rbr.model.Term",
        "rbr.model.PairTerm",
        "rbr.model.Axis",
        "rbr.model.Piece",
        "rbr.model.Rectangle",
        "rbr.model.Jump",
        "rbr.model.Importance",
    ],
    "What a solver returns": ["rbr.solvers.Solution", "rbr.solvers.Iteration"],
}


def write(page: Path) -> None:
    """Write the page: the groups, names that belong to no group yet, and the modules."""
    modules = [name for name in sorted(rbr._HOMES) if inspect.ismodule(getattr(rbr, name))]
    grouped = {name for names in GROUPS.values() for name in names}
    others = [name for name in sorted(rbr._HOMES) if name not in grouped and name not in modules]
    groups = {title: [f"rbr.{name}" for name in names if name in rbr._HOMES] for title, names in GROUPS.items()}
    groups |= {"More": [f"rbr.{name}" for name in others]} if others else {}
    groups |= INNER | {"Modules": [f"rbr.{name}" for name in modules if name != "cli"]}
    text = HEAD + "\n".join(section(title, names) for title, names in groups.items())
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")


def section(title: str, names: list[str]) -> str:
    lines = "\n".join(f"   {name}" for name in names)
    return f"{title}\n{'-' * len(title)}\n\n.. autosummary::\n   :toctree: api\n\n{lines}\n"


def own_members(fullname: str, names: list[str], kinds: str) -> list[str]:
    """Those of a class's members that rbr itself defines; scikit-learn documents the others."""
    module, _, name = fullname.rpartition(".")
    owner = getattr(rbr if module == "rbr" else __import__(module, fromlist=[name]), name)
    chosen = []
    for member in names:
        value = inspect.getattr_static(owner, member, None)
        function = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
        is_function = inspect.isroutine(function) and not isinstance(value, property)
        home = getattr(inspect.unwrap(function) if callable(function) else function, "__module__", "") or ""
        if home.startswith("rbr") and is_function == (kinds == "methods") and getattr(function, "__doc__", None):
            chosen.append(member)
    return chosen
