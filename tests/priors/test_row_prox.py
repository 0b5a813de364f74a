"""The proximal step of a row, against its optimality condition, an independent root finder and a convex solver."""

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.optimize.elementwise import find_root

from bayesmtfs.priors.row_penalty import dual_exponent, row_norms
from bayesmtfs.priors.row_prox import WORK_ROWS, clipping_level, prox_row, prox_rows

ALL_Q = (1.0, 1.05, 1.5, 2.0, 3.0, 10.0, 100.0, np.inf)
SMOOTH_Q = (1.05, 1.5, 2.0, 3.0, 10.0, 100.0)
SIZES = (1, 2, 5, 139)


def prox(rows, thresholds, q):
    points = np.array(rows, dtype=float)
    prox_rows(points, np.array(thresholds, dtype=float), q)
    return points


def dual_norms(rows, q):
    return row_norms(rows, dual_exponent(q))


def rows_of_all_kinds(m, n_rows, seed):
    """Normal rows, rows with entries from 1e-12 to 1e12, rows with ties and with zeros."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n_rows, m))
    wide = rng.choice([-1.0, 1.0], (n_rows, m)) * 10.0 ** rng.uniform(-12, 12, (n_rows, m))
    rows[1::4] = wide[1::4]
    rows[2::4] = np.round(rows[2::4] * 2) / 2
    rows[3::4] *= rng.random((len(rows[3::4]), m)) < 0.7
    rows[:, 0] += rows[:, 0] == 0
    return rows


def shares(n_rows, seed):
    """Thresholds as shares of the dual norm: tiny, middling, and just below 1."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, n_rows)
    tiny = 10.0 ** rng.uniform(-14, 0, n_rows)
    near = 1 - 10.0 ** rng.uniform(-10, 0, n_rows)
    return np.choose(kind, [tiny, rng.random(n_rows), near])


def root_finder_prox(x, t, q):
    """Minimiser by a bracketing root finder on ||z||_q around one per entry, both in the plain variables."""
    peak = np.max(np.abs(x))
    sizes, t = np.abs(x) / peak, t / peak
    if np.sum(sizes ** dual_exponent(q)) ** (1 / dual_exponent(q)) <= t:
        return np.zeros_like(x)

    def entries(s):
        at_most = np.minimum(sizes, 1e-30 + (1 + 1e-9) * s * (sizes / t) ** (1 / (q - 1)))
        return find_root(
            lambda z, size: z + t * (z / s) ** (q - 1) - size,
            (np.zeros_like(sizes), at_most),
            args=(sizes,),
            tolerances={"xatol": 1e-30, "xrtol": 1e-15},
        ).x

    norm = brentq(lambda s: np.sum((entries(s) / s) ** q) - 1, 1e-13, 2 * sizes.size, xtol=1e-15, rtol=1e-14)
    return np.sign(x) * peak * entries(norm)


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("q", SMOOTH_Q)
def test_optimality_bounds_the_error(q, m):
    # The objective is strongly convex with modulus 1: the norm of its gradient bounds the distance to the minimiser.
    rows = rows_of_all_kinds(m, 400, seed=m)
    thresholds = shares(400, seed=m + 1) * dual_norms(rows, q)
    points = prox(rows, thresholds, q)
    assert np.all(points.any(axis=1))
    unit = np.abs(points) / row_norms(points, q)[:, np.newaxis]
    gradient = points - rows + thresholds[:, np.newaxis] * np.sign(points) * unit ** (q - 1)
    assert np.max(row_norms(gradient, 2.0) / np.max(np.abs(rows), axis=1)) < 1e-11


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("q", [1.05, 1.5, 3.0, 10.0, 100.0])
def test_equals_an_independent_root_finder(q, m):
    rows = rows_of_all_kinds(m, 4, seed=10 + m)
    thresholds = np.array([0.02, 0.4, 0.9, 1.1]) * dual_norms(rows, q)
    for row, threshold, point in zip(rows, thresholds, prox(rows, thresholds, q), strict=True):
        assert np.max(np.abs(point - root_finder_prox(row, threshold, q))) <= 1e-10 * np.max(np.abs(row))


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0, 3.0, np.inf])
def test_equals_a_convex_solver(q):
    row = np.array([2.0, -1.5, 0.3, 0.0, 1.5])
    z = cvxpy.Variable(5)
    cvxpy.Problem(cvxpy.Minimize(0.5 * cvxpy.sum_squares(z - row) + 1.2 * cvxpy.norm(z, q))).solve(
        solver=cvxpy.CLARABEL
    )
    np.testing.assert_allclose(prox([row], [1.2], q)[0], z.value, atol=1e-5)


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("q", ALL_Q)
def test_moreau_decomposition(q, m):
    # x - z lies on the boundary of the dual ball and supports it in the direction z.
    rows = rows_of_all_kinds(m, 200, seed=20 + m)
    thresholds = shares(200, seed=21 + m) * dual_norms(rows, q)
    points = prox(rows, thresholds, q)
    peaks = np.max(np.abs(rows), axis=1)
    assert np.all(np.abs(dual_norms(rows - points, q) - thresholds) <= 1e-12 * m * peaks)
    alignment = np.sum((rows - points) / peaks[:, np.newaxis] * points, axis=1)
    assert np.all(np.abs(alignment - thresholds / peaks * row_norms(points, q)) <= 1e-12 * m * peaks)


