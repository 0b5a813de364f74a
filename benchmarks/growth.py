"""How our time grows with the number of features and of tasks: the exponent of a power law over x1, x2, x4."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from peers import OURS
from timing import compare
from workloads import Case

FACTORS = (1, 2, 4)


def exponent(factors: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log seconds on log factors, by least squares."""
    return float(np.polyfit(np.log(factors), np.log(seconds), 1)[0])


def measure_growth(case: Case, axis: str, seeds: Sequence[int], **settings: Any) -> dict[str, Any]:
    """Median CPU seconds over seeds at every factor of "n_features" or "n_tasks", and their exponent."""
    quick = settings.pop("quick")
    seconds, status = [], "certified"
    for factor in FACTORS:
        entries = [
            compare(case.problem(seed, quick=quick, factors={axis: factor}), seed, [OURS], **settings)[0]
            for seed in seeds
        ]
        seconds.append(median(entry.cpu for entry in entries))
        if any(entry.status != "certified" for entry in entries):
            status = f"not certified at x{factor}"
    slope = exponent(FACTORS, seconds) if np.isfinite(seconds).all() else float("nan")
    return {"case": case.name, "axis": axis, "cpu": seconds, "exponent": slope, "status": status}
