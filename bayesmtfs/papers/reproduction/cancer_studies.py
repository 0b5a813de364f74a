r"""Cancer studies as tasks, and what Zhang, Yeung and Xu (2010, section 6) fit to them.

Genes are standardised within each study by its training rows; errors are averaged over the studies, so that a small
study counts as much as a large one.

Convex multi-task feature learning (MTFL), with which Zhang, Yeung and Xu compare: a trace norm on W.

.. math:: \min_W \sum_t \tfrac12 \|y_t - X_t w_t\|^2 + \tau \|W\|_{tr}

It learns combinations of features and selects none. Argyriou, Evgeniou and Pontil (2008, problem 5) square the norm, which
gives the same solutions at other strengths; their alternation hardly leaves the space of its first W where features
outnumber tasks by far, so that accelerated proximal steps (Beck and Teboulle 2009) with thresholded singular values stand
in for it. Targets and features are centred within each task, which gives intercepts.

References
----------
A. Argyriou, T. Evgeniou, M. Pontil (2008), Convex multi-task feature learning, Machine Learning 73:243-272.
A. Beck, M. Teboulle (2009), A fast iterative shrinkage-thresholding algorithm, SIAM Journal on Imaging Sciences 2:183-202.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.estimators.em import JeffreysClassifier, MatrixVariateClassifier
from bayesmtfs.estimators.penalised_cv import MixedNormClassifierCV
from bayesmtfs.papers.baselines.ridge import IndependentClassifier
from bayesmtfs.papers.baselines.sparse_rankings import shrink_singular_values
from bayesmtfs.papers.datasets import Dataset
from bayesmtfs.papers.reproduction.outcome import Figure
from bayesmtfs.papers.reproduction.splits import Advance, percent, stratified_splits
from bayesmtfs.types import FloatArray, IntArray

RIDGES = (0.01, 0.1, 1.0, 10.0)  # beside the mean logistic loss
TRACE_NORMS = (0.3, 0.1, 0.03, 0.01)  # of MTFL, as shares of the largest that matters


class Studies(NamedTuple):
    """Samples of several studies."""

    X: FloatArray  # (n, genes)
    y: IntArray  # (n,) 0 or 1
    study: NDArray[Any]  # (n,)

    def take(self, rows: IntArray) -> "Studies":
        """Some of the samples."""
        return Studies(self.X[rows], self.y[rows], self.study[rows])


class Effort(NamedTuple):
    """How finely penalties are chosen, and over how many splits figures are averaged."""

    n_splits: int
    n_penalties: int
    n_folds: int


Fit = Callable[[Studies, Effort, int], Any]  # training samples, effort, seed -> something that predicts


class Result(NamedTuple):
    """What one method does on one split."""

    error: float  # percent, mean over studies
    by_study: dict[str, float]
    n_genes: int
    norm_q: float | None  # where it was learned


def studies_of(found: Dataset, name: str = "") -> Studies:
    """Samples of a data set; every class above 0 is a case. One without tasks becomes one study of the given name."""
    study = np.full(len(found.y), name) if found.tasks is None else np.asarray(found.tasks)
    return Studies(np.asarray(found.X, dtype=np.float64), (found.y > 0).astype(np.int64), study)


def standardized(train: Studies, test: Studies) -> tuple[Studies, Studies]:
    """Genes centred and scaled within each study, by the training samples alone; those that are constant there are 0."""
    X, unseen = train.X.copy(), test.X.copy()
    for study in np.unique(train.study):
        own, other = train.study == study, test.study == study
        mean, deviation = train.X[own].mean(axis=0), train.X[own].std(axis=0)
        deviation[deviation <= 1e-10 * np.abs(mean)] = np.inf
        X[own] = (X[own] - mean) / deviation
        unseen[other] = (unseen[other] - mean) / deviation
    return train._replace(X=X), test._replace(X=unseen)


def study_errors(model: Any, test: Studies) -> dict[str, float]:
    """Error in percent of each study."""
    wrong = model.predict(test.X, tasks=test.study) != test.y
    return {str(study): percent(wrong[test.study == study]) for study in np.unique(test.study)}


# ---------------------------------------------------------------------- methods


def mixed_norm(norm_q: float) -> Fit:
    """Logistic loss and an l1,q penalty from folds."""

    def fit(train: Studies, effort: Effort, seed: int) -> Any:
        model = MixedNormClassifierCV(
            norm_q=norm_q,
            n_penalties=effort.n_penalties,
            penalty_ratio=0.01,
            cv=effort.n_folds,
            tol=1e-4,
            random_state=seed,
            progress=False,
        )
        return model.fit(train.X, train.y, tasks=train.study)

    return fit


def probabilistic(kind: type[Any], **options: Any) -> Fit:
    """PMTFS1 or PMTFS2 with normal noise around labels -1 and +1, as in the paper."""

    def fit(train: Studies, effort: Effort, seed: int) -> Any:
        model = kind(loss="squared", random_state=seed, progress=False, **options)
        return model.fit(train.X, train.y, tasks=train.study)

    return fit


def tuned(fit_at: Callable[[Studies, float], Any], strengths: Sequence[float]) -> Fit:
    """A method whose strength has the smallest error in folds of the training samples."""

    def fit(train: Studies, effort: Effort, seed: int) -> Any:
        splits = stratified_splits([train.study, train.y], effort.n_folds, 0.8, seed)
        folds = [(train.take(split.train), train.take(split.test)) for split in splits]
        errors = [
            np.mean([list(study_errors(fit_at(inner, strength), outer).values()) for inner, outer in folds])
            for strength in strengths
        ]
        return fit_at(train, strengths[int(np.argmin(errors))])

    return fit


def ridge_at(train: Studies, strength: float) -> Any:
    """One logistic ridge per study."""
    return IndependentClassifier(penalty_strength=strength).fit(train.X, train.y, tasks=train.study)


def feature_learning_at(train: Studies, strength: float) -> Any:
    """MTFL."""
    return fit_feature_learning(train.X, train.y, train.study, strength)


METHODS: dict[str, Fit] = {
    "MTFL": tuned(feature_learning_at, TRACE_NORMS),
    "MTFS1,2": mixed_norm(2),
    "MTFS1,inf": mixed_norm(np.inf),
    "PMTFS1": probabilistic(JeffreysClassifier, norm_q="learn"),
    "PMTFS2": probabilistic(MatrixVariateClassifier, norm_q="learn"),
    "PMTFS1, q as printed": probabilistic(JeffreysClassifier, norm_q="learn", q_learning="paper"),
    "PMTFS2, W integrated out": probabilistic(MatrixVariateClassifier, coefficients="integrated"),
    "single tasks, l1": mixed_norm(1),
    "single tasks, ridge": tuned(ridge_at, RIDGES),
}

ONE_STUDY_METHODS: dict[str, Fit] = {
    "l1 (MTFS1,q of one task)": mixed_norm(2),
    "PMTFS1": probabilistic(JeffreysClassifier),
    "ridge (MTFL of one task)": tuned(ridge_at, RIDGES),
}


# ---------------------------------------------------------------------- the experiment


def compare_methods(
    data: Studies, methods: dict[str, Fit], effort: Effort, seed: int, advance: Advance
) -> dict[str, list[Result]]:
    """Every method on every split: 70% of the samples of each study and class train, the others test."""
    found: dict[str, list[Result]] = {name: [] for name in methods}
    splits = stratified_splits([data.study, data.y], effort.n_splits, 0.7, seed)
    for place, split in enumerate(splits):
        train, test = standardized(data.take(split.train), data.take(split.test))
        for number, (name, fit) in enumerate(methods.items(), start=1):
            found[name].append(measure(fit(train, effort, seed), test))
            advance((place + number / len(methods)) / len(splits))
    return found


def measure(model: Any, test: Studies) -> Result:
    """Errors, number of genes, and q where it was learned."""
    errors = study_errors(model, test)
    n_genes = int((model.coef_ != 0).any(axis=0).sum())
    learned = getattr(model, "norm_q", None) == "learn"
    return Result(float(np.mean(list(errors.values()))), errors, n_genes, model.norm_q_ if learned else None)


class Printed(NamedTuple):
    """What the paper prints: for each method, errors in percent of its tasks, and q."""

    errors: dict[str, tuple[float, ...]]
    norm_q: dict[str, float]
    shared_study: tuple[str, int] | None  # a study that is in both, and its number among the paper's tasks
    remark: str  # on the means


def figures_of(found: dict[str, list[Result]], printed: Printed) -> tuple[Figure, ...]:
    """Mean error, error by study, genes and learned q of every method."""
    means = [
        Figure.of(
            name,
            "error, mean over studies, %",
            [result.error for result in results],
            float(np.mean(printed.errors[name])) if name in printed.errors else None,
            printed.remark if name in printed.errors else "",
        )
        for name, results in found.items()
    ]
    genes = [Figure.of(name, "genes", [float(r.n_genes) for r in results]) for name, results in found.items()]
    norms = [
        Figure.of(name, "q learned", [r.norm_q for r in results if r.norm_q is not None], printed.norm_q.get(name))
        for name, results in found.items()
        if results[0].norm_q is not None
    ]
    return (*means, *_figures_by_study(found, printed), *genes, *norms)


def _figures_by_study(found: dict[str, list[Result]], printed: Printed) -> list[Figure]:
    studies = list(next(iter(found.values()))[0].by_study)
    shared, place = printed.shared_study or ("", 0)
    return [
        Figure.of(
            f"{study}: {name}",
            "error by study, %",
            [result.by_study[study] for result in results],
            printed.errors[name][place] if study == shared and name in printed.errors else None,
        )
        for study in studies
        for name, results in found.items()
        if len(studies) > 1
    ]


# ---------------------------------------------------------------------- convex multi-task feature learning


def learn_features(
    designs: list[FloatArray], targets: list[FloatArray], strength: float, tol: float = 1e-4, max_iter: int = 1000
) -> FloatArray:
    """(p, m) Coefficients of centred tasks; strength is tau as a share of the smallest one at which W = 0."""
    tasks = list(zip(designs, targets, strict=True))
    tau = strength * np.linalg.norm(np.column_stack([X.T @ y for X, y in tasks]), 2)
    step = 1.0 / max(np.linalg.norm(X, 2) ** 2 for X in designs)
    W = ahead = np.zeros((designs[0].shape[1], len(designs)))
    momentum = 1.0
    for _ in range(max_iter):
        gradient = np.column_stack([X.T @ (X @ ahead[:, t] - y) for t, (X, y) in enumerate(tasks)])
        before, W = W, shrink_singular_values(ahead - step * gradient, step * tau)
        if np.linalg.norm(W - before) <= tol * np.linalg.norm(W):
            break
        faster = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = W + (momentum - 1.0) / faster * (W - before)
        momentum = faster
    return W


@dataclass(frozen=True)
class FeatureLearningClassifier:
    """Signs of the regressions of labels -1 and +1; `fit_feature_learning` makes it."""

    coef_: FloatArray  # (m, p)
    intercept_: FloatArray  # (m,)
    tasks_: NDArray[Any]

    def predict(self, X: FloatArray, tasks: NDArray[Any]) -> NDArray[np.int64]:
        """(n,) Labels 0 and 1."""
        place = np.searchsorted(self.tasks_, tasks)
        return (np.sum(X * self.coef_[place], axis=1) + self.intercept_[place] > 0).astype(np.int64)


def fit_feature_learning(
    X: FloatArray, y: NDArray[np.int64], tasks: NDArray[Any], strength: float
) -> FeatureLearningClassifier:
    """Fit labels 0 and 1; strength is tau as a share of the smallest one at which W = 0.

    Examples
    --------
    >>> X, tasks = np.array([[1.0, 0.1], [-1.0, 0.2], [2.0, 0.3], [-2.0, 0.1]]), np.array([0, 0, 1, 1])
    >>> fit_feature_learning(X, np.array([1, 0, 1, 0]), tasks, 0.1).predict(X, tasks).tolist()
    [1, 0, 1, 0]
    """
    names = np.unique(tasks)
    rows = [tasks == name for name in names]
    centres = np.stack([X[chosen].mean(axis=0) for chosen in rows])
    signs = 2.0 * y - 1.0
    means = np.array([signs[chosen].mean() for chosen in rows])
    designs = [X[chosen] - centre for chosen, centre in zip(rows, centres, strict=True)]
    targets = [signs[chosen] - mean for chosen, mean in zip(rows, means, strict=True)]
    coef = learn_features(designs, targets, strength).T
    return FeatureLearningClassifier(coef, means - np.sum(coef * centres, axis=1), names)
