"""Read the user's table: CSV, TSV, Parquet, Arrow or NPZ; and write one."""

import csv
import re
import shlex
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayesmtfs.cli.console import UsageError
from bayesmtfs.data.frames import TableRows, Words, read_rows
from bayesmtfs.families import base_name, find_family, names
from bayesmtfs.results import persistence

SEPARATORS = (",", ";", "\t", "|")
TEXT_ENDINGS = (".csv", ".tsv", ".txt")
LOOKED_AT = 200  # lines of a text file that tell how it is written
DECIMAL_COMMA, DECIMAL_POINT = re.compile(r"\s*[-+]?\d+,\d+\s*"), re.compile(r"\s*[-+]?\d*\.\d+\s*")
DATE = r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?)?"
DOTTED_DATE = r"\d{1,2}\.\d{1,2}\.\d{4}"  # 31.12.2024
MOST_CLASSES = 50  # different texts in a target
ORDERED_LEVELS = range(3, 8)  # numbers of levels of a target that may be ordered classes
EVENT_NAMES = (
    *("event", "died", "death", "dead", "deceased", "failed", "failure", "relapse", "recurrence", "status", "censored"),
    *("gestorben", "verstorben", "ereignis"),
)
FEWEST_NUMBERED, MOSTLY = 10, 0.8  # rows, and the share of steps of one, from which on a column may number the rows
LONG_TAIL = 0.5  # skewness above which whole numbers from 0 are taken for counts
OVERDISPERSED = 1.5  # variance of counts, in units of their mean, that is worth a word
WORDS = Words(
    absent=False,
    texts="leave it out with --drop, or name it in --categories if each of them is a category",
    kinds="leave it out with --drop, or turn it into numbers",
    gaps="fill them in (--impute task_mean does), delete those rows, or leave the column out with --drop",
)


class TextForm(NamedTuple):
    """How a text file is written; None is found out."""

    sep: str | None = None
    decimal: str | None = None


class ReadTable(NamedTuple):
    """Rows of a file that have a target, and the column of the task."""

    rows: TableRows
    task: str | None

    def notes(self) -> list[str]:
        """What a reader of the result should know about how the table was read."""
        X, y, left_out = self.rows
        notes = [f"{left_out} of {left_out + len(X)} rows have no target and are left out."] if left_out else []
        if y.ndim == 2 and (empty := int(y.isna().sum().sum())):
            other = "the other " if left_out else ""
            notes.append(f"{empty} of {other}{y.size} cells of targets are empty and not used.")
        levels = {name: X[name].nunique() for name in X.columns if X[name].dtype == "category"}
        if levels:
            listed = ", ".join(f"{name} ({count} levels)" for name, count in levels.items())
            notes.append(f"Categories, each selected as a whole: {listed}.")
        return notes + [
            f"If {name} only numbers the rows, --drop {shlex.quote(str(name))} leaves it out."
            for name in X.columns
            if name != self.task and _numbers_rows(X[name])
        ]


def _numbers_rows(column: Any) -> bool:
    """Whether a column rises by whole steps, nearly always by one, as numbers of rows do."""
    if column.dtype.kind not in "iu" or len(column) < FEWEST_NUMBERED:
        return False
    steps = np.diff(column.to_numpy())
    return bool(np.all(steps > 0)) and float(np.mean(steps == 1)) > MOSTLY


def read_table(path: Path, form: TextForm = TextForm()) -> Any:
    """A pandas frame with all columns of a file.

    An NPZ holds arrays of one length: 1-D ones are columns, and a 2-D ``X`` becomes ``x0, x1, ...`` or has its names in
    ``feature_names``.
    """
    # pandas takes a while to import, which --help need not wait for
    import pandas as pd

    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist or is not a file; pass a CSV, TSV, Parquet, Arrow or NPZ file")
    arrow = {".arrow": pd.read_feather, ".feather": pd.read_feather}
    readers = {".parquet": pd.read_parquet, **arrow, ".npz": _from_archive}
    if path.suffix not in (*readers, *TEXT_ENDINGS):
        raise ValueError(f"{path} has the ending {path.suffix!r}; pass one of {', '.join((*TEXT_ENDINGS, *readers))}")
    try:
        frame = readers[path.suffix](path) if path.suffix in readers else _from_text(path, form)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} cannot be read as text ({error.reason}); save it as UTF-8") from error
    except Exception as error:  # every library has its own
        raise ValueError(f"{path} cannot be read as {path.suffix[1:]}: {error}") from error
    if frame.empty:
        raise ValueError(f"{path} holds no rows; pass a table with a header and at least one row")
    return frame


