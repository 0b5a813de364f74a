"""Draw how often entries of a stated probability have an effect, from the estimates that a benchmark kept.

uv run python docs/make_calibration.py FOLDER --seeds 61001   # after benchmarks/which_tasks.py fit --out FOLDER
"""

import argparse
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from which_tasks import kept, kinds_of, score
from which_tasks_data import KINDS, draw_data_set

PLACE = Path(__file__).parent / "pages" / "plots" / "entry_calibration.png"
EDGES = np.array([0, 1, 3, 5, 7, 9, 10])  # tenths: bins of a fifth, and of a tenth at both ends


def bins_of(folder: Path, method: str, kinds: list[str], seeds: list[int]) -> NDArray[np.float64]:
    """(sets, bins, 3) Numbers of entries, sums of their stated probabilities and of those with an effect."""
    found = []
    for kind in kinds:
        for seed in seeds:
            estimate = kept(folder, method, kind, seed)
            if estimate is not None:
                tenths = score(draw_data_set(KINDS[kind], seed), estimate).bins
                found.append(np.add.reduceat(tenths, EDGES[:-1], axis=0))
    return np.array(found)


def main() -> None:
    """Read the command line and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="61001")
    parser.add_argument("--kinds", default="main")
    parser.add_argument("--methods", default="spike;mr.mash")
    options = parser.parse_args()
    figure, axes = plt.subplots(figsize=(4.2, 3.8), layout="constrained")
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    seeds = [int(word) for word in options.seeds.split(",")]
    for shift, method in zip((-0.008, 0.0, 0.008), options.methods.split(";"), strict=False):
        bins = bins_of(options.folder, method, kinds_of(options.kinds), seeds)
        count, stated, true = bins.sum(axis=0).T
        some = count >= 5
        share = true[some] / count[some]
        off = bins[:, some, 2] - share * bins[:, some, 0]  # of each data set, for a standard error of the ratio
        error = np.sqrt((off**2).sum(axis=0)) / count[some]
        axes.errorbar(
            stated[some] / count[some] + shift, share, error, marker="o", markersize=4, capsize=2, label=method
        )
    axes.set(
        xlabel="stated probability of an entry", ylabel="share with an effect", xlim=(-0.03, 1.03), ylim=(-0.03, 1.05)
    )
    axes.legend(frameon=False)
    figure.savefig(PLACE, dpi=80)


if __name__ == "__main__":
    main()
