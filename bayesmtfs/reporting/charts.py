"""Vector plots of a page: inline SVG whose colours are those of the page, in light and dark, with values under the pointer.

Colours are CSS variables of ``page.css``; nothing here knows them.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesmtfs.reporting.markup import text
from bayesmtfs.results.fit_result import shortened
from bayesmtfs.types import FloatArray

WIDTH = 400.0
LETTER = 6.8  # width of a letter
ROW = 17.0  # height of a row of features
TALLEST_ROW, MARK = 40.0, 3.4  # of a row with many tasks, and of one of its marks
TOP, BOTTOM, LEGEND = 8.0, 34.0, 16.0
MOST_COLOURS = 8  # that the page has for tasks
LONGEST_NAME, LONGEST_LEVEL, TAIL = 20, 12, 8


class Drawing:
    """An SVG drawing: shapes are added one after the other."""

    def __init__(self, height: float, description: str, width: float = WIDTH) -> None:
        self.width, self.height, self.description = width, height, description
        self._parts: list[str] = []

    def shape(self, tag: str, hover: str = "", kind: str = "", **attributes: Any) -> None:
        """Add a shape; a text is shown under the pointer."""
        stated = "".join(f' {name.replace("_", "-")}="{_plain(value)}"' for name, value in attributes.items())
        kinds = f' class="{kind}"' if kind else ""
        self._parts.append(
            f"<{tag}{kinds}{stated}><title>{text(hover)}</title></{tag}>" if hover else f"<{tag}{kinds}{stated}/>"
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "guide", hover: str = "") -> None:
        """Add a line."""
        self.shape("line", hover, kind, x1=x1, y1=y1, x2=x2, y2=y2)

    def words(
        self, x: float, y: float, content: object, anchor: str = "start", kind: str = "", turn: float = 0
    ) -> None:
        """Add a text."""
        turned = f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
        kinds = f' class="{kind}"' if kind else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kinds}{turned}>{text(content)}</text>'
        )

    def path(self, x: FloatArray, y: FloatArray, kind: str) -> None:
        """Add a line through points."""
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        self._parts.append(f'<polyline class="{kind}" points="{points}"/>')

    def area(self, x: FloatArray, low: FloatArray, high: FloatArray, kind: str) -> None:
        """Add a band between two lines."""
        ends = [(x, low), (x[::-1], high[::-1])]
        points = " ".join(f"{a:.1f},{b:.1f}" for side in ends for a, b in zip(*side, strict=True))
        self._parts.append(f'<polygon class="{kind}" points="{points}"/>')

    def __str__(self) -> str:
        return (
            f'<svg viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img" aria-label="{text(self.description)}">'
            f"{''.join(self._parts)}</svg>"
        )


def _plain(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float | np.floating) else text(value)


class Scale:
    """Places on a line of the drawing for numbers from ``low`` to ``high``."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        margin = 0.03 * (high - low) or 0.5
        self.low, self.high, self.start, self.end = low - margin, high + margin, start, end

    def __call__(self, values: Any) -> Any:
        """Give places for numbers; those beyond the ends are put there."""
        share = (np.clip(values, self.low, self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers inside of the scale."""
        raw = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
        first = math.ceil(self.low / step)
        return [round(k * step, 12) for k in range(first, math.floor(self.high / step) + 1)]


def _bottom_axis(drawing: Drawing, scale: Scale, y: float, title: str, top: float = TOP) -> None:
    for tick in scale.ticks():
        x = float(scale(tick))
        drawing.line(x, top, x, y, "zero" if tick == 0 else "guide")
        drawing.words(x, y + 13, f"{tick:g}", "middle")
    half = 0.5 * LETTER * len(title)  # of its room, in which it does not leave the drawing
    middle = (scale.start + scale.end) / 2
    drawing.words(max(min(middle, WIDTH - half), WIDTH / 2), y + 28, title, "middle")


def _fitted(name: str) -> str:
    """A name that fits, without its middle where it is too long: ends tell names apart, and levels of categories do."""
    if len(name) <= LONGEST_NAME:
        return name
    level = name[name.rfind("[") :] if name.endswith("]") and "[" in name else ""
    tail = level if 0 < len(level) <= LONGEST_LEVEL else name[-TAIL:]
    return f"{name[: LONGEST_NAME - 3 - len(tail)]}...{tail}"


def _named(names: Sequence[str]) -> tuple[list[str], float]:
    """Names that fit, and the room that they take."""
    short = [_fitted(name) for name in names]
    return short, 10.0 + LETTER * max(map(len, short), default=1)


def _rows(drawing: Drawing, names: Sequence[str], edge: float, top: float = TOP, row: float = ROW) -> None:
    for place, name in enumerate(names):
        drawing.words(edge - 6, top + row * (place + 0.5) + 4, name, "end")


def _legend(names: Sequence[str], edge: float) -> list[tuple[float, float]]:
    """Places of the names of colours: in lines that begin at an edge, as many as are needed."""
    places, x, y = [], edge, TOP
    for name in names:
        wide = 25 + LETTER * len(name)
        if x + wide > WIDTH and x > edge:
            x, y = edge, y + LEGEND
        places.append((x, y))
        x += wide
    return places


def _draw_legend(drawing: Drawing, names: Sequence[str], places: list[tuple[float, float]]) -> None:
    for k, (name, (x, y)) in enumerate(zip(names, places, strict=True)):
        drawing.shape("rect", kind=f"c{k}", x=x, y=y, width=9.0, height=9.0)
        drawing.words(x + 13, y + 8.5, name)


def forest(
    names: Sequence[str], tasks: Sequence[str], values: FloatArray, ends: FloatArray | None, on: Any, title: str
) -> str:
    """Effects (features, tasks), one row per feature and one mark per task, with intervals (2, features, tasks)."""
    short, edge = _named(names)
    coloured = 1 < len(tasks) <= MOST_COLOURS
    row = float(np.clip(MARK * len(tasks), ROW, TALLEST_ROW))
    legend, _ = _named(tasks)
    places = _legend(legend, edge) if coloured else []
    top = places[-1][1] + LEGEND if coloured else TOP
    height = top + row * len(names)
    drawing = Drawing(height + BOTTOM, "Effects: one row per feature, one mark per task")
    if coloured:
        _draw_legend(drawing, legend, places)
    seen = values if ends is None else np.concatenate([values[None], ends])
    low, high = float(np.nanmin(seen, initial=0.0)), float(np.nanmax(seen, initial=0.0))
    scale = Scale(low, high, edge, WIDTH - 8)
    for place in range(0, len(names), 2):  # which marks are of one feature
        drawing.shape("rect", kind="stripe", x=0.0, y=top + row * place, width=WIDTH, height=row)
    _bottom_axis(drawing, scale, height, title, top)
    _rows(drawing, short, edge, top, row)
    for place, name in enumerate(names):
        for t, task in enumerate(tasks):
            y = top + row * (place + 0.12 + 0.76 * (t + 0.5) / len(tasks))
            kind = f"c{t if coloured else 0}" if on[place, t] else "off"
            hover = f"{name} in {task}: {values[place, t]:.3g}"
            if ends is not None:
                a, b = ends[:, place, t]
                hover += f" ({a:.3g} to {b:.3g})"
                drawing.line(float(scale(a)), y, float(scale(b)), y, f"mark {kind}", hover)
            x = float(scale(values[place, t]))
            drawing.shape("circle", hover, f"dot {kind}", cx=x, cy=y, r=2.4 if len(tasks) <= 8 else 1.7)
    return str(drawing)


def heat_map(
    names: Sequence[str], tasks: Sequence[str], values: FloatArray, hovers: Sequence[Sequence[str]], limit: float
) -> str:
    """Cells (features, tasks): colour for the sign, strength of the colour for the size; 0 is empty."""
    short, edge = _named(names)
    columns, turned = _named(tasks)
    wide = max((WIDTH - edge - 8) / len(tasks), 2.0)
    upright = wide >= turned - 6
    foot = 18.0 if upright else turned + 4
    height = TOP + ROW * len(names)
    drawing = Drawing(height + foot, "One row per feature, one column per task; colour for sign and size")
    _rows(drawing, short, edge)
    for place in range(len(names)):
        for t in range(len(tasks)):
            share = abs(values[place, t]) / limit if limit > 0 else 0.0
            drawing.shape(
                "rect", hovers[place][t], "up" if values[place, t] >= 0 else "down",
                x=edge + wide * t, y=TOP + ROW * place, width=max(wide - 1, 1.0), height=ROW - 1,
                fill_opacity=f"{min(share, 1.0):.3f}",
            )  # fmt: skip
    step = max(1, math.ceil(11 / wide))
    for t in range(0, len(tasks), step):
        x = edge + wide * (t + 0.5)
        if upright:
            drawing.words(x, height + 14, columns[t], "middle")
        else:
            drawing.words(x + 4, height + 6, columns[t], "end", turn=-90)
    return str(drawing)


def stacked(names: Sequence[str], parts: Sequence[str], shares: FloatArray, title: str) -> str:
    """Shares (features, parts) as bars that lie end to end, the parts named above."""
    short, edge = _named(names)
    height = TOP + LEGEND + ROW * len(names)
    drawing = Drawing(height + BOTTOM, title)
    _draw_legend(drawing, parts, [(edge + k * (WIDTH - edge) / len(parts), TOP) for k in range(len(parts))])
    scale = Scale(0.0, 1.0, edge, WIDTH - 8)
    for tick in (0.0, 0.5, 1.0):
        place = float(scale(tick))
        drawing.line(place, TOP + LEGEND, place, height)
        drawing.words(place, height + 13, f"{tick:g}", "middle")
    drawing.words((edge + WIDTH) / 2, height + 28, title, "middle")
    _rows(drawing, short, edge, TOP + LEGEND)
    for row, name in enumerate(names):
        y = TOP + LEGEND + ROW * row
        left = 0.0
        for k, part in enumerate(parts):
            a, b = float(scale(left)), float(scale(left + shares[row, k]))
            drawing.shape(
                "rect", f"{name}, {part}: {shares[row, k]:.0%}", f"c{k}", x=a, y=y + 2, width=b - a, height=ROW - 4
            )
            left += float(shares[row, k])
    return str(drawing)


def histogram(values: FloatArray, band: tuple[float, float], point: float, ticks: dict[float, str], title: str) -> str:
    """Shares of values from 0 to 1, an interval as a band and a point in it; ticks by their places."""
    height = 150.0
    drawing = Drawing(height + BOTTOM, title)
    scale = Scale(0.0, 1.0, 12.0, WIDTH - 12)
    counts, edges = np.histogram(values, bins=40, range=(0.0, 1.0))
    low, high = (float(scale(end)) for end in band)
    drawing.shape("rect", kind="band", x=low, y=TOP, width=high - low, height=height - TOP)
    top = max(int(counts.max()), 1)
    for count, a, b in zip(counts, edges[:-1], edges[1:], strict=True):
        x, tall = float(scale(a)), (height - TOP) * count / top
        drawing.shape("rect", kind="c0", x=x, y=height - tall, width=float(scale(b)) - x - 0.5, height=tall)
    drawing.line(float(scale(point)), TOP, float(scale(point)), height, "mark c1")
    for place, label in ticks.items():
        drawing.words(float(scale(place)), height + 13, label, "middle")
    drawing.words(WIDTH / 2, height + 28, title, "middle")
    return str(drawing)


def curves(x: FloatArray, band: FloatArray, line: FloatArray, title: str) -> str:
    """A line over a band (2, k), both between 0 and 1."""
    height = 170.0
    drawing = Drawing(height + BOTTOM, title)
    scale, rise = Scale(float(x.min()), float(x.max()), 40.0, WIDTH - 8), Scale(0.0, 1.0, height, TOP)
    _bottom_axis(drawing, scale, height, title)
    for tick in (0.0, 0.5, 1.0):
        drawing.words(34, float(rise(tick)) + 4, f"{tick:g}", "end")
    drawing.area(scale(x), rise(band[0]), rise(band[1]), "band")
    drawing.path(scale(x), rise(line), "mark c0")
    return str(drawing)


def trace(values: FloatArray, title: str) -> str:
    """Positive values over their numbers, on a logarithmic scale."""
    height = 120.0
    drawing = Drawing(height + BOTTOM, title)
    places = np.flatnonzero(values > 0)
    logs = np.log10(values[places])
    scale = Scale(0.0, float(max(len(values) - 1, 1)), 48.0, WIDTH - 8)
    rise = Scale(float(logs.min()), float(logs.max()), height, TOP)
    _bottom_axis(drawing, scale, height, title)
    for tick in [tick for tick in rise.ticks(4) if tick == round(tick)]:
        drawing.words(42, float(rise(tick)) + 4, f"1e{tick:g}", "end")
    drawing.path(scale(places.astype(np.float64)), rise(logs), "mark c0")
    return str(drawing)


def short_names(names: Any) -> list[str]:
    """Names as texts that are not too long."""
    return [shortened(name) for name in names]
