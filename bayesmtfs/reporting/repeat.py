"""The code that makes and fits an estimator again."""

import importlib
import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesmtfs.public_names import BASELINES, ESTIMATORS
from bayesmtfs.results.fit_result import FitResult


def code_to_repeat(result: FitResult) -> str:
    """Lines that make and fit the estimator of a result again.

    Settings that no code can write down, such as arrays, are named in a comment.
    """
    settings = _changed_settings(result)
    written = {name: code for name, value in settings.items() if (code := literal(value)) is not None}
    arguments = "".join(f"\n    {name}={code}," for name, code in written.items())
    place = f"bm.baselines.{result.method}" if result.method in BASELINES else f"bm.{result.method}"
    lines = ["import bayesmtfs as bm", "", f"model = {place}({arguments}{chr(10) if arguments else ''})"]
    if len(written) < len(settings):
        others = ", ".join(name for name in settings if name not in written)
        lines.insert(2, f"# and the same {others} as in the fit")
    lines.append("model.fit(X, y)" if "task_column" in written else "model.fit(X, y, tasks=tasks)")
    return "\n".join(lines)


def literal(value: Any) -> str | None:
    """A value as Python code, None where it has no short one.

    Examples
    --------
    >>> literal([1, float("inf")]), literal("learn"), literal(object())
    ("[1, float('inf')]", "'learn'", None)
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, list | tuple):
        parts = [literal(part) for part in value]
        return None if None in parts else f"[{', '.join(map(str, parts))}]"
    return None


def _changed_settings(result: FitResult) -> Mapping[str, Any]:
    """Settings that the estimator's constructor takes and that differ from its defaults."""
    home = (ESTIMATORS | BASELINES).get(result.method)
    if home is None:
        return {name: value for name, value in result.settings.items() if name != "n_rows"}
    known = inspect.signature(getattr(importlib.import_module(home), result.method)).parameters
    return {
        name: value
        for name, value in result.settings.items()
        if name in known and name != "progress" and literal(value) != literal(known[name].default)
    }
