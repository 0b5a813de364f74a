"""Tasks as centred, weighted linear systems with unit noise: what the evidence of a row prior is computed from.

With a flat prior on the intercept of a task, integrating it out leaves the likelihood of features and targets that are
centred by their weighted means, and one observation less. With row factors ``c`` (weights, or weights times the
precisions of a Gaussian bound) the rows ``sqrt(c_i) (x_i - mean)`` and targets ``sqrt(c_i) (y_i - mean)`` have unit
noise up to the precision of the task, which stays a separate number so that moments can be kept while it is learned.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import BoolArray, FloatArray, IntArray

LARGEST_DENSE = 2 * 10**9  # bytes of a sparse design made dense


@dataclass(frozen=True, eq=False)
class WhitenedTasks:
    """D designs with the targets of the tasks that use them; D is 1 (one design for all) or the number of tasks.

    Attributes
    ----------
    designs : D arrays (n_d, p), centred and weighted
    targets : D arrays (n_d, k), with k tasks per design
    design_means : D arrays (p,), the centres
    target_means : (m,) the centres of the targets
    """

    designs: tuple[FloatArray, ...]
    targets: tuple[FloatArray, ...]
    design_means: tuple[FloatArray, ...]
    target_means: FloatArray

    @property
    def n_tasks(self) -> int:
        """Number of tasks m."""
        return len(self.target_means)

    @property
    def n_designs(self) -> int:
        """Number of distinct designs D."""
        return len(self.designs)

    @property
    def n_features(self) -> int:
        """Number of features p."""
        return int(self.designs[0].shape[1])

    @property
    def n_rows(self) -> int:
        """Number of observations over all tasks."""
        return sum(target.size for target in self.targets)

    @cached_property
    def grams(self) -> FloatArray:
        """(D, p, p) ``X' X`` of every design."""
        return np.stack([X.T @ X for X in self.designs])

    @cached_property
    def products(self) -> FloatArray:
        """(D, p, k) ``X' y`` of every design and target."""
        return np.stack([X.T @ y for X, y in zip(self.designs, self.targets, strict=True)])

    @cached_property
    def target_squares(self) -> FloatArray:
        """(m,) ``y' y`` of every task."""
        return np.concatenate([np.sum(y**2, axis=0) for y in self.targets])

    @cached_property
    def column_squares(self) -> FloatArray:
        """(p, m) ``x' x`` of every feature in every task."""
        squares = np.stack([np.einsum("ij,ij->j", X, X) for X in self.designs], axis=1)
        return squares if self.n_designs == self.n_tasks else np.repeat(squares, self.n_tasks, axis=1)

    def association(self) -> FloatArray:
        """(p,) Share of the squared targets that each feature explains by itself, summed over tasks."""
        products = np.concatenate(list(self.products), axis=1)  # (p, m)
        sizes = self.column_squares * self.target_squares
        return np.asarray(np.sum(np.divide(products**2, sizes, out=np.zeros_like(sizes), where=sizes > 0), axis=1))

    def even_variances(self, weights: FloatArray, variance: float) -> FloatArray:
        """(p,) Row variances under which all features together explain a variance, each its share.

        A feature that never varies has 0.

        Parameters
        ----------
        weights : (m,) total weight of every task
        variance : what to explain
        """
        spread = np.mean(self.column_squares / weights, axis=1)
        share = variance / max(int(np.sum(spread > 0)), 1)
        return np.divide(share, spread, out=np.zeros_like(spread), where=spread > 0)

    def take(self, features: IntArray | BoolArray) -> Self:
        """Keep some of the features."""
        distinct = {id(X): X[:, features] for X in self.designs}
        taken = type(self)(
            tuple(distinct[id(X)] for X in self.designs),
            self.targets,
            tuple(mean[features] for mean in self.design_means),
            self.target_means,
        )
        if "grams" in self.__dict__:  # moments that are known already need not be computed again
            taken.__dict__["grams"] = self.grams[:, features][:, :, features]
        return taken

    def separate(self) -> Self:
        """One design per task, over the same memory, for tasks whose noise differs."""
        if self.n_designs == self.n_tasks:
            return self
        targets = tuple(np.hsplit(self.targets[0], self.n_tasks))
        return type(self)(self.designs * self.n_tasks, targets, self.design_means * self.n_tasks, self.target_means)

    def design_of(self, task: int) -> FloatArray:
        """(n, p) Design of a task."""
        return self.designs[task if self.n_designs > 1 else 0]

    def target_of(self, task: int) -> FloatArray:
        """(n,) Target of a task."""
        return self.targets[task][:, 0] if self.n_designs > 1 else self.targets[0][:, task]

    def residuals(self, W: FloatArray) -> list[FloatArray]:
        """Targets minus predictions, one (n_d, k) array per design."""
        if self.n_designs == 1:
            return [self.targets[0] - self.designs[0] @ W]
        return [y - X @ W[:, [t]] for t, (X, y) in enumerate(zip(self.designs, self.targets, strict=True))]

    def residual_squares(self, W: FloatArray) -> FloatArray:
        """(m,) Residual sum of squares of every task."""
        return np.concatenate([np.sum(r**2, axis=0) for r in self.residuals(W)])

    def intercept(self, W: FloatArray) -> FloatArray:
        """(m,) Intercepts on features and targets that are not centred."""
        means = np.stack(self.design_means, axis=1)
        return np.asarray(self.target_means - np.sum(means * W, axis=0))


