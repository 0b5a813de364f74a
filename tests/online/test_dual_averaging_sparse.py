"""Passes over sparse rows: bounds hold, noted norms are forgotten again, learning and predicting see the same weights."""

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs.families import find_family
from bayesmtfs.online.dual_averaging import DualAveraging, DualAveragingSettings, observations
from bayesmtfs.online.dual_averaging_kernels import INVERSE, Schedule, round_schedule

P, M = 40, 5


def settings_of(loss="squared", **options):
    """Settings of a loss by its name."""
    return DualAveragingSettings(family=find_family(loss), **options)


PENALTIES = {
    "rows": settings_of(strength=0.15, loss="logistic"),
    "rows and entries": settings_of(strength=0.1, task_sparsity=0.3, loss="logistic"),
    "per feature": settings_of(strength=0.1, task_sparsity=np.linspace(0, 1, P), loss="logistic"),
    "no penalty": settings_of(loss="logistic"),
    "sum": settings_of(strength=1.0, loss_scale="sum"),
    "kinks": settings_of(strength=0.1, loss="hinge"),
}


def rows(n, seed):
    """Sparse rows, targets and tasks, some of which come rarely."""
    rng = np.random.default_rng(seed)
    X = sp.random(n, P, density=0.2, format="csr", random_state=seed)
    return X, np.where(rng.random(n) < 0.5, -1.0, 1.0), rng.choice(M, size=n, p=[0.4, 0.3, 0.2, 0.07, 0.03])


def learn(learner, X, y, task):
    learner.learn(X, observations(X, y, task), Schedule(*round_schedule(task, M)))


@pytest.fixture(params=PENALTIES.values(), ids=PENALTIES)
def learner(request):
    learner = DualAveraging(request.param, P)
    learner.add_tasks(M)
    return learner


def norms(learner):
    """Norm of every row of average gradients, soft thresholded as the penalty says."""
    settings, m = learner.settings, learner.n_tasks
    features = np.argsort(np.where(learner.state.slots >= 0, learner.state.slots, P))[: learner.n_used]
    cut = settings.strength * np.broadcast_to(settings.task_sparsity, P)[features, None]
    gradients = learner.state.sums[: learner.n_used, :m] * learner.state.table[INVERSE, :m]
    return np.linalg.norm(np.maximum(np.abs(gradients) - cut, 0.0), axis=1)


def test_bounds_hold_after_every_batch(learner):
    for seed in range(20):
        learn(learner, *rows(30, seed))
        bounds = learner.state.bounds[: learner.n_used]
        assert (bounds >= 0).all()  # no norm of a round is left noted
        if learner.settings.loss_scale == "mean":
            assert (bounds >= norms(learner) * (1 - 1e-12)).all()


def test_predictions_are_the_weights_and_leave_no_trace(learner):
    for seed in range(5):
        learn(learner, *rows(50, seed))
    before = learner.state.bounds.copy()
    X, _, task = rows(30, 9)
    W, intercept = learner.coefficients()
    expected = np.einsum("ij,ji->i", X.toarray(), W[:, task]) + intercept[task]
    np.testing.assert_allclose(learner.predict(X, task), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(learner.state.bounds, before)


def test_a_round_that_diverges_leaves_bounds():
    learner = DualAveraging(settings_of(gamma=1.0, strength=0.1), P)
    learner.add_tasks(M)
    X, y, task = rows(50, 0)
    with pytest.raises(ValueError, match="have diverged"):
        for _ in range(200):
            learn(learner, 100.0 * X, y, task)
    assert (learner.state.bounds >= 0).all()
