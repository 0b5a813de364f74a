"""``bayesmtfs fit``."""

import inspect
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bayesmtfs as bm
from bayesmtfs.cli.console import new_folder
from bayesmtfs.cli.fit import fit, make_estimator
from bayesmtfs.cli.tables import TextForm, kind_of_target, read_table


def test_fit_writes_model_coefficients_plots_and_report(fitted, frame):
    assert {path.name for path in fitted.iterdir()} == {
        "model.bayesmtfs", "effects.csv", "features.csv", "effects.png", "report.html", "summary.json",
    }  # fmt: skip
    model = bm.load(fitted / "model.bayesmtfs")
    direct = bm.MixedNormRegressor(penalty_strength=0.1, standardize=True, scale_target=True)
    direct.fit(frame[[f"g{i}" for i in range(6)]], frame["score"], tasks=frame["school"])
    np.testing.assert_allclose(model.coef_, direct.coef_, atol=1e-12)
    written = pd.read_csv(fitted / "effects.csv")
    np.testing.assert_allclose(written["coef"].to_numpy().reshape(6, 3).T, direct.coef_)
    summary = json.loads((fitted / "summary.json").read_text())
    assert summary["converged"] and summary["n_tasks"] == 3 and summary["task"] == "school"


@pytest.mark.parametrize("ending", ["parquet", "arrow", "npz"])
def test_every_format_gives_the_same_fit(bayesmtfs, fitted, frame, tmp_path, ending):
    path = tmp_path / f"schools.{ending}"
    plain = frame.drop(columns="level")
    if ending == "npz":
        np.savez(path, **{name: plain[name].to_numpy().astype(None if name != "school" else str) for name in plain})
    else:
        {"parquet": plain.to_parquet, "arrow": plain.to_feather}[ending](path)
    result = bayesmtfs("fit", path, "--target", "score", "--task", "school", "--penalty", 0.1, "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    np.testing.assert_allclose(
        bm.load(tmp_path / "o" / "model.bayesmtfs").coef_, bm.load(fitted / "model.bayesmtfs").coef_, atol=1e-10
    )


def test_wide_form(bayesmtfs, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((20, 4)), columns=["x", "z", "a", "b"])
    frame.to_csv(tmp_path / "wide.csv", index=False)
    result = bayesmtfs("fit", tmp_path / "wide.csv", "--targets", "a,b", "--penalty", "auto", "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    assert bm.load(tmp_path / "o" / "model.bayesmtfs").tasks_.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "method"),
    [
        (["--route", "em"], "JeffreysRegressor"),
        (["--route", "em", "--prior", "matrix_variate"], "MatrixVariateRegressor"),
        (["--route", "map", "--prior", "generalized_normal"], "GeneralizedNormalRegressor"),
        (["--penalty", "cv"], "MixedNormRegressorCV"),
        (["--route", "online"], "OnlineMixedNormRegressor"),
        (["--route", "posterior", "--draws", "60"], "BayesianRegressor"),
    ],
)
def test_routes_and_priors(bayesmtfs, table, tmp_path, options, method):
    result = bayesmtfs(
        "fit", table, "--target", "score", "--task", "school", "--json", "--out", tmp_path / "o", *options
    )
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["method"] == method and answer["n_features"] == 6
    assert {"g0", "g1", "g2", "g3", "g4", "g5"} >= set(answer["selected"])


def test_the_default_rule_keeps_no_more_features_than_the_best_penalty():
    sim = bm.simulate_tasks(n_tasks=4, n_features=60, n_relevant=6, n_samples=40, random_state=7)
    default = inspect.signature(fit).parameters["rule"].default
    kept = [
        make_estimator(False, rule=rule, standardize=True).fit(sim.X, sim.y, tasks=sim.tasks).get_support()
        for rule in (default, "min")
    ]
    assert default == "one_se" and kept[0].sum() < kept[1].sum()
    assert kept[0][sim.support].all()


