"""Plots of a model's terms and of curves over rows. Matplotlib is imported only when one is drawn."""

from rbr.plotting.figures import Curve, plot_curves, plot_model, step_edges

__all__ = ["Curve", "plot_curves", "plot_model", "step_edges"]
