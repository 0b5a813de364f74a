"""Discriminative multi-task feature selection: trace ratios per task with l2,1 terms within and over tasks.

Han et al. (2013), eq. (1), for W = [W_1, ..., W_t], rows = features, W_l'W_l = I with one column per class of task l:

    sum_l tr(W_l'E_l W_l) / tr(W_l'B_l W_l) + within * sum_l sum_i ||w_l^i|| + joint * sum_i ||w^i||         (objective)

Algorithm 1 does not minimise it. It fixes gamma_l at the smallest ratio of each task and descends on

    sum_l tr(W_l'(E_l - gamma_l B_l)W_l) + within * sum_l sum_i h(w_l^i) + joint * sum_i h(w^i),             (surrogate)

eq. (4), here with h(w) = sqrt(||w||^2 + eps^2). h lies below its parabola of curvature d = 1 / (2 h) at the last
iterate (eq. 3), and W_l is set to the eigenvectors of E_l - gamma_l B_l + within D_l + joint D for the smallest
eigenvalues (step 7), which minimises the parabolas' sum: the surrogate never increases, whatever the objective does.

Differently from the paper: E and B are divided by tr B; gamma is the smallest ratio on the range of B, shrunken if
wanted, and W_l may have one column fewer (see `trace_ratio_scatter`); eps keeps d finite; ``within``
and ``joint`` are the two strengths of eq. (1) (the printed mu = lambda_1 / lambda_2 of eq. 5 would have to be
lambda_2 / lambda_1 and only renames them); the start is the unpenalised solution, D = I, and not random. Features of
one group share one row length. There is no probability model behind a trace ratio, so that this route has no Bayesian
counterpart.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bayesmtfs.discriminative.trace_ratio_scatter import Scatter
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, IntArray


@dataclass(frozen=True)
class Settings:
    """Strengths of the two row penalties, eps relative to the average row, and when to stop."""

    within: float
    joint: float
    row_floor: float = 1e-3
    tol: float = 1e-6
    max_iter: int = 200


class Floors(NamedTuple):
    """eps: a row that is shorter counts as zero."""

    own: list[float]  # of each task's rows
    joint: float


class TraceRatioFit(NamedTuple):
    """What Algorithm 1 ends with."""

    W: list[FloatArray]  # per task (p, columns), orthonormal columns
    surrogate_trace: FloatArray  # never increases
    objective_trace: FloatArray  # eq. (1), which need not fall
    floors: Floors
    converged: bool
    n_iter: int


def row_lengths(W: FloatArray, groups: IntArray | None) -> FloatArray:
    """(p,) Euclidean length of each row; with groups, of all rows of the row's group together."""
    squares = np.sum(W**2, axis=1)
    return np.sqrt(squares if groups is None else np.bincount(groups, weights=squares)[groups])


def penalty(lengths: FloatArray, groups: IntArray | None, floor: float) -> float:
    """Sum of sqrt(length^2 + floor^2), once per group."""
    if groups is not None:
        lengths = lengths[np.unique(groups, return_index=True)[1]]
    return float(np.sum(np.hypot(lengths, floor)))


def find_floors(scatters: list[Scatter], share: float) -> Floors:
    """eps as a share of the root mean square row length, which orthonormal columns fix."""  # noqa: D403
    p, columns = scatters[0].n_features, [task.n_columns for task in scatters]
    return Floors([share * np.sqrt(max(c, 1) / p) for c in columns], share * np.sqrt(max(sum(columns), 1) / p))


class _Problem(NamedTuple):
    scatters: list[Scatter]
    groups: IntArray | None
    settings: Settings
    floors: Floors

    def penalties(self, W: list[FloatArray], smoothed: bool) -> float:
        """Both l2,1 terms with their strengths; smoothed ones are those of the surrogate."""
        floors = self.floors.own if smoothed else [0.0] * len(W)
        own = sum(penalty(row_lengths(w, self.groups), self.groups, f) for w, f in zip(W, floors, strict=True))
        floor = self.floors.joint if smoothed else 0.0
        joint = penalty(row_lengths(np.hstack(W), self.groups), self.groups, floor)
        return self.settings.within * own + self.settings.joint * joint

    def surrogate(self, W: list[FloatArray]) -> float:
        """Eq. (4) with smoothed norms."""
        difference = sum(task.difference(w) for task, w in zip(self.scatters, W, strict=True))
        return difference + self.penalties(W, smoothed=True)

    def objective(self, W: list[FloatArray]) -> float:
        """Eq. (1)."""
        ratios = [task.ratio(w) for task, w in zip(self.scatters, W, strict=True)]
        return float(np.nansum(ratios)) + self.penalties(W, smoothed=False)

    def update(self, W: list[FloatArray]) -> list[FloatArray]:
        """Steps 4 to 11 of Algorithm 1: new eigenvectors of every task at the weights of the last iterate."""
        s, shared = self.settings, row_lengths(np.hstack(W), self.groups)
        joint_weights = s.joint / (2.0 * np.hypot(shared, self.floors.joint))
        updated = []
        for task, w, floor in zip(self.scatters, W, self.floors.own, strict=True):
            weights = s.within / (2.0 * np.hypot(row_lengths(w, self.groups), floor)) + joint_weights
            updated.append(task.smallest_eigenvectors(weights, w) if task.n_columns else w)
        return updated


def random_start(scatters: list[Scatter], rng: np.random.RandomState) -> list[FloatArray]:
    """Orthonormal columns in the range of each task's rows."""
    drawn = [task.right.T @ rng.standard_normal((len(task.singular), task.n_columns)) for task in scatters]
    return [np.linalg.qr(W)[0] for W in drawn]


def solve(
    scatters: list[Scatter],
    settings: Settings,
    start: list[FloatArray] | None = None,
    groups: IntArray | None = None,
    progress: bool | None = False,
) -> TraceRatioFit:
    """Descend on the surrogate from the unpenalised solution, or from a given start.

    Parameters
    ----------
    scatters : one per task
    settings : strengths and stopping
    start : per task (p, columns) orthonormal columns
    groups : (p,) group of each feature
    progress : bool or None, see `bayesmtfs.progress`
    """
    problem = _Problem(scatters, groups, settings, find_floors(scatters, settings.row_floor))
    W = [task.unpenalised[1] for task in scatters] if start is None else start
    surrogates, objectives = [problem.surrogate(W)], [problem.objective(W)]
    # Without a penalty the unpenalised solution is the answer, and null directions of the data are not distinguished
    converged = settings.within == settings.joint == 0 and start is None
    with Progress("trace ratio", progress) as bar:
        try:
            while not converged and len(surrogates) <= settings.max_iter:
                W = problem.update(W)
                surrogates.append(problem.surrogate(W))
                objectives.append(problem.objective(W))
                converged = surrogates[-2] - surrogates[-1] <= settings.tol * abs(surrogates[-1])
                bar.update(len(surrogates) / settings.max_iter, f"surrogate {surrogates[-1]:.6g}")
        except KeyboardInterrupt:  # the rows so far are what there is
            converged = False
    traces = np.array(surrogates), np.array(objectives)
    return TraceRatioFit(W, *traces, problem.floors, bool(converged), len(surrogates) - 1)
