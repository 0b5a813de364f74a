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
from bayesmtfs.families.family import Dispersion, Family, Kinks, total, total_conjugate
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

_KNOWN: dict[str, Family] = {family.name: family for family in (Gaussian(), Absolute(), Logistic(), Hinge())}


def register(family: Family) -> None:
    """Make a family known by its name, for ``loss=`` and for files that were saved with it.

    Parameters
    ----------
    family : Family
        An object whose ``name`` no other family has.
    """
    if not isinstance(family, Family):
        raise TypeError(f"family is a {type(family).__name__}; pass an object of a subclass of families.Family")
    known = _KNOWN.get(family.name)
    if known is not None and known != family:
        raise ValueError(f"{family.name!r} is the name of {known!r} already; give the family another name")
    _KNOWN[family.name] = family


def registered_name(loss: str | Family) -> str:
    """Name of a family that a file can keep; an error where only this session has the family.

    Parameters
    ----------
    loss : str or Family
        What an estimator was given as ``loss``.
    """
    family = find_family(loss)
    if _KNOWN.get(family.name) != family:
        raise ValueError(
            f"loss is {family!r}, which no file can name; call bm.families.register(family) before save, and again "
            "where the file is loaded"
        )
    return family.name


def names(labels: bool | None = None) -> tuple[str, ...]:
    """Names of the families: all, those of labels, or those of other targets.

    Examples
    --------
    >>> names(labels=True)
    ('logistic', 'hinge')
    """
    return tuple(name for name, family in _KNOWN.items() if labels is None or (family.targets == "labels") == labels)


def find_family(loss: str | Family) -> Family:
    """Find a family by the name of its loss; a family is given back as it is.

    Parameters
    ----------
    loss : str or Family
        "squared", "absolute", "logistic", "hinge", a registered name, or a family.

    Returns
    -------
    Family
        The family.

    Raises
    ------
    ValueError
        If there is no such family; the message lists those there are.

    Examples
    --------
    >>> find_family("logistic")
    Logistic()
    """
    if isinstance(loss, Family):
        return loss
    if isinstance(loss, str) and loss in _KNOWN:
        return _KNOWN[loss]
    known = ", ".join(repr(name) for name in names())
    raise ValueError(f"loss is {loss!r}, which is not a known loss; choose one of {known}, or register a family")
