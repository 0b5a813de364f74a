"""MixedNorm against its formula in NumPy, quadrature, and the laws of its radius and its direction."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from scipy import optimize, stats
from scipy.special import gammaln

from bayesmtfs.models import MixedNorm

pytestmark = pytest.mark.usefixtures("quick_compilation")

ORDERS = [0.5, 1.0, 1.5, 2.0, 3.0, 40.0, np.inf]


@pytest.fixture(scope="module")
def law():
    """Log-density of rows (n, m) at one strength and q, and its gradients in the rows, the strength and q."""
    rows, strength, q = pt.dmatrix("rows"), pt.dscalar("strength"), pt.dscalar("q")
    density = pm.logp(MixedNorm.dist(strength, q, shape=rows.shape), rows)
    gradients = pt.grad(density.sum(), [rows, strength, q])
    return pytensor.function([rows, strength, q], [density, *gradients])


def log_density_by_formula(rows, strength, q):
    m = rows.shape[-1]
    inverse_q = 1 / q
    volume = m * (np.log(2) + gammaln(1 + inverse_q)) - gammaln(1 + m * inverse_q)
    norms = [np.linalg.norm(row, np.inf) if np.isinf(q) else np.sum(np.abs(row) ** q) ** inverse_q for row in rows]
    return -strength * np.array(norms) + m * np.log(strength) - gammaln(1 + m) - volume


@pytest.mark.parametrize("q", ORDERS)
@pytest.mark.parametrize("m", [1, 2, 7])
def test_log_density_is_the_formula(law, q, m):
    rows = np.random.default_rng(m).normal(size=(6, m))
    np.testing.assert_allclose(law(rows, 1.7, q)[0], log_density_by_formula(rows, 1.7, q), rtol=1e-12)


def test_special_cases_are_laplace(law):
    rows = np.random.default_rng(3).normal(size=(5, 4))
    laplace = stats.laplace.logpdf(rows, scale=1 / 2.5)
    np.testing.assert_allclose(law(rows, 2.5, 1.0)[0], laplace.sum(axis=1))
    np.testing.assert_allclose(law(rows[:, :1], 2.5, 3.3)[0], laplace[:, 0])


def nodes_and_weights(count, upper):
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return 0.5 * upper * (nodes + 1), 0.5 * upper * weights


@pytest.mark.parametrize("q", ORDERS)
def test_density_of_a_pair_integrates_to_one(law, q):
    # An eighth of the plane in polar coordinates; angle = s^4 smooths what the axis does at q < 1.
    roots, root_weights = nodes_and_weights(60, (np.pi / 4) ** 0.25)
    radii, radius_weights = nodes_and_weights(60, 40.0)
    angles = roots**4
    points = radii[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    density = np.exp(law(points.reshape(-1, 2), 1.3, q)[0]).reshape(60, 60)
    mass = 8 * np.einsum("ra,r,a->", density, radius_weights * radii, root_weights * 4 * roots**3)
    assert mass == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("q", ORDERS)
def test_gradient_agrees_with_finite_differences(law, q):
    row = np.array([1.2, -0.7, 0.4])
    _, in_rows, in_strength, in_q = law(row[None], 0.8, q)
    numeric = optimize.approx_fprime(row, lambda x: law(x[None], 0.8, q)[0][0], 1e-7)
    np.testing.assert_allclose(in_rows[0], numeric, rtol=1e-5, atol=1e-6)
    assert in_strength == pytest.approx(
        (law(row[None], 0.8 + 1e-7, q)[0][0] - law(row[None], 0.8, q)[0][0]) / 1e-7, 1e-5
    )
    if q < np.inf:
        step = 1e-5
        difference = law(row[None], 0.8, q + step)[0][0] - law(row[None], 0.8, q - step)[0][0]
        assert in_q == pytest.approx(difference / (2 * step), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("q", ORDERS)
def test_extreme_rows_neither_overflow_nor_lose_their_gradient(law, q):
    rows = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1e300, -1e299, 0.0], [1e-300, 1e-301, -1e-300]])
    density, *gradients = law(rows, 1.0, q)
    assert np.isfinite(density).all()
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_array_equal(gradients[0][0], 0.0)
    # A norm does not change its gradient with the length of the row.
    in_rows_of_length_one = law(rows[2:] * np.array([[1e-300], [1e300]]), 1.0, q)[1]
    np.testing.assert_allclose(gradients[0][2:], in_rows_of_length_one, rtol=1e-12, atol=1e-30)


def radius_and_first_direction(q, m):
    draws = pm.draw(MixedNorm.dist(2.5, q, shape=(4000, m)), random_seed=30)
    radius = np.max(np.abs(draws), axis=1) if np.isinf(q) else np.sum(np.abs(draws) ** q, axis=1) ** (1 / q)
    return radius, draws[:, 0] / radius


@pytest.mark.parametrize("q", ORDERS)
def test_draws_have_a_gamma_radius_and_an_independent_direction(q):
    radius, first = radius_and_first_direction(q, 4)
    assert stats.kstest(radius, stats.gamma(4, scale=1 / 2.5).cdf).pvalue > 0.01
    assert abs(stats.spearmanr(radius, np.abs(first)).statistic) < 0.05
    assert np.mean(first > 0) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0, 3.0])
def test_directions_follow_the_cone_measure(q):
    # Under it |d_1|^q ~ Beta(1/q, (m - 1)/q).
    _, first = radius_and_first_direction(q, 4)
    assert stats.kstest(np.abs(first) ** q, stats.beta(1 / q, 3 / q).cdf).pvalue > 0.01


def test_directions_at_infinite_order_lie_on_the_faces_of_the_cube():
    _, first = radius_and_first_direction(np.inf, 4)
    on_face = np.abs(first) == 1
    assert on_face.mean() == pytest.approx(1 / 4, abs=0.03)
    assert stats.kstest(first[~on_face], stats.uniform(-1, 2).cdf).pvalue > 0.01


@pytest.mark.parametrize("q", [0.5, 1.5, 8.0])
def test_draws_fill_a_box_as_the_density_says(law, q):
    draws = pm.draw(MixedNorm.dist(1.0, q, shape=(20000, 2)), random_seed=31)
    inside = np.mean((draws[:, 0] > 0.1) & (draws[:, 0] < 1.1) & (draws[:, 1] > 0.2) & (draws[:, 1] < 0.7))
    x, x_weights = nodes_and_weights(40, 1.0)
    y, y_weights = nodes_and_weights(40, 0.5)
    grid = np.stack(np.meshgrid(0.1 + x, 0.2 + y, indexing="ij"), axis=-1)
    expected = x_weights @ np.exp(law(grid.reshape(-1, 2), 1.0, q)[0]).reshape(40, 40) @ y_weights
    assert inside == pytest.approx(expected, abs=4 * np.sqrt(expected / 20000))


class TestRandomVariable(BaseTestDistributionRandom):
    pymc_dist = MixedNorm
    pymc_dist_params = {"strength": 0.5, "q": 3.0, "n_entries": 4}
    expected_rv_op_params = {"strength": 0.5, "q": 3.0, "n_entries": 4}
    sizes_to_check = [None, (), 1, (2, 3)]
    sizes_expected = [(4,), (4,), (1, 4), (2, 3, 4)]
    checks_to_run = ["check_pymc_params_match_rv_op", "check_rv_size"]


@pytest.mark.parametrize(
    ("strength", "q", "shape"),
    [
        (1.0, 2.0, (3,)),
        ([1.0, 2.0], 2, (2, 3)),
        ([1.0, 2.0], [1.0, np.inf], (2, 3)),
        (1, [1.5, 3.0], (4, 2, 3)),
    ],
)
def test_parameters_broadcast_over_rows(strength, q, shape):
    rows = MixedNorm.dist(strength, q, shape=shape)
    value = np.random.default_rng(5).normal(size=shape)
    assert pm.draw(rows, random_seed=1).shape == shape
    flat = value.reshape(-1, 3)
    parameters = zip(flat, *(np.broadcast_to(p, shape[:-1]).ravel() for p in (strength, q)), strict=True)
    expected = [log_density_by_formula(row[None], s, order)[0] for row, s, order in parameters]
    np.testing.assert_allclose(pm.logp(rows, value).eval(), np.reshape(expected, shape[:-1]), rtol=1e-12)


def test_batch_comes_from_the_parameters_when_nothing_else_is_given():
    assert pm.draw(MixedNorm.dist([1.0, 2.0, 3.0], 2.0, n_entries=2), random_seed=1).shape == (3, 2)


def test_unknown_row_length_is_an_error():
    with pytest.raises(ValueError, match="how many entries a row has; pass shape, dims or observed"):
        MixedNorm.dist(1.0, 2.0)


@pytest.mark.parametrize(("strength", "q", "message"), [(-1.0, 2.0, "strength > 0"), (1.0, -2.0, "q > 0")])
def test_impossible_parameters_are_refused(strength, q, message):
    rows = MixedNorm.dist(strength, q, shape=(2, 3))
    with pytest.raises(pm.logprob.utils.ParameterValueError, match=message):
        pm.draw(rows)
    with pytest.raises(pm.logprob.utils.ParameterValueError, match=message):
        pm.logp(rows, np.ones((2, 3))).eval()


def test_support_point_is_zero():
    with pm.Model(coords={"feature": range(4), "task": range(3)}) as model:
        MixedNorm("x", 1.0, 2.0, dims=("feature", "task"))
    assert_support_point_is_expected(model, np.zeros((4, 3)))
