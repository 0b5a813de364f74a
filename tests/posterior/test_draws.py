import numpy as np
import pytest

from bayesmtfs.data.scaling import sampling_units
from bayesmtfs.posterior.draws import SampledDraws, in_user_units, stacked, with_all_features, without


def test_chains_are_cut_to_the_shortest():
    chains = [{"coef": np.ones((n, 2, 1)), "norm_q": np.ones(n)} for n in (7, 5)]
    found = stacked(chains)
    assert found["coef"].shape == (2, 5, 2, 1) and found["norm_q"].shape == (2, 5)


def test_too_few_draws_are_an_interruption():
    with pytest.raises(KeyboardInterrupt, match="only 2 draws"):
        stacked([{"coef": np.ones((n, 2, 1))} for n in (7, 2)])


def test_scales_and_noise_follow_the_coefficients(small):
    units = sampling_units(small, centre=True, per_task=False, scale_target=True)
    rng = np.random.default_rng(0)
    scale = rng.gamma(1.0, size=(1, 8, 6))
    variables = {
        "coef": scale[..., np.newaxis] * rng.normal(size=(1, 8, 6, 4)),
        "intercept": rng.normal(size=(1, 8, 4)),
        "noise": np.ones((1, 8, 4)),
        "row_scale": scale,
        "mean_coef": scale * rng.normal(size=(1, 8, 6)),
    }
    user = in_user_units(SampledDraws("gibbs", variables), units, True).variables
    # A coefficient over its scale is the same number in any units
    np.testing.assert_allclose(
        user["coef"] / user["row_scale"][..., np.newaxis], variables["coef"] / scale[..., np.newaxis]
    )
    np.testing.assert_allclose(user["mean_coef"] / user["row_scale"], variables["mean_coef"] / scale)
    np.testing.assert_allclose(user["noise"], units.target_scale)


def test_features_that_were_not_sampled_are_zero():
    draws = SampledDraws("gibbs", {"coef": np.ones((1, 4, 2, 3)), "row_scale": np.ones((1, 4, 2))})
    whole = with_all_features(draws, np.array([True, False, True])).variables
    np.testing.assert_array_equal(whole["coef"][0, 0, :, 0], [1.0, 0.0, 1.0])
    np.testing.assert_array_equal(whole["row_scale"][0, 0], [1.0, 0.0, 1.0])


def test_variables_can_be_left_out_without_touching_the_draws():
    draws = SampledDraws("fast", {"coef": np.ones((1, 4, 2, 3)), "noise": np.ones((1, 4, 3))})
    assert set(without(draws, "noise").variables) == {"coef"} and "noise" in draws.variables
