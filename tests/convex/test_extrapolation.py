"""Anderson's extrapolation against the fixed points of linear maps, and what it must not bring back."""

import numpy as np

from bayesmtfs.convex.extrapolation import LONGEST, History


def linear_map(size, seed=0):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
    A = basis @ np.diag(rng.uniform(0.3, 0.95, size)) @ basis.T
    fixed = rng.standard_normal(size)
    return lambda x: fixed + A @ (x - fixed), fixed


def test_a_linear_map_of_few_dimensions_is_solved_at_once():
    step, fixed = linear_map(LONGEST - 1)
    x = np.zeros((LONGEST - 1, 1))
    history = History(x, x)
    for _ in range(LONGEST):
        start, x = x, step(x[:, 0])[:, None]
        history.add(start, x, 2.0 * x)
    W, state = history.combined()
    np.testing.assert_allclose(W[:, 0], fixed, atol=1e-4)
    np.testing.assert_allclose(state, 2.0 * W, atol=1e-12)


def test_extrapolated_steps_are_far_ahead_of_plain_ones():
    step, fixed = linear_map(60)
    plain = x = np.zeros((60, 1))
    history = History(x, x)
    for _ in range(30):
        plain = step(plain[:, 0])[:, None]
        start, end = x, step(x[:, 0])[:, None]
        history.add(start, end, end)
        found = history.combined()
        x = end if found is None else found[0]
    assert np.linalg.norm(x[:, 0] - fixed) < 0.01 * np.linalg.norm(plain[:, 0] - fixed)


def test_one_epoch_and_epochs_without_moves_give_nothing():
    x = np.ones((3, 2))
    history = History(x, x)
    assert history.combined() is None
    history.add(np.zeros((3, 2)), x, x)
    assert history.combined() is None
    for _ in range(2 * LONGEST):
        history.add(x, x, x)
    assert history.combined() is None


def test_what_left_does_not_come_back():
    rng = np.random.default_rng(0)
    history = History(np.zeros((4, 2)), np.zeros(1))
    for epoch in range(8):
        end = rng.standard_normal((4, 2))
        end[0] = 0.0
        end[1, 1] = 0.0 if epoch >= 5 else 1.0
        history.add(rng.standard_normal((4, 2)), end, np.zeros(1))
        found = history.combined()
        assert found is None or not found[0][end == 0.0].any()
    assert len(history.places) == 3


def test_only_the_last_epochs_count():
    step, fixed = linear_map(6)
    x = np.zeros((6, 1))
    history, same = History(x, x), History(x, x)
    history.add(x + 1.0, 100.0 * np.ones((6, 1)), x)
    for _ in range(LONGEST):
        start, x = x, step(x[:, 0])[:, None]
        history.add(start, x, x)
        same.add(start, x, x)
    np.testing.assert_allclose(history.combined()[0], same.combined()[0], rtol=1e-12)
    history.forget()
    assert history.combined() is None
