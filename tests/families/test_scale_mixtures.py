"""Conditionally normal forms: hidden precisions against the laws that they integrate to; Polya-Gamma of any size."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from bayesmtfs.families import Absolute, NegativeBinomial, Quantile, StudentT, find_family
from bayesmtfs.families import augmentation as forms

COUNT = 20_000
FAMILIES = [StudentT(3.0), Quantile(0.8), Absolute(), NegativeBinomial(0.5)]


def generator(seed=0):
    return np.random.Generator(np.random.PCG64(seed))


def form_of(family):
    return family.augmentation.form, float(family.augmentation.parameter)


@pytest.mark.parametrize("tilt", [0.0, 0.4, 3.2, 40.0])
@pytest.mark.parametrize("size", [0.2, 1.0, 3.7, 40.0])
def test_polya_gamma_of_any_size(size, tilt):
    rng = generator()
    found = np.array([forms.draw_any_polya_gamma(rng, size, tilt) for _ in range(COUNT)])
    variance = size / 24.0
    if tilt > 0.0:
        variance = size * (np.sinh(tilt) - tilt) / (4.0 * tilt**3 * np.cosh(0.5 * tilt) ** 2)
    mean = size / 4.0 if tilt == 0.0 else size * np.tanh(0.5 * tilt) / (2.0 * tilt)
    assert abs(found.mean() - mean) < 4.5 * np.sqrt(variance / COUNT)
    for t in (0.3, 2.0, 10.0):
        wanted = (np.cosh(0.5 * tilt) / np.cosh(np.sqrt(0.25 * tilt**2 + 0.5 * t))) ** size
        values = np.exp(-t * found)
        assert abs(values.mean() - wanted) < 4.5 * values.std() / np.sqrt(COUNT) + 1e-12


def test_polya_gamma_of_any_size_is_devroyes_for_whole_sizes():
    first, second = generator(1), generator(2)
    ours = [forms.draw_any_polya_gamma(first, 2.0, 1.3) for _ in range(COUNT)]
    exact = [forms.draw_polya_gamma(second, 2, 1.3) for _ in range(COUNT)]
    assert stats.ks_2samp(ours, exact).pvalue > 0.01


@pytest.mark.parametrize("residual", [0.3, -1.7, 6.0])
@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_precision_of_student_t_is_gamma(residual, weight):
    rng, noise, degrees = generator(3), 0.7, 3.0
    found = [
        forms.draw_precision_and_score(rng, forms.STUDENT_T, weight, residual, 0.0, noise**-2, degrees)[0]
        for _ in range(4000)
    ]
    law = stats.gamma(0.5 * weight * (degrees + 1.0), scale=2.0 / (degrees + (residual / noise) ** 2))
    assert stats.kstest(noise**2 * np.array(found), law.cdf).pvalue > 0.001


@pytest.mark.parametrize("family", [Quantile(0.8), Absolute()])
@pytest.mark.parametrize("residual", [0.3, -1.7])
def test_precision_of_quantiles_is_inverse_normal(family, residual):
    rng, noise, weight = generator(4), 0.7, 1.5
    a = (0.5 if isinstance(family, Quantile) else 1.0) * weight / noise
    found = [
        forms.draw_precision_and_score(rng, form_of(family)[0], weight, residual, 0.0, noise**-2, form_of(family)[1])[0]
        for _ in range(4000)
    ]
    law = stats.invgauss(1.0 / (a * abs(residual)), scale=a * a)
    assert stats.kstest(found, law.cdf).pvalue > 0.001


@pytest.mark.parametrize("family", FAMILIES)
def test_mean_score_given_the_precision_is_the_score_without_it(family):
    """Fisher's identity: the derivative of the log-density is the mean of that given what is hidden."""
    form, parameter = form_of(family)
    target, weight = (4.0, 2.0) if family.targets == "counts" else (1.3, 2.0)
    noise = 0.8 if family.has_noise else 1.0
    for eta in (-1.1, 0.6, 2.4):
        rng = generator(5)
        drawn = [
            forms.draw_precision_and_score(rng, form, weight, target, eta, noise**-2, parameter)[1]
            for _ in range(COUNT)
        ]
        wanted = forms.log_density_and_score(form, weight, target, eta, noise**-2, parameter)[1]
        assert abs(np.mean(drawn) - wanted) < 4.5 * np.std(drawn) / math.sqrt(COUNT)


@pytest.mark.parametrize("family", FAMILIES)
def test_kernel_and_constant_are_the_density_of_the_family(family):
    form, parameter = form_of(family)
    y = np.array([0.0, 3.0, 7.0]) if family.targets == "counts" else np.array([-1.0, 0.4, 5.0])
    eta = np.array([0.3, -0.5, 1.1])

    def ours(noise, parameter):
        given = (noise**-2, parameter)
        return np.array(
            [
                forms.log_density_and_score(form, 2.0, one, at, *given)[0] + forms.log_constant(form, 2.0, one, *given)
                for one, at in zip(y, eta, strict=True)
            ]
        )

    def stated(noise, parameter):
        known = family.given(parameter) if family.learnable else family
        return 2.0 * known.log_density(y, eta, noise)

    noises = (0.6, 1.9) if family.has_noise else (1.0, 1.0)
    other = 2.0 * parameter if family.learnable else parameter
    change = ours(noises[1], other) - ours(noises[0], parameter)
    np.testing.assert_allclose(change, stated(noises[1], other) - stated(noises[0], parameter), rtol=1e-10)
    step = 1e-6
    for n in range(3):
        values = [forms.log_density_and_score(form, 2.0, y[n], eta[n] + s, 1.0, parameter) for s in (-step, 0.0, step)]
        assert (values[2][0] - values[0][0]) / (2 * step) == pytest.approx(values[1][1], rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_working_curvature_is_the_fisher_information(family):
    form, parameter = form_of(family)
    eta, noise = 0.4, 0.8 if family.has_noise else 1.0
    score = lambda y: forms.log_density_and_score(form, 1.0, y, eta, noise**-2, parameter)[1]  # noqa: E731
    density = lambda y: float(np.exp(family.log_density(np.array(y), np.array(eta), noise)))  # noqa: E731
    if family.targets == "counts":
        wanted = sum(score(y) ** 2 * density(y) for y in np.arange(200.0))
    else:
        wanted = sum(quad(lambda y: score(y) ** 2 * density(y), *ends)[0] for ends in [(-60, eta), (eta, 60)])
    assert forms.curvature(form, 1.0, eta, noise**-2, parameter) == pytest.approx(wanted, rel=1e-4)


def test_a_row_of_weight_zero_says_nothing():
    for family in FAMILIES:
        form, parameter = form_of(family)
        assert forms.draw_precision_and_score(generator(), form, 0.0, 1.0, 0.3, 1.0, parameter) == (0.0, 0.0)


def test_names_of_learned_parameters():
    for name in ("student_t(learn)", "negative_binomial(learn)"):
        family = find_family(name)
        assert family.name == name and family.learned == family.learnable and not family.offers("slope")
        assert family.given(2.0).learned is None
    with pytest.raises(ValueError, match="no parameter of 'huber' is learned; pass a number"):
        find_family("huber(learn)")
    with pytest.raises(ValueError, match="degrees is -1; pass a positive number"):
        StudentT(-1)
    assert find_family("student_t(3)") == StudentT(3) and StudentT(3) != StudentT()
