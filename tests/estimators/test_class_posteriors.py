"""Posteriors of ordered classes and of several classes within tasks."""

import warnings

import numpy as np
import pymc as pm
import pytest
from scipy.special import softmax

import bayesmtfs as bm
from bayesmtfs.data.classes import class_tasks, classes_of
from bayesmtfs.families import Multinomial, Ordinal
from bayesmtfs.models import generalized_normal_model, mixed_norm_model
from bayesmtfs.posterior import sampling
from bayesmtfs.types import PosteriorWarning

SETTINGS = {"draws": 300, "tune": 400, "chains": 2, "n_jobs": 1, "random_state": 0, "progress": False}


def simulate(n=240, seed=0):
    """Three classes in two tasks; the first of three features matters."""
    rng = np.random.default_rng(seed)
    X, tasks = 3.0 + rng.normal(size=(n, 3)), np.arange(n) % 2
    eta = 1.5 * X[:, 0] + rng.logistic(size=n)
    cuts = np.array([[3.0, 5.5], [4.0, 6.0]])
    return X, (eta[:, None] > cuts[tasks]).sum(axis=1), tasks


def coded(X, y, tasks, weight=None):
    data, classes = classes_of(bm.TaskData.from_long(X, y, tasks, weight))
    return class_tasks(data, classes)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_multinomial_term_is_the_softmax_loss(weighted):
    X, y, tasks = simulate(30)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 30) if weighted else None
    data = coded(X, np.array(list("abc"))[y], tasks, weight)
    model = generalized_normal_model(data, loss="multinomial")
    point = model.initial_point()
    point["standard_coef"] = np.random.default_rng(2).normal(size=(3, 6))
    point["intercept"] = np.arange(6.0)
    log_p, coef = pm.compile(
        model.value_vars,
        [model.logp(vars=model["y"]), *model.replace_rvs_by_values([model["coef"]])],
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )(*[point[variable.name] for variable in model.value_vars])
    by_task = coef.reshape(3, 2, 3)[:, tasks]  # feature, row, class
    eta = np.einsum("np,pnk->nk", X, by_task) + np.arange(6.0).reshape(2, 3)[tasks]
    wanted = np.log(softmax(eta, axis=1))[np.arange(30), y]
    np.testing.assert_allclose(log_p, wanted @ (np.ones(30) if weight is None else weight), rtol=1e-9)


def test_the_penalised_multinomial_fit_is_the_mode_of_the_model():
    X, y, tasks = simulate(60)
    fit = bm.MixedNormClassifier(loss="multinomial", penalty_strength=0.05, tol=1e-9).fit(X, y, tasks=tasks)
    model = mixed_norm_model(coded(X, y, tasks), 0.05, loss="multinomial")
    log_p = model.compile_logp(mode="FAST_COMPILE")
    W, intercept = fit.coef_.reshape(6, 3).T, fit.intercept_.ravel()
    best, rng = log_p({"coef": W, "intercept": intercept}), np.random.default_rng(0)
    for size in (1e-3, 1e-1):
        for _ in range(10):
            moved = {"coef": W + size * rng.normal(size=W.shape), "intercept": intercept + size * rng.normal(size=6)}
            assert log_p(moved) < best + 1e-7


def test_drawn_classes_follow_the_probabilities():
    y = np.array([1.0, -1.0, -1.0, 1.0, -1.0, -1.0])  # two observations of three classes, class by class
    rows = Multinomial().on(y, np.ones(6), np.array([0, 2, 4, 6]))
    eta = np.array([0.0, 1.0, 1.0, 1.0, 2.0, -1.0])
    drawn = rows.draw(np.random.default_rng(0), np.broadcast_to(eta, (20_000, 6)))
    assert np.all((drawn == 1).reshape(-1, 3, 2).sum(axis=1) == 1)
    wanted = softmax(eta.reshape(3, 2), axis=0).ravel()
    np.testing.assert_allclose((drawn == 1).mean(axis=0), wanted, atol=0.015)


