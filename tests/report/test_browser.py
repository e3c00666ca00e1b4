"""The report in a real browser: it scores, tells, edits and saves as Python does, and asks nobody for anything."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
from browsers import chromium
from models import make_model
from pairs import make_axis, make_pair

import rbr
from rbr.losses import get_loss
from rbr.model import AdditiveModel

pytestmark = pytest.mark.long

HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture(scope="module")
def browser():
    with chromium() as own:
        yield own


def mixed_data(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n).astype(float),
            "income": np.exp(rng.normal(10, 1, n)),
            "kind": rng.choice(["a", "b", "c d", "ü<b>"], n),
            "größe 😀": rng.choice([1, 2, 3], n),
        }
    )
    X.loc[::11, "age"] = np.nan
    X.loc[::13, "kind"] = None
    score = 1.5 * np.sin(X["age"].fillna(40) / 12) + np.log(X["income"]) - 10 + (X["kind"] == "a") + 0.3 * X["größe 😀"]
    return X, score.to_numpy() + 0.3 * rng.normal(size=n), rng


def lines():
    X, y, _ = mixed_data()
    return rbr.RBRRegressor(n_bags=0).fit(X, pd.Series(y, name="charge")).model_, X


def counts():
    X, y, rng = mixed_data()
    exposure = rng.random(len(X)) + 0.5
    y = rng.poisson(exposure * np.exp(0.3 * y))
    m = rbr.RBRRegressor(loss="poisson").fit(X, pd.Series(y, name="claims"), offset=np.log(exposure))
    return m.model_, X


def two_classes():
    X, y, _ = mixed_data()
    return rbr.RBRClassifier().fit(X, pd.Series(np.where(y > 0.5, "yes", "no"), name="bought")).model_, X


def three_classes():
    X, y, _ = mixed_data()
    return rbr.RBRClassifier().fit(X, pd.Series(np.digitize(y, [0.0, 1.2]), name="grade")).model_, X


def pairs(n_outputs=1):
    rng = np.random.default_rng(5)
    kinds = {"loss": "multinomial", "classes": [3, 5, 7], "n_outputs": 3} if n_outputs == 3 else {}
    base = make_model(3, **kinds)
    axes = make_axis(0, 'a "quoted" name', rng), make_axis(1, "text; DROP TABLE", rng, kind="category")
    other = (
        make_axis(2, "b", rng, missing=False),
        make_axis(4, "numbers", rng, kind="category", levels=(-2, 0, 3, 10**12)),
    )
    terms = (
        make_pair(axes, rng, n_outputs=n_outputs, n_rectangles=5),
        make_pair(other, rng, n_outputs=n_outputs),
    )
    classes = np.array(kinds["classes"]) if n_outputs == 3 else None
    loss = get_loss(kinds.get("loss", "squared_error"))
    model = AdditiveModel((*base.terms, *terms), base.intercept, loss, classes, "target", 6, base.feature_names_in_)
    return model, None


MODELS = {
    "lines": lines,
    "counts": counts,
    "two classes": two_classes,
    "three classes": three_classes,
    "pairs": pairs,
    "pairs of classes": lambda: pairs(3),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """{name: (model, X, file)}, each made once."""
    made = {}

    def get(name):
        if name not in made:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model, X = MODELS[name]()
            file = tmp_path_factory.mktemp("report") / "report.html"
            made[name] = model, X, model.report(file, X)
        return made[name]

    return get


def random_rows(model, n=150, seed=1):
    """Rows for every used column with everything awkward: missing, infinite, edges, unknown levels."""
    rng = np.random.default_rng(seed)
    frame = {}
    for j, name in enumerate(model.feature_names_in_):
        sides = [
            own
            for term in model.terms
            for own in (term.axes if len(term.columns) == 2 else (term,))
            if (own.column if len(term.columns) == 2 else own.columns[0]) == j
        ]
        if not sides or sides[0].kind == "numeric":
            edges = np.concatenate([side.edges for side in sides] or [np.zeros(1)])
            spread = np.ptp(edges) or 1.0
            values = rng.uniform(edges.min() - spread / 3, edges.max() + spread / 3, n)
            values[::7] = rng.choice(edges, len(values[::7]))
            values[3], values[4], values[5] = np.nan, np.inf, -np.inf
            frame[name] = values
        else:
            levels = [
                level for side in sides for level in (side.levels if hasattr(side, "levels") else side.categories)
            ]
            values = np.array([levels[k] for k in rng.integers(len(levels), size=n)], dtype=object)
            values[::9], values[7] = "moon", None
            frame[name] = pd.Series(values, dtype=object)
    return pd.DataFrame(frame)


def as_json(value):
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return str(value).replace("inf", "Infinity") if isinstance(value, float) and math.isinf(value) else value


READ_ROW = """
const read = (row) => Object.fromEntries(Object.entries(row).map(([k, v]) =>
    [k, v === "Infinity" ? Infinity : v === "-Infinity" ? -Infinity : v]));
