"""Bayesian and penalised multi-task feature selection.

A method is a likelihood x a prior on the rows of W + a route. Everything here is loaded on first use, so that a
penalised fit waits neither for PyMC nor for matplotlib.
"""

import importlib
from typing import TYPE_CHECKING, Any

from bayesmtfs.public_names import HOMES, MODULES

if TYPE_CHECKING:
    from bayesmtfs import families as families
    from bayesmtfs import models as models
    from bayesmtfs import plots as plots
    from bayesmtfs import selection as selection
    from bayesmtfs.data import moments as moments
    from bayesmtfs.data.simulation import simulate_tasks as simulate_tasks
    from bayesmtfs.data.tasks import TaskData as TaskData
    from bayesmtfs.estimators.base import load as load
    from bayesmtfs.estimators.bayesian import BayesianClassifier as BayesianClassifier
    from bayesmtfs.estimators.bayesian import BayesianRegressor as BayesianRegressor
    from bayesmtfs.estimators.discriminative import DiscriminativeSelector as DiscriminativeSelector
    from bayesmtfs.estimators.em import GeneralizedNormalClassifier as GeneralizedNormalClassifier
    from bayesmtfs.estimators.em import GeneralizedNormalRegressor as GeneralizedNormalRegressor
    from bayesmtfs.estimators.em import JeffreysClassifier as JeffreysClassifier
    from bayesmtfs.estimators.em import JeffreysRegressor as JeffreysRegressor
    from bayesmtfs.estimators.em import MatrixVariateClassifier as MatrixVariateClassifier
    from bayesmtfs.estimators.em import MatrixVariateRegressor as MatrixVariateRegressor
    from bayesmtfs.estimators.online import OnlineMixedNormClassifier as OnlineMixedNormClassifier
    from bayesmtfs.estimators.online import OnlineMixedNormRegressor as OnlineMixedNormRegressor
    from bayesmtfs.estimators.path import mixed_norm_path as mixed_norm_path
    from bayesmtfs.estimators.penalised import MixedNormClassifier as MixedNormClassifier
    from bayesmtfs.estimators.penalised import MixedNormRegressor as MixedNormRegressor
    from bayesmtfs.estimators.penalised_cv import MixedNormClassifierCV as MixedNormClassifierCV
    from bayesmtfs.estimators.penalised_cv import MixedNormRegressorCV as MixedNormRegressorCV
    from bayesmtfs.estimators.smoothed import OnlineSmoothedClassifier as OnlineSmoothedClassifier
    from bayesmtfs.estimators.smoothed import OnlineSmoothedRegressor as OnlineSmoothedRegressor
    from bayesmtfs.estimators.smoothed import SmoothedClassifier as SmoothedClassifier
    from bayesmtfs.estimators.smoothed import SmoothedRegressor as SmoothedRegressor
    from bayesmtfs.papers import baselines as baselines
    from bayesmtfs.papers import datasets as datasets
    from bayesmtfs.reporting import report as report
    from bayesmtfs.results.fit_result import FitResult as FitResult
    from bayesmtfs.selection.comparison import compare as compare

__version__ = "0.1.0"

__all__ = sorted([*MODULES, *HOMES])


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return importlib.import_module(f"bayesmtfs.{name}")
    if name in HOMES:
        return getattr(importlib.import_module(HOMES[name]), name)
    raise AttributeError(f"module 'bayesmtfs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
