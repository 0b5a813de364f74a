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
    arrays = _bias_chosen(_arrays("school", data_home, progress), bias)
    return _dataset("school", arrays, missing, by_row=("train_mask",))


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
    arrays = _bias_chosen(_arrays("computer_survey", data_home, progress), bias)
    chosen = arrays["in_180"] | (persons == 190)
    extras = {key: arrays[key][chosen] for key in ("covariates", "rating")}
    extras["covariate_names"] = arrays["covariate_names"]
    return _dataset("computer_survey", arrays, missing, chosen[arrays["task"]], by_row=("profile",), extras=extras)


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
    arrays = _arrays("landmine", data_home, progress)
    fields = arrays["subset19"] if subset == 19 else np.arange(29)
    arrays["feature_names"] = LANDMINE_FEATURES
    terrain = {"terrain": arrays["task_terrain"][fields]}
    return _dataset("landmine", arrays, missing, np.isin(arrays["task"], fields), extras=terrain)


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
    arrays = _arrays("spam", data_home, progress)
    X = arrays["X"]
    terms = np.flatnonzero(X.getnnz(axis=0)) if drop_empty else np.arange(X.shape[1])
    return _dataset("spam", {**arrays, "X": X[:, terms]}, missing, extras={"term": terms})


def load_dermatology(*, data_home: Folder = None, missing: Missing = "drop", progress: bool = True) -> Dataset:
    """Six skin diseases: classes 1 to 6, one task, 366 rows of which 8 have no age, 34 features.

    ``extras["class_names"][c - 1]`` is the name of class c. Parameters: see the top of this module.
    """
    arrays = _arrays("dermatology", data_home, progress)
    return _dataset("dermatology", arrays, missing, extras={"class_names": arrays["class_names"]})


def load_letters(*, data_home: Folder = None, missing: Missing = "drop", progress: bool = True) -> Dataset:
    """Handwritten letters: classes 0 = a to 25 = z, one task, 52152 rows, 16 x 8 binary pixels.

    Extras by row: ``word_id``, ``position`` in the word, ``fold`` (0 to 9, of whole words). Parameters: see the top of
    this module.
    """
    arrays = {**_arrays("letters", data_home, progress), "feature_names": _pixel_names(16, 8)}
    return _dataset("letters", arrays, missing, by_row=("word_id", "position", "fold"))


def load_usps(*, data_home: Folder = None, missing: Missing = "drop", progress: bool = True) -> Dataset:
    """Handwritten digits: classes 0 to 9, one task, 9298 rows, 16 x 16 grey levels in [-1, 1].

    ``extras["is_test"]`` marks the 2007 published test rows. Parameters: see the top of this module.
    """
    arrays = {**_arrays("usps", data_home, progress), "feature_names": _pixel_names(16, 16)}
    return _dataset("usps", arrays, missing, by_row=("is_test",))


def load_miml_scene(*, data_home: Folder = None, missing: Missing = "drop", progress: bool = True) -> Dataset:
    """Natural scenes with five labels: y is (2000, 5) of -1 and +1, 135 features, one design for all tasks.

    Parameters: see the top of this module.
    """
    arrays = _arrays("miml_scene", data_home, progress)
    return _dataset("miml_scene", {"X": arrays["X"], "y": arrays["Y"], "task_names": arrays["class_names"]}, missing)


def load_protein(*, data_home: Folder = None, missing: Missing = "drop", progress: bool = True) -> Dataset:
    """Secondary structure of proteins: classes 0 to 2, one task, 2871 rows, 357 features, X is CSR.

    Parameters: see the top of this module.
    """
    return _dataset("protein", _arrays("protein", data_home, progress), missing)


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
    arrays = _arrays("prostate_singh", data_home, progress, only=f"prostate_singh_{variant}.npz")
    return _dataset("prostate_singh", arrays, missing)


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
    arrays = _arrays("prostate_studies", data_home, progress)
    n_classes = 2 if binary else 3
    names = {"class_names": arrays["class_names"][:n_classes]}
    return _dataset("prostate_studies", arrays, missing, arrays["y"] < n_classes, extras=names)


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
    arrays = _arrays("breast_er", data_home, progress)
    if features == "probes":
        n = len(arrays["X_affy"])  # the last rows, in the same order
        last = {key: arrays[key][-n:] for key in ("y", "task")}
        probes = {"X": arrays["X_affy"], "feature_names": arrays["probe_names_affy"]}
        return _dataset("breast_er", {**arrays, **last, **probes}, missing)
    symbols, ids = arrays["feature_names"], arrays["entrez_id"]
    arrays["feature_names"] = np.where(
        symbols == "nan", [f"entrez_{number}" for number in ids], symbols
    )  # some have none
    return _dataset("breast_er", arrays, missing, extras={"entrez_id": ids})


# ---------------------------------------------------------------------- from files to a Dataset


def _arrays(name: str, data_home: Folder, progress: bool, only: str = "") -> dict[str, Any]:
    """Arrays of a data set's files, or of one of them."""
    arrays = {}
    for file in REGISTRY[name].files:
        if only in ("", file.name):
            arrays.update(read_arrays(file, REGISTRY[name].source, data_home, progress))
    return arrays


def _bias_chosen(arrays: dict[str, Any], bias: bool) -> dict[str, Any]:
    """Arrays with or without the column of ones."""
    kept = (arrays["feature_names"] != "bias") | bias
    return {**arrays, "X": arrays["X"][:, kept], "feature_names": arrays["feature_names"][kept]}


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
    arrays: Mapping[str, Any],
    missing: Missing,
    rows: BoolArray | None = None,
    by_row: Sequence[str] = (),
    extras: Mapping[str, NDArray[Any]] | None = None,
) -> Dataset:
    """Cast, choose rows and drop incomplete ones (of the arrays ``by_row`` too, on their last axis), and add the facts.

    The arrays are X, y and, where there are some, task, task_names (of the numbers in task, or of the columns of y) and
    feature_names.
    """
    _check_choice("missing", missing, ("drop", "keep"))
    about = REGISTRY[name]._asdict()
    del about["files"]
    X, y, tasks, names = arrays["X"], arrays["y"], arrays.get("task"), arrays.get("task_names")
    chosen = np.ones(X.shape[0], dtype=bool) if rows is None else rows
    kept = chosen & ~_incomplete_rows(X) if missing == "drop" else chosen
    if tasks is not None:
        tasks = tasks[kept].astype(np.int64) if names is None else names[tasks[kept]]
    features = arrays.get("feature_names")
    return Dataset(
        **about,
        X=X[kept].astype(np.float64),
        y=y[kept].astype(np.float64 if about["kind"] == "regression" else np.int64),
        tasks=tasks,
        feature_names=None if features is None else tuple(np.asarray(features).tolist()),
        task_names=None if names is None or tasks is not None else tuple(names.tolist()),
        n_dropped=int(np.sum(chosen & ~kept)),
        extras={**{key: arrays[key][..., kept] for key in by_row}, **(extras or {})},
    )
