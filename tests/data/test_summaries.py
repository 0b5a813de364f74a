"""Moments of published summaries: those of the rows, whatever their form, and a check that the parts fit together."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import linregress, norm

import bayesmtfs as bm
from bayesmtfs import moments
from bayesmtfs.types import DataWarning

SIZES = {"liver": 80, "blood": 200, "brain": 45}


def genotypes(rng, n, p, r=0.9):
    """(n, p) Counts 0, 1, 2 of a chain of correlated sites."""
    haplotypes = []
    for _ in range(2):
        latent = rng.standard_normal((n, p))
        for j in range(1, p):
            latent[:, j] = r * latent[:, j - 1] + np.sqrt(1 - r**2) * latent[:, j]
        haplotypes.append(latent < norm.ppf(np.linspace(0.2, 0.5, p)))
    return np.sum(haplotypes, axis=0, dtype=float)


def regressions(X, y):
    """Effects and standard errors of SciPy's regressions on each feature, and their z-scores."""
    found = [linregress(x, y) for x in X.T]
    effects, errors = (np.array([getattr(one, name) for one in found]) for name in ("slope", "stderr"))
    return effects, errors, effects / errors


@pytest.fixture(scope="module")
def rows():
    """Rows of three tasks with levels, units and sizes of their own, and what regressions on them say."""
    rng = np.random.default_rng(4)
    data = {}
    for task, n in SIZES.items():
        X = genotypes(rng, n, 6) * np.array([1.0, 30.0, 0.1, 1.0, 2.0, 1.0]) + rng.normal(0, 50)
        data[task] = X, X[:, 1] / 40 + 7 * X[:, 2] + rng.standard_normal(n) + 100 * rng.standard_normal()
    return data


@pytest.fixture(scope="module")
def summary(rows):
    found = {task: regressions(X, y) for task, (X, y) in rows.items()}
    return {
        "effects": {task: one[0] for task, one in found.items()},
        "standard_errors": {task: one[1] for task, one in found.items()},
        "correlation": {task: np.corrcoef(X.T) for task, (X, _) in rows.items()},
        "n": SIZES,
    }


@pytest.fixture(scope="module")
def whole(rows):
    X, y = (np.concatenate([pair[k] for pair in rows.values()]) for k in (0, 1))
    return moments.from_arrays(X, y, np.repeat(list(SIZES), list(SIZES.values())))


def test_summaries_of_rows_have_the_moments_of_the_rows(rows, summary, whole):
    heights = {task: y.std() for task, (_, y) in rows.items()}
    widths = {task: X.std(axis=0) for task, (X, _) in rows.items()}
    z = {task: summary["effects"][task] / summary["standard_errors"][task] for task in SIZES}
    plain = {"correlation": summary["correlation"], "n": SIZES}
    for found in (
        moments.from_summary(**summary, target_deviation=heights),
        moments.from_summary(z, **plain, target_deviation=heights, feature_deviations=widths),
    ):
        assert found.task_names.tolist() == ["blood", "brain", "liver"]  # sorted, as of rows
        np.testing.assert_array_equal(found.n_rows, whole.n_rows)
        np.testing.assert_allclose(found.scatters, whole.scatters, rtol=1e-8)
        assert found.present is None and (found.means == 0).all()


def test_coefficients_are_in_the_units_of_the_effects(rows, summary):
    """Least squares of rows and of summaries without any deviation: the standard errors hold the units."""
    found = moments.from_summary(**summary)
    for t, task in enumerate(found.task_names.tolist()):
        X, y = rows[task]
        slopes = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y)[0][:-1]
        S = found.scatters[t]
        np.testing.assert_allclose(np.linalg.solve(S[:-1, :-1], S[:-1, -1]), slopes, rtol=1e-7)


