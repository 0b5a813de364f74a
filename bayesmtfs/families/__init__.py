"""The families of targets: each one loss, minus the log-density of a target given its linear predictor.

==========  ==========  =======================  =========
``loss``    class       formula                  targets
==========  ==========  =======================  =========
"squared"   `Gaussian`  ``1/2 (y - eta)^2``      real
"absolute"  `Absolute`  ``|y - eta|``            real
"logistic"  `Logistic`  ``ln(1 + exp(-y eta))``  -1 and +1
"hinge"     `Hinge`     ``(1 - y eta)_+``        -1 and +1
==========  ==========  =======================  =========

The hinge is the exception: no density belongs to it. A new family is one file with a subclass of `Family`; `register`
makes it a name.
"""

from bayesmtfs.families.absolute import Absolute
from bayesmtfs.families.augmentation import Augmentation
from bayesmtfs.families.epsilon_insensitive import EpsilonInsensitive
from bayesmtfs.families.family import (
    Dispersion,
    Family,
    Kinks,
    find_family,
    names,
    register,
    registered_name,
    total,
    total_conjugate,
)
from bayesmtfs.families.gaussian import Gaussian
from bayesmtfs.families.hinge import Hinge
from bayesmtfs.families.logistic import Logistic

__all__ = [
    "Absolute",
    "Augmentation",
    "Dispersion",
    "EpsilonInsensitive",
    "Family",
    "Gaussian",
    "Hinge",
    "Kinks",
    "Logistic",
    "find_family",
    "names",
    "register",
    "registered_name",
    "total",
    "total_conjugate",
]

for _family in (Gaussian(), Absolute(), Logistic(), Hinge()):
    register(_family)
