"""One round of smoothed learning against the printed formulas, absent tasks, the doubling trick, and circles."""

import numpy as np
import pytest
import scipy.optimize
import scipy.special

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import EpsilonInsensitive, Gaussian
from bayesmtfs.online.learner import StreamBatch
from bayesmtfs.online.linear_stream import rounds_of
from bayesmtfs.online.smoothed_online import (
    Circle,
    SmoothedLearner,
    circle_relations,
    grow_circle,
    rates,
    relations,
    uniform_relations,
)

K, P = 4, 3


def learner_of(n_tasks=K, n_features=P, **options):
    """Learners at zero."""
    learner = SmoothedLearner(n_features=n_features, **options)
    learner.add_tasks(n_tasks)
    return learner


def started(seed=0, **options):
    """Learners in the midst of a stream."""
    rng = np.random.default_rng(seed)
    learner = learner_of(**options)
    learner.stream.W[:], learner.stream.intercept[:] = rng.normal(size=(P, K)), rng.normal(size=K)
    log_p = np.log(rng.dirichlet(np.ones(K), size=K))
    learner.relations["log_relations"] = log_p
    return learner, learner.stream, log_p


def rounds_of_data(data):
    task = np.asarray(data.task_names)[data.task]
    return rounds_of(StreamBatch(data.design, data.y, task, task, data.weight, data.rows), task, True)


def one_round(tasks, seed=1, labels=True):
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], size=len(tasks)) if labels else rng.normal(size=len(tasks))
    data = TaskData.from_long(rng.normal(size=(len(tasks), P)), y, tasks, sample_weight=rng.uniform(0.5, 2, len(tasks)))
    return data, rounds_of_data(data)


def printed_step(data, stream, log_p, settings):
    """Weights, intercepts and P after a round, written from eqs. (9) and (11)."""
    tasks, X = data.task_names, np.hstack([data.X, np.ones((len(data.y), 1))])
    V, p = np.vstack([stream.W, stream.intercept]), np.exp(log_p)
    scores = (X @ V).T  # (K, rows)
    margins = data.y * scores
    losses = np.maximum(1 - margins, 0)
    for k in range(K):
        own = tasks == k
        looked = own if own.any() and settings.trigger != "active" else np.ones(len(tasks), dtype=bool)
        wrong = margins[k] <= 0 if settings.trigger == "error" else losses[k] > 0
        if not (wrong & looked).any():
            continue
        eta = settings.concentration * own + (1 - settings.concentration) * p[k, tasks]
        V[:, k] += settings.step * X.T @ (eta * data.weight * data.y * (losses[k] > 0))
        cost = data.weight * losses[k]
        if settings.update == "exponential":
            fresh = p[k, tasks] * np.exp(-settings.step * (1 - settings.concentration) / settings.smoothing * cost)
        else:
            fresh = np.maximum(settings.smoothing - cost, 0)
        if fresh.sum() > 0:
            p[k, tasks] = fresh / fresh.sum() * p[k, tasks].sum()
    return V[:-1], V[-1], p


@pytest.mark.parametrize("update", ["exponential", "threshold"])
@pytest.mark.parametrize("trigger", ["error", "margin", "active"])
@pytest.mark.parametrize("tasks", [[0, 1, 2, 3], [1, 3]], ids=["all tasks", "some absent"])
def test_a_round_is_what_is_printed(update, trigger, tasks):
    options = {"update": update, "trigger": trigger, "concentration": 0.3, "smoothing": 1.5, "step": 0.7}
    moved = 0
    for seed in range(5):
        (learner, stream, log_p), (data, rounds) = started(seed, **options), one_round(tasks, seed + 10)
        before = stream.W.copy()
        W, intercept, p = printed_step(data, stream, log_p, learner)
        learner.advance(rounds)
        np.testing.assert_allclose(stream.W, W, atol=1e-13)
        np.testing.assert_allclose(stream.intercept, intercept, atol=1e-13)
        np.testing.assert_allclose(np.exp(log_p), p, atol=1e-13)
        moved += np.sum(np.any(stream.W != before, axis=0))
        absent = np.setdiff1d(np.arange(K), tasks)
        np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1.0, atol=1e-12)
        assert len(absent) == 0 or not np.array_equal(stream.W[:, absent], before[:, absent]) or trigger == "error"
    assert moved > 5


def test_attention_minimises_its_objective():
    learner, stream, log_p = started(trigger="active", concentration=0.2, smoothing=0.8, step=0.9)
    data, rounds = one_round([0, 1, 2, 3])
    old = np.exp(log_p)
    scores = (data.X @ stream.W + stream.intercept).T
    losses = data.weight * np.maximum(1 - data.y * scores, 0)
    learner.advance(rounds)

    for k in range(K):

        def cost(z, k=k):
            p = scipy.special.softmax(z)
            return 0.9 * 0.8 * p @ losses[k] + 0.8 * np.sum(p * np.log(p / old[k]))

        best = scipy.optimize.minimize(cost, np.zeros(K), tol=1e-14)
        np.testing.assert_allclose(np.exp(log_p[k]), scipy.special.softmax(best.x), atol=1e-6)


