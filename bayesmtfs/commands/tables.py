"""Read the user's table: CSV, Parquet, Arrow or NPZ."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Observations(NamedTuple):
    """What a fit takes: features, with the task in one of their columns where there is one, and targets."""

    X: Any  # frame
    y: Any  # (n,) or a frame with one column per task
    task_column: str | None


def read_table(path: Path) -> Any:
    """A pandas frame with all columns of a file.

    An NPZ holds arrays of one length: 1-D ones are columns, and a 2-D ``X`` becomes ``x0, x1, ...`` or has its names in
    ``feature_names``.
    """
    # pandas takes a while to import, which --help need not wait for
    import pandas as pd

    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is not a file; pass a CSV, Parquet, Arrow or NPZ file")
    readers = {
        ".csv": pd.read_csv,
        ".parquet": pd.read_parquet,
        ".arrow": pd.read_feather,
        ".feather": pd.read_feather,
        ".npz": _from_archive,
    }
    if path.suffix not in readers:
        raise ValueError(f"{path} has the ending {path.suffix!r}; pass one of {', '.join(readers)}")
    try:
        frame = readers[path.suffix](path)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read as text ({error.reason}); save it as UTF-8") from error
    except Exception as error:  # every library has its own
        raise ValueError(f"{path} cannot be read as {path.suffix[1:]}: {error}") from error
    if frame.empty:
        raise ValueError(f"{path} holds no rows; pass a table with a header and at least one row")
    return frame


def _from_archive(path: Path) -> Any:
    import pandas as pd

    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    names = arrays.pop("feature_names", None)
    columns: dict[str, Any] = {}
    for name, array in arrays.items():
        if array.ndim == 2:
            labels = (
                names if names is not None and name == "X" else [f"{name.lower()}{i}" for i in range(array.shape[1])]
            )
            columns |= {str(label): array[:, i] for i, label in enumerate(labels)}
        elif array.ndim == 1:
            columns[name] = array
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"its arrays have different lengths ({lengths}); pass arrays with one entry per row")
    return pd.DataFrame(columns)


def observations(path: Path, target: str | None, targets: str | None, task: str | None) -> Observations:
    """Split a table into features and targets."""
    frame = read_table(path)
    if (target is None) == (targets is None):
        raise ValueError("pass either --target (one row per observation) or --targets a,b,c (one column per task)")
    wanted = [target] if target is not None else [name.strip() for name in str(targets).split(",") if name.strip()]
    for name in [*wanted, *([] if task is None else [task])]:
        if name not in frame.columns:
            raise ValueError(f"{path} has no column {name!r}; its columns are {', '.join(map(str, frame.columns))}")
    if targets is not None and task is not None:
        raise ValueError("--task does not go with --targets: the columns are the tasks; leave one of them out")
    features = frame.drop(columns=wanted)
    if features.shape[1] - (task is not None) < 1:
        raise ValueError(f"{path} has no feature columns beside {', '.join(wanted)}; add at least one")
    y = frame[wanted[0]] if target is not None else frame[wanted]
    if target is not None and y.isna().any():
        observed = y.notna()
        features, y = features[observed], y[observed]
    return Observations(features, y, task)


def looks_like_labels(y: Any) -> bool:
    """Whether targets are classes: text, truth values, categories, or exactly two whole numbers."""
    columns = [y] if y.ndim == 1 else [y[name] for name in y.columns]
    return all(_holds_labels(column.dropna()) for column in columns)


def _holds_labels(column: Any) -> bool:
    if column.dtype.kind not in "iuf":
        return True
    distinct = column.unique()
    return len(distinct) == 2 and bool(np.all(np.mod(distinct, 1) == 0))
