"""Batches of streams: sparse forms of the same rows agree, batches that fit no task of the stream are refused."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from bayesmtfs import (
    OnlineMixedNormClassifier,
    OnlineMixedNormRegressor,
    OnlineSmoothedClassifier,
    OnlineSmoothedRegressor,
)
from bayesmtfs.estimators.base import load

N, P = 80, 8
REGRESSORS = [OnlineMixedNormRegressor(penalty_strength=0.05), OnlineSmoothedRegressor()]
CLASSIFIERS = [OnlineMixedNormClassifier(penalty_strength=0.01), OnlineSmoothedClassifier()]
regressors = pytest.mark.parametrize("model", REGRESSORS, ids=lambda model: type(model).__name__)
classifiers = pytest.mark.parametrize("model", CLASSIFIERS, ids=lambda model: type(model).__name__)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)) * (rng.random((N, P)) < 0.6)
    return X, X @ rng.standard_normal(P) + 0.1 * rng.standard_normal(N), rng.choice(list("cab"), N)


def streamed(model, rows, form=np.asarray, size=10):
    """A model after all rows, in batches of this form."""
    model = clone(model)
    X, y, tasks = rows
    for start in range(0, N, size):
        part = slice(start, start + size)
        model.partial_fit(form(X[part]), y[part], tasks=tasks[part])
    return model


def halves(X):
    """Every entry stored twice, as two halves."""
    A = sp.csr_matrix(X)
    return sp.csr_matrix((np.repeat(A.data / 2, 2), np.repeat(A.indices, 2), 2 * A.indptr), shape=A.shape)


def backwards(X):
    """Entries of every row from the last column to the first."""
    A = sp.csr_matrix(X[:, ::-1])
    return sp.csr_matrix((A.data, P - 1 - A.indices, A.indptr), shape=A.shape)


def with_zeros(X):
    """Zeros are stored too."""
    return sp.csr_matrix((X.ravel().copy(), np.tile(np.arange(P), len(X)), P * np.arange(len(X) + 1)), shape=X.shape)


def long_indices(X):
    A = sp.csr_array(X)
    A.indices, A.indptr = A.indices.astype(np.int64), A.indptr.astype(np.int64)
    return A


@regressors
@pytest.mark.parametrize("form", [halves, backwards, with_zeros, long_indices, sp.csc_matrix])
@pytest.mark.parametrize("size", [1, 10])
def test_sparse_forms_of_the_same_rows_agree(model, form, size, rows):
    plain, other = streamed(model, rows, size=size), streamed(model, rows, form, size)
    np.testing.assert_allclose(other.coef_, plain.coef_, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(other.intercept_, plain.intercept_, rtol=1e-10)


@regressors
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_a_batch_that_is_not_finite_is_refused_and_changes_nothing(model, form, number, rows):
    X, y, tasks = rows
    learned, refused = streamed(model, rows, form), streamed(model, rows, form)
    broken = X[:20].copy()
    broken[13, 2] = number
    with pytest.raises(ValueError, match="X contains (NaN|-?inf)"):
        refused.partial_fit(form(broken), y[:20], tasks=tasks[:20])
    for stream in (learned, refused):
        stream.partial_fit(form(X[:20]), y[:20], tasks=tasks[:20])
    np.testing.assert_array_equal(refused.coef_, learned.coef_)
    assert refused.n_rounds_ == learned.n_rounds_


@pytest.mark.parametrize("size", [1, 16, 80])
def test_whole_numbers_as_labels_are_read_like_lists(rows, size):
    X, y, tasks = rows
    # far apart in the first case, close together in the second, with labels that come late
    for labels in (np.array([-(10**9), 7, 10**12]), np.array([3, 5, 4])):
        numbers = labels[np.searchsorted(list("abc"), tasks)]
        arrays, lists = (OnlineMixedNormClassifier(penalty_strength=0.01) for _ in range(2))
        for start in range(0, N, size):
            part = slice(start, start + size)
            target = np.where(y[part] > 0, 2, -2)
            arrays.partial_fit(X[part], target, tasks=numbers[part], classes=[-2, 2])
            lists.partial_fit(X[part], target.tolist(), tasks=numbers[part].tolist(), classes=[-2, 2])
        np.testing.assert_array_equal(arrays.coef_, lists.coef_)
        assert arrays.tasks_.tolist() == sorted(labels)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_norms_are_chosen_on_sparse_streams_saved_in_between(rows, form, tmp_path):
    several = OnlineMixedNormRegressor(penalty_strength=0.05, norm_q=[1, 2, np.inf])
    alone = [streamed(clone(several).set_params(norm_q=norm_q), rows, form) for norm_q in several.norm_q]
    X, y, tasks = rows
    for start in range(0, N, 10):
        part = slice(start, start + 10)
        several.partial_fit(form(X[part]), y[part], tasks=tasks[part]).save(tmp_path / "stream")
        several = load(tmp_path / "stream")
    best = min(alone, key=lambda model: model.progressive_loss_)
    assert several.norm_q_ == best.norm_q_ and several.progressive_loss_ == best.progressive_loss_
    np.testing.assert_array_equal(several.coef_, best.coef_)
    np.testing.assert_allclose(several.predict(form(X), tasks=tasks), best.predict(X, tasks=tasks), rtol=1e-10)


# ---------------------------------------------------------------------- what is refused


@regressors
def test_batches_without_labels_in_a_stream_with_labels(model, rows):
    X, y, tasks = rows
    stream = streamed(model, rows)
    before = stream.coef_
    with pytest.raises(ValueError, match=r"tasks is None, but the batches before had task labels \('a', 'b', 'c'\)"):
        stream.partial_fit(X[:3], y[:3])
    np.testing.assert_array_equal(stream.coef_, before)
    assert stream.partial_fit(X[:1], y[:1], tasks=tasks[:1]).tasks_.tolist() == list("abc")
    fitted = clone(model).fit(X, y, tasks=np.arange(N) % 7)
    with pytest.raises(ValueError, match=r"task labels \(0, 1, 2, 3, 4, ...\); pass one task label per row as tasks"):
        fitted.partial_fit(X[:1], y[:1])


@regressors
def test_labels_in_a_stream_without_labels(model, rows):
    X, y, tasks = rows
    with pytest.raises(ValueError, match="tasks has labels, but the batches before had none"):
        clone(model).partial_fit(X, y).partial_fit(X, y, tasks=tasks)


@regressors
def test_one_column_in_a_stream_of_several(model, rows):
    X, y, _ = rows
    wide = clone(model).partial_fit(X, np.c_[y, -y])
    with pytest.raises(ValueError, match=r"y has one axis, but the batches before had one column per task \(0, 1\)"):
        wide.partial_fit(X, y)
    assert wide.partial_fit(X[:2], y[:2], tasks=[1, 0]).tasks_.tolist() == [0, 1]


@classifiers
def test_swapped_labels_of_tasks_and_classes(model, rows):
    X, y, tasks = rows
    labels = np.where(y > 0, "yes", "no")
    stream = clone(model).partial_fit(X, labels, tasks=tasks)
    with pytest.raises(ValueError, match=r"y holds '[abc]', which is a task .* if y and tasks were swapped"):
        stream.partial_fit(X, tasks, tasks=labels)
