"""Every public estimator in a setting that fits in milliseconds, and two small data sets with unequal tasks."""

import importlib
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.base import clone

from bayesmtfs import simulate_tasks
from bayesmtfs.public_names import BASELINES, ESTIMATORS

HOMES = ESTIMATORS | BASELINES
TIGHT = {"tol": 1e-11, "max_iter": 20_000}
FEW_PENALTIES = {"n_penalties": 5, "cv": 3, "tol": 1e-10, "random_state": 0}
ONLINE = {"shuffle": False, "random_state": 0}
GIBBS = {"sampler": "gibbs", "draws": 40, "tune": 20, "chains": 2, "random_state": 0, "n_jobs": 1}


class Case(NamedTuple):
    """One estimator and what it promises."""

    label: str
    estimator: Any
    regression: bool
    atol: float = 1e-6  # coefficients are of the order of 1
    row_order: bool = True  # the order of rows does not matter
    weights: bool = True  # weight 2 is a row twice
    task_order: bool = True  # the order of task names does not matter
    folds: bool = False  # cross-validated: folds are drawn from the rows of the form at hand


def case(name: str, params: dict[str, Any], note: str = "", **promises: Any) -> Case:
    estimator = getattr(importlib.import_module(HOMES[name]), name)(**params)
    regression = "Regress" in name and not name.endswith("Selector")
    return Case(f"{name} {note}".strip(), estimator, regression, **promises)


def stream(name: str, params: dict[str, Any], note: str = "", **promises: Any) -> Case:
    # A weight scales the step or the gradient of one round; a repeated row is a second round
    promises = {"row_order": False, "weights": False} | promises
    return case(name, params | ONLINE, note, **promises)


CONVEX = [
    case("MixedNormRegressor", {"penalty_strength": 0.1, **TIGHT}),
    case("MixedNormRegressor", {"penalty_strength": 0.1, "norm_q": 1, **TIGHT}, "q=1"),
    case("MixedNormRegressor", {"penalty_strength": 0.1, "norm_q": 3, **TIGHT}, "q=3"),
    case("MixedNormRegressor", {"penalty_strength": 0.1, "norm_q": np.inf, **TIGHT}, "q=inf"),
    case("MixedNormRegressor", {"penalty_strength": 0.1, "task_sparsity": 0.5, **TIGHT}, "task sparsity"),
    case("MixedNormRegressor", {"penalty_strength": 0.1, "shared_mean": True, **TIGHT}, "shared mean", atol=1e-5),
    case("MixedNormRegressor", {"penalty_strength": 0.1, "loss": "absolute", "tol": 1e-9}, "absolute", atol=1e-4),
    case("MixedNormClassifier", {"penalty_strength": 0.02, **TIGHT}, atol=1e-5),
    case("MixedNormClassifier", {"penalty_strength": 0.02, "loss": "hinge", "tol": 1e-9}, "hinge", atol=1e-4),
    case("MixedNormRegressorCV", FEW_PENALTIES, folds=True, row_order=False, weights=False),
    case("MixedNormClassifierCV", FEW_PENALTIES, folds=True, row_order=False, weights=False, atol=1e-5),
]

EXPECTATION_MAXIMISATION = [
    case("GeneralizedNormalRegressor", {"tol": 1e-10}, atol=1e-5),
    case("GeneralizedNormalClassifier", {"tol": 1e-10}, atol=1e-5),
    case("JeffreysRegressor", {"tol": 1e-10}, atol=1e-5),
    case("JeffreysClassifier", {"tol": 1e-10}, atol=1e-5),
    case("MatrixVariateRegressor", {"tol": 1e-10}, atol=1e-5),
    case("MatrixVariateClassifier", {"tol": 1e-10}, atol=1e-5),
]

POSTERIORS = [
    # Draws follow the order of tasks and features; the coordinate ascent behind them hardly does
    case("BayesianRegressor", {"sampler": "variational", "draws": 1000, "random_state": 0}, "variational", atol=0.05),
    case("BayesianClassifier", {"sampler": "variational", "draws": 1000, "random_state": 0}, "variational", atol=0.3),
]

SAMPLED = [
    case("BayesianRegressor", GIBBS),
    case("BayesianRegressor", GIBBS | {"norm_q": "learn"}, "learned q"),
]

