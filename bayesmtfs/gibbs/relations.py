r"""Posterior of the matrix-variate prior at q = 2 by a Gibbs sampler: rows with their own scale, tasks with relations.

    w_i ~ N(0, rho_i^2 R / 2),   R ~ LKJ(eta), density proportional to det(R)^(eta - 1),

the model of `bayesmtfs.models.matrix_variate` at q = 2, with the hyperprior of `bayesmtfs.priors.hyperpriors`. Every task
has the likelihood ``h_t'w_t - w_t'Q_t w_t / 2`` (`state`) with intercepts integrated out, labels given their Polya-Gamma
precisions. Two kinds of steps, neither of which is given the coefficients that it moves:

**A task**: its correlations r with the others and all its coefficients, given the other tasks. With ``L L'`` the
correlations of the others, ``v = L^-1 r`` is any point of the unit ball, and with ``z = sqrt(2) w / rho``

    z_t = A v + sqrt(1 - |v|^2) u,   u ~ N(0, I),   A = z_others L'^-1,   p(v) ~ (1 - |v|^2)^(eta - 1).

u is integrated out, O(p) for every v once ``diag(rho) Q_t diag(rho)`` is tridiagonal (`tridiagonal`). v is
``x / sqrt(|x|^2 + g)`` for ``x ~ N(0, I)`` and g chi-squared with 2 eta degrees of freedom, so that elliptical slice
sampling (Murray, Adams and MacKay 2010, *AISTATS* 9:541-548) moves x with g fixed: always accepted, R always a
correlation matrix. Then w_t is drawn jointly.

**A row**: its scale with the coefficients of all tasks integrated out, which are ``L u`` for ``L L' = R``, and then they;
a slice step, and an independent jump between modes (`scales`). In a row of several features the scale moves given the
coefficients, and with ``w / rho`` fixed.

The global scale moves alone, with the scales, and with scales and coefficients (`scales`). A sweep costs
``O(m p^3 + p m^3 + m^4)``, for labels also ``O(n p^2)`` for n of them.
"""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.families.augmentation import NORMAL, POLYA_GAMMA
from bayesmtfs.gibbs.cells import Cells, Gaps, with_redraws
from bayesmtfs.gibbs.chain import (
    Advance,
    ChainSettings,
    PosteriorDraws,
    Report,
    collect,
    conditionally_normal,
    in_slices,
    redraw_by_observation,
    redraw_in_sums,
)
from bayesmtfs.gibbs.coefficients import ANGLES, factorise, solve_lower
from bayesmtfs.gibbs.distributions import dot
from bayesmtfs.gibbs.features import step_on_size
from bayesmtfs.gibbs.scales import (
    NONE,
    LogScaleDensity,
    ScalePrior,
    given_sample,
    jump_by_cells,
    reach_of,
    row_scale_prior,
    set_coefficient,
    slice_step,
    step_on_tau,
    step_on_tau_with_all,
    step_on_tau_with_rows,
    step_with_row,
    tune_row,
)
from bayesmtfs.gibbs.state import (
    GibbsPrior,
    GibbsState,
    Observed,
    RowMap,
    SumsSpace,
    TaskSums,
    dual_ridge_start,
    fill_predictors,
    fill_scores,
    first_observed_state,
    first_state,
    gibbs_prior,
    observations_of,
    ridge_start,
    rows_of,
    space_for,
    sums_of,
)
from bayesmtfs.gibbs.sweep import KeptDraws, condition_on_noise, draw_intercepts_and_noise, keep, kept_for
from bayesmtfs.gibbs.tridiagonal import (
    Tridiagonal,
    draw_vector,
    log_normal_integral,
    reduce_matrix,
    reflect,
    tridiagonal_for,
)
from bayesmtfs.priors.hyperpriors import Hyperprior, check_relations
from bayesmtfs.types import FloatArray

ELLIPSES = 10  # on the correlations of a task; next to nothing beside what is done once for all of them
SWEEPS, LABEL_SWEEPS = 2, 4  # for a draw
SIZES_AT_A_TIME = 3  # rows of labels whose sizes move with the precisions integrated out


