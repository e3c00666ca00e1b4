"""The runner of the experiments saves, resumes and reports; the items measure what they claim to."""

import io
import json
import re
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import rbr
from rbr import cli
from rbr.datasets import ADULT_COLUMNS, HR_COLUMNS, Table, make_planted
from rbr.experiments import (
    adult_roc,
    feature_selection,
    hr_roc,
    one_curve,
    paper_fit,
    peers,
    planted_curves,
    planted_roc,
    real_roc,
    roc,
    run,
)
from rbr.experiments.item import Claim, Item, NotRun, Setting
from rbr.experiments.items import ITEMS
from rbr.experiments.run import kept_record, run_items

# ---------------------------------------------------------------- fake items


@dataclass(frozen=True, eq=False)
class FakeItem(Item):
    """An item whose functions are given by the test."""

    measure: object = None
    holds: str = "yes"
    notes: tuple = ()

    @property
    def module(self):
        return SimpleNamespace(measure=self.measure, judge=self.judge, draw=self.draw)

    def judge(self, numbers):
        return [Claim(f"{self.name} is |even|", f"{numbers['value']}", self.holds, self.notes)]

    def draw(self, numbers, figure):
        figure.subplots().plot([0, numbers["value"]])


class Counting:
    """A `measure` that counts its calls and returns or raises what it was given."""

    def __init__(self, result=None, error=None):
        self.result = {"value": 2} if result is None else result
        self.error, self.calls = error, 0

    def __call__(self, setting):
        self.calls += 1
        setting.progress(1, 2)
        if self.error:
            raise self.error
        return self.result


def fake(number, measure=None, **options):
    return FakeItem(number, f"fake_{number}", f"Title {number}", measure=measure or Counting(), **options)


@pytest.fixture
def fakes(monkeypatch):
    """A function that replaces the list of all items by the given ones and runs them."""

    def go(items, folder, *, listed=None, setting=None, **options):
        monkeypatch.setattr(run, "ITEMS", tuple(listed or items))
        stream = io.StringIO()
        code = run_items(items, setting or Setting(), folder, stream=stream, **options)
        return code, stream.getvalue()

    return go


def rows(folder):
    """The cells of the table of RESULTS.md."""
    lines = (folder / "RESULTS.md").read_text().splitlines()
    table = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("| ")]
    assert [cell.strip() for cell in table[0]] == ["claim in the paper", "what we measured", "holds?"]
    assert [cell.strip() for cell in table[1]] == ["---"] * 3
    return [[cell.strip() for cell in cells] for cells in table[2:]]


def strict_json(file):
    def refuse(constant):
        raise AssertionError(f"{file} holds {constant}")

    return json.loads(file.read_text(), parse_constant=refuse)


# ---------------------------------------------------------------- the runner


def test_every_item_leaves_numbers_a_picture_and_a_row(tmp_path, fakes):
    items = [fake(1), fake(2, Counting({"value": np.float32(3.5), "more": np.arange(3)}), holds="partly")]
    code, printed = fakes(items, tmp_path)
    assert code == 0
    assert rows(tmp_path) == [[r"1. fake_1 is \|even\|", "2", "yes"], [r"2. fake_2 is \|even\|", "3.5", "partly"]]
    record = strict_json(tmp_path / "02-fake-2.json")
    assert record["numbers"] == {"value": 3.5, "more": [0, 1, 2]}
    assert record["rbr"] == rbr.__version__ and record["seed"] == 0 and record["quick"] is False
    for item in items:
        assert (tmp_path / f"{item.stem}.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "01-fake-1.json",
        "01-fake-1.png",
        "02-fake-2.json",
        "02-fake-2.png",
        "RESULTS.md",
    ]
    assert "2 claims (1 yes, 1 partly)" in printed


def test_results_name_the_command_and_the_versions(tmp_path, fakes):
    fakes([fake(1)], tmp_path, setting=Setting(quick=True, seed=3, jobs=2, data=tmp_path))
    page = (tmp_path / "RESULTS.md").read_text()
    assert "    rbr experiments --quick --seed 3 --jobs 2 --data DATA --out FOLDER\n" in page
    assert f"rbr {rbr.__version__}, numpy {np.__version__}" in page
    assert str(tmp_path) not in page