def fit(loss, labels, X, tasks, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # short chains
        return bm.BayesianClassifier(loss=loss, **SETTINGS, **settings).fit(X, labels, tasks=tasks)


@pytest.mark.slow
def test_ordered_classes_have_a_posterior(tmp_path):
    X, y, tasks = simulate()
    model = fit("ordinal", y, X, tasks)
    assert model.prior_ == "generalized_normal" and model.posterior_.attrs["sampler"] == "nuts"
    peer = bm.MixedNormClassifier(loss="ordinal", penalty_strength=0.0, tol=1e-4).fit(X, y, tasks=tasks)
    np.testing.assert_allclose(model.coef_[:, 0], peer.coef_[:, 0], atol=0.4)
    assert model.thresholds_.shape == (2, 2) and np.all(np.diff(model.thresholds_) > 0)
    assert not model.intercept_.any() and model.inclusion_probability_[0] > 0.99
    new, own = X[:7], tasks[:7]
    p, low, high = model.probability_interval(new, tasks=own)
    np.testing.assert_allclose(p, model.predict_proba(new, tasks=own), rtol=1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.all((low < p) & (p < high)) and np.abs(p - peer.predict_proba(new, tasks=own)).max() < 0.12
    draws = model.posterior_["posterior"]
    coef, cuts = draws["coef"].values[:, :, :, own[0]], draws["thresholds"].values[:, :, own[0]]
    by_hand = Ordinal().probabilities(coef @ new[0], cuts).mean(axis=(0, 1))
    np.testing.assert_allclose(p[0], by_hand, rtol=1e-10)
    assert model.score(X, y, tasks=tasks) > peer.score(X, y, tasks=tasks) - 0.05
    model.save(tmp_path / "model")
    back = bm.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict_proba(new, tasks=own), p)
    np.testing.assert_array_equal(back.thresholds_, model.thresholds_)
    bm.report(model, tmp_path / "report.html")


def test_several_classes_within_tasks_have_a_posterior(tmp_path):
    X, y, tasks = simulate()
    labels = np.array(["low", "mid", "top"])[y]
    model = fit("multinomial", labels, X, tasks, unknown_task="mean")
    assert model.prior_ == "generalized_normal" and model.posterior_.attrs["sampler"] == "gibbs"
    peer = bm.MixedNormClassifier(loss="multinomial", penalty_strength=1e-3).fit(X, labels, tasks=tasks)
    for name in ("coef_", "coef_std_", "task_inclusion_probability_", "local_false_sign_rate_"):
        assert getattr(model, name).shape == (2, 3, 3)
    gap = model.coef_[..., 0] - model.coef_[..., 0].mean(axis=1, keepdims=True)
    other = peer.coef_[..., 0] - peer.coef_[..., 0].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(gap, other, atol=0.4)  # what all classes have in common is the prior's
    p = model.predict_proba(X, tasks=tasks)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert np.abs(p - peer.predict_proba(X, tasks=tasks)).mean() < 0.05
    assert model.score(X, labels, tasks=tasks) > peer.score(X, labels, tasks=tasks) - 0.05
    draws = model.posterior_["posterior"]
    assert draws["task"].values.tolist()[:3] == ["0: low", "0: mid", "0: top"]
    own = draws.dataset.isel(task=[0, 1, 2])
    eta = np.einsum("cdpk,p->cdk", own["coef"].values, X[0]) + own["intercept"].values
    np.testing.assert_allclose(p[0], softmax(eta, axis=-1).mean(axis=(0, 1)), rtol=1e-10)
    mean, low, high = model.probability_interval(X[:5], tasks=tasks[:5])
    np.testing.assert_allclose(mean, p[:5], rtol=1e-10)
    assert np.all((low < mean) & (mean < high))
    assert model.predict_proba(X[:2], tasks=[9, 9]).shape == (2, 3)
    model.save(tmp_path / "model")
    back = bm.load(tmp_path / "model")
    np.testing.assert_array_equal(back.predict_proba(X, tasks=tasks), p)
    assert back.coef_std_.shape == (2, 3, 3) and back.tasks_.tolist() == [0, 1]


def test_several_classes_of_one_task_mix_and_keep_what_an_interruption_leaves(monkeypatch):
    X, y, _ = simulate(120)
    settings = {"draws": 500, "tune": 500, "chains": 4, "n_jobs": 1, "random_state": 1, "progress": False}
    model = bm.BayesianClassifier(loss="multinomial", **settings).fit(X, y)  # no PosteriorWarning
    assert model.converged_ and model.coef_.shape == (3, 3) and model.predict_proba(X).shape == (120, 3)
    assert model.posterior_.attrs["sweeps_per_draw"] == 4

    def impatient(self, chain):
        def report(fraction):
            if fraction > 0.7:
                raise KeyboardInterrupt

        return report

    monkeypatch.setattr(sampling._Board, "reporter", impatient)
    with pytest.warns(PosteriorWarning, match="interrupted, .* draws per chain are kept"):
        part = bm.BayesianClassifier(loss="multinomial", **settings).fit(X, y)
    n_kept = part.posterior_["posterior"].sizes["draw"]
    assert 0 < n_kept < 500 and not part.converged_
    np.testing.assert_allclose(part.coef_, model.coef_, atol=0.5)


@pytest.mark.parametrize(("weight", "sampler"), [(2.0, "gibbs"), (1.5, "nuts")])
def test_which_sampler_several_classes_have(weight, sampler):
    y = np.arange(30) % 3
    data = coded(np.random.default_rng(0).normal(size=(30, 3)), y, y // 2, np.full(30, weight))
    request = sampling.PosteriorRequest(family=Multinomial())
    assert sampling.choose_sampler(data, request) == sampler
    assert sampling.choose_sampler(data, request, shared_mean=True) == "nuts"


def test_what_does_not_go_together_is_refused():
    X, y, tasks = simulate(30)
    for parameters, words in (
        ({"loss": "ordinal", "prior": "mixed_norm"}, "which prior='mixed_norm' has no prior for; use 'auto'"),
        ({"loss": "ordinal", "unknown_task": "population"}, "use unknown_task='mean'"),
        ({"loss": "multinomial", "unknown_task": "population"}, "use unknown_task='mean'"),
        ({"loss": "multinomial", "prior": "spike"}, "needs a family that is normal given a hidden precision"),
        ({"loss": "ordinal", "sampler": "gibbs"}, "a conditionally normal form"),
        ({"loss": "multinomial", "sampler": "gibbs", "shared_mean": True}, "use sampler=.nuts. or .auto."),
    ):
        with pytest.raises(ValueError, match=words):
            bm.BayesianClassifier(**parameters).fit(X, y, tasks=tasks)
