"""The loaders: shapes and counts as published, rows that stay aligned, provenance."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs import datasets
from bayesmtfs.papers.dataset_files import REGISTRY, DataFile


@pytest.fixture(scope="session")
def data_home():
    """Folder with the real files: the environment's, or the one beside the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("BAYESMTFS_DATA") or beside)
    if not (folder / "school.npz").is_file():
        pytest.skip("the data files are not here; set BAYESMTFS_DATA to their folder to run this test")
    return folder


def load(name: str, data_home: Path, **options) -> datasets.Dataset:
    return getattr(datasets, f"load_{name}")(data_home=data_home, **options)


# name, options, rows, tasks, features, rows dropped
SIZES = [
    ("school", {}, 15362, 139, 27, 0),
    ("school", {"bias": True}, 15362, 139, 28, 0),
    ("computer_survey", {}, 3800, 190, 13, 0),
    ("computer_survey", {"persons": 180, "bias": True}, 3600, 180, 14, 0),
    ("landmine", {}, 14820, 29, 9, 0),
    ("landmine", {"subset": 19}, 9674, 19, 9, 0),
    ("spam", {}, 6000, 15, 37120, 0),
    ("spam", {"drop_empty": False}, 6000, 15, 152543, 0),
    ("dermatology", {}, 358, 1, 34, 8),
    ("letters", {}, 52152, 1, 128, 0),
    ("usps", {}, 9298, 1, 256, 0),
    ("miml_scene", {}, 2000, 5, 135, 0),
    ("protein", {}, 2871, 1, 357, 0),
    ("prostate_singh", {}, 102, 1, 6033, 0),
    ("prostate_singh", {"variant": 12600}, 102, 1, 12600, 0),
    ("prostate_studies", {}, 315, 4, 1358, 0),
    ("prostate_studies", {"binary": True}, 256, 4, 1358, 0),
    ("breast_er", {}, 531, 3, 254, 15),
    ("breast_er", {"features": "probes"}, 396, 2, 966, 0),
]


@pytest.mark.parametrize("name, options, rows, tasks, features, dropped", SIZES)
def test_sizes_types_and_task_data(data_home, name, options, rows, tasks, features, dropped):
    ds = load(name, data_home, **options)
    assert ds.X.shape == (rows, features) and ds.X.dtype == np.float64
    assert ds.y.dtype == (np.float64 if ds.kind == "regression" else np.int64)
    assert ds.n_dropped == dropped
    data = ds.data
    assert (data.n_tasks, data.n_features) == (tasks, features)
    assert data.is_sparse == sp.issparse(ds.X)
    assert ds.feature_names is None or data.feature_names.tolist() == list(ds.feature_names)
    order = data.order // tasks if ds.y.ndim == 2 else data.order
    assert np.array_equal(ds.y.ravel()[data.order], data.y)
    assert ds.tasks is None or np.array_equal(ds.tasks[order], data.task_names[data.task])
    difference = ds.X[order] - data.X
    assert (difference.nnz if sp.issparse(difference) else np.count_nonzero(difference)) == 0
    n_tasks = "1 task" if tasks == 1 else f"{tasks} tasks"
    expected = f"{name}: {ds.kind}, {rows} rows, {n_tasks}, {features} features; {dropped} rows dropped"
    assert repr(ds) == f"Dataset({expected})"


def test_every_file_is_registered_and_verified(data_home):
    files = datasets.available(data_home)
    assert {entry.file for entry in files} == {path.name for path in data_home.glob("*.npz")}
    assert {entry.status for entry in files} == {"ready"}
    assert all((data_home / entry.file).stat().st_size == entry.size for entry in files)


def test_every_data_set_has_a_loader_and_its_facts():
    loaders = {name.removeprefix("load_") for name in datasets.__all__ if name.startswith("load_")}
    assert loaders == set(REGISTRY)
    for facts in REGISTRY.values():
        assert facts.source.startswith(("http://", "https://"))
        assert facts.description.endswith(".") and facts.citation.endswith(".") and facts.licence
        assert all(len(file.sha256) == 64 and file.size > 0 for file in facts.files)


def test_facts_come_with_the_data(data_home):
    ds = load("dermatology", data_home)
    facts = REGISTRY["dermatology"]
    assert (ds.description, ds.citation, ds.source, ds.licence, ds.kind) == facts[2:]