"""


def rows_for_page(frame):
    return [{str(j): as_json(v) for j, v in enumerate(row)} for row in frame.astype(object).itertuples(index=False)]


@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
@pytest.mark.parametrize("name", MODELS)
def test_the_page_scores_and_explains_as_python_does(browser, reports, name):
    model, _, file = reports(name)
    browser.open(file)
    frame = random_rows(model)
    found = browser.run(
        READ_ROW
        + """
        const { state, scoresOf, predictionOf, contributions, rowInWords } = rbr;
        return arguments[0].map(read).map((row) => {
            const scores = scoresOf(state.model, row);
            const told = rowInWords(state.model, state.texts, row, { n: 3 });
            const lines = [...told.reasons, told.tail, ...told.unseen].filter(Boolean).map((line) => "  " + line);
            const words = [told.head, ...lines].join("\\n");
            return [scores, predictionOf(state.texts.link, scores), contributions(state.model, row), words];
        });""",
        rows_for_page(frame),
    )
    scores, predictions, contributions, words = zip(*found, strict=True)
    expected = model.decision_function(frame).reshape(len(frame), -1)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    expected = (model.predict if model.classes is None else model.predict_proba)(frame).reshape(len(frame), -1)
    np.testing.assert_allclose(predictions, expected, rtol=1e-9, atol=1e-9)
    expected = model.explain(frame).reshape(len(frame), len(model.terms), -1)
    np.testing.assert_allclose(contributions, expected, rtol=1e-9, atol=1e-9)
    for i in range(0, len(frame), 10):
        assert words[i] == str(model.explain_row(frame.iloc[[i]], n=3))


@pytest.mark.parametrize("name", MODELS)
def test_the_page_is_quiet_and_complete(browser, reports, name, tmp_path):
    model, X, file = reports(name)
    if X is not None:
        y = model.predict(X)
        file = model.report(tmp_path / "whole.html", X, y, path=[(1, 0.7), (3, 0.9)])
        assert file.stat().st_size < 5e6
    for width, theme in ((1280, "light"), (390, "dark")):
        browser.open(file, width=width, theme=theme)
        browser.show_all()
        browser.driver.find_element("id", "theme").click()
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
        assert browser.complaints() == [] and browser.requests() == []
    headings = [node.text for node in browser.driver.find_elements("css selector", "h2")]
    given = ["Quality", "Path"] if X is not None else []
    assert headings == ["Overview", "Terms", "What if", *given, "Scorecard", "Edit"]


def hover(browser, selector, fraction):
    """The label of a picture at a part of its width."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    browser.show(selector)
    label, drag = f"{selector} .hoverlayer .hovertext", f"{selector} .nsewdrag"
    browser.run("Plotly.Fx.unhover(document.querySelector(arguments[0]))", selector)
    WebDriverWait(browser.driver, 10).until(lambda _: not browser.driver.find_elements("css selector", label))
    place = browser.run(
        "const r = document.querySelector(arguments[0]).getBoundingClientRect(); return [r.x, r.y, r.width, r.height]",
        drag,
    )
    x, y, width, height = place
    chain = ActionChains(browser.driver, duration=20)
    chain.w3c_actions.pointer_action.move_to_location(round(x + fraction * width) - 3, round(y + height / 2))
    chain.w3c_actions.pointer_action.move_to_location(round(x + fraction * width), round(y + height / 2))
    chain.perform()
    WebDriverWait(browser.driver, 10).until(lambda _: browser.driver.find_elements("css selector", label))
    return (round(x + fraction * width) - x) / width, browser.run(
        "return [...document.querySelectorAll(arguments[0])].map((n) => n.textContent).join('|')",
        f"{label} tspan, {label} text",
    )


