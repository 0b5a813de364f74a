"""Online learners of other packages on one stream: each takes prepared rows and learns them, one by one or in batches.

Rows are put into the form that a package wants before the clock starts, except for Vowpal Wabbit, whose driver reads
and parses text by design. Ours learns one model per task with the multi-task penalty over all of them. Like for like are
independent models, one per task on that task's rows ("per task"); one model for all tasks, which knows nothing of
tasks, is the least that a peer can do and stands beside it. A package that is not installed is left out.
"""

import atexit
import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import SGDClassifier
from sklearn.preprocessing import normalize

from bayesmtfs.estimators.online import OnlineMixedNormClassifier

Run = Callable[[], object]
SCIKIT_LEARN: dict[str, dict[str, Any]] = {
    "SGD": {"loss": "log_loss"},
    "PA": {"loss": "hinge", "penalty": None, "learning_rate": "pa1", "eta0": 1.0},
}
CLASSES = np.array([-1, 1])
WORDS_PER_ENTRY = 1.2  # some words come more than once in a row, and are one entry


class Stream(NamedTuple):
    """Rows in order of arrival."""

    name: str
    X: Any  # (n, p) float64 array or CSR matrix
    y: Any  # (n,) -1 and +1
    tasks: Any  # (n,)
    strength: float  # of our penalty


def landmine_like(n: int, n_tasks: int = 19, seed: int = 0) -> Stream:
    """Nine dense features, two of them without use."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 9))
    tasks = rng.integers(n_tasks, size=n)
    coef = rng.standard_normal(9) * (np.arange(9) < 7) + 0.3 * rng.standard_normal((n_tasks, 9))
    y = np.where(np.einsum("ij,ij->i", X, coef[tasks]) + rng.standard_normal(n) > 0, 1, -1)
    return Stream("landmine-like", X, y, tasks, 0.02)


def text_like(
    n: int, p: int = 150_000, nnz: int = 100, n_tasks: int = 15, seed: int = 0, n_words: int | None = None
) -> Stream:
    """Word counts by a Zipf law, each row of unit length and with about ``nnz`` different words.

    Every tenth word has a meaning, and ``n_words`` of the p are in use.
    """
    rng = np.random.default_rng(seed)
    most = p if n_words is None else n_words
    length = round(WORDS_PER_ENTRY * nnz)
    ranks = np.minimum(np.exp(rng.random((n, length)) * np.log(most)).astype(np.int64), most) - 1
    words = rng.permutation(p)[ranks].ravel().astype(np.int32)
    pointers = np.arange(0, n * length + 1, length, dtype=np.int32)
    X = sp.csr_matrix((np.ones(words.size), words, pointers), shape=(n, p))
    X.sum_duplicates()
    X = normalize(X)
    meaning = rng.standard_normal(p) * (rng.random(p) < 0.1)
    y = np.where(X @ meaning + 0.05 * rng.standard_normal(n) > 0, 1, -1)
    return Stream("text-like", X, y, rng.integers(n_tasks, size=n), 0.001)


def batches(stream: Stream, size: int) -> list[tuple[Any, Any, Any]]:
    """Rows, labels and tasks of each batch."""
    starts = range(0, len(stream.y), size)
    return [(stream.X[i : i + size], stream.y[i : i + size], stream.tasks[i : i + size]) for i in starts]


def ours(stream: Stream, size: int, **options: Any) -> Run:
    """Dual averaging with the l2,1 penalty over all tasks."""
    parts = batches(stream, size)

    def run() -> OnlineMixedNormClassifier:
        model = OnlineMixedNormClassifier(penalty_strength=stream.strength, **options)
        for X, y, tasks in parts:
            model.partial_fit(X, y, tasks=tasks, classes=CLASSES)
        return model

    return run


def scikit_learn(stream: Stream, size: int, **options: Any) -> Run:
    """Run ``SGDClassifier.partial_fit``."""
    parts = batches(stream, size)

    def run() -> None:
        model = SGDClassifier(**options)
        for X, y, _ in parts:
            model.partial_fit(X, y, classes=CLASSES)

    return run


def scikit_learn_per_task(stream: Stream, size: int, **options: Any) -> Run:
    """Run ``SGDClassifier.partial_fit`` of one model per task, each on the rows of its task."""
    parts = [[(k, X[t == k], y[t == k]) for k in np.unique(t).tolist()] for X, y, t in batches(stream, size)]
    labels = np.unique(stream.tasks).tolist()

    def run() -> None:
        models = {k: SGDClassifier(**options) for k in labels}
        for part in parts:
            for k, X, y in part:
                models[k].partial_fit(X, y, classes=CLASSES)

    return run


def river(stream: Stream, learner: str) -> Run:
    """Run ``learn_one`` of river, the rows as dictionaries."""
    from river import linear_model

    rows = [dict(zip(names, values, strict=True)) for names, values in _entries(stream)]
    labels = (stream.y > 0).tolist()

    def run() -> None:
        model = getattr(linear_model, learner)()
        for x, y in zip(rows, labels, strict=True):
            model.learn_one(x, y)

    return run


def vowpal_wabbit(stream: Stream, driver: bool) -> Run:
    """Vowpal Wabbit: its driver on a file, or ``learn`` on one text line after the other."""
    import vowpalwabbit

    lines = [
        f"{y} | " + " ".join(f"{name}:{value:.6g}" for name, value in zip(names, values, strict=True))
        for y, (names, values) in zip(stream.y.tolist(), _entries(stream), strict=True)
    ]
    options = "--loss_function logistic --quiet -b 20"
    if not driver:

        def run() -> None:
            workspace = vowpalwabbit.Workspace(options)
            for line in lines:
                workspace.learn(line)
            workspace.finish()

        return run
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "rows.txt"
    path.write_text("\n".join(lines) + "\n")

    def run_driver() -> None:
        vowpalwabbit.Workspace(f"{options} -d {path}").finish()

    return run_driver


def _entries(stream: Stream) -> Iterator[tuple[list[int], list[float]]]:
    """Names and values of the features of each row."""
    for i in range(len(stream.y)):
        if sp.issparse(stream.X):
            row = slice(stream.X.indptr[i], stream.X.indptr[i + 1])
            yield stream.X.indices[row].tolist(), stream.X.data[row].tolist()
        else:
            yield list(range(stream.X.shape[1])), stream.X[i].tolist()


def contenders(stream: Stream, size: int) -> dict[str, Run]:
    """Everything that learns this stream in batches of this size; 0 stands for whole files."""
    runs: dict[str, Run] = {"bayesmtfs": ours(stream, size)}
    for name, options in SCIKIT_LEARN.items():
        runs[f"scikit-learn {name}"] = scikit_learn(stream, size, **options)
        runs[f"scikit-learn {name} per task"] = scikit_learn_per_task(stream, size, **options)
    if importlib.util.find_spec("river") and size == 1:
        runs["river logistic"] = river(stream, "LogisticRegression")
        runs["river PA"] = river(stream, "PAClassifier")
    if importlib.util.find_spec("vowpalwabbit"):
        name = "Vowpal Wabbit learn" if size == 1 else "Vowpal Wabbit driver"
        runs[name] = vowpal_wabbit(stream, driver=size > 1)
    return runs
