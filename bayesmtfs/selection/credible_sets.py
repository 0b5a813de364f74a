r"""Credible sets: small sets of exchangeable features, each of which holds a feature of the model with high probability.

Correlated features stand in for each other: a posterior that is sure of an effect may be unsure which of them carries
it, and then no single one has a high probability. With ``g_i`` the indicator that feature i is in the model in some task,
a set C of features is given where

.. math::

   P\bigl(\max_{i \in C} g_i = 1 \mid y\bigr) \ge \text{coverage}, \qquad
   |r_{ij}| \ge \text{purity} \text{ for all } i, j \in C,

and no feature is in two sets. They are found from the joint draws: begin with the most probable feature that no set has,
add the feature that is in the model most often where the set is not, and drop what the set can do without. A seed that
does not get there gives no set. So two effects near each other make two sets, where a sum of inclusion probabilities
over a neighbourhood would count both towards one.

After Wang, Sarkar, Carbonetto and Stephens (2020, *Journal of the Royal Statistical Society* B 82:1273-1300), whose sets
belong to the single effects of a variational approximation; here any posterior with draws has them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family
from bayesmtfs.posterior.tree import feature_correlations
from bayesmtfs.results.fit_result import DEFAULT_EFFECT_SIZE
from bayesmtfs.results.tables import check_probability
from bayesmtfs.selection.draws import CoefficientDraws, read_draws, tree_of, with_sampled_features
from bayesmtfs.selection.effects import EVEN_ODDS, entries_in_model
from bayesmtfs.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False, repr=False)
class CredibleSet:
    """Features of which at least one is in the model.

    Attributes
    ----------
    features : (k,) column numbers, the most probable first
    feature_names : (k,)
    feature_probability : (k,) probability that each of them is in the model
    probability : that at least one is
    tasks : labels of the tasks in which one of them is in the model with a probability above 1/2
    task_probability : (n_tasks,) this probability, for all tasks
    purity : smallest absolute correlation between two of them, 1 for a single one
    """

    features: IntArray
    feature_names: NDArray[np.str_]
    feature_probability: FloatArray
    probability: float
    tasks: NDArray[Any]
    task_probability: FloatArray
    purity: float

    def __repr__(self) -> str:
        return (
            f"CredibleSet({', '.join(self.feature_names)}; probability {self.probability:.3g}, purity {self.purity:.2f}, "
            f"tasks {self.tasks.tolist()})"
        )


def credible_sets(
    posterior: Any,
    X: Any = None,
    y: Any = None,
    tasks: Any = None,
    *,
    coverage: float = 0.95,
    purity: float = 0.5,
    effect_size: float = DEFAULT_EFFECT_SIZE,
    sample_weight: Any = None,
    loss: str | Family | None = None,
) -> list[CredibleSet]:
    """Find disjoint sets of correlated features, of each of which at least one is in the model.

    Parameters
    ----------
    posterior : a fitted Bayesian estimator, its `FitResult`, or a DataTree in ArviZ form
    X, y, tasks, sample_weight : the data of the fit; needed for a prior without exact zeros, and (all but y) for a tree
        that does not hold the correlations of its features, as fits of more than 2000 features do not
    coverage : least probability that a set holds a feature of the model
    purity : least absolute correlation between the features of a set, within tasks
    effect_size : of a prior without exact zeros: a feature is in the model where its effect in some task is larger than
        this, in standard deviations of y per standard deviation of x
    loss : name or family; None: as the posterior remembers

    Returns
    -------
    the sets, that of the most probable feature first; none where no effect is sure enough

    Examples
    --------
    Draws that jump between two columns that are almost the same:

    >>> import numpy as np
    >>> import xarray as xr
    >>> from bayesmtfs.selection import credible_sets
    >>> rng = np.random.default_rng(0)
    >>> first = rng.random((1, 1000)) < 0.6
    >>> on = np.stack([first, ~first, rng.random((1, 1000)) < 0.02], axis=2)[..., None]
    >>> axes = ("chain", "draw", "feature", "task")
    >>> tree = xr.Dataset({"coef": (axes, 1.0 * on), "included": (axes, on)})
    >>> X = rng.standard_normal((50, 3))
    >>> X[:, 1] = X[:, 0] + 0.3 * rng.standard_normal(50)
    >>> credible_sets(tree, X)
    [CredibleSet(x0, x1; probability 1, purity 0.96, tasks [0])]
    """
    check_probability("coverage", coverage)
    check_probability("purity", purity)
    draws = read_draws(posterior)
    entries = entries_in_model(draws, effect_size, posterior, X, y, tasks, sample_weight, loss)
    correlation = np.abs(_correlations(posterior, draws, X, tasks, sample_weight))
    found = greedy_sets(entries.any(axis=2), correlation >= purity, coverage)
    return [_described(draws, entries, correlation, members) for members in found]


def greedy_sets(on: BoolArray, alike: BoolArray, coverage: float) -> list[IntArray]:
    """Disjoint sets of features, of draws (S, p) and of which pairs (p, p) may be in one set.

    Examples
    --------
    >>> on = np.array([[True, False, True], [False, True, False]])
    >>> [members.tolist() for members in greedy_sets(on, np.ones((3, 3), dtype=bool), 0.95)]
    [[0, 1]]
    """
    probability = on.mean(axis=0)
    free = probability > 0
    found = []
    for seed in np.argsort(-probability, kind="stable")[: free.sum()]:
        members = _grown(on, alike, free, seed, coverage) if free[seed] else []
        if members:
            kept = _without_spare(on, members, coverage)
            free[kept] = False
            found.append(kept[np.argsort(-probability[kept], kind="stable")])
    return found


def _grown(on: BoolArray, alike: BoolArray, free: BoolArray, seed: int, coverage: float) -> list[int]:
    """Features from a seed on, until one of them is in the model often enough; none where that is out of reach."""
    members, missed = [int(seed)], ~on[:, seed]
    candidates = free & alike[seed]
    candidates[seed] = False
    if on[:, candidates].mean(axis=0).sum() + 1.0 - missed.mean() < coverage:
        return []
    # at most this share of the draws may be missed; shares are counts, so that 0.95 of 1000 draws are 950
    while missed.mean() > 1.0 - coverage + 1e-12:
        places = np.flatnonzero(candidates)
        gain = on[np.ix_(missed, places)].sum(axis=0)
        if not gain.any():
            return []
        best = int(places[gain.argmax()])
        members.append(best)
        missed &= ~on[:, best]
        candidates &= alike[best]
        candidates[best] = False
    return members


def _without_spare(on: BoolArray, members: list[int], coverage: float) -> IntArray:
    """The members without those that the set does not need, the last ones first."""
    kept = list(members)
    for member in reversed(members):
        rest = [other for other in kept if other != member]
        if rest and on[:, rest].any(axis=1).mean() >= coverage - 1e-12:
            kept = rest
    return np.array(kept)


def _described(draws: CoefficientDraws, entries: BoolArray, correlation: FloatArray, members: IntArray) -> CredibleSet:
    in_task = entries[:, members].any(axis=1)
    places = draws.positions[members]
    task_probability = in_task.mean(axis=0)
    return CredibleSet(
        features=places,
        feature_names=draws.feature_names[places],
        feature_probability=entries[:, members].any(axis=2).mean(axis=0),
        probability=float(in_task.any(axis=1).mean()),
        tasks=draws.task_names[task_probability > EVEN_ODDS],
        task_probability=task_probability,
        purity=float(correlation[np.ix_(members, members)].min()),
    )


def _correlations(posterior: Any, draws: CoefficientDraws, X: Any, tasks: Any, sample_weight: Any) -> FloatArray:
    """(p, p) Correlations of the features of the draws, as the tree keeps them, or of the data."""
    tree = tree_of(posterior)
    if "constant_data" in getattr(tree, "children", ()) and "feature_correlation" in tree["constant_data"]:
        return np.asarray(tree["constant_data"]["feature_correlation"].values, dtype=np.float64)
    if X is None:
        raise ValueError(
            "X is missing: the posterior does not hold the correlations of its features, which sets need; pass X (and "
            "tasks), the data of the fit"
        )
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    data = X if isinstance(X, TaskData) else TaskData.from_long(X, np.zeros(n_rows), tasks, sample_weight)
    if data.n_features != len(draws.feature_names):
        raise ValueError(
            f"X has {data.n_features} features but the posterior has {len(draws.feature_names)}; pass the data of the fit"
        )
    return feature_correlations(with_sampled_features(data, draws))
