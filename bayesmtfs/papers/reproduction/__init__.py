"""The experiments of the five papers, on their data, with our figures beside the printed ones."""

import importlib

from bayesmtfs.papers.reproduction.outcome import Figure, Outcome, Table

__all__ = ["PAPERS", "Figure", "Outcome", "Table", "reproduce"]

# Short name -> module with a function ``run(quick: bool, seed: int, progress: bool | None) -> Outcome``
PAPERS = {
    "zhang2010": "bayesmtfs.papers.reproduction.zhang2010",
    "obozinski2006": "bayesmtfs.papers.reproduction.obozinski2006",
    "yang2010": "bayesmtfs.papers.reproduction.yang2010",
    "han2013": "bayesmtfs.papers.reproduction.han2013",
    "murugesan2016": "bayesmtfs.papers.reproduction.murugesan2016",
}


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
    outcome: Outcome = importlib.import_module(PAPERS[paper]).run(quick=quick, seed=seed, progress=progress)
    return outcome
