"""The planted model follows its formula; the loaders read what they should and say what is missing."""

import gzip
import hashlib
import os
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rbr import datasets
from rbr.datasets import PlantedFunction, load_adult, load_hr, make_planted

# ---------------------------------------------------------------- the planted model


@given(
    n_rows=st.integers(1, 60),
    n_features=st.integers(1, 12),
    share=st.floats(0, 1),
    form=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**32),
)
def test_signal_is_the_sum_of_the_planted_functions(n_rows, n_features, share, form, seed):
    n_informative = round(share * n_features)
    data = make_planted(n_rows, n_features, n_informative, form=form, random_state=seed)
    assert data.X.shape == (n_rows, n_features)
    assert len(data.functions) == len(data.support) == n_informative
    assert (np.diff(data.support) > 0).all()
    assert set(data.support) <= set(range(n_features))
    total = sum((f(data.X[:, j]) for j, f in zip(data.support, data.functions, strict=True)), np.zeros(n_rows))
    np.testing.assert_allclose(data.signal, total, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(data.y, data.signal)


def test_function_is_the_papers_formula():
    f = PlantedFunction(a1=0.5, a2=0.25, a3=-2.0, a4=3.0, a5=0.75)
    x = -1.5
    assert f(x) == pytest.approx(0.5 * 1.5**0.25 - 2.0 * np.sin(3.0 * -1.5 + 0.75))


def coefficients(form, n=4000):
    data = make_planted(1, n, n, form=form, random_state=5)
    return np.array([[f.a1, f.a2, f.a3, f.a4, f.a5] for f in data.functions]).T


def test_coefficients_have_the_stated_distributions():
    a1, a2, a3, a4, a5 = coefficients(form=1)
    bound = 4 / np.sqrt(len(a1))  # four standard errors of a mean of unit variance
    for normal in (a1, a3, a4):
        assert abs(normal.mean()) < bound
        assert abs((normal**2).mean() - 1) < bound * np.sqrt(2)
    for uniform in (a2, a5):
        assert 0 <= uniform.min() and uniform.max() <= 1
        assert abs(uniform.mean() - 0.5) < bound / np.sqrt(12)


def test_form_2_doubles_a2_and_a4_and_stretches_a5_by_pi():
    stretch = coefficients(form=2) / coefficients(form=1)
    np.testing.assert_allclose(stretch, np.array([1, 2, 1, 2, np.pi])[:, None] * np.ones_like(stretch))


def test_noise_is_a_multiple_of_the_signals_sd():
    data = make_planted(20_000, 5, 3, noise=0.5, random_state=1)
    noise = data.y - data.signal
    assert noise.std() == pytest.approx(0.5 * data.signal.std(), rel=4 / np.sqrt(2 * 20_000))
    assert abs(np.corrcoef(noise, data.signal)[0, 1]) < 4 / np.sqrt(20_000)


def test_noise_leaves_the_rest_of_the_draw_alone():
    quiet, noisy = (make_planted(50, 6, 2, noise=noise, random_state=3) for noise in (0.0, 1.0))
    np.testing.assert_array_equal(quiet.X, noisy.X)
    np.testing.assert_array_equal(quiet.signal, noisy.signal)


def test_classification_cuts_the_score_at_its_median():
    score = make_planted(301, 6, 2, noise=0.3, random_state=4).y
    labels = make_planted(301, 6, 2, noise=0.3, task="classification", random_state=4).y
    np.testing.assert_array_equal(labels, score > np.median(score))
    assert labels.sum() == 150


def test_random_state():
    first, again, other = (make_planted(20, 5, 2, random_state=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(first.X, again.X)
    assert first.functions == again.functions
    assert not np.array_equal(first.X, other.X)
    generator = make_planted(20, 5, 2, random_state=np.random.default_rng(7))
    np.testing.assert_array_equal(first.X, generator.X)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_rows": 0}, "n_rows is 0"),
        ({"n_features": 2.5}, "n_features is 2.5"),
        ({"n_features": 5, "n_informative": 6}, "n_informative is 6; it must be between 0 and 5"),
        ({"noise": -1.0}, "noise is -1.0"),
        ({"form": 3}, "form is 3; it must be between 1 and 2"),
        ({"task": "ranking"}, "task is 'ranking'; it must be one of 'regression', 'classification'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_planted(**arguments)


# ---------------------------------------------------------------- real tables

TRAIN = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Sales, Wife, White, Male, 2174, 0, 40, Cuba, <=50K
50, ?, 83311, HS-grad, 9, Divorced, ?, Husband, Black, Female, 0, 0, 13, ?, >50K

"""
TEST = """\
|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Male, 0, 0, 40, Peru, >50K.

"""
TRAIN_ROWS = [
    "39,State-gov,77516,Bachelors,13,Never-married,Sales,Wife,White,Male,2174,0,40,Cuba,<=50K",
    "50,,83311,HS-grad,9,Divorced,,Husband,Black,Female,0,0,13,,>50K",
]
TEST_ROWS = ["25,Private,226802,11th,7,Never-married,Sales,Own-child,Black,Male,0,0,40,Peru,>50K"]
HR_ROWS = ["0.38,0.53,2,157,3,0,1,0,sales,low", "0.8,0.86,5,262,6,1,0,1,IT,high"]


def write_table(file, columns, rows):
    file.write_bytes(gzip.compress("\n".join([",".join(columns), *rows, ""]).encode()))


@pytest.fixture
def folder(tmp_path):
    """A folder with small tables in the files' layout."""
    write_table(tmp_path / "adult.csv.gz", datasets.ADULT_COLUMNS, TRAIN_ROWS)
    write_table(tmp_path / "adult_test.csv.gz", datasets.ADULT_COLUMNS, TEST_ROWS)
    write_table(tmp_path / "hr.csv.gz", datasets.HR_COLUMNS, HR_ROWS)
    return tmp_path


@pytest.fixture(autouse=True)
def no_outside(monkeypatch, tmp_path):
    """No test sees the user's data or cache, or the network."""
    monkeypatch.delenv("RBR_DATA", raising=False)
    monkeypatch.setattr(datasets, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(datasets, "ADULT_URL", (tmp_path / "no-such.zip").as_uri())


def test_adult_parts(folder):
    train, test, both = (load_adult(folder, part) for part in ("train", "test", "both"))
    assert (len(train.data), len(test.data), len(both.data)) == (2, 1, 3)
    np.testing.assert_array_equal(both.target, [0, 1, 1])
    assert both.target_names == ("<=50K", ">50K")
    assert list(both.data.columns) == datasets.ADULT_COLUMNS[:-1]
    assert both.data.index.tolist() == [0, 1, 2]


def test_adult_columns_have_their_kinds(folder):
    data = load_adult(folder, "both").data
    categories = [name for name, dtype in data.dtypes.items() if isinstance(dtype, pd.CategoricalDtype)]
    assert categories == datasets.ADULT_CATEGORIES
    assert all(np.issubdtype(dtype, np.integer) for dtype in data.drop(columns=categories).dtypes)
    assert data.isna().sum().sum() == 3
    assert data.loc[1, ["workclass", "occupation", "native_country"]].isna().all()


def test_a_category_called_none_is_not_missing(folder):
    write_table(folder / "adult.csv.gz", datasets.ADULT_COLUMNS, [TRAIN_ROWS[0].replace("State-gov", "None")])
    assert load_adult(folder).data["workclass"].tolist() == ["None"]


def test_hr(folder):
    hr = load_hr(folder)
    assert hr.data.shape == (2, 9)
    np.testing.assert_array_equal(hr.target, [1, 0])
    assert hr.data["salary"].dtype == pd.CategoricalDtype(["low", "medium", "high"], ordered=True)
    assert isinstance(hr.data["department"].dtype, pd.CategoricalDtype)
    assert not hr.data["department"].dtype.ordered
    assert hr.data["satisfaction_level"].tolist() == [0.38, 0.8]


def test_environment_variable_names_the_folder(folder, monkeypatch):
    monkeypatch.setenv("RBR_DATA", str(folder))
    assert len(load_hr().data) == 2
    assert len(load_adult().data) == 2


def test_path_comes_before_the_environment_variable(folder, monkeypatch):
    monkeypatch.setenv("RBR_DATA", str(folder / "elsewhere"))
    assert len(load_hr(folder).data) == 2


def test_missing_folder_and_file_are_named(folder, monkeypatch):
    with pytest.raises(FileNotFoundError, match="path is '.*nowhere'; it must be a folder"):
        load_hr(folder / "nowhere")
    monkeypatch.setenv("RBR_DATA", "nowhere")
    with pytest.raises(FileNotFoundError, match="variable RBR_DATA is 'nowhere'"):
        load_adult()
    (folder / "adult_test.csv.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"adult_test.csv.gz does not exist.*adult.csv.gz, hr.csv.gz"):
        load_adult(folder, "test")


def test_hr_without_a_folder_says_which_file_to_put_where():
    with pytest.raises(FileNotFoundError, match=r"hr.csv.gz has no public address.*path=.*RBR_DATA"):
        load_hr()


def test_wrong_columns_and_labels_are_named(folder):
    write_table(folder / "hr.csv.gz", [*datasets.HR_COLUMNS[:-1], "wage"], HR_ROWS)
    with pytest.raises(ValueError, match="'wage'.*they must be"):
        load_hr(folder)
    write_table(folder / "adult.csv.gz", datasets.ADULT_COLUMNS, [TRAIN_ROWS[0], TRAIN_ROWS[1] + "."])
    with pytest.raises(ValueError, match=r"'income' holds '>50K\.' in row 1"):
        load_adult(folder)


def test_unknown_part_is_named(folder):
    with pytest.raises(ValueError, match="part is 'valid'; it must be one of 'train', 'test', 'both'"):
        load_adult(folder, "valid")


@pytest.mark.parametrize("loader", [load_adult, load_hr])
def test_without_pandas_the_error_says_what_to_install(loader, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="needs pandas: pip install pandas"):
        loader(folder)


# ---------------------------------------------------------------- download


def publish(folder, monkeypatch, train=TRAIN, test=TEST):
    """Put an archive with the publisher's layout where the loader looks for it."""
    archive = folder / "adult.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        stream.writestr("adult.data", train)
        stream.writestr("adult.test", test)
    monkeypatch.setattr(datasets, "ADULT_URL", archive.as_uri())


def expect(monkeypatch, train_rows, test_rows):
    """Make these tables the ones whose checksums the loader knows."""
    tables = {"train": ("adult.data", train_rows), "test": ("adult.test", test_rows)}
    originals = {}
    for part, (name, rows) in tables.items():
        content = "\n".join([",".join(datasets.ADULT_COLUMNS), *rows, ""]).encode()
        originals[part] = (name, hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(datasets, "ADULT_ORIGINALS", originals)


def test_download_makes_the_same_table_and_keeps_it(tmp_path, folder, monkeypatch):
    publish(tmp_path, monkeypatch)
    expect(monkeypatch, TRAIN_ROWS, TEST_ROWS)
    pd.testing.assert_frame_equal(load_adult(part="both").data, load_adult(folder, "both").data)
    (tmp_path / "adult.zip").unlink()  # the second call downloads nothing
    assert len(load_adult(part="both").data) == 3
    assert sorted(p.name for p in datasets.cache_folder().iterdir()) == ["adult.csv.gz", "adult_test.csv.gz"]


def test_changed_download_is_refused(tmp_path, monkeypatch):
    publish(tmp_path, monkeypatch, train=TRAIN.replace("39", "93"))
    expect(monkeypatch, TRAIN_ROWS, TEST_ROWS)
    with pytest.raises(OSError, match=r"adult.data from .* is not the table rbr knows: SHA-256"):
        load_adult()
    assert not datasets.cache_folder().exists()


@pytest.mark.parametrize("content", [None, b"<html>moved</html>"])
def test_offline_error_names_the_options(tmp_path, monkeypatch, content):
    if content is not None:
        (tmp_path / "no-such.zip").write_bytes(content)
    with pytest.raises(OSError, match=r"could not download .*adult.csv.gz and adult_test.csv.gz.*path=.*RBR_DATA"):
        load_adult()


def test_archive_without_a_part_is_refused(tmp_path, monkeypatch):
    publish(tmp_path, monkeypatch)
    expect(monkeypatch, TRAIN_ROWS, TEST_ROWS)
    with zipfile.ZipFile(tmp_path / "adult.zip", "w") as stream:
        stream.writestr("adult.data", TRAIN)
    with pytest.raises(OSError, match="could not download .*adult.test"):
        load_adult()


# ---------------------------------------------------------------- the real files, if present

REAL_FOLDERS = [os.environ.get("RBR_DATA"), Path(__file__).resolve().parents[2] / "shared" / "data"]
REAL = next((Path(f) for f in REAL_FOLDERS if f and (Path(f) / "adult.csv.gz").exists()), None)


@pytest.mark.skipif(REAL is None, reason="the real tables are not here; set RBR_DATA to their folder")
def test_real_tables_have_the_published_size():
    train, test = load_adult(REAL), load_adult(REAL, "test")
    assert train.data.shape == (32561, 14) and train.target.sum() == 7841
    assert test.data.shape == (16281, 14) and test.target.sum() == 3846
    missing = train.data.isna().sum()
    assert missing[missing > 0].to_dict() == {"workclass": 1836, "occupation": 1843, "native_country": 583}
    hr = load_hr(REAL)
    assert hr.data.shape == (14999, 9) and hr.target.sum() == 3571


@pytest.mark.skipif(REAL is None, reason="the real tables are not here; set RBR_DATA to their folder")
@pytest.mark.parametrize("part", ["train", "test"])
def test_real_files_are_those_whose_checksums_are_known(part):
    content = gzip.decompress((REAL / datasets.ADULT_FILES[part]).read_bytes())
    assert hashlib.sha256(content).hexdigest() == datasets.ADULT_ORIGINALS[part][1]


def test_planted_functions_of_equal_strength():
    data = make_planted(n_rows=300, n_features=8, n_informative=4, equal_strength=True, random_state=3)
    raw = make_planted(n_rows=300, n_features=8, n_informative=4, random_state=3)
    np.testing.assert_array_equal(data.X, raw.X)
    parts = [f(data.X[:, j]) for j, f in zip(data.support, data.functions, strict=True)]
    np.testing.assert_allclose([part.std() for part in parts], 1.0)
    np.testing.assert_allclose(sum(parts), data.y)
    assert not np.isclose([f(raw.X[:, j]).std() for j, f in zip(raw.support, raw.functions, strict=True)], 1.0).any()
