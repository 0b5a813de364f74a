import copy
import dataclasses
import math
import pickle
import platform
import subprocess
import sys

import arviz as az
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr

from bayesmtfs.results import persistence
from bayesmtfs.results.fit_result import Convergence, FitResult, as_labels, current_versions, frozen_copy

COEF = np.array([[0.0, 2.0, 0.0, -0.25], [0.0, -1.5, 0.0, 0.0]])


def make(**changes) -> FitResult:
    fields = {
        "method": "MixedNormRegressor",
        "coef": COEF,
        "intercept": np.array([1.0, -1.0]),
        "task_names": np.array(["north", "south"]),
        "feature_names": np.array(["age", "income", "rent", "rooms"]),
        "convergence": Convergence(
            converged=True, n_iter=7, objective=1.25, gap=1e-9, tol=1e-6, objective_trace=np.array([3.0, 1.25])
        ),
        "settings": {"norm_q": np.inf, "tol": 1e-6, "groups": np.array([0, 0, 1, 1]), "cv": (3, None)},
        "versions": current_versions(),
        "seed": 3,
        "noise": np.array([0.5, 0.75]),
        "absent": np.array([[False, False, True, False], [True, False, False, False]]),
        "row_scales": np.array([0.0, 1.0, 0.0, 0.2]),
        "task_relations": np.eye(2, dtype=np.float32),
    }
    return FitResult(**(fields | changes))


@pytest.fixture
def result() -> FitResult:
    return make()


@pytest.fixture
def posterior() -> xr.DataTree:
    draws = np.random.default_rng(0).normal(size=(2, 50, 4, 2))
    coords = {"feature": ["age", "income", "rent", "rooms"], "task": ["north", "south"]}
    return az.from_dict({"posterior": {"coef": draws}}, coords=coords, dims={"coef": ["feature", "task"]})


# --- fields -----------------------------------------------------------------------------------------------------------


def test_selection_is_any_non_zero_coefficient(result):
    assert result.selected.tolist() == [False, True, False, True]
    assert result.selected_entries.tolist() == [[False, True, False, True], [False, True, False, False]]
    assert (result.n_tasks, result.n_features) == (2, 4)


def test_a_route_may_choose_the_features_itself():
    chosen = make(coef=np.ones((2, 4)), selection=[True, False, False, False])
    assert chosen.selected.tolist() == [True, False, False, False]
    assert chosen.selected_entries.sum() == 2


def test_a_result_is_a_snapshot():
    coef = COEF.copy()
    result = make(coef=coef)
    coef[:] = 9.0
    np.testing.assert_array_equal(result.coef, COEF)
    with pytest.raises(ValueError, match="read-only"):
        result.coef[0, 0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.method = "other"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coef": np.zeros(4)}, r"coef has shape \(4,\); pass one row per task"),
        ({"coef": np.array([["a"]])}, "coef has dtype <U1; pass numbers"),
        ({"intercept": np.zeros(3)}, r"intercept has shape \(3,\) but coef has shape \(2, 4\)"),
        ({"noise": np.zeros((2, 1))}, r"noise has shape \(2, 1\).*pass an array of shape \(2,\)"),
        ({"task_names": ["one"]}, r"task_names has shape \(1,\)"),
        ({"feature_names": ["a"]}, r"feature_names has shape \(1,\).*pass an array of shape \(4,\)"),
        ({"selection": np.ones(2, dtype=bool)}, r"selection has shape \(2,\)"),
    ],
)
def test_shapes_that_do_not_fit_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_float32_is_kept_and_integers_become_float():
    assert make(coef=COEF.astype(np.float32)).coef.dtype == np.float32
    assert make(coef=COEF.astype(int)).coef.dtype == np.float64


@pytest.mark.parametrize(
    ("labels", "kind"),
    [(["a", "b"], "U"), ([1, 2], "i"), ([True, False], "b"), ([0.5, 1.0], "f"), ([1, "a"], "O"), ([(1, 2)], "O")],
)
def test_labels_keep_their_type(labels, kind):
    array = as_labels(labels)
    assert array.dtype.kind == kind
    assert array.tolist() == labels


