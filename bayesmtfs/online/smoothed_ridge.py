"""One linear fit with a ridge: the step in the weights of smoothed learners, and the fit of the simplest baselines.

    minimise  sum_i c_i l(y_i, x_i' w + b) + s/2 ||w||^2       over w and, unpenalised, b

Smooth losses: Newton's method with a line search, or L-BFGS where there are many features. Losses of two straight pieces
(hinge, absolute), and the epsilon-insensitive one: coordinate ascent on the dual (Hsieh, Chang, Lin, Keerthi and
Sundararajan 2008), whose constraint of the free intercept, ``sum_i beta_i = 0``, is met by the method of multipliers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numba import njit

from bayesmtfs.data.inputs import Design
from bayesmtfs.families import Absolute, EpsilonInsensitive, Family
from bayesmtfs.types import FloatArray

MANY_FEATURES = 500
MANY_ENTRIES = 10_000_000  # a sparse design beyond this is not made dense
HALVINGS = 30
SWEEPS = 20  # passes of coordinate ascent between two moves of the intercept


class RidgeFit(NamedTuple):
    """A fitted line."""

    w: FloatArray  # (p,)
    intercept: float
    dual: FloatArray  # (n,) start of the next fit; empty for smooth losses
    converged: bool


@dataclass(frozen=True)
class RidgeSettings:
    """How far to go."""

    strength: float
    fit_intercept: bool = True
    tol: float = 1e-8
    max_iter: int = 1000


def fit_smooth(
    X: Design, y: FloatArray, weight: FloatArray, family: Family, settings: RidgeSettings, start: RidgeFit | None
) -> RidgeFit:
    """Fit a smooth loss; ``weight`` (n,) are the factors c of the losses, ``start`` is an earlier fit."""
    many = X.shape[1] > MANY_FEATURES or (sp.issparse(X) and np.prod(X.shape) > MANY_ENTRIES)
    A = with_constant(X.toarray() if sp.issparse(X) and not many else X, settings.fit_intercept)
    ridge = np.full(A.shape[1], settings.strength)
    if settings.fit_intercept:
        ridge[-1] = 0.0
    z = np.zeros(A.shape[1])
    if start is not None:
        z[: X.shape[1]] = start.w
        z[X.shape[1] :] = start.intercept

    def objective(z: FloatArray) -> tuple[float, FloatArray]:
        eta = A @ z
        value = float(weight @ family.value(y, eta) + 0.5 * ridge @ z**2)
        return value, np.asarray(A.T @ (weight * family.gradient(y, eta))) + ridge * z

    def direction(z: FloatArray, gradient: FloatArray) -> FloatArray:
        H = (A.T * (weight * family.curvature(y, A @ z))) @ A + np.diag(ridge)
        # An intercept without any curvature (separable classes, no weight) must not make H singular
        H[np.diag_indices_from(H)] += 1e-12 * (1.0 + np.trace(H))
        return np.linalg.solve(H, gradient)

    if many:
        z, converged = _quasi_newton(objective, z, settings)
    else:
        z, converged, _ = newton(objective, direction, z, settings)
    w = z[: X.shape[1]]
    return RidgeFit(w, float(z[-1]) if settings.fit_intercept else 0.0, np.empty(0), converged)


def with_constant(X: Design, fit_intercept: bool) -> Design:
    """A design with a last column of ones, if asked."""
    if not fit_intercept:
        return X
    ones = np.ones((X.shape[0], 1))
    return sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.hstack([X, ones])


def newton(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    direction: Callable[[FloatArray, FloatArray], FloatArray],
    z: FloatArray,
    settings: RidgeSettings,
) -> tuple[FloatArray, bool, int]:
    """Steps from z and the gradient until their decrement is a share tol of the objective: z, whether it is, and steps."""
    value, gradient = objective(z)
    for number in range(settings.max_iter):
        step = direction(z, gradient)
        decrease = float(np.vdot(gradient, step))
        if decrease <= settings.tol**2 * (1.0 + abs(value)):
            return z, True, number
        length = 1.0
        for _ in range(HALVINGS):
            trial, slope = objective(z - length * step)
            if trial <= value - 1e-4 * length * decrease:
                break
            length *= 0.5
        else:
            return z, True, number  # no step decreases the objective any more: rounding
        z, value, gradient = z - length * step, trial, slope
    return z, False, settings.max_iter


def _quasi_newton(objective: Any, z: FloatArray, settings: RidgeSettings) -> tuple[FloatArray, bool]:
    found = scipy.optimize.minimize(
        objective,
        z,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 10 * settings.max_iter, "gtol": settings.tol, "ftol": 1e-15, "maxcor": 20},
    )
    # Status 2 is a line search that cannot go further in double precision
    return found.x, found.status in (0, 2)


def fit_kinked(
    X: Design, y: FloatArray, weight: FloatArray, family: Family, settings: RidgeSettings, start: RidgeFit | None
) -> RidgeFit:
    """Fit a loss of two straight pieces, or the epsilon-insensitive one; arguments as in `fit_smooth`."""
    epsilon = family.epsilon if isinstance(family, EpsilonInsensitive) else 0.0
    place, left, right = (Absolute() if isinstance(family, EpsilonInsensitive) else family).kinks(y)
    rows, s = sp.csr_matrix(X, dtype=np.float64), settings.strength
    lower, upper = -weight * right, -weight * left
    lengths = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    pace = lengths.mean() / s if settings.fit_intercept else 0.0
    dual = np.zeros(len(y)) if start is None or len(start.dual) != len(y) else np.clip(start.dual, lower, upper)
    anchor = 0.0 if start is None else start.intercept
    w = np.asarray(rows.T @ dual) / s
    largest = max(float(np.abs(place).max()), 1.0)
    for _ in range(settings.max_iter):
        intercept = anchor + pace * dual.sum()
        change = _sweep(
            rows.data, rows.indices, rows.indptr, place, lower, upper, lengths, epsilon, s, pace, dual, w, intercept
        )
        moved = pace * dual.sum()
        anchor += moved
        if change <= settings.tol * largest and abs(moved) <= settings.tol * largest:
            return RidgeFit(w, float(anchor), dual, True)
    return RidgeFit(w, float(anchor), dual, False)


@njit(cache=True, nogil=True, error_model="numpy")
def _sweep(
    values: FloatArray,
    features: Any,
    pointer: Any,
    place: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    lengths: FloatArray,
    epsilon: float,
    strength: float,
    pace: float,
    dual: FloatArray,
    w: FloatArray,
    intercept: float,
) -> float:
    """Passes of coordinate ascent on dual and w; the largest change of a row's score by its own step in the last."""
    change = 0.0
    for _ in range(SWEEPS):
        change = 0.0
        for i in range(place.size):
            score = intercept
            for e in range(pointer[i], pointer[i + 1]):
                score += values[e] * w[features[e]]
            curvature = lengths[i] / strength + pace
            if curvature == 0.0 or lower[i] == upper[i]:
                continue
            target = dual[i] - (score - place[i]) / curvature
            target = np.sign(target) * max(abs(target) - epsilon / curvature, 0.0)
            step = min(max(target, lower[i]), upper[i]) - dual[i]
            if step != 0.0:
                dual[i] += step
                intercept += pace * step
                for e in range(pointer[i], pointer[i + 1]):
                    w[features[e]] += step * values[e] / strength
                change = max(change, abs(step) * curvature)
    return change
