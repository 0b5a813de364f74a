"""Interior-point method for the hinge and the absolute loss with any row penalty.

Objective: the convex problem of `problem`; its dual (see `saddle_point`) is

    minimise over theta:   sum_i theta_i y_i
    subject to             theta_i in its interval,  sum of theta over each task = 0 (with an intercept),
                           every row of X' theta in the dual ball of the penalty (`interior_rows`).

The algorithm is the primal-dual predictor-corrector method of Mehrotra (1992, *SIAM Journal on Optimization* 2:575-601)
for a convex program (Boyd and Vandenberghe 2004, section 11.7). Theta stays strictly feasible, so that every iterate
gives a lower bound on the minimum; the prices of the constraints are the coefficients. What makes it fast:

- the number of steps, 10 to 20, hardly depends on the data, the penalty or q;
- a step factorises one small matrix per task, and one that couples the rows (`interior_newton`);
- only rows near the boundary of their ball take part (`interior_point`). Few are at first, and rows that stay inside leave
  as the gap closes. A step ends before any other row leaves its ball, so that the bound holds for all features.

Coefficients that are 0 in the limit are set to exactly 0 before a solution is certified. Where the penalty is tiny and
tasks have more observations than features, the minimum of the loss alone is tried first (`vertices`).
"""

from dataclasses import replace

import numpy as np

from bayesmtfs.convex import interior_point, interior_rows, vertices
from bayesmtfs.convex.interior_columns import Columns
from bayesmtfs.convex.interior_point import Linearised, Setup, State
from bayesmtfs.convex.interior_rows import DOWN, PRICE_UP, UP, Ball
from bayesmtfs.convex.interior_tasks import BreakdownError
from bayesmtfs.convex.problem import Problem, with_zero_sum
from bayesmtfs.convex.saddle_point import best_intercept, dual_box, null_dual, without_settled_tasks
from bayesmtfs.families import total
from bayesmtfs.priors.row_penalty import dual_exponent, row_norms
from bayesmtfs.progress import Progress
from bayesmtfs.types import BoolArray, FloatArray, Solution

FIRST_ROWS = 50  # working set at the start
FIRST_SHARE = 0.5  # of the interval of theta that the start uses at most
FIRST_LEVEL = 0.9  # of the penalty strength that the largest dual norm has at the start
ROW_PRODUCT = 3.0  # products of slack and price of the rows at the start, relative to those of the observations
LEAST_PRODUCT = 0.002  # of the gap to reach, spread over the observations: smaller products only invite rounding errors
CLOSE = 10.0  # times the gap to reach: from there on, coefficients are set to 0
PROMISING = 60.0  # times the gap to reach: from there on, the end of a full step is tried
ZEROING = (np.inf, 1.0, 1e-2, 1e-4)  # how eagerly: all of them first
PATIENCE = 12  # steps without a smaller gap before giving up


def solve(
    problem: Problem,
    start: Solution | None = None,
    *,
    tol: float = 1e-6,
    max_iter: int = 10_000,
    progress: bool | None = None,
) -> Solution:
    """Minimise the problem.

    Parameters
    ----------
    problem : what to minimise; its loss is the hinge or the absolute loss
    start : an earlier solution, whose rows take part from the beginning
    tol : gap to reach, relative to the objective at W = 0
    max_iter : most steps
    progress : see `progress.Progress`
    """
    whole = problem
    problem, settled = without_settled_tasks(_in_double(whole))
    setup = _setup(problem)
    best = _at_zero(problem, tol)
    if not (settled.all() or best.converged) and vertices.applies(problem):
        best = vertices.solve(problem, best, tol=tol)
    if settled.all() or best.converged:
        return _with_settled(best, whole, settled)
    state = _first_state(setup, start, settled)
    floor = LEAST_PRODUCT * tol * best.scale / (2 * problem.data.n_observations)
    trace, since_best = [best.objective], 0
    with Progress("interior point", progress) as bar:
        try:
            while not best.converged and len(trace) <= max_iter and since_best < PATIENCE:
                linearised = Linearised(setup, state, best.gap / best.objective)
                found = _ahead(linearised, best, tol)
                if not found.converged:
                    state = interior_point.step(linearised, floor * 0.1**since_best)
                    found = _certified(setup, state, best, tol)
                since_best = 0 if found.gap < best.gap else since_best + 1
                best = found._replace(n_iter=len(trace))
                trace.append(best.objective)
                bar.update(_fraction(best, tol), f"gap {best.gap:.1e}")
        except BreakdownError:
            best = _unzeroed(setup, state, best, tol)
        except KeyboardInterrupt:
            best = best._replace(interrupted=True)
    return _with_settled(best._replace(objective_trace=np.array(trace)), whole, settled)


