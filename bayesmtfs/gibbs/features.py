r"""Gibbs steps on the coefficients of a feature over all tasks and on the scale of its row, by observation.

With ``a_t = x'diag(omega)x`` and ``g_t = x's + a_t w_t`` of a feature in task t, everything else given, its coefficients
have the log-likelihood ``g_t w_t - a_t w_t^2 / 2`` and the prior GN(0, rho, q):

- q = 2: rho with the coefficients integrated out, ``sum_t [g^2 / (2 (a + k)) - ln(1 + a / k) / 2] + ln p(ln rho | tau)``,
  ``k = 2 / rho^2``, by a slice step; then the coefficients, which are normal;
- q = 1 and q = inf: the same with other integrals (`distributions`);
- any other q: the coefficients by the uniform mixture (`coefficients`), then rho given them, and then rho with the
  coefficients carried along, each at its place in the normal approximation of its conditional distribution (`scales`).

In a row of several features rho moves given the coefficients, and then with ``w / rho`` fixed. With a shared mean the
same steps draw the deviations from it, and the mean given them.

**Sizes of effects of labels** and other targets that are not normal, of single rows and of all together, move by
Metropolis steps. Labels that a hyperplane separates do not say how far apart they are: coefficients and their scales
may grow together almost as far as the prior lets them, into a tail where Polya-Gamma precisions hold them and steps
that were tuned elsewhere are refused. Here the precisions are integrated out, and sizes move with ``w / rho`` fixed.
With u the part of the predictors that grows, and s the logarithm of its factor,

    ln p(s) = sum ln p(y | eta + (e^s - 1) u) + ln prior

up to a constant, the prior being that of ``ln rho + s`` for a row, and that of ``ln tau + s`` for all rows, ``rho / tau``
fixed. Proposals are normal with a deviation drawn anew each time, small or large: nothing needs to be tuned.

**Active rows at q = 2**: their scales with the coefficients of all of them integrated out, then those coefficients. Given
the precisions omega of the observations, the coefficients v of the active features of a task and its intercept
are normal: with ``A = X'diag(omega)X`` and ``h = X'(s + diag(omega) X v)``,

    ln p(v | rest) = h'v - v'(A + diag(k)) v / 2,   k_i = 2 / rho_i^2,

S the inverse of ``A + diag(k)`` and mean ``S h``. Without feature i, whose row and column are swept out of S, the others
integrated out leave ``g v_i - a v_i^2 / 2`` with ``a = A_ii - A_i'S_-i A_i`` and ``g = h_i - A_i'S_-i h``: the scale of i
then moves by the same one-dimensional step as above, and i is swept in again. So a feature may take the
place of another that stands for the same, which single coefficients hardly ever do. Last the coefficients of each task
are drawn jointly.

The inverses have as many rows as there are active features, whatever the number of all features. All of this costs
``O(m F^3)`` for F of them.
"""

import math

import numpy as np
from numpy.random import Generator

from bayesmtfs.compiled import inner
from bayesmtfs.families.augmentation import MULTINOMIAL, log_density_and_score
from bayesmtfs.gibbs.block import ActiveBlock
from bayesmtfs.gibbs.coefficients import bound_of
from bayesmtfs.gibbs.distributions import (
    dot,
    draw_given_scale,
    softplus,
    truncated_normal,
    unit_variance,
    weighted_square,
)
from bayesmtfs.gibbs.mean import draw_with_scale
from bayesmtfs.gibbs.scales import (
    LogScaleDensity,
    beta_prime_power,
    density_given_row,
    jump_by_cells,
    reach_of,
    row_scale_prior,
    slice_step,
    tune_row,
    with_carried,
    with_multiplied,
)
from bayesmtfs.gibbs.state import GibbsPrior, GibbsState, Observed, RowMap, move_along, softmax_likelihood
from bayesmtfs.types import FloatArray

SIZE_PROPOSALS = 4  # for a size; each costs a look at the labels
ROWS_AT_A_TIME = 4  # of the active ones
LEAST_LOG_SIZE, LOG_SIZE_RANGE = math.log(0.05), math.log(60.0)


