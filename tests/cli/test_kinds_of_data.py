"""Survival times, exposures, missing cells, dates and targets that no family has, as a table has them."""

import numpy as np
import pandas as pd
import pytest

import bayesmtfs as bm
from bayesmtfs.cli import fit, tables

N = 160


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    x, z, clinic = rng.normal(size=N), rng.normal(size=N), np.where(np.arange(N) % 2, "a", "b")
    years, days = rng.uniform(0.5, 20.0, N), rng.exponential(np.exp(-x))
    return pd.DataFrame(
        {
            "x": x,
            "z": z,
            "clinic": clinic,
            "years": years,
            "visits": rng.poisson(years * np.exp(0.5 * x - 1.0)),
            "days": np.round(days, 3),
            "died": (rng.random(N) < 0.6).astype(int),
        }
    )


def run(bayesmtfs, frame, tmp_path, *options):
    frame.to_csv(tmp_path / "table.csv", index=False)
    return bayesmtfs("fit", tmp_path / "table.csv", *options, "--out", tmp_path / "fit")


def test_survival_times(bayesmtfs, table, tmp_path):
    frame = table[["x", "z", "clinic", "days", "died"]]
    options = ("--target", "days", "--task", "clinic", "--event", "died")
    result = run(bayesmtfs, frame, tmp_path, *options)
    assert result.exit_code == 0, result.output
    assert "Target: survival times, --family cox." in result.output
    model = bm.load(tmp_path / "fit" / "model.bayesmtfs")
    assert isinstance(model, bm.MixedNormSurvivalCV) and "x" in model.get_feature_names_out()
    predicted = bayesmtfs("predict", tmp_path / "fit", tmp_path / "table.csv", "--out", tmp_path / "p.csv")
    assert predicted.exit_code == 0, predicted.output
    y = frame[["died", "days"]].set_axis(["event", "time"], axis=1)
    concordance = model.score(frame[["x", "z", "clinic"]], y)
    assert f"concordance: {concordance:.4g}" in predicted.output
    without = run(bayesmtfs, frame, tmp_path, "--target", "days", "--task", "clinic", "--force")
    assert "--event died makes it survival times" in without.output
    em = bayesmtfs("fit", tmp_path / "table.csv", *options, "--route", "em", "--out", tmp_path / "em")
    assert em.exit_code == 2 and "routes map and posterior" in em.stderr


def test_exposure(bayesmtfs, table, tmp_path):
    frame = table[["x", "z", "clinic", "visits", "years"]]
    options = ("--target", "visits", "--task", "clinic", "--exposure", "years")
    result = run(bayesmtfs, frame, tmp_path, *options, "--family", "poisson", "--no-standardize")
    assert result.exit_code == 0, result.output
    model = bm.load(tmp_path / "fit" / "model.bayesmtfs")
    by_hand = bm.MixedNormRegressorCV(loss="poisson", n_penalties=50, rule="one_se", random_state=0)
    by_hand.fit(frame[["x", "z"]], frame["visits"], tasks=frame["clinic"], exposure=frame["years"])
    np.testing.assert_allclose(model.coef_, by_hand.coef_, atol=1e-6)
    bayesmtfs("predict", tmp_path / "fit", tmp_path / "table.csv", "--out", tmp_path / "p.csv")
    written = pd.read_csv(tmp_path / "p.csv")["prediction"]
    expected = by_hand.predict(frame[["x", "z"]], tasks=frame["clinic"], exposure=frame["years"])
    np.testing.assert_allclose(written, expected, rtol=1e-5)
    numbers = bayesmtfs("fit", tmp_path / "table.csv", *options, "--family", "squared", "--out", tmp_path / "no")
    assert numbers.exit_code == 2 and "--exposure is for counts" in numbers.stderr


