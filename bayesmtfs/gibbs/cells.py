r"""Missing cells of features as unknowns of a Gibbs sampler: rows of X are normal within tasks.

    x_n ~ N(mu_t(n), S),   S ~ inverse Wishart(k + p + 1, k D),   mu_tj ~ N(c_tj, d_j^2)

with D the diagonal of variances within tasks, c the means of the observed cells, and d^2 = D plus the variance of c between
tasks, so that a task without any cell of a column has a level like those of the others. k, by how many rows covariances are
drawn to 0, has the largest marginal likelihood of the filled data on a grid (Chen 1979); it is what makes the regression of
one column on the others sensible where features outnumber the rows. Where tasks share rows there is one mu.

After every few sweeps of a sampler of the coefficients:

1. **the model of the rows** given the filled data. Only columns G with gaps need one, given the complete ones C:
   ``x_G | x_C ~ N(mu_G + B'(x_C - mu_C), V)``, the same as above without a word on the law of x_C. With the scatter
   ``A = k D + sum (x - mu)(x - mu)'`` over the n rows,

       V^-1 ~ Wishart(k + p + 1 + n, (A_GG - A_GC A_CC^-1 A_CG)^-1),   B ~ N(A_CC^-1 A_CG, A_CC^-1 x V),

   and levels mu_t given V, in the eigenvectors of ``d V^-1 d``;
2. **the cells** of every row together (up to `MOST_TOGETHER`), given the model and the targets. Given the hidden
   precisions omega of its targets (`bayesmtfs.families.augmentation`) and their scores s, a change ``delta`` of the
   missing cells M has

       ln p = (sum_n s_n w_n - (P (x - mu)))_M' delta - delta' (P_MM + sum_n omega_n w_n w_n')_MM delta / 2,   P = S^-1,

   a sum over all targets of the row: one where tasks have rows of their own, one for each task where they share rows.

The filled rows that a chain begins with, and the units of sampling, come from the same draws without targets (`complete`).

References
----------
D. B. Rubin (1987), Multiple Imputation for Nonresponse in Surveys.
C.-F. Chen (1979), Bayesian inference for a normal dispersion matrix and its application to stochastic multiple
regression analysis, JRSS B 41:235-248.
J. L. Schafer (1997), Analysis of Incomplete Multivariate Data, chapters 5 and 6.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from scipy.linalg import solve_triangular
from scipy.special import multigammaln

from bayesmtfs.compiled import lean
from bayesmtfs.data.gaps import RowModel, learn_means
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.gibbs.coefficients import factorise, solve_lower, solve_upper
from bayesmtfs.gibbs.distributions import dot
from bayesmtfs.types import BoolArray, FloatArray, IntArray

STARTS, CYCLES = 5, 6  # choices of k before a chain begins, and draws of model and cells without targets after each
SHRINKAGES = 30  # on the grid of k
MANY_COLUMNS = 50  # with so many more gappy columns the model is drawn once less often
MOST_TOGETHER = 50  # cells of a row that are drawn together; of more, each time others
LEAST_VARIANCE = 1e-12


class Gaps(NamedTuple):
    """Which cells are missing, and what is known of rows beforehand; the same for all chains."""

    X: FloatArray  # (n + 1, p) filled rows to begin with; the last is 0, for observations that are none of the data's
    group: IntArray  # (n,) whose level a row has
    row: IntArray  # (N,) row of each observation
    task: IntArray  # (N,) and its task
    columns: IntArray  # (g,) features with gaps
    gappy: IntArray  # (K,) rows with gaps
    starts: IntArray  # (K + 1,) into places
    places: IntArray  # (C,) number among the columns of each cell, row by row
    seen_starts: IntArray  # (K + 1,) into seen
    seen: IntArray  # observations of each row with gaps
    centres: FloatArray  # (G, p) c
    spreads: FloatArray  # (g,) d
    variances: FloatArray  # (p,) D
    shrinkage: float  # k

    @property
    def cells(self) -> tuple[IntArray, IntArray]:
        """Row and feature of each cell (C,)."""
        return np.repeat(self.gappy, np.diff(self.starts)), self.columns[self.places]


class CellMoments(NamedTuple):
    """Sums over draws, of one chain or of several."""

    draws: int
    totals: FloatArray  # (C,) of the cells
    squares: FloatArray  # (C,)
    levels: FloatArray  # (G, p) of mu
    scatter: FloatArray  # (p, p) of A / (n + k), the mean of S given the filled data


def gaps_of(data: TaskData, missing: BoolArray, shrinkage: float = 1.0, added: int = 0) -> Gaps:
    """Gaps of filled dense data.

    Parameters
    ----------
    data : with something in the place of missing cells
    missing : (n, p) which cells these are
    shrinkage : k
    added : rows behind those of each task that are none of the data's
    """
    X, n = np.asarray(data.design, dtype=np.float64), len(data.design)
    group = np.zeros(n, dtype=np.int64) if data.shared_design else data.task
    parts = [np.append(data.rows[start:stop], np.full(added, n)) for start, stop in data.spans]
    row = np.concatenate(parts)
    gappy, columns = np.flatnonzero(missing.any(axis=1)), np.flatnonzero(missing.any(axis=0))
    number = np.full(n + 1, len(gappy))
    number[gappy] = np.arange(len(gappy))
    order = np.argsort(number[row], kind="stable")
    counts = np.bincount(number[row], minlength=len(gappy) + 1)[: len(gappy)]
    own = learn_means(replace(data, design=np.where(missing, np.nan, X)))
    centres = own.means[:1] if data.shared_design else own.means
    sizes = np.bincount(group)
    between = sizes @ (centres - own.overall) ** 2 / n
    around = X - _group_means(X, group)[group]
    variances = np.maximum(np.mean(around**2, axis=0), LEAST_VARIANCE * np.maximum(np.mean(X**2, axis=0), 1.0))
    return Gaps(
        X=np.vstack([X, np.zeros(data.n_features)]),
        group=group,
        row=row,
        task=np.repeat(np.arange(data.n_tasks), [len(part) for part in parts]),
        columns=columns,
        gappy=gappy,
        starts=_starts(missing[gappy].sum(axis=1)),
        places=np.nonzero(missing[np.ix_(gappy, columns)])[1],
        seen_starts=_starts(counts),
        seen=order[: counts.sum()],
        centres=centres,
        spreads=np.sqrt(variances + between)[columns],
        variances=variances,
        shrinkage=shrinkage,
    )


def _starts(sizes: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _group_means(X: FloatArray, group: IntArray) -> FloatArray:
    """(G, p) Means of the rows of each group."""
    first = np.flatnonzero(np.diff(group, prepend=-1))  # rows are sorted by group
    return np.asarray(np.add.reduceat(X, first, axis=0) / np.bincount(group)[:, np.newaxis])


# ---------------------------------------------------------------------- one chain


class Cells:
    """Filled rows of one chain, and the model of the rows."""

    def __init__(self, gaps: Gaps, rng: Generator, factors: FloatArray | float = 1.0) -> None:
        """``factors`` (N,) are those of the observations in the design of the sampler, such as roots of weights."""
        p, g = gaps.X.shape[1], len(gaps.columns)
        self.gaps, self.rng = gaps, rng
        self.factors = np.broadcast_to(np.asarray(factors, dtype=np.float64), gaps.row.shape).copy()
        self.X = gaps.X.copy()
        self.complete = np.setdiff1d(np.arange(p), gaps.columns)
        self.levels = _group_means(self.X[:-1], gaps.group)
        self.around = self.X[:-1][:, self.complete] - self.levels[gaps.group][:, self.complete]
        scatter = self.around.T @ self.around + gaps.shrinkage * np.diag(gaps.variances[self.complete])
        self.root = np.linalg.cholesky(scatter)
        self.precisions = np.zeros((g, p))  # P of the columns with gaps
        size = min(g, MOST_TOGETHER)
        self.space = np.empty(p), np.empty((size, size)), np.empty(size), np.empty(size, dtype=np.int64)
        self.scatter = np.zeros((p, p))
        self.scatter[np.ix_(self.complete, self.complete)] = scatter
        nothing = np.zeros(len(gaps.places))
        self.visits, self.kept = 0, CellMoments(0, nothing, nothing, 0.0 * self.levels, np.zeros((p, p)))

    def redraw(self, W: FloatArray, precisions: FloatArray, scores: FloatArray, keep: bool) -> None:
        """Draw the model and the cells; ``keep``: whether the draws count, the rest as in `draw_cells`."""
        if self.visits % (1 + len(self.gaps.columns) // MANY_COLUMNS) == 0:
            self.draw_model()
        self.visits += 1
        self.draw_cells(W, precisions, scores)
        if keep:
            self._keep()

    def draw_cells(self, W: FloatArray, precisions: FloatArray, scores: FloatArray) -> None:
        """Draw the cells given the model and the targets.

        Parameters
        ----------
        W : (m, p) coefficients
        precisions, scores : (N,) of the observations given their linear predictors
        """
        own = (self.X, self.levels, self.precisions, *self.space)
        draw_missing(self.rng, self.gaps, *own, np.ascontiguousarray(W), precisions, scores, self.factors)

    def draw_model(self) -> None:
        """Draw V, B and the levels of the columns with gaps given the filled rows."""
        gaps, rng, columns, others = self.gaps, self.rng, self.gaps.columns, self.complete
        g, (n, p) = len(columns), (len(gaps.group), self.X.shape[1])
        filled = self.X[:-1, columns]
        around = filled - self.levels[gaps.group][:, columns]
        own = around.T @ around + gaps.shrinkage * np.diag(gaps.variances[columns])
        cross = self.around.T @ around
        half = solve_triangular(self.root, cross, lower=True)
        left = np.linalg.cholesky(own - half.T @ half)
        # V^-1 = F F', with F = left^-T T of Bartlett's triangle T of a Wishart draw
        triangle = np.tril(rng.standard_normal((g, g)), -1)
        triangle[np.diag_indices(g)] = np.sqrt(
            2.0 * rng.standard_gamma(0.5 * (gaps.shrinkage + p + 1 + n - np.arange(g)))
        )
        F = solve_triangular(left, triangle, lower=True, trans="T")
        noise = solve_triangular(triangle, rng.standard_normal((g, len(others))), lower=True, trans="T").T @ left.T
        B = solve_triangular(self.root, half + noise, lower=True, trans="T")
        self.precisions[:, columns] = F @ F.T
        self.precisions[:, others] = -self.precisions[:, columns] @ B.T
        self.scatter[np.ix_(columns, columns)] = own
        self.scatter[np.ix_(others, columns)], self.scatter[np.ix_(columns, others)] = cross, cross.T
        self._draw_levels(filled)

    def _draw_levels(self, filled: FloatArray) -> None:
        """Levels given V; those of complete columns are their means."""
        gaps, columns = self.gaps, self.gaps.columns
        # along the eigenvectors of d V^-1 d, (mu - c) / d has precision 1 a priori and n times the eigenvalue by the rows
        scaled = gaps.spreads[:, np.newaxis] * self.precisions[:, columns] * gaps.spreads
        values, vectors = np.linalg.eigh(scaled)
        weight = np.bincount(gaps.group)[:, np.newaxis] * np.maximum(values, 0.0)  # (G, g)
        centres = gaps.centres[:, columns]
        pull = (_group_means(filled, gaps.group) - centres) / gaps.spreads @ vectors
        drawn = weight / (1.0 + weight) * pull + self.rng.standard_normal(pull.shape) / np.sqrt(1.0 + weight)
        self.levels[:, columns] = centres + gaps.spreads * (drawn @ vectors.T)

    def _keep(self) -> None:
        kept, values = self.kept, self.X[self.gaps.cells]
        mean = self.scatter / (len(self.gaps.group) + self.gaps.shrinkage)
        self.kept = CellMoments(
            kept.draws + 1,
            kept.totals + values,
            kept.squares + values**2,
            kept.levels + self.levels,
            kept.scatter + mean,
        )

    def write_to(self, design: FloatArray) -> None:
        """Put the filled rows into the design (p, N') of a sampler, whose columns are the first observations, or all."""
        count, columns = design.shape[1], self.gaps.columns
        rows = self.gaps.row[:count]
        design[columns] = (self.X[rows[:, np.newaxis], columns] * self.factors[:count, np.newaxis]).T


@lean()
def draw_missing(
    rng: Generator,
    gaps: Gaps,
    X: FloatArray,
    levels: FloatArray,
    P: FloatArray,
    around: FloatArray,
    K: FloatArray,
    pull: FloatArray,
    chosen: IntArray,
    W: FloatArray,
    precisions: FloatArray,
    scores: FloatArray,
    factors: FloatArray,
) -> None:
    """Draw the missing cells of every row together, given the model of the rows and the targets."""
    columns = gaps.columns
    for k in range(len(gaps.gappy)):
        row, first = gaps.gappy[k], gaps.starts[k]
        count, level = gaps.starts[k + 1] - first, levels[gaps.group[gaps.gappy[k]]]
        size, shift = min(count, len(pull)), 0
        if size < count:
            shift = int(rng.random() * count)
        for i in range(len(around)):
            around[i] = X[row, i] - level[i]
        for a in range(size):
            place = gaps.places[first + (shift + a) % count]
            chosen[a], own = columns[place], P[place]
            pull[a] = -dot(own, around)
            for b in range(a + 1):
                K[a, b] = own[chosen[b]]
        for number in range(gaps.seen_starts[k], gaps.seen_starts[k + 1]):
            n = gaps.seen[number]
            w, factor = W[gaps.task[n]], factors[n]
            for a in range(size):
                slope = factor * w[chosen[a]]
                if slope != 0.0:
                    pull[a] += scores[n] * slope
                    for b in range(a + 1):
                        K[a, b] += precisions[n] * slope * factor * w[chosen[b]]
        factorise(K, size)
        solve_lower(K, pull, size)
        for a in range(size):
            pull[a] += rng.standard_normal()
        solve_upper(K, pull, size)
        for a in range(size):
            X[row, chosen[a]] += pull[a]


def with_redraws(
    advance: Callable[[int, int, int], None], sweeps: int, redraw: Callable[[bool], None]
) -> Callable[[int, int, int], None]:
    """Sweeps of a sampler with a redraw of cells after every few of them, which counts from ``tune`` on."""

    def step(first: int, stop: int, tune: int) -> None:
        while first < stop:
            last = min(first + sweeps - first % sweeps, stop)
            advance(first, last, tune)
            if last % sweeps == 0:
                redraw(last > tune)
            first = last

    return step


# ---------------------------------------------------------------------- before and after the chains


def complete(data: TaskData, missing: BoolArray) -> tuple[TaskData, float]:
    """Fill the gaps of dense data with draws given the observed cells, in any units, always the same; and give k."""
    observed = replace(data, design=np.where(missing, np.nan, data.design))
    means = learn_means(observed)
    group = np.zeros(len(missing), dtype=np.int64) if data.shared_design else data.task
    level = means.means[group]
    around = np.where(missing, 0.0, data.design - level)
    scale = np.sqrt(np.sum(around**2, axis=0) / np.maximum((~missing).sum(axis=0), 1))
    scale = np.where(scale > 0, scale, 1.0)
    rng = np.random.default_rng(0)
    start = np.where(missing, rng.standard_normal(missing.shape), around / scale)
    gaps = gaps_of(replace(data, design=start), missing)
    nothing, W = np.zeros(len(gaps.row)), np.zeros((data.n_tasks, data.n_features))
    for _ in range(STARTS):
        gaps = gaps._replace(shrinkage=likely_shrinkage(gaps))
        cells = Cells(gaps, rng)
        for _ in range(CYCLES):
            cells.redraw(W, nothing, nothing, keep=False)
        gaps = gaps._replace(X=cells.X)
    return replace(data, design=np.where(missing, level + scale * gaps.X[:-1], data.design)), gaps.shrinkage


def likely_shrinkage(gaps: Gaps) -> float:
    """The k with the largest marginal likelihood of the filled rows, levels taken off."""
    X = gaps.X[:-1]
    around = (X - _group_means(X, gaps.group)[gaps.group]) / np.sqrt(gaps.variances)
    n, p = len(X) - len(gaps.centres), X.shape[1]
    values = np.maximum(np.linalg.eigvalsh(around.T @ around), 0.0)
    grid = np.geomspace(1.0, 100.0 * (len(X) + p), SHRINKAGES)
    prior = grid + p + 1
    found = [multigammaln(0.5 * (nu + max(n, 0)), p) - multigammaln(0.5 * nu, p) for nu in prior]
    found += 0.5 * prior * p * np.log(grid)
    found -= 0.5 * (prior + max(n, 0)) * np.log(grid[:, np.newaxis] + values).sum(axis=1)
    return float(grid[np.argmax(found)])


def together(moments: Sequence[CellMoments]) -> CellMoments:
    """Sums over the draws of several chains."""
    draws, *sums = zip(*moments, strict=True)
    return CellMoments(sum(draws), *(np.sum(parts, axis=0) for parts in sums))


def cell_summary(moments: CellMoments) -> tuple[FloatArray, FloatArray]:
    """Posterior means and deviations (C,) of the cells."""
    mean = moments.totals / moments.draws
    return mean, np.sqrt(np.maximum(moments.squares / moments.draws - mean**2, 0.0))


def row_model(moments: CellMoments, gaps: Gaps, centre: FloatArray, scale: FloatArray) -> RowModel:
    """Model of new rows: posterior means of levels and covariance; for new tasks the mean over all rows.

    Parameters
    ----------
    moments, gaps : of the data in units with these centres and scales (m, p)
    """
    means = centre + scale * (moments.levels / moments.draws)
    sizes = np.bincount(gaps.group) if len(gaps.centres) == len(centre) else np.ones(len(centre))
    means, scale = (np.vstack([part, np.average(part, axis=0, weights=sizes)]) for part in (means, scale))
    return RowModel(np.arange(means.shape[1]), means, scale, moments.scatter / moments.draws)