def dense_designs(data: TaskData) -> tuple[FloatArray, ...]:
    """Designs in double precision, one per task, or one where all tasks have the same rows.

    A sparse design is made dense, up to a limit: the systems here are dense whatever the design.
    """
    if data.is_sparse and 8 * np.prod(data.design.shape, dtype=np.float64) > LARGEST_DENSE:
        raise ValueError(
            f"X is sparse with shape {data.design.shape}, and integrating out the coefficients would make it dense; "
            "select features first, such as with a MixedNorm estimator, or use coefficients='mode'"
        )
    if data.is_complete:
        return (_dense(data.design),)
    return tuple(_dense(X) for X in data.task_designs)


def whiten(
    data: TaskData, designs: tuple[FloatArray, ...], target: FloatArray, factor: FloatArray, fit_intercept: bool
) -> WhitenedTasks:
    """Centre and weight the designs of all tasks.

    Parameters
    ----------
    data : the observations
    designs : what `dense_designs` gave, possibly with fewer columns
    target : (N,) targets
    factor : (N,) row factors c
    fit_intercept : whether to centre
    """
    if len(designs) == 1:
        Y, C = data.as_matrix(target), data.as_matrix(factor)
        if data.n_tasks == 1 or np.all(C == C[:, :1]):
            return _from_parts([(designs[0], Y, C[:, 0])], fit_intercept)
        designs = designs * data.n_tasks
    spans = [slice(start, stop) for start, stop in data.spans]
    parts = [(X, target[span][:, None], factor[span]) for X, span in zip(designs, spans, strict=True)]
    return _from_parts(parts, fit_intercept)


def _from_parts(parts: list[tuple[FloatArray, FloatArray, FloatArray]], fit_intercept: bool) -> WhitenedTasks:
    designs, targets, design_means, target_means = [], [], [], []
    for X, y, factor in parts:
        share = factor / factor.sum()
        x_mean = share @ X if fit_intercept else np.zeros(X.shape[1])
        y_mean = share @ y if fit_intercept else np.zeros(y.shape[1])
        root = np.sqrt(factor)[:, None]
        centred = X - x_mean
        # a constant column is exactly constant, whatever the rounding of its mean
        centred[:, np.ptp(X, axis=0) == 0] *= not fit_intercept
        designs.append(root * centred)
        targets.append(root * (y - y_mean))
        design_means.append(x_mean)
        target_means.append(y_mean)
    return WhitenedTasks(tuple(designs), tuple(targets), tuple(design_means), np.concatenate(target_means))


def _dense(X: FloatArray) -> FloatArray:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
