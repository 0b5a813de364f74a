"""Information criteria along a path: a choice of the penalty without folds.

    BIC   = deviance + ln(N) df                                   (Schwarz 1978)
    EBIC  = BIC + 2 gamma ln C(P, k)                              (Chen and Chen 2008, eq. 1)

with N the total weight of the observations (their number without weights) and, up to constants, minus twice the
maximised log-likelihood as deviance, with one noise scale for all tasks:

- squared loss: ``N ln(RSS / N)``, RSS the weighted residual sum of squares over all tasks;
- absolute loss: ``2 N ln(sum |r| / N)``, the Laplace density with its scale at the maximum;
- logistic loss: ``2 sum ln(1 + exp(-y eta))``.

The hinge has no likelihood, and thus no criterion. The degrees of freedom are the number of non-zero coefficients, plus
one per intercept. That is unbiased for q = 1 (Zou, Hastie and Tibshirani 2007); for q > 1, whose rows are shrunk
together, it is an upper bound (the formula of Yuan and Lin 2006, section 3, lies below it but needs a unique least
squares fit), so that the criteria lean to sparse models. In EBIC the choice is among the P rows of W of which k are not
zero, or, where single entries are selected (q = 1 or a task sparsity), among the entries. Fits with as many degrees of
freedom as observations describe the data only and get the criterion ``inf``.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.path import MixedNormPath, PathSettings
from bayesmtfs.families import find_family, total
from bayesmtfs.priors import Blocks
from bayesmtfs.types import FloatArray, IntArray

LOSSES = ("squared", "absolute", "logistic")  # those with a likelihood


class Criterion(NamedTuple):
    """A criterion along a path; smaller is better."""

    value: FloatArray  # (k,)
    degrees_of_freedom: IntArray  # (k,)


def information_criterion(
    data: TaskData, path: MixedNormPath, settings: PathSettings, ebic_gamma: float = 0.0
) -> Criterion:
    """Compute BIC (``ebic_gamma=0``) or EBIC of every fit of a path.

    Parameters
    ----------
    data : the data the path was fitted to
    path : the fits
    settings : what was fitted
    ebic_gamma : weight of the choice among many features, 0 to 1
    """
    size = float(data.weight.sum())
    freedom = (path.coefs != 0).sum(axis=(1, 2)) + (data.n_tasks if settings.fit_intercept else 0)
    fits = zip(path.coefs, path.intercepts, strict=True)
    deviances = np.array([deviance(data, settings.loss, coef.T, intercept) for coef, intercept in fits])
    value = deviances + np.log(size) * freedom
    if ebic_gamma > 0:
        value = value + 2.0 * ebic_gamma * _log_choices(data, path, settings)
    return Criterion(np.where(freedom >= size, np.inf, value), freedom)


def deviance(data: TaskData, loss: str, W: FloatArray, intercept: FloatArray) -> float:
    """Minus twice the maximised log-likelihood, up to constants."""
    size = float(data.weight.sum())
    loss_sum = total(find_family(loss), data.y, data.linear_predictor(W, intercept), data.weight)
    if loss == "logistic":
        return 2.0 * loss_sum
    mean = max((2.0 if loss == "squared" else 1.0) * loss_sum / size, np.finfo(np.float64).tiny)
    return float((1.0 if loss == "squared" else 2.0) * size * np.log(mean))


def _log_choices(data: TaskData, path: MixedNormPath, settings: PathSettings) -> FloatArray:
    """(k,) Logarithm of the number of models with as many rows, or entries, as each fit has."""
    blocks = Blocks(data.n_features, data.n_tasks, groups=data.groups, present=data.present)
    if settings.norm_q == 1 or settings.task_sparsity > 0:
        available, used = int(blocks.sizes.sum()), (path.coefs != 0).sum(axis=(1, 2))
    else:
        available = blocks.n_rows
        used = np.array([blocks.gather(coef.T).any(axis=1).sum() for coef in path.coefs])
    choices: FloatArray = gammaln(available + 1) - gammaln(used + 1) - gammaln(available - used + 1)
    return choices
