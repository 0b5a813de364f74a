"""What the solvers of the hinge and the absolute loss share: the box of the dual variables, and exact intercepts.

Both losses are a maximum over a dual variable in an interval, ``l(y, eta) = max u (eta - y)``, with u in [-1, 1] for the
absolute loss and ``-u y`` in [0, 1] for the hinge (y = -1 or +1). The convex problem is then the saddle point problem

    min over W, b   max over theta:   sum_i theta_i (x_i' w_t(i) + b_t(i) - y_i) + penalty(W),

with theta_i in c_i times that interval (Obozinski, Taskar and Jordan 2006, section 3.1). Its dual objective is
``- sum_i theta_i y_i`` for both losses, at any theta that sums to 0 over each task with an intercept and keeps the rows
of ``X' theta`` in the dual ball of the penalty.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bayesmtfs.convex.problem import Problem
from bayesmtfs.types import BoolArray, FloatArray


class Box(NamedTuple):
    """Interval of every dual variable."""

    lower: FloatArray  # (N,)
    upper: FloatArray  # (N,)


def dual_box(problem: Problem) -> Box:
    """Interval of theta for each observation."""
    y, c = problem.data.y, problem.weight
    if problem.family.name == "hinge":
        return Box(np.where(y > 0, -c, 0.0), np.where(y > 0, 0.0, c))
    if problem.family.name == "absolute":
        return Box(-c, c)
    raise ValueError(
        f"loss is {problem.family.name!r}, which is smooth; this solver is for 'hinge' and 'absolute', "
        "use solver='auto'"
    )


def null_dual(problem: Problem) -> FloatArray:
    """(N,) An optimal theta at W = 0, inside its box in spite of rounding."""
    return np.clip(problem.null_dual, *dual_box(problem))


def best_intercept(problem: Problem, predictor: FloatArray) -> FloatArray:
    """(m,) Exact minimiser of the loss over the intercepts, for a linear predictor without them.

    The loss of a task is convex and piecewise linear in b with kinks at ``y - predictor``, where its slope grows by c:
    from minus the sum of all c for the absolute loss (by 2 c), or of the c of class +1 for the hinge. The minimum is
    where it turns positive, a weighted median.
    """
    data, c = problem.data, problem.weight
    if not problem.fit_intercept:
        return np.zeros(data.n_tasks)
    hinge = problem.family.name == "hinge"
    kinks = data.y - predictor
    result = np.empty(data.n_tasks)
    for t, (start, stop) in enumerate(data.spans):
        order = np.argsort(kinks[start:stop])
        growth = np.cumsum(c[start:stop][order])
        level = c[start:stop][data.y[start:stop] > 0].sum() if hinge else 0.5 * growth[-1]
        place = min(int(np.searchsorted(growth, level * (1.0 - 1e-12))), stop - start - 1)
        result[t] = kinks[start:stop][order[place]]
    return result


def without_settled_tasks(problem: Problem) -> tuple[Problem, BoolArray]:
    """Leave out tasks with an intercept and one class only, whose hinge loss is 0 at W = 0.

    Returns
    -------
    problem, settled
        The problem of the other tasks, and (m,) whether a task was left out.
    """
    data = problem.data
    settled = np.zeros(data.n_tasks, dtype=bool)
    if problem.family.name == "hinge" and problem.fit_intercept:
        settled = np.array([np.ptp(data.y[start:stop]) == 0.0 for start, stop in data.spans])
    if not settled.any() or settled.all():
        return problem, settled
    kept = ~settled[data.task]
    parts: dict[str, Any] = {
        "y": data.y[kept],
        "weight": data.weight[kept],
        "order": data.order[kept],
        "offsets": np.concatenate([[0], np.cumsum(np.diff(data.offsets)[~settled])]),
        "task_names": data.task_names[~settled],
        "present": None if data.present is None else data.present[:, ~settled],
    }
    if data.shared_design:
        parts["rows"] = data.rows[kept]
    else:
        parts |= {"design": data.design[kept], "rows": np.arange(int(kept.sum()))}
    return replace(problem, data=replace(data, **parts), weight=problem.weight[kept]), settled
