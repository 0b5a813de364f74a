"""Posterior of the coefficients under normal rows, and what its evidence depends on.

Row i of W is ``N(0, gamma_i R)`` over the m tasks, R a correlation matrix, and the whitened targets of task t have
noise of variance ``1 / tau_t``. With the stacked design ``A`` (block-diagonal over tasks) scaled by ``sqrt(tau)`` and
``K = diag(gamma) (x) R``,

    C = I + A K A',   -2 ln evidence = ln|C| + y' C^-1 y + terms that depend on tau alone,
    score      g_i = A_i' C^-1 y   (m,),       posterior mean  mu_i = gamma_i R g_i,
    curvature  Z_i = A_i' C^-1 A_i (m, m),     posterior covariance of row i  gamma_i R - gamma_i^2 R Z_i R,

and the derivatives of ``-2 ln evidence`` in gamma_i are ``tr(R Z_i) - g_i' R g_i`` (Wipf and Rao 2007, *IEEE
Transactions on Signal Processing* 55:3704-3716, for one design and R = I).

Four ways to the same numbers, the cheapest for the sizes at hand: without relations, one system per design, of the size
of its rows or of its features; with relations, one system over the rows of all tasks, or one over the r common factors
of ``R = F F' + diag(own)``, of size features x r.

**Whitened tasks.** With a flat prior on the intercept of a task, integrating it out leaves the likelihood of features
and targets that are centred by their weighted means, and one observation less. With row factors ``c`` (weights, or
weights times the precisions of a normal bound) the rows ``sqrt(c_i) (x_i - mean)`` and targets ``sqrt(c_i) (y_i -
mean)`` have unit noise up to the precision of the task, which stays a separate number so that moments can be kept while
it is learned.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.linalg.lapack import dpotrf, dtrtri

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.em.active_tasks import dense
from bayesmtfs.em.task_relations import Relations
from bayesmtfs.types import BoolArray, FloatArray, IntArray

LARGEST_TRACE = 1e11  # of a system in units of the noise, for which a Cholesky factor is exact enough
DOUBTFUL = 1e-6  # of an entry: what is left of it where its column may be constant
LARGEST_DENSE = 2 * 10**9  # bytes of a sparse design made dense


@dataclass(frozen=True, eq=False)
class WhitenedTasks:
    """D designs with the targets of the tasks that use them; D is 1 (one design for all) or the number of tasks."""

    designs: tuple[FloatArray, ...]  # D arrays (n_d, p), centred and weighted
    targets: tuple[FloatArray, ...]  # D arrays (n_d, k), with k tasks per design
    design_means: tuple[FloatArray, ...]  # D arrays (p,), the centres
    target_means: FloatArray  # (m,) the centres of the targets

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

    def explaining(self, weights: FloatArray, variance: float) -> FloatArray:
        """(p,) Row variances at which every feature by itself explains a variance, 0 if it never varies."""
        spread = np.mean(self.column_squares / weights, axis=1)
        return np.divide(variance, spread, out=np.zeros_like(spread), where=spread > 0)

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

    def residuals(self, W: FloatArray) -> list[FloatArray]:
        """Targets minus predictions, one (n_d, k) array per design."""
        if self.n_designs == 1:
            return [self.targets[0] - self.designs[0] @ W]
        return [y - X @ W[:, [t]] for t, (X, y) in enumerate(zip(self.designs, self.targets, strict=True))]

    def residual_squares(self, W: FloatArray) -> FloatArray:
        """(m,) Residual sum of squares of every task."""
        return np.concatenate([np.einsum("ij,ij->j", r, r) for r in self.residuals(W)])

    def intercept(self, W: FloatArray) -> FloatArray:
        """(m,) Intercepts on features and targets that are not centred."""
        means = np.stack(self.design_means, axis=1)
        return np.asarray(self.target_means - np.sum(means * W, axis=0))


def dense_designs(data: TaskData) -> tuple[FloatArray, ...]:
    """Designs in double precision, one per task, or one where all tasks have the same rows; sparse ones up to a limit."""
    if data.is_sparse and 8 * np.prod(data.design.shape, dtype=np.float64) > LARGEST_DENSE:
        raise ValueError(
            f"X is sparse with shape {data.design.shape}, and integrating out the coefficients would make it dense; "
            "select features first, such as with a MixedNorm estimator, or use coefficients='mode'"
        )
    return tuple(dense(X) for X in ((data.design,) if data.is_complete else data.task_designs))


def whiten(
    data: TaskData, designs: tuple[FloatArray, ...], target: FloatArray, factor: FloatArray, fit_intercept: bool
) -> WhitenedTasks:
    """Weight the designs that `dense_designs` gave by row factors c (N,), and centre them where there is an intercept."""
    if len(designs) == 1:
        Y, C = data.as_matrix(target), data.as_matrix(factor)
        if data.n_tasks == 1 or np.all(C == C[:, :1]):
            return _from_parts([(designs[0], Y, C[:, 0])], fit_intercept)
        designs = designs * data.n_tasks
    parts = [(X, target[a:b, None], factor[a:b]) for X, (a, b) in zip(designs, data.spans, strict=True)]
    return _from_parts(parts, fit_intercept)


def _from_parts(parts: list[tuple[FloatArray, FloatArray, FloatArray]], fit_intercept: bool) -> WhitenedTasks:
    designs, targets, design_means, target_means = [], [], [], []
    for X, y, factor in parts:
        share = fit_intercept * factor / factor.sum()
        x_mean, y_mean, root = share @ X, share @ y, np.sqrt(factor)[:, None]
        centred = X - x_mean
        # a constant column is exactly constant, whatever the rounding of its mean
        doubtful = np.flatnonzero(np.abs(centred[0]) <= DOUBTFUL * np.abs(X[0]))
        centred[:, doubtful[np.ptp(X[:, doubtful], axis=0) == 0]] *= not fit_intercept
        designs.append(root * centred)
        targets.append(root * (y - y_mean))
        design_means.append(x_mean)
        target_means.append(y_mean)
    return WhitenedTasks(tuple(designs), tuple(targets), tuple(design_means), np.concatenate(target_means))


# ---------------------------------------------------------------------- the posterior


class RowPosterior(NamedTuple):
    """Posterior of W for given row variances, noise and relations."""

    log_det: float  # ln|C|
    quadratic: float  # y' C^-1 y
    score: FloatArray  # (p, m) g
    curvature: FloatArray  # (p, m) diagonals of Z_i without relations, (p, m, m) with
    mean: FloatArray  # (p, m)
    degrees: FloatArray  # (m,) parameters that the data of each task determine
    leverage: FloatArray | None  # (N,) posterior variances of the whitened predictions, where asked for


def compute(
    tasks: WhitenedTasks,
    row_variances: FloatArray,
    precision: FloatArray,
    relations: Relations | None,
    with_leverage: bool = False,
) -> RowPosterior:
    """Posterior in the cheapest way, at gamma (p,), tau (m,) and R or I; ``with_leverage`` needs one design per task."""
    p = len(row_variances)
    if len(precision) < tasks.n_tasks:
        precision = np.broadcast_to(precision, tasks.n_tasks)
    if relations is None:
        by = _by_features if p * tasks.n_designs < sum(map(len, tasks.designs)) else _by_rows
        return by(tasks, row_variances, precision, with_leverage)
    related_by = _related_by_rows if tasks.n_rows <= p * relations.factors.shape[1] else _related_by_factors
    return related_by(tasks, row_variances, precision, relations, with_leverage)


# ---------------------------------------------------------------------- tasks on their own


def _by_rows(
    tasks: WhitenedTasks, row_variances: FloatArray, precision: FloatArray, with_leverage: bool
) -> RowPosterior:
    """One n x n system per design, whatever the noise of the tasks that share it."""
    log_det = quadratic = 0.0
    scores, curvatures, leverages = [], [], []
    for X, y, tau in zip(tasks.designs, tasks.targets, _per_design(tasks, precision), strict=True):
        inverse = _inverse((X * row_variances) @ X.T, tau)
        rotated_X, rotated_y, weights = inverse.rotation @ X, inverse.rotation @ y, inverse.weights
        log_det += inverse.log_det
        quadratic += float(np.sum(weights * rotated_y**2))
        scores.append(rotated_X.T @ (weights * rotated_y))
        curvatures.append(np.broadcast_to((rotated_X**2).T @ weights, (len(row_variances), y.shape[1])))
        if with_leverage:
            leverages.append(1.0 - inverse.diagonals()[:, 0])
    score, curvature = np.concatenate(scores, axis=1), np.concatenate(curvatures, axis=1)
    return RowPosterior(
        log_det,
        quadratic,
        score,
        curvature,
        mean=row_variances[:, None] * score,
        degrees=row_variances @ curvature,
        leverage=np.concatenate(leverages) if with_leverage else None,
    )


def _per_design(tasks: WhitenedTasks, precision: FloatArray) -> list[FloatArray]:
    """Precisions of the tasks of every design."""
    return np.split(precision, tasks.n_designs)


class _Inverse(NamedTuple):
    """Inverses of ``C_t = I + tau_t S`` for one S and k precisions: ``rotation' diag(shares_t) rotation``."""

    rotation: FloatArray  # (n, n)
    shares: FloatArray  # (n, k), or (n, 1) where the precisions are equal
    weights: FloatArray  # the same times tau
    log_det: float  # sum of ln|C_t|

    def diagonals(self) -> FloatArray:
        """Return the diagonals of the inverses, in the shape of the shares."""
        return np.asarray((self.rotation**2).T @ self.shares)


