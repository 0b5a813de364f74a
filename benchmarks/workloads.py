"""Seeded problems on which the convex solvers are compared.

    minimise over W, b:   sum_t (1/n_t) sum_i loss(y_ti, x_ti' w_t + b_t) + strength * sum_j ||w^j||_q

A `TaskSet` is one draw of a data set, a `Problem` adds the penalty, and a `Case` is the recipe: which data, which q,
and which fractions of lambda_max. Nothing is stored: every seed is a new draw.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from certificate import largest_penalty
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d
from scipy.signal import lfilter

FloatArray = NDArray[np.float64]
Shape = dict[str, int]


@dataclass(frozen=True, eq=False)
class TaskSet:
    """Targets of m tasks over one design, or over one design each.

    Attributes
    ----------
    X : the design of all tasks (n, p), or the designs of the tasks below each other (N, p); dense or CSR
    targets : one (n_t,) array per task; -1 and +1 for classification
    offsets : (m + 1,) where each task's rows begin, or None for one design
    loss : "squared", "logistic", "hinge" or "absolute"
    """

    X: Any
    targets: Sequence[FloatArray]
    offsets: NDArray[np.int64] | None
    loss: str

    @property
    def shared(self) -> bool:
        """Whether all tasks have the same design."""
        return self.offsets is None

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.targets)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @property
    def wide_targets(self) -> FloatArray:
        """(n, m) Targets of tasks that share their design."""
        return np.column_stack(self.targets)

    @property
    def stacked_targets(self) -> FloatArray:
        """(N,) Targets, task after task."""
        return np.concatenate(self.targets)

    @property
    def labels(self) -> NDArray[np.int64]:
        """(N,) Task of every stacked target."""
        return np.repeat(np.arange(self.n_tasks), [len(y) for y in self.targets])

    @property
    def row_factors(self) -> FloatArray:
        """(N,) Factor 1/n_t of every stacked observation's loss."""
        return np.concatenate([np.full(len(y), 1 / len(y)) for y in self.targets])

    def design(self, task: int) -> Any:
        """Design of one task."""
        if self.offsets is None:
            return self.X
        return self.X[self.offsets[task] : self.offsets[task + 1]]

    def predictors(self, W: FloatArray) -> list[FloatArray]:
        """X_t w_t of every task."""
        if self.shared:
            rows = np.flatnonzero(W.any(axis=1))
            return list((self.X[:, rows] @ W[rows]).T)
        return [self.design(t) @ W[:, t] for t in range(self.n_tasks)]

    def adjoint(self, theta: Sequence[FloatArray]) -> FloatArray:
        """(p, m) X_t' theta_t of every task."""
        if self.shared:
            product: FloatArray = self.X.T @ np.column_stack(theta)
            return product
        return np.column_stack([self.design(t).T @ theta[t] for t in range(self.n_tasks)])


@dataclass(frozen=True, eq=False)
class Problem:
    """A data set with its penalty; several strengths, largest first, make a path."""

    name: str
    data: TaskSet
    norm_q: float
    strengths: FloatArray

    @property
    def strength(self) -> float:
        """The one strength, or the smallest of a path."""
        return float(self.strengths[-1])

    @property
    def is_path(self) -> bool:
        """Whether all strengths of a path are wanted."""
        return len(self.strengths) > 1


@dataclass(frozen=True)
class Case:
    """Recipe of a problem.

    Attributes
    ----------
    name : the workload and what is solved on it
    draw : (rng, shape) -> TaskSet
    shape, quick_shape : sizes of the real and of the trial run
    fraction : strength = lambda_max / fraction
    wanted_ratio : the best peer should take at least this many times our seconds
    wanted_seconds : our CPU seconds should stay below
    n_strengths : more than one for a path from lambda_max
    """

    name: str
    draw: Callable[[np.random.Generator, Shape], TaskSet]
    shape: Shape
    quick_shape: Shape
    norm_q: float = 2.0
    fraction: float = 10.0
    wanted_ratio: float | None = None
    wanted_seconds: float | None = None
    n_strengths: int = 1
    grow: Sequence[str] = field(default=("n_features", "n_tasks"))

    def problem(self, seed: int, *, quick: bool = False, factors: Shape | None = None) -> Problem:
        """Draw the data of one seed; `factors` multiply entries of the shape."""
        shape = dict(self.quick_shape if quick else self.shape)
        for name, factor in (factors or {}).items():
            shape[name] *= factor
        data = self.draw(np.random.default_rng(seed), shape)
        top = largest_penalty(data, self.norm_q)
        if self.n_strengths == 1:
            strengths = np.array([top / self.fraction])
        else:
            strengths = top * np.geomspace(1, 1 / self.fraction, self.n_strengths)
        return Problem(self.name, data, self.norm_q, strengths)


