"""The objective: a loss over a binned table, as a solver sees it. The only room that knows rows.

`Objective` is the protocol: everything that is asked and answered has the size of the tables, and no row, no code and
no target crosses it. `RowObjective` answers from rows in memory, in one block or in several; `GramObjective` answers
for squared error from a cross-tabulation. `make_objective` checks what a user gave and builds the first.
"""

from rbr.objective.gram import GramObjective, GramSums
from rbr.objective.make import make_objective
from rbr.objective.protocol import Accuracy, Groups, Handle, Hessian, Objective, Point, Tables, Work
from rbr.objective.rows import RowBlock, RowObjective

__all__ = [
    "Accuracy",
    "GramObjective",
    "GramSums",
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
