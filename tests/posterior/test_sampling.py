"""Routes, units, screening and interruptions, on the Gibbs sampler and on stand-ins."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import Family, Gaussian, Hinge, Logistic
from bayesmtfs.gibbs import chain as gibbs_posterior
from bayesmtfs.posterior import nuts, sampling
from bayesmtfs.posterior.sampling import (
    PosteriorRequest,
    choose_sampler,
    hyperprior_of,
    n_workers,
    run_chains,
    sample_posterior,
)
from bayesmtfs.priors.row_penalty import RowPenalty
from bayesmtfs.types import SelectionWarning, Solution


class OnlyLoss(Family):
    """A family that offers next to nothing."""

    name = "only_loss"

    def value(self, y, eta):
        return np.cosh(y - eta)

    def gradient(self, y, eta):
        return np.sinh(eta - y)


FEW = {"draws": 40, "tune": 40, "chains": 2, "n_jobs": 1}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "gibbs"),
        ({"prior": "jeffreys", "norm_q": None}, "gibbs"),
        ({"family": Logistic()}, "gibbs"),
        ({"family": Logistic(), "norm_q": np.inf}, "gibbs"),
        ({"family": Logistic(), "norm_q": None}, "gibbs"),
        ({"family": Logistic(), "prior": "matrix_variate"}, "gibbs"),
        ({"prior": "matrix_variate"}, "gibbs"),
        ({"prior": "matrix_variate", "norm_q": 4.0}, "nuts"),
        ({"prior": "matrix_variate", "sampler": "nuts"}, "nuts"),
        ({"prior": "horseshoe"}, "nuts"),
        ({"prior": "mixed_norm"}, "nuts"),
        ({"sampler": "nuts"}, "nuts"),
        ({"sampler": "variational", "prior": "spike", "family": Logistic()}, "variational"),
    ],
)
def test_route(small, options, wanted):
    assert choose_sampler(small, PosteriorRequest(**options)) == wanted


@pytest.mark.parametrize(
    ("family", "norm_q", "wanted"),
    [(Gaussian(), 2.0, "gibbs"), (Gaussian(), None, "gibbs"), (Logistic(), 2.0, "gibbs"), (Logistic(), None, "gibbs")],
)
def test_more_features_than_rows(family, norm_q, wanted):
    data = TaskData.from_long(np.ones((10, 20)), np.arange(10.0))
    assert choose_sampler(data, PosteriorRequest(family=family, norm_q=norm_q)) == wanted


def test_labels_with_broken_weights_go_to_nuts(small):
    request = PosteriorRequest(family=Logistic())
    for weight, wanted in ((2.0, "gibbs"), (0.5, "nuts"), (1e4, "nuts")):
        weighted = replace(small, weight=np.full(small.n_observations, weight))
        assert choose_sampler(weighted, request) == wanted
    with pytest.raises(ValueError, match="sample weights that are whole numbers"):
        choose_sampler(weighted, replace(request, sampler="gibbs"))


@pytest.mark.parametrize("norm_q", [2.0, None])
def test_tree_of_labels_is_complete(small, norm_q):
    labelled = small.with_target(np.where(small.y > np.median(small.y), 1.0, -1.0))
    request = PosteriorRequest(family=Logistic(), norm_q=norm_q, **FEW)
    found = sample_posterior(labelled, request)
    assert found.tree.attrs["sampler"] == "gibbs" and "noise" not in found.tree["posterior"]
    shape = (2, 40, labelled.n_observations)
    for group in ("posterior_predictive", "log_likelihood"):
        assert found.tree[group]["y"].shape == shape and np.all(np.isfinite(found.tree[group]["y"]))
    assert ("norm_q" in found.draws.fixed) == (norm_q is not None)
    again = sample_posterior(labelled, request)
    for name, values in found.draws.variables.items():
        np.testing.assert_array_equal(values, again.draws.variables[name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "gibbs", "family": Hinge()}, "sampler='gibbs' needs a conditionally normal form; Hinge offers"),
        (
            {"sampler": "gibbs", "prior": "matrix_variate", "norm_q": None},
            "sampler='gibbs' does not have prior='matrix_variate' with loss='squared' and norm_q='learn'",
        ),
        ({"family": OnlyLoss()}, "NUTS needs a PyMC term; OnlyLoss offers value, gradient"),
        ({"sampler": "variational", "prior": "spike", "family": Hinge()}, "'hinge' does not go with prior='spike'"),
        ({"sampler": "gibbs", "prior": "horseshoe"}, "use sampler='nuts' or 'auto'"),
        ({"sampler": "variational"}, "does not have prior='generalized_normal'; it needs prior='spike'"),
        ({"sampler": "variational", "prior": "matrix_variate"}, "use that prior, or sampler='auto'"),
    ],
)
def test_samplers_that_do_not_fit_are_refused(small, options, message):
    with pytest.raises(ValueError, match=message):
        choose_sampler(small, PosteriorRequest(**options))


@pytest.mark.parametrize("draws", [10**11, 10**19])
def test_draws_that_do_not_fit_into_memory_are_refused_before_the_fit(small, draws):
    with pytest.raises(ValueError, match=rf"draws is {draws} in 4 chains.* GB of memory.*max_features"):
        sample_posterior(small, PosteriorRequest(Gaussian(), draws=draws))


def test_draws_do_not_depend_on_the_units(small):
    """Other units of features and targets give the same draws, in those units."""
    other = replace(small, design=small.design * 7.0 - 2.0, y=small.y * 0.01 + 4.0)
    one, two = (sample_posterior(data, PosteriorRequest(**FEW)) for data in (small, other))
    np.testing.assert_allclose(
        two.draws.variables["coef"] * 7.0 / 0.01, one.draws.variables["coef"], rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(two.draws.variables["noise"] / 0.01, one.draws.variables["noise"], rtol=1e-5)
    np.testing.assert_allclose(two.draws.variables["global_scale"], one.draws.variables["global_scale"], rtol=1e-5)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_same_seed_same_draws_whatever_the_threads(small, n_jobs):
    one = sample_posterior(small, PosteriorRequest(**FEW))
    other = sample_posterior(small, PosteriorRequest(**FEW | {"n_jobs": n_jobs}))
    for name, values in one.draws.variables.items():
        np.testing.assert_array_equal(values, other.draws.variables[name])
    third = sample_posterior(small, PosteriorRequest(**FEW, random_seed=1))
    assert np.all(third.draws.variables["coef"] != one.draws.variables["coef"])
    assert np.all(one.draws.variables["coef"][0] != one.draws.variables["coef"][1])


def test_screened_features_are_not_in_the_tree():
    sim = simulate_tasks(n_tasks=2, n_features=60, n_samples=50, n_relevant=3, snr=10.0, random_state=0)
    data = TaskData.from_long(sim.X, sim.y, tasks=sim.tasks)
    with pytest.warns(SelectionWarning, match="50 of 60 features were screened out .*; raise max_features"):
        found = sample_posterior(data, PosteriorRequest(**FEW, max_features=10))
    assert found.screened_out.sum() == 50 and not found.screened_out[sim.support].any()
    assert found.tree["posterior"]["feature"].values.tolist() == data.feature_names[found.in_tree].tolist()
    assert found.tree.attrs["screened_out"] == 50


def test_constant_features_are_zero_in_every_draw(small):
    design = np.column_stack([small.design, np.ones(len(small.y))])
    found = sample_posterior(replace(small, design=design), PosteriorRequest(**FEW))
    coef = found.tree["posterior"]["coef"].values
    assert coef.shape[2] == 7 and not coef[:, :, 6].any() and coef[:, :, :6].all()
    assert not found.screened_out.any()


def test_interrupted_chains_keep_their_draws(small, monkeypatch):
    original = gibbs_posterior.sample_chain

    def stopped(data, prior, settings, report=None, start=None, loss="squared", gaps=None):
        found = original(data, prior, settings, report, start, loss, gaps)
        count = 25 if settings.random_seed % 2 else len(found.W)
        drawn = {name: part[:count] for name, part in found._asdict().items() if isinstance(part, np.ndarray)}
        return found._replace(**drawn, interrupted=True)

    monkeypatch.setattr(sampling.gibbs_posterior, "sample_chain", stopped)
    found = sample_posterior(small, PosteriorRequest(**FEW | {"chains": 6}))
    assert found.draws.interrupted and found.tree.attrs["interrupted"] == 1
    assert found.draws.n_draws in (25, 40) and found.diagnostics.interrupted


def test_hyperprior_of_the_request(small):
    assert hyperprior_of(small, PosteriorRequest(prior="jeffreys"), bounds=(0.1, 2.0)).bounds == (0.1, 2.0)
    prior = hyperprior_of(small, PosteriorRequest(fit_intercept=False), global_scale=0.3)
    assert prior.kind == "beta_prime" and prior.global_scale == 0.3 and not prior.fit_intercept


def test_starts_beside_the_mode_have_no_vanishing_derivative():
    sim = simulate_tasks(n_tasks=8, n_features=3, n_samples=30, n_relevant=1, kind="classification", random_state=0)
    data = TaskData.from_long(sim.X, np.where(sim.y == sim.y.max(), 1.0, -1.0), tasks=sim.tasks)
    problem = Problem(data, Hinge(), RowPenalty(1.0, 2.0), data.weight)
    mode = Solution(np.zeros((3, 8)), np.zeros(8), 0.0, 0.0, 1.0, True, 1, np.empty(0))
    moved = nuts._beside(mode, problem, 0)
    slope = problem.family.gradient(data.y, data.linear_predictor(moved.W, moved.intercept))
    assert np.all(np.bincount(data.task, weights=slope) != 0) and np.all(moved.W != 0)
    assert np.any(np.bincount(data.task, weights=-data.y) == 0)  # at the mode itself one does vanish


@pytest.mark.parametrize("n_jobs", [1, 2, None])
def test_chains_come_back_in_order(n_jobs):
    def run(chain, report):
        report(1.0)
        return chain

    assert run_chains(run, 5, n_jobs, False) == [0, 1, 2, 3, 4]


def test_errors_of_a_chain_are_raised():
    def run(chain, report):
        if chain == 1:
            raise ValueError("chain 1 is broken")
        return chain

    with pytest.raises(ValueError, match="chain 1 is broken"):
        run_chains(run, 3, 2, False)


def test_interruption_stops_the_chains_and_keeps_what_they_have(monkeypatch):
    begun = threading.Event()

    def run(chain, report):
        done = 0
        try:
            while True:
                done += 1
                report(0.5)
                begun.set()
        except KeyboardInterrupt:
            return done

    def interrupted(*arguments):
        begun.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(sampling, "_watch", interrupted)
    assert all(done >= 1 for done in run_chains(run, 2, 2, False))


def test_number_of_workers():
    assert n_workers(1, 4) == 1 and n_workers(8, 4) == 4 and 1 <= n_workers(None, 4) <= 4 and n_workers(-1, 1) == 1