@pytest.mark.parametrize(("loss", "epsilon"), [("squared", 0.0), ("epsilon_insensitive", 0.3)])
def test_regression_steps_follow_the_derivative_of_the_loss(loss, epsilon):
    family = Gaussian() if loss == "squared" else EpsilonInsensitive(epsilon)
    learner, stream, log_p = started(family=family, trigger="active", concentration=0.4, step=1e-7)
    data, rounds = one_round([0, 1, 2, 3], labels=False)
    X, eta = np.hstack([data.X, np.ones((K, 1))]), relations(log_p, np.full(K, 0.4))
    before = np.vstack([stream.W, stream.intercept])

    def objective(v, k):
        r = np.abs(data.y - X @ v)
        values = 0.5 * r**2 if loss == "squared" else np.maximum(r - epsilon, 0)
        return np.sum(eta[k] * data.weight * values)

    learner.advance(rounds)
    after = np.vstack([stream.W, stream.intercept])
    for k in range(K):
        gradient = scipy.optimize.approx_fprime(before[:, k], objective, 1e-7, k)
        np.testing.assert_allclose((before - after)[:, k] / 1e-7, gradient, atol=1e-5)


def test_squared_loss_stays_bounded_for_long_rows():
    rng = np.random.default_rng(0)
    X = 1e3 * rng.normal(size=(400, P))
    data = TaskData.from_long(X, X @ np.ones(P), np.tile(np.arange(K), 100))
    learner = learner_of(family=Gaussian(), trigger="margin")
    learner.advance(rounds_of_data(data))
    np.testing.assert_allclose(learner.stream.W, 1.0, atol=1e-3)


def test_attention_survives_losses_at_which_its_exponential_does_not():
    data = TaskData.from_long(np.array([[1e6], [1.0]]), [1.0, -1.0], [0, 1])
    learner = learner_of(2, 1, trigger="active")
    learner.stream.W[:] = -1.0
    learner.advance(rounds_of_data(data))
    log_p = learner.relations["log_relations"]
    assert np.isfinite(log_p).all() and log_p[0, 0] < -1e5
    np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1.0)


def test_horizons_double_and_follow_the_corollary():
    rules = SmoothedLearner(n_features=P, step=None, concentration=None).rules
    for clock, horizon in [(0, 1), (1, 2), (2, 2), (3, 4), (6, 4), (7, 8), (1000, 512)]:
        root = np.sqrt(horizon)
        assert rates(rules, clock) == pytest.approx(((1 + root) / horizon, root / (1 + root)))
    known = SmoothedLearner(n_features=P, step=None, concentration=None, horizon=100)
    assert rates(known.rules, 5) == pytest.approx((0.11, 10 / 11))
    assert rates(known.rules, 7)[1] == pytest.approx(10 / 11)


def test_new_tasks_get_an_even_share():
    old = np.log(np.array([[0.7, 0.3], [0.1, 0.9]]))
    grown = np.exp(uniform_relations(old, 4))
    np.testing.assert_allclose(grown.sum(axis=1), 1.0)
    np.testing.assert_allclose(grown[:2, 2:], 0.25)
    np.testing.assert_allclose(grown[0, 0] / grown[0, 1], 7 / 3)


# ---------------------------------------------------------------------- circles


def stream_of_rows(n_tasks, n_rounds, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_tasks * n_rounds, P))
    tasks = np.tile(np.arange(n_tasks), n_rounds)
    directions = np.where(np.arange(n_tasks) % 2, 1.0, -1.0)  # even tasks and odd tasks disagree
    return TaskData.from_long(X, np.sign(X[:, 0] * directions[tasks]), tasks)


def test_a_circle_of_everybody_is_no_circle():
    data = stream_of_rows(5, 30)
    everybody, circles = learner_of(5, concentration=0.3), learner_of(5, concentration=0.3, neighbours=5)
    for learner in (everybody, circles):
        learner.advance(rounds_of_data(data))
    np.testing.assert_allclose(circles.stream.W, everybody.stream.W, atol=1e-12)
    np.testing.assert_allclose(circles.task_relations().toarray(), everybody.task_relations(), atol=1e-12)


def test_circles_find_tasks_that_agree():
    data = stream_of_rows(40, 60)
    learner = learner_of(40, concentration=0.5, smoothing=2.0, neighbours=6, seed=1)
    circle = Circle(**learner.relations)
    start = circle.members.copy()
    learner.advance(rounds_of_data(data))
    assert not np.array_equal(circle.members, start)
    P_rows = circle_relations(circle, np.zeros(40)).toarray()
    np.testing.assert_allclose(P_rows.sum(axis=1), 1.0)
    same = np.arange(40)[:, None] % 2 == np.arange(40) % 2
    assert (P_rows * same).sum(axis=1).mean() > 0.8  # an even mixture would be 0.5, strangers enter with 1/6
    assert all(len(set(row[row >= 0])) == np.sum(row >= 0) for row in circle.members)


def test_circles_grow_with_their_tasks():
    circle = grow_circle(None, 10, 4, seed=0)
    grown = grow_circle(circle, 13, 4, seed=0)
    np.testing.assert_array_equal(grown.members[:10], circle.members)
    np.testing.assert_array_equal(grown.members[10:, 0], [10, 11, 12])
    np.testing.assert_allclose(np.exp(grown.log_p).sum(axis=1), 1.0)
