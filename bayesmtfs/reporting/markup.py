"""Small pieces of HTML: every text is escaped here and nowhere else."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

FILTERED = 8  # rows from which on a table gets a filter


class Cell(NamedTuple):
    """What a table shows, and what it sorts by."""

    text: str
    value: float | str


def number(value: float, digits: int = 3) -> Cell:
    """A number as a cell."""
    return Cell(f"{value:.{digits}g}", float(value))


def text(value: object) -> str:
    """Escaped text."""
    return html.escape(str(value))


def paragraph(content: object, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f'<p class="{kind}">{text(content)}</p>' if kind else f"<p>{text(content)}</p>"


def verdict(content: object, good: bool) -> str:
    """A sentence that says whether something is in order; words, not only a colour, carry it."""
    return f'<p class="verdict{"" if good else " bad"}">{"In order" if good else "Attention"}: {text(content)}</p>'


def definitions(pairs: Mapping[str, Any]) -> str:
    """Names with their values."""
    return "<dl>" + "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in pairs.items()) + "</dl>"


def table(name: str, headings: Sequence[str], rows: Sequence[Sequence[Cell | str]], caption: str) -> str:
    """A sortable table, with a filter where it is long; ``name`` is unique on the page."""
    head = "".join(f'<th scope="col"><button type="button">{text(heading)}</button></th>' for heading in headings)
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    search = (
        f'<p><label for="{name}-filter">Filter rows by text</label> <input id="{name}-filter" type="search"> '
        f'<span id="{name}-count" class="soft" aria-live="polite"></span></p>'
    )
    return (
        f"{search if len(rows) > FILTERED else ''}"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table id="{name}" class="sortable" data-filter="{name}-filter" data-count="{name}-count">'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: Cell | str) -> str:
    if isinstance(cell, Cell):
        return f'<td data-value="{text(cell.value)}">{text(cell.text)}</td>'
    return f"<td>{text(cell)}</td>"


def picture(figure: Figure, description: str) -> str:
    """A picture inside the page, with a text for those who do not see it."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    source = base64.b64encode(stream.getvalue()).decode("ascii")
    alternative = text(description)
    return (
        f'<figure><img src="data:image/png;base64,{source}" alt="{alternative}">'
        f"<figcaption>{alternative}</figcaption></figure>"
    )
