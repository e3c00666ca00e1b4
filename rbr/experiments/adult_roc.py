"""Item 6: ROC curves on Adult, where the paper counts five continuous and nine categorical features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rbr.datasets import load_adult
from rbr.experiments import real_roc
from rbr.experiments.item import Claim, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

READING = real_roc.Reading(
    continuous=("age", "fnlwgt", "capital_gain", "capital_loss", "hours_per_week"),
    note="the paper counts five continuous and nine categorical features and 32560 rows, the publisher's training part "
    "has six columns of numbers and eight of text and 32561 rows: education_num, a code of education, was read as a "
    "category in the fits with one-hot columns.",
)
TITLE = "Adult"


def measure(setting: Setting) -> dict[str, Any]:
    table = real_roc.load_or_not_run(load_adult, setting.data)
    return real_roc.measure_table(setting, table, READING, number=6, n_splits=setting.pick(5, 2))


def judge(numbers: dict[str, Any]) -> list[Claim]:
    return real_roc.judge_table(numbers, READING, TITLE)


def draw(numbers: dict[str, Any], figure: Figure) -> None:
    real_roc.draw_table(numbers, figure, "Adult: who earns more than 50,000?", zoom=0.4)
