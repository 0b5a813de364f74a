"""What all estimators share: selection, files."""

import importlib
import inspect
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bayesmtfs as bm
from bayesmtfs import baselines
from bayesmtfs.estimators.base import (
    BatchEstimator,
    check_kinds,
    docstring_sections,
    estimator_class,
    section_entries,
    unchanged_on_error,
)
from bayesmtfs.public_names import BASELINES, ESTIMATORS
from bayesmtfs.types import SelectionWarning


@pytest.fixture(scope="module")
def sim():
    return bm.simulate_tasks(n_tasks=3, n_features=10, n_relevant=3, n_samples=40, random_state=1)


@pytest.fixture(scope="module")
def frame(sim):
    return pd.DataFrame(sim.X, columns=[f"f{i}" for i in range(10)]).assign(task=sim.tasks)


@pytest.fixture(scope="module")
def model(sim):
    return bm.MixedNormRegressor(penalty_strength=0.5).fit(sim.X, sim.y, tasks=sim.tasks)


def test_no_poor_score_tag_and_no_expected_failures():
    tags = sklearn.utils.get_tags(bm.MixedNormRegressor())
    assert not tags.regressor_tags.poor_score
    assert not tags.no_validation and not tags.non_deterministic


# shapes


def test_attributes_have_the_contracts_shapes(sim, model):
    assert model.coef_.shape == (3, 10)
    assert model.intercept_.shape == (3,)
    assert model.tasks_.tolist() == [0, 1, 2]
    assert model.predict(sim.X, tasks=sim.tasks).shape == sim.y.shape
    single = bm.MixedNormRegressor().fit(sim.X, sim.y)
    assert single.coef_.shape == (1, 10) and single.predict(sim.X).shape == (120,)
    wide = bm.MixedNormRegressor().fit(sim.X, np.column_stack([sim.y, -sim.y]))
    assert wide.coef_.shape == (2, 10) and wide.predict(sim.X).shape == (120, 2)


def test_rows_of_a_wide_model_can_be_predicted_by_task(sim):
    Y = pd.DataFrame({"up": sim.y, "down": -sim.y})
    model = bm.MixedNormRegressor().fit(sim.X, Y)
    assert model.tasks_.tolist() == ["up", "down"]
    both = model.predict(sim.X)
    tasks = np.where(np.arange(120) % 2, "up", "down")
    np.testing.assert_allclose(model.predict(sim.X, tasks=tasks), np.where(tasks == "up", both[:, 0], both[:, 1]))


def test_score_is_r2_over_observed_cells(sim, model):
    predicted = model.predict(sim.X, tasks=sim.tasks)
    expected = 1 - np.sum((sim.y - predicted) ** 2) / np.sum((sim.y - sim.y.mean()) ** 2)
    assert model.score(sim.X, sim.y, tasks=sim.tasks) == pytest.approx(expected)
    Y = np.column_stack([sim.y, sim.y])
    Y[:60, 1] = np.nan
    wide = bm.MixedNormRegressor().fit(sim.X, Y)
    fitted = wide.predict(sim.X)
    seen = slice(60, None)
    second = 1 - np.sum((sim.y[seen] - fitted[seen, 1]) ** 2) / np.sum((sim.y[seen] - sim.y[seen].mean()) ** 2)
    first = 1 - np.sum((sim.y - fitted[:, 0]) ** 2) / np.sum((sim.y - sim.y.mean()) ** 2)
    assert wide.score(sim.X, Y) == pytest.approx((first + second) / 2)


# selection


def test_support_transform_and_names_agree(sim, frame):
    X = frame.drop(columns="task")
    model = bm.MixedNormRegressor(penalty_strength=0.5).fit(X, sim.y, tasks=sim.tasks)
    support = model.get_support()
    assert 0 < support.sum() < 10
    np.testing.assert_array_equal(np.flatnonzero(support), model.get_support(indices=True))
    np.testing.assert_array_equal(model.transform(X), sim.X[:, support])
    assert model.get_feature_names_out().tolist() == [f"f{i}" for i in np.flatnonzero(support)]
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        model.get_feature_names_out(["a"] * 10)


