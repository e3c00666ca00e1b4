"""The objective: a loss over a binned table, as a solver sees it. Solvers see rows only through this package.

`Objective` is the protocol: its arguments and results have the size of the tables, and no row, code or target passes
through it. `RowObjective` implements it for rows in memory, in one block or in several; `GramObjective` implements it
for squared error from a cross-tabulation. `make_objective` checks a user's arguments and builds a `RowObjective`.
"""

from rbr.objective.gram import GramObjective, GramSums
from rbr.objective.hessians import GroupHessian
from rbr.objective.make import make_objective
from rbr.objective.protocol import Accuracy, Groups, Handle, Hessian, Objective, Point, Tables, Work
from rbr.objective.rows import RowBlock, RowObjective

__all__ = [
    "Accuracy",
    "GramObjective",
    "GramSums",
    "GroupHessian",
    "Groups",
    "Handle",
    "Hessian",
    "Objective",
    "Point",
    "RowBlock",
    "RowObjective",
    "Tables",
    "Work",
    "make_objective",
]
