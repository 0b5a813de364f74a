"""Steps of the sampler of related tasks against the PyMC model and dense linear algebra."""

import numpy as np
import pytest
from scipy import stats
from scipy.linalg import solve_triangular

import bayesmtfs as bm
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families.augmentation import POLYA_GAMMA
from bayesmtfs.gibbs import relations as related
from bayesmtfs.gibbs import scales, state, sweep, tridiagonal
from bayesmtfs.gibbs.chain import ChainSettings
from bayesmtfs.models import matrix_variate_model
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for

SHORT = ChainSettings(draws=60, tune=40, random_seed=3)
CONCENTRATION = 1.7


def random_relations(rng, m, concentration=CONCENTRATION):
    """A correlation matrix by the vine of Lewandowski, Kurowicka and Joe, and its factor."""
    L = np.eye(m)
    for i in range(1, m):
        left = 1.0
        for k in range(i):
            b = concentration + 0.5 * (m - 2 - k)
            r = 2.0 * rng.beta(b, b) - 1.0
            L[i, k], left = r * np.sqrt(left), left * (1.0 - r**2)
        L[i, i] = np.sqrt(left)
    return L @ L.T, L


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_tridiagonal_form(k):
    rng = np.random.default_rng(k)
    root, y, c = rng.standard_normal((k, max(k - 1, 1))), rng.standard_normal(k), 0.3
    B, space = root @ root.T, tridiagonal.tridiagonal_for(k)
    space.matrix[:], space.pulls[:] = B, y
    tridiagonal.reduce_matrix(space)
    T = np.diag(space.diagonal) + np.diag(space.couplings, 1) + np.diag(space.couplings, -1)
    H = np.eye(k)
    for column in range(k):
        unit = np.eye(k)[column].copy()
        tridiagonal.reflect(space, unit, False)
        H[:, column] = unit
    np.testing.assert_allclose(H @ B @ H.T, T, atol=1e-12)
    back = H @ y
    tridiagonal.reflect(space, back, True)
    np.testing.assert_allclose(back, y, atol=1e-12)
    tridiagonal.reflect(space, space.pulls, False)
    precision = B + c * np.eye(k)
    wanted = 0.5 * y @ np.linalg.solve(precision, y) - 0.5 * np.linalg.slogdet(precision)[1]
    found = tridiagonal.log_normal_integral(c, space.diagonal, space.couplings, space.pulls)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)
    generator, draws = np.random.Generator(np.random.PCG64(0)), []
    for _ in range(4000):
        tridiagonal.draw_vector(generator, c, space)
        draws.append(H.T @ space.vector)
    L = np.linalg.cholesky(precision)
    standard = (np.array(draws) - np.linalg.solve(precision, y)) @ L  # independent N(0, 1)
    assert np.abs(standard.mean(axis=0)).max() < 4.5 / np.sqrt(4000)
    assert np.abs(np.cov(standard.T) - np.eye(k)).max() < 4.5 * np.sqrt(2.0 / 4000)


# ---------------------------------------------------------------------- densities of the steps and of the model


