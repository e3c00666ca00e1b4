"""Data to learn from: the paper's planted model, and its two real tables.

`make_planted` draws data whose true curves are known, so that a fit can be compared with them. The
loaders read Adult and HR from a folder that you name, or download Adult once; the project ships no data.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import tempfile
import urllib.request
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rbr._checks import check_choice, check_int, check_real

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Planted", "PlantedFunction", "Table", "load_adult", "load_hr", "make_planted"]


# ---------------------------------------------------------------- the planted model


@dataclass(frozen=True)
class PlantedFunction:
    """f(x) = a1 |x|^a2 + a3 sin(a4 x + a5), a true curve of the planted model (paper, section 4).

    Examples
    --------
    >>> from rbr.datasets import PlantedFunction
    >>> f = PlantedFunction(a1=2.0, a2=1.0, a3=0.0, a4=1.0, a5=0.0)
    >>> f([-1.0, 0.0, 3.0])
    array([2., 0., 6.])
    """

    a1: float
    a2: float
    a3: float
    a4: float
    a5: float

    def __call__(self, x) -> np.ndarray:
        x = np.asarray(x, dtype=np.float64)
        return self.a1 * np.abs(x) ** self.a2 + self.a3 * np.sin(self.a4 * x + self.a5)

    def scaled(self, divisor: float) -> PlantedFunction:
        """The function divided by `divisor`, or unchanged if that is zero."""
        return replace(self, a1=self.a1 / divisor, a3=self.a3 / divisor) if divisor > 0 else self


@dataclass(frozen=True)
class Planted:
    """What `make_planted` drew.

    Attributes
    ----------
    X : array (n_rows, n_features)
    y : array (n_rows,), the target: a number, or 0 and 1
    support : int array, ascending; the informative features
    functions : tuple of PlantedFunction, in the order of `support`
    signal : array (n_rows,), the sum of the functions without noise
    """

    X: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    support: np.ndarray
    functions: tuple[PlantedFunction, ...]
    signal: np.ndarray = field(repr=False)


def make_planted(
    n_rows: int = 2000,
    n_features: int = 100,
    n_informative: int = 10,
    *,
    noise: float = 0.0,
    form: int = 1,
    task: str = "regression",
    equal_strength: bool = False,
    random_state: int | np.random.Generator | None = None,
) -> Planted:
    """Draw the paper's synthetic data: an additive model of a few features, planted among many.

    X is standard normal. The informative features, chosen at random, act by
    f(x) = a1 |x|^a2 + a3 sin(a4 x + a5) with a1, a3, a4 standard normal and a2, a5 uniform on [0, 1].

    Parameters
    ----------
    n_rows, n_features, n_informative : int
        The paper's n, p and s_G; the defaults are its values.
    noise : float, default 0
        Standard deviation of Gaussian noise, as a multiple of the signal's.
    form : {1, 2}, default 1
        2 bends the curves more: it doubles a2 and a4 and multiplies a5 by pi.
    task : {"regression", "classification"}
        For classification y is 1 where the noisy signal is above its median, else 0.
    equal_strength : bool, default False
        Whether each function is scaled to have variance 1 over the rows drawn. Without scaling, as in the paper, the
        weakest of ten functions has about 1% of the variance of noise with half the signal's standard deviation, and
        is not found.
    random_state : int, numpy.random.Generator or None
        Seed or generator of the draws; None makes a new draw at every call.

    Returns
    -------
    Planted
        With the fields X, y, support, functions and signal.

    Examples
    --------
    >>> from rbr.datasets import make_planted
    >>> data = make_planted(n_rows=500, n_features=20, n_informative=3, random_state=0)
    >>> data.X.shape, data.support
    ((500, 20), array([10, 12, 15]))
    >>> total = sum(f(data.X[:, j]) for j, f in zip(data.support, data.functions))
    >>> bool(abs(data.y - total).max() < 1e-12)
    True
    """
    n_rows = check_int(n_rows, "n_rows", 1)
    n_features = check_int(n_features, "n_features", 1)
    n_informative = check_int(n_informative, "n_informative", 0, n_features)
    noise = check_real(noise, "noise", 0.0)
    form = check_int(form, "form", 1, 2)
    check_choice(task, "task", ("regression", "classification"))

    rng = np.random.default_rng(random_state)
    support = np.sort(rng.choice(n_features, n_informative, replace=False))
    functions = tuple(_draw_function(rng, form) for _ in range(n_informative))
    X = rng.standard_normal((n_rows, n_features))
    signal = np.zeros(n_rows)
    if equal_strength:
        functions = tuple(f.scaled(f(X[:, j]).std()) for j, f in zip(support, functions, strict=True))
    for j, function in zip(support, functions, strict=True):
        signal += function(X[:, j])
    score = signal + noise * signal.std() * rng.standard_normal(n_rows)
    y = score if task == "regression" else (score > np.median(score)).astype(np.int64)
    return Planted(X, y, support, functions, signal)


def _draw_function(rng: np.random.Generator, form: int) -> PlantedFunction:
    a1, a3, a4 = rng.standard_normal(3).tolist()
    a2, a5 = rng.uniform(size=2).tolist()
    if form == 2:
        a2, a4, a5 = 2 * a2, 2 * a4, np.pi * a5
    return PlantedFunction(a1, a2, a3, a4, a5)


# ---------------------------------------------------------------- real tables


@dataclass(frozen=True)
class Table:
    """A real table for a two-class problem.

    Attributes
    ----------
    data : pandas.DataFrame of the features; text columns have the dtype category
    target : int array of 0 and 1
    target_names : what 0 and 1 stand for
    name : the table's name
    """

    data: pd.DataFrame = field(repr=False)
    target: np.ndarray = field(repr=False)
    target_names: tuple[str, str]
    name: str


ADULT_COLUMNS = (
    "age,workclass,fnlwgt,education,education_num,marital_status,occupation,relationship,race,sex,"
    "capital_gain,capital_loss,hours_per_week,native_country,income"
).split(",")
ADULT_CATEGORIES = ("workclass,education,marital_status,occupation,relationship,race,sex,native_country").split(",")
HR_COLUMNS = (
    "satisfaction_level,last_evaluation,number_project,average_monthly_hours,years_at_company,work_accident,"
    "left,promotion_last_5years,department,salary"
).split(",")

ADULT_URL = "https://archive.ics.uci.edu/static/public/2/adult.zip"
ADULT_FILES = {"train": "adult.csv.gz", "test": "adult_test.csv.gz"}
# The publisher's name for each part, and the SHA-256 of the uncompressed table made from it.
ADULT_ORIGINALS = {
    "train": ("adult.data", "98fbe372dd00d6afcdec811b8bb79925ff35cf6ca47fc83193913554531e8bc9"),
    "test": ("adult.test", "870b80a0b6988151df9d69368e1e5146584a44cb47a77d1463595b8f169eb6c6"),
}
HR_FILE = "hr.csv.gz"
DATA_VARIABLE = "RBR_DATA"
DOWNLOAD_TIMEOUT = 60  # seconds


def load_adult(path: str | os.PathLike | None = None, part: str = "train") -> Table:
    """The Adult table (UCI, 1994 US census): does a person earn more than 50,000 dollars a year?

    Needs pandas. The files are looked for in `path`, else in the folder that the environment variable
    RBR_DATA names, else in the user's cache folder. If they are not there, they are downloaded once from the UCI
    archive.

    Parameters
    ----------
    path : path-like or None
        A folder that holds adult.csv.gz and adult_test.csv.gz: gzip-compressed, comma-separated, with a
        header line; an empty field is a missing value.
    part : {"train", "test", "both"}
        The publisher's training part (32,561 rows), test part (16,281 rows), or one after the other.

    Returns
    -------
    Table
        `data` with 14 features, 8 of them categories; `target` is 1 for ">50K".

    Examples
    --------
    >>> from rbr.datasets import load_adult
    >>> adult = load_adult()  # doctest: +SKIP
    >>> adult.data.shape, adult.target_names  # doctest: +SKIP
    ((32561, 14), ('<=50K', '>50K'))
    """
    pd = _import_pandas("load_adult")
    check_choice(part, "part", ("train", "test", "both"))
    parts = ("train", "test") if part == "both" else (part,)
    folder = _given_folder(path) or _downloaded_adult()
    frame = pd.concat([_read(folder / ADULT_FILES[p], ADULT_COLUMNS) for p in parts], ignore_index=True)
    labels = ("<=50K", ">50K")
    target = _as_target(frame.pop("income"), labels)
    return Table(frame.astype(dict.fromkeys(ADULT_CATEGORIES, "category")), target, labels, "adult")


def load_hr(path: str | os.PathLike | None = None) -> Table:
    """The HR table (Human Resources Analytics, simulated): does an employee leave?

    Needs pandas. The file is looked for in `path`, else in the folder that the environment variable RBR_DATA
    names. It has no dependable public address, so it is never downloaded.

    Parameters
    ----------
    path : path-like or None
        A folder that holds hr.csv.gz: gzip-compressed, comma-separated, with a header line.

    Returns
    -------
    Table
        `data` with 9 features, of which `department` is a category and `salary` an ordered one;
        `target` is 1 for those who left.

    Examples
    --------
    >>> from rbr.datasets import load_hr
    >>> load_hr("my/data").data.shape  # doctest: +SKIP
    (14999, 9)
    """
    pd = _import_pandas("load_hr")
    folder = _given_folder(path)
    if folder is None:
        raise FileNotFoundError(
            f"{HR_FILE} has no public address to download from. Put it into a folder and name the folder: "
            f"load_hr(path=...) or the environment variable {DATA_VARIABLE}. It is Kaggle's "
            f"HR_comma_sep.csv, gzip-compressed, with the columns named {', '.join(HR_COLUMNS)}."
        )
    frame = _read(folder / HR_FILE, HR_COLUMNS)
    target = _as_target(frame.pop("left"), (0, 1))
    salary = pd.CategoricalDtype(["low", "medium", "high"], ordered=True)
    return Table(frame.astype({"department": "category", "salary": salary}), target, ("stayed", "left"), "hr")


def _import_pandas(caller: str):
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"{caller} needs pandas: pip install pandas") from error
    return pandas


def _given_folder(path: str | os.PathLike | None) -> Path | None:
    """The folder the user named, by argument or environment variable."""
    if path is not None:
        folder, source = Path(path), "path"
    elif os.environ.get(DATA_VARIABLE):
        folder, source = Path(os.environ[DATA_VARIABLE]), f"the environment variable {DATA_VARIABLE}"
    else:
        return None
    if not folder.is_dir():
        raise FileNotFoundError(f"{source} is {str(folder)!r}; it must be a folder that exists")
    return folder


def _read(file: Path, columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    if not file.exists():
        held = ", ".join(sorted(p.name for p in file.parent.glob("*.csv.gz"))) or "none"
        raise FileNotFoundError(f"{file} does not exist; the .csv.gz files in that folder: {held}")
    # Only an empty field is missing: a category may be called "None" or "NA".
    frame = pd.read_csv(file, compression="gzip", keep_default_na=False, na_values=[""])
    if list(frame.columns) != columns:
        raise ValueError(f"{file} has the columns {list(frame.columns)}; they must be {columns}")
    return frame


def _as_target(labels: pd.Series, names: tuple) -> np.ndarray:
    unknown = labels[~labels.isin(names)]
    if len(unknown):
        raise ValueError(
            f"column {labels.name!r} holds {unknown.iloc[0]!r} in row {unknown.index[0]}; "
            f"its values must be {names[0]!r} or {names[1]!r}"
        )
    return (labels == names[1]).to_numpy(np.int64)


# ---------------------------------------------------------------- download


def cache_folder() -> Path:
    """Where downloaded tables are kept: rbr in the user's cache folder."""
    if os.name == "nt" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "rbr"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rbr"


