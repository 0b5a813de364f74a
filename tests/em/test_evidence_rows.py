"""What a row is worth: closed forms against the evidence with and without it."""

import numpy as np
import pytest
from bayesmtfs.em.evidence_likelihoods import NormalEvidence
from bayesmtfs.em.evidence_rows import RowStatistics, candidate_statistics, gains, losses, statistics
from bayesmtfs.em.evidence_steps import Settings, State, evaluate

from bayesmtfs import simulate_tasks
from bayesmtfs.em.task_relations import from_rows, nearest


@pytest.fixture(params=[False, True], ids=["unrelated", "related"])
def fitted(request):
    sim = simulate_tasks(n_tasks=3, n_features=9, n_samples=12, n_relevant=5, relatedness=0.6, random_state=1)
    family = NormalEvidence(sim.data, True, False, 1e-3)
    settings = Settings(family, np.arange(9), 3, row_cost=0.0)
    relations = nearest(from_rows(np.full((3, 3), 0.6) + 0.4 * np.eye(3))) if request.param else None
    active = np.array([0, 2, 3, 5, 8])
    return settings, State(active, np.linspace(0.2, 1.0, 5), family.at_share(0.5), relations)


def test_losses_are_the_evidence_without_each_row(fitted):
    settings, state = fitted
    point = evaluate(settings, state)
    found = losses(statistics(point.posterior, state.relations), state.row_variances)
    for i in range(5):
        kept = np.arange(5) != i
        without = state._replace(active=state.active[kept], row_variances=state.row_variances[kept])
        assert found[i] == pytest.approx(evaluate(settings, without).objective - point.objective, abs=1e-9)


def test_gains_are_the_evidence_with_each_row(fitted):
    settings, state = fitted
    family = settings.family
    everything = family.tasks(np.arange(9), state.parameters)
    precision = family.precision(state.parameters)
    candidates = candidate_statistics(everything, state.active, state.row_variances, precision, state.relations)
    gain, variance = gains(candidates)
    before = evaluate(settings, state).objective
    idle = np.setdiff1d(np.arange(9), state.active)
    assert (gain[idle] > 0).any()
    for i in idle:
        if gain[i] == 0:
            continue
        features = np.append(state.active, i)
        order = np.argsort(features)
        variances = np.append(state.row_variances, variance[i])[order]
        after = evaluate(settings, state._replace(active=features[order], row_variances=variances)).objective
        assert gain[i] == pytest.approx(before - after, abs=1e-3)


def test_a_row_that_explains_nothing_gains_nothing():
    gain, variance = gains(statistics_of(curvature=2.0, squared_score=1.9))
    assert gain[0] == 0 and variance[0] == 0


def test_the_best_variance_of_equal_curvatures_is_the_closed_one():
    # maximum of -m ln(1 + gamma e) + gamma s / (1 + gamma e): gamma = (s / m - e) / e^2
    gain, variance = gains(statistics_of(curvature=2.0, squared_score=20.0))
    assert variance[0] == pytest.approx((20.0 - 2.0) / 4.0, rel=0.2)
    assert gain[0] == pytest.approx(0.5 * 3 * (20.0 / 2.0 - 1.0 - np.log(10.0)), rel=1e-2)


def statistics_of(curvature, squared_score, m=3):
    return RowStatistics(np.full((1, m), curvature), np.full((1, m), squared_score))
