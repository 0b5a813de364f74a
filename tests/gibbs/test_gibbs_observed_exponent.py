"""What the walk on 1/q by observation keeps up with: predictors, precisions and the likelihood."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs import observed_exponent as steps
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs.observations import fill_predictors, log_likelihood, observations_of, working_for
from bayesmtfs.priors.hyperpriors import hyperprior_for

WEIGHTS = np.tile([1.0, 2.0, 1.0, 3.0], 6)


class Walk:
    """A small problem with a state, ready for steps."""

    def __init__(self, labels):
        self.rng = np.random.Generator(np.random.PCG64(7))
        self.X, self.tasks = self.rng.standard_normal((24, 3)), np.arange(24) // 8
        y = np.where(self.rng.random(24) < 0.5, -1.0, 1.0)
        self.data = TaskData.from_long(self.X, y, tasks=self.tasks, sample_weight=WEIGHTS)
        prior = hyperprior_for(self.data, "logistic" if labels else "squared")
        self.rows, self.law = gibbs_state.rows_of(self.data), gibbs_state.law_of(prior, learn_q=True)
        self.observations = observations_of(self.data, 0.0, labels)
        noise = np.ones(3) if labels else np.array([0.5, 1.0, 2.0])
        W, intercept = self.rng.standard_normal((3, 3)), self.rng.standard_normal(3)
        self.state = gibbs_state.state_around(self.rows, self.law, W, intercept, noise, 2.0, self.rng)
        self.state.information[:] = [2.0, 0.1, -1.0]
        self.working = working_for(self.observations)
        self.space = steps.observed_exponent_space(self.observations, self.rows)
        fill_predictors(self.observations, self.rows, self.state, self.working.predictors)

    def fill_precisions(self, tuning):
        steps.fill_precisions(self.observations, self.working, self.rows, self.state, tuning, self.space)
        return self.space.carried.precisions

    def curvatures(self, labels):
        """(24,) Minus the second derivative of the log-likelihood."""
        chance = expit(self.working.predictors)
        return WEIGHTS * (chance * (1.0 - chance) if labels else self.state.noise[self.tasks] ** -2.0)

    def expected_precisions(self, labels):
        weighted = self.curvatures(labels)[:, np.newaxis] * self.X**2
        return np.array([weighted[self.tasks == t].sum(axis=0) for t in range(3)])


@pytest.fixture(params=[True, False], ids=["labels", "normal"])
def labels(request):
    return request.param


@pytest.fixture
def walk(labels):
    return Walk(labels)


def test_likelihood_differences(walk, labels):
    first, second = walk.working.predictors, walk.rng.standard_normal(24)
    got = log_likelihood(walk.observations, walk.state, first) - log_likelihood(walk.observations, walk.state, second)
    y, noise = walk.observations.targets, walk.state.noise[walk.tasks]
    one, other = (
        np.sum(WEIGHTS * (np.log(expit(y * eta)) if labels else stats.norm(eta, noise).logpdf(y)))
        for eta in (first, second)
    )
    assert got == pytest.approx(one - other, rel=1e-10)


def test_precisions_of_the_data(walk, labels):
    first = walk.expected_precisions(labels)
    np.testing.assert_allclose(walk.fill_precisions(1), first, rtol=1e-12)
    walk.working.predictors[:] *= 0.3
    walk.state.noise[:] *= 2.0
    second = walk.expected_precisions(labels)
    wanted = 0.5 * (first + second) if labels else second
    np.testing.assert_allclose(walk.fill_precisions(2), wanted, rtol=1e-12)
    walk.working.predictors[:] = 0.0
    walk.fill_precisions(0)  # tuned no more: labels keep what was learned, which must not hang on the state
    np.testing.assert_allclose(walk.space.carried.precisions, wanted, rtol=1e-12)


def test_predictors_follow_and_some_steps_are_refused(walk):
    walk.fill_precisions(1)
    seen = []
    for _ in range(200):
        arguments = (walk.observations, walk.working, walk.rows, walk.law, walk.state, 0, walk.space)
        steps.step_on_observed_exponent(walk.rng, *arguments)
        seen.append(walk.state.numbers[gibbs_state.INVERSE_Q])
    moved = np.mean(np.diff(seen) != 0.0)
    assert 0.1 < moved < 1.0
    assert walk.law.inverse_low <= min(seen) and max(seen) <= walk.law.inverse_high
    kept = walk.working.predictors.copy()
    fill_predictors(walk.observations, walk.rows, walk.state, walk.working.predictors)
    np.testing.assert_allclose(kept, walk.working.predictors, rtol=1e-9, atol=1e-12)


def test_step_is_tuned_towards_the_wished_acceptance(walk):
    walk.fill_precisions(1)
    walk.state.numbers[gibbs_state.STEP] = 1e-4
    for number in range(1, 300):
        arguments = (walk.observations, walk.working, walk.rows, walk.law, walk.state, number, walk.space)
        steps.step_on_observed_exponent(walk.rng, *arguments)
    assert 0.05 < walk.state.numbers[gibbs_state.STEP] < 1.0
