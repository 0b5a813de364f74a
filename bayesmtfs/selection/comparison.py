"""Penalised, EM and posterior fits in one table: held-out error, what is selected, time, and elpd of posteriors.

All estimators see the same folds (`bayesmtfs.estimators.folds`). Per fold, over its held-out observations with their
weights,

    error      root mean square error, or share of wrong labels; of numbers in the wide form, where tasks are different
               quantities, root mean square error in deviations of each task's targets,
    r2         of numbers: 1 - squares / squares about each task's mean in the training rows; of the wide form the
               mean over tasks,
    auc        of two classes: area under the curve within tasks, weighted by their rows,
    deviance   of labels -2 ln p(y), of counts twice the logarithm by which a perfect fit is likelier, mean over rows,
    log score  mean of ln p(y | fit): under the predictive mean and deviation of a posterior; under the prediction and
               the noise of an EM fit; under the prediction and the training residuals' deviation of a fit without noise;
               for labels under the predicted probabilities; for counts under their family at the coefficients.

The table has their means over folds with standard errors, and the difference of each error to the smallest one with the
standard error of the paired difference. Selected features and seconds are those of a fit to all data. Posteriors also
get the expected log predictive density by Pareto-smoothed importance sampling (Vehtari, Gelman and Gabry 2017), its
standard error, the effective number of parameters, and how many observations have a Pareto k too large to be trusted.

Means and deviations of predictions need far fewer draws than tails do: in the folds posteriors have two chains of
``fold_draws`` draws, after as many to tune, and are not checked for convergence. The fit to all data has its own.
"""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.metrics import roc_auc_score

from bayesmtfs.data.classes import without_class_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.folds import Fold, leaves_tasks_out, make_folds, take
from bayesmtfs.families import find_family, with_offset
from bayesmtfs.progress import Progress, gather
from bayesmtfs.results.tables import Backend, as_frame, text_table
from bayesmtfs.types import FloatArray, IntArray, PosteriorWarning

SMALLEST_PROBABILITY = 1e-12
FORMATS = {"seconds": ".1f", "elpd": ".1f", "elpd_se": ".1f", "p_loo": ".1f", "n_selected": ".0f", "n_bad_k": ".0f"}


class ComparedFit(NamedTuple):
    """One row of the table; nan where an estimator does not have a number."""

    name: str
    error: float
    error_se: float
    difference: float
    difference_se: float
    log_score: float
    log_score_se: float
    n_selected: int
    seconds: float
    elpd: float = np.nan
    elpd_se: float = np.nan
    p_loo: float = np.nan
    n_bad_k: float = np.nan
    r2: float = np.nan
    auc: float = np.nan
    deviance: float = np.nan


@dataclass(frozen=True)
class Comparison:
    """Compared fits, smallest error first.

    Attributes
    ----------
    fits : tuple of ComparedFit
    error_name : "RMSE", "RMSE in deviations" (the wide form) or "error rate"
    """

    fits: tuple[ComparedFit, ...]
    error_name: str

    def to_frame(self, backend: Backend = "pandas") -> Any:
        """Give the table as a data frame of ``backend`` ("pandas" or "polars"), one row per estimator."""
        columns = {name: np.array([getattr(fit, name) for fit in self.fits]) for name in ComparedFit._fields}
        return as_frame(columns, backend)

    def __str__(self) -> str:
        columns = [
            [self.error_name if name == "error" else name, *(_text(name, getattr(fit, name)) for fit in self.fits)]
            for name in ComparedFit._fields
        ]
        shown = [column for column in columns if any(column[1:])]
        return "\n".join(text_table(list(zip(*shown, strict=True))))


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if np.isnan(value) else format(value, FORMATS.get(name, ".4g"))


