"""Plots of fits: each function takes a fit from any route, draws on given or new axes, and returns them.

Large fits stay readable: only the top rows are shown, and the title says how many there are.
"""

from bayesmtfs.plots.effects import effects
from bayesmtfs.plots.fits import (
    coefficient_heatmap,
    compare_coefficients,
    norm_q,
    predictive_check,
    row_norms,
    selection_frequency,
    task_relations,
)
from bayesmtfs.plots.paths import objective_trace, online_progress, regularisation_path
from bayesmtfs.plots.sharing import credible_sets, entry_probability, patterns

__all__ = [
    "coefficient_heatmap",
    "compare_coefficients",
    "credible_sets",
    "effects",
    "entry_probability",
    "norm_q",
    "objective_trace",
    "online_progress",
    "patterns",
    "predictive_check",
    "regularisation_path",
    "row_norms",
    "selection_frequency",
    "task_relations",
]
