"""The models of the package as PyMC distributions and PyMC models.

Importing this package loads PyMC; the penalised routes do without it.
"""

from bayesmtfs.models.distributions import GeneralizedNormal, MatrixGeneralizedNormal, MixedNorm
from bayesmtfs.models.generalized_normal import generalized_normal_model, jeffreys_model
from bayesmtfs.models.horseshoe import horseshoe_model
from bayesmtfs.models.matrix_variate import matrix_variate_model
from bayesmtfs.models.mixed_norm import mixed_norm_model
from bayesmtfs.models.spike import spike_model
from bayesmtfs.models.terms import set_task_data

__all__ = [
    "GeneralizedNormal",
    "MatrixGeneralizedNormal",
    "MixedNorm",
    "generalized_normal_model",
    "horseshoe_model",
    "jeffreys_model",
    "matrix_variate_model",
    "mixed_norm_model",
    "set_task_data",
    "spike_model",
]
