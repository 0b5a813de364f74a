"""Read the user's table: CSV, Parquet, Arrow or NPZ; and write one."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesmtfs.results import persistence

MOST_LEVELS = 50  # different texts in a column; one with more is rather a name or a remark than a category


class TableRows(NamedTuple):
    """What a fit takes: features, with the task in one of their columns where there is one, and targets."""

    X: Any  # frame
    y: Any  # (n,) or a frame with one column per task
    task_column: str | None
    n_left_out: int  # rows without a target

    def notes(self) -> list[str]:
        """What a reader of the result should know about how the table was read."""
        notes = []
        if self.n_left_out:
            notes.append(f"{self.n_left_out} of {self.n_left_out + len(self.X)} rows have no target and are left out.")
        levels = {name: self.X[name].nunique() for name in self.X.columns if self.X[name].dtype == "category"}
        if levels:
            listed = ", ".join(f"{name} ({count} levels)" for name, count in levels.items())
            notes.append(f"Categories, each selected as a whole: {listed}.")
        return notes


def read_table(path: Path) -> Any:
    """A pandas frame with all columns of a file.

    An NPZ holds arrays of one length: 1-D ones are columns, and a 2-D ``X`` becomes ``x0, x1, ...`` or has its names in
    ``feature_names``.
    """
    # pandas takes a while to import, which --help need not wait for
    import pandas as pd

    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is not a file; pass a CSV, Parquet, Arrow or NPZ file")
    arrow = {".arrow": pd.read_feather, ".feather": pd.read_feather}
    readers = {".csv": pd.read_csv, ".parquet": pd.read_parquet, **arrow, ".npz": _from_archive}
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
            own = None if name != "X" else names
            labels = [f"{name.lower()}{i}" for i in range(array.shape[1])] if own is None else own
            columns |= {str(label): array[:, i] for i, label in enumerate(labels)}
        elif array.ndim == 1:
            columns[name] = array
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"its arrays have different lengths ({lengths}); pass arrays with one entry per row")
    return pd.DataFrame(columns)


def write_csv(table: Any, path: Path) -> None:
    """Write a frame, whole or not at all."""
    with persistence.replacing(path) as stream:
        stream.write(table.to_csv(index=False).encode("utf-8"))


def observations(
    path: Path, target: str | None, targets: str | None, task: str | None, drop: str | None, categories: str | None
) -> TableRows:
    """Split a table into features and targets."""
    frame = read_table(path)
    if (target is None) == (targets is None):
        raise ValueError("pass either --target (one row per observation) or --targets a,b,c (one column per task)")
    wanted = [target] if target is not None else _listed(targets)
    for name in [*wanted, *([] if task is None else [task]), *_listed(drop), *_listed(categories)]:
        if name not in frame.columns:
            raise ValueError(f"{path} has no column {name!r}; its columns are {', '.join(map(str, frame.columns))}")
    if targets is not None and task is not None:
        raise ValueError("--task does not go with --targets: the columns are the tasks; leave one of them out")
    features = _with_categories(frame.drop(columns=[*wanted, *_listed(drop)]), task, _listed(categories))
    if features.shape[1] - (task is not None) < 1:
        raise ValueError(f"{path} has no feature columns beside {', '.join(wanted)}; add at least one")
    y = frame[wanted[0]] if target is not None else frame[wanted]
    observed = y.notna() if target is not None else y.notna().any(axis=1)
    if not observed.any():
        raise ValueError(f"{path} has no row with a value of {', '.join(wanted)}; fill in the targets that are known")
    return TableRows(features[observed], y[observed], task, int((~observed).sum()))


def _listed(names: str | None) -> list[str]:
    """Names of an option such as a,b,c."""
    return [] if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _with_categories(features: Any, task: str | None, named: list[str]) -> Any:
    """Turn columns of texts, and those named, into categories, all but the task."""
    from pandas.api.types import is_string_dtype

    for name in features.columns:
        column = features[name]
        if name == task or not (name in named or is_string_dtype(column)):
            continue
        if name not in named and column.nunique() > MOST_LEVELS:
            raise ValueError(
                f"column {name!r} holds {column.nunique()} different texts; leave it out with --drop, or name it in "
                "--categories if each of them is a category"
            )
        features = features.assign(**{str(name): column.astype("category")})
    return features


def looks_like_labels(y: Any) -> bool:
    """Whether targets are classes: text, truth values, categories, or exactly two whole numbers."""
    columns = [y] if y.ndim == 1 else [y[name] for name in y.columns]
    distinct = [column.dropna().unique() for column in columns if column.dtype.kind in "iuf"]
    return all(len(values) == 2 and bool(np.all(np.mod(values, 1) == 0)) for values in distinct)
