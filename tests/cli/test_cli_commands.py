"""The commands of `rbr` on tables in files: fit, predict, explain, show and compare."""

import csv
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rbr
from rbr import cli
from rbr.cli import tables
from rbr.cli.compare import differences
from rbr.cli.console import Console, Status

N_ROWS = 600


def people():
    """A class that depends on age and sex, and a count that depends on age and an exposure."""
    rng = np.random.default_rng(0)
    age = rng.integers(18, 80, N_ROWS)
    sex = rng.choice(["f", "m"], N_ROWS)
    score = np.where(age > 40, 1.5, -1.5) + np.where(sex == "m", 0.7, -0.7)
    income = np.where(rng.random(N_ROWS) < 1 / (1 + np.exp(-score)), ">50K", "<=50K")
    years = rng.uniform(0.2, 2.0, N_ROWS).round(3)
    claims = rng.poisson(np.where(age > 40, 0.3, 2.0) * years)
    height = (170 + 0.2 * age + rng.normal(size=N_ROWS)).round(2)
    return pd.DataFrame(
        {"id": range(N_ROWS), "age": age, "sex": sex, "years": years, "claims": claims, "height": height}
    ).assign(income=income)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the table and a model of each kind."""
    folder = tmp_path_factory.mktemp("people")
    people().to_csv(folder / "people.csv", index=False)
    here = os.getcwd()
    os.chdir(folder)
    try:
        assert rbr_command("fit people.csv --target income --features age,sex --out income.json -q") == 0
        assert rbr_command("fit people.csv -t claims --features age,sex --exposure years --out claims.json -q") == 0
        assert rbr_command("fit people.csv -t height --features age,sex --out height.json -q") == 0
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def inside(folder, monkeypatch):
    """The folder as the current one; files that a test adds are removed."""
    monkeypatch.chdir(folder)
    before = set(folder.iterdir())
    yield folder
    for path in set(folder.iterdir()) - before:
        path.unlink()


def rbr_command(line):
    return cli.main(line.split())


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


# ---------------------------------------------------------------- rbr fit


def test_fit_says_what_it_understood_and_found(inside, capsys):
    assert rbr_command("fit people.csv --target income --exclude id,claims --out m.json --cv 3") == 0
    out = capsys.readouterr().out
    assert out.startswith("people.csv: 600 rows, 7 columns, separated by commas\ntarget: income, 2 classes: <=50K ")
    assert "sex     category           2 levels: m, f" in out or "sex     category           2 levels: f, m" in out
    assert "height  number" in out and "\nid " not in out
    model = rbr.load("m.json")
    assert model.summary() in out and model.target == "income"
    assert "training rows" in out and "3 folds" in out and "±" in out
    assert out.splitlines()[-1].startswith("Saved: m.json (")


def test_fit_is_that_of_the_estimator(inside):
    X = people()[["age", "sex"]]
    expected = rbr.RBRClassifier().fit(X, people()["income"])
    model = rbr.load("income.json")
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))
    assert model.classes.tolist() == ["<=50K", ">50K"]
    claims = rbr.load("claims.json")
    other = rbr.RBRRegressor("poisson").fit(X, people()["claims"], offset=np.log(people()["years"]))
    np.testing.assert_array_equal(claims.predict(X), other.model_.predict(X))


def test_fit_for_machines(inside, capsys):
    assert rbr_command("fit people.csv -t income --features age,sex --cv 2 --json --test people.csv --out m.json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["data"]["rows"] == N_ROWS and told["data"]["target"]["classes"] == ["<=50K", ">50K"]
    assert [own["name"] for own in told["data"]["columns"]] == ["age", "sex"]
    assert {own["name"] for own in told["model"]["terms"]} == {"age", "sex"} and told["model"]["file"] == "m.json"
    assert len(told["scores"]["2 folds"]) == 2
    assert told["scores"]["people.csv"] == told["scores"]["training rows"]
    assert 0.8 < told["scores"]["2 folds"][0]["AUC"] < 1


def test_cross_validation_leaves_rows_out(inside, capsys):
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold

    rbr_command("fit people.csv -t income --features age,sex --cv 3 --random-state 7 --json")
    told = json.loads(capsys.readouterr().out)["scores"]["3 folds"]
    X, y = people()[["age", "sex"]], people()["income"].to_numpy()
    for own, (inner, outer) in zip(told, StratifiedKFold(3, shuffle=True, random_state=7).split(X, y), strict=True):
        m = rbr.RBRClassifier(random_state=7).fit(X.iloc[inner], y[inner])
        assert own["AUC"] == pytest.approx(roc_auc_score(y[outer], m.predict_proba(X.iloc[outer])[:, 1]))


def test_options_reach_the_estimator(inside, monkeypatch):
    seen = {}
    monkeypatch.setattr(cli.fit, "fit", lambda estimator, training: seen.update(m=estimator) or 1 / 0)
    line = (
        "fit people.csv -t height --features age,sex,claims --max-features 2 --max-segments 8 --max-segments age=3 "
        "--max-bins 64 --shape age=linear --monotone claims=increasing --min-rows 20 --interactions age:claims "
        "--always-include age --alpha 0.1 --n-bags 0 --loss quantile:0.9 --n-jobs 2 --random-state 5 --jump-cost 0.5"
    )
    assert rbr_command(line) == cli.BUG  # the stand-in has ended the command
    m = seen["m"]
    assert m.loss == rbr.losses.get_loss("quantile", level=0.9)
    assert m.max_segments == {"age": 3, "sex": 8, "claims": 8} and m.max_bins == 64
    assert m.shape == {"age": "linear"} and m.monotonic_cst == {"claims": 1}
    assert m.interactions == [("age", "claims")] and m.always_include == ["age"]
    assert (m.max_features, m.min_rows, m.alpha, m.n_bags, m.jump_cost) == (2, 20, 0.1, 0, 0.5)
    assert (m.n_jobs, m.random_state) == (2, 5)


def test_what_cannot_be_used_is_left_out_and_named(inside, capsys):
    table = people().assign(day="2024-01-31", name=[f"name {k}" for k in range(N_ROWS)], nothing="")
    table.loc[:9, "income"] = None
    table.to_csv("more.csv", index=False)
    assert rbr_command("fit more.csv -t income") == 0
    out = capsys.readouterr().out
    assert "more.csv: 590 rows, 10 columns" in out and "10 rows without a value of income are left out." in out
    assert "Left out: day (dates; make numbers of them" in out
    assert "Left out: name (a different text in most rows; --categorical uses it nevertheless)" in out
    assert "Left out: nothing (no values)" in out
    assert rbr_command("fit more.csv -t income --categorical name,day --features name,day,age -q --out m.json") == 0


def test_a_target_of_whole_numbers_is_a_number_unless_it_is_told_otherwise(inside, capsys):
    people().assign(grade=people()["claims"].clip(upper=3)).to_csv("grades.csv", index=False)
    assert rbr_command("fit grades.csv -t grade --features age -o m.json") == 0
    assert "4 different numbers; --task classification makes them classes" in capsys.readouterr().out
    assert rbr.load("m.json").classes is None
    assert rbr_command("fit grades.csv -t grade --features age --task classification -q -o m.json") == 0
    assert rbr.load("m.json").classes.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("fit people.csv -t wage", 2, "--target is 'wage'; the columns of people.csv are id, age,"),
        ("fit people.csv -t income --exclude wage", 2, "--exclude names 'wage'"),
        ("fit people.csv -t income --loss poisson", 2, "--loss is for numbers, and the target 'income' holds 2 levels"),
        ("fit people.csv -t claims --loss hinge", 2, "--loss is 'hinge'; it must be one of squared_error,"),
        ("fit people.csv -t claims --exposure years --loss huber", 2, "--exposure needs a loss with a log link"),
        ("fit people.csv -t claims --exposure age --offset years", 2, "--exposure and --offset are both given"),
        ("fit people.csv -t claims --exposure claims", 1, "--exposure is 'claims', which holds 0"),
        ("fit people.csv -t income --weight sex", 1, "--weight is 'sex', a column of kind category"),
        ("fit people.csv -t income --out no/m.json", 1, "--out is 'no/m.json'; there is no folder 'no'"),
        ("fit people.csv -t income --max-segments age=x", 2, "--max-segments of age is 'x'; it must be a whole number"),
        ("fit people.csv -t income --max-segments 0", 1, "max_segments"),
        ("fit people.csv -t income --monotone up", 2, "--monotone is 'up'; it must be increasing or decreasing"),
        ("fit people.csv -t income --cv 500", 1, "--cv is 500; it must be at most"),
        ("fit nothing.csv -t income", 1, "nothing.csv: No such file or directory"),
        ("fit people.csv", 2, "the following arguments are required: --target/-t; see rbr fit --help"),
        ("predict people.csv people.csv", 1, "'people.csv' cannot be loaded: it is not JSON"),
        ("predict income.json people.csv --id x", 2, "--id names 'x'"),
        ("predict height.json people.csv --type class", 2, "--type is 'class', and the model predicts numbers"),
        ("predict income.json people.csv --json", 2, "--json prints on stdout, so --out must name a file"),
        ("explain income.json", 2, "DATA or --set is needed"),
        ("explain income.json --set age=30", 2, "--set gives no value of 'sex'; --set sex= means that it is missing"),
        ("explain income.json --set age=old", 2, "age must be a number"),
        ("explain income.json people.csv --rows 900", 1, "--rows names row 900; people.csv has 600 rows"),
        ("explain income.json people.csv --rows 3-1", 2, "--rows is '3-1'"),
        ("show income.json wage", 2, "the model has no term 'wage'; its terms are age, sex"),
        ("show income.json --plot x.doc", 1, "its name must end in .png"),
        ("compare income.json height.json", 1, "the scores of a are on the scale 'logit', those of b on 'identity'"),
    ],
)
def test_errors_are_one_line(inside, capsys, line, code, message):
    before = sorted(inside.iterdir())
    try:
        assert rbr_command(line) == code
    except SystemExit as exit_:
        assert exit_.code == code
    err = capsys.readouterr().err
    assert err.startswith(f"rbr {line.split()[0]}: ") and err.count("\n") == 1 and "Traceback" not in err
    assert message in err
    assert sorted(inside.iterdir()) == before


def test_an_unexpected_error_is_a_bug_and_can_be_traced(inside, capsys, monkeypatch):
    monkeypatch.setattr(rbr.model.file, "_from_bytes", lambda data: 1 / 0)
    assert rbr_command("show income.json") == 3
    assert "unexpected ZeroDivisionError: division by zero; --traceback shows where" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError):
        rbr_command("show income.json --traceback")


def test_without_a_library_the_extra_is_named(inside, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert rbr_command("predict income.json people.csv --out s.csv") == 0  # which needs neither
    assert rbr_command("fit people.csv --target income") == 1
    assert 'reading tables needs pyarrow or pandas: pip install "rbr[cli]"' in capsys.readouterr().err


def test_warnings_are_one_line(inside, capsys):
    people().assign(sex="x").to_csv("other.csv", index=False)
    assert rbr_command("predict income.json other.csv --out s.csv") == 0
    err = capsys.readouterr().err
    assert err.startswith("rbr predict: warning: column 'sex': 600 of 600 rows hold categories that training did not")
    assert err.count("\n") == 1


# ---------------------------------------------------------------- reports


def test_without_reports_the_option_is_refused_before_the_fit(inside, capsys, monkeypatch):
    monkeypatch.delattr("rbr.model.reading.ModelReading.report")
    monkeypatch.setattr(cli.fit, "fit", None)
    assert rbr_command("fit people.csv -t income --report r.html") == 1
    assert "--report is 'r.html'; this version of rbr cannot write reports" in capsys.readouterr().err


def test_reports_get_the_test_rows(inside, capsys, monkeypatch):
    seen = {}

    def report(self, file, X=None, y=None, *, title=None, sample_weight=None, offset=None):
        seen.update(X=X, y=y, offset=offset, model=getattr(self, "model_", self))
        Path(file).write_text("a report")

    monkeypatch.setattr(rbr.AdditiveModel, "report", report, raising=False)
    monkeypatch.setattr(rbr.RBRClassifier, "report", report, raising=False)
    line = "fit people.csv -t income --features age,sex --test people.csv --report r.html --out m.json"
    assert rbr_command(line) == 0
    assert "Report: r.html" in capsys.readouterr().out and (inside / "r.html").read_text() == "a report"
    assert len(seen["y"]) == N_ROWS and seen["model"].target == "income"
    assert rbr_command("show income.json --report s.html") == 0
    assert (inside / "s.html").read_text() == "a report" and seen["X"] is None
    assert rbr_command("demo --n-rows 200 --n-features 5 --n-informative 2 --out d.png --report d.html") == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("found: d.png, and as a page: d.html")
    assert (inside / "d.html").read_text() == "a report"


# ---------------------------------------------------------------- rbr predict


def test_predictions_are_those_of_the_model(inside, capsys):
    assert rbr_command("predict income.json people.csv") == 0
    rows = rows_of(capsys.readouterr().out)
    model, X = rbr.load("income.json"), people()
    assert list(rows[0]) == ["prediction", "probability_>50K"] and len(rows) == N_ROWS
    assert [row["prediction"] for row in rows] == model.predict(X).tolist()
    np.testing.assert_array_equal([float(row["probability_>50K"]) for row in rows], model.predict_proba(X)[:, 1])


@pytest.mark.parametrize(
    ("model", "kind", "names"),
    [
        ("income", "probability", ["probability_<=50K", "probability_>50K"]),
        ("income", "class", ["prediction"]),
        ("income", "raw", ["score"]),
        ("height", "default", ["prediction"]),
        ("height", "raw", ["score"]),
    ],
)
def test_types_of_predictions(inside, capsys, model, kind, names):
    assert rbr_command(f"predict {model}.json people.csv --type {kind}") == 0
    rows = rows_of(capsys.readouterr().out)
    model, X = rbr.load(f"{model}.json"), people()
    expected = {"probability": "predict_proba", "raw": "decision_function"}.get(kind, "predict")
    expected = getattr(model, expected)(X).reshape(N_ROWS, -1)
    assert list(rows[0]) == names
    found = np.array([list(row.values()) for row in rows])
    np.testing.assert_array_equal(found if kind == "class" else found.astype(float), expected)


def test_several_classes(inside, capsys):
    people().assign(part=np.arange(N_ROWS) % 3).to_csv("parts.csv", index=False)
    assert rbr_command("fit parts.csv -t part --features age,id --task classification --out m.json -q") == 0
    model, X = rbr.load("m.json"), people()
    assert rbr_command("predict m.json parts.csv") == 0
    rows = rows_of(capsys.readouterr().out)
    assert list(rows[0]) == ["prediction", "probability_0", "probability_1", "probability_2"]
    np.testing.assert_array_equal([float(row["probability_1"]) for row in rows], model.predict_proba(X)[:, 1])
    assert rbr_command("predict m.json parts.csv --type raw") == 0
    assert list(rows_of(capsys.readouterr().out)[0]) == ["score_0", "score_1", "score_2"]
    assert rbr_command("compare m.json m.json parts.csv") == 0 and rbr_command("show m.json") == 0
    assert rbr_command("explain m.json parts.csv --rows 2") == 0


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_blocks_are_scored_in_order(inside, monkeypatch, n_jobs):
    monkeypatch.setattr(tables, "BYTES_PER_CHUNK", 1000)
    assert rbr_command(f"predict income.json people.csv --id id,age --out s.csv.gz -q --n-jobs {n_jobs}") == 0
    with gzip.open("s.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["id"]) for row in rows] == list(range(N_ROWS))
    assert [int(row["age"]) for row in rows] == people()["age"].tolist()
    expected = rbr.load("income.json").predict_proba(people())[:, 1]
    np.testing.assert_array_equal([float(row["probability_>50K"]) for row in rows], expected)


def test_a_bad_value_is_named_with_its_row_and_nothing_is_written(inside, capsys, monkeypatch):
    monkeypatch.setattr(tables, "BYTES_PER_CHUNK", 1000)
    people().astype({"age": str}).assign(age=lambda X: X["age"].where(X.index != 444, "old")).to_csv("bad.csv")
    assert rbr_command("predict income.json bad.csv --out s.csv") == 1
    assert "column 'age' of bad.csv holds 'old' in row 445; numbers are expected" in capsys.readouterr().err
    assert not (inside / "s.csv").exists() and not list(inside.glob(".*"))


def test_exposures_of_the_fit_are_used_if_they_are_there(inside, capsys):
    model, X = rbr.load("claims.json"), people()
    assert rbr_command("predict claims.json people.csv") == 0
    out, err = capsys.readouterr()
    assert err == "exposure: years, as in the fit\n"
    found = [float(row["prediction"]) for row in rows_of(out)]
    np.testing.assert_allclose(found, model.predict(X) * X["years"], rtol=1e-12)
    assert rbr_command("predict claims.json people.csv --no-offset") == 0
    found = [float(row["prediction"]) for row in rows_of(capsys.readouterr().out)]
    np.testing.assert_array_equal(found, model.predict(X))
    X.drop(columns="years").to_csv("short.csv", index=False)
    assert rbr_command("predict claims.json short.csv") == 0
    assert "fitted with the exposure 'years', which short.csv does not have" in capsys.readouterr().err


def test_unseen_values_can_be_refused(inside, capsys):
    people().assign(sex="x").to_csv("other.csv", index=False)
    assert rbr_command("predict income.json other.csv --on-unseen raise --out s.csv") == 1
    assert "600 of 600 rows hold categories" in capsys.readouterr().err and not (inside / "s.csv").exists()
    assert rbr_command("predict income.json other.csv --json --out s.csv --on-unseen ignore") == 0
    assert json.loads(capsys.readouterr().out)["rows"] == N_ROWS


def test_parquet_in_and_out(inside, capsys):
    people().to_parquet("people.parquet")
    assert rbr_command("predict income.json people.parquet --id id --out s.parquet") == 0
    found = pd.read_parquet("s.parquet")
    np.testing.assert_array_equal(found["probability_>50K"], rbr.load("income.json").predict_proba(people())[:, 1])
    assert found["id"].tolist() == list(range(N_ROWS))
    assert rbr_command("fit people.parquet -t income --features age,sex --out m.json -q") == 0
    assert rbr.load("m.json").terms == rbr.load("income.json").terms


def test_a_table_without_rows_gives_a_header(inside, capsys):
    (inside / "empty.csv").write_text("age,sex\n")
    assert rbr_command("predict income.json empty.csv") == 0
    assert capsys.readouterr().out == "prediction,probability_>50K\n"


def test_a_model_of_an_array_finds_columns_by_their_places(inside, capsys):
    X = people()[["age", "height"]].to_numpy()
    rbr.RBRRegressor(n_bags=0).fit(X, people()["claims"]).save("m.json")
    people()[["age", "height"]].to_csv("two.csv", index=False)
    assert rbr_command("predict m.json two.csv") == 0
    found = [float(row["prediction"]) for row in rows_of(capsys.readouterr().out)]
    np.testing.assert_array_equal(found, rbr.load("m.json").predict(X))
    assert rbr_command("predict m.json people.csv") == 1
    assert "has 7 columns; the model was fitted to 2 columns without names" in capsys.readouterr().err


# ---------------------------------------------------------------- rbr explain, rbr show


def test_rows_are_explained_in_words(inside, capsys):
    assert rbr_command("explain income.json people.csv --rows 3 --id id --n 1") == 0
    row = people().iloc[2]
    expected = str(rbr.load("income.json").explain_row(row[["age", "sex"]].to_dict(), 1))
    assert capsys.readouterr().out == f"row 3 (id 2): {expected}\n"
    assert rbr_command(f"explain income.json --set age={row['age']} --set sex={row['sex']} --n 1") == 0
    assert capsys.readouterr().out == f"the row: {expected}\n"
    assert rbr_command("explain income.json people.csv --rows 3 --set age=20 --json") == 0
    (told,) = json.loads(capsys.readouterr().out)["rows"]
    assert told["score"] == pytest.approx(rbr.load("income.json").explain_row({"age": 20, "sex": row["sex"]}).score)


def test_contributions_add_up(inside, capsys):
    assert rbr_command("explain claims.json people.csv --out e.csv --id age") == 0
    found = pd.read_csv("e.csv")
    assert list(found) == ["age", "intercept", "model_age", "offset", "score"] or "sex" in found
    parts = found.drop(columns=["age", "score"])
    np.testing.assert_allclose(parts.sum(axis=1), found["score"], atol=1e-12)
    model = rbr.load("claims.json")
    expected = model.decision_function(people(), offset=np.log(people()["years"]))
    np.testing.assert_allclose(found["score"], expected, atol=1e-12)


def test_show(inside, capsys):
    model = rbr.load("income.json")
    assert rbr_command("show income.json") == 0
    out = capsys.readouterr().out
    assert out.startswith(model.summary()) and "fitted to 600 rows of people.csv" in out
    assert rbr_command("show income.json sex --plot sex.png") == 0
    out = capsys.readouterr().out
    for piece in model["sex"].pieces:
        assert f"{piece.text}  {piece.value:+.3g}" in " ".join(out.split("   ")) or f"{piece.value:+.3g}" in out
    assert (inside / "sex.png").read_bytes().startswith(b"\x89PNG")
    assert rbr_command("show income.json --pieces --json") == 0
    told = json.loads(capsys.readouterr().out)
    (sex,) = [own for own in told["terms"] if own["name"] == "sex"]
    assert [own["value"] for own in sex["pieces"]] == [piece.value for piece in model["sex"].pieces]


# ---------------------------------------------------------------- rbr compare


def test_compare_finds_an_edit(inside, capsys):
    a = rbr.load("income.json")
    piece = a["age"].pieces[-1]
    a.set_piece("age", len(a["age"].pieces) - 1, piece.value + 2.5).save("b.json")
    assert rbr_command("compare income.json b.json --json") == 0
    told = json.loads(capsys.readouterr().out)
    (own,) = told["terms"]
    assert (own["term"], own["owner"], told["same_terms"]) == ("age", "both", 1)
    # A line that becomes a level differs most at one of its ends.
    assert own["size"] == pytest.approx(max(abs(piece.value + 2.5 - end) for end in piece.ends))
    assert own["where"] == piece.text
    assert rbr_command("compare income.json income.json") == 0
    assert "All terms are the same (2)." in capsys.readouterr().out


def test_compare_finds_the_largest_difference_of_any_x(inside):
    a, b = rbr.load("height.json"), rbr.load("income.json")
    found = {own.term: own for own in differences(a, b)}
    x = np.linspace(0, 100, 20_001)
    rows = pd.DataFrame({"age": x, "sex": "f"})
    gaps = []
    for model in (a, b):
        t = [term.name for term in model.terms].index("age")
        gaps.append(model.explain(rows, on_unseen="ignore")[:, t])
    assert found["age"].size >= np.abs(gaps[0] - gaps[1]).max() - 1e-9
    assert found["age"].size == pytest.approx(np.abs(gaps[0] - gaps[1]).max(), rel=0.02)


def test_compare_of_pairs(inside):
    X = people()[["age", "sex", "height"]]
    y = X["height"] * np.where((X["age"] > 50) == (X["sex"] == "m"), 1.0, -1.0)
    a = rbr.RBRRegressor(interactions=[("age", "sex")]).fit(X, y).model_
    b = rbr.RBRRegressor().fit(X, y).model_
    found = {own.term: own for own in differences(a, b)}
    (pair,) = [term for term in a.terms if len(term.columns) == 2]
    assert found[pair.name].owner == "a" and found[pair.name].size == pytest.approx(max(map(abs, pair.range)))
    assert all(own.size == 0 for own in differences(a, a))


def test_compare_on_data(inside, capsys):
    from sklearn.metrics import roc_auc_score

    a = rbr.load("income.json")
    b = a.drop("sex")
    b.save("b.json")
    assert rbr_command("compare income.json b.json people.csv --json") == 0
    told = json.loads(capsys.readouterr().out)["data"]
    X, y = people(), people()["income"]
    for name, model in (("a", a), ("b", b)):
        assert told["scores"][name]["AUC"] == pytest.approx(roc_auc_score(y, model.predict_proba(X)[:, 1]))
        assert told["scores"][name]["accuracy"] == pytest.approx(np.mean(model.predict(X) == y))
    gaps = np.abs(a.predict_proba(X) - b.predict_proba(X))[:, 1]
    assert told["mean_difference"] == pytest.approx(gaps.mean()) and told["row_of_largest"] == gaps.argmax() + 1
    assert told["other_class"] == pytest.approx(np.mean(a.predict(X) != b.predict(X)))
    assert rbr_command("compare height.json height.json people.csv") == 0
    out = capsys.readouterr().out
    assert "the predictions differ by 0 on average" in out and "RMSE" in out


# ---------------------------------------------------------------- the process


def start(folder, *words, **options):
    return subprocess.Popen([sys.executable, "-m", "rbr", *words], cwd=folder, stderr=subprocess.PIPE, **options)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
@pytest.mark.parametrize(
    ("sent", "code", "told"), [(signal.SIGINT, 130, b"interrupted"), (signal.SIGTERM, 143, b"terminated")]
)
def test_an_ended_command_leaves_nothing(inside, sent, code, told):
    before = sorted(inside.iterdir())
    process = start(inside, "predict", "income.json", "-", "--out", "s.csv", stdin=subprocess.PIPE)
    header, rows = (inside / "people.csv").read_bytes().split(b"\n", 1)
    try:
        process.stdin.write(header + b"\n" + rows * 40)
        process.stdin.flush()
        deadline = time.monotonic() + 60
        while sorted(inside.iterdir()) == before and time.monotonic() < deadline:
            time.sleep(0.02)
        assert sorted(inside.iterdir()) != before  # it has begun to write
        process.send_signal(sent)
        assert process.wait(60) == code
        assert process.stderr.read() == b"rbr predict: " + told + b"\n"
    finally:
        process.stdin.close()
        process.stderr.close()
    assert sorted(inside.iterdir()) == before


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are those of POSIX")
def test_a_reader_that_leaves_is_no_error(inside):
    read, write = os.pipe()
    os.close(read)
    process = start(inside, "predict", "income.json", "people.csv", stdout=write)
    os.close(write)
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_progress_is_one_line_of_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(Status, "SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Console("fit").progress("fitting") as status:
        print("     3     0.25")
        status.show("almost")
    shown = sys.stderr.getvalue().split("\r\x1b[K")
    assert [text.split("s  ")[-1] for text in shown] == ["", "", "3     0.25", "almost", ""]
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with Console("fit").progress("fitting"):
        print("nobody sees this")
    assert sys.stderr.getvalue() == ""


def test_compare_looks_right_of_the_last_edge():
    X = np.arange(100.0)[:, None]
    a = rbr.RBRRegressor(max_bins=2, n_bags=0, shape="constant").fit(X, X[:, 0] > 49).model_
    (found,) = differences(a, a.set_piece("x0", 1, 1.0))
    assert (found.where, found.in_b) == ("> 49.5", 1.0)
    assert found.size == pytest.approx(1.0 - a["x0"].pieces[1].value)