@inner(error_model="numpy")
def step_on_features(
    rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, tuning: int
) -> None:
    """Draw all coefficients, their means and their row scales, row by row."""
    normal = state.inverse_q[0] == 0.5
    integrable = state.inverse_q[0] == 0.0 or state.inverse_q[0] == 1.0
    for row in range(len(rows.sizes)):
        before = state.log_scales[row]
        single = rows.starts[row + 1] - rows.starts[row] == 1
        information = 1e-300
        for place in range(rows.starts[row], rows.starts[row + 1]):
            i = rows.members[place]
            information += fill_terms(data, rows, state, i)
            if single and normal:
                step_on_normal_scale(rng, data, prior, state, row)
            if normal:
                draw_normal(rng, data, rows, state, row, i)
            elif single and integrable:
                _step_on_integrated_row(rng, data, rows, prior, state, row)
            else:
                draw_bounded(rng, data, rows, state, row, i)
            if prior.mean_precision > 0.0:
                _draw_mean(rng, data, rows, prior, state, i)
        if not (single and (normal or integrable)):
            target = density_given_row(rows, prior, state, row)
            state.log_scales[row] = slice_step(rng, state.log_scales[row], target, state.widths[row])
            if not single:
                _step_with_row(rng, data, rows, prior, state, row)
            else:
                _step_carrying(rng, data, rows, prior, state, row)
        if tuning > 0:
            tune_row(state, row, before, math.log(information / max(rows.sizes[row], 1.0)), tuning)


@inner(error_model="numpy")
def draw_intercepts(rng: Generator, data: Observed, prior: GibbsPrior, state: GibbsState) -> None:
    """``b_t`` given everything else."""
    for t in range(len(state.W)):
        start, stop = data.offsets[t], data.offsets[t + 1]
        precision, pull = 1.0 / prior.intercept_variance, -state.intercept[t] / prior.intercept_variance
        for n in range(start, stop):
            precision += data.precisions[n]
            pull += data.scores[n]
        change = pull / precision + rng.standard_normal() / math.sqrt(precision)
        state.intercept[t] += change
        for n in range(start, stop):
            data.predictors[n] += change
            data.scores[n] -= data.precisions[n] * change


@inner(error_model="numpy")
def fill_terms(data: Observed, rows: RowMap, state: GibbsState, i: int) -> float:
    """``a_t`` and ``g_t`` of a feature in every task that has it, else 0; the sum of the first."""
    x, total = data.design[i], 0.0
    for t in range(len(state.W)):
        data.curvatures[t] = data.pulls[t] = 0.0
        if rows.present[t, i]:
            start, stop = data.offsets[t], data.offsets[t + 1]
            a = weighted_square(x[start:stop], data.precisions[start:stop])
            data.curvatures[t] = a
            data.pulls[t] = dot(x[start:stop], data.scores[start:stop]) + a * state.W[t, i]
            total += a
    return total


@inner(error_model="numpy")
def normal_scale_density(data: Observed, prior: GibbsPrior, state: GibbsState) -> LogScaleDensity:
    """Log-density of the scale of a feature at q = 2 with its coefficients integrated out.

    Coefficients at their conditional means, ``z = 0`` in `scales`, have the value of the integral up to a constant.
    """
    m, own_prior = len(state.W), row_scale_prior(prior, state, prior.low)
    return with_carried(own_prior, float(m), 2.0, data.curvatures, data.pulls, np.zeros(m), 0.5)


@inner(error_model="numpy")
def step_on_normal_scale(rng: Generator, data: Observed, prior: GibbsPrior, state: GibbsState, row: int) -> None:
    """Move the scale of a feature at q = 2 with its coefficients integrated out."""
    target = normal_scale_density(data, prior, state)
    state.log_scales[row] = slice_step(rng, state.log_scales[row], target, state.widths[row])


@inner(error_model="numpy")
def jump_on_normal_scale(rng: Generator, data: Observed, prior: GibbsPrior, state: GibbsState, row: int) -> None:
    """Draw the scale of a feature at q = 2 anew, with its coefficients integrated out."""
    target, reach = normal_scale_density(data, prior, state), reach_of(prior, state.log_tau[0])
    state.log_scales[row] = jump_by_cells(rng, state.log_scales[row], target, *reach)


