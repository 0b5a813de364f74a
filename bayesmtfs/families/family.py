"""What a family of targets may offer, and how a route asks for it.

A family is one loss: minus the log-density of a target given its linear predictor eta, up to a constant. A new one is a
subclass of `Family` in one file. Only ``value`` and ``gradient`` are a must; everything else is an offer, and a route
that needs more names it (`Family.require`) and refuses the family in words otherwise.

The methods and attributes of `Family` say what asks for them.
"""

import math
import re
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numba import njit, types
from numba.core import cgutils, config
from numba.extending import intrinsic
from scipy.optimize import minimize_scalar

from bayesmtfs.types import FloatArray, IntArray

OFFERS = {
    "value": "value",
    "gradient": "gradient",
    "curvature": "curvature",
    "curvature_bound": "a bound of the curvature",
    "conjugate": "conjugate",
    "kinks": "kinks",
    "mean": "mean",
    "log_density": "a log-density",
    "draw": "draws",
    "slope": "a compiled slope",
    "centre": "a compiled centre",
    "augmentation": "a conditionally normal form",
    "pymc_dist": "a PyMC term",
    "absorbed": "offsets as weights",
    "zero_sums": "dual variables for intercepts",
    "weights": "weights of a squared loss above it",
    "best_parameter": "a search of its parameter",
}

ROUNDING = 1e-12  # of a sum of slopes, relative


class Dispersion(NamedTuple):
    """A parameter of the density beside eta, one per task or one for all.

    ``in_units_of_target`` says that it scales with the target, as a noise deviation does.
    """

    name: str
    in_units_of_target: bool = True


class Kinks(NamedTuple):
    """A loss of two straight pieces: ``left (eta - place)`` below its kink and ``right (eta - place)`` above it.

    It is convex with its minimum 0 at the kink: ``left <= 0 <= right`` and ``left < right``.
    """

    place: FloatArray  # (n,)
    left: FloatArray  # (n,) slope below
    right: FloatArray  # (n,) slope above

    def times(self, weight: FloatArray) -> "Kinks":
        """Kinks of the weighted loss."""
        if not np.all((self.left <= 0.0) & (self.right >= 0.0) & (self.left < self.right)):
            raise ValueError(
                "kinks has slopes left and right that are not on both sides of 0; give left <= 0 <= right, left < right"
            )
        return Kinks(self.place, _rounded_in(weight, self.left), _rounded_in(weight, self.right))

    def lowest(self) -> float:
        """Constant eta of the smallest sum of losses, the first kink at which the slope turns positive."""
        order = np.argsort(self.place, kind="stable")
        growth = np.cumsum((self.right - self.left)[order])
        turn = int(np.searchsorted(growth, -self.left.sum() * (1.0 - ROUNDING)))
        return float(self.place[order[min(turn, len(order) - 1)]])

    @property
    def has_flat_side(self) -> bool:
        """Whether one of the slopes is 0 anywhere."""
        return not (np.all(self.left) and np.all(self.right))


def _rounded_in(weight: FloatArray, slope: FloatArray) -> FloatArray:
    """Weight times slope, so small that dividing by the weight gives back no more than the slope."""
    end = weight * slope
    ratio = np.abs(end / np.where(weight > 0.0, weight, 1.0))
    return np.where(ratio > np.abs(slope), end * (1.0 - 4.0 * np.finfo(np.float64).eps), end)


