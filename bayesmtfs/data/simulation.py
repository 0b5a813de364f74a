r"""Simulate related tasks of which the truth is known.

Task t has the design X_t, whose rows are normal with mean 0 and covariance S (unit variances), and

.. math:: y_{ti} = x_{ti}' w_t + b_t + \sigma_t e_{ti}, \qquad
          w_{it} = s_t \rho (\sqrt{r}\, c_i + \sqrt{1 - r}\, u_{it}) \quad \text{for a relevant feature } i

and 0 for the others, with c and u independent draws of the generalized normal GN(0, 1, q) of Zhang, Yeung and Xu
(2010), r the relatedness and s_t = -1 for opposed tasks. Two tasks thus correlate by r, exactly; the coefficients are
GN(0, rho, q) exactly at r = 0 and r = 1. An outlier task has r = 0 and relevant features of its own.

The signal-to-noise ratio is that of variances in the population: w_t' S w_t / sigma_t^2. In classification
P(y = +1) = 1 / (1 + exp(-x'w_t - b_t)), that is a sign seen through logistic noise of variance pi^2 / 3; there one
rho for all tasks makes the ratio hold on average over the tasks.

Every ingredient has its own stream of random numbers: with the same seed, a change of the noise leaves designs and
coefficients as they are.

References
----------
Y. Zhang, D.-Y. Yeung, Q. Xu (2010), Probabilistic multi-task feature selection, NIPS 23.
"""

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.types import BoolArray, FloatArray, IntArray

DesignKind = Literal["independent", "ar", "factor"]
Kind = Literal["regression", "classification"]

LOGISTIC_VARIANCE = np.pi**2 / 3


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedTasks:
    """Simulated observations and the truth behind them; every task axis is in the order of ``data.task_names``.

    Attributes
    ----------
    data : TaskData
    X : (n, p) design, as `fit` takes it
    y : (n,) targets, or (n, m) with a shared design, NaN where missing; labels are -1 and +1
    tasks : (n,) task labels 0 .. m - 1, or None with a shared design
    coef : (m, p) true coefficients
    intercept : (m,) true intercepts
    support : (p,) features that are relevant to at least one task
    noise : (m,) standard deviation of the noise; pi / sqrt(3) in classification
    task_correlation : (m, m) correlation of the coefficients of a shared relevant feature
    outlier, opposed : (m,) which tasks are outliers, and which have the opposite sign
    row_scale : rho of GN(0, rho, q)
    norm_q : q of GN(0, rho, q)
    kind : "regression" or "classification"
    """

    data: TaskData
    X: FloatArray
    y: FloatArray
    tasks: IntArray | None
    coef: FloatArray
    intercept: FloatArray
    support: BoolArray
    noise: FloatArray
    task_correlation: FloatArray
    outlier: BoolArray
    opposed: BoolArray
    row_scale: float
    norm_q: float
    kind: Kind

    def __repr__(self) -> str:
        n_tasks, n_features = self.coef.shape
        design = "one design" if self.tasks is None else "one design per task"
        return (
            f"SimulatedTasks({self.kind}: {self.data.n_observations} observations, {n_tasks} tasks, {n_features} "
            f"features, {self.support.sum()} relevant; {design})"
        )


class _Features(NamedTuple):
    """Distribution of the rows of a design: normal, mean 0, unit variances."""

    kind: DesignKind
    correlation: float

    def signal_variances(self, coef: FloatArray) -> FloatArray:
        """(m,) Variance w' S w of x' w, task by task."""
        squares = np.sum(coef**2, axis=1)
        if self.kind == "independent":
            return squares
        if self.kind == "factor":
            return (1.0 - self.correlation) * squares + self.correlation * coef.sum(axis=1) ** 2
        below = np.zeros(len(coef))  # sum over j < i of correlation^(i - j) w_j
        for i in range(1, coef.shape[1]):
            below = self.correlation * (below + coef[:, i - 1])
            squares += 2.0 * coef[:, i] * below
        return squares

    def draw(self, rng: np.random.Generator, n_rows: int, n_features: int) -> FloatArray:
        """(n_rows, n_features) A design."""
        X = rng.standard_normal((n_rows, n_features))
        if self.kind == "ar":
            X[:, 1:] *= np.sqrt(1.0 - self.correlation**2)
            for i in range(1, n_features):
                X[:, i] += self.correlation * X[:, i - 1]
        elif self.kind == "factor":
            X *= np.sqrt(1.0 - self.correlation)
            X += np.sqrt(self.correlation) * rng.standard_normal((n_rows, 1))
        return X