@pytest.mark.slow
def test_a_posterior_of_classes_within_tasks_without_its_own_error(bayesmtfs, table, tmp_path):
    eta = 2.0 * table["x"].to_numpy()
    classes = np.select([eta > 1, eta < -1], ["high", "low"], "mid")
    options = ("--target", "band", "--task", "clinic", "--route", "posterior", "--baselines")
    short = ("--draws", 40, "--tune", 40, "--chains", 2, "--effect-size", 0.3, "--expected-features", 1)
    result = run(bayesmtfs, table[["x", "z", "clinic"]].assign(band=classes), tmp_path, *options, *short)
    assert result.exit_code == 0, result.output
    told = " ".join(result.output.split())
    assert "pooled lasso" in told and "This posterior has no leave-one-out predictions" in told
    assert "raise --" in told and "max_iter" not in told and "target_accept" not in told
    model = bm.load(tmp_path / "fit" / "model.bayesmtfs")
    assert (model.effect_size, model.expected_features, model.coef_.shape[1]) == (0.3, 1.0, 3)


@pytest.mark.parametrize("route", ["map", "posterior", "em", "online"])
def test_routes_of_several_classes_within_tasks(bayesmtfs, table, tmp_path, route):
    kind = tables.within_tasks(tables.kind_of_target(pd.Series(list("abc"))), pd.Series(list("abc")), "clinic")
    if route in ("map", "posterior"):
        model = fit.make_estimator(True, route, **kind.options(True), effect_size=0.3)
        assert model.loss == "multinomial" and getattr(model, "effect_size", 0.3) == 0.3
        return
    frame = table[["x", "z", "clinic"]].assign(band=np.array(["a", "b", "c"])[np.arange(N) % 3])
    refused = run(bayesmtfs, frame, tmp_path, "--target", "band", "--task", "clinic", "--route", route)
    assert refused.exit_code == 2 and "use --route map or posterior" in refused.stderr


def test_missing_cells(bayesmtfs, table, tmp_path):
    frame = table[["x", "z", "clinic"]].assign(score=2.0 * table["x"] + table["z"])
    frame.loc[::7, "z"], frame.loc[::5, "x"] = np.nan, np.nan
    options = ("--target", "score", "--task", "clinic", "--penalty", "0.01")
    refused = run(bayesmtfs, frame, tmp_path, *options)
    assert refused.exit_code == 1 and "'x' is missing" in refused.stderr and "'z' is missing" in refused.stderr
    assert "--impute task_mean" in refused.stderr
    result = run(bayesmtfs, frame, tmp_path, *options, "--impute", "task_mean")
    assert result.exit_code == 0, result.output
    names = bm.load(tmp_path / "fit" / "model.bayesmtfs").result_.feature_names.tolist()
    assert names == ["x", "z", "x[missing]", "z[missing]"]
    predicted = bayesmtfs("predict", tmp_path / "fit", tmp_path / "table.csv", "--out", tmp_path / "p.csv")
    assert predicted.exit_code == 0 and pd.read_csv(tmp_path / "p.csv")["prediction"].notna().all()
    wrong = run(bayesmtfs, frame, tmp_path, *options, "--impute", "zero", "--force")
    assert wrong.exit_code == 2 and "pass task_mean" in wrong.stderr
    wrong = run(bayesmtfs, frame, tmp_path, *options, "--impute", "model", "--force")
    assert wrong.exit_code == 2 and "--route posterior" in wrong.stderr


def test_missing_cells_are_drawn(bayesmtfs, table, tmp_path):
    frame = table[["x", "z", "clinic"]].assign(score=2.0 * table["x"] + table["z"] + np.sin(np.arange(N)))
    frame.loc[::7, "z"], frame.loc[::5, "x"] = np.nan, np.nan
    options = ("--target", "score", "--task", "clinic", "--route", "posterior", "--draws", "200", "--chains", "2")
    result = run(bayesmtfs, frame, tmp_path, *options, "--impute", "model")
    assert result.exit_code == 0, result.output
    model = bm.load(tmp_path / "fit" / "model.bayesmtfs")
    assert model.result_.feature_names.tolist() == ["x", "z"]
    assert model.posterior_["imputed"].sizes["cell"] == frame[["x", "z"]].isna().to_numpy().sum()
    predicted = bayesmtfs("predict", tmp_path / "fit", tmp_path / "table.csv", "--out", tmp_path / "p.csv")
    assert predicted.exit_code == 0
    rows = pd.read_csv(tmp_path / "p.csv")
    width, gaps = rows["upper"] - rows["lower"], frame["x"].isna().to_numpy()
    assert width[gaps].mean() > 1.2 * width[~gaps].mean()


