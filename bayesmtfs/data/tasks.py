"""``TaskData``: many related regressions or classifiers as one data set.

Whatever the user has (long, wide, a list, a frame), the observations are stored sorted by task, with ``offsets``
marking where each task begins. When all tasks share one design it is stored once: ``design`` has then one row per
input row and ``rows`` says which of them each observation uses. Solvers need only ``linear_predictor`` and
``adjoint``, which know the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from bayesmtfs.data import inputs
from bayesmtfs.data.formula import Formula
from bayesmtfs.data.frames import (
    Column,
    Encoding,
    as_narwhals,
    column_names,
    column_values,
    is_frame,
    missing_rows,
    read_rows,
    take_columns,
)
from bayesmtfs.data.inputs import Design, DesignTable
from bayesmtfs.data.offsets import read_offset
from bayesmtfs.types import BoolArray, DataWarning, FloatArray, IntArray, LossScale, warn


@dataclass(frozen=True, eq=False, repr=False)
class TaskData:
    """Observations of m tasks over p features.

    Make one with `from_long`, `from_wide`, `from_list` or `from_frame`; the constructor takes parts that are already
    clean.

    Attributes
    ----------
    design : (n, p) array or CSR matrix, float32 or float64
        One row per observation, sorted by task; or, with ``shared_design``, one row per input row.
    y : (N,) float64 targets (or class labels), sorted by task
    weight : (N,) positive weights
    offsets : (m + 1,) observations of task t are ``offsets[t]:offsets[t + 1]``
    rows : (N,) row of ``design`` that each observation uses
    order : (N,) place of each observation in the user's input (wide: ``row * m + column``)
    task_names : (m,) labels
    groups : (p,) group of each feature, or None where every feature stands for itself
    present : (p, m) False where a task does not have a feature, or None where all have all
    shared_design : whether all tasks use the rows of one design
    eta_offset : (N,) known part of the linear predictor, such as ``ln exposure``; None where nothing is known

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs import TaskData
    >>> data = TaskData.from_long(np.eye(4), [1.0, 2.0, 3.0, 4.0], tasks=["b", "a", "b", "a"])
    >>> data.task_names.tolist(), data.y.tolist()
    (['a', 'b'], [2.0, 4.0, 1.0, 3.0])
    """

    design: Design
    y: NDArray[Any]
    weight: FloatArray
    offsets: IntArray
    rows: IntArray
    order: IntArray
    task_names: NDArray[Any]
    names: tuple[str, ...] | None = None
    groups: IntArray | None = None
    present: BoolArray | None = None
    shared_design: bool = False
    encoding: Encoding | None = field(default=None)
    eta_offset: FloatArray | None = None

    @classmethod
    def from_long(
        cls,
        X: Any,
        y: Any,
        tasks: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        feature_names: Sequence[str] | None = None,
        exposure: Any = None,
        offset: Any = None,
    ) -> Self:
        """One row per observation, with a task label for each row.

        Parameters
        ----------
        X : (n, p) array, sparse matrix or data frame
        y : (n,) targets
        tasks : (n,) hashable labels; None for one task
        sample_weight : (n,) weights; a row of weight 0 is the same as no row
        groups : (columns,) group label of each column of X
        feature_names : (p,) names; a frame brings its own
        exposure, offset : (n,) time, area or the like that counts come from, or a known part of the linear predictor
            Of an exposure it is the logarithm.
        """
        table = _named(inputs.read_design(X), feature_names)
        n = table.X.shape[0]
        known = read_offset(exposure, offset, (n,))
        target = _read_1d_target(y, n)
        weight = inputs.read_weights(sample_weight, (n,))
        codes, names = inputs.read_labels(np.zeros(n, dtype=np.int64) if tasks is None else tasks, n)
        order, untouched = np.arange(n), bool(np.all(codes[1:] >= codes[:-1]))
        if not untouched:
            order = np.argsort(codes, kind="stable")
        if weight is None:
            weight = np.ones(n)
        else:
            inputs.check_no_empty_task(np.bincount(codes, weights=weight) > 0, names, inputs.NO_WEIGHT)
            order = order[weight[order] > 0]
            untouched = untouched and len(order) == n
        return cls(
            design=table.X if untouched else table.X[order],
            y=target if untouched else target[order],
            weight=weight if untouched else weight[order],
            offsets=_offsets(np.bincount(codes if untouched else codes[order], minlength=len(names))),
            rows=np.arange(len(order)),
            order=order,
            task_names=names,
            names=table.feature_names,
            groups=_groups(groups, table),
            shared_design=len(names) == 1,
            encoding=table.encoding,
            eta_offset=None if known is None else known[order],
        )

    @classmethod
    def from_wide(
        cls,
        X: Any,
        Y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        task_names: Sequence[Any] | None = None,
        feature_names: Sequence[str] | None = None,
        exposure: Any = None,
        offset: Any = None,
    ) -> Self:
        """One design for all tasks; NaN in Y is a cell that was not observed.

        Parameters
        ----------
        X : (n, p) array, sparse matrix or data frame
        Y : (n, m) array or data frame, one column per task
        sample_weight : (n,) or (n, m) weights
        groups : (columns,) group label of each column of X
        task_names : (m,) names; default: the columns of a frame Y, else 0, 1, ..., m - 1
        feature_names : (p,) names; a frame brings its own
        exposure, offset : (n,) or (n, m), as in `from_long`
        """
        if task_names is None and is_frame(Y):
            task_names = column_names(Y)
        table = _named(inputs.read_design(X), feature_names)
        target = inputs.read_target(Y, table.X.shape[0], "Y")
        if target.ndim != 2:
            raise ValueError(f"Y has shape {target.shape}; the wide form wants (n, m), one column per task")
        n_tasks = target.shape[1]
        names = inputs.as_labels(inputs.read_task_names(task_names, n_tasks))
        weight = inputs.read_weights(sample_weight, target.shape)
        known = read_offset(exposure, offset, target.shape)
        if target.dtype.kind == "f":
            inputs.check_target_finite(target, "Y", missing_allowed=True)
        observed = ~inputs.missing_entries(target)
        inputs.check_no_empty_task(observed.any(axis=0), names, inputs.NO_TARGET)
        if weight is not None:
            observed &= weight > 0
            inputs.check_no_empty_task(observed.any(axis=0), names, inputs.NO_WEIGHT)
        kept = observed.any(axis=1)
        design = table.X if kept.all() else table.X[kept]
        task, rows = np.nonzero(observed[kept].T)
        input_rows = np.flatnonzero(kept)[rows]
        data = cls(
            design=design,
            y=target[input_rows, task],
            weight=np.ones(len(rows)) if weight is None else weight[input_rows, task],
            offsets=_offsets(np.bincount(task, minlength=n_tasks)),
            rows=rows.astype(np.int64),
            order=input_rows * n_tasks + task,
            task_names=names,
            names=table.feature_names,
            groups=_groups(groups, table),
            shared_design=True,
            encoding=table.encoding,
            eta_offset=None if known is None else known[input_rows, task],
        )
        if design is table.X and table.sums is not None:
            data.__dict__["_plain_sums"] = table.sums  # no field: other data that are made of these must not have it
        return data

    @classmethod
    def from_list(
        cls,
        pairs: Sequence[tuple[Any, Any]],
        task_names: Sequence[Any] | None = None,
        exposure: Sequence[Any] | None = None,
        offset: Sequence[Any] | None = None,
    ) -> Self:
        """One ``(X, y)`` pair per task, and one exposure or offset (n_t,) per task where there are any.

        Frames are aligned by column name: a feature that a task does not have is fixed at 0 there and does not count
        in its row. Arrays must all have the same number of columns.
        """
        pairs = list(pairs)
        if not pairs:
            raise ValueError("from_list got no pairs; pass one (X, y) per task")
        names = inputs.read_task_names(task_names, len(pairs))
        tables = [inputs.read_design(X) for X, _ in pairs]
        aligned = align(tables)
        y = [_read_1d_target(target, table.X.shape[0]) for (_, target), table in zip(pairs, tables, strict=True)]
        tasks = [name for name, table in zip(names, tables, strict=True) for _ in range(table.X.shape[0])]
        known: dict[str, Any] = {
            name: None if parts is None else np.concatenate([np.atleast_1d(inputs.as_array(p, name)) for p in parts])
            for name, parts in (("exposure", exposure), ("offset", offset))
        }
        data = cls.from_long(aligned, np.concatenate(y), tasks, **known)
        if aligned.missing is None:
            return data
        order = [names.index(name) for name in data.task_names.tolist()]
        starts = np.cumsum([0] + [table.X.shape[0] for table in tables[:-1]])
        return replace(data, present=~aligned.missing[starts][order].T)

    @classmethod
    def from_frame(cls, df: Any, target: Any, task: Any = None, exposure: Any = None, offset: Any = None) -> Self:
        """Columns of a data frame: a target, a task, an exposure or offset, and features (all other columns).

        Columns of categories or text are expanded (but for their first level, the reference) and selected as one group.
        Rows without a target are left out, with a `DataWarning` that says how many. A column that is null throughout a task
        is a feature that the task does not have: its coefficient is fixed at 0 there. Several targets and no task column
        make the wide form.
        """
        if not is_frame(df):
            raise ValueError(f"df is {type(df).__name__}; pass a pandas, polars or pyarrow data frame")
        several = isinstance(target, list | tuple)
        targets = list(target) if several else [target]
        columns = column_names(df)
        special = [*targets, *(name for name in (task, exposure, offset) if name is not None)]
        for name in special:
            if name not in columns:
                raise ValueError(f"df has no column {name!r}; its columns are {columns}")
        if several and task is not None:
            raise ValueError("from_frame got several targets and a task column; pass one or the other")
        features = [name for name in columns if name not in special]
        if not features:
            raise ValueError(f"df has no feature columns beside {', '.join(map(repr, special))}; add at least one")
        rows = read_rows(df, target, task)
        known = {
            role: None if name is None else column_values(rows.X, name)
            for role, name in (("exposure", exposure), ("offset", offset))
        }
        if several:
            return cls.from_wide(take_columns(rows.X, features), rows.y, **known)
        if rows.n_left_out:
            total = len(rows.y) + rows.n_left_out
            warn(f"{rows.n_left_out} of {total} rows have no {target!r} and are left out", DataWarning)
        table = inputs.read_design(take_columns(rows.X, features), allow_missing=True)
        labels = None if task is None else column_values(rows.X, task)
        present = absent_features(table, labels)
        filled = table._replace(X=np.nan_to_num(table.X, nan=0.0), missing=None, sums=None)
        return replace(cls.from_long(filled, rows.y, labels, **known), present=present)

    @classmethod
    def from_formula(cls, formula: str, df: Any, task: Any = None) -> Self:
        """Features written as a formula over the columns of a data frame; needs the extra ``formula`` (formulae).

        Rows without a target are left out, with a `DataWarning`. The columns of a term, such as the levels of a category,
        are selected as one group. A model that was fitted to it predicts frames with the columns of the formula, coded as
        here; one that was read from a file wants ``data.encoding.code(frame)`` instead.

        Parameters
        ----------
        formula : target and features, such as ``"score ~ age + C(sex) + age:income"``
        df : pandas, polars or pyarrow frame
        task : column with the task of every row; None: one task

        Examples
        --------
        >>> import pandas as pd
        >>> df = pd.DataFrame({"score": [1.0, 2.0, 4.0], "age": [3.0, 5.0, 4.0], "sex": ["f", "m", "f"]})
        >>> TaskData.from_formula("score ~ age + sex", df).feature_names.tolist()
        ['age', 'sex[m]']
        """
        if not is_frame(df):
            raise ValueError(f"df is {type(df).__name__}; pass a pandas, polars or pyarrow data frame")
        columns = column_names(df)
        if task is not None and task not in columns:
            raise ValueError(f"df has no column {task!r}; its columns are {columns}")
        target = formula.split("~")[0].strip()
        if target in columns:
            rows = as_narwhals(df)
            observed = ~missing_rows(rows.get_column(target))
            if not observed.all():
                warn(
                    f"{int((~observed).sum())} of {len(observed)} rows have no {target!r} and are left out", DataWarning
                )
                df = rows.filter(observed.tolist()).to_native()
        found = Formula(formula, df)
        y = column_values(df, target) if target in columns else found.y
        if np.ndim(y) != 1:
            raise ValueError(
                f"formula is {formula!r}, whose target has {np.shape(y)[1]} columns; pass one number or label"
            )
        labels = None if task is None else column_values(df, task)
        grouped = found.groups if len(np.unique(found.groups)) < len(found.groups) else None
        data = cls.from_long(found.X, y, labels, groups=grouped, feature_names=found.names)
        return replace(data, encoding=Encoding(tuple(Column(name, None) for name in found.names), found))

    @property
    def n_tasks(self) -> int:
        """Number of tasks m."""
        return len(self.task_names)

    @property
    def n_features(self) -> int:
        """Number of features p, after expansion of categorical columns."""
        return int(self.design.shape[1])

    @property
    def n_observations(self) -> int:
        """Number of observed targets N, over all tasks."""
        return len(self.y)

    @cached_property
    def feature_names(self) -> NDArray[np.str_]:
        """(p,) Names; ``x0, x1, ...`` where the input had none."""
        return inputs.numbered_names(self.n_features) if self.names is None else np.asarray(self.names)

    @property
    def is_sparse(self) -> bool:
        """Whether the design is a CSR matrix."""
        return bool(sp.issparse(self.design))

    @property
    def is_complete(self) -> bool:
        """Whether all tasks were observed at all rows of a shared design."""
        return self.shared_design and self.n_observations == self.design.shape[0] * self.n_tasks

    @property
    def system_operations(self) -> float:
        """Operations of making a linear system of a task's features, or of its rows where they are fewer."""
        n_rows = self.n_observations / self.n_tasks
        return 2.0 * self.design.size * min(n_rows, self.n_features)

    @cached_property
    def task(self) -> IntArray:
        """(N,) Index of the task of each observation."""
        return np.repeat(np.arange(self.n_tasks), np.diff(self.offsets))

    @cached_property
    def X(self) -> Design:
        """(N, p) One row per observation (built on first use when the design is shared)."""
        return self.design[self.rows] if self.shared_design and self.n_tasks > 1 else self.design

    @cached_property
    def task_designs(self) -> tuple[Design, ...]:
        """Design of each task; views of one matrix wherever that is possible."""
        if self.is_complete:
            return (self.design,) * self.n_tasks
        if self.shared_design:
            return tuple(self.design[self.rows[start:stop]] for start, stop in self.spans)
        return tuple(inputs.row_span(self.design, start, stop) for start, stop in self.spans)

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """First and last-plus-one observation of each task."""
        return list(zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True))

    @cached_property
    def task_weights(self) -> FloatArray:
        """(m,) Total weight of each task."""
        return np.add.reduceat(self.weight, self.offsets[:-1])

    def loss_weights(self, scale: LossScale) -> FloatArray:
        """(N,) Factor of each observation's loss: its weight, over the task's total for ``"mean"``."""
        if scale == "sum":
            return self.weight
        return self.weight / self.task_weights[self.task]

    def linear_predictor(self, W: FloatArray, intercept: FloatArray) -> FloatArray:
        """(N,) x' w_t + b_t for every observation."""
        if self.shared_design:
            values = self.design @ W + intercept
            return values.T.ravel() if self.is_complete else values[self.rows, self.task]
        parts = [X @ W[:, t] + intercept[t] for t, X in enumerate(self.task_designs)]
        return np.concatenate(parts)

    def adjoint(self, values: FloatArray) -> FloatArray:
        """(p, m) Sum over each task's observations of x times the value; 0 where a task lacks the feature."""
        if self.shared_design:
            matrix = self.as_matrix(values)
            # For a dense design the product of the transposes is the faster one
            result = np.asarray(self.design.T @ matrix) if self.is_sparse else (matrix.T @ self.design).T
        else:
            result = np.empty((self.n_features, self.n_tasks))
            if self.is_plain:  # as fast as a product per task, which may wait for threads
                by_task = np.empty((self.n_tasks, self.n_features))
                dense_adjoint(self.design, values, self.offsets, by_task)
                result[:] = by_task.T
            else:
                for t, (X, (start, stop)) in enumerate(zip(self.task_designs, self.spans, strict=True)):
                    result[:, t] = X.T @ values[start:stop]
        return result if self.present is None else np.where(self.present, result, 0.0)

    @property
    def is_plain(self) -> bool:
        """Whether the design is what `dense_adjoint` is compiled for."""
        return not self.is_sparse and self.design.dtype == np.float64 and bool(self.design.flags.c_contiguous)

    def as_matrix(self, values: FloatArray) -> FloatArray:
        """(n, m) Values of a shared design's observations, 0 in unobserved cells."""
        if self.is_complete:
            return values.reshape(self.n_tasks, -1).T
        matrix = np.zeros((self.design.shape[0], self.n_tasks))
        matrix[self.rows, self.task] = values
        return matrix

    def in_input_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put (N,) values into the order of the input: (N,), or (n, m) of a shared design, NaN where unobserved."""
        if self.shared_design and self.n_tasks > 1:
            shape = (self.design.shape[0], self.n_tasks)
            matrix = np.full(shape, np.nan, dtype=np.float64 if values.dtype.kind in "biuf" else object)
            matrix[self.rows, self.task] = values
            return matrix
        ordered = np.empty_like(values)
        ordered[np.argsort(np.argsort(self.order))] = values
        return ordered

    def with_target(self, y: NDArray[Any]) -> Self:
        """Return the same observations with another target of the same length."""
        return replace(self, y=y)

    def with_features(
        self, names: NDArray[Any], known: Encoding | None = None, absent: BoolArray | None = None
    ) -> Self:
        """Return the same observations with the features of a fit, which are found by name.

        Without names, here or in the fit, they are found by place.

        Parameters
        ----------
        names : (p,) names of the fit's features
        known : how the fit read its frame; categorical columns must have the same levels
        absent : (p,) features that none of these tasks had in the fit, which may be missing here; None: none may

        Raises
        ------
        ValueError
            If there are other features, or fewer.

        Examples
        --------
        >>> data = TaskData.from_long([[1.0, 2.0], [3.0, 4.0]], [0.0, 1.0], feature_names=["a", "b"])
        >>> data.with_features(np.array(["b", "a"])).design
        array([[2., 1.],
               [4., 3.]])
        """
        wanted, own = [str(name) for name in names], [str(name) for name in self.feature_names]
        if self.names is None or wanted == [f"x{i}" for i in range(len(wanted))]:
            if len(own) != len(wanted):
                raise ValueError(f"X has {len(own)} features but the fit has {len(wanted)}; pass the same ones")
            return self
        _check_levels(self.encoding, known)
        if own == wanted:
            return self
        place, known_names = {name: i for i, name in enumerate(own)}, set(wanted)
        unknown = [name for name in own if name not in known_names]
        if unknown:
            raise ValueError(f"X has features that were not there in fit: {_some(unknown)}; leave them out")
        needed = np.ones(len(wanted), dtype=bool) if absent is None else ~absent
        missing = [name for name, need in zip(wanted, needed, strict=True) if need and name not in place]
        if missing:
            raise ValueError(f"X lacks features of the fit: {_some(missing)}; pass data with all of them")
        chosen = np.array([place.get(name, len(own)) for name in wanted], dtype=np.int64)
        return replace(
            self,
            design=_with_zeros(self.design, chosen),
            names=tuple(wanted),
            groups=self.groups[chosen] if self.groups is not None and len(place) == len(wanted) else None,
            present=None
            if self.present is None
            else np.vstack([self.present, np.zeros_like(self.present[:1])])[chosen],
            encoding=None,
        )

    def dense(self) -> Self:
        """Return the same observations with a dense float64 design."""
        design = self.design.toarray() if self.is_sparse else self.design
        return replace(self, design=np.ascontiguousarray(design, dtype=np.float64))

    def __repr__(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        design = "one design for all tasks" if self.shared_design else "one design per task"
        return (
            f"TaskData({self.n_observations} observations, {self.n_tasks} tasks, {self.n_features} features; "
            f"{kind} {self.design.dtype}, {design})"
        )


def _offsets(counts: IntArray) -> IntArray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _groups(groups: Any, table: DesignTable) -> IntArray | None:
    """(p,) Groups of the features; indicators of gaps, which come last, stand for themselves."""
    n_indicators = 0 if table.missing is None else int(table.missing.any(axis=0).sum())
    p = table.X.shape[1]
    n_columns = p - n_indicators if table.encoding is None else len(table.encoding.columns)
    found = inputs.read_groups(groups, table.encoding, n_columns)
    if found is None or len(found) == p:
        return found
    return np.concatenate([found, found.max() + 1 + np.arange(p - len(found))])


def _with_zeros(design: Design, chosen: IntArray) -> Design:
    """Columns of a design, zeros where the number is one above the last."""
    p = design.shape[1]
    if chosen.max(initial=-1) < p:
        return design[:, chosen]
    if sp.issparse(design):
        return sp.hstack([design, sp.csr_array((design.shape[0], 1))], format="csr")[:, chosen]
    return np.column_stack([design, np.zeros(len(design))])[:, chosen]


def _check_levels(own: Encoding | None, known: Encoding | None) -> None:
    """Refuse categorical columns whose features stand for other levels than those of the fit."""
    if own is None or known is None:
        return
    levels = {column.name: column.levels for column in known.columns}
    for column in own.columns:
        if column.name in levels and column.levels != levels[column.name]:
            raise ValueError(
                f"column {column.name!r} has the levels {list(column.levels or ())} here but "
                f"{list(levels[column.name] or ())} in fit, so that its features differ; predict from the frame itself, "
                "which is read as in fit"
            )


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def _named(table: DesignTable, feature_names: Sequence[str] | None) -> DesignTable:
    if feature_names is None:
        return table
    p = table.X.shape[1]
    if len(feature_names) != p:
        raise ValueError(f"feature_names has {len(feature_names)} entries but X has {p} features; pass one per feature")
    return table._replace(feature_names=tuple(str(name) for name in feature_names))


def _read_1d_target(y: Any, n: int) -> NDArray[Any]:
    target = inputs.read_target(y, n)
    if target.ndim == 2 and target.shape[1] == 1:
        target = target[:, 0]
    if target.ndim != 1:
        raise ValueError(
            f"y has shape {target.shape} in the long form, not (n,); for one column per task leave tasks out"
        )
    if target.dtype.kind == "f":
        inputs.check_target_finite(target)
    elif inputs.missing_entries(target).any():
        row = int(np.argmax(inputs.missing_entries(target)))
        raise ValueError(f"y has no label in row {row}; drop the rows without one")
    return target


# ---------------------------------------------------------------------- tasks with different features


def align(tables: list[DesignTable]) -> DesignTable:
    """Stack designs over the union of their columns; ``missing`` marks the features a design does not have."""
    if all(table.feature_names is None for table in tables):
        widths = {table.X.shape[1] for table in tables}
        if len(widths) > 1:
            raise ValueError(
                f"the designs have {sorted(widths)} columns; arrays must agree, frames are aligned by name"
            )
        return tables[0]._replace(X=inputs.stack_rows([table.X for table in tables]), sums=None)
    if any(table.feature_names is None for table in tables):
        raise ValueError("some designs have column names, others none; pass frames for all tasks, or arrays for all")
    columns = {column.name: column for table in tables if table.encoding for column in table.encoding.columns}
    encoding = Encoding(tuple(_merged(name, tables) for name in columns))
    names = encoding.feature_names
    position = {name: number for number, name in enumerate(names)}
    X = np.full((sum(table.X.shape[0] for table in tables), len(names)), np.nan)
    for table, rows in zip(tables, np.split(X, np.cumsum([table.X.shape[0] for table in tables[:-1]])), strict=True):
        for name, values in all_levels(table).items():
            if name in position:
                rows[:, position[name]] = values
    absent = np.isnan(X)
    X[absent] = 0.0
    return DesignTable(X, tuple(names), encoding, absent if absent.any() else None)


@njit(cache=True, error_model="numpy", fastmath={"contract"}, nogil=True)
def dense_adjoint(A: FloatArray, values: FloatArray, offsets: IntArray, result: FloatArray) -> None:
    """Write ``A_t' values_t`` of every task to ``result`` (m, k or more), four observations at a time."""
    k = A.shape[1]
    for t in range(offsets.size - 1):
        for j in range(k):
            result[t, j] = 0.0
        i = offsets[t]
        stop = offsets[t + 1]
        while i + 3 < stop:
            a, b, c, d = values[i], values[i + 1], values[i + 2], values[i + 3]
            for j in range(k):
                result[t, j] += a * A[i, j] + b * A[i + 1, j] + c * A[i + 2, j] + d * A[i + 3, j]
            i += 4
        while i < stop:
            for j in range(k):
                result[t, j] += values[i] * A[i, j]
            i += 1


