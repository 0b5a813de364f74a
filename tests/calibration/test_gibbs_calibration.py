"""Simulation-based calibration of the Gibbs sampler, its signs and its intervals of q; a few fits of the other models."""

import calibration
import numpy as np
import pytest

SMALLEST_P = 1e-4


def check(summary, low=0.85, high=0.93):
    margin = 3.0 * summary.coverage_error
    assert low - margin <= summary.coverage <= high + margin
    assert summary.wrong_share <= 0.05 + 2.0 * summary.wrong_error
    assert min(summary.rank_p_values.values()) > SMALLEST_P, summary.rank_p_values


@pytest.mark.parametrize("name", ["q = 2, half-Cauchy", "q learned, half-Cauchy"])
def test_few_fits_are_calibrated(name):
    fits = list(calibration.gibbs_fits(20, *calibration.GIBBS_CASES[name], draws=600, random_state=500))
    summary = calibration.summarize(fits)
    check(summary)
    assert summary.claims > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", calibration.GIBBS_CASES)
def test_two_hundred_fits_are_calibrated(name):
    summary = calibration.summarize(list(calibration.gibbs_fits(200, *calibration.GIBBS_CASES[name])))
    check(summary)
    assert 0.85 <= summary.coverage <= 0.93 and summary.claims > 0


@pytest.mark.parametrize(
    ("n_tasks", "count", "draws"), [(20, 2, 400), pytest.param(139, 10, 1000, marks=pytest.mark.slow)]
)
def test_intervals_hold_the_true_exponent(n_tasks, count, draws):
    found = calibration.exponent_recovery(n_tasks, count, draws).values()
    assert np.mean([one.share for one in found]) >= (0.8 if count >= 10 else 0.75)
    assert max(one.r_hats.max() for one in found) < 1.1


@pytest.mark.slow
@pytest.mark.parametrize("name", calibration.nuts_models())
def test_models_sampled_by_nuts_are_calibrated(name):
    model, new_data = calibration.nuts_models()[name]()
    check(calibration.summarize(list(calibration.model_fits(model, 20, new_data=new_data))), 0.8, 0.97)


def test_false_discovery_rate_is_right_where_the_model_is():
    """Also at a size that the data cannot resolve: only a truth that the prior does not know makes sets optimistic."""
    norm_q, prior = calibration.GIBBS_CASES["q = 2, half-Cauchy"]
    for found in calibration.false_discoveries(60, norm_q, prior, draws=300, random_state=700).values():
        assert found.kept > 100
        assert abs(found.false_share - found.expected_share) <= 3.0 * found.error
        assert 0.03 < found.expected_share <= 0.1  # the level is used


def test_a_wrong_posterior_is_found_out():
    """Draws from a distribution that is too narrow, and from one that is shifted, do not pass."""
    rng = np.random.default_rng(0)
    for spread, shift in ((0.5, 0.0), (1.0, 0.7)):
        fits = []
        for _ in range(60):
            truth = rng.standard_normal(6)
            centre = truth + rng.standard_normal(6) + shift
            draws = centre + spread * rng.standard_normal((400, 6))
            fits.append(calibration.check({"coef": truth}, {"coef": draws}))
        with pytest.raises(AssertionError):
            check(calibration.summarize(fits))
