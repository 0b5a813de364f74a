"""Online baselines: update rules against their definitions, batches and files."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from bayesmtfs import baselines, simulate_tasks
from bayesmtfs.papers.baselines.streams import (
    VARIANTS,
    fixed_relations,
    full_steps,
    implicit_steps,
    learned_relations,
    step_length,
)

CLASSIFIERS = [
    baselines.PassiveAggressiveClassifier(epochs=20),
    baselines.SharedLossClassifier(epochs=20),
    baselines.FixedRelationsClassifier(epochs=20),
    baselines.LearnedRelationsClassifier(epochs=20),
]
each = pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: type(model).__name__)


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(
        n_tasks=4, n_features=6, n_relevant=6, n_samples=60, kind="classification", snr=20.0, random_state=0
    )


# ---------------------------------------------------------------------- update rules


@pytest.mark.parametrize("variant", range(3), ids=VARIANTS)
def test_passive_aggressive_steps_solve_their_problems(variant):
    rng = np.random.default_rng(0)
    x, old, C = rng.normal(size=4), rng.normal(size=4), 0.2
    y = -np.sign(old @ x)
    w, slack = cp.Variable(4), cp.Variable(nonneg=True)
    price = [0, C * slack, C * cp.square(slack)][variant]
    allowed = [y * (x @ w) >= 1 - slack] + ([slack == 0] if variant == 0 else [])
    cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w - old) + price), allowed).solve(solver=cp.CLARABEL)
    tau = step_length(variant, C, 1.0, 1 - y * (old @ x), x @ x)
    np.testing.assert_allclose(old + tau * y * x, w.value, atol=1e-5)


@pytest.mark.parametrize(("norm", "dual"), [(1.0, "inf"), (2.0, 2), (np.inf, 1)])
@pytest.mark.parametrize("budget", [0.3, 5.0])
def test_shared_loss_steps_solve_their_problems(norm, dual, budget):
    losses, lengths = np.array([0.5, 1.5, 0.0, 2.0]), np.array([1.0, 2.0, 1.0, 0.5])
    tau = cp.Variable(4, nonneg=True)
    bound = [cp.norm(tau, dual) <= budget]
    implicit = cp.Maximize(2 * tau @ losses - cp.sum(cp.multiply(lengths, cp.square(tau))))
    cp.Problem(implicit, bound).solve(solver=cp.CLARABEL)
    np.testing.assert_allclose(implicit_steps(norm, budget, losses, lengths), tau.value, atol=1e-3)
    cp.Problem(cp.Maximize(tau @ losses), bound).solve(solver=cp.CLARABEL)
    assert full_steps(norm, budget, losses) @ losses == pytest.approx(tau.value @ losses, abs=1e-5)


def test_fixed_relations_are_the_inverse_of_the_papers_matrix():
    K, b = 5, 1.7
    A = (1 + b) * np.eye(K) - b / K  # 1 + b - b/K on the diagonal, -b/K beside it
    np.testing.assert_allclose(np.linalg.inv(A), fixed_relations(K, b))
    np.testing.assert_allclose(fixed_relations(K, 0.0), np.eye(K))


def test_perceptrons_with_fixed_relations_follow_the_printed_loop(sim):
    model = baselines.FixedRelationsClassifier(interaction=2.0, shuffle=False).fit(sim.X, sim.y, tasks=sim.tasks)
    rows = [np.flatnonzero(sim.tasks == t) for t in range(4)]
    labels, W = np.where(sim.y == model.classes_[1], 1.0, -1.0), np.zeros((4, 7))
    relations = fixed_relations(4, 2.0)
    for number in range(60):
        for t in range(4):
            i = rows[t][number]
            x = np.append(sim.X[i], 1.0)
            if labels[i] * (W[t] @ x) <= 0:
                W += np.outer(relations[:, t], labels[i] * x)
    np.testing.assert_allclose(model.coef_, W[:, :6], atol=1e-12)
    np.testing.assert_allclose(model.intercept_, W[:, 6], atol=1e-12)


@pytest.mark.parametrize("rule", ["batch", "logdet", "entropy"])
def test_learned_relations_follow_the_weights(rule):
    W = np.array([[1.0, 0.9, -1.0], [0.0, 0.1, 0.0], [0.0, 0.0, 0.2]])
    found = learned_relations(rule, np.eye(3), W, 0.5)
    assert np.trace(found) == pytest.approx(3.0)
    assert found[0, 1] > 0 > found[0, 2] and np.linalg.eigvalsh(found)[0] > 0
    if rule == "batch":
        np.testing.assert_allclose(found @ found, W.T @ W * np.trace(found @ found) / np.trace(W.T @ W), atol=1e-8)
    same = learned_relations(rule, np.eye(3), np.zeros((3, 3)), 0.5)
    np.testing.assert_array_equal(same, np.eye(3))


# ---------------------------------------------------------------------- streams


@each
def test_pieces_are_one_go(sim, model, tmp_path):
    model = clone(model).set_params(epochs=1)
    if "warm_up" in model.get_params():
        model.set_params(warm_up=10)
    whole = clone(model).partial_fit(sim.X, sim.y, tasks=sim.tasks)
    number = np.concatenate([np.arange(np.sum(sim.tasks == t)) for t in range(4)])
    assert (np.diff(sim.tasks) >= 0).all()
    pieces = clone(model)
    for piece in (number < 7, (number >= 7) & (number < 30), number >= 30):
        pieces.partial_fit(sp.csr_matrix(sim.X[piece]), sim.y[piece], tasks=sim.tasks[piece], classes=whole.classes_)
        pieces = pickle.loads(pickle.dumps(pieces))
    np.testing.assert_array_equal(pieces.coef_, whole.coef_)
    pieces.save(tmp_path / "model")
    stored = type(model).from_stored(pytest.importorskip("bayesmtfs.results.persistence").read(tmp_path / "model"))
    for other in (stored, whole):
        other.partial_fit(sim.X[:40], sim.y[:40], tasks=sim.tasks[:40])
    np.testing.assert_array_equal(stored.coef_, whole.coef_)


@each
def test_learners_learn(sim, model):
    model = clone(model).set_params(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
    assert model.score(sim.X, sim.y, tasks=sim.tasks) > 0.85


def test_pooled_learners_are_one(sim):
    model = baselines.PassiveAggressiveClassifier(pooled=True, random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
    np.testing.assert_array_equal(model.coef_, np.tile(model.coef_[0], (4, 1)))
    classes = np.digitize(sim.X[:, 0], [-0.5, 0.5])
    lines = [
        baselines.PassiveAggressiveClassifier(pooled=pooled, random_state=0).fit(sim.X, classes).coef_
        for pooled in (True, False)
    ]
    np.testing.assert_array_equal(lines[0], lines[1])  # several classes are no tasks


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (baselines.PassiveAggressiveClassifier("PA-III"), "variant is 'PA-III'; choose one of 'PA'"),
        (baselines.PassiveAggressiveClassifier(step=0.0), "step is 0.0; pass a positive number"),
        (baselines.PassiveAggressiveClassifier(epochs=0), "epochs is 0; pass a whole number of at least 1"),
        (baselines.SharedLossClassifier(loss_norm=3.0), "loss_norm is 3.0; pass 1, 2 or np.inf"),
        (baselines.FixedRelationsClassifier(interaction=-1.0), "interaction is -1.0; pass a number of at least 0"),
        (baselines.LearnedRelationsClassifier(rule="guess"), "rule is 'guess'; choose one of 'batch'"),
        (baselines.LearnedRelationsClassifier(warm_up=-1), "warm_up is -1; pass a share below 1"),
    ],
)
def test_parameters_are_checked(sim, model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(sim.X, sim.y, tasks=sim.tasks)
