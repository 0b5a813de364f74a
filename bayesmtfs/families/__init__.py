"""The families of targets: each one loss, minus the log-density of a target given its linear predictor.

===================  ==================  ===================================================  =========
``loss``             class               formula                                              targets
===================  ==================  ===================================================  =========
"squared"            `Gaussian`          ``1/2 (y - eta)^2``                                  real
"absolute"           `Absolute`          ``|y - eta|``                                        real
"quantile"           `Quantile`          ``tau (y - eta)_+ + (1 - tau) (eta - y)_+``          real
"huber"              `Huber`             ``1/2 r^2``, beyond the threshold ``k |r| - k^2/2``  real
"student_t"          `StudentT`          ``(nu + 1) / 2 ln(1 + (y - eta)^2 / nu)``            real
"poisson"            `Poisson`           ``exp(eta) - y eta``                                 counts
"negative_binomial"  `NegativeBinomial`  ``(y + 1/alpha) ln(1 + alpha exp(eta)) - y eta``     counts
"logistic"           `Logistic`          ``ln(1 + exp(-y eta))``                              -1 and +1
"hinge"              `Hinge`             ``(1 - y eta)_+``                                    -1 and +1
===================  ==================  ===================================================  =========

A parameter stands in brackets: ``loss="quantile(0.9)"`` is ``Quantile(0.9)``; ``loss="student_t(learn)"`` leaves it to the
data.

The hinge is the exception: no density belongs to it. Where rows share a loss the family is a coupled one (`Family.on`):
`Multinomial` ("multinomial"), one of several classes within tasks, `Ordinal` ("ordinal"), ordered classes, and `Cox`
("cox"), right-censored times. A new family is one file with a subclass of `Family`; `register` makes it a name.
"""

from bayesmtfs.families.absolute import Absolute
from bayesmtfs.families.augmentation import Augmentation
from bayesmtfs.families.cox import Cox
from bayesmtfs.families.epsilon_insensitive import EpsilonInsensitive
from bayesmtfs.families.family import (
    Dispersion,
    Family,
    Kinks,
    base_name,
    find_family,
    is_known,
    names,
    register,
    registered_name,
    total,
    total_conjugate,
)
from bayesmtfs.families.gaussian import Gaussian
from bayesmtfs.families.hinge import Hinge
from bayesmtfs.families.huber import Huber
from bayesmtfs.families.logistic import Logistic
from bayesmtfs.families.multinomial import Multinomial
from bayesmtfs.families.negative_binomial import NegativeBinomial
from bayesmtfs.families.offset import with_offset
from bayesmtfs.families.ordinal import Ordinal
from bayesmtfs.families.poisson import Poisson
from bayesmtfs.families.quantile import Quantile
from bayesmtfs.families.student_t import StudentT

__all__ = [
    "Absolute",
    "Augmentation",
    "Cox",
    "Dispersion",
    "EpsilonInsensitive",
    "Family",
    "Gaussian",
    "Hinge",
    "Huber",
    "Kinks",
    "Logistic",
    "Multinomial",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Quantile",
    "StudentT",
    "base_name",
    "find_family",
    "is_known",
    "names",
    "register",
    "registered_name",
    "total",
    "total_conjugate",
    "with_offset",
]

for _family in (
    Gaussian(),
    Absolute(),
    Logistic(),
    Hinge(),
    Poisson(),
    NegativeBinomial(),
    Huber(),
    Quantile(),
    StudentT(),
    Multinomial(),
    Ordinal(),
    Cox(),
):
    register(_family)
