"""Zhang, Yeung and Xu (2010): the mixed norms, PMTFS1 and PMTFS2 on cancer studies, and what their model promises.

Section 6: breast and prostate cancer studies as tasks, 70% of each for training, ten random splits, error and learned q.
Genes are standardised within each study by its training rows; errors are averaged over the studies, so that a small
study counts as much as a large one.

Sections 4 and 7 claim that q and the relations of tasks are learned, and that the model serves joint compressed sensing;
simulations with a known truth check these: q learned from data (section 4.2) and what the units of y do to the printed
update; relations of tasks (section 4.3); joint compressed sensing (section 7): Y = A W + noise, with n = 50 measurements
of 200 unknowns in five signals at 30 dB.
"""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from bayesmtfs.data.simulation import SimulatedTasks, simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.estimators.base import estimator_class
from bayesmtfs.estimators.em import (
    GeneralizedNormalRegressor,
    JeffreysClassifier,
    JeffreysRegressor,
    MatrixVariateClassifier,
    MatrixVariateRegressor,
)
from bayesmtfs.estimators.path import mixed_norm_path
from bayesmtfs.estimators.penalised_cv import MixedNormClassifierCV
from bayesmtfs.families import Family
from bayesmtfs.papers import datasets
from bayesmtfs.papers.baselines.rankings import shrink_singular_values
from bayesmtfs.papers.baselines.ridge import IndependentClassifier, Lines, RidgeClassifier
from bayesmtfs.papers.reproduction import common
from bayesmtfs.papers.reproduction.outcome import Table
from bayesmtfs.types import BoolArray, FloatArray

ERROR, BY_STUDY, GENES, NORM = "error, mean over studies, %", "error by study, %", "genes", "q learned"
RIDGES = (0.01, 0.1, 1.0, 10.0)  # beside the mean logistic loss
TRACE_NORMS = (0.3, 0.1, 0.03, 0.01)  # of MTFL, as shares of the largest that matters


class Printed(NamedTuple):
    """What the paper prints: for each method, errors in percent of its tasks, and q."""

    errors: dict[str, tuple[float, ...]]
    norm_q: dict[str, float]
    shared_study: tuple[str, int] | None  # a study that is in both, and its number among the paper's tasks
    remark: str  # on the means

    def beside(self) -> dict[tuple[str, str], tuple[float | None, str]]:
        """The same by method and measure."""
        numbers: dict[tuple[str, str], tuple[float | None, str]] = {
            (name, ERROR): (float(np.mean(errors)), self.remark) for name, errors in self.errors.items()
        }
        if self.shared_study is not None:
            study, place = self.shared_study
            numbers |= {(f"{study}: {name}", BY_STUDY): (errors[place], "") for name, errors in self.errors.items()}
        return numbers | {(name, NORM): (norm_q, "") for name, norm_q in self.norm_q.items()}


# Tables 1 and 2, in percent
BREAST = Printed(
    {
        "MTFL": (34.78, 3.64, 30.91),
        "MTFS1,2": (33.70, 3.43, 28.55),
        "MTFS1,inf": (38.96, 11.36, 29.09),
        "PMTFS1": (30.72, 2.98, 17.86),
        "PMTFS2": (28.70, 2.73, 14.55),
    },
    {"PMTFS1": 2.5003, "PMTFS2": 2.6718},
    ("NKI", 1),
    "paper: three studies, one of them shared",
)
PROSTATE = Printed(
    {
        "MTFL": (12.26, 35.00),
        "MTFS1,2": (12.32, 34.20),
        "MTFS1,inf": (22.16, 42.00),
        "PMTFS1": (11.23, 32.14),
        "PMTFS2": (10.32, 30.00),
    },
    {"PMTFS1": 2.5865, "PMTFS2": 2.6319},
    None,
    "paper: Singh and Welsh, neither among ours",
)
SINGH = Printed(
    {"l1 (MTFS1,q of one task)": (12.32,), "PMTFS1": (11.23,), "ridge (MTFL of one task)": (12.26,)},
    {},
    None,
    "paper: fitted together with Welsh",
)

