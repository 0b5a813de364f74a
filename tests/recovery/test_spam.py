"""Spam filters of 15 users (Murugesan et al. 2016, section 3.3): mean AUC, 100 e-mails per user.

One passive-aggressive learner for all users is better than every multi-task learner here, unlike in the paper.
"""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bayesmtfs import datasets
from bayesmtfs.estimators.smoothed import OnlineSmoothedClassifier
from bayesmtfs.papers.baselines import PassiveAggressiveClassifier, SharedLossClassifier

COMMON = {"normalize_rows": True, "fit_intercept": False, "shuffle": False}
SMOOTHED = {"concentration": 0.9, "trigger": "margin", **COMMON}
MODELS = {
    "OSMTL-e": (OnlineSmoothedClassifier(**SMOOTHED), 0.952),
    "OSMTL-t": (OnlineSmoothedClassifier(update="threshold", smoothing=2.0, **SMOOTHED), 0.952),
    "OSGL": (SharedLossClassifier(**COMMON), 0.949),
    "PA-ONE": (PassiveAggressiveClassifier(pooled=True, **COMMON), 0.975),
}


@pytest.fixture(scope="module")
def inboxes():
    try:
        found = datasets.load_spam(progress=False)
    except Exception as error:  # neither a folder nor an address of the data is set
        pytest.skip(f"the spam data are not there: {type(error).__name__}")
    return found.X, np.asarray(found.y).astype(int), np.asarray(found.tasks)


def mean_auc(model, inboxes, n_shuffles):
    X, y, tasks = inboxes
    reached = []
    for seed in range(n_shuffles):
        rng = np.random.default_rng(seed)
        chosen = [
            rng.permutation(
                np.concatenate([rng.permutation(np.flatnonzero((tasks == t) & (y == k)))[:50] for k in (0, 1)])
            )
            for t in range(15)
        ]
        train = np.concatenate(chosen)
        test = np.setdiff1d(np.arange(len(y)), train)
        score = model.fit(X[train], y[train], tasks=tasks[train]).decision_function(X[test], tasks=tasks[test])
        rest = tasks[test]
        reached.append(np.mean([roc_auc_score(y[test][rest == t], score[rest == t]) for t in range(15)]))
    return np.mean(reached)


@pytest.mark.parametrize("name", MODELS)
def test_few_shuffles(inboxes, name):
    model, wanted = MODELS[name]
    assert mean_auc(model, inboxes, 4) == pytest.approx(wanted, abs=0.008)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_thirty_shuffles(inboxes, name):
    model, wanted = MODELS[name]
    assert mean_auc(model, inboxes, 30) == pytest.approx(wanted, abs=0.008)
