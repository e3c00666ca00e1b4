"""The runner: measures the items that have not been measured yet, judges and draws them, and writes the results.

The folder holds STEM.json (the numbers, and the setting that made them) and STEM.png for every item, and one RESULTS.md
for all of them. An item whose numbers are there for the same setting is not measured again, so that an interrupted run
can be continued. Judging and drawing see only what was read back from JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO, get_args

import numpy as np

import rbr
from rbr._arguments import whole_number
from rbr.experiments.item import Claim, Item, NotRun, Setting, Verdict
from rbr.experiments.items import ITEMS
from rbr.experiments.results import results_page

VERDICTS = get_args(Verdict)
DEFAULT_FOLDER = "rbr-experiments"
# The versions of these are recorded if they are installed.
PACKAGES = ("numpy", "scipy", "scikit-learn", "xgboost", "lightgbm", "interpret-core", "skglm")
INTERRUPTED = 130
# A quick run takes about this share of the time of a full one.
QUICK_SHARE = 0.05
DPI = 110
MARGIN = 0.08  # inches


@dataclass(frozen=True)
class Outcome:
    """The result of one item: its claims, or one claim that says why it was not run; `failed` is the error, if any."""

    item: Item
    claims: tuple[Claim, ...]
    seconds: float | None = None
    versions: dict[str, str] = field(default_factory=dict)
    has_picture: bool = False
    failed: str = ""


# ---------------------------------------------------------------- the command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `rbr experiments`."""
    parser.add_argument("--quick", action="store_true", help="small sizes: two minutes in all, to see that all works")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="ITEM",
        type=parse_items,
        help="items by number, name or range of numbers: 3, one_curve, 1-6; default: all",
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, help="default: %(default)s")
    parser.add_argument("--jobs", type=whole_number(1), default=1, help="processes to work on; default: %(default)s")
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        help="where adult.csv.gz and hr.csv.gz are; default: the environment variable RBR_DATA",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", default=DEFAULT_FOLDER, help="where results are written; default: %(default)s"
    )
    parser.add_argument("--fresh", action="store_true", help="measure again what the folder already holds")


def parse_items(text: str) -> list[Item]:
    """The items that a number, a name or a range of numbers stands for.

    Examples
    --------
    >>> from rbr.experiments.run import parse_items
    >>> [item.name for item in parse_items("2-3")], parse_items("one-curve")[0].number
    (['planted_curves', 'feature_selection'], 1)
    """
    wanted = text.strip().lower().replace("_", "-")
    first, _, last = wanted.partition("-")
    if first.isdigit() and (last.isdigit() or not last):
        found = [item for item in ITEMS if int(first) <= item.number <= int(last or first)]
    else:
        found = [item for item in ITEMS if wanted in (item.name.replace("_", "-"), item.stem)]
    if not found:
        allowed = ", ".join(f"{item.number} {item.name}" for item in ITEMS)
        raise argparse.ArgumentTypeError(f"{text!r} is not an item; the items are {allowed}")
    return found


def run(arguments: argparse.Namespace) -> int:
    """Run what the command line asks for, and return the exit code: 1 if an item failed, 130 if interrupted."""
    asked = {item.number for group in arguments.only for item in group} if arguments.only else None
    return run_items(
        [item for item in ITEMS if asked is None or item.number in asked],
        Setting(
            quick=arguments.quick,
            seed=arguments.seed,
            jobs=arguments.jobs,
            data=None if arguments.data is None else Path(arguments.data),
        ),
        Path(arguments.out),
        fresh=arguments.fresh,
    )


def command_of(setting: Setting, out: str = "FOLDER", items: Iterable[Item] = ()) -> str:
    """The command line that reproduces these results, with placeholders for the folders."""
    words = ["rbr", "experiments"]
    words += ["--quick"] if setting.quick else []
    numbers = [str(item.number) for item in items]
    words += ["--only", *numbers] if numbers else []
    words += ["--seed", str(setting.seed), "--jobs", str(setting.jobs)]
    words += ["--data", "DATA"] if setting.data is not None else []
    return shlex.join([*words, "--out", out])


