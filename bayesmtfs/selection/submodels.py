r"""Submodels: the posterior of all features projected onto some of them.

A draw (W, b, sigma) of the reference model is replaced by the parameters of the submodel whose predictions are closest
to its own, in Kullback-Leibler divergence at the observed rows (Goutis and Robert 1998, Biometrika 85;
Dupuis and Robert 2003, JSPI 111). Tasks separate. For numbers this is least squares of the fitted values, not of y,

    w_S, b_S = argmin sum_i v_i (eta_i - b - x_iS' w)^2,   sigma_S^2 = sigma^2 + mean_i (eta_i - eta_iS)^2,
    KL       = sum_t (n_t / 2) ln(sigma_tS^2 / sigma_t^2)

(Piironen, Paasiniemi and Vehtari 2020, EJS 14, section 3; v_i are the sample weights and n_t their sum). For labels
it is a logistic regression on the fitted probabilities, solved by Newton steps for all draws at once. Every task has a
noise of its own in the submodel, also where the tasks of the reference share one.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, xlogy

from bayesmtfs.data.inputs import Design
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.selection.draws import Draws
from bayesmtfs.selection.feature_span import DEPENDENT
from bayesmtfs.types import FloatArray, IntArray

MOST_STEPS = 60  # Newton steps of a logistic projection
MOST_HALVINGS = 12  # of a step that does not lower the divergence
SMALLEST_DECREASE = 1e-11  # of the divergence per unit of weight, at which a projection has converged
LEAST_CURVATURE = 1e-12
RIDGE = 1e-13


class Submodel(NamedTuple):
    """Projected draws of a submodel; all axes of tasks as in the data."""

    features: IntArray  # (k,)
    coef: FloatArray  # (S, k, m)
    intercept: FloatArray  # (S, m)
    noise: FloatArray | None  # (S, m); None for labels
    divergence: FloatArray  # (S,) Kullback-Leibler divergence from the reference, over all observations


class Projected(NamedTuple):
    """One task's part of a submodel."""

    coef: FloatArray  # (k, S)
    intercept: FloatArray  # (S,)
    noise: FloatArray  # (S,), ones for labels
    divergence: FloatArray  # (S,)


class Reference(NamedTuple):
    """What the reference model predicts at the observed rows."""

    eta: FloatArray  # (N, S) linear predictor
    noise: FloatArray | None  # (S, m); None for labels
    with_intercept: bool


def reference_of(data: TaskData, draws: Draws, loss: str) -> Reference:
    """Linear predictor of every draw at every observation."""
    parts = [np.asarray(X @ draws.coef[:, :, t].T) + draws.intercept[:, t] for t, X in enumerate(data.task_designs)]
    noise = np.ones(draws.intercept.shape) if draws.noise is None else draws.noise
    # a model without intercepts has zeros in all draws
    with_intercept = bool(np.any(draws.intercept != 0))
    return Reference(np.concatenate(parts), None if loss == "logistic" else noise, with_intercept)


def project(data: TaskData, reference: Reference, features: IntArray) -> Submodel:
    """Project every draw onto some of the features.

    Parameters
    ----------
    data : observations of the reference fit
    reference : what S draws predict for them
    features : (k,) numbers of the features that are kept

    Examples
    --------
    >>> import numpy as np
    >>> data = TaskData.from_long(np.eye(4)[:, :2] * 2.0, np.arange(4.0))
    >>> reference = Reference(data.design @ np.array([[3.0], [1.0]]), np.ones((1, 1)), with_intercept=False)
    >>> found = project(data, reference, np.array([0]))
    >>> found.coef.ravel(), found.noise.round(3).ravel()  # the columns are orthogonal
    (array([3.]), array([1.414]))
    """
    parts = []
    for t, (X, (start, stop)) in enumerate(zip(data.task_designs, data.spans, strict=True)):
        weight, eta, columns = data.weight[start:stop], reference.eta[start:stop], dense_columns(X, features)
        if reference.noise is None:
            parts.append(project_probabilities(columns, weight, expit(eta), reference.with_intercept))
        else:
            parts.append(project_numbers(columns, weight, eta, reference.noise[:, t], reference.with_intercept))
    return Submodel(
        features=features,
        coef=np.stack([part.coef.T for part in parts], axis=2),
        intercept=np.stack([part.intercept for part in parts], axis=1),
        noise=None if reference.noise is None else np.stack([part.noise for part in parts], axis=1),
        divergence=np.sum([part.divergence for part in parts], axis=0),
    )


