"""Simulation-based calibration of the Gibbs sampler, its signs and its intervals of q; a few fits of the other models."""

import calibration
import numpy as np
import pytest

SMALLEST_P = 1e-4


def check(summary, low=0.85, high=0.93):
    margin = 3.0 * summary.coverage_error
    assert low - margin <= summary.coverage <= high + margin
    assert summary.wrong_share <= 0.05 + 2.0 * summary.wrong_error
    assert summary.claims > 0
    assert min(summary.rank_p_values.values()) > SMALLEST_P, summary.rank_p_values


@pytest.mark.parametrize("name", ["q = 2, half-Cauchy", "q learned, half-Cauchy"])
def test_few_fits_are_calibrated(name):
    fits = list(calibration.gibbs_fits(20, *calibration.GIBBS_CASES[name], draws=600, random_state=500))
    check(calibration.summarize(fits))


@pytest.mark.slow
@pytest.mark.parametrize("name", calibration.GIBBS_CASES)
def test_two_hundred_fits_are_calibrated(name):
    summary = calibration.summarize(list(calibration.gibbs_fits(200, *calibration.GIBBS_CASES[name])))
    check(summary)
    assert 0.85 <= summary.coverage <= 0.93


@pytest.mark.parametrize("n_tasks", [20, pytest.param(139, marks=pytest.mark.slow)])
def test_intervals_hold_the_true_exponent(n_tasks):
    count = 10 if n_tasks == 139 else 2
    shares = [share for share, _ in calibration.exponent_recovery(n_tasks, count, draws=600).values()]
    assert np.mean(shares) >= 0.75


@pytest.mark.slow
def test_models_sampled_by_nuts_are_calibrated():
    for model in calibration.nuts_models().values():
        check(calibration.summarize(list(calibration.model_fits(model, 20))), 0.8, 0.97)


def test_a_wrong_posterior_is_found_out():
    """Draws from a law that is too narrow, and from one that is shifted, do not pass."""
    rng = np.random.default_rng(0)
    for spread, shift in ((0.5, 0.0), (1.0, 0.7)):
        fits = []
        for _ in range(60):
            truth = rng.standard_normal(6)
            centre = truth + rng.standard_normal(6) + shift
            draws = centre + spread * rng.standard_normal((400, 6))
            fits.append(calibration.judge({"coef": truth}, {"coef": draws}))
        with pytest.raises(AssertionError):
            check(calibration.summarize(fits))
