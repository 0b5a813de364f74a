"""The data sets of the multi-task feature selection papers, one loader each.

A loader finds its files (`dataset_files`), verifies their hashes, and gives a `Dataset`: arrays in file
order, the same as `TaskData`, and what is known of them. X is float64, targets of a regression too; class labels are
int64. All loaders share three parameters:

data_home : path, optional
    Folder that holds the files. None stands for the environment variable ``BAYESMTFS_DATA``; without either, files
    come from the cache or are fetched from the base address ``BAYESMTFS_DATA_URL``.
missing : {"drop", "keep"}, default "drop"
    "drop" leaves out the rows of X that have missing values and counts them in ``n_dropped``; "keep" gives the raw
    arrays with their NaN, of which no `TaskData` can be made.
progress : bool, default True
    Show a bar while downloading.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bayesmtfs.data.tasks import TaskData
from bayesmtfs.papers.dataset_files import (
    REGISTRY,
    AvailableFile,
    DatasetNotFound,
    Folder,
    Kind,
    available,
    read_arrays,
    read_sparse,
)
from bayesmtfs.types import BoolArray

__all__ = [
    "AvailableFile",
    "Dataset",
    "DatasetNotFound",
    "available",
    "load_breast_er",
    "load_computer_survey",
    "load_dermatology",
    "load_landmine",
    "load_letters",
    "load_miml_scene",
    "load_prostate_singh",
    "load_prostate_studies",
    "load_protein",
    "load_school",
    "load_spam",
    "load_usps",
]

Missing = Literal["drop", "keep"]

LANDMINE_FEATURES = [f"moment_{i}" for i in range(1, 5)] + [f"correlation_{i}" for i in range(1, 4)]
LANDMINE_FEATURES += ["energy_ratio", "spatial_variance"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A data set with its provenance.

    Attributes
    ----------
    name, kind : str
        Kind is "regression" or "classification".
    X : (n, p) float64 array or CSR matrix, rows in file order
    y : (n,) targets or class labels; (n, m) where all tasks share the rows
    tasks : (n,) task labels; None where there is one task, or one per column of y
    feature_names, task_names : names where the data have them (task_names: of the columns of y), else None
    description, citation, source, licence : str
        What it is, whom to cite, where the original is published, on what terms.
    n_dropped : int
        Rows left out because of missing values.
    extras : mapping of arrays
        What else came with the data. Arrays about rows follow the rows of X (on their last axis), arrays about tasks
        the sorted task labels.
    data : TaskData
    """

    name: str
    kind: Kind
    X: Any
    y: NDArray[Any]
    tasks: NDArray[Any] | None
    feature_names: tuple[str, ...] | None
    task_names: tuple[str, ...] | None
    description: str
    citation: str
    source: str
    licence: str
    n_dropped: int
    extras: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @cached_property
    def data(self) -> TaskData:
        """The same observations as `TaskData`, sorted by task; ``data.order`` leads back to the rows of X."""
        incomplete = int(_incomplete_rows(self.X).sum())
        if incomplete:
            raise ValueError(
                f"{self.name} has {incomplete} rows with missing values, kept by missing='keep'; impute X and make "
                "TaskData.from_long(X, y, tasks), or load with missing='drop'"
            )
        if self.y.ndim == 2:
            return TaskData.from_wide(self.X, self.y, task_names=self.task_names, feature_names=self.feature_names)
        return TaskData.from_long(self.X, self.y, self.tasks, feature_names=self.feature_names)

    def __repr__(self) -> str:
        n_tasks = self.y[:1].size if self.tasks is None else len(np.unique(self.tasks))
        tasks = "1 task" if n_tasks == 1 else f"{n_tasks} tasks"
        n, p = self.X.shape
        return f"Dataset({self.name}: {self.kind}, {n} rows, {tasks}, {p} features; {self.n_dropped} rows dropped)"


# ---------------------------------------------------------------------- loaders


