r"""Joint draw of the means that coefficients have in common over tasks, by observation.

    w_it = mu_i + v_it,   mu_i ~ N(0, s^2)

Given the deviations v and the precisions omega of all observations, moving the means by d changes the linear predictors
by X d, so that d is normal with precision ``X'diag(omega)X + I / s^2`` and linear term ``X's - mu / s^2``, s the scores of
`gibbs_observations`. One mean at a time (`gibbs_features`) hardly moves where features are nearly alike; this step costs
``O(N p^2)`` and is made where p is at most `MOST_FEATURES`. A task says nothing of the means of features that it does not
have.
"""

import numpy as np
from numba import njit

from bayesmtfs.gibbs.cholesky import factorise, solve_lower, solve_upper
from bayesmtfs.gibbs.observations import Observations, Working, dot, move_along
from bayesmtfs.gibbs.state import Law, Rows, State
from bayesmtfs.types import FloatArray

MOST_FEATURES = 64


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_means(
    rng: np.random.Generator, observations: Observations, working: Working, rows: Rows, law: Law, state: State
) -> None:
    """Draw all means given the deviations; predictors and scores follow.

    Parameters
    ----------
    rng : generator
    observations, working : likelihood given the precisions
    rows, law, state : the problem and the state
    """
    m, p = state.W.shape
    if p > MOST_FEATURES:
        return
    A, change = np.zeros((p, p)), np.empty(p)
    for i in range(p):
        A[i, i] = law.mean_precision
        change[i] = -law.mean_precision * state.mean[i]
    for t in range(m):
        _add_task(observations, working, rows, t, A, change)
    factorise(A, p)
    solve_lower(A, change, p)
    for i in range(p):
        change[i] += rng.standard_normal()
    solve_upper(A, change, p)
    for i in range(p):
        state.mean[i] += change[i]
        for t in range(m):
            if rows.present[t, i]:
                start, stop = observations.offsets[t], observations.offsets[t + 1]
                move_along(working, start, stop, observations.design[i], change[i])


@njit(cache=True, nogil=True, error_model="numpy")
def _add_task(
    observations: Observations, working: Working, rows: Rows, t: int, A: FloatArray, linear: FloatArray
) -> None:
    """What one task adds to the lower triangle of the precision, and to the linear term."""
    start, stop = observations.offsets[t], observations.offsets[t + 1]
    precisions, scores = working.precisions[start:stop], working.scores[start:stop]
    weighted = np.empty(stop - start)
    for i in range(len(linear)):
        if rows.present[t, i]:
            x = observations.design[i, start:stop]
            linear[i] += dot(x, scores)
            for n in range(stop - start):
                weighted[n] = x[n] * precisions[n]
            for j in range(i + 1):
                if rows.present[t, j]:
                    A[i, j] += dot(observations.design[j, start:stop], weighted)
