"""The report as a file: what goes into it, what is refused, and that it is written whole or not at all."""

from __future__ import annotations

import base64
import gzip
import json
import re
import webbrowser
from html import escape

import numpy as np
import pandas as pd
import pytest
from models import make_model
from sklearn.base import clone

import rbr
from rbr.report import report_page


def content_of(page):
    packed = re.search(r'<script type="text/plain" id="content">(.*?)</script>', page)[1]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.integers(18, 80, 300), "kind": rng.choice(["a", "b", "c"], 300)})
    X.loc[0, "kind"] = None
    chance = 1 / (1 + np.exp(-(0.08 * (X["age"] - 45) + (X["kind"] == "a"))))
    y = pd.Series(np.where(rng.random(300) < chance, "yes", "no"), name="bought")
    return rbr.RBRClassifier().fit(X, y), X, y


def test_one_file_without_addresses(fitted, tmp_path):
    m, X, y = fitted
    file = m.report(tmp_path / "report.html", X, y)
    page = file.read_text()
    assert 1e6 < file.stat().st_size < 5e6
    without_library = re.sub(r"<script>/\*\*\n\* plotly\.js.*?</script>", "", page, flags=re.DOTALL)
    assert len(without_library) < 200_000
    assert not re.findall(r"https?://|src=|@import|url\(", without_library)
    assert "default-src 'none'" in page
    assert list(tmp_path.iterdir()) == [file]
    assert page == report_page(m.model_, X, y)


def test_the_content_is_that_of_the_model(fitted):
    m, X, y = fitted
    content = content_of(report_page(m.model_, X, y, max_rows=50, path=[(2, 0.8), (1, 0.7)]))
    assert rbr.AdditiveModel.from_dict(content["model"]) == m.model_
    assert content["title"] == "A model of bought" and content["path"] == [[1, 0.7], [2, 0.8]]
    sample = content["sample"]
    assert len(sample["index"]) == 50 and sample["n_given"] == 300
    chosen = X.iloc[sample["index"]]
    by_column = {column["column"]: column for column in sample["columns"]}
    assert by_column[0]["values"] == chosen["age"].tolist()
    levels, codes = by_column[1]["levels"], by_column[1]["codes"]
    assert [levels[k] for k in codes] == [None if pd.isna(v) else v for v in chosen["kind"]]
    assert sample["y"] == (y.iloc[sample["index"]] == "yes").astype(int).tolist()
    scores = dict(content["quality"]["scores"])
    assert scores["accuracy"] == pytest.approx(m.score(X, y))
    assert content["scorecard"]["columns"][:3] == ["term", "kind", "range"]


def test_quality_is_that_of_scikit_learn(fitted):
    from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

    m, X, y = fitted
    weight = np.random.default_rng(1).random(len(y))
    quality = content_of(report_page(m.model_, X, y, sample_weight=weight))["quality"]
    p, positive = m.predict_proba(X)[:, 1], (y == "yes").to_numpy()
    scores = dict(quality["scores"])
    assert scores["AUC"] == pytest.approx(roc_auc_score(positive, p, sample_weight=weight))
    assert scores["Brier score"] == pytest.approx(brier_score_loss(positive, p, sample_weight=weight))
    assert scores["mean loss"] == pytest.approx(log_loss(positive, p, sample_weight=weight))
    roc = quality["roc"][0]
    assert np.trapezoid(roc["true"], roc["false"]) == pytest.approx(scores["AUC"], abs=0.01)
    calibration = quality["calibration"][0]
    assert sum(calibration["rows"]) == 300 and (np.diff(calibration["predicted"]) > 0).all()
    gains = quality["gains"]
    assert gains["rows"][-1] == pytest.approx(1) and gains["captured"][-1] == pytest.approx(1)
    top = weight * (p >= np.sort(p)[-60])
    k = int(np.argmin(np.abs(np.array(gains["rows"]) - top.sum() / weight.sum())))
    assert gains["captured"][k] == pytest.approx(top @ positive / (weight @ positive), abs=0.03)