def test_a_stream_says_what_it_saw_and_comes_near_the_batch_fit(bayesmtfs, frame, table, tmp_path):
    options = ["--target", "score", "--task", "school", "--out", tmp_path / "o"]
    said = bayesmtfs("fit", table, *options, "--route", "online")
    assert said.exit_code == 0, said.output
    assert "onverged" not in said.output and "rows learned in" in said.output
    assert "rows learned in" in (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    kept = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert kept["rows_seen"] % len(frame) == 0 and 0 < kept["progressive_error"] < 1
    online = bm.load(tmp_path / "o" / "model.bayesmtfs")
    batch = bm.MixedNormRegressorCV(standardize=True, scale_target=True, task_column="school").fit(
        frame.drop(columns=["score", "level"]), frame["score"]
    )
    errors = [1 - model.score(frame.drop(columns=["score", "level"]), frame["score"]) for model in (online, batch)]
    assert errors[0] < 1.1 * errors[1]


def test_labels_are_classified(bayesmtfs, frame, tmp_path):
    frame.drop(columns="score").to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "level", "--task", "school", "--penalty", "auto", "--json", "--out", tmp_path / "o"]
    assert json.loads(bayesmtfs("fit", tmp_path / "t.csv", *options).stdout)["method"] == "MixedNormClassifier"


def test_nothing_is_overwritten_without_force(bayesmtfs, table, fitted, tmp_path):
    fitted = Path(shutil.copytree(fitted, tmp_path / "fits" / "fit"))  # other tests read the folder, too
    before = (fitted / "effects.csv").read_bytes()
    options = ["--target", "score", "--task", "school", "--penalty", 0.1, "--out", fitted]
    refused = bayesmtfs("fit", table, *options)
    assert refused.exit_code == 1 and "--force" in refused.stderr and "Traceback" not in refused.output
    assert bayesmtfs("fit", table, *options, "--force", "--quiet").output == ""
    assert (fitted / "effects.csv").read_bytes() == before
    assert [path for path in fitted.parent.iterdir() if path.name.startswith(".")] == []