def load_school(
    *, bias: bool = False, data_home: Folder = None, missing: Missing = "drop", progress: bool = True
) -> Dataset:
    """Exam scores of 139 London schools: regression, 15362 rows, 27 features.

    ``extras["train_mask"]`` (10, n) is True in the training rows of the ten published splits.

    Parameters
    ----------
    bias : bool, default False
        Keep the column of ones, the 28th.
    data_home, missing, progress
        See the top of this module.
    """
    z = _arrays("school", data_home, progress)
    X, names = _features(z, bias)
    return _dataset("school", X, z["y"], z["task"], names, missing, row_extras={"train_mask": z["train_mask"]})


def load_computer_survey(
    *,
    persons: Literal[190, 180] = 190,
    bias: bool = False,
    data_home: Folder = None,
    missing: Missing = "drop",
    progress: bool = True,
) -> Dataset:
    """Ratings of 20 computers by 190 persons: regression, 3800 rows, 13 features.

    Extras: ``profile`` (n,) computer 0 to 19 of each row; ``covariates`` (persons, 7) and ``covariate_names``;
    ``rating`` (persons, 20), the targets as a matrix.

    Parameters
    ----------
    persons : {190, 180}
        All persons of the survey, or those in the file that most papers use.
    bias : bool, default False
        Keep the column of ones, the first.
    data_home, missing, progress
        See the top of this module.
    """
    _check_choice("persons", persons, (190, 180))
    z = _arrays("computer_survey", data_home, progress)
    chosen = z["in_180"] if persons == 180 else np.ones(190, dtype=bool)
    rows = chosen[z["task"]]
    X, names = _features(z, bias)
    about_persons = {key: z[key][chosen] for key in ("covariates", "rating")}
    return _dataset(
        "computer_survey",
        X[rows],
        z["y"][rows],
        z["task"][rows],
        names,
        missing,
        row_extras={"profile": z["profile"][rows]},
        extras={**about_persons, "covariate_names": z["covariate_names"]},
    )


def load_landmine(
    *, subset: Literal[29, 19] = 29, data_home: Folder = None, missing: Missing = "drop", progress: bool = True
) -> Dataset:
    """Landmine or clutter in 29 fields: binary (1 = mine), 14820 rows, 9 features.

    ``extras["terrain"]`` (fields,) is 0 for foliage, 1 for bare earth or desert.

    Parameters
    ----------
    subset : {29, 19}
        All fields, or the 19 of the usual experiment (0 to 9 and 15 to 23; 9674 rows).
    data_home, missing, progress
        See the top of this module.
    """
    _check_choice("subset", subset, (29, 19))
    z = _arrays("landmine", data_home, progress)
    fields = z["subset19"] if subset == 19 else np.arange(29)
    rows = np.isin(z["task"], fields)
    terrain = {"terrain": z["task_terrain"][fields]}
    return _dataset("landmine", z["X"][rows], z["y"][rows], z["task"][rows], LANDMINE_FEATURES, missing, extras=terrain)


def load_spam(
    *, drop_empty: bool = True, data_home: Folder = None, missing: Missing = "drop", progress: bool = True
) -> Dataset:
    """Spam in 15 inboxes as sparse term counts: binary (1 = spam), 6000 rows, 37120 used terms.

    X is CSR. ``extras["term"]`` (p,) is the number of each column's term in the vocabulary.

    Parameters
    ----------
    drop_empty : bool, default True
        Leave out the terms that occur in no e-mail; with False there are 152543 features.
    data_home, missing, progress
        See the top of this module.
    """
    X, z = _sparse_and_arrays("spam", data_home, progress)
    terms = np.flatnonzero(X.getnnz(axis=0)) if drop_empty else np.arange(X.shape[1])
    return _dataset("spam", X[:, terms], z["y"], z["task"], None, missing, extras={"term": terms})


def load_dermatology(*, data_home: Folder = None, missing: Missing = "drop", progress: bool = True) -> Dataset:
    """Six skin diseases: classes 1 to 6, one task, 366 rows of which 8 have no age, 34 features.

    ``extras["class_names"][c - 1]`` is the name of class c. Parameters: see the top of this module.
    """
    z = _arrays("dermatology", data_home, progress)
    names = {"class_names": z["class_names"]}
    return _dataset("dermatology", z["X"], z["y"], None, z["feature_names"].tolist(), missing, extras=names)


