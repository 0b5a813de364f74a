"""Extragradient: the minimum of the saddle point problem, slowly."""

from dataclasses import replace

import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.convex import automatic, extragradient, nonsmooth
from bayesmtfs.convex.problem import Problem
from bayesmtfs.families import find_family
from bayesmtfs.priors import RowPenalty


def make_problem(loss, norm_q=2.0, share=0.2, seed=0, fit_intercept=True):
    kind = "classification" if loss == "hinge" else "regression"
    sim = simulate_tasks(n_tasks=3, n_features=15, n_relevant=3, n_samples=[20, 30, 25], kind=kind, random_state=seed)
    data = TaskData.from_long(sim.X, sim.y, sim.tasks)
    problem = Problem(data, find_family(loss), RowPenalty(1.0, norm_q), data.loss_weights("mean"), fit_intercept)
    return problem.with_strength(share * problem.largest_penalty)


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize("norm_q", [1.0, 2.0, np.inf])
def test_two_solvers_agree(loss, norm_q):
    problem = make_problem(loss, norm_q)
    slow = extragradient.solve(problem, tol=1e-4, max_iter=20_000)
    fast = nonsmooth.solve(problem, tol=1e-6)
    assert slow.converged and fast.converged
    assert abs(slow.objective - fast.objective) <= slow.gap + fast.gap


@pytest.mark.parametrize("solver", ["extragradient", "nonsmooth"])
@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_gap_is_a_true_bound_and_objective_is_what_it_says(loss, solver):
    problem = make_problem(loss, seed=1)
    best = nonsmooth.solve(problem, tol=1e-7)
    for tol in (1e-1, 1e-2, 1e-3):
        rough = automatic.solve(problem, solver=solver, tol=tol)
        eta = problem.data.linear_predictor(rough.W, rough.intercept)
        assert rough.objective == pytest.approx(problem.objective(rough.W, eta), rel=1e-12)
        assert rough.objective - best.objective <= rough.gap + best.gap


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_zero_at_the_largest_penalty(loss):
    problem = make_problem(loss, share=1.0)
    for solver in ("extragradient", "nonsmooth"):
        solution = automatic.solve(problem, solver=solver)
        assert solution.converged and (solution.W == 0).all()


def test_interruption_keeps_the_best(monkeypatch):
    problem = make_problem("absolute")
    steps = iter(range(60))
    plain = extragradient._extragradient_step

    def interrupted(*arguments):
        if next(steps) == 50:
            raise KeyboardInterrupt
        return plain(*arguments)

    monkeypatch.setattr(extragradient, "_extragradient_step", interrupted)
    solution = extragradient.solve(problem, tol=1e-12)
    assert solution.interrupted and not solution.converged and solution.objective < problem.null_objective


@pytest.mark.parametrize(("loss", "solver"), [("squared", "extragradient"), ("hinge", "proximal_gradient")])
def test_a_solver_that_does_not_fit_the_loss_is_refused(loss, solver):
    problem = make_problem("hinge" if loss == "hinge" else "absolute")
    problem = Problem(problem.data, find_family(loss), problem.penalty, problem.weight)
    with pytest.raises(ValueError, match=f"solver is '{solver}', which does not solve loss='{loss}'"):
        automatic.solve(problem, solver=solver)


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_units_of_the_data_do_not_change_the_steps(loss):
    problem = make_problem(loss)
    plain = extragradient.solve(problem, tol=1e-3)
    factor = 2.0**20  # exact in floating point
    scaled = replace(problem, data=replace(problem.data, design=factor * problem.data.design))
    other = extragradient.solve(scaled.with_strength(factor * problem.penalty.strength), tol=1e-3)
    assert plain.converged and other.n_iter == plain.n_iter
    np.testing.assert_allclose(factor * other.W, plain.W, rtol=1e-9)
