"""Hamiltonian paths of a normal distribution: momenta, energy, and the way back."""

import numpy as np

from bayesmtfs.gibbs import block as gibbs_block

VARIANCE = np.array([1.0, 4.0, 0.0, 0.25])


def follow(position, momentum, steps, step):
    """A path of the normal distribution with the variances above."""
    for _ in range(steps):
        for half in range(2):
            slope = np.divide(-position, VARIANCE, out=np.zeros(4), where=VARIANCE > 0.0)
            gibbs_block.push(momentum, slope, step, 4)
            if half == 0:
                gibbs_block.drift(position, VARIANCE, momentum, step, 4)


def energy(position, momentum):
    moving = VARIANCE > 0.0
    return gibbs_block.kinetic_energy(VARIANCE, momentum, 4) + 0.5 * np.sum(position[moving] ** 2 / VARIANCE[moving])


def test_momenta_have_the_precision_of_their_coordinate():
    rng, momentum, found = np.random.Generator(np.random.PCG64(0)), np.zeros(4), []
    for _ in range(4000):
        gibbs_block.draw_momentum(rng, VARIANCE, momentum, 4)
        found.append(momentum.copy())
    np.testing.assert_allclose(np.var(found, axis=0), [1.0, 0.25, 0.0, 4.0], rtol=0.08)


def test_small_steps_keep_the_energy_and_paths_lead_back():
    position, momentum = np.array([1.0, -2.0, 3.0, 0.5]), np.array([0.3, 0.7, 0.0, -1.0])
    start, before = position.copy(), energy(position, momentum)
    follow(position, momentum, 200, 0.01)
    assert abs(energy(position, momentum) - before) < 1e-4 and position[2] == 3.0
    assert np.abs(position - start)[[0, 1, 3]].min() > 0.01
    momentum *= -1.0
    follow(position, momentum, 200, 0.01)
    np.testing.assert_allclose(position, start, atol=1e-12)


def test_walls_turn_a_path_back():
    position, momentum = np.array([0.5, -1.3, 3.6, 2.0]), np.array([1.0, -2.0, 3.0, 4.0])
    gibbs_block.reflect(position, momentum, 3)
    np.testing.assert_allclose(position, [0.5, -0.7, -0.4, 2.0])
    np.testing.assert_allclose(momentum, [1.0, 2.0, 3.0, 4.0])