def test_dates_and_truth_values_are_numbers(bayesmtfs, table, tmp_path):
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N), unit="D")
    frame = table[["x", "clinic"]].assign(when=when.strftime("%Y-%m-%d"), owner=table["z"] > 0)
    frame["score"] = frame["x"] + 0.02 * np.arange(N) + frame["owner"]
    result = run(bayesmtfs, frame, tmp_path, "--target", "score", "--task", "clinic", "--penalty", "0.001")
    assert result.exit_code == 0, result.output
    model = bm.load(tmp_path / "fit" / "model.bayesmtfs")
    assert model.result_.feature_names.tolist() == ["x", "when", "owner"]
    np.testing.assert_allclose(model.coef_[:, 1], 0.02, rtol=0.05)
    predicted = bayesmtfs("predict", tmp_path / "fit", tmp_path / "table.csv", "--out", tmp_path / "p.csv")
    assert predicted.exit_code == 0, predicted.output


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([f"name {i}" for i in range(N)], "160 different texts"),
        (pd.date_range("2024-01-01", periods=N).astype(str), "holds dates"),
        (np.full(N, 3.0), "is 3.0 in all rows"),
        (np.where(np.arange(N) % 50, 1.5, np.inf), "is infinite in 4 rows; put numbers there"),
    ],
)
def test_targets_that_fit_no_family_are_refused(bayesmtfs, table, tmp_path, values, words):
    frame = table[["x", "z", "clinic"]].assign(result=values)
    result = run(bayesmtfs, frame, tmp_path, "--target", "result", "--task", "clinic")
    assert result.exit_code == 1 and words in result.stderr


RNG = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("values", "family", "words"),
    [
        (RNG.poisson(1.0, N), "poisson", "counts (whole numbers from 0 with a long tail), --family poisson"),
        (RNG.negative_binomial(1, 0.1, N), "poisson", "see --family 'negative_binomial(1)'"),
        (RNG.geometric(0.3, N), None, "that count something: --family poisson"),
        (1 + np.arange(N) % 5, None, "5 whole levels: --family ordinal"),
        (RNG.integers(-3, 30, N), None, "Target: numbers, --family squared."),
        (
            np.array(["low", "mid", "top"])[np.arange(N) % 3],
            "multinomial",
            "number them by it and pass --family ordinal",
        ),
    ],
)
@pytest.mark.parametrize("german", [False, True])
def test_what_a_target_is_taken_for(table, tmp_path, values, family, words, german):
    frame, form = table[["x", "clinic"]].assign(y=values), {"sep": ";", "decimal": ","} if german else {}
    frame.to_csv(tmp_path / "table.csv", index=False, **form)
    rows = tables.observations(tmp_path / "table.csv", "y", None, "clinic", None, None).rows
    assert rows.X["x"].dtype.kind == "f"
    kind = tables.within_tasks(tables.kind_of_target(rows.y), rows.y, "clinic")
    assert kind.family == family and words in kind.note


def test_events_have_many_names_and_mixed_decimals_a_way_out(table, tmp_path):
    for name in ("verstorben", "death_1y", "relapse"):
        frame = table.rename(columns={"died": name})
        assert f"--event {name} makes it survival" in tables.event_hint(frame[["x", name]], frame["days"])[0]
    mixed = table[["x", "clinic"]].assign(y=[f"{1 + k}.{k:03d}" for k in range(N)])
    mixed["x"] = [f"{x:.3f}".replace(".", ",") for x in mixed["x"]]
    mixed.to_csv(tmp_path / "table.csv", index=False, sep=";")
    with pytest.raises(ValueError, match=r"columns such as 'x' hold numbers with decimal commas.*pass --decimal ,"):
        tables.observations(tmp_path / "table.csv", "y", None, "clinic", None, None)


def test_survival_times_have_a_mode_under_generalized_normal_rows():
    model = fit.make_estimator(classify=False, prior="generalized_normal", loss="cox")
    assert isinstance(model, bm.GeneralizedNormalSurvival)
