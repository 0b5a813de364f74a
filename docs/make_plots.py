"""Make the plots of the README and the documentation: ``uv run python docs/make_plots.py``."""

import tempfile
from pathlib import Path

from bayesmtfs.cli import demo

FOLDER = Path(__file__).parent / "pages" / "plots"
SHOWN = ("row_norms.png", "path.png", "coefficients.png")


def main() -> None:
    """Run the demonstration and keep the plots that the pages show."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        written = demo.write(demo.run(seed=0), Path(folder))
        for path in written:
            if path.name in SHOWN:
                (FOLDER / path.name).write_bytes(path.read_bytes())


if __name__ == "__main__":
    main()
