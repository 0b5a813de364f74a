"""Evidence steps: what is guaranteed never to rise does not, and all of them rest where the gradient is zero."""

import numpy as np
import pytest
from bayesmtfs.em.evidence_likelihoods import LogisticEvidence, NormalEvidence
from bayesmtfs.em.evidence_steps import Settings, State, evaluate, step

from bayesmtfs import simulate_tasks
from bayesmtfs.em.task_relations import unrelated


def start(kind="regression", related=False, seed=0, groups=None, **simulation):
    sim = simulate_tasks(
        n_tasks=4, n_features=8, n_samples=15, n_relevant=3, kind=kind, relatedness=0.7, random_state=seed, **simulation
    )
    if kind == "regression":
        family = NormalEvidence(sim.data, True, False, 1e-3)
    else:
        family = LogisticEvidence(sim.data, True)
    rows = np.arange(8) if groups is None else np.array(groups)
    settings = Settings(family, rows, 4, row_cost=0.0, shrinkage=2.0)
    state = State(np.arange(8), np.full(8, 0.3), family.start(), unrelated(4) if related else None)
    return settings, state


@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1, 2, 2, 2, 3]])
@pytest.mark.parametrize("related", [False, True])
@pytest.mark.parametrize(
    ("kind", "boldness"), [("regression", 0.5), ("regression", 0.0), ("classification", 0.0)], ids=str
)
@pytest.mark.parametrize("seed", range(3))
def test_bound_and_em_never_raise_the_objective(kind, boldness, related, groups, seed):
    settings, state = start(kind, related, seed, groups)
    values = []
    for _ in range(15):
        point = evaluate(settings, state)
        values.append(point.objective)
        state = step(settings, point, boldness)
    assert np.all(np.diff(values) <= 1e-10 * np.abs(values[:-1]))
    assert values[-1] < values[0] - 0.1


@pytest.mark.parametrize("boldness", [1.0, 0.5, 0.0])
def test_steps_rest_only_where_the_evidence_is_stationary_in_the_row_variances(boldness):
    settings, state = start(seed=1)
    for _ in range(3000):
        state = step(settings, evaluate(settings, state), boldness)
    best = evaluate(settings, state).objective
    alive = np.flatnonzero(state.row_variances > 1e-3)
    assert 0 < len(alive)
    for i in alive:
        for factor in (0.99, 1.01):
            moved = state.row_variances.copy()
            moved[i] *= factor
            assert evaluate(settings, state._replace(row_variances=moved)).objective >= best - 1e-9


def test_features_of_a_group_share_their_variance():
    settings, state = start(groups=[0, 0, 1, 1, 2, 2, 2, 3])
    for boldness in (1.0, 0.5, 0.0):
        state = step(settings, evaluate(settings, state), boldness)
    assert state.row_variances[0] == state.row_variances[1] != state.row_variances[2]


def test_vanishing_rows_leave():
    settings, state = start(seed=2)
    state = state._replace(row_variances=np.where(np.arange(8) == 5, 1e-12, 0.3))
    point = evaluate(settings, state)
    shrinking = np.sum(point.posterior.score**2, axis=1) < point.posterior.curvature.sum(axis=1)
    after = step(settings, point, 0.5)
    assert (5 in after.active) != bool(shrinking[5])
    assert set(after.active) >= set(range(8)) - {5}


def test_row_cost_counts_rows_not_features():
    settings, state = start(groups=[0, 0, 1, 1, 2, 2, 2, 3])
    free = evaluate(settings, state).objective
    costly = Settings(settings.family, settings.row_of_feature, 4, row_cost=10.0, shrinkage=2.0)
    assert evaluate(costly, state).objective == pytest.approx(free + 40.0)
