"""The fitted model: an immutable value with predictions, explanations, plots, edits, files and exports."""

from rbr.model.additive import AdditiveModel, Importance
from rbr.model.pairs import Axis, PairTerm, Rectangle
from rbr.model.terms import Jump, Piece, Record, Term

__all__ = ["AdditiveModel", "Axis", "Importance", "Jump", "PairTerm", "Piece", "Record", "Rectangle", "Term"]
