"""Are the posteriors what they say? Simulation-based calibration of the Gibbs sampler and of the PyMC models.

    python benchmarks/calibration.py [--fits 200] [--recovery 10] [--models 20] [--discoveries 200] [--plot ranks.png]
    python benchmarks/calibration.py --fits 100 --models 100 --only "Student|counts|poisson|cox"

Parameters are drawn from the prior, targets from the parameters, and a posterior is drawn for each (Talts, Betancourt,
Simpson, Vehtari and Gelman 2018, arXiv 1804.06788). Then

- the rank of every true value among its draws is uniform (chi-square test over all fits, and a plot of the ECDFs);
- 89% intervals cover 89% of the truth;
- of the effects with a local false sign rate below 0.05, at most 5% have the wrong sign.

``--recovery`` asks whether 90% intervals of q hold the truth where data are simulated with a given q and only some
features matter, from two chains each, whose R-hat is printed too; for normal targets and for labels. ``--discoveries``
counts the false ones in sets with a Bayesian false discovery rate of 10%, on data from the prior. ``--models`` does the
same as above for every model with a proper prior, sampled by NUTS. ``--only`` takes the cases whose titles a regular
expression finds. Seconds are CPU time.

Times of Cox's model are exponential, the last third of each task censored. What a partial likelihood knows of them is
their order alone, so that the compiled model keeps its times and the rows of X come in the order of those drawn.
"""

import argparse
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from arviz_stats.base import array_stats
from matplotlib.figure import Figure
from prior_draws import FloatArray, Parameters, draw_parameter, draw_parameters, draw_targets
from scipy import special, stats

from bayesmtfs.data.classes import class_tasks
from bayesmtfs.data.scaling import effect_unit
from bayesmtfs.data.simulation import simulate_tasks
from bayesmtfs.data.tasks import TaskData
from bayesmtfs.families import Family, find_family
from bayesmtfs.gibbs.chain import ChainSettings, PosteriorDraws, sample_chain
from bayesmtfs.priors.hyperpriors import Hyperprior, hyperprior_for
from bayesmtfs.selection.discoveries import Of, largest_set, size_errors

RANKS = 99  # draws among which the truth is ranked
INTERVAL = 0.89
CHECKED = ("coef", "intercept", "noise", "thresholds", "row_scale", "global_scale", "norm_q", "task_relations")
LARGEST_TARGET = 1e6  # counts beyond it, which a tail of the prior makes, take all of a fit's time
CONFIDENT = 0.05  # local false sign rate below which a sign is claimed
OF: tuple[Of, Of] = ("features", "entries")
TRUE_EXPONENTS = (1.2, 2.0, 4.0, 10.0)


class Fit(NamedTuple):
    """What one posterior says of the truth behind its data, entry by entry."""

    ranks: dict[str, FloatArray]  # number of draws below the truth, 0 to RANKS
    covered: FloatArray  # coefficients within their intervals
    claimed: FloatArray  # coefficients of which a sign is claimed
    wrong: FloatArray  # claims that are wrong


class Summary(NamedTuple):
    """Calibration over many fits."""

    fits: int
    coverage: float
    coverage_error: float  # standard error, fits taken as independent
    claims: int
    wrong_share: float
    wrong_error: float
    rank_p_values: dict[str, float]


class Discovered(NamedTuple):
    """Discoveries over many fits."""

    kept: int
    false_share: float
    expected_share: float  # by the posteriors
    error: float  # standard error of the difference of the shares, fits taken as independent


def check(truth: dict[str, Any], draws: dict[str, FloatArray]) -> Fit:
    """Compare the truth with draws, (draws, ...) per name; ``coef`` must be among them."""
    ranks = {}
    for name, value in truth.items():
        kept = _thinned(draws[name])
        ranks[name] = np.sum(kept < np.asarray(value), axis=0).ravel()
    coef, true = draws["coef"], np.asarray(truth["coef"])
    low, high = np.quantile(coef, [0.5 - 0.5 * INTERVAL, 0.5 + 0.5 * INTERVAL], axis=0)
    below = np.mean(coef < 0.0, axis=0)
    claimed = np.minimum(below, 1.0 - below) < CONFIDENT
    wrong = claimed & (np.where(below > 0.5, -1.0, 1.0) != np.sign(true))
    return Fit(ranks, ((low <= true) & (true <= high)).ravel(), claimed.ravel(), wrong.ravel())


