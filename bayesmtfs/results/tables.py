"""Tables of results, as data frames of the library that the user has and as text; checks of their arguments."""

from collections.abc import Sequence
from typing import Any, Literal

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data.inputs import as_labels

Backend = Literal["pandas", "polars"]
INTERVAL = 0.9  # probability of every interval that is shown, unless another one is asked for
TAILS = ((1.0 - INTERVAL) / 2.0, (1.0 + INTERVAL) / 2.0)  # its ends


def as_frame(columns: dict[str, Any], backend: Backend = "pandas") -> Any:
    """Columns of one length as a frame of a library, which must be installed."""
    check_one_of("backend", backend, ("pandas", "polars"))
    try:
        return nw.from_dict(columns, backend=backend).to_native()
    except ImportError as error:
        way_out = f"run pip install {backend} or pass the other backend"
        raise ImportError(
            f"to_frame(backend={backend!r}) needs {backend}, which is not installed; {way_out}"
        ) from error


def plain_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Task labels as one column: of their own type where they share one, else as text."""
    plain = as_labels(labels.tolist())
    return plain if plain.dtype != object else np.array([str(label) for label in plain])


def entry_columns(features: NDArray[np.str_], tasks: NDArray[Any], **matrices: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Columns with one row per feature and task, of matrices (n_tasks, n_features)."""
    names = {"feature": np.repeat(features, len(tasks)), "task": np.tile(plain_labels(tasks), len(features))}
    return names | {name: matrix.T.ravel() for name, matrix in matrices.items()}


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the first column left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def listed(names: Any, most: int) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def check_probability(name: str, value: float) -> None:
    """Refuse a probability outside (0, 1)."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} is {value}; pass a number between 0 and 1, such as 0.9")


def central_interval(draws: NDArray[Any], prob: float) -> NDArray[np.float64]:
    """(2, ...) Ends of the central interval of this probability, of draws along the first axis."""
    check_probability("prob", prob)
    return np.asarray(np.quantile(draws, [(1 - prob) / 2, (1 + prob) / 2], axis=0))


def check_one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; pass {' or '.join(map(repr, choices))}")
