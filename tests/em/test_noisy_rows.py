"""Likelihood of q for coefficients with errors, against integrals on fine grids."""

import math

import numpy as np
import pytest
from scipy import stats

from bayesmtfs.em import noisy_rows
from bayesmtfs.em.exponent import posterior, row_profile


def reference(estimates, errors, norm_q):
    """The double integral on fine grids of w and ln rho."""
    w = np.linspace(-6.0, 6.0, 24001)[:, None]
    normal = stats.norm.pdf(estimates, w, errors)
    grid = np.linspace(-4.0, 3.0, 141)
    values = []
    for log_rho in grid:
        densities = np.trapezoid(normal * stats.gennorm.pdf(w, norm_q, scale=math.exp(log_rho)), w, axis=0)
        values.append(np.log(np.maximum(densities, 1e-300)).sum())
    top = max(values)
    return top + math.log(np.trapezoid(np.exp(np.array(values) - top), grid))


def test_equals_integration_on_fine_grids():
    rng = np.random.default_rng(0)
    estimates, errors = np.array([0.9, -1.4, 0.2, 1.1, -0.7, 1.6]), rng.uniform(0.1, 0.3, 6)
    counted = np.ones((1, 6), dtype=bool)
    ours = [noisy_rows.log_likelihood(estimates[None], errors[None], counted, q) for q in (1.2, 2.0, 5.0)]
    expected = [reference(estimates, errors, q) for q in (1.2, 2.0, 5.0)]
    np.testing.assert_allclose(np.diff(ours), np.diff(expected), atol=5e-3)


def test_without_errors_it_is_the_row_marginal():
    rows = stats.gennorm(3.0).rvs((5, 12), random_state=np.random.default_rng(1))
    counted = np.ones(rows.shape, dtype=bool)
    ours = [noisy_rows.log_likelihood(rows, np.zeros(rows.shape), counted, q) for q in (1.5, 3.0, 10.0)]
    exact = [row_profile(rows, np.full(5, 12), q) for q in (1.5, 3.0, 10.0)]
    np.testing.assert_allclose(np.diff(ours), np.diff(exact), atol=0.03)


def test_units_signs_and_absent_entries_do_not_matter():
    rng = np.random.default_rng(2)
    rows, errors = rng.standard_normal((4, 10)), np.full((4, 10), 0.2)
    counted = np.ones((4, 10), dtype=bool)

    def difference(rows, errors, counted):
        return noisy_rows.log_likelihood(rows, errors, counted, 6.0) - noisy_rows.log_likelihood(
            rows, errors, counted, 2.0
        )

    base = difference(rows, errors, counted)
    assert difference(-1e5 * rows, 1e5 * errors, counted) == pytest.approx(base, abs=1e-9)
    padded = np.column_stack([rows, np.full(4, 99.0)])
    mask = np.column_stack([counted, np.zeros(4, dtype=bool)])
    assert difference(padded, np.column_stack([errors, np.ones(4)]), mask) == pytest.approx(base, abs=1e-12)
    assert noisy_rows.log_likelihood(rows[:, :1], errors[:, :1], counted[:, :1], 2.0) == 0.0


def test_errors_no_longer_hide_a_flat_shape():
    """Uniform coefficients seen with errors of a third of their size: naive q is near 3, the true one far above."""
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, (20, 60))
    errors = np.full(rows.shape, 0.2)
    seen = rows + 0.2 * rng.standard_normal(rows.shape)
    counted = np.ones(rows.shape, dtype=bool)
    naive = posterior(lambda q: row_profile(seen, np.full(20, 60), q), (1.0, 50.0))
    aware = posterior(lambda q: noisy_rows.log_likelihood(seen, errors, counted, q), (1.0, 50.0))
    assert naive.norm_q < 6 < aware.norm_q