def test_forms_of_the_same_summaries(summary):
    order = sorted(SIZES)
    z = {task: summary["effects"][task] / summary["standard_errors"][task] for task in SIZES}
    R = summary["correlation"]
    first = moments.from_summary(z, R, SIZES)
    counts, matrices = [SIZES[task] for task in order], [R[task] for task in order]
    for found in (
        moments.from_summary(np.column_stack([z[task] for task in order]), matrices, counts, tasks=order),
        moments.from_summary([z[task] for task in order], np.stack(matrices), np.array(counts), tasks=order),
        moments.from_summary(pd.DataFrame(z), {task: pd.DataFrame(one) for task, one in R.items()}, SIZES),
    ):
        assert found.task_names.tolist() == order
        np.testing.assert_array_equal(found.scatters, first.scatters)
    alone = moments.from_summary(z["blood"].tolist(), R["blood"], 200, feature_names=list("abcdef"))
    np.testing.assert_array_equal(alone.scatters[0], first.scatters[0])
    assert alone.feature_names.tolist() == list("abcdef") and alone.task_names.tolist() == [0]


def test_fit_from_summaries_is_the_fit_from_the_rows(rows, summary, whole):
    X, y = (np.concatenate([pair[k] for pair in rows.values()]) for k in (0, 1))
    tasks = np.repeat(list(SIZES), list(SIZES.values()))
    found = moments.from_summary(**summary, target_deviation={task: pair[1].std() for task, pair in rows.items()})
    fitted = bm.MixedNormRegressor(standardize=True, tol=1e-10)
    np.testing.assert_allclose(
        fitted.fit_moments(found).coef_, fitted.fit(X, y, tasks=tasks).coef_, rtol=1e-5, atol=1e-8
    )


def test_a_posterior_from_summaries_is_that_of_the_rows():
    """Posterior means against the same sampler on the rows, within Monte Carlo error; the noise too."""
    sim = bm.simulate_tasks(n_tasks=3, n_features=5, n_relevant=2, n_samples=[40, 60, 80], random_state=1)
    parts = [(sim.X[sim.tasks == t], sim.y[sim.tasks == t]) for t in range(3)]
    found = [regressions(X, y) for X, y in parts]
    sums = moments.from_summary(
        effects=[one[0] for one in found],
        standard_errors=[one[1] for one in found],
        correlation=[np.corrcoef(X.T) for X, _ in parts],
        n=[40, 60, 80],
        target_deviation=[y.std() for _, y in parts],
    )
    centred = [(X - X.mean(axis=0), y - y.mean()) for X, y in parts]
    X, y = (np.concatenate([pair[k] for pair in centred]) for k in (0, 1))
    model = bm.BayesianRegressor(draws=1000, tune=300, chains=2, random_state=0)
    of_rows = model.fit(X, y, tasks=sim.tasks)
    coef, noise, deviation = of_rows.coef_, of_rows.noise_, of_rows.coef_std_
    of_sums = model.fit_moments(sums)
    assert np.abs((of_sums.coef_ - coef) / deviation).max() < 0.15
    np.testing.assert_allclose(of_sums.noise_, noise, rtol=0.03)
    assert of_sums.result_.settings["n_rows"] == 180
    # there are no observations to predict or to leave out
    assert set(of_sums.posterior_.children) == {"posterior", "sample_stats", "constant_data"}


@pytest.mark.filterwarnings("ignore:do not trust this posterior yet")  # chains of 60 draws
@pytest.mark.parametrize("prior", ["spike", "generalized_normal"])
def test_draws_from_summaries_are_those_from_the_sums_of_the_rows(rows, summary, prior):
    heights = {task: y.std() for task, (_, y) in rows.items()}
    centred = [(X - X.mean(axis=0), y - y.mean()) for X, y in rows.values()]
    X, y = (np.concatenate([pair[k] for pair in centred]) for k in (0, 1))
    tasks = np.repeat(list(rows), [len(y) for _, y in rows.values()])
    model = bm.BayesianRegressor(prior=prior, draws=60, tune=40, chains=1, random_state=0, progress=False)
    found = model.fit_moments(moments.from_summary(**summary, target_deviation=heights)).posterior_["posterior"]
    wanted = model.fit_moments(moments.from_arrays(X, y, tasks=tasks)).posterior_["posterior"]
    for name in ("coef", "noise"):
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-8, atol=1e-8)


