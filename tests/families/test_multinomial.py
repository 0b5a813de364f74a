"""The multinomial loss: derivatives, conjugate, dual variables for intercepts."""

import numpy as np
import pytest
from scipy.special import logsumexp

from bayesmtfs.families import find_family, total, total_conjugate
from bayesmtfs.families.multinomial import least_norm_level

SIZES, N_CLASSES = (7, 4), 3


@pytest.fixture
def rows():
    """Two tasks of three classes: targets, weights, offsets, and the class of every observation."""
    rng = np.random.default_rng(1)
    classes = [rng.permutation(np.arange(size) % N_CLASSES) for size in SIZES]
    y = np.concatenate([np.where(own == k, 1.0, -1.0) for own in classes for k in range(N_CLASSES)])
    weight = np.concatenate([np.tile(rng.uniform(0.5, 2.0, size), N_CLASSES) for size in SIZES])
    offsets = np.concatenate([[0], np.cumsum(np.repeat(SIZES, N_CLASSES))])
    return y, weight, offsets, classes


def observations(values):
    """Values of the rows as one table (n, K) per task."""
    split = np.split(values, np.cumsum(np.multiply(SIZES, N_CLASSES))[:-1])
    return [part.reshape(N_CLASSES, -1).T for part in split]


def test_value_is_the_softmax_loss_and_gradient_its_differences(rows):
    y, weight, offsets, classes = rows
    family = find_family("multinomial").on(y, weight, offsets)
    eta = np.random.default_rng(2).normal(size=len(y))
    tables = zip(observations(eta), observations(weight), classes, strict=True)
    wanted = sum(w[:, 0] @ (logsumexp(E, axis=1) - E[np.arange(len(E)), own]) for E, w, own in tables)
    np.testing.assert_allclose(total(family, y, eta, weight), wanted, rtol=1e-14)
    steps = 1e-5 * np.eye(len(y))
    difference = [(total(family, y, eta + s, weight) - total(family, y, eta - s, weight)) / 2e-5 for s in steps]
    np.testing.assert_allclose(weight * family.gradient(y, eta), difference, rtol=1e-6, atol=1e-9)
    second = [(family.gradient(y, eta + s) - family.gradient(y, eta - s)) @ s / 2e-10 for s in steps]
    np.testing.assert_allclose(family.curvature(y, eta), 1.5 * np.array(second), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("norm_q", [1, 1.5, 2, 4, np.inf])
def test_levels_are_those_of_the_least_norm(norm_q):
    values = np.random.default_rng(6).normal(size=(5, 2, 3))
    values[0, 0] = 0.0
    level = least_norm_level(values, norm_q)
    best = np.linalg.norm(values - level, norm_q, axis=-1)
    for shift in (-1e-3, 1e-3, -0.3, 0.3):
        assert np.all(np.linalg.norm(values - level - shift, norm_q, axis=-1) >= best - 1e-12)
    assert not level[0, 0].any()


def test_conjugate_meets_fenchel_and_young(rows):
    y, weight, offsets, _ = rows
    family = find_family("multinomial").on(y, weight, offsets)
    rng = np.random.default_rng(3)
    eta, other = rng.normal(size=(2, len(y)))
    theta = weight * family.gradient(y, eta)
    conjugate = total_conjugate(family, y, theta, weight)
    np.testing.assert_allclose(total(family, y, eta, weight) + conjugate, theta @ eta, rtol=1e-12)
    for factor in (0.0, 0.3, 0.9):
        bound = factor * theta @ other - total_conjugate(family, y, factor * theta, weight)
        assert np.isfinite(bound)
        assert total(family, y, other, weight) >= bound - 1e-12
    assert total_conjugate(family, y, np.abs(theta), weight) == np.inf


def test_zero_sums_are_zero_and_in_the_domain_of_the_conjugate(rows):
    y, weight, offsets, _ = rows
    family = find_family("multinomial").on(y, weight, offsets)
    theta = weight * family.gradient(y, np.random.default_rng(4).normal(size=len(y)))
    balanced = family.zero_sums(y, theta, weight)
    assert np.abs(np.add.reduceat(theta, offsets[:-1])).max() > 0.01
    np.testing.assert_allclose(np.add.reduceat(balanced, offsets[:-1]), 0.0, atol=1e-14)
    assert np.isfinite(total_conjugate(family, y, balanced, weight))
    np.testing.assert_allclose(family.zero_sums(y, balanced, weight), balanced, atol=1e-14)


def test_best_constants_are_logarithms_of_shares(rows):
    y, weight, offsets, classes = rows
    family = find_family("multinomial").on(y, weight, offsets)
    constants = [family.best_constant(y[a:b], weight[a:b]) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]
    shares = [
        np.average(own == k, weights=w[:, 0])
        for own, w in zip(classes, observations(weight), strict=True)
        for k in range(3)
    ]
    np.testing.assert_allclose(constants, np.log(shares))
    assert family.best_constant(np.full(3, -1.0), np.ones(3)) == pytest.approx(np.log(1e-9))


def test_far_predictors_neither_warn_nor_give_nan(rows):
    y, weight, offsets, _ = rows
    family = find_family("multinomial").on(y, weight, offsets)
    eta = np.where(np.arange(len(y)) % 2 == 0, 1e300, -1e300)
    for method in (family.value, family.gradient, family.curvature):
        assert not np.isnan(method(y, eta)).any()
