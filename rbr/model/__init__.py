"""The fitted model: an immutable value with predictions, explanations, plots, edits, files and exports."""

from rbr.model.additive import AdditiveModel, Importance
from rbr.model.terms import Jump, Piece, Record, Term

__all__ = ["AdditiveModel", "Importance", "Jump", "Piece", "Record", "Term"]
