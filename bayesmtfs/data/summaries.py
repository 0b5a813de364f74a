r"""What published summaries say of one task: its scatter, and whether a correlation matrix fits the z-scores.

A regression of the target on one feature and an intercept, over n rows, gives the effect b, its standard error and
``z = b / se``. They are functions of the correlation r with the target and of the deviations (with divisor n),

.. math::

   r = \frac{z}{\sqrt{z^2 + n - 2}}, \qquad b = r \frac{s_y}{s_x}, \qquad
   se = \frac{s_y}{s_x} \sqrt{\frac{1 - r^2}{n - 2}},

so that z and the correlations R of the features give the scatter of all of them, in units of the deviations: exactly
that of the rows where R is that of the same rows. Where R comes from other people (a reference panel) it may not fit.
With z for ``r sqrt(n - 1)``, noise acts on z along R and effects of variance t along R^2, both little along the small
eigenvalues; what z has there tells whether a share s of R is itself noise,

.. math:: z \sim N\bigl(0, (1 - s)(R + t R^2) + s I\bigr),

by the log-likelihood ratio of the best s against the best one that printed digits explain. And a feature whose z-score
the others predict with the wrong sign, ``z_j | z_{-j} ~ N(m_j, v_j)`` with the log ratio ``-2 z_j m_j / v_j`` of the
densities at ``-z_j`` and ``z_j``, has its alleles switched or belongs to another matrix.

After Zou, Carbonetto, Wang and Stephens (2022, PLOS Genetics 18:e1010299), whose estimate of s has no term for effects:
without it strong effects pass for noise of the matrix.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data.frames import column_names, column_values, is_frame
from bayesmtfs.types import BoolArray, DataWarning, FloatArray, IntArray, warn

CLEAR = 4.0  # log-likelihood ratio from which on a matrix does not fit
SWITCHED = 12.0  # log ratio of densities from which on a sign does not fit
LEAST_Z = 2.0  # of a switched feature
ROUNDING_NOISE = 1e-3  # share that printed digits may bring
SHARES = np.concatenate([[0.0], np.logspace(-5, 0, 41)])  # grid of s
EFFECTS = np.concatenate([[0.0], np.logspace(-2, 4, 31)])  # grid of t
FLOOR = 1e-12  # of eigenvalues
RANK_TOLERANCE = 1e-8
WHOLE = 1.0 + 1e-6  # R^2 of a fit without residuals, with rounding


class TaskSummary(NamedTuple):
    """What summaries say of one task."""

    n: float
    scatter: FloatArray  # (p + 1, p + 1), the target last; 0 of features that the task does not have
    present: BoolArray  # (p,)


class Spectrum(NamedTuple):
    """Eigenvalues (p,), ascending, and eigenvectors (p, p) of a correlation matrix."""

    values: FloatArray
    vectors: FloatArray


class Agreement(NamedTuple):
    """How well a correlation matrix fits z-scores."""

    ratio: float  # log-likelihood ratio of a matrix that is partly noise against one that is not
    doubtful: IntArray  # numbers of the features that the others predict worst; none where the matrix fits
    shrinkage: float  # share of the identity with which there are data that have these correlations, mostly 0
    enlarged: float  # factor of the target's variance for that, mostly 1


def marginal_correlation(z: FloatArray, n: float) -> FloatArray:
    """Correlation with the target, of a z-score from a regression with an intercept over n rows.

    Examples
    --------
    >>> marginal_correlation(np.array([3.0]), 11).round(4)
    array([0.7071])
    """
    return np.asarray(z / np.sqrt(np.square(z) + n - 2.0))


def implied_deviations(standard_error: FloatArray, r: FloatArray, n: float, target_deviation: float) -> FloatArray:
    """Deviation of each feature that its standard error implies."""
    return target_deviation * np.sqrt((1.0 - np.square(r)) / (n - 2.0)) / standard_error


def joint_correlations(R: FloatArray, r: FloatArray, fit: "Agreement") -> FloatArray:
    """(p + 1, p + 1) Correlations of features and target, such that there are data that have them."""
    shrunk = (1.0 - fit.shrinkage) * R + fit.shrinkage * np.eye(len(R))
    return np.block([[shrunk, r[:, None]], [r[None, :], np.full((1, 1), fit.enlarged)]])


def read_task(
    label: Any,
    names: NDArray[np.str_],
    correlation: FloatArray,
    n: FloatArray,
    z: FloatArray | None = None,
    effects: FloatArray | None = None,
    standard_errors: FloatArray | None = None,
    target_deviation: FloatArray | None = None,
    feature_deviations: FloatArray | None = None,
) -> TaskSummary:
    """Scatter of one task, of (p,) z-scores or effects and standard errors, NaN where it does not have a feature."""
    rows, height = float(n), 1.0 if target_deviation is None else float(target_deviation)
    if not 2 < rows < np.inf:
        raise ValueError(f"n is {rows:g} in task {label!r}; pass its number of rows, more than 2")
    if z is None:
        z = _ratio(effects, standard_errors, label)
    present = ~np.isnan(z)
    r = marginal_correlation(z[present], rows)
    if feature_deviations is not None:
        widths = feature_deviations[present]
    elif standard_errors is not None:
        widths = implied_deviations(standard_errors[present], r, rows, height)
    else:
        widths = np.ones(len(r))
    R = _checked(correlation[np.ix_(present, present)], label)
    fit = agreement(Spectrum(*np.linalg.eigh(R)), r, rows)
    _warn_of_misfit(fit, label, names[present])
    kept, whole = np.append(present, True), np.zeros((len(names) + 1, len(names) + 1))
    deviations = np.append(widths, height)
    whole[np.ix_(kept, kept)] = rows * joint_correlations(R, r, fit) * np.outer(deviations, deviations)
    return TaskSummary(rows, whole, present)


def _ratio(effects: Any, standard_errors: Any, label: Any) -> FloatArray:
    if np.any(standard_errors <= 0):
        raise ValueError(f"standard_errors of task {label!r} has entries of 0 or less; NaN is for an absent feature")
    return np.asarray(effects / standard_errors)


def _checked(R: FloatArray, label: Any) -> FloatArray:
    if not np.isfinite(R).all() or not np.allclose(R, R.T, atol=1e-6) or not np.allclose(np.diagonal(R), 1, atol=1e-6):
        raise ValueError(
            f"correlation of task {label!r} is no correlation matrix: it must be finite and symmetric with 1 on its "
            "diagonal; divide a covariance by the deviations"
        )
    return R


def _warn_of_misfit(fit: "Agreement", label: Any, names: NDArray[np.str_]) -> None:
    if len(fit.doubtful) == 0:
        return
    shrunk = f"; it is shrunk by {fit.shrinkage:.2g} to the identity, as no data have it" if fit.shrinkage else ""
    listed = ", ".join(names[fit.doubtful[:5]])
    warn(
        f"task {label!r}: the correlation matrix does not fit the z-scores (one that is partly noise has a "
        f"log-likelihood larger by {fit.ratio:.3g}{shrunk}); least of all fit {listed}: check the signs (alleles) of these "
        "features, and use correlations of the same rows, or of more people of the same population",
        DataWarning,
    )


# ---------------------------------------------------------------------- one array per task


def labels_of(values: Any, tasks: Sequence[Any] | None) -> list[Any]:
    """Labels of the tasks: keys, columns of a frame, as told, or numbers."""
    if is_frame(values):
        return list(column_names(values))
    if isinstance(values, Mapping):
        return list(values)
    several = isinstance(values, list | tuple) and np.ndim(values[0]) == 1
    n_tasks = len(values) if several else 1 if np.ndim(values) == 1 else np.shape(values)[1]
    labels = list(range(n_tasks)) if tasks is None else list(tasks)
    if len(labels) != n_tasks:
        raise ValueError(f"tasks has {len(labels)} labels but there are {n_tasks} tasks; pass one label per task")
    return labels


def n_features_of(correlation: Any) -> int:
    """Number of features of a matrix, or of one per task."""
    if isinstance(correlation, Mapping):
        correlation = next(iter(correlation.values()))
    shape = np.shape(correlation)
    return int(shape[-1]) if shape else 0


def per_task(name: str, values: Any, labels: list[Any], shape: tuple[int, ...]) -> list[FloatArray] | None:
    """An array of this shape for every task, of one for all or one each; None where nothing was passed.

    Examples
    --------
    >>> per_task("n", {"b": 5, "a": 7}, ["a", "b"], ())
    [array(7.), array(5.)]
    >>> per_task("z", np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), ["a", "b"], (3,))
    [array([1., 3., 5.]), array([2., 4., 6.])]
    """
    if values is None:
        return None
    if is_frame(values) and len(shape) < 2:
        values = {column: column_values(values, column) for column in column_names(values)}
    if isinstance(values, Mapping):
        missing = [label for label in labels if label not in values]
        if missing:
            raise ValueError(f"{name} has no entry for task {missing[0]!r}; its entries are {list(values)}")
        values = [values[label] for label in labels]
    if isinstance(values, list | tuple) and np.ndim(values[0]) == len(shape):
        parts = [np.asarray(value, dtype=np.float64) for value in values]
    else:
        array = np.asarray(values, dtype=np.float64)
        each = array.T if len(shape) == 1 else array  # (p, m) has one column per task
        parts = [array] * len(labels) if array.shape == shape else list(np.atleast_1d(each))
    if len(parts) != len(labels) or any(part.shape != shape for part in parts):
        shapes = sorted({part.shape for part in parts})
        raise ValueError(
            f"{name} has {len(parts)} parts of shapes {shapes}, but there are {len(labels)} tasks; pass an array of shape "
            f"{shape} for all tasks, or one for each"
        )
    return parts


# ---------------------------------------------------------------------- whether the correlations fit


def agreement(spectrum: Spectrum, r: FloatArray, n: float) -> Agreement:
    """Whether a correlation matrix fits the correlations r (p,) with the target of n rows."""
    score, z = spectrum.vectors.T @ r, r * np.sqrt(n - 1.0)
    ratio, noise, effect = _best_mixture(spectrum.values, (n - 1.0) * score**2)
    predicted, variance = _predicted(spectrum, z, max(noise, ROUNDING_NOISE), effect)
    doubtful = np.flatnonzero((-2.0 * z * predicted / variance > SWITCHED) & (np.abs(z) > LEAST_Z))
    shrinkage, enlarged = _repair(spectrum.values, score**2, noise)
    if len(doubtful) == 0 and (ratio > CLEAR or shrinkage > ROUNDING_NOISE):
        doubtful = np.argsort(-np.abs(z - predicted) / np.sqrt(variance), kind="stable")[:3]
    return Agreement(ratio, doubtful, shrinkage, enlarged)


def _mixture(values: FloatArray, share: FloatArray | float, effect: FloatArray | float = 0.0) -> FloatArray:
    """Eigenvalues of ``(1 - s) (R + t R^2) + s I``."""
    positive = np.maximum(values, 0.0)
    return np.maximum((1.0 - share) * (positive + effect * positive**2) + share, FLOOR)


def _best_mixture(values: FloatArray, squares: FloatArray) -> tuple[float, float, float]:
    """Log-likelihood ratio against an s of rounding, s and t, of the squared coordinates of z along the eigenvectors."""
    mixtures = _mixture(values, SHARES[:, None, None], EFFECTS[:, None])
    cost = 0.5 * np.sum(np.log(mixtures) + squares / mixtures, axis=2)
    s, t = np.unravel_index(cost.argmin(), cost.shape)
    return float(cost[SHARES <= ROUNDING_NOISE].min() - cost[s, t]), float(SHARES[s]), float(EFFECTS[t])


def _predicted(spectrum: Spectrum, z: FloatArray, share: float, effect: float) -> tuple[FloatArray, FloatArray]:
    """(p,), (p,) Mean and variance of each z-score given the others."""
    scaled = spectrum.vectors / _mixture(spectrum.values, share, effect)
    variance = 1.0 / np.einsum("ij,ij->i", scaled, spectrum.vectors)
    return z - variance * (scaled @ (spectrum.vectors.T @ z)), variance


def _repair(values: FloatArray, squares: FloatArray, noise: float) -> tuple[float, float]:
    """Share of the identity and factor of the target's variance with which there are data that have the correlations.

    They are 0 and 1 where R is a correlation matrix and the features explain at most all of the target. Else the share
    is the first from the noise on with which they do; where there is none, as of many features with correlations of
    others, the one with which they explain least, and the target is as large as what they explain.
    """
    inside: BoolArray = values > RANK_TOLERANCE * values[-1]
    outside = np.sum(squares[~inside]) > RANK_TOLERANCE * np.sum(squares)
    if values[0] > -RANK_TOLERANCE * values[-1] and not outside and np.sum(squares[inside] / values[inside]) <= WHOLE:
        return 0.0, 1.0
    shares = SHARES[(SHARES > 0) & ((1.0 - SHARES) * values[0] + SHARES > 0)]
    explained = np.sum(squares / _mixture(values, shares[:, None]), axis=1)
    valid = np.flatnonzero((explained <= WHOLE) & (shares >= noise))
    best = int(valid[0] if len(valid) else explained.argmin())
    return float(shares[best]), max(float(explained[best]), 1.0)
