"""Interior rows: the eliminated Newton step solves the equations that it was eliminated from."""

import numpy as np
import pytest

from bayesmtfs.convex import interior_point as ir
from bayesmtfs.convex.interior_point import BALL, DOWN, PRICE_BALL, PRICE_DOWN, PRICE_UP, RADIUS, SCORE, UP

EXPONENTS = [1.0, 1.2, 1.5, 2.0, 4.0, np.inf]


def make_rows(exponent, sparsity=0.0, n_rows=7, n_entries=4):
    """Rows inside their balls, away from any centre."""
    rng = np.random.default_rng(3)
    ball = ir.Ball(rng.uniform(0.5, 2.0, n_rows), np.full(n_rows, sparsity), exponent)
    score = 0.2 * ball.strength[:, np.newaxis] * rng.standard_normal((n_rows, n_entries)) / np.sqrt(n_entries)
    rows = ir.enter(score, ball, 0.01)
    rows.entries[PRICE_UP:] *= rng.uniform(0.5, 2.0, (2, n_rows, n_entries))
    rows.balls[PRICE_BALL] *= rng.uniform(0.5, 2.0, n_rows)
    return rows, ball, 0.01 * rng.standard_normal((n_rows, n_entries))


def make_change(rows, ball, score_change, product, before=None):
    response = ir.respond(rows, ball)
    pulled = ir.pull(rows, ball, response, product, rows.still if before is None else before)
    return response, pulled, ir.move(rows, ball, response, pulled, score_change)


@pytest.mark.parametrize("sparsity", [0.0, 0.3])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_rows_enter_strictly_inside(exponent, sparsity):
    rng = np.random.default_rng(0)
    ball = ir.Ball(np.full(5, 2.0), np.full(5, sparsity), exponent)
    score = rng.standard_normal((5, 3))
    score *= 0.999 * 2.0 / np.linalg.norm(score, exponent, axis=1, keepdims=True)
    rows = ir.enter(score, ball, 0.5)
    assert (rows.entries[RADIUS:] > 0).all() and (rows.balls[BALL] > 0).all()
    np.testing.assert_allclose(rows.entries[UP] * rows.entries[PRICE_UP], 0.5)
    reach = 2.0 * (sparsity + rows.entries[RADIUS])
    np.testing.assert_allclose(rows.entries[DOWN], reach + score)


@pytest.mark.parametrize("sparsity", [0.0, 0.3])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_step_solves_the_linearised_constraints(exponent, sparsity):
    rows, ball, score_change = make_rows(exponent, sparsity)
    product = 0.004
    _, _, change = make_change(rows, ball, score_change, product)
    now, step, strength = rows.entries, change.entries, ball.strength[:, np.newaxis]
    np.testing.assert_allclose(step[UP], strength * step[RADIUS] - score_change, atol=1e-14)
    np.testing.assert_allclose(step[DOWN], strength * step[RADIUS] + score_change, atol=1e-14)
    for slack, price in ((UP, PRICE_UP), (DOWN, PRICE_DOWN)):
        linear = now[slack] * now[price] + now[slack] * step[price] + step[slack] * now[price]
        np.testing.assert_allclose(linear, product, rtol=1e-12)
    if exponent == np.inf:
        assert (step[RADIUS] == 0).all()
        return
    slope = exponent * now[RADIUS] ** (exponent - 1)
    curve = exponent * (exponent - 1) * now[RADIUS] ** (exponent - 2)
    np.testing.assert_allclose(change.balls[BALL], -np.sum(slope * step[RADIUS], axis=1), rtol=1e-11)
    price = rows.balls[PRICE_BALL][:, np.newaxis]
    radius_force = (price + change.balls[PRICE_BALL][:, np.newaxis]) * slope + price * curve * step[RADIUS]
    sides = now[PRICE_UP] + step[PRICE_UP] + now[PRICE_DOWN] + step[PRICE_DOWN]
    np.testing.assert_allclose(radius_force, strength * sides, rtol=1e-10)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_response_is_how_coefficients_answer(exponent):
    rows, ball, score_change = make_rows(exponent, sparsity=0.1)
    response, pulled, change = make_change(rows, ball, score_change, 0.004)
    radial = response.weight * np.sum(response.shared * score_change, axis=1)
    answer = pulled.coefficients + response.own * score_change + response.shared * radial[:, np.newaxis]
    np.testing.assert_allclose(-(rows.coefficients + change.coefficients), answer, rtol=1e-9, atol=1e-12)
    assert (response.own > 0).all()