def samples_relations(data: TaskData, family: Family, prior: str, norm_q: float | None) -> bool:
    """Whether this sampler has the posterior: rows of related tasks at q = 2 and a conditionally normal family."""
    augmentation = family.augmentation
    if augmentation is not None and augmentation.form not in (NORMAL, POLYA_GAMMA):
        return False
    if prior != "matrix_variate" or norm_q != 2.0 or data.n_features == 0 or augmentation is None:
        return False
    if data.eta_offset is not None:
        return False
    return bool(augmentation.takes_weights(data.weight))


def sweeps_per_draw(family: Family) -> int:
    """How many sweeps make a draw: hidden precisions slow chains down."""
    return SWEEPS if family.has_noise else LABEL_SWEEPS


class RelationsState(NamedTuple):
    """Correlations of the tasks, and arrays that a sweep writes to."""

    R: FloatArray  # (m, m)
    concentration: float  # eta
    factor: FloatArray  # (m, m) L of R
    others: FloatArray  # (m, m) L of R without a task, in the first rows and columns
    by_task: Tridiagonal  # of p
    by_row: Tridiagonal  # of m
    loadings: FloatArray  # (m - 1, p) A'
    place: FloatArray  # (m - 1,) v
    ends: FloatArray  # (2, m - 1) x and a second point that spans the ellipse with it
    means: FloatArray  # (2, p) A times these
    pulls: FloatArray  # (m,) of a row
    zeros: FloatArray  # (m,)


class InterceptSums(NamedTuple):
    """What is left of labels for the intercepts, given the precisions."""

    crosses: FloatArray  # (m, p) X'omega
    precisions: FloatArray  # (m,) sum of omega and the prior's
    pulls: FloatArray  # (m,)


def relations_for(m: int, p: int, concentration: float) -> RelationsState:
    """Allocate, with unrelated tasks."""
    return RelationsState(
        R=np.eye(m),
        concentration=concentration,
        factor=np.eye(m),
        others=np.eye(m),
        by_task=tridiagonal_for(p),
        by_row=tridiagonal_for(m),
        loadings=np.zeros((m - 1, p)),
        place=np.zeros(m - 1),
        ends=np.zeros((2, m - 1)),
        means=np.zeros((2, p)),
        pulls=np.zeros(m),
        zeros=np.zeros(m),
    )


