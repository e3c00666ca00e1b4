"""The package as a new user meets it: importing it and building it."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rbr
from rbr._fast import _build_info

PACKAGE = Path(rbr.__file__).parent
ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run_python(code, cwd, **environment):
    """Run code in a fresh interpreter that prefers an rbr in cwd to an installed one."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(cwd), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


# ---------------------------------------------------------------- import


@pytest.mark.parametrize("name", sorted(rbr._HOMES))
def test_public_name_comes_from_its_home(name):
    value = getattr(rbr, name)
    home = rbr._HOMES[name]
    assert value is (sys.modules[home] if home == f"rbr.{name}" else getattr(sys.modules[home], name))
    assert name in dir(rbr)
    assert name in rbr.__all__


def test_type_checkers_are_told_the_same_names():
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    told = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name, "a re-export is written `import name as name`"
                told[alias.name] = f"rbr.{alias.name}" if node.module == "rbr" else node.module
    assert told == rbr._HOMES


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'rbr' has no attribute 'RBRegressor'"):
        rbr.RBRegressor  # noqa: B018 - the access is the test


def test_version_is_text():
    assert re.match(r"\d", rbr.__version__)


def test_version_without_an_installed_distribution(monkeypatch):
    import importlib.metadata

    def not_installed(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", not_installed)
    assert rbr._installed_version() == "0+unknown"


def test_import_is_light():
    heavy = ("matplotlib", "pandas", "dask", "polars", "sklearn", "scipy.sparse")
    code = f"import sys, rbr; print([name for name in {heavy!r} if name in sys.modules])"
    done = run_python(code, PACKAGE.parent)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def imports_of(package):
    """(file, imported module, imported names, whether importing the file requires it) of every import."""
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inside = {
            id(node)
            for block in ast.walk(tree)
            if isinstance(block, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Try))
            or (isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING")
            for node in ast.walk(block)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield path.relative_to(package), alias.name, [], id(node) not in inside
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                yield (
                    path.relative_to(package),
                    node.module,
                    [alias.name for alias in node.names],
                    id(node) not in inside,
                )


def declared(requirements):
    return {re.match(r"[\w-]+", requirement)[0] for requirement in requirements}


DISTRIBUTIONS = {"sklearn": "scikit-learn", "PIL": "pillow", "interpret": "interpret-core"}


def test_what_is_imported_is_declared():
    """Imports at the top of a module are dependencies; those inside functions may belong to an extra."""
    project = PYPROJECT["project"]
    always = declared(project["dependencies"])
    at_times = always.union(*map(declared, project["optional-dependencies"].values()))
    undeclared, n_seen = [], 0
    for path, module, _, is_needed in imports_of(PACKAGE):
        root = module.split(".")[0]
        if root == "rbr" or root in sys.stdlib_module_names:
            continue
        n_seen += 1
        if DISTRIBUTIONS.get(root, root) not in (always if is_needed else at_times):
            undeclared.append(f"{path} imports {module}")
    assert not undeclared
    assert n_seen > 50


def test_no_private_name_of_scikit_learn_is_imported():
    """Private names may change in any release of scikit-learn, and a range of releases is supported."""
    private = [
        f"{path}: {name}"
        for path, module, names, _ in imports_of(PACKAGE)
        if module.split(".")[0] == "sklearn"
        for name in (*module.split("."), *names)
        if name.startswith("_")
    ]
    assert not private


def test_unbuilt_source_tree_says_how_to_build_it(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "rbr", ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.c", "__pycache__"))
    done = run_python("import rbr", tmp_path)
    assert done.returncode != 0
    last_line = done.stderr.strip().splitlines()[-1]
    assert last_line.startswith("ImportError: the compiled kernels of rbr are missing")
    assert "`pip install -e .`" in last_line
    assert "leave the folder" in last_line


# ---------------------------------------------------------------- show_versions


def test_show_versions_tells_what_a_bug_report_needs(capsys, monkeypatch):
    monkeypatch.setenv("RBR_DATA", "somewhere")
    rbr.show_versions()
    printed = capsys.readouterr().out
    for name in (
        "python",
        "platform",
        "cores",
        "rbr",
        "numpy",
        "scipy",
        "scikit-learn",
        "polars",
        "matplotlib",
    ):
        assert re.search(rf"^  {name}: \S", printed, re.MULTILINE), name
    assert f"  python: {sys.version.split()[0]}" in printed
    assert "  RBR_DATA: somewhere" in printed
    assert ("debug" in re.search(r"^  build: (.*)$", printed, re.MULTILINE)[1]) == _build_info.DEBUG


def test_show_versions_without_settings(capsys, monkeypatch):
    for name in list(os.environ):
        if name.startswith("RBR_"):
            monkeypatch.delenv(name)
    rbr.show_versions()
    assert "  RBR_*: none set" in capsys.readouterr().out


def test_every_extension_is_built():
    sources = {path.stem for path in PACKAGE.glob("_fast/*.pyx")}
    if not sources:
        pytest.skip("an installed package holds no .pyx files to compare with")
    built = {path.name.split(".")[0] for path in PACKAGE.glob("_fast/*") if path.suffix in (".so", ".pyd")}
    assert sources <= built


# ---------------------------------------------------------------- sources


def test_contributors_are_told_the_length_of_a_line():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    told = int(re.search(r"lines have at most (\d+)\s+characters", text)[1])
    tools = PYPROJECT["tool"]
    assert told == tools["ruff"]["line-length"] == tools["cython-lint"]["max-line-length"]


@pytest.mark.parametrize("name", ["importances", "jumps"])
def test_readers_are_told_up_to_how_many_rows_all_count(name):
    text = " ".join(getattr(rbr.AdditiveModel, name).__doc__.split())
    assert f"up to {rbr.SolverOptions().measured_rows:,} training rows" in text.lower()
    assert "over all rows, corrected by a sample of rows" in text


def lines_of_code(function):
    """The length of a function without its docstring."""
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
    return function.end_lineno - function.lineno + 1 - (first.end_lineno - first.lineno + 1 if is_docstring else 0)


@pytest.mark.parametrize("room", ["solvers", "objective"])
def test_no_function_of_a_fit_is_longer_than_sixty_lines(room):
    paths = sorted((PACKAGE / room).glob("*.py"))
    functions = [
        (f"{path.name}: {node.name}", lines_of_code(node))
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    ]
    assert len(functions) > 50
    assert [function for function in functions if function[1] > 60] == []


def test_no_source_of_the_kernels_is_longer_than_600_lines():
    paths = [path for end in ("pyx", "pxi", "h") for path in sorted(PACKAGE.glob(f"_fast/*.{end}"))]
    if not paths:
        pytest.skip("an installed package holds no sources of the kernels")
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert {name: n_lines for name, n_lines in lengths.items() if n_lines > 600} == {}


ROWS = re.compile(r"\b(codes|raw|row_weights|_blocks|_n_rows|spread_rows|n_rows)\b")


def test_only_the_objective_knows_rows():
    """Solvers, bags, refinement, jumps and the code that builds a model hold no row, code, target or row index."""
    around = ("estimators/bagging", "estimators/refine", "model/jumps", "model/from_solution")
    for path in [*(PACKAGE / "solvers").glob("*.py"), *(PACKAGE / f"{name}.py" for name in around)]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not {name for name in names if ROWS.fullmatch(name)}, path.name
