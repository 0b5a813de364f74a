"""Put the tables of reproduced papers into the documentation.

uv run bayesmtfs reproduce all --out results
uv run python docs/make_results.py results
"""

import sys
from pathlib import Path

BEGIN, END = "<!-- results begin -->", "<!-- results end -->"
PAGE = Path(__file__).parent / "pages" / "results.md"


def main(folder: Path) -> None:
    """Replace what stands between the marks by the Markdown files of a folder."""
    tables = [path.read_text(encoding="utf-8").replace("### ", "## ", 1) for path in sorted(folder.glob("*.md"))]
    if not tables:
        raise SystemExit(f"{folder} holds no tables; run bayesmtfs reproduce all --out {folder} first")
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{'\n'.join(tables)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
