"""Han et al. (2013), Table 1: few labelled rows per class, two tasks over the same features, one SVM on what is selected.

The paper reports the best of 169 pairs of strengths by what looks like the test rows. With strengths chosen inside the
training rows its gains are not there; what holds is that the selection costs little against all features, and that it
beats random features where few are kept.
"""

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from bayesmtfs import datasets
from bayesmtfs.estimators.discriminative import DiscriminativeSelector
from bayesmtfs.papers.baselines import FisherScoreSelector
from bayesmtfs.selection import benchmark_selectors

SIZES = [10, 20, 40, 80, 120, 180]
SVM = LinearSVC(C=0.1, random_state=0, max_iter=10_000)
STRENGTHS = {"within_strength": [1e-4, 1e-3], "joint_strength": [1e-4, 1e-3]}


def read(loader):
    try:
        return loader(progress=False)
    except Exception as error:  # neither a folder nor an address of the data is set
        pytest.skip(f"the data are not there: {type(error).__name__}")


def few_per_class(y, per_class, n_repeats, n_test):
    """Training rows of each class, and some of the others."""
    for seed in range(n_repeats):
        rng = np.random.default_rng(seed)
        train = np.concatenate([rng.choice(np.flatnonzero(y == c), per_class, replace=False) for c in np.unique(y)])
        yield train, rng.choice(np.setdiff1d(np.arange(len(y)), train), n_test, replace=False)


def judge_digits(grid, n_repeats, n_test):
    """Digits 0 to 4 and 5 to 9 as two tasks, 5 labelled rows per digit, one SVM for all ten."""
    digits = read(datasets.load_usps)
    entrants = {"trace ratio": (DiscriminativeSelector(), grid), "random": None, "fisher": FisherScoreSelector()}
    splits = list(few_per_class(digits.y, 5, n_repeats, n_test))
    options = {"k": [*SIZES, 256], "classifier": SVM, "pooled": True, "splits": splits, "n_inner_folds": 2}
    return benchmark_selectors(entrants, digits.X, digits.y, digits.y >= 5, **options)


def test_digits_with_few_features_beat_random_ones():
    found = judge_digits({}, 3, 1000)
    full = found.values("random", 256)
    assert np.all(np.abs(full - 0.75) < 0.06)
    assert found.values("trace ratio", 180).mean() > full.mean() - 0.02
    assert found.difference("trace ratio", "random", 10).mean > 0.03


@pytest.mark.slow
def test_digits_over_ten_repeats_with_nested_strengths():
    found = judge_digits(STRENGTHS, 10, 3000)
    full = found.values("random", 256).mean()
    assert full == pytest.approx(0.75, abs=0.02)
    assert found.values("trace ratio", 180).mean() >= full - 0.02
    for k in SIZES:
        gap = found.difference("trace ratio", "random", k)
        assert gap.mean > -2 * gap.standard_error
    few = found.difference("trace ratio", "random", 20)
    assert few.mean > 2 * few.standard_error
    # the paper's .8155, against .79 with all features, needs strengths chosen by the test rows
    assert found.values("trace ratio", "chosen").mean() < full + 0.02


@pytest.mark.slow
def test_scenes_and_proteins_stay_near_all_features_in_balanced_accuracy():
    scenes, proteins = read(datasets.load_miml_scene), read(datasets.load_protein)
    one_versus_rest = (proteins.y[:, None] == np.arange(3)).astype(float)
    for X, Y in ((scenes.X, scenes.y), (proteins.X.toarray(), one_versus_rest)):
        pattern = np.argmax(Y, axis=1)
        splits = list(few_per_class(pattern, 5, 10, 1000))
        balanced = LinearSVC(C=0.1, class_weight="balanced", random_state=0, max_iter=10_000)
        found = benchmark_selectors(
            {"trace ratio": (DiscriminativeSelector(), STRENGTHS), "random": None},
            X,
            Y,
            k=[20, 60, X.shape[1]],
            classifier=balanced,
            scoring="balanced_accuracy",
            splits=splits,
            n_inner_folds=2,
        )
        full = found.values("random", X.shape[1], "balanced_accuracy").mean()
        chosen = found.values("trace ratio", "chosen", "balanced_accuracy").mean()
        assert 0.5 < full < 0.75 and full - 0.04 < chosen < full + 0.04