def load_letters(*, data_home: Folder = None, missing: Missing = "drop", progress: bool = True) -> Dataset:
    """Handwritten letters: classes 0 = a to 25 = z, one task, 52152 rows, 16 x 8 binary pixels.

    Extras by row: ``word_id``, ``position`` in the word, ``fold`` (0 to 9, of whole words). Parameters: see the top of
    this module.
    """
    z = _arrays("letters", data_home, progress)
    extras = {key: z[key] for key in ("word_id", "position", "fold")}
    return _dataset("letters", z["X"], z["y"], None, _pixel_names(16, 8), missing, row_extras=extras)


def load_usps(*, data_home: Folder = None, missing: Missing = "drop", progress: bool = True) -> Dataset:
    """Handwritten digits: classes 0 to 9, one task, 9298 rows, 16 x 16 grey levels in [-1, 1].

    ``extras["is_test"]`` marks the 2007 published test rows. Parameters: see the top of this module.
    """
    z = _arrays("usps", data_home, progress)
    split = {"is_test": z["is_test"]}
    return _dataset("usps", z["X"], z["y"], None, _pixel_names(16, 16), missing, row_extras=split)


def load_miml_scene(*, data_home: Folder = None, missing: Missing = "drop", progress: bool = True) -> Dataset:
    """Natural scenes with five labels: y is (2000, 5) of -1 and +1, 135 features, one design for all tasks.

    Parameters: see the top of this module.
    """
    z = _arrays("miml_scene", data_home, progress)
    return _dataset("miml_scene", z["X"], z["Y"], None, None, missing, task_names=z["class_names"].tolist())


def load_protein(*, data_home: Folder = None, missing: Missing = "drop", progress: bool = True) -> Dataset:
    """Secondary structure of proteins: classes 0 to 2, one task, 2871 rows, 357 features, X is CSR.

    Parameters: see the top of this module.
    """
    X, z = _sparse_and_arrays("protein", data_home, progress)
    return _dataset("protein", X, z["y"], None, None, missing)


def load_prostate_singh(
    *, variant: Literal[6033, 12600] = 6033, data_home: Folder = None, missing: Missing = "drop", progress: bool = True
) -> Dataset:
    """Prostate tumours (1) against normal tissue (0): one task, 102 rows.

    Parameters
    ----------
    variant : {6033, 12600}
        6033 genes, filtered, log-transformed and standardised per sample; or all 12600 probes as raw intensities.
    data_home, missing, progress
        See the top of this module.
    """
    _check_choice("variant", variant, (6033, 12600))
    z = _arrays("prostate_singh", data_home, progress, file=(12600, 6033).index(variant))
    return _dataset("prostate_singh", z["X"], z["y"], None, None, missing)


def load_prostate_studies(
    *, binary: bool = False, data_home: Folder = None, missing: Missing = "drop", progress: bool = True
) -> Dataset:
    """Prostate samples of four studies: classes 0 normal, 1 primary tumour, 2 metastasis; 315 rows, 1358 genes.

    The task labels are the studies' names; ``extras["class_names"][c]`` is the name of class c.

    Parameters
    ----------
    binary : bool, default False
        Leave out the metastases: the usual problem, normal against primary (256 rows).
    data_home, missing, progress
        See the top of this module.
    """
    z = _arrays("prostate_studies", data_home, progress)
    rows = z["y"] < 2 if binary else np.ones(len(z["y"]), dtype=bool)
    studies = z["task_names"][z["task"][rows]]
    names = {"class_names": z["class_names"][: 2 if binary else 3]}
    genes = z["feature_names"].tolist()
    return _dataset("prostate_studies", z["X"][rows], z["y"][rows], studies, genes, missing, extras=names)