# ---------------------------------------------------------------------- start


def _in_double(problem: Problem) -> Problem:
    data = problem.data
    if data.design.dtype == np.float64:
        return problem
    return replace(problem, data=replace(data, design=data.design.astype(np.float64)))


def _setup(problem: Problem) -> Setup:
    box, penalty, n_rows = dual_box(problem), problem.penalty, problem.blocks.n_rows
    strengths = penalty.strengths(n_rows)
    if not np.all(strengths > 0.0):
        raise ValueError(
            f"penalty_strength times the row weights is 0 for {np.sum(strengths <= 0.0)} of {n_rows} rows; "
            f"loss={problem.family.name!r} needs a positive strength for every row, pass a small one instead"
        )
    intervals = Ball(0.5 * (box.upper - box.lower), np.zeros(problem.data.n_observations), np.inf)
    sparsity, exponent = np.zeros(n_rows), np.inf
    if penalty.entrywise:
        sparsity, exponent = sparsity + penalty.task_sparsity, 2.0
    elif problem.blocks.sizes.max(initial=1) > 1:  # all norms of a single number are the same
        exponent = dual_exponent(penalty.norm_q)
    return Setup(problem, 0.5 * (box.upper + box.lower), intervals, Ball(strengths, sparsity, exponent))


def _at_zero(problem: Problem, tol: float) -> Solution:
    """W = 0 with its best intercept, and the bound that a dual point of the loss alone gives."""
    gap = max(problem.null_objective - problem.dual_objective(null_dual(problem)), 0.0)
    return Solution(
        W=np.zeros((problem.data.n_features, problem.data.n_tasks)),
        intercept=problem.null_intercept,
        objective=problem.null_objective,
        gap=gap,
        scale=problem.gap_scale,
        converged=gap <= tol * problem.gap_scale,
        n_iter=0,
        objective_trace=np.array([problem.null_objective]),
    )


def _first_state(setup: Setup, start: Solution | None, settled: BoolArray) -> State:
    """Theta inside its intervals and balls, and prices that go with the slacks and the residuals."""
    problem = setup.problem
    theta, scores, levels = _first_theta(problem)
    product = problem.null_objective / (2 * len(theta))
    observations = interior_rows.enter((theta - setup.centre)[:, np.newaxis], setup.intervals, product)
    residuals = (problem.data.y - problem.null_intercept[problem.data.task])[:, np.newaxis]
    prices = observations.entries[PRICE_UP:]
    np.maximum(prices, [-residuals, residuals], out=prices)
    chosen = levels > interior_point.NEAR
    chosen[np.argsort(levels)[-FIRST_ROWS:]] = True
    if start is not None:
        chosen |= problem.blocks.gather(start.W[:, ~settled]).any(axis=1)
    working = np.flatnonzero(chosen)
    ball, columns = setup.ball.take(working), Columns(problem, working)
    rows = interior_rows.enter(columns.scores(theta), ball, ROW_PRODUCT * product)
    return State(observations, problem.null_intercept, working, ball, columns, rows, scores, levels)


def _first_theta(problem: Problem) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Theta inside its intervals, its scores X' theta, and their levels, which are below 1."""
    theta = FIRST_SHARE * null_dual(problem)
    if problem.family.name == "hinge" and vertices.applies(problem):
        # Towards a tiny penalty all shrinks to 0, an end of the intervals, but where it need not
        inner = vertices.inner_points(problem)
        theta = np.where(np.isnan(inner), theta, 0.0)
        theta *= min(1.0, _room(problem, theta))
        theta = np.where(np.isnan(inner), theta, inner)
    shrink = min(1.0, _room(problem, theta))
    scores = shrink * problem.data.adjoint(theta)
    return shrink * theta, scores, interior_point.levels(problem, scores)


def _room(problem: Problem, theta: FloatArray) -> float:
    """Factor on theta at which the largest level of its scores is where the method begins."""
    largest = float(interior_point.levels(problem, problem.data.adjoint(theta)).max())
    return FIRST_LEVEL / max(largest, np.finfo(float).tiny)


# ---------------------------------------------------------------------- what was found


def _ahead(linearised: Linearised, best: Solution, tol: float) -> Solution:
    """Solution at the end of a full step if that is good enough, else the best so far."""
    if best.gap > PROMISING * tol * best.scale:
        return best
    setup, state = linearised.setup, linearised.state
    theta, coefficients = linearised.ahead()
    lower = setup.problem.dual_objective(_balanced(setup.problem, theta))
    found = _zeroed(setup, state, coefficients, best, lower + tol * best.scale)
    return _verified(setup, theta, found, tol) if found.objective - lower <= tol * best.scale else best


