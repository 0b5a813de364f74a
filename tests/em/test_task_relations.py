"""Task relations: always a correlation matrix, never singular, better after every step."""

import numpy as np
import pytest
from scipy.optimize import minimize

from bayesmtfs.em import task_relations
from bayesmtfs.em.task_relations import (
    SMALLEST_OWN,
    Relations,
    choose_shrinkage,
    from_rows,
    improve,
    nearest,
    quadratic_objective,
    unrelated,
)


def cross_products(m, n=30, correlation=0.7, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.sqrt(correlation) * rng.standard_normal((n, 1)) + np.sqrt(1 - correlation) * rng.standard_normal((n, m))
    return rows.T @ rows


def is_correlation(R):
    return np.all(np.diag(R) == 1) and np.array_equal(R, R.T) and np.linalg.eigvalsh(R)[0] >= 0.99 * SMALLEST_OWN


@pytest.mark.parametrize("m", [2, 5, 49])
def test_every_correlation_matrix_has_factors_when_there_are_few_tasks(m):
    R = from_rows(cross_products(m, n=3 * m))
    np.testing.assert_allclose(nearest(R).matrix, R, atol=1e-10)


def test_many_tasks_have_few_factors():
    relations = nearest(from_rows(cross_products(80, n=200)))
    assert relations.factors.shape[1] == task_relations.FACTORS and is_correlation(relations.matrix)


def test_derived_quantities(m=6):
    relations = nearest(from_rows(cross_products(m)))
    R = relations.matrix
    np.testing.assert_allclose(relations.inverse_root @ relations.inverse_root @ R, np.eye(m), atol=1e-12)
    np.testing.assert_allclose(relations.root @ relations.root, R, atol=1e-12)
    np.testing.assert_allclose(np.diag(relations.own) + relations.factors @ relations.factors.T, R, atol=1e-12)
    expected = 2.0 * (np.linalg.slogdet(R)[1] + np.trace(np.linalg.inv(R)) - m)
    assert relations.penalty(4.0) == pytest.approx(expected) and relations.penalty(4.0) > 0
    assert unrelated(m).penalty(4.0) == 0


def test_gradient_of_the_quadratic_objective():
    function = quadratic_objective(3.0, cross_products(4, seed=1), cross_products(4))
    R, rng = 0.6 * np.eye(4) + 0.4, np.random.default_rng(0)
    for _ in range(5):
        direction = rng.standard_normal((4, 4))
        direction += direction.T
        slope = (function(R + 1e-6 * direction)[0] - function(R - 1e-6 * direction)[0]) / 2e-6
        assert slope == pytest.approx(np.sum(function(R)[1] * direction), rel=1e-6)


@pytest.mark.parametrize("m", [2, 5])
def test_improve_finds_the_minimum_from_the_identity(m):
    function = quadratic_objective(35.0, None, cross_products(m) + 5.0 * np.eye(m))
    found = improve(unrelated(m), function, from_rows(cross_products(m)))

    def by_lower_triangle(values):
        L = np.zeros((m, m))
        L[np.tril_indices(m)] = values
        L /= np.linalg.norm(L, axis=1, keepdims=True)
        return function(L @ L.T)[0]

    oracle = minimize(by_lower_triangle, np.eye(m)[np.tril_indices(m)] + 0.01, method="BFGS", options={"gtol": 1e-6})
    assert function(found.matrix)[0] == pytest.approx(oracle.fun, rel=1e-8)
    assert is_correlation(found.matrix)


def test_singular_data_do_not_make_singular_relations():
    ones = np.ones((4, 4))
    found = improve(unrelated(4), quadratic_objective(10.0, None, 10.0 * ones), ones)
    assert is_correlation(found.matrix) and found.matrix[0, 1] > 0.99


def test_nothing_better_leaves_the_start():
    start = Relations(np.zeros((3, 2)))
    assert improve(start, quadratic_objective(10.0, None, 10.0 * np.eye(3)), 0.9 * np.ones((3, 3))) is start


def test_order_of_the_tasks_does_not_matter():
    order = np.array([2, 0, 3, 1])
    S = cross_products(4)
    one = improve(unrelated(4), quadratic_objective(35.0, None, S + 5 * np.eye(4)), from_rows(S))
    permuted = S[np.ix_(order, order)]
    two = improve(unrelated(4), quadratic_objective(35.0, None, permuted + 5 * np.eye(4)), from_rows(permuted))
    np.testing.assert_allclose(two.matrix, one.matrix[np.ix_(order, order)], atol=1e-6)


def test_shrinkage_is_large_without_relations_and_small_with_them():
    identity, strong = np.eye(5), from_rows(cross_products(5, n=40, correlation=0.95))
    assert choose_shrinkage(identity, 40) == task_relations.SHRINKAGES[-1]
    assert choose_shrinkage(strong, 40) < 2.0
    assert choose_shrinkage(strong, 3) > choose_shrinkage(strong, 40)


def test_a_task_without_spread_is_unrelated():
    S = np.diag([1.0, 0.0, 2.0])
    np.testing.assert_array_equal(from_rows(S), np.eye(3))