# ---------------------------------------------------------------- all items


def run_items(
    items: Sequence[Item],
    setting: Setting,
    folder: Path,
    *,
    fresh: bool = False,
    stream: TextIO | None = None,
) -> int:
    """Measure, judge and draw the items into the folder, and write its RESULTS.md.

    RESULTS.md also includes items that were not requested, if the folder holds their numbers for the same setting.
    """
    stream = stream or sys.stdout
    if folder.exists() and not folder.is_dir():
        print(f"rbr experiments: --out is {str(folder)!r}, a file; it must be a folder", file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    no_pictures = why_no_pictures()
    if no_pictures:
        print(f"No pictures will be drawn: {no_pictures}. All else is done.", file=stream)
    to_measure = [item for item in items if fresh or kept_record(item, setting, folder) is None]
    clock = Clock(to_measure, setting.pick(1.0, QUICK_SHARE) / setting.jobs, stream)
    outcomes, interrupted = {}, None
    for item in items:
        try:
            if item in to_measure:
                with reraise_dropped_interrupts(clock):
                    outcome = _measured(item, setting, folder, clock)
            else:
                print(f"{item.number:2d} {item.title}: kept from an earlier run", file=stream)
                outcome = _concluded(item, kept_record(item, setting, folder), folder)
        except KeyboardInterrupt:
            interrupted = item
            break
        if outcome.failed:
            print(f"   failed: {outcome.failed}", file=stream)
        outcomes[item.number] = outcome
    for item in ITEMS:
        record = None if item.number in outcomes else kept_record(item, setting, folder)
        if record is not None:
            outcomes[item.number] = _concluded(item, record, folder)
    unfinished = [item for item in items if item.number not in outcomes]
    for item in unfinished:
        outcomes[item.number] = Outcome(item, (_not_run(item, "the run was interrupted before it was measured"),))
    outcomes = [outcomes[number] for number in sorted(outcomes)]
    absent = [item for item in ITEMS if item.number not in {outcome.item.number for outcome in outcomes}]
    # If some items are absent, the command names those that the page shows.
    named = [outcome.item for outcome in outcomes] if absent else []
    page = results_page(outcomes, absent, command_of(setting, items=named), no_pictures, setting.quick)
    write_whole(folder / "RESULTS.md", page.encode())
    if interrupted:
        finished = [str(outcome.item.number) for outcome in outcomes if outcome.item not in unfinished]
        print(
            f"\nInterrupted during item {interrupted.number}. Finished items, kept in {folder}: "
            f"{', '.join(finished) or 'none'}. The same command, without --fresh, goes on from there.",
            file=stream,
        )
        return INTERRUPTED
    _summarize(outcomes, folder, stream)
    return 1 if any(outcome.failed for outcome in outcomes) else 0


def _summarize(outcomes: Sequence[Outcome], folder: Path, stream: TextIO) -> None:
    verdicts = [claim.holds for outcome in outcomes for claim in outcome.claims]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts)
    print(f"{len(verdicts)} claims ({counts}): {folder / 'RESULTS.md'}", file=stream)


# ---------------------------------------------------------------- one item


def _measured(item: Item, setting: Setting, folder: Path, clock: Clock) -> Outcome:
    """Measure the item, save its numbers, judge and draw. The files of an earlier run stay until it is measured."""
    file = folder / f"{item.stem}.json"
    record = {**setting_record(item, setting), "title": item.title, "versions": versions()}
    clock.begin(item)
    try:
        numbers = plain(item.module.measure(replace(setting, progress=clock.progress)))
        seconds = clock.end("measured")
        text = json_text({**record, "seconds": round(seconds, 1), "numbers": numbers})
    except NotRun as reason:
        clock.end(f"not run: {reason}")
        _replace_record(file, json_text({**record, "not_run": str(reason)}))
        return Outcome(item, (_not_run(item, str(reason)),))
    except Exception as error:
        clock.end("failed")
        traceback.print_exc()
        _replace_record(file, json_text({**record, "failed": f"{type(error).__name__}: {error}"}))
        return _failure(item, error)
    _replace_record(file, text)
    return _concluded(item, json.loads(text), folder)