# --- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_long_frame_has_a_row_per_feature_and_task(result, backend):
    frame = result.to_frame(backend=backend)
    assert isinstance(frame, pd.DataFrame if backend == "pandas" else pl.DataFrame)
    rows = list(zip(*(list(frame[name]) for name in ("feature", "task", "coef", "selected")), strict=True))
    expected = [
        (feature, task, COEF[t, i], COEF[t, i] != 0)
        for i, feature in enumerate(["age", "income", "rent", "rooms"])
        for t, task in enumerate(["north", "south"])
    ]
    assert rows == expected


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_wide_frame_has_a_row_per_feature(result, backend):
    frame = result.to_frame(backend=backend, form="wide", selected_only=True)
    assert list(frame.columns) == ["feature", "north", "south"]
    assert list(frame["feature"]) == ["income", "rooms"]
    assert list(frame["north"]) == [2.0, -0.25]
    assert list(frame["south"]) == [-1.5, 0.0]


def test_selected_only_keeps_whole_features(result):
    frame = result.to_frame(selected_only=True)
    assert frame["feature"].tolist() == ["income", "income", "rooms", "rooms"]
    assert frame["selected"].tolist() == [True, True, True, False]


@pytest.mark.parametrize("backend", ["pandas", "polars"])
@pytest.mark.parametrize(
    ("labels", "column"),
    [
        ([10, 2], [10, 2]),
        (np.array([10, 2], dtype=object), [10, 2]),
        (np.array(["a", "b"], dtype=object), ["a", "b"]),
        ([1, "a"], ["1", "a"]),
    ],
)
def test_task_column_of_a_frame(backend, labels, column):
    frame = make(task_names=labels).to_frame(backend=backend)
    assert list(frame["task"])[:2] == column
    assert list(make(task_names=labels).to_frame(backend=backend, form="wide").columns[1:]) == [str(c) for c in column]


@pytest.mark.parametrize("labels", [["feature", "b"], np.array([1, "1"], dtype=object)])
def test_wide_frame_needs_distinct_columns(labels):
    with pytest.raises(ValueError, match="use form='long'"):
        make(task_names=labels).to_frame(form="wide")


@pytest.mark.parametrize("arguments", [{"form": "tall"}, {"backend": "dask"}])
def test_unknown_frame_options_are_named(result, arguments):
    ((name, value),) = arguments.items()
    with pytest.raises(ValueError, match=f"{name} is '{value}'; pass"):
        result.to_frame(**arguments)


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_a_missing_frame_library_is_named(backend):
    message = run_python(f"""
import sys
sys.modules[{backend!r}] = None
from bayesmtfs.results.fit_result import Convergence, FitResult
ended = Convergence(converged=True, n_iter=1)
result = FitResult(method="m", coef=[[1.0]], intercept=[0.0], task_names=[1], feature_names=["x"], convergence=ended)
try:
    result.to_frame(backend={backend!r})
except ImportError as error:
    print(error)
""")
    assert message.startswith(f"to_frame(backend='{backend}') needs {backend}, which is not installed; run pip install")


# --- trees ------------------------------------------------------------------------------------------------------------


def test_a_point_is_one_chain_with_one_draw(result):
    fitted = result.to_datatree()["posterior"]
    assert fitted["coef"].dims == ("chain", "draw", "feature", "task")
    assert fitted["coef"].shape == (1, 1, 4, 2)
    assert fitted["coef"].sel(feature="income", task="south").item() == -1.5
    assert fitted["intercept"].sel(task="south").item() == -1.0
    assert fitted["noise"].sel(task="south").item() == 0.75
    assert "noise" not in make(noise=None).to_datatree()["posterior"]


def test_attributes_say_what_was_fitted(result):
    attributes = result.to_datatree().attrs
    assert attributes["method"] == "MixedNormRegressor"
    assert attributes["inference_library"] == "bayesmtfs"
    assert attributes["convergence"] == result.convergence.verdict()


def test_arviz_reads_the_tree_of_a_point(result):
    point = az.extract(result.to_datatree(), var_names="coef", combined=False)
    np.testing.assert_array_equal(point.values[0, 0].T, COEF)