def test_school_splits_are_aligned_with_the_rows(data_home):
    ds = load("school", data_home)
    train = ds.extras["train_mask"]
    assert train.shape == (10, 15362) and train.sum(axis=1).tolist() == [11472] * 10
    for split in train:
        shares = np.bincount(ds.tasks, weights=split) / np.bincount(ds.tasks)
        assert 0.7 < shares.min() and shares.max() < 0.8  # 75 % of every school
    assert ds.feature_names[0] == "year_1985" and "bias" not in ds.feature_names
    assert (ds.y.min(), ds.y.max()) == (1, 70)
    years = ds.X[:, :3].sum(axis=1)
    assert np.array_equal(years, np.ones(15362))
    with_bias = load("school", data_home, bias=True)
    assert np.array_equal(with_bias.X[:, :27], ds.X) and np.array_equal(with_bias.X[:, 27], np.ones(15362))


@pytest.mark.parametrize("persons", [190, 180])
def test_computer_survey_matches_its_rating_matrix(data_home, persons):
    ds = load("computer_survey", data_home, persons=persons)
    person = np.searchsorted(ds.data.task_names, ds.tasks)
    assert np.array_equal(ds.y, ds.extras["rating"][person, ds.extras["profile"]])
    assert ds.extras["covariates"].shape == (persons, len(ds.extras["covariate_names"]))
    left_out = set(range(190)) - set(ds.tasks.tolist())
    assert left_out == (set() if persons == 190 else {14, 19, 42, 52, 69, 95, 111, 122, 138, 152})
    assert set(np.unique(ds.X)) == {-1.0, 1.0}


@pytest.mark.parametrize("subset, mines, bare", [(29, 904, 14), (19, 585, 9)])
def test_landmine_counts(data_home, subset, mines, bare):
    ds = load("landmine", data_home, subset=subset)
    assert ds.y.sum() == mines
    terrain = dict(zip(ds.data.task_names.tolist(), ds.extras["terrain"].tolist(), strict=True))
    assert sum(terrain.values()) == bare
    assert terrain == {field: int(field >= 15) for field in terrain}


def test_spam_is_balanced_and_only_empty_terms_go(data_home):
    ds, full = load("spam", data_home), load("spam", data_home, drop_empty=False)
    assert np.bincount(ds.tasks, weights=ds.y).tolist() == [200] * 15
    assert ds.X.format == full.X.format == "csr"
    assert ds.X.nnz == full.X.nnz == 922884 and ds.X.getnnz(axis=0).min() > 0
    assert (full.X[:, ds.extras["term"]] != ds.X).nnz == 0


@pytest.mark.parametrize(
    "name, options, counts",
    [
        ("dermatology", {"missing": "keep"}, [0, 112, 61, 72, 49, 52, 20]),
        ("usps", {}, [1553, 1269, 929, 824, 852, 716, 834, 792, 708, 821]),
        ("protein", {}, [1489, 703, 679]),
        ("prostate_singh", {}, [50, 52]),
        ("prostate_singh", {"variant": 12600}, [50, 52]),
    ],
)
def test_class_counts(data_home, name, options, counts):
    assert np.bincount(load(name, data_home, **options).y).tolist() == counts


def test_letters_folds_are_of_whole_words(data_home):
    ds = load("letters", data_home)
    words, first = np.unique(ds.extras["word_id"], return_index=True)
    assert len(words) == 6877
    assert np.array_equal(ds.extras["fold"][first][ds.extras["word_id"]], ds.extras["fold"])
    counts = np.bincount(ds.y)
    assert len(counts) == 26 and counts[[ord("n") - 97, ord("j") - 97]].tolist() == [5024, 189]
    assert ds.feature_names[9] == "pixel_1_1"


def test_usps_split(data_home):
    ds = load("usps", data_home)
    assert ds.extras["is_test"].sum() == 2007 and not ds.extras["is_test"][:7291].any()
    assert (ds.X.min(), ds.X.max()) == (-1.0, 1.0)


def test_miml_labels(data_home):
    ds = load("miml_scene", data_home)
    assert ds.tasks is None and (ds.y == 1).sum(axis=0).tolist() == [409, 458, 580, 465, 560]
    assert ds.data.task_names.tolist() == ["desert", "mountains", "sea", "sunset", "trees"]
    assert ds.data.shared_design


