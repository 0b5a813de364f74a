"""Obozinski, Taskar and Jordan (2006), section 4.1: pairs of letters as tasks, l1/l2 against independent l1.

Nine pairs that are hard to tell apart are nine binary tasks over the same 128 pixels, with twenty training letters each.
The paper has one task per writer and pair, and strokes as features; the public file does not identify the writers, so
that only the sharing between pairs can be looked at, and the pooled classifier of the paper has no counterpart here.
"""

import numpy as np
import pytest

from bayesmtfs import MixedNormClassifierCV, datasets

PAIRS = ("ce", "gy", "gs", "mn", "ag", "ij", "ao", "ft", "hn")

PENALTIES = np.geomspace(0.3, 0.002, 15)


def read():
    try:
        found = datasets.load_letters(progress=False)
    except Exception as error:  # neither a folder nor an address of the data is set
        pytest.skip(f"the letters are not there: {type(error).__name__}")
    return found.X, np.array(list("abcdefghijklmnopqrstuvwxyz"))[found.y]


def draw(X, letters, per_letter, seed):
    """Rows, whether a letter is the second of its pair, and pair."""
    rng = np.random.default_rng(seed)
    parts = [(pair, second) for pair in PAIRS for second in (0, 1)]
    rows = [rng.choice(np.flatnonzero(letters == pair[second]), per_letter, replace=False) for pair, second in parts]
    y = np.repeat([second for _, second in parts], per_letter)
    return X[np.concatenate(rows)], y, np.repeat([pair for pair, _ in parts], per_letter)


def study(n_repeats, n_test=80):
    """(repeats, joint or independent) mean error over the pairs, ten training letters of each kind."""
    X, letters = read()
    found = []
    for seed in range(n_repeats):
        rows, y, pairs = draw(X, letters, 10 + n_test, seed)
        train = np.arange(len(y)) % (10 + n_test) < 10
        both = []
        for norm_q in (2, 1):
            model = MixedNormClassifierCV(
                norm_q=norm_q, loss="hinge", penalties=PENALTIES, cv=5, tol=1e-3, random_state=seed
            )
            model.fit(rows[train], y[train], tasks=pairs[train])
            both.append(np.mean(model.predict(rows[~train], tasks=pairs[~train]) != y[~train]))
        found.append(both)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayesmtfs.types.ConvergenceWarning")
def test_sharing_features_between_pairs_of_letters_pays():
    found = study(10)
    difference = found[:, 1] - found[:, 0]
    gain, error = difference.mean() / found[:, 1].mean(), difference.std(ddof=1) / 10**0.5 / found[:, 1].mean()
    assert gain > 2 * error