def test_quality_of_numbers_and_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = X[:, 0] + rng.normal(size=400)
    m = rbr.RBRRegressor(n_bags=0).fit(X, y)
    quality = content_of(report_page(m.model_, X, y))["quality"]
    assert dict(quality["scores"])["R²"] == pytest.approx(m.score(X, y))
    np.testing.assert_allclose(quality["residuals"]["residual"], y - m.predict(X))
    assert "gains" not in quality  # some of y are negative
    labels = np.digitize(y, [-0.5, 0.5])
    m = rbr.RBRClassifier(n_bags=0).fit(X, labels)
    quality = content_of(report_page(m.model_, X, labels))["quality"]
    assert np.trace(quality["confusion"]) == pytest.approx(400 * m.score(X, labels))
    assert len(quality["roc"]) == 3


def test_names_cannot_end_a_script(fitted):
    _, X, y = fitted
    hostile = "</script><script>alert(1)</script>{{content}}"
    m = rbr.RBRClassifier().fit(X.rename(columns={"age": hostile}), y.rename(hostile))
    page = report_page(m.model_, title=hostile)
    assert page.count("<script>alert(1)") == 0
    assert page.count("</script>") == report_page(rbr.RBRClassifier().fit(X, y).model_).count("</script>")
    assert "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;{{content}}" in page


def test_a_model_alone_is_enough():
    content = content_of(report_page(make_model(0)))
    assert content["sample"] is None and content["quality"] is None and content["path"] is None
    assert content_of(report_page(make_model(0), np.zeros((5, 6)), max_rows=0))["sample"] is None
    *_, empty = (rbr.RBRRegressor().fit(np.zeros((50, 2)), np.arange(50.0)).model_,)
    assert content_of(report_page(empty))["model"]["terms"] == []


def test_bands_are_those_of_the_bootstrap(fitted):
    m, X, y = fitted
    bands = m.bootstrap(X, y, n=3)
    content = content_of(report_page(m.model_, bands=bands))
    low, high = bands.band("age")
    at = [term.name for term in m.terms_].index("age")
    assert content["bands"][at]["low"] == low.tolist() and content["bands"][at]["high"] == high.tolist()
    with pytest.raises(ValueError, match="the terms of the bootstrap are"):
        report_page(make_model(0), bands=bands)


def test_what_does_not_fit_is_named_and_nothing_is_written(fitted, tmp_path):
    m, X, y = fitted
    cases = {
        "y is given and X is None": {"y": y},
        "sample_weight is given and X is None": {"sample_weight": [1.0]},
        r"y has shape \(2,\); X has 300 rows": {"X": X, "y": y[:2]},
        "y holds 'perhaps'; the classes are 'no', 'yes'": {"X": X, "y": y.replace("no", "perhaps")},
        "X has no column 'age'": {"X": X[["kind"]]},
        "max_rows is -1; it must be at least 0": {"X": X, "max_rows": -1},
        "path is 3; it must be a list of pairs": {"path": 3},
        r"path is \[1, 2\]; it must be a list of pairs": {"path": [1, 2]},
        "offset has shape": {"X": X, "offset": [1.0]},
    }
    for message, arguments in cases.items():
        with pytest.raises(ValueError, match=message):
            m.report(tmp_path / "report.html", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_show_opens_the_report(fitted, monkeypatch):
    m, X, _ = fitted
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    file = m.show(X, title="My model")
    assert opened == [file.as_uri()] and "<title>My model</title>" in file.read_text()
    assert m.model_.show().exists()


def test_a_fitted_estimator_is_compact_in_a_notebook(fitted):
    m, X, y = fitted
    shown = m._repr_mimebundle_()["text/html"]
    assert len(shown) < 40_000 and "<script" not in shown
    for term in m.terms_:
        assert f">{term.name}<" in shown
    age = m.model_["age"].pieces[0]
    assert f"<title>{escape(age.text)}: " in shown
    assert m._repr_html_() == shown
    unfitted = clone(m)
    assert "sk-container" in unfitted._repr_mimebundle_()["text/html"]
    hostile = "<script>alert(1)</script>"
    m = rbr.RBRClassifier().fit(X.rename(columns={"age": hostile}), y)
    shown = m._repr_mimebundle_()["text/html"]
    assert hostile not in shown and "&lt;script&gt;" in shown
