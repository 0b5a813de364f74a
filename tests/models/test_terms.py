import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy import stats

from bayesmtfs.families import Family, Hinge, Logistic, find_family, names, total
from bayesmtfs.models.terms import observe

LOSSES = names(labels=False) + names(labels=True)
FAST = "FAST_COMPILE"  # no code generation: a log-probability in 0.05 s instead of seconds
N_ROWS = 7
RNG = np.random.default_rng(11)
NUMBERS = RNG.normal(size=N_ROWS)
COUNTS = RNG.poisson(1.0, N_ROWS).astype(float)
LABELS = np.array([1.0, -1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
WEIGHT = np.array([0.3, 1.0, 2.5, 0.0, 0.7, 1.0, 4.0])
NOISE = np.linspace(0.4, 2.0, N_ROWS)
SCIPY_LAW = {
    "squared": stats.norm,
    "absolute": stats.laplace,
    "quantile": stats.laplace_asymmetric,
}
LAW_SCALE = {"quantile": 2.0}  # of a target of noise 1; at level 1/2 the law is symmetric
LAW_SHAPE = {"quantile": (1.0,)}


def targets_of(loss):
    return {"numbers": NUMBERS, "counts": COUNTS, "labels": LABELS}[find_family(loss).targets]


def model_of_predictors(loss, weight, **options):
    """Model whose only parameter is the linear predictor itself, with a flat prior."""
    with pm.Model(coords={"obs": range(N_ROWS)}) as model:
        eta = pm.Flat("eta", dims="obs")
        observe("y", find_family(loss), eta, targets_of(loss), weight, **options)
    return model


@pytest.fixture(scope="module", params=[(loss, weighted) for loss in LOSSES for weighted in (False, True)], ids=str)
def case(request):
    """Loss, weights or None, log-probability and its gradient."""
    loss, weighted = request.param
    weight = WEIGHT if weighted else None
    model = model_of_predictors(loss, weight)
    return loss, weight, model.compile_logp(mode=FAST), model.compile_dlogp(mode=FAST)


@pytest.mark.parametrize("size", [1.0, 30.0, 1e3])
def test_log_probability_differences_are_minus_loss_differences(case, size):
    loss, weight, log_probability, _ = case
    one, other = size * np.random.default_rng(3).normal(size=(2, N_ROWS))
    if find_family(loss).targets == "counts":  # whose losses are exponential
        one, other = np.clip(one, -700.0, 30.0), np.clip(other, -700.0, 30.0)
    of_model = log_probability({"eta": one}) - log_probability({"eta": other})
    losses = [total(find_family(loss), targets_of(loss), eta, weight) for eta in (one, other)]
    assert of_model == pytest.approx(losses[1] - losses[0], rel=1e-12, abs=1e-10)


def test_gradient_is_minus_the_weighted_gradient_of_the_loss(case):
    loss, weight, _, gradient = case
    eta = 2.0 * np.random.default_rng(4).normal(size=N_ROWS)
    expected = -find_family(loss).gradient(targets_of(loss), eta) * (1.0 if weight is None else weight)
    np.testing.assert_allclose(gradient({"eta": eta}), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("loss", SCIPY_LAW)
def test_noise_enters_as_in_the_density(loss, weight):
    eta = np.linspace(-1, 1, N_ROWS)
    log_probability = model_of_predictors(loss, weight, noise=NOISE).compile_logp(mode=FAST)
    law = SCIPY_LAW[loss](*LAW_SHAPE.get(loss, ()), loc=eta, scale=LAW_SCALE.get(loss, 1.0) * NOISE)
    rows = law.logpdf(NUMBERS)
    assert log_probability({"eta": eta}) == pytest.approx(np.sum(rows if weight is None else weight * rows), rel=1e-12)


@pytest.mark.parametrize("weight", [None, np.ones(N_ROWS)], ids=["none", "ones"])
@pytest.mark.parametrize(("loss", "distribution"), [("squared", pm.Normal), ("absolute", pm.Laplace)])
def test_without_weights_the_term_is_an_ordinary_distribution(loss, distribution, weight):
    assert isinstance(model_of_predictors(loss, weight)["y"].owner.op, distribution)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("loss", SCIPY_LAW)
def test_predictive_draws_of_numbers_follow_the_unweighted_density(loss, weight):
    eta = np.linspace(-3, 3, N_ROWS)
    with pm.Model(coords={"obs": range(N_ROWS)}) as model:
        observe("y", find_family(loss), eta, NUMBERS, weight, NOISE)
    draws = pm.draw(model["y"], draws=500, random_seed=8, mode=FAST)
    assert draws.shape == (500, N_ROWS)
    law = SCIPY_LAW[loss](*LAW_SHAPE.get(loss, ()), scale=LAW_SCALE.get(loss, 1.0))
    assert stats.kstest(((draws - eta) / NOISE).ravel(), law.cdf).pvalue > 0.01


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])
def test_predictive_draws_of_labels_have_the_probabilities_of_the_loss(weight):
    eta = np.linspace(-3, 3, N_ROWS)
    with pm.Model(coords={"obs": range(N_ROWS)}) as model:
        observe("y", Logistic(), eta, LABELS, weight)
    draws = pm.draw(model["y"], draws=4000, random_seed=8, mode=FAST)
    assert set(np.unique(draws)) == {-1, 1}
    np.testing.assert_allclose(np.mean(draws == 1, axis=0), Logistic().mean(eta), atol=4 * 0.5 / np.sqrt(4000))


def test_hinge_refuses_predictive_draws():
    with pm.Model(coords={"obs": range(N_ROWS)}) as model:
        observe("margin", Hinge(), np.zeros(N_ROWS), LABELS)
    with pytest.raises(NotImplementedError, match="the hinge loss is a pseudo-likelihood"):
        pm.draw(model["margin"], random_seed=8, mode=FAST)


@pytest.mark.parametrize("loss", LOSSES)
def test_pointwise_log_likelihood_holds_the_weights(loss):
    eta = np.random.default_rng(6).normal(size=(1, 3, N_ROWS))
    draws = xr.Dataset({"eta": (("chain", "draw", "obs"), eta)})
    with model_of_predictors(loss, WEIGHT):
        found = pm.compute_log_likelihood(
            xr.DataTree.from_dict({"posterior": draws}), progressbar=False, compile_kwargs={"mode": FAST}
        )
    rows = found["log_likelihood"]["y"].transpose("chain", "draw", "obs").to_numpy()
    losses = WEIGHT * find_family(loss).value(targets_of(loss), eta)
    np.testing.assert_allclose(rows - rows[:, :1], losses[:, :1] - losses, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_data_can_be_replaced_by_data_of_another_length(loss, weighted):
    x = np.linspace(-2, 2, N_ROWS)
    with pm.Model(coords={"obs": range(N_ROWS)}) as model:
        weight = pm.Data("weight", WEIGHT, dims="obs") if weighted else None
        slope = pm.Flat("slope")
        observe(
            "y", find_family(loss), slope * pm.Data("x", x, dims="obs"), pm.Data("target", targets_of(loss)), weight
        )
        new = {"x": x[:3] + 0.5, "target": targets_of(loss)[2:5]} | ({"weight": WEIGHT[1:4]} if weighted else {})
        pm.set_data(new, coords={"obs": range(3)})
    log_probability = model.compile_logp(mode=FAST)
    of_model = log_probability({"slope": 0.7}) - log_probability({"slope": -1.1})
    at_slopes = [total(find_family(loss), new["target"], slope * new["x"], new.get("weight")) for slope in (0.7, -1.1)]
    assert of_model == pytest.approx(at_slopes[1] - at_slopes[0], abs=1e-10)


def test_all_terms_compile_on_the_default_backend():
    with pm.Model() as model:
        eta = pm.Flat("eta", shape=N_ROWS)
        for loss in LOSSES:
            observe(loss, find_family(loss), eta, targets_of(loss), WEIGHT, dims=None)
    one, other = np.random.default_rng(9).normal(size=(2, N_ROWS))
    log_probability = model.compile_logp()
    losses = [sum(total(find_family(loss), targets_of(loss), eta, WEIGHT) for loss in LOSSES) for eta in (one, other)]
    of_model = log_probability({"eta": one}) - log_probability({"eta": other})
    assert of_model == pytest.approx(losses[1] - losses[0], abs=1e-10)


@pytest.mark.parametrize("loss", names(labels=True))
@pytest.mark.parametrize("as_data", [False, True])
def test_labels_other_than_signs_are_refused(loss, as_data):
    labels = (LABELS + 1) / 2
    with pm.Model(), pytest.raises(ValueError, match=rf"y holds the labels 0.0, 1.0, but the {loss} loss wants"):
        observe("y", find_family(loss), np.zeros(N_ROWS), pm.Data("target", labels) if as_data else labels, dims=None)


@pytest.mark.parametrize("loss", names(labels=True))
def test_labels_other_than_signs_put_in_later_are_impossible(loss):
    with pm.Model() as model:
        slope = pm.Flat("slope")
        observe("y", find_family(loss), slope * np.ones(N_ROWS), pm.Data("target", LABELS), dims=None)
        pm.set_data({"target": (LABELS + 1) / 2})
    assert model.compile_logp(mode=FAST)({"slope": 0.1}) == -np.inf


@pytest.mark.parametrize("loss", names(labels=True))
def test_noise_of_a_loss_without_noise_is_refused(loss):
    with pm.Model(), pytest.raises(ValueError, match=f"noise was given, but the {loss} loss has no noise"):
        observe("y", find_family(loss), np.zeros(N_ROWS), LABELS, noise=0.5, dims=None)


def test_a_family_without_a_term_is_refused():
    class Cauchy(Family):
        def value(self, y, eta):
            return np.log1p((y - eta) ** 2)

        def gradient(self, y, eta):
            return 2 * (eta - y) / (1 + (y - eta) ** 2)

    with pm.Model(), pytest.raises(ValueError, match="PyMC model needs a PyMC term; Cauchy offers value, gradient"):
        observe("y", Cauchy(), np.zeros(N_ROWS), NUMBERS, dims=None)
