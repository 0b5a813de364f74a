"""Known parts of linear predictors: exposures of counts, and offsets.

A count over the exposure e (a time, an area, a number of people) has the mean ``e exp(eta)``, so that ``ln e`` is a known
part of its linear predictor. Exposures are what users have; offsets are what models add.
"""

from typing import Any

import numpy as np

from bayesmtfs.data import frames
from bayesmtfs.data.inputs import as_array
from bayesmtfs.types import FloatArray


def read_offset(exposure: Any, offset: Any, shape: tuple[int, ...]) -> FloatArray | None:
    """Known part of the linear predictor, of the shape of the targets; None where neither is given.

    Parameters
    ----------
    exposure : positive numbers of the shape of the targets, or one per row
    offset : finite numbers likewise, to which the logarithm of an exposure is added
    shape : of the targets, (n,) or (n, m)

    Examples
    --------
    >>> read_offset([1.0, 2.0], None, (2,)).round(3)
    array([0.   , 0.693])
    """
    parts = []
    if exposure is not None:
        parts.append(np.log(_numbers(exposure, "exposure", shape)))
    if offset is not None:
        parts.append(_numbers(offset, "offset", shape))
    return sum(parts[1:], parts[0]) if parts else None


def _numbers(values: Any, argument: str, shape: tuple[int, ...]) -> FloatArray:
    """Numbers of the shape of the targets."""
    if isinstance(values, str):
        raise ValueError(f"{argument} is the name {values!r}, but X is not a data frame; pass one number per row")
    try:
        array = np.asarray(as_array(values, argument), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{argument} is not numeric: {error}; pass one number per row") from error
    if array.shape == shape[:1] and len(shape) == 2:
        array = np.broadcast_to(array[:, np.newaxis], shape)
    if array.shape == (*shape, 1):
        array = array[:, 0]
    if array.shape != shape:
        wanted = f"({shape[0]},)" if len(shape) == 1 else f"({shape[0]},) or {shape}"
        raise ValueError(f"{argument} has shape {array.shape}, wanted {wanted}; pass one number per row")
    bad = ~np.isfinite(array) | ((array <= 0) if argument == "exposure" else False)
    if bad.any():
        row = int(np.argwhere(bad)[0][0])
        kind = "positive and finite" if argument == "exposure" else "finite"
        raise ValueError(f"{argument} is {array[bad][0]:g} in row {row}; it must be {kind}: drop rows without one")
    return array


def split_columns(X: Any, exposure: Any, offset: Any) -> tuple[Any, Any, Any]:
    """Take the columns that exposure and offset name out of a frame X."""
    named = [name for name in (exposure, offset) if isinstance(name, str)]
    if not named or not frames.is_frame(X):
        return X, exposure, offset
    columns = frames.column_names(X)
    for name in named:
        if name not in columns:
            raise ValueError(f"X has no column {name!r} for the exposure or offset; its columns are {columns}")
    exposure, offset = (frames.column_values(X, name) if isinstance(name, str) else name for name in (exposure, offset))
    return frames.take_columns(X, [name for name in columns if name not in named]), exposure, offset
