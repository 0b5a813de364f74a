import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesmtfs.priors import GeneralizedNormal, RowPenalty
from bayesmtfs.priors.row_penalty import row_norms

ALL_Q = (1.0, 1.05, 1.5, 2.0, 3.0, 10.0, 100.0, np.inf)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((12, 4))
    rows[3] = 0.0
    rows[4, 1:3] = 0.0
    rows.flags.writeable = False
    return rows


@pytest.fixture
def weights():
    return np.random.default_rng(1).uniform(0.2, 3.0, 12)


@pytest.mark.parametrize("q", ALL_Q)
def test_value_and_norms(rows, weights, q):
    expected = np.linalg.norm(rows, q, axis=1)
    np.testing.assert_allclose(RowPenalty(0.7, q).norms(rows), expected, rtol=1e-14)
    assert RowPenalty(0.7, q).value(rows) == pytest.approx(0.7 * expected.sum(), rel=1e-14)
    assert RowPenalty(0.7, q, weights=weights).value(rows) == pytest.approx(0.7 * weights @ expected, rel=1e-14)


@pytest.mark.parametrize("q", ALL_Q)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 50), (50, 1), (7, 7), (300, 5), (5, 300)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_norms_of_short_and_of_long_rows(q, shape, order):
    rows = np.asarray(np.random.default_rng(0).standard_normal(shape), order=order)
    expected = [np.linalg.norm(row, q) if row.size else 0.0 for row in rows]
    np.testing.assert_allclose(row_norms(rows, q), expected, rtol=1e-13)


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
@pytest.mark.parametrize("q", (0.3, *ALL_Q))
def test_norms_neither_overflow_nor_underflow(q, scale):
    expected = row_norms(np.array([[3.0, -1.0, 0.0, 2.0]]), q)
    np.testing.assert_allclose(row_norms(scale * np.array([[3.0, -1.0, 0.0, 2.0]]), q), scale * expected, rtol=1e-13)
    mixed = np.array([[1e300, 1e-300, 0.0]])
    assert row_norms(mixed, q)[0] == pytest.approx(1e300, rel=1e-13)


vectors = st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=5, max_size=5).map(np.array)


@settings(max_examples=200, deadline=None)
@given(gradient=vectors, direction=vectors, q=st.one_of(st.sampled_from(ALL_Q), st.floats(1.001, 1e3)))
def test_dual_norm_is_the_largest_value_on_the_unit_ball(gradient, direction, q):
    prior = RowPenalty(1.0, q)
    dual = prior.dual_norm(gradient[np.newaxis])[0]
    assert gradient @ direction <= dual * prior.norms(direction[np.newaxis])[0] * (1 + 1e-12) + 1e-12
    if dual > 0:
        best = maximiser_on_the_unit_ball(gradient, q)
        assert prior.norms(best[np.newaxis])[0] == pytest.approx(1.0, rel=1e-9)
        assert gradient @ best == pytest.approx(dual, rel=1e-9)


def maximiser_on_the_unit_ball(gradient, q):
    if q == 1.0:
        best = np.zeros_like(gradient)
        best[np.argmax(np.abs(gradient))] = np.sign(gradient[np.argmax(np.abs(gradient))])
        return best
    scaled = np.abs(gradient) / np.max(np.abs(gradient))
    best = np.sign(gradient) * scaled ** (1 / (q - 1) if q < np.inf else 0.0)
    return best / np.linalg.norm(best, q)


@pytest.mark.parametrize("q", ALL_Q)
def test_dual_norm_is_the_strength_at_which_a_row_dies(rows, weights, q):
    gradient = rows[rows.any(axis=1)]
    weights = weights[: len(gradient)]
    strengths = RowPenalty(1.0, q, weights=weights).dual_norm(gradient)
    for i, strength in enumerate(strengths):
        single = RowPenalty(strength, q, weights=weights[i : i + 1])
        assert not single.prox(gradient[i : i + 1], 1.0).any()
        assert RowPenalty(0.999 * strength, q, weights=weights[i : i + 1]).prox(gradient[i : i + 1], 1.0).any()


def test_dual_norm_of_a_row_without_weight():
    prior = RowPenalty(1.0, 2.0, weights=np.zeros(2))
    np.testing.assert_array_equal(prior.dual_norm(np.array([[1.0, 0.0], [0.0, 0.0]])), [np.inf, 0.0])


