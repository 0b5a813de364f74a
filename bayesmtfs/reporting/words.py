"""A fit in words: its name, its model in one formula and one sentence, what was chosen, and a paragraph for a paper.

Formulas are HTML, put together from constants of this file only.
"""

import math
from typing import Any, NamedTuple

from bayesmtfs.families import base_name
from bayesmtfs.plots.axes import result_of
from bayesmtfs.results.fit_result import FitResult
from bayesmtfs.results.sharing import counts_in_words
from bayesmtfs.results.tables import INTERVAL

W, ROW = "<i>w<sub>it</sub></i>", "<i>w<sup>i</sup></i>"
ETA = "<i>η</i> = <i>x</i>′<i>w<sub>t</sub></i> + <i>b<sub>t</sub></i>"
GN = f"{W} ~ GN(0, <i>ρ<sub>i</sub></i>, <i>q</i>)"

SOURCES = {
    "obozinski": "Obozinski, Taskar, Jordan (2006). Multi-task feature selection. Technical report, UC Berkeley.",
    "zhang": "Zhang, Yeung, Xu (2010). Probabilistic multi-task feature selection. NIPS 23.",
    "yang": "Yang, King, Lyu (2010). Online learning for multi-task feature selection. CIKM 2010.",
    "murugesan": "Murugesan, Liu, Carbonell, Yang (2016). Adaptive smoothed online multi-task learning. NIPS 29.",
    "piironen": "Piironen, Vehtari (2017). Sparsity information and regularization in the horseshoe and other shrinkage "
    "priors. Electronic Journal of Statistics 11.",
    "mitchell": "Mitchell, Beauchamp (1988). Bayesian variable selection in linear regression. Journal of the American "
    "Statistical Association 83.",
    "vehtari": "Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021). Rank-normalization, folding, and localization: an "
    "improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16.",
    "loo": "Vehtari, Gelman, Gabry (2017). Practical Bayesian model evaluation using leave-one-out cross-validation and "
    "WAIC. Statistics and Computing 27.",
}
OBSERVED = {
    "squared": ("<i>y</i> ~ N(<i>η</i>, <i>σ<sub>t</sub></i>²)", "numbers with normal noise"),
    "absolute": ("<i>y</i> ~ Laplace(<i>η</i>, <i>σ<sub>t</sub></i>)", "numbers with absolute loss"),
    "logistic": ("P(<i>y</i> = 1) = 1 / (1 + e<sup>−<i>η</i></sup>)", "two classes with the logistic link"),
    "hinge": ("loss (1 − <i>yη</i>)<sub>+</sub>", "two classes with the hinge loss"),
    "poisson": ("<i>y</i> ~ Poisson(e<sup><i>η</i></sup>)", "counts with the log link"),
    "negative_binomial": (
        "<i>y</i> ~ NegBin(e<sup><i>η</i></sup>, <i>α</i>)",
        "overdispersed counts with the log link",
    ),
    "student_t": ("<i>y</i> ~ <i>t<sub>ν</sub></i>(<i>η</i>, <i>σ<sub>t</sub></i>)", "numbers with Student's t noise"),
    "ordinal": (
        "P(<i>y</i> ≤ <i>k</i>) = 1 / (1 + e<sup>−(<i>c<sub>tk</sub></i> − <i>η</i>)</sup>)",
        "ordered classes with the logistic link",
    ),
    "multinomial": ("P(<i>y</i> = <i>k</i>) ∝ e<sup><i>η<sub>k</sub></i></sup>", "several classes"),
    "cox": ("hazard <i>h<sub>t</sub></i>(time) e<sup><i>η</i></sup>", "survival times with proportional hazards"),
    "huber": ("Huber's loss of <i>y</i> − <i>η</i>", "numbers with Huber's loss"),
    "quantile": ("a quantile of <i>y</i> is <i>η</i>", "a quantile of numbers"),
}


class Described(NamedTuple):
    """A method in words."""

    title: str
    formula: str  # HTML
    sentence: str
    sources: tuple[str, ...] = ()


def norm_name(q: Any) -> str:
    """A norm as people write it.

    Examples
    --------
    >>> norm_name(2), norm_name(float("inf")), norm_name([1, 2])
    ('l1,2', 'l1,∞', 'l1,q')
    """
    if isinstance(q, list | tuple) or q is None or isinstance(q, str):
        return "l1,q"
    return "l1,∞" if math.isinf(float(q)) else f"l1,{float(q):g}"


