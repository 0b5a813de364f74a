"""Bounds on dual norms: never below the truth, and exact where it matters."""

import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.convex.problem import Problem
from bayesmtfs.convex.shared_design_columns import SharedDesign
from bayesmtfs.convex.shared_design_scores import Scores, all_dual_norms, spectral_norm
from bayesmtfs.families import Gaussian
from bayesmtfs.priors import RowPenalty

WEIGHTS = np.random.default_rng(9).uniform(0.5, 2.0, 80)
PENALTIES = [
    RowPenalty(1.0, 1),
    RowPenalty(1.0, 2),
    RowPenalty(1.0, 3, weights=WEIGHTS),
    RowPenalty(1.0, np.inf),
    RowPenalty(1.0, task_sparsity=0.5, weights=WEIGHTS),
    RowPenalty(1.0, task_sparsity=WEIGHTS),
]


def make_scores(penalty):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 80)) * rng.uniform(0.2, 3.0, 80) + 2.0
    data = TaskData.from_wide(X, rng.standard_normal((30, 4)))
    design = SharedDesign(Problem(data, Gaussian(), penalty, data.weight))
    return Scores(design, penalty), design


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: type(p).__name__ + str(getattr(p, "norm_q", "")))
@pytest.mark.parametrize("distance", [0.0, 1e-3, 1e-2, 10.0])
def test_bounds_are_upper_bounds_and_exact_from_the_strength_on(penalty, distance, monkeypatch):
    scores, design = make_scores(penalty)
    first = scores.exact(design.Y)
    np.testing.assert_allclose(first, penalty.dual_norm(design.correlations(design.Y)), rtol=1e-12)
    moved = design.centred(0.9 * design.Y + distance * np.random.default_rng(1).standard_normal(design.Y.shape))
    truth = penalty.dual_norm(design.correlations(moved))
    strength = float(np.quantile(truth, 0.8))
    looks = []
    look = SharedDesign.correlations
    monkeypatch.setattr(SharedDesign, "correlations", lambda *a: looks.append(len(a)) or look(*a))
    bounds = scores.bounds(moved, strength, 1.0)
    assert np.all(bounds >= truth * (1 - 1e-13))
    above = truth >= strength
    np.testing.assert_allclose(bounds[above], truth[above], rtol=1e-12)
    assert np.all(bounds[~above] < strength)
    assert looks == [2 if distance == 10.0 else 3]  # nearby, some columns are looked at; far off, all


def test_null_columns_do_not_count():
    scores, design = make_scores(RowPenalty(1.0, 2))
    design.is_null[3] = True
    assert scores.exact(design.Y)[3] == 0
    assert scores.bounds(design.Y, 1e-3, 1.0)[3] == 0


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_dual_norms_at_extreme_scales(scale):
    rows = np.array([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(all_dual_norms(RowPenalty(1.0, 2), scale * rows), [5 * scale, 0], rtol=1e-14)


@pytest.mark.parametrize("shape", [(3, 40), (40, 3), (301, 302)])
def test_spectral_norm_is_an_upper_bound(shape):
    matrix = np.random.default_rng(0).standard_normal(shape)
    largest = np.linalg.svd(matrix, compute_uv=False)[0]
    assert largest <= spectral_norm(matrix) <= largest * (20 if min(shape) > 300 else 1 + 1e-9)