REMARKS = (
    "The samples are not the paper's: breast has three studies with oestrogen receptor status and 254 shared genes "
    "(6092 in the paper, which does not name its label; the Netherlands Cancer Institute, NKI, is in both with other "
    "patients), prostate four studies of tumour against normal tissue and 1358 genes (the paper: Singh and Welsh, 12600 "
    "genes). The paper's means stand beside ours for orientation only.",
    "The Welsh study is not public in this form. Singh alone, with logs of clipped intensities instead of RMA values, "
    "is one task: all l1,q norms are the lasso there, and relations do not exist.",
    "The paper prints standard deviations over its ten splits; ours are standard errors.",
    "PMTFS1 and PMTFS2 do not beat the mixed norms on these data. They use about a fifth of the genes, with the same "
    "error on breast and about twice the error on prostate, where MTFL and a ridge per study, which keep all genes, "
    "err least. PMTFS2 is not better than PMTFS1, whose q it takes over.",
    "With three or four tasks q is not identified: 90% intervals cover most of the range from 1 to 50, and values near "
    "2.5 say little. The constant ln Gamma(1 + 1/q), which every zero row contributes in the printed rule, is "
    "smallest at q = 2.17.",
    "The printed q update holds an expectation fixed that depends on q. It depends on the units of y, and the objective "
    "moves both ways; the joint mode of W and q (ECME) is free of units, but does not recover q either. Learning q "
    "needs the coefficients' uncertainty.",
    "The printed Omega step has no minimum and the printed covariance is transposed; ours keeps a correlation matrix "
    "with shrinkage. Relations improve predictions only when W is integrated out.",
    "The mixed norms have the logistic loss, the probabilistic methods and MTFL squared errors around labels -1 and +1.",
    "Compressed sensing: the penalty of l1,2 is the best one in hindsight; the other methods choose nothing.",
)


class Zhang2010Effort(NamedTuple):
    """How much is done: on the studies, and in the simulations."""

    n_splits: int
    n_penalties: int
    n_folds: int
    q_sets: int  # data sets for every true q
    q_methods: tuple[str, ...]
    relation_sets: int
    row_counts: tuple[int, ...]  # of compressed sensing
    sensing_sets: int


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


@estimator_class()
class FeatureLearningClassifier(RidgeClassifier):
    r"""Convex multi-task feature learning (MTFL), with which the paper compares: a trace norm on W, and labels -1 and +1.

    .. math:: \min_W \sum_t \tfrac12 \|y_t - X_t w_t\|^2 + \tau \|W\|_{tr}

    It learns combinations of features and selects none. ``penalty_strength`` is tau as a share of the smallest one at
    which W = 0. Argyriou, Evgeniou and Pontil (2008, problem 5) square the norm, which gives the same solutions at other
    strengths; their alternation hardly leaves the space of its first W where features outnumber tasks by far, so that
    accelerated proximal steps (Beck and Teboulle 2009) with thresholded singular values stand in for it. Targets and
    features are centred within each task, which gives intercepts.

    References
    ----------
    A. Argyriou, T. Evgeniou, M. Pontil (2008), Convex multi-task feature learning, Machine Learning 73:243-272.
    A. Beck, M. Teboulle (2009), A fast iterative shrinkage-thresholding algorithm, SIAM J. Imaging Sciences 2:183-202.
    """

    def _lines(self, data: TaskData, family: Family) -> Lines:
        targets = np.split(data.y, data.offsets[1:-1])
        centres = np.stack([X.mean(axis=0) for X in data.task_designs], axis=1)
        means = np.array([y.mean() for y in targets])
        designs = [X - centre for X, centre in zip(data.task_designs, centres.T, strict=True)]
        W = learn_features(designs, [y - mean for y, mean in zip(targets, means, strict=True)], self.penalty_strength)
        return Lines(W, means - np.sum(W * centres, axis=0), True, 1)


# ---------------------------------------------------------------------- cancer studies