def compare(
    estimators: Sequence[Any] | Mapping[str, Any],
    X: Any,
    y: Any = None,
    tasks: Any = None,
    *,
    cv: Any = 5,
    sample_weight: Any = None,
    exposure: Any = None,
    offset: Any = None,
    random_state: int | None = 0,
    fold_draws: int | None = 250,
    progress: bool | None = None,
) -> Comparison:
    """Compare estimators on the same data and the same folds.

    Ctrl-C gives the table of the estimators that are through, with a `SelectionWarning`.

    Parameters
    ----------
    estimators : list of estimators, of (name, estimator) pairs, or a mapping from name to estimator
        All regressors or all classifiers; they are cloned, not changed.
    X, y, tasks, sample_weight, exposure, offset : as in ``fit``
    cv : number of folds, splitter or pairs of row numbers, see `bayesmtfs.estimators.folds.make_folds`
    random_state : shuffles the rows before they are dealt out to a number of folds; None keeps their order
    fold_draws : most draws, and as many to tune, in each of two chains of a posterior in a fold
        None leaves every posterior its own chains, which takes as many times as long as there are folds.
    progress : see `bayesmtfs.progress.Progress`

    Examples
    --------
    >>> from bayesmtfs import JeffreysRegressor, MixedNormRegressor, simulate_tasks
    >>> from bayesmtfs.selection.comparison import compare
    >>> sim = simulate_tasks(n_tasks=4, n_features=15, n_relevant=3, n_samples=40, random_state=0)
    >>> table = compare([MixedNormRegressor(), JeffreysRegressor()], sim.X, sim.y, tasks=sim.tasks, cv=3)
    >>> [fit.name for fit in table.fits]
    ['JeffreysRegressor', 'MixedNormRegressor']
    """
    named = _named(estimators)
    kinds = {is_classifier(estimator) for estimator in named.values()}
    if len(kinds) != 1:
        raise ValueError("estimators has regressors and classifiers; compare one kind at a time")
    labels = kinds.pop()
    if fold_draws is not None and fold_draws < 1:
        raise ValueError(f"fold_draws is {fold_draws}; pass a whole number of at least 1, or None for chains in full")
    if any(hasattr(estimator, "predict_survival_function") for estimator in named.values()):
        raise ValueError(
            "compare measures predictions of numbers and labels; use score, the concordance, for survival times"
        )
    if leaves_tasks_out(cv):
        raise ValueError(f"cv is {cv!r}, which leaves out whole tasks; compare needs every task in every fold")
    data = labelled_data(next(iter(named.values())), X, y, tasks, sample_weight, exposure, offset)
    codes = np.unique(data.y, return_inverse=True)[1].astype(np.float64) if labels else data.y
    folds = make_folds(data.with_target(codes), cv, by_class=labels, random_state=random_state)
    units = None if labels else target_units(data)
    work, per_fit = Progress("comparing", progress), len(folds) + 1
    pieces: Iterator[Any] = (
        _whole_fit(estimator, data) if fold is None else _fold_scores(estimator, data, fold, units, labels, fold_draws)
        for estimator in named.values()
        for fold in (*folds, None)
    )
    found = gather(pieces, len(named) * per_fit, work, "estimators", batch=per_fit)
    whole = found[len(folds) :: per_fit]
    del found[len(folds) :: per_fit]
    scores = np.array(found).reshape(-1, len(folds), len(FoldScores._fields))
    return _table(list(named), scores, whole, "error rate" if labels else name_of_error(units))


def target_units(data: TaskData) -> FloatArray | None:
    """(m,) Deviation of each task's targets where tasks are different quantities, as in the wide form; else None."""
    if data.n_tasks == 1 or not data.shared_design:
        return None
    units = [
        np.sqrt(np.cov(np.asarray(data.y[begin:end], dtype=np.float64), aweights=data.weight[begin:end], ddof=0))
        for begin, end in data.spans
    ]
    return np.where(np.array(units) > 0, units, 1.0)


def name_of_error(units: FloatArray | None) -> str:
    """What the error of numbers is."""
    return "RMSE" if units is None else "RMSE in deviations"


