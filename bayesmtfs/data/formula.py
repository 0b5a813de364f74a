"""A formula as a way to write features: ``score ~ age + C(sex) + age:income``, learned on a table, applied to later ones.

The package formulae reads the formula (Wilkinson and Rogers 1973, *Applied Statistics* 22:392-399): categories are coded
against their first level, and what a transformation learns (the mean in ``center(age)``, the knots in ``bs(age, df=4)``) it
keeps for new rows. The intercept is left to the estimators, which have one per task, and columns of one term are one group:
they are selected together.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data.frames import as_narwhals
from bayesmtfs.types import FloatArray, IntArray

INTERCEPT = "Intercept"


class Formula:
    """A formula with the coding that it learned on a table.

    Parameters
    ----------
    formula : such as ``"score ~ age + C(sex)"``
    df : the table, a pandas, polars or pyarrow frame without missing values in the columns that the formula names

    Attributes
    ----------
    names : (p,) names of the features
    groups : (p,) number of the term that each feature comes from
    X : (n, p) features of the table
    y : (n,) its targets, as formulae codes them
    """

    def __init__(self, formula: str, df: Any) -> None:
        if "~" not in formula:
            raise ValueError(f"formula is {formula!r}; write the target before a ~, such as 'score ~ age + C(sex)'")
        self.formula = formula
        self._design = _read(formula, as_pandas(df))
        terms = [name for name in self._design.common.terms if name != INTERCEPT]
        if not terms:
            raise ValueError(f"formula is {formula!r} and has no features; name at least one after the ~")
        slices = self._design.common.slices
        self._kept = np.concatenate([np.arange(slices[name].start, slices[name].stop) for name in terms])
        sizes = [slices[name].stop - slices[name].start for name in terms]
        self.groups: IntArray = np.repeat(np.arange(len(terms)), sizes)
        self.names = [str(label) for name in terms for label in self._design.common.terms[name].labels]
        self.X: FloatArray = self._columns(self._design.common)
        self.y: NDArray[Any] = np.asarray(self._design.response.design_matrix)

    def __call__(self, df: Any) -> Any:
        """Features of new rows, as a pandas frame; a frame that has these columns already comes back as it is."""
        import pandas as pd

        if set(self.names) <= set(as_narwhals(df).columns):
            return df
        try:
            return pd.DataFrame(self._columns(self._new(as_pandas(df))), columns=self.names)
        except (KeyError, ValueError, NameError) as error:
            raise ValueError(f"the formula {self.formula!r} does not go with these rows: {error}") from error

    def _new(self, df: Any) -> Any:
        from formulae.config import config

        before = config["EVAL_UNSEEN_CATEGORIES"]
        config["EVAL_UNSEEN_CATEGORIES"] = "error"
        try:
            return self._design.common.evaluate_new_data(df)
        finally:
            config["EVAL_UNSEEN_CATEGORIES"] = before

    def _columns(self, common: Any) -> FloatArray:
        return np.asarray(common.design_matrix, dtype=np.float64)[:, self._kept]


def _read(formula: str, df: Any) -> Any:
    """What formulae makes of a formula and a table."""
    try:
        from formulae import design_matrices
    except ImportError as error:
        raise ImportError(
            "TaskData.from_formula needs the package formulae, which is not installed; run pip install 'bayesmtfs[formula]'"
        ) from error
    try:
        found = design_matrices(formula, df, na_action="error")
    except Exception as error:  # formulae has errors of many kinds, among them those of a parser
        raise ValueError(f"formula {formula!r} cannot be read: {error}") from error
    if found.group is not None:
        raise ValueError(
            f"formula is {formula!r}, whose group-specific terms have no place here; name the grouping column as task="
        )
    if found.response is None or found.common is None:
        raise ValueError(f"formula is {formula!r}; write a target, a ~ and features, such as 'score ~ age + C(sex)'")
    return found


def as_pandas(df: Any) -> Any:
    """A frame as formulae wants it."""
    return as_narwhals(df).to_pandas()
