"""The experiments of the five papers, on their data, with our figures beside the printed ones."""

import importlib

from bayesmtfs.papers.reproduction.outcome import Figure, Outcome, Table

__all__ = ["PAPERS", "Figure", "Outcome", "Table", "reproduce"]

PAPERS = ("zhang2010", "obozinski2006", "yang2010", "han2013", "murugesan2016")  # modules with a `PAPER` each


def reproduce(paper: str, quick: bool = False, seed: int = 0, progress: bool | None = None) -> Outcome:
    """Run the experiments of a paper on its data (see `bayesmtfs.datasets` for where these come from).

    Parameters
    ----------
    paper : one of `PAPERS`
    quick : fewer repeats and smaller settings, about a minute instead of the real thing
    seed : of splits and simulations
    progress : progress bar: always, never, or (None) on a terminal
    """
    if paper not in PAPERS:
        raise ValueError(f"paper is {paper!r}; choose one of {', '.join(PAPERS)}")
    outcome: Outcome = importlib.import_module(f"{__name__}.{paper}").PAPER.run(quick, seed, progress)
    return outcome
