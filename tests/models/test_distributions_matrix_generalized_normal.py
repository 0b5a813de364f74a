"""MatrixGeneralizedNormal against the normal law, a change of variables, quadrature and the moments of its draws."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from scipy import optimize, stats
from scipy.special import gamma

from bayesmtfs.models import MatrixGeneralizedNormal

pytestmark = pytest.mark.usefixtures("quick_compilation")

ROW_SCALE = np.array([0.5, 1.0, 3.0, 2.0])
# Not symmetric, so that Omega^T Omega and Omega Omega^T differ; negative determinant.
TASK_FACTOR = np.array([[0.2, 1.1, 0.4], [1.3, 0.3, -0.5], [0.0, 0.6, 0.9]])


@pytest.fixture(scope="module")
def law():
    """Log-density of (n, p, m) matrices, and the gradients of its sum in (W, row_scale, task_factor, q)."""
    W, row_scale, task_factor, q = inputs = [pt.dtensor3("W"), pt.dvector("rho"), pt.dmatrix("omega"), pt.dscalar("q")]
    density = pm.logp(MatrixGeneralizedNormal.dist(row_scale, task_factor, q), W)
    return pytensor.function(inputs, [density, *pt.grad(density.sum(), inputs)])


@pytest.fixture(scope="module")
def matrices():
    return np.random.default_rng(8).normal(size=(5, 4, 3))


def test_shape_two_is_the_matrix_normal_law_with_the_transposed_factor_first(law, matrices):
    reference = stats.matrix_normal(rowcov=np.diag(ROW_SCALE**2 / 2), colcov=TASK_FACTOR.T @ TASK_FACTOR)
    np.testing.assert_allclose(law(matrices, ROW_SCALE, TASK_FACTOR, 2.0)[0], reference.logpdf(matrices), rtol=1e-12)


@pytest.mark.parametrize("q", [0.7, 1.0, 1.5, 3.0, 20.0])
def test_log_density_is_a_change_of_variables(law, q):
    # Standard entries are drawn with SciPy, so that all of them are well inside the density.
    standard = stats.gennorm(q).rvs(size=(5, 4, 3), random_state=4)
    matrices = ROW_SCALE[:, None] * (standard @ TASK_FACTOR)
    jacobian = np.abs(np.linalg.det(np.kron(np.diag(ROW_SCALE), TASK_FACTOR.T)))
    expected = stats.gennorm(q).logpdf(standard).sum(axis=(1, 2)) - np.log(jacobian)
    np.testing.assert_allclose(law(matrices, ROW_SCALE, TASK_FACTOR, q)[0], expected, rtol=1e-10)


def test_infinite_shape_is_uniform_on_a_box(law):
    inside = np.random.default_rng(2).uniform(-1, 1, size=(2, 4, 3))
    inside[1, 2, 1] = 1.01
    density, *gradients = law(ROW_SCALE[:, None] * (inside @ TASK_FACTOR), ROW_SCALE, TASK_FACTOR, np.inf)
    volume = 2.0**12 * np.prod(ROW_SCALE) ** 3 * np.abs(np.linalg.det(TASK_FACTOR)) ** 4
    np.testing.assert_allclose(density, [-np.log(volume), -np.inf])
    assert np.isfinite(gradients[0][0]).all()


@pytest.mark.parametrize("q", [1.5, 4.0])
def test_density_of_one_row_integrates_to_one(law, q):
    axis = np.linspace(-9.0, 9.0, 91)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 1, 2)
    density = np.exp(law(grid, np.array([1.4]), np.array([[1.0, 0.3], [-0.4, 0.8]]), q)[0])
    assert density.sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1.0, abs=1e-4)


def test_gradients_agree_with_finite_differences(law, matrices):
    parameters = [matrices[:1], ROW_SCALE, TASK_FACTOR, np.array(1.6)]
    sizes = np.cumsum([p.size for p in parameters])[:-1]

    def density(flat):
        parts = np.split(flat, sizes)
        return law(*(part.reshape(p.shape) for part, p in zip(parts, parameters, strict=True)))[0][0]

    numeric = optimize.approx_fprime(np.concatenate([p.ravel() for p in parameters]), density, 1e-7)
    exact = np.concatenate([gradient.ravel() for gradient in law(*parameters)[1:]])
    np.testing.assert_allclose(exact, numeric, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("q", [0.7, 1.0, 2.0, 5.0])
def test_gradients_are_finite_at_zero(law, q):
    gradients = law(np.zeros((1, 4, 3)), ROW_SCALE, TASK_FACTOR, q)[1:]
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    np.testing.assert_array_equal(gradients[0], 0.0)


@pytest.mark.parametrize("q", [0.8, 2.0, 6.0, np.inf])
def test_draws_follow_the_law(q):
    draws = pm.draw(MatrixGeneralizedNormal.dist(ROW_SCALE, TASK_FACTOR, q, size=6000), random_seed=40)
    standard = np.linalg.solve(TASK_FACTOR.T, (draws / ROW_SCALE[:, None]).swapaxes(1, 2))
    reference = stats.gennorm(q) if q < np.inf else stats.uniform(-1, 2)
    assert stats.kstest(standard[:, 1, 2], reference.cdf).pvalue > 0.01
    variance = gamma(3 / q) / gamma(1 / q) if q < np.inf else 1 / 3
    for i in (0, 2):
        expected = ROW_SCALE[i] ** 2 * variance * TASK_FACTOR.T @ TASK_FACTOR
        np.testing.assert_allclose(np.cov(draws[:, i].T), expected, atol=0.08 * np.abs(expected).max())
    across = np.corrcoef(draws[:, 0, 0], draws[:, 1, 0])[0, 1]
    assert abs(across) < 0.05


def test_batches_of_parameters(law, matrices):
    scales = np.stack([ROW_SCALE, 2 * ROW_SCALE])
    factors = np.stack([TASK_FACTOR, TASK_FACTOR.T])
    batch = MatrixGeneralizedNormal.dist(scales, factors, [2.0, 1.3])
    assert pm.draw(batch, random_seed=1).shape == (2, 4, 3)
    singly = [law(matrices[k : k + 1], scales[k], factors[k], q)[0][0] for k, q in enumerate((2.0, 1.3))]
    np.testing.assert_allclose(pm.logp(batch, matrices[:2]).eval(), singly, rtol=1e-12)


class TestRandomVariable(BaseTestDistributionRandom):
    pymc_dist = MatrixGeneralizedNormal
    pymc_dist_params = {"row_scale": ROW_SCALE, "task_factor": TASK_FACTOR, "q": 3.0}
    expected_rv_op_params = {"row_scale": ROW_SCALE, "task_factor": TASK_FACTOR, "q": 3.0}
    sizes_to_check = [None, (), 1, (2, 3)]
    sizes_expected = [(4, 3), (4, 3), (1, 4, 3), (2, 3, 4, 3)]
    checks_to_run = ["check_pymc_params_match_rv_op", "check_rv_size"]


@pytest.mark.parametrize(
    ("row_scale", "task_factor", "message"),
    [
        (1.0, np.eye(2), "row_scale is a single number; pass one scale per row"),
        ([1.0, 2.0], [1.0, 2.0], "task_factor has 1 dimensions; pass a square matrix"),
    ],
)
def test_parameters_of_the_wrong_kind_are_errors(row_scale, task_factor, message):
    with pytest.raises(ValueError, match=message):
        MatrixGeneralizedNormal.dist(row_scale, task_factor, 2.0)


@pytest.mark.parametrize(("sign", "q", "message"), [(-1.0, 2.0, "row_scale > 0"), (1.0, -2.0, "q > 0")])
def test_impossible_parameters_are_refused(matrices, sign, q, message):
    W = MatrixGeneralizedNormal.dist(sign * ROW_SCALE, TASK_FACTOR, q)
    with pytest.raises(pm.logprob.utils.ParameterValueError, match=message):
        pm.draw(W)
    with pytest.raises(pm.logprob.utils.ParameterValueError, match=message):
        pm.logp(W, matrices[0]).eval()


def test_a_singular_factor_is_refused(matrices):
    with pytest.raises(pm.logprob.utils.ParameterValueError, match="task_factor invertible"):
        pm.logp(MatrixGeneralizedNormal.dist(ROW_SCALE, np.ones((3, 3)), 2.0), matrices[0]).eval()


def test_support_point_is_zero():
    with pm.Model(coords={"feature": range(4), "task": range(3)}) as model:
        MatrixGeneralizedNormal("x", ROW_SCALE, TASK_FACTOR, 2.0, dims=("feature", "task"))
    assert_support_point_is_expected(model, np.zeros((4, 3)))
