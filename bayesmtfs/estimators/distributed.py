"""Penalised classifiers of dask DataFrames: every pass over the rows is made where the rows are.

A partition is read once and stays with a worker, those of a thread as one block, which answers with sums over its rows
(`proximal_gradient`), and only sums travel. A pass asks the workers themselves, in one round trip past the scheduler,
which by itself would take longer than a pass over 100,000 rows. Where blocks are no longer where they were, a pass is a
graph of tasks instead, with the sums added in a tree, and a partition that was lost with its worker is read again: the
sums of a pass are pure functions of partitions and coefficients, so that nothing is counted twice.

Squared losses need one pass only: ``estimator.fit_moments(bayesmtfs.moments.from_dask(frame, ...))``.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from bayesmtfs.convex.proximal_gradient import RowSums, Spectral, row_conjugate, row_sums
from bayesmtfs.data.classes import match_classes, read_classes
from bayesmtfs.data.frames import Column, Encoding
from bayesmtfs.data.inputs import match_labels, read_labels
from bayesmtfs.data.moments import add_in_tree
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import check_kinds
from bayesmtfs.estimators.penalised import DEFAULT_SHARE, MixedNormClassifier
from bayesmtfs.estimators.streams import Columns, read_stream
from bayesmtfs.families import Family, find_family
from bayesmtfs.priors import RowPenalty
from bayesmtfs.types import ConvergenceWarning, FloatArray, IntArray, Solution, warn

LARGEST_GATHER = 2**28  # bytes of sums of blocks that come here to be added; beyond it workers add them in a tree


class Totals(NamedTuple):
    """What is known of all rows before the first step."""

    negative: FloatArray  # (m,) weight of the rows of the first class
    positive: FloatArray  # (m,)
    products: FloatArray  # (p, m) weighted sums of the features
    n_rows: int


class Share(NamedTuple):
    """Sums of some tasks."""

    tasks: NDArray[Any]  # (k,) labels
    sums: Any  # arrays with the tasks last, and numbers for all tasks together


class Place(NamedTuple):
    """Where a pass looks at the rows, for all tasks."""

    family: Family
    tasks: NDArray[Any]
    divisors: FloatArray  # (m,) of the weights
    W: FloatArray
    intercept: FloatArray

    def of(self, data: TaskData) -> tuple[IntArray, FloatArray]:
        """Numbers of the tasks of a part, and the weights of its rows."""
        own = match_labels(data.task_names, data.n_tasks, self.tasks)
        return own, data.weight / self.divisors[own][data.task]


def fit_dask(
    estimator: MixedNormClassifier,
    frame: Any,
    target: str,
    task: str | None = None,
    weight: str | None = None,
    classes: Any = None,
) -> MixedNormClassifier:
    """Fit a `MixedNormClassifier` of a smooth loss to a dask DataFrame (needs the extra ``dask``).

    W is dense on the machine that calls: ``8 p m`` bytes, some twelve times over. Ctrl-C gives the coefficients so far,
    with a `ConvergenceWarning`.

    Parameters
    ----------
    estimator : parameters; ``refit``, ``standardize``, ``shared_mean`` and ``groups`` do not go with it
    frame : dask DataFrame with pandas partitions and numeric features
    target, task, weight : names of columns; all others are features
    classes : the two labels; default: found in a pass over the target

    Returns
    -------
    the fitted copy; the estimator stays as it is
    """
    model = clone(estimator)
    _check(model)
    columns = Columns(target, task, weight)
    blocks, labels = blocks_of(frame, columns, classes)
    passes = DaskPasses(blocks, model.loss_scale, find_family(model.loss))
    solution, strength = _solved(model, passes)
    if not solution.converged:
        reason = "was interrupted" if solution.interrupted else f"stopped after {solution.n_iter} passes"
        warn(
            f"the fit {reason} before its duality gap reached tol={model.tol:g}; raise max_iter or tol, or scale the "
            "features",
            ConvergenceWarning,
        )
    names = [name for name in frame.columns if name not in columns.named]
    _keep_fit(model, solution, strength, passes, labels, names)
    return model


def blocks_of(frame: Any, columns: Columns, classes: Any = None) -> tuple["HeldRows", NDArray[Any]]:
    """Read the partitions of a frame where they are, to stay there; with them the two labels of the target."""
    import dask

    partitions = frame.to_delayed()
    if classes is None:
        found = dask.compute(*[dask.delayed(_labels, pure=True)(part, columns.target) for part in partitions])
        classes = [label for labels in found for label in labels]
    labels = read_classes(classes, len(classes))[1]
    if len(labels) != 2:
        raise ValueError(f"column {columns.target!r} has the labels {labels.tolist()}; a distributed fit wants two")
    parts = [dask.delayed(_read_part, pure=True)(part, columns, labels) for part in partitions]
    return HeldRows(dask.persist(*[dask.delayed(_filled, pure=True)(group) for group in _side_by_side(parts)])), labels


def _check(model: Any) -> None:
    """Refuse what needs more than sums over rows."""
    if not isinstance(model, MixedNormClassifier):
        raise TypeError(
            f"estimator is a {type(model).__name__}; pass a MixedNormClassifier, or for the squared loss use fit_moments"
        )
    check_kinds(model)
    model._check_parameters()
    family = find_family(model.loss)
    family.require("A distributed fit", "conjugate")
    if not family.smooth:
        raise ValueError(f"loss is {model.loss!r}; a distributed fit wants a smooth loss, such as loss='logistic'")
    for name in ("refit", "standardize", "shared_mean", "groups", "task_column"):
        if getattr(model, name) not in (None, False):
            raise ValueError(f"{name} does not go with a distributed fit; leave it out")


def _solved(model: MixedNormClassifier, passes: "DaskPasses") -> tuple[Solution, float]:
    totals = passes.totals
    sides = np.array([-1.0, 1.0])
    weights = np.column_stack([totals.negative, totals.positive])
    best = np.array([passes.family.best_constant(sides, weight) for weight in weights])
    start = best if model.fit_intercept else np.zeros_like(best)
    penalty = RowPenalty(model.penalty_strength or 0.0, model.norm_q, model.task_sparsity)
    spectral = Spectral(passes, penalty, model.fit_intercept, ridge=model.ridge)
    point = spectral.at(np.zeros_like(passes.means), start)
    strength = model.penalty_strength
    if strength is None:
        strength = DEFAULT_SHARE * spectral.balance(point)[2]
        spectral.penalty = penalty.with_strength(strength)
    return spectral.minimise(point, point.objective, model.tol, model.max_iter, model.progress), float(strength)


def _keep_fit(
    model: MixedNormClassifier,
    solution: Solution,
    strength: float,
    passes: "DaskPasses",
    labels: NDArray[Any],
    names: list[Any],
) -> None:
    """Set the fitted attributes, as ``fit`` on the rows would."""
    model.tasks_, model.classes_ = passes.tasks, labels
    model._form = "single" if len(passes.tasks) == 1 else "long"
    model._encoding = Encoding(tuple(Column(name, None) for name in names))
    model._feature_names = np.array([str(name) for name in names])
    model.n_features_in_ = len(names)
    model.feature_names_in_ = np.array(names, dtype=object)
    model._set_fit(solution, model.tol, penalty_strength=strength, n_rows=passes.totals.n_rows)
    model.penalty_strength_, model.objective_, model.dual_gap_ = strength, solution.objective, solution.gap


class HeldRows:
    """Blocks of rows that stay with the workers."""

    def __init__(self, blocks: Iterable[Any]) -> None:
        self.blocks = list(blocks)
        self.client: Any = None
        self.keys: list[Any] = []  # of the blocks in the memory of the workers
        self.places: dict[str, list[Any]] = {}  # keys that each worker has; none: not known

    def added(self, of_part: Callable[..., Any], add: Callable[[list[Any]], Any], size: int, *common: Any) -> Any:
        """Sum over all blocks of what ``of_part`` makes of a part, of some ``size`` in bytes; None where no row counts."""
        if size * len(self.blocks) <= LARGEST_GATHER and self._find():
            try:
                answers = self.client.run(
                    _of_own, partial(_of_block, of_part, add), self.places, *common, workers=[*self.places]
                )
            except (OSError, KeyError):  # a worker is gone, or has given its blocks to another
                self.places = {}
            else:
                by_key = {key: sums for answer in answers.values() for key, sums in answer.items()}
                found = [by_key[key] for key in self.keys if by_key[key] is not None]
                return add(found) if found else None
        return add_in_tree(self.blocks, partial(_of_block, of_part, add), add, *common)

    def _find(self) -> bool:
        """Whether there is a cluster on which it is known, or can be asked, where every block is."""
        if self.places:
            return True
        client = _cluster()
        if client is None:
            return False
        from dask.distributed import futures_of, wait

        futures = futures_of(self.blocks)
        if len(futures) != len(self.blocks):
            return False  # the blocks were made in this process
        wait(futures)
        self.client, self.keys = client, [future.key for future in futures]
        for key, addresses in client.who_has(futures).items():
            if not addresses:
                self.places = {}
                return False
            self.places.setdefault(addresses[0], []).append(key)
        return True


class DaskPasses:
    """Passes over partitions that stay where they are."""

    def __init__(self, blocks: HeldRows, loss_scale: str, family: Family) -> None:
        found: Share | None = blocks.added(_totals, _add_shares, 0)
        if found is None:
            raise ValueError("frame holds no row with a target; pass at least one")
        self.blocks, self.family = blocks, family
        self.tasks, self.totals = found
        sizes = self.totals.negative + self.totals.positive
        self.means: FloatArray = self.totals.products / sizes
        self.divisors = sizes if loss_scale == "mean" else np.ones_like(sizes)

    def sums(self, W: FloatArray, intercept: FloatArray) -> RowSums:
        """Sums of one pass."""
        found: Share = self.blocks.added(_part_sums, _add_shares, 2 * W.nbytes, self._at(W, intercept))
        return found.sums

    def conjugate(self, W: FloatArray, intercept: FloatArray, above: FloatArray, below: FloatArray) -> float:
        """Conjugate of the loss at theta, made feasible."""
        found: float = self.blocks.added(_part_conjugate, sum, 0, self._at(W, intercept), above, below)
        return found

    def _at(self, W: FloatArray, intercept: FloatArray) -> Place:
        return Place(self.family, self.tasks, self.divisors, W, intercept)


def _cluster() -> Any:
    """Client of the cluster; None where dask's threads are in this process."""
    try:
        from dask.distributed import get_client

        return get_client()
    except (ImportError, ValueError):
        return None