def test_the_tree_of_a_point_is_netcdf(result, tmp_path):
    result.to_datatree().to_netcdf(tmp_path / "point.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "point.nc", engine="h5netcdf") as opened:
        np.testing.assert_array_equal(opened["posterior/coef"].values[0, 0].T, COEF)


def test_a_posterior_is_given_as_it_is(posterior):
    tree = make(posterior=posterior).to_datatree()
    xr.testing.assert_equal(tree, posterior)
    assert "method" not in posterior.attrs
    means = az.summary(tree, kind="stats", round_to="none")["mean"].to_numpy()
    np.testing.assert_allclose(means, posterior["posterior/coef"].mean(("chain", "draw")).values.ravel())


# --- text -------------------------------------------------------------------------------------------------------------


def test_repr_says_what_matters(result):
    assert repr(result).splitlines() == [
        "FitResult of MixedNormRegressor: 2 tasks x 4 features",
        "  tasks: north, south",
        "  selected: 2 (income, rooms)",
        "  Converged in 7 iterations (tol 1e-06); the objective 1.25 is at most 1e-09 above its minimum.",
    ]


def test_summary_ranks_rows_by_norm(result):
    lines = result.summary().splitlines()
    assert lines[0] == "MixedNormRegressor: 2 of 4 features selected, 2 tasks"
    assert lines[1] == result.convergence.verdict()
    assert lines[2] == "Selected features: 1 shared by all tasks, 1 specific to one task."
    assert lines[4].split() == ["feature", "norm", "largest", "in", "task", "tasks"]
    assert lines[5].split() == ["income", "2.5", "2", "north", "all", "2", "tasks"]
    assert lines[6].split() == ["rooms", "0.25", "-0.25", "north", "only", "north"]
    assert len(lines) == 7


def test_nothing_selected_is_said():
    empty = make(coef=np.zeros((2, 4)))
    assert "0 of 4 features selected" in empty.summary()
    assert "No feature is selected." in empty.summary()
    assert "selected: 0\n" in repr(empty)


def test_text_stays_readable_at_size():
    p, m = 10_000, 139
    coef = np.random.default_rng(0).normal(size=(m, p))
    coef[:, 7] *= 100
    large = make(
        coef=coef,
        intercept=np.zeros(m),
        task_names=np.arange(m),
        feature_names=[f"a feature with a very long name, number {i}" for i in range(p)],
        **dict.fromkeys(("noise", "absent", "row_scales", "task_relations")),
    )
    lines = large.summary(n_rows=5).splitlines()
    assert len(lines) == 4 + 1 + 5 + 1
    assert max(map(len, lines)) <= 100
    assert lines[5].split()[-3:] == ["all", "139", "tasks"]
    assert lines[-1] == "... and 9995 more; to_frame(selected_only=True) has them all"
    assert len(repr(large).splitlines()) == 4
    assert max(map(len, repr(large).splitlines())) < 300


# --- files ------------------------------------------------------------------------------------------------------------


def assert_same(left: FitResult, right: FitResult) -> None:
    names = ("coef", "intercept", "task_names", "feature_names", "selection", "noise", "absent", "screened_out")
    for name in (*names, "row_scales", "task_relations"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), strict=True)
    assert (left.method, left.versions, left.seed) == (right.method, right.versions, right.seed)
    assert repr(left.settings) == repr(right.settings)
    ended, back = dataclasses.asdict(left.convergence), dataclasses.asdict(right.convergence)
    np.testing.assert_array_equal(ended.pop("objective_trace"), back.pop("objective_trace"), strict=True)
    assert repr(ended) == repr(back)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"task_names": np.array([7, 3])},
        {"task_names": np.array([7, 3], dtype=np.int32)},
        {"task_names": [True, False]},
        {"task_names": [0.1, np.inf]},
        {"task_names": ["größer", ""]},
        {"task_names": [1, "a"]},
        {"task_names": [("a", 1), ("b", 2)]},
        {"task_names": np.array(["a", "b"], dtype=object)},
        {"coef": COEF.astype(np.float32)},
        {
            "selection": np.array([True, False, False, False]),
            "noise": None,
            "seed": None,
            "absent": None,
            "settings": {},
        },
        {"convergence": Convergence(converged=False, n_iter=3, message="Stopped by hand.")},
        {"coef": np.zeros((2, 0)), "feature_names": [], "absent": None, "row_scales": None},
        {"screened_out": np.array([True, False, False, True]), "row_scales": None, "task_relations": None},
        {"coef": np.array([[np.nan, -0.0, np.inf, 5e-324], [1.0, 2.0, 3.0, 4.0]])},
    ],
)
def test_a_saved_result_comes_back_exactly(tmp_path, changes):
    result = make(**changes)
    result.save(tmp_path / "result")
    back = FitResult.from_stored(persistence.read(tmp_path / "result"))
    assert_same(result, back)
    assert back.posterior is None
    assert result.coef.tobytes() == back.coef.tobytes()


