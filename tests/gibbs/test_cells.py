"""Draws of missing cells and of the model of the rows against closed forms; what the samplers make of them."""

import numpy as np
import pytest
from scipy import stats

from bayesmtfs.data.gaps import RowModel
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import find_family
from bayesmtfs.gibbs import cells as missing_cells
from bayesmtfs.gibbs import spike, spike_state
from bayesmtfs.gibbs.cells import Cells, complete, gaps_of, row_model, together
from bayesmtfs.gibbs.chain import ChainSettings, sample_chain
from bayesmtfs.gibbs.state import rows_of
from bayesmtfs.priors.hyperpriors import Hyperprior
from bayesmtfs.priors.spike import spike_prior_for

P, DRAWS = 4, 4000


def problem(kind="long", n=20, all_columns=True):
    """Data with something in the place of missing cells, and which they are; row 3 lacks all that some row lacks."""
    rng = np.random.default_rng(5)
    rows = n if kind == "wide" else 2 * n
    X = rng.standard_normal((rows, P)) + rng.standard_normal((rows, 1)) + 2.0
    missing = rng.random((rows, P)) < 0.3
    missing[3] = True
    missing[:, -1] &= all_columns
    if kind == "wide":
        Y = X @ rng.standard_normal((P, 3)) + rng.standard_normal((rows, 3))
        Y[rng.random(Y.shape) < 0.2] = np.nan
        Y[:, 0] = 0.0
        return TaskData.from_wide(X, Y), missing
    return TaskData.from_long(X, X[:, 0] + rng.standard_normal(rows), np.arange(rows) // n), missing


def chain_of(data, missing, factors=1.0, shrinkage=3.0):
    return Cells(gaps_of(data, missing, shrinkage), np.random.Generator(np.random.PCG64(2)), factors)


@pytest.mark.parametrize("kind", ["long", "wide"])
@pytest.mark.parametrize("most", [50, 2])
def test_cells_have_their_conditional_distribution(kind, most):
    """Also where the cells of a row are drawn in parts, each time others."""
    data, missing = problem(kind)
    rng, own = np.random.default_rng(1), np.flatnonzero(data.rows == 3)
    factors = rng.uniform(0.5, 2.0, data.n_observations)
    cells = chain_of(data, missing, factors)
    cells.draw_model()
    W, precisions = rng.standard_normal((data.n_tasks, P)), rng.uniform(0.1, 1.0, data.n_observations)
    targets, draws = rng.standard_normal(data.n_observations), []
    if most == 2:
        part = cells.space
        cells.space = (part[0], part[1][:2, :2].copy(), part[2][:2].copy(), part[3][:2].copy())
    for _ in range(DRAWS):
        eta = factors * np.sum(cells.X[data.rows] * W[data.task], axis=1)
        cells.draw_cells(W, precisions, precisions * (targets - eta))
        draws.append(cells.X[3].copy())
    level = cells.levels[cells.gaps.group[3]]
    slopes = factors[own, np.newaxis] * W[data.task[own]]
    K = cells.precisions + (precisions[own, np.newaxis] * slopes).T @ slopes
    mean = np.linalg.solve(K, cells.precisions @ level + (precisions[own] * targets[own]) @ slopes)
    covariance = np.linalg.inv(K)
    error = np.sqrt(np.diag(covariance) / DRAWS * (20 if most == 2 else 1))
    assert (np.abs(np.mean(draws, axis=0) - mean) / error).max() < 4.5
    np.testing.assert_allclose(np.cov(np.array(draws).T), covariance, atol=0.2 * np.diag(covariance).max())


@pytest.mark.parametrize("all_columns", [True, False])
def test_the_model_of_the_rows_is_inverse_wishart(all_columns):
    """Rows of S^-1 have the first two moments of a Wishart matrix, whether all columns have gaps or some are complete."""
    data, missing = problem(all_columns=all_columns)
    cells = chain_of(data, missing)
    gaps, level, draws = cells.gaps, cells.levels.copy(), []
    for _ in range(DRAWS):
        cells.levels[:] = level
        cells.draw_model()
        draws.append(cells.precisions.copy())
    around = data.design - level[gaps.group]
    scatter = around.T @ around + gaps.shrinkage * np.diag(gaps.variances)
    scale, degrees = np.linalg.inv(scatter), gaps.shrinkage + P + 1 + len(around)
    mean = degrees * scale[gaps.columns]
    variance = degrees * (scale**2 + np.outer(np.diag(scale), np.diag(scale)))[gaps.columns]
    assert (np.abs(np.mean(draws, axis=0) - mean) / np.sqrt(variance / DRAWS)).max() < 4.5
    np.testing.assert_allclose(np.var(draws, axis=0), variance, rtol=0.15)


def test_levels_have_their_conditional_distribution():
    data, missing = problem()
    cells = chain_of(data, missing)
    cells.draw_model()
    gaps, filled, draws = cells.gaps, cells.X[:-1], []
    for _ in range(DRAWS):
        cells._draw_levels(filled)
        draws.append(cells.levels.copy())
    for t, (start, stop) in enumerate(data.spans):
        K = (stop - start) * cells.precisions + np.diag(gaps.spreads**-2.0)
        pull = (stop - start) * cells.precisions @ filled[start:stop].mean(axis=0) + gaps.centres[t] / gaps.spreads**2
        own = np.array(draws)[:, t]
        error = np.sqrt(np.diag(np.linalg.inv(K)) / DRAWS)
        assert (np.abs(own.mean(axis=0) - np.linalg.solve(K, pull)) / error).max() < 4.5
        np.testing.assert_allclose(np.cov(own.T), np.linalg.inv(K), atol=0.1 * np.linalg.inv(K).max())


def test_the_shrinkage_is_that_of_the_largest_marginal_likelihood():
    """Of the filled rows, by Bayes' theorem at an arbitrary covariance."""
    data, missing = problem()
    gaps = gaps_of(data, missing)
    gaps = gaps._replace(group=np.zeros(40, dtype=np.int64), centres=np.zeros((0, P)))  # one level, known to be 0
    gaps.X[:-1] -= gaps.X[:-1].mean(axis=0)
    X, S, D = gaps.X[:-1], np.eye(P) + 0.5, np.diag(gaps.variances)
    grid = np.geomspace(1.0, 100.0 * (40 + P), missing_cells.SHRINKAGES)
    logs = [
        stats.multivariate_normal(cov=S).logpdf(X).sum()
        + stats.invwishart(k + P + 1, k * D).logpdf(S)
        - stats.invwishart(k + P + 1 + 40, k * D + X.T @ X).logpdf(S)
        for k in grid
    ]
    assert missing_cells.likely_shrinkage(gaps) == pytest.approx(grid[np.argmax(logs)])


def test_filling_does_not_depend_on_units_and_keeps_what_was_observed():
    data, missing = problem()
    unit, level = np.array([1e-3, 1.0, 7.0, 1e5]), np.array([4.0, -1e4, 0.0, 1e6])
    filled, shrinkage = complete(data, missing)
    moved = TaskData.from_long(data.design * unit + level, data.y, data.task)
    again, other = complete(moved, missing)
    assert other == pytest.approx(shrinkage)
    np.testing.assert_allclose((again.design - level) / unit, filled.design, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(filled.design[~missing], data.design[~missing])


def test_correlated_columns_fill_each_other():
    """Duplicates of observed columns come back, and where there are more columns than rows they come near."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 80))
    X = base + 0.1 * rng.standard_normal(base.shape)
    missing = rng.random(X.shape) < 0.1
    filled, shrinkage = complete(TaskData.from_long(np.where(missing, 0.0, X), np.zeros(60)), missing)
    error = np.std(filled.design[missing] - X[missing]) / np.std(X[missing])
    assert shrinkage < 60 and error < 0.25


def test_sums_follow_the_design_of_the_sampler():
    """After a redraw, sums and predictors are those of a sampler that begins with the new rows."""
    data, missing = problem("wide")
    family, rng = find_family("squared"), np.random.default_rng(0)
    data = TaskData.from_wide(
        data.design - data.design.mean(axis=0), rng.standard_normal((20, 3))
    )  # one design for all
    prior, rows = spike_prior_for(data, family), rows_of(data)

    def parts_of(some):
        observed = spike_state.spike_data(some, family, True, reduce=False)
        numbers = spike_state.spike_numbers(prior, family, observed, rows)
        state = spike_state.first_state(observed, numbers, rows)
        return spike_state.SpikeParts(observed, rows, numbers, state, spike_state.space_for(numbers, state, rows))

    parts, cells = parts_of(data), chain_of(data, missing)
    spike.run(cells.rng, parts, spike_state.kept_for(1, rows), 1, 0, 20, 10**9)  # some columns of X'X are stored
    parts.state.W[:] = rng.standard_normal(parts.state.W.shape)
    spike.redraw_cells(cells, parts, None, True)
    new = parts_of(TaskData.from_wide(cells.X[:-1], data.as_matrix(data.y)))
    for name in ("totals", "blocks"):
        np.testing.assert_allclose(getattr(parts.data.sums, name), getattr(new.data.sums, name), atol=1e-10)
    assert (parts.data.sums.slots == -1).all() and (parts.data.sums.owners[:-1] == -1).all()
    eta = cells.X[:-1] @ parts.state.W + parts.state.intercept
    np.testing.assert_allclose(parts.data.predictors, eta.T.ravel(), atol=1e-10)
    np.testing.assert_allclose(parts.data.sums.pulls, (data.as_matrix(data.y) - eta).T @ cells.X[:-1], atol=1e-9)


def test_new_rows_are_filled_by_the_model_of_the_draws():
    """With many rows: the truth; with the moments of two chains put together."""
    rng = np.random.default_rng(3)
    S = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.5], [0.3, 0.5, 1.0]])
    X = rng.multivariate_normal([1.0, 2.0, 3.0], S, 4000)
    missing = rng.random(X.shape) < 0.2
    data, _ = complete(TaskData.from_long(np.where(missing, 0.0, X), np.zeros(4000)), missing)
    moments = []
    for seed in (0, 1):
        cells = Cells(gaps_of(data, missing), np.random.Generator(np.random.PCG64(seed)))
        nothing = np.zeros(4000)
        for _ in range(20):
            cells.redraw(np.zeros((1, 3)), nothing, nothing, keep=True)
        moments.append(cells.kept)
    found = row_model(together(moments), cells.gaps, np.zeros((1, 3)), np.ones((1, 3)))
    np.testing.assert_allclose(found.covariance, S, atol=0.08)
    np.testing.assert_allclose(found.means, [[1.0, 2.0, 3.0]] * 2, atol=0.08)
    true = RowModel(np.arange(3), np.array([[1.0, 2.0, 3.0]]), np.ones((1, 3)), S)
    row = np.array([[2.5, np.nan, np.nan]])
    np.testing.assert_allclose(true.fill(row, np.zeros(1, dtype=int)), [[2.5, 2.0 + 0.8 * 1.5, 3.0 + 0.3 * 1.5]])
    w, left = np.array([[1.0, -2.0, 0.7]]), S[1:, 1:] - np.outer(S[1:, 0], S[1:, 0])
    np.testing.assert_allclose(true.deviations(row, 0, w), np.sqrt([[w[0, 1:] @ left @ w[0, 1:]]]))


@pytest.mark.parametrize("prior", ["spike", "generalized_normal"])
def test_an_interrupted_chain_keeps_its_draws_and_cells(prior):
    data, missing = problem()
    gaps, settings, calls = gaps_of(data, missing), ChainSettings(100_000, 10, 0), []

    def report(fraction):
        calls.append(fraction)
        if len(calls) == 4:
            raise KeyboardInterrupt

    if prior == "spike":
        family = find_family("squared")
        draws = spike.sample_spike_chain(data, spike_prior_for(data, family), settings, family, report, gaps=gaps)
    else:
        draws = sample_chain(data, Hyperprior(), settings, report, gaps=gaps)
    assert draws.interrupted and 0 < len(draws.W) < 100_000
    assert abs(draws.cells.draws - len(draws.W)) <= 1 and np.isfinite(draws.cells.totals).all()