def _replace_record(file: Path, text: str) -> None:
    """Write the record, and remove a picture that was drawn from other numbers."""
    write_whole(file, text.encode())
    file.with_suffix(".png").unlink(missing_ok=True)


def _concluded(item: Item, record: dict[str, Any], folder: Path) -> Outcome:
    """Judge and draw the numbers of a record."""
    try:
        claims = tuple(checked_claim(claim) for claim in item.module.judge(record["numbers"]))
        if not claims:
            raise ValueError("judge returned no claims; it must return at least one")
        has_picture = why_no_pictures() is None
        if has_picture:
            draw_picture(item, record["numbers"], folder / f"{item.stem}.png")
    except Exception as error:
        traceback.print_exc()
        return _failure(item, error)
    return Outcome(item, claims, record["seconds"], record["versions"], has_picture)


def checked_claim(claim: Claim) -> Claim:
    """The claim, if its verdict is one of the four."""
    if claim.holds not in VERDICTS:
        raise ValueError(f"holds is {claim.holds!r} for the claim {claim.paper!r}; it must be one of {VERDICTS}")
    return claim


def _not_run(item: Item, reason: str) -> Claim:
    return Claim(item.title, "nothing", "not run", (reason,))


def _failure(item: Item, error: Exception) -> Outcome:
    said = f"{type(error).__name__}: {error}"
    return Outcome(item, (_not_run(item, f"failed with {said}"),), failed=said)


def why_no_pictures() -> str | None:
    """What to install if matplotlib is missing, else None."""
    from rbr.plotting.figures import import_figure

    try:
        import_figure()
    except ImportError as error:
        return str(error)
    return None


def draw_picture(item: Item, numbers: dict[str, Any], file: Path) -> None:
    """The item's picture as a PNG, written in one step."""
    import io

    from matplotlib.figure import Figure
    from PIL import Image

    # Built without pyplot, which would need a window system and keep global state.
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    figure.get_layout_engine().set(w_pad=MARGIN, h_pad=MARGIN)
    item.module.draw(numbers, figure)
    drawn, content = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    # A palette cuts the file to a third. Pillow does not write matplotlib's version into the file, so that the same
    # numbers give the same bytes.
    palette = {"method": Image.Quantize.MAXCOVERAGE, "dither": Image.Dither.NONE}
    Image.open(drawn).convert("RGB").quantize(256, **palette).save(content, "PNG", optimize=True)
    write_whole(file, content.getvalue())


# ---------------------------------------------------------------- saved records


def setting_record(item: Item, setting: Setting) -> dict[str, Any]:
    """The settings that the numbers of an item depend on; the number of processes is not one of them."""
    return {"item": item.name, "quick": setting.quick, "seed": setting.seed, "rbr": rbr.__version__}