def all_levels(table: DesignTable) -> dict[str, FloatArray]:
    """Columns of a design by name, with those of the reference levels, which are coded where another one is."""
    assert table.encoding is not None
    start = 0
    values: dict[str, FloatArray] = {}
    for column in table.encoding.columns:
        names = column.feature_names
        block = np.asarray(table.X[:, start : start + len(names)], dtype=np.float64)
        values |= dict(zip(names, block.T, strict=True))
        if column.levels is not None:
            values.setdefault(f"{column.name}[{column.levels[0]}]", 1.0 - block.sum(axis=1))
        start += len(names)
    return values


def absent_features(table: DesignTable, labels: Any) -> BoolArray | None:
    """(p, m) False where a column is null throughout a task."""
    if table.missing is None:
        return None
    assert table.encoding is not None
    n = table.X.shape[0]
    index, names = inputs.read_labels(np.zeros(n, dtype=np.int64) if labels is None else labels, n)
    there = np.stack([~table.missing[index == t].all(axis=0) for t in range(len(names))], axis=1)
    return there[table.encoding.column_index]


def _merged(name: str, tables: list[DesignTable]) -> Column:
    """The column of this name with the levels of all tables."""
    found = [c for table in tables if table.encoding for c in table.encoding.columns if c.name == name]
    if any((c.levels is None) != (found[0].levels is None) for c in found):
        raise ValueError(f"column {name!r} is categorical in one task and numeric in another; make them agree")
    if found[0].levels is None:
        return found[0]
    return found[0]._replace(levels=tuple(dict.fromkeys(level for c in found for level in c.levels or ())))