class Point:
    """A state with its PyMC model, intercepts left out, so that coefficients alone are integrated out."""

    def __init__(self, m=4, p=3):
        rng = np.random.default_rng(7)
        X = rng.standard_normal((30, p))
        self.data = TaskData.from_long(X, X[:, 0] + rng.standard_normal(30), tasks=np.arange(30) % m)
        self.prior = Hyperprior(fit_intercept=False, tail_shape=0.7, spike_shape=0.4, scale_power=None)
        self.R, self.L = random_relations(rng, m)
        self.W, self.noise = 0.5 * rng.standard_normal((m, p)), rng.uniform(0.5, 1.5, m)
        self.log_scales, self.log_tau = rng.standard_normal(p), 0.3
        sums, rows = state.sums_of(self.data, 0.0), state.rows_of(self.data)
        self.numbers, self.rows = state.gibbs_prior(self.prior, learn_q=False), rows
        self.space = state.space_for(sums)
        for t in range(m):
            sweep.condition_on_noise(sums, self.numbers, t, self.noise[t], self.space.Q[t], self.space.h[t])
        self.space.residuals[:] = self.space.h - np.einsum("tij,tj->ti", self.space.Q, self.W)
        nothing = (np.zeros(p), np.zeros(m), self.noise, self.log_scales.copy(), self.log_tau, 2.0)
        self.state = state.new_state(self.W.copy(), *nothing)
        self.relations = related.relations_for(m, p, CONCENTRATION)
        self.relations.R[:], self.relations.factor[:] = self.R, self.L
        self.model = matrix_variate_model(
            self.data, prior=self.prior, relation_concentration=CONCENTRATION, centred=True
        )
        self.log_p = self.model.compile_fn(
            self.model.logp(jacobian=False), inputs=self.model.value_vars, mode="FAST_COMPILE", point_fn=True
        )

    def log_density(self, W, L, log_scales):
        """Of the model, as a density of W, ln rho, and the last row of the factor L."""
        m = len(L)
        partial, jacobian = np.zeros((m, m)), 0.0
        for i in range(1, m):
            left = 1.0
            for k in range(i):
                partial[i, k] = L[i, k] / np.sqrt(left)
                if i == m - 1:
                    jacobian += 0.5 * np.log(left)
                left *= 1.0 - partial[i, k] ** 2
        share = 0.5 * (1.0 + partial[np.tril_indices(m, -1)])
        known = {
            "log_row_scale": log_scales,
            "log_global_scale": np.array(self.log_tau),
            "partial_correlation_share": share,
            "noise": self.noise,
            "coef": W.T,
        }
        point = {}
        for variable in self.model.value_vars:
            name = variable.name.removesuffix("_log__").removesuffix("_logodds__")
            value = known[name]
            if variable.name.endswith("_log__"):
                value = np.log(value)
            if variable.name.endswith("_logodds__"):
                value = np.log(value) - np.log1p(-value)
            point[variable.name] = value
        return float(self.log_p(point)) - jacobian


@pytest.fixture(scope="module")
def point():
    return Point()


def test_density_of_the_correlations_of_a_task(point):
    """The model's log-density at the best coefficients of the task, less half the logarithm of their precision."""
    m, p = point.W.shape
    t, P = m - 1, np.exp(point.log_scales) / np.sqrt(2.0)
    related.step_on_task(  # fills everything but the place
        np.random.Generator(np.random.PCG64(0)), point.rows, point.state, point.space, point.relations, t
    )
    part, A = point.relations.by_task, point.relations.loadings
    part.pulls[:] = P * point.space.h[t]
    tridiagonal.reflect(part, part.pulls, False)
    gaps, rng = [], np.random.default_rng(1)
    for _ in range(4):
        x, rest = rng.standard_normal(m - 1), rng.uniform(0.5, 3.0)
        products = (float(x @ x), 0.0, 0.0)
        related.multiply(A, x, point.relations.means[0])
        v = x / np.sqrt(x @ x + rest)
        ours = related.log_evidence(point.relations, products, rest, 0.0)
        ours += (CONCENTRATION - 1.0) * np.log(1.0 - v @ v)
        L = np.linalg.cholesky(point.R)
        L[t, :t], L[t, t] = v, np.sqrt(1.0 - v @ v)
        mean = P * (v @ solve_triangular(L[:t, :t], point.W[:t] / P, lower=True))
        prior_precision = np.diag(1.0 / (P**2 * (1.0 - v @ v)))
        precision = point.space.Q[t] + prior_precision
        W = point.W.copy()
        W[t] = np.linalg.solve(precision, point.space.h[t] + prior_precision @ mean)
        theirs = point.log_density(W, L, point.log_scales) - 0.5 * np.linalg.slogdet(precision)[1]
        gaps.append(ours - theirs)
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-8)