def read_studies(loader: Callable[..., datasets.Dataset], name: str = "", **options: Any) -> common.TaskRows:
    """Samples of a data set; every class above 0 is a case. One without tasks becomes one study of the given name."""
    found = common.read(loader, **options)
    study = np.full(len(found.y), name) if found.tasks is None else np.asarray(found.tasks)
    return common.TaskRows(np.asarray(found.X, dtype=np.float64), (found.y > 0).astype(np.int64), study)


def standardized(train: common.TaskRows, test: common.TaskRows) -> tuple[common.TaskRows, common.TaskRows]:
    """Genes centred and scaled within each study, by the training samples alone; those that are constant there are 0."""
    X, unseen = train.X.copy(), test.X.copy()
    for study in np.unique(train.tasks):
        own, other = train.tasks == study, test.tasks == study
        mean, deviation = train.X[own].mean(axis=0), train.X[own].std(axis=0)
        deviation[deviation <= 1e-10 * np.abs(mean)] = np.inf
        X[own] = (X[own] - mean) / deviation
        unseen[other] = (unseen[other] - mean) / deviation
    return train._replace(X=X), test._replace(X=unseen)


def study_errors(model: Any, test: common.TaskRows) -> dict[str, float]:
    """Error in percent of each study."""
    wrong = model.predict(test.X, tasks=test.tasks) != test.y
    return {str(study): common.percent(wrong[test.tasks == study]) for study in np.unique(test.tasks)}


def study_scores(model: Any, test: common.TaskRows) -> list[float]:
    """The less a study errs, the better."""
    return [-error for error in study_errors(model, test).values()]


Methods = Mapping[str, tuple[Any, dict[str, tuple[float, ...]]]]  # name -> model and the grid of its strength


def mixed_norm(norm_q: float, effort: Zhang2010Effort, seed: int) -> MixedNormClassifierCV:
    """Logistic loss and an l1,q penalty from folds."""
    path: dict[str, Any] = {"n_penalties": effort.n_penalties, "penalty_ratio": 0.01, "cv": effort.n_folds, "tol": 1e-4}
    return MixedNormClassifierCV(norm_q=norm_q, random_state=seed, progress=False, **path)


def methods_for(effort: Zhang2010Effort, seed: int) -> Methods:
    """What is compared; the probabilistic methods have normal noise around labels -1 and +1, as in the paper."""
    noise: dict[str, Any] = {"loss": "squared", "random_state": seed, "progress": False}
    return {
        "MTFL": (FeatureLearningClassifier(), {"penalty_strength": TRACE_NORMS}),
        "MTFS1,2": (mixed_norm(2, effort, seed), {}),
        "MTFS1,inf": (mixed_norm(np.inf, effort, seed), {}),
        "PMTFS1": (JeffreysClassifier(norm_q="learn", **noise), {}),
        "PMTFS2": (MatrixVariateClassifier(norm_q="learn", **noise), {}),
        "PMTFS1, q as printed": (JeffreysClassifier(norm_q="learn", q_learning="paper", **noise), {}),
        "PMTFS2, W integrated out": (MatrixVariateClassifier(coefficients="integrated", **noise), {}),
        "single tasks, l1": (mixed_norm(1, effort, seed), {}),
        "single tasks, ridge": (IndependentClassifier(), {"penalty_strength": RIDGES}),
    }