def summarize(fits: Sequence[Fit]) -> Summary:
    """Coverage, wrong signs and p-values of uniform ranks; entries of one fit are not independent, fits are."""
    covered = np.array([np.mean(fit.covered) for fit in fits])
    claims = np.array([np.sum(fit.claimed) for fit in fits])
    wrong = np.array([np.sum(fit.wrong) for fit in fits])
    total = max(int(claims.sum()), 1)
    share = wrong.sum() / total
    wrong_error = np.sqrt(np.sum((wrong - share * claims) ** 2)) / total
    # one entry per fit, so that ranks are independent
    p_values = {
        name: uniformity(np.array([fit.ranks[name][k % len(fit.ranks[name])] for k, fit in enumerate(fits)]))
        for name in fits[0].ranks
    }
    error = float(covered.std(ddof=1) / np.sqrt(len(fits)))
    return Summary(len(fits), float(covered.mean()), error, int(claims.sum()), float(share), wrong_error, p_values)


def uniformity(ranks: FloatArray) -> float:
    """P-value of a chi-square test that ranks 0 .. RANKS are uniform, in at most ten bins of at least ten expected."""
    bins = int(np.clip(len(ranks) // 10, 2, 10))
    counts = np.histogram((ranks + 0.5) / (RANKS + 1), bins=bins, range=(0.0, 1.0))[0]
    return float(stats.chisquare(counts).pvalue)


def design(random_state: int, n_tasks: int = 5, n_features: int = 8) -> TaskData:
    """Observations without targets: 15 to 40 rows per task, correlated features."""
    rng = np.random.default_rng(random_state)
    sizes = rng.integers(15, 41, n_tasks).tolist()
    sim = simulate_tasks(
        n_tasks=n_tasks, n_features=n_features, n_samples=sizes, n_relevant=1, design="ar", random_state=random_state
    )
    return sim.data


def design_for(loss: str, random_state: int) -> TaskData:
    """Observations without targets; of several classes those of three tasks and three classes."""
    if not find_family(loss).coupled:
        return design(random_state)
    data = design(random_state, n_tasks=3, n_features=5)
    return class_tasks(data.with_target(np.arange(data.n_observations) % 3.0), np.arange(3))


def posteriors_from_prior(
    count: int,
    norm_q: float | None,
    prior: Hyperprior,
    draws: int = 1200,
    random_state: int = 0,
    loss: str = "squared",
) -> Iterator[tuple[TaskData, Parameters, PosteriorDraws]]:
    """Data from the prior, the truth behind them, and draws of the Gibbs sampler."""
    draw = {"logistic": draw_labels, "squared": draw_targets}.get(loss, partial(draw_from_family, find_family(loss)))
    for seed in range(random_state, random_state + count):
        rng, data = np.random.default_rng([seed, 1]), design_for(loss, seed)
        targets = np.full(1, np.inf)
        while np.abs(targets).max() > LARGEST_TARGET:  # what is left out by the targets alone leaves posteriors right
            truth = draw_parameters(rng, prior, data.n_features, data.n_tasks, norm_q)
            truth = truth._replace(parameter=draw_parameter(rng, loss, data.n_tasks, prior.shared_noise))
            targets = draw(rng, data, truth)
        data = data.with_target(targets)
        settings = ChainSettings(draws=draws, tune=draws // 2, random_seed=seed, norm_q=norm_q)
        yield data, truth, sample_chain(data, prior, settings, loss=loss)


def draw_labels(rng: np.random.Generator, data: TaskData, parameters: Parameters) -> FloatArray:
    """(N,) Labels -1 and +1 given the parameters."""
    chance = special.expit(data.linear_predictor(parameters.W, parameters.intercept))
    return np.where(rng.random(data.n_observations) < chance, 1.0, -1.0)


def draw_from_family(family: Family, rng: np.random.Generator, data: TaskData, parameters: Parameters) -> FloatArray:
    """(N,) Targets of a family given the parameters."""
    if parameters.parameter is not None:
        family = family.given(parameters.parameter[data.task])
    eta = data.linear_predictor(parameters.W, parameters.intercept)
    return family.on(data.y, data.weight, data.offsets).draw(rng, eta, parameters.noise[data.task])


def gibbs_fits(
    count: int,
    norm_q: float | None,
    prior: Hyperprior,
    draws: int = 1200,
    random_state: int = 0,
    loss: str = "squared",
) -> Iterator[Fit]:
    """Fits of data from the prior by the Gibbs sampler."""
    for _, truth, found in posteriors_from_prior(count, norm_q, prior, draws, random_state, loss):
        wanted = {"coef": truth.W, "intercept": truth.intercept, "row_scale": truth.row_scales}
        if find_family(loss).has_noise:
            wanted["noise"] = truth.noise
        if truth.parameter is not None:
            wanted["parameter"] = truth.parameter
        if prior.kind == "beta_prime":
            wanted["global_scale"] = np.asarray(truth.global_scale)
        if norm_q is None:
            wanted["norm_q"] = np.asarray(truth.norm_q)
        if prior.mean_scale > 0.0:
            wanted["mean_coef"] = truth.mean_coef
        yield check(wanted, named(found))


def false_discoveries(
    count: int,
    norm_q: float | None,
    prior: Hyperprior,
    effect_size: float = 0.05,
    level: float = 0.1,
    draws: int = 1200,
    random_state: int = 0,
) -> dict[Of, Discovered]:
    """Sets with a Bayesian false discovery rate of ``level`` on data from the prior: how many of them are false."""
    counts: dict[Of, list[tuple[int, int, float]]] = {of: [] for of in OF}
    for data, truth, found in posteriors_from_prior(count, norm_q, prior, draws, random_state):
        unit = effect_unit(data, scale_target=True)
        for of in OF:
            error = size_errors(found.W * unit, effect_size, of).mean(axis=0)
            chosen = largest_set(error, level)
            false = size_errors((truth.W * unit)[np.newaxis], effect_size, of)[0]
            counts[of].append((int(chosen.sum()), int(false[chosen].sum()), float(error[chosen].sum())))
    return {of: _discovered(*np.transpose(counts[of])) for of in OF}


def _discovered(kept: FloatArray, false: FloatArray, expected: FloatArray) -> Discovered:
    total = max(float(kept.sum()), 1.0)
    error = float(np.sqrt(np.sum((false - expected) ** 2))) / total
    return Discovered(int(kept.sum()), float(false.sum()) / total, float(expected.sum()) / total, error)


def named(draws: PosteriorDraws) -> dict[str, FloatArray]:
    """Draws under the names that every posterior of the package has."""
    return {
        "coef": draws.W,
        "intercept": draws.intercept,
        "noise": draws.noise,
        "row_scale": draws.row_scales,
        "global_scale": draws.global_scale,
        "norm_q": draws.norm_q,
        "mean_coef": draws.mean,
    } | ({} if draws.parameter is None else {"parameter": draws.parameter})


class Recovery(NamedTuple):
    """How a true q is found in many fits."""

    share: float  # of the 90% intervals that hold it
    medians: FloatArray  # (fits,)
    r_hats: FloatArray  # (fits,) of 1/q


def exponent_recovery(n_tasks: int, count: int, draws: int = 1000, loss: str = "squared") -> dict[float, Recovery]:
    """For each true q: whether 90% intervals hold it, from two chains per fit; 4 of 10 features matter.

    The row scales have half-Cauchy priors whatever q (``scale_power=2``): with the exponent q their spread would be
    pi / q, which a sparse truth contradicts at large q.
    """
    found = {}
    kind: Any = "classification" if loss == "logistic" else "regression"
    sizes = {"n_tasks": n_tasks, "n_features": 10, "n_samples": 50, "n_relevant": 4}
    for norm_q in TRUE_EXPONENTS:
        intervals, r_hats = [], []
        for seed in range(count):
            data = simulate_tasks(**sizes, norm_q=norm_q, snr=5.0, kind=kind, random_state=seed).data
            prior = hyperprior_for(data, loss, scale_power=2.0)
            settings = [ChainSettings(draws, draws // 2, 2 * seed + k, norm_q=None) for k in range(2)]
            chains = np.stack([sample_chain(data, prior, one, loss=loss).norm_q for one in settings])
            intervals.append(np.quantile(chains, [0.05, 0.5, 0.95]))
            r_hats.append(float(array_stats.rhat(1.0 / chains, chain_axis=0, draw_axis=1, method="rank")))
        low, middle, high = np.transpose(intervals)
        found[norm_q] = Recovery(float(np.mean((low <= norm_q) & (norm_q <= high))), middle, np.array(r_hats))
    return found


NewData = Callable[[np.random.Generator, dict[str, FloatArray]], dict[str, FloatArray]]  # from draws of the prior


def model_fits(
    model: Any, count: int, draws: int = 400, random_seed: int = 0, new_data: NewData | None = None
) -> Iterator[Fit]:
    """Fits of data from the prior of a PyMC model by NUTS; the model is compiled once and only its data change.

    Targets are those of the model's own prior predictive draws, or what ``new_data`` gives.
    """
    import nutpie
    import pymc as pm

    names = [name for name in CHECKED if _learned(model, name)]
    rng = np.random.default_rng([random_seed, 6])
    with model:
        needed = None if new_data is None else list(dict.fromkeys([*names, "intercept"]))
        tree = pm.sample_prior_predictive(2 * count, var_names=needed, random_seed=random_seed)
    prior = tree["prior"].dataset.isel(chain=0)
    if "thresholds" in prior:  # equal normal variables in rising order
        prior["thresholds"].values.sort(axis=-1)
    changes = []
    for k in range(2 * count):
        if new_data is None:
            found = {"target": tree["prior_predictive"].dataset["y"].isel(chain=0, draw=k).values.astype(np.float64)}
        else:
            found = new_data(rng, {name: prior[name].isel(draw=k).values for name in prior})
        if max(np.abs(values).max() for values in found.values()) <= LARGEST_TARGET:
            changes.append((k, found))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compilers, about themselves
        compiled = nutpie.compile_pymc_model(model, var_names=names)
    for k, changed in changes[:count]:
        swapped = compiled.with_data(**changed)
        sampled = nutpie.sample(
            swapped, draws=draws, tune=draws, chains=1, seed=random_seed + k, progress_bar=False, target_accept=0.9
        )
        posterior = sampled["posterior"].dataset.isel(chain=0)
        truth = {name: _entries(name, prior[name].isel(draw=k).values) for name in names}
        yield check(truth, {name: _entries(name, posterior[name].values) for name in names})


def nuts_models() -> dict[str, Callable[[], tuple[Any, NewData | None]]]:
    """Small models for `model_fits`, over one design, by name; each is built when it is called."""
    return {title: partial(_without_data, build) for title, build in _plain_models().items()} | {
        title: partial(_family_model, loss, settings) for title, (loss, settings) in NUTS_FAMILIES.items()
    }


def _without_data(build: Callable[[], Any]) -> tuple[Any, NewData | None]:
    return build(), None


SETTINGS = {"global_scale": 0.3, "tail_shape": 1.5}
NUTS_FAMILIES: dict[str, tuple[str, dict[str, float]]] = {
    "NUTS, poisson": ("poisson", {"global_scale": 0.2, "tail_shape": 1.5}),
    "NUTS, huber": ("huber", SETTINGS | {"noise_scale": 1.0}),
    "NUTS, student_t(3)": ("student_t(3)", SETTINGS | {"noise_scale": 1.0}),
    "NUTS, negative_binomial(0.5)": ("negative_binomial(0.5)", {"global_scale": 0.2, "tail_shape": 1.5}),
    "NUTS, ordinal": ("ordinal", SETTINGS),
    "NUTS, multinomial": ("multinomial", SETTINGS),
    "NUTS, cox": ("cox", SETTINGS),
}


def _family_model(loss: str, settings: dict[str, float]) -> tuple[Any, NewData]:
    """Model of a family over three tasks and four features (of several classes two tasks and three), and how data arise."""
    from bayesmtfs import models

    family = find_family(loss)
    few = family.coupled and family.targets == "labels" and not family.has_cuts
    data = design(0, n_tasks=2 if few else 3, n_features=3 if few else 4)
    place = np.arange(data.n_observations)
    y = np.ones(data.n_observations)
    if family.targets == "labels":
        data = data.with_target((place % 3).astype(float))
        data = class_tasks(data, np.arange(3)) if few else data
    elif family.targets == "survival":
        starts = np.repeat(data.offsets[:-1], np.diff(data.offsets))
        rank = place - starts + 1.0
        y = np.where(rank <= np.ceil(2 / 3 * np.repeat(np.diff(data.offsets), np.diff(data.offsets))), rank, -rank)
        data = data.with_target(y)
    else:
        data = data.with_target(y)
    model = models.generalized_normal_model(
        data, 2, loss, fit_intercept=not (family.has_cuts or family.free_level), **settings
    )
    rows = family.on(data.y, data.weight, data.offsets)

    def new_data(rng: np.random.Generator, truth: dict[str, FloatArray]) -> dict[str, FloatArray]:
        eta = data.linear_predictor(truth["coef"], truth["intercept"])
        if family.targets == "survival":
            order = np.lexsort((rng.exponential(np.exp(-eta)), data.task))
            return {"X": np.asarray(data.X)[order]}
        known = family.given(truth["thresholds"][data.task]) if family.has_cuts else rows
        noise = truth["noise"][data.task] if family.has_noise else 1.0
        return {"target": known.draw(rng, eta, noise)}

    return model, new_data


def _plain_models() -> dict[str, Callable[[], Any]]:
    """Models of normal targets and labels."""
    from bayesmtfs import models

    data = design(0, n_tasks=3, n_features=4)
    labels = data.with_target(np.where(np.arange(data.n_observations) % 2, 1.0, -1.0))
    settings = {"global_scale": 0.3, "tail_shape": 1.5}
    squared = {"noise_scale": 1.0, **settings}
    bounds = (0.05, 2.0)
    # the mixed-norm model has flat intercepts, which cannot be drawn
    mixed = partial(models.mixed_norm_model, penalty_strength=2.0, loss_scale="sum", fit_intercept=False)
    return {
        "generalized_normal": partial(models.generalized_normal_model, data, "learn", **squared),
        "generalized_normal, logistic": partial(models.generalized_normal_model, labels, 2, "logistic", **settings),
        "jeffreys": partial(models.jeffreys_model, data, bounds, noise_scale=1.0),
        "jeffreys, logistic": partial(models.jeffreys_model, labels, bounds, loss="logistic"),
        "matrix_variate": partial(models.matrix_variate_model, data, **squared),
        "matrix_variate, logistic": partial(models.matrix_variate_model, labels, loss="logistic", **settings),
        "mixed_norm": partial(mixed, data),
        "mixed_norm, logistic": partial(mixed, labels, loss="logistic"),
        "horseshoe": partial(models.horseshoe_model, data, **squared),
        "horseshoe, logistic": partial(models.horseshoe_model, labels, "logistic", **settings),
    }


def _learned(model: Any, name: str) -> bool:
    """Whether a model has a variable that is not a constant."""
    free = {variable.name for variable in model.free_RVs}
    sources = {"norm_q": {"inverse_norm_q"}, "noise": {"noise", "shared_noise"}, "intercept": {"intercept"}}
    return name in model.named_vars and bool(free & sources.get(name, free))


def _entries(name: str, values: FloatArray) -> FloatArray:
    """Values that are free: of correlations, those above the diagonal."""
    if name != "task_relations":
        return values
    above = np.triu_indices(values.shape[-1], 1)
    return values[..., above[0], above[1]]


def _thinned(draws: FloatArray) -> FloatArray:
    """RANKS draws, evenly spaced."""
    return draws[np.linspace(0, len(draws) - 1, RANKS).astype(int)]


def draw_ranks(panels: dict[str, Sequence[Fit]], path: Path) -> None:
    """Difference of each quantity's rank ECDF from the uniform one, with 95% bands (Kolmogorov-Smirnov)."""
    columns = min(len(panels), 4)
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(4.5 * columns, 3.6 * lines), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel()
    for empty in axes[len(panels) :]:
        empty.set_axis_off()
    grid = (np.arange(RANKS + 1) + 0.5) / (RANKS + 1)
    for axis, (title, fits) in zip(axes, panels.items(), strict=False):
        for name in fits[0].ranks:
            ranks = np.array([fit.ranks[name][k % len(fit.ranks[name])] for k, fit in enumerate(fits)])
            ecdf = np.mean((ranks[:, None] + 0.5) / (RANKS + 1) <= grid, axis=0)
            axis.step(grid, ecdf - grid, where="post", label=name)
        band = stats.kstwo(len(fits)).ppf(0.95)
        axis.fill_between([0, 1], -band, band, color="0.9", zorder=0)
        axis.set(title=f"{title} ({len(fits)} fits)", xlabel="rank / draws", ylabel="ECDF - uniform")
        axis.legend(fontsize="x-small")
    figure.savefig(path, dpi=120)


def describe(title: str, summary: Summary, seconds: float) -> str:
    """One line."""
    ranks = ", ".join(f"{name} {p:.2f}" for name, p in summary.rank_p_values.items())
    return (
        f"{title:32s} {summary.fits} fits in {seconds:.0f} s   {INTERVAL:.0%} intervals cover "
        f"{summary.coverage:.1%} +- {summary.coverage_error:.1%}   wrong signs {summary.wrong_share:.2%} +- "
        f"{summary.wrong_error:.2%} of {summary.claims}   p of ranks: {ranks}"
    )


GIBBS_CASES: dict[str, tuple[float | None, Hyperprior]] = {
    "q = 2, half-Cauchy": (2.0, Hyperprior(global_scale=0.3)),
    "q = 1, half-Cauchy": (1.0, Hyperprior(global_scale=0.3)),
    "q = inf, half-Cauchy": (np.inf, Hyperprior(global_scale=0.3)),
    "q = 4, half-Cauchy": (4.0, Hyperprior(global_scale=0.3, scale_power=2.0)),
    "q learned, half-Cauchy": (None, Hyperprior(global_scale=0.3, scale_power=2.0)),
    "q learned, shared mean": (None, Hyperprior(global_scale=0.3, mean_scale=0.5)),
    "q learned, beta prime": (None, Hyperprior(global_scale=0.3, tail_shape=1.0, spike_shape=1.0)),
    "q learned, log-uniform": (None, Hyperprior(kind="log_uniform", bounds=(0.01, 3.0))),
}
LABEL_PRIOR = Hyperprior(global_scale=0.5, tail_shape=1.0, intercept_scale=1.0)
LABEL_CASES: dict[str, tuple[float | None, Hyperprior]] = {
    "labels, q = 2": (2.0, LABEL_PRIOR),
    "labels, q = 4": (4.0, LABEL_PRIOR),
    "labels, q = inf": (np.inf, LABEL_PRIOR),
    "labels, q learned": (None, LABEL_PRIOR),
    "labels, q learned, log-uniform": (None, Hyperprior(kind="log_uniform", bounds=(0.05, 3.0), intercept_scale=1.0)),
}

FAMILY_PRIOR = Hyperprior(global_scale=0.3)
COUNT_PRIOR = Hyperprior(global_scale=0.2, tail_shape=1.5, intercept_centre=1.0, intercept_scale=1.0)
FAMILY_CASES: dict[str, tuple[str, float | None, Hyperprior]] = {
    "Student t, 3 degrees": ("student_t(3)", 2.0, FAMILY_PRIOR),
    "Student t, degrees learned": ("student_t(learn)", 2.0, FAMILY_PRIOR),
    "Student t, q learned": ("student_t(3)", None, FAMILY_PRIOR),
    "absolute": ("absolute", 2.0, FAMILY_PRIOR),
    "quantile 0.8": ("quantile(0.8)", 2.0, FAMILY_PRIOR),
    "quantile 0.1, q = 4": ("quantile(0.1)", 4.0, FAMILY_PRIOR),
    "counts, dispersion 0.5": ("negative_binomial(0.5)", 2.0, COUNT_PRIOR),
    "counts, dispersion learned": ("negative_binomial(learn)", 2.0, COUNT_PRIOR),
    "several classes": ("multinomial", 2.0, LABEL_PRIOR),
    "several classes, q learned": ("multinomial", None, LABEL_PRIOR),
}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=200, help="fits per case of the Gibbs sampler")
    parser.add_argument("--recovery", type=int, default=0, help="fits per true q and number of tasks")
    parser.add_argument("--models", type=int, default=0, help="fits per model that is sampled by NUTS")
    parser.add_argument("--discoveries", type=int, default=0, help="fits per case of the Gibbs sampler, for sets")
    parser.add_argument("--plot", type=Path, default=None, help="where to write the rank ECDFs")
    parser.add_argument("--only", default="", help="regular expression of the titles of cases")
    options = parser.parse_args()
    panels: dict[str, list[Fit]] = {}
    cases = {title: ("squared", *case) for title, case in GIBBS_CASES.items()}
    cases |= {title: ("logistic", *case) for title, case in LABEL_CASES.items()}
    for title, (loss, norm_q, prior) in (cases | FAMILY_CASES).items() if options.fits else ():
        if not re.search(options.only, title):
            continue
        begin = time.process_time()
        panels[title] = list(gibbs_fits(options.fits, norm_q, prior, loss=loss))
        print(describe(title, summarize(panels[title]), time.process_time() - begin), flush=True)
    for title, build in nuts_models().items() if options.models else ():
        if not re.search(options.only, title):
            continue
        begin, (model, new_data) = time.process_time(), build()
        panels[title] = list(model_fits(model, options.models, new_data=new_data))
        print(describe(title, summarize(panels[title]), time.process_time() - begin), flush=True)
    if options.plot is not None:
        draw_ranks(panels, options.plot)
    for n_tasks, loss in ((20, "squared"), (139, "squared"), (20, "logistic")) if options.recovery else ():
        for norm_q, (share, medians, r_hats) in exponent_recovery(n_tasks, options.recovery, loss=loss).items():
            print(
                f"{n_tasks} tasks, {loss} loss, q {norm_q}: 90% intervals cover {share:.0%}, "
                f"medians {np.round(medians, 2)}, largest R-hat of 1/q {r_hats.max():.3f}",
                flush=True,
            )
    for title, (q, prior) in GIBBS_CASES.items() if options.discoveries else ():
        for of, found in false_discoveries(options.discoveries, q, prior).items():
            print(
                f"{title:32s} {found.kept} {of} kept, {found.false_share:.1%} +- {found.error:.1%} false, "
                f"{found.expected_share:.1%} expected",
                flush=True,
            )


if __name__ == "__main__":
    main()