@pytest.mark.parametrize("q", ALL_Q)
def test_rows_are_zero_exactly_where_the_dual_norm_says_so(q):
    rows = rows_of_all_kinds(7, 200, seed=3)
    duals = dual_norms(rows, q)
    for factor in (1.0, 1 + 1e-9, 3.0, np.inf):
        assert not prox(rows, factor * duals, q).any()
    assert np.all(prox(rows, (1 - 1e-9) * duals, q).any(axis=1))


@pytest.mark.parametrize("step", [0.1, 1 / 3, 7.7e-5, 3e8])
@pytest.mark.parametrize("q", ALL_Q)
def test_rounding_of_a_step_leaves_no_dust(q, step):
    rows = rows_of_all_kinds(139, 100, seed=4)
    assert not prox(step * rows, step * dual_norms(rows, q), q).any()


@pytest.mark.parametrize("q", ALL_Q)
def test_signs_and_sizes(q):
    rows = rows_of_all_kinds(6, 100, seed=5)
    points = prox(rows, 0.3 * dual_norms(rows, q), q)
    assert np.all(points * rows >= 0)
    assert np.all(np.abs(points) <= np.abs(rows))
    assert not np.any(np.signbit(points[points == 0]) & (rows[points == 0] > 0))


@pytest.mark.parametrize("q", ALL_Q)
def test_single_entries_are_soft_thresholded(q):
    rows = np.array([[3.0], [-3.0], [0.5], [0.0]])
    np.testing.assert_array_equal(prox(rows, np.ones(4), q), [[2.0], [-2.0], [0.0], [0.0]])
    padded = np.hstack([np.zeros((4, 2)), rows, np.zeros((4, 1))])
    np.testing.assert_allclose(prox(padded, np.ones(4), q)[:, 2], [2.0, -2.0, 0.0, 0.0], rtol=1e-14)


