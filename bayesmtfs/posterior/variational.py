"""The variational posterior on its way to the user, and the choice of features for the sampler that it makes.

`bayesmtfs.variational` fits the prior with exact zeros by coordinate ascent, in a fraction of the sampler's time and for a
hundred thousand features. Its draws are independent. Compared with the sampler it takes pi, alpha and the rates of tasks
less fully into account: patterns are not shared between features, and effects are independent of each other.

`likely_features` chooses among thousands of features, for draws of either kind: those with an inclusion probability of
at least `LIKELY`, the features that correlate with one of them, and of the others those that explain most of what the fit
leaves. Features that are left out have coefficient 0 in every draw, and count as off in the rate pi.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.families.augmentation import NORMAL, POLYA_GAMMA
from bayesmtfs.gibbs.state import RowMap, rows_of
from bayesmtfs.posterior.tree import SampledDraws
from bayesmtfs.priors.spike import SpikePrior
from bayesmtfs.types import BoolArray, FloatArray, IntArray
from bayesmtfs.variational import effects
from bayesmtfs.variational.draws import draw
from bayesmtfs.variational.effects import Found, Problem, Settings
from bayesmtfs.variational.observations import observations_of

FORMS = (NORMAL, POLYA_GAMMA)
LIKELY = 0.02  # inclusion probability of features whose neighbours are kept too
ALIKE = 0.3  # correlation from which on a feature is a neighbour


class VariationalFit(NamedTuple):
    """A fit with what its arrays stand for."""

    problem: Problem
    found: Found
    rows: RowMap


def supports(family: Family) -> bool:
    """Whether there is such an approximation: of normal targets and of labels."""
    return family.augmentation is not None and family.augmentation.form in FORMS


def fit(
    data: TaskData, family: Family, prior: SpikePrior, progress: bool | None = None, settings: Settings | None = None
) -> VariationalFit:
    """Fit dense data in sampling units."""
    rows = rows_of(data)
    observations = observations_of(data, family, rows, prior.fit_intercept)
    problem = effects.problem_of(observations, rows, prior, family.has_noise, settings or Settings())
    return VariationalFit(problem, effects.ascend(problem, effects.first_state(problem), progress), rows)


def sample(
    data: TaskData,
    family: Family,
    prior: SpikePrior,
    draws: int,
    chains: int,
    random_seed: int,
    progress: bool | None = None,
) -> SampledDraws:
    """Independent draws of the approximate posterior; chains only shape them like those of a sampler."""
    problem, found, rows = fit(data, family, prior, progress)
    drawn = draw(problem, found.state, rows, draws * chains, random_seed)
    names = {"coef": "W", "included": "included", "intercept": "intercept", "inclusion_rate": "inclusion_rate"}
    names |= {"noise": "noise"} if family.has_noise else {}
    arrays = {name: getattr(drawn, field) for name, field in names.items()}
    trace = found.state.trace
    settled = found.converged or found.interrupted
    return SampledDraws(
        sampler="variational",
        variables={name: values.reshape(chains, draws, *values.shape[1:]) for name, values in arrays.items()},
        fixed=frozenset() if prior.fit_intercept else frozenset(["intercept"]),
        interrupted=found.interrupted,
        independent=True,
        message="" if settled else f"the bound of the evidence still rises after {found.n_iter} sweeps",
        attributes={"evidence_bound": trace[-1], "evidence_bound_trace": json.dumps(trace)},
    )


# ---------------------------------------------------------------------- which features


def likely_features(
    data: TaskData, family: Family, prior: SpikePrior, most: int, progress: bool | None = None
) -> BoolArray:
    """(p,) At most ``most`` features to keep, groups whole; dense data in sampling units.

    Examples
    --------
    >>> from bayesmtfs.families import Gaussian
    >>> from bayesmtfs.priors.spike import spike_prior_for
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 40))
    >>> y = X[:, 7] + rng.standard_normal(100)
    >>> data = TaskData.from_long(X, y)
    >>> kept = likely_features(data, Gaussian(), spike_prior_for(data, Gaussian()), 5)
    >>> int(kept.sum()), bool(kept[7])
    (5, True)
    """
    fitted = fit(data, family, prior, progress)
    if fitted.found.interrupted:
        raise KeyboardInterrupt
    order, sizes = row_ranking(fitted), np.diff(fitted.rows.starts)
    chosen = order[np.cumsum(sizes[order]) <= most]
    return np.isin(fitted.rows.row_of_feature, chosen if len(chosen) else order[:1])


def row_ranking(fitted: VariationalFit) -> IntArray:
    """(R,) Rows, the likeliest first, then their neighbours, then the others."""
    problem, state, n_rows = fitted.problem, fitted.found.state, len(fitted.rows.sizes)
    chance = effects.inclusion(state, n_rows)
    likely = np.flatnonzero(chance >= LIKELY)
    likeness = neighbours(problem, likely[np.argsort(-chance[likely])])
    pull = effects.pulls_of(problem, effects.scores_without(state, None))
    curvature = np.einsum("rtaa->rat", state.curvature)
    left = np.sum(np.divide(pull**2, curvature, out=np.zeros_like(pull), where=curvature > 0.0), axis=(1, 2))
    first, second = np.where(chance >= LIKELY, chance, 0.0), np.where(likeness >= ALIKE, likeness, 0.0)
    return np.lexsort((-left, -chance, -second, -first))


def neighbours(problem: Problem, rows: Sequence[int] | IntArray) -> FloatArray:
    """(R,) Largest absolute correlation of each single feature with one of some rows, over all tasks."""
    observations, members = problem.observations, problem.table.members
    tasks = [0] if observations.shared else range(observations.n_tasks)
    features = members[rows].ravel()
    product, length = 0.0, 0.0
    for t in tasks:
        X, column = observations.design(t), observations.intercept(t)
        mean = (X @ column) / max(float(column @ column), 1e-300)
        part = X[features]
        product = product + X @ part.T - np.outer(mean, part @ column)
        length = length + np.einsum("pn,pn->p", X, X) - mean * (X @ column)
    length = np.sqrt(np.maximum(length, 1e-300))
    likeness = np.abs(product) / length[:, np.newaxis] / length[features]
    return np.asarray(likeness.max(axis=1, initial=0.0).reshape(members.shape).max(axis=1))