def test_a_second_run_measures_only_what_is_missing(tmp_path, fakes):
    items = [fake(1), fake(2)]
    fakes(items[:1], tmp_path, listed=items)
    assert "--only 1 " in (tmp_path / "RESULTS.md").read_text()
    assert "Not asked for: 2. Title 2." in (tmp_path / "RESULTS.md").read_text()
    (tmp_path / "01-fake-1.png").unlink()
    code, printed = fakes(items, tmp_path)
    assert code == 0 and [item.measure.calls for item in items] == [1, 1]
    assert "1 Title 1: kept from an earlier run" in printed
    assert (tmp_path / "01-fake-1.png").exists()  # drawn again from the numbers
    assert len(rows(tmp_path)) == 2


def test_results_tell_of_items_kept_but_not_asked_for(tmp_path, fakes):
    items = [fake(1), fake(2)]
    fakes(items, tmp_path)
    fakes(items[1:], tmp_path, listed=items)
    assert [row[0][:2] for row in rows(tmp_path)] == ["1.", "2."]
    assert [item.measure.calls for item in items] == [1, 1]


@pytest.mark.parametrize("other", [Setting(seed=1), Setting(quick=True)])
def test_another_setting_is_measured_anew(tmp_path, fakes, other):
    item = fake(1)
    fakes([item], tmp_path)
    fakes([item], tmp_path, setting=other)
    assert item.measure.calls == 2
    assert kept_record(item, Setting(), tmp_path) is None
    assert kept_record(item, other, tmp_path)["numbers"] == {"value": 2}


def test_another_version_is_measured_anew(tmp_path, fakes, monkeypatch):
    item = fake(1)
    fakes([item], tmp_path)
    monkeypatch.setattr(rbr, "__version__", "99")
    fakes([item], tmp_path)
    assert item.measure.calls == 2


def test_the_number_of_processes_and_the_data_folder_change_nothing(tmp_path, fakes):
    item = fake(1)
    fakes([item], tmp_path)
    fakes([item], tmp_path, setting=Setting(jobs=2, data=tmp_path))
    assert item.measure.calls == 1


def test_fresh_measures_again(tmp_path, fakes):
    item = fake(1)
    fakes([item], tmp_path)
    fakes([item], tmp_path, fresh=True)
    assert item.measure.calls == 2


def test_a_broken_file_is_measured_anew(tmp_path, fakes):
    item = fake(1)
    (tmp_path / "01-fake-1.json").write_text('{"numbers": ')
    code, _ = fakes([item], tmp_path)
    assert code == 0 and item.measure.calls == 1


def test_interruption_keeps_what_is_finished_and_says_how_to_go_on(tmp_path, fakes):
    interrupting = Counting(error=KeyboardInterrupt())
    items = [fake(1), fake(2, interrupting), fake(3)]
    code, printed = fakes(items, tmp_path)
    assert code == run.INTERRUPTED
    assert "Interrupted during item 2" in printed and "The same command, without --fresh, goes on from there" in printed
    assert [row[2] for row in rows(tmp_path)] == ["yes", "not run", "not run"]
    assert not list(tmp_path.glob("02*")) and not list(tmp_path.glob(".*"))
    interrupting.error = None
    code, _ = fakes(items, tmp_path)
    assert code == 0 and [item.measure.calls for item in items] == [1, 2, 1]
    assert [row[2] for row in rows(tmp_path)] == ["yes", "yes", "yes"]