@pytest.mark.parametrize(("library", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_set_output(sim, frame, library, kind):
    X = frame.drop(columns="task")
    X = pl.from_pandas(X) if library == "polars" else X
    model = bm.MixedNormRegressor(penalty_strength=0.5).set_output(transform=library)
    out = model.fit(X, sim.y, tasks=sim.tasks).transform(X)
    assert isinstance(out, kind)
    assert list(out.columns) == model.get_feature_names_out().tolist()


def test_transform_drops_the_task_column(sim, frame):
    model = bm.MixedNormRegressor(penalty_strength=0.5, task_column="task").fit(frame, sim.y)
    assert model.n_features_in_ == 11 and model.coef_.shape == (3, 10)
    np.testing.assert_array_equal(model.transform(frame), sim.X[:, model.get_support()])


def test_nothing_selected_is_warned_of(sim):
    model = bm.MixedNormRegressor(penalty_strength=1e6).fit(sim.X, sim.y, tasks=sim.tasks)
    with pytest.warns(SelectionWarning, match="no feature is selected; a weaker penalty"):
        assert model.transform(sim.X).shape == (120, 0)


def test_categorical_columns_at_predict(sim, frame):
    df = frame.drop(columns="task").assign(kind=pd.Categorical(np.where(sim.X[:, 0] > 0, "hi", "lo")))
    model = bm.MixedNormRegressor(penalty_strength=0.01).fit(df, sim.y, tasks=sim.tasks)
    assert model.coef_.shape == (3, 11) and model.n_features_in_ == 11
    np.testing.assert_allclose(model.predict(df[::-1], tasks=sim.tasks[::-1]), model.predict(df, tasks=sim.tasks)[::-1])
    strange = df.assign(kind=pd.Categorical(["new"] * len(df)))
    with pytest.raises(ValueError, match=r"column 'kind' of X has the level 'new'.*known levels are \['hi', 'lo'\]"):
        model.predict(strange, tasks=sim.tasks)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_tasks_with_different_features_are_predicted_from_frames(tmp_path, library):
    rng = np.random.default_rng(3)
    df = pd.DataFrame(rng.standard_normal((40, 3)), columns=list("abc"))
    first, second = df[["a", "b"]], df[["c", "b"]]
    data = bm.TaskData.from_list([(library(first), df["a"]), (library(second), df["c"])], task_names=["one", "two"])
    model = bm.MixedNormRegressor(penalty_strength=0.01).fit(data)
    expected = df.to_numpy() @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.predict(library(first), tasks=["one"] * 40), expected)
    nulls = first.assign(c=np.nan)
    np.testing.assert_allclose(model.predict(library(nulls), tasks=["one"] * 40), expected)
    with pytest.raises(ValueError, match="X contains NaN in row 0, feature 2, which the task of that row has"):
        model.predict(library(nulls), tasks=["two"] * 40)
    assert model.result_.to_frame()["absent"].tolist() == [False, True, False, False, True, False]
    model.save(tmp_path / "model")
    np.testing.assert_allclose(bm.load(tmp_path / "model").predict(library(first), tasks=["one"] * 40), expected)


# scikit-learn tools


def test_clone_and_pickle(sim, model):
    assert clone(model).get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(sim.X, tasks=sim.tasks), model.predict(sim.X, tasks=sim.tasks))


def test_grid_search_and_pipeline_with_task_column(sim, frame):
    search = GridSearchCV(
        bm.MixedNormRegressor(task_column="task"),
        {"penalty_strength": [0.01, 1.0], "norm_q": [1, 2]},
        cv=KFold(3, shuffle=True, random_state=0),
    ).fit(frame, sim.y)
    assert search.best_params_["penalty_strength"] == 0.01
    pipe = make_pipeline(StandardScaler(with_mean=False), bm.MixedNormRegressor(task_column=10))
    numbers = frame.to_numpy()
    # a task label is only a name: scaling the column leaves the tasks what they were
    scores = cross_validate(pipe, numbers, sim.y, cv=KFold(3, shuffle=True, random_state=0), error_score="raise")
    assert (scores["test_score"] > 0.5).all()


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_routing_of_tasks(sim):
    model = bm.MixedNormRegressor().set_fit_request(tasks=True).set_score_request(tasks=True)
    folds = KFold(3, shuffle=True, random_state=0)
    for estimator in (model, make_pipeline(StandardScaler(), model)):
        scores = cross_validate(estimator, sim.X, sim.y, params={"tasks": sim.tasks}, cv=folds, error_score="raise")
        assert (scores["test_score"] > 0.5).all()
    search = GridSearchCV(model, {"penalty_strength": [0.01, 1.0]}, cv=folds, error_score="raise")
    search.fit(sim.X, sim.y, tasks=sim.tasks)
    assert search.best_params_ == {"penalty_strength": 0.01}


