"""The LKJ prior and the symmetric root against closed forms, SciPy and finite differences."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.linalg import sqrtm
from scipy.stats import beta, kstest

from bayesmtfs.models.matrix_variate import cholesky_of_partial_correlations, symmetric_root, task_correlation

SHARE = np.array([0.3, 0.8, 0.55, 0.1, 0.62, 0.47])
LOWER = np.tril_indices(4, -1)


@pytest.fixture(scope="module")
def correlation_and_jacobian():
    """R (4, 4) from ``(1 + r) / 2`` of the partial correlations, and the derivative of its lower entries."""
    share = pt.dvector("share")
    factor = cholesky_of_partial_correlations(pt.zeros((4, 4))[LOWER].set(2.0 * share - 1.0))
    R = factor @ factor.T
    jacobian = pt.stack([pt.grad(R[i, j], share) for i, j in zip(*LOWER, strict=True)])
    return pytensor.function([share], [R, jacobian], mode="FAST_COMPILE")


def test_partial_correlations_make_a_correlation_matrix(correlation_and_jacobian):
    R, _ = correlation_and_jacobian(SHARE)
    np.testing.assert_allclose(np.diag(R), 1.0, rtol=1e-14)
    assert np.linalg.eigvalsh(R)[0] > 0
    np.testing.assert_allclose(R[1:, 0], 2 * SHARE[[0, 1, 3]] - 1)
    # The correlation of tasks 2 and 3 with the first taken out, by its textbook formula
    partial = (R[2, 1] - R[2, 0] * R[1, 0]) / np.sqrt((1 - R[2, 0] ** 2) * (1 - R[1, 0] ** 2))
    assert partial == pytest.approx(2 * SHARE[2] - 1)


@pytest.mark.parametrize("concentration", [1.0, 2.0, 4.5])
def test_density_is_a_power_of_the_determinant(correlation_and_jacobian, concentration):
    shape = concentration + 0.5 * (2 - LOWER[1])
    constants = []
    for share in (SHARE, 0.5 * SHARE, np.full(6, 0.5)):
        R, jacobian = correlation_and_jacobian(share)
        log_density = beta.logpdf(share, shape, shape).sum() - np.linalg.slogdet(jacobian)[1]
        constants.append(log_density - (concentration - 1) * np.linalg.slogdet(R)[1])
    np.testing.assert_allclose(constants, constants[0], rtol=0, atol=1e-10)


def test_every_correlation_has_the_marginal_of_the_lkj_law():
    with pm.Model(coords={"task": range(4), "task_bis": range(4)}):
        R = pm.draw(task_correlation("R", 4, 2.0), draws=400, random_seed=3, mode="FAST_COMPILE")
    for i, j in zip(*LOWER, strict=True):
        assert kstest(0.5 * (1 + R[:, i, j]), beta(3.0, 3.0).cdf).pvalue > 0.005


def test_one_task_has_no_relations():
    with pm.Model(coords={"task": [0], "task_bis": [0]}) as model:
        R = task_correlation("R", 1, 2.0)
    np.testing.assert_array_equal(R.eval(mode="FAST_COMPILE"), [[1.0]])
    assert model.free_RVs == []


@pytest.fixture(scope="module")
def root_and_gradient():
    """Root of a matrix, and the derivative of ``sum(weight * root)``."""
    matrix, weight = pt.matrix("matrix", dtype="float64"), pt.matrix("weight", dtype="float64")
    root = symmetric_root(matrix)
    gradient = pt.grad(pt.sum(weight * root), matrix)
    return pytensor.function([matrix, weight], [root, gradient], mode="FAST_COMPILE", on_unused_input="ignore")


MATRICES = {
    "identity": np.eye(4),
    "two equal eigenvalues": 0.6 * np.eye(4) + 0.4,
    "correlations": np.corrcoef(np.random.default_rng(1).normal(size=(4, 9))),
}


@pytest.mark.parametrize("name", MATRICES)
def test_symmetric_root_and_its_gradient(root_and_gradient, name):
    matrix = MATRICES[name]
    rng = np.random.default_rng(2)
    weight, direction = rng.normal(size=(4, 4)), rng.normal(size=(4, 4))
    direction += direction.T
    root, gradient = root_and_gradient(matrix, weight)
    np.testing.assert_allclose(root, np.real(sqrtm(matrix)), atol=1e-12)
    step = 1e-5
    ahead, behind = (np.sum(weight * np.real(sqrtm(matrix + sign * step * direction))) for sign in (1, -1))
    assert np.sum(gradient * direction) == pytest.approx((ahead - behind) / (2 * step), rel=1e-7)
