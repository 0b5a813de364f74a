"""Majorisation-minimisation of problem (5): the stated objective, never rising, optimal for its own tangent."""

import numpy as np
import pytest

from bayesmtfs import simulate_tasks
from bayesmtfs.convex import automatic
from bayesmtfs.convex.problem import Problem
from bayesmtfs.em import mm
from bayesmtfs.families import find_family
from bayesmtfs.priors.row_penalty import RowPenalty


def make(loss="squared", seed=0, n=40, p=12):
    kind = "regression" if loss == "squared" else "classification"
    sim = simulate_tasks(n_tasks=3, n_features=p, n_samples=n, n_relevant=3, kind=kind, random_state=seed)
    problem = Problem(sim.data, find_family(loss), RowPenalty(1.0, 2.0), sim.data.weight)
    start = automatic.solve(problem.with_strength(0.02 * problem.largest_penalty), tol=1e-6)
    return sim, problem, start


def stated(problem, solution, norm_q, offset, noise, learned):
    """Problem (5), written out."""
    eta = problem.data.linear_predictor(solution.W, solution.intercept)
    loss = np.sum(problem.weight * problem.family.value(problem.data.y, eta)) / noise**2
    norms = np.linalg.norm(solution.W, norm_q, axis=1)
    return loss + 3 * np.sum(np.log(norms + offset)) + learned * problem.weight.sum() * np.log(noise)


@pytest.mark.parametrize("graduated", [True, False])
@pytest.mark.parametrize("norm_q", [1.5, 2.0, np.inf])
@pytest.mark.parametrize(("loss", "noise"), [("squared", None), ("squared", 0.8), ("logistic", 1.0)])
def test_objective_is_problem_five_and_never_rises(loss, noise, norm_q, graduated):
    _, problem, start = make(loss)
    settings = mm.MMSettings(norm_q, 0.01, noise, noise_floor=0.1, graduated=graduated)
    found = mm.solve(problem, start, settings)
    trace = found.objective_trace
    assert np.all(np.diff(trace) <= 1e-10 * np.abs(trace[:-1])) and found.converged
    sigma = float(found.noise[0])
    assert trace[-1] == pytest.approx(stated(problem, found, norm_q, 0.01, sigma, noise is None), rel=1e-10)
    assert noise is None or sigma == noise


def test_end_minimises_its_own_tangent():
    _, problem, start = make()
    settings = mm.MMSettings(offset=0.01, noise=1.0, tol=1e-12)
    found = mm.solve(problem, start, settings)
    eta = problem.data.linear_predictor(found.W, found.intercept)
    convex = mm.tangent(problem, mm.MMState(found, eta, 1.0), 2.0, 0.01)
    again = automatic.solve(convex, tol=1e-10)
    np.testing.assert_allclose(found.W, again.W, atol=1e-4)
    assert convex.gap(found.W, eta) <= 1e-4 * convex.gap_scale


def test_tangent_touches_and_lies_above():
    _, problem, start = make()
    state = mm.first_state(problem, start, mm.MMSettings(noise=0.7))
    convex, settings = mm.tangent(problem, state, 2.0, 0.05), mm.MMSettings(offset=0.05, noise=0.7)
    rng = np.random.default_rng(0)
    at = convex.objective(start.W, state.eta) / 0.7**2 - mm.objective(problem, state, settings)
    for _ in range(5):
        W = start.W + 0.3 * rng.standard_normal(start.W.shape)
        eta = problem.data.linear_predictor(W, start.intercept)
        other = mm.MMState(start._replace(W=W), eta, 0.7)
        assert convex.objective(W, eta) / 0.7**2 - mm.objective(problem, other, settings) >= at - 1e-9


def test_support_is_found_and_learned_noise_is_right():
    sim, problem, start = make(n=80)
    found = mm.solve(problem, start, mm.MMSettings(noise_floor=0.05))
    np.testing.assert_array_equal(found.W.any(axis=1), sim.support)
    np.testing.assert_allclose(found.noise, np.sqrt(np.mean(sim.noise**2)), rtol=0.2)


def test_interruption_gives_the_best_so_far(monkeypatch):
    _, problem, start = make()
    calls, solve = [], automatic.solve

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return solve(*args, **options)

    monkeypatch.setattr(mm.automatic, "solve", interrupted)
    found = mm.solve(problem, start, mm.MMSettings(graduated=False, tol=1e-15))
    assert found.interrupted and not found.converged and found.n_iter == 2
