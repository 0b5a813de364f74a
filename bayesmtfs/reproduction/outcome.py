"""What a reproduced experiment gives: figures with standard errors, the paper's beside them, and plain remarks."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import matplotlib.figure
import numpy as np
from rich.table import Table as RichTable

from bayesmtfs import persistence
from bayesmtfs.provenance import current_versions


@dataclass(frozen=True)
class Figure:
    """One number of a table: a method, what was measured, our mean and standard error, and the paper's number.

    Attributes
    ----------
    method : name of the method, as the paper writes it where it has a name
    measure : what was measured and its unit, such as "explained variance, %"
    mean, standard_error : over the repeats (no error for a single one)
    n_repeats : splits or seeds
    paper : the printed number, or None where there is none
    remark : what a reader must know to compare the two
    """

    method: str
    measure: str
    mean: float
    standard_error: float | None
    n_repeats: int
    paper: float | None = None
    remark: str = ""

    @classmethod
    def of(
        cls, method: str, measure: str, values: Sequence[float], paper: float | None = None, remark: str = ""
    ) -> "Figure":
        """Mean and standard error of repeated values."""
        array = np.asarray(values, dtype=np.float64)
        error = float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else None
        return cls(method, measure, float(array.mean()), error, len(array), paper, remark)


@dataclass(frozen=True)
class Table:
    """One table or figure of a paper: a title that names it, the protocol in a sentence, and its figures."""

    title: str
    protocol: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Outcome:
    """A reproduced paper.

    Attributes
    ----------
    paper : its short name
    citation : authors, year, title
    tables : what was measured
    remarks : where data or protocol differ, and what does not reproduce
    quick : whether repeats and sizes were cut down, so that the figures are rough
    skipped : what could not be run, and why
    """

    paper: str
    citation: str
    tables: tuple[Table, ...]
    remarks: tuple[str, ...] = ()
    quick: bool = False
    skipped: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=current_versions)

    def to_json(self) -> str:
        """All of it as JSON text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)

    def to_markdown(self) -> str:
        """The tables as Markdown."""
        lines = [f"### {self.citation}", ""]
        if self.quick:
            lines += ["*Quick run: few repeats, rough figures.*", ""]
        for table in self.tables:
            lines += [f"**{table.title}.** {table.protocol}", "", "| method | measure | ours | paper | remark |"]
            lines += ["|---|---|---|---|---|"]
            lines += [f"| {' | '.join(cells(figure))} |" for figure in table.figures]
            lines += [""]
        lines += [f"- {remark}" for remark in (*self.remarks, *(f"Skipped: {text}" for text in self.skipped))]
        return "\n".join(lines).rstrip() + "\n"

    def to_rich(self) -> list[RichTable]:
        """The tables for a terminal."""
        shown = []
        for table in self.tables:
            rich = RichTable("method", "measure", "ours", "paper", "remark", title=table.title, caption=table.protocol)
            for figure in table.figures:
                rich.add_row(*cells(figure))
            shown.append(rich)
        return shown

    def draw(self) -> matplotlib.figure.Figure:
        """Ours with standard errors, and the paper's numbers, one panel per table and measure."""
        panels = [
            (table.title, measure, [figure for figure in table.figures if figure.measure == measure])
            for table in self.tables
            for measure in dict.fromkeys(figure.measure for figure in table.figures)
        ]
        heights = [1.2 + 0.25 * len(figures) for _, _, figures in panels]
        drawn = matplotlib.figure.Figure(figsize=(8, max(2.0, sum(heights))), layout="constrained")
        axes = drawn.subplots(max(len(panels), 1), 1, squeeze=False, height_ratios=heights or None)[:, 0]
        for ax, (title, measure, figures) in zip(axes, panels, strict=False):
            places = np.arange(len(figures))
            errors = [figure.standard_error or 0.0 for figure in figures]
            ax.errorbar([figure.mean for figure in figures], places, xerr=errors, fmt="o", label="ours, +- 1 s.e.")
            printed = [
                (figure.paper, place) for figure, place in zip(figures, places, strict=True) if figure.paper is not None
            ]
            if printed:
                ax.plot(*zip(*printed, strict=True), "D", mfc="none", color="C1", label="paper")
            ax.set_yticks(places, labels=[figure.method for figure in figures])
            ax.invert_yaxis()
            ax.set_xlabel(measure)
            ax.set_title(title, fontsize=9)
            ax.legend(fontsize=7)
        return drawn

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write ``<paper>.json``, ``<paper>.md`` and ``<paper>.png`` into a folder that exists."""
        for ending, text in (("json", self.to_json()), ("md", self.to_markdown())):
            with persistence.replacing(Path(folder) / f"{self.paper}.{ending}") as stream:
                stream.write(text.encode("utf-8"))
        self.draw().savefig(Path(folder) / f"{self.paper}.png", dpi=120)


def cells(figure: Figure) -> tuple[str, str, str, str, str]:
    """A figure as the cells of a table."""
    error = "" if figure.standard_error is None else f" +- {figure.standard_error:.2g}"
    paper = "" if figure.paper is None else f"{figure.paper:.4g}"
    return figure.method, figure.measure, f"{figure.mean:.4g}{error} (n={figure.n_repeats})", paper, figure.remark