def describe(fit: Any) -> Described:
    """A fit's method: name, model and sources."""
    result = result_of(fit)
    method, settings = result.method, result.settings
    q = chosen_q(fit)
    learned = " with q learned" if settings.get("norm_q") == "learn" else ""
    if method.startswith("MixedNorm"):
        return _penalised(result, q)
    if method.startswith("Bayesian"):
        return _posterior(result, learned)
    if method.startswith("Jeffreys"):
        return Described(
            f"EM under Jeffreys scales{learned}",
            f"{GN}, p(<i>ρ<sub>i</sub></i>) ∝ 1/<i>ρ<sub>i</sub></i>",
            "Each feature has a scale of its own with a Jeffreys prior; EM finds the coefficients and drops the features "
            "whose scale goes to zero.",
            ("zhang",),
        )
    if method.startswith("MatrixVariate"):
        return Described(
            f"EM with correlated tasks{learned}",
            f"{ROW} ~ GN(0, <i>ρ<sub>i</sub></i> Ω, <i>q</i>)",
            "Each feature has a scale of its own, and the tasks' coefficients are correlated; EM learns both.",
            ("zhang",),
        )
    if method.startswith("GeneralizedNormal"):
        return Described(
            "Mode under generalized normal rows",
            f"min loss/<i>σ</i>² + <i>m</i> Σ<sub><i>i</i></sub> ln(‖{ROW}‖<sub><i>q</i></sub> + ε)",
            "Each feature's coefficients follow a generalized normal distribution whose scale is at its best value; this "
            "penalises the logarithm of a feature's norm.",
            ("zhang",),
        )
    if method.startswith("OnlineMixedNorm"):
        return Described(
            "Online fit by dual averaging",
            f"min mean loss + <i>λ</i> Σ<sub><i>i</i></sub> penalty({ROW})",
            "Rows are learned one after the other; the average gradient is thresholded feature by feature.",
            ("yang",),
        )
    if "Smoothed" in method:
        return Described(
            f"{'Online' if method.startswith('Online') else 'Batch'} fit with relations between tasks",
            "loss of a task + <i>λ</i> Σ<sub><i>u</i></sub> <i>p<sub>tu</sub></i> loss of its model on task <i>u</i>",
            "Every task also learns from the rows of related tasks; the relations are learned.",
            ("murugesan",),
        )
    return Described(f"Fit by {method}", ETA, "A linear model per task.")


def _penalised(result: FitResult, q: Any) -> Described:
    settings = result.settings
    sparsity = settings.get("task_sparsity") or 0.0
    name = "sparse-group" if sparsity else norm_name(q)
    by_folds = result.method.endswith("CV")
    criterion = settings.get("criterion", "cv")
    how = (
        ""
        if not by_folds
        else ", penalty by cross-validation"
        if criterion == "cv"
        else f", penalty by {criterion.upper()}"
    )
    scale = "(1/<i>n<sub>t</sub></i>) " if settings.get("loss_scale", "mean") == "mean" else ""
    penalty = f"(<i>r</i> ‖{ROW}‖<sub>1</sub> + ‖{ROW}‖<sub>2</sub>)" if sparsity else f"‖{ROW}‖<sub>{_index(q)}</sub>"
    one_by_one = not sparsity and q == 1
    entries = bool(sparsity) or one_by_one
    sentence = "The loss of all tasks is minimised together with a penalty on each feature's coefficients, " + (
        "so that a feature may enter for some tasks only."
        if entries
        else "so that a feature enters for all tasks at once: this penalty does not say in which tasks."
    )
    mean = "; the tasks share a mean, around which the rows are penalised" if settings.get("shared_mean") else ""
    return Described(
        f"Penalised fit, {name}{how}",
        f"min Σ<sub><i>t</i></sub> {scale}Σ loss + <i>λ</i> Σ<sub><i>i</i></sub> {penalty}",
        sentence[:-1] + mean + ".",
        ("obozinski", "yang") if sparsity else ("obozinski",),
    )


def _index(q: Any) -> str:
    if q is None or isinstance(q, str | list | tuple):
        return "<i>q</i>"
    return "∞" if math.isinf(float(q)) else f"{float(q):g}"


def _posterior(result: FitResult, learned: str) -> Described:
    prior = str(result.settings.get("prior", ""))
    rows = "Each feature has a scale of its own, learned with all else; the draws say how sure every effect is."
    known = {
        "spike": Described(
            "Posterior with exact zeros",
            f"{W} = <i>s<sub>it</sub></i> (<i>μ<sub>i</sub></i> + <i>v<sub>it</sub></i>), <i>s<sub>it</sub></i> ∈ {{0, 1}}",
            "A feature is in the model or not, in every task by itself; which tasks go together, and how alike their "
            "effects are, is learned. The draws give the probability of each.",
            ("mitchell",),
        ),
        "generalized_normal": Described(
            f"Posterior under generalized normal rows{learned}",
            f"{GN}, <i>ρ<sub>i</sub></i>² ~ <i>τ</i>² BetaPrime",
            rows,
            ("zhang",),
        ),
        "jeffreys": Described(
            f"Posterior under log-uniform scales{learned}", f"{GN}, ln <i>ρ<sub>i</sub></i> uniform", rows, ("zhang",)
        ),
        "matrix_variate": Described(
            f"Posterior with correlated tasks{learned}",
            f"{ROW} ~ GN(0, <i>ρ<sub>i</sub></i> Ω, <i>q</i>)",
            "Each feature has a scale of its own, and the tasks' coefficients are correlated.",
            ("zhang",),
        ),
        "mixed_norm": Described(
            "Posterior under the mixed-norm prior",
            f"p({ROW}) ∝ exp(−<i>λ</i> ‖{ROW}‖<sub><i>q</i></sub>)",
            "The prior whose mode is the penalised fit.",
            ("obozinski",),
        ),
        "horseshoe": Described(
            "Posterior under the group horseshoe",
            f"{W} ~ N(0, <i>ρ<sub>i</sub></i>²), <i>ρ<sub>i</sub></i> regularised half-Cauchy",
            rows,
            ("piironen",),
        ),
    }
    return known.get(prior, Described("Posterior", ETA, "Draws from the posterior."))


