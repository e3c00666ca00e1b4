"""The fitted model: a value that predicts, explains, is drawn, edited, saved and written in other languages."""

from rbr.model.additive import AdditiveModel, Importance
from rbr.model.terms import Jump, Piece, Record, Term

__all__ = ["AdditiveModel", "Importance", "Jump", "Piece", "Record", "Term"]