def centred_rows(exponent):
    """Rows where all products are 0.01: Newton steps that leave the scores alone."""
    rows, ball, score_change = make_rows(exponent)
    stay = np.zeros_like(score_change)
    for _ in range(60):
        _, _, change = make_change(rows, ball, stay, 0.01)
        longest = ir.longest_steps(rows, change, exponent, ir.Lengths(2.0, 2.0))
        lengths = ir.Lengths(min(1.0, 0.5 * longest.slack), min(1.0, 0.5 * longest.price))
        rows = ir.advance(rows, change, lengths, rows.entries[SCORE], ball)
    return rows, ball, score_change


def product_error(rows, change, score_change, ball, product):
    """Largest distance of a product from its aim after a full step."""
    moved = ir.advance(rows, change, ir.Lengths(1.0, 1.0), rows.entries[SCORE] + score_change, ball)
    sides = moved.entries[UP : DOWN + 1] * moved.entries[PRICE_UP:]
    balls = moved.balls[BALL] * moved.balls[PRICE_BALL] if ball.exponent < np.inf else product
    return max(np.abs(sides - product).max(), np.abs(balls - product).max())


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_correction_makes_the_step_accurate_to_third_order(exponent):
    rows, ball, direction = centred_rows(exponent)
    errors = []
    for size in (0.02, 0.01):
        product = 0.01 * (1.0 - size)
        _, _, plain = make_change(rows, ball, size * direction, product)
        _, _, corrected = make_change(rows, ball, size * direction, product, before=plain)
        errors.append([product_error(rows, change, size * direction, ball, product) for change in (plain, corrected)])
    assert errors[0][0] / errors[1][0] == pytest.approx(4.0, rel=0.1)
    assert errors[0][1] / errors[1][1] > 7.0


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_longest_steps_end_at_a_boundary(exponent):
    rows, ball, score_change = make_rows(exponent)
    _, _, change = make_change(rows, ball, 30 * score_change, 0.0)
    longest = ir.longest_steps(rows, change, exponent, ir.Lengths(1e6, 1e6))
    just_before = ir.Lengths(longest.slack * (1 - 1e-9), longest.price * (1 - 1e-9))
    inside = ir.advance(rows, change, just_before, rows.entries[SCORE] + just_before.slack * 30 * score_change, ball)
    assert (inside.entries[RADIUS:] > 0).all() and (inside.balls[BALL] > 0).all()
    beyond = ir.Lengths(1.06 * longest.slack, 1.01 * longest.price)
    outside = ir.advance(rows, change, beyond, rows.entries[SCORE] + beyond.slack * 30 * score_change, ball)
    assert min(outside.entries[PRICE_UP:].min(), outside.balls[PRICE_BALL].min()) < 0
    assert min(outside.entries[RADIUS:PRICE_UP].min(), outside.balls[BALL].min()) < 0


def test_complementarity_counts_every_constraint():
    rows, _, _ = make_rows(2.0)
    total = ir.complementarity(rows, rows, ir.Lengths(0.0, 0.0))
    products = rows.entries[UP] * rows.entries[PRICE_UP] + rows.entries[DOWN] * rows.entries[PRICE_DOWN]
    assert total == pytest.approx(products.sum() + rows.balls[BALL] @ rows.balls[PRICE_BALL])
    assert rows.n_constraints == 2 * 7 * 4 + 7
    assert make_rows(np.inf)[0].n_constraints == 2 * 7 * 4
