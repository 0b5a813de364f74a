r"""In which order features enter a submodel: forward search by the divergence from the reference.

The reference is summarised by its mean fit (one cluster of draws, in the words of Piironen, Paasiniemi and Vehtari
2020, section 3): the posterior mean of the linear predictor, with the noise widened by its spread,
``s_t^2 = E sigma_t^2 + mean_i Var(eta_i)``, or the mean of the fitted probabilities. From no feature at all, the one
(or the group) enters that lowers the Kullback-Leibler divergence summed over tasks the most,

    numbers   sum_t (n_t / 2) ln(1 + d_t / s_t^2),  d_t the mean squared difference of the two fits: exact
    labels    the decrease of a Newton step from the current submodel (the score statistic, summed over tasks); the
              submodel is fitted exactly after every choice

so that all tasks have a say in every feature: a weak effect in many tasks counts as much as a strong one in few.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.selection.feature_span import FeatureSpan
from bayesmtfs.selection.submodels import Reference, project
from bayesmtfs.types import FloatArray, IntArray

EXPLAINED = 1e-9  # divergence left, as a share of that of the empty model, at which the search ends
LEAST_CURVATURE = 1e-10
Report = Callable[[float], None]


class SearchPath(NamedTuple):
    """Features in the order in which they enter."""

    steps: list[IntArray]  # numbers of the features that enter together
    divergence: FloatArray  # (steps + 1,) of the mean fit


def feature_blocks(data: TaskData) -> list[IntArray]:
    """Numbers of the features that enter together: single features, or the user's groups."""
    if data.groups is None:
        return [np.array([i]) for i in range(data.n_features)]
    return [np.flatnonzero(data.groups == label) for label in dict.fromkeys(data.groups.tolist())]


def forward_search(data: TaskData, reference: Reference, n_steps: int, report: Report | None = None) -> SearchPath:
    """Let features enter one by one.

    Parameters
    ----------
    data : observations of the reference fit
    reference : what its draws predict for them
    n_steps : most features (or groups) that enter
    report : is told the share of the steps that are done

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> data = TaskData.from_long(rng.standard_normal((40, 5)), np.zeros(40))
    >>> eta = data.design @ np.array([[0.0], [1.0], [0.1], [-2.0], [0.0]])
    >>> [int(step[0]) for step in forward_search(data, Reference(eta, np.ones((1, 1)), True), 3).steps]
    [3, 1, 2]
    """
    blocks = feature_blocks(data)
    mean_fit = _MeanNumbers(data, reference) if reference.noise is not None else _MeanProbabilities(data, reference)
    entered: list[int] = []
    divergence = [mean_fit.divergence()]
    while len(entered) < n_steps and divergence[-1] > EXPLAINED * divergence[0]:
        after = mean_fit.divergences_with(blocks)
        after[entered] = np.inf
        best = int(np.argmin(after))
        if not after[best] < divergence[-1]:
            break
        entered.append(best)
        mean_fit.add(blocks[best])
        divergence.append(mean_fit.divergence())
        if report is not None:
            report(len(entered) / n_steps)
    return SearchPath([blocks[number] for number in entered], np.array(divergence))


class _MeanNumbers:
    """Submodel of the mean fit of a regression, as it grows."""

    def __init__(self, data: TaskData, reference: Reference) -> None:
        mean, spread = reference.eta.mean(axis=1), reference.eta.var(axis=1)
        noise = np.ones((1, data.n_tasks)) if reference.noise is None else reference.noise
        self.total = np.add.reduceat(data.weight, data.offsets[:-1])
        widened = np.add.reduceat(data.weight * spread, data.offsets[:-1]) / self.total
        self.variance = np.mean(np.square(noise), axis=0) + widened
        self.spans = []
        self.residuals = []
        for X, (start, stop) in zip(data.task_designs, data.spans, strict=True):
            span = FeatureSpan(X, data.weight[start:stop], reference.with_intercept)
            self.spans.append(span)
            self.residuals.append(span.residual(mean[start:stop]))

    def divergence(self) -> float:
        squares = np.array([np.sum(np.square(residual)) for residual in self.residuals])
        return float(np.sum(self._of_squares(squares)))

    def divergences_with(self, blocks: list[IntArray]) -> FloatArray:
        """(blocks,) Divergence of the submodel with each block added."""
        result = np.zeros(len(blocks))
        for t, (span, residual) in enumerate(zip(self.spans, self.residuals, strict=True)):
            left = np.maximum(np.sum(np.square(residual)) - span.gains(residual, blocks), 0.0)
            result += 0.5 * self.total[t] * np.log1p(left / (self.total[t] * self.variance[t]))
        return result

    def add(self, block: IntArray) -> None:
        for t, span in enumerate(self.spans):
            span.add(block)
            self.residuals[t] = span.residual(self.residuals[t] / span.root)

    def _of_squares(self, squares: FloatArray) -> FloatArray:
        return 0.5 * self.total * np.log1p(squares / (self.total * self.variance))


class _MeanProbabilities:
    """Submodel of the mean probabilities of a classification, as it grows."""

    def __init__(self, data: TaskData, reference: Reference) -> None:
        self.data = data
        self.probability = expit(reference.eta).mean(axis=1)
        # the linear predictor whose probabilities are the mean ones
        share = np.clip(self.probability, LEAST_CURVATURE, 1.0 - LEAST_CURVATURE)
        self.mean = Reference(np.log(share / (1.0 - share))[:, None], None, reference.with_intercept)
        self.chosen = np.empty(0, dtype=np.int64)
        self._fit()

    def _fit(self) -> None:
        self.model = project(self.data, self.mean, self.chosen)
        W = np.zeros((self.data.n_features, self.data.n_tasks))
        W[self.chosen] = self.model.coef[0]
        self.fitted = expit(self.data.linear_predictor(W, self.model.intercept[0]))

    def divergence(self) -> float:
        return float(self.model.divergence[0])

    def divergences_with(self, blocks: list[IntArray]) -> FloatArray:
        """(blocks,) Divergence of the submodel with each block added, after one Newton step."""
        gains = np.zeros(len(blocks))
        curvature = np.maximum(self.fitted * (1.0 - self.fitted), LEAST_CURVATURE)
        working = (self.probability - self.fitted) / curvature
        for X, (start, stop) in zip(self.data.task_designs, self.data.spans, strict=True):
            weight = self.data.weight[start:stop] * curvature[start:stop]
            span = FeatureSpan(X, weight, self.mean.with_intercept)
            span.add(self.chosen)
            gains += span.gains(span.residual(working[start:stop]), blocks)
        return self.divergence() - 0.5 * gains

    def add(self, block: IntArray) -> None:
        self.chosen = np.concatenate([self.chosen, block])
        self._fit()