def model_of_targets(result: FitResult) -> tuple[str, str]:
    """Formula (HTML) and words of the targets."""
    loss = str(result.settings.get("loss", "squared"))
    formula, words = OBSERVED.get(base_name(loss), ("", f"targets of the family {loss}"))
    return (f"{formula}, {ETA}" if formula else ETA), words


def chosen_q(fit: Any) -> Any:
    """The q of a fit: learned, chosen by folds, or stated; None where it has none."""
    learned = getattr(fit, "norm_q_", None)
    return result_of(fit).settings.get("norm_q") if learned is None else learned


def choices(fit: Any) -> dict[str, str]:
    """What was chosen or learned: penalty, q, the share of features, relations."""
    result = result_of(fit)
    found = {}
    strength = getattr(fit, "penalty_strength_", result.settings.get("penalty_strength"))
    if isinstance(strength, int | float):
        found["penalty strength"] = f"{strength:.4g}"
    q, stated = chosen_q(fit), result.settings.get("norm_q")
    if isinstance(q, int | float) and result.settings.get("prior") != "spike":  # whose rows have no q
        interval = getattr(fit, "norm_q_interval_", None) if stated == "learn" else None
        how = "learned" if stated == "learn" else "chosen" if isinstance(stated, list | tuple) else "fixed"
        ends = f", {INTERVAL:.0%} interval {interval[0]:.3g} to {interval[1]:.3g}" if interval is not None else ""
        found["q, how tasks share a feature"] = f"{float(q):.3g} ({how}{ends})"
    if isinstance(getattr(fit, "ridge_", None), int | float) and fit.ridge_ > 0:
        found["ridge"] = f"{fit.ridge_:.3g}"
    return found


def diagnosis(fit: Any) -> tuple[str, bool]:
    """How the computation ended, in a sentence, and whether that is in order."""
    result = result_of(fit)
    known = getattr(fit, "diagnostics_", None)
    if known is None or not known.table:
        return result.convergence.verdict(), result.convergence.converged
    rhat = known.largest_rhat
    least = min(min(row.ess_bulk, row.ess_tail) for row in known.table)
    divergences = "" if known.divergences is None else f", {known.divergences} divergences"
    facts = f"largest R-hat {rhat:.3f}, fewest effective draws {least:.0f}{divergences}"
    problems = known.problems()
    if not problems and result.convergence.converged:
        return f"{facts}; {result.convergence.message}", True
    return f"{facts}; {'; '.join(problems) or result.convergence.verdict()}", False


def methods_paragraph(fit: Any, errors: str = "") -> tuple[str, list[str]]:
    """Sentences for the methods section of a paper, and what they cite."""
    result = result_of(fit)
    described = describe(fit)
    settings = result.settings
    cited = list(described.sources)
    rows = f", {settings['n_rows']} observations" if "n_rows" in settings else ""
    tasks = f"{result.n_tasks} tasks" if result.n_tasks > 1 else "one task"
    parts = [
        f"We fitted {tasks}{rows} and {result.n_features} features together ({described.title[0].lower()}"
        f"{described.title[1:]}; targets: {model_of_targets(result)[1]}).",
        described.sentence,
    ]
    if settings.get("standardize"):
        parts.append("Features were centred and scaled within tasks.")
    found = choices(fit)
    if found:
        parts.append(f"{'; '.join(f'{name}: {value}' for name, value in found.items())}.".capitalize())
    if result.posterior is not None:
        facts, good = diagnosis(fit)
        parts.append(
            f"Convergence was judged by rank-normalised R-hat and effective sample sizes ({facts.rstrip('.')}; "
            f"{'no problem was found' if good else 'problems remain'}). A feature counts as selected when it is in the "
            f"model with probability over {settings.get('inclusion_threshold', 0.5):g}; intervals are central with "
            f"probability {INTERVAL:.0%}."
        )
        cited.append("vehtari")
    counts = counts_in_words(result.sharing)
    parts.append(
        f"Of {result.n_features} features {int(result.selected.sum())} were selected{f' ({counts})' if counts else ''}."
    )
    if errors:
        parts.append(errors)
        cited += ["loo"] if result.posterior is not None and "leave-one-out" in errors else []
    versions = result.versions
    names = [name for name in ("bayesmtfs", "python", "numpy", "scikit-learn", "pymc") if name in versions]
    if names:
        parts.append(f"Software: {', '.join(f'{name} {versions[name]}' for name in names)}.")
    return " ".join(parts), [SOURCES[key] for key in dict.fromkeys(cited)]
