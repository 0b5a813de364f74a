"""The experiments of the five papers, on their data, with our figures beside the printed ones."""

from bayesmtfs.papers.reproduction.outcome import Figure, Outcome, Table
from bayesmtfs.papers.reproduction.papers import PAPERS, reproduce

__all__ = ["PAPERS", "Figure", "Outcome", "Table", "reproduce"]
