"""Online smoothed learners: batches, new tasks, files, messages."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from bayesmtfs import TaskData, simulate_tasks
from bayesmtfs.estimators.base import load
from bayesmtfs.estimators.smoothed import OnlineSmoothedClassifier, OnlineSmoothedRegressor
from bayesmtfs.results.persistence import read


@pytest.fixture(scope="module")
def sim():
    return simulate_tasks(
        n_tasks=4, n_features=6, n_relevant=6, n_samples=50, kind="classification", snr=20.0, random_state=0
    )


def source_of(model):
    kind = "regression" if isinstance(model, OnlineSmoothedRegressor) else "classification"
    return simulate_tasks(n_tasks=4, n_features=6, n_relevant=6, n_samples=50, kind=kind, snr=20.0, random_state=0)


def pieces_of(sim, cuts=(0, 7, 20, 50)):
    """Masks of rows that belong to the rounds between two cuts."""
    number = np.concatenate([np.arange(50)] * 4)
    return [(number >= low) & (number < high) for low, high in zip(cuts[:-1], cuts[1:], strict=True)]


# ---------------------------------------------------------------------- pieces of a stream


@pytest.mark.parametrize("weight", [None, np.ones], ids=["plain rows", "read with care"])
def test_parameters_that_change_between_batches(sim, weight):
    first, second = np.arange(200) % 50 < 25, np.arange(200) % 50 >= 25
    options = {"sample_weight": None if weight is None else weight(100)}

    def learned(**changed):
        model = OnlineSmoothedClassifier(random_state=0).partial_fit(sim.X[first], sim.y[first], sim.tasks[first])
        model.set_params(**changed)
        return model.partial_fit(sim.X[second], sim.y[second], sim.tasks[second], **options)

    late = learned(step=0.1, concentration=1.0, update="threshold", trigger="active", fit_intercept=False)
    np.testing.assert_array_equal(late.coef_, learned().coef_)
    assert not np.array_equal(late.fit(sim.X, sim.y, sim.tasks).coef_, learned().fit(sim.X, sim.y, sim.tasks).coef_)
    assert not np.array_equal(learned(normalize_rows=True).coef_, learned().coef_)  # at once


@pytest.mark.parametrize(
    "model",
    [
        OnlineSmoothedClassifier(),
        OnlineSmoothedClassifier(update="threshold", smoothing=2.0, trigger="margin", normalize_rows=True),
        OnlineSmoothedClassifier(average=True, step="auto", concentration="auto", trigger="active"),
        OnlineSmoothedClassifier(neighbours=2, average=True),
        OnlineSmoothedRegressor(smoothing=10.0),
        OnlineSmoothedRegressor(loss="epsilon_insensitive", epsilon=0.1, neighbours=3),
    ],
    ids=["plain", "threshold", "auto", "neighbours", "squared", "epsilon"],
)
def test_pieces_saved_and_loaded_are_one_go_bit_for_bit(model, tmp_path):
    sim = source_of(model)
    whole = clone(model).set_params(random_state=3).partial_fit(sim.X, sim.y, tasks=sim.tasks)
    stream = clone(model).set_params(random_state=3)
    for piece in pieces_of(sim):
        stream.partial_fit(sim.X[piece], sim.y[piece], tasks=sim.tasks[piece])
        stream.save(tmp_path / "model")
        stream = pickle.loads(pickle.dumps(type(model).from_stored(read(tmp_path / "model"))))
    np.testing.assert_array_equal(stream.coef_, whole.coef_)
    np.testing.assert_array_equal(stream.intercept_, whole.intercept_)
    np.testing.assert_array_equal(dense(stream.task_relations_), dense(whole.task_relations_))
    assert stream.n_rounds_ == stream.n_iter_ == 50
    unshuffled = clone(model).set_params(random_state=3, shuffle=False).fit(sim.X, sim.y, tasks=sim.tasks)
    np.testing.assert_array_equal(unshuffled.coef_, whole.coef_)


@pytest.mark.parametrize("model", [OnlineSmoothedClassifier(normalize_rows=True), OnlineSmoothedRegressor()])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_plain_arrays_are_read_faster_but_not_otherwise(model, form):
    sim = source_of(model)
    plain, careful = clone(model), clone(model)
    shuffled = np.random.RandomState(0).permutation(200)
    for rows in (np.arange(200), shuffled[:30], shuffled[30:31], shuffled[31:]):
        plain.partial_fit(form(sim.X[rows]), sim.y[rows], tasks=sim.tasks[rows])
        careful.partial_fit(form(sim.X[rows]), sim.y[rows].tolist(), tasks=sim.tasks[rows].tolist())
    np.testing.assert_array_equal(plain.coef_, careful.coef_)
    assert plain.n_rounds_ == careful.n_rounds_


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else matrix


def test_load_knows_the_classifier(sim, tmp_path):
    model = OnlineSmoothedClassifier(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(sim.X, sim.tasks), model.predict(sim.X, sim.tasks))


def test_forms_of_the_same_stream_agree(sim):
    model = OnlineSmoothedClassifier(shuffle=False)
    first = clone(model).fit(sim.X, sim.y, tasks=sim.tasks)
    frame = pd.DataFrame(sim.X).add_prefix("f").assign(task=sim.tasks)
    others = [
        clone(model).fit(sp.csr_matrix(sim.X), sim.y, tasks=sim.tasks),
        clone(model).set_params(task_column="task").fit(frame, sim.y),
        clone(model).fit(TaskData.from_long(sim.X, sim.y, sim.tasks)),
        clone(model).partial_fit(TaskData.from_long(sim.X, sim.y, sim.tasks)),
        clone(model).set_params(task_column="task").partial_fit(frame, sim.y),
    ]
    for other in others:
        np.testing.assert_allclose(other.coef_, first.coef_, rtol=1e-12, atol=1e-12)


def test_wide_batches_may_lack_whole_tasks():
    sim = simulate_tasks(n_tasks=3, n_features=4, n_relevant=4, n_samples=30, shared_design=True, random_state=0)
    model = OnlineSmoothedRegressor(smoothing=10.0)
    Y = sim.y.copy()
    Y[:15, 1] = np.nan
    wide = clone(model).partial_fit(sim.X[:15], Y[:15]).partial_fit(sim.X[15:], Y[15:])
    assert wide.tasks_.tolist() == [0, 1, 2] and wide.predict(sim.X).shape == (30, 3)
    rows, columns = np.nonzero(~np.isnan(Y[15:]))
    long = clone(model).partial_fit(sim.X[:15], Y[:15])
    long.partial_fit(TaskData.from_long(sim.X[15:][rows], Y[15:][rows, columns], columns))
    np.testing.assert_allclose(long.coef_, wide.coef_, rtol=1e-12)


# ---------------------------------------------------------------------- tasks that come and go


def test_new_tasks_join_in_the_order_of_their_names(sim):
    names = np.array(["d", "a", "c", "b"])[sim.tasks]
    early = np.isin(names, ["d", "b"])
    model = OnlineSmoothedClassifier().partial_fit(sim.X[early], sim.y[early], tasks=names[early])
    assert model.tasks_.tolist() == ["b", "d"]
    before = {name: model.coef_[k].copy() for k, name in enumerate(model.tasks_.tolist())}
    row = np.flatnonzero(names == "a")[:1]
    model.partial_fit(sim.X[row], sim.y[row], tasks=names[row])
    assert model.tasks_.tolist() == ["a", "b", "d"] and model.coef_.shape == (3, 6)
    eta = model.task_relations_
    np.testing.assert_allclose(eta.sum(axis=1), 1.0)
    assert (np.diag(eta) >= 0.5).all()
    for k, name in enumerate(["b", "d"], start=1):  # moved by one row only, if at all
        step = model.coef_[k] - before[name]
        assert np.linalg.matrix_rank(np.vstack([step, sim.X[row[0]]])) == 1
    assert model.predict(sim.X[:2], tasks=["b", "a"]).shape == (2,)


def test_learners_keep_their_weights_when_tasks_join_one_by_one(sim):
    names = np.array(["d", "a", "c", "b"])[sim.tasks]
    model = OnlineSmoothedClassifier(concentration=1.0)  # independent: nobody else's rows move a learner
    for name in ("d", "a", "c", "b"):
        own = np.flatnonzero(names == name)
        model.partial_fit(sim.X[own], sim.y[own], tasks=names[own], classes=[-1, 1])
    known = OnlineSmoothedClassifier(concentration=1.0).partial_fit(sim.X, sim.y, tasks=names)
    np.testing.assert_allclose(model.coef_, known.coef_, rtol=1e-12)


def test_absent_learners_learn_from_those_present(sim):
    present = sim.tasks != 2
    model = OnlineSmoothedClassifier().partial_fit(sim.X[:1], sim.y[:1], tasks=[2], classes=[-1, 1])
    before = model.coef_[0].copy()
    model.partial_fit(sim.X[present], sim.y[present], tasks=sim.tasks[present])
    assert np.linalg.norm(model.coef_[2] - before) > 0.1


def test_labels_and_classes_over_batches(sim):
    names = np.where(sim.y > 0, "yes", "no")
    one = np.flatnonzero(names == "no")[:3]
    with pytest.raises(ValueError, match="y has only the class .* pass all labels that will come as classes"):
        OnlineSmoothedClassifier().partial_fit(sim.X[one], names[one], tasks=sim.tasks[one])
    model = OnlineSmoothedClassifier().partial_fit(sim.X[one], names[one], sim.tasks[one], classes=["yes", "no"])
    assert model.classes_.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match="y has labels that are not among the classes"):
        model.partial_fit(sim.X[:1], ["maybe"], tasks=sim.tasks[:1])
    with pytest.raises(ValueError, match="classes is not the same as in the first batch"):
        model.partial_fit(sim.X[:1], ["no"], tasks=sim.tasks[:1], classes=["no", "maybe"])


def test_several_classes_are_tasks(sim):
    y = np.digitize(sim.X[:, 0], [-0.5, 0.5])
    model = OnlineSmoothedClassifier(concentration=1.0, average=True).partial_fit(sim.X, y, classes=[0, 1, 2])
    again = OnlineSmoothedClassifier(concentration=1.0, average=True, shuffle=False).fit(sim.X, y)
    np.testing.assert_array_equal(model.coef_, again.coef_)
    assert model.decision_function(sim.X).shape == (200, 3) and model.score(sim.X, y) > 0.6


# ---------------------------------------------------------------------- size


def test_many_features_stay_sparse():
    rng = np.random.default_rng(0)
    n, p = 240, 200_000
    X = sp.csr_matrix((rng.normal(size=n * 100), rng.integers(0, p, n * 100), 100 * np.arange(n + 1)), shape=(n, p))
    y, tasks = rng.integers(0, 2, n), np.arange(n) % 24
    model = OnlineSmoothedClassifier(fit_intercept=False).partial_fit(X, y, tasks=tasks, classes=[0, 1])
    touched = np.unique(X.indices)
    assert np.isin(np.flatnonzero(model.get_support()), touched).all()


def test_a_hundred_thousand_tasks_fit_in_little_memory():
    rng = np.random.default_rng(0)
    K = 100_000
    X, tasks = rng.normal(size=(K, 3)), np.arange(K)
    y = (X[:, 0] > 0).astype(int)
    model = OnlineSmoothedClassifier(neighbours=4, random_state=0).partial_fit(X, y, tasks=tasks)
    for _ in range(2):
        model.partial_fit(X, y, tasks=tasks)
    eta = model.task_relations_
    assert sp.issparse(eta) and eta.nnz <= 4 * K
    assert model.score(X[:200], y[:200], tasks=tasks[:200]) > 0.8


# ---------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"update": "linear"}, "update is 'linear'; choose one of 'exponential', 'threshold'"),
        ({"trigger": "always"}, "trigger is 'always'; choose one of 'error', 'margin', 'active'"),
        ({"concentration": -0.1}, "concentration is -0.1; pass a number from 0 to 1, or 'auto'"),
        ({"concentration": "high"}, "concentration is 'high'; choose one of 'auto'"),
        ({"step": 0.0}, "step is 0.0; pass a positive number"),
        ({"smoothing": -1.0}, "smoothing is -1.0; pass a positive number"),
        ({"neighbours": 0}, "neighbours is 0; pass a whole number of at least 1, or None"),
        ({"horizon": 0}, "horizon is 0; pass a whole number"),
        ({"epochs": 0}, "epochs is 0; pass a whole number"),
    ],
)
def test_parameters_are_checked(sim, options, message):
    with pytest.raises(ValueError, match=message):
        OnlineSmoothedClassifier(**options).fit(sim.X, sim.y, tasks=sim.tasks)


def test_weights_that_overflow_are_refused():
    X = np.array([[1e200], [-1e200]])
    model = OnlineSmoothedRegressor(loss="epsilon_insensitive", step=1e200)
    with pytest.raises(ValueError, match="the weights are no longer finite: rows of X are too long for the step"):
        model.partial_fit(X, [1.0, 2.0], tasks=[0, 1])


def test_messages_of_batches(sim):
    model = OnlineSmoothedClassifier().fit(sim.X, sim.y, tasks=sim.tasks)
    with pytest.raises(ValueError, match="X has 3 features, but the first batch had 6"):
        model.partial_fit(TaskData.from_long(sim.X[:, :3], sim.y, sim.tasks))
    with pytest.raises(ValueError, match="requires y to be passed"):
        model.partial_fit(sim.X)
    with pytest.raises(ValueError, match="epsilon is -1.0; pass a number of at least 0"):
        OnlineSmoothedRegressor(epsilon=-1.0).fit(sim.X, sim.y, tasks=sim.tasks)
    with pytest.raises(ValueError, match="y has no observed cell with a positive weight"):
        OnlineSmoothedRegressor().partial_fit(sim.X[:2], np.full((2, 2), np.nan))
