r"""Gibbs steps for several classes within tasks, class by class.

Class k of K has in every task coefficients and an intercept of its own, and an observation of class k the probability
``exp(eta_k) / sum_j exp(eta_j)``. Inside, every class of a task is a task of its own over the same rows, with targets +1
and -1 (`bayesmtfs.families.multinomial`). Here these stand class by class, so that the tasks of a class lie side by side:
observation n of class k is at place ``k N + n``.

**Given the predictors of the other classes** the likelihood of one class is that of labels,

    e^(y psi) / (1 + e^psi),   psi = eta_k - c_k,   c_k = ln sum_{j != k} exp(eta_j),   y = 1 or 0,

so that ``omega_k ~ PG(1, psi)`` makes it normal in the coefficients of class k (Holmes and Held 2006, section 3; Polson,
Scott and Windle 2013). ``c_k`` moves with the other classes: the precisions of a class are drawn right before its
coefficients, feature by feature, and no step moves two classes given precisions.

**A constant** that is added to the coefficients of all classes of a feature in one task changes no probability, and class
by class it would hardly move. It is drawn from its prior given the contrasts: at q = 2, with mean ``-sum_k w_k / K`` and
variance ``rho^2 / (2 K)``; at another q, where ``|w_k| <= u_k`` given the bounds of the uniform mixture (`coefficients`),
uniformly on all constants that keep each w_k within its bound. That of the intercepts is normal.

**Scales** of rows move given all coefficients. What moves several classes at once, sizes of rows (`features`), paths
(`block`) and q (`exponent`), has the likelihood of all classes, without precisions.

References
----------
C. C. Holmes, L. Held (2006), Bayesian auxiliary variable models for binary and multinomial regression, Bayesian Analysis
1:145-168.
N. G. Polson, J. G. Scott, J. Windle (2013), Bayesian inference for logistic models using Pólya-Gamma latent variables,
Journal of the American Statistical Association 108:1339-1349.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.families.augmentation import POLYA_GAMMA
from bayesmtfs.gibbs.coefficients import bound_of
from bayesmtfs.gibbs.features import draw_bounded, draw_intercepts, draw_normal, fill_terms
from bayesmtfs.gibbs.scales import density_given_row, slice_step, tune_row
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, Observed, RowMap, fill_scores
from bayesmtfs.types import FloatArray, IntArray


class ClassSpace(NamedTuple):
    """What the classes share, and arrays that a sweep writes to."""

    design: FloatArray  # (p, N / K) of every class
    rows: RowMap  # over the tasks of one class
    information: FloatArray  # (R,) of the data on the coefficients of each row
    before: FloatArray  # (R,) ln rho


def class_by_class(data: Observed, rows: RowMap) -> tuple[Observed, RowMap, IntArray]:
    """Tasks of one class after those of another, from where classes are neighbours; also where each stood."""
    n_classes = len(data.targets) // int(np.count_nonzero(data.targets > 0))  # an observation is +1 in one of them
    order = np.arange(len(rows.present)).reshape(-1, n_classes).T.ravel()
    places = np.concatenate([np.arange(data.offsets[t], data.offsets[t + 1]) for t in order])
    sizes = np.diff(data.offsets)[order]
    found = data._replace(
        design=data.design[:, places],
        targets=data.targets[places],
        weights=data.weights[places],
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        n_classes=n_classes,
    )
    return found, rows._replace(present=rows.present[order]), order


def class_space(data: Observed, rows: RowMap) -> ClassSpace:
    """Allocate."""
    n_tasks, count = len(rows.present) // data.n_classes, len(data.targets) // data.n_classes
    one = rows._replace(present=rows.present[:n_tasks], sizes=rows.sizes / data.n_classes)
    design = np.ascontiguousarray(data.design[:, :count])
    return ClassSpace(design, one, np.empty(len(rows.sizes)), np.empty(len(rows.sizes)))


@inner(error_model="numpy")
def step_on_classes(
    rng: Generator,
    data: Observed,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    classes: ClassSpace,
    tuning: int,
) -> None:
    """Draw intercepts and coefficients of one class after the other, what they have in common, and all row scales.

    Predictors are behind afterwards.
    """
    for row in range(len(rows.sizes)):
        classes.information[row], classes.before[row] = 1e-300, state.log_scales[row]
    for k in range(data.n_classes):
        fill_other_classes(data, k)
        own_data, own_state = _of_class(data, classes, k), _state_of_class(state, data.n_classes, k)
        fill_scores(rng, own_data, own_state)
        if prior.intercept_variance > 0.0:
            draw_intercepts(rng, own_data, prior, own_state)
        _draw_coefficients(rng, own_data, classes, own_state)
    draw_constants(rng, rows, prior, state, data.n_classes)
    for row in range(len(rows.sizes)):
        target = density_given_row(rows, prior, state, row)
        state.log_scales[row] = slice_step(rng, state.log_scales[row], target, state.widths[row])
        if tuning > 0:
            information = math.log(classes.information[row] / max(rows.sizes[row], 1.0))
            tune_row(state, row, classes.before[row], information, tuning)


@inner(error_model="numpy")
def fill_other_classes(data: Observed, k: int) -> None:
    """``-c_k`` of every observation, as the known part of the predictors of class k."""
    count, size = len(data.predictors) // data.n_classes, len(data.predictors)
    for first in range(count):
        own, top, total = k * count + first, -np.inf, 0.0
        for n in range(first, size, count):
            if n != own:
                top = max(top, data.predictors[n])
        for n in range(first, size, count):
            if n != own:
                total += math.exp(data.predictors[n] - top)
        data.shifts[own] = -top - math.log(total)


@inner(error_model="numpy")
def _of_class(data: Observed, classes: ClassSpace, k: int) -> Observed:
    """Labels of class k, whose arrays are parts of those of all classes."""
    count, m = classes.design.shape[1], len(classes.rows.present)
    start, stop = k * count, (k + 1) * count
    return Observed(
        classes.design,
        data.targets[start:stop],
        data.weights[start:stop],
        data.offsets[: m + 1],
        POLYA_GAMMA,
        data.predictors[start:stop],
        data.precisions[start:stop],
        data.scores[start:stop],
        data.direction[start:stop],
        data.curvatures[:m],
        data.pulls[:m],
        data.shifts[start:stop],
        data.parameters[:m],
        1,
    )


@inner(error_model="numpy")
def _state_of_class(state: GibbsState, n_classes: int, k: int) -> GibbsState:
    """The state with the coefficients and intercepts of class k, which are parts of all of them."""
    m = len(state.W) // n_classes
    start, stop = k * m, (k + 1) * m
    return GibbsState(
        state.W[start:stop],
        state.mean,
        state.intercept[start:stop],
        state.noise[start:stop],
        state.log_scales,
        state.log_tau,
        state.inverse_q,
        state.exponent_step,
        state.widths,
        state.information,
        state.mean_log_scales,
        state.mean_log_tau,
    )


@inner(error_model="numpy")
def _draw_coefficients(rng: Generator, data: Observed, classes: ClassSpace, state: GibbsState) -> None:
    """Coefficients of one class given its precisions, feature by feature."""
    rows, normal = classes.rows, state.inverse_q[0] == 0.5
    for i in range(len(data.design)):
        row = rows.row_of_feature[i]
        classes.information[row] += fill_terms(data, rows, state, i)
        if normal:
            draw_normal(rng, data, rows, state, row, i)
        else:
            draw_bounded(rng, data, rows, state, row, i)


@inner(error_model="numpy")
def draw_constants(rng: Generator, rows: RowMap, prior: GibbsPrior, state: GibbsState, n_classes: int) -> None:
    """What the classes of a task have in common in each feature, and in their intercepts."""
    m, p = len(state.W) // n_classes, state.W.shape[1]
    for t in range(m):
        for i in range(p):
            if rows.present[t, i]:
                constant = _draw_constant(rng, rows, state, n_classes, t, i)
                for k in range(n_classes):
                    state.W[k * m + t, i] += constant
        if prior.intercept_variance > 0.0:
            constant = math.sqrt(prior.intercept_variance / n_classes) * rng.standard_normal()
            for k in range(n_classes):
                constant -= state.intercept[k * m + t] / n_classes
            for k in range(n_classes):
                state.intercept[k * m + t] += constant


@inner(error_model="numpy")
def _draw_constant(rng: Generator, rows: RowMap, state: GibbsState, n_classes: int, t: int, i: int) -> float:
    """What is added to the coefficients of a feature in all classes of a task."""
    m, log_scale, inverse_q = len(state.W) // n_classes, state.log_scales[rows.row_of_feature[i]], state.inverse_q[0]
    if inverse_q == 0.5:
        constant = math.exp(log_scale) / math.sqrt(2.0 * n_classes) * rng.standard_normal()
        for k in range(n_classes):
            constant -= state.W[k * m + t, i] / n_classes
        return constant
    low, high = -np.inf, np.inf
    for k in range(n_classes):
        w = state.W[k * m + t, i]
        reach = bound_of(rng, w, log_scale, inverse_q)
        low, high = max(low, -reach - w), min(high, reach - w)
    return low + (high - low) * rng.random()
