"""Kinds and words of features, by counting."""

import numpy as np
import pytest

from bayesmtfs.results.sharing import counts_in_words, sharing_of


def test_kinds_are_those_of_counting():
    rng = np.random.default_rng(0)
    entries, selected = rng.random((4, 200)) < 0.5, rng.random(200) < 0.8
    absent = rng.random((4, 200)) < 0.2
    entries &= ~absent
    found = sharing_of(entries, selected, np.array(list("abcd")), absent)
    for i in range(200):
        own, present = set(np.flatnonzero(entries[:, i])), set(np.flatnonzero(~absent[:, i]))
        if not selected[i]:
            expected = "none"
        elif not own:
            expected = "unclear"
        elif len(own) == 1:
            expected = "specific"
        else:
            expected = "all" if own == present else "some"
        assert found.kind[i] == expected
        assert found.entries[:, i].tolist() == (entries[:, i] & selected[i]).tolist()
        if expected == "some":
            names = ", ".join("abcd"[t] for t in sorted(own))
            assert found.words[i] == f"{len(own)} of {len(present)} tasks: {names}"


@pytest.mark.parametrize(
    ("entries", "absent", "words"),
    [([1], [0], "selected"), ([1, 1, 0], [0, 0, 1], "all 2 tasks that have it"), ([1, 0, 0], [0, 1, 1], "only a")],
)
def test_words_of_few_tasks(entries, absent, words):
    names = np.array(list("abc")[: len(entries)])
    column = np.array(entries, dtype=bool)[:, None]
    assert sharing_of(column, np.array([True]), names, np.array(absent, dtype=bool)[:, None]).words == [words]


def test_features_that_were_screened_out_are_not_called_unselected():
    found = sharing_of(np.zeros((2, 2), bool), np.zeros(2, bool), np.arange(2), screened_out=np.array([True, False]))
    assert found.words == ["screened out, not judged", "not selected"]
    assert counts_in_words(found) == ""
