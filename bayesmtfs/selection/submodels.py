r"""Submodels: the posterior of all features projected onto some of them, and the order in which features enter.

A draw (W, b, sigma) of the reference model is replaced by the parameters of the submodel whose predictions are closest
to its own, in Kullback-Leibler divergence at the observed rows (Goutis and Robert 1998, Biometrika 85;
Dupuis and Robert 2003, JSPI 111). Tasks separate. For squared loss this is least squares of the fitted values, not of y,

    w_S, b_S = argmin sum_i v_i (eta_i - b - x_iS' w)^2,   sigma_S^2 = sigma^2 + mean_i (eta_i - eta_iS)^2,
    KL       = sum_t (n_t / 2) ln(sigma_tS^2 / sigma_t^2)

(Piironen, Paasiniemi and Vehtari 2020, EJS 14, section 3; v_i are the sample weights and n_t their sum). For labels and
counts it minimises the expected loss of the submodel under the targets of the reference,

    w_S, b_S = argmin sum_i v_i E[ loss(y_i, b + x_iS' w) ],   y_i of the mean mu(eta_i),

by Newton steps for all draws at once: a regression on the fitted means (exact for labels, and for counts of a
generalised linear model, whose loss is linear in the target but for what does not depend on eta). Every task has a
noise of its own in the submodel, also where the tasks of the reference share one.

The search sums the reference up by its mean fit (one cluster of draws, in the words of Piironen et al.): the posterior
mean of the linear predictor, with the noise widened by its spread, ``s_t^2 = E sigma_t^2 + mean_i Var(eta_i)``, or the
mean of the fitted means. From no feature at all, the one (or the group) enters that lowers the Kullback-Leibler
divergence summed over tasks the most,

    squared loss   sum_t (n_t / 2) ln(1 + d_t / s_t^2),  d_t the mean squared difference of the two fits: exact
    others         the decrease of a Newton step from the current submodel (the score statistic, summed over tasks);
                   the submodel is fitted exactly after every choice

so that all tasks have a say in every feature: a weak effect in many tasks counts as much as a strong one in few.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from bayesmtfs.data.inputs import Design
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.selection.draws import CoefficientDraws
from bayesmtfs.types import FloatArray, IntArray

DEPENDENT = 1e-8  # length that is left of a unit column, below which it lies in the span
MOST_STEPS = 60  # Newton steps of a projection
MOST_HALVINGS = 12  # of a step that does not lower the divergence
SMALLEST_DECREASE = 1e-11  # of the divergence per unit of weight, at which a projection has converged
LEAST_CURVATURE = 1e-12
LEAST_CURVATURE_OF_SEARCH = 1e-10
RIDGE = 1e-13
EXPLAINED = 1e-9  # divergence left, as a share of that of the empty model, at which the search ends


class ReferenceFit(NamedTuple):
    """What the reference model predicts at the observed rows."""

    family: Family
    eta: FloatArray  # (N, S) linear predictor
    noise: FloatArray | None  # (S, m); None for families without one
    with_intercept: bool


class Submodel(NamedTuple):
    """Projected draws of a submodel; all axes of tasks as in the data."""

    family: Family
    features: IntArray  # (k,)
    coef: FloatArray  # (S, k, m)
    intercept: FloatArray  # (S, m)
    noise: FloatArray | None  # (S, m); None for families without one
    divergence: FloatArray  # (S,) Kullback-Leibler divergence from the reference, over all observations


# One task's part of a submodel: coefficients (k, S); intercepts, noise (1 for families without one) and divergences (S,)
_TaskProjection = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


def check_can_be_projected(family: Family) -> None:
    """Refuse a family whose projections are not known."""
    family.require("Projection-predictive selection", "mean", "log_density", "curvature")
    if not family.quadratic and not (family.smooth and family.targets in ("labels", "counts")):
        raise ValueError(
            f"Projection-predictive selection needs squared loss, or a smooth loss of labels or counts, but loss is "
            f"{family.name!r}; use `selection.effects` or `selection.discoveries`, which take any posterior"
        )


def reference_of(data: TaskData, draws: CoefficientDraws, family: Family) -> ReferenceFit:
    """Linear predictor of every draw at every observation."""
    parts = [np.asarray(X @ draws.coef[:, :, t].T) + draws.intercept[:, t] for t, X in enumerate(data.task_designs)]
    # a model without intercepts has zeros in all draws
    with_intercept = bool(np.any(draws.intercept != 0))
    return ReferenceFit(family, np.concatenate(parts), _noise_of(draws, family), with_intercept)


def reference_model(draws: CoefficientDraws, family: Family) -> Submodel:
    """The reference itself, as the submodel of all features."""
    features, nothing = np.arange(draws.coef.shape[1]), np.zeros(len(draws.coef))
    return Submodel(family, features, draws.coef, draws.intercept, _noise_of(draws, family), nothing)


def _noise_of(draws: CoefficientDraws, family: Family) -> FloatArray | None:
    """(S, m) Noise of the draws, ones where the model holds it fixed; None for families without one."""
    if not family.has_noise:
        return None
    return np.ones(draws.intercept.shape) if draws.noise is None else draws.noise


def project(data: TaskData, reference: ReferenceFit, features: IntArray) -> Submodel:
    """Project every draw onto some of the features."""
    parts = []
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        weight, eta, columns = data.weight[start:stop], reference.eta[start:stop], dense_columns(X, features)
        if reference.noise is None:
            parts.append(_project_means(reference.family, columns, weight, eta, reference.with_intercept))
        else:
            parts.append(_project_squares(columns, weight, eta, reference.noise[:, t], reference.with_intercept))
    coef, intercept, noise, divergence = zip(*parts, strict=True)
    draws = np.stack([own.T for own in coef], axis=2), np.stack(intercept, axis=1)
    own_noise = None if reference.noise is None else np.stack(noise, axis=1)
    return Submodel(reference.family, features, *draws, own_noise, np.sum(divergence, axis=0))


def nested_submodels(data: TaskData, reference: ReferenceFit, steps: list[IntArray]) -> Iterator[Submodel]:
    """Project onto no feature, those of the first step, those of the first two steps and so on."""
    chosen = np.empty(0, dtype=np.int64)
    yield project(data, reference, chosen)
    for step in steps:
        chosen = np.concatenate([chosen, step])
        yield project(data, reference, chosen)


def log_densities(data: TaskData, model: Submodel, tasks: IntArray | None = None) -> FloatArray:
    """(S, N) Log-density of every observation under every draw.

    ``tasks`` are the numbers of the data's tasks in the model (None: they are the same).
    """
    numbers = range(data.n_tasks) if tasks is None else tasks.tolist()
    return np.concatenate([task_log_densities(data, own, model, t) for own, t in enumerate(numbers)], axis=1)


def task_log_densities(data: TaskData, task: int, model: Submodel, number: int) -> FloatArray:
    """(S, n) Log-density of the observations of one task, which has another number in the model, under every draw."""
    start, stop = data.spans[task]
    y = np.asarray(data.y[start:stop], dtype=np.float64)
    columns = dense_columns(data.task_designs[task], model.features)
    eta = model.coef[:, :, number] @ columns.T + model.intercept[:, number, None]
    return model.family.log_density(y, eta, 1.0 if model.noise is None else model.noise[:, number, None])


def dense_columns(X: Design, features: IntArray) -> FloatArray:
    """(n, k) Some columns of a design, dense."""
    columns = X[:, features]
    return np.asarray(columns.toarray() if sp.issparse(columns) else columns, dtype=np.float64)


def _columns_in_metric(columns: FloatArray, weight: FloatArray, with_intercept: bool) -> tuple[FloatArray, FloatArray]:
    """(n, r) basis of the columns, orthonormal in the metric of the weights, and the way (k + intercept, r) back.

    By the singular values of the weighted columns, without directions that depend on the others.
    """
    root = np.sqrt(weight)[:, None]
    length = np.sqrt(weight @ np.square(columns))
    length = np.where(length > 0, length, 1.0)
    centre = weight @ columns / weight.sum() if with_intercept else np.zeros(columns.shape[1])
    spread = np.sqrt(weight @ np.square(columns - centre))
    # what is left of a constant column is rounding error
    unit = np.where(spread > DEPENDENT * length, spread, np.inf)
    left, size, right = np.linalg.svd(root * (columns - centre) / unit, full_matrices=False)
    kept = size > DEPENDENT
    back = right[kept].T / size[kept] / unit[:, None]
    basis = left[:, kept] / root
    if not with_intercept:
        return basis, back
    total = np.sqrt(weight.sum())
    constant = np.full((len(weight), 1), 1.0 / total)
    to_intercept = np.concatenate([[1.0 / total], -centre @ back])
    whole = np.vstack([np.column_stack([np.zeros(len(back)), back]), to_intercept])
    return np.column_stack([constant, basis]), whole


def _coefficients(back: FloatArray, coordinates: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """(k, S) coefficients and (S,) intercepts."""
    found = back @ coordinates
    return found[:k], found[k] if len(found) > k else np.zeros(coordinates.shape[1])


def _project_squares(
    columns: FloatArray, weight: FloatArray, eta: FloatArray, noise: FloatArray, with_intercept: bool
) -> _TaskProjection:
    """Least squares of the fitted values (n, S) of one task on columns (n, k), draw by draw."""
    U, back = _columns_in_metric(columns, weight, with_intercept)
    coordinates = U.T @ (weight[:, None] * eta)
    lost = weight @ np.square(eta - U @ coordinates) / weight.sum()
    coef, intercept = _coefficients(back, coordinates, columns.shape[1])
    divergence = 0.5 * weight.sum() * np.log1p(lost / np.square(noise))
    return coef, intercept, np.sqrt(np.square(noise) + lost), divergence


def _project_means(
    family: Family, columns: FloatArray, weight: FloatArray, eta: FloatArray, with_intercept: bool
) -> _TaskProjection:
    """Regression of the fitted means of one task on columns (n, k), all draws (n, S) of eta at once."""
    U, back = _columns_in_metric(columns, weight, with_intercept)
    with np.errstate(over="ignore", invalid="ignore"):  # steps that are too long are halved
        problem = _MeanRegression(family, weight, family.mean(eta))
        coordinates, loss = _start(problem, U, eta)
        moving = np.arange(eta.shape[1])
        for _ in range(MOST_STEPS):
            step, decrease = _newton_step(problem.of_draws(moving), U, coordinates[:, moving])
            far = decrease > SMALLEST_DECREASE * weight.sum()
            moving, step = moving[far], step[:, far]
            if len(moving) == 0:
                break
            found, lower = _lowered(problem.of_draws(moving), U, coordinates[:, moving], step, loss[moving])
            better = lower < loss[moving]
            coordinates[:, moving[better]], loss[moving[better]] = found[:, better], lower[better]
            moving = moving[better]
    coef, intercept = _coefficients(back, coordinates, columns.shape[1])
    return coef, intercept, np.ones(len(loss)), np.maximum(loss - problem.loss(eta), 0.0)


class _MeanRegression(NamedTuple):
    """Expected loss of linear predictors for targets of given means, one column per draw."""

    family: Family
    weight: FloatArray  # (n,)
    mean: FloatArray  # (n, S)

    def of_draws(self, kept: IntArray) -> "_MeanRegression":
        return self._replace(mean=self.mean[:, kept])

    def loss(self, eta: FloatArray) -> FloatArray:
        """(S,) Expected loss."""
        return np.asarray(self.weight @ self.family.expected_loss(self.mean, eta))

    def slope(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n, S) First derivative of the loss in eta, and second, above 0."""
        gradient, curvature = self.family.expected_slope(self.mean, eta)
        weight = self.weight[:, None]
        return weight * gradient, weight * np.maximum(curvature, LEAST_CURVATURE)


