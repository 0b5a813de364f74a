"""The observed term of a PyMC model, one for each loss, shared by all models.

Minus the loss becomes the log-density of the targets given the linear predictor eta, times the row's weight w:

========  ============================================================  ================
loss      log-density of one row                                        predictive draws
========  ============================================================  ================
squared   ``-w [(y - eta)^2 / (2 noise^2) + ln noise + 1/2 ln(2 pi)]``  normal
absolute  ``-w [|y - eta| / noise + ln(2 noise)]``                      Laplace
logistic  ``-w ln(1 + exp(-y eta))``                                    -1 or +1
hinge     ``-w (1 - y eta)_+``                                          none
========  ============================================================  ================

At ``noise = 1`` differences of the log-probability in eta are therefore minus the differences of `likelihoods.total`:
a penalised fit is the MAP of a stated model. For the hinge that model is a pseudo-likelihood, not a density.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from bayesmtfs.families import Family

# A number, an array or a PyTensor variable; PyTensor's own types say nothing to a type checker.
type TensorLike = Any
type Dims = str | tuple[str, ...] | None

_DISTRIBUTIONS: dict[str, Any] = {"squared": pm.Normal, "absolute": pm.Laplace}

# Minus the loss as a function of the margin y * eta.
_LABEL_LOG_DENSITIES: dict[str, Callable[[TensorLike], TensorLike]] = {
    "logistic": lambda margin: -pt.softplus(-margin),
    "hinge": lambda margin: -pt.maximum(1.0 - margin, 0.0),
}


def observe(
    name: str,
    family: Family,
    eta: TensorLike,
    y: TensorLike,
    weight: TensorLike = None,
    noise: TensorLike = 1.0,
    dims: Dims = "obs",
) -> TensorLike:
    """Add the observed targets of a likelihood to the PyMC model in context.

    Squared, absolute and logistic losses give proper densities. The hinge loss does not: ``exp(-hinge)`` is a
    pseudo-likelihood, not normalised over the labels, so its posterior weighs coefficients by their margins, but knows
    no probabilities of labels and gives no predictive draws.

    Parameters
    ----------
    name : str
        Name of the observed variable.
    family : Likelihood
        The loss.
    eta : tensor (n,)
        Linear predictor.
    y : array or pm.Data (n,)
        Targets. For the logistic and the hinge loss -1 and +1, which are also the values of the predictive draws.
    weight : array or pm.Data (n,), optional
        Row weights, not negative, that multiply the log-density. None, or an array of ones, gives PyMC's own normal or
        Laplace distribution. A predictive draw is one new target of a row, whatever the row's weight.
    noise : float or tensor, default 1.0
        Standard deviation for the squared loss, scale for the absolute loss: one for all rows, or ``(n,)``. The
        logistic and the hinge loss have none.
    dims : str or tuple of str, optional
        Dimension of the observed variable, default "obs"; None takes the shape of y.

    Returns
    -------
    TensorVariable
        The observed variable.

    Raises
    ------
    ValueError
        If a loss has no term here, if labels are not -1 and +1, or if a loss without noise is given one.

    Examples
    --------
    >>> import numpy as np
    >>> from bayesmtfs.families import Gaussian
    >>> x, y = np.array([1.0, 2.0]), np.array([0.9, 2.2])
    >>> with pm.Model(coords={"obs": [0, 1]}) as model:
    ...     slope = pm.Normal("slope")
    ...     observed = observe("y", Gaussian(), slope * x, y, noise=0.5)
    >>> model.observed_RVs
    [y]
    """
    loss = family.name
    weight = None if _is_one(weight) else weight
    if loss in _DISTRIBUTIONS:
        return _observe_numbers(name, _DISTRIBUTIONS[loss], eta, y, weight, noise, dims)
    if loss not in _LABEL_LOG_DENSITIES:
        known = ", ".join(repr(known) for known in (*_DISTRIBUTIONS, *_LABEL_LOG_DENSITIES))
        raise ValueError(f"likelihood has the loss {loss!r}, which has no PyMC term; use one of {known}")
    _require_labels(y, loss)
    if not _is_one(noise):
        raise ValueError(f"noise was given, but the {loss} loss has no noise; leave noise at 1.0")
    return _observe_labels(name, loss, eta, y, weight, dims)


def _observe_numbers(
    name: str,
    distribution: Any,
    eta: TensorLike,
    y: TensorLike,
    weight: TensorLike,
    noise: TensorLike,
    dims: Dims,
) -> TensorLike:
    """Observe real targets around eta."""
    if weight is None:
        return distribution(name, eta, noise, observed=y, dims=dims)

    def log_density(value: TensorLike, eta: TensorLike, noise: TensorLike, weight: TensorLike) -> TensorLike:
        return weight * pm.logp(distribution.dist(eta, noise), value)

    def draw(eta: TensorLike, noise: TensorLike, weight: TensorLike, size: TensorLike) -> TensorLike:
        return distribution.dist(eta, noise, size=size)

    return pm.CustomDist(name, eta, noise, weight, logp=log_density, dist=draw, observed=y, dims=dims)


def _observe_labels(name: str, loss: str, eta: TensorLike, y: TensorLike, weight: TensorLike, dims: Dims) -> TensorLike:
    """Observe labels -1 and +1; PyMC's own Bernoulli would want 0 and 1."""

    def log_density(value: TensorLike, eta: TensorLike, weight: TensorLike) -> TensorLike:
        return pt.switch(pt.eq(pt.abs(value), 1), weight * _LABEL_LOG_DENSITIES[loss](value * eta), -np.inf)

    def draw(eta: TensorLike, weight: TensorLike, size: TensorLike) -> TensorLike:
        return 2 * pm.Bernoulli.dist(logit_p=eta, size=size) - 1

    def refuse_to_draw(*parameters: TensorLike, rng: TensorLike = None, size: TensorLike = None) -> NoReturn:
        raise NotImplementedError(
            f"{name!r} has the hinge loss, a pseudo-likelihood without predictive draws; "
            f"leave {name!r} out of var_names, or use the logistic loss"
        )

    predictive = {"random": refuse_to_draw} if loss == "hinge" else {"dist": draw}
    weight = 1.0 if weight is None else weight
    return pm.CustomDist(name, eta, weight, logp=log_density, observed=y, dims=dims, **predictive)


def _is_one(number: TensorLike) -> bool:
    """Whether a weight or noise is absent or known to be 1; a PyTensor variable may change, so it is not known."""
    return number is None or (not isinstance(number, Variable) and bool(np.all(np.asarray(number) == 1)))


def _require_labels(y: TensorLike, loss: str) -> None:
    """Raise unless the labels, where they are known, are -1 and +1."""
    if hasattr(y, "get_value"):  # pm.Data
        y = y.get_value()
    if isinstance(y, Variable):
        return
    labels = np.unique(np.asarray(y))
    if not np.all(np.isin(labels, [-1, 1])):
        shown = ", ".join(str(label) for label in labels[:5])
        raise ValueError(f"y holds the labels {shown}, but the {loss} loss wants -1 and +1; recode y")