def _from_text(path: Path, form: TextForm) -> Any:
    import pandas as pd

    with path.open(encoding="utf-8-sig", newline="") as stream:
        lines = list(islice(stream, LOOKED_AT))
    if not any(line.strip() for line in lines):
        raise ValueError("it is empty; pass a table with a header and at least one row")
    sep = form.sep or _separator(lines)
    cells = list(csv.reader(lines, delimiter=sep))
    header = cells[0] if cells else []
    twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
    if twice:
        raise ValueError(f"several columns are named {', '.join(map(repr, twice))}; give every column its own name")
    numbers = [cell for line in cells[1:] for cell in line]
    if sep == "," and form.decimal is None:
        decimal = "."  # in cells of a file with commas between them a comma may as well be one of thousands
        if _decimal(numbers) == ",":
            example = next(cell for cell in numbers if DECIMAL_COMMA.fullmatch(cell))
            raise ValueError(
                f"numbers such as {example!r} have a comma, and commas stand between the cells too; pass --decimal , if "
                "it is a decimal comma, or write thousands without separators"
            )
    else:
        decimal = form.decimal or _decimal(numbers)
    lengths = [len(line) for line in cells[1:] if line]
    if lengths and min(lengths) > len(header):  # pandas would take the first column for names of rows
        raise ValueError(
            f"rows have more cells than the {len(header)} of the header, such as a separator at their ends; remove it, or "
            "name every column"
        )
    return pd.read_csv(path, sep=sep, decimal=decimal, encoding="utf-8-sig", low_memory=False)


def _separator(lines: list[str]) -> str:
    """The separator that gives all lines the same number of columns, and most of them; else that of the header."""
    widths = {sep: [len(row) for row in csv.reader(lines, delimiter=sep) if row] for sep in SEPARATORS}
    even = {sep: found[0] for sep, found in widths.items() if found and len(set(found)) == 1 and found[0] > 1}
    in_header = {sep: found[0] if found else 0 for sep, found in widths.items()}
    columns = even or in_header
    return max(columns, key=columns.__getitem__)


def _decimal(cells: list[str]) -> str:
    commas, points = (any(map(form.fullmatch, cells)) for form in (DECIMAL_COMMA, DECIMAL_POINT))
    return "," if commas and not points else "."


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
    path: Path,
    target: str | None,
    targets: str | None,
    task: str | None,
    drop: str | None,
    categories: str | None,
    form: TextForm = TextForm(),
    event: str | None = None,
    exposure: str | None = None,
    impute: bool = False,
) -> ReadTable:
    """Split a table into features and targets; with an event column the target is a frame of event and time."""
    frame = dates_as_dates(read_table(path, form))
    if event is not None and target is None:
        raise UsageError("--event needs --target with the column of the times")
    if (target is None) == (targets is None):
        raise UsageError("pass either --target (one row per observation) or --targets a,b,c (one column per task)")
    if targets is not None and task is not None:
        raise UsageError("--task does not go with --targets: the columns are the tasks; leave one of them out")
    wanted = [target] if target is not None else _listed(targets)
    special = [name for name in (task, event, exposure) if name is not None]
    twice = [name for name in dict.fromkeys([*wanted, *special]) if [*wanted, *special].count(name) > 1]
    if twice:
        raise UsageError(
            f"column {twice[0]!r} is named for two purposes; --target, --task, --event and --exposure are different columns"
        )
    named = [*wanted, *special, *_listed(drop), *_listed(categories)]
    unknown = [name for name in dict.fromkeys(named) if name not in frame.columns]
    if unknown:
        columns = ", ".join(map(str, frame.columns))
        raise UsageError(f"{path} has no column {', '.join(map(repr, unknown))}; its columns are {columns}")
    kept = frame.drop(columns=[name for name in _listed(drop) if name not in wanted])
    if kept.shape[1] - len(wanted) - len(special) < 1:
        raise ValueError(f"{path} has no feature columns beside {', '.join(wanted)}; add at least one")
    words = WORDS._replace(**({"row": "line", "first_row": 2} if path.suffix in TEXT_ENDINGS else {"first_row": 1}))
    words = words._replace(gaps_allowed=impute)
    try:
        if event is None:
            return ReadTable(read_rows(kept, target or wanted, task, _listed(categories), words), task)
        rows = read_rows(kept[kept[event].notna()], target, task, _listed(categories), words)
        y = rows.X[[event]].rename(columns={event: "event"}).assign(time=rows.y.to_numpy())
        left_out = len(kept) - len(y)
        return ReadTable(TableRows(rows.X.drop(columns=event), y, left_out), task)
    except ValueError as error:
        raise ValueError(f"{path} cannot be fitted:\n{error}{_comma_hint(kept)}") from None


