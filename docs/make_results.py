"""Put the figures of reproduced papers into the documentation (all tables) and the README (some rows of full runs).

uv run bayesmtfs reproduce all --out results
uv run python docs/make_results.py results
"""

import sys
from pathlib import Path

from bayesmtfs.papers.reproduction import Outcome

PLUS_MINUS = "\u00a0\u00b1\u00a0"  # with spaces at which no line of a narrow cell is broken
BEGIN, END = "<!-- results begin -->", "<!-- results end -->"
PAGE = Path(__file__).parent / "pages" / "results.md"
README = Path(__file__).parent.parent / "README.md"

# Paper -> table, measure and methods that the README shows
SHOWN = {
    "yang2010": [
        ("School (table 1)", "explained variance, %", ("aMTFS", "iMTFS", "DA-aMTFS", "DA-MTFTS", "DA-iMTFS")),
        (
            "School with a mean that schools share",
            "explained variance, %",
            ("pooled ridge", "shared mean, aMTFS deviations"),
        ),
    ],
    "zhang2010": [
        ("Breast cancer (section 6.1, table 1)", "error, mean over studies, %", ("MTFS1,2", "MTFS1,inf", "PMTFS1")),
        ("Breast cancer (section 6.1, table 1)", "genes", ("MTFS1,2", "MTFS1,inf", "PMTFS1")),
        ("Learning q (section 4.2, simulated)", "absolute ln(q / truth)", ("two stages (default)", "as printed")),
        (
            "Joint compressed sensing (section 7, simulated)",
            "all rows found, %",
            ("30 rows: l1,2, best penalty", "30 rows: PMTFS1 (EM)", "30 rows: PMTFS1, W integrated out"),
        ),
    ],
    "obozinski2006": [
        (
            "Dermatology (section 4.2, figure 2)",
            "gain over independent l1, %",
            tuple(f"n = {n}, lambda from folds" for n in (10, 50, 200, "50, indicator bits")),
        ),
        ("Letters (section 4.1)", "gain over independent l1, %", None),
    ],
    "han2013": [
        ("USPS (table 1)", "accuracy, %", ("all features", "LSR-21", "DMTFS")),
        ("USPS (table 1)", "accuracy with 20 features, %", ("DMTFS", "random")),
    ],
    "murugesan2016": [
        ("Landmine online, tuned (table 1)", "AUC", ("OSGL", "OSMTL-t", "OSMTL-e")),
        ("Spam online (table 1)", "AUC", ("PA-ONE", "OSGL", "OSMTL-t", "OSMTL-e")),
    ],
}


def main(folder: Path) -> None:
    """Replace what stands between the marks by what the outcomes (JSON) of a folder say."""
    outcomes = [Outcome.from_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    if not outcomes:
        raise SystemExit(f"{folder} holds no outcomes; run bayesmtfs reproduce all --out {folder} first")
    sections = "\n".join(outcome.to_markdown().replace("### ", "## ", 1) for outcome in outcomes)
    replace_between_marks(PAGE, sections.replace(" +- ", PLUS_MINUS))
    rows = [row for outcome in outcomes if not outcome.quick for row in readme_rows(outcome)]
    heading = ["| paper | experiment | measure | method | ours | printed |", "|---|---|---|---|---|---|"]
    replace_between_marks(README, "\n".join([*heading, *rows]) + "\n")


def readme_rows(outcome: Outcome) -> list[str]:
    """Rows of the README's table: each table and measure is named once."""
    tables = {table.title: table for table in outcome.tables}
    rows, paper = [], outcome.citation.split("),")[0] + ")"
    for title, measure, methods in SHOWN[outcome.paper]:
        if title not in tables:
            continue
        named = f"{title} | {measure}"
        for figure in tables[title].of_measure(measure):
            if methods is None or figure.method in methods:
                printed = "" if figure.paper is None else f"{figure.paper:.4g}"
                ours = figure.text.replace(" +- ", PLUS_MINUS)
                rows.append(f"| {paper} | {named} | {figure.method} | {ours} | {printed} |")
                paper, named = "", " | "
    return rows


def replace_between_marks(page: Path, content: str) -> None:
    """Write content between the two marks of a page."""
    text = page.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{content}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