def _start(problem: _MeanRegression, U: FloatArray, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted least squares of the linear predictor, exact for the reference itself; zeros where these are better."""
    curvature = problem.slope(eta)[1]
    guess = _solve(U, curvature, U.T @ (curvature * eta))
    at_guess, at_zero = problem.loss(U @ guess), problem.loss(np.zeros_like(eta))
    better = at_guess < at_zero
    return np.where(better, guess, 0.0), np.where(better, at_guess, at_zero)


def _lowered(
    problem: _MeanRegression, U: FloatArray, start: FloatArray, step: FloatArray, loss: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Take steps, halved until they lower the loss: (r, S) coordinates and (S,) losses."""
    length = np.ones(len(loss))
    for _ in range(MOST_HALVINGS):
        trial = start + length * step
        new = problem.loss(U @ trial)
        worse = ~(new <= loss)
        if not worse.any():
            break
        length[worse] *= 0.5
    return trial, new


def _newton_step(problem: _MeanRegression, U: FloatArray, coordinates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(r, S) Newton steps, and (S,) by how much each is expected to lower the loss."""
    eta = U @ coordinates
    gradient, curvature = problem.slope(eta)
    descent = -(U.T @ gradient)
    step = _solve(U, curvature, descent)
    return step, 0.5 * np.sum(descent * step, axis=0)


def _solve(U: FloatArray, curvature: FloatArray, target: FloatArray) -> FloatArray:
    """(r, S) Solutions of ``U' diag(curvature_s) U x_s = target_s``."""
    hessian = np.matmul(U.T * curvature.T[:, None, :], U)  # (S, r, r)
    # a ridge below what rounding leaves, for rows whose target is all but certain
    hessian += RIDGE * np.trace(hessian, axis1=1, axis2=2)[:, None, None] * np.eye(U.shape[1])
    return np.linalg.solve(hessian, target.T[:, :, None])[:, :, 0].T


class SearchPath(NamedTuple):
    """Features in the order in which they enter."""

    steps: list[IntArray]  # numbers of the features that enter together
    divergence: FloatArray  # (steps + 1,) of the mean fit


def feature_blocks(data: TaskData) -> list[IntArray]:
    """Numbers of the features that enter together: single features, or the user's groups."""
    if data.groups is None:
        return [np.array([i]) for i in range(data.n_features)]
    return [np.flatnonzero(data.groups == label) for label in dict.fromkeys(data.groups.tolist())]


def forward_search(data: TaskData, reference: ReferenceFit, n_steps: int) -> SearchPath:
    """Let at most so many features (or groups) enter one by one."""
    blocks = feature_blocks(data)
    noise = reference.noise
    mean_fit = _MeanMeans(data, reference) if noise is None else _MeanSquares(data, reference, noise)
    entered: list[int] = []
    divergence = [mean_fit.divergence()]
    while len(entered) < n_steps and divergence[-1] > EXPLAINED * divergence[0]:
        after = mean_fit.divergences_with(blocks)
        after[entered] = np.inf
        best = int(np.argmin(after))
        if not after[best] < divergence[-1]:
            break
        entered.append(best)
        mean_fit.add(blocks[best])
        divergence.append(mean_fit.divergence())
    return SearchPath([blocks[number] for number in entered], np.array(divergence))


class _MeanSquares:
    """Submodel of the mean fit under squared loss, as it grows."""

    def __init__(self, data: TaskData, reference: ReferenceFit, noise: FloatArray) -> None:
        mean, spread = reference.eta.mean(axis=1), reference.eta.var(axis=1)
        self.total = data.task_weights
        widened = np.add.reduceat(data.weight * spread, data.offsets[:-1]) / self.total
        self.variance = np.mean(np.square(noise), axis=0) + widened
        parts = zip(data.task_designs, np.split(data.weight, data.offsets[1:-1]), strict=True)
        self.spans = [FeatureSpan(X, weight, reference.with_intercept) for X, weight in parts]
        means = np.split(mean, data.offsets[1:-1])
        self.residuals = [span.residual(own) for span, own in zip(self.spans, means, strict=True)]

    def divergence(self) -> float:
        return float(self._divergences([np.array([residual @ residual]) for residual in self.residuals])[0])

    def divergences_with(self, blocks: list[IntArray]) -> FloatArray:
        """(blocks,) Divergence of the submodel with each block added."""
        pairs = zip(self.spans, self.residuals, strict=True)
        return self._divergences([residual @ residual - span.gains(residual, blocks) for span, residual in pairs])

    def _divergences(self, squares: list[FloatArray]) -> FloatArray:
        """Divergences that go with squared lengths of the residuals, an array per task."""
        scaled = np.maximum(squares, 0.0) / (self.total * self.variance)[:, None]
        return np.asarray(0.5 * self.total @ np.log1p(scaled))

    def add(self, block: IntArray) -> None:
        for t, span in enumerate(self.spans):
            span.add(block)
            self.residuals[t] = span.residual(self.residuals[t] / span.root)


class _MeanMeans:
    """Submodel of the mean of the fitted means, as it grows."""

    def __init__(self, data: TaskData, reference: ReferenceFit) -> None:
        self.data = data
        self.family = family = reference.family
        self.target = family.mean(reference.eta).mean(axis=1)
        eta = _eta_of_mean(family, self.target, reference.eta.mean(axis=1))
        self.mean = ReferenceFit(family, eta[:, None], None, reference.with_intercept)
        self.chosen = np.empty(0, dtype=np.int64)
        self._fit()

    def _fit(self) -> None:
        self.model = project(self.data, self.mean, self.chosen)
        W = np.zeros((self.data.n_features, self.data.n_tasks))
        W[self.chosen] = self.model.coef[0]
        self.eta = self.data.linear_predictor(W, self.model.intercept[0])

    def divergence(self) -> float:
        return float(self.model.divergence[0])

    def divergences_with(self, blocks: list[IntArray]) -> FloatArray:
        """(blocks,) Divergence of the submodel with each block added, after one Newton step."""
        gains = np.zeros(len(blocks))
        gradient, curvature = self.family.expected_slope(self.target, self.eta)
        curvature = np.maximum(curvature, LEAST_CURVATURE_OF_SEARCH)
        working = -gradient / curvature
        for X, (start, stop) in zip(self.data.task_designs, self.data.spans, strict=True):
            weight = self.data.weight[start:stop] * curvature[start:stop]
            span = FeatureSpan(X, weight, self.mean.with_intercept)
            span.add(self.chosen)
            gains += span.gains(span.residual(working[start:stop]), blocks)
        return self.divergence() - 0.5 * gains

    def add(self, block: IntArray) -> None:
        self.chosen = np.concatenate([self.chosen, block])
        self._fit()


def _eta_of_mean(family: Family, mean: FloatArray, start: FloatArray) -> FloatArray:
    """(n,) Linear predictors of these means, by Newton steps of at most 1."""
    eta = start
    for _ in range(MOST_STEPS):
        gradient, curvature = family.expected_slope(mean, eta)
        step = -gradient / np.maximum(curvature, LEAST_CURVATURE)
        eta = eta + np.clip(step, -1.0, 1.0)
        if np.abs(step).max() < 1e-12:
            break
    return eta


class FeatureSpan:
    """Span of the chosen features of one task: a growing orthonormal basis in the metric of row weights.

    For weights v and features X the basis Q spans ``sqrt(v) [1, X_S]``. For a residual h orthogonal to it, the square
    that a further feature j takes off ``||h||^2`` is

        (x_j' sqrt(v) h)^2 / ||(I - Q Q') sqrt(v) x_j||^2,

    the step of orthogonal least squares (Chen, Billings and Luo 1989, International Journal of Control 50). The
    squared lengths in the denominator are kept up to date as the basis grows: O(n p) per feature, without a Gram
    matrix.
    """

    def __init__(self, X: Design, weight: FloatArray, with_intercept: bool) -> None:
        self.root = np.sqrt(weight)
        self.X = X
        if with_intercept and not sp.issparse(X):  # a large mean would cost digits in the lengths that are left
            self.X = X - weight @ X / weight.sum()
        squared = self.X.multiply(self.X) if sp.issparse(X) else np.square(self.X)
        self.length: FloatArray = np.asarray(np.sqrt(weight @ squared)).ravel()
        self.left: FloatArray = np.square(self.length)
        self.basis: FloatArray = np.empty((len(weight), 0))
        if with_intercept:
            self._extend(self.root[:, None])

    def add(self, features: IntArray) -> None:
        """Take features into the span."""
        self._extend(self._columns(features))

    def residual(self, values: FloatArray) -> FloatArray:
        """(n,) What the span does not explain of sqrt(v) times the values."""
        scaled = self.root * values
        return scaled - self.basis @ (self.basis.T @ scaled)

    def gains(self, residual: FloatArray, blocks: list[IntArray]) -> FloatArray:
        """(blocks,) How much each block of features takes off the squared length of a residual of this span."""
        score = np.asarray(self.X.T @ (self.root * residual)).ravel()
        free = self.left > np.square(DEPENDENT * self.length)
        single = np.zeros(len(score))
        single[free] = np.square(score[free]) / self.left[free]
        return np.array([single[block[0]] if len(block) == 1 else self._gain(residual, block) for block in blocks])

    def _gain(self, residual: FloatArray, block: IntArray) -> float:
        return float(np.sum(np.square(orthonormal(self._columns(block), self.basis).T @ residual)))

    def _columns(self, features: IntArray) -> FloatArray:
        return self.root[:, None] * dense_columns(self.X, features)

    def _extend(self, columns: FloatArray) -> None:
        new = orthonormal(columns, self.basis)
        self.basis = np.column_stack([self.basis, new])
        explained = np.asarray(self.X.T @ (self.root[:, None] * new))
        self.left = np.maximum(self.left - np.sum(np.square(explained), axis=1), 0.0)


def orthonormal(columns: FloatArray, basis: FloatArray) -> FloatArray:
    """(n, r) Orthonormal basis of what columns add to a span, r at most their number."""
    length = np.linalg.norm(columns, axis=0)
    unit = columns[:, length > 0] / length[length > 0]
    for _ in range(2):  # once more for what rounding left
        unit = unit - basis @ (basis.T @ unit)
    left, size, _ = np.linalg.svd(unit, full_matrices=False)
    return left[:, size > DEPENDENT]
