r"""What the sampler of the prior with exact zeros carries: data, the prior as numbers, the state, and how it begins.

A task with more rows than features p is first reduced to p + 2 rows that have the same sums ``X'X, X'y, y'y`` (the triangle
of a QR factorisation); one design serves all tasks that share theirs.

Normal targets: ``X'r`` of all features with the residuals r is kept up to date, so that the likelihood of a row costs O(m),
and a coefficient that changes costs one column of ``X'X``, O(p). Columns are computed when they are first wanted, O(n p),
and kept in a store of at most `STORE_BYTES` for each chain; when it is full, the oldest one makes room.

Other families have precisions that change in every sweep: the likelihood of a row is computed from its rows, O(n m).
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.families.augmentation import NORMAL
from bayesmtfs.gibbs.cells import CellMoments
from bayesmtfs.gibbs.spike_row import Nodes, Row, Slabs, Weights, nodes_for, row_space, slab_grid
from bayesmtfs.gibbs.state import RowMap, rows_of
from bayesmtfs.priors.spike import SpikePrior
from bayesmtfs.types import BoolArray, FloatArray, IntArray

NEIGHBOUR = 0.3  # correlation from which on two features are neighbours
MOST_NEIGHBOURS = 15
STORE_BYTES = 2**27  # of columns of X'X, for each chain


class SpikeDraws(NamedTuple):
    """Draws of one chain; fewer than asked for where it was interrupted."""

    W: FloatArray  # (draws, p, m)
    included: BoolArray  # (draws, p, m)
    intercept: FloatArray  # (draws, m)
    noise: FloatArray  # (draws, m)
    inclusion_rate: FloatArray  # (draws,) pi
    log_likelihood: FloatArray  # (draws,)
    log_posterior: FloatArray  # (draws,) up to a constant; weights of grids integrated out
    n_features: FloatArray  # (draws,) features that are on in some task
    interrupted: bool
    parameter: FloatArray | None = None  # (draws, m) dispersion or degrees of freedom, where the family learns them
    cells: CellMoments | None = None  # of missing cells of features


class SpikeSums(NamedTuple):
    """Sums over the rows of each design, for normal targets; empty for others."""

    design_of: IntArray  # (m,) number of each task's design
    pulls: FloatArray  # (m, p) X'r
    totals: FloatArray  # (D, p) X'1
    blocks: FloatArray  # (D, sum of k^2) X'X of the features of each row of the prior, row by row
    block_starts: IntArray  # (R,) of these
    columns: FloatArray  # (S, p) columns of X'X that were wanted
    slots: IntArray  # (D, p) where each stands; -1: nowhere
    owners: IntArray  # (S + 1,) whose they are, design times p plus feature or -1; then the place that is next


class SpikeData(NamedTuple):
    """Data of all tasks by rows, and what the likelihood is at the present state."""

    design: FloatArray  # (p, columns)
    places: IntArray  # (m,) first column of each task's design
    ones: FloatArray  # (columns,) the column of the intercepts
    targets: FloatArray  # (N,)
    weights: FloatArray  # (N,)
    offsets: IntArray  # (m + 1,) first row of each task
    counts: FloatArray  # (m,) observations, by weight
    form: int  # `Augmentation.form`
    parameters: FloatArray  # (m,) `Augmentation.parameter`
    known: FloatArray  # (N,) part of the linear predictor: offset, and centre of the prior of the intercept
    predictors: FloatArray  # (N,)
    precisions: FloatArray  # (N,)
    scores: FloatArray  # (N,) derivative of the log-likelihood in the predictors
    sums: SpikeSums


class SpikeNumbers(NamedTuple):
    """The prior as numbers, and which features are neighbours."""

    slabs: Slabs
    pattern_rates: FloatArray
    task_rates: FloatArray
    log_task_rates: FloatArray
    concentrations: FloatArray
    rates: FloatArray
    log_rates: FloatArray
    log_odds: FloatArray  # of a row being on, given how many others are, pi integrated out
    n_left_out: int
    dirichlet: FloatArray  # (3,) of rho, C and omega
    noise_shape: float
    noise_rate: float
    learn_noise: bool
    shared_noise: bool
    intercept_precision: float  # of the prior; 0: no intercept
    neighbours: IntArray  # (R, k) rows
    n_neighbours: IntArray  # (R,)


class SpikeState(NamedTuple):
    """What changes from sweep to sweep, in place; single numbers are arrays of one."""

    W: FloatArray  # (p, m)
    patterns: BoolArray  # (R, m)
    on: BoolArray  # (R,)
    slab: IntArray  # (R,)
    table: IntArray  # (R,)
    table_rate: IntArray  # (T,) number of omega of each table
    weights: Weights
    task_rate: FloatArray  # (m,) kappa
    rate: FloatArray  # (1,) pi
    intercept: FloatArray  # (m,)
    noise: FloatArray  # (m,)
    chance: FloatArray  # (R,) sum of the probabilities of being on, while visits are tuned
    visits: FloatArray  # (R,) probability of a visit
    log_likelihood: FloatArray  # (1,)


class SpikeSpace(NamedTuple):
    """Space of a sweep."""

    row: Row
    nodes: Nodes
    order: IntArray  # (R,)
    numbers: FloatArray  # space for weights of a grid or of neighbours


class SpikeParts(NamedTuple):
    """All that a sweep reads and writes."""

    data: SpikeData
    rows: RowMap
    prior: SpikeNumbers
    state: SpikeState
    space: SpikeSpace


# ---------------------------------------------------------------------- how a chain begins


def spike_data(
    data: TaskData,
    family: Family,
    fit_intercept: bool,
    reduce: bool = True,
    intercept_centre: tuple[float, ...] = (0.0,),
) -> SpikeData:
    """Rows of all tasks; one design if all tasks have the same rows.

    With ``reduce`` normal targets have at most p + 2 rows. ``intercept_centre`` is that of other targets.
    """
    form, weights = family.augmentation.form, np.asarray(data.weight, dtype=np.float64)
    y, spans = np.asarray(data.y, dtype=np.float64), data.spans
    alike = data.is_complete and bool(np.all(weights.reshape(data.n_tasks, -1) == weights[: spans[0][1]]))
    groups = [list(range(data.n_tasks))] if alike else [[t] for t in range(data.n_tasks)]
    designs, targets, places, column = [], [], [], 0
    for tasks in groups:
        start, stop = spans[tasks[0]]
        Z = np.column_stack([np.full(stop - start, float(fit_intercept)), data.task_designs[tasks[0]]])
        Y = np.column_stack([y[slice(*spans[t])] for t in tasks])
        if form == NORMAL:
            root = np.sqrt(weights[start:stop, np.newaxis])
            Z, Y = _reduced(root * Z, root * Y) if reduce else (root * Z, root * Y)
        designs.append(Z)
        targets += list(Y.T)
        places += [column] * len(tasks)
        column += len(Z)
    stacked, lengths = np.concatenate(designs).T, [len(part) for part in targets]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    numbers = np.repeat(np.arange(len(groups)), [len(tasks) for tasks in groups])
    known = np.zeros(offsets[-1])
    if form != NORMAL:
        known += np.broadcast_to(intercept_centre, data.n_tasks)[data.task]
        known += 0.0 if data.eta_offset is None else data.eta_offset
    return SpikeData(
        design=np.ascontiguousarray(stacked[1:]),
        places=np.array(places, dtype=np.int64),
        ones=np.ascontiguousarray(stacked[0]),
        targets=np.concatenate(targets),
        weights=np.ones(offsets[-1]) if form == NORMAL else weights,
        offsets=offsets,
        counts=data.task_weights,
        form=form,
        parameters=np.full(data.n_tasks, float(family.augmentation.parameter)),
        known=known,
        predictors=known.copy(),
        precisions=np.zeros(offsets[-1]),
        scores=np.zeros(offsets[-1]),
        sums=_sums(designs if form == NORMAL else [], numbers, rows_of(data)),
    )


def _sums(designs: list[FloatArray], design_of: IntArray, rows: RowMap) -> SpikeSums:
    """Sums of designs with a column of ones in front."""
    (m, p), D = rows.present.shape, len(designs)
    sizes = np.diff(rows.starts) ** 2
    blocks = [_blocks(Z[:, 1:], rows) for Z in designs]
    room = min(max(STORE_BYTES // (8 * p), 1), D * p)
    return SpikeSums(
        design_of=design_of,
        pulls=np.zeros((m if D else 0, p)),
        totals=np.array([Z[:, 1:].T @ Z[:, 0] for Z in designs]).reshape(D, p),
        blocks=np.array(blocks).reshape(D, sizes.sum()),
        block_starts=np.cumsum(sizes) - sizes,
        columns=np.empty((room, p)),
        slots=np.full((D, p), -1),
        owners=np.append(np.full(room, -1), 0),
    )


def _blocks(X: FloatArray, rows: RowMap) -> FloatArray:
    """X'X of the features of each row, one after the other."""
    if len(rows.sizes) == X.shape[1]:
        return np.einsum("ni,ni->i", X, X)[rows.members]
    chosen = [X[:, rows.members[start:stop]] for start, stop in pairwise(rows.starts)]
    return np.concatenate([(block.T @ block).ravel() for block in chosen])


