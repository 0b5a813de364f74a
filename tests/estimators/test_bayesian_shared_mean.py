"""Tasks around a mean that is learned: what a fit says of it, new tasks, files, refusals."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone

from bayesmtfs import TaskData
from bayesmtfs.estimators.base import load
from bayesmtfs.estimators.bayesian import BayesianRegressor
from bayesmtfs.posterior.sampling import PosteriorRequest, hyperprior_of, sample_posterior

MEAN = np.array([2.0, -1.0, 0.0, 0.5])
SPREAD = np.array([0.1, 0.4, 0.1, 0.6])
UNITS = np.array([1.0, 2.0, 0.1, 5.0])
FEW = {"draws": 600, "tune": 300, "chains": 2, "random_state": 0, "n_jobs": 1, "norm_q": 2}

pytestmark = pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")


def population(n_tasks, seed, n_rows=8):
    """Tasks of few rows whose coefficients spread around a mean."""
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.arange(n_tasks), n_rows)
    W = (MEAN + SPREAD * rng.standard_normal((n_tasks, 4))) / UNITS
    X = 1.0 + UNITS * rng.standard_normal((len(tasks), 4))
    y = np.sum(X * W[tasks], axis=1) + 3.0 * rng.standard_normal(n_tasks)[tasks] + 0.5 * rng.standard_normal(len(tasks))
    return X, y, tasks, W


@pytest.fixture(scope="module")
def model():
    X, y, tasks, _ = population(30, 0)
    return BayesianRegressor(**FEW, shared_mean=True, unknown_task="population").fit(X, y, tasks=tasks)


def test_mean_is_found_in_the_users_units(model):
    draws = model.posterior_["posterior"]["mean_coef"]
    assert draws.dims == ("chain", "draw", "feature")
    np.testing.assert_allclose(model.mean_coef_, draws.mean(("chain", "draw")).values)
    deviation = draws.std(("chain", "draw")).values
    assert np.all(np.abs(model.mean_coef_ - MEAN / UNITS) < 4.0 * deviation)
    assert np.all(deviation * UNITS < 0.25)
    assert "mean_coef" in {row.variable for row in model.diagnostics_.table}


def test_small_tasks_gain_from_the_mean(model):
    X, y, tasks, W = population(30, 0)
    plain = BayesianRegressor(**FEW, prior="generalized_normal").fit(X, y, tasks=tasks)
    errors = [np.mean(((fit.coef_ - W) * UNITS) ** 2) for fit in (model, plain)]
    assert errors[0] < 0.8 * errors[1]
    assert not hasattr(plain, "mean_coef_") and "mean_coef" not in plain.posterior_["posterior"]


@pytest.mark.slow
def test_new_tasks_come_from_around_the_mean():
    """Coverage on average over fits: thirty tasks tell the spread of tasks to a seventh only."""
    covered, errors, least_errors = [], [], []
    for seed in range(8):
        X, y, tasks, _ = population(30, seed)
        fit = BayesianRegressor(**FEW | {"draws": 300}, shared_mean=True, unknown_task="population")
        fit.fit(X, y, tasks=tasks)
        X, y, _, _ = population(200, 100 + seed)
        mean, low, high = fit.predict(X, tasks=np.full(len(y), 1000), interval=0.9)  # every new task has the same law
        covered.append(np.mean((low < y) & (y < high)))
        errors.append(np.mean((y - mean) ** 2))
        least_errors.append(np.mean((y - X @ (MEAN / UNITS)) ** 2))
    assert np.mean(covered) == pytest.approx(0.9, abs=0.05)
    assert np.mean(errors) < 1.1 * np.mean(least_errors)  # of predictions by the true means


def test_expected_new_task_has_the_slopes_of_the_mean(model):
    X, tasks = population(1, 1)[0], np.full(4, 1000)
    step = model.predict(X[:1] + np.diag(UNITS), tasks=tasks) - model.predict(X[:1], tasks=tasks[:1])
    np.testing.assert_allclose(step, model.mean_coef_ * UNITS, rtol=0.02)  # features hardly differ between tasks


def test_files_keep_the_mean(model, tmp_path):
    model.save(tmp_path / "model")
    other = load(tmp_path / "model")
    np.testing.assert_array_equal(other.mean_coef_, model.mean_coef_)
    X = population(2, 2)[0]
    np.testing.assert_array_equal(other.predict(X, tasks=np.full(16, 77)), model.predict(X, tasks=np.full(16, 77)))


def test_a_later_fit_without_a_mean_forgets_it():
    X, y, tasks, _ = population(5, 0, n_rows=12)
    model = BayesianRegressor(**FEW | {"draws": 20, "tune": 5}, shared_mean=True).fit(X, y, tasks=tasks)
    assert model.mean_coef_.shape == (4,)
    assert not hasattr(model.set_params(shared_mean=False).fit(X, y, tasks=tasks), "mean_coef_")


def test_wide_and_long_data_and_weights_agree():
    rng = np.random.default_rng(4)
    X, W = rng.standard_normal((25, 3)), MEAN[:3, np.newaxis] + 0.3 * rng.standard_normal((3, 4))
    Y = X @ W + 0.3 * rng.standard_normal((25, 4))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    rows, columns = np.nonzero(~np.isnan(Y))
    weight = np.where(np.arange(len(rows)) % 3 == 0, 2.0, 1.0)
    twice = np.repeat(np.arange(len(rows)), weight.astype(int))
    # the same random numbers, with sums that differ by rounding: only so long do chains stay together
    short = BayesianRegressor(**FEW | {"draws": 40, "tune": 20}, shared_mean=True, scale_target=False)
    wide, long = clone(short).fit(X, Y), clone(short).fit(X[rows], Y[rows, columns], tasks=columns)
    np.testing.assert_allclose(wide.mean_coef_, long.mean_coef_, rtol=1e-4, atol=1e-6)
    weighted = clone(short).fit(X[rows], Y[rows, columns], tasks=columns, sample_weight=weight)
    repeated = clone(short).fit(X[rows][twice], Y[rows, columns][twice], tasks=columns[twice])
    np.testing.assert_allclose(weighted.mean_coef_, repeated.mean_coef_, rtol=1e-4, atol=1e-6)


def test_strength_of_the_mean_is_that_of_its_prior():
    """Far fewer data than prior: the posterior of the mean is its prior, in the user's units."""
    X, y, tasks, _ = population(30, 0)
    data = TaskData.from_long(X, y, tasks=tasks)
    strong = {"shared_mean": True, "mean_strength": 1e6}
    prior = hyperprior_of(data, PosteriorRequest(), **strong)
    assert prior.mean_scale == pytest.approx(1e-3 * prior.noise_scale)
    found = sample_posterior(data, PosteriorRequest(draws=500, tune=100, chains=2, norm_q=2.0), **strong)
    within = [np.sqrt(np.mean([np.var(v[tasks == t], axis=0) for t in range(30)], axis=0)) for v in (X, y)]
    mean = found.draws.variables["mean_coef"].reshape(-1, 4) / (1e-3 * within[1] / within[0])
    assert np.abs(mean[:, 2].std() - 1.0) < 0.1 and norm.sf(np.abs(mean).max()) > 1e-8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": "matrix_variate"}, "shared_mean=True does not go with prior='matrix_variate'"),
        ({"prior": "mixed_norm"}, "shared_mean=True does not go with prior='mixed_norm'"),
        (
            {"sampler": "variational", "prior": "generalized_normal"},
            "sampler='variational' does not have prior='generalized_normal'",
        ),
        ({"mean_strength": 0.0}, "mean_strength is 0.0; pass a finite number above 0, or None"),
    ],
)
def test_what_does_not_go_with_a_mean_is_refused(options, message):
    X, y, tasks, _ = population(3, 0)
    with pytest.raises(ValueError, match=message):
        BayesianRegressor(**FEW | {"shared_mean": True} | options).fit(X, y, tasks=tasks)


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["generalized_normal", "horseshoe"])
def test_means_by_nuts(model, prior):
    X, y, tasks, _ = population(30, 0)
    fit = BayesianRegressor(**FEW, shared_mean=True, prior=prior, sampler="nuts").fit(X, y, tasks=tasks)
    np.testing.assert_allclose(fit.mean_coef_ * UNITS, model.mean_coef_ * UNITS, atol=0.06)
    assert fit.posterior_["posterior"]["mean_coef"].shape == (2, 600, 4)