def _inverse(S: FloatArray, tau: FloatArray) -> _Inverse:
    """Invert by a Cholesky factor where there is one precision, else by the eigenvectors that all C_t share.

    Eigenvalues of S that are smaller than rounding, ``n eps`` times the largest, are taken to be that: this cannot fail
    for want of rank, and also serves where the noise is so small that a Cholesky factor would lose it.
    """
    n, k = len(S), len(tau)
    if n > 0 and (k == 1 or tau.min() == tau.max()) and tau[0] * S.trace() < LARGEST_TRACE:
        C = np.multiply(tau[0], S, order="C")
        C.ravel()[:: n + 1] += 1.0
        # S is symmetric: its transpose lies in memory as LAPACK wants it
        factor, info = dpotrf(C.T, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            log_det = 2.0 * k * float(np.log(factor.diagonal()).sum())
            rotation, _ = dtrtri(factor, lower=1, overwrite_c=1)
            return _Inverse(rotation, np.ones((n, 1)), np.full((n, 1), tau[0]), log_det)
    values, vectors = np.linalg.eigh(S)
    values = np.maximum(values, n * np.finfo(np.float64).eps * np.max(values, initial=0.0))
    shares = 1.0 / (1.0 + values[:, None] * tau)
    return _Inverse(vectors.T, shares, tau * shares, -float(np.log(shares).sum()))


def _by_features(
    tasks: WhitenedTasks, row_variances: FloatArray, precision: FloatArray, with_leverage: bool
) -> RowPosterior:
    """One p x p system per design, all at once, in the scaled coefficients w / sqrt(gamma)."""
    if tasks.n_designs == 1:
        return _by_shared_features(tasks, row_variances, precision, with_leverage)
    root = np.sqrt(row_variances)
    gram, product = _scaled_moments(tasks, root, precision)
    system = gram + np.eye(len(root))
    inverse = np.linalg.inv(system)
    scaled_mean = inverse @ product  # (m, p, 1)
    determined = 1.0 - np.diagonal(inverse, axis1=1, axis2=2).T  # (p, m): gamma_i z_it
    columns = scaled_mean[:, :, 0].T
    return RowPosterior(
        log_det=float(np.linalg.slogdet(system).logabsdet.sum()),
        quadratic=float(precision @ tasks.target_squares - np.sum(product * scaled_mean)),
        score=columns / root[:, None],
        curvature=determined / row_variances[:, None],
        mean=root[:, None] * columns,
        degrees=determined.sum(axis=0),
        leverage=_leverage(tasks, root, precision, inverse) if with_leverage else None,
    )


def _by_shared_features(
    tasks: WhitenedTasks, row_variances: FloatArray, precision: FloatArray, with_leverage: bool
) -> RowPosterior:
    """One p x p system for all tasks."""
    root = np.sqrt(row_variances)
    inverse = _inverse(root[:, None] * tasks.grams[0] * root, precision)
    rotated = inverse.rotation @ (root[:, None] * tasks.products[0])
    columns = inverse.rotation.T @ (inverse.weights * rotated)
    determined = 1.0 - inverse.diagonals()
    if determined.shape != columns.shape:
        determined = np.broadcast_to(determined, columns.shape)
    squares = precision @ tasks.target_squares - np.vdot(inverse.weights * rotated, precision * rotated)
    leverage = None
    if with_leverage:
        leverage = _leverage(tasks, root, precision, (inverse.rotation.T @ inverse.rotation)[None])
    return RowPosterior(
        log_det=inverse.log_det,
        quadratic=float(squares),
        score=columns / root[:, None],
        curvature=determined / row_variances[:, None],
        mean=root[:, None] * columns,
        degrees=determined.sum(axis=0),
        leverage=leverage,
    )


def curvatures_and_scores(
    tasks: WhitenedTasks, active: IntArray, row_variances: FloatArray, precision: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(p, m) Diagonals of Z and scores of all features, where some are active and the tasks are unrelated."""
    curvatures, scores, root = [], [], np.sqrt(row_variances)
    squares = np.split(tasks.column_squares, tasks.n_designs, axis=1)
    everything = zip(tasks.designs, tasks.products, squares, _per_design(tasks, precision), strict=True)
    for X, product, square, tau in everything:
        scaled = X[:, active] * root
        inverse = _inverse(scaled.T @ scaled, tau)
        rotated = inverse.rotation @ (scaled.T @ X)
        rotated_product = inverse.rotation @ (root[:, None] * product[active])
        curvatures.append(tau * (square - (rotated**2).T @ inverse.weights))
        scores.append(tau * (product - rotated.T @ (inverse.weights * rotated_product)))
    return np.maximum(np.concatenate(curvatures, axis=1), 0.0), np.concatenate(scores, axis=1)


def _leverage(tasks: WhitenedTasks, root: FloatArray, precision: FloatArray, covariances: FloatArray) -> FloatArray:
    """(N,) Variances of the whitened predictions, from the covariance of every task's scaled coefficients."""
    parts = []
    for X, tau, covariance in zip(tasks.designs, precision, covariances, strict=True):
        scaled = X * (np.sqrt(tau) * root)
        parts.append(np.einsum("ij,ij->i", scaled @ covariance, scaled))
    return np.concatenate(parts)


def _scaled_moments(tasks: WhitenedTasks, root: FloatArray, precision: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(m, p, p) and (m, p, 1) moments of the features times sqrt(gamma), in units of the noise."""
    products = np.concatenate(list(tasks.products), axis=1)  # (p, m)
    gram = precision[:, None, None] * tasks.grams * np.outer(root, root)
    return gram, (products * root[:, None] * precision).T[:, :, None]


# ---------------------------------------------------------------------- related tasks


def _related_by_rows(
    tasks: WhitenedTasks,
    row_variances: FloatArray,
    precision: FloatArray,
    relations: Relations,
    with_leverage: bool,
) -> RowPosterior:
    """One system over the rows of all tasks."""
    m, R = tasks.n_tasks, relations.matrix
    roots, tasks = np.sqrt(precision), tasks.separate()
    designs = [root * X for root, X in zip(roots, tasks.designs, strict=True)]
    y = np.concatenate([root * target[:, 0] for root, target in zip(roots, tasks.targets, strict=True)])
    ends = np.cumsum([len(X) for X in designs])
    spans = [slice(end - len(X), end) for end, X in zip(ends, designs, strict=True)]
    C = np.eye(len(y))
    for t in range(m):
        scaled = designs[t] * row_variances
        for u in range(t + 1):
            C[spans[t], spans[u]] += R[t, u] * (scaled @ designs[u].T)
    factor = cholesky(C, lower=True, overwrite_a=True, check_finite=False)
    inverse_root = solve_triangular(factor, np.eye(len(y)), lower=True, check_finite=False)
    inverse = inverse_root.T @ inverse_root
    solved = inverse @ y
    score = np.stack([X.T @ solved[span] for X, span in zip(designs, spans, strict=True)], axis=1)
    curvature = np.empty((len(row_variances), m, m))
    for t in range(m):
        for u in range(t + 1):
            between = inverse[spans[t], spans[u]] @ designs[u]
            curvature[:, t, u] = curvature[:, u, t] = np.einsum("ij,ij->j", designs[t], between)
    leverage = 1.0 - np.diag(inverse)
    return RowPosterior(
        log_det=2.0 * float(np.log(np.diag(factor)).sum()),
        quadratic=float(y @ solved),
        score=score,
        curvature=curvature,
        mean=row_variances[:, None] * (score @ R),
        degrees=np.array([leverage[span].sum() for span in spans]),
        leverage=leverage if with_leverage else None,
    )


def _related_by_factors(
    tasks: WhitenedTasks,
    row_variances: FloatArray,
    precision: FloatArray,
    relations: Relations,
    with_leverage: bool,
) -> RowPosterior:
    """One system over the common factors of R; the tasks' own parts are integrated out task by task.

    In scaled coefficients ``w_t / sqrt(gamma) = f F_t + sqrt(own_t) e_t`` with f (p, r) and e standard normal. Given f
    the tasks are independent, with ``M_t = G_t (I + own_t G_t)^-1`` in place of the scaled Gram matrix G_t.
    """
    m, p = tasks.n_tasks, len(row_variances)
    F, own = relations.factors, relations.own
    r = F.shape[1]
    root = np.sqrt(row_variances)
    gram, product = _scaled_moments(tasks, root, precision)
    system = np.eye(p) + own[:, None, None] * gram
    given = np.linalg.inv(system)  # (I + own_t G_t)^-1
    M, a = given @ gram, (given @ product)[:, :, 0]
    M = 0.5 * (M + M.transpose(0, 2, 1))
    squares = precision * tasks.target_squares
    task_quadratic = squares - own * np.sum(product[:, :, 0] * a, axis=1)

    joint = np.einsum("tk,tl,tij->ikjl", F, F, M, optimize=True).reshape(p * r, p * r)
    joint[np.diag_indices_from(joint)] += 1.0
    right = (a.T @ F).reshape(p * r)
    factor = cholesky(joint, lower=True, check_finite=False)
    solved = solve_triangular(factor, right, lower=True, check_finite=False)
    common = solve_triangular(factor, solved, lower=True, trans=1, check_finite=False).reshape(p, r)
    scaled_score = (a - np.einsum("tij,jt->ti", M, common @ F.T, optimize=True)).T  # (p, m)

    columns = np.einsum("tji,tk->jkit", M, F).reshape(p * r, p * m)
    half = solve_triangular(factor, columns, lower=True, check_finite=False).reshape(p * r, p, m).transpose(1, 0, 2)
    curvature = -(half.transpose(0, 2, 1) @ half)
    curvature[:, np.arange(m), np.arange(m)] += np.diagonal(M, axis1=1, axis2=2).T
    inverse_root = solve_triangular(factor, np.eye(p * r), lower=True, check_finite=False)
    covariance = (inverse_root.T @ inverse_root).reshape(p, r, p, r)
    common_parts = np.einsum("ikjl,tk,tl->tij", covariance, F, F, optimize=True)
    rest = np.eye(p) - own[:, None, None] * M
    covariances = own[:, None, None] * given + rest @ common_parts @ rest
    return RowPosterior(
        log_det=float(np.linalg.slogdet(system).logabsdet.sum() + 2.0 * np.log(np.diag(factor)).sum()),
        quadratic=float(task_quadratic.sum() - solved @ solved),
        score=scaled_score / root[:, None],
        curvature=curvature / row_variances[:, None, None],
        mean=root[:, None] * (scaled_score @ relations.matrix),
        degrees=np.einsum("tij,tij->t", gram, covariances),
        leverage=_leverage(tasks, root, precision, covariances) if with_leverage else None,
    )