def compare_methods(
    data: common.TaskRows, methods: Methods, effort: Zhang2010Effort, seed: int, advance: common.Advance
) -> common.Findings:
    """Every method on every split: 70% of the samples of each study and class train, the others test."""
    found, studies = common.Findings(ERROR, BY_STUDY, GENES, NORM), np.unique(data.tasks).tolist()
    splits = common.stratified_splits([data.tasks, data.y], effort.n_splits, 0.7, seed)
    for place, split in enumerate(splits):
        train, test = standardized(data.take(split.train), data.take(split.test))
        folds = common.stratified_splits([train.tasks, train.y], effort.n_folds, 0.8, seed)
        errors = {}
        for number, (name, (model, grid)) in enumerate(methods.items(), start=1):
            fitted = common.fit_best(model, grid, train, folds, study_scores)
            errors[name] = study_errors(fitted, test)
            n_genes = int((fitted.coef_ != 0).any(axis=0).sum())
            found.add(name, {ERROR: float(np.mean(list(errors[name].values()))), GENES: n_genes})
            if getattr(fitted, "norm_q", None) == "learn":
                found.add(name, {NORM: fitted.norm_q_})
            advance((place + number / len(methods)) / len(splits))
        for study, name in product(studies if len(studies) > 1 else [], methods):
            found.add(f"{study}: {name}", {BY_STUDY: errors[name][study]})
    return found


def compare_studies(
    title: str, data: common.TaskRows, printed: Printed, effort: Zhang2010Effort, seed: int, advance: common.Advance
) -> Table:
    """A table of the paper on other studies."""
    found = compare_methods(data, methods_for(effort, seed), effort, seed, advance)
    protocol = (
        f"{len(np.unique(data.tasks))} studies, {data.X.shape[1]} genes, {effort.n_splits} random splits, stratified: 70% "
        f"of each study for training; genes standardised within a study by its training samples; penalties by "
        f"{effort.n_folds} folds of the training samples."
    )
    return Table(title, protocol, found.figures(printed.beside()))


def breast(effort: Zhang2010Effort, seed: int, advance: common.Advance) -> Table:
    """Table 1 on three other studies."""
    data = read_studies(datasets.load_breast_er)
    return compare_studies("Breast cancer (section 6.1, table 1)", data, BREAST, effort, seed, advance)


def prostate(effort: Zhang2010Effort, seed: int, advance: common.Advance) -> Table:
    """Table 2 on four other studies."""
    data, title = read_studies(datasets.load_prostate_studies), "Prostate cancer, four studies (section 6.2, table 2)"
    return compare_studies(title, data, PROSTATE, effort, seed, advance)


def singh(effort: Zhang2010Effort, seed: int, advance: common.Advance) -> Table:
    """The one study of table 2 that is public, by itself."""
    raw = read_studies(datasets.load_prostate_singh, "Singh", variant=12600)
    data = raw._replace(X=np.log(np.clip(raw.X, 10.0, 16000.0)))
    methods: Methods = {
        "l1 (MTFS1,q of one task)": (mixed_norm(2, effort, seed), {}),
        "PMTFS1": (JeffreysClassifier(loss="squared", random_state=seed, progress=False), {}),
        "ridge (MTFL of one task)": (IndependentClassifier(), {"penalty_strength": RIDGES}),
    }
    found = compare_methods(data, methods, effort, seed, advance)
    protocol = (
        f"102 samples, 12600 probes, logs of intensities clipped to 10 .. 16000; {effort.n_splits} stratified splits, "
        "70% for training."
    )
    title = "Prostate cancer, the Singh study alone (section 6.2, table 2)"
    return Table(title, protocol, found.figures(SINGH.beside()))


# ---------------------------------------------------------------------- simulations


TRUE_NORMS = (1.2, 2.0, 4.0, 10.0)
Q_SIZES: dict[str, Any] = {"n_tasks": 20, "n_samples": 60, "n_features": 27, "n_relevant": 9, "snr": 5.0}
Q_METHODS = {
    "two_stage": "two stages (default)",
    "integrated": "W integrated out by Gibbs draws",
    "ecme": "joint mode of W and q (ECME)",
    "paper": "as printed",
}
UNITS = (0.1, 1.0, 10.0)
RELATION_SIZES: dict[str, Any] = {"n_tasks": 8, "n_features": 40, "n_samples": 40, "n_relevant": 12, "snr": 2.0}
RELATIONS: dict[str, Any] = {"relatedness": 0.9, "opposed_tasks": 3, "outlier_tasks": 1}


def _set_seed(seed: int, place: int) -> int:
    """A seed for each data set, the same for every method."""
    return 1000 * seed + place


