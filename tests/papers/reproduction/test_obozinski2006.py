"""The protocol of Obozinski, Taskar and Jordan (2006): coding, splits, choice of the penalty."""

import numpy as np
import pytest

from bayesmtfs.papers.datasets import Dataset
from bayesmtfs.papers.reproduction import obozinski2006
from bayesmtfs.papers.reproduction.common import Split
from bayesmtfs.papers.reproduction.obozinski2006 import BEST, ERROR

TINY = obozinski2006.Obozinski2006Effort(
    {50: 2}, indicator_splits=0, letter_repeats=1, letters_each=5, n_penalties=2, n_folds=2
)


def test_thermometer_bits_count_up_to_the_grade():
    grades = np.array([[0.0, 1.0, 2.0, 3.0]])
    bits = obozinski2006.thermometer_bits(grades).reshape(3, 4)
    np.testing.assert_array_equal(bits.sum(axis=0), grades[0])
    assert (np.diff(bits, axis=0) <= 0).all()  # a higher grade is never there without the lower ones
    np.testing.assert_array_equal(obozinski2006.indicator_bits(grades).reshape(3, 4).sum(axis=0), [0, 1, 1, 1])


def test_folds_spread_every_class():
    y = np.repeat([1, 2, 3], [10, 5, 5])
    number = obozinski2006.deal_folds(y, 5, np.random.default_rng(0))
    np.testing.assert_array_equal(
        [np.bincount(number[y == c], minlength=5) for c in (1, 2, 3)], [[2] * 5, [1] * 5, [1] * 5]
    )


@pytest.fixture
def diseases():
    """Three classes that three of ten bits tell apart, and a split that does not use all rows."""
    rng = np.random.default_rng(1)
    y = np.repeat([1, 2, 3], 20)
    X = rng.integers(0, 2, (60, 10)).astype(float)
    X[:, :3] = y[:, np.newaxis] == [1, 2, 3]
    rows = rng.permutation(60)
    return obozinski2006.Labelled(X, y), Split(rows[:30], rows[30:50])


@pytest.mark.parametrize("norm_q", [1, 2])
def test_penalty_is_chosen_without_the_test_rows(diseases, norm_q):
    data, split = diseases
    settings = TINY._replace(n_penalties=4, n_folds=3)
    found = obozinski2006.classify_diseases(data, split, norm_q, settings, seed=0)
    assert found[ERROR] == found[BEST] == 0.0 and 3 <= found["bits selected"] < 10
    # Wrong labels in the test rows change both errors but not the fit, and rows in neither set change nothing
    swapped = data.y.copy()
    swapped[split.test] = data.y[split.test] % 3 + 1
    unused = np.setdiff1d(np.arange(60), np.concatenate(split))
    swapped[unused] = 1
    again = obozinski2006.classify_diseases(data._replace(y=swapped), split, norm_q, settings, seed=0)
    assert again[ERROR] == 100.0 and again["bits selected"] == found["bits selected"]


@pytest.fixture
def letters():
    """Random images of all letters, each image twice, words dealt out to ten folds."""
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(26), 60)
    X = rng.integers(0, 2, (len(y), 128)).astype(float)
    X, y = np.vstack([X, X]), np.concatenate([y, y])
    facts = dict.fromkeys(("description", "citation", "source", "licence"), "")
    extras = {"fold": rng.integers(0, 10, len(y))}
    return Dataset("letters", "classification", X, y, None, None, None, n_dropped=0, extras=extras, **facts)


def test_test_letters_are_of_another_fold_and_of_no_training_image(letters):
    for repeat in (0, 3, 13):
        train, test = obozinski2006.split_letters(letters, repeat, TINY, seed=0)
        assert set(letters.extras["fold"][test.row]) == {repeat % 10}
        assert repeat % 10 not in letters.extras["fold"][train.row]
        images = [{image.tobytes() for image in part.X} for part in (train, test)]
        assert not images[0] & images[1]
        pairs, counts = np.unique(train.pair, return_counts=True)
        assert set(pairs) == set(obozinski2006.PAIRS) and set(counts) == {2 * TINY.letters_each}
        first, second = np.array([list(pair) for pair in train.pair]).T
        np.testing.assert_array_equal(obozinski2006.ALPHABET[letters.y[train.row]], np.where(train.y, second, first))


def test_a_small_run_gives_both_tables(need_data):
    need_data("dermatology", "letters")
    outcome = obozinski2006.PAPER._replace(quick=TINY).run(quick=True, seed=0, progress=False)
    assert outcome.quick and outcome.skipped == () and len(outcome.tables) == 2
    dermatology, letters = ({(f.method, f.measure): f for f in table.figures} for table in outcome.tables)
    error = dermatology["l1/l2, n = 50", "error, %"]
    assert error.n_repeats == 2 and 0 < error.mean < 40
    assert dermatology["n = 50, lambda from folds", "gain over independent l1, %"].paper == 20.0
    assert letters["l1/l2", "gain over independent l1, %"].paper == 12.0
    assert 0 < letters["l1/l2", "error, %"].mean < 50
    assert "|---|" in outcome.to_markdown()


@pytest.mark.usefixtures("no_data")
def test_without_data_everything_is_skipped_in_words():
    outcome = obozinski2006.PAPER.run(quick=True, progress=False)
    assert outcome.tables == () and [text.split(":")[0] for text in outcome.skipped] == ["Dermatology", "Letters"]