def test_density_of_a_row_scale(point):
    m, i = len(point.W), 1
    point.state.W[:] = point.W
    point.space.residuals[:] = point.space.h - np.einsum("tij,tj->ti", point.space.Q, point.W)
    point.relations.factor[:] = point.L
    related.fill_row(point.rows, point.state, point.space, point.relations, i)
    part = point.relations.by_row
    own = scales.ScalePrior(
        np.array([point.log_tau]), 2.0, point.prior.spike_shape, point.prior.tail_shape, 0.0, 0.0, -50.0, 50.0
    )
    rest = (point.relations.zeros, 0.5, -1.0, part.couplings, own)
    target = scales.LogScaleDensity(float(m), -np.inf, 2.0, 0.0, 0.0, 0.0, part.diagonal, part.pulls, *rest)
    gaps = []
    for x in (-2.0, -0.3, 0.8, 2.5):
        curvature = point.space.Q[:, i, i]
        precision = np.diag(curvature) + 2.0 * np.exp(-2.0 * x) * np.linalg.inv(point.R)
        W, log_scales = point.W.copy(), point.log_scales.copy()
        W[:, i] = np.linalg.solve(precision, point.space.residuals[:, i] + curvature * point.W[:, i])
        log_scales[i] = x
        theirs = point.log_density(W, point.L, log_scales) - 0.5 * np.linalg.slogdet(precision)[1]
        gaps.append(scales.log_density(x, target) - theirs)
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_labels_given_their_precisions(fit_intercept):
    rng = np.random.default_rng(0)
    X, tasks = rng.standard_normal((20, 3)), np.repeat([0, 1], [8, 12])
    data = TaskData.from_long(X, rng.choice([-1.0, 1.0], 20), tasks=tasks)
    prior = Hyperprior(fit_intercept=fit_intercept, intercept_scale=1.3, learn_global_scale=False)
    numbers, rows = state.gibbs_prior(prior, learn_q=False, learn_noise=False), state.rows_of(data)
    observed = state.observations_of(data, 0.0, POLYA_GAMMA)
    first = state.state_around(rows, numbers, rng.standard_normal((2, 3)), np.zeros(2), np.ones(2), 2.0, rng)
    space = state.SumsSpace(np.empty((2, 3, 3)), np.empty((2, 3)), np.empty((2, 3)), np.empty(3), np.empty(3))
    left = related.InterceptSums(np.zeros((2, 3)), np.zeros(2), np.zeros(2))
    generator = np.random.Generator(np.random.PCG64(0))
    related.condition_on_labels(generator, observed, left, rows, numbers, first, space)
    for t in range(2):
        own = tasks == t
        omega, Z = observed.precisions[own], X[own]
        inverse = np.diag(1.0 / omega) + (prior.intercept_scale**2 if fit_intercept else 0.0)  # of y / (2 omega)
        weighted = np.linalg.solve(inverse, Z)
        np.testing.assert_allclose(space.Q[t], Z.T @ weighted, rtol=1e-9)
        np.testing.assert_allclose(space.h[t], weighted.T @ (0.5 * data.y[own] / omega), rtol=1e-9)


# ---------------------------------------------------------------------- chains and estimators


@pytest.fixture(scope="module")
def sim():
    return bm.simulate_tasks(
        n_tasks=3, n_features=6, n_relevant=4, n_samples=40, relatedness=0.9, opposed_tasks=1, snr=5, random_state=0
    )


def assert_correlations(found):
    np.testing.assert_array_equal(np.diagonal(found, axis1=1, axis2=2), 1.0)
    np.testing.assert_array_equal(found, found.transpose(0, 2, 1))
    assert np.linalg.eigvalsh(found).min() > 0.0


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_relations_stay_correlations_and_seeds_are_kept(sim, loss):
    data = sim.data if loss == "squared" else sim.data.with_target(np.where(sim.data.y > 0.0, 1.0, -1.0))
    prior = hyperprior_for(data, loss)
    one, two = (related.sample_related_chain(data, prior, SHORT, 2.0, loss) for _ in range(2))
    assert_correlations(one.relations)
    assert np.ptp(one.relations[:, 0, 1]) > 0.0
    for name in ("W", "intercept", "row_scales", "relations", "global_scale"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_an_interrupted_chain_keeps_its_draws(sim):
    def stop(fraction):
        if fraction > 0.6:
            raise KeyboardInterrupt

    found = related.sample_related_chain(sim.data, hyperprior_for(sim.data), SHORT, report=stop)
    assert found.interrupted and 0 < len(found.relations) == len(found.W) < 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concentration": 1.0}, "relation_concentration is 1.0"),
        ({"shared_mean": True}, "shared_mean=True does not go with"),
        ({"present": np.array([[True, False, True]] + 5 * [[True] * 3])}, "tasks without some of the features"),
    ],
)
def test_what_is_refused(sim, options, message):
    from dataclasses import replace

    data = replace(sim.data, present=options.get("present"))
    prior = hyperprior_for(data, shared_mean=options.get("shared_mean", False))
    with pytest.raises(ValueError, match=message):
        related.sample_related_chain(data, prior, SHORT, options.get("concentration", 2.0))


