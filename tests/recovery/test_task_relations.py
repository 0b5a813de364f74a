"""Task relations: signs, outliers, and what they are worth to the coefficients."""

import numpy as np
import pytest

from bayesmtfs import simulate_tasks
from bayesmtfs.em import evidence
from bayesmtfs.estimators.em import MatrixVariateRegressor
from bayesmtfs.families import Gaussian

SIZES = {"n_tasks": 8, "n_features": 40, "n_samples": 40, "n_relevant": 12, "snr": 2.0}


def squared_error(found, sim):
    return float(np.sum((found - sim.coef.T) ** 2) / np.sum(sim.coef**2))


@pytest.mark.parametrize("route", ["mode", "integrated"])
def test_signs_of_relations_and_an_outlier_near_zero(route):
    right, outlier = [], []
    for seed in range(5):
        sim = simulate_tasks(
            **SIZES | {"snr": 5.0}, relatedness=0.9, opposed_tasks=3, outlier_tasks=1, random_state=seed
        )
        R = MatrixVariateRegressor(coefficients=route).fit(sim.data).task_relations_
        pairs = np.triu_indices(8, 1)
        found, truth = R[pairs], sim.task_correlation[pairs]
        right.append(np.sign(found[truth != 0]) == np.sign(truth[truth != 0]))
        outlier.append(np.abs(found[truth == 0]))
        assert np.all(np.diag(R) == 1) and np.linalg.eigvalsh(R)[0] > 0
    assert np.mean(right) >= 0.95
    assert np.mean(outlier) < 0.2


def error_ratio(relatedness, n_seeds=8, **options):
    errors = []
    for seed in range(n_seeds):
        sim = simulate_tasks(**SIZES | options, relatedness=relatedness, random_state=seed)
        apart, related = (evidence.solve(sim.data, Gaussian(), relations=relations) for relations in (None, "learn"))
        errors.append([squared_error(apart.W, sim), squared_error(related.W, sim)])
    apart, related = np.mean(errors, axis=0)
    return related / apart


@pytest.mark.parametrize("options", [{}, {"n_samples": 60, "opposed_tasks": 3, "outlier_tasks": 1}], ids=str)
def test_integrated_coefficients_gain_from_relations(options):
    assert error_ratio(0.9, **options) <= 0.91


def test_nothing_is_lost_without_relations():
    assert error_ratio(0.0) <= 1.02
