"""The losses: each minus the log-density of a target given its linear predictor, in NumPy alone.

==========  ==========  =======================  =========
``loss``    class       formula                  targets
==========  ==========  =======================  =========
"squared"   `Gaussian`  ``1/2 (y - eta)^2``      real
"absolute"  `Absolute`  ``|y - eta|``            real
"logistic"  `Logistic`  ``ln(1 + exp(-y eta))``  -1 and +1
"hinge"     `Hinge`     ``(1 - y eta)_+``        -1 and +1
==========  ==========  =======================  =========

The hinge is the exception: no density belongs to it. A new loss is one new file that offers what `protocols.Likelihood`
asks for, and one entry here.
"""

import math

from bayesmtfs.likelihoods.absolute import Absolute
from bayesmtfs.likelihoods.gaussian import Gaussian
from bayesmtfs.likelihoods.hinge import Hinge
from bayesmtfs.likelihoods.logistic import Logistic
from bayesmtfs.likelihoods.weighted import total, total_conjugate
from bayesmtfs.protocols import Likelihood

__all__ = [
    "CLASSIFICATION_LOSSES",
    "REGRESSION_LOSSES",
    "Absolute",
    "Gaussian",
    "Hinge",
    "Logistic",
    "is_smooth",
    "named",
    "total",
    "total_conjugate",
]

_REGRESSION: tuple[Likelihood, ...] = (Gaussian(), Absolute())
_CLASSIFICATION: tuple[Likelihood, ...] = (Logistic(), Hinge())

REGRESSION_LOSSES: tuple[str, ...] = tuple(likelihood.loss for likelihood in _REGRESSION)
CLASSIFICATION_LOSSES: tuple[str, ...] = tuple(likelihood.loss for likelihood in _CLASSIFICATION)


def named(loss: str) -> Likelihood:
    """Find a likelihood by the name of its loss.

    Parameters
    ----------
    loss : str
        "squared", "absolute", "logistic" or "hinge".

    Returns
    -------
    Likelihood
        The loss with that name.

    Raises
    ------
    ValueError
        If there is no such loss; the message lists those there are.

    Examples
    --------
    >>> named("logistic")
    Logistic()
    """
    for likelihood in _REGRESSION + _CLASSIFICATION:
        if likelihood.loss == loss:
            return likelihood
    known = ", ".join(repr(name) for name in REGRESSION_LOSSES + CLASSIFICATION_LOSSES)
    raise ValueError(f"loss is {loss!r}, which is not a known loss; choose one of {known}")


def is_smooth(likelihood: Likelihood) -> bool:
    """Whether the loss has a gradient everywhere, that is, a finite curvature.

    Examples
    --------
    >>> is_smooth(Gaussian()), is_smooth(Hinge())
    (True, False)
    """
    return math.isfinite(likelihood.curvature)
