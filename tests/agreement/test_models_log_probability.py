"""Log-probability of the full models against their priors and likelihoods in NumPy, centred and non-centred."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from pymc.model.transform.conditioning import remove_value_transforms
from pytensor.compile.mode import Mode
from scipy.linalg import sqrtm
from scipy.special import gammaln
from scipy.stats import beta, norm, t

from bayesmtfs import TaskData
from bayesmtfs.families import find_family, total
from bayesmtfs.models import generalized_normal_model, horseshoe_model, jeffreys_model, matrix_variate_model
from bayesmtfs.priors import Blocks
from bayesmtfs.priors.hyperpriors import (
    hyperprior_for,
    log_global_scale_density,
    log_noise_density,
    log_scale_density,
    typical_deviation,
)

RNG = np.random.default_rng(31)
X = RNG.normal(size=(21, 4))
Y = RNG.normal(size=(21, 3))
SIGNS = np.where(RNG.uniform(size=21) < 0.5, -1.0, 1.0)
TASKS = np.repeat(["a", "b", "c"], [5, 9, 7])
WEIGHT = RNG.uniform(0.2, 2.0, size=21)
PRESENT = np.array([[1, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 1]], dtype=bool)
BOUNDS = (1e-3, 50.0)
UNCHANGED = Mode(linker="py", optimizer=None)  # rewriting a graph would take most of the time

LONG = TaskData.from_long(X, Y[:, 0], tasks=TASKS, sample_weight=WEIGHT)
LABELS = TaskData.from_long(X, SIGNS, tasks=TASKS)
GROUPED = TaskData.from_long(X, Y[:, 0], tasks=TASKS, groups=[0, 1, 0, 2])
WIDE = TaskData.from_wide(X, np.where(RNG.uniform(size=Y.shape) < 0.2, np.nan, Y))
SPARSE = TaskData.from_long(sp.csr_matrix(X), Y[:, 0], tasks=TASKS)

GENERALIZED_NORMAL = {
    "q=1.2": (LONG, {"norm_q": 1.2}),
    "q=2": (LONG, {"norm_q": 2, "shared_noise": True}),
    "q=8": (WIDE, {"norm_q": 8, "tail_shape": 0.9, "spike_shape": 0.3}),
    "q learned": (LONG, {"norm_q": "learn", "norm_q_bounds": (1.0, 20.0)}),
    "q learned, own power": (LONG, {"norm_q": "learn", "scale_power": 2.0}),
    "logistic": (LABELS, {"norm_q": 1.5, "loss": "logistic"}),
    "logistic, q learned": (LABELS, {"norm_q": "learn", "loss": "logistic"}),
    "fixed global scale": (SPARSE, {"learn_global_scale": False, "global_scale": 0.4}),
    "no intercept": (LONG, {"fit_intercept": False}),
    "groups": (GROUPED, {"norm_q": 3}),
    "absent features": (replace(LONG, present=PRESENT), {"norm_q": 1.5}),
    "absent features in groups": (replace(GROUPED, present=PRESENT), {"norm_q": "learn"}),
    "shared mean": (LONG, {"norm_q": 3, "shared_mean": True}),
    "shared mean, absent features": (replace(GROUPED, present=PRESENT), {"shared_mean": True, "mean_strength": 4.0}),
    "log-uniform": (LONG, {"kind": "log_uniform", "bounds": BOUNDS, "norm_q": 2.5}),
    "log-uniform, shared mean": (LONG, {"kind": "log_uniform", "bounds": BOUNDS, "shared_mean": True}),
    "log-uniform, q learned": (
        LABELS,
        {"kind": "log_uniform", "bounds": BOUNDS, "norm_q": "learn", "loss": "logistic"},
    ),
}
NON_CENTRED = [
    (case, False)
    for case in (
        "q=1.2",
        "q learned",
        "absent features in groups",
        "log-uniform, q learned",
        "shared mean",
        "shared mean, absent features",
    )
]
MATRIX_VARIATE = {
    "matrix, q=2": (LONG, {"norm_q": 2, "relation_concentration": 1.5}),
    "matrix, q learned": (GROUPED, {"norm_q": "learn"}),
    "matrix, logistic": (LABELS, {"norm_q": 1.3, "loss": "logistic", "kind": "log_uniform", "bounds": BOUNDS}),
}
HORSESHOE = {
    "horseshoe": (LONG, {}),
    "horseshoe, fixed slab": (replace(LONG, present=PRESENT), {"slab_scale": 0.8}),
    "horseshoe, shared mean": (LONG, {"shared_mean": True}),
    "horseshoe, logistic": (LABELS, {"loss": "logistic", "expected_features": 2}),
}


def natural_value(name, shape, rng):
    """A value of a free variable on its own scale, well inside its support."""
    if name in ("noise", "shared_noise", "slab_scale"):
        return np.exp(0.4 * rng.normal(size=shape))
    if name == "partial_correlation_share":
        return rng.uniform(0.2, 0.8, size=shape)
    if name == "inverse_norm_q":
        return rng.uniform(0.1, 0.9)
    return rng.uniform(-0.9, 0.9, size=shape)


def shape_in(model, variable):
    dims = model.named_vars_to_dims.get(variable.name)
    return variable.type.shape if dims is None else tuple(len(model.coords[name]) for name in dims)


def points_of(model, n_points, mode=UNCHANGED):
    """Log-probability and every variable of a model, at random points, without transformations."""
    plain = remove_value_transforms(model)
    shown = [v for v in (*plain.deterministics, *plain.free_RVs) if v.name != "y"]
    outputs = [plain.logp(), *plain.replace_rvs_by_values(shown)]
    evaluate = plain.compile_fn(outputs, inputs=plain.value_vars, mode=mode, on_unused_input="ignore")
    rng = np.random.default_rng(8)
    shapes = {variable.name: shape_in(plain, variable) for variable in plain.free_RVs}
    for _ in range(n_points):
        log_probability, *values = evaluate({name: natural_value(name, shape, rng) for name, shape in shapes.items()})
        yield float(log_probability), dict(zip([v.name for v in shown], values, strict=True))


def log_likelihood(data, loss, v):
    eta = data.linear_predictor(v["coef"], v["intercept"])
    if loss == "logistic":
        return -total(find_family("logistic"), data.y, eta, data.weight)
    noise = v["noise"][data.task]
    return float(data.weight @ norm.logpdf(data.y, eta, noise))


def log_hyperprior(prior, log_rho, v, loss):
    """Everything above the coefficients; ``log_rho`` has one entry per row of the prior."""
    density = np.sum(log_scale_density(log_rho, v.get("global_scale", 1.0), float(v["norm_q"]), prior))
    if prior.kind == "beta_prime" and prior.learn_global_scale:
        density += log_global_scale_density(np.log(v["global_scale"]), prior)
    if prior.fit_intercept:
        density += np.sum(norm.logpdf(v["intercept"], prior.intercept_centre, prior.intercept_scale))
    if loss == "squared":
        noises = v["noise"][:1] if prior.shared_noise else v["noise"]
        density += np.sum(log_noise_density(noises, prior))
    if "inverse_norm_q" in v:
        low, high = prior.norm_q_bounds
        density -= np.log(1 / low - 1 / high)
    if prior.mean_scale > 0:
        log_scale = v["log_mean_scale"]
        deviation = (np.exp(-2.0 * log_scale) + prior.mean_scale**-2.0) ** -0.5
        density += np.sum(log_scale_density(log_scale, v.get("mean_global_scale", 1.0), 2.0, prior))
        if prior.kind == "beta_prime":
            density += log_global_scale_density(np.log(v["mean_global_scale"]), prior)
        density += norm.logpdf(v["mean_coef"], 0.0, deviation).sum()
        if "standard_mean" in v:
            density += np.log(deviation).sum()
    return float(density)


def blocks_and_scales(data, v):
    blocks = Blocks(data.n_features, data.n_tasks, data.groups, data.present)
    scales = np.empty(blocks.n_rows)
    scales[blocks.row_of_feature] = v["row_scale"]
    return blocks, scales


def deviations(data, v):
    """Coefficients less their shared mean, where there is one; 0 where a task does not have the feature."""
    mean = v.get("mean_coef", np.zeros(data.n_features))[:, np.newaxis]
    return v["coef"] - (mean if data.present is None else np.where(data.present, mean, 0.0))


def log_jacobian(data, v):
    """``ln |dW/dZ|`` of W = diag(rho) Z, absent entries left out."""
    counts = np.full(data.n_features, data.n_tasks) if data.present is None else data.present.sum(axis=1)
    return float(counts @ np.log(v["row_scale"]))


def assert_no_difference(gaps):
    """Differences agree to rounding; the constant, in which PyMC rounds logarithms to single precision, nearly so."""
    np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-10)
    assert gaps[0] == pytest.approx(0.0, abs=1e-7)


def split(options):
    """Arguments of the model, and those of the hyperprior."""
    own = {name: options[name] for name in ("norm_q", "relation_concentration", "slab_scale") if name in options}
    return own, {name: value for name, value in options.items() if name not in own}


def log_entries(rows, sizes, scales, q):
    """Log-density of GN(0, scale, q) entries, row by row, as many of each as count."""
    ratios = np.abs(rows / scales[:, np.newaxis])
    return -np.sum(ratios**q) - sizes @ (np.log(2 * scales) + gammaln(1 + 1 / q))


@pytest.mark.parametrize(("case", "centred"), [*((case, True) for case in GENERALIZED_NORMAL), *NON_CENTRED])
def test_generalized_normal(case, centred):
    data, options = GENERALIZED_NORMAL[case]
    own, settings = split(options)
    loss, prior = settings.get("loss", "squared"), hyperprior_for(data, **settings)
    if prior.kind == "log_uniform":
        shared_mean = settings.get("shared_mean", False)
        model = jeffreys_model(data, BOUNDS, loss=loss, centred=centred, shared_mean=shared_mean, **own)
    else:
        model = generalized_normal_model(data, centred=centred, **options)
    gaps = []
    for log_probability, v in points_of(model, 3):
        blocks, scales = blocks_and_scales(data, v)
        expected = log_hyperprior(prior, np.log(scales), v, loss) + log_likelihood(data, loss, v)
        expected += log_entries(blocks.gather(deviations(data, v)), blocks.sizes, scales, v["norm_q"])
        expected += 0.0 if centred else log_jacobian(data, v)
        gaps.append(log_probability - expected)
        np.testing.assert_array_equal(v["coef"] != 0, True if data.present is None else data.present)
    assert_no_difference(gaps)


@pytest.mark.parametrize("centred", [True, False], ids=["centred", "non-centred"])
@pytest.mark.parametrize("case", MATRIX_VARIATE)
def test_matrix_variate(case, centred):
    data, options = MATRIX_VARIATE[case]
    _, settings = split(options)
    loss, prior = settings.get("loss", "squared"), hyperprior_for(data, **settings)
    eta = options.get("relation_concentration", 2.0)
    # Tasks 2 and 3 given none, and 3 given the first task taken out
    shapes = np.array([eta + 0.5, eta + 0.5, eta])
    gaps = []
    model = matrix_variate_model(data, centred=centred, **options)
    for log_probability, v in points_of(model, 3, mode="FAST_COMPILE"):  # a root in an unchanged graph is compiled
        R = v["task_relations"]
        np.testing.assert_allclose(np.diag(R), 1.0)
        shares = beta.logpdf(v["partial_correlation_share"], shapes, shapes).sum()
        scales = blocks_and_scales(data, v)[1]
        whitened = np.linalg.solve(np.real(sqrtm(R)), v["coef"].T).T
        expected = log_hyperprior(prior, np.log(scales), v, loss) + log_likelihood(data, loss, v) + shares
        expected += log_entries(whitened, np.full(len(whitened), data.n_tasks), v["row_scale"], v["norm_q"])
        expected -= 0.5 * data.n_features * np.linalg.slogdet(R)[1]
        if not centred:
            expected += log_jacobian(data, v) + 0.5 * data.n_features * np.linalg.slogdet(R)[1]
        gaps.append(log_probability - expected)
    assert_no_difference(gaps)


@pytest.mark.parametrize("centred", [True, False], ids=["centred", "non-centred"])
@pytest.mark.parametrize("case", HORSESHOE)
def test_horseshoe(case, centred):
    data, options = HORSESHOE[case]
    _, settings = split(options)
    loss, prior = settings.get("loss", "squared"), hyperprior_for(data, **settings)
    counted = np.ones((4, 3), dtype=bool) if data.present is None else data.present
    gaps = []
    for log_probability, v in points_of(horseshoe_model(data, centred=centred, **options), 3):
        free, slab = np.exp(v["log_row_scale"]), v["slab_scale"]
        np.testing.assert_allclose(v["row_scale"], np.sqrt(free**2 * slab**2 / (slab**2 + free**2)), rtol=1e-12)
        expected = log_hyperprior(prior, v["log_row_scale"], v, loss) + log_likelihood(data, loss, v)
        expected += norm.logpdf(deviations(data, v), 0.0, v["row_scale"][:, np.newaxis])[counted].sum()
        if "slab_scale" not in options:
            expected += np.log(2) + t.logpdf(slab, 4, scale=prior.noise_scale / typical_deviation(data))
        expected += 0.0 if centred else log_jacobian(data, v)
        gaps.append(log_probability - expected)
    assert_no_difference(gaps)


def test_uniform_coefficients_at_infinite_q():
    prior = hyperprior_for(LONG)
    gaps = []
    for log_probability, v in points_of(generalized_normal_model(LONG, norm_q=np.inf), 3):
        expected = log_hyperprior(prior, np.log(v["row_scale"]), v, "squared") + log_likelihood(LONG, "squared", v)
        gaps.append(log_probability - expected + 12 * np.log(2.0))
    assert_no_difference(gaps)