def nested_submodels(data: TaskData, reference: Reference, steps: list[IntArray]) -> Iterator[Submodel]:
    """Project onto no feature, those of the first step, those of the first two steps and so on.

    Parameters
    ----------
    data, reference : as in `project`
    steps : numbers of the features that each step adds
    """
    chosen = np.empty(0, dtype=np.int64)
    yield project(data, reference, chosen)
    for step in steps:
        chosen = np.concatenate([chosen, step])
        yield project(data, reference, chosen)


def dense_columns(X: Design, features: IntArray) -> FloatArray:
    """(n, k) Some columns of a design, dense."""
    columns = X[:, features]
    return np.asarray(columns.toarray() if sp.issparse(columns) else columns, dtype=np.float64)


class _Columns(NamedTuple):
    """Basis of weighted columns, and the way from its coordinates to coefficients."""

    basis: FloatArray  # (n, r) orthonormal in the metric of the weights
    back: FloatArray  # (k + intercept, r)


def _columns_in_metric(columns: FloatArray, weight: FloatArray, with_intercept: bool) -> _Columns:
    """Singular value decomposition of the weighted columns, without directions that depend on the others."""
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
        return _Columns(basis, back)
    total = np.sqrt(weight.sum())
    constant = np.full((len(weight), 1), 1.0 / total)
    to_intercept = np.concatenate([[1.0 / total], -centre @ back])
    whole = np.vstack([np.column_stack([np.zeros(len(back)), back]), to_intercept])
    return _Columns(np.column_stack([constant, basis]), whole)