@pytest.mark.parametrize("q", ALL_Q)
def test_prox_takes_one_step_or_one_per_row(rows, weights, q):
    steps = np.linspace(0.0, 2.0, 12)
    together = RowPenalty(0.4, q, weights=weights).prox(rows, steps)
    one_by_one = [RowPenalty(0.4 * weights[i] * steps[i], q).prox(rows[i : i + 1], 1.0)[0] for i in range(12)]
    np.testing.assert_allclose(together, one_by_one, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(RowPenalty(0.4, q).prox(rows, 0.5), RowPenalty(0.4, q).prox(rows, np.full(12, 0.5)))


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda rows: np.repeat(rows, 2, axis=1)[:, ::2]])
def test_prox_takes_any_layout_and_leaves_its_input_alone(rows, layout):
    before = rows.copy()
    np.testing.assert_array_equal(RowPenalty(0.4, 3.0).prox(layout(rows), 1.0), RowPenalty(0.4, 3.0).prox(rows, 1.0))
    np.testing.assert_array_equal(rows, before)
    single = RowPenalty(0.4, 3.0).prox(rows.astype(np.float32), 1.0)
    np.testing.assert_allclose(single, RowPenalty(0.4, 3.0).prox(rows, 1.0), atol=1e-6)


@pytest.mark.parametrize("q", ALL_Q)
def test_what_a_proximal_step_takes_off_is_a_subgradient(rows, weights, q):
    prior = RowPenalty(0.6, q, weights=weights)
    points = prior.prox(rows, 1.0)
    assert np.any(points.any(axis=1)) and not np.all(points.any(axis=1))
    assert np.max(prior.dual_norm(rows - points)) < 0.6 * (1 + 1e-12)
    np.testing.assert_allclose(np.vecdot(rows - points, points), 0.6 * weights * prior.norms(points), atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strength": -1.0}, "penalty_strength is -1.0; pass a finite number of at least 0"),
        ({"strength": np.nan}, "penalty_strength is nan; pass"),
        ({"strength": np.inf}, "penalty_strength is inf; pass"),
        ({"norm_q": 0.9}, "norm_q is 0.9; pass a number of at least 1"),
        ({"norm_q": np.nan}, "norm_q is nan; pass"),
        ({"weights": np.array([1.0, -1.0])}, "weights has entries that are negative.*; pass"),
        ({"weights": np.array([1.0, np.nan])}, "weights has entries that are negative.*; pass"),
    ],
)
def test_wrong_parameters_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RowPenalty(**{"strength": 1.0, "norm_q": 2.0, **arguments})


def test_wrong_calls_are_refused(rows):
    with pytest.raises(ValueError, match=r"weights has shape \(2,\) but there are 12 rows; pass one number per row"):
        RowPenalty(1.0, 2.0, weights=np.ones(2)).value(rows)
    with pytest.raises(ValueError, match=r"step has shape \(3,\) but there are 12 rows; pass one number per row"):
        RowPenalty(1.0, 2.0).prox(rows, np.ones(3))
    with pytest.raises(ValueError, match="step has negative entries or NaN; pass"):
        RowPenalty(1.0, 2.0).prox(rows, -1.0)
    with pytest.raises(ValueError, match=r"sizes has shape \(2,\) but there are 12 rows; pass one size per row"):
        GeneralizedNormal(2.0).row_scales(rows, sizes=np.array([1, 2]))


@pytest.mark.parametrize("norm_q", [1.0, 3.0, np.inf])
def test_task_sparsity_needs_the_euclidean_norm(norm_q):
    with pytest.raises(ValueError, match=r"task_sparsity is 0.1 and norm_q is .*; pass norm_q=2, or task_sparsity=0"):
        RowPenalty(0.3, norm_q, task_sparsity=0.1)


def test_some_rows_of_a_penalty(rows, weights):
    some = np.array([7, 1])
    plain = RowPenalty(0.4, 3.0)
    assert plain.take(some) is plain
    weighted = RowPenalty(0.4, 2.0, np.linspace(0.0, 1.0, 12), weights)
    np.testing.assert_allclose(weighted.take(some).dual_norm(rows[some]), weighted.dual_norm(rows)[some], rtol=1e-14)


