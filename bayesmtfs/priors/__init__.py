"""Priors on the rows of the coefficient matrix: what each route needs of them, in NumPy and numba."""

from bayesmtfs.priors.blocks import Blocks
from bayesmtfs.priors.generalized_normal import GeneralizedNormal, Jeffreys
from bayesmtfs.priors.row_penalty import Penalty, RowPenalty

__all__ = ["Blocks", "GeneralizedNormal", "Jeffreys", "Penalty", "RowPenalty"]
