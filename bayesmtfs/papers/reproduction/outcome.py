"""What a reproduced experiment gives: figures with standard errors, the paper's beside them, and plain remarks."""

import json
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

import matplotlib.figure
import numpy as np
from numpy.typing import ArrayLike
from rich.table import Table as RichTable

from bayesmtfs.results import persistence
from bayesmtfs.results.fit_result import current_versions

INTERRUPTED = "interrupted before it was finished."
ROUNDING = 1e-12  # standard errors below it, relative to the mean, are those of equal numbers


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

    @property
    def text(self) -> str:
        """Mean and standard error, the mean to the digits that the error leaves."""
        if self.standard_error is None or self.standard_error <= ROUNDING * abs(self.mean):
            return f"{self.mean:.4g}"
        decimals = max(0, 1 - math.floor(math.log10(self.standard_error)))
        return f"{self.mean:.{decimals}f} +- {self.standard_error:.{decimals}f}"

    @classmethod
    def of(cls, method: str, measure: str, values: ArrayLike, paper: float | None = None, remark: str = "") -> "Figure":
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

    @property
    def measures(self) -> list[str]:
        """What was measured, in the order of the figures."""
        return list(dict.fromkeys(figure.measure for figure in self.figures))

    @property
    def repeats(self) -> str:
        """Over how many repeats the figures are, in words."""
        counts = sorted({figure.n_repeats for figure in self.figures})
        return f"{counts[0]}{f' to {counts[-1]}' if len(counts) > 1 else ''} repeat{'' if counts[-1:] == [1] else 's'}"

    def of_measure(self, measure: str) -> list[Figure]:
        """All figures of a measure."""
        return [figure for figure in self.figures if figure.measure == measure]


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

    @property
    def interrupted(self) -> bool:
        """Whether tables are missing because of Ctrl-C."""
        return any(text.endswith(INTERRUPTED) for text in self.skipped)

    def to_json(self) -> str:
        """All of it as JSON text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Outcome":
        """Give back what `to_json` wrote."""
        read = json.loads(text)
        tables = tuple(
            Table(table["title"], table["protocol"], tuple(Figure(**figure) for figure in table["figures"]))
            for table in read.pop("tables")
        )
        remarks, skipped = tuple(read.pop("remarks")), tuple(read.pop("skipped"))
        return cls(tables=tables, remarks=remarks, skipped=skipped, **read)

    def to_markdown(self) -> str:
        """The tables as Markdown: one row per method, one column per measure, the paper's figures beside ours."""
        lines = [f"### {self.citation}", ""]
        if self.quick:
            lines += ["*Quick run: few repeats, rough figures.*", ""]
        for table in self.tables:
            rows = _method_rows(table)
            lines += [f"**{table.title}.** {table.protocol} Mean +- standard error of {table.repeats}.", ""]
            heading, *body = (f"| {' | '.join(row)} |" for row in rows)
            lines += [heading, "|" + "---|" * len(rows[0]), *body]
            lines += [""]
        lines += [f"- {remark}" for remark in (*self.remarks, *(f"Skipped: {text}" for text in self.skipped))]
        return "\n".join(lines).rstrip() + "\n"

    def to_rich(self) -> list[RichTable]:
        """The tables for a terminal: one block per measure."""
        shown = []
        for table in self.tables:
            caption = f"{table.protocol} Mean +- standard error of {table.repeats}."
            rich = RichTable("method", "ours", "paper", "remark", title=table.title, caption=caption)
            for measure in table.measures:
                rich.add_section()
                rich.add_row(f"[bold]{measure}[/bold]")
                for figure in table.of_measure(measure):
                    rich.add_row(f"  {figure.method}", figure.text, _printed(figure), figure.remark)
            shown.append(rich)
        return shown

    def draw(self) -> matplotlib.figure.Figure:
        """Ours with standard errors, and the paper's numbers, one panel per table and measure."""
        panels = [
            (table.title, measure, table.of_measure(measure)) for table in self.tables for measure in table.measures
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
            ax.set_ylim(len(figures) - 0.5, -0.5)
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


def _method_rows(table: Table) -> list[list[str]]:
    """Headings, then one row per method: ours and, where a measure has printed figures, the paper's; remarks last."""
    figures = {(figure.method, figure.measure): figure for figure in table.figures}
    printed = {figure.measure for figure in table.figures if figure.paper is not None}
    heading, rows = ["method"], {figure.method: [figure.method] for figure in table.figures}
    for measure in table.measures:
        heading += [measure, "paper"] if measure in printed else [measure]
        for method, row in rows.items():
            figure = figures.get((method, measure))
            row.append("" if figure is None else figure.text)
            if measure in printed:
                row.append("" if figure is None else _printed(figure))
    if not any(figure.remark for figure in table.figures):
        return [heading, *rows.values()]
    for method, row in rows.items():
        own = (figure.remark for figure in table.figures if figure.method == method and figure.remark)
        row.append("; ".join(dict.fromkeys(own)))
    return [[*heading, "remark"], *rows.values()]


def _printed(figure: Figure) -> str:
    return "" if figure.paper is None else f"{figure.paper:.4g}"
