"""Whether parameters are of the kind that their class declares: truth values, and whole numbers.

The parameters of an estimator are dataclass fields, so that ``fit_intercept: bool`` and ``max_iter: int`` say it all.
Without a look, ``fit_intercept="no"`` counts as true and ``max_iter=1.5`` as one round or two. Ranges are checked by the
classes themselves.
"""

import numbers
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def check_kinds(estimator: Any) -> None:
    """Refuse parameters that are declared as a truth value or a whole number and are something else.

    Parameters
    ----------
    estimator : an estimator whose parameters are dataclass fields; others are let through

    Examples
    --------
    >>> from bayesmtfs import MixedNormRegressor
    >>> check_kinds(MixedNormRegressor(fit_intercept="no"))
    Traceback (most recent call last):
    ...
    ValueError: fit_intercept is 'no'; pass True or False
    """
    if not is_dataclass(estimator):
        return
    for parameter in fields(estimator):
        value = getattr(estimator, parameter.name)
        truth = isinstance(value, bool | np.bool_)
        if parameter.type is bool and not truth:
            raise ValueError(f"{parameter.name} is {value!r}; pass True or False")
        if parameter.type is int and (truth or not isinstance(value, numbers.Integral)):
            raise ValueError(f"{parameter.name} is {value!r}; pass a whole number such as {parameter.default}")
