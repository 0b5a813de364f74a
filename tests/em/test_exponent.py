"""q from rows of W: the marginal of the prior, the printed rule, and the posterior on a grid."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma

from bayesmtfs.em.exponent import from_draws, marginal_maximum, posterior, printed_maximum, row_profile
from bayesmtfs.priors.jeffreys import Jeffreys

BOUNDS = (1.0, 50.0)


def draw_rows(norm_q, n_rows=20, m=30, seed=0):
    rng = np.random.default_rng(seed)
    unit = stats.gennorm(norm_q).rvs((n_rows, m), random_state=rng)
    return unit * np.exp(rng.standard_normal((n_rows, 1)))


def test_profile_is_the_marginal_of_the_prior():
    rows, sizes = draw_rows(3.0), np.full(20, 30)
    profile = [row_profile(rows, sizes, q) for q in (1.2, 3.0, 20.0)]
    marginal = [-Jeffreys(q).negative_log_density(rows, sizes) for q in (1.2, 3.0, 20.0)]
    np.testing.assert_allclose(np.diff(profile), np.diff(marginal), rtol=1e-10)
    assert row_profile(rows, sizes, np.inf) == pytest.approx(row_profile(rows, sizes, 1e7), abs=1e-3)


def test_profile_is_free_of_units_and_of_single_entries():
    rows, sizes = draw_rows(3.0), np.full(20, 30)
    scaled = rows * np.geomspace(1e-150, 1e150, 20)[:, None]
    differences = [row_profile(r, sizes, 4.0) - row_profile(r, sizes, 2.0) for r in (rows, scaled)]
    np.testing.assert_allclose(differences[0], differences[1], rtol=1e-9)
    assert row_profile(rows[:, :1], np.ones(20, dtype=int), 4.0) == 0.0


@pytest.mark.parametrize("truth", [1.2, 2.0, 4.0, 10.0])
def test_posterior_covers_the_truth(truth):
    sizes = np.full(20, 30)
    found = [posterior(lambda q, r=draw_rows(truth, seed=s): row_profile(r, sizes, q), BOUNDS) for s in range(40)]
    covered = [low <= truth <= high for low, high in (f.interval for f in found)]
    assert np.mean(covered) >= 0.8 and all(f.identified for f in found)
    assert np.median([f.norm_q for f in found]) == pytest.approx(truth, rel=0.15)


def test_posterior_of_a_known_density():
    """A normal density in 1/q: median and 90% interval in closed form."""
    found = posterior(lambda q: stats.norm.logpdf(1 / q, 0.4, 0.05), BOUNDS)
    expected = 1 / stats.norm(0.4, 0.05).ppf([0.5, 0.95, 0.05])
    np.testing.assert_allclose([found.norm_q, *found.interval], expected, rtol=0.01)
    assert found.identified
    flat = posterior(lambda q: 0.0, BOUNDS)
    assert not flat.identified and flat.norm_q == pytest.approx(2 / 1.02, rel=1e-3)


def test_infinity_is_a_bound_like_any_other():
    rng = np.random.default_rng(0)
    rows, sizes = rng.uniform(-1, 1, (20, 100)), np.full(20, 100)
    found = posterior(lambda q: row_profile(rows, sizes, q), (1.0, np.inf))
    assert found.norm_q > 20


def test_draws_are_summarised_on_the_scale_of_one_over_q():
    inverse = np.linspace(0.2, 0.3, 1001)
    found = from_draws(1 / inverse, BOUNDS)
    np.testing.assert_allclose([found.norm_q, *found.interval], [4.0, 1 / 0.295, 1 / 0.205], rtol=1e-3)
    assert found.identified and not from_draws(1 / np.linspace(0.02, 1.0, 99), BOUNDS).identified


@pytest.mark.parametrize("truth", [1.5, 4.0])
def test_marginal_maximum_is_stationary_and_no_worse(truth):
    rows, sizes = draw_rows(truth), np.full(20, 30)
    found = marginal_maximum(rows, sizes, BOUNDS, 2.0)
    values = [Jeffreys(q).negative_log_density(rows, sizes) for q in (0.99 * found, found, 1.01 * found, 2.0)]
    assert min(values) == values[1]
    assert marginal_maximum(rows, sizes, (truth - 0.01, truth + 0.01), 2.0) == pytest.approx(truth, abs=0.011)


def test_printed_rule_solves_the_printed_equation_and_depends_on_units():
    """The gradient in q as printed in section 4.2 of Zhang, Yeung and Xu 2010."""
    rows = draw_rows(3.0)
    found = printed_maximum(rows, rows, 20, BOUNDS, 2.0)
    beta = Jeffreys(2.0).em_weights(rows)[:, None]
    sizes, md = np.abs(rows), rows.size
    printed = -np.sum(beta * sizes**found * np.log(sizes)) + md / found + md / found**2 * digamma(1 / found)
    assert abs(printed) < 1e-3 * md
    larger = printed_maximum(100 * rows, 100 * rows, 20, BOUNDS, 2.0)
    assert abs(larger - found) > 0.1