class Family:
    """One loss and what belongs to it; methods act element by element and broadcast.

    Attributes
    ----------
    name : str
        What the user writes as ``loss=``.
    targets : {"numbers", "labels", "counts", "survival"}
        Real numbers; two labels, coded -1 and +1; whole numbers of at least 0; times, negative where censored.
    coupled : bool
        Whether rows share a loss, as those at risk at one time do. Such a family offers its methods on given rows only: see
        `on`.
    free_level : bool
        Whether a constant added to eta within a task changes nothing, as under a baseline hazard, so that features count
        about their means without an intercept.
    has_cuts : bool
        Whether classes are ordered and cut apart on one line: a coupled family whose cut points stand for intercepts.
    smooth : bool
        Whether there is a gradient everywhere. A smooth loss need not have a bounded curvature.
    quadratic : bool
        Whether the loss is ``1/2 (y - eta)^2``, whose fits need sums over rows only.
    linear_mean : bool
        Whether the mean target is eta itself, so that it is that of the mean coefficients.
    of_residuals : bool
        Whether the loss is a function of ``y - eta``, so that a known part of eta can be taken off the targets.
    noise_power : float
        d, where the noise enters the density as ``loss(y, eta) / noise^d + ln noise``.
    scores_deviance : bool
        Whether ``score`` is the share of the deviance that is explained (D^2) instead of R^2: counts, and quantiles.
    curvature_bound : float or None
        Upper bound of the second derivative, for proximal gradient steps; None: their length is searched.
    dispersion : tuple of Dispersion
        Further parameters of the density, such as the noise.
    slope : compiled function or None
        ``(y, eta) -> (loss, derivative)`` of one target, with ``@njit(cache=True)``, for streams. One that depends on a
        parameter of the family is made by a function that is given the parameter.
    centre : compiled function or None
        ``(total, weight) -> eta``, the constant of the smallest loss, or one near it, where targets have this weighted
        sum and weight (labels: the weight of the positive ones), with ``@njit(cache=True)``, for streams.
    augmentation : Augmentation or None
        How the family becomes conditionally normal: for the Gibbs sampler, and EM with coefficients integrated out.
    class_augmentation : Augmentation or None
        How a coupled family of labels becomes conditionally normal in one class, the others given: for the Gibbs sampler.
    learnable : str or None
        Name of a parameter of the density, beside the noise, that ``loss="name(learn)"`` leaves to the data.
    learned : str or None
        That name, in a family whose parameter is learned; see `given`.
    one_for_all : bool
        Whether all tasks have the same value of it.
    """

    name: str
    targets: ClassVar[Literal["numbers", "labels", "counts", "survival"]] = "numbers"
    coupled: ClassVar[bool] = False
    free_level: ClassVar[bool] = False
    has_cuts: ClassVar[bool] = False
    smooth: bool = True
    quadratic: bool = False
    linear_mean: ClassVar[bool] = False
    of_residuals: ClassVar[bool] = False
    noise_power: ClassVar[float] = 2.0
    curvature_bound: float | None = None
    dispersion: ClassVar[tuple[Dispersion, ...]] = ()
    slope: ClassVar[Any] = None
    centre: ClassVar[Any] = None
    augmentation: ClassVar[Any] = None
    class_augmentation: ClassVar[Any] = None
    learnable: ClassVar[str | None] = None
    learned: str | None = None
    one_for_all: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), tuple(sorted(vars(self).items()))))

    # ------------------------------------------------------------------ the loss

    def value(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta."""
        raise self._missing("value")

    def gradient(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Derivative in eta (a subgradient where the loss is not smooth)."""
        raise self._missing("gradient")

    def curvature(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Second derivative in eta (0 where the loss is linear): for the working-set solver, EM and refits."""
        raise self._missing("curvature")

    def conjugate(self, y: FloatArray, dual: FloatArray) -> FloatArray:
        """Convex conjugate ``sup_eta dual * eta - value(y, eta)``; ``inf`` outside its domain: for certificates."""
        raise self._missing("conjugate")

    def kinks(self, y: FloatArray) -> Kinks:
        """Places and slopes of a loss that is made of two straight pieces: for the solver of such losses."""
        raise self._missing("kinks")

    def best_constant(self, y: FloatArray, weight: FloatArray) -> float:
        """Constant eta of the smallest weighted loss; found by a search unless a family knows it."""
        if self.offers("kinks"):
            return self.kinks(y).times(weight).lowest()
        loss = minimize_scalar(lambda eta: float(weight @ self.value(y, np.full(len(y), eta))))
        return float(loss.x)

    def error(self, y: FloatArray, eta: FloatArray) -> FloatArray:
        """Prediction error of held-out targets, by which cross-validation chooses: the loss, unless a family has one."""
        return self.value(y, eta)

    def saturated(self, y: FloatArray) -> FloatArray:
        """Smallest loss that each target can have, at an eta of its own."""
        if self.offers("conjugate"):
            return -self.conjugate(y, np.zeros(np.shape(y)))
        distinct, place = np.unique(y, return_inverse=True)
        best = np.array([self.best_constant(np.array([one]), np.ones(1)) for one in distinct])
        return self.value(distinct, best)[place]

    def weights(self, residual: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Weights of squares ``(r / noise)^2 / 2`` that touch the loss at these residuals and lie above it: for MM.

        A family that offers them is one of residuals over the noise, ``l(r / noise)``, and MM learns its noise.
        """
        raise self._missing("weights")

    def best_noise(self, residual: FloatArray, weight: FloatArray) -> float:
        """Noise of the largest likelihood at given residuals, of a loss of residuals with a noise."""
        power, loss = self.noise_power, self.value(residual, np.zeros_like(residual))
        return float((power * np.average(loss, weights=weight)) ** (1.0 / power))

    def best_parameter(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Value of the parameter that is learned with the largest likelihood: for MM and penalised fits."""
        raise self._missing("best_parameter")

    # ------------------------------------------------------------------ rows that share a loss

    def on(self, y: FloatArray, weight: FloatArray, offsets: IntArray) -> "Family":
        """The family on given rows, which are sorted by task; the family itself unless it is coupled.

        Methods of what a coupled family gives back take and return arrays over all these rows (N,), whose weighted sums
        are those of the whole loss: ``sum_i c_i value_i`` is the loss, ``c_i gradient_i`` its derivative in eta_i, and
        ``sum_i c_i conjugate_i`` its conjugate, for factors c that are the weights times a number per task. ``curvature``
        is the diagonal of the second derivatives, or a bound of it, for the solvers' quadratic models.

        Parameters
        ----------
        y, weight : (N,) targets and weights
        offsets : (m + 1,) where the rows of each task begin
        """
        return self

    def of_rows(self, start: int, stop: int) -> "Family":
        """The family on some of the rows; the family itself unless it has an offset for each (`families.offset`)."""
        return self

    def absorbed(self, y: FloatArray, weight: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Targets and weights whose loss is that of the given ones with an offset, up to a constant: for streams."""
        raise self._missing("absorbed")

    def levelled(self, W: FloatArray, norm_q: float) -> FloatArray:
        """Coefficients (k, m) of the same loss whose rows have the least q-norms; W itself unless the loss leaves a choice.

        Only coupled families are asked, with the coefficients of any features in all tasks.
        """
        return W

    def zero_sums(self, y: FloatArray, dual: FloatArray, weight: FloatArray) -> FloatArray:
        """(N,) Dual variables near the given ones, in the domain of the conjugate, whose sum over each task is 0.

        Only coupled families with intercepts are asked: those of others can be scaled by their sign.
        """
        raise self._missing("zero_sums")

    # ------------------------------------------------------------------ the density

    def mean(self, eta: FloatArray) -> FloatArray:
        """Expected target at eta, which is predicted: the regression function, or the probability of class +1."""
        raise self._missing("mean")

    def log_density(self, y: FloatArray, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Log-density of the targets, with its constants: for likelihoods, leave-one-out, information criteria."""
        raise self._missing("log_density")

    def probabilities(self, eta: FloatArray) -> FloatArray:
        """Probabilities of ordered classes, on the last axis, of a family with given cut points."""
        raise ValueError(f"{type(self).__name__} has no ordered classes")

    def draw(self, rng: np.random.Generator, eta: FloatArray, noise: FloatArray | float = 1.0) -> FloatArray:
        """Draw new targets at eta: for predictive draws."""
        raise self._missing("draw")

    def expected_loss(self, mean: FloatArray, eta: FloatArray) -> FloatArray:
        """Loss at eta, averaged over targets of a mean; up to a constant, where the loss is linear in the target."""
        return self._expected(self.value, mean, eta)

    def expected_slope(self, mean: FloatArray, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivative of `expected_loss` in eta."""
        return self._expected(self.gradient, mean, eta), self._expected(self.curvature, mean, eta)

    def _expected(self, part: Any, mean: FloatArray, eta: FloatArray) -> FloatArray:
        if self.targets != "labels":
            return np.asarray(part(mean, eta))
        one = np.ones(1)
        return mean * part(one, eta) + (1.0 - mean) * part(-one, eta)

    def deviance(self, y: FloatArray, eta: FloatArray, weight: FloatArray) -> float:
        """Minus twice the weighted log-likelihood, a noise at its best value, up to constants."""
        self.require("An information criterion", "log_density")
        return -2.0 * float(weight @ self.log_density(y, eta))

    def working_noise(self, y: FloatArray, weight: FloatArray) -> float:
        """Noise of a normal target that tells as much of eta as one of these targets does, at the best constant."""
        self.require("The scale of a prior", "curvature")
        at_best = self.curvature(y, np.full(len(y), self.best_constant(y, weight)))
        return float(1.0 / np.sqrt(np.average(at_best, weights=weight)))

    def pymc_dist(self, eta: Any, noise: Any, **options: Any) -> Any:
        """PyMC distribution of the targets at eta, ``.dist(..., **options)``, for models and NUTS; it imports PyMC."""
        raise self._missing("pymc_dist")

    # ------------------------------------------------------------------ what is offered

    @property
    def scores_deviance(self) -> bool:
        """Whether R^2 has no meaning for the targets."""
        return self.targets == "counts"

    def at(self, parameter: Any) -> "Family":
        """The family at another value of its parameter, which ``loss="name(value)"`` states; "learn" where it can be."""
        raise ValueError(f"loss is {self.name!r}, which has no parameter; leave out ({parameter})")

    def given(self, parameter: Any) -> "Family":
        """The family at a value of what it learns: a number, an array that broadcasts with eta, or a tensor of PyTensor."""
        raise ValueError(f"{type(self).__name__} learns no parameter")

    @property
    def in_target_units(self) -> bool:
        """Whether eta has the units of the targets: it is their mean, or the middle that a noise is about."""
        return self.linear_mean or self.has_noise

    @property
    def effect_words(self) -> str:
        """What an effect is a change of, where it is not counted in deviations of the target: of the linear predictor."""
        if self.in_target_units:
            return ""
        known = {"counts": "the log of the expected count", "survival": "the log of the hazard"}
        return known.get(self.targets, "the log-odds" if self.offers("log_density") else "the linear predictor")

    @property
    def has_noise(self) -> bool:
        """Whether the density has a noise deviation."""
        return any(parameter.name == "noise" for parameter in self.dispersion)

    def offers(self, offer: str) -> bool:
        """Whether a subclass has this attribute or method.

        Examples
        --------
        >>> class Cosh(Family):
        ...     def value(self, y, eta):
        ...         return np.cosh(y - eta)
        >>> Cosh().offers("value"), Cosh().offers("conjugate")
        (True, False)
        """
        if self.learned is not None and offer in ("slope", "best_parameter"):
            return offer != "slope" and getattr(type(self), offer) is not getattr(Family, offer)
        mine = getattr(type(self), offer, None)
        return mine is not getattr(Family, offer) or vars(self).get(offer) is not None

    def require(self, route: str, *needed: str, way_out: str = "") -> None:
        """Raise a ``ValueError`` that names what a route needs and the family does not offer, and the way out.

        Examples
        --------
        >>> Family().require("NUTS", "log_density")
        Traceback (most recent call last):
        ValueError: NUTS needs a log-density; Family offers nothing
        """
        missing = [OFFERS[offer] for offer in needed if not self.offers(offer)]
        if missing:
            offered = ", ".join(words for offer, words in OFFERS.items() if self.offers(offer)) or "nothing"
            way_out = f"; {way_out}" if way_out else ""
            if self.coupled:
                way_out += f"; its rows share one loss: use MixedNorm* or Bayesian* with loss={self.name!r}"
            raise ValueError(f"{route} needs {' and '.join(missing)}; {type(self).__name__} offers {offered}{way_out}")

    def _missing(self, offer: str) -> ValueError:
        return ValueError(f"{type(self).__name__} does not offer {OFFERS[offer]}; define `{offer}`")


def best_on_log_scale(loss: Any, bounds: tuple[float, float]) -> float:
    """Positive number at whose logarithm a loss is least: on a grid between bounds, then between its points."""
    grid = np.linspace(*bounds, 24)
    best = int(np.argmin([loss(place) for place in grid]))
    ends = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    return math.exp(minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-9}).x)


# ---------------------------------------------------------------------- weighted sums


def total(family: Family, y: FloatArray, eta: FloatArray, weight: FloatArray | None = None) -> float:
    """Weighted sum of the loss, ``sum_i c_i l(y_i, eta_i)``, in float64: certificates are differences of such sums.

    Weights c are not negative, None means 1 for every row. A row of weight 0 adds 0, even at an infinite loss.

    Examples
    --------
    >>> from bayesmtfs.families import Gaussian
    >>> total(Gaussian(), np.array([1.0, 2.0]), np.zeros(2), weight=np.array([1.0, 0.5]))
    1.5
    """
    with np.errstate(over="ignore", invalid="ignore"):  # a line search may go too far, and is told so
        return _weighted_sum(family.value(y, eta), weight)


def total_conjugate(family: Family, y: FloatArray, dual: FloatArray, weight: FloatArray | None = None) -> float:
    """Convex conjugate of `total` as a function of eta, ``sum_i c_i l*(y_i, dual_i / c_i)``.

    The conjugate of ``c l`` at u is ``c l*(u / c)``; for ``c = 0`` it is 0 at ``u = 0`` and ``inf`` elsewhere (Boyd and
    Vandenberghe 2004, *Convex Optimization*, section 3.3.2). Dual variables are such as ``weight * gradient(y, eta)``; one
    outside the domain makes the sum ``inf``.

    Examples
    --------
    >>> from bayesmtfs.families import Absolute
    >>> y, weight = np.array([3.0, 5.0]), np.array([0.5, 2.0])
    >>> [total_conjugate(Absolute(), y, np.array([dual, 1.0]), weight) for dual in (-0.5, -0.6)]
    [3.5, inf]
    """
    if weight is None:
        return _weighted_sum(family.conjugate(y, dual), None)
    absent = np.equal(weight, 0.0)
    if np.any(absent & np.not_equal(dual, 0.0)):
        return float("inf")
    ratio = np.divide(dual, np.where(absent, 1.0, weight))
    return _weighted_sum(family.conjugate(y, ratio), weight)


def _weighted_sum(terms: FloatArray, weight: FloatArray | None) -> float:
    """Sum of weight * terms in float64, with 0 * inf = 0."""
    if weight is None:
        return float(np.sum(terms, dtype=np.float64))
    with np.errstate(invalid="ignore"):
        found = float(np.sum(np.multiply(weight, terms), dtype=np.float64))
    if math.isfinite(found):
        return found
    return float(np.sum(np.multiply(weight, np.where(np.not_equal(weight, 0.0), terms, 0.0)), dtype=np.float64))


# ---------------------------------------------------------------------- compiled functions of a family

# Loops over rows take the functions of a family as their addresses: they are compiled once for all families and stay in
# numba's cache, which a function that is passed as such leaves (numba 0.68: compiled anew in every process, and 14
# microseconds for each call). A call through the address costs about 2 nanoseconds.

Address = Any  # whole number; the function itself where compilation is switched off

_types: Any = types
_NUMBER = _types.float64
SLOPE = _types.UniTuple(_NUMBER, 2)(_NUMBER, _NUMBER)
CENTRE = _NUMBER(_NUMBER, _NUMBER)
INTERPRETED = bool(getattr(config, "DISABLE_JIT", False))  # compilation is switched off
_code: Any = cgutils  # writes the instructions that stand behind a compiled call


@njit(cache=True)
def mean_target(total: float, weight: float) -> float:
    """Centre of families whose linear predictor is in the units of the target."""
    return total / weight if weight > 0.0 else 0.0


def address(function: Any, signature: Any) -> Address:
    """Where compiled code finds a compiled function; 0 for None."""
    if function is None or INTERPRETED:
        return 0 if function is None else function
    compiled = function.get_compile_result(signature)
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name)


def _caller(signature: Any) -> Any:
    """Function ``(address, first, second)`` that compiled code calls an address by."""

    def call(_: Any, address: Any, first: Any, second: Any) -> Any:
        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            number, result = (context.get_value_type(kind) for kind in (_NUMBER, signature.return_type))
            pointer = _code.ir.FunctionType(result, [number, number]).as_pointer()
            return builder.call(builder.inttoptr(arguments[0], pointer), arguments[1:])

        return signature.return_type(_types.intp, _NUMBER, _NUMBER), generate

    return (lambda function, *numbers: function(*numbers)) if INTERPRETED else intrinsic(call)


call_slope = _caller(SLOPE)
call_centre = _caller(CENTRE)


# ---------------------------------------------------------------------- families by name

_KNOWN: dict[str, Family] = {}
LEARN = "learn"
_STATED = re.compile(r"(\w+)\(\s*([-+.\deE]+|learn)\s*\)")  # a name with a parameter


def register(family: Family) -> None:
    """Make a family, whose ``name`` no other one has, known for ``loss=`` and for files that were saved with it."""
    if not isinstance(family, Family):
        raise TypeError(f"family is a {type(family).__name__}; pass an object of a subclass of families.Family")
    known = _KNOWN.get(family.name)
    if known is not None and known != family:
        raise ValueError(f"{family.name!r} is the name of {known!r} already; give the family another name")
    _KNOWN[family.name] = family


def registered_name(loss: str | Family) -> str:
    """Name of a family that a file can keep; an error where only this session has the family."""
    family = find_family(loss)
    if not is_known(family.name) or find_family(family.name) != family:
        raise ValueError(
            f"loss is {family!r}, which no file can name; call bm.families.register(family) before save, and again "
            "where the file is loaded"
        )
    return family.name


def base_name(loss: Any) -> Any:
    """Name of a family without its parameter: ``"quantile"`` of ``"quantile(0.9)"``; anything else as it is."""
    stated = _STATED.fullmatch(loss) if isinstance(loss, str) and loss not in _KNOWN else None
    return loss if stated is None else stated[1]


def name_with(name: str, parameter: float, default: float) -> str:
    """Name that states a parameter, unless it is the default: ``"quantile(0.9)"``."""
    return name if parameter == default else f"{name}({parameter!r})"


def is_known(loss: Any) -> bool:
    """Whether `find_family` finds it."""
    return isinstance(loss, Family) or (isinstance(loss, str) and base_name(loss) in _KNOWN)


def names(labels: bool | None = None) -> tuple[str, ...]:
    """Names of the families: all, or of those that act row by row those of labels, or those of other targets.

    Examples
    --------
    >>> import bayesmtfs.families
    >>> names(labels=True)
    ('logistic', 'hinge')
    """
    if labels is None:
        return tuple(_KNOWN)
    return tuple(n for n, family in _KNOWN.items() if (family.targets == "labels") == labels and not family.coupled)


def find_family(loss: str | Family) -> Family:
    """Find a family by the name of its loss: one of `names`, with its parameter in brackets where it has one.

    A family is given back as it is; a ``ValueError`` lists those there are.

    Examples
    --------
    >>> import bayesmtfs.families
    >>> find_family("logistic")
    Logistic()
    >>> find_family("quantile(0.9)")
    Quantile(0.9)
    """
    if isinstance(loss, Family):
        return loss
    if isinstance(loss, str) and loss in _KNOWN:
        return _KNOWN[loss]
    if is_known(loss):
        family, stated = _KNOWN[base_name(loss)], _STATED.fullmatch(loss)[2]  # type: ignore[index]
        if stated == LEARN and family.learnable is None:
            raise ValueError(
                f"loss is {loss!r}, but no parameter of {family.name!r} is learned; pass a number, or none"
            )
        return family.at(stated if stated == LEARN else float(stated))
    known = ", ".join(repr(name) for name in names())
    raise ValueError(f"loss is {loss!r}, which is not a known loss; choose one of {known}, or register a family")
