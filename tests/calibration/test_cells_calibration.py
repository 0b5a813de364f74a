"""Posteriors with missing cells are calibrated: parameters, rows and gaps from the model, and what samplers say of them.

Whether a cell is missing depends on another one that was observed (missing at random), or on nothing.
"""

import calibration
import numpy as np
import pytest
from prior_draws import draw_parameters, draw_targets
from scipy import special, stats

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Gaussian
from bayesmtfs.gibbs.cells import cell_summary, gaps_of
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.gibbs.spike import sample_spike_chain
from bayesmtfs.models.spike import draw_patterns
from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.priors.spike import SpikePrior

P, M, N, SHRINKAGE, SPREAD = 4, 3, 25, 4.0, 1.5
PRIOR = Hyperprior(global_scale=0.5, intercept_scale=2.0)
SPIKE = SpikePrior(  # one point of every grid, and nearly everything on
    inclusion_rates=(0.95,),
    inclusion_weights=(1.0,),
    pattern_rates=(0.95,),
    scales=(0.7,),
    shares=(0.5,),
    task_rates=(0.95,),
    task_rate_weights=(1.0,),
    concentrations=(100.0,),
    noise_shape=4.0,
    noise_rate=3.0,
    intercept_scale=1.0,
)


def rows_with_gaps(rng, wide):
    """Rows from their model, and which cells are missing: in three columns where the first one is observed and large."""
    S = stats.invwishart(SHRINKAGE + P + 1, SHRINKAGE * np.eye(P)).rvs(random_state=rng)
    group = np.zeros(2 * N, dtype=int) if wide else np.repeat(np.arange(M), N)
    levels = SPREAD * rng.standard_normal((group.max() + 1, P))
    X = levels[group] + rng.multivariate_normal(np.zeros(P), S, len(group))
    missing = rng.random(X.shape) < 0.25
    seen = ~missing[:, 0]
    missing[seen, 1:] = rng.random((seen.sum(), P - 1)) < 0.6 * special.expit(2.0 * X[seen, :1])
    return X, group, missing


def gaps_as_known(data, missing):
    """Gaps with the prior that rows were drawn from, and with noise in the place of the cells."""
    found = gaps_of(data, missing, SHRINKAGE)
    columns = len(found.columns)
    return found._replace(centres=0.0 * found.centres, spreads=np.full(columns, SPREAD), variances=np.ones(P))


def empty(rng, X, group, missing, wide):
    filled = np.where(missing, rng.standard_normal(X.shape), X)
    if wide:
        return TaskData.from_wide(filled, np.zeros((len(X), M)))
    return TaskData.from_long(filled, np.zeros(len(X)), group)


def targets_and_draws(rng, seed, kind, data, whole, gaps):
    """Truth of what is learned, and draws of it; targets come from the rows behind the gaps."""
    if kind == "spike":
        S = draw_patterns(rng, P, 0.95, 100.0, np.ones(1), np.full((1, M), 0.95**2))
        effects = np.sqrt(0.5) * (rng.standard_normal((P, 1)) + rng.standard_normal((P, M)))
        truth = {"coef": 0.7 * S * effects, "intercept": rng.standard_normal(M)}
        truth["noise"] = np.sqrt(SPIKE.noise_rate / rng.gamma(SPIKE.noise_shape, size=M))
        noise = truth["noise"][whole.task] * rng.standard_normal(whole.n_observations)
        y = whole.linear_predictor(truth["coef"], truth["intercept"]) + noise
        found = sample_spike_chain(data.with_target(y), SPIKE, ChainSettings(800, 200, seed), Gaussian(), gaps=gaps)
        return truth, {"coef": found.W, "intercept": found.intercept, "noise": found.noise}, found.cells
    one = draw_parameters(rng, PRIOR, P, M, 2.0)
    y = (calibration.draw_labels if kind == "logistic" else draw_targets)(rng, whole, one)
    settings = ChainSettings(1500, 500, seed)
    found = sample_chain(data.with_target(y), PRIOR, settings, loss="squared" if kind == "sums" else kind, gaps=gaps)
    truth = {"coef": one.W, "intercept": one.intercept, "row_scale": one.row_scales}
    return truth | ({"noise": one.noise} if kind == "sums" else {}), calibration.named(found), found.cells


def one_fit(seed, kind, wide):
    """Ranks of the truth among draws, and of cells how many deviations off their means they are."""
    rng = np.random.default_rng([seed, 7])
    X, group, missing = rows_with_gaps(rng, wide)
    data = empty(rng, X, group, missing, wide)
    whole = TaskData.from_long(X[data.rows], data.y, data.task)
    gaps = gaps_as_known(data, missing)
    truth, draws, moments = targets_and_draws(rng, seed, kind, data, whole, gaps)
    mean, deviation = cell_summary(moments)
    return calibration.check(truth, draws), (X[gaps.cells] - mean) / deviation


def assert_calibrated(kind, wide, fits):
    found = [one_fit(seed, kind, wide) for seed in range(fits)]
    summary, z = calibration.summarize([fit for fit, _ in found]), np.concatenate([cells for _, cells in found])
    means = np.array([cells.mean() for _, cells in found])  # cells of one data set go together
    margin = 3.0 * summary.coverage_error
    assert 0.85 - margin <= summary.coverage <= 0.93 + margin
    if kind != "spike":  # ranks among draws that are exactly zero, too, are not uniform
        assert min(summary.rank_p_values.values()) > 1e-4, summary.rank_p_values
    assert abs(means.mean()) < 4.0 * means.std(ddof=1) / np.sqrt(fits) and 0.9 < z.std() < 1.1


@pytest.mark.parametrize(("kind", "wide"), [("sums", True), ("spike", False)])
def test_few_fits_are_calibrated(kind, wide):
    assert_calibrated(kind, wide, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "wide"),
    [("sums", False), ("sums", True), ("logistic", False), ("logistic", True), ("spike", False), ("spike", True)],
)
def test_many_fits_are_calibrated(kind, wide):
    assert_calibrated(kind, wide, 150)