def test_a_saved_posterior_comes_back(tmp_path, posterior):
    make(posterior=posterior).save(tmp_path / "result")
    back = FitResult.from_stored(persistence.read(tmp_path / "result"))
    xr.testing.assert_identical(back.posterior, posterior)
    opened = az.from_netcdf(tmp_path / "result", engine="h5netcdf")
    xr.testing.assert_equal(opened["posterior"].to_dataset(), posterior["posterior"].to_dataset())
    opened.close()


def test_a_saved_file_has_named_axes(tmp_path, result):
    result.save(tmp_path / "result")
    with xr.open_datatree(tmp_path / "result", engine="h5netcdf") as opened:
        arrays = opened["bayesmtfs/arrays"]
        assert arrays["coef"].dims == ("task", "feature")
        assert arrays["feature_names"].values.tolist() == ["age", "income", "rent", "rooms"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]"), r"task_names has dtype datetime64"),
        ([frozenset("a"), frozenset("b")], r"task_names\[0\] is of type frozenset"),
    ],
)
def test_labels_that_cannot_be_saved_are_named(tmp_path, labels, message):
    with pytest.raises(TypeError, match=message):
        make(task_names=labels).save(tmp_path / "result")
    assert list(tmp_path.iterdir()) == []


def test_a_setting_that_cannot_be_saved_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"header\.settings\.rng is of type Generator"):
        make(settings={"rng": np.random.default_rng(0)}).save(tmp_path / "result")


def test_another_kind_of_file_is_not_a_result(result):
    with pytest.raises(ValueError, match="holds a Model, not a FitResult"):
        FitResult.from_stored(result.to_stored()._replace(kind="Model"))


@pytest.mark.parametrize("missing", ["coef", "objective_trace"])
def test_an_incomplete_file_is_corrupt(result, missing):
    stored = result.to_stored()
    del stored.arrays[missing]
    with pytest.raises(persistence.CorruptFileError, match=missing):
        FitResult.from_stored(stored)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda result: pickle.loads(pickle.dumps(result))])
def test_results_can_be_copied_and_sent_to_workers(result, duplicate):
    assert_same(result, duplicate(result))


def test_importing_results_stays_light():
    heavy = ("xarray", "h5py", "pymc", "arviz", "pandas", "polars")
    assert (
        run_python(f"import sys, bayesmtfs.results.fit_result; print(*(m for m in {heavy} if m in sys.modules))")
        == "\n"
    )


# ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"converged": True, "n_iter": 1}, "Converged in 1 iteration."),
        (
            {"converged": True, "n_iter": 3, "objective": 2.0},
            "Converged in 3 iterations; the objective 2 has no certificate on this route.",
        ),
        (
            {"converged": False, "n_iter": 9, "objective": 2.0, "gap": 0.5, "tol": 1e-4},
            "NOT converged after 9 iterations (tol 0.0001); the objective 2 is at most 0.5 above its minimum; "
            "raise max_iter or tol.",
        ),
        (
            {"converged": True, "n_iter": 500, "message": "R-hat is at most 1.004."},
            "Converged in 500 iterations. R-hat is at most 1.004.",
        ),
    ],
)
def test_the_verdict_is_a_sentence(fields, verdict):
    assert Convergence(**fields).verdict() == verdict


def test_a_route_without_certificate_has_no_gap():
    assert Convergence(converged=True, n_iter=1, gap=math.nan).gap is None
    assert Convergence(converged=True, n_iter=1, gap=0.0).gap == 0.0


def test_numpy_scalars_become_plain():
    ended = Convergence(converged=np.bool_(True), n_iter=np.int64(3), objective=np.float32(0.5), gap=np.float64(0.1))
    assert [type(value) for value in (ended.converged, ended.n_iter, ended.objective, ended.gap)] == [
        bool,
        int,
        float,
        float,
    ]


