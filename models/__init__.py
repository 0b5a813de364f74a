"""The models of the package as PyMC distributions and PyMC models.

Importing this package loads PyMC; the penalised routes do without it.
"""

from bayesmtfs.models.distributions import GeneralizedNormal, MatrixGeneralizedNormal, MixedNorm
from bayesmtfs.models.mixed_norm import mixed_norm_model

__all__ = ["GeneralizedNormal", "MatrixGeneralizedNormal", "MixedNorm", "mixed_norm_model"]