def _side_by_side(parts: list[Any]) -> list[list[Any]]:
    """Parts in as many groups as the cluster has threads, neighbours together."""
    client = _cluster()
    if client is None:
        return [[part] for part in parts]
    size = -(-len(parts) // max(sum(client.nthreads().values()), 1))
    return [parts[start : start + size] for start in range(0, len(parts), size)]


def _filled(parts: list[TaskData | None]) -> list[TaskData] | None:
    """A block of the parts that have rows; None where there is none."""
    return [part for part in parts if part is not None] or None


async def _of_own(of_block: Any, places: dict[str, list[Any]], *common: Any, dask_worker: Any) -> dict[Any, Any]:
    """What a worker makes of its own blocks, in threads beside the one that answers the scheduler."""
    blocks = {key: dask_worker.data[key] for key in places[dask_worker.address]}
    running = [asyncio.to_thread(of_block, block, *common) for block in blocks.values() if block is not None]
    found = iter(await asyncio.gather(*running))
    return {key: None if block is None else next(found) for key, block in blocks.items()}


def _of_block(of_part: Any, add: Any, block: list[TaskData], *common: Any) -> Any:
    """Sum over the parts of a block."""
    return add([of_part(part, *common) for part in block])


def _labels(frame: Any, target: str) -> list[Any]:
    """Labels that occur in a partition."""
    if target not in frame.columns:
        raise ValueError(f"there is no column {target!r}; the columns are {list(frame.columns)}")
    found: list[Any] = frame[target].dropna().unique().tolist()
    return found


def _read_part(frame: Any, columns: Columns, labels: NDArray[Any]) -> TaskData | None:
    """Read one partition, with targets -1 and +1; None where no row has a target."""
    (batch,) = read_stream([frame], columns, len(frame), 0)
    if not len(batch.y):
        return None
    codes = match_classes(batch.y, len(batch.y), labels)
    if (codes < 0).any():
        raise ValueError(f"column {columns.target!r} has labels beside {labels.tolist()}; name both as classes")
    return TaskData.from_long(batch.X, 2.0 * codes - 1.0, batch.tasks, batch.weight)


def _totals(data: TaskData) -> Share:
    positive = np.add.reduceat(data.weight * (data.y > 0), data.offsets[:-1])
    negative = np.add.reduceat(data.weight * (data.y < 0), data.offsets[:-1])
    return Share(data.task_names, Totals(negative, positive, data.adjoint(data.weight), data.n_observations))


def _part_sums(data: TaskData, at: Place) -> Share:
    own, weight = at.of(data)
    return Share(data.task_names, row_sums(data, weight, at.family, at.W[:, own], at.intercept[own]))


def _part_conjugate(data: TaskData, at: Place, above: FloatArray, below: FloatArray) -> float:
    own, weight = at.of(data)
    return row_conjugate(data, weight, at.family, at.W[:, own], at.intercept[own], above[own], below[own])


def _add_shares(found: list[Share]) -> Share:
    """Sums of all the tasks that some of the shares have; the same tasks come in the same order in every pass."""
    joined = [label for share in found for label in share.tasks.tolist()]
    codes, names = read_labels(joined, len(joined))
    places = np.split(codes, np.cumsum([len(share.tasks) for share in found])[:-1])
    added = []
    for values in zip(*(share.sums for share in found), strict=True):
        if np.ndim(values[0]) == 0:
            added.append(sum(values))
            continue
        total = np.zeros((*values[0].shape[:-1], len(names)))
        for place, value in zip(places, values, strict=True):
            total[..., place] += value
        added.append(total)
    return Share(names, type(found[0].sums)(*added))
