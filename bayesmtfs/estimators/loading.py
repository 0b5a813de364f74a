"""Read back what ``save`` wrote: an estimator ready to predict, or a result."""

import os
from typing import Any

from bayesmtfs import persistence
from bayesmtfs.estimators.base import ESTIMATOR_KIND
from bayesmtfs.estimators.generalized_normal import GeneralizedNormalClassifier, GeneralizedNormalRegressor
from bayesmtfs.estimators.jeffreys import JeffreysClassifier, JeffreysRegressor
from bayesmtfs.estimators.matrix_variate import MatrixVariateClassifier, MatrixVariateRegressor
from bayesmtfs.estimators.penalised import MixedNormClassifier, MixedNormRegressor
from bayesmtfs.estimators.penalised_cv import MixedNormClassifierCV, MixedNormRegressorCV
from bayesmtfs.results import FitResult

# The only classes a file can bring back: a file names one of them, it never brings code.
ESTIMATORS = {
    cls.__name__: cls
    for cls in (
        GeneralizedNormalClassifier,
        GeneralizedNormalRegressor,
        JeffreysClassifier,
        JeffreysRegressor,
        MatrixVariateClassifier,
        MatrixVariateRegressor,
        MixedNormClassifier,
        MixedNormClassifierCV,
        MixedNormRegressor,
        MixedNormRegressorCV,
    )
}


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
    method = stored.header["method"]
    if method not in ESTIMATORS:
        raise persistence.CorruptFileError(
            f"{path} holds a {method}, which this version does not know; known are {', '.join(sorted(ESTIMATORS))}"
        )
    return ESTIMATORS[method].from_stored(stored)
