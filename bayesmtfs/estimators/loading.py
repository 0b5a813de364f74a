"""Read back what ``save`` wrote: an estimator ready to predict, or a result."""

import importlib
import os
from typing import Any

from bayesmtfs.estimators.base import ESTIMATOR_KIND
from bayesmtfs.public_names import BASELINES, ESTIMATORS
from bayesmtfs.results import persistence
from bayesmtfs.results.fit_result import FitResult


def load(path: str | os.PathLike[str]) -> Any:
    """Load a fitted estimator or a `FitResult` from the file that its ``save`` wrote.

    Parameters
    ----------
    path : the file

    Returns
    -------
    the estimator, or the result

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np
    >>> from bayesmtfs import MixedNormRegressor, load
    >>> model = MixedNormRegressor().fit(np.eye(4), [1.0, 2.0, 3.0, 4.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "model"
    ...     model.save(path)
    ...     bool((load(path).coef_ == model.coef_).all())
    True
    """
    stored = persistence.read(path)
    if stored.kind != ESTIMATOR_KIND:
        return FitResult.from_stored(stored)
    method, known = stored.header.get("method"), ESTIMATORS | BASELINES
    if method not in known:
        raise persistence.CorruptFileError(
            f"{path} holds a {method}, which this version does not know; known are {', '.join(sorted(known))}"
        )
    # A file names one of our own classes, it never brings code
    estimator = getattr(importlib.import_module(known[method]), method)
    try:
        return estimator.from_stored(stored)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise persistence.CorruptFileError(
            f"{path} does not hold a whole {method} ({type(error).__name__}: {error}); save the fit again"
        ) from error
