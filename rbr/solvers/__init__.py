"""The solvers: Algorithm 1 of the paper, and the default one, which reaches the same kind of point faster.

One fit, from top to bottom: `solve` (api.py) makes a `Problem` (problem.py), chooses where to begin (start.py) and
runs a solver (algorithm1.py, auto.py). The default one proposes pieces by a proximal step (screening.py reads the
gradient's columns for it), refits them by Newton's method (refit.py, in the coordinates of space.py), accepts what
lowers the objective, and tries single moves (moves.py). `solve` returns a `Solution` (solution.py).
All of them access the data through an `rbr.objective.Objective`, and pieces through `rbr.constraints.BoundConstraints`.
"""

from rbr.solvers.api import SOLVERS, solve
from rbr.solvers.solution import Iteration, Solution

__all__ = ["SOLVERS", "Iteration", "Solution", "solve"]