@inner(error_model="numpy")
def _set_coefficient(data: Observed, state: GibbsState, t: int, i: int, new: float) -> None:
    """Put a coefficient to a new value."""
    start, stop = data.offsets[t], data.offsets[t + 1]
    move_along(data, start, stop, data.design[i], new - state.W[t, i])
    state.W[t, i] = new


@inner(error_model="numpy")
def draw_normal(rng: Generator, data: Observed, rows: RowMap, state: GibbsState, row: int, i: int) -> None:
    """Coefficients of a feature at q = 2."""
    prior_precision = 2.0 * math.exp(-2.0 * state.log_scales[row])
    for t in range(len(state.W)):
        if rows.present[t, i]:
            precision = data.curvatures[t] + prior_precision
            new = data.pulls[t] / precision + rng.standard_normal() / math.sqrt(precision)
            _set_coefficient(data, state, t, i, new)


@inner(error_model="numpy")
def _step_on_integrated_row(
    rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, row: int
) -> None:
    """Scale of a feature at q = 1 or q = inf with its coefficients integrated out, and then they."""
    i, inverse_q = rows.members[rows.starts[row]], state.inverse_q[0]
    norm_q = 1.0 / inverse_q if inverse_q > 0.0 else np.inf
    # where a task does not have the feature, its integral is that of the prior, which the slope takes back
    curvatures, pulls, own_prior = data.curvatures, data.pulls, row_scale_prior(prior, state, prior.low)
    target = with_carried(own_prior, float(len(state.W)), norm_q, curvatures, pulls, curvatures[:0], 1.0)
    state.log_scales[row] = slice_step(rng, state.log_scales[row], target, state.widths[row])
    for t in range(len(state.W)):
        if rows.present[t, i]:
            new = draw_given_scale(rng, data.curvatures[t], data.pulls[t], state.log_scales[row], norm_q)
            _set_coefficient(data, state, t, i, new)


@inner(error_model="numpy")
def draw_bounded(rng: Generator, data: Observed, rows: RowMap, state: GibbsState, row: int, i: int) -> None:
    """Coefficients of a feature at any q, by the mixture of uniforms."""
    for t in range(len(state.W)):
        if rows.present[t, i]:
            a = data.curvatures[t]
            reach = bound_of(rng, state.W[t, i], state.log_scales[row], state.inverse_q[0])
            if a > 0.0:
                new = truncated_normal(rng, data.pulls[t] / a, 1.0 / math.sqrt(a), reach)
            else:
                new = reach * (2.0 * rng.random() - 1.0)
            _set_coefficient(data, state, t, i, new)


@inner(error_model="numpy")
def _draw_mean(rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, i: int) -> None:
    """Mean of a feature and its scale given the deviations from it; terms are those before the deviations moved."""
    x, precision, pull = data.design[i], 0.0, 0.0
    for t in range(len(state.W)):
        if rows.present[t, i]:
            start, stop = data.offsets[t], data.offsets[t + 1]
            precision += data.curvatures[t]
            pull += dot(x[start:stop], data.scores[start:stop]) + data.curvatures[t] * state.mean[i]
    change = draw_with_scale(rng, prior, state, i, precision, pull) - state.mean[i]
    state.mean[i] += change
    for t in range(len(state.W)):
        if rows.present[t, i]:
            move_along(data, data.offsets[t], data.offsets[t + 1], x, change)


