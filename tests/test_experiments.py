"""The runner of the experiments keeps, resumes and reports; the items measure what they say."""

import io
import json
import re
import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import rbr
from rbr import cli
from rbr.experiments import run
from rbr.experiments.item import Claim, Item, NotRun, Setting
from rbr.experiments.items import ITEMS
from rbr.experiments.run import kept_record, run_items

# ---------------------------------------------------------------- items made for the tests


@dataclass(frozen=True, eq=False)
class FakeItem(Item):
    """An item whose three functions are given, and which counts how often it was measured."""

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
    """A measurement that counts its calls and does what it is told."""

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
    """Make the given items the list of all items, and run them."""

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
    assert "Interrupted during item 2" in printed and "The same command goes on from there" in printed
    assert [row[2] for row in rows(tmp_path)] == ["yes", "not run", "not run"]
    assert not list(tmp_path.glob("02*")) and not list(tmp_path.glob(".*"))
    interrupting.error = None
    code, _ = fakes(items, tmp_path)
    assert code == 0 and [item.measure.calls for item in items] == [1, 2, 1]
    assert [row[2] for row in rows(tmp_path)] == ["yes", "yes", "yes"]


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
    assert fakes(items, tmp_path)[0] == 0  # a failure is not kept
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
    clock = run.Clock(items, 1, io.StringIO(), now=lambda: next(time))
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