def _coefficients(columns: _Columns, coordinates: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """(k, S) coefficients and (S,) intercepts."""
    found = columns.back @ coordinates
    return found[:k], found[k] if len(found) > k else np.zeros(coordinates.shape[1])


def project_numbers(
    columns: FloatArray, weight: FloatArray, eta: FloatArray, noise: FloatArray, with_intercept: bool
) -> Projected:
    """Least squares of the fitted values of one task, draw by draw.

    Parameters
    ----------
    columns : (n, k) features of the submodel
    weight : (n,) of the rows
    eta : (n, S) fitted values
    noise : (S,) noise of the reference
    with_intercept : whether the submodel has an intercept
    """
    metric = _columns_in_metric(columns, weight, with_intercept)
    coordinates = metric.basis.T @ (weight[:, None] * eta)
    lost = weight @ np.square(eta - metric.basis @ coordinates) / weight.sum()
    coef, intercept = _coefficients(metric, coordinates, columns.shape[1])
    divergence = 0.5 * weight.sum() * np.log1p(lost / np.square(noise))
    return Projected(coef, intercept, np.sqrt(np.square(noise) + lost), divergence)


def project_probabilities(
    columns: FloatArray, weight: FloatArray, probability: FloatArray, with_intercept: bool
) -> Projected:
    """Logistic regression on the fitted probabilities of one task, all draws at once.

    Parameters
    ----------
    columns : (n, k) features of the submodel
    weight : (n,) of the rows
    probability : (n, S) of the label +1
    with_intercept : whether the submodel has an intercept
    """
    metric = _columns_in_metric(columns, weight, with_intercept)
    U = metric.basis
    coordinates, loss = _start(U, weight, probability)
    moving = np.arange(probability.shape[1])
    for _ in range(MOST_STEPS):
        step, decrease = _newton_step(U, weight, probability[:, moving], coordinates[:, moving])
        far = decrease > SMALLEST_DECREASE * weight.sum()
        moving, step = moving[far], step[:, far]
        if len(moving) == 0:
            break
        found, lower = _lowered(U, weight, probability[:, moving], coordinates[:, moving], step, loss[moving])
        better = lower < loss[moving]
        coordinates[:, moving[better]], loss[moving[better]] = found[:, better], lower[better]
        moving = moving[better]
    coef, intercept = _coefficients(metric, coordinates, columns.shape[1])
    entropy = weight @ (xlogy(probability, probability) + xlogy(1 - probability, 1 - probability))
    return Projected(coef, intercept, np.ones(len(loss)), np.maximum(loss + entropy, 0.0))


def _start(U: FloatArray, weight: FloatArray, probability: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weighted least squares of the linear predictor, exact for the reference itself; zeros where these are better."""
    share = np.clip(probability, LEAST_CURVATURE, 1.0 - LEAST_CURVATURE)
    curvature = weight[:, None] * share * (1.0 - share)
    target = U.T @ (curvature * np.log(share / (1.0 - share)))
    guess = _solve(U, curvature, target)
    at_guess = _cross_entropy(U @ guess, weight, probability)
    at_zero = _cross_entropy(np.zeros_like(probability), weight, probability)
    return np.where(at_guess < at_zero, guess, 0.0), np.minimum(at_guess, at_zero)


def _cross_entropy(eta: FloatArray, weight: FloatArray, probability: FloatArray) -> FloatArray:
    """(S,) Expected logistic loss of eta for labels of these probabilities."""
    return np.asarray(weight @ (np.logaddexp(0.0, eta) - probability * eta))


def _lowered(
    U: FloatArray, weight: FloatArray, probability: FloatArray, start: FloatArray, step: FloatArray, loss: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Take steps, halved until they lower the loss: (r, S) coordinates and (S,) losses."""
    length = np.ones(len(loss))
    for _ in range(MOST_HALVINGS):
        trial = start + length * step
        new = _cross_entropy(U @ trial, weight, probability)
        worse = new > loss
        if not worse.any():
            break
        length[worse] *= 0.5
    return trial, new


def _newton_step(
    U: FloatArray, weight: FloatArray, probability: FloatArray, coordinates: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(r, S) Newton steps, and (S,) by how much each is expected to lower the loss."""
    fitted = expit(U @ coordinates)
    curvature = weight[:, None] * np.maximum(fitted * (1.0 - fitted), LEAST_CURVATURE)
    gradient = U.T @ (weight[:, None] * (probability - fitted))
    step = _solve(U, curvature, gradient)
    return step, 0.5 * np.sum(gradient * step, axis=0)


def _solve(U: FloatArray, curvature: FloatArray, target: FloatArray) -> FloatArray:
    """(r, S) Solutions of ``U' diag(curvature_s) U x_s = target_s``."""
    hessian = np.matmul(U.T * curvature.T[:, None, :], U)  # (S, r, r)
    # a ridge below what rounding leaves, for rows whose label is all but certain
    hessian += RIDGE * np.trace(hessian, axis1=1, axis2=2)[:, None, None] * np.eye(U.shape[1])
    return np.linalg.solve(hessian, target.T[:, :, None])[:, :, 0].T


def log_densities(data: TaskData, model: Submodel, tasks: IntArray | None = None) -> FloatArray:
    """(S, N) Log-density of every observation under every draw of a submodel.

    Parameters
    ----------
    data : observations
    model : projected draws
    tasks : number, in the submodel, of each task of the data; None: they are the same
    """
    numbers = range(data.n_tasks) if tasks is None else tasks.tolist()
    return np.concatenate([task_log_densities(data, own, model, t) for own, t in enumerate(numbers)], axis=1)


def task_log_densities(data: TaskData, task: int, model: Submodel, number: int) -> FloatArray:
    """(S, n) Log-density of the observations of one task under every draw of a submodel.

    Parameters
    ----------
    data : observations
    task : number of the task in the data
    model : projected draws
    number : number of the task in the submodel
    """
    start, stop = data.spans[task]
    y = np.asarray(data.y[start:stop], dtype=np.float64)
    columns = dense_columns(data.task_designs[task], model.features)
    eta = model.coef[:, :, number] @ columns.T + model.intercept[:, number, None]
    if model.noise is None:
        return -np.logaddexp(0.0, -y * eta)
    sigma = model.noise[:, number, None]
    return -0.5 * np.square((y - eta) / sigma) - np.log(sigma * np.sqrt(2.0 * np.pi))


def reference_model(draws: Draws, loss: str) -> Submodel:
    """The reference itself, as the submodel of all features."""
    noise = np.ones(draws.intercept.shape) if draws.noise is None else draws.noise
    return Submodel(
        features=np.arange(draws.coef.shape[1]),
        coef=draws.coef,
        intercept=draws.intercept,
        noise=None if loss == "logistic" else noise,
        divergence=np.zeros(len(draws.coef)),
    )
