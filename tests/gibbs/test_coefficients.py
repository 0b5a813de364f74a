"""Draws of coefficients: in turn, jointly, on an ellipse, in pairs; Cholesky factors."""

import numpy as np
import pytest
from scipy import stats

from bayesmtfs.data.simulation import simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs import coefficients as steps
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.gibbs.coefficients import alike, draw_on_ellipse, factorise, solve_lower, solve_upper
from bayesmtfs.gibbs.distributions import unit_variance
from bayesmtfs.priors.hyperpriors import hyperprior_for

Q = np.array([[4.0, 1.5, 0.0], [1.5, 3.0, -0.5], [0.0, -0.5, 2.0]])
h = np.array([2.0, -1.0, 0.5])
ALL = np.ones(3, dtype=bool)


@pytest.mark.parametrize(
    ("centre", "deviation", "reach"), [(0.3, 1.0, 0.5), (0.2, 0.4, 3.0), (5.0, 1.0, 1.0), (-9.0, 1.0, 8.0)]
)
def test_truncated_normal(centre, deviation, reach):
    rng = np.random.Generator(np.random.PCG64(0))
    draws = np.array([steps.truncated_normal(rng, centre, deviation, reach) for _ in range(4000)])
    wanted = stats.truncnorm((-reach - centre) / deviation, (reach - centre) / deviation, centre, deviation)
    assert stats.kstest(draws, wanted.cdf).pvalue > 0.001
    assert np.abs(draws).max() <= reach


def chain(draw, present=ALL, count=20_000):
    rng, w = np.random.Generator(np.random.PCG64(1)), np.where(present, 0.1, 0.0)
    found = np.empty((count, 3))
    for k in range(count):
        draw(rng, w)
        found[k] = w
    return found


def in_turn(log_scales, inverse_q, present=ALL):
    def draw(rng, w):
        steps.draw_in_turn(rng, Q, h - Q @ w, w, log_scales, present, inverse_q)

    return draw


def jointly(log_scales, present=ALL):
    factor = np.empty((3, 3))

    def draw(rng, w):
        steps.draw_jointly(rng, Q, h, w, log_scales, present, factor)

    return draw


@pytest.mark.parametrize("make", [lambda scales, there: in_turn(scales, 0.5, there), jointly])
@pytest.mark.parametrize("absent", [None, 1])
def test_normal_prior_gives_the_normal_posterior(make, absent):
    log_scales = np.log([0.5, 1.0, 2.0])
    present = np.arange(3) != absent
    draws = chain(make(log_scales, present), present)
    kept = np.flatnonzero(present)
    precision = (Q + np.diag(2.0 * np.exp(-2.0 * log_scales)))[np.ix_(kept, kept)]
    covariance = np.linalg.inv(precision)
    np.testing.assert_allclose(draws[:, kept].mean(axis=0), covariance @ h[kept], atol=0.02)
    np.testing.assert_allclose(np.cov(draws[:, kept].T), covariance, atol=0.02)
    assert not draws[:, ~present].any()


@pytest.mark.parametrize("norm_q", [1.0, 1.3, 4.0, np.inf])
def test_any_exponent_against_quadrature(norm_q):
    """Two coefficients on a grid; the third does not exist."""
    log_scales, present = np.log([0.6, 0.9, 1.0]), np.array([True, True, False])
    draws = chain(in_turn(log_scales, 1.0 / norm_q, present), present)
    x = np.linspace(-4.0, 4.0, 801)
    a, b = np.meshgrid(x, x, indexing="ij")
    with np.errstate(over="ignore"):
        prior = (np.abs(a) / 0.6) ** norm_q + (np.abs(b) / 0.9) ** norm_q
    density = np.exp(h[0] * a + h[1] * b - 0.5 * (4.0 * a**2 + 3.0 * b**2 + 3.0 * a * b) - prior)
    density /= density.sum()
    for i, grid in enumerate((a, b)):
        assert draws[:, i].mean() == pytest.approx(np.sum(density * grid), abs=0.015)
        assert np.mean(draws[:, i] ** 2) == pytest.approx(np.sum(density * grid**2), abs=0.015)


def test_feature_without_information_has_its_prior():
    rng, w = np.random.Generator(np.random.PCG64(3)), np.array([0.2])
    found = []
    for _ in range(6000):
        steps.draw_in_turn(rng, np.zeros((1, 1)), np.zeros(1), w, np.log([1.5]), np.ones(1, dtype=bool), 1.0 / 3.0)
        found.append(w[0])
    assert stats.kstest(found[::5], stats.gennorm(3.0, scale=1.5).cdf).pvalue > 0.001


def test_factor_and_systems_of_the_leading_part():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 5))
    A, x = root @ root.T + np.eye(5), rng.standard_normal(5)
    space = np.full((7, 7), np.nan)  # what is outside of the part, and above its diagonal, is not read
    space[:5, :5] = np.where(np.tri(5, dtype=bool), A, np.nan)
    factorise(space, 5)
    L = np.linalg.cholesky(A)
    np.testing.assert_allclose(np.tril(space[:5, :5]), L, atol=1e-12)
    lower, upper = x.copy(), x.copy()
    solve_lower(space, lower, 5)
    solve_upper(space, upper, 5)
    np.testing.assert_allclose(lower, np.linalg.solve(L, x), atol=1e-12)
    np.testing.assert_allclose(upper, np.linalg.solve(L.T, x), atol=1e-12)


