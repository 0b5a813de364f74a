"""New tasks from the population of the known ones, against the law that made the known ones."""

import numpy as np
import pytest

from bayesmtfs.estimators.bayesian_prediction import LEAST_TASKS, Population, draw_task, expected_task


def population(mean, scale, levels, offsets, share, norm_q=2.0):
    """The same known tasks in each of 40000 draws."""
    total, p = 40_000, len(mean)
    return Population(
        mean=np.tile(mean, (total, 1)),
        scale=np.tile(scale, (total, 1)),
        norm_q=None if norm_q is None else np.full((total, 1), norm_q),
        levels=np.tile(levels, (total, 1)),
        offsets=offsets,
        centre=np.full(p, 3.0),
        share=np.asarray(share),
    )


@pytest.mark.parametrize(("norm_q", "variance"), [(2.0, 0.5), (np.inf, 1.0 / 3.0), (1.0, 2.0), (None, 1.0)])
def test_coefficients_have_the_law_of_a_row_and_levels_that_of_the_known_ones(norm_q, variance):
    rng = np.random.default_rng(0)
    levels = rng.normal(2.0, 0.7, size=12)
    known = population(np.zeros(2), np.array([1.5, 0.2]), levels, np.zeros((2, 12)), [0.0, 0.0], norm_q)
    coef, intercept = draw_task(rng, known)
    np.testing.assert_allclose(coef.var(axis=0), variance * np.array([1.5, 0.2]) ** 2, rtol=0.05)
    level = intercept + coef @ known.centre
    spread = np.var(levels, ddof=1) * (1 + 1 / 12) * 11 / 9  # variance of Student's t
    assert level.mean() == pytest.approx(levels.mean(), abs=0.02)
    assert level.var() == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize("follows", [0.0, 0.4, 1.0])
def test_levels_go_with_the_features_as_much_as_those_of_the_known_tasks(follows):
    """The first feature is one of the task, the second one of the row."""
    rng = np.random.default_rng(1)
    offsets = np.stack([rng.standard_normal(20), np.zeros(20)])
    levels = 1.0 + follows * 3.0 * offsets[0]
    known = population(np.array([3.0, -1.0]), np.array([5.0, 0.0]), levels, offsets, [1.0, 0.0])
    for coef, intercept in (expected_task(known), draw_task(rng, known)):
        np.testing.assert_allclose(coef, np.tile([3.0 * follows, -1.0], (40_000, 1)), atol=1e-12)
        np.testing.assert_allclose(intercept + coef @ known.centre, 1.0, atol=1e-6)  # nothing is left to vary


def test_few_tasks_are_believed_to_differ_as_their_rows_do():
    m = LEAST_TASKS - 1
    offsets = np.linspace(-1.0, 1.0, m)[np.newaxis]
    known = population(np.array([2.0]), np.array([0.0]), np.zeros(m), offsets, [1.0])
    coef, intercept = expected_task(known)
    assert np.all(coef == 2.0)
    np.testing.assert_allclose(intercept, -6.0)
    level = draw_task(np.random.default_rng(0), known)[1] + 6.0
    assert np.median(np.abs(level)) == pytest.approx(
        0.741 * 2.0 * np.std(offsets, ddof=1) * np.sqrt(1 + 1 / m), rel=0.05
    )
