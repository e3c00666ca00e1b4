"""Item 5: ROC curves on HR, where the paper counts three continuous and six categorical features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rbr.datasets import load_hr
from rbr.experiments import real_roc
from rbr.experiments.item import Claim, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

READING = real_roc.Reading(
    continuous=("satisfaction_level", "last_evaluation", "average_monthly_hours"),
    note="the paper counts three continuous and six categorical features without naming them: read as continuous were "
    "satisfaction_level, last_evaluation and average_monthly_hours, as categories number_project, years_at_company, "
    "work_accident, promotion_last_5years, department and salary.",
)
TITLE = "HR"


def measure(setting: Setting) -> dict[str, Any]:
    table = real_roc.load_or_not_run(load_hr, setting.data)
    return real_roc.measure_table(setting, table, READING, number=5, n_splits=setting.pick(10, 2))


def judge(numbers: dict[str, Any]) -> list[Claim]:
    return real_roc.judge_table(numbers, READING, TITLE)


def draw(numbers: dict[str, Any], figure: Figure) -> None:
    real_roc.draw_table(numbers, figure, "HR: who leaves?", zoom=0.2)