def _reduced(Z: FloatArray, Y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fewer rows with the same sums of squares and products, one of them for what Z leaves of each column of Y."""
    if len(Z) <= Z.shape[1] + 1:
        return Z, Y
    Q, R = np.linalg.qr(Z)
    top = Q.T @ Y
    left = np.linalg.norm(Y - Q @ top, axis=0)
    return np.vstack([R, np.zeros(Z.shape[1])]), np.vstack([top, left])


def spike_numbers(prior: SpikePrior, family: Family, data: SpikeData, rows: RowMap) -> SpikeNumbers:
    """Prior as numbers."""
    if 0.0 not in prior.shares and len(rows.sizes) < len(data.design):
        raise ValueError(f"shares is {prior.shares}, but a group of features has independent effects; add 0.0")
    neighbours, n_neighbours = neighbours_of(data, rows)
    rates, log_rates = np.array(prior.inclusion_rates), np.log(np.maximum(prior.inclusion_weights, 1e-300))
    return SpikeNumbers(
        slabs=slab_grid(prior.scales, prior.shares),
        pattern_rates=np.array(prior.pattern_rates),
        task_rates=np.array(prior.task_rates),
        log_task_rates=np.log(prior.task_rate_weights),
        concentrations=np.array(prior.concentrations),
        rates=rates,
        log_rates=log_rates,
        log_odds=_log_odds(rates, log_rates, len(rows.sizes) + prior.n_left_out),
        n_left_out=prior.n_left_out,
        dirichlet=np.array([prior.scale_concentration, prior.share_concentration, prior.rate_concentration]),
        noise_shape=prior.noise_shape,
        noise_rate=prior.noise_rate,
        learn_noise=family.has_noise,
        shared_noise=prior.shared_noise,
        intercept_precision=prior.intercept_scale**-2.0 if prior.fit_intercept else 0.0,
        neighbours=neighbours,
        n_neighbours=n_neighbours,
    )


def _log_odds(rates: FloatArray, log_weights: FloatArray, n_rows: int) -> FloatArray:
    """(R,) ``ln E[pi^(k+1) (1 - pi)^(R-k-1)] - ln E[pi^k (1 - pi)^(R-k)]`` for k other rows that are on."""
    on = np.arange(n_rows + 1)[:, np.newaxis]
    with np.errstate(divide="ignore"):
        terms = log_weights + on * np.log(rates) + np.where(on < n_rows, (n_rows - on) * np.log1p(-rates), 0.0)
    return np.asarray(np.diff(logsumexp(terms, axis=1)))


def neighbours_of(data: SpikeData, rows: RowMap) -> tuple[IntArray, IntArray]:
    """Rows (R, k) that correlate with each row, itself first, and their numbers (R,); groups have none but themselves."""
    single = np.flatnonzero(np.diff(rows.starts) == 1)
    X = data.design[rows.members[rows.starts[single]]]
    X = X - np.outer(X @ data.ones, data.ones) / max(float(data.ones @ data.ones), 1e-300)
    length = np.linalg.norm(X, axis=1)
    X /= np.where(length > 0, length, 1.0)[:, np.newaxis]
    found: list[set[int]] = [{row} for row in range(len(rows.sizes))]
    for start in range(0, len(single), 500):
        likeness = np.abs(X[start : start + 500] @ X.T)
        nearest = np.argsort(-likeness, axis=1)[:, :MOST_NEIGHBOURS]
        for i, near in enumerate(nearest, start=start):
            for j in near[likeness[i - start, near] >= NEIGHBOUR]:
                found[single[i]].add(int(single[j]))
                found[single[j]].add(int(single[i]))
    counts = np.array([len(rows_near) for rows_near in found], dtype=np.int64)
    table = np.zeros((len(found), int(counts.max())), dtype=np.int64)
    for row, rows_near in enumerate(found):
        table[row, : counts[row]] = sorted(rows_near)
    return table, counts


def first_state(data: SpikeData, prior: SpikeNumbers, rows: RowMap) -> SpikeState:
    """All rows off, the noise that of the targets, and equal weights."""
    (R, m), p = (len(rows.sizes), len(data.counts)), len(data.design)
    slabs, n_rates = prior.slabs, len(prior.pattern_rates)
    weights = Weights(
        scale=np.full(slabs.scale.max() + 1, 1.0 / (slabs.scale.max() + 1)),
        share=np.full(slabs.share.max() + 1, 1.0 / (slabs.share.max() + 1)),
        rate=np.full(n_rates, 1.0 / n_rates),
        entry_rates=np.zeros((n_rates, m)),
        empty=np.zeros(n_rates),
        tables=np.zeros((R + 1, m), dtype=np.bool_),
        counts=np.zeros(R + 1, dtype=np.int64),
        n_tables=np.zeros(1, dtype=np.int64),
        concentration=prior.concentrations[[len(prior.concentrations) // 2]],
    )
    squares = np.add.reduceat((data.targets - data.known) ** 2, data.offsets[:-1])
    noise = np.sqrt((squares + 2.0 * prior.noise_rate) / (data.counts + 2.0 * prior.noise_shape))
    return SpikeState(
        W=np.zeros((p, m)),
        patterns=np.zeros((R, m), dtype=np.bool_),
        on=np.zeros(R, dtype=np.bool_),
        slab=np.zeros(R, dtype=np.int64),
        table=np.zeros(R, dtype=np.int64),
        table_rate=np.zeros(R + 1, dtype=np.int64),
        weights=weights,
        task_rate=np.full(m, prior.task_rates[-1]),
        rate=np.array([prior.rates[len(prior.rates) // 3]]),
        intercept=np.zeros(m),
        noise=noise if prior.learn_noise else np.ones(m),
        chance=np.zeros(R),
        visits=np.ones(R),
        log_likelihood=np.zeros(1),
    )


def space_for(prior: SpikeNumbers, state: SpikeState, rows: RowMap) -> SpikeSpace:
    """Allocate."""
    nodes = nodes_for(prior.slabs, len(prior.pattern_rates), len(state.weights.counts))
    longest = max(prior.neighbours.shape[1], len(prior.rates), len(prior.concentrations), len(prior.task_rates))
    longest = max(longest, len(prior.pattern_rates), len(prior.slabs.scale))
    row = row_space(len(state.intercept), int(np.diff(rows.starts).max()))
    return SpikeSpace(row, nodes, np.zeros(len(rows.sizes), dtype=np.int64), np.zeros(longest))


def kept_for(draws: int, rows: RowMap) -> SpikeDraws:
    """Allocate."""
    m, p = rows.present.shape
    return SpikeDraws(
        W=np.zeros((draws, p, m)),
        included=np.zeros((draws, p, m), dtype=np.bool_),
        intercept=np.zeros((draws, m)),
        noise=np.zeros((draws, m)),
        inclusion_rate=np.zeros(draws),
        log_likelihood=np.zeros(draws),
        log_posterior=np.zeros(draws),
        n_features=np.zeros(draws),
        interrupted=False,
    )