def test_an_interruption_that_a_callback_swallows_is_not_lost(tmp_path, fakes):
    def measure(setting):
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        setting.progress(1, 2)
        return {"value": 1}

    before = signal.getsignal(signal.SIGINT)
    assert fakes([fake(1, measure)], tmp_path)[0] == run.INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupted_fresh_run_leaves_the_earlier_numbers(tmp_path, fakes):
    item = fake(1)
    fakes([item], tmp_path)
    before = (tmp_path / "01-fake-1.json").read_bytes()
    item.measure.error = KeyboardInterrupt()
    assert fakes([item], tmp_path, fresh=True)[0] == run.INTERRUPTED
    assert (tmp_path / "01-fake-1.json").read_bytes() == before
    assert rows(tmp_path)[0][2] == "yes"


def test_a_failing_item_is_reported_and_the_rest_goes_on(tmp_path, fakes, capsys):
    items = [fake(1, Counting(error=ValueError("no such luck"))), fake(2)]
    code, printed = fakes(items, tmp_path)
    assert code == 1
    assert "failed: ValueError: no such luck" in printed
    assert [row[2] for row in rows(tmp_path)] == ["not run", "yes"]
    assert "failed with ValueError: no such luck" in (tmp_path / "RESULTS.md").read_text()
    assert strict_json(tmp_path / "01-fake-1.json")["failed"] == "ValueError: no such luck"
    assert "Traceback" in capsys.readouterr().err
    items[0].measure.error = None
    assert fakes(items, tmp_path)[0] == 0  # a failure is measured again
    assert [item.measure.calls for item in items] == [2, 1]


def test_an_item_that_cannot_be_run_says_why(tmp_path, fakes):
    items = [fake(1, Counting(error=NotRun("the data are not there"))), fake(2)]
    code, printed = fakes(items, tmp_path)
    assert code == 0
    assert "not run: the data are not there" in printed
    page = (tmp_path / "RESULTS.md").read_text()
    assert rows(tmp_path)[0][1:] == ["nothing[^1]", "not run"]
    assert "[^1]: the data are not there" in page
    assert strict_json(tmp_path / "01-fake-1.json")["not_run"] == "the data are not there"
    fakes(items, tmp_path)
    assert [item.measure.calls for item in items] == [2, 1]  # tried again: the data may be there now


def test_a_verdict_outside_the_vocabulary_is_a_failure(tmp_path, fakes, capsys):
    code, printed = fakes([fake(1, holds="maybe")], tmp_path)
    assert code == 1 and "holds is 'maybe'" in printed
    assert rows(tmp_path)[0][2] == "not run"


@pytest.mark.parametrize("bad", [float("nan"), np.array([1.0, np.inf])])
def test_numbers_that_json_does_not_hold_are_a_failure(tmp_path, fakes, capsys, bad):
    code, printed = fakes([fake(1, Counting({"value": 1, "deep": {"er": bad}}))], tmp_path)
    assert code == 1 and re.search(r"numbers\.deep\.er(\[1\])? is (nan|inf)", printed)
    assert "failed" in strict_json(tmp_path / "01-fake-1.json")


def test_a_picture_of_other_numbers_does_not_stay(tmp_path, fakes):
    item = fake(1)
    fakes([item], tmp_path)
    item.measure.error = NotRun("gone")
    fakes([item], tmp_path, fresh=True)
    assert not (tmp_path / "01-fake-1.png").exists()