def _comma_hint(frame: Any) -> str:
    """A word about columns of texts that are numbers with decimal commas."""
    texts = [name for name in frame.columns if frame[name].dtype.kind not in "biufM"]
    commas = [name for name in texts if any(map(DECIMAL_COMMA.fullmatch, frame[name].dropna().astype(str)))]
    if not commas:
        return ""
    return (
        f"\ncolumns such as {commas[0]!r} hold numbers with decimal commas, others with decimal points; write all numbers "
        "alike and without separators of thousands, or pass --decimal ,"
    )


def dates_as_dates(frame: Any) -> Any:
    """Columns of texts that are all dates, such as 2024-03-01 or 1.3.2024, as dates; the readers count their days."""
    import pandas as pd

    for name in frame.columns:
        texts = frame[name].dropna() if pd.api.types.is_string_dtype(frame[name].dtype) else frame[name][:0]
        for form, options in ((DATE, {}), (DOTTED_DATE, {"format": "%d.%m.%Y"})):
            if len(texts) and texts.astype(str).str.fullmatch(form).all():
                frame[name] = pd.to_datetime(frame[name], errors="coerce", utc=False, **options)
    return frame


def _listed(names: str | None) -> list[str]:
    """Names of an option such as a,b,c."""
    return [] if names is None else [name.strip() for name in names.split(",") if name.strip()]


class TargetKind(NamedTuple):
    """What a target is taken for."""

    labels: bool
    family: str | None  # the name of a loss; None: the one that the estimator has
    note: str  # for the user: what, and why

    def options(self, standardize: bool) -> dict[str, Any]:
        """Parameters of an estimator that follow from it; targets without a unit are not scaled."""
        if self.family is None:
            return {"scale_target": standardize}
        return {"loss": self.family, "scale_target": standardize if find_family(self.family).in_target_units else None}