STREAMS = [
    stream("OnlineMixedNormRegressor", {"penalty_strength": 0.1, "epochs": 2}),
    stream("OnlineMixedNormRegressor", {"penalty_strength": 0.1, "sparsity": "individual"}, "individual"),
    stream("OnlineMixedNormRegressor", {"penalty_strength": 0.1, "sparsity": "features_and_tasks"}, "both"),
    stream("OnlineMixedNormRegressor", {"penalty_strength": 0.1, "average": True}, "average"),
    stream("OnlineMixedNormClassifier", {"penalty_strength": 0.02}),
    stream("OnlineMixedNormClassifier", {"penalty_strength": 0.02, "loss": "hinge"}, "hinge"),
    stream("OnlineSmoothedClassifier", {}),
    stream("OnlineSmoothedClassifier", {"update": "threshold", "trigger": "margin"}, "threshold"),
    stream("OnlineSmoothedRegressor", {}),
    stream("PassiveAggressiveClassifier", {}),
    stream("PassiveAggressiveRegressor", {}),
    stream("SharedLossClassifier", {}),
    # Perceptrons of one round move one after another, in the order of the tasks
    stream("FixedRelationsClassifier", {}, task_order=False),
    stream("LearnedRelationsClassifier", {}, task_order=False),
]

BATCH_BASELINES = [
    case("SmoothedClassifier", {"tol": 1e-9, "max_iter": 1000}, atol=1e-5),
    case("SmoothedClassifier", {"tol": 1e-9, "max_iter": 1000, "loss": "hinge"}, "hinge", atol=1e-4),
    case("SmoothedRegressor", {"tol": 1e-9, "max_iter": 1000}, atol=1e-5),
    case("IndependentRegressor", {}),
    case("IndependentClassifier", {}),
    case("PooledRegressor", {}),
    case("PooledClassifier", {}),
    case("SharedMeanRegressor", {}),
    case("SharedMeanClassifier", {}),
    # Starts are random partitions of the tasks in their order
    case("SharedHypothesesClassifier", {"n_hypotheses": 1, "random_state": 0}, atol=1e-5),
]

SELECTORS = [
    case("DiscriminativeSelector", {"tol": 1e-10, "max_iter": 5000, "random_state": 0}, atol=1e-5),
    case("FisherScoreSelector", {}),
    case("HingeSelector", {"tol": 1e-7}, atol=1e-3),
    case("RobustRegressionSelector", {"tol": 1e-9}, atol=1e-4),
    case("SharedStructureSelector", {"tol": 1e-9}, atol=1e-4),
    case("SparseMultinomialSelector", {"tol": 1e-7}, atol=1e-3),
]

# Whatever they choose from the data follows the units of y
UNIT_FREE = [
    case("MixedNormRegressor", TIGHT),
    case("MixedNormRegressor", TIGHT | {"norm_q": np.inf}, "q=inf"),
    case("MixedNormRegressorCV", FEW_PENALTIES, atol=1e-5),
    case("JeffreysRegressor", {"tol": 1e-10}, atol=1e-5),
    case("JeffreysRegressor", {"norm_q": "learn"}, "learned q", atol=1e-5),
    case("MatrixVariateRegressor", {"tol": 1e-10}, atol=1e-5),
    case("BayesianRegressor", {"sampler": "variational", "draws": 200, "random_state": 0}, "variational"),
    case("BayesianRegressor", GIBBS),
    case("IndependentRegressor", {}),
    case("PooledRegressor", {}),
    case("SharedMeanRegressor", {}),
    stream("OnlineMixedNormRegressor", {"epochs": 2}),
]

# What users of the penalised estimators are told to set where units differ
SCALED = {"standardize": True, "scale_target": True}
IN_DEVIATIONS = [
    case("MixedNormRegressor", TIGHT | SCALED, "scaled"),
    case("MixedNormRegressorCV", FEW_PENALTIES | SCALED, "scaled"),
    case("MixedNormClassifier", TIGHT | {"standardize": True}, "scaled", atol=1e-5),
    case("GeneralizedNormalRegressor", {"tol": 1e-10, "standardize": True}, "scaled", atol=1e-5),
    case("JeffreysRegressor", {"tol": 1e-10, "coefficients": "integrated"}, "integrated", atol=1e-5),
    case("BayesianRegressor", GIBBS | {"standardize": True}, "standardised"),
    case("BayesianClassifier", GIBBS | {"draws": 400, "tune": 300}, atol=1e-5),
]

STREAM = "^(Online|PassiveAggressive|SharedLoss|FixedRelations|LearnedRelations)"

# Estimators that lack a property of `test_units`, and why: (properties, pattern of the label, reason)
EXCEPTIONS = [
    (
        "level feature_level feature_unit target_unit rank",
        STREAM,
        "a stream learns intercepts and weights on its way, by steps in the units of its rows",
    ),
    (
        "feature_unit target_unit",
        "^MixedNorm(?!.*scaled)",
        "the objective is stated in the user's units, and a warning says where that matters; the scaled cases hold",
    ),
    (
        "feature_unit",
        "^GeneralizedNormal(?!.*scaled)",
        "one offset for all features is stated in the units of coefficients; the scaled case holds",
    ),
    (
        "feature_unit",
        "^(Independent|Pooled|SharedMean|Smoothed|SharedHypotheses)|^(?!Fisher|Random).*Selector",
        "the papers' ridges and rankings are stated in the user's units; with standardize=True the property holds",
    ),
    ("level feature_level", "shared mean", "differences between the intercepts of tasks are penalised"),
    (
        "level feature_level target_unit",
        "^(Pooled|SharedMean|Smoothed|SharedHypotheses)",
        "tasks share coefficients and intercepts, or draw them to each other, in the user's units",
    ),
]