def test_without_matplotlib_all_but_the_pictures_is_done(tmp_path, fakes, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    code, printed = fakes([fake(1)], tmp_path)
    assert code == 0
    assert 'No pictures will be drawn: drawing needs matplotlib: pip install "rbr[plot]"' in printed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["01-fake-1.json", "RESULTS.md"]
    assert "No pictures: drawing needs matplotlib" in (tmp_path / "RESULTS.md").read_text()


def test_the_same_note_is_one_footnote(tmp_path, fakes):
    notes = ("lightgbm is not installed",)
    fakes([fake(1, notes=notes), fake(2, notes=notes)], tmp_path)
    assert [row[1] for row in rows(tmp_path)] == ["2[^1]", "2[^1]"]
    assert (tmp_path / "RESULTS.md").read_text().count("lightgbm is not installed") == 1


def test_the_estimate_scales_the_guesses_by_what_was_seen():
    time = iter([0.0, 0.0, 0.0, 10.0, 10.0, 20.0, 20.0, 20.0, 20.0])
    items = [Item(1, "a", "A", guess=10.0), Item(2, "b", "B", guess=40.0)]
    clock = run.Clock(items, 1.0, io.StringIO(), now=lambda: next(time))
    clock.begin(items[0])
    assert clock.seconds_left(0.5) == pytest.approx(2 * (5 + 40))  # 10 s for a guess of 5
    clock.end("measured")  # 10 s for a guess of 10
    clock.begin(items[1])
    assert clock.seconds_left(0.0) == pytest.approx(40)


def test_out_must_be_a_folder(tmp_path, fakes, capsys):
    (tmp_path / "file").write_text("")
    assert fakes([fake(1)], tmp_path / "file")[0] == 2
    assert "it must be a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("3", [3]), ("one_curve", [1]), ("hr-roc", [5]), ("04-planted-roc", [4]), ("1-6", [1, 2, 3, 4, 5, 6])],
)
def test_items_by_number_name_and_range(text, numbers):
    assert [item.number for item in run.parse_items(text)] == numbers


@pytest.mark.parametrize("text", ["0", "99", "roc", "6-1", ""])
def test_an_unknown_item_is_named(text, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["experiments", "--only", text])
    assert exit_.value.code == 2
    assert f"{text!r} is not an item; the items are 1 one_curve," in capsys.readouterr().err


def test_the_command_passes_everything_on(tmp_path, monkeypatch):
    seen = {}
    monkeypatch.setattr(run, "run_items", lambda items, setting, folder, fresh: seen.update(locals()) or 7)
    words = f"experiments --quick --only 5 1-2 1 --seed 4 --jobs 2 --data {tmp_path} --out {tmp_path}/out --fresh"
    assert cli.main(words.split()) == 7
    assert [item.number for item in seen["items"]] == [1, 2, 5]
    assert seen["setting"] == Setting(quick=True, seed=4, jobs=2, data=tmp_path, progress=seen["setting"].progress)
    assert seen["folder"] == tmp_path / "out" and seen["fresh"] is True


def test_items_are_numbered_in_order():
    assert [item.number for item in ITEMS] == list(range(1, 15))
    assert len({item.name for item in ITEMS}) == 14


# ---------------------------------------------------------------- items 1 to 6


def through_json(numbers):
    """The numbers as `judge` and `draw` receive them."""
    return json.loads(run.json_text(run.plain(numbers)))


def verdicts(module, numbers):
    claims = module.judge(numbers)
    assert all(claim.holds in run.VERDICTS for claim in claims)
    return [claim.holds for claim in claims]


def drawn(module, numbers):
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    module.draw(numbers, figure)
    figure.canvas.draw()
    return figure


def test_one_curve_has_a_hump_that_only_pieces_follow():
    assert one_curve.income_at(20) < one_curve.income_at(50) > one_curve.income_at(80)
    found = one_curve.fit_all(np.random.default_rng(0), 1000)
    truth = one_curve.income_at(found["age"])
    line = found["values"]["line"]
    assert found["errors"]["line"] == pytest.approx(np.sqrt(np.mean((line - truth) ** 2)) / truth.std())
    assert found["errors"]["linear"] < found["errors"]["constant"] < found["errors"]["line"] / 2
    assert len(np.unique(found["values"]["constant"].round(9))) == one_curve.N_PIECES


def test_one_curve_measured_judged_and_drawn():
    numbers = through_json(one_curve.measure(Setting(quick=True)))
    assert verdicts(one_curve, numbers) == ["yes"]
    edges = np.array(numbers["cuts"])
    assert numbers["codes"] == np.searchsorted(edges, numbers["people"]).tolist()
    assert sum(numbers["histogram"]) == one_curve.N_ROWS
    figure = drawn(one_curve, numbers)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Bins of equal counts, here 8", "One-hot rows of twelve people", "Three fits of one curve"]
    numbers["errors"]["linear"] = [0.9] * len(numbers["errors"]["linear"])
    assert verdicts(one_curve, numbers) == ["no"]