def row_sparse(rng: np.random.Generator, shape: Shape, n_relevant: int, *, common: float = 0.0) -> FloatArray:
    """(p, m) Coefficients with a few non-zero rows; `common` is the weight of the part that all tasks share."""
    W = np.zeros((shape["n_features"], shape["n_tasks"]))
    rows = rng.choice(len(W), min(n_relevant, len(W)), replace=False)
    W[rows] = common * rng.standard_normal((len(rows), 1)) + rng.standard_normal((len(rows), shape["n_tasks"]))
    return W


def noisy_targets(rng: np.random.Generator, signal: FloatArray, signal_to_noise: float) -> list[FloatArray]:
    """Columns of the signal with Gaussian noise of a given variance ratio."""
    noise = rng.standard_normal(signal.shape) * signal.std() / np.sqrt(signal_to_noise)
    return list((signal + noise).T.copy())


def random_labels(rng: np.random.Generator, score: FloatArray, deviation: float = 2.0) -> FloatArray:
    """Labels -1 and +1 from a logistic model, scores scaled to a deviation; both labels always occur."""
    score = deviation * (score - score.mean()) / max(score.std(), 1e-12)
    labels = np.where(rng.random(len(score)) < 1 / (1 + np.exp(-score)), 1.0, -1.0)
    labels[np.argmax(score)], labels[np.argmin(score)] = 1.0, -1.0
    return labels


def wide_regression(rng: np.random.Generator, shape: Shape, *, signal_to_noise: float = 1.0) -> TaskSet:
    """Columns correlated as AR(1) with 0.5, 50 relevant rows."""
    correlation = 0.5
    innovations = rng.standard_normal((shape["n_rows"], shape["n_features"]))
    innovations[:, 1:] *= np.sqrt(1 - correlation**2)
    X = np.asfortranarray(lfilter([1.0], [1.0, -correlation], innovations, axis=1))
    return TaskSet(X, noisy_targets(rng, X @ row_sparse(rng, shape, 50), signal_to_noise), None, "squared")


def smooth_regression(rng: np.random.Generator, shape: Shape, *, signal_to_noise: float = 2.0) -> TaskSet:
    """Sensors and neighbouring sources as in MEG: columns smooth over features, 15 sources smooth over tasks."""
    margin = 100
    raw = rng.standard_normal((shape["n_rows"], shape["n_features"] + 2 * margin))
    X = gaussian_filter1d(raw, 8, axis=1)[:, margin:-margin]
    X = np.asfortranarray(X / X.std(axis=0))
    W = gaussian_filter1d(row_sparse(rng, shape, 15), 3, axis=1)
    return TaskSet(X, noisy_targets(rng, X @ W, signal_to_noise), None, "squared")


def independent_regression(rng: np.random.Generator, shape: Shape) -> TaskSet:
    """Independent columns, 20 relevant rows."""
    X = np.asfortranarray(rng.standard_normal((shape["n_rows"], shape["n_features"])))
    return TaskSet(X, noisy_targets(rng, X @ row_sparse(rng, shape, 20), 4.0), None, "squared")


def school_regression(
    rng: np.random.Generator, shape: Shape, *, indicators: bool = True, noise: float = 2.0
) -> TaskSet:
    """Many small tasks with designs of their own: 8 numeric columns, the others indicators or numeric too.

    Rare indicators make the designs badly conditioned, which costs first-order methods an order of magnitude.
    """
    n_tasks, n_features = shape["n_tasks"], shape["n_features"]
    sizes = np.clip(rng.normal(shape["n_rows"], 0.36 * shape["n_rows"], n_tasks).astype(int), 20, 250)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    X = rng.standard_normal((offsets[-1], n_features))
    if indicators:
        X[:, 8:] = rng.random((len(X), n_features - 8)) < rng.uniform(0.05, 0.5, n_features - 8)
    W = row_sparse(rng, shape, 8, common=2.0) / 2
    level = rng.standard_normal(n_tasks)
    targets = [
        X[offsets[t] : offsets[t + 1]] @ W[:, t] + level[t] + noise * rng.standard_normal(sizes[t])
        for t in range(n_tasks)
    ]
    return TaskSet(X, targets, offsets, "squared")