def test_new_tasks_do_not_pay_for_what_intercepts_undo():
    """A feature of the task: its mean and the intercepts are known together only, and new tasks need both."""
    rng = np.random.default_rng(6)
    tasks, seen = np.repeat(np.arange(240), 12), 40
    X = np.column_stack([rng.normal(size=len(tasks)), rng.normal(size=240)[tasks]])
    slopes, levels = 1.0 + 0.1 * rng.normal(size=240), rng.normal(size=240)
    y = slopes[tasks] * X[:, 0] + levels[tasks] + 0.5 * rng.normal(size=len(tasks))
    options = {"draws": 500, "tune": 300, "chains": 2, "random_state": 0, "unknown_task": "population"}
    known, new = tasks < seen, tasks >= seen
    model = BayesianRegressor(shared_mean=True, **options).fit(X[known], y[known], tasks=tasks[known])
    mean, deviation, low, high = model.predict(X[new], tasks=tasks[new], return_std=True, interval=0.8)
    assert np.mean((low < y[new]) & (y[new] < high)) == pytest.approx(0.8, abs=0.07)
    assert deviation.mean() < 1.25 * np.std(y[new] - X[new, 0])
    assert np.mean((y[new] - mean) ** 2) < 1.15 * np.var(y[new] - X[new, 0])
