"""What the papers compare with, and what users would otherwise run.

=============================  =============================================================================
name                           method
=============================  =============================================================================
`PassiveAggressiveClassifier`  PA-ITL; with ``pooled=True`` PA-ONE (and `PassiveAggressiveRegressor`)
`SharedLossClassifier`         OSGL, tasks that share the budget of a round's step
`FixedRelationsClassifier`     FOML, perceptrons with fixed relations
`LearnedRelationsClassifier`   OMTRL, perceptrons with relations learned from their weights
`IndependentClassifier`        ITL, one ridge fit per task (and `IndependentRegressor`)
`PooledClassifier`             STL, one ridge fit for all tasks (and `PooledRegressor`)
`SharedMeanClassifier`         ridge around a mean that all tasks share (and `SharedMeanRegressor`)
`SharedHypothesesClassifier`   SHAMO, few hypotheses that tasks choose from
`FisherScoreSelector`          Fisher score of one feature at a time
`RobustRegressionSelector`     LSR-21 or RFS, l2,1 loss and l2,1 penalty
`HingeSelector`                SVM-21, multi-class hinge loss and l2,1 penalty
`SharedStructureSelector`      FSSI, l2,1 penalty per task and a trace norm over tasks
`SparseMultinomialSelector`    SBMLR, sparse multinomial regression with its strength integrated out
`RandomSelector`               features in random order
=============================  =============================================================================

`PAPER_NAMES` has the papers' names of these classes, which work too: ``baselines.FOML``.
"""

import importlib
from typing import Any

from bayesmtfs.public_names import BASELINES

# The papers' names of the same classes
PAPER_NAMES = {
    "FOML": "FixedRelationsClassifier",
    "FSSI": "SharedStructureSelector",
    "ITL": "IndependentClassifier",
    "LSR21": "RobustRegressionSelector",
    "OMTRL": "LearnedRelationsClassifier",
    "OSGL": "SharedLossClassifier",
    "PA": "PassiveAggressiveClassifier",
    "SBMLR": "SparseMultinomialSelector",
    "SHAMO": "SharedHypothesesClassifier",
    "STL": "PooledClassifier",
    "SVM21": "HingeSelector",
}


def __getattr__(name: str) -> Any:
    name = PAPER_NAMES.get(name, name)
    if name in BASELINES:
        return getattr(importlib.import_module(BASELINES[name]), name)
    raise AttributeError(f"module 'bayesmtfs.baselines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *BASELINES, *PAPER_NAMES])
