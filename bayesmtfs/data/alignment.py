"""Tasks with different features: one matrix over the union of their columns, and which task has which."""

from typing import Any

import numpy as np

from bayesmtfs.data.designs import stack_rows
from bayesmtfs.data.frames import Column, Encoding
from bayesmtfs.data.inputs import Table, read_labels
from bayesmtfs.types import BoolArray


def align(tables: list[Table]) -> Table:
    """Stack designs over the union of their columns; ``missing`` marks the features a design does not have."""
    if all(table.feature_names is None for table in tables):
        widths = {table.X.shape[1] for table in tables}
        if len(widths) > 1:
            raise ValueError(
                f"the designs have {sorted(widths)} columns; arrays must agree, or pass data frames, which are "
                "aligned by name"
            )
        return tables[0]._replace(X=stack_rows([table.X for table in tables]))
    if any(table.feature_names is None for table in tables):
        raise ValueError(
            "some designs have column names and some have none; pass frames for all tasks, or arrays for all"
        )
    columns = {column.name: column for table in tables if table.encoding for column in table.encoding.columns}
    encoding = Encoding(tuple(_merged(name, tables) for name in columns))
    names = encoding.feature_names
    position = {name: number for number, name in enumerate(names)}
    X = np.zeros((sum(table.X.shape[0] for table in tables), len(names)))
    absent = np.ones(X.shape, dtype=bool)
    start = 0
    for table in tables:
        stop = start + table.X.shape[0]
        own = [position[name] for name in table.feature_names or ()]
        X[start:stop, own] = table.X
        absent[start:stop, own] = False
        start = stop
    return Table(X, tuple(names), encoding, absent if absent.any() else None)


def absent_features(table: Table, labels: Any) -> BoolArray | None:
    """(p, m) False where a column is null throughout a task; a column null in some rows only is an error."""
    if table.missing is None:
        return None
    assert table.encoding is not None
    n = table.X.shape[0]
    index, names = read_labels(np.zeros(n, dtype=np.int64) if labels is None else labels, n)
    share = np.stack([table.missing[index == t].mean(axis=0) for t in range(len(names))], axis=1)
    partly = (share > 0) & (share < 1)
    if partly.any():
        column, t = np.argwhere(partly)[0]
        raise ValueError(
            f"column {table.encoding.columns[column].name!r} is missing in some rows of task {names.tolist()[t]!r}; "
            "drop those rows or impute them (a column missing in all rows "
            "of a task counts as a feature the task does not have)"
        )
    return (share == 0)[table.encoding.column_index]


def _merged(name: str, tables: list[Table]) -> Column:
    """The column of this name with the levels of all tables."""
    found = [c for table in tables if table.encoding for c in table.encoding.columns if c.name == name]
    if any((c.levels is None) != (found[0].levels is None) for c in found):
        raise ValueError(f"column {name!r} is categorical in one task and numeric in another; make them agree")
    if found[0].levels is None:
        return found[0]
    return found[0]._replace(levels=tuple(dict.fromkeys(level for c in found for level in c.levels or ())))