ELLIPSE_Q = 8.0 * np.array([[4.0, 3.0, 0.2, 0.1], [3.0, 3.0, -0.5, 0.3], [0.2, -0.5, 1e-3, 0.0], [0.1, 0.3, 0.0, 2.0]])
ellipse_h = 8.0 * np.array([2.0, 1.4, 0.5, 1.0])
SCALES = np.array([0.6, 0.9, 1.0, 1.0])
PRESENT = np.array([True, True, True, False])  # the data know little of the third coefficient; the last is not there
THIRD = 0.3


def ellipse_chain(norm_q, count=20_000):
    rng, w = np.random.Generator(np.random.PCG64(1)), np.array([0.1, 0.1, THIRD, 0.0])
    residual, factor, found = ellipse_h - ELLIPSE_Q @ w, np.empty((4, 4)), np.empty((count, 4))
    variance = unit_variance(1.0 / norm_q)
    for k in range(count):
        draw_on_ellipse(rng, ELLIPSE_Q, residual, w, np.log(SCALES), PRESENT, 1.0 / norm_q, variance, factor)
        found[k] = w
    np.testing.assert_allclose(residual, ellipse_h - ELLIPSE_Q @ w, atol=1e-9)
    return found


def moments(norm_q):
    """Mean and mean products of the first two coefficients given the third, on a grid."""
    x = np.linspace(-1.5, 1.5, 1201)
    a, b = np.meshgrid(x, x, indexing="ij")
    with np.errstate(over="ignore"):
        prior = (np.abs(a) / SCALES[0]) ** norm_q + (np.abs(b) / SCALES[1]) ** norm_q
    pull = ellipse_h - ELLIPSE_Q[:, 2] * THIRD
    log_density = (
        pull[0] * a
        + pull[1] * b
        - 0.5 * (ELLIPSE_Q[0, 0] * a**2 + ELLIPSE_Q[1, 1] * b**2 + 2.0 * ELLIPSE_Q[0, 1] * a * b)
        - prior
    )
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    return [float(np.sum(density * value)) for value in (a, b, a * a, b * b, a * b)]


@pytest.mark.parametrize("norm_q", [0.8, 1.3, 4.0, 20.0, np.inf])
def test_well_known_coefficients_against_quadrature(norm_q):
    draws = ellipse_chain(norm_q)
    a, b = draws[:, 0], draws[:, 1]
    found = [float(np.mean(value)) for value in (a, b, a * a, b * b, a * b)]
    np.testing.assert_allclose(found, moments(norm_q), atol=0.012)


def test_other_coefficients_stay():
    draws = ellipse_chain(4.0, count=50)
    assert np.all(draws[:, 2] == THIRD)
    assert not draws[:, 3].any()


def test_normal_prior_gives_independent_draws():
    """At q = 2 nothing is left of the prior beside the normal distribution, and every angle is as good as another."""
    draws = ellipse_chain(2.0)[:, :2]
    after = np.corrcoef(draws[:-1].T, draws[1:].T)[:2, 2:]
    assert np.abs(after).max() < 0.03


def test_one_known_coefficient_is_left_to_itself():
    rng, w = np.random.Generator(np.random.PCG64(1)), np.array([0.1, 0.2])
    Q_two = np.diag([100.0, 1e-3])
    draw_on_ellipse(rng, Q_two, -Q_two @ w, w, np.zeros(2), np.ones(2, bool), 0.25, 0.338, np.empty((2, 2)))
    assert w.tolist() == [0.1, 0.2]


@pytest.fixture(scope="module")
def coded():
    """A yes-or-no feature in two columns, beside others."""
    sim = simulate_tasks(n_tasks=12, n_features=3, n_samples=30, n_relevant=2, snr=4.0, random_state=0)
    yes = (np.random.default_rng(0).random(len(sim.y)) < 0.5).astype(float)
    y = sim.y + 1.5 * np.std(sim.y) * yes
    return TaskData.from_long(np.column_stack([yes, sim.X, 1.0 - yes]), y, tasks=sim.tasks)


def test_pairs_are_found(coded):
    rows = gibbs_state.rows_of(coded)
    sums = gibbs_state.sums_of(coded, 0.0)
    np.testing.assert_array_equal(alike(sums, rows), [[0, 4, -1]])
    grouped = gibbs_state.rows_of(TaskData.from_long(coded.X, coded.y, tasks=coded.task, groups=[0, 1, 2, 3, 3]))
    assert len(alike(sums, grouped)) == 0


@pytest.mark.parametrize("norm_q", [2.0, 4.0, np.inf, None])
def test_either_column_may_carry_the_effect(coded, norm_q):
    """The posterior is the same after the columns are exchanged, and a chain goes between both halves."""
    settings = ChainSettings(draws=1500, tune=300, norm_q=norm_q, random_seed=1)
    draws = sample_chain(coded, hyperprior_for(coded, scale_power=2.0), settings)
    scales = np.log(draws.row_scales)
    assert np.mean(scales[:, 0] > scales[:, 4]) == pytest.approx(0.5, abs=0.1)
    effect = draws.W[:, 0] - draws.W[:, 4]
    np.testing.assert_allclose(effect.mean(axis=0).mean(), 1.5 * np.std(coded.y), rtol=0.5)
    half = draws.W[:, 0].mean(axis=0), -draws.W[:, 4].mean(axis=0)
    np.testing.assert_allclose(half[0], half[1], atol=0.25 * np.abs(effect).mean())