def test_protein_has_its_empty_column(data_home):
    assert np.flatnonzero(load("protein", data_home).X.getnnz(axis=0) == 0).tolist() == [188]


STUDIES = {"Lapointe": [41, 62, 9], "Yu": [18, 65, 25], "Varambally": [6, 7, 6], "Tomlins": [27, 30, 19]}


@pytest.mark.parametrize("binary", [False, True])
def test_prostate_studies_counts(data_home, binary):
    ds = load("prostate_studies", data_home, binary=binary)
    n_classes = 2 if binary else 3
    assert len(ds.extras["class_names"]) == n_classes
    for study, counts in STUDIES.items():
        assert np.bincount(ds.y[ds.tasks == study]).tolist() == counts[:n_classes]


def test_breast_rows_with_gaps(data_home):
    raw = load("breast_er", data_home, missing="keep")
    assert raw.X.shape == (546, 254) and np.isnan(raw.X).sum() == 82 and raw.n_dropped == 0
    counts = {study: np.bincount(raw.y[raw.tasks == study]).tolist() for study in ("NKI", "VDX", "expO")}
    assert counts == {"NKI": [38, 112], "VDX": [65, 85], "expO": [85, 161]}
    with pytest.raises(ValueError, match="breast_er has 15 rows with missing values"):
        _ = raw.data
    clean = load("breast_er", data_home)
    complete = ~np.isnan(raw.X).any(axis=1)
    assert np.array_equal(clean.X, raw.X[complete])
    assert np.array_equal(clean.y, raw.y[complete]) and np.array_equal(clean.tasks, raw.tasks[complete])
    probes = load("breast_er", data_home, features="probes")
    assert np.array_equal(probes.y, raw.y[150:]) and np.array_equal(probes.tasks, raw.tasks[150:])


@pytest.mark.parametrize(
    "name, wrong",
    [
        ("school", {"missing": "impute"}),
        ("computer_survey", {"persons": 200}),
        ("landmine", {"subset": 20}),
        ("prostate_singh", {"variant": 600}),
        ("breast_er", {"features": "all"}),
    ],
)
def test_unknown_options_name_the_choices(data_home, name, wrong):
    ((argument, value),) = wrong.items()
    with pytest.raises(ValueError, match=f"{argument} is {value!r}; pass one of "):
        load(name, data_home, **wrong)


# ---------------------------------------------------------------------- without the real files


@pytest.fixture
def made_up_letters(tmp_path, monkeypatch):
    """Four letters under the registered name, the third with a missing pixel."""
    X = np.arange(4 * 128, dtype=np.float32).reshape(4, 128)
    X[2, 5] = np.nan
    by_row = np.array([10, 11, 12, 13], dtype=np.uint8)
    path = tmp_path / "ocr_letters.npz"
    np.savez(path, X=X, y=by_row, word_id=by_row, position=by_row, fold=by_row)
    content = path.read_bytes()
    file = DataFile(path.name, len(content), hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(REGISTRY, "letters", REGISTRY["letters"]._replace(files=(file,)))
    return tmp_path


def test_rows_are_dropped_from_everything_about_rows(made_up_letters):
    ds = datasets.load_letters(data_home=made_up_letters)
    assert ds.n_dropped == 1 and ds.data.n_observations == 3
    for by_row in (ds.y, ds.extras["word_id"], ds.extras["position"], ds.extras["fold"]):
        assert by_row.tolist() == [10, 11, 13]
    assert ds.X[:, 0].tolist() == [0, 128, 384]


def test_rows_are_kept_when_asked(made_up_letters):
    ds = datasets.load_letters(data_home=made_up_letters, missing="keep")
    assert ds.n_dropped == 0 and ds.y.tolist() == ds.extras["fold"].tolist() == [10, 11, 12, 13]
    with pytest.raises(ValueError, match="letters has 1 rows with missing values, kept by missing='keep'; impute"):
        _ = ds.data


def test_data_set_that_is_nowhere(tmp_path, monkeypatch):
    monkeypatch.delenv("BAYESMTFS_DATA_URL", raising=False)
    monkeypatch.setenv("BAYESMTFS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(datasets.DatasetNotFound, match=r"school.npz .*published at http://www.bristol.ac.uk"):
        datasets.load_school(data_home=tmp_path)