def test_unfitted_is_said():
    with pytest.raises(NotFittedError):
        bm.MixedNormRegressor().predict(np.eye(2))


def test_task_data_and_targets_together_are_refused(sim):
    with pytest.raises(ValueError, match="X is TaskData, which holds everything already, but y was passed too"):
        bm.MixedNormRegressor().fit(sim.data, sim.y)


def test_tasks_twice_is_refused(sim, frame):
    with pytest.raises(ValueError, match="pass the labels in one way only"):
        bm.MixedNormRegressor(task_column="task").fit(frame, sim.y, tasks=sim.tasks)


# files


@pytest.mark.parametrize("form", ["long", "wide", "frame"])
def test_saved_estimator_predicts_the_same(tmp_path, sim, frame, form):
    path = tmp_path / "exactly this name"
    model = bm.MixedNormRegressor(norm_q=np.inf, groups=None)
    if form == "long":
        call = {"X": sim.X, "tasks": np.array(["a", "b", "c"])[sim.tasks]}
        model.fit(call["X"], sim.y, tasks=call["tasks"])
    elif form == "wide":
        call = {"X": sim.X}
        model.fit(sim.X, np.column_stack([sim.y, -sim.y]))
    else:
        df = frame.assign(kind=pd.Categorical(np.where(sim.X[:, 0] > 0, "hi", "lo")))
        call = {"X": df}
        model.set_params(task_column="task").fit(df, sim.y)
    model.save(path)
    assert list(tmp_path.iterdir()) == [path]
    again = bm.load(path)
    assert type(again) is bm.MixedNormRegressor and again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.predict(**call), model.predict(**call))
    assert again.dual_gap_ == model.dual_gap_ and again.penalty_strength_ == model.penalty_strength_
    assert again.tasks_.tolist() == model.tasks_.tolist()
    np.testing.assert_array_equal(again.get_feature_names_out(), model.get_feature_names_out())
    assert again.result_.summary() == model.result_.summary()


def test_result_and_estimator_files_are_told_apart(tmp_path, model):
    model.result_.save(tmp_path / "result")
    assert isinstance(bm.load(tmp_path / "result"), bm.FitResult)


def test_result_carries_names_settings_and_verdict(model):
    result = model.result_
    assert result.settings["penalty_strength"] == 0.5
    assert result.versions["bayesmtfs"] == bm.__version__
    assert result.convergence.converged
    assert result.to_frame().shape == (30, 5)
    assert result.to_datatree()["posterior"]["coef"].shape == (1, 1, 10, 3)


# A fit that fails leaves what the fit before it left


CLASSIFIERS = [
    bm.MixedNormClassifier(),
    bm.MixedNormClassifierCV(cv=2, n_penalties=3),
    bm.JeffreysClassifier(),
    bm.SmoothedClassifier(),
    bm.OnlineMixedNormClassifier(random_state=0),
    bm.baselines.IndependentClassifier(),
]


@pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: type(model).__name__)
def test_predictions_after_a_failed_fit_are_those_before_it(model):
    sim = bm.simulate_tasks(n_tasks=2, n_features=4, n_samples=30, n_relevant=2, kind="classification", random_state=21)
    tasks = np.array(["a", "b"])[sim.tasks]
    model.fit(sim.X, sim.y, tasks=tasks)
    before = model.decision_function(sim.X, tasks=tasks)
    with pytest.raises(ValueError, match="only one class"):
        model.fit(sim.X, np.ones(60), tasks=np.where(tasks == "a", "z", "b"))
    assert model.tasks_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.decision_function(sim.X, tasks=tasks), before)


