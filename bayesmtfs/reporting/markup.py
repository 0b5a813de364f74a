"""The small pieces of HTML that a page is made of; every text is escaped here and nowhere else."""

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FILTERED = 8  # rows from which on a table gets a filter


class Cell(NamedTuple):
    """What a table shows, what it sorts by and exports, and what it says under the pointer."""

    text: str
    value: float | str
    hover: str = ""
    faint: bool = False


class TableColumn(NamedTuple):
    """Heading of a column; those of single tasks can be hidden together."""

    name: str
    of_task: bool = False
    is_text: bool = False


def number(value: float, digits: int = 3, hover: str = "", faint: bool = False) -> Cell:
    """A number as a cell."""
    return Cell(f"{value:.{digits}g}", float(value), hover, faint)


def text(value: object) -> str:
    """Escaped text."""
    return html.escape(str(value))


def paragraph(content: object, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f"<p{_class(kind)}>{text(content)}</p>"


def verdict(content: object, good: bool) -> str:
    """A sentence that says whether something is in order; words, not only a colour, carry it."""
    return f'<p class="verdict{"" if good else " bad"}">{"In order" if good else "Attention"}: {text(content)}</p>'


def definitions(pairs: Mapping[str, Any]) -> str:
    """Names with their values."""
    return "<dl>" + "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in pairs.items()) + "</dl>"


def listing(items: Sequence[object]) -> str:
    """A list of sentences."""
    return "<ul>" + "".join(f"<li>{text(item)}</li>" for item in items) + "</ul>"


def folded(title: str, *content: str, opened: bool = False) -> str:
    """Something that is shown on request."""
    return f"<details{' open' if opened else ''}><summary>{text(title)}</summary>{''.join(content)}</details>"


def code(lines: str) -> str:
    """Lines to copy."""
    return f"<pre><code>{text(lines)}</code></pre>"


def table(
    name: str,
    columns: Sequence[TableColumn | str],
    rows: Sequence[Sequence[Cell | str]],
    caption: str,
    tools: bool = True,
) -> str:
    """A sortable table; a long one can be filtered, and any with tools saved as CSV. ``name`` is unique on the page."""
    known = [column if isinstance(column, TableColumn) else TableColumn(column) for column in columns]
    head = "".join(
        f'<th scope="col"{_kinds(column)}><button type="button">{text(column.name)}</button></th>' for column in known
    )
    body = "".join(
        "<tr>" + "".join(_cell(cell, column) for cell, column in zip(row, known, strict=True)) + "</tr>" for row in rows
    )
    return (
        f"{_toolbar(name, known, len(rows)) if tools else ''}"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table id="{name}" class="sortable"><caption><span>{text(caption)}</span></caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _toolbar(name: str, columns: Sequence[TableColumn], n_rows: int) -> str:
    parts = []
    if n_rows > FILTERED:
        parts.append(
            f'<label for="{name}-filter">Filter</label><input id="{name}-filter" type="search" data-filters="{name}">'
            f'<span id="{name}-count" class="soft" aria-live="polite"></span>'
        )
    if any(column.of_task for column in columns):
        parts.append(
            f'<label><input type="checkbox" id="{name}-tasks" data-tasks-of="{name}" checked> '
            "columns of single tasks</label>"
        )
    parts.append(f'<button type="button" data-csv-of="{name}">Save as CSV</button>')
    return f'<div class="tools">{"".join(parts)}</div>'


def _cell(cell: Cell | str, column: TableColumn) -> str:
    if not isinstance(cell, Cell):
        return f"<td{_kinds(column)}>{text(cell)}</td>"
    hover = f' title="{text(cell.hover)}"' if cell.hover else ""
    return f'<td{_kinds(column, cell.faint)} data-value="{text(cell.value)}"{hover}>{text(cell.text)}</td>'


def _kinds(column: TableColumn, faint: bool = False) -> str:
    kinds = {"task": column.of_task, "text": column.is_text, "faint": faint}
    return _class(" ".join(kind for kind, present in kinds.items() if present))


def _class(kinds: str) -> str:
    return f' class="{kinds}"' if kinds else ""


def figure(drawing: str, caption: str) -> str:
    """A drawing with what it shows in words."""
    return f"<figure>{drawing}<figcaption>{text(caption)}</figcaption></figure>"