def loo_of(estimator: Any) -> dict[str, float]:
    """Leave-one-out elpd of a fitted Bayesian estimator; nothing for others, and for pseudo-likelihoods."""
    tree = getattr(estimator, "posterior_", None)
    if tree is None or "log_likelihood" not in tree.children:
        return {}
    # ArviZ takes seconds to load, which a comparison without posteriors need not wait for
    from arviz_stats.loo import loo

    measure: Any = loo
    total = tree["posterior"].sizes["chain"] * tree["posterior"].sizes["draw"]
    effective = [row.ess_bulk for row in estimator.diagnostics_.table if np.isfinite(row.ess_bulk)]
    efficiency = float(np.clip(np.median(effective) / total, 0.01, 1.0)) if effective else 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # large Pareto k are counted instead
        result = measure(tree, pointwise=True, var_name="y", reff=efficiency)
    n_bad_k = np.sum(result.pareto_k.values > result.good_k)
    found = {"elpd": result.elpd, "elpd_se": result.se, "p_loo": result.p, "n_bad_k": n_bad_k}
    return {name: float(value) for name, value in found.items()}


def _named(estimators: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(estimators, Mapping):
        pairs = list(estimators.items())
    elif isinstance(estimators, BaseEstimator):
        raise ValueError(f"estimators is one {type(estimators).__name__}; pass a list of estimators, or a mapping")
    else:
        pairs = [item if isinstance(item, tuple) else (type(item).__name__, item) for item in estimators]
    if not pairs:
        raise ValueError("estimators is empty; pass at least one estimator")
    named: dict[str, Any] = {}
    for name, estimator in pairs:
        repeats = sum(other == name for other, _ in pairs) > 1
        number = sum(known.split(" (")[0] == name for known in named) + 1
        named[f"{name} ({number})" if repeats else name] = estimator
    return named


def labelled_data(estimator: Any, X: Any, y: Any, tasks: Any, *rest: Any) -> TaskData:
    """Data as an estimator reads them; several classes stay labels of the tasks as they were."""
    reader = clone(estimator)
    if getattr(reader, "class_weight", None) is not None:
        reader.set_params(class_weight=None)  # each fit has its own
    data: TaskData = reader.training_data(X, y, tasks, *rest)
    if not is_classifier(reader) or len(reader.classes_) == 2:
        return data
    if reader._has_cuts:  # ordered classes, by their numbers
        return data.with_target(reader.classes_[data.y.astype(np.int64)])
    if reader._form != "classes":
        return without_class_tasks(data, reader.classes_, reader.tasks_)
    rows = np.arange(data.design.shape[0])
    return replace(
        data,
        y=data.task_names[np.argmax(data.as_matrix(data.y), axis=1)],
        weight=data.weight[: len(rows)],
        offsets=np.array([0, len(rows)]),
        rows=rows,
        order=rows,
        task_names=np.array([0]),
    )


def _per_observation(data: TaskData, predicted: Any) -> Any:
    """(N,) Predictions for `TaskData`, which come as (n, m) where all tasks share a design."""
    return predicted[data.rows, data.task] if predicted.ndim == 2 else predicted


def _whole_fit(estimator: Any, data: TaskData) -> dict[str, Any]:
    """Number of features, seconds and elpd of a fit to all data."""
    begin = time.perf_counter()
    fitted = clone(estimator).fit(data)
    seconds = time.perf_counter() - begin
    return {"n_selected": int(np.sum(fitted.get_support())), "seconds": seconds, **loo_of(fitted)}


class FoldScores(NamedTuple):
    """Measures of the held-out observations of a fold; nan where there is none."""

    error: float
    log_score: float
    r2: float = np.nan
    auc: float = np.nan
    deviance: float = np.nan


def with_short_chains(estimator: Any, draws: int) -> Any:
    """An unfitted copy; of a posterior with two chains of at most so many draws."""
    short, parameters = clone(estimator), estimator.get_params(deep=False)
    limits = {"draws": draws, "tune": draws, "chains": 2}
    if limits.keys() <= parameters.keys():
        short.set_params(**{name: min(parameters[name], most) for name, most in limits.items()})
    return short


def _fold_fit(estimator: Any, train: TaskData, fold_draws: int | None) -> Any:
    """Fit to the rows outside a fold; nobody looks at its chains, which were made short on purpose."""
    if fold_draws is None:
        return clone(estimator).fit(train)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        return with_short_chains(estimator, fold_draws).fit(train)


def _fold_scores(
    estimator: Any, data: TaskData, fold: Fold, units: FloatArray | None, labels: bool, fold_draws: int | None
) -> FoldScores:
    """Error, log score and what else suits the targets."""
    train, test = take(data, fold.train).data, take(data, fold.test).data
    fitted = _fold_fit(estimator, train, fold_draws)
    predicted = _per_observation(test, fitted.predict(test))
    weight = test.weight / test.weight.sum()
    if labels:
        log_score = float(weight @ _label_log_score(fitted, test))
        wrong = float(weight @ (predicted != test.y))
        return FoldScores(wrong, log_score, auc=_auc(fitted, test), deviance=-2.0 * log_score)
    residual = np.asarray(test.y, dtype=np.float64) - predicted
    log_score = float(weight @ _log_score(fitted, train, test, residual))
    family = find_family(getattr(fitted, "loss", "squared"))
    scaled = residual if units is None else residual / units[_numbers_in(data, test)]
    return FoldScores(
        float(np.sqrt(weight @ scaled**2)),
        log_score,
        r2=_explained(train, test, residual) if family.targets == "numbers" else np.nan,
        deviance=(
            count_deviance(family, np.asarray(test.y, dtype=np.float64), weight, log_score)
            if family.targets == "counts"
            else np.nan
        ),
    )


def _explained(train: TaskData, test: TaskData, residual: FloatArray) -> float:
    """Share of the squares about each task's mean that is explained."""
    means = {
        name: np.average(np.asarray(train.y[slice(*span)], dtype=np.float64), weights=train.weight[slice(*span)])
        for name, span in zip(train.task_names.tolist(), train.spans, strict=True)
    }
    centre = np.array([means.get(name, np.nan) for name in test.task_names.tolist()])[test.task]
    apart = np.asarray(test.y, dtype=np.float64) - centre
    spans = test.spans if test.shared_design else [(0, test.n_observations)]
    shares = []
    for begin, end in spans:
        weight = test.weight[begin:end]
        total = float(weight @ apart[begin:end] ** 2)
        shares.append(1.0 - float(weight @ residual[begin:end] ** 2) / total if total > 0 else np.nan)
    return float(np.mean(shares))


def _auc(fitted: Any, test: TaskData) -> float:
    """Area under the curve within tasks, over those with both classes."""
    if len(fitted.classes_) != 2 or not hasattr(fitted, "predict_proba"):
        return float("nan")
    found = fitted.predict_proba(test)
    chance = np.asarray(_per_observation(test, found) if _is_wide(fitted, test) else found[:, 1])
    positive = np.asarray(test.y == fitted.classes_[1])
    areas = [
        (end - begin, roc_auc_score(positive[begin:end], chance[begin:end], sample_weight=test.weight[begin:end]))
        for begin, end in test.spans
        if 0 < positive[begin:end].sum() < end - begin
    ]
    return (
        float(np.average([area for _, area in areas], weights=[rows for rows, _ in areas])) if areas else float("nan")
    )


def _is_wide(fitted: Any, test: TaskData) -> bool:
    """Whether probabilities are those of the second class, one column per task."""
    return len(fitted.tasks_) > 1 and len(fitted.classes_) == 2 and test.shared_design


def count_deviance(family: Any, y: FloatArray, weight: FloatArray, log_score: float) -> float:
    """Twice the mean of ln p of counts under their own means, less that under the fit; of families with the log link.

    ``weight`` sums to 1; ``log_score`` is the mean of ln p under the fit.
    """
    if not family.offers("log_density"):
        return float("nan")
    perfect = family.log_density(y, np.log(np.maximum(y, SMALLEST_PROBABILITY)))
    return 2.0 * (float(weight @ perfect) - log_score)


def _log_score(fitted: Any, train: TaskData, test: TaskData, residual: FloatArray) -> FloatArray:
    """(N,) Log-density of each target: of counts that of their family, of numbers a normal one."""
    family = find_family(getattr(fitted, "loss", "squared"))
    if family.targets == "numbers":
        deviation = _predictive_deviation(fitted, train, test)
        return -0.5 * (residual / deviation) ** 2 - np.log(deviation) - 0.5 * np.log(2.0 * np.pi)
    if not family.offers("log_density"):
        return np.full(test.n_observations, np.nan)
    own = _task_numbers(fitted, test)
    family = with_offset(family, test.eta_offset)
    return family.log_density(test.y, test.linear_predictor(fitted.coef_[own].T, fitted.intercept_[own]))


def _numbers_in(data: TaskData, test: TaskData) -> IntArray:
    """(N,) The task of each test observation, as its number in all data."""
    place = {name: t for t, name in enumerate(data.task_names.tolist())}
    return np.array([place[name] for name in test.task_names.tolist()])[test.task]


def _task_numbers(fitted: Any, test: TaskData) -> IntArray:
    """(tasks of the test rows,) Their numbers in the fit."""
    place = {name: t for t, name in enumerate(fitted.tasks_.tolist())}
    return np.array([place[name] for name in test.task_names.tolist()])


def _label_log_score(fitted: Any, test: TaskData) -> FloatArray:
    """(N,) Logarithm of the probability of each label."""
    if not hasattr(fitted, "predict_proba"):
        return np.full(test.n_observations, np.nan)
    probability = fitted.predict_proba(test)
    chosen = np.searchsorted(fitted.classes_, test.y)
    if _is_wide(fitted, test):
        # The wide form: probability of the second class per row and task
        second = probability[test.rows, test.task]
        own = np.where(chosen == 1, second, 1.0 - second)
    elif probability.ndim == 3:
        own = probability[test.rows, test.task, chosen]
    else:
        own = probability[np.arange(len(chosen)), chosen]
    return np.asarray(np.log(np.maximum(own, SMALLEST_PROBABILITY)))


def _predictive_deviation(fitted: Any, train: TaskData, test: TaskData) -> FloatArray:
    """(N,) Standard deviation of a new target."""
    if hasattr(fitted, "posterior_"):
        return np.asarray(_per_observation(test, fitted.predict(test, return_std=True)[1]))
    noise = getattr(fitted, "noise_", None)
    if noise is None:
        residual = np.asarray(train.y, dtype=np.float64) - _per_observation(train, fitted.predict(train))
        noise = np.full(len(fitted.tasks_), np.sqrt(np.average(residual**2, weights=train.weight)))
    return np.maximum(np.asarray(noise, dtype=np.float64)[_task_numbers(fitted, test)[test.task]], SMALLEST_PROBABILITY)


def _table(names: list[str], scores: FloatArray, whole: list[dict[str, Any]], error_name: str) -> Comparison:
    """Means over folds of the scores (estimators, folds, measures), with the fits to all data."""
    best = scores[int(np.argmin(scores[:, :, 0].mean(axis=1))), :, 0]
    fits = []
    for name, measures, fit in zip(names, scores.transpose(0, 2, 1), whole, strict=False):
        error, log_score, *others = measures
        means: dict[str, Any] = dict(zip(FoldScores._fields[2:], (float(one.mean()) for one in others), strict=True))
        ends: list[Any] = [*_mean_and_error(error), *_mean_and_error(error - best), *_mean_and_error(log_score)]
        known = dict(zip(ComparedFit._fields, [name, *ends], strict=False))
        fits.append(ComparedFit(**known, **fit, **means))
    return Comparison(tuple(sorted(fits, key=lambda fit: fit.error)), error_name)


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    """Mean over folds and its standard error."""
    spread = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(values.mean()), float(spread)
