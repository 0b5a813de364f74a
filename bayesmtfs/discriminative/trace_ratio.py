"""Discriminative multi-task feature selection: trace ratios per task with l2,1 terms within and over tasks.

Han et al. (2013), eq. (1), for W = [W_1, ..., W_t], rows = features, W_l'W_l = I with one column per class of task l:

    sum_l tr(W_l'E_l W_l) / tr(W_l'B_l W_l) + within * sum_l sum_i ||w_l^i|| + joint * sum_i ||w^i||         (objective)

Algorithm 1 does not minimise it. It fixes gamma_l at the smallest ratio of each task and descends on

    sum_l tr(W_l'(E_l - gamma_l B_l)W_l) + within * sum_l sum_i h(w_l^i) + joint * sum_i h(w^i),             (surrogate)

eq. (4), here with h(w) = sqrt(||w||^2 + eps^2). h lies below its parabola of curvature d = 1 / (2 h) at the last
iterate (eq. 3), and W_l is set to the eigenvectors of E_l - gamma_l B_l + within D_l + joint D for the smallest
eigenvalues (step 7), which minimises the parabolas' sum: the surrogate never increases, whatever the objective does.

With Z the centred rows of a task (row i times the square root of its weight, all divided by ||Z||_F) and F the scaled
class indicators, B = Z'Z and E = Z'(I - FF')Z, so that tr B = 1 and E - gamma B has the same size on any data.

Differently from the paper: gamma is the smallest trace ratio over V'V = I in the range of B, since over all V it is 0 as
soon as p > n, and E - 0 B no longer tells classes apart. Where p is near n it is small by overfitting, and is therefore
that of the scatters plus shrinkage / p times the identity (the average of the eigenvalues of B, as in regularised
discriminant analysis), which moves gamma and nothing else. At most as many eigenvalues of E - gamma B are negative as
there are classes, less one; the eigenvectors after them have little scatter of any kind, and W_l may leave them out. eps
keeps d finite; ``within`` and ``joint`` are the two strengths of eq. (1) (the printed mu = lambda_1 / lambda_2 of eq. 5
would have to be lambda_2 / lambda_1 and only renames them); the start is the unpenalised solution, D = I, and not
random; features of one group share one row length. There is no probability model behind a trace ratio.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

from bayesmtfs.data.inputs import Design
from bayesmtfs.progress import Progress
from bayesmtfs.types import FloatArray, IntArray

RANK_TOLERANCE = 1e-10  # singular values below this share of the largest are rounding errors
DENSE_FEATURES = 200  # up to so many a dense eigenproblem is the faster one
MOST_RATIO_STEPS = 100
KRYLOV_SIZE = 20  # least number of Lanczos vectors
EIGENVALUE_TOLERANCE = 1e-11  # relative


@dataclass(frozen=True, eq=False)
class Scatter:
    """Between-class and total scatter of one task, with eigenvectors that need no p x p matrix where p > n."""

    rows: FloatArray  # (n, p) centred and weighted, of Frobenius norm 1 (0 where all features are constant)
    class_rows: FloatArray  # (classes, p) F'Z
    singular: FloatArray  # (r,) singular values of the rows, r their rank
    right: FloatArray  # (r, p) right singular vectors
    shrinkage: float  # of gamma
    all_columns: bool  # whether W has one column per class

    @property
    def n_features(self) -> int:
        """Number of features p."""
        return int(self.rows.shape[1])

    @property
    def n_columns(self) -> int:
        """Columns of W."""
        return int(self.unpenalised[1].shape[1])

    @cached_property
    def unpenalised(self) -> tuple[float, FloatArray]:
        """gamma, and the (p, columns) eigenvectors of E - gamma B with D = I, within the range of B."""
        total, classes = self.singular**2, self.class_rows @ self.right.T
        columns = min(len(classes), len(total))
        gamma, V = smallest_trace_ratio(total, classes, columns, self.shrinkage / self.n_features)
        if not self.all_columns and columns:
            eigenvalues = (1.0 - gamma) * total @ V**2 - np.sum((classes @ V) ** 2, axis=0)
            V = V[:, : max(1, int(np.sum(eigenvalues < 0)))]
        return gamma, self.right.T @ V

    @property
    def gamma(self) -> float:
        """Smallest (shrunken) trace ratio on the range of B."""
        return self.unpenalised[0]

    def difference(self, W: FloatArray) -> float:
        """tr(W'(E - gamma B)W)."""  # noqa: D403
        total, between = self._traces(W)
        return (1.0 - self.gamma) * total - between

    def ratio(self, W: FloatArray) -> float:
        """tr(W'EW) / tr(W'BW), nan where W holds no scatter."""  # noqa: D403
        total, between = self._traces(W)
        return (total - between) / total if total > 0 else float("nan")

    def _traces(self, W: FloatArray) -> tuple[float, float]:
        return float(np.sum((self.rows @ W) ** 2)), float(np.sum((self.class_rows @ W) ** 2))

    @cached_property
    def _matrix(self) -> FloatArray:
        """(p, p) E - gamma B, for few features only."""
        return (1.0 - self.gamma) * self.rows.T @ self.rows - self.class_rows.T @ self.class_rows

    @cached_property
    def _core(self) -> FloatArray:
        """(r, r) E - gamma B in the coordinates of the right singular vectors."""
        classes = self.class_rows @ self.right.T
        return (1.0 - self.gamma) * np.diag(self.singular**2) - classes.T @ classes

    @cached_property
    def _lowest(self) -> float:
        """Smallest eigenvalue of E - gamma B, 0 or below."""
        return min(0.0, float(scipy.linalg.eigvalsh(self._core, subset_by_index=(0, 0))[0]))

    def smallest_eigenvectors(self, diagonal: FloatArray, start: FloatArray) -> FloatArray:
        """(p, columns) Eigenvectors of E - gamma B + diag(diagonal) for its smallest eigenvalues, from earlier ones."""
        p, columns = self.n_features, self.n_columns
        if p <= max(self.rows.shape[0], DENSE_FEATURES, 4 * columns):
            U = self._matrix + np.diag(diagonal)
            return scipy.linalg.eigh(U, subset_by_index=(0, columns - 1), check_finite=False)[1]
        # A shift below all eigenvalues, and close to them
        lowest = self._lowest + float(diagonal.min())
        shift = lowest - 1e-3 * (abs(lowest) + float(diagonal.min()) - self._lowest)
        inverse = scipy.sparse.linalg.LinearOperator((p, p), matvec=self._inverse(diagonal - shift), dtype=np.float64)
        # Only the inverse is used in this mode; the operator gives eigsh the shape
        size = min(p, max(2 * columns + 1, KRYLOV_SIZE))
        options: Any = {"v0": start.sum(axis=1), "ncv": size, "tol": EIGENVALUE_TOLERANCE}
        return scipy.sparse.linalg.eigsh(inverse, k=columns, sigma=shift, OPinv=inverse, which="LM", **options)[1]

    def _inverse(self, diagonal: FloatArray) -> Any:
        """Product with the inverse of E - gamma B + diag(diagonal), by Woodbury's identity in r dimensions."""
        gram = (self.right / diagonal) @ self.right.T
        middle = np.linalg.solve(np.eye(len(gram)) + self._core @ gram, self._core)

        def product(vector: FloatArray) -> FloatArray:
            divided = np.ravel(vector) / diagonal
            return divided - (middle @ (self.right @ divided)) @ self.right / diagonal

        return product


def scatter(
    X: Design, labels: NDArray[Any], weight: FloatArray, *, shrinkage: float = 0.0, all_columns: bool = True
) -> Scatter:
    """Build the scatter matrices of one task, with rows X (n, p), class labels (n,) and positive weights (n,)."""
    Z = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    root = np.sqrt(weight)[:, None]
    largest = np.abs(Z).max(initial=0.0)
    Z = root * (Z - weight @ Z / weight.sum())
    # What is left of a constant column after centring is rounding error
    Z[:, np.abs(Z).max(axis=0) <= 1e-13 * largest * root.max()] = 0.0
    size = np.linalg.norm(Z)
    Z = Z / size if size > 0 else Z
    _, singular, right = scipy.linalg.svd(Z, full_matrices=False, check_finite=False)
    kept = singular > RANK_TOLERANCE * singular[0] if size > 0 else np.zeros(len(singular), dtype=bool)
    class_rows = class_indicators(labels, weight).T @ Z
    return Scatter(Z, class_rows, singular[kept], right[kept], shrinkage, all_columns)


def class_indicators(labels: NDArray[Any], weight: FloatArray) -> FloatArray:
    """(n, classes) F = Y (Y'Y)^(-1/2): orthonormal columns, one per class."""
    classes, number = np.unique(labels, return_inverse=True)
    F = np.zeros((len(labels), len(classes)))
    F[np.arange(len(labels)), number] = np.sqrt(weight / np.bincount(number, weights=weight)[number])
    return F


def smallest_trace_ratio(
    total: FloatArray, classes: FloatArray, columns: int, ridge: float = 0.0
) -> tuple[float, FloatArray]:
    """Minimise tr(V'(E + ridge I)V) / tr(V'(B + ridge I)V) over V'V = I.

    By Newton's method on the trace difference (Jia, Nie and Zhang 2009); ``total`` (r,) is the diagonal of B, and
    E = B - classes' classes. Returned are the ratio and the (r, columns) minimiser.
    """
    if columns == 0:
        return 0.0, np.zeros((len(total), 0))
    between, gamma = classes.T @ classes, 1.0
    for _ in range(MOST_RATIO_STEPS):
        matrix = np.diag((1.0 - gamma) * total) - between
        V = scipy.linalg.eigh(matrix, subset_by_index=(0, columns - 1), check_finite=False)[1]
        held = float(total @ np.sum(V**2, axis=1)) + columns * ridge
        last, gamma = gamma, max(0.0, (held - float(np.sum((classes @ V) ** 2))) / held)
        if abs(last - gamma) <= 1e-12:
            break
    return gamma, V


# ---------------------------------------------------------------------- Algorithm 1


@dataclass(frozen=True)
class TraceRatioSettings:
    """Strengths of the two row penalties, eps relative to the average row, and when to stop."""

    within: float
    joint: float
    row_floor: float = 1e-3
    tol: float = 1e-6
    max_iter: int = 200


class Floors(NamedTuple):
    """eps: a row that is shorter counts as zero."""

    own: list[float]  # of each task's rows
    joint: float


class TraceRatioFit(NamedTuple):
    """What Algorithm 1 ends with."""

    W: list[FloatArray]  # per task (p, columns), orthonormal columns
    surrogate_trace: FloatArray  # never increases
    objective_trace: FloatArray  # eq. (1), which need not fall
    floors: Floors
    converged: bool
    n_iter: int


def row_lengths(W: FloatArray, groups: IntArray | None) -> FloatArray:
    """(p,) Euclidean length of each row; with groups, of all rows of the row's group together."""
    squares = np.sum(W**2, axis=1)
    return np.sqrt(squares if groups is None else np.bincount(groups, weights=squares)[groups])


def penalty(lengths: FloatArray, groups: IntArray | None, floor: float) -> float:
    """Sum of sqrt(length^2 + floor^2), once per group."""
    if groups is not None:
        lengths = lengths[np.unique(groups, return_index=True)[1]]
    return float(np.sum(np.hypot(lengths, floor)))


def find_floors(scatters: list[Scatter], share: float) -> Floors:
    """eps as a share of the root mean square row length, which orthonormal columns fix."""  # noqa: D403
    p, columns = scatters[0].n_features, [task.n_columns for task in scatters]
    return Floors([share * np.sqrt(max(c, 1) / p) for c in columns], share * np.sqrt(max(sum(columns), 1) / p))


class _Problem(NamedTuple):
    scatters: list[Scatter]
    groups: IntArray | None
    settings: TraceRatioSettings
    floors: Floors

    def penalties(self, W: list[FloatArray], smoothed: bool) -> float:
        """Both l2,1 terms with their strengths; smoothed ones are those of the surrogate."""
        floors = self.floors.own if smoothed else [0.0] * len(W)
        own = sum(penalty(row_lengths(w, self.groups), self.groups, f) for w, f in zip(W, floors, strict=True))
        floor = self.floors.joint if smoothed else 0.0
        joint = penalty(row_lengths(np.hstack(W), self.groups), self.groups, floor)
        return self.settings.within * own + self.settings.joint * joint

    def surrogate(self, W: list[FloatArray]) -> float:
        """Eq. (4) with smoothed norms."""
        difference = sum(task.difference(w) for task, w in zip(self.scatters, W, strict=True))
        return difference + self.penalties(W, smoothed=True)

    def objective(self, W: list[FloatArray]) -> float:
        """Eq. (1)."""
        ratios = [task.ratio(w) for task, w in zip(self.scatters, W, strict=True)]
        return float(np.nansum(ratios)) + self.penalties(W, smoothed=False)

    def update(self, W: list[FloatArray]) -> list[FloatArray]:
        """Steps 4 to 11 of Algorithm 1: new eigenvectors of every task at the weights of the last iterate."""
        s, shared = self.settings, row_lengths(np.hstack(W), self.groups)
        joint_weights = s.joint / (2.0 * np.hypot(shared, self.floors.joint))
        updated = []
        for task, w, floor in zip(self.scatters, W, self.floors.own, strict=True):
            weights = s.within / (2.0 * np.hypot(row_lengths(w, self.groups), floor)) + joint_weights
            updated.append(task.smallest_eigenvectors(weights, w) if task.n_columns else w)
        return updated


def random_start(scatters: list[Scatter], rng: np.random.RandomState) -> list[FloatArray]:
    """Orthonormal columns in the range of each task's rows."""
    drawn = [task.right.T @ rng.standard_normal((len(task.singular), task.n_columns)) for task in scatters]
    return [np.linalg.qr(W)[0] for W in drawn]


def solve(
    scatters: list[Scatter],
    settings: TraceRatioSettings,
    start: list[FloatArray] | None = None,
    groups: IntArray | None = None,
    progress: bool | None = False,
) -> TraceRatioFit:
    """Descend on the surrogate from the unpenalised solution, or from a start, (p, columns) orthonormal per task."""
    problem = _Problem(scatters, groups, settings, find_floors(scatters, settings.row_floor))
    W = [task.unpenalised[1] for task in scatters] if start is None else start
    surrogates, objectives = [problem.surrogate(W)], [problem.objective(W)]
    # Without a penalty the unpenalised solution is the answer, and null directions of the data are not distinguished
    converged = settings.within == settings.joint == 0 and start is None
    with Progress("trace ratio", progress) as work:
        while not converged and len(surrogates) <= settings.max_iter:
            W = problem.update(W)
            surrogates.append(problem.surrogate(W))
            objectives.append(problem.objective(W))
            converged = surrogates[-2] - surrogates[-1] <= settings.tol * abs(surrogates[-1])
            work.update(len(surrogates) / settings.max_iter, f"surrogate {surrogates[-1]:.6g}")
    converged = converged and not work.interrupted
    traces = np.array(surrogates), np.array(objectives)
    return TraceRatioFit(W, *traces, problem.floors, bool(converged), len(surrogates) - 1)