def learn_norm(X: FloatArray, y: FloatArray, tasks: Any, method: str, seed: int) -> JeffreysRegressor:
    """PMTFS1 with q learned in one of the four ways."""
    model = JeffreysRegressor(norm_q="learn", q_learning=method, random_state=seed, progress=False)
    return model.fit(X, y, tasks=tasks)


def learning_q(effort: Zhang2010Effort, seed: int, advance: common.Advance) -> Table:
    """Learned q against the truth, and whether its 90% interval covers it."""
    found = common.Findings()
    for truth, number in common.watched(product(TRUE_NORMS, range(effort.q_sets)), advance):
        sim = simulate_tasks(norm_q=truth, random_state=_set_seed(seed, number), **Q_SIZES)
        for method in effort.q_methods:
            model = learn_norm(sim.X, sim.y, sim.tasks, method, seed)
            low, high = model.norm_q_interval_
            off = abs(float(np.log(model.norm_q_ / truth)))
            covered = 100.0 * (low <= truth <= high)
            found.add(f"truth {truth:g}: {Q_METHODS[method]}", {NORM: model.norm_q_})
            found.add(
                Q_METHODS[method], {"absolute ln(q / truth)": off, "90% intervals that cover the truth, %": covered}
            )
    protocol = "20 tasks, 60 rows each, 27 features of which 9 matter, signal-to-noise ratio 5; q between 1 and 50."
    return Table("Learning q (section 4.2, simulated)", protocol, found.figures())


def units_of_the_printed_rule(effort: Zhang2010Effort, seed: int, advance: common.Advance) -> Table:
    """The same data in other units of y."""
    sets = range(effort.q_sets)
    sims = [simulate_tasks(norm_q=2.0, random_state=_set_seed(seed, number), **Q_SIZES) for number in sets]
    found = common.Findings()
    for method, unit, sim in common.watched(product(("paper", "two_stage"), UNITS, sims), advance):
        learned = learn_norm(sim.X, unit * sim.y, sim.tasks, method, seed).norm_q_
        found.add(f"{Q_METHODS[method]}, y x {unit:g}", {"q learned, truth 2": learned})
    protocol = "The same data sets as above with q = 2, and y in other units; q between 1 and 50."
    return Table("Units and the printed q update (section 4.2, simulated)", protocol, found.figures())


def coefficient_error(model: Any, sim: SimulatedTasks) -> float:
    """Squared error of the coefficients, as a share of their squares."""
    return float(np.sum((model.coef_ - sim.coef) ** 2) / np.sum(sim.coef**2))


def task_relations(effort: Zhang2010Effort, seed: int, advance: common.Advance) -> Table:
    """Signs of relations, an outlier task, and what relations are worth to the coefficients."""
    labels = {"PMTFS2": "mode", "PMTFS2, W integrated out": "integrated"}
    pairs = np.triu_indices(RELATION_SIZES["n_tasks"], 1)
    found, errors = common.Findings(), common.Findings("related", "apart")
    for label, number in common.watched(product(labels, range(effort.relation_sets)), advance):
        sim = simulate_tasks(**RELATION_SIZES, **RELATIONS, random_state=_set_seed(seed, number))
        model = MatrixVariateRegressor(coefficients=labels[label], progress=False).fit(sim.data)
        unrelated = JeffreysRegressor(coefficients=labels[label], progress=False).fit(sim.data)
        learned, truth = model.task_relations_[pairs], sim.task_correlation[pairs]
        right = common.percent(np.sign(learned[truth != 0]) == np.sign(truth[truth != 0]))
        found.add(label, {"related and opposed pairs with the right sign, %": right})
        found.add(label, {"absolute relation of the outlier task": float(np.abs(learned[truth == 0]).mean())})
        errors.add(label, {"related": coefficient_error(model, sim), "apart": coefficient_error(unrelated, sim)})
    gained = "gain in squared error of W over no relations, %"
    related, apart = errors.values.values()
    gains = [common.gain(label, gained, related[label], apart[label], None, "") for label in labels]
    protocol = (
        "Eight tasks, 40 rows each, 40 features of which 12 matter, signal-to-noise ratio 2; coefficients correlate by "
        "0.9, three tasks have the opposite sign, one is an outlier."
    )
    return Table("Task relations (section 4.3, simulated)", protocol, (*found.figures(), *gains))