def test_interrupts_undo_too_and_success_stays():
    model = bm.MixedNormRegressor()
    with pytest.raises(KeyboardInterrupt), unchanged_on_error(model):
        model.tasks_ = np.array([1])
        raise KeyboardInterrupt
    assert not hasattr(model, "tasks_")
    with unchanged_on_error(model):
        model.tasks_ = np.array([2])
    assert model.tasks_.tolist() == [2]


# Truth values and whole numbers are asked for by every estimator that declares them


X = np.random.default_rng(0).standard_normal((24, 3))
LABELS = np.tile([0, 1], 12)
TASKS = np.repeat([0, 1], 12)

WRONG = [
    (bm.MixedNormRegressor(max_iter=1.5), "max_iter is 1.5; pass a whole number such as 10000"),
    (bm.MixedNormRegressor(max_iter=True), "max_iter is True; pass a whole number"),
    (bm.MixedNormClassifier(fit_intercept="no"), "fit_intercept is 'no'; pass True or False"),
    (bm.MixedNormRegressorCV(n_penalties=7.0), "n_penalties is 7.0; pass a whole number such as 100"),
    (bm.JeffreysRegressor(standardize=None), "standardize is None; pass True or False"),
    (bm.GeneralizedNormalRegressor(max_iter="many"), "max_iter is 'many'; pass a whole number"),
    (bm.OnlineMixedNormRegressor(shuffle="yes"), "shuffle is 'yes'; pass True or False"),
    (bm.OnlineSmoothedClassifier(epochs=0.5), "epochs is 0.5; pass a whole number such as 1"),
    (bm.DiscriminativeSelector(standardize=1), "standardize is 1; pass True or False"),
    (baselines.FisherScoreSelector(standardize="x"), "standardize is 'x'; pass True or False"),
]


@pytest.mark.parametrize(("model", "message"), WRONG, ids=lambda value: type(value).__name__)
def test_fit_refuses_the_wrong_kind(model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(X, LABELS, tasks=TASKS)


@pytest.mark.parametrize("kind", [bm.OnlineMixedNormRegressor, bm.OnlineSmoothedClassifier])
def test_the_first_batch_of_a_stream_is_refused(kind):
    with pytest.raises(ValueError, match="average is 'often'; pass True or False"):
        kind(average="often").partial_fit(X, LABELS, TASKS)


def test_numbers_of_numpy_are_welcome():
    model = bm.MixedNormRegressor(max_iter=np.int64(500), fit_intercept=np.bool_(False))
    assert model.fit(X, LABELS, tasks=TASKS).converged_


def test_estimators_without_fields_are_let_through():
    check_kinds(object())


def test_every_parameter_of_a_public_estimator_is_described_once_and_in_order():
    for name, home in (ESTIMATORS | BASELINES).items():
        estimator = getattr(importlib.import_module(home), name)
        described = section_entries(docstring_sections(inspect.getdoc(estimator))["Parameters"])
        assert list(described) == list(inspect.signature(estimator).parameters), name
        assert all(text.strip(" :\n") for text in described.values()), name


@estimator_class(kw_only=True)
class Grandparent(BatchEstimator):
    """The base.

    Parameters
    ----------
    depth, width : float
        Size of it.

    Attributes
    ----------
    area_ : float
    """

    depth: float = 1.0
    width: float = 1.0


@estimator_class()
class Child(Grandparent):
    """The summary.

    Parameters
    ----------
    width : int
        In whole steps.
    height : float

    Attributes
    ----------
    volume_ : float

    Notes
    -----
    Its own.
    """

    height: float = 2.0


def test_a_class_inherits_the_descriptions_that_it_does_not_give():
    """Parameters are in the order of the signature; the text above and below them is the class's."""
    sections = docstring_sections(inspect.getdoc(Child))
    parameters = section_entries(sections["Parameters"])
    assert [name for name in parameters if name in ("height", "width", "depth")] == ["height", "depth", "width"]
    assert parameters["depth"] == " : float\n    Size of it."
    assert parameters["width"] == " : int\n    In whole steps."
    assert list(section_entries(sections["Attributes"]))[:2] == ["volume_", "area_"]
    assert sections[""] == "The summary." and sections["Notes"] == "Its own."
    assert list(sections) == ["", "Parameters", "Attributes", "Notes"]
