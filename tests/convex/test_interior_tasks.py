"""Systems of single tasks: eliminations agree with each other and with plain inverses."""

import numpy as np
import pytest

from bayesmtfs import TaskData
from bayesmtfs.convex.interior_point import (
    BreakdownError,
    FeatureSystems,
    ObservationSystem,
    WorkingColumns,
    cholesky,
    gram,
)
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty

SIZES = [30, 12, 20]
N_FEATURES = 4


@pytest.fixture(params=[True, False], ids=["intercept", "no intercept"])
def columns(request):
    X = np.random.default_rng(0).standard_normal((sum(SIZES), N_FEATURES))
    data = TaskData.from_long(X, np.ones(len(X)), np.repeat(np.arange(3), SIZES))
    problem = Problem(data, find_family("absolute"), RowPenalty(1.0, 2), data.loss_weights("mean"), request.param)
    return WorkingColumns(problem, np.arange(N_FEATURES))


def numbers(softest):
    """E with some small entries, h, u, right hand side and forces."""
    rng = np.random.default_rng(1)
    E = rng.uniform(0.5, 2.0, sum(SIZES))
    E[[2, 3, 35]] = softest
    own, shared = rng.uniform(0.1, 5.0, (N_FEATURES, 3)), rng.standard_normal((N_FEATURES, 3))
    return E, own, shared, rng.standard_normal(len(E)), rng.standard_normal(N_FEATURES)


def solver_of_task(columns, E, own, t):
    """P, which solves the system of a task, as a matrix."""
    X, span = columns.designs[t], slice(*columns.spans[t])
    inverse = np.linalg.inv(np.diag(E[span]) + (X * own[:, t]) @ X.T)
    if not columns.fit_intercept:
        return inverse
    constant = inverse.sum(axis=1)
    return inverse - np.outer(constant, constant) / constant.sum()


@pytest.mark.parametrize("softest", [0.7, 1e-5])
def test_halves_of_a_solution_are_those_of_plain_inverses(columns, softest):
    E, own, shared, f, forces = numbers(softest)
    coupling, pressed, x = np.zeros((N_FEATURES, N_FEATURES)), np.zeros(N_FEATURES), np.zeros(len(f))
    for t, (X, span) in enumerate(zip(columns.designs, columns.spans, strict=True)):
        P, scaled = solver_of_task(columns, E, own, t), X * shared[:, t]
        coupling += scaled.T @ P @ scaled
        pressed += scaled.T @ P @ f[slice(*span)]
        x[slice(*span)] = P @ (f[slice(*span)] - scaled @ forces)
    found = np.zeros((N_FEATURES, N_FEATURES), order="F")
    together = FeatureSystems(columns, E, own, shared, np.arange(3), found)
    assert sum(len(part.place) for part in together.soft) == (3 if softest < 0.1 else 0)
    apart = [ObservationSystem(columns, E, own, shared, t) for t in range(3)]
    for lower, systems in ((found, [together]), (sum(part.coupling() for part in apart), apart)):
        np.testing.assert_allclose(np.tril(lower), np.tril(coupling), rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(sum(part.press(f) for part in systems), pressed, rtol=1e-7, atol=1e-8)
        filled = np.zeros(len(f))
        for part in systems:
            part.release(forces, filled)
        np.testing.assert_allclose(filled, x, rtol=1e-6, atol=1e-7)


def test_some_of_the_tasks_leave_the_others_alone(columns):
    E, own, shared, f, forces = numbers(1e-5)
    lower = np.zeros((N_FEATURES, N_FEATURES), order="F")
    system = FeatureSystems(columns, E, own, shared, np.array([0, 2]), lower)
    apart = [ObservationSystem(columns, E, own, shared, t) for t in (0, 2)]
    np.testing.assert_allclose(np.tril(lower), np.tril(sum(part.coupling() for part in apart)), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(system.press(f), sum(part.press(f) for part in apart), rtol=1e-7, atol=1e-8)
    x, expected = np.full(len(f), 7.0), np.full(len(f), 7.0)
    x[:30], x[42:] = 0.0, 0.0
    system.release(forces, x)
    for part in apart:
        part.release(forces, expected)
    np.testing.assert_allclose(x, expected, rtol=1e-6, atol=1e-7)


def test_gram_is_the_same_in_both_orders():
    Y = np.random.default_rng(2).standard_normal((5, 3))
    for order in ("F", "C"):
        np.testing.assert_allclose(np.tril(gram(np.asarray(Y, order=order))), np.tril(Y.T @ Y))


def test_a_matrix_that_is_not_positive_definite_is_lifted_or_refused():
    nearly = np.asfortranarray([[1.0, 1.0], [1.0, 1.0 - 1e-13]])
    lower = np.tril(cholesky(nearly.copy(order="F"), 0.0))
    np.testing.assert_allclose(lower @ lower.T, nearly, atol=1e-11)
    with pytest.raises(BreakdownError, match="not positive definite"):
        cholesky(np.asfortranarray([[1.0, 2.0], [2.0, 1.0]]), 0.0)
