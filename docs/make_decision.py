"""Draw the picture of "Which estimator?": ``uv run python docs/make_decision.py``.

Colours are those of the page around it, so that it can be read in light and in dark.
"""

from pathlib import Path

PICTURE = Path(__file__).parent / "pages" / "plots" / "which_estimator.svg"

# Question, lines of the answer to "yes", page that says more
QUESTIONS = [
    ("Do rows arrive|one after another?", ("OnlineMixedNorm*,", "OnlineSmoothed*"), "online.html"),
    ("Are there too many rows|for memory?", ("moments.from_parquet,", "then fit_moments"), "large_data.html"),
    ("Do you want to know how|sure it is, or in which tasks|a feature matters?", ("Bayesian*",), "posterior.html"),
    (
        "Is it about how tasks|share features,|or how they relate?",
        ("Jeffreys*(", 'norm_q="learn"),', "MatrixVariate*"),
        "which_q.html",
    ),
    (
        "More features than rows,|hardly any noise,|a few features true?",
        ("Jeffreys*(", "coefficients=", '"integrated")'),
        "compressed_sensing.html",
    ),
    ("Are the tasks|nearly the same?", ("MixedNorm*CV(", "shared_mean=True)"), "mixed_norm.html"),
]
LAST = (("MixedNorm*CV",), "mixed_norm.html")
WIDTH, LEFT, GAP, STEP, BOX = 470, 224, 48, 102, 68  # narrow enough for a phone


def box(x: int, y: int, width: int, lines: tuple[str, ...], kind: str) -> str:
    """A box with centred lines of text."""
    first = y + BOX / 2 - 9.5 * (len(lines) - 1) + 5
    texts = "".join(
        f'<text x="{x + width / 2:g}" y="{first + 19 * number:g}">{line}</text>' for number, line in enumerate(lines)
    )
    return f'<g class="{kind}"><rect x="{x}" y="{y}" width="{width}" height="{BOX}" rx="9"/>{texts}</g>'


def link(address: str, drawn: str) -> str:
    """What is drawn, as a link."""
    return f'<a href="{address}">{drawn}</a>'


def arrow(x: float, y: float, to_x: float, to_y: float, word: str, dx: int, dy: int) -> str:
    """An arrow with a word beside its middle."""
    line = f'<path class="arrow" d="M{x:g} {y:g} L{to_x:g} {to_y:g}" marker-end="url(#tip)"/>'
    return line + f'<text class="word" x="{(x + to_x) / 2 + dx:g}" y="{(y + to_y) / 2 + dy:g}">{word}</text>'


def picture() -> str:
    """The whole drawing."""
    parts = []
    for number, (question, answer, page) in enumerate(QUESTIONS):
        y = 8 + STEP * number
        parts.append(box(8, y, LEFT - 8, tuple(question.split("|")), "question"))
        parts.append(arrow(LEFT, y + BOX / 2, LEFT + GAP - 8, y + BOX / 2, "yes", -3, -8))
        parts.append(link(page, box(LEFT + GAP, y, WIDTH - LEFT - GAP - 8, answer, "answer")))
        parts.append(arrow(LEFT / 2, y + BOX, LEFT / 2, y + STEP - 8, "no", 16, 4))
    parts.append(link(LAST[1], box(8, 8 + STEP * len(QUESTIONS), LEFT - 8, LAST[0], "answer")))
    height = 8 + STEP * len(QUESTIONS) + BOX + 8
    tip = '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
    return (
        f'<svg class="decision" viewBox="0 0 {WIDTH} {height}" width="{WIDTH * 1.25:g}" role="img" '
        'aria-label="Which estimator?" xmlns="http://www.w3.org/2000/svg">'
        f'<defs>{tip}<path d="M0 0 L8 4 L0 8 z"/></marker></defs>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
