r"""Random walk on 1/q for the sampler by observation: `gibbs_exponent` with the data kept by observation.

Scales and coefficients go with q as they do in sums. What is different is how much the data know of a coefficient, and
how the proposal is judged:

- the likelihood of labels is taken as it is, with the Pólya-Gamma precisions integrated out: given those, predictors
  would stay close to where they are, and q with them;
- the precision Q of the data on a coefficient w_it is ``sum_n omega_n x_ni^2``. The map must be the same on the way there
  and back, so that Q must not hang on the coefficients: ``omega = weight / sigma^2`` of normal targets does not, and for
  labels it is the curvature ``weight p (1 - p)`` averaged while the sampler was tuned.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bayesmtfs.gibbs.exponent import ExponentSpace, accept, exponent_space, propose
from bayesmtfs.gibbs.observations import Observations, Working, log_likelihood, weighted_square
from bayesmtfs.gibbs.state import Law, Rows, State
from bayesmtfs.types import FloatArray


class ObservedExponentSpace(NamedTuple):
    """Arrays that the step writes to; the precisions of labels in ``carried`` are what it has learned."""

    carried: ExponentSpace
    curvatures: FloatArray  # (N,) omega
    predictors: FloatArray  # (N,) proposed


def observed_exponent_space(observations: Observations, rows: Rows) -> ObservedExponentSpace:
    """Allocate."""
    count, (m, p) = len(observations.targets), rows.present.shape
    carried = exponent_space(m, p, len(rows.sizes))
    return ObservedExponentSpace(carried, np.empty(count), np.empty(count))


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_observed_exponent(
    rng: np.random.Generator,
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    tuning: int,
    space: ObservedExponentSpace,
) -> None:
    """Propose another 1/q, and with it scales and coefficients; the predictors follow.

    Parameters
    ----------
    rng : generator
    observations, working : likelihood; only the predictors are used
    rows, law, state : the problem and the state
    tuning : number of the sweep, 1, 2, ..., while the step is tuned; 0: leave it as it is
    space : what the step writes to
    """
    proposal = propose(rng, rows, law, state, space.carried)
    _propose_predictors(observations, working, state, space)
    change = log_likelihood(observations, state, space.predictors)
    change -= log_likelihood(observations, state, working.predictors)
    if accept(rng, proposal, change, law, state, tuning, space.carried):
        for n in range(len(space.predictors)):
            working.predictors[n] = space.predictors[n]


@njit(cache=True, nogil=True, error_model="numpy")
def fill_precisions(
    observations: Observations, working: Working, rows: Rows, state: State, tuning: int, space: ObservedExponentSpace
) -> None:
    """Precisions of the data on every coefficient: the present ones of normal targets, averages for labels."""
    share = 1.0
    if observations.labels:
        if tuning == 0:
            return
        share = 1.0 / min(tuning, 100)
    _fill_curvatures(observations, working, state, space.curvatures)
    precisions = space.carried.precisions
    for i in range(len(observations.design)):
        for t in range(len(precisions)):
            start, stop = observations.offsets[t], observations.offsets[t + 1]
            if rows.present[t, i]:
                known = weighted_square(observations.design[i, start:stop], space.curvatures[start:stop])
                precisions[t, i] += share * (known - precisions[t, i])


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_curvatures(observations: Observations, working: Working, state: State, curvatures: FloatArray) -> None:
    """Minus the second derivative of the log-likelihood in each predictor."""
    for t in range(len(state.W)):
        noise_precision = 1.0 / (state.noise[t] * state.noise[t])
        for n in range(observations.offsets[t], observations.offsets[t + 1]):
            curvatures[n] = observations.weights[n] * noise_precision
            if observations.labels:
                small = math.exp(-abs(working.predictors[n]))
                curvatures[n] = observations.weights[n] * small / ((1.0 + small) * (1.0 + small))


@njit(cache=True, nogil=True, error_model="numpy")
def _propose_predictors(
    observations: Observations, working: Working, state: State, space: ObservedExponentSpace
) -> None:
    """Predictors of the proposed coefficients."""
    for n in range(len(space.predictors)):
        space.predictors[n] = working.predictors[n]
    for i in range(len(observations.design)):
        x = observations.design[i]
        for t in range(len(state.W)):
            change = space.carried.W[t, i] - state.W[t, i]
            if change != 0.0:
                for n in range(observations.offsets[t], observations.offsets[t + 1]):
                    space.predictors[n] += change * x[n]