def few_rows_regression(rng: np.random.Generator, shape: Shape) -> TaskSet:
    """Tasks with designs of their own, many more columns than rows, correlated as AR(1) with 0.5; 50 relevant rows."""
    correlation, n_tasks, n_rows = 0.5, shape["n_tasks"], shape["n_rows"]
    innovations = rng.standard_normal((n_tasks * n_rows, shape["n_features"]))
    innovations[:, 1:] *= np.sqrt(1 - correlation**2)
    X = np.ascontiguousarray(lfilter([1.0], [1.0, -correlation], innovations, axis=1))
    offsets = np.arange(0, len(X) + 1, n_rows)
    W = row_sparse(rng, shape, 50)
    signal = np.concatenate([X[offsets[t] : offsets[t + 1]] @ W[:, t] for t in range(n_tasks)])
    y = signal + rng.standard_normal(len(X)) * signal.std()
    return TaskSet(X, np.split(y, offsets[1:-1]), offsets, "squared")


def microarray_classification(rng: np.random.Generator, shape: Shape, *, deviation: float = 2.0) -> TaskSet:
    """Few rows and many correlated columns per task: 20 factors plus noise."""
    n_tasks, n_features = shape["n_tasks"], shape["n_features"]
    sizes = rng.integers(shape["n_rows"] * 7 // 10, shape["n_rows"] + 1, n_tasks)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    loadings = 0.5 * rng.standard_normal((20, n_features))
    X = rng.standard_normal((offsets[-1], 20)) @ loadings + rng.standard_normal((offsets[-1], n_features))
    W = row_sparse(rng, shape, 20, common=3.0)
    targets = [random_labels(rng, X[offsets[t] : offsets[t + 1]] @ W[:, t], deviation) for t in range(n_tasks)]
    return TaskSet(X, targets, offsets, "logistic")


def text_classification(rng: np.random.Generator, shape: Shape, *, deviation: float = 2.0) -> TaskSet:
    """Bags of words with a Zipf law, about 80 words a row, log counts, rows of length 1."""
    n_tasks, n_features = shape["n_tasks"], shape["n_features"]
    sizes = np.geomspace(shape["n_rows"] / 20, shape["n_rows"], n_tasks).astype(int)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    frequency = np.cumsum(1 / (np.arange(1, n_features + 1) + 20.0) ** 1.05)
    words = rng.permutation(n_features)
    rows = [
        np.unique(words[np.searchsorted(frequency / frequency[-1], rng.random(length)).clip(max=n_features - 1)])
        for length in rng.poisson(100, offsets[-1]) + 1
    ]
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    columns = np.concatenate(rows).astype(np.int32)
    counts = np.log1p(1.0 + rng.poisson(0.5, len(columns)))
    length = np.sqrt(np.add.reduceat(counts**2, starts[:-1]))
    values = counts / np.repeat(length, np.diff(starts))
    X = sp.csr_matrix((values, columns, starts.astype(np.int32)), shape=(offsets[-1], n_features))
    W = np.zeros((n_features, n_tasks))
    frequent = rng.permutation(words[: min(3000, n_features // 2)])[:200]
    W[frequent] = rng.standard_normal((len(frequent), 1)) + 0.5 * rng.standard_normal((len(frequent), n_tasks))
    targets = [random_labels(rng, X[offsets[t] : offsets[t + 1]] @ W[:, t], deviation) for t in range(n_tasks)]
    return TaskSet(X, targets, offsets, "logistic")


def indicator_design(rng: np.random.Generator, shape: Shape) -> tuple[FloatArray, NDArray[np.int64]]:
    """Indicator columns as in dermatology, 33 of which differ between the classes, and the class of every row."""
    n_classes, n_features = shape["n_tasks"], shape["n_features"]
    label = np.concatenate([np.arange(n_classes), rng.integers(0, n_classes, shape["n_rows"] - n_classes)])
    chance = np.tile(rng.uniform(0.05, 0.5, n_features), (n_classes, 1))
    informative = rng.choice(n_features, min(n_features, 33), replace=False)
    chance[:, informative] += rng.choice([-0.25, 0.0, 0.45], (n_classes, len(informative)), p=[0.3, 0.4, 0.3])
    X = (rng.random((shape["n_rows"], n_features)) < np.clip(chance, 0.02, 0.98)[label]).astype(float)
    return np.asfortranarray(X), label


def one_versus_rest(rng: np.random.Generator, shape: Shape) -> TaskSet:
    """Hinge loss: one task per class over one design."""
    X, label = indicator_design(rng, shape)
    targets = [np.where(label == k, 1.0, -1.0) for k in range(shape["n_tasks"])]
    return TaskSet(X, targets, None, "hinge")


def heavy_tailed_regression(rng: np.random.Generator, shape: Shape) -> TaskSet:
    """Absolute loss: Student noise with 2 degrees of freedom on indicator columns."""
    X, _ = indicator_design(rng, shape)
    signal = X @ row_sparse(rng, shape, 15)
    return TaskSet(X, list((signal + 0.5 * rng.standard_t(2, signal.shape)).T.copy()), None, "absolute")


def _shape(n_rows: int, n_features: int, n_tasks: int) -> Shape:
    return {"n_rows": n_rows, "n_features": n_features, "n_tasks": n_tasks}


WIDE = (wide_regression, _shape(1000, 10_000, 20), _shape(80, 300, 4))
SMOOTH = (smooth_regression, _shape(300, 7000, 50), _shape(60, 300, 8))
SCHOOL = (school_regression, _shape(110, 27, 139), _shape(40, 27, 10))
GAUSSIAN_SCHOOL = (partial(school_regression, indicators=False), *SCHOOL[1:])
MICROARRAY = (microarray_classification, _shape(100, 6000, 3), _shape(60, 200, 3))
TEXT = (text_classification, _shape(2000, 100_000, 15), _shape(200, 1000, 4))
FEW_ROWS = (few_rows_regression, _shape(50, 10_000, 20), _shape(30, 200, 4))
SMALL_WIDE = (independent_regression, _shape(200, 500, 10), _shape(50, 60, 4))
DERMATOLOGY = (_shape(200, 99, 6), _shape(60, 30, 3))
DERMATOLOGY_WIDE = (_shape(200, 2000, 6), _shape(60, 100, 3))

CASES: tuple[Case, ...] = (
    Case("W1 /3", *WIDE, fraction=3, wanted_ratio=3.5),
    Case("W1 /10", *WIDE, wanted_ratio=2),
    *(Case(f"W1 snr {snr} /10", partial(wide_regression, signal_to_noise=snr), *WIDE[1:]) for snr in (2, 10)),
    Case("W1 path", *WIDE, wanted_ratio=2, n_strengths=100, grow=()),
    Case("W2 /10", *SMOOTH, wanted_ratio=6),
    *(Case(f"W2 snr {snr} /10", partial(smooth_regression, signal_to_noise=snr), *SMOOTH[1:]) for snr in (0.5, 20)),
    Case("W3 /10", *SCHOOL, wanted_ratio=3),
    Case("W3 /100", *SCHOOL, fraction=100, wanted_ratio=3),
    Case("W3 gaussian /10", *GAUSSIAN_SCHOOL, wanted_ratio=3),
    Case("W3 gaussian /100", *GAUSSIAN_SCHOOL, fraction=100, wanted_ratio=3),
    Case("W4 /10", *MICROARRAY, wanted_ratio=2.5),
    Case("W4 /100", *MICROARRAY, fraction=100, wanted_ratio=2.5),
    Case("W5 /10", *TEXT, wanted_ratio=3),
    Case("W5 /100", *TEXT, fraction=100),
    Case("W6 q=inf wide", *SMALL_WIDE, norm_q=np.inf, wanted_ratio=3),
    Case("W6 q=inf own", *SCHOOL, norm_q=np.inf, wanted_ratio=3),
    Case("W6 q=inf own gaussian", *GAUSSIAN_SCHOOL, norm_q=np.inf, wanted_ratio=3),
    Case("W6 q=3 wide", *SMALL_WIDE, norm_q=3.0, wanted_seconds=0.03),
    Case("W6 q=3 own", *SCHOOL, norm_q=3.0, wanted_seconds=0.03),
    Case("W6 q=1.5 wide", *SMALL_WIDE, norm_q=1.5, wanted_seconds=0.03),
    Case("W6 q=1.5 own", *SCHOOL, norm_q=1.5, wanted_seconds=0.03),
    Case("W8 few rows /3", *FEW_ROWS, fraction=3),
    Case("W8 few rows /10", *FEW_ROWS),
    Case("W7 hinge", one_versus_rest, *DERMATOLOGY, wanted_ratio=10),
    Case("W7 hinge p 2000", one_versus_rest, *DERMATOLOGY_WIDE, wanted_ratio=10),
    Case("W7 absolute", heavy_tailed_regression, *DERMATOLOGY, wanted_ratio=10),
    Case("W7 absolute p 2000", heavy_tailed_regression, *DERMATOLOGY_WIDE, wanted_ratio=10),
)


def chosen_cases(wanted: Sequence[str]) -> list[Case]:
    """Cases of the wanted workloads ("W1") or with the wanted names ("W1 /3"); all of them for none."""
    known = {case.name for case in CASES} | {case.name.split()[0] for case in CASES}
    unknown = sorted(set(wanted) - known)
    if unknown:
        raise ValueError(f"workloads has {unknown}; choose from {sorted(known)}")
    return [case for case in CASES if not wanted or {case.name, case.name.split()[0]} & set(wanted)]