# ---------------------------------------------------------------------- joint compressed sensing


def measure_signals(
    n_rows: int, seed: int, n: int = 50, p: int = 200, m: int = 5, decibel: float = 30.0
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """(n, p) dictionary A, (n, m) noisy measurements of W, and (p,) which rows of W are not zero."""
    rng = np.random.default_rng([seed, n_rows])
    A = rng.standard_normal((n, p)) / np.sqrt(n)
    W = np.zeros((p, m))
    W[rng.choice(p, n_rows, replace=False)] = rng.standard_normal((n_rows, m))
    signal = A @ W
    noise = np.sqrt(np.mean(signal**2)) * 10.0 ** (-decibel / 20.0)
    return A, signal + noise * rng.standard_normal((n, m)), W.any(axis=1)


def largest_rows_are_true(coef: FloatArray, truth: BoolArray) -> bool:
    """Whether the largest rows, as many as there are, are those that are not zero."""
    largest = np.argsort(-np.linalg.norm(coef, axis=0))[: truth.sum()]
    return bool(truth[largest].all())


def _mixed_norm_coefficients(A: FloatArray, Y: FloatArray) -> list[FloatArray]:
    path = mixed_norm_path(A, Y, n_penalties=30, penalty_ratio=3e-3, fit_intercept=False, tol=1e-4, progress=False)
    return list(path.coefs)


def _coefficients(model: Any) -> Callable[[FloatArray, FloatArray], list[FloatArray]]:
    return lambda A, Y: [model.fit(A, Y).coef_]


def compressed_sensing(effort: Zhang2010Effort, seed: int, advance: common.Advance) -> Table:
    """How often all rows are found."""
    routes = {
        "l1,2, best penalty": _mixed_norm_coefficients,
        "problem (5) by MM": _coefficients(GeneralizedNormalRegressor(fit_intercept=False, progress=False)),
        "PMTFS1 (EM)": _coefficients(JeffreysRegressor(fit_intercept=False, progress=False)),
        "PMTFS1, W integrated out": _coefficients(
            JeffreysRegressor(fit_intercept=False, coefficients="integrated", shared_noise=True, progress=False)
        ),
    }
    found = common.Findings()
    for n_rows, number in common.watched(product(effort.row_counts, range(effort.sensing_sets)), advance):
        A, Y, truth = measure_signals(n_rows, _set_seed(seed, number))
        for name, route in routes.items():
            hit = 100.0 * any(largest_rows_are_true(coef, truth) for coef in route(A, Y))
            found.add(f"{n_rows} rows: {name}", {"all rows found, %": hit})
    protocol = "50 measurements of 200 unknowns in five signals, 30 dB; found: the k largest rows are the k true ones."
    return Table("Joint compressed sensing (section 7, simulated)", protocol, found.figures())


PAPER = common.Paper(
    "zhang2010",
    "Zhang, Yeung, Xu (2010), Probabilistic multi-task feature selection",
    full=Zhang2010Effort(
        n_splits=10,
        n_penalties=30,
        n_folds=5,
        q_sets=20,
        q_methods=("two_stage", "integrated", "ecme", "paper"),
        relation_sets=20,
        row_counts=(10, 15, 20, 25, 30, 35, 40),
        sensing_sets=20,
    ),
    quick=Zhang2010Effort(2, 10, 3, 2, ("two_stage", "paper"), 2, (15, 25, 35), 2),
    jobs={
        "Breast cancer": breast,
        "Prostate cancer": prostate,
        "Prostate cancer, Singh": singh,
        "Learning q": learning_q,
        "Units": units_of_the_printed_rule,
        "Task relations": task_relations,
        "Compressed sensing": compressed_sensing,
    },
    remarks=REMARKS,
)
