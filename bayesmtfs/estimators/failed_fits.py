"""A fit that fails leaves the estimator as it was, and not with the names of new data beside the coefficients of old."""

from collections.abc import Iterator
from contextlib import contextmanager

from sklearn.base import BaseEstimator


@contextmanager
def unchanged_on_error(estimator: BaseEstimator) -> Iterator[None]:
    """Undo what is set on an estimator within the block if an error or Ctrl-C ends it.

    Parameters
    ----------
    estimator : the estimator that is fitted in the block

    Examples
    --------
    >>> from sklearn.base import BaseEstimator
    >>> model = BaseEstimator()
    >>> try:
    ...     with unchanged_on_error(model):
    ...         model.tasks_ = ["a", "b"]
    ...         raise ValueError("task 'b' has no rows")
    ... except ValueError:
    ...     print(hasattr(model, "tasks_"))
    False
    """
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise
