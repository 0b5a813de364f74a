"""Plots of fits: each function takes a fit from any route, draws on given or new axes, and returns them.

Large fits stay readable: only the top rows are shown, and the title says how many there are.
"""

from bayesmtfs.plots.coefficients import coefficient_heatmap, compare_coefficients, row_norms
from bayesmtfs.plots.paths import objective_trace, online_progress, regularisation_path
from bayesmtfs.plots.posterior import norm_q, predictive_check, selection_frequency, task_relations

__all__ = [
    "coefficient_heatmap",
    "compare_coefficients",
    "norm_q",
    "objective_trace",
    "online_progress",
    "predictive_check",
    "regularisation_path",
    "row_norms",
    "selection_frequency",
    "task_relations",
]
