"""q: the marginal of the prior, the printed rule, the posterior on a grid, and from a fit, with errors or by draws."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.data.scaling import within_task_units
from bayesmtfs.em import exponent
from bayesmtfs.em.active_tasks import activate
from bayesmtfs.em.exponent import from_draws, marginal_maximum, posterior, printed_maximum
from bayesmtfs.families import find_family
from bayesmtfs.priors.generalized_normal import Jeffreys

BOUNDS = (1.0, 50.0)


def draw_rows(norm_q, n_rows=20, m=30, seed=0):
    rng = np.random.default_rng(seed)
    unit = stats.gennorm(norm_q).rvs((n_rows, m), random_state=rng)
    return unit * np.exp(rng.standard_normal((n_rows, 1)))


def row_profile(rows, sizes, norm_q):
    return -Jeffreys(norm_q).negative_log_density(rows, sizes)


def test_profile_is_the_marginal_of_the_prior():
    """ln Gamma(1 + m/q) - m ln ||w||_q - m ln Gamma(1 + 1/q), up to a constant."""
    rows, sizes, stated = draw_rows(3.0), np.full(20, 30), []
    for q in (1.2, 3.0, 20.0):
        norms = np.sum(np.abs(rows) ** q, axis=1) ** (1 / q)
        stated.append(20 * math.lgamma(1 + 30 / q) - 30 * (np.log(norms).sum() + 20 * math.lgamma(1 + 1 / q)))
    profile = [row_profile(rows, sizes, q) for q in (1.2, 3.0, 20.0)]
    np.testing.assert_allclose(np.diff(profile), np.diff(stated), rtol=1e-10)
    assert row_profile(rows, sizes, np.inf) == pytest.approx(row_profile(rows, sizes, 1e7), abs=1e-3)


def test_profile_is_free_of_units_and_of_single_entries():
    rows, sizes = draw_rows(3.0), np.full(20, 30)
    scaled = rows * np.geomspace(1e-150, 1e150, 20)[:, None]
    differences = [row_profile(r, sizes, 4.0) - row_profile(r, sizes, 2.0) for r in (rows, scaled)]
    np.testing.assert_allclose(differences[0], differences[1], rtol=1e-9)
    single = [row_profile(rows[:, :1], np.ones(20, dtype=int), q) for q in (4.0, 2.0)]
    assert single[0] == pytest.approx(single[1], rel=1e-12)


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
    beta = np.exp(Jeffreys(2.0).log_em_weights(rows))[:, None]
    sizes, md = np.abs(rows), rows.size
    printed = -np.sum(beta * sizes**found * np.log(sizes)) + md / found + md / found**2 * digamma(1 / found)
    assert abs(printed) < 1e-3 * md
    larger = printed_maximum(100 * rows, 100 * rows, 20, BOUNDS, 2.0)
    assert abs(larger - found) > 0.1


# ---------------------------------------------------------------------- given a fit


def make(norm_q=6.0, kind="regression", n=60, m=25, seed=0):
    sim = simulate_tasks(
        n_tasks=m, n_features=8, n_relevant=8, n_samples=n, norm_q=norm_q, kind=kind, snr=20.0, random_state=seed
    )
    loss = "squared" if kind == "regression" else "logistic"
    units = within_task_units(sim.data, True, find_family(loss).quadratic)
    tasks = activate(sim.data, find_family(loss), True, units, units.varies)
    W = units.from_user(sim.coef.T)
    intercept = np.zeros(m)
    return sim, units, tasks, W, tasks.linear_predictor(W, intercept)


def test_estimates_are_weighted_least_squares_with_their_errors():
    sim, units, tasks, W, eta = make()
    normal = exponent.normal_likelihood(tasks, W, eta, np.ones(25))
    found, errors, known = exponent.estimates(normal)
    assert known.all()
    for t in (0, 7):
        a, b = tasks.spans[t]
        design = np.column_stack([tasks.designs[t], np.ones(b - a)])
        expected, square, *_ = np.linalg.lstsq(design, tasks.y[a:b])
        variance = square[0] / (b - a - 9)
        deviations = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))[:-1]
        np.testing.assert_allclose(found[:, t], expected[:-1], rtol=1e-8)
        np.testing.assert_allclose(errors[:, t], deviations, rtol=1e-6)


def test_logistic_likelihood_is_the_normal_approximation_at_the_mode():
    """Hessian in (w, b) by differences, the intercept taken out."""
    _, _, tasks, W, eta = make(kind="classification")
    normal = exponent.normal_likelihood(tasks, W, eta, np.ones(25))
    (a, b), design = tasks.spans[3], np.column_stack([tasks.designs[3], np.ones(60)])

    def slope(packed):
        return design.T @ tasks.family.gradient(tasks.y[a:b], design @ packed)

    at, h = np.append(W[:, 3], 0.0), 1e-5
    hessian = np.array([(slope(at + step) - slope(at - step)) / (2 * h) for step in h * np.eye(9)])
    expected = hessian[:8, :8] - np.outer(hessian[:8, 8], hessian[8, :8]) / hessian[8, 8]
    np.testing.assert_allclose(normal.sums.grams[3], expected, rtol=1e-5, atol=1e-6)
    newton = at - np.linalg.solve(hessian, slope(at))
    np.testing.assert_allclose(np.linalg.solve(expected, normal.sums.correlations[3]), newton[:8], rtol=1e-4, atol=1e-5)
    assert not normal.learn_noise


def test_tasks_with_too_few_rows_have_no_estimates():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [40, 9])
    data = TaskData.from_long(rng.standard_normal((49, 8)), rng.standard_normal(49), labels)
    units = within_task_units(data, True, find_family("squared").quadratic)
    tasks = activate(data, find_family("squared"), True, units, units.varies)
    W = rng.standard_normal((8, 2))
    normal = exponent.normal_likelihood(tasks, W, tasks.linear_predictor(W, np.zeros(2)), np.ones(2))
    known = exponent.estimates(normal)[2]
    assert known[:, 0].all() and not known[:, 1].any()


@pytest.mark.parametrize("method", ["two_stage", "integrated"])
@pytest.mark.parametrize("norm_q", [1.3, 6.0])
def test_both_methods_find_q(method, norm_q):
    _, _, tasks, W, eta = make(norm_q)
    found = exponent.learn(tasks, W, eta, np.full(25, 0.2), (1.0, 50.0), method == "integrated", 0)
    assert found.interval[0] <= norm_q <= found.interval[1] and found.identified


def test_too_few_rows_everywhere_fall_back_on_the_mode():
    _, _, tasks, W, eta = make(n=8)
    found = exponent.learn(tasks, W, eta, np.full(25, 0.2), (1.0, 50.0), False, 0)
    assert found.interval[0] <= 6.0 <= found.interval[1]


# ---------------------------------------------------------------------- given estimates with errors


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
    ours = [exponent.noisy_log_likelihood(estimates[None], errors[None], counted, q) for q in (1.2, 2.0, 5.0)]
    expected = [reference(estimates, errors, q) for q in (1.2, 2.0, 5.0)]
    np.testing.assert_allclose(np.diff(ours), np.diff(expected), atol=5e-3)


def test_without_errors_it_is_the_row_marginal():
    rows = stats.gennorm(3.0).rvs((5, 12), random_state=np.random.default_rng(1))
    counted = np.ones(rows.shape, dtype=bool)
    ours = [exponent.noisy_log_likelihood(rows, np.zeros(rows.shape), counted, q) for q in (1.5, 3.0, 10.0)]
    exact = [row_profile(rows, np.full(5, 12), q) for q in (1.5, 3.0, 10.0)]
    np.testing.assert_allclose(np.diff(ours), np.diff(exact), atol=0.03)


def test_units_signs_and_absent_entries_do_not_matter():
    rng = np.random.default_rng(2)
    rows, errors = rng.standard_normal((4, 10)), np.full((4, 10), 0.2)
    counted = np.ones((4, 10), dtype=bool)

    def difference(rows, errors, counted):
        return exponent.noisy_log_likelihood(rows, errors, counted, 6.0) - exponent.noisy_log_likelihood(
            rows, errors, counted, 2.0
        )

    base = difference(rows, errors, counted)
    assert difference(-1e5 * rows, 1e5 * errors, counted) == pytest.approx(base, abs=1e-9)
    padded = np.column_stack([rows, np.full(4, 99.0)])
    mask = np.column_stack([counted, np.zeros(4, dtype=bool)])
    assert difference(padded, np.column_stack([errors, np.ones(4)]), mask) == pytest.approx(base, abs=1e-12)
    assert exponent.noisy_log_likelihood(rows[:, :1], errors[:, :1], counted[:, :1], 2.0) == 0.0


def test_errors_no_longer_hide_a_flat_shape():
    """Uniform coefficients seen with errors of a third of their size: naive q is near 3, the true one far above."""
    rng = np.random.default_rng(3)
    rows = rng.uniform(-1, 1, (20, 60))
    errors = np.full(rows.shape, 0.2)
    seen = rows + 0.2 * rng.standard_normal(rows.shape)
    counted = np.ones(rows.shape, dtype=bool)
    naive = posterior(lambda q: row_profile(seen, np.full(20, 60), q), (1.0, 50.0))
    aware = posterior(lambda q: exponent.noisy_log_likelihood(seen, errors, counted, q), (1.0, 50.0))
    assert naive.norm_q < 6 < aware.norm_q


def convolution(w_hat, s, rho, norm_q):
    """``ln integral N(w_hat; w, s^2) exp(-|w / rho|^q) dw`` on grids that close in on where it is not negligible."""
    low, high = -10.0 * s, w_hat + 10.0 * s
    for _ in range(4):
        w = np.unique(np.append(np.linspace(low, high, 40001), 0.0))
        with np.errstate(over="ignore"):
            logs = -0.5 * ((w - w_hat) / s) ** 2 - (np.abs(w) / rho) ** norm_q
        seen = w[logs > np.max(logs) - 60.0]
        low, high = seen[0] - (w[1] - w[0]), seen[-1] + (w[1] - w[0])
    return np.max(logs) + math.log(np.trapezoid(np.exp(logs - np.max(logs)), w) / (s * math.sqrt(2 * math.pi)))


@pytest.mark.parametrize("norm_q", [1.0, 1.05, 2.0, 5.9, 10.0, 50.0, np.inf])
def test_convolutions_are_right_where_they_are_tiny(norm_q):
    """An estimate thousands of standard errors outside the prior, one inside it, and errors larger than both."""
    rng = np.random.default_rng(4)
    for w_hat, s, rho in 10.0 ** rng.uniform([-2.0, -3.0, -1.5], [1.0, 0.5, 1.0], (40, 3)):
        ours = exponent._log_convolution(w_hat, s, rho, norm_q)
        assert ours == pytest.approx(convolution(w_hat, s, rho, norm_q), abs=0.01, rel=1e-6)


def test_a_likelihood_that_is_no_number_is_an_error():
    with pytest.raises(ArithmeticError, match=r"q = 50, .* pass norm_q as a number"):
        posterior(lambda q: math.nan if q > 40 else 0.0, BOUNDS)


def test_a_narrow_posterior_is_resolved():
    """Thousands of coefficients leave an interval that is narrow beside the first grid of 1/q."""
    found = posterior(lambda q: stats.norm.logpdf(1 / q, 0.437, 0.002), BOUNDS)
    expected = 1 / stats.norm(0.437, 0.002).ppf([0.5, 0.95, 0.05])
    np.testing.assert_allclose([found.norm_q, *found.interval], expected, rtol=5e-4)