def _certified(setup: Setup, state: State, best: Solution, tol: float) -> Solution:
    """Best solution known, with the gap to the best lower bound known."""
    theta = state.theta(setup)
    lower = max(best.objective - best.gap, -float(setup.problem.data.y @ theta))
    found = _solution(setup, state, state.rows.coefficients, state.intercept, best)
    if found.objective - lower <= CLOSE * tol * best.scale:
        found = _zeroed(setup, state, state.rows.coefficients, best, lower + tol * best.scale)
    if not found.objective <= best.objective:
        found = best
    found = found._replace(gap=max(found.objective - lower, 0.0))
    return _verified(setup, theta, found, tol) if found.gap <= tol * found.scale else found


def _zeroed(setup: Setup, state: State, coefficients: FloatArray, best: Solution, enough: float) -> Solution:
    """Solution with exact zeros: coefficients that are small where the slack is large, each on its own scale.

    The first objective that is small enough counts, or else the smallest.
    """
    slack = np.min(state.rows.entries[UP : DOWN + 1], axis=0) / state.ball.strength[:, np.newaxis]
    sizes = np.abs(coefficients)
    solutions = []
    for eagerness in ZEROING:
        kept = sizes > eagerness * np.max(sizes, initial=0.0) * slack
        solutions.append(_solution(setup, state, np.where(kept, coefficients, 0.0), None, best))
        if solutions[-1].objective <= enough:
            return solutions[-1]
    return min(solutions, key=lambda solution: solution.objective)


def _solution(
    setup: Setup, state: State, coefficients: FloatArray, intercept: FloatArray | None, best: Solution
) -> Solution:
    """Coefficients of the working set as a solution, with the best intercept where none is given, without its gap."""
    problem, columns, ball = setup.problem, state.columns, state.ball
    W = columns.features_of(coefficients)
    predictor = columns.predictor(W)
    intercept = best_intercept(problem, predictor) if intercept is None else intercept
    loss = total(problem.family, problem.data.y, predictor + intercept[problem.data.task], problem.weight)
    norm_q = problem.penalty.norm_q
    norms = row_norms(coefficients, norm_q)
    if ball.sparsity.any():
        norms += ball.sparsity * row_norms(coefficients, 1.0)
    everything = np.zeros_like(best.W)
    everything[columns.features] = W
    shift = np.einsum("km,km->m", columns.means, W)
    return best._replace(W=everything, intercept=intercept - shift, objective=loss + float(ball.strength @ norms))


def _balanced(problem: Problem, theta: FloatArray) -> FloatArray:
    """Dual point with sums of 0, which it had but for rounding."""
    if not problem.fit_intercept:
        return theta
    return with_zero_sum(theta, problem.data.task, problem.data.offsets[:-1])


def _verified(setup: Setup, theta: FloatArray, found: Solution, tol: float) -> Solution:
    """Objective and gap once more, from the data as they are and all features."""
    problem, data = setup.problem, setup.problem.data
    predictor = data.linear_predictor(found.W, np.zeros(data.n_tasks))
    intercept = best_intercept(problem, predictor)
    objective = problem.objective(found.W, predictor + intercept[data.task])
    gap = max(objective - problem.dual_objective(_balanced(problem, theta)), 0.0)
    return found._replace(intercept=intercept, objective=objective, gap=gap, converged=gap <= tol * found.scale)


def _unzeroed(setup: Setup, state: State, best: Solution, tol: float) -> Solution:
    """Last resort when rounding errors stop the method: coefficients without exact zeros, if they are good enough."""
    found = _solution(setup, state, state.rows.coefficients, None, best)
    found = _verified(setup, state.theta(setup), found, tol)
    return found if found.converged and not best.converged else best


def _with_settled(best: Solution, problem: Problem, settled: BoolArray) -> Solution:
    """Put the tasks back that were left out: zero coefficients, and an intercept without loss."""
    if not settled.any() or settled.all():
        return best
    W = np.zeros((problem.data.n_features, problem.data.n_tasks))
    intercept = problem.null_intercept.copy()
    W[:, ~settled], intercept[~settled] = best.W, best.intercept
    return best._replace(W=W, intercept=intercept)


def _fraction(best: Solution, tol: float) -> float:
    """How far the gap has come, on a log scale."""
    relative = best.gap / best.scale if best.scale > 0 else tol
    return 1.0 if relative <= tol else float(np.log10(max(1.0 / relative, 1.0)) / np.log10(1.0 / tol))