def _downloaded_adult() -> Path:
    """The cache folder with both parts of Adult in it."""
    folder = cache_folder()
    if all((folder / file).exists() for file in ADULT_FILES.values()):
        return folder
    try:
        with urllib.request.urlopen(ADULT_URL, timeout=DOWNLOAD_TIMEOUT) as response:
            archive = zipfile.ZipFile(io.BytesIO(response.read()))
        originals = {part: archive.read(name) for part, (name, _) in ADULT_ORIGINALS.items()}
    # The errors of urllib are OSErrors; a KeyError names the file that the archive lacks.
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise OSError(
            f"could not download the Adult table from {ADULT_URL}: {error}. Without a connection, put "
            f"{' and '.join(ADULT_FILES.values())} into a folder and name the folder: load_adult(path=...) "
            f"or the environment variable {DATA_VARIABLE}."
        ) from error
    tables = {}
    for part, (original, expected) in ADULT_ORIGINALS.items():
        tables[part] = adult_table(originals[part].decode(errors="replace"))
        found = hashlib.sha256(tables[part]).hexdigest()
        if found != expected:
            raise OSError(
                f"{original} from {ADULT_URL} is not the table rbr knows: SHA-256 {found} after conversion, "
                f"expected {expected}. Nothing was kept."
            )
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in tables.items():
        _write_whole(folder / ADULT_FILES[part], gzip.compress(content, mtime=0))
    return folder


def adult_table(original: str) -> bytes:
    """The publisher's adult.data or adult.test as a CSV with a header line.

    Blanks around values are removed, and so are the first line of adult.test, which is a comment, and the full stop
    after each of its labels; "?" becomes an empty field.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(ADULT_COLUMNS)
    for line in original.splitlines():
        if not line.strip() or line.startswith("|"):
            continue
        values = [value.strip() for value in line.split(",")]
        values[-1] = values[-1].removesuffix(".")
        writer.writerow(["" if value == "?" else value for value in values])
    return out.getvalue().encode()


def _write_whole(file: Path, content: bytes) -> None:
    """Write the file in one step, so that no other process reads half of it."""
    handle, draft = tempfile.mkstemp(dir=file.parent, prefix=file.name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.replace(draft, file)
    except BaseException:
        os.unlink(draft)
        raise