def test_the_trace_is_a_snapshot():
    trace = np.array([3.0, 2.0])
    ended = Convergence(converged=True, n_iter=2, objective_trace=trace)
    trace[0] = 0.0
    assert ended.objective_trace.tolist() == [3.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        ended.objective_trace[0] = 1.0


def test_versions_are_those_in_use():
    versions = current_versions()
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == np.__version__
    versions["numpy"] = "changed"
    assert current_versions()["numpy"] == np.__version__


def test_frozen_copy_leaves_the_original_writable():
    original = np.zeros(2)
    copy = frozen_copy(original)
    original[0] = 1.0
    assert copy.tolist() == [0.0, 0.0]
    assert not copy.flags.writeable


def test_frozen_copy_keeps_what_is_repeated_once():
    unit = np.arange(3.0)
    copy = frozen_copy(np.broadcast_to(unit[:, None], (3, 1000)))
    unit[:] = 0.0
    assert copy.shape == (3, 1000) and copy.strides[1] == 0
    assert (copy == np.arange(3.0)[:, None]).all() and not copy.flags.writeable


# --- uncertainty in the table -----------------------------------------------------------------------------------------


def test_table_of_a_posterior_has_intervals_probabilities_and_signs(posterior):
    draws = posterior["posterior"]["coef"].values.reshape(100, 4, 2)
    unit = np.array([[1.0, 2.0, 0.5, 1.0], [1.0, 1.0, 3.0, 2.0]])
    found = make(posterior=posterior, effect_unit=unit, settings={"effect_size": 0.7}).to_frame()
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    np.testing.assert_allclose(found["coef_lower"], low.ravel())
    np.testing.assert_allclose(found["effect_upper"], (high * unit.T).ravel())
    np.testing.assert_allclose(found["effect"], (COEF * unit).T.ravel())
    np.testing.assert_allclose(found["probability"], np.mean(np.abs(draws * unit.T) > 0.7, axis=0).ravel())
    wrong = np.minimum((draws < 0).mean(axis=0), (draws > 0).mean(axis=0))
    np.testing.assert_allclose(found["false_sign_rate"], wrong.ravel())


def test_table_of_a_posterior_with_exact_zeros_and_features_not_sampled(posterior):
    included = np.random.default_rng(1).random((2, 50, 3, 2)) < 0.4
    draws = posterior["posterior"].dataset.isel(feature=[0, 1, 3])
    tree = xr.DataTree.from_dict({"posterior": draws.assign(included=(draws["coef"].dims, included))})
    found = make(posterior=tree, absent=None).to_frame().set_index(["feature", "task"])
    assert found.loc[("rooms", "south"), "probability"] == included[:, :, 2, 1].mean()
    assert found.loc[("rent", "north"), ["probability", "false_sign_rate"]].tolist() == [0.0, 1.0]
    assert np.isnan(found.loc[("rent", "north"), "coef_lower"]) and "effect" not in found


def test_one_row_per_feature_of_a_point():
    found = make().to_frame(form="features")
    assert found["kind"].tolist() == ["none", "all", "none", "specific"]
    assert found["tasks"].tolist() == ["not selected", "all 2 tasks", "not selected", "only north"]
    np.testing.assert_allclose(found["norm"], np.linalg.norm(COEF, axis=0))
    assert found["largest"].tolist() == [0.0, 2.0, 0.0, -0.25] and found["largest_task"].tolist() == ["north"] * 4
    assert make().to_frame(form="features", selected_only=True)["feature"].tolist() == ["income", "rooms"]


def test_one_row_per_feature_of_draws(posterior):
    included = np.zeros((2, 50, 4, 2), dtype=bool)
    included[:, :, 0] = True  # both tasks
    included[:, :40, 1, 0] = True  # mostly the first one
    included[:, :20, 2, 0] = included[:, 20:40, 2, 1] = True  # somewhere
    draws = posterior["posterior"].dataset
    tree = xr.DataTree.from_dict({"posterior": draws.assign(included=(draws["coef"].dims, included))})
    selection = included.any(axis=3).mean(axis=(0, 1)) > 0.5
    found = make(posterior=tree, absent=None, selection=selection).to_frame(form="features")
    assert found["kind"].tolist() == ["all", "specific", "unclear", "none"]
    assert found["tasks"].tolist() == ["all 2 tasks", "only north", "in some task, unclear which", "not selected"]
    np.testing.assert_allclose(found["probability"], included.any(axis=3).mean(axis=(0, 1)))
    norms = np.linalg.norm(draws["coef"].values, axis=3).reshape(100, 4)
    np.testing.assert_allclose(
        found[["norm_lower", "norm", "norm_upper"]].T, np.quantile(norms, [0.05, 0.5, 0.95], axis=0)
    )