def test_pointing_at_a_picture_shows_the_piece_and_its_value(browser, reports):
    model, X, file = reports("lines")
    browser.open(file)
    position = [term.name for term in model.terms].index("age")
    term = model["age"]
    selector = f"#term-{position} .plot"
    for fraction in (0.2, 0.5, 0.85):
        at, text = hover(browser, selector, fraction)
        low, high = browser.run("return document.querySelector(arguments[0])._fullLayout.xaxis.range", selector)
        x = low + at * (high - low)
        [piece] = [p for p in term.pieces if p.low < x <= p.high]
        assert piece.text in text
        rows = float(term.shares[list(piece.bins)].sum())
        assert f"{100 * rows:.0f}%" in text.replace(".0%", "%") or f"{100 * rows:.2g}%" in text
        shown = float(next(part for part in text.split("|") if part.startswith(("+", "-", "−"))).replace("−", "-"))
        near = [
            model.explain(pd.DataFrame({**X.iloc[[0]].to_dict("list"), "age": [v]}))[0, position]
            for v in (x - 1, x, x + 1)
        ]
        assert min(near) - 1e-3 <= shown <= max(near) + 1e-3


@pytest.mark.parametrize("name", ["lines", "two classes", "three classes"])
def test_the_waterfall_adds_up_and_follows_a_moved_value(browser, reports, name):
    model, X, file = reports(name)
    browser.open(file)
    browser.show("#whatif .plot")
    index = browser.run("return rbr.state.sample.index[0]")
    row = X.iloc[[index]].copy()

    def check():
        steps = browser.run("return rbr.waterfallSteps(rbr.state)")
        for before, after in zip(steps[:-2], steps[1:-1], strict=True):
            assert after["base"] == pytest.approx(before["base"] + before["change"], abs=1e-12)
        told = model.explain_row(row)
        assert steps[-1]["change"] == pytest.approx(told.score, abs=1e-9)
        bars = browser.run("const [bar] = document.querySelector('#whatif .plot').data; return [bar.base, bar.x]")
        assert bars == [[step["base"] for step in steps], [step["change"] for step in steps]]

    check()
    age = list(model.feature_names_in_).index("age")
    box = browser.driver.find_element("id", f"in-{age}")
    box.clear()
    box.send_keys("77")
    row["age"] = 77.0
    check()
    said = browser.driver.find_element("css selector", ".headline").text
    if name == "two classes":
        assert f"{100 * model.predict_proba(row)[0, 1]:.3g}%" in said
    elif name == "lines":
        assert f"{model.predict(row)[0]:.5g}" in said


def edits_of(model, seed=0):
    """Random edits that the page offers, each possible when its turn comes."""
    rng = np.random.default_rng(seed)
    edits = []
    for _ in range(12):
        term = model.terms[int(rng.integers(len(model.terms)))]
        n, kind = len(term.pieces), int(rng.integers(6))
        if kind == 0:
            piece = "missing" if term.missing_value is not None and rng.random() < 0.3 else int(rng.integers(n))
            value = rng.normal(size=term.n_outputs).round(3).tolist()
            edit = {"edit": "set_piece", "piece": piece, "value": value if term.n_outputs > 1 else value[0]}
        elif kind == 1 and n > 1:
            k = int(rng.integers(n - 1))
            edit = {"edit": "merge", "pieces": [k, k + 1]}
        elif kind == 2 and term.kind == "numeric":
            edit = {"edit": "make_monotone", "increasing": bool(rng.integers(2))}
        elif kind == 3 and term.kind == "numeric" and n > 1:
            edit = {"edit": "smooth", "bandwidth": 0.1}
        elif kind == 4:
            edit = {"edit": "zero"}
        elif kind == 5 and len(model.terms) > 2:
            edit = {"edit": "drop"}
        else:
            continue
        edit["term"] = term.name
        edits.append(edit)
        model = applied(model, edit)
    return edits, model


def applied(model, edit):
    arguments = {name: value for name, value in edit.items() if name not in ("edit", "term")}
    return getattr(model, edit["edit"])(edit["term"], **arguments)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", MODELS)
