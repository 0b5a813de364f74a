"""Simulation-based calibration of the sampler by observation for families other than normal targets and labels."""

import calibration
import pytest


def check(summary):
    assert abs(summary.coverage - 0.89) <= 3.0 * summary.coverage_error + 0.01
    assert summary.wrong_share <= 0.05 + 2.0 * summary.wrong_error
    assert min(summary.rank_p_values.values()) > 1e-4, summary.rank_p_values


@pytest.mark.slow
@pytest.mark.parametrize("name", calibration.FAMILY_CASES)
def test_a_hundred_fits_are_calibrated(name):
    loss, norm_q, prior = calibration.FAMILY_CASES[name]
    summary = calibration.summarize(list(calibration.gibbs_fits(100, norm_q, prior, 500, 700, loss=loss)))
    check(summary)
    assert 0.85 <= summary.coverage <= 0.93 and summary.claims > 0


def test_a_few_fits_of_a_learned_parameter_are_calibrated():
    loss, norm_q, prior = calibration.FAMILY_CASES["Student t, degrees learned"]
    summary = calibration.summarize(list(calibration.gibbs_fits(6, norm_q, prior, 200, 50, loss=loss)))
    check(summary)
    assert "parameter" in summary.rank_p_values
