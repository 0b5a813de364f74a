"""Bayesian and penalised multi-task feature selection.

A method is a likelihood x a prior on the rows of W + a route. Everything here is loaded on first use, so that a
penalised fit waits neither for PyMC nor for matplotlib.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bayesmtfs.public_names import HOMES, MODULES

if TYPE_CHECKING:
    from bayesmtfs import families, models, plots, selection
    from bayesmtfs.data import moments
    from bayesmtfs.data.simulation import simulate_tasks
    from bayesmtfs.data.tasks import TaskData
    from bayesmtfs.estimators.base import load
    from bayesmtfs.estimators.bayesian import BayesianClassifier, BayesianRegressor
    from bayesmtfs.estimators.discriminative import DiscriminativeSelector
    from bayesmtfs.estimators.em import (
        GeneralizedNormalClassifier,
        GeneralizedNormalRegressor,
        JeffreysClassifier,
        JeffreysRegressor,
        MatrixVariateClassifier,
        MatrixVariateRegressor,
    )
    from bayesmtfs.estimators.online import OnlineMixedNormClassifier, OnlineMixedNormRegressor
    from bayesmtfs.estimators.path import mixed_norm_path
    from bayesmtfs.estimators.penalised import MixedNormClassifier, MixedNormRegressor
    from bayesmtfs.estimators.penalised_cv import MixedNormClassifierCV, MixedNormRegressorCV
    from bayesmtfs.estimators.smoothed import (
        OnlineSmoothedClassifier,
        OnlineSmoothedRegressor,
        SmoothedClassifier,
        SmoothedRegressor,
    )
    from bayesmtfs.papers import baselines, datasets
    from bayesmtfs.reporting import report
    from bayesmtfs.results.fit_result import FitResult
    from bayesmtfs.selection.comparison import compare

__version__ = "0.1.0"

__all__ = [
    "BayesianClassifier",
    "BayesianRegressor",
    "DiscriminativeSelector",
    "FitResult",
    "GeneralizedNormalClassifier",
    "GeneralizedNormalRegressor",
    "JeffreysClassifier",
    "JeffreysRegressor",
    "MatrixVariateClassifier",
    "MatrixVariateRegressor",
    "MixedNormClassifier",
    "MixedNormClassifierCV",
    "MixedNormRegressor",
    "MixedNormRegressorCV",
    "OnlineMixedNormClassifier",
    "OnlineMixedNormRegressor",
    "OnlineSmoothedClassifier",
    "OnlineSmoothedRegressor",
    "SmoothedClassifier",
    "SmoothedRegressor",
    "TaskData",
    "baselines",
    "compare",
    "datasets",
    "families",
    "load",
    "mixed_norm_path",
    "models",
    "moments",
    "plots",
    "report",
    "selection",
    "simulate_tasks",
]


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return importlib.import_module(f"bayesmtfs.{name}")
    if name in HOMES:
        return getattr(importlib.import_module(HOMES[name]), name)
    raise AttributeError(f"module 'bayesmtfs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *MODULES, *HOMES])