@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")
def test_regressor_gives_what_nuts_gives(sim):
    model = bm.BayesianRegressor(
        prior="matrix_variate", draws=300, tune=300, chains=2, random_state=0, unknown_task="population"
    )
    model.fit(sim.X, sim.y, tasks=sim.tasks)
    posterior = model.posterior_["posterior"]
    assert model.posterior_.attrs["sampler"] == "gibbs" and model.posterior_.attrs["sweeps_per_draw"] == 2
    assert posterior["task_relations"].dims == ("chain", "draw", "task", "task_bis")
    assert set(posterior.data_vars) == {"coef", "intercept", "noise", "row_scale", "global_scale", "task_relations"}
    pairs = np.triu_indices(3, k=1)
    np.testing.assert_array_equal(np.sign(model.task_relations_[pairs]), np.sign(sim.task_correlation[pairs]))
    mean, deviation = model.predict(sim.X[:2], tasks=[0, 99], return_std=True)
    assert np.all(np.isfinite(mean)) and deviation[1] > deviation[0]


@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")
@pytest.mark.parametrize("form", ["missing cells", "groups", "weights", "one task"])
def test_forms_of_data(form):
    rng = np.random.default_rng(2)
    X, w = rng.standard_normal((60, 4)), np.array([1.5, -1.0, 0.0, 0.0])
    options = {"prior": "matrix_variate", "draws": 200, "tune": 200, "chains": 2, "random_state": 0}
    Y = (X @ w)[:, np.newaxis] + 0.3 * rng.standard_normal((60, 3))
    if form == "missing cells":
        Y[rng.random(Y.shape) < 0.2] = np.nan
        model = bm.BayesianRegressor(**options).fit(X, Y)
    elif form == "groups":
        model = bm.BayesianRegressor(groups=[0, 0, 1, 1], **options).fit(X, Y)
        scales = model.posterior_["posterior"]["row_scale"].values
        assert np.corrcoef(np.log(scales[..., 0]).ravel(), np.log(scales[..., 1]).ravel())[0, 1] > 1.0 - 1e-9
    elif form == "weights":
        weight = rng.integers(1, 4, 60).astype(float)
        model = bm.BayesianRegressor(**options).fit(X, Y, sample_weight=weight)
    else:
        model = bm.BayesianRegressor(**options).fit(X, Y[:, 0])
        np.testing.assert_array_equal(model.task_relations_, [[1.0]])
    np.testing.assert_allclose(model.coef_, np.broadcast_to(w, model.coef_.shape), atol=0.25)


def test_whole_weights_are_repeated_rows():
    rng = np.random.default_rng(4)
    X, y, tasks = rng.standard_normal((24, 3)), rng.standard_normal(24), np.arange(24) % 2
    weight = rng.integers(1, 3, 24)
    weighted = TaskData.from_long(X, y, tasks=tasks, sample_weight=weight.astype(float))
    place = np.repeat(np.arange(24), weight)
    repeated = TaskData.from_long(X[place], y[place], tasks=tasks[place])
    one, two = (related.sample_related_chain(data, Hyperprior(), SHORT) for data in (weighted, repeated))
    np.testing.assert_allclose(one.W[:20], two.W[:20], rtol=1e-6, atol=1e-8)


@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")
def test_classifier(sim):
    labels = np.where(sim.y > 0.0, "yes", "no")
    model = bm.BayesianClassifier(prior="matrix_variate", draws=200, tune=200, chains=2, random_state=0)
    model.fit(sim.X, labels, tasks=sim.tasks)
    assert model.posterior_.attrs["sampler"] == "gibbs" and model.score(sim.X, labels, tasks=sim.tasks) > 0.85
    assert_correlations(model.posterior_["posterior"]["task_relations"].values.reshape(-1, 3, 3))


def test_prior_of_the_place_is_that_of_lkj():
    """Without data, the squared length of v is Beta((m - 1) / 2, eta)."""
    m, p = 4, 2
    relations = related.relations_for(m, p, CONCENTRATION)
    generator, lengths = np.random.Generator(np.random.PCG64(0)), []
    for number in range(6000):
        related.move_on_ellipse(generator, relations)
        if number % 3 == 0:
            lengths.append(relations.place @ relations.place)
    assert stats.kstest(lengths, stats.beta(0.5 * (m - 1), CONCENTRATION).cdf).pvalue > 1e-3