def test_strength_alone_may_differ(weights):
    penalty = RowPenalty(0.4, 2.0, 0.5, weights)
    assert penalty.is_like(penalty.with_strength(2.0))
    assert not penalty.is_like(RowPenalty(0.4, 2.0, 0.7, weights))
    assert not penalty.is_like(RowPenalty(0.4, 2.0, 0.5, weights.copy()))
    assert RowPenalty(1.0, 3.0).is_like(RowPenalty(2.0, 3.0))
    assert not RowPenalty(1.0, 3.0).is_like(RowPenalty(1.0, 2.0))


def test_a_euclidean_penalty_says_so():
    assert RowPenalty(1.0).is_euclidean
    assert RowPenalty(1.0, task_sparsity=np.zeros(4)).is_euclidean
    assert not RowPenalty(1.0, task_sparsity=0.1).is_euclidean
    assert not RowPenalty(1.0, 3.0).is_euclidean


SMOOTH = [RowPenalty(0.7, q) for q in (1.3, 1.5, 2, 3, 8)] + [RowPenalty(0.7, task_sparsity=0.4)]
STIFF = 1e7


def name(penalty):
    return f"sparse group {penalty.task_sparsity}" if penalty.entrywise else f"q = {penalty.norm_q}"


def hessians(bend):
    """Dense Hessian of the penalty at each row."""
    diagonal = np.broadcast_to(bend.diagonal, bend.direction.shape)
    return [np.diag(d) - c * np.outer(g, g) for d, c, g in zip(diagonal, bend.scale, bend.direction, strict=True)]


@pytest.mark.parametrize("penalty", SMOOTH, ids=name)
def test_curvature_is_the_second_derivative(penalty):
    rng = np.random.default_rng(0)
    W = rng.standard_normal((3, 4)) + np.sign(rng.standard_normal((3, 4)))
    bend = penalty.curvature(W, STIFF)
    h = 1e-4
    for row, found in zip(W, hessians(bend), strict=True):
        steps = h * np.eye(4)
        value = np.array(
            [
                [
                    sum(s * r * penalty.value((row + s * a + r * b)[None]) for s in (1, -1) for r in (1, -1))
                    for a in steps
                ]
                for b in steps
            ]
        )
        np.testing.assert_allclose(found, value / (4 * h**2), atol=2e-6)


def test_curvature_of_weighted_rows():
    W = np.random.default_rng(1).standard_normal((3, 4))
    weights = np.array([1.0, 5.0, 2.0, 0.5])
    rows = np.array([1, 2, 3])
    weighted = RowPenalty(1.0, 3, weights=weights).take(rows).curvature(W, STIFF)
    plain = RowPenalty(1.0, 3).curvature(W, STIFF)
    np.testing.assert_allclose(weighted.scale, weights[rows] * plain.scale)
    np.testing.assert_allclose(weighted.diagonal, weights[rows][:, None] * plain.diagonal)


def test_entries_at_kinks_are_held_or_bound():
    W = np.array([[2.0, 0.0, -1.0], [1.0, -1.0, 0.5]])
    assert RowPenalty(1.0, 1).curvature(W, STIFF).diagonal.tolist() == [[0, np.inf, 0], [0, 0, 0]]
    sparse = RowPenalty(1.0, task_sparsity=0.5).curvature(W, STIFF)
    assert np.isinf(sparse.diagonal).tolist() == [
        [0, 1, 0],
        [0, 0, 0],
    ]
    alone, tied = hessians(RowPenalty(1.0, np.inf).curvature(W, STIFF))
    assert not alone.any()
    np.testing.assert_allclose(tied @ [1, -1, 7], 0, atol=1e-6)  # ties may move together, the rest is free
    assert tied[0] @ [1, 1, 0] > 1e6


@pytest.mark.parametrize("penalty", [*SMOOTH, RowPenalty(0.7, 1), RowPenalty(0.7, np.inf)], ids=name)
def test_gradient_is_the_derivative(penalty):
    W = np.random.default_rng(2).standard_normal((3, 4))
    steps = 1e-6 * np.eye(12).reshape(12, 3, 4)
    differences = [(penalty.value(W + step) - penalty.value(W - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(penalty.gradient(W).ravel(), differences, atol=1e-8)