@inner(error_model="numpy")
def _step_carrying(
    rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, row: int
) -> None:
    """Move the scale of a feature and carry its coefficients at their standardised positions."""
    m, i, inverse_q = len(state.W), rows.members[rows.starts[row]], state.inverse_q[0]
    log_scale, spread = state.log_scales[row], unit_variance(inverse_q)
    fill_terms(data, rows, state, i)
    positions = np.zeros(m)
    for t in range(m):
        if rows.present[t, i]:
            s = 1.0 / math.sqrt(data.curvatures[t] + math.exp(-2.0 * log_scale) / spread)
            positions[t] = state.W[t, i] / s - s * data.pulls[t]
    own_prior = row_scale_prior(prior, state, prior.low)
    target = with_carried(own_prior, float(m), 1.0 / inverse_q, data.curvatures, data.pulls, positions, spread)
    moved = slice_step(rng, log_scale, target, state.widths[row])
    state.log_scales[row] = moved
    for t in range(m):
        if rows.present[t, i]:
            s = 1.0 / math.sqrt(data.curvatures[t] + math.exp(-2.0 * moved) / spread)
            _set_coefficient(data, state, t, i, s * (s * data.pulls[t] + positions[t]))


@inner(error_model="numpy")
def _step_with_row(
    rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, row: int
) -> None:
    """Move the scale of a row of several features together with all its coefficients."""
    fill_direction(data, rows, state, row, row + 1)
    log_scale = state.log_scales[row]
    curvature = weighted_square(data.direction, data.precisions)
    pull = dot(data.direction, data.scores) + curvature
    target = with_multiplied(row_scale_prior(prior, state, prior.low), pull, curvature, log_scale)
    moved = slice_step(rng, log_scale, target, state.widths[row])
    state.log_scales[row] = moved
    factor = math.exp(moved - log_scale)
    move_along(data, 0, len(data.direction), data.direction, factor - 1.0)
    for place in range(rows.starts[row], rows.starts[row + 1]):
        for t in range(len(state.W)):
            state.W[t, rows.members[place]] *= factor


@inner(error_model="numpy")
def fill_direction(data: Observed, rows: RowMap, state: GibbsState, first: int, last: int) -> None:
    """What rows ``first`` to ``last - 1`` contribute to the predictors, means left out."""
    for n in range(len(data.direction)):
        data.direction[n] = 0.0
    for place in range(rows.starts[first], rows.starts[last]):
        i = rows.members[place]
        for t in range(len(state.W)):
            w, x = state.W[t, i], data.design[i]
            for n in range(data.offsets[t], data.offsets[t + 1]):
                data.direction[n] += w * x[n]


@inner(error_model="numpy")
def step_on_sizes(
    rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, block: ActiveBlock
) -> None:
    """Move the sizes of some active rows, and of all rows where tau is learned; the predictors of ``data`` follow."""
    active = block.sizes.rows
    for _ in range(min(ROWS_AT_A_TIME, active)):
        row = block.rows[int(active * rng.random())]
        step_on_size(rng, data, rows, prior, state, row, row + 1)
    if prior.learn_global_scale:
        step_on_size(rng, data, rows, prior, state, 0, len(rows.sizes))


@inner(error_model="numpy")
def step_on_size(
    rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, first: int, last: int
) -> None:
    """Move rows ``first`` to ``last - 1`` by a common factor; all rows take tau along."""
    together = last - first == len(rows.sizes) and prior.learn_global_scale
    fill_direction(data, rows, state, first, last)
    shift = 0.0
    value = _size_prior(prior, state, first, together, 0.0) + _size_likelihood(data, state, 0.0)
    for _ in range(SIZE_PROPOSALS):
        step = math.exp(LEAST_LOG_SIZE + LOG_SIZE_RANGE * rng.random())
        proposal = shift + step * rng.standard_normal()
        moved = _size_prior(prior, state, first, together, proposal)
        if moved > -np.inf:
            moved += _size_likelihood(data, state, proposal)
        if -rng.standard_exponential() < moved - value:
            shift, value = proposal, moved
    if shift == 0.0:
        return
    factor = math.exp(shift)
    if together:
        state.log_tau[0] += shift
    for row in range(first, last):
        state.log_scales[row] += shift
        for place in range(rows.starts[row], rows.starts[row + 1]):
            for t in range(len(state.W)):
                state.W[t, rows.members[place]] *= factor
    for n in range(len(data.predictors)):
        data.predictors[n] += (factor - 1.0) * data.direction[n]