def test_edits_equal_those_of_python(browser, reports, tmp_path, name, seed):
    model, _, file = reports(name)
    browser.open(file)
    edits, expected = edits_of(model, seed)
    assert len(edits) > 3
    text = browser.run_async(
        """
        const { state, edited, modelFile } = rbr;
        let model = state.base;
        const made = [];
        for (const edit of arguments[0]) {
            const after = edited(model, edit);
            if (after !== model) made.push(edit);
            model = after;
        }
        return modelFile(model, state.raw, made);""",
        edits,
    )
    saved = tmp_path / "model.json"
    saved.write_text(text)
    assert json.loads(text)["checksum"].startswith("sha256:")
    found = rbr.load(saved)  # which compares the checksum
    assert found.metadata == expected.metadata and len(found.metadata["edits"]) > 2
    for own, other in zip(found.terms, expected.terms, strict=True):
        assert own.name == other.name and own.kind == other.kind and own.columns == other.columns
        np.testing.assert_allclose(own.all_values, other.all_values, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(own.labels, other.labels)
        assert [piece.text for piece in own.pieces] == [piece.text for piece in other.pieces]
        if len(own.columns) == 1:
            np.testing.assert_allclose(own.slopes, other.slopes, rtol=0, atol=1e-12)
            assert own.categories == other.categories and list(map(type, own.categories or ())) == list(
                map(type, other.categories or ())
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = random_rows(model)
        expected, found = expected.decision_function(frame), found.decision_function(frame)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_a_person_edits_saves_and_undoes(browser, reports):
    model, X, file = reports("lines")
    browser.open(file)
    driver = browser.driver
    choose = driver.find_element("css selector", "#edit select")
    choose.send_keys("age")
    browser.run("document.querySelector('#edit').scrollIntoView()")
    first = driver.find_elements("css selector", "#edit .pieces input[type=text]")[0]
    first.clear()
    first.send_keys("0.25\t")
    expected = model.set_piece("age", 0, 0.25)
    assert "age" in driver.find_element("css selector", "#edit .message").text
    for mark in driver.find_elements("css selector", "#edit .pieces input[type=checkbox]")[:2]:
        mark.click()
    press(driver, "Merge the chosen pieces")
    expected = expected.merge("age", [0, 1])
    press(driver, "Make increasing")
    before_last, expected = expected, expected.make_monotone("age")
    shown = browser.run("return rbr.state.sample.rows.map((row) => rbr.scoresOf(rbr.state.model, row)[0])")
    rows = X.iloc[browser.run("return rbr.state.sample.index")]
    np.testing.assert_allclose(shown, expected.decision_function(rows), rtol=0, atol=1e-9)
    table = driver.find_element("id", "effect-table").text
    n_changed = int((np.abs(model.predict(rows) - expected.predict(rows)) > 1e-9).sum())
    assert f"{n_changed} of {len(rows)}" in table
    press(driver, "Save the model")
    saved = rbr.load(browser.downloaded("model.json"))
    np.testing.assert_allclose(saved.predict(rows), shown, rtol=0, atol=1e-9)
    assert saved.metadata["edits"] == expected.metadata["edits"] and len(saved.metadata["edits"]) == 3
    for label, edited in {
        "Smooth": expected.smooth("age", 0.05),
        "Set to zero": expected.zero("age"),
        "Drop the term": expected.drop("age"),
    }.items():
        press(driver, label)
        press(driver, "Save the model")
        saved = rbr.load(browser.downloaded("model.json"))
        assert saved.metadata["edits"] == edited.metadata["edits"]
        assert [term.name for term in saved.terms] == [term.name for term in edited.terms]
        np.testing.assert_allclose(saved.predict(rows), edited.predict(rows), rtol=0, atol=1e-9)
        press(driver, "Undo the last")
    press(driver, "Undo the last")
    press(driver, "Save the model")
    saved = rbr.load(browser.downloaded("model.json"))
    assert saved.metadata["edits"] == before_last.metadata["edits"]
    np.testing.assert_allclose(saved.predict(rows), before_last.predict(rows), rtol=0, atol=1e-9)
    while driver.find_element("xpath", "//button[.='Undo the last']").is_enabled():
        press(driver, "Undo the last")
    press(driver, "Save the model")
    assert rbr.load(browser.downloaded("model.json")) == model
    assert browser.complaints() == []


def press(driver, label):
    button = driver.find_element("xpath", f"//button[.='{label}']")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()


def test_wrong_edits_are_refused_in_words(browser, reports):
    _, _, file = reports("lines")
    browser.open(file)
    message = browser.driver.find_element("css selector", "#edit .message")
    press(browser.driver, "Merge the chosen pieces")
    assert message.text == "choose at least two pieces to merge"
    box = browser.driver.find_element("css selector", "#edit .pieces input[type=text]")
    box.clear()
    box.send_keys("a lot\t")
    assert message.text == '"a lot" is no number'
    assert browser.run("return rbr.state.edits.length") == 0


@pytest.mark.filterwarnings("ignore::rbr.UnseenWarning")
def test_rows_of_a_csv_file_are_scored(browser, reports, tmp_path):
    model, X, file = reports("lines")
    browser.open(file)
    rows = X.iloc[:30].copy()
    rows.loc[0, "kind"] = told = 'quoted "moon", with a comma\nand a line'
    rows.loc[1, "income"] = np.inf
    rows.to_csv(tmp_path / "rows.csv", index=False)
    browser.driver.find_element("id", "file").send_keys(str(tmp_path / "rows.csv"))
    message = browser.driver.find_element("css selector", "#edit .message")
    assert message.text == "Read 30 rows of rows.csv."
    assert browser.run("return rbr.state.sample.rows[0][2]") == told
    shown = browser.run("return rbr.state.sample.rows.map((row) => rbr.scoresOf(rbr.state.model, row)[0])")
    np.testing.assert_allclose(shown, model.decision_function(rows), rtol=0, atol=1e-9)
    rows["exposed"], rows["times"] = np.linspace(-1, 1, 30), np.arange(30) % 3
    rows.to_csv(tmp_path / "more.csv", index=False)
    browser.driver.find_element("id", "file").send_keys(str(tmp_path / "more.csv"))
    for label, column in (("Offsets", "exposed"), ("Weights", "times")):
        choose = f"//*[@id='edit']//label[contains(., '{label}')]//select"
        browser.driver.find_element("xpath", choose).send_keys(column)
    assert message.text == "Read 30 rows of more.csv."
    shown = browser.run(
        """const { model, sample } = rbr.state;
        return sample.rows.map((row, i) => rbr.scoresOf(model, row, sample.offset[i])[0])"""
    )
    np.testing.assert_allclose(shown, model.decision_function(rows, offset=rows["exposed"]), rtol=0, atol=1e-9)
    assert browser.run("return rbr.state.sample.weight") == rows["times"].tolist()
    browser.driver.find_element("xpath", choose).send_keys("exposed")
    told = "column exposed of more.csv holds -1.0 in row 1; weights must be finite and not negative"
    assert message.text == told and browser.run("return rbr.state.sample.weight") == rows["times"].tolist()
    assert browser.driver.find_element("xpath", f"{choose}/option[. = 'times']").is_selected()
    rows.drop(columns="age").to_csv(tmp_path / "other.csv", index=False)
    browser.driver.find_element("id", "file").send_keys(str(tmp_path / "other.csv"))
    assert message.text == "other.csv has no column age"


def test_names_are_shown_and_never_run(browser, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({HOSTILE: rng.normal(size=300), "kind": rng.choice([HOSTILE, "<b>bold</b>", "{{title}}"], 300)})
    y = pd.Series(np.where(X[HOSTILE] + 2 * (X["kind"] == "<b>bold</b>") > 0.3, HOSTILE, "no"), name=f"<i>{HOSTILE}")
    m = rbr.RBRClassifier().fit(X, y)
    file = m.report(tmp_path / "report.html", X, y, title=HOSTILE)
    browser.open(file)
    browser.show_all()
    assert browser.run("return window.hacked === undefined && document.querySelectorAll('img').length === 0")
    assert browser.driver.title == HOSTILE and browser.driver.find_element("id", "title").text == HOSTILE
    assert HOSTILE in [node.text for node in browser.driver.find_elements("css selector", "#terms h3")]
    ticks = browser.run("return [...document.querySelectorAll('#terms .ytick text')].map((node) => node.textContent)")
    assert any("<b>bold</b>" in tick for tick in ticks), ticks
    assert browser.complaints() == [] and browser.requests() == []


def test_it_can_be_used_with_keys_and_a_screen_reader(browser, reports):
    from selenium.webdriver import ActionChains, Keys

    _, _, file = reports("two classes")
    browser.open(file)
    seen = []
    for _ in range(14):
        ActionChains(browser.driver).send_keys(Keys.TAB).perform()
        seen.append(browser.run("const a = document.activeElement; return a.id || a.getAttribute('href') || a.tagName"))
    assert seen[:3] == ["#main", "theme", "#overview"] and "#edit" in seen
    unnamed = browser.run(
        """
        const named = (node) => node.labels && node.labels.length || node.getAttribute("aria-label") ||
            node.getAttribute("aria-labelledby") || node.textContent.trim();
        return [...document.querySelectorAll("button, input, select, .plot, section, [role=region]")]
            .filter((node) => !named(node)).map((node) => node.outerHTML.slice(0, 200));"""
    )
    assert unnamed == []
    # Every picture has a table beside it.
    alone = browser.run(
        """
        const tables = [".alternative", ".pieces", ".scroll"].map((own) => ":scope > " + own).join();
        const beside = (node) => node.parentElement.querySelector(tables);
        return [...document.querySelectorAll(".plot")].filter((node) => !beside(node)).length;"""
    )
    assert alone == 0
    box = browser.driver.find_element("css selector", "#whatif input[type=range]")
    box.send_keys(Keys.ARROW_RIGHT * 40)
    assert "as picked" in browser.driver.find_element("css selector", ".headline").text
