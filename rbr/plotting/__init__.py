"""Pictures, with matplotlib, which is imported only when one is drawn: a model's terms, and curves over rows."""

from rbr.plotting.figures import Curve, plot_curves, plot_model, step_edges

__all__ = ["Curve", "plot_curves", "plot_model", "step_edges"]