def sample_related_chain(
    data: TaskData,
    prior: Hyperprior,
    settings: ChainSettings,
    concentration: float = 2.0,
    loss: str | Family = "squared",
    report: Report | None = None,
    gaps: Gaps | None = None,
) -> PosteriorDraws:
    """Draw one chain.

    Parameters
    ----------
    data : observations, every task with every feature; y is -1 and +1 for labels
    prior : hyperprior with every number known, without a shared mean
    settings : lengths and seed; q is 2
    concentration : eta of the LKJ prior, above 1
    loss : a conditionally normal family, or its name
    report : called every now and then with the fraction of the sweeps that are done
    gaps : which cells of features are missing, and drawn too

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 12))
    >>> w = rng.standard_normal(12)
    >>> Y = np.column_stack([X @ w, -(X @ w)]) + 0.1 * rng.standard_normal((200, 2))
    >>> draws = sample_related_chain(TaskData.from_wide(X, Y), Hyperprior(), ChainSettings(draws=300, tune=100))
    >>> bool(draws.relations.mean(axis=0)[0, 1] < -0.9)
    True
    """
    family = conditionally_normal(data, loss)
    check_relations(data, prior, concentration)
    rows, numbers = rows_of(data), gibbs_prior(prior, learn_q=False, learn_noise=family.has_noise)
    form, centre = family.augmentation.form, np.zeros(data.n_tasks)
    if prior.fit_intercept and form == NORMAL:
        centre += prior.intercept_centre
    rng = Generator(np.random.PCG64(settings.random_seed))
    sums, observed, state = _first(data, rows, numbers, form, centre, rng)
    m, p = state.W.shape
    kept, relations = kept_for(rows, settings.draws, settings.sweeps), relations_for(m, p, concentration)
    space = _space(m, p) if sums is None else space_for(sums)
    left = None if observed is None else InterceptSums(np.zeros((m, p)), np.zeros(m), np.zeros(m))
    correlations = np.empty((settings.draws, m, m))
    advance: Advance = partial(
        run_related, rng, sums, observed, left, rows, numbers, state, space, relations, kept, correlations
    )
    cells = None if gaps is None else Cells(gaps, rng)
    if cells is not None and sums is not None:
        redraw = partial(redraw_in_sums, cells, data, centre, sums, rows, state)
        advance = with_redraws(advance, 1, redraw)
    elif cells is not None and observed is not None:
        redraw = partial(redraw_by_observation, cells, rng, observed, rows, state, None)
        advance = with_redraws(advance, 1, redraw)
    done, interrupted = in_slices(advance, settings, report)
    count = max(done // settings.sweeps - settings.tune, 0)
    found = collect(kept, rows, count, centre, interrupted)._replace(relations=correlations[:count])
    return found if cells is None else found._replace(cells=cells.kept)


def _first(
    data: TaskData, rows: RowMap, prior: GibbsPrior, form: int, centre: FloatArray, rng: Generator
) -> tuple[TaskSums | None, Observed | None, GibbsState]:
    """Data in sums or by observation, and a state around ridge estimates."""
    if form == NORMAL:
        sums = sums_of(data, centre)
        return sums, None, first_state(sums, rows, prior, ridge_start(sums, rows, prior), 2.0, rng)
    observed = observations_of(data, centre, form)
    return None, observed, first_observed_state(observed, rows, prior, dual_ridge_start(observed, rows), 2.0, rng)


def _space(m: int, p: int) -> SumsSpace:
    return SumsSpace(np.empty((m, p, p)), np.empty((m, p)), np.empty((m, p)), np.empty(p), np.empty(p))


# ---------------------------------------------------------------------- the sweep


@njit(cache=True, nogil=True, error_model="numpy")
def run_related(
    rng: Generator,
    sums: TaskSums | None,
    observed: Observed | None,
    left: InterceptSums | None,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    space: SumsSpace,
    relations: RelationsState,
    kept: KeptDraws,
    correlations: FloatArray,
    first: int,
    stop: int,
    tune: int,
) -> None:
    """Sweeps ``first`` to ``stop - 1`` of a chain; those from ``tune`` on are kept, before that widths are tuned.

    Numbers come in sums, labels by observation; what is None is not compiled.
    """
    m = len(state.W)
    for number in range(first, stop):
        if sums is not None:
            for t in range(m):
                condition_on_noise(sums, prior, t, state.noise[t], space.Q[t], space.h[t])
        if observed is not None:
            if left is not None:
                condition_on_labels(rng, observed, left, rows, prior, state, space)
        for t in range(m):
            step_on_task(rng, rows, state, space, relations, t)
        step_on_rows(rng, rows, prior, state, space, relations, number + 1 if number < tune else 0)
        if prior.learn_global_scale:
            step_on_tau(rng, prior, state)
            total = whitened_square(rows, state, relations)
            step_on_tau_with_rows(rng, prior, state, prior.low, total, 2.0, float(state.W.size))
            step_on_tau_with_all(rng, space.h, space.residuals, prior, state)
        if sums is not None:
            draw_intercepts_and_noise(rng, sums, rows, prior, state, space.w)
        if left is not None:
            draw_label_intercepts(rng, left, prior, state)
        if number >= tune:
            keep(rows, state, kept, number - tune)
            keep_relations(relations.R, correlations, number - tune, kept.sweeps)


@inner(error_model="numpy")
def keep_relations(R: FloatArray, correlations: FloatArray, sweep: int, sweeps: int) -> None:
    """Copy R after the last sweep of a draw."""
    if (sweep + 1) % sweeps == 0:
        for s in range(len(R)):
            for t in range(len(R)):
                correlations[sweep // sweeps, s, t] = R[s, t]


@inner(error_model="numpy")
def condition_on_labels(
    rng: Generator,
    data: Observed,
    left: InterceptSums,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    space: SumsSpace,
) -> None:
    """Sizes of effects with the precisions integrated out, then the precisions, and Q and h given them."""
    p, weighted = len(data.design), data.direction
    fill_predictors(data, rows, state, data.predictors)
    for _ in range(SIZES_AT_A_TIME):
        row = int(len(rows.sizes) * rng.random())
        step_on_size(rng, data, rows, prior, state, row, row + 1)
    if prior.learn_global_scale:
        step_on_size(rng, data, rows, prior, state, 0, len(rows.sizes))
    fill_scores(rng, data, state)
    for t in range(len(state.W)):
        a, b = data.offsets[t], data.offsets[t + 1]
        left.precisions[t], left.pulls[t] = 1.0 / max(prior.intercept_variance, 1e-300), 0.0
        for n in range(a, b):
            data.scores[n] += data.precisions[n] * data.predictors[n]  # from here on the pull at eta = 0
            left.precisions[t] += data.precisions[n]
            left.pulls[t] += data.scores[n]
        for i in range(p):
            x = data.design[i]
            for n in range(a, b):
                weighted[n] = data.precisions[n] * x[n]
            left.crosses[t, i] = weighted[a:b].sum()
            share = left.crosses[t, i] / left.precisions[t]
            space.h[t, i] = dot(x[a:b], data.scores[a:b]) - share * left.pulls[t]
            for j in range(i + 1):
                product = dot(weighted[a:b], data.design[j, a:b]) - share * left.crosses[t, j]
                space.Q[t, i, j] = space.Q[t, j, i] = product


@inner(error_model="numpy")
def draw_label_intercepts(rng: Generator, left: InterceptSums, prior: GibbsPrior, state: GibbsState) -> None:
    """``b_t`` given w and the precisions."""
    if prior.intercept_variance > 0.0:
        for t in range(len(state.W)):
            precision, pull = left.precisions[t], left.pulls[t] - dot(left.crosses[t], state.W[t])
            state.intercept[t] = pull / precision + rng.standard_normal() / math.sqrt(precision)


# ---------------------------------------------------------------------- a task


@inner(error_model="numpy")
def step_on_task(
    rng: Generator, rows: RowMap, state: GibbsState, space: SumsSpace, relations: RelationsState, t: int
) -> None:
    """Draw the correlations of a task with the others, its coefficients integrated out, then these; and residuals."""
    p, scales, Q, part = state.W.shape[1], space.log_scales, space.Q[t], relations.by_task
    for i in range(p):
        scales[i] = math.sqrt(0.5) * math.exp(state.log_scales[rows.row_of_feature[i]])
    for i in range(p):
        part.pulls[i] = scales[i] * space.h[t, i]
        for j in range(p):
            part.matrix[i, j] = scales[i] * Q[i, j] * scales[j]
    reduce_matrix(part)
    reflect(part, part.pulls, False)
    fill_loadings(state, relations, scales, t)
    for _ in range(ELLIPSES if len(state.W) > 1 else 0):
        move_on_ellipse(rng, relations)
    draw_task(rng, state, space, relations, t)


@inner(error_model="numpy")
def fill_loadings(state: GibbsState, relations: RelationsState, scales: FloatArray, t: int) -> None:
    """Factor of the correlations of all tasks but one, v of that one, and A in the tridiagonal basis."""
    m, p = state.W.shape
    L, A, v = relations.others, relations.loadings, relations.place
    for a in range(m - 1):
        s = a if a < t else a + 1
        v[a] = relations.R[t, s]
        for b in range(a + 1):
            L[a, b] = relations.R[s, b if b < t else b + 1]
        for i in range(p):
            A[a, i] = state.W[s, i] / scales[i]
    factorise(L, m - 1)
    solve_lower(L, v, m - 1)
    for a in range(m - 1):
        for b in range(a):
            for i in range(p):
                A[a, i] -= L[a, b] * A[b, i]
        for i in range(p):
            A[a, i] /= L[a, a]
    for a in range(m - 1):
        reflect(relations.by_task, A[a], False)


@inner(error_model="numpy")
def move_on_ellipse(rng: Generator, relations: RelationsState) -> None:
    """Move v with u integrated out."""
    v, (x, other), means = relations.place, (relations.ends[0], relations.ends[1]), relations.means
    k, square = len(v), dot(v, v)
    total = 2.0 * rng.standard_gamma(0.5 * k + relations.concentration)
    rest = total * (1.0 - square)
    for a in range(k):
        x[a], other[a] = math.sqrt(total) * v[a], rng.standard_normal()
    multiply(relations.loadings, x, means[0])
    multiply(relations.loadings, other, means[1])
    products = (dot(x, x), dot(x, other), dot(other, other))
    level = log_evidence(relations, products, rest, 0.0) - rng.standard_exponential()
    angle = 2.0 * math.pi * rng.random()
    low, high = angle - 2.0 * math.pi, angle
    for _ in range(ANGLES):
        if log_evidence(relations, products, rest, angle) >= level:
            cosine, sine = math.cos(angle), math.sin(angle)
            shrink = 1.0 / math.sqrt(squared_length(products, angle) + rest)
            for a in range(k):
                v[a] = shrink * (cosine * x[a] + sine * other[a])
            return
        if angle < 0.0:
            low = angle
        else:
            high = angle
        angle = low + (high - low) * rng.random()


@inner(error_model="numpy")
def multiply(A: FloatArray, x: FloatArray, out: FloatArray) -> None:
    """Write ``A'x``."""
    for i in range(len(out)):
        out[i] = 0.0
    for a in range(len(x)):
        for i in range(len(out)):
            out[i] += x[a] * A[a, i]


@inner(error_model="numpy")
def squared_length(products: tuple[float, float, float], angle: float) -> float:
    """``|x cos + x' sin|^2`` of two points with these squares and product."""
    cosine, sine = math.cos(angle), math.sin(angle)
    return cosine * (cosine * products[0] + 2.0 * sine * products[1]) + sine * sine * products[2]


@inner(error_model="numpy")
def log_evidence(relations: RelationsState, products: tuple[float, float, float], rest: float, angle: float) -> float:
    """Log-likelihood of the place on the ellipse at an angle, with u integrated out."""
    total = squared_length(products, angle) + rest
    cosine, sine = math.cos(angle) / math.sqrt(total), math.sin(angle) / math.sqrt(total)
    part, first, second = relations.by_task, relations.means[0], relations.means[1]
    for i in range(len(first)):
        part.vector[i] = cosine * first[i] + sine * second[i]
    value, precision = take_out(part), total / rest
    value += 0.5 * len(first) * math.log(precision)
    return value + log_normal_integral(precision, part.diagonal, part.couplings, part.pivots)


@inner(error_model="numpy")
def take_out(part: Tridiagonal) -> float:
    """Pulls ``y - T mu`` that a mean mu, in ``vector``, leaves, in ``pivots``; and ``y'mu - mu'T mu / 2``."""
    value, mean, k = 0.0, part.vector, len(part.vector)
    for i in range(k):
        pull = part.pulls[i] - part.diagonal[i] * mean[i]
        if i > 0:
            pull -= part.couplings[i - 1] * mean[i - 1]
        if i < k - 1:
            pull -= part.couplings[i] * mean[i + 1]
        part.pivots[i] = pull
        value += 0.5 * mean[i] * (part.pulls[i] + pull)
    return value


@inner(error_model="numpy")
def draw_task(rng: Generator, state: GibbsState, space: SumsSpace, relations: RelationsState, t: int) -> None:
    """Coefficients of a task given its place v, its correlations, and its residuals ``h - Q w``."""
    part, v, mean, w, m = relations.by_task, relations.place, relations.means[0], state.W[t], len(state.W)
    multiply(relations.loadings, v, mean)
    for i in range(len(w)):
        part.vector[i] = mean[i]
    take_out(part)
    for i in range(len(w)):
        part.pulls[i] = part.pivots[i]
    draw_vector(rng, 1.0 / (1.0 - dot(v, v)), part)
    for i in range(len(w)):
        part.vector[i] += mean[i]
    reflect(part, part.vector, True)
    for i in range(len(w)):
        w[i] = space.log_scales[i] * part.vector[i]
    for i in range(len(w)):
        space.residuals[t, i] = space.h[t, i] - dot(space.Q[t, i], w)
    for a in range(m - 1):
        s = a if a < t else a + 1
        relations.R[t, s] = relations.R[s, t] = dot(relations.others[a, : a + 1], v[: a + 1])


# ---------------------------------------------------------------------- a row


@inner(error_model="numpy")
def step_on_rows(
    rng: Generator,
    rows: RowMap,
    prior: GibbsPrior,
    state: GibbsState,
    space: SumsSpace,
    relations: RelationsState,
    tuning: int,
) -> None:
    """Scales and coefficients of all rows; residuals in place."""
    for s in range(len(state.W)):
        for t in range(s + 1):
            relations.factor[s, t] = relations.R[s, t]
    factorise(relations.factor, len(state.W))
    for row in range(len(rows.sizes)):
        before, own_prior = state.log_scales[row], row_scale_prior(prior, state, prior.low)
        several = rows.starts[row + 1] - rows.starts[row] > 1
        if several:
            log_sum = math.log(max(squared_rows(rows, state, relations, row, row + 1), 1e-300))
            sample = given_sample(own_prior, rows.sizes[row], log_sum, 2.0)
            state.log_scales[row] = slice_step(rng, before, sample, state.widths[row])
            step_with_row(rng, space, rows, own_prior, state, row)
        for place in range(rows.starts[row], rows.starts[row + 1]):
            fill_row(rows, state, space, relations, rows.members[place])
            if not several:
                step_on_scale(rng, prior, own_prior, state, relations, row)
            draw_row(rng, state, space, relations, rows.members[place], state.log_scales[row])
        if tuning > 0:
            tune_row(state, row, before, 0.0, tuning)


@inner(error_model="numpy")
def fill_row(rows: RowMap, state: GibbsState, space: SumsSpace, relations: RelationsState, i: int) -> None:
    """Likelihood of ``L^-1 w_i`` in the tridiagonal basis."""
    m, part, L = len(state.W), relations.by_row, relations.factor
    for s in range(m):
        part.pulls[s] = 0.0
        for t in range(m):
            part.matrix[s, t] = 0.0
    for t in range(m):
        curvature = space.Q[t, i, i]
        pull = space.residuals[t, i] + curvature * state.W[t, i]
        for s in range(t + 1):
            part.pulls[s] += L[t, s] * pull
            for r in range(t + 1):
                part.matrix[s, r] += L[t, s] * curvature * L[t, r]
    reduce_matrix(part)
    reflect(part, part.pulls, False)


@inner(error_model="numpy")
def step_on_scale(
    rng: Generator, prior: GibbsPrior, own_prior: ScalePrior, state: GibbsState, relations: RelationsState, row: int
) -> None:
    """Move a scale with the coefficients of its feature integrated out, near by and then between modes."""
    part, m = relations.by_row, float(len(state.W))
    spread = (relations.zeros, 0.5, -1.0, part.couplings, own_prior)
    target = LogScaleDensity(m, NONE, 2.0, 0.0, 0.0, 0.0, part.diagonal, part.pulls, *spread)
    moved = slice_step(rng, state.log_scales[row], target, state.widths[row])
    low, high = reach_of(prior, state.log_tau[0])
    state.log_scales[row] = jump_by_cells(rng, moved, target, low, high)


@inner(error_model="numpy")
def draw_row(
    rng: Generator, state: GibbsState, space: SumsSpace, relations: RelationsState, i: int, log_scale: float
) -> None:
    """Coefficients of a feature given its scale."""
    part, L = relations.by_row, relations.factor
    draw_vector(rng, 2.0 * math.exp(-2.0 * log_scale), part)
    reflect(part, part.vector, True)
    for t in range(len(state.W)):
        set_coefficient(space, state, t, i, dot(L[t, : t + 1], part.vector[: t + 1]))


@inner(error_model="numpy")
def squared_rows(rows: RowMap, state: GibbsState, relations: RelationsState, first: int, last: int) -> float:
    """``sum w_i'R^-1 w_i`` over the features of some rows."""
    total, e, m = 0.0, relations.pulls, len(state.W)
    for place in range(rows.starts[first], rows.starts[last]):
        for t in range(m):
            e[t] = state.W[t, rows.members[place]]
        solve_lower(relations.factor, e, m)
        total += dot(e, e)
    return total


@inner(error_model="numpy")
def whitened_square(rows: RowMap, state: GibbsState, relations: RelationsState) -> float:
    """``sum_i w_i'R^-1 w_i / rho_i^2``."""
    total = 0.0
    for row in range(len(rows.sizes)):
        square = squared_rows(rows, state, relations, row, row + 1)
        total += square * math.exp(-2.0 * state.log_scales[row])
    return total
