"""Compiled passes of dual averaging over the entries of one sparse row: find, predict, add.

``bounds[slot]`` is at least the norm of a feature's row of average gradients: it tells most features that the penalty
keeps at zero without a look at their m sums. While a round is learned, ``-bounds[slot]`` is the norm itself, found once
for all rows of the round that hold the feature; adding the round's gradients makes it a bound again.

Each pass is a short loop without a branch that depends on the data, and what the next pass reads is fetched ahead:
a stream of many features is limited by its memory, not by its arithmetic.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.online.dual_averaging_kernels import (
    ROWS,
    Rules,
    SlotArray,
    cut_of,
    kept_share,
    soft,
    squared_norm,
)
from bayesmtfs.online.prefetch import prefetch
from bayesmtfs.priors.row_prox import ZERO_SLACK
from bayesmtfs.types import FloatArray

PlaceArray = NDArray[np.uint32]  # slots of features that all have one: no index is negative


@njit(cache=True, nogil=True, error_model="numpy")
def claim_slots(slots: SlotArray, indices: NDArray[np.int32], used: int) -> tuple[int, SlotArray]:
    """Give every feature that is met for the first time the next row of the sums.

    Returns the new number of rows, and the row of every entry.
    """
    found = np.empty(indices.size, dtype=np.int32)
    for place in range(indices.size):
        slot = slots[indices[place]]
        if slot < 0:
            slot = np.int32(used)
            slots[indices[place]] = slot
            used += 1
        found[place] = slot
    return used, found


@njit(cache=True, nogil=True, error_model="numpy")
def find_slots(slots: SlotArray, indices: NDArray[np.int32]) -> SlotArray:
    """Row of every entry in the sums, -1 where its feature was not met."""
    found = np.empty(indices.size, dtype=np.int32)
    for place in range(indices.size):
        found[place] = slots[indices[place]]
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def predicted_product(
    data: FloatArray,
    indices: NDArray[np.int32],
    slots: SlotArray,
    k: int,
    rules: Rules,
    sums: FloatArray,
    bounds: FloatArray,
    inverse: FloatArray,
    sparsity: FloatArray,
    n_tasks: int,
) -> float:
    """Product of a row's entries with their proximal steps in task k; nothing changes."""
    by_rows = rules.kind == ROWS
    bounded = by_rows and not rules.summed
    total = 0.0
    for place in range(slots.size):
        slot = slots[place]
        if slot < 0 or (bounded and bounds[slot] <= rules.strength) or sums[slot, k] == 0.0:
            continue  # not met, or known to be zero without a look at the other tasks
        cut = cut_of(rules, sparsity, indices[place])
        factor = 1.0
        if by_rows:
            factor = kept_share(math.sqrt(squared_norm(sums, slot, inverse, n_tasks, cut)), rules.strength)
        total += data[place] * factor * soft(sums[slot, k] * inverse[k], cut)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _find_live(places: PlaceArray, k: int, sums: FloatArray, bounds: FloatArray, cut: float, live: PlaceArray) -> int:
    """Entries whose features may have weights; the sums of task k are fetched for all, since the row adds to them."""
    n = 0
    for place in range(places.size):
        live[n] = place
        prefetch(sums, places[place], k)
        n += abs(bounds[places[place]]) > cut
    return n


@njit(cache=True, nogil=True, error_model="numpy")
def _find_norms(
    indices: NDArray[np.int32],
    places: PlaceArray,
    live: PlaceArray,
    rules: Rules,
    sums: FloatArray,
    bounds: FloatArray,
    inverse: FloatArray,
    sparsity: FloatArray,
    n_tasks: int,
    unknown: PlaceArray,
) -> None:
    """Replace the bounds of live entries by the norms themselves, with a minus where the penalty leaves a weight."""
    n = 0
    for place in live:
        unknown[n] = place
        n += bounds[places[place]] > 0.0
    largest_zero = rules.strength * (1.0 + ZERO_SLACK)
    for place in unknown[:n]:
        cut = cut_of(rules, sparsity, indices[place])
        norm = math.sqrt(squared_norm(sums, places[place], inverse, n_tasks, cut))
        bounds[places[place]] = norm if norm <= largest_zero else -norm


@njit(cache=True, nogil=True, error_model="numpy")
def learned_product(
    data: FloatArray,
    indices: NDArray[np.int32],
    places: PlaceArray,
    k: int,
    rules: Rules,
    sums: FloatArray,
    bounds: FloatArray,
    inverse: FloatArray,
    sparsity: FloatArray,
    n_tasks: int,
) -> float:
    """Return the same for a row that is about to be learned; the norms that were needed stay noted in the bounds."""
    total = 0.0
    if rules.kind != ROWS:
        for place in range(places.size):
            total += data[place] * soft(sums[places[place], k] * inverse[k], rules.strength)
        return total
    work = np.empty((2, places.size), dtype=np.uint32)
    n_live = _find_live(places, k, sums, bounds, 0.0 if rules.summed else rules.strength, work[0])
    live = work[0, :n_live]
    _find_norms(indices, places, live, rules, sums, bounds, inverse, sparsity, n_tasks, work[1])
    for place in live:
        slot = places[place]
        norm = -bounds[slot]
        gradient = soft(sums[slot, k] * inverse[k], cut_of(rules, sparsity, indices[place]))
        total += data[place] * (1.0 - rules.strength / norm) * gradient if norm > 0.0 else 0.0
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def add_sparse_row(
    data: FloatArray, places: PlaceArray, k: int, slope: float, sums: FloatArray, bounds: FloatArray, inverse: float
) -> None:
    """Add the gradient of a row to the sums of its features, and to the bounds on their norms.

    An average gradient shrinks as its task's clock ticks, so that the norm of a row never grows by more than this.
    """
    share = abs(slope) * inverse
    for place in range(places.size):
        slot = places[place]
        sums[slot, k] += slope * data[place]
        bounds[slot] = abs(bounds[slot]) + share * abs(data[place])