def simulate_tasks(
    *,
    n_tasks: int = 5,
    n_features: int = 50,
    n_samples: int | Sequence[int] = 100,
    n_relevant: int = 10,
    norm_q: float = 2.0,
    relatedness: float = 0.0,
    snr: float = 5.0,
    design: DesignKind = "independent",
    correlation: float = 0.5,
    shared_design: bool = False,
    outlier_tasks: int | Sequence[int] = 0,
    opposed_tasks: int | Sequence[int] = 0,
    missing: float = 0.0,
    intercept_scale: float = 0.0,
    kind: Kind = "regression",
    random_state: int | None = None,
) -> SimulatedTasks:
    """Draw related regressions or classifiers with known coefficients.

    Parameters
    ----------
    n_tasks, n_features : int
        Numbers of tasks m and of features p.
    n_samples : int or sequence of m ints
        Rows per task, before missing ones are taken away. A shared design takes one number.
    n_relevant : int
        Features with coefficients that are not zero: the same ones for all tasks but outliers.
    norm_q : float > 0 or inf
        Shape of the coefficients, GN(0, rho, q): 1 Laplace, 2 normal, inf uniform.
    relatedness : float in [0, 1]
        Share of a coefficient's variance that the tasks have in common: the correlation between tasks.
    snr : float > 0 or inf
        Variance of the signal x'w_t over that of the noise; see the top of this module for classification. A task
        without signal (``n_relevant=0``) has noise of variance 1.
    design : {"independent", "ar", "factor"}
        Correlation of features i and j: 0; ``correlation ** |i - j|``; ``correlation`` (one common factor).
    correlation : float
        In (-1, 1) for "ar", in [0, 1) for "factor"; not used by "independent".
    shared_design : bool
        One X for all tasks (the wide form) instead of one per task (the long form).
    outlier_tasks : int or sequence of task numbers
        Tasks with relevant features and coefficients of their own; a number k means the last k tasks.
    opposed_tasks : int or sequence of task numbers
        Tasks that share the coefficients of the others with the sign turned (this needs ``relatedness > 0``); a number
        k means the last k tasks that are not outliers.
    missing : float in [0, 1)
        Share of each task's targets that is not observed, at random: NaN in y with a shared design, else left out.
        At least one target per task stays.
    intercept_scale : float >= 0
        Standard deviation of the normal intercepts.
    kind : {"regression", "classification"}
        Classification has labels -1 and +1 by a logistic model.
    random_state : int, optional
        Seed: the same number gives the same bits. None takes a new one.

    Returns
    -------
    SimulatedTasks
        ``X, y, tasks`` for `fit`, the same as ``data``, and the truth.

    Examples
    --------
    >>> from bayesmtfs.data.simulation import simulate_tasks
    >>> sim = simulate_tasks(n_tasks=3, n_features=20, n_samples=[30, 40, 50], n_relevant=4, random_state=1)
    >>> sim
    SimulatedTasks(regression: 120 observations, 3 tasks, 20 features, 4 relevant; one design per task)
    >>> sim.X.shape, sim.tasks.shape, sim.coef.shape
    ((120, 20), (120,), (3, 20))
    """
    _check_integers(n_tasks=(n_tasks, 1), n_features=(n_features, 1), n_relevant=(n_relevant, 0))
    _check_ranges(
        n_relevant=(n_relevant, n_relevant <= n_features, f"at most n_features = {n_features}"),
        norm_q=(norm_q, norm_q > 0, "a number above 0, or inf"),
        relatedness=(relatedness, 0 <= relatedness <= 1, "a number from 0 to 1"),
        snr=(snr, snr > 0, "a number above 0 (inf: no noise)"),
        missing=(missing, 0 <= missing < 1, "a share of at least 0 and below 1"),
        intercept_scale=(intercept_scale, 0 <= intercept_scale < np.inf, "a number of at least 0"),
        kind=(kind, kind in get_args(Kind), f"one of {get_args(Kind)}"),
    )
    if kind == "classification" and np.isinf(snr):
        raise ValueError("snr is inf, which classification does not have: logits would be infinite; pass a number")
    sizes = _task_sizes(n_samples, n_tasks, shared_design)
    features = _feature_distribution(design, correlation)
    outlier, opposed = _special_tasks(n_tasks, outlier_tasks, opposed_tasks, relatedness)
    streams = _streams(random_state)

    supports = _supports(streams["support"], n_features, n_relevant, outlier)
    coef = _coefficients(streams["coef"], supports, norm_q, relatedness, outlier, opposed)
    row_scale, noise = _scales(features.signal_variances(coef), snr, kind)
    coef = row_scale * coef
    intercept = intercept_scale * streams["intercept"].standard_normal(n_tasks)

    n_designs = 1 if shared_design else n_tasks
    designs = [features.draw(streams["design"], size, n_features) for size in sizes[:n_designs]]
    per_task = designs * (n_tasks // n_designs)
    eta = [X @ w + b for X, w, b in zip(per_task, coef, intercept, strict=True)]
    targets = [_targets(streams["noise"], signal, sigma, kind) for signal, sigma in zip(eta, noise, strict=True)]
    observed = [_observed(streams["missing"], size, missing) for size in sizes]
    X, y, tasks = _together(designs, targets, observed, shared_design)
    return SimulatedTasks(
        data=TaskData.from_wide(X, y) if tasks is None else TaskData.from_long(X, y, tasks),
        X=X,
        y=y,
        tasks=tasks,
        coef=coef,
        intercept=intercept,
        support=supports.any(axis=0),
        noise=noise,
        task_correlation=_task_correlation(relatedness, outlier, opposed),
        outlier=outlier,
        opposed=opposed,
        row_scale=row_scale,
        norm_q=float(norm_q),
        kind=kind,
    )


# ---------------------------------------------------------------------- truth


def _streams(random_state: int | None) -> dict[str, np.random.Generator]:
    if random_state is not None:
        _check_integers(random_state=(random_state, 0))
    names = ("support", "coef", "intercept", "design", "noise", "missing")
    seeds = np.random.SeedSequence(random_state).spawn(len(names))
    return {name: np.random.Generator(np.random.PCG64(seed)) for name, seed in zip(names, seeds, strict=True)}


def generalized_normal(rng: np.random.Generator, norm_q: float | FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Draws of GN(0, 1, q) as a mixture of uniforms: v ~ Gamma(1 + 1/q), z | v ~ U(-v^(1/q), v^(1/q)).

    No power of it underflows at large q, and q = inf is no special case.
    """
    width = rng.gamma(1.0 + 1.0 / norm_q, 1.0, shape) ** (1.0 / norm_q)
    return np.asarray(width * rng.uniform(-1.0, 1.0, shape))


def _supports(rng: np.random.Generator, n_features: int, n_relevant: int, outlier: BoolArray) -> BoolArray:
    """(m, p) Relevant features of each task: one set for all, and one set for each outlier."""
    shared = _random_subset(rng, n_features, n_relevant)
    return np.array([_random_subset(rng, n_features, n_relevant) if odd else shared for odd in outlier])


def _random_subset(rng: np.random.Generator, size: int, n_chosen: int) -> BoolArray:
    chosen = np.zeros(size, dtype=bool)
    chosen[rng.choice(size, n_chosen, replace=False)] = True
    return chosen


def _coefficients(
    rng: np.random.Generator,
    supports: BoolArray,
    norm_q: float,
    relatedness: float,
    outlier: BoolArray,
    opposed: BoolArray,
) -> FloatArray:
    """(m, p) Coefficients at rho = 1."""
    common = generalized_normal(rng, norm_q, supports.shape[1:])
    own = generalized_normal(rng, norm_q, supports.shape)
    related = np.sqrt(relatedness) * common + np.sqrt(1.0 - relatedness) * own
    sign = np.where(opposed, -1.0, 1.0)[:, None]
    return np.where(supports, np.where(outlier[:, None], own, sign * related), 0.0)


def _task_correlation(relatedness: float, outlier: BoolArray, opposed: BoolArray) -> FloatArray:
    sign = np.where(outlier, 0.0, np.where(opposed, -1.0, 1.0))
    correlation = relatedness * np.outer(sign, sign)
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _scales(signal: FloatArray, snr: float, kind: Kind) -> tuple[float, FloatArray]:
    """Return rho and the noise of each task that make the signal-to-noise ratio right."""
    if kind == "classification":
        average = float(signal.mean())
        row_scale = np.sqrt(snr * LOGISTIC_VARIANCE / average) if average > 0 else 1.0
        return float(row_scale), np.full(len(signal), np.sqrt(LOGISTIC_VARIANCE))
    return 1.0, np.sqrt(np.where(signal > 0, signal / snr, 1.0))


# ---------------------------------------------------------------------- observations


def _targets(rng: np.random.Generator, eta: FloatArray, noise: float, kind: Kind) -> FloatArray:
    if kind == "regression":
        return eta + noise * rng.standard_normal(len(eta))
    # A label is the sign of eta + logistic noise, so that P(y = +1) = 1 / (1 + exp(-eta)) without overflow.
    return np.where(eta + rng.logistic(size=len(eta)) > 0, 1.0, -1.0)


def _observed(rng: np.random.Generator, size: int, missing: float) -> BoolArray:
    return ~_random_subset(rng, size, min(round(missing * size), size - 1))


def _together(
    designs: list[FloatArray], targets: list[FloatArray], observed: list[BoolArray], shared_design: bool
) -> tuple[FloatArray, FloatArray, IntArray | None]:
    """The wide form of a shared design, with NaN in cells that were not observed, or else the long form."""
    if shared_design:
        return designs[0], np.where(np.column_stack(observed), np.column_stack(targets), np.nan), None
    X = np.concatenate([rows[seen] for rows, seen in zip(designs, observed, strict=True)])
    y = np.concatenate([target[seen] for target, seen in zip(targets, observed, strict=True)])
    return X, y, np.repeat(np.arange(len(targets)), [int(seen.sum()) for seen in observed])


# ---------------------------------------------------------------------- checks


def _check_integers(**arguments: tuple[object, int]) -> None:
    """Refuse arguments that are not integers of at least the number beside them."""
    for name, (value, least) in arguments.items():
        if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
            raise ValueError(f"{name} is {value!r}; pass an integer of at least {least}")


def _check_ranges(**arguments: tuple[object, bool, str]) -> None:
    """Refuse arguments that are not in their range, which the last entry says in words."""
    for name, (value, valid, wanted) in arguments.items():
        if not valid:
            raise ValueError(f"{name} is {value!r}; pass {wanted}")


def _task_sizes(n_samples: int | Sequence[int], n_tasks: int, shared_design: bool) -> list[int]:
    if not isinstance(n_samples, Sequence | np.ndarray):
        _check_integers(n_samples=(n_samples, 1))
        return [n_samples] * n_tasks
    if shared_design:
        raise ValueError("n_samples has one size per task but shared_design is True; pass one number of rows")
    if len(n_samples) != n_tasks:
        raise ValueError(f"n_samples has {len(n_samples)} entries but n_tasks is {n_tasks}; pass one size per task")
    for task, size in enumerate(n_samples):
        _check_integers(**{f"n_samples[{task}]": (size, 1)})
    return [int(size) for size in n_samples]


def _feature_distribution(design: DesignKind, correlation: float) -> _Features:
    _check_ranges(
        design=(design, design in get_args(DesignKind), f"one of {get_args(DesignKind)}"),
        correlation=(
            correlation,
            design == "independent" or (-1 < correlation < 1 if design == "ar" else 0 <= correlation < 1),
            "a number between -1 and 1" if design == "ar" else "a number of at least 0 and below 1",
        ),
    )
    return _Features(design, correlation)


def _special_tasks(
    n_tasks: int, outlier_tasks: int | Sequence[int], opposed_tasks: int | Sequence[int], relatedness: float
) -> tuple[BoolArray, BoolArray]:
    """(m,) and (m,) Which tasks are outliers, and which are opposed."""
    outlier = _marked("outlier_tasks", outlier_tasks, np.arange(n_tasks), n_tasks)
    opposed = _marked("opposed_tasks", opposed_tasks, np.flatnonzero(~outlier), n_tasks)
    if opposed.any() and relatedness == 0:
        raise ValueError(
            "opposed_tasks needs relatedness above 0: without it the signs of tasks are independent anyway"
        )
    return outlier, opposed


def _marked(argument: str, chosen: int | Sequence[int], candidates: IntArray, n_tasks: int) -> BoolArray:
    if isinstance(chosen, Sequence | np.ndarray):
        known = candidates.tolist()
        wanted = f"numbers of tasks among {known} (a task is an outlier or opposed, not both)"
        _check_ranges(**{argument: (chosen, set(chosen) <= set(known), wanted)})
        numbers_chosen = [int(task) for task in chosen]
    else:
        _check_integers(**{argument: (chosen, 0)})
        _check_ranges(**{argument: (chosen, chosen <= len(candidates), f"at most {len(candidates)} tasks")})
        numbers_chosen = candidates[len(candidates) - chosen :].tolist()
    marks = np.zeros(n_tasks, dtype=bool)
    marks[numbers_chosen] = True
    return marks