SMALL_PLANTED = (1200, 20, 4)


@pytest.mark.parametrize("form", [1, 2])
def test_planted_curves_are_learned_closely_and_missed_ones_count_as_1(form):
    found = planted_curves.learn([0, 2, 0], form, *SMALL_PLANTED)
    data = make_planted(*SMALL_PLANTED, form=form, random_state=np.random.default_rng([0, 2, 0]))
    assert [curve["feature"] for curve in found["curves"]] == data.support.tolist()
    strong = np.array(found["size"]) > 0.2
    assert strong.sum() >= 2
    for name in planted_curves.METHODS:
        assert (np.array(found["errors"][name])[strong] < planted_curves.LEARNED).all()
    for curve, error in zip(found["curves"], found["errors"]["PC, Algorithm 1"], strict=True):
        assert (error == pytest.approx(1)) == (not any(curve["tables"]["PC, Algorithm 1"]))


def test_planted_curves_are_judged_by_how_many_are_learned(monkeypatch):
    for name, value in zip(("N_ROWS", "N_FEATURES", "N_PLANTED"), SMALL_PLANTED, strict=True):
        monkeypatch.setattr(planted_curves, name, value)
    numbers = through_json(planted_curves.measure(Setting(quick=True)))
    figure = drawn(planted_curves, numbers)
    assert len(figure.axes) == 2 * SMALL_PLANTED[2] + 2
    for learned, verdict in ((4, "yes"), (3, "partly"), (1, "no")):
        for form in numbers["forms"].values():
            row = [0.1] * learned + [1.0] * (4 - learned)
            form["errors"] = {name: [row] * 3 for name in form["errors"]}
        assert verdicts(planted_curves, numbers) == [verdict] * 2


def test_rbr_finds_more_planted_features_than_iht():
    """Over a few draws with enough rows. With few rows the step of the theory diverges."""
    draws = [feature_selection.select([0, 3, k], 1000, 40, 8, ()) for k in range(4)]
    total = {name: sum(shares[name] for shares, _ in draws) for name in draws[0][0]}
    for name in ("PC, searched step", "PL, searched step", "PC, default solver", "PL, default solver"):
        assert total[name] > total["IHT"], name
    _, diverged = feature_selection.select([0, 3, 0], 150, 40, 8, ())
    assert diverged == {"PC, mu = 1": True, "PL, mu = 1": True}
    assert not any(any(diverged.values()) for _, diverged in draws)


def selection_numbers(rbr_shares, iht_shares, **more):
    sizes = [200, 1400, 2000]
    shares = {name: rbr_shares for name in feature_selection.RBR} | {"IHT": iht_shares} | more
    return {
        "n_rows": sizes,
        "absent": ["LightGBM"],
        "share_found": {name: [[share, share] for share in row] for name, row in shares.items()},
        "share_diverged": {"PC, mu = 1": [1.0, 0.0, 0.0]},
    }


@pytest.mark.parametrize(
    ("rbr_shares", "iht_shares", "expected"),
    [
        ([0.5, 0.8, 0.9], [0.4, 0.6, 0.7], ["yes", "yes", "yes"]),
        ([0.5, 0.7, 0.9], [0.6, 0.6, 0.6], ["partly", "partly", "no"]),
        ([0.5, 0.5, 0.5], [0.6, 0.6, 0.6], ["no", "no", "no"]),
    ],
)
def test_feature_selection_is_judged_by_its_rules(rbr_shares, iht_shares, expected):
    numbers = selection_numbers(rbr_shares, iht_shares)
    assert verdicts(feature_selection, numbers) == expected
    (claim, *_) = feature_selection.judge(numbers)
    assert "LightGBM is not in the comparison: lightgbm is not installed." in claim.notes
    assert any("PC, mu = 1: 100% at n = 200" in note for note in claim.notes)
    unit = selection_numbers(rbr_shares, iht_shares, **{"PC, mu = 1": [0.1, 0.2, 1.0]})
    assert feature_selection.judge(unit)[1].measured.endswith("; PC, mu = 1 at 33%")
    figure = drawn(feature_selection, selection_numbers(rbr_shares, iht_shares, LightGBM=iht_shares))
    lines = {line.get_label() for axes in figure.axes for line in axes.lines}
    assert {"PC, searched step", "IHT", "LightGBM"} <= lines and "group lasso" not in lines