def test_nan_is_a_feature_that_the_task_does_not_have(rows, summary):
    effects = {task: one.copy() for task, one in summary["effects"].items()}
    effects["blood"][2] = effects["brain"][4] = np.nan
    heights = {task: y.std() for task, (_, y) in rows.items()}
    found = moments.from_summary(**{**summary, "effects": effects}, target_deviation=heights)
    np.testing.assert_array_equal(found.present.sum(axis=0), [5, 5, 6])
    names = [f"x{i}" for i in range(6)]
    frames = {task: pd.DataFrame(X - X.mean(axis=0), columns=names) for task, (X, _) in rows.items()}
    frames["blood"], frames["brain"] = frames["blood"].drop(columns="x2"), frames["brain"].drop(columns="x4")
    pairs = [(frames[task], rows[task][1]) for task in sorted(SIZES)]
    data = bm.TaskData.from_list(pairs)
    model = bm.MixedNormRegressor(penalty_strength=0.05, standardize=True, tol=1e-10)
    from_rows = model.fit(data).coef_.copy()
    sums = model.fit_moments(found)
    assert sums.coef_[0, 2] == sums.coef_[1, 4] == 0.0 and sums.result_.absent.sum() == 2
    again = moments.from_arrays(data)  # rows of tasks with different features have moments too
    order = [names.index(name) for name in data.feature_names]
    np.testing.assert_array_equal(again.present, found.present[order])
    np.testing.assert_allclose(sums.coef_[:, order], from_rows, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(model.fit_moments(again).coef_, from_rows, rtol=1e-5, atol=1e-9)


def test_more_features_than_rows():
    rng = np.random.default_rng(0)
    X = genotypes(rng, 40, 70)
    y = X[:, 3] - X[:, 40] + rng.standard_normal(40)
    X = X[:, X.std(axis=0) > 0]
    z = regressions(X, y)[2]
    found = moments.from_summary(z, np.corrcoef(X.T), 40, target_deviation=y.std(), feature_deviations=X.std(axis=0))
    np.testing.assert_allclose(found.scatters, moments.from_arrays(X, y).scatters, rtol=1e-8, atol=1e-8)


def study(seed, n=4000, p=150, effect=0.15):
    """z-scores of a study with three effects, its genotypes, and those of a panel of 300 others."""
    rng = np.random.default_rng(seed)
    X, panel = genotypes(rng, n, p), genotypes(rng, 300, p)
    y = X[:, rng.choice(p, 3, replace=False)] @ (effect * rng.choice([-1.0, 1.0], 3)) + rng.standard_normal(n)
    return regressions(X, y)[2], np.corrcoef(X.T), np.corrcoef(panel.T)


@pytest.mark.parametrize("seed", range(4))
def test_only_correlations_that_do_not_fit_are_warned_of(seed):
    z, own, panel = study(seed)
    moments.from_summary(z, own, 4000)
    with pytest.warns(DataWarning, match="task 0: the correlation matrix does not fit the z-scores"):
        moments.from_summary(z, panel, 4000)
    switched = int(np.argsort(-np.abs(z))[2])
    wrong = np.where(np.arange(150) == switched, -z, z)
    with pytest.warns(DataWarning, match=rf"least of all fit .*\bx{switched}\b.*: check the signs"):
        moments.from_summary({"liver": wrong}, own, 4000)


def test_correlations_that_no_data_have_are_shrunk():
    rng = np.random.default_rng(0)
    X, panel = genotypes(rng, 200, 100), genotypes(rng, 150, 100)
    z = regressions(X, X[:, 20] + rng.standard_normal(200))[2]
    with pytest.warns(DataWarning, match="shrunk by .* to the identity, as no data have it"):
        found = moments.from_summary(z, np.corrcoef(panel.T), 200)
    values = np.linalg.eigvalsh(found.scatters[0])
    assert values[0] > -1e-6 * values[-1]
    np.testing.assert_allclose(np.diagonal(found.scatters[0]), 200.0)


def test_more_features_than_rows_with_the_correlations_of_others():
    """Noise alone is then more than the target holds, whatever the matrix: the target is enlarged, and fits go on."""
    rng = np.random.default_rng(2)
    X, panel = genotypes(rng, 100, 150), genotypes(rng, 400, 150)
    z = regressions(X, 1.5 * X[:, 20] + rng.standard_normal(100))[2]
    with pytest.warns(DataWarning, match="does not fit the z-scores"):
        found = moments.from_summary(z, np.corrcoef(panel.T), 100)
    assert found.scatters[0, -1, -1] >= 100.0
    values = np.linalg.eigvalsh(found.scatters[0])
    assert values[0] > -1e-6 * values[-1]
    fitted = bm.MixedNormRegressor(penalty_strength=0.3).fit_moments(found)
    assert abs(int(np.abs(fitted.coef_[0]).argmax()) - 20) <= 1


def test_digits_that_are_not_printed_make_no_warning():
    rng = np.random.default_rng(1)
    X = genotypes(rng, 60, 90)
    X = X[:, X.std(axis=0) > 0]
    z = regressions(X, X[:, 20] + rng.standard_normal(60))[2]
    moments.from_summary(np.round(z, 4), np.round(np.corrcoef(X.T), 5), 60)


def test_moments_with_absent_features_add_where_they_agree(summary):
    effects = {task: one.copy() for task, one in summary["effects"].items()}
    effects["blood"][2] = np.nan

    def part(given, *chosen):
        return moments.from_summary(**{**summary, "effects": {task: given[task] for task in chosen}})

    both = part(effects, "blood") + part(effects, "brain", "liver")
    np.testing.assert_array_equal(both.present, part(effects, *SIZES).present)
    assert (part(effects, "blood") + part(effects, "blood")).present.sum() == 5
    with pytest.raises(ValueError, match="has a feature in one part and lacks it in the other"):
        part(effects, "blood") + part(summary["effects"], "blood")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"effects": None}, "pass z, or effects and standard_errors"),
        ({"z": np.zeros(6)}, "pass z, or effects and standard_errors"),
        ({"n": None}, "correlation or n is missing"),
        ({"n": {"liver": 80}}, "n has no entry for task 'blood'; its entries are"),
        ({"n": 2}, "n is 2 in task 'liver'; pass its number of rows"),
        ({"n": [3, 4]}, "n has 2 parts of shapes .* but there are 3 tasks"),
        ({"correlation": np.eye(5)}, r"effects has 3 parts of shapes \[\(6,\)\].* pass an array of shape \(5,\)"),
        ({"correlation": 2 * np.eye(6)}, "correlation of task 'liver' is no correlation matrix"),
        ({"standard_errors": dict.fromkeys(SIZES, np.zeros(6))}, "standard_errors of task 'liver' has entries of 0"),
        ({"feature_names": ["a"]}, "feature_names has 1 entries but correlation has 6 rows"),
    ],
)
def test_wrong_input_is_named(summary, change, message):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # made-up effects do not fit
        with pytest.raises(ValueError, match=message):
            moments.from_summary(**{**summary, **change})


def test_labels_of_an_array(summary):
    with pytest.raises(ValueError, match="tasks has 3 labels but there are 2 tasks"):
        moments.from_summary(np.zeros((6, 2)), np.eye(6), 30, tasks=["a", "b", "c"])
