r"""Predictions from draws: averages, deviations and intervals, also for a task that was never seen.

The expected linear predictor is that of the mean coefficients; probabilities are averages over draws, not those of the
average. For a new task with ``unknown_task="population"`` every draw gets coefficients and an intercept of its own and the
noise of a task at random: what the model believes of another task, with the uncertainty that comes with it.

Intercepts have wide priors of their own, so that the data tell a task's level at the means of its own features,
``l_t = b_t + w_t' xbar_t``, and not what it would be at those of another task: of a feature that is the same in all rows
of a task, ``w_ti x_ti`` and b_t are known only together. A row x of a new task is therefore taken apart into the means of
its task and the rest, ``x = E[xbar | x] + rest`` with ``E[xbar | x] = c + f (x - c)``, f the share of each feature's
variance between tasks (`bayesmtfs.posterior.tree`), and draw by draw

    eta = l_new + w_new' (1 - f) (x - c),      w_new ~ GN(mu, rho, q),
    l_new = a + g mu' f (x - c) + e,           e ~ s sqrt(1 + 1/m) t(k)

with a, g and s from the regression of the levels l_t on ``mu' (xbar_t - c)`` over the m known tasks, and k its degrees of
freedom: where the means of the features go with the level as the rows do within tasks, g is 1, and where they do not, 0.
Without a shared mean (mu = 0) there is nothing to regress on, and the expected prediction is the mean of the levels, since
nothing tells the signs of the coefficients. With few tasks g is taken as 1. Without intercepts f is 0, and l_new too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit

from bayesmtfs.data.gaps import Filling, RowModel
from bayesmtfs.data.inputs import Design
from bayesmtfs.data.simulation import generalized_normal
from bayesmtfs.families import Family
from bayesmtfs.posterior.tree import with_fixed_variables
from bayesmtfs.results.fit_result import FitResult
from bayesmtfs.results.tables import central_interval
from bayesmtfs.types import FloatArray, IntArray

LARGEST_BLOCK = 4_000_000  # numbers held at once
LEAST_TASKS = 6  # to learn g from
NO_POPULATION = (
    "unknown_task='population' needs row scales to draw a new task from, which prior='mixed_norm' and 'spike' have not; "
    "use another prior, or unknown_task='mean'"
)

# Takes family, predictors and noise (draws, rows), the last arguments of the summaries below, and gives (rows,) numbers
type Summary = Callable[[Family, FloatArray, FloatArray], tuple[FloatArray, ...]]


class TaskDraws(NamedTuple):
    """Draws of one task."""

    coef: FloatArray  # (S, p')
    intercept: FloatArray  # (S,)
    noise: FloatArray  # (S,)
    parameter: FloatArray | None = None  # (S,) what the family learns beside the noise


class PredictiveDraws:
    """Draws of a fitted estimator, task by task.

    ``unknown_task`` says which task stands for one that was not there in fit, the "mean" or one of the "population";
    ``expected`` takes the expected coefficients of the latter instead of draws. Where ``n_classes`` stand side by side
    in the draws of every task, predictors have one more axis for them. Missing cells of rows are filled with ``filling``;
    with a model of the rows, draws of the predictor are spread by what is not known of them.
    """

    def __init__(
        self,
        result: FitResult,
        family: Family,
        unknown_task: str,
        fit_intercept: bool,
        expected: bool = False,
        n_classes: int = 1,
        filling: Filling | None = None,
    ) -> None:
        assert result.posterior is not None and result.screened_out is not None
        self.posterior = with_fixed_variables(result.posterior)
        self.constant = result.posterior["constant_data"].dataset
        self.features = np.flatnonzero(~result.screened_out)
        self.family, self.seed = family, 0 if result.seed is None else result.seed
        self.unknown_task, self.fit_intercept, self.expected = unknown_task, fit_intercept, expected
        self.n_classes, self.filling = n_classes, filling

    def summarise(
        self, X: Design, t: int, summary: Summary, offset: FloatArray | None = None
    ) -> tuple[FloatArray, ...]:
        """Summaries at rows of task t (-1: a new one), in blocks that fit into memory; the offset (n,) is added to eta."""
        given, X = X, X if self.filling is None else self.filling.fill(X, np.full(X.shape[0], t))
        if self.n_classes > 1:
            return self._summarise_classes(X, t, summary)  # an offset is that of all classes, and changes nothing
        draws = self.of_task(t)
        family = self.family if draws.parameter is None else self.family.given(draws.parameter[:, np.newaxis])
        step = max(LARGEST_BLOCK // len(draws.intercept), 1)
        blocks = []
        for start in range(0, max(X.shape[0], 1), step):
            block = X[start : start + step][:, self.features]
            eta = np.asarray(block @ draws.coef.T).T + draws.intercept[:, np.newaxis]
            eta = eta if offset is None else eta + offset[start : start + step]
            if self.filling is not None and self.filling.rows is not None:
                eta += self._spread(self.filling.rows, given[start : start + step], t, start, draws.coef)
            blocks.append(summary(family, eta, np.broadcast_to(draws.noise[:, np.newaxis], eta.shape)))
        return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))

    def _spread(self, rows: RowModel, X: Design, t: int, start: int, coef: FloatArray) -> FloatArray:
        """What draws of the missing cells of rows from ``start`` on add to their predictors (draws, rows)."""
        whole = np.zeros((len(coef), X.shape[1]))
        whole[:, self.features] = coef
        rng = np.random.default_rng([self.seed, 6, t + 1, start])
        deviations = rows.deviations(X, t, whole)
        return deviations * rng.standard_normal(deviations.shape)

    def _summarise_classes(self, X: Design, t: int, summary: Summary) -> tuple[FloatArray, ...]:
        """Summaries at predictors (draws, rows, classes) of task t; -1: the mean of all tasks."""
        coef, intercept = self._flat("coef"), self._flat("intercept")
        coef = coef.reshape(*coef.shape[:2], -1, self.n_classes)  # (S, p', m, K)
        intercept = intercept.reshape(len(intercept), -1, self.n_classes)
        coef, intercept = (coef[:, :, t], intercept[:, t]) if t >= 0 else (coef.mean(axis=2), intercept.mean(axis=1))
        step = max(LARGEST_BLOCK // intercept.size, 1)
        blocks = []
        for start in range(0, max(X.shape[0], 1), step):
            block = X[start : start + step][:, self.features]
            by_class = [np.asarray(block @ coef[:, :, k].T).T for k in range(self.n_classes)]
            eta = np.stack(by_class, axis=-1) + intercept[:, np.newaxis]
            blocks.append(summary(self.family, eta, np.ones(1)))
        return tuple(np.concatenate(parts) for parts in zip(*blocks, strict=True))

    def of_tasks(
        self, X: Design, tasks: IntArray, summary: Summary, offset: FloatArray | None = None
    ) -> tuple[FloatArray, ...]:
        """Summaries (n, tasks) at the same rows of several tasks, with offsets (n, tasks)."""
        own = [None] * len(tasks) if offset is None else list(offset.T)
        columns = [self.summarise(X, int(t), summary, part) for t, part in zip(tasks, own, strict=True)]
        return tuple(np.stack(parts, axis=1) for parts in zip(*columns, strict=True))

    def by_task(
        self, X: Design, task: IntArray, summary: Summary, offset: FloatArray | None = None
    ) -> tuple[FloatArray, ...]:
        """Summaries (n,) at rows of which each has its task, and its offset."""
        if not len(task):
            return self.summarise(X, 0, summary)
        places = [np.flatnonzero(task == t) for t in np.unique(task)]
        own = [None if offset is None else offset[rows] for rows in places]
        found = [
            self.summarise(X[rows], int(task[rows[0]]), summary, part) for rows, part in zip(places, own, strict=True)
        ]
        order = np.argsort(np.concatenate(places))
        return tuple(np.concatenate(parts)[order] for parts in zip(*found, strict=True))

    def of_task(self, t: int) -> TaskDraws:
        """Draws of task t, or of a new one."""
        coef, intercept = self._flat("coef"), self._flat("intercept")
        noise = self._flat("noise") if "noise" in self.posterior else np.ones_like(intercept)
        parameter = None if self.family.learned is None else self._flat(self.family.learned)
        by_task = parameter is not None and parameter.ndim > 1
        if t >= 0:
            return TaskDraws(
                coef[:, :, t],
                intercept[:, t],
                noise[:, t],
                parameter[:, t] if parameter is not None and by_task else parameter,
            )
        common = parameter.mean(axis=1) if parameter is not None and by_task else parameter
        if self.unknown_task == "mean":
            return TaskDraws(coef.mean(axis=2), intercept.mean(axis=1), np.sqrt(np.mean(noise**2, axis=1)), common)
        return self._new_task(coef, intercept, noise)._replace(parameter=common)

    def _flat(self, name: str) -> FloatArray:
        """(S, ...) Draws of a variable, chain after chain."""
        values: FloatArray = self.posterior[name].values
        return values.reshape(-1, *values.shape[2:])

    def _new_task(self, coef: FloatArray, intercept: FloatArray, noise: FloatArray) -> TaskDraws:
        """Draws for a task that comes from the population of tasks."""
        total, m = intercept.shape
        population = self._population(coef, intercept)
        if self.expected:
            return TaskDraws(*expected_task(population), noise[:, 0])
        if m < 2:
            raise ValueError(
                "unknown_task='population' needs at least two tasks to know how tasks differ, but the model was fitted "
                "on one; use unknown_task='mean'"
            )
        rng = np.random.default_rng([self.seed, 2])
        drawn = draw_task(rng, population)
        return TaskDraws(*drawn, noise[np.arange(total), rng.integers(m, size=total)])

    def _population(self, coef: FloatArray, intercept: FloatArray) -> "Population":
        if "row_scale" not in self.posterior:
            raise ValueError(NO_POPULATION)
        (total, p), m = coef.shape[:2], intercept.shape[1]
        known: dict[str, Any] = {
            "mean": self._flat("mean_coef") if "mean_coef" in self.posterior else np.zeros((total, p)),
            "scale": self._flat("row_scale"),
            "norm_q": self._flat("norm_q")[:, np.newaxis] if "norm_q" in self.posterior else None,
        }
        if not self.fit_intercept:
            return Population(
                **known, levels=intercept, offsets=np.zeros((p, m)), centre=np.zeros(p), share=np.zeros(p)
            )
        means, centre = self.constant["feature_mean"].values, self.constant["feature_centre"].values.mean(axis=1)
        return Population(
            **known,
            levels=intercept + np.einsum("spm,pm->sm", coef, means),
            offsets=means - centre[:, np.newaxis],
            centre=centre,
            share=self.constant["between_share"].values,
        )


def check_interval(interval: float | None) -> None:
    """Refuse a probability outside 0 and 1."""
    if interval is not None and not 0 < interval < 1:
        raise ValueError(f"interval is {interval}; pass a probability between 0 and 1, such as 0.9")


def mean_logit(family: Family, eta: FloatArray, noise: FloatArray) -> tuple[FloatArray, ...]:
    """Logit of the mean probability of class +1."""
    tiny = np.finfo(np.float64).eps
    return (logit(np.clip(family.mean(eta).mean(axis=0), tiny, 1.0 - tiny)),)


def mean_log_probability(family: Family, eta: FloatArray, noise: FloatArray) -> tuple[FloatArray, ...]:
    """Logarithms of the mean probabilities (rows, classes)."""
    return (np.log(np.maximum(family.mean(eta).mean(axis=0), np.finfo(np.float64).tiny)),)


def mean_probabilities(family: Family, eta: FloatArray, noise: FloatArray) -> tuple[FloatArray, ...]:
    """Mean probabilities (rows, classes) of ordered classes."""
    return (family.probabilities(eta).mean(axis=0),)


def mean_interval(interval: float, family: Family, eta: FloatArray, noise: FloatArray) -> tuple[FloatArray, ...]:
    """Mean of the expected target (for labels: probability of class +1), and the ends of its interval over draws.

    Of several classes, probabilities (rows, classes).
    """
    expected = family.probabilities(eta) if family.has_cuts else family.mean(eta)
    return expected.mean(axis=0), *central_interval(expected, interval)


def predictive_summary(
    rng: np.random.Generator, interval: float | None, family: Family, eta: FloatArray, noise: FloatArray
) -> tuple[FloatArray, ...]:
    """Mean and deviation of a new target, and the ends of its central interval (None for none).

    The deviation is exact for normal noise; for other families it is that of predictive draws.
    """
    mean = family.mean(eta).mean(axis=0)
    exact = np.sqrt(eta.var(axis=0) + np.mean(noise**2, axis=0)) if family.quadratic else None
    if exact is not None and interval is None:
        return mean, exact
    targets = family.draw(rng, eta, noise)
    ends = () if interval is None else central_interval(targets, interval)
    return mean, targets.std(axis=0) if exact is None else exact, *ends


class Population(NamedTuple):
    """What draws say of the tasks of a fit."""

    mean: FloatArray  # (S, p) mu, zeros without a shared mean
    scale: FloatArray  # (S, p) rho
    norm_q: FloatArray | None  # (S, 1) q; None: the scales are deviations of normal coefficients
    levels: FloatArray  # (S, m) of the known tasks, at the means of their features
    offsets: FloatArray  # (p, m) those means, less the centre c
    centre: FloatArray  # (p,) c
    share: FloatArray  # (p,) f


def expected_task(population: Population) -> tuple[FloatArray, FloatArray]:
    """Coefficients (S, p) and intercepts (S,) of a new task, averaged over what is not known of it."""
    coef, levels, _ = _taken_apart(population)
    return coef, levels.mean(axis=1) - coef @ population.centre


def draw_task(rng: np.random.Generator, population: Population) -> tuple[FloatArray, FloatArray]:
    """Coefficients (S, p) and intercepts (S,) of a new task, one for every draw. It takes at least two known tasks."""
    mean, levels, degrees = _taken_apart(population)
    scale = population.scale * (1.0 - population.share)
    q = population.norm_q
    coef = mean + scale * (rng.standard_normal(scale.shape) if q is None else generalized_normal(rng, q, scale.shape))
    total, m = levels.shape
    centred = levels - levels.mean(axis=1, keepdims=True)
    deviation = np.sqrt(np.sum(centred**2, axis=1) / degrees * (1.0 + 1.0 / m))
    level = levels.mean(axis=1) + deviation * rng.standard_t(degrees, size=total)
    return coef, level - coef @ population.centre


def _taken_apart(population: Population) -> tuple[FloatArray, FloatArray, int]:
    """Expected coefficients (S, p), levels (S, m) without what goes with the features, and degrees of freedom."""
    mean, share = population.mean, population.share
    m = population.levels.shape[1]
    score = mean @ population.offsets
    if m < LEAST_TASKS or not mean.any():
        return mean, population.levels - score, m - 1
    centred = score - score.mean(axis=1, keepdims=True)
    squares = np.sum(centred**2, axis=1, keepdims=True)
    together = np.sum(centred * population.levels, axis=1, keepdims=True)
    slope = np.divide(together, squares, out=np.ones_like(together), where=squares > 0)
    return mean * (1.0 - share + slope * share), population.levels - slope * score, m - 2