@inner(error_model="numpy")
def _size_prior(prior: GibbsPrior, state: GibbsState, row: int, together: bool, shift: float) -> float:
    """Log-prior after a move of tau, or of one row; minus infinity beyond what scales may be."""
    log_tau = state.log_tau[0]
    log_scale = (log_tau if together else state.log_scales[row]) + shift
    if not prior.low < log_scale < prior.high:
        return -np.inf
    if together:
        return -0.5 * (log_scale - prior.log_global_scale) ** 2
    if prior.log_uniform:
        return 0.0
    y = beta_prime_power(prior, state.inverse_q[0]) * (log_scale - log_tau)
    return prior.spike_shape * y - (prior.spike_shape + prior.tail_shape) * softplus(y)


@inner(error_model="numpy")
def _size_likelihood(data: Observed, state: GibbsState, shift: float) -> float:
    """Log-likelihood after a move."""
    growth, value = math.exp(shift) - 1.0, 0.0
    if data.form == MULTINOMIAL:
        return softmax_likelihood(data, data.predictors, data.direction, growth)
    for t in range(len(state.W)):
        noise_precision, parameter = 1.0 / (state.noise[t] * state.noise[t]), data.parameters[t]
        for n in range(data.offsets[t], data.offsets[t + 1]):
            eta, weight = data.predictors[n] + data.shifts[n] + growth * data.direction[n], data.weights[n]
            value += log_density_and_score(data.form, weight, data.targets[n], eta, noise_precision, parameter)[0]
    return value


LEAST_SHARE = 1e-11  # of a feature that the others leave


@inner(error_model="numpy")
def step_on_collapsed_scales(
    rng: Generator, data: Observed, rows: RowMap, prior: GibbsPrior, state: GibbsState, block: ActiveBlock
) -> None:
    """Draw scales, coefficients and intercepts of the active rows; predictors and scores follow."""
    m, size = len(state.W), block.sizes.features + 1
    A, S = np.zeros((m, size, size)), np.zeros((m, size, size))
    h, mean, v = np.zeros((m, size)), np.zeros((m, size)), np.zeros((m, size))
    for t in range(m):
        _fill_normal(data, rows, state, block, t, A[t], h[t])
        if prior.intercept_variance > 0.0:
            sweep_in(A[t], h[t], S[t], mean[t], v[t], size - 1, 1.0 / prior.intercept_variance)
        for f in range(size - 1):
            if rows.present[t, block.features[f]]:
                sweep_in(A[t], h[t], S[t], mean[t], v[t], f, _prior_precision(state, block, f))
    for f in range(size - 1):
        row = block.rows[block.places[f]]
        if rows.starts[row + 1] - rows.starts[row] > 1:
            continue
        for t in range(m):
            data.curvatures[t] = data.pulls[t] = 0.0
            if rows.present[t, block.features[f]]:
                sweep_out(S[t], mean[t], f)
                data.curvatures[t], data.pulls[t] = terms_without(A[t], h[t], S[t], mean[t], v[t], f)
        jump_on_normal_scale(rng, data, prior, state, row)
        step_on_normal_scale(rng, data, prior, state, row)
        for t in range(m):
            if rows.present[t, block.features[f]]:
                sweep_in(A[t], h[t], S[t], mean[t], v[t], f, _prior_precision(state, block, f))
    for t in range(m):
        _draw_coefficients(rng, data, state, block, t, S[t], mean[t], v[t])


@inner(error_model="numpy")
def _prior_precision(state: GibbsState, block: ActiveBlock, f: int) -> float:
    return 2.0 * math.exp(-2.0 * state.log_scales[block.rows[block.places[f]]])


