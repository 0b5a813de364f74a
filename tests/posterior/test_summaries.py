import numpy as np
from scipy.stats import norm

from bayesmtfs.posterior.draws import inclusion_probability, local_false_sign_rate


def test_normal_draws_have_known_probabilities():
    rng = np.random.default_rng(0)
    mean = np.array([[0.0, 0.5], [1.0, -2.0]])
    coef = mean + rng.normal(size=(4, 5000, 2, 2))
    unit = np.array([1.0, 2.0])
    inside = [
        np.prod([norm.cdf(1.0 / u - m) - norm.cdf(-1.0 / u - m) for m in row])
        for u, row in zip(unit, mean, strict=True)
    ]
    np.testing.assert_allclose(inclusion_probability(coef, unit, 1.0), 1.0 - np.array(inside), atol=0.02)
    np.testing.assert_allclose(local_false_sign_rate(coef), norm.cdf(-np.abs(mean)).T, atol=0.02)