def holds(name: str, cases: list[Case]) -> list[Case]:
    """Cases that are held to a property."""
    lacking = [pattern for properties, pattern, _ in EXCEPTIONS if name in properties.split()]
    return [case for case in cases if not any(re.search(pattern, case.label) for pattern in lacking)]


PREDICTORS = [*CONVEX, *EXPECTATION_MAXIMISATION, *POSTERIORS, *STREAMS, *BATCH_BASELINES]
UNORDERED = [*PREDICTORS, *SELECTORS]  # those whose answer moves with tasks and features
RANDOM = [case("RandomSelector", {"random_state": 0})]
EVERYTHING = [*UNORDERED, *SAMPLED, *RANDOM]
UNITS = [*EVERYTHING, *IN_DEVIATIONS]

GROUPS = {
    "any_case": EVERYTHING,
    "unordered_case": UNORDERED,
    "task_order_case": [case for case in UNORDERED if case.task_order],
    "gaps_case": [case for case in UNORDERED if not case.folds],
    "scaled_case": [case for case in UNORDERED if "standardize" in case.estimator.get_params()],
    "unit_free_case": UNIT_FREE,
    # A stream learns its intercept on the way; the offset of the generalized normal has units, shifts it does not mind
    "shifted_case": [case for case in [*UNIT_FREE, *EXPECTATION_MAXIMISATION] if case.regression and case.row_order],
    # A shared mean has an intercept of its own, whose differences from those of the tasks are penalised
    "offset_case": [
        case for case in [*CONVEX, *EXPECTATION_MAXIMISATION] if case.regression and "shared mean" not in case.label
    ],
    "row_order_case": [case for case in UNORDERED if case.row_order],
    "weighted_case": [case for case in UNORDERED if case.weights],
    "predictor_case": [*PREDICTORS, *SAMPLED],
    "stream_case": STREAMS,
    "level_case": holds("level", [case for case in UNITS if case.regression]),
    "feature_level_case": holds("feature_level", UNITS),
    "feature_unit_case": holds("feature_unit", UNITS),
    "target_unit_case": holds("target_unit", [case for case in UNITS if case.regression]),
    "rank_case": holds("rank", [case for case in UNITS if hasattr(case.estimator, "predict")]),
    "parallel_case": [case for case in EVERYTHING if "n_jobs" in case.estimator.get_params()],
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name in GROUPS.keys() & set(metafunc.fixturenames):
        metafunc.parametrize(name, GROUPS[name], ids=[case.label for case in GROUPS[name]])


@pytest.fixture(scope="session")
def covered_names() -> set[str]:
    """Names of the estimators that the tests of this folder go through."""
    return {type(case.estimator).__name__ for case in EVERYTHING}


class Rows(NamedTuple):
    """Long data."""

    X: np.ndarray
    y: np.ndarray
    tasks: np.ndarray

    def take(self, rows: Any) -> "Rows":
        return Rows(self.X[rows], self.y[rows], self.tasks[rows])


def _rows(**options: Any) -> Rows:
    sim = simulate_tasks(n_tasks=3, n_features=5, n_relevant=3, intercept_scale=1.0, **options)
    order = np.random.default_rng(3).permutation(len(sim.y))
    return Rows(sim.X[order], sim.y[order], np.array(["ant", "bee", "cat"])[sim.tasks[order]])


@pytest.fixture(scope="session")
def rows_of():
    """Rows of the kind that a case wants."""
    numbers = _rows(n_samples=[18, 24, 30], snr=5.0, random_state=0)
    labels = _rows(n_samples=[30, 36, 42], snr=2.0, kind="classification", random_state=1)
    return lambda case: numbers if case.regression else labels


@pytest.fixture(scope="session")
def wide_rows():
    """Three targets over one design."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 5))
    return X, X[:, :2] @ rng.standard_normal((2, 3)) + 0.5 * rng.standard_normal((40, 3)) + [0.0, 3.0, -2.0]


@pytest.fixture(scope="session")
def fit():
    """Fit a fresh copy of a case's estimator."""

    def fitted(case: Case, rows: Rows, **params: Any) -> Any:
        weight = params.pop("sample_weight", None)
        model = clone(case.estimator).set_params(**params)
        return model.fit(rows.X, rows.y, tasks=rows.tasks, sample_weight=weight)

    return fitted


@pytest.fixture(scope="session")
def answer():
    """What a fit says: coefficients with the intercept as last column, or scores as one row."""

    def found(model: Any) -> np.ndarray:
        if hasattr(model, "coef_"):
            return np.column_stack([model.coef_, model.intercept_])
        return np.append(model.scores_, 0.0)[None, :]

    return found
