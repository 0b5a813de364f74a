"""Right-censored times: an array or frame with ``event`` and ``time`` outside, times with a sign inside."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data import frames
from bayesmtfs.data.inputs import as_array
from bayesmtfs.types import FloatArray

FIELDS = ("event", "time")


def read_survival(y: Any, n_rows: int) -> FloatArray:
    """Read times (n,), with a minus sign where they are censored: -0.0 where that is at once.

    Parameters
    ----------
    y : (n,) structured array with a boolean field ``event`` and a field ``time`` (under any names where there are only
        two fields), a frame with such columns, or (n, 2) numbers: time, and event as 1 or 0
    n_rows : n

    Examples
    --------
    >>> y = np.array([(True, 2.0), (False, 5.0)], dtype=[("event", bool), ("time", float)])
    >>> read_survival(y, 2)
    array([ 2., -5.])
    """
    event, time = _fields(y)
    if event.dtype.kind == "O" and all(isinstance(entry, bool | np.bool_) for entry in event):
        event = event.astype(bool)
    if len(time) != n_rows:
        raise ValueError(
            f"y has {len(time)} entries but X has {n_rows} rows (inconsistent numbers of samples); pass one per row"
        )
    if event.dtype.kind not in "biuf" or not np.isin(event, (0, 1)).all():
        raise ValueError("y has an event that is neither True (1) nor False (0); pass one truth value per row")
    if time.dtype.kind not in "iuf" or not np.all(np.isfinite(time) & (time >= 0)):
        raise ValueError("y has a time that is missing, infinite or negative; pass numbers of at least 0")
    if not event.any():
        raise ValueError("y has no event: all times are censored; the risk of rows cannot be told apart")
    return np.copysign(time.astype(np.float64), np.where(event, 1.0, -1.0))


def _fields(y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Event and time as they are given."""
    found: dict[str, Any] = {}
    if frames.is_frame(y):
        columns = frames.column_names(y)
        if set(FIELDS) <= set(columns) or len(columns) == 2:
            found = {name: as_array(frames.column_values(y, name), name) for name in columns}
    else:
        array = np.asarray(y)
        if array.dtype.names is not None and array.ndim == 1:
            found = {name: array[name] for name in array.dtype.names}
        elif (
            array.ndim == 2
            and array.shape[1] == 2
            and array.dtype.kind in "biuf"
            and np.isin(array[:, 1], (0, 1)).all()
        ):
            return array[:, 1], array[:, 0]
    if set(FIELDS) <= set(found):
        return found["event"], found["time"]
    truth = [name for name, values in found.items() if values.dtype.kind == "b"]
    if len(found) == 2 and len(truth) == 1:  # under names of their own, as scikit-survival's data sets have them
        event = found.pop(truth[0])
        return event, next(iter(found.values()))
    raise ValueError(
        "y does not hold right-censored times; pass a structured array with a boolean field 'event' and a float field "
        "'time', such as np.array(list(zip(died, time)), dtype=[('event', bool), ('time', float)]) (other names do where "
        "there are two fields, one of them boolean), a frame with such columns, or an array of two columns: time, and 1 "
        "where the event happened or 0"
    )
