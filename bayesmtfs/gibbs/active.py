"""Steps on the active rows at q = 2, several in a sweep, since they cost less than a look at thousands of features.

Active rows are drawn by chance (`gibbs_path_tuning`); then, for labels several times: a Hamiltonian path with the
Pólya-Gamma precisions integrated out (`gibbs_path`), the precisions given the linear predictors, and the scales of the
active rows with all their coefficients integrated out (`gibbs_collapsed`).
"""

import numpy as np
from numba import njit

from bayesmtfs.gibbs.block import Block
from bayesmtfs.gibbs.collapsed import step_on_collapsed_scales
from bayesmtfs.gibbs.observations import Observations, Working, fill_scores
from bayesmtfs.gibbs.path import Path, prepare_path, step_along_path
from bayesmtfs.gibbs.path_tuning import redraw_rows, tune_path
from bayesmtfs.gibbs.state import Law, Rows, State

CYCLES = 3  # in a sweep


@njit(cache=True, nogil=True, error_model="numpy")
def step_on_active_rows(
    rng: np.random.Generator,
    observations: Observations,
    working: Working,
    rows: Rows,
    law: Law,
    state: State,
    block: Block,
    path: Path,
    tuning: int,
    tune: int,
) -> None:
    """Move active rows and intercepts, and for labels all coefficients; precisions and scores are drawn.

    Parameters
    ----------
    rng : generator
    observations, working : likelihood; the predictors must be those of the state
    rows, law, state : the problem and the state
    block, path : active rows, and coordinates of the path
    tuning, tune : number of the sweep, from 1 to ``tune`` while steps are tuned, else 0
    """
    redraw_rows(rng, observations, rows, law, block, path)
    if observations.labels:
        prepare_path(observations, rows, law, state, block, path)
    for cycle in range(CYCLES if observations.labels else 1):
        acceptance = -1.0
        if observations.labels:
            acceptance = step_along_path(rng, observations, working, rows, law, state, block, path)
        fill_scores(rng, observations, state, working)
        if tuning > 0 and cycle == 0:
            tune_path(observations, working, rows, state, block, path, acceptance, tuning, tune)
        step_on_collapsed_scales(rng, observations, working, rows, law, state, block)
