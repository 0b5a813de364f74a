"""The models with their row scales integrated out numerically, against what EM and MM minimise."""

import numpy as np
import pytest
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.compile.mode import Mode
from scipy.special import logsumexp
from scipy.stats import beta, norm

import bayesmtfs as bm
from bayesmtfs.models import generalized_normal_model, jeffreys_model, matrix_variate_model
from bayesmtfs.priors.hyperpriors import hyperprior_for, log_noise_density
from bayesmtfs.priors.row_penalty import row_norms

BOUNDS = (1e-9, 1e9)  # as good as none next to rows of size 1
STEP = 0.1
LOG_TWO_PI = np.log(2 * np.pi)
UNCHANGED = Mode(linker="py", optimizer=None)  # rewriting a graph would take most of the time


def log_intercepts(fit, prior):
    return norm.logpdf(fit.intercept_, prior.intercept_centre, prior.intercept_scale).sum()


def simulated(kind="regression"):
    return bm.simulate_tasks(n_tasks=3, n_features=2, n_relevant=2, n_samples=30, kind=kind, random_state=2)


def fitted(estimator, sim):
    fit = estimator.fit(sim.X, sim.y, tasks=sim.tasks)
    assert np.all(fit.coef_ != 0)  # a row that is left out counts with a floor, which no model has
    return fit


class IntegratedModel:
    """Log-probability of a centred model as a function of everything but the row scales, which are integrated out."""

    def __init__(self, model, mode=UNCHANGED):
        plain = remove_value_transforms(model)
        self.log_probability = plain.compile_fn(plain.logp(), inputs=plain.value_vars, mode=mode)

    def __call__(self, norm_q, **point):
        """Rows are independent given W, so that the integral over all scales is a product of integrals.

        The integrand in ln rho is smooth and dies at both ends: the trapezoidal rule converges exponentially.
        """
        scales = np.log(row_norms(point["coef"], norm_q))
        base = self.at(scales, point)
        total = base
        for i in range(len(scales)):
            moved = np.tile(scales, (120, 1))
            moved[:, i] += np.arange(-30, 90) * STEP
            total += logsumexp([self.at(row, point) for row in moved]) + np.log(STEP) - base
        return total

    def at(self, log_row_scale, point):
        return float(self.log_probability(point | {"log_row_scale": log_row_scale}))


def log_width(n_features):
    """Logarithm of the density of independent log-uniform scales."""
    return -n_features * np.log(np.log(BOUNDS[1] / BOUNDS[0]))


@pytest.mark.parametrize("norm_q", [1.5, 2, 4])
def test_jeffreys_regression_is_what_em_minimises(norm_q):
    sim = simulated()
    prior = hyperprior_for(sim.data)
    integrated = IntegratedModel(jeffreys_model(sim.data, BOUNDS, norm_q, centred=True))
    for noise_floor in (None, 0.4):
        fit = fitted(bm.JeffreysRegressor(norm_q=norm_q, noise_floor=noise_floor), sim)
        found = integrated(norm_q, coef=fit.coef_.T, intercept=fit.intercept_, noise=fit.noise_)
        priors = log_intercepts(fit, prior) + np.sum(log_noise_density(fit.noise_, prior))
        expected = priors + log_width(2) - fit.objective_trace_[-1] - 0.5 * len(sim.y) * LOG_TWO_PI
        assert found == pytest.approx(expected, abs=1e-6)


def test_jeffreys_classification_is_what_em_minimises():
    sim = simulated("classification")
    prior = hyperprior_for(sim.data, "logistic")
    integrated = IntegratedModel(jeffreys_model(sim.data, BOUNDS, loss="logistic", centred=True))
    fit = fitted(bm.JeffreysClassifier(offset=0.0), sim)
    found = integrated(2, coef=fit.coef_.T, intercept=fit.intercept_)
    expected = log_intercepts(fit, prior) + log_width(2) - fit.objective_trace_[-1]
    assert found == pytest.approx(expected, abs=1e-6)


def partial_shares(R):
    """``(1 + r) / 2`` of the partial correlations of R, below the diagonal row by row, from its Cholesky factor."""
    L = np.linalg.cholesky(R)
    shares = []
    for i in range(1, len(R)):
        left = 1.0
        for k in range(i):
            r = L[i, k] / left
            left *= np.sqrt(1 - r**2)
            shares.append(0.5 * (1 + r))
    return np.array(shares)


@pytest.mark.parametrize("shrinkage", [2.0, 20.0])
def test_matrix_variate_is_what_em_minimises(shrinkage):
    """Apart from the prior of the task relations, which EM has as a number of further, unrelated rows."""
    sim = simulated()
    prior = hyperprior_for(sim.data)
    model = matrix_variate_model(sim.data, kind="log_uniform", bounds=BOUNDS, centred=True)
    integrated = IntegratedModel(model, mode="FAST_COMPILE")  # a root in an unchanged graph is compiled
    fit = fitted(bm.MatrixVariateRegressor(relation_shrinkage=shrinkage), sim)
    R = fit.task_relations_
    assert np.max(np.abs(R - np.eye(3))) > 0.01
    shares = partial_shares(R)
    found = integrated(
        2, coef=fit.coef_.T, intercept=fit.intercept_, noise=fit.noise_, partial_correlation_share=shares
    )
    pull = 0.5 * shrinkage * (np.linalg.slogdet(R)[1] + np.trace(np.linalg.inv(R)) - 3)
    shapes = np.array([2.5, 2.5, 2.0])
    priors = log_intercepts(fit, prior) + np.sum(log_noise_density(fit.noise_, prior))
    priors += np.sum(beta.logpdf(shares, shapes, shapes))
    expected = priors + log_width(2) + pull - fit.objective_trace_[-1] - 0.5 * len(sim.y) * LOG_TWO_PI
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("norm_q", [1.5, 3])
def test_problem_5_is_the_limit_of_small_shapes(norm_q):
    """With shapes near 0 the beta prime scales are Jeffreys', whose marginal is the penalty of problem (5)."""
    sim = simulated()
    shapes = {"tail_shape": 1e-10, "spike_shape": 1e-10}
    prior = hyperprior_for(sim.data, shared_noise=True, learn_global_scale=False, **shapes)
    integrated = IntegratedModel(generalized_normal_model(sim.data, norm_q, prior=prior, centred=True))
    gaps = []
    for noise in (0.2, 0.35, 0.5):
        fit = fitted(bm.GeneralizedNormalRegressor(norm_q=norm_q, offset=1e-9, noise=noise), sim)
        found = integrated(norm_q, coef=fit.coef_.T, intercept=fit.intercept_, shared_noise=noise)
        priors = log_intercepts(fit, prior) + float(log_noise_density(noise, prior))
        gaps.append(found + fit.objective_trace_[-1] + len(sim.y) * np.log(noise) - priors)
    np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-6)