def load_breast_er(
    *,
    features: Literal["genes", "probes"] = "genes",
    data_home: Folder = None,
    missing: Missing = "drop",
    progress: bool = True,
) -> Dataset:
    """Oestrogen receptor status of breast tumours in three studies: binary, 546 rows of which 15 have gaps, 254 genes.

    The task labels are NKI, VDX and expO. With genes, there is ``extras["entrez_id"]`` (254,).

    Parameters
    ----------
    features : {"genes", "probes"}
        The 254 genes that the three studies share; or the 966 probes that VDX and expO share (396 rows, no gaps).
    data_home, missing, progress
        See the top of this module.
    """
    _check_choice("features", features, ("genes", "probes"))
    z = _arrays("breast_er", data_home, progress)
    studies = z["task_names"][z["task"]]
    if features == "genes":
        ids = {"entrez_id": z["entrez_id"]}
        symbols = zip(z["feature_names"].tolist(), z["entrez_id"].tolist(), strict=True)
        genes = [symbol if symbol != "nan" else f"entrez_{number}" for symbol, number in symbols]  # some have no symbol
        return _dataset("breast_er", z["X"], z["y"], studies, genes, missing, extras=ids)
    n = len(z["X_affy"])  # the last rows, in the same order
    return _dataset("breast_er", z["X_affy"], z["y"][-n:], studies[-n:], z["probe_names_affy"].tolist(), missing)


# ---------------------------------------------------------------------- from files to a Dataset


def _arrays(name: str, data_home: Folder, progress: bool, file: int = 0) -> dict[str, NDArray[Any]]:
    """Arrays of one of a data set's files."""
    facts = REGISTRY[name]
    return read_arrays(facts.files[file], facts.source, data_home, progress)


def _sparse_and_arrays(name: str, data_home: Folder, progress: bool) -> tuple[Any, dict[str, NDArray[Any]]]:
    """CSR design and the arrays beside it, of a data set with these two files."""
    facts = REGISTRY[name]
    return read_sparse(facts.files[1], facts.source, data_home, progress), _arrays(name, data_home, progress)


def _features(arrays: Mapping[str, NDArray[Any]], bias: bool) -> tuple[NDArray[Any], list[str]]:
    """Design and feature names, with or without the column of ones."""
    names = arrays["feature_names"]
    kept = np.ones(len(names), dtype=bool) if bias else names != "bias"
    return arrays["X"][:, kept], names[kept].tolist()


def _pixel_names(height: int, width: int) -> list[str]:
    return [f"pixel_{row}_{column}" for row in range(height) for column in range(width)]


def _check_choice(argument: str, value: object, choices: Sequence[object]) -> None:
    if value not in choices:
        raise ValueError(f"{argument} is {value!r}; pass one of {', '.join(map(repr, choices))}")


def _incomplete_rows(X: Any) -> BoolArray:
    """(n,) Rows of a dense or sparse design that have a NaN: those whose sum is one."""
    return np.isnan(np.asarray(X.sum(axis=1), dtype=np.float64).ravel())


def _dataset(
    name: str,
    X: Any,
    y: NDArray[Any],
    tasks: NDArray[Any] | None,
    feature_names: Sequence[str] | None,
    missing: Missing,
    task_names: Sequence[str] | None = None,
    row_extras: Mapping[str, NDArray[Any]] | None = None,
    extras: Mapping[str, NDArray[Any]] | None = None,
) -> Dataset:
    """Cast, drop incomplete rows (of row_extras too, on their last axis), and add the facts."""
    _check_choice("missing", missing, ("drop", "keep"))
    facts = REGISTRY[name]
    kept = ~_incomplete_rows(X) if missing == "drop" else np.ones(X.shape[0], dtype=bool)
    labels = None if tasks is None else tasks[kept]
    return Dataset(
        name=name,
        kind=facts.kind,
        X=X[kept].astype(np.float64),
        y=y[kept].astype(np.float64 if facts.kind == "regression" else np.int64),
        tasks=labels.astype(np.int64) if labels is not None and labels.dtype.kind == "u" else labels,
        feature_names=None if feature_names is None else tuple(feature_names),
        task_names=None if task_names is None else tuple(task_names),
        description=facts.description,
        citation=facts.citation,
        source=facts.source,
        licence=facts.licence,
        n_dropped=int(np.sum(~kept)),
        extras={**{key: values[..., kept] for key, values in (row_extras or {}).items()}, **(extras or {})},
    )
