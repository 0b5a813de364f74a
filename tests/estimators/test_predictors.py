"""Classifiers: labels of every kind, decisions, probabilities, scores."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from scipy.special import expit
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate

import bayesmtfs as bm
from bayesmtfs import MixedNormClassifier, TaskData

# ---------------------------------------------------------------------- data


def make_long(seed=0, sizes=(16, 22, 13), p=6):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(["a", "b", "c"], sizes)
    X = rng.standard_normal((len(tasks), p))
    signs = np.where(X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(len(tasks)) > 0.2, 1.0, -1.0)
    order = rng.permutation(len(tasks))
    return X[order], signs[order], tasks[order], rng.uniform(0.5, 2.0, len(tasks))


def make_wide(seed=1, n=24, p=6, m=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    Y = np.where(X[:, :2] @ rng.standard_normal((2, m)) + 0.5 * rng.standard_normal((n, m)) > 0, 1.0, -1.0)
    Y[rng.random((n, m)) < 0.2] = np.nan
    return X, Y, rng.uniform(0.5, 2.0, (n, m))


# ---------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("negative", "positive"),
    [("no", "yes"), (False, True), (0, 1), (-1, 1), (3, 17), (0.0, 1.0), ("größe", "ärger"), ("0", "1"), ("", "a")],
)
def test_any_two_labels(negative, positive):
    X, signs, tasks, _ = make_long()
    low, high = sorted([negative, positive])
    labels = np.array([high if s > 0 else low for s in signs])
    reference = MixedNormClassifier().fit(X, signs, tasks=tasks)
    for given in (labels, labels.tolist(), pd.Series(labels), pl.Series(labels.tolist()), labels.astype(object)):
        model = MixedNormClassifier().fit(X, given, tasks=tasks)
        assert model.classes_.tolist() == [low, high]
        np.testing.assert_array_equal(model.coef_, reference.coef_)
        predicted = model.predict(X, tasks=tasks)
        assert predicted.dtype == model.classes_.dtype
        assert model.score(X, given, tasks=tasks) == np.mean(predicted == labels)


def test_categorical_and_nullable_labels():
    X, signs, tasks, _ = make_long()
    words = np.where(signs > 0, "b", "a")
    reference = MixedNormClassifier().fit(X, words, tasks=tasks)
    containers = [
        pd.Categorical(words, categories=["b", "a", "unused"]),
        pd.Series(words, dtype="string"),
        pl.Series(words.tolist(), dtype=pl.Enum(["b", "a", "unused"])),
    ]
    for given in containers:
        model = MixedNormClassifier().fit(X, given, tasks=tasks)
        assert model.classes_.tolist() == ["a", "b"]
        np.testing.assert_array_equal(model.coef_, reference.coef_)
    nullable = MixedNormClassifier().fit(X, pd.Series(signs > 0, dtype="boolean"), tasks=tasks)
    assert nullable.classes_.tolist() == [False, True]


def test_missing_cells_of_every_kind():
    X, Y, _ = make_wide()
    reference = MixedNormClassifier().fit(X, Y)
    words = np.where(Y > 0, "yes", "no").astype(object)
    words[np.isnan(Y)] = None
    flags = pd.DataFrame(words == "yes", columns=list("abc")).astype("boolean").mask(np.isnan(Y))
    for given in (words, pd.DataFrame(words), pl.DataFrame(words.tolist(), orient="row"), flags):
        model = MixedNormClassifier().fit(X, given)
        np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-12)
        assert model.score(X, given) == reference.score(X, Y)


def test_labels_of_task_data():
    X, signs, tasks, _ = make_long()
    reference = MixedNormClassifier().fit(X, signs, tasks=tasks)
    for labels in (
        np.where(signs > 0, "yes", "no"),
        signs > 0,
        np.where(signs > 0, 7, 3),
        np.where(signs > 0, "9", "10"),
    ):
        data = TaskData.from_long(X, labels, tasks)
        model = MixedNormClassifier().fit(data)
        assert model.classes_.tolist() == np.unique(labels).tolist()
        assert model.classes_.dtype.kind == labels.dtype.kind
        sign = 1 if labels[signs > 0][0] == model.classes_[1] else -1
        np.testing.assert_allclose(sign * model.coef_, reference.coef_, atol=1e-5)
        np.testing.assert_array_equal(model.predict(data), model.predict(X, tasks=tasks))


def test_several_classes_of_task_data():
    X, _, _, _ = make_long()
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    data = TaskData.from_long(X, y)
    model = MixedNormClassifier().fit(data)
    np.testing.assert_array_equal(model.predict(data), MixedNormClassifier().fit(X, y).predict(X))
    assert model.predict_proba(data).shape == (len(X), 3)


# ---------------------------------------------------------------------- decisions and probabilities


def test_shapes_signs_and_probabilities_of_each_form():
    X, signs, tasks, _ = make_long()
    long = MixedNormClassifier().fit(X, signs > 0, tasks=tasks)
    decision, probability = long.decision_function(X, tasks=tasks), long.predict_proba(X, tasks=tasks)
    assert decision.shape == (len(X),) and probability.shape == (len(X), 2)
    np.testing.assert_allclose(probability[:, 1], expit(decision))
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    np.testing.assert_array_equal(long.predict(X, tasks=tasks), decision > 0)
    assert np.corrcoef(decision, signs)[0, 1] > 0.5
    X, Y, _ = make_wide()
    wide = MixedNormClassifier().fit(X, Y)
    assert wide.decision_function(X).shape == wide.predict(X).shape == wide.predict_proba(X).shape == (24, 3)
    np.testing.assert_allclose(wide.predict_proba(X), expit(X @ wide.coef_.T + wide.intercept_))
    classes = MixedNormClassifier().fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
    shares = expit(classes.decision_function(X))
    np.testing.assert_allclose(classes.predict_proba(X), shares / shares.sum(axis=1, keepdims=True))


def test_probabilities_stay_finite_far_away():
    X, signs, _, _ = make_long()
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    for model in (MixedNormClassifier().fit(X, signs), MixedNormClassifier().fit(X, y)):
        probability = model.predict_proba(1e6 * X)
        assert np.isfinite(probability).all()
        np.testing.assert_allclose(probability.sum(axis=1), 1)


def test_probabilities_are_calibrated_within_tasks():
    sim = bm.simulate_tasks(n_tasks=3, n_features=5, n_relevant=2, n_samples=300, kind="classification", random_state=0)
    labels = sim.y == np.unique(sim.y)[1]
    model = MixedNormClassifier(penalty_strength=1e-3).fit(sim.X, labels, tasks=sim.tasks)
    probability = model.predict_proba(sim.X, tasks=sim.tasks)[:, 1]
    for task in np.unique(sim.tasks):
        own = sim.tasks == task
        # the optimality condition of an unpenalised intercept: mean probability = share of the class
        assert probability[own].mean() == pytest.approx(labels[own].mean(), abs=1e-3)
    likely = probability > 0.8
    assert abs(labels[likely].mean() - probability[likely].mean()) < 0.05


def test_hinge_has_no_probabilities():
    model = MixedNormClassifier(loss="hinge")
    assert not hasattr(model, "predict_proba")
    assert hasattr(MixedNormClassifier(), "predict_proba")


def test_unknown_task_gets_the_average():
    X, signs, tasks, _ = make_long()
    model = MixedNormClassifier(unknown_task="mean").fit(X, signs, tasks=tasks)
    expected = X @ model.coef_.mean(axis=0) + model.intercept_.mean()
    np.testing.assert_allclose(model.decision_function(X, tasks=["new"] * len(X)), expected)


# ---------------------------------------------------------------------- weights, separability, containers


def test_weight_two_is_a_repeated_row_and_zero_none():
    X, signs, tasks, _ = make_long()
    weight = np.arange(len(signs)) % 3
    again = np.repeat(np.arange(len(signs)), weight)
    weighted = MixedNormClassifier(tol=1e-9).fit(X, signs, tasks=tasks, sample_weight=weight)
    plain = MixedNormClassifier(tol=1e-9).fit(X[again], signs[again], tasks=tasks[again])
    np.testing.assert_allclose(weighted.coef_, plain.coef_, atol=1e-5)
    doubled = MixedNormClassifier(tol=1e-9).fit(X, signs, tasks=tasks, sample_weight=np.full(len(X), 2.0))
    np.testing.assert_allclose(doubled.coef_, MixedNormClassifier(tol=1e-9).fit(X, signs, tasks=tasks).coef_, atol=1e-6)


def test_cells_of_weight_zero_are_unobserved():
    X, Y, _ = make_wide()
    weight = np.where(np.isnan(Y), 0.0, 1.0)
    weighted = MixedNormClassifier(tol=1e-9).fit(X, np.nan_to_num(Y, nan=1.0), sample_weight=weight)
    np.testing.assert_allclose(weighted.coef_, MixedNormClassifier(tol=1e-9).fit(X, Y).coef_, atol=1e-6)


@pytest.mark.parametrize("refit", [False, True])
def test_separable_classes_have_a_finite_fit(refit):
    X, _, tasks, _ = make_long()
    model = MixedNormClassifier(refit=refit).fit(X, X[:, 0] > 0, tasks=tasks)
    assert model.converged_ and np.isfinite(model.coef_).all()
    assert model.score(X, X[:, 0] > 0, tasks=tasks) > 0.9
    assert (model.coef_[:, 0] > 0).all()


@pytest.mark.parametrize("wrap", [sp.csr_matrix, sp.csc_array, pd.DataFrame, np.asfortranarray])
def test_every_container_gives_the_same_fit(wrap):
    X, signs, tasks, _ = make_long()
    reference = MixedNormClassifier(tol=1e-9).fit(X, signs, tasks=tasks)
    model = MixedNormClassifier(tol=1e-9).fit(wrap(X), signs, tasks=tasks)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-5)
    np.testing.assert_allclose(
        model.decision_function(wrap(X), tasks=tasks), reference.decision_function(X, tasks=tasks), atol=1e-4
    )


# ---------------------------------------------------------------------- scores


def test_score_is_accuracy_by_form_and_weight():
    X, signs, tasks, weight = make_long()
    model = MixedNormClassifier(penalty_strength=0.1).fit(X, signs, tasks=tasks)
    predicted = model.predict(X, tasks=tasks)
    expected = accuracy_score(signs, predicted, sample_weight=weight)
    assert model.score(X, signs, tasks=tasks, sample_weight=weight.tolist()) == pytest.approx(expected)
    X, Y, weight = make_wide()
    wide = MixedNormClassifier(penalty_strength=0.1).fit(X, Y)
    seen, right = ~np.isnan(Y), wide.predict(X) == Y
    by_task = [np.average(right[seen[:, t], t], weights=weight[seen[:, t], t]) for t in range(3)]
    assert wide.score(X, Y, sample_weight=weight) == pytest.approx(np.mean(by_task))
    Y[:, 1] = np.nan
    first_and_last = [right[seen[:, t], t].mean() for t in (0, 2)]
    assert wide.score(X, Y) == pytest.approx(np.mean(first_and_last))


def test_unknown_labels_in_score_count_as_wrong():
    X, signs, tasks, _ = make_long()
    model = MixedNormClassifier().fit(X, np.where(signs > 0, "yes", "no"), tasks=tasks)
    predicted = model.predict(X, tasks=tasks)
    changed = predicted.astype(object)
    changed[:5] = "perhaps"
    assert model.score(X, changed, tasks=tasks) == pytest.approx(1 - 5 / len(X))
    with pytest.raises(ValueError, match=r"y has labels such as -1.0 but the classes of fit are \['no', 'yes'\]; pass"):
        model.score(X, signs, tasks=tasks)


def test_shape_of_a_score_is_checked():
    X, Y, _ = make_wide()
    model = MixedNormClassifier().fit(X, Y)
    with pytest.raises(ValueError, match=r"y has shape \(24,\) but predictions have shape \(24, 3\); pass y as in fit"):
        model.score(X, Y[:, 2] > 0)
    with pytest.raises(ValueError, match="y has no observed cell"):
        model.score(X, np.full(Y.shape, np.nan))


# ---------------------------------------------------------------------- scikit-learn tools and files


def test_grid_search_with_scorers():
    X, signs, tasks, _ = make_long()
    frame = pd.DataFrame(X, columns=list("uvwxyz")).assign(task=tasks)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(
        MixedNormClassifier(task_column="task"),
        {"penalty_strength": [0.02, 1e3], "norm_q": [1, 2]},
        scoring=["roc_auc", "neg_log_loss", "accuracy"],
        refit="neg_log_loss",
        cv=folds,
        error_score="raise",
    ).fit(frame, signs > 0)
    assert search.best_params_["penalty_strength"] == 0.02
    assert search.predict_proba(frame).shape == (len(X), 2)
    scores = cross_validate(
        MixedNormClassifier(), X, np.digitize(X[:, 0], [-0.5, 0.5]), scoring="neg_log_loss", cv=folds
    )
    assert np.isfinite(scores["test_score"]).all()


def test_routing_of_tasks():
    X, signs, tasks, _ = make_long()
    with sklearn.config_context(enable_metadata_routing=True):
        model = MixedNormClassifier().set_fit_request(tasks=True).set_score_request(tasks=True)
        folds = StratifiedKFold(3, shuffle=True, random_state=0)
        scores = cross_validate(model, X, signs, params={"tasks": tasks}, cv=folds, error_score="raise")
    assert (scores["test_score"] > 0.5).all()


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [4, 9], [0.0, 1.0]])
@pytest.mark.parametrize("form", ["long", "wide", "classes"])
def test_files_and_pickles_predict_the_same(tmp_path, labels, form):
    X, signs, tasks, _ = make_long()
    call = {"X": X}
    if form == "classes":
        y = (
            np.digitize(X[:, 0], [-0.5, 0.5])
            if labels == [4, 9]
            else np.array(["a", "b", "c"])[np.digitize(X[:, 0], [0, 1])]
        )
    elif form == "wide":
        y = np.array(labels)[np.column_stack([signs > 0, signs < 0]).astype(int)]
    else:
        y = np.array(labels)[(signs > 0).astype(int)]
        call["tasks"] = tasks
    model = MixedNormClassifier().fit(X, y, tasks=call.get("tasks"))
    model.save(tmp_path / "model")
    for again in (bm.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert again.classes_.dtype == model.classes_.dtype and again.classes_.tolist() == model.classes_.tolist()
        np.testing.assert_array_equal(again.predict(**call), model.predict(**call))
        np.testing.assert_array_equal(again.predict_proba(**call), model.predict_proba(**call))
        assert again.score(y=y, **call) == model.score(y=y, **call)
    assert clone(model).get_params() == model.get_params()


# ---------------------------------------------------------------------- errors


def test_lone_classes_are_named_with_tasks_and_counts():
    X, signs, tasks, _ = make_long()
    lone = np.where(np.isin(tasks, ["a", "c"]), 1.0, signs)
    message = r"y has only one class in 2 of 3 tasks: 'a' \(16 rows\), 'c' \(13 rows\); two or more are needed"
    with pytest.raises(ValueError, match=message):
        MixedNormClassifier().fit(X, lone, tasks=tasks)
    with pytest.raises(ValueError, match="only one class"):
        MixedNormClassifier().fit(X, np.ones(len(X)))
    with pytest.raises(ValueError, match=r"one class in 1 of 3 tasks: 'b'"):
        MixedNormClassifier().fit(X, signs, tasks=tasks, sample_weight=np.where((tasks == "b") & (signs > 0), 0, 1))


def three_classes():
    X, _, tasks, _ = make_long()
    return X, np.digitize(X[:, 0], [-0.5, 0.5]), tasks


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda X, y, tasks: MixedNormClassifier().fit(X, y, tasks=tasks),
            "y has 3 classes and tasks was passed; .* leave",
        ),
        (
            lambda X, y, tasks: MixedNormClassifier().fit(X, y, tasks=["one"] * len(X)),
            "y has 3 classes and tasks was passed",
        ),
        (
            lambda X, y, tasks: MixedNormClassifier().fit(X, np.c_[y, y]),
            "y has 3 classes in 2 tasks; tasks must be binary",
        ),
        (
            lambda X, y, tasks: MixedNormClassifier().fit(X, y).predict(X, tasks=tasks),
            "tasks was passed but MixedNormClassifier was fitted on one task with 3 classes; leave tasks out",
        ),
        (lambda X, y, tasks: MixedNormClassifier().fit(X, X[:, 0]), "y does not hold class labels: .* Use a regressor"),
        (lambda X, y, tasks: MixedNormClassifier().fit(X, y[:5]), r"y has shape \(5,\) but X has 51 rows"),
        (
            lambda X, y, tasks: MixedNormClassifier(loss="squared").fit(X, y),
            "loss is 'squared'; choose one of 'logistic'",
        ),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call(*three_classes())


def test_unfitted_is_said():
    for method in ("predict", "decision_function", "predict_proba", "transform"):
        with pytest.raises(NotFittedError):
            getattr(MixedNormClassifier(), method)(np.eye(2))


@pytest.mark.parametrize(
    "model",
    [
        bm.MixedNormRegressor(),
        bm.JeffreysRegressor(),
        bm.OnlineMixedNormRegressor(random_state=0),
        bm.BayesianRegressor(draws=20, tune=20, chains=2, random_state=0),
    ],
)
@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")
def test_new_task_data_find_the_features_of_the_fit_by_name(model):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "b": rng.normal(size=40), "task": np.arange(40) % 2})
    frame["y"] = 3.0 * frame["a"] + 0.1 * rng.normal(size=40)
    model = clone(model).fit(bm.TaskData.from_frame(frame, target="y", task="task"))
    turned = bm.TaskData.from_frame(frame[["b", "a", "task", "y"]], target="y", task="task")
    known = bm.TaskData.from_frame(frame, target="y", task="task")
    np.testing.assert_allclose(model.predict(turned), model.predict(known), rtol=1e-10)
    with pytest.raises(ValueError, match="lacks features of the fit: 'b'"):
        model.predict(bm.TaskData.from_frame(frame.drop(columns="b"), target="y", task="task"))
    if hasattr(model, "partial_fit"):
        other = clone(model).partial_fit(known).partial_fit(known)
        model = clone(model).partial_fit(known).partial_fit(turned)
        np.testing.assert_allclose(model.coef_, other.coef_)
