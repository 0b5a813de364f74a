"""Simulation-based calibration of the sampler by observation, on labels, and its intervals of q."""

import calibration
import numpy as np
import pytest


@pytest.mark.parametrize(
    ("name", "count"),
    [("labels, q = 2", 12), ("labels, q learned", 12)]
    + [pytest.param(name, 120, marks=pytest.mark.slow) for name in calibration.LABEL_CASES],
)
def test_posteriors_of_labels_are_calibrated(name, count):
    norm_q, prior = calibration.LABEL_CASES[name]
    fits = list(calibration.gibbs_fits(count, norm_q, prior, 500, 700, loss="logistic"))
    summary = calibration.summarize(fits)
    assert abs(summary.coverage - 0.89) <= 3.5 * summary.coverage_error + 0.01
    assert summary.wrong_share <= 0.05 + 2.0 * summary.wrong_error
    assert min(summary.rank_p_values.values()) > 1e-4, summary.rank_p_values
    assert ("norm_q" in summary.rank_p_values) == (norm_q is None)


@pytest.mark.slow
def test_intervals_hold_the_true_exponent_of_labels():
    found = calibration.exponent_recovery(20, 5, 1000, "logistic").values()
    assert np.mean([one.share for one in found]) >= 0.8
    assert max(one.r_hats.max() for one in found) < 1.1