def kind_of_target(
    y: Any, classify: bool | None = None, family: str | None = None, exposed: bool = False
) -> TargetKind:
    """What the user says that the target is, or what it looks like.

    Parameters
    ----------
    y : column of targets, or a frame of them
    classify : whether targets are classes; None: found out
    family : name of a loss; None: found out
    exposed : whether counts come from different times or areas, so that they spread more than their mean says
    """
    if family is not None:
        if base_name(family) not in names():
            raise UsageError(f"--family is {family!r}; choose one of {', '.join(names())}")
        stated = find_family(family)
        if classify is not None and classify != (stated.targets == "labels"):
            raise UsageError(
                f"--family {family} is for {stated.targets}, but --{'classify' if classify else 'regress'} was passed; "
                "leave one of the two out"
            )
        return TargetKind(stated.targets == "labels", family, f"Target: {stated.targets}, --family {family}.")
    columns = [column.dropna() for column in ([y] if y.ndim == 1 else [y[name] for name in y.columns])]
    _refuse_strange_targets(columns)
    if classify or (classify is None and _are_labels(columns)):
        return TargetKind(True, None, "Target: classes (texts, or two whole numbers; --regress if they are numbers).")
    if classify is None and all(map(_are_counts, columns)):
        spread = max(float(column.var() / column.mean()) for column in columns)
        more = f"; their variance is {spread:.2g} times the mean, see --family 'negative_binomial(1)'"
        return TargetKind(
            False,
            "poisson",
            "Target: counts (whole numbers from 0 with a long tail), --family poisson; --family squared takes them as "
            f"numbers{more if spread > OVERDISPERSED and not exposed else ''}.",
        )
    levels = [len(column.unique()) for column in columns]
    few = all(n in ORDERED_LEVELS for n in levels) and all(bool(np.all(np.mod(c, 1) == 0)) for c in columns)
    if few and classify is None and "ordinal" in names():
        return TargetKind(
            False,
            None,
            f"Target: numbers, --family squared; it has {levels[0]} whole levels: --family ordinal takes them as ordered "
            "classes.",
        )
    maybe = classify is None and all(_are_counts(column, least=1.0) for column in columns)
    more = "; whole numbers with a long tail that count something: --family poisson" if maybe else ""
    return TargetKind(False, None, f"Target: numbers, --family squared{more}.")


def _refuse_strange_targets(columns: list[Any]) -> None:
    """Refuse targets that no family has."""
    for column in columns:
        if column.dtype.kind == "M":
            raise ValueError(
                f"the target {column.name!r} holds dates; pass a column of numbers, such as days, or of classes"
            )
        distinct = column.nunique()
        if column.dtype.kind == "f" and np.isinf(column).any():
            raise ValueError(
                f"the target {column.name!r} is infinite in {int(np.isinf(column).sum())} rows; put numbers there, or "
                "leave the cells empty, which leaves the rows out"
            )
        if distinct == 1:
            raise ValueError(f"the target {column.name!r} is {column.iloc[0]} in all rows; there is nothing to explain")
        if column.dtype.kind not in "biuf" and distinct > MOST_CLASSES:
            raise ValueError(
                f"the target {column.name!r} holds {distinct} different texts, too many for classes; turn it into numbers, "
                "or name another column"
            )


def event_hint(X: Any, y: Any) -> list[str]:
    """A word about a column that looks like the event of survival times."""
    if y.ndim != 1 or y.dtype.kind not in "iuf" or not bool((y.dropna() >= 0).all()) or y.nunique() < 3:
        return []
    found = [
        name for name in X.columns if X[name].nunique() == 2 and any(word in str(name).lower() for word in EVENT_NAMES)
    ]
    return [f"If the target is the time of an event, --event {found[0]} makes it survival times."] if found else []


def _are_labels(columns: list[Any]) -> bool:
    """Whether targets are classes: text, truth values, categories, or exactly two whole numbers."""
    distinct = [column.unique() for column in columns if column.dtype.kind in "iuf"]
    return all(len(values) == 2 and bool(np.all(np.mod(values, 1) == 0)) for values in distinct)


def _are_counts(column: Any, least: float = 0.0) -> bool:
    """Whether a target looks like counts: whole numbers from 0 (``least``), more than two of them, skewed to the right."""
    values = np.asarray(column, dtype=np.float64)
    whole = bool(np.all((values >= 0) & (np.mod(values, 1) == 0))) and values.min(initial=np.inf) == least
    return whole and len(np.unique(values)) > 2 and float(column.skew()) > LONG_TAIL


def within_tasks(kind: TargetKind, y: Any, task: str | None) -> TargetKind:
    """The same kind of target, or several classes within every task, where there are more than two, and tasks."""
    if not kind.labels or kind.family is not None or task is None or y.nunique() <= 2:
        return kind
    note = f"Target: {y.nunique()} classes within every task, --family multinomial; effects are those of each class"
    note += (
        "; if they have an order, number them by it and pass --family ordinal."
        if y.nunique() in ORDERED_LEVELS
        else "."
    )
    return kind._replace(family="multinomial", note=note)