def test_the_searched_step_has_the_lowest_training_loss():
    data = make_planted(150, 40, 8, random_state=0)
    _, design = paper_fit.binned(data.X)
    best, halvings = paper_fit.searched_algorithm1(design, data.y, "PC", 8)
    losses = [paper_fit.algorithm1(design, data.y, "PC", 8, halvings=k).loss for k in range(paper_fit.HALVINGS + 1)]
    assert best.loss == min(losses) == losses[halvings] < losses[0]
    assert paper_fit.algorithm1(design, data.y, "PC", 8).step_size == 1.0
    assert len(best.support) <= 8


@pytest.mark.parametrize("peer", ["lightgbm", "skglm"])
def test_peers_select_strong_planted_features(peer):
    pytest.importorskip(peer)
    data = make_planted(600, 15, 3, equal_strength=True, random_state=1)
    if peer == "lightgbm":
        found = peers.lightgbm_selection(data.X, data.y, 3, seed=0)
    else:
        found = peers.group_lasso_selection(paper_fit.binned(data.X)[1], data.y, 3)
    assert sorted(found) == data.support.tolist()


def test_rbr_beats_iht_on_planted_labels():
    has_xgboost = peers.installed("XGBoost")
    draws = [planted_roc.compare([0, 4, k], 1000, 30, 5, has_xgboost) for k in range(3)]
    numbers = through_json({"methods": roc.collected(draws), "absent": [] if has_xgboost else ["XGBoost"]})
    for name in planted_roc.RBR:
        assert roc.difference(numbers["methods"], name, "IHT")[0] > planted_roc.SUBSTANTIAL
    assert len(verdicts(planted_roc, numbers)) == 1
    figure = drawn(planted_roc, numbers)
    assert len(figure.legends[0].get_texts()) == len(numbers["methods"])


def roc_numbers(**auc):
    """Three splits whose AUCs differ a little."""
    return {
        "methods": {
            name.replace("_", " ").replace("PC", "RBR-PC, Algorithm 1").replace("PL", "RBR-PL, Algorithm 1"): {
                "auc": [value - 0.001, value, value + 0.001],
                "tpr": [0.5] * len(roc.GRID),
                "tpr_error": [0.0] * len(roc.GRID),
            }
            for name, value in auc.items()
        },
        "absent": [],
        "n_rows": 100,
        "n_columns": 5,
        "n_repeated": 0,
        "n_rows_in_all": 100,
    }


@pytest.mark.parametrize(
    ("pc", "pl", "xgboost", "verdict"),
    [(0.95, 0.96, 0.91, "yes"), (0.92, 0.96, 0.91, "partly"), (0.90, 0.96, 0.91, "no")],
)
def test_planted_roc_is_judged_by_both_rivals(pc, pl, xgboost, verdict):
    assert verdicts(planted_roc, roc_numbers(PC=pc, PL=pl, IHT=0.7, XGBoost_10_x_6=xgboost)) == [verdict]


@pytest.mark.parametrize(
    ("pc", "pl", "iht", "xgboost", "expected"),
    [
        (0.90, 0.91, 0.85, 0.915, ["yes", "yes"]),
        (0.95, 0.95, 0.85, 0.90, ["yes", "yes"]),
        (0.87, 0.90, 0.86, 0.915, ["partly", "partly"]),
        (0.80, 0.80, 0.85, 0.90, ["no", "no"]),
    ],
)
def test_real_tables_are_judged_by_their_rules(pc, pl, iht, xgboost, expected):
    numbers = roc_numbers(PC=pc, PL=pl, IHT=iht, XGBoost_10_x_6=xgboost)
    assert verdicts(hr_roc, numbers) == expected == verdicts(adult_roc, numbers)
    del numbers["methods"]["XGBoost 10 x 6"]
    assert verdicts(hr_roc, numbers) == ["not run", expected[1]]