@inner(error_model="numpy")
def _fill_normal(
    data: Observed, rows: RowMap, state: GibbsState, block: ActiveBlock, t: int, A: FloatArray, h: FloatArray
) -> None:
    """A and h of a task; the intercept comes last, and what a task does not have is 0."""
    start, stop, size = data.offsets[t], data.offsets[t + 1], len(h)
    precisions, scores = data.precisions[start:stop], data.scores[start:stop]
    weighted = np.empty(stop - start)
    for f in range(size):
        if f == size - 1:
            for n in range(stop - start):
                weighted[n] = precisions[n]
                h[f] += scores[n]
        elif rows.present[t, block.features[f]]:
            x = block.design[f, start:stop]
            h[f] = dot(x, scores)
            for n in range(stop - start):
                weighted[n] = x[n] * precisions[n]
        else:
            continue
        for g in range(min(f + 1, size - 1)):
            if rows.present[t, block.features[g]]:
                A[f, g] = A[g, f] = dot(block.design[g, start:stop], weighted)
    total = 0.0
    for n in range(stop - start):
        total += precisions[n]
    A[size - 1, size - 1] = total
    for f in range(size):
        for g in range(size - 1):
            h[f] += A[f, g] * state.W[t, block.features[g]]
        h[f] += A[f, size - 1] * state.intercept[t]


@inner(error_model="numpy")
def terms_without(
    A: FloatArray, h: FloatArray, S: FloatArray, mean: FloatArray, v: FloatArray, f: int
) -> tuple[float, float]:
    """``a`` and ``g`` of a feature that is swept out, and ``v = S A_f``.

    ``g^2 / a`` is bounded: where the others leave nothing of a feature but rounding errors, both are 0.
    """
    for j in range(len(h)):
        v[j] = dot(S[j], A[f])
    a, g = A[f, f] - dot(v, A[f]), h[f] - dot(A[f], mean)
    return (a, g) if a > LEAST_SHARE * A[f, f] else (0.0, 0.0)


@inner(error_model="numpy")
def sweep_in(
    A: FloatArray, h: FloatArray, S: FloatArray, mean: FloatArray, v: FloatArray, f: int, prior_precision: float
) -> None:
    """Let a feature in again that was swept out."""
    a, g = terms_without(A, h, S, mean, v, f)
    variance = 1.0 / (a + prior_precision)
    own = variance * g
    for j in range(len(h)):
        mean[j] -= v[j] * own
        factor = variance * v[j]
        for k in range(len(h)):
            S[j, k] += factor * v[k]
    for j in range(len(h)):
        S[f, j] = S[j, f] = -variance * v[j]
    S[f, f], mean[f] = variance, own


@inner(error_model="numpy")
def sweep_out(S: FloatArray, mean: FloatArray, f: int) -> None:
    """Covariance and mean of the others where a feature is held at 0."""
    inverse = 1.0 / S[f, f]
    own = mean[f] * inverse
    for j in range(len(mean)):
        if j != f:
            mean[j] -= S[j, f] * own
            factor = S[j, f] * inverse
            for k in range(len(mean)):
                if k != f:
                    S[j, k] -= factor * S[f, k]
    for j in range(len(mean)):
        S[f, j] = S[j, f] = 0.0
    mean[f] = 0.0


@inner(error_model="numpy")
def _draw_coefficients(
    rng: Generator,
    data: Observed,
    state: GibbsState,
    block: ActiveBlock,
    t: int,
    S: FloatArray,
    mean: FloatArray,
    normals: FloatArray,
) -> None:
    """Draw from N(mean, S) by the Cholesky factor of S, which is written over it."""
    size = len(mean)
    start, stop = data.offsets[t], data.offsets[t + 1]
    for f in range(size):
        normals[f] = rng.standard_normal()
    for f in range(size):
        for g in range(f + 1):
            value = S[f, g] - dot(S[f, :g], S[g, :g])
            if f == g:
                S[f, f] = math.sqrt(max(value, 0.0))
            else:
                S[f, g] = value / S[g, g] if S[g, g] > 0.0 else 0.0
    for f in range(size):
        new = mean[f] + dot(S[f, : f + 1], normals[: f + 1])
        if f < size - 1:
            i = block.features[f]
            move_along(data, start, stop, data.design[i], new - state.W[t, i])
            state.W[t, i] = new
        elif S[f, f] > 0.0:
            change = new - state.intercept[t]
            state.intercept[t] = new
            for n in range(start, stop):
                data.predictors[n] += change
                data.scores[n] -= data.precisions[n] * change
