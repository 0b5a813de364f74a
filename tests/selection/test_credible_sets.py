"""Credible sets against posteriors that are enumerated: every pattern of features and tasks, with its exact probability."""

from itertools import product

import numpy as np
import pytest
import xarray as xr

import bayesmtfs as bm
from bayesmtfs.posterior.tree import feature_correlations
from bayesmtfs.selection import credible_sets
from bayesmtfs.selection.credible_sets import greedy_sets

P, M, N_ROWS, SLAB, RATE = 5, 2, 40, 0.6, 0.3
PATTERNS = np.array([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=bool)
PRIOR = np.array([1 - RATE, RATE / 3, RATE / 3, RATE / 3])
MODELS = np.array(list(product(range(4), repeat=P)))  # (4^p, p) pattern of every feature
SUBSETS = np.array(list(product([False, True], repeat=P)))


def correlated_design(rng, r):
    """Columns 0 to 2 with correlations r, columns 3 and 4 too, the two blocks independent."""
    common = rng.standard_normal((N_ROWS, 2))[:, [0, 0, 0, 1, 1]]
    return np.sqrt(r) * common + np.sqrt(1 - r) * rng.standard_normal((N_ROWS, P))


def log_evidence(X, y):
    """(2^p,) log N(y; 0, I + SLAB^2 X_s X_s') of every subset s of the features, but for a constant."""
    found = []
    for subset in SUBSETS:
        Z = X[:, subset]
        A = np.eye(subset.sum()) + SLAB**2 * Z.T @ Z
        score = Z.T @ y
        found.append(-0.5 * np.linalg.slogdet(A)[1] + 0.5 * SLAB**2 * score @ np.linalg.solve(A, score))
    return np.array(found)


def enumerated(rng, r, n_draws=1000):
    """Data from the model, its true pattern (p, m), and exact draws (S, p, m) of the pattern's posterior."""
    X = correlated_design(rng, r)
    truth = PATTERNS[rng.choice(4, size=P, p=PRIOR)]
    W = np.where(truth, SLAB * rng.standard_normal((P, M)), 0.0)
    Y = X @ W + rng.standard_normal((N_ROWS, M))
    code = PATTERNS[MODELS]  # (4^p, p, m)
    number = np.einsum("kpm,p->km", code, 2 ** np.arange(P)[::-1])
    log_posterior = np.log(PRIOR)[MODELS].sum(axis=1)
    for t in range(M):
        log_posterior = log_posterior + log_evidence(X, Y[:, t])[number[:, t]]
    weight = np.exp(log_posterior - log_posterior.max())
    return X, Y, truth, code[rng.choice(len(MODELS), n_draws, p=weight / weight.sum())]


@pytest.mark.parametrize("r", [0.6, 0.95])
def test_sets_of_enumerated_posteriors_cover_as_often_as_they_say(tree_of, r):
    rng = np.random.default_rng(5)
    covered, stated, sizes = [], [], []
    for _ in range(150):
        X, Y, truth, included = enumerated(rng, r)
        found = credible_sets(tree_of(1.0 * included, included=included), X, coverage=0.9)
        on = truth.any(axis=1)
        covered += [on[one.features].any() for one in found]
        stated += [one.probability for one in found]
        sizes += [len(one.features) for one in found]
        members = np.concatenate([one.features for one in found] or [[]])
        assert len(set(members)) == len(members)
        for one in found:
            assert one.probability >= 0.9 and one.purity >= 0.5
            chosen = included[:, one.features]
            assert one.probability == chosen.any(axis=(1, 2)).mean()
            np.testing.assert_allclose(one.task_probability, chosen.any(axis=1).mean(axis=0))
            assert (np.diff(one.feature_probability) <= 0).all()
            inside = np.abs(np.corrcoef(X[:, one.features].T).reshape(len(one.features), -1))
            assert one.purity == pytest.approx(inside.min())
    error = np.sqrt(np.mean(stated) * (1 - np.mean(stated)) / len(stated))
    assert len(stated) > 80 and (max(sizes) > 1 if r > 0.9 else min(sizes) == 1)
    assert abs(np.mean(covered) - np.mean(stated)) <= 3 * error + 0.01


def blocks_of(*sizes):
    """Which features may be in one set: those of the same block."""
    block = np.repeat(np.arange(len(sizes)), sizes)
    return block[:, None] == block


def test_a_posterior_that_jumps_between_two_columns_is_one_set():
    first = np.random.default_rng(0).random(1000) < 0.55
    on = np.column_stack([first, ~first, np.zeros(1000, dtype=bool)])
    assert [members.tolist() for members in greedy_sets(on, blocks_of(3), 0.95)] == [[0, 1]]
    assert greedy_sets(on, np.eye(3, dtype=bool), 0.95) == []  # not alike: neither is sure by itself


def test_two_effects_near_each_other_are_two_sets():
    rng = np.random.default_rng(1)
    a, b = rng.random(2000) < 0.6, rng.random(2000) < 0.7
    on = np.column_stack([a, ~a, b, ~b])
    assert [sorted(members) for members in greedy_sets(on, blocks_of(4), 0.95)] == [[2, 3], [0, 1]]


def test_nothing_of_a_null_posterior_and_nothing_below_the_coverage():
    rng = np.random.default_rng(2)
    null = rng.random((2000, 50)) < 0.01
    assert greedy_sets(null, blocks_of(50), 0.95) == []
    assert greedy_sets(np.zeros((10, 3), dtype=bool), blocks_of(3), 0.95) == []
    almost = (np.arange(1000) < 949)[:, None]
    assert greedy_sets(almost, blocks_of(1), 0.95) == []
    assert len(greedy_sets(np.arange(1000)[:, None] < 950, blocks_of(1), 0.95)) == 1


def test_a_member_that_the_others_make_superfluous_is_dropped():
    # feature 0 is in half of the draws, 1 and 2 share the others and take over from 0 as well
    on = np.zeros((100, 3), dtype=bool)
    on[:50, 0] = on[:60, 1] = on[50:, 2] = True
    found = greedy_sets(on, blocks_of(3), 0.99)
    assert sorted(found[0].tolist()) == [1, 2]


def test_tasks_and_names(tree_of):
    included = np.zeros((200, 3, 3), dtype=bool)
    included[:120, 1, 0] = included[120:, 2, 0] = True
    included[:, 1, 2] = included[:, 1, 0] & (np.arange(200) < 30)
    X = np.random.default_rng(0).standard_normal((30, 3))
    X[:, 2] = 2.0 - X[:, 1]
    (one,) = credible_sets(
        tree_of(1.0 * included, included=included, tasks=["a", "b", "c"]),
        np.tile(X, (3, 1)) + np.repeat([[0.0], [50.0], [-70.0]], 30, axis=0),
        tasks=np.repeat(["a", "b", "c"], 30),
    )
    assert one.features.tolist() == [1, 2] and one.feature_names.tolist() == ["x1", "x2"]
    assert one.tasks.tolist() == ["a"] and one.purity == pytest.approx(1.0)
    np.testing.assert_allclose(one.task_probability, [1.0, 0.0, 0.15])
    assert repr(one) == "CredibleSet(x1, x2; probability 1, purity 1.00, tasks ['a'])"


def test_correlations_are_kept_with_the_fit_and_continuous_priors_need_the_data():
    sim = bm.simulate_tasks(n_tasks=3, n_features=6, n_relevant=2, n_samples=40, snr=8, random_state=3)
    model = bm.BayesianRegressor(prior="generalized_normal", draws=100, tune=100, chains=2, random_state=0)
    with pytest.warns(match="R-hat|effective|draws"):
        model.fit(sim.X, sim.y, tasks=sim.tasks)
    kept = model.posterior_["constant_data"]["feature_correlation"].values
    np.testing.assert_allclose(kept, feature_correlations(sim.data), atol=1e-6)
    found = credible_sets(model, sim.X, sim.y, sim.tasks, effect_size=0.2)
    assert {int(one.features[0]) for one in found} == set(np.flatnonzero(sim.support))
    with pytest.raises(ValueError, match="X is missing: effects are measured"):
        credible_sets(model)
    # the same tree with exact zeros needs no data: the correlations are in it
    tree = model.posterior_.copy()
    tree["posterior"] = tree["posterior"].dataset.assign(included=np.abs(tree["posterior"]["coef"]) > 0.2)
    assert {int(one.features[0]) for one in credible_sets(tree)} == set(np.flatnonzero(sim.support))


def test_correlations_within_tasks_by_hand():
    rng = np.random.default_rng(0)
    X, weight, tasks = rng.standard_normal((60, 3)), rng.uniform(0.5, 2, 60), np.repeat([0, 1, 1], 20)
    X[:, 2] = 4.0
    X[tasks == 1] += 100.0
    centred = np.concatenate(
        [X[tasks == t] - np.average(X[tasks == t], axis=0, weights=weight[tasks == t]) for t in (0, 1)]
    )
    S = centred.T @ (weight[:, None] * centred)
    found = feature_correlations(bm.TaskData.from_long(X, np.zeros(60), tasks, weight))
    assert found[0, 1] == pytest.approx(S[0, 1] / np.sqrt(S[0, 0] * S[1, 1]))
    np.testing.assert_array_equal(found[2], [0.0, 0.0, 1.0])


def test_bad_arguments(tree_of):
    on = np.ones((10, 2, 1), dtype=bool)
    tree = tree_of(1.0 * on, included=on)
    with pytest.raises(ValueError, match="coverage is 1.5; pass a number between 0 and 1"):
        credible_sets(tree, coverage=1.5)
    with pytest.raises(ValueError, match="X is missing: the posterior does not hold the correlations"):
        credible_sets(tree)
    with pytest.raises(ValueError, match="X has 3 features but the posterior has 2"):
        credible_sets(tree, np.zeros((4, 3)))
    wrong = xr.Dataset({"coef": (("chain", "draw", "feature", "task"), on[None] * 1.0), "included": (("chain",), [1])})
    with pytest.raises(ValueError, match="included has the axes"):
        credible_sets(wrong)
