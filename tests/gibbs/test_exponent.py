"""The walk on 1/q: quantiles, maps, and the data in sums and by observation."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families.augmentation import NORMAL, POLYA_GAMMA
from bayesmtfs.gibbs import exponent as steps
from bayesmtfs.gibbs import state as gibbs_state
from bayesmtfs.gibbs.state import fill_predictors, log_likelihood, observations_of
from bayesmtfs.priors.hyperpriors import hyperprior_for


def nodes_at(norm_q):
    nodes = np.zeros(steps.EVEN_NODES + steps.TAIL_NODES)
    steps.fill_quantiles(1.0 / norm_q, nodes)
    return nodes


@pytest.mark.parametrize(("number", "folded"), [(0.5, 0.5), (1.1, 0.9), (-0.06, 0.1), (2.5, 0.54)])
def test_reflection_stays_inside(number, folded):
    assert steps.reflected(number, 0.02, 1.0) == pytest.approx(folded)


@pytest.mark.parametrize("norm_q", [0.7, 1.0, 2.0, 8.0, 50.0])
def test_nodes_are_quantiles(norm_q):
    nodes = nodes_at(norm_q)
    assert nodes[0] == 0.0
    assert np.all(np.diff(nodes) > 0)
    tails = 2.0 * stats.gennorm(norm_q).sf(nodes)
    even = steps.EVEN_NODES * 15 // 16 + 1
    np.testing.assert_allclose(tails[:even], 1.0 - np.arange(even) / steps.EVEN_NODES, atol=0.01)


@pytest.mark.parametrize(("old", "new"), [(1.0, 1.4), (4.0, 3.0), (2.0, 40.0)])
def test_map_keeps_the_law_and_goes_back(old, new):
    rng = np.random.default_rng(0)
    z = np.abs(stats.gennorm(old).rvs(3000, random_state=rng))
    first, second = nodes_at(old), nodes_at(new)
    moved, slopes = np.transpose([steps.same_rank(value, first, second) for value in z])
    assert stats.kstest(moved, lambda x: 2.0 * stats.gennorm(new).cdf(x) - 1.0).pvalue > 0.001
    back, inverse_slopes = np.transpose([steps.same_rank(value, second, first) for value in moved])
    np.testing.assert_allclose(back, z, atol=1e-12)
    inside = z < first[-1]
    np.testing.assert_allclose((slopes * inverse_slopes)[inside], 1.0, rtol=1e-9)


@pytest.mark.parametrize("share", [0.02, 0.4, 1.0])
@pytest.mark.parametrize(("old", "new"), [(1.0, 1.4), (4.0, 3.0), (2.0, 40.0)])
def test_blended_map_is_undone(old, new, share):
    first, second = nodes_at(old), nodes_at(new)
    units = [1.0 / stats.gennorm(q).std() for q in (old, new)]
    for x in np.linspace(0.0, 4.0, 41):
        moved, slope = steps.blended(x, share, *units, first, second)
        back, inverse_slope = steps.unblended(moved, share, *units, first, second)
        assert back == pytest.approx(x, abs=1e-12)
        assert slope * inverse_slope == pytest.approx(1.0, rel=1e-9)
        step = 1e-7
        rise = steps.blended(x + step, share, *units, first, second)[0] - moved
        assert rise / step == pytest.approx(slope, rel=1e-5) or x == 0.0 or is_node(x, units[0], first)


def is_node(x, unit, nodes):
    return np.abs(nodes * unit - x).min() < 1e-6


def test_blended_map_ends_where_the_data_say_nothing_or_everything():
    first, second = nodes_at(1.2), nodes_at(6.0)
    units = [1.0 / stats.gennorm(q).std() for q in (1.2, 6.0)]
    moved, slope = steps.blended(1.3, 1.0, *units, first, second)
    rank = stats.gennorm(1.2, scale=units[0]).cdf(1.3)
    assert moved == pytest.approx(stats.gennorm(6.0, scale=units[1]).ppf(rank), rel=0.02)
    assert steps.blended(1.3, 0.0, *units, first, second) == pytest.approx((1.3, 1.0))


WEIGHTS = np.tile([1.0, 2.0, 1.0, 3.0], 6)


class Walk:
    """A small problem with a state, ready for steps."""

    def __init__(self, labels):
        self.rng = np.random.Generator(np.random.PCG64(7))
        self.X, self.tasks = self.rng.standard_normal((24, 3)), np.arange(24) // 8
        y = np.where(self.rng.random(24) < 0.5, -1.0, 1.0)
        self.data = TaskData.from_long(self.X, y, tasks=self.tasks, sample_weight=WEIGHTS)
        prior = hyperprior_for(self.data, "logistic" if labels else "squared")
        self.rows, self.prior_numbers = gibbs_state.rows_of(self.data), gibbs_state.gibbs_prior(prior, learn_q=True)
        self.observations = observations_of(self.data, 0.0, POLYA_GAMMA if labels else NORMAL)
        noise = np.ones(3) if labels else np.array([0.5, 1.0, 2.0])
        W, intercept = self.rng.standard_normal((3, 3)), self.rng.standard_normal(3)
        self.state = gibbs_state.state_around(self.rows, self.prior_numbers, W, intercept, noise, 2.0, self.rng)
        self.state.information[:] = [2.0, 0.1, -1.0]
        self.space = steps.observed_exponent_space(self.observations, self.rows)
        fill_predictors(self.observations, self.rows, self.state, self.observations.predictors)

    def fill_precisions(self, tuning):
        steps.fill_precisions(self.observations, self.rows, self.state, tuning, self.space)
        return self.space.carried.precisions

    def curvatures(self, labels):
        """(24,) Minus the second derivative of the log-likelihood."""
        chance = expit(self.observations.predictors)
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
    first, second = walk.observations.predictors, walk.rng.standard_normal(24)
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
    walk.observations.predictors[:] *= 0.3
    walk.state.noise[:] *= 2.0
    second = walk.expected_precisions(labels)
    wanted = 0.5 * (first + second) if labels else second
    np.testing.assert_allclose(walk.fill_precisions(2), wanted, rtol=1e-12)
    walk.observations.predictors[:] = 0.0
    walk.fill_precisions(0)  # tuned no more: labels keep what was learned, which must not hang on the state
    np.testing.assert_allclose(walk.space.carried.precisions, wanted, rtol=1e-12)


def test_predictors_follow_and_some_steps_are_refused(walk):
    walk.fill_precisions(1)
    seen = []
    for _ in range(200):
        arguments = (walk.observations, walk.rows, walk.prior_numbers, walk.state, 0, walk.space)
        steps.step_on_observed_exponent(walk.rng, *arguments)
        seen.append(walk.state.inverse_q[0])
    moved = np.mean(np.diff(seen) != 0.0)
    assert 0.1 < moved < 1.0
    assert walk.prior_numbers.inverse_low <= min(seen) and max(seen) <= walk.prior_numbers.inverse_high
    kept = walk.observations.predictors.copy()
    fill_predictors(walk.observations, walk.rows, walk.state, walk.observations.predictors)
    np.testing.assert_allclose(kept, walk.observations.predictors, rtol=1e-9, atol=1e-12)


def test_step_is_tuned_towards_the_wished_acceptance(walk):
    walk.fill_precisions(1)
    walk.state.exponent_step[0] = 1e-4
    for number in range(1, 300):
        arguments = (walk.observations, walk.rows, walk.prior_numbers, walk.state, number, walk.space)
        steps.step_on_observed_exponent(walk.rng, *arguments)
    assert 0.05 < walk.state.exponent_step[0] < 1.0
