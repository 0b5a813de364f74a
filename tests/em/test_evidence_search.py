"""The search: it ends where no row is worth taking out or bringing in, and its trace falls."""

import numpy as np
import pytest
from bayesmtfs.em.evidence_likelihoods import NormalEvidence
from bayesmtfs.em.evidence_search import Search, search_noise
from bayesmtfs.em.evidence_steps import Settings, evaluate

from bayesmtfs import simulate_tasks
from bayesmtfs.em import evidence_search
from bayesmtfs.progress import Progress


def searching(max_iter=1000, groups=None, **simulation):
    sim = simulate_tasks(**{"n_tasks": 3, "n_features": 30, "n_samples": 20, "n_relevant": 4} | simulation)
    family = NormalEvidence(sim.data, True, False, 1e-3)
    rows = np.arange(sim.data.n_features) if groups is None else groups
    settings = Settings(family, rows, sim.data.n_tasks, row_cost=np.log(sim.data.n_features))
    return Search(settings, max_iter, Progress("", False)), family, sim


@pytest.mark.parametrize("seed", range(3))
def test_no_single_row_is_worth_changing_at_the_end(seed):
    search, family, _ = searching(random_state=seed)
    search_noise(search, family, 1e-5)
    search.polish(1e-7)
    assert np.all(np.diff(search.trace) <= 1e-10 * np.abs(search.trace[:-1]))
    settings, (state, _, best) = search.settings, search.point
    for i in range(len(state.active)):
        kept = np.arange(len(state.active)) != i
        without = state._replace(active=state.active[kept], row_variances=state.row_variances[kept])
        assert evaluate(settings, without).objective > best
    for i in np.setdiff1d(np.arange(30), state.active):
        features = np.append(state.active, i)
        order = np.argsort(features)
        for variance in (0.01, 0.1, 1.0):
            variances = np.append(state.row_variances, variance)[order]
            assert evaluate(settings, state._replace(active=features[order], row_variances=variances)).objective > best


def test_rows_that_stand_in_for_each_other_do_not_all_go():
    search, family, sim = searching(random_state=0)
    twin = sim.data.design.copy()
    relevant = np.flatnonzero(sim.support)
    idle = np.flatnonzero(~sim.support)[: len(relevant)]
    twin[:, idle] = twin[:, relevant]
    data = type(sim.data).from_long(twin, sim.data.y, sim.data.task)
    family = NormalEvidence(data, True, False, 1e-3)
    search = Search(Settings(family, np.arange(30), 3, row_cost=np.log(30)), 1000, Progress("", False))
    search_noise(search, family, 1e-5)
    search.polish(1e-7)
    active = set(search.point.state.active.tolist())
    strong = np.abs(sim.coef[:, relevant]).max(axis=0) > 0.5
    for i, j, counts in zip(relevant, idle, strong, strict=True):
        assert len(active & {i, j}) == 1 or not counts


def test_rows_come_back():
    search, family, sim = searching(random_state=1)
    search_noise(search, family, 1e-5)
    search.polish(1e-7)
    full = search.point
    state = full.state
    best = int(np.argmax(state.row_variances))
    kept = np.arange(len(state.active)) != best
    search.begin(state._replace(active=state.active[kept], row_variances=state.row_variances[kept]))
    assert search.add_rows()
    search.polish(1e-7)
    assert search.point.objective == pytest.approx(full.objective, rel=1e-6)
    assert search.point.state.active.tolist() == state.active.tolist()


def test_groups_come_and_go_whole():
    groups = np.repeat(np.arange(10), 3)
    search, family, _ = searching(random_state=2, groups=groups)
    search_noise(search, family, 1e-5)
    search.polish(1e-6)
    rows, counts = np.unique(groups[search.point.state.active], return_counts=True)
    assert len(rows) and (counts == 3).all()


def test_many_features_begin_with_the_most_associated(monkeypatch):
    monkeypatch.setattr(evidence_search, "FIRST_ROWS", 10)
    monkeypatch.setattr(evidence_search, "FIRST_ROWS_PER_OBSERVATION", 0)
    search, family, _ = searching(random_state=0)
    search.begin_with_all(family.start())
    assert len(search.point.state.active) == 10
    found = search.point.state.active
    assert set(found) == set(np.argsort(-family.association())[:10])


def test_the_budget_is_kept():
    search, family, _ = searching(max_iter=7, random_state=0)
    search_noise(search, family, 1e-5)
    search.polish(1e-7)
    assert search.exhausted and search.n_iter <= 9


@pytest.mark.parametrize(("n_samples", "n_tasks", "seed"), [(80, 1, 0), (60, 3, 1), (70, 2, 2), (200, 1, 3)])
def test_shortcut_of_well_determined_tasks_loses_no_evidence(monkeypatch, n_samples, n_tasks, seed):
    ends = []
    for rows_per_feature in (evidence_search.ROWS_PER_FEATURE, np.inf):
        monkeypatch.setattr(evidence_search, "ROWS_PER_FEATURE", rows_per_feature)
        search, family, _ = searching(n_samples=n_samples, n_tasks=n_tasks, snr=2.0, random_state=seed)
        search_noise(search, family, 1e-4)
        search.polish(1e-7)
        ends.append((search.point.objective, search.n_iter))
    (short, fewer), (whole, more) = ends
    assert short <= whole + 1e-4 and fewer < more
