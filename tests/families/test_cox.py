"""The partial likelihood: derivatives, ties, weights, conjugate."""

import numpy as np
import pytest
from scipy.optimize import minimize

from bayesmtfs.families import find_family, total, total_conjugate

OFFSETS = np.array([0, 8, 14])


@pytest.fixture(params=[False, True], ids=["no ties", "ties"])
def rows(request):
    """Targets, factors of the loss, the family on these rows, and a linear predictor."""
    rng = np.random.default_rng(0)
    time = rng.integers(1, 5, 14).astype(float) if request.param else rng.exponential(size=14)
    y = np.copysign(time, np.where(rng.random(14) < 0.7, 1.0, -1.0))
    weight = rng.uniform(0.5, 2.0, 14)
    family = find_family("cox").on(y, weight, OFFSETS)
    return y, weight * np.repeat([0.3, 2.0], np.diff(OFFSETS)), family, rng.normal(size=14), weight


def by_definition(y, weight, eta):
    """Minus the log partial likelihood of one task, event by event, with Efron's ties."""
    found, time, event = 0.0, np.abs(y), ~np.signbit(y)
    for tau in np.unique(time[event]):
        dying, size = event & (time == tau), weight * np.exp(eta)
        d = dying.sum()
        terms = [np.log(size[time >= tau].sum() - k / d * size[dying].sum()) for k in range(d)]
        found += weight[dying].sum() / d * sum(terms) - weight[dying] @ eta[dying]
    return found


def test_value_is_that_of_the_definition_and_gradient_its_differences(rows):
    y, factor, family, eta, weight = rows
    parts = [slice(0, 8), slice(8, 14)]
    wanted = sum(s * by_definition(y[a], weight[a], eta[a]) for a, s in zip(parts, (0.3, 2.0), strict=True))
    np.testing.assert_allclose(total(family, y, eta, factor), wanted, rtol=1e-13)
    steps = 1e-5 * np.eye(len(y))
    difference = [(total(family, y, eta + s, factor) - total(family, y, eta - s, factor)) / 2e-5 for s in steps]
    np.testing.assert_allclose(factor * family.gradient(y, eta), difference, atol=1e-8)
    second = [factor * (family.gradient(y, eta + s) - family.gradient(y, eta - s)) / 2e-5 for s in steps]
    assert np.linalg.eigvalsh(np.diag(factor * family.curvature(y, eta)) - second).min() > -1e-8


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9, 1.0])
def test_conjugate_is_the_largest_distance_to_a_plane(rows, share):
    y, factor, family, eta, _ = rows
    theta = share * factor * family.gradient(y, eta)
    found = minimize(
        lambda at: total(family, y, at, factor) - theta @ at,
        eta,
        jac=lambda at: factor * family.gradient(y, at) - theta,
        options={"gtol": 1e-9},
    )
    np.testing.assert_allclose(total_conjugate(family, y, theta, factor), -found.fun, atol=1e-9)


def test_conjugate_at_zero_is_minus_the_least_loss_and_inf_outside(rows):
    y, factor, family, _, _ = rows
    far = -50.0 * np.argsort(np.argsort(np.abs(y), kind="stable")) * 1.0  # the sooner, the higher the risk
    ties = len(np.unique(np.abs(y))) < len(y)
    if not ties:
        np.testing.assert_allclose(
            total_conjugate(family, y, np.zeros(14), factor), -total(family, y, far, factor), atol=1e-9
        )
    assert total_conjugate(family, y, np.full(14, -9.0), factor) == np.inf


def test_far_predictors_neither_warn_nor_give_nan(rows):
    y, _, family, _, _ = rows
    eta = np.where(np.arange(14) % 2 == 0, 700.0, -700.0)
    for method in (family.value, family.gradient, family.curvature):
        assert np.isfinite(method(y, eta)).all()


def test_a_task_without_events_has_no_loss():
    y = np.array([-1.0, -2.0, 1.0, -2.0])
    family = find_family("cox").on(y, np.ones(4), np.array([0, 2, 4]))
    np.testing.assert_allclose(family.value(y, np.zeros(4)), [0, 0, np.log(2), 0])
    np.testing.assert_allclose(family.gradient(y, np.zeros(4)), [0, 0, -0.5, 0.5])
    assert np.isfinite(family.conjugate(y, np.array([0.0, 0.0, -0.5, 0.5]))).all()
