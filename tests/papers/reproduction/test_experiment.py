"""What the reproductions share: splits, gains, and what happens without data."""

import signal
from functools import partial

import numpy as np
import pytest

from bayesmtfs import datasets
from bayesmtfs.papers.reproduction import Figure, Table
from bayesmtfs.papers.reproduction.common import DataNotThere, Findings, Paper, gain, read, stratified_splits


def test_splits_keep_the_share_of_every_stratum_and_are_disjoint():
    study, label = np.repeat(["a", "b"], [40, 20]), np.tile([0, 1], 30)
    splits = stratified_splits([study, label], 5, 0.7, seed=3)
    for split in splits:
        assert len(np.intersect1d(split.train, split.test)) == 0
        assert sorted(np.concatenate(split)) == list(range(60))
        counts = [np.sum((study[split.train] == s) & (label[split.train] == c)) for s in "ab" for c in (0, 1)]
        assert counts == [14, 14, 7, 7]
    assert len({tuple(split.test) for split in splits}) == 5
    np.testing.assert_array_equal(splits[0].train, stratified_splits([study, label], 1, 0.7, seed=3)[0].train)


def test_gain_is_that_of_means_with_the_error_of_paired_differences():
    ours, theirs = np.array([4.0, 6.0, 8.0]), np.array([5.0, 10.0, 9.0])
    figure = gain("ours", "gain, %", ours, theirs, 12.0, "")
    assert figure.mean == pytest.approx(100 * (1 - 6 / 8))
    assert figure.standard_error == pytest.approx(100 * np.std(theirs - ours, ddof=1) / np.sqrt(3) / 8)


@pytest.mark.usefixtures("no_data")
def test_a_missing_file_skips_its_table_with_a_sentence():
    made = Table("other", "", (Figure.of("a", "b", [1.0]),))
    jobs = {"Letters": lambda *_: read(datasets.load_letters), "other": lambda *_: made, "left out": lambda *_: None}
    outcome = Paper("some2000", "Some", None, None, jobs, absent=("Not here.",)).run(progress=False)
    assert outcome.tables == (made,)
    assert outcome.skipped[0].startswith("Letters: the data could not be read. ocr_letters.npz")
    assert outcome.skipped[1:] == ("Not here.",)


def test_an_altered_file_is_data_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESMTFS_DATA", str(tmp_path))
    (tmp_path / "dermatology.npz").write_bytes(b"something else")
    with pytest.raises(DataNotThere, match="SHA-256"):
        read(datasets.load_dermatology)


def test_ctrl_c_keeps_the_tables_that_are_finished_even_if_a_fit_swallows_it():
    done = []

    def make(effort, seed, advance, number):
        if number == 1:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:  # as a long fit does
                pass
            advance(0.5)
        done.append(number)
        return Table(f"table {number}", "", (Figure.of("a", "error", [1.0]),))

    jobs = {f"job {number}": partial(make, number=number) for number in range(3)}
    paper = Paper("some2000", "Some", None, None, jobs)
    outcome = paper.run(progress=False)
    assert [table.title for table in outcome.tables] == ["table 0"] and done == [0]
    assert [text.split(":")[0] for text in outcome.skipped] == ["job 1", "job 2"]
    assert outcome.interrupted
    del jobs["job 0"]
    with pytest.raises(KeyboardInterrupt):
        paper.run(progress=False)


def test_findings_become_figures_by_measure_with_the_papers_numbers():
    found = Findings("error", "genes")
    for value in (1.0, 3.0):
        found.add("a", {"genes": 7, "error": value})
        found.add("b", {"error": 2.0})
    first, second, third = found.figures({("a", "error"): (2.5, "other data")})
    assert first == Figure.of("a", "error", [1.0, 3.0], 2.5, "other data")
    assert second == Figure.of("b", "error", [2.0, 2.0]) and third == Figure.of("a", "genes", [7, 7])