@pytest.mark.parametrize("q", ALL_Q)
@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
def test_scale_of_the_row_cancels(q, scale):
    row = np.array([0.9, -0.2, 0.0, 0.5, 1e-9])
    expected = prox([row], [0.4], q)
    np.testing.assert_allclose(prox([scale * row], [scale * 0.4], q) / scale, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("q", ALL_Q)
def test_entries_beyond_the_range_of_a_quotient(q):
    row = np.array([1e300, -1e-300, 1e-300, 0.0])
    point = prox([row], [4e299], q)[0]
    assert point[0] == pytest.approx(6e299, rel=1e-12)
    assert np.all(np.abs(point[1:]) <= np.abs(row[1:]))


@pytest.mark.parametrize("q", ALL_Q)
def test_extreme_thresholds(q):
    row = np.array([0.9, -0.2, 0.0, 0.5])
    np.testing.assert_allclose(prox([row], [0.0], q)[0], row, rtol=1e-15)
    np.testing.assert_allclose(prox([row], [1e-300], q)[0], row, rtol=1e-15)
    assert not prox([row], [np.inf], q).any()
    assert not prox([np.zeros(4)], [0.0], q).any()


@pytest.mark.parametrize("q", ALL_Q)
def test_not_a_number_stays_visible(q):
    assert np.isnan(prox([[1.0, np.nan, 2.0]], [0.5], q)).any()
    assert np.isnan(prox([[np.nan, 1.0, 2.0]], [0.5], q)).any()


@pytest.mark.parametrize(("near", "limit"), [(1 + 1e-7, 1.0), (2 - 1e-9, 2.0), (2 + 1e-9, 2.0), (1e8, np.inf)])
def test_limits_of_q(near, limit):
    rows = rows_of_all_kinds(5, 40, seed=6)
    thresholds = 0.5 * dual_norms(rows, limit)
    difference = prox(rows, thresholds, near) - prox(rows, thresholds, limit)
    assert np.max(np.abs(difference) / np.max(np.abs(rows), axis=1)[:, np.newaxis]) < 2e-6


@pytest.mark.parametrize("q", ALL_Q)
def test_any_warm_start_gives_the_same_point(q):
    row = np.array([0.9, -0.2, 0.0, 0.5, 0.7])
    expected = prox([row], [0.4], q)[0]
    norm = row_norms(expected[np.newaxis], q)[0]
    work = np.empty((WORK_ROWS, row.size))
    for start in (0.0, norm, 1.001 * norm, 1e-9, 1e9):
        point = row.copy()
        assert prox_row(point, 0.4, q, work, start) == pytest.approx(norm, rel=1e-13)
        np.testing.assert_allclose(point, expected, rtol=1e-13)


finite = st.floats(-1e6, 1e6, allow_nan=False, allow_subnormal=False)


@settings(max_examples=200, deadline=None)
@given(
    row=st.lists(finite, min_size=1, max_size=8),
    other=st.lists(finite, min_size=8, max_size=8),
    threshold=st.floats(0, 1e7),
    q=st.one_of(st.sampled_from(ALL_Q), st.floats(1.001, 200)),
)
def test_objective_is_lowest_and_map_is_firmly_nonexpansive(row, other, threshold, q):
    x, y = np.array(row), np.array(other)[: len(row)]
    scale = 1.0 + np.max(np.abs(x)) + np.max(np.abs(y))
    x, y, t = x / scale, y / scale, threshold / scale
    p, r = prox([x, y], [t, t], q)

    def objective(z):
        return 0.5 * np.sum((z - x) ** 2) + t * row_norms(z[np.newaxis], q)[0]

    for candidate in (x, y, r, np.zeros_like(x), 0.999 * p, 1.001 * p):
        assert objective(p) <= objective(candidate) + 1e-12 * (1 + t)
    assert np.sum((p - r) ** 2) <= np.sum((p - r) * (x - y)) + 1e-12


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=1, max_size=10),
    excess=st.floats(1e-6, 1e4),
    start=st.sampled_from([-np.inf, -1e4, 0.0, 1e4, np.inf]),
)
def test_clipping_level_cuts_off_the_excess(values, excess, start):
    level = clipping_level(np.array(values), excess, start)
    assert np.sum(np.maximum(np.array(values) - level, 0)) == pytest.approx(excess, rel=1e-6, abs=1e-9)
