"""What a reproduction gives back."""

import json

import numpy as np
import pytest

from bayesmtfs.papers.reproduction import Figure, Outcome, Table, reproduce


@pytest.fixture
def outcome():
    figures = (
        Figure.of("ours", "error, %", [1.0, 2.0, 3.0], paper=2.5, remark="other splits"),
        Figure.of("theirs", "error, %", [4.0]),
    )
    return Outcome("some2000", "Some (2000), A paper", (Table("Table 1", "three splits", figures),), ("a remark",))


def test_mean_and_standard_error(outcome):
    first, second = outcome.tables[0].figures
    assert first.mean == 2.0 and first.standard_error == pytest.approx(1 / np.sqrt(3)) and first.n_repeats == 3
    assert second.standard_error is None


def test_files_hold_the_same_figures(outcome, tmp_path):
    outcome.write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"some2000.json", "some2000.md", "some2000.png"}
    read = json.loads((tmp_path / "some2000.json").read_text(encoding="utf-8"))
    assert read["tables"][0]["figures"][0]["paper"] == 2.5
    text = (tmp_path / "some2000.md").read_text(encoding="utf-8")
    assert "| method | error, % | paper | remark |" in text and "- a remark" in text
    assert "| ours | 2.00 +- 0.58 | 2.5 | other splits |" in text and "| theirs | 4 |  |  |" in text
    assert Outcome.from_json((tmp_path / "some2000.json").read_text(encoding="utf-8")) == outcome


def test_methods_that_lack_a_measure_have_an_empty_cell():
    figures = (
        Figure.of("a", "error", [0.1 + 0.2, 0.3, 0.3]),
        Figure.of("b", "error", [2.0]),
        Figure.of("b", "features", [3.0]),
    )
    text = Outcome("some2000", "Some", (Table("Table 1", "One split.", figures),)).to_markdown()
    assert "| method | error | features |" in text and "| a | 0.3 |  |" in text and "| b | 2 | 3 |" in text
    assert "standard error of 1 to 3 repeats." in text


def test_terminal_has_a_block_per_measure(outcome):
    (table,) = outcome.to_rich()
    assert [list(column.cells) for column in table.columns][:2] == [
        ["[bold]error, %[/bold]", "  ours", "  theirs"],
        ["", "2.00 +- 0.58", "4"],
    ]


def test_picture_shows_ours_and_the_papers(outcome):
    axes = outcome.draw().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ours", "theirs"]
    assert axes.get_legend_handles_labels()[1] == ["paper", "ours, +- 1 s.e."]


def test_unknown_papers_are_refused():
    with pytest.raises(ValueError, match="zhang2010"):
        reproduce("nobody1900")