def kept_record(item: Item, setting: Setting, folder: Path) -> dict[str, Any] | None:
    """The record of the item in the folder, if it holds numbers for this setting, else None."""
    try:
        record = json.loads((folder / f"{item.stem}.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    wanted = setting_record(item, setting)
    same = isinstance(record, dict) and "numbers" in record and wanted.items() <= record.items()
    return record if same else None


def versions() -> dict[str, str]:
    """The versions of Python, rbr and the installed packages that numbers may depend on."""
    found = {"python": platform.python_version(), "rbr": rbr.__version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def plain(value: Any, path: str = "numbers") -> Any:
    """The value as JSON holds it: NumPy's arrays and scalars become lists and numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from rbr.experiments.run import plain
    >>> plain({"auc": np.array([0.5, 1.0]), "n": np.int64(3)})
    {'auc': [0.5, 1.0], 'n': 3}
    >>> plain({"auc": [0.5, float("nan")]})
    Traceback (most recent call last):
        ...
    ValueError: numbers.auc[1] is nan; JSON has no such number, give None instead
    """
    if isinstance(value, dict):
        return {str(key): plain(entry, f"{path}.{key}") for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(entry, f"{path}[{i}]") for i, entry in enumerate(value)]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        raise ValueError(f"{path} is {value}; JSON has no such number, give None instead")
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise TypeError(f"{path} is of type {type(value).__name__}, which JSON does not hold")
    return value


def json_text(record: dict[str, Any]) -> str:
    """Strict JSON, with a line break after each list or object, so that a list of numbers takes one line."""
    return json.dumps(record, allow_nan=False, separators=(",", ":")).replace('],"', '],\n"').replace('},"', '},\n"')


def write_whole(file: Path, content: bytes) -> None:
    """Write the file atomically: an interruption leaves either the old file or the new one."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        draft.write_bytes(content)
        os.replace(draft, file)
    finally:
        draft.unlink(missing_ok=True)


# ---------------------------------------------------------------- time


@contextmanager
def reraise_dropped_interrupts(clock: Clock) -> Iterator[None]:
    """Raises a Ctrl-C that Python dropped, since it came in a callback that cannot raise, at the next progress."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def remember(signal_number, frame):
        clock.is_interrupted = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Clock:
    """Prints which item is running, how far it is, and about how long the rest takes.

    The estimate is the sum of the items' guesses, scaled by the ratio of actual to guessed time so far in this run.
    """

    def __init__(
        self, items: Sequence[Item], guess_scale: float, stream: TextIO, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.ahead = list(items)
        self.stream, self.now = stream, now
        self.is_live = getattr(stream, "isatty", lambda: False)()
        self.guess_scale = guess_scale
        self.guessed_done = 0.0
        self.spent = 0.0
        self.item: Item | None = None
        self.is_interrupted = False

    def begin(self, item: Item) -> None:
        self.ahead = [other for other in self.ahead if other is not item]
        self.item, self.started, self.last_said = item, self.now(), self.now()
        left = self.seconds_left(0.0)
        print(
            f"{item.number:2d} {item.title} ... (about {duration(left)} left in all)",
            file=self.stream,
            flush=True,
        )

    def seconds_left(self, share: float) -> float:
        """Estimated seconds for the rest of this item, of which `share` is done, and for the items after it."""
        elapsed = self.now() - self.started
        done = self.guessed_done + share * self.item.guess
        scale = (self.spent + elapsed) / done if done > 0 and self.spent + elapsed > 0 else self.guess_scale
        return scale * ((1 - share) * self.item.guess + sum(item.guess for item in self.ahead))

    def progress(self, done: int, total: int) -> None:
        """Print progress: on a terminal one line that is overwritten, elsewhere a line every half minute."""
        if self.is_interrupted:
            raise KeyboardInterrupt
        now = self.now()
        if not self.is_live and now - self.last_said < 30:
            return
        self.last_said = now
        text = f"   {done} of {total}, about {duration(self.seconds_left(done / total))} left in all"
        print(f"\r{text:<60}" if self.is_live else text, end="" if self.is_live else "\n", file=self.stream, flush=True)

    def end(self, how: str) -> float:
        """Print how the item ended, and return the seconds that it took."""
        seconds = self.now() - self.started
        if how == "measured":
            self.spent += seconds
            self.guessed_done += self.item.guess
        end_of_line = f"\r{'':<60}\r" if self.is_live else ""
        print(f"{end_of_line}   {how}, {duration(seconds)}", file=self.stream, flush=True)
        return seconds


def duration(seconds: float) -> str:
    """
    Examples
    --------
    >>> from rbr.experiments.run import duration
    >>> duration(3.2), duration(250), duration(7300)
    ('4 s', '4 min 10 s', '2 h 1 min')
    """
    whole = int(np.ceil(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
