import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from bayesmtfs.priors import RowPenalty

SPARSITIES = (0.0, 0.01, 0.5, 1.0, 30.0)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    rows = 2 * rng.standard_normal((15, 5))
    rows[3] = 0.0
    rows[4, 1:3] = 0.0
    rows[5] = 1.5
    rows.flags.writeable = False
    return rows


def dual_norm_by_root(row, sparsity):
    """The definition: the smallest t with ||soft(v, t r)||_2 <= t."""

    def excess(t):
        return np.linalg.norm(np.maximum(np.abs(row) - t * sparsity, 0.0)) - t

    return brentq(excess, 0.0, np.linalg.norm(row) + 1.0, xtol=1e-16, rtol=1e-14)


def penalty_of(z, sparsity):
    return sparsity * cvxpy.norm1(z) + cvxpy.norm2(z)


@pytest.mark.parametrize("sparsity", SPARSITIES)
def test_value(rows, sparsity):
    expected = 0.7 * (sparsity * np.abs(rows).sum() + np.linalg.norm(rows, axis=1).sum())
    assert RowPenalty(0.7, task_sparsity=sparsity).value(rows) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 2.0])
def test_prox_equals_a_convex_solver(sparsity):
    rows = np.array([[2.0, -1.5, 0.3, 0.0], [0.2, 0.1, -0.4, 0.3], [3.0, 3.0, -3.0, 0.1]])
    points = RowPenalty(0.5, task_sparsity=sparsity).prox(rows, 0.8)
    for row, point in zip(rows, points, strict=True):
        z = cvxpy.Variable(4)
        problem = cvxpy.Problem(cvxpy.Minimize(0.5 * cvxpy.sum_squares(z - row) + 0.4 * penalty_of(z, sparsity)))
        problem.solve(solver=cvxpy.CLARABEL)
        np.testing.assert_allclose(point, z.value, atol=1e-4)
        assert (
            0.5 * np.sum((point - row) ** 2) + 0.8 * RowPenalty(0.5, task_sparsity=sparsity).value([point])
            <= problem.value + 1e-9
        )


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 2.0])
def test_dual_norm_is_the_largest_value_on_the_unit_ball(sparsity):
    for row in np.array([[2.0, -1.5, 0.3, 0.0], [1.0, 1.0, 1.0, -1.0]]):
        z = cvxpy.Variable(4)
        largest = cvxpy.Problem(cvxpy.Maximize(row @ z), [penalty_of(z, sparsity) <= 1]).solve(solver=cvxpy.CLARABEL)
        assert RowPenalty(1.0, task_sparsity=sparsity).dual_norm(row[np.newaxis])[0] == pytest.approx(largest, rel=1e-6)


@pytest.mark.parametrize("sparsity", SPARSITIES)
def test_dual_norm_meets_its_definition(rows, sparsity):
    expected = [dual_norm_by_root(row, sparsity) for row in rows]
    np.testing.assert_allclose(
        RowPenalty(1.0, task_sparsity=sparsity).dual_norm(rows), expected, rtol=1e-12, atol=1e-15
    )


@settings(max_examples=200, deadline=None)
@given(
    row=st.lists(
        st.floats(-1e3, 1e3).map(lambda x: x if abs(x) > 1e-300 else 0.0),  # a third of it must have all its digits
        min_size=1,
        max_size=8,
    ).map(np.array),
    sparsity=st.floats(0, 100),
)
def test_dual_norm_and_zero_pattern_of_any_row(row, sparsity):
    prior = RowPenalty(1.0, task_sparsity=sparsity)
    dual = prior.dual_norm(row[np.newaxis])[0]
    assert dual == pytest.approx(dual_norm_by_root(row, sparsity), rel=1e-11, abs=1e-14)
    assert not prior.prox(row[np.newaxis], dual).any()
    assert not prior.prox(row[np.newaxis] / 3, dual / 3).any()
    if dual > 1e-9:
        assert prior.prox(row[np.newaxis], (1 - 1e-9) * dual).any()


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
def test_scale_of_the_rows_cancels(rows, scale):
    prior = RowPenalty(1.0, task_sparsity=0.5)
    np.testing.assert_allclose(prior.dual_norm(scale * rows), scale * prior.dual_norm(rows), rtol=1e-12)
    np.testing.assert_allclose(prior.prox(scale * rows, scale), scale * prior.prox(rows, 1.0), rtol=1e-10)


def test_sparsity_and_weights_per_row(rows):
    rng = np.random.default_rng(1)
    sparsities, weights, steps = rng.uniform(0, 2, (3, 15))
    prior = RowPenalty(0.7, task_sparsity=sparsities, weights=weights)
    singles = [RowPenalty(0.7 * weights[i], task_sparsity=sparsities[i]) for i in range(15)]
    one_by_one = [single.prox(rows[i : i + 1], steps[i])[0] for i, single in enumerate(singles)]
    np.testing.assert_allclose(prior.prox(rows, steps), one_by_one, rtol=1e-13)
    assert prior.value(rows) == pytest.approx(sum(single.value(rows[i : i + 1]) for i, single in enumerate(singles)))
    np.testing.assert_allclose(
        prior.dual_norm(rows) * weights, RowPenalty(1.0, task_sparsity=sparsities).dual_norm(rows)
    )


@pytest.mark.parametrize("sparsity", SPARSITIES)
def test_what_a_proximal_step_takes_off_is_a_subgradient(rows, sparsity):
    prior = RowPenalty(0.9 / (0.2 + sparsity), task_sparsity=sparsity)
    points = prior.prox(rows, 1.0)
    assert np.any(points.any(axis=1)) and not np.all(points.any(axis=1))
    assert np.max(prior.dual_norm(rows - points)) < prior.strength * (1 + 1e-12)
    values = [prior.value(point) for point in points[:, np.newaxis]]
    np.testing.assert_allclose(np.vecdot(rows - points, points), values, atol=1e-12)


@pytest.mark.parametrize("sparsity", [-0.1, np.nan, np.inf, np.array([0.1, -0.1])])
def test_wrong_task_sparsity_is_refused(sparsity):
    with pytest.raises(ValueError, match="task_sparsity is .*; pass a finite number of at least 0"):
        RowPenalty(1.0, task_sparsity=sparsity)


def test_other_wrong_parameters_are_refused(rows):
    with pytest.raises(ValueError, match="penalty_strength is -1.0; pass"):
        RowPenalty(-1.0, task_sparsity=0.5)
    with pytest.raises(
        ValueError, match=r"task_sparsity has shape \(2,\) but there are 15 rows; pass one number per row"
    ):
        RowPenalty(1.0, task_sparsity=np.ones(2)).value(rows)
