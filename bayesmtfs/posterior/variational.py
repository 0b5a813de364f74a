"""What is made of the variational fit: the features that matter, and draws.

`bayesmtfs.variational` fits the prior with exact zeros by coordinate ascent, in a fraction of the sampler's time, in
seconds for ten thousand features. It finds where effects are; how sure they are it does not quite know, since its effects
are independent of each other, and patterns are not shared between features. So the fit chooses the features that can matter
(`features_to_draw`), and short chains of the exact sampler over these alone, a hundred to some hundreds, make the draws:
the posterior given that all others are off. Where the sampler cannot be used (labels whose weights are no whole numbers),
`draws_of` gives independent draws of the variational distribution itself.

With thousands of features the same choice, up to a number that is given, comes before a run of the sampler.

Chosen are the features with an inclusion probability of at least `LIKELY`, those that correlate with one of them, and of
the others the ones that are likeliest, then those that explain most of what the fit leaves. Features that are left out
have coefficient 0 in every draw, and count as off in the rate pi.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.families.augmentation import NORMAL, POLYA_GAMMA
from bayesmtfs.gibbs.state import RowMap, rows_of
from bayesmtfs.priors.spike import SpikePrior
from bayesmtfs.types import BoolArray, FloatArray, IntArray
from bayesmtfs.variational import effects
from bayesmtfs.variational.draws import draw
from bayesmtfs.variational.effects import AscentSettings, EffectsProblem, Found
from bayesmtfs.variational.observations import observations_of

FORMS = (NORMAL, POLYA_GAMMA)
LIKELY = 0.02  # inclusion probability of features whose neighbours are kept too
ALIKE = 0.3  # correlation from which on a feature is a neighbour
OTHERS, MOST = 100, 500  # rows that are drawn beside the likely ones and their neighbours, and at most in all


class VariationalFit(NamedTuple):
    """A fit with what its arrays stand for."""

    problem: EffectsProblem
    found: Found
    rows: RowMap


def supports(family: Family) -> bool:
    """Whether there is such an approximation: of normal targets and of labels."""
    return family.augmentation is not None and family.augmentation.form in FORMS


def fit(
    data: TaskData,
    family: Family,
    prior: SpikePrior,
    progress: bool | None = None,
    settings: AscentSettings | None = None,
) -> VariationalFit:
    """Fit dense data in sampling units."""
    rows = rows_of(data)
    observations = observations_of(data, family, rows, prior.fit_intercept)
    problem = effects.problem_of(observations, rows, prior, family.has_noise, settings or AscentSettings())
    return VariationalFit(problem, effects.ascend(problem, effects.first_state(problem), progress), rows)


def draws_of(fitted: VariationalFit, draws: int, chains: int, random_seed: int) -> dict[str, FloatArray]:
    """Independent draws of the variational distribution, (chains, draws, ...) by name."""
    problem, found, rows = fitted
    drawn = draw(problem, found.state, rows, draws * chains, random_seed)
    names = {"coef": "W", "included": "included", "intercept": "intercept", "inclusion_rate": "inclusion_rate"}
    names |= {"noise": "noise"} if problem.learn_noise or problem.observations.normal else {}
    arrays = {name: getattr(drawn, field) for name, field in names.items()}
    return {name: values.reshape(chains, draws, *values.shape[1:]) for name, values in arrays.items()}


def complaint_of(found: Found) -> str:
    """What is wrong with a fit, in words; nothing where it settled."""
    if found.converged or found.interrupted:
        return ""
    return f"the bound of the evidence still rises after {found.n_iter} sweeps"


# ---------------------------------------------------------------------- which features


def features_to_draw(fitted: VariationalFit, most: int | None = None) -> BoolArray:
    """(p,) Features to draw, groups whole: at most ``most`` of them (None: as many as seem to matter).

    Examples
    --------
    >>> from bayesmtfs.families import Gaussian
    >>> from bayesmtfs.priors.spike import spike_prior_for
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 40))
    >>> y = X[:, 7] + rng.standard_normal(100)
    >>> data = TaskData.from_long(X, y)
    >>> kept = features_to_draw(fit(data, Gaussian(), spike_prior_for(data, Gaussian())), 5)
    >>> int(kept.sum()), bool(kept[7])
    (5, True)
    """
    order, n_close = row_ranking(fitted)
    sizes = np.diff(fitted.rows.starts)[order]
    if most is None:
        chosen = order[: min(n_close + OTHERS, MOST)]
    else:
        chosen = order[np.cumsum(sizes) <= most]
    return np.isin(fitted.rows.row_of_feature, chosen if len(chosen) else order[:1])


def row_ranking(fitted: VariationalFit) -> tuple[IntArray, int]:
    """(R,) Rows, the likely ones first, then their neighbours, then the others; how many are not of the last kind."""
    problem, state, n_rows = fitted.problem, fitted.found.state, len(fitted.rows.sizes)
    chance = effects.inclusion(state, n_rows)
    likely = np.flatnonzero(chance >= LIKELY)
    likeness = neighbours(problem, likely[np.argsort(-chance[likely])])
    pull = effects.pulls_of(problem, effects.scores_without(state, None))
    curvature = np.einsum("rtaa->rat", state.curvature)
    left = np.sum(np.divide(pull**2, curvature, out=np.zeros_like(pull), where=curvature > 0.0), axis=(1, 2))
    first, second = np.where(chance >= LIKELY, chance, 0.0), np.where(likeness >= ALIKE, likeness, 0.0)
    return np.lexsort((-left, -chance, -second, -first)), int(np.count_nonzero((first > 0.0) | (second > 0.0)))


def neighbours(problem: EffectsProblem, rows: Sequence[int] | IntArray) -> FloatArray:
    """(R,) Largest absolute correlation of each single feature with one of some rows, over all tasks."""
    observations, members = problem.observations, problem.table.members
    tasks = [0] if observations.shared else range(observations.n_tasks)
    features = members[rows].ravel()
    product: FloatArray | float = 0.0
    length: FloatArray | float = 0.0
    for t in tasks:
        X, column = observations.design(t), observations.intercept(t)
        mean = (X @ column) / max(float(column @ column), 1e-300)
        part = X[features]
        product = product + X @ part.T - np.outer(mean, part @ column)
        length = length + np.einsum("pn,pn->p", X, X) - mean * (X @ column)
    length = np.sqrt(np.maximum(length, 1e-300))
    likeness = np.abs(product) / length[:, np.newaxis] / length[features]
    return np.asarray(likeness.max(axis=1, initial=0.0).reshape(members.shape).max(axis=1))
