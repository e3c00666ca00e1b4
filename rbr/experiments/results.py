"""RESULTS.md: every claim of the paper compared with what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rbr.experiments.item import Item
    from rbr.experiments.run import Outcome

HEADER = "| claim in the paper | what we measured | holds? |\n| --- | --- | --- |"


def results_page(
    outcomes: Sequence[Outcome], absent: Sequence[Item], command: str, no_pictures: str | None, quick: bool = False
) -> str:
    """The whole page. `absent` are the items that were not requested and whose numbers the folder does not hold."""
    footnotes: list[str] = []
    rows = [
        f"| {outcome.item.number}. {_cell(claim.paper)} | {_cell(claim.measured)}{_marks(claim.notes, footnotes)} "
        f"| {claim.holds} |"
        for outcome in outcomes
        for claim in outcome.claims
    ]
    parts = [
        "# The paper, measured again",
        "Oymak, Mahdavi, Chen: Learning Feature Nonlinearities with Non-Convex Regularized Binned Regression, 2017. "
        "Claims are in our words; the number is that of the item, whose numbers and picture follow below. The last "
        "column is yes, no, partly or not run; the rule of each verdict stands in the item's module, in "
        "rbr/experiments.",
        f"Made by\n\n    {command}\n\nwith {_versions(outcomes)}.",
        "\n".join([HEADER, *rows]),
    ]
    if quick:
        parts.insert(2, "**A quick run**: sizes are small, and verdicts may differ from those of a full one.")
    if absent:
        parts.append("Not asked for: " + ", ".join(f"{item.number}. {item.title}" for item in absent) + ".")
    if no_pictures:
        parts.append(f"No pictures: {no_pictures}.")
    parts += [_section(outcome) for outcome in outcomes]
    if footnotes:
        parts.append("\n".join(f"[^{i}]: {note}" for i, note in enumerate(footnotes, 1)))
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    """The text on one line, with bars escaped so that they do not end the cell."""
    return " ".join(text.split()).replace("|", r"\|")


def _marks(notes: Sequence[str], footnotes: list[str]) -> str:
    """The footnote marks of the notes; a note that occurs several times has one footnote."""
    marks = []
    for note in notes:
        note = " ".join(note.split())
        if note not in footnotes:
            footnotes.append(note)
        marks.append(f"[^{footnotes.index(note) + 1}]")
    return "".join(marks)


def _versions(outcomes: Sequence[Outcome]) -> str:
    """Each package with its version, or with several if items were measured with different ones."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        for name, number in outcome.versions.items():
            numbers = found.setdefault(name, [])
            if number not in numbers:
                numbers.append(number)
    return ", ".join(f"{name} {' and '.join(numbers)}" for name, numbers in found.items()) or "nothing measured"


def _section(outcome: Outcome) -> str:
    item = outcome.item
    lines = [f"## {item.number}. {item.title}"]
    if outcome.seconds is None:
        lines.append("Not run: " + " ".join(" ".join(claim.notes) for claim in outcome.claims))
    else:
        lines.append(f"[Numbers]({item.stem}.json), measured in {outcome.seconds:g} s.")
    if outcome.has_picture:
        lines.append(f"![{item.title}]({item.stem}.png)")
    return "\n\n".join(lines)
