"""What the model of Zhang, Yeung and Xu (2010) promises, on simulated tasks of which the truth is known.

q learned from data (section 4.2) and what the units of y do to the printed update; relations of tasks (section 4.3); joint
compressed sensing (section 7): Y = A W + noise, with n = 50 measurements of 200 unknowns in five signals at 30 dB.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from bayesmtfs.data.simulation import SimulatedTasks, simulate_tasks
from bayesmtfs.estimators.generalized_normal import GeneralizedNormalRegressor
from bayesmtfs.estimators.jeffreys import JeffreysRegressor
from bayesmtfs.estimators.matrix_variate import MatrixVariateRegressor
from bayesmtfs.estimators.path import mixed_norm_path
from bayesmtfs.papers.reproduction.outcome import Figure, Table
from bayesmtfs.papers.reproduction.splits import Advance, gain, percent
from bayesmtfs.types import BoolArray, FloatArray

TRUE_NORMS = (1.2, 2.0, 4.0, 10.0)
Q_SIZES: dict[str, Any] = {"n_tasks": 20, "n_samples": 60, "n_features": 27, "n_relevant": 9, "snr": 5.0}
Q_METHODS = {
    "two_stage": "two stages (default)",
    "integrated": "W integrated out by Gibbs draws",
    "ecme": "joint mode of W and q (ECME)",
    "paper": "as printed",
}
UNITS = (0.1, 1.0, 10.0)
RELATION_SIZES: dict[str, Any] = {"n_tasks": 8, "n_features": 40, "n_samples": 40, "n_relevant": 12, "snr": 2.0}
RELATIONS: dict[str, Any] = {"relatedness": 0.9, "opposed_tasks": 3, "outlier_tasks": 1}


def _set_seed(seed: int, place: int) -> int:
    """A seed for each data set, the same for every method."""
    return 1000 * seed + place


# ---------------------------------------------------------------------- q


def learn_norm(X: FloatArray, y: FloatArray, tasks: Any, method: str, seed: int) -> JeffreysRegressor:
    """PMTFS1 with q learned in one of the four ways."""
    model = JeffreysRegressor(norm_q="learn", q_learning=method, random_state=seed, progress=False)
    return model.fit(X, y, tasks=tasks)


def learning_q(n_sets: int, methods: tuple[str, ...], seed: int, advance: Advance) -> Table:
    """Learned q against the truth, and whether its 90% interval covers it."""
    figures: list[Figure] = []
    covered: dict[str, list[float]] = {method: [] for method in methods}
    off: dict[str, list[float]] = {method: [] for method in methods}
    for place, truth in enumerate(TRUE_NORMS):
        learned: dict[str, list[float]] = {method: [] for method in methods}
        for number in range(n_sets):
            sim = simulate_tasks(norm_q=truth, random_state=_set_seed(seed, number), **Q_SIZES)
            for method in methods:
                model = learn_norm(sim.X, sim.y, sim.tasks, method, seed)
                low, high = model.norm_q_interval_
                learned[method].append(model.norm_q_)
                off[method].append(abs(float(np.log(model.norm_q_ / truth))))
                covered[method].append(100.0 * (low <= truth <= high))
            advance((place + (number + 1) / n_sets) / len(TRUE_NORMS))
        figures += [Figure.of(f"truth {truth:g}: {Q_METHODS[m]}", "q learned", learned[m]) for m in methods]
    figures += [Figure.of(Q_METHODS[method], "absolute ln(q / truth)", off[method]) for method in methods]
    figures += [Figure.of(Q_METHODS[m], "90% intervals that cover the truth, %", covered[m]) for m in methods]
    protocol = "20 tasks, 60 rows each, 27 features of which 9 matter, signal-to-noise ratio 5; q between 1 and 50."
    return Table("Learning q (section 4.2, simulated)", protocol, tuple(figures))


def units_of_the_printed_rule(n_sets: int, seed: int, advance: Advance) -> Table:
    """The same data in other units of y."""
    figures = []
    sims = [simulate_tasks(norm_q=2.0, random_state=_set_seed(seed, number), **Q_SIZES) for number in range(n_sets)]
    jobs = [(method, unit) for method in ("paper", "two_stage") for unit in UNITS]
    for place, (method, unit) in enumerate(jobs, start=1):
        learned = [learn_norm(sim.X, unit * sim.y, sim.tasks, method, seed).norm_q_ for sim in sims]
        figures.append(Figure.of(f"{Q_METHODS[method]}, y x {unit:g}", "q learned, truth 2", learned))
        advance(place / len(jobs))
    protocol = "The same data sets as above with q = 2, and y in other units; q between 1 and 50."
    return Table("Units and the printed q update (section 4.2, simulated)", protocol, tuple(figures))


# ---------------------------------------------------------------------- relations


def coefficient_error(model: Any, sim: SimulatedTasks) -> float:
    """Squared error of the coefficients, as a share of their squares."""
    return float(np.sum((model.coef_ - sim.coef) ** 2) / np.sum(sim.coef**2))


def task_relations(n_sets: int, seed: int, advance: Advance) -> Table:
    """Signs of relations, an outlier task, and what relations are worth to the coefficients."""
    figures: list[Figure] = []
    labels = {"mode": "PMTFS2", "integrated": "PMTFS2, W integrated out"}
    pairs = np.triu_indices(RELATION_SIZES["n_tasks"], 1)
    for place, (route, label) in enumerate(labels.items()):
        right, outlier, related, apart = [], [], [], []
        for number in range(n_sets):
            sim = simulate_tasks(**RELATION_SIZES, **RELATIONS, random_state=_set_seed(seed, number))
            model = MatrixVariateRegressor(coefficients=route, progress=False).fit(sim.data)
            found, truth = model.task_relations_[pairs], sim.task_correlation[pairs]
            right.append(percent(np.sign(found[truth != 0]) == np.sign(truth[truth != 0])))
            outlier.append(float(np.abs(found[truth == 0]).mean()))
            related.append(coefficient_error(model, sim))
            unrelated = JeffreysRegressor(coefficients=route, progress=False).fit(sim.data)
            apart.append(coefficient_error(unrelated, sim))
            advance((place + (number + 1) / n_sets) / len(labels))
        figures += [
            Figure.of(label, "related and opposed pairs with the right sign, %", right),
            Figure.of(label, "absolute relation of the outlier task", outlier),
            gain(label, "gain in squared error of W over no relations, %", related, apart, None, ""),
        ]
    protocol = (
        "Eight tasks, 40 rows each, 40 features of which 12 matter, signal-to-noise ratio 2; coefficients correlate by "
        "0.9, three tasks have the opposite sign, one is an outlier."
    )
    return Table("Task relations (section 4.3, simulated)", protocol, tuple(figures))


# ---------------------------------------------------------------------- joint compressed sensing


def measure_signals(
    n_rows: int, seed: int, n: int = 50, p: int = 200, m: int = 5, decibel: float = 30.0
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """(n, p) dictionary A, (n, m) noisy measurements of W, and (p,) which rows of W are not zero."""
    rng = np.random.default_rng([seed, n_rows])
    A = rng.standard_normal((n, p)) / np.sqrt(n)
    W = np.zeros((p, m))
    W[rng.choice(p, n_rows, replace=False)] = rng.standard_normal((n_rows, m))
    signal = A @ W
    noise = np.sqrt(np.mean(signal**2)) * 10.0 ** (-decibel / 20.0)
    return A, signal + noise * rng.standard_normal((n, m)), W.any(axis=1)


def largest_rows_are_true(coef: FloatArray, truth: BoolArray) -> bool:
    """Whether the largest rows, as many as there are, are those that are not zero."""
    largest = np.argsort(-np.linalg.norm(coef, axis=0))[: truth.sum()]
    return bool(truth[largest].all())


def _mixed_norm_coefficients(A: FloatArray, Y: FloatArray) -> list[FloatArray]:
    path = mixed_norm_path(A, Y, n_penalties=30, penalty_ratio=3e-3, fit_intercept=False, tol=1e-4, progress=False)
    return list(path.coefs)


def _coefficients(model: Any) -> Callable[[FloatArray, FloatArray], list[FloatArray]]:
    return lambda A, Y: [model.fit(A, Y).coef_]


def compressed_sensing(row_counts: tuple[int, ...], n_sets: int, seed: int, advance: Advance) -> Table:
    """How often all rows are found."""
    routes = {
        "l1,2, best penalty": _mixed_norm_coefficients,
        "problem (5) by MM": _coefficients(GeneralizedNormalRegressor(fit_intercept=False, progress=False)),
        "PMTFS1 (EM)": _coefficients(JeffreysRegressor(fit_intercept=False, progress=False)),
        "PMTFS1, W integrated out": _coefficients(
            JeffreysRegressor(fit_intercept=False, coefficients="integrated", shared_noise=True, progress=False)
        ),
    }
    figures = []
    for place, n_rows in enumerate(row_counts):
        found: dict[str, list[float]] = {name: [] for name in routes}
        for number in range(n_sets):
            A, Y, truth = measure_signals(n_rows, _set_seed(seed, number))
            for name, route in routes.items():
                found[name].append(100.0 * any(largest_rows_are_true(coef, truth) for coef in route(A, Y)))
            advance((place + (number + 1) / n_sets) / len(row_counts))
        figures += [Figure.of(f"{n_rows} rows: {name}", "all rows found, %", found[name]) for name in routes]
    protocol = "50 measurements of 200 unknowns in five signals, 30 dB; found: the k largest rows are the k true ones."
    return Table("Joint compressed sensing (section 7, simulated)", protocol, tuple(figures))