def test_roc_is_scikit_learns():
    rng = np.random.default_rng(0)
    y, score = rng.integers(0, 2, 200), rng.normal(size=200)
    found = roc.roc(y, score + y)
    assert found["auc"] == roc_auc_score(y, score + y)
    assert np.trapezoid(found["tpr"], roc.GRID) == pytest.approx(found["auc"], abs=0.01)
    assert found["tpr"][-1] == 1 and (np.diff(found["tpr"]) >= 0).all()


def test_one_hot_gives_every_level_a_column_and_missing_values_too():
    frame = pd.DataFrame(
        {"colour": pd.Categorical(["red", None, "blue", "red"]), "x": [1.0, 2.0, 3.0, 4.0], "k": [7, 7, 8, 8]}
    )
    X = real_roc.one_hot(frame, ["x"])
    np.testing.assert_array_equal(X, [[1, 1, 0, 0, 1, 0], [2, 0, 1, 0, 1, 0], [3, 0, 0, 1, 0, 1], [4, 1, 0, 0, 0, 1]])


def test_the_readings_are_the_papers_counts():
    assert len(hr_roc.READING.continuous) == 3 and len(HR_COLUMNS) - 1 - 3 == 6
    assert len(adult_roc.READING.continuous) == 5 and len(ADULT_COLUMNS) - 1 - 5 == 9
    assert set(hr_roc.READING.continuous) <= set(HR_COLUMNS)
    assert set(adult_roc.READING.continuous) <= set(ADULT_COLUMNS)


def hump_table(n_rows=600):
    """A table whose target depends on the distance of a number from zero, and on a category."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=n_rows), "noise": rng.normal(size=n_rows)})
    frame["colour"] = pd.Categorical(rng.choice(["red", "green", "blue"], n_rows))
    signal = 3 * np.abs(frame["x"]) + 1.5 * (frame["colour"] == "red") - 3
    return Table(frame, (signal + rng.logistic(size=n_rows) > 0).to_numpy(np.int64), ("no", "yes"), "hump")


def test_real_roc_puts_rbr_before_iht_where_there_is_a_hump(monkeypatch):
    monkeypatch.setattr(real_roc, "QUICK_ROWS", 500)
    reading = real_roc.Reading(("x", "noise"), "two numbers.")
    numbers = through_json(real_roc.measure_table(Setting(quick=True), hump_table(), reading, 5, n_splits=2))
    assert numbers["n_rows"] == 500 and numbers["n_rows_in_all"] == 600 and numbers["n_columns"] == 5
    methods = numbers["methods"]
    for name in (*real_roc.RBR, "RBR, our defaults"):
        assert roc.difference(methods, name, "IHT")[0] > 0.1, name
    (_, against_iht) = real_roc.judge_table(numbers, reading, "hump")
    assert against_iht.holds == "yes" and "two numbers." in against_iht.notes[0]
    assert len(drawn(hr_roc, numbers).axes) == 2


@pytest.mark.parametrize("module", [hr_roc, adult_roc])
def test_without_data_the_real_tables_are_not_run(module, tmp_path):
    with pytest.raises(NotRun, match=r"does not exist; the .csv.gz files in that folder: none"):
        module.measure(Setting(data=tmp_path))


def test_offline_adult_is_not_run(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.delenv("RBR_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", offline)
    with pytest.raises(NotRun, match="could not download the Adult table"):
        adult_roc.measure(Setting())
    with pytest.raises(NotRun, match="no public address"):
        hr_roc.measure(Setting())


@pytest.mark.long
def test_map_is_the_same_on_two_processes():
    tasks = [([0, 3, k], 200, 12, 3, ()) for k in range(3)]
    seen = []
    alone = Setting(progress=lambda done, total: seen.append((done, total))).map(feature_selection.select, tasks)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert Setting(jobs=2).map(feature_selection.select, tasks) == alone
