import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import gennorm

from bayesmtfs.priors import GeneralizedNormal, RowPenalty

SHAPES = (0.5, 1.0, 1.5, 2.0, 3.0, 20.0)


@pytest.fixture
def rows():
    return np.random.default_rng(0).standard_normal((6, 4))


def test_padding_does_not_count():
    W = np.array([[1.0, -2.0, 0.5], [0.3, 0.0, 0.0]])
    sizes = np.array([3, 1])
    prior = GeneralizedNormal(1.5)
    apart = prior.type2_value(W[:1], 0.1) + prior.type2_value(W[1:, :1], 0.1)
    assert prior.type2_value(W, 0.1, sizes) == pytest.approx(apart, rel=1e-13)
    np.testing.assert_allclose(prior.row_scales(W, sizes)[1], prior.row_scales(W[1:, :1])[0])
    np.testing.assert_allclose(prior.majoriser_weights(W, 0.1, sizes)[1], prior.majoriser_weights(W[1:, :1], 0.1)[0])


@pytest.mark.parametrize("q", SHAPES)
def test_row_scales_are_the_best_ones(rows, q):
    scales = GeneralizedNormal(q).row_scales(rows)
    for row, scale in zip(rows, scales, strict=True):
        found = minimize_scalar(
            lambda log_scale, row=row: -gennorm(q, scale=np.exp(log_scale)).logpdf(row).sum(),
            bracket=(np.log(scale) - 0.5, np.log(scale) + 0.7),
            tol=1e-10,
        )
        assert scale == pytest.approx(np.exp(found.x), rel=1e-6)


def test_row_scales_at_infinite_q_are_the_largest_entries(rows):
    np.testing.assert_allclose(GeneralizedNormal(np.inf).row_scales(rows), np.max(np.abs(rows), axis=1))
    np.testing.assert_allclose(GeneralizedNormal(1e6).row_scales(rows), np.max(np.abs(rows), axis=1), rtol=1e-4)


@pytest.mark.parametrize("q", SHAPES)
def test_type2_penalty_is_the_density_at_the_best_scales(rows, q):
    def profile(W):
        scales = GeneralizedNormal(q).row_scales(W)
        return -gennorm(q, scale=scales[:, np.newaxis]).logpdf(W).sum()

    prior = GeneralizedNormal(q)
    other = rows[::-1] * np.linspace(0.1, 3.0, 4)
    difference = prior.type2_value(rows, 0.0) - prior.type2_value(other, 0.0)
    assert difference == pytest.approx(profile(rows) - profile(other), rel=1e-10)


vectors = st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=3, max_size=3).map(np.array)


@settings(max_examples=100, deadline=None)
@given(current=vectors, other=vectors, q=st.floats(1, 50), offset=st.floats(1e-3, 10))
def test_weighted_mixed_norm_lies_above_and_touches(current, other, q, offset):
    prior = GeneralizedNormal(q)
    current, other = current[np.newaxis], other[np.newaxis]
    bound = RowPenalty(1.0, q, weights=prior.majoriser_weights(current, offset))
    at_current = prior.type2_value(current, offset)
    rise = bound.value(other) - bound.value(current)
    assert prior.type2_value(other, offset) <= at_current + rise + 1e-9 * (1 + abs(rise))


def test_zero_rows_without_offset():
    zero = np.zeros((1, 3))
    assert GeneralizedNormal(2.0).type2_value(zero, 0.0) == -np.inf
    assert GeneralizedNormal(2.0).majoriser_weights(zero, 0.0)[0] == np.inf
    assert GeneralizedNormal(2.0).majoriser_weights(zero, 1e-3)[0] == pytest.approx(3000.0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GeneralizedNormal(0.0), "norm_q is 0.0; pass a number above 0"),
        (lambda: GeneralizedNormal(np.nan), "norm_q is nan; pass"),
        (lambda: GeneralizedNormal(2.0).type2_value(np.ones((1, 2)), -1.0), "offset is -1.0; pass"),
    ],
)
def test_wrong_parameters_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()