def test_a_failure_leaves_the_old_folder_whole(tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "old").write_text("kept")
    with pytest.raises(RuntimeError), new_folder(tmp_path / "o", force=True) as folder:
        (folder / "half").write_text("lost")
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["o", "old"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "grade"], "no column 'grade'"),
        ([], "--target"),
        (["--target", "score", "--targets", "g1,g2"], "--targets"),
        (["--target", "score", "--task", "class"], "no column 'class'"),
        (["--target", "score", "--route", "magic"], "--route is 'magic'"),
        (["--target", "score", "--route", "em", "--prior", "horseshoe"], "does not go with"),
        (["--target", "score", "--task", "school", "--norm-q", "big"], "--norm-q is 'big'"),
        (["--target", "score", "--task", "school", "--penalty", "big"], "--penalty is 'big'"),
        (["--target", "score", "--task", "school", "--penalty", "-1"], "--penalty is '-1'"),
        (["--target", "score", "--rule", "best"], "--rule is 'best'"),
    ],
)
def test_wrong_options_are_named(bayesmtfs, table, tmp_path, options, message):
    result = bayesmtfs("fit", table, "--out", tmp_path / "o", *options)
    assert result.exit_code == 2 and message in " ".join(result.stderr.split())
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.csv", None, "does not exist"),
        ("empty.csv", b"", "it is empty"),
        ("header.csv", b"a,b\n", "no rows"),
        ("broken.parquet", b"PAR1 nonsense", "cannot be read"),
        ("broken.npz", b"nonsense", "cannot be read"),
        ("table.xyz", b"1", "ending '.xyz'"),
        ("latin.csv", "größe,score\n1,2\n".encode("latin-1"), "UTF-8"),
    ],
)
def test_unreadable_files_are_named(bayesmtfs, tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    result = bayesmtfs("fit", tmp_path / name, "--target", "score", "--out", tmp_path / "o")
    assert result.exit_code == 1 and message in " ".join(result.stderr.split()), result.stderr


def test_debug_shows_where(bayesmtfs, table, tmp_path):
    result = bayesmtfs("fit", table, "--target", "grade", "--out", tmp_path / "o", "--debug")
    assert isinstance(result.exception, ValueError)


def test_texts_and_named_columns_are_categories_and_rows_without_target_are_counted(bayesmtfs, frame, tmp_path):
    kinds = np.array(["flat", "loft", "house"])[np.arange(len(frame)) % 3]
    coded = frame.assign(kind=kinds, floor=np.arange(len(frame)) % 4, remark=[f"r{i}" for i in range(len(frame))])
    coded.loc[:4, "score"] = np.nan
    coded.to_csv(tmp_path / "homes.csv", index=False)
    options = ["--target", "score", "--task", "school", "--penalty", 0.1, "--out", tmp_path / "fit"]
    refused = bayesmtfs("fit", tmp_path / "homes.csv", *options)
    assert refused.exit_code == 1 and "'remark' holds 85 different texts" in refused.stderr
    assert "--drop" in refused.stderr
    fitted = bayesmtfs("fit", tmp_path / "homes.csv", *options, "--drop", "remark,level", "--categories", "floor")
    assert fitted.exit_code == 0, fitted.output
    assert "5 of 90 rows have no target" in fitted.output
    names = bm.load(tmp_path / "fit" / "model.bayesmtfs").result_.feature_names.tolist()
    levels = [*(f"kind[{level}]" for level in ("house", "loft")), *(f"floor[{level}]" for level in (1, 2, 3))]
    assert names == [*(f"g{i}" for i in range(6)), *levels]
    again = bayesmtfs("predict", tmp_path / "fit", tmp_path / "homes.csv", "--out", tmp_path / "p.csv")
    assert again.exit_code == 0, again.output
    assert len(pd.read_csv(tmp_path / "p.csv")) == 90


WRITTEN = [(";", ","), ("\t", "."), ("\t", ","), ("|", "."), (",", ".")]


@pytest.mark.parametrize(("sep", "decimal"), WRITTEN)
def test_separator_and_decimal_sign_are_found_out(frame, tmp_path, sep, decimal):
    path = tmp_path / "t.tsv"
    frame.to_csv(path, index=False, sep=sep, decimal=decimal, encoding="utf-8-sig")
    pd.testing.assert_frame_equal(read_table(path), frame, check_dtype=False)


def test_separator_and_decimal_sign_are_told(bayesmtfs, fitted, frame, tmp_path):
    frame.drop(columns="level").to_csv(tmp_path / "t.csv", index=False, sep=":", decimal=",")
    told = ["--target", "score", "--task", "school", "--penalty", 0.1, "--sep", ":", "--decimal", ","]
    result = bayesmtfs("fit", tmp_path / "t.csv", *told, "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    expected = bm.load(fitted / "model.bayesmtfs").coef_
    np.testing.assert_allclose(bm.load(tmp_path / "o" / "model.bayesmtfs").coef_, expected, atol=1e-10)


def test_everything_wrong_with_a_file_is_said_at_once_with_its_lines(bayesmtfs, frame, tmp_path):
    broken = frame.assign(remark=[f"r{i}" for i in range(len(frame))]).astype({"g2": object})
    broken.loc[[3, 5], "g1"] = np.nan
    broken["g2"] = [*broken["g2"][:-1], "n.d."]
    broken.to_csv(tmp_path / "t.csv", index=False)
    result = bayesmtfs("fit", tmp_path / "t.csv", "--target", "score", "--task", "school", "--out", tmp_path / "o")
    assert result.exit_code == 1 and len(result.stderr.splitlines()) == 4
    for words in ("'g1' is missing in 2 of 90 rows (line 5, 7)", "'g2' holds numbers, but also texts such as 'n.d.'",
                  "'remark' holds 90 different texts"):  # fmt: skip
        assert words in result.stderr
    (tmp_path / "twice.csv").write_text("a;b;a;score\n1;2;3;4\n")
    twice = bayesmtfs("fit", tmp_path / "twice.csv", "--target", "score", "--out", tmp_path / "o")
    assert twice.exit_code == 1 and "several columns are named 'a'" in twice.stderr


def test_a_learned_q_is_told(bayesmtfs, table, tmp_path):
    options = ["--target", "score", "--task", "school", "--route", "em", "--norm-q", "learn", "--out", tmp_path / "fit"]
    result = bayesmtfs("fit", table, *options, "--json")
    answer = json.loads(result.stdout)
    low, high = answer["norm_q_interval"]
    assert 1.0 <= low <= answer["norm_q"] <= high


def test_characters_that_the_font_lacks_are_told_once(bayesmtfs, frame, tmp_path):
    frame.drop(columns="level").replace({"school": {"s0": "\u6771\u4eac"}}).to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "score", "--task", "school", "--penalty", 0.1, "--out", tmp_path / "fit", "--json"]
    warned = json.loads(bayesmtfs("fit", tmp_path / "t.csv", *options).stdout)["warnings"]
    assert not any("Glyph" in text for text in warned)
    assert sum("font of the plots" in text for text in warned) <= 1


@pytest.fixture
def counts(tmp_path):
    """A table of counts in two tasks, the first of four features relevant."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.standard_normal((160, 4)), columns=list("abcd")).assign(site=np.repeat(["n", "s"], 80))
    frame["seen"] = rng.poisson(np.exp(0.3 + 0.8 * frame["a"]))
    frame.to_csv(tmp_path / "counts.csv", index=False)
    return frame


def test_counts_are_fitted_as_counts_and_the_command_says_so(bayesmtfs, counts, tmp_path):
    source = (tmp_path / "counts.csv", "--target", "seen", "--task", "site", "--penalty", 0.1)
    result = bayesmtfs("fit", *source, "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    assert "Target: counts" in " ".join(result.output.split()) and "--family poisson" in result.output
    model = bm.load(tmp_path / "o" / "model.bayesmtfs")
    direct = bm.MixedNormRegressor(loss="poisson", penalty_strength=0.1, standardize=True)
    direct.fit(counts[list("abcd")], counts["seen"], tasks=counts["site"])
    assert model.loss == "poisson"
    np.testing.assert_allclose(model.coef_, direct.coef_, atol=1e-10)


@pytest.mark.parametrize("family", ["squared", "huber", "negative_binomial(0.5)"])
def test_the_family_is_the_users(bayesmtfs, counts, tmp_path, family):
    source = (tmp_path / "counts.csv", "--target", "seen", "--task", "site", "--penalty", 0.1, "--family", family)
    result = bayesmtfs("fit", *source, "--out", tmp_path / "o")
    assert result.exit_code == 0, result.output
    assert bm.load(tmp_path / "o" / "model.bayesmtfs").loss == family


def test_wrong_families_are_refused_with_the_way_out(bayesmtfs, counts, tmp_path):
    source = (tmp_path / "counts.csv", "--target", "seen", "--task", "site")
    unknown = bayesmtfs("fit", *source, "--family", "poison", "--out", tmp_path / "o")
    assert unknown.exit_code == 2 and "choose one of squared" in " ".join(unknown.output.split())
    both = bayesmtfs("fit", *source, "--family", "poisson", "--classify", "--out", tmp_path / "o")
    assert both.exit_code == 2 and "leave one of the two out" in " ".join(both.output.split())
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([0, 0, 1, 3, 9, 1, 0, 2], "Target: counts"),
        ([31, 45, 52, 60, 38, 47, 55, 41], "Target: numbers"),  # marks: whole, but not from 0
        ([0, 2, 4, 6, 8, 10, 5, 5], "Target: numbers"),  # a scale without a tail
        ([0.5, 0.0, 9.0, 1.0], "Target: numbers"),
        (["yes", "no", "no", "yes"], "Target: classes"),
        ([0, 1, 1, 0], "Target: classes"),
    ],
)
def test_what_a_target_is_taken_for(values, wanted):
    assert kind_of_target(pd.Series(values)).note.startswith(wanted)


def test_the_folder_tells_errors_origin_and_the_command(bayesmtfs, fitted, table, tmp_path):
    source = json.loads((fitted / "summary.json").read_text(encoding="utf-8"))["source"]
    assert source["file"] == "schools.csv" and source["task"] == "school"
    errors = {row["name"]: row["error"] for row in source["errors"]["fits"]}
    assert set(errors) == {"this fit", "task mean", "pooled lasso", "lasso per task"}
    assert errors["this fit"] < errors["task mean"]
    words = source["command"].split()
    assert "--baselines" not in words  # at its default
    assert words[:3] == ["bayesmtfs", "fit", str(table)] and "--penalty" in words and "--seed" not in words
    again = bayesmtfs(*words[1:-1], tmp_path / "again")
    assert again.exit_code == 0, again.output
    assert (tmp_path / "again" / "effects.csv").read_bytes() == (fitted / "effects.csv").read_bytes()
    features = pd.read_csv(fitted / "features.csv")
    assert features["feature"].tolist() == [f"g{i}" for i in range(6)] and set(features["kind"]) <= {"all", "none"}


def test_errors_stay_in_the_report_of_the_folder(bayesmtfs, fitted, tmp_path):
    assert bayesmtfs("report", fitted, "--out", tmp_path / "page.html").exit_code == 0
    for page in (fitted / "report.html", tmp_path / "page.html"):
        text = page.read_text(encoding="utf-8")
        assert "lasso per task" in text and "schools.csv" in text and "bayesmtfs fit" in text


def test_the_positive_class_is_named_everywhere(bayesmtfs, frame, tmp_path):
    frame.drop(columns="score").to_csv(tmp_path / "t.csv", index=False)
    options = ["--target", "level", "--task", "school", "--penalty", 0.05, "--out", tmp_path / "o", "--no-baselines"]
    result = bayesmtfs("fit", tmp_path / "t.csv", *options)
    assert result.exit_code == 0, result.output
    assert (
        "a positive effect speaks for low" in result.output and "A positive effect speaks for 'low'." in result.output
    )
    assert json.loads((tmp_path / "o" / "summary.json").read_text(encoding="utf-8"))["positive_class"] == "low"
    assert "low: a positive effect speaks for it" in (tmp_path / "o" / "report.html").read_text(encoding="utf-8")


def test_infinite_cells_rows_without_a_task_and_dates_with_dots(bayesmtfs, frame, tmp_path):
    days = [f"{1 + i % 28}.3.2024" for i in range(len(frame))]
    broken = frame.drop(columns="level").assign(day=days)
    broken.to_csv(tmp_path / "good.csv", index=False)
    broken.loc[4, "g1"], broken.loc[[7, 8], "school"] = np.inf, None
    broken.to_csv(tmp_path / "t.csv", index=False)
    options = ("--target", "score", "--task", "school", "--penalty", "0.1", "--out", tmp_path / "o")
    refused = bayesmtfs("fit", tmp_path / "t.csv", *options)
    assert refused.exit_code == 1 and "'g1' is infinite in 1 of 90 rows (line 6)" in refused.stderr
    assert "'school' is missing in 2 of 90 rows (line 9, 10); name the task of those rows" in refused.stderr
    good = bayesmtfs("fit", tmp_path / "good.csv", *options)
    assert good.exit_code == 0 and "Categories" not in good.output  # a number of days
    assert "day" in bm.load(tmp_path / "o" / "model.bayesmtfs").result_.feature_names


def test_wrong_numbers_and_columns_named_twice_are_wrong_usage(bayesmtfs, table, tmp_path):
    few = bayesmtfs("fit", table, "--target", "score", "--route", "posterior", "--draws", 0, "--out", tmp_path / "o")
    assert few.exit_code == 2 and "--draws is 0" in few.stderr
    same = bayesmtfs("fit", table, "--target", "score", "--task", "score", "--out", tmp_path / "o")
    assert same.exit_code == 2 and "'score' is named for two purposes" in same.stderr


def test_a_column_that_numbers_the_rows_and_empty_cells_of_targets_are_told(bayesmtfs, frame, tmp_path):
    wide = frame[["g0", "g1", "g2"]].assign(pupil=np.arange(100, 190), one=frame["score"], two=-frame["score"])
    wide.loc[[1, 2, 3], "one"], wide.loc[3, "two"] = np.nan, np.nan
    wide.to_csv(tmp_path / "wide.csv", index=False)
    options = ("--targets", "one,two", "--penalty", "0.01", "--out", tmp_path / "o")
    told = bayesmtfs("fit", tmp_path / "wide.csv", *options).output
    assert "If pupil only numbers the rows, --drop pupil leaves it out." in told and "If g0" not in told
    assert "1 of 90 rows have no target" in told and "2 of the other 178 cells of targets are empty" in told
    assert "in all tasks or in none" in told  # what l1,2 assumes
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    assert "<h1>one, two: which features" in page


@pytest.mark.parametrize("line", ["b;3", "b;3;4;5"])
def test_uneven_lines_have_the_separator_of_the_header(bayesmtfs, tmp_path, line):
    (tmp_path / "t.csv").write_text(f"task;x;y\na;1;2\n{line}\n")
    result = bayesmtfs("fit", tmp_path / "t.csv", "--target", "y", "--task", "task", "--out", tmp_path / "o")
    assert result.exit_code == 1 and "no column" not in result.stderr


def test_cells_beyond_the_header_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,y,g\n" + "".join(f"{i},{i * i % 7},{i % 5},{i % 2},\n" for i in range(20)))
    with pytest.raises(ValueError, match="rows have more cells than the 4 of the header"):
        read_table(path)


def test_commas_in_cells_between_commas_are_not_guessed(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('income,y\n"57,435",1\n950,2\n')
    with pytest.raises(ValueError, match=r"numbers such as '57,435' have a comma.*pass --decimal ,"):
        read_table(path)
    assert read_table(path, TextForm(None, ","))["income"].tolist() == [57.435, 950.0]
