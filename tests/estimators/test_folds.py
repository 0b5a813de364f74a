"""Folds: tasks and classes spread over them, rows whole, tasks left out; and parts of TaskData."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, StratifiedKFold

from bayesmtfs import TaskData
from bayesmtfs.estimators.folds import input_rows, make_folds, take

RNG = np.random.default_rng(0)
TASKS = RNG.permutation(np.repeat(["a", "b", "c"], [13, 7, 22]))
X = RNG.standard_normal((42, 4))
LABELS = np.where(RNG.random(42) < 0.3, 1.0, -1.0)
Y = np.where(RNG.random((42, 3)) < 0.2, np.nan, RNG.standard_normal((42, 3)))


@pytest.fixture
def long_data():
    return TaskData.from_long(X, LABELS, TASKS)


@pytest.fixture
def wide_data():
    return TaskData.from_wide(X, Y)


def assert_partition(folds, n):
    assert (sum(fold.test.astype(int) for fold in folds) == 1).all()
    assert all((fold.train ^ fold.test).all() and len(fold.test) == n for fold in folds)


@pytest.mark.parametrize("random_state", [None, 3])
@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_tasks_and_classes_are_spread_evenly(long_data, n_folds, random_state):
    folds = make_folds(long_data, n_folds, by_class=True, random_state=random_state)
    assert_partition(folds, 42)
    assert len(folds) == n_folds
    for chosen in [long_data.task == t for t in range(3)]:
        sizes = [int((fold.test & chosen).sum()) for fold in folds]
        assert max(sizes) - min(sizes) <= 1
        for label in (-1, 1):
            sizes = [int((fold.test & chosen & (long_data.y == label)).sum()) for fold in folds]
            assert max(sizes) - min(sizes) <= 1


def test_random_state_shuffles_and_repeats(long_data):
    first, again, other = (make_folds(long_data, 5, random_state=seed) for seed in (1, 1, 2))
    assert all((f.test == g.test).all() for f, g in zip(first, again, strict=True))
    assert any((f.test != g.test).any() for f, g in zip(first, other, strict=True))


def test_wide_rows_stay_whole(wide_data):
    folds = make_folds(wide_data)
    assert_partition(folds, wide_data.n_observations)
    assert len(folds) == 5
    for fold in folds:
        assert not set(input_rows(wide_data)[fold.test]) & set(input_rows(wide_data)[fold.train])


def test_wide_classes_are_spread():
    data = TaskData.from_wide(X, np.column_stack([LABELS, -LABELS]))
    for fold in make_folds(data, 3, by_class=True):
        positive = int((data.y[fold.test & (data.task == 0)] > 0).sum())
        assert abs(positive - (LABELS > 0).sum() / 3) < 1


def test_splitters_see_the_users_rows_targets_and_tasks(long_data, wide_data):
    rows = input_rows(long_data)
    for fold, (train, test) in zip(make_folds(long_data, KFold(4)), KFold(4).split(X), strict=True):
        assert sorted(rows[fold.train]) == train.tolist() and sorted(rows[fold.test]) == test.tolist()
    for fold in make_folds(long_data, GroupKFold(3)):
        assert len(set(TASKS[rows[fold.test]])) == 1
    assert len(make_folds(long_data, LeaveOneGroupOut())) == 3
    stratified = make_folds(long_data, StratifiedKFold(3), target=LABELS)
    for fold, (_, test) in zip(stratified, StratifiedKFold(3).split(X, LABELS), strict=True):
        assert sorted(rows[fold.test]) == test.tolist()
    assert len(make_folds(wide_data, KFold(3))) == 3


def test_rows_without_weight_keep_their_numbers():
    weight = np.ones(42)
    weight[[0, 10, 41]] = 0
    data = TaskData.from_long(X, LABELS, TASKS, sample_weight=weight)
    (fold,) = make_folds(data, [(np.arange(20), np.arange(20, 42))], n_rows=42)
    assert sorted(input_rows(data)[fold.train]) == [i for i in range(20) if weight[i]]
    assert sorted(input_rows(data)[fold.test]) == [i for i in range(20, 42) if weight[i]]


@pytest.mark.parametrize("data", ["long_data", "wide_data"])
def test_whole_tasks_are_left_out(request, data):
    data = request.getfixturevalue(data)
    names = data.task_names.tolist()
    alone = make_folds(data, "leave_one_task_out")
    assert [set(data.task[fold.test]) for fold in alone] == [{0}, {1}, {2}]
    grouped = make_folds(data, {names[0]: "u", names[1]: "v", names[2]: "u"})
    assert [set(data.task[fold.test]) for fold in grouped] == [{0, 2}, {1}]
    assert_partition(grouped, data.n_observations)


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (1, "cv is 1; pass a number of folds between 2 and the number of rows, 42"),
        (43, "cv is 43; pass a number of folds"),
        ("loo", "cv is 'loo'; pass a number of folds, a scikit-learn splitter"),
        (0.5, "cv is 0.5; pass a number of folds"),
        ([], "cv has no folds"),
        ([([0, 1], [99])], "row numbers up to 99 but X has 42 rows"),
        ([([0, 1], [])], "a test set of cv has no row with an observed target"),
        ([([0.5], [1])], r"cv has a set of shape \(1,\) and dtype float64; pass 1-D row numbers"),
        ({"a": 0, "b": 1}, "cv is a mapping without the task 'c'"),
        ({"a": 0, "b": 0, "c": 0}, "make one group only"),
    ],
)
def test_bad_folds(long_data, cv, message):
    with pytest.raises(ValueError, match=message):
        make_folds(long_data, cv)


def test_one_row_is_too_few():
    with pytest.raises(ValueError, match=r"at least two rows but X has n_samples=1"):
        make_folds(TaskData.from_long(X[:1], [1.0]))


@pytest.mark.parametrize("design", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("form", ["long", "wide", "single"])
def test_a_part_is_the_data_of_its_rows(form, design):
    kept = RNG.random(42) < 0.5
    if form == "wide":
        whole, part = TaskData.from_wide(design(X), Y), TaskData.from_wide(design(X[kept]), Y[kept])
        chosen = kept[input_rows(whole)]
    else:
        tasks = TASKS if form == "long" else None
        whole = TaskData.from_long(design(X), LABELS, tasks)
        part = TaskData.from_long(design(X[kept]), LABELS[kept], None if tasks is None else TASKS[kept])
        chosen = kept[whole.order]
    found = take(whole, chosen).data
    W, b = RNG.standard_normal((4, part.n_tasks)), RNG.standard_normal(part.n_tasks)
    assert found.shared_design == part.shared_design and found.is_complete == part.is_complete
    np.testing.assert_array_equal(found.y, part.y)
    np.testing.assert_allclose(found.linear_predictor(W, b), part.linear_predictor(W, b))
    np.testing.assert_allclose(found.adjoint(part.y), part.adjoint(part.y))
    np.testing.assert_allclose(sp.csr_matrix(found.X).toarray(), sp.csr_matrix(part.X).toarray())


def test_tasks_without_observations_are_dropped(long_data, wide_data):
    part = take(long_data, long_data.task == 1)
    assert part.tasks.tolist() == [1] and part.data.task_names.tolist() == ["b"] and part.data.shared_design
    part = take(wide_data, wide_data.task != 1)
    assert part.tasks.tolist() == [0, 2] and part.data.shared_design
    np.testing.assert_array_equal(part.data.y, wide_data.y[wide_data.task != 1])
