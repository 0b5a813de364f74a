"""Picture of a comparison of selectors: a measure over the number of features."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np


def draw(found: Any, measure: str, ax: Any) -> Any:
    """Draw one line per selector, with a band of one standard error, and the rate of the majority class.

    Parameters
    ----------
    found : SelectorBenchmark
    measure : column of its records
    ax : axes, or None for a new figure
    """
    if ax is None:
        ax = plt.figure(figsize=(6.0, 4.0), layout="constrained").add_subplot()
    sizes = sorted({record.k for record in found.records if not record.chosen})
    for name in found.selectors:
        values = np.array([found.values(name, k, measure) for k in sizes])
        mean = values.mean(axis=1)
        (line,) = ax.plot(sizes, mean, marker="o", label=name)
        if values.shape[1] > 1:
            error = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
            ax.fill_between(sizes, mean - error, mean + error, color=line.get_color(), alpha=0.15)
    if measure == "accuracy":
        majority = np.mean([record.majority_rate for record in found.records])
        ax.axhline(majority, color="grey", linestyle=":", label="majority class")
    ax.set_xscale("log")
    ax.set_xlabel("number of features")
    ax.set_ylabel(measure.replace("_", " "))
    ax.legend()
    return ax
