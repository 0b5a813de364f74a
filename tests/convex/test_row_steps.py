"""The row step with unequal curvatures: optimality, agreement with the proximal step, zeros, starts, extremes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from bayesmtfs.convex.row_steps import row_step
from bayesmtfs.priors import RowPenalty
from bayesmtfs.priors.row_penalty import row_norms
from bayesmtfs.priors.row_prox import scratch

QS = [1.0, 1.05, 1.3, 1.5, 2.0, 2.5, 3.0, 10.0, 100.0, np.inf]


def take_step(b, h, penalty, before=None):
    """Minimiser of the row problem and its norm, from a row that was there before."""
    norm_q = float(getattr(penalty, "norm_q", 2.0))
    row = np.zeros(len(b)) if before is None else before.copy()
    start = 0.0 if before is None else float(row_norms(before[np.newaxis], norm_q)[0])
    sparsity = float(getattr(penalty, "task_sparsity", 0.0))
    norm = row_step(b.copy(), h, penalty.strength, norm_q, sparsity, start, row, scratch(norm_q, len(b)))
    return row, norm


def penalties_at(share, b):
    """Every penalty at a share of the strength that would just make the row zero."""
    for norm_q, sparsity in [*((q, 0.0) for q in QS), (2.0, 0.3)]:
        largest = RowPenalty(1.0, norm_q, sparsity).dual_norm(b[np.newaxis])[0]
        yield RowPenalty(share * largest, norm_q, sparsity)


def distance_to_optimality(w, b, h, penalty):
    """Length of a proximal gradient step from w, in units of the gradient."""
    step = 1.0 / h.max()
    ahead = penalty.prox((w - step * (h * w - b))[np.newaxis], step)[0]
    return np.linalg.norm(w - ahead) / step / np.linalg.norm(b)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    m=st.sampled_from([1, 2, 5, 40]),
    share=st.sampled_from([1e-6, 0.01, 0.5, 0.9, 0.999999]),
    spread=st.floats(0.0, 2.0),
    scale=st.floats(-6.0, 6.0),
)
def test_step_is_optimal_from_any_start(seed, m, share, spread, scale):
    rng = np.random.default_rng(seed)
    b = rng.standard_normal(m) * 10.0**scale
    h = 10.0 ** rng.uniform(-spread, spread, m)
    far = rng.standard_normal(m) * 10.0 ** rng.uniform(scale - 3, scale + 3)
    for penalty in penalties_at(share, b):
        cold, norm = take_step(b, h, penalty)
        assert norm > 0
        assert norm == pytest.approx(row_norms(cold[np.newaxis], getattr(penalty, "norm_q", 2.0))[0], rel=1e-6)
        assert distance_to_optimality(cold, b, h, penalty) < 1e-9
        for before in (cold, far):
            warm, _ = take_step(b, h, penalty, before)
            assert distance_to_optimality(warm, b, h, penalty) < 1e-9


def test_step_agrees_with_a_numeric_minimiser():
    rng = np.random.default_rng(0)
    b, h = 3 * rng.standard_normal(4), rng.uniform(0.2, 5.0, 4)
    for penalty in penalties_at(0.4, b):

        def objective(w, penalty=penalty):
            return h @ w**2 / 2 - b @ w + penalty.value(w[np.newaxis])

        w, _ = take_step(b, h, penalty)
        options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 20_000, "maxfev": 20_000}
        found = minimize(objective, w + 0.1 * rng.standard_normal(4), method="Nelder-Mead", options=options)
        assert objective(w) <= found.fun + 1e-9


def test_equal_curvatures_give_the_proximal_step():
    rng = np.random.default_rng(1)
    b, h = rng.standard_normal(6), 2.5
    for penalty in penalties_at(0.6, b):
        w, _ = take_step(b, np.full(6, h), penalty)
        np.testing.assert_allclose(w, penalty.prox(b[np.newaxis] / h, 1 / h)[0], rtol=1e-9, atol=1e-12)


def test_row_is_zero_exactly_from_its_dual_norm_on():
    b, h = np.array([0.3, -2.0, 1.1]), np.array([1.0, 4.0, 0.1])
    for share in (1.0, 1.5):
        for penalty in penalties_at(share, b):
            w, norm = take_step(b, h, penalty, before=np.ones(3))
            assert norm == 0.0 and not w.any()


@pytest.mark.parametrize("norm_q", QS)
def test_entries_without_slope_stay_zero(norm_q):
    b, h = np.array([2.0, 0.0, -1.0]), np.array([1.0, 1e-300, 3.0])
    w, _ = take_step(b, h, RowPenalty(0.5, norm_q))
    assert w[1] == 0.0 and np.isfinite(w).all() and w[0] > 0 > w[2] - 1e-12


def test_without_a_penalty_the_step_is_the_quotient():
    b, h = np.array([2.0, -1.0, 0.5]), np.array([1.0, 4.0, 0.1])
    for norm_q in (1.0, 2.0, np.inf):
        np.testing.assert_allclose(take_step(b, h, RowPenalty(0.0, norm_q))[0], b / h, rtol=1e-12)
