r"""The generalized normal family as PyMC distributions.

Three distributions that a prior on the rows of W (features by tasks) is made of, for any q > 0, q = inf included:

- `GeneralizedNormal`: one entry, ``exp(-|(z - mu) / rho|^q) / (2 rho Gamma(1 + 1/q))``
  (Zhang, Yeung and Xu 2010, section 3);
- `MixedNorm`: one row, ``exp(-strength ||w||_q)`` with its normaliser; its negative logarithm is the l1,q penalty;
- `MatrixGeneralizedNormal`: the whole matrix, ``W = diag(row_scale) Z task_factor`` with independent standard entries
  in Z (Zhang, Yeung and Xu 2010, section 4).

They differ from the paper in one point: with ``W = diag(row_scale) Z task_factor``, which is what the exponent of the
paper's matrix density says, the covariance of a row is proportional to ``task_factor^T task_factor``, not to
``task_factor task_factor^T`` as printed.

Draws use the mixture of uniforms ``v ~ Gamma(1 + 1/q), z | v ~ U(-v^(1/q), v^(1/q))``. It holds for every q; the
textbook way ``|z| = Gamma(1/q)^(1/q)`` is the same distribution, but its gamma variable underflows once q is large.

With ``a = 1/q`` and ``x = |u|^q`` the two-sided tail of a standard entry is ``P(|z| > |u|) = Q(a, x)``, the regularised
upper incomplete gamma function, and near the centre its distribution function is ``1/2 + u / (2 Gamma(1 + 1/q))``. q may
be a tensor everywhere; where a power has no derivative (at 0) the gradient is 0, one of the subgradients for q >= 1.

References
----------
Y. Zhang, D.-Y. Yeung, Q. Xu. Probabilistic multi-task feature selection. NIPS 2010.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions import Continuous, SymbolicRandomVariable
from pymc.distributions.dist_math import check_icdf_parameters, check_icdf_value, check_parameters
from pymc.distributions.shape_utils import (
    convert_shape,
    get_support_shape_1d,
    implicit_size_from_params,
    rv_size_is_none,
)
from pymc.pytensorf import normalize_rng_param
from pytensor import config
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Constant, Variable
from pytensor.tensor.random.utils import normalize_size_param
from pytensor.tensor.variable import TensorVariable

type Tensor = Any  # PyTensor and PyMC have no useful static types

# Below this x = |u|^q the distribution function is linear in u to double precision: the relative error is below x.
LINEAR_CENTRE = 1e-17
# Below this tail probability the incomplete gamma function is about to underflow; its continued fraction takes over.
SMALLEST_TAIL = 1e-290
# Depth of the continued fraction. It starts at x of about 600, where 12 levels are exact to double precision.
FRACTION_LEVELS = 12


def as_float_tensor(value: Any) -> TensorVariable:
    """Turn a number, an array or a tensor into a tensor of PyTensor's float type."""
    tensor = pt.as_tensor_variable(value)
    if isinstance(tensor, Constant):
        return pt.constant(tensor.data, dtype=config.floatX)
    return tensor.astype(config.floatX)


def standard_draws(rng: Variable, q: TensorVariable, shape: Any) -> tuple[Variable, TensorVariable]:
    """Draw standard generalized normal entries by the mixture of uniforms; gives the next generator and the draws."""
    q = check_icdf_parameters(q, q > 0, msg="q > 0")
    next_rng, mixing = pt.random.gamma(1.0 + 1.0 / q, scale=1.0, size=shape, rng=rng, return_next_rng=True)
    next_rng, inside = pt.random.uniform(-1.0, 1.0, size=shape, rng=next_rng, return_next_rng=True)
    return next_rng, inside * mixing ** (1.0 / q)


class GeneralizedNormalRV(SymbolicRandomVariable):
    """Random variable behind `GeneralizedNormal`."""

    name = "generalized_normal"
    extended_signature = "[rng],[size],(),(),()->[rng],()"
    _print_name = ("GeneralizedNormal", "\\operatorname{GeneralizedNormal}")

    @classmethod
    def rv_op(cls, mu: Any, rho: Any, q: Any, *, size: Any = None, rng: Any = None) -> TensorVariable:
        """Build the graph of a draw."""
        mu, rho, q = as_float_tensor(mu), as_float_tensor(rho), as_float_tensor(q)
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        shape = implicit_size_from_params(mu, rho, q, ndims_params=cls.ndims_params) if rv_size_is_none(size) else size
        next_rng, standard = standard_draws(rng, q, shape)
        draws = mu + check_icdf_parameters(rho, rho > 0, msg="rho > 0") * standard
        return cls(inputs=[rng, size, mu, rho, q], outputs=[next_rng, draws])(rng, size, mu, rho, q)


class GeneralizedNormal(Continuous):
    r"""Generalized normal (exponential power) distribution.

    .. math::

       p(z \mid \mu, \rho, q) = \frac{\exp(-|(z - \mu) / \rho|^q)}{2 \rho \, \Gamma(1 + 1/q)}

    q = 1 is the Laplace distribution with scale rho, q = 2 the normal one with variance rho^2 / 2, q = inf the uniform
    one on [mu - rho, mu + rho]. The mean is mu, the variance ``rho^2 Gamma(3/q) / Gamma(1/q)``. The same as
    ``scipy.stats.gennorm(beta=q, loc=mu, scale=rho)``.

    Parameters
    ----------
    mu : tensor_like of float
        Location.
    rho : tensor_like of float
        Scale, > 0.
    q : tensor_like of float
        Shape, > 0; may be infinite.

    Notes
    -----
    The gradient of the log-density at z = mu is taken as 0, also for q <= 1, where the density has a peak there.

    Examples
    --------
    >>> import pymc as pm
    >>> from bayesmtfs.models import GeneralizedNormal
    >>> with pm.Model(coords={"feature": ["age", "dose"]}) as model:
    ...     coef = GeneralizedNormal("coef", 0.0, [1.0, 100.0], 4.0, dims="feature")
    >>> pm.draw(coef, random_seed=1, mode="FAST_COMPILE").shape
    (2,)
    >>> float(pm.logp(GeneralizedNormal.dist(0.0, 2.0, 1.0), 3.0).eval(mode="FAST_COMPILE").round(6))
    -2.886294
    """

    rv_type = GeneralizedNormalRV
    rv_op = GeneralizedNormalRV.rv_op

    @classmethod
    def dist(cls, mu: Any, rho: Any, q: Any, **kwargs: Any) -> TensorVariable:
        """Build a variable outside a model; ``shape`` or ``size`` as for any PyMC distribution."""
        return super().dist([as_float_tensor(mu), as_float_tensor(rho), as_float_tensor(q)], **kwargs)

    @staticmethod
    def support_point(
        rv: TensorVariable, size: Variable, mu: TensorVariable, rho: TensorVariable, q: TensorVariable
    ) -> TensorVariable:
        """Give the location, in the shape of the variable."""
        centre = pt.broadcast_arrays(mu, rho, q)[0]
        return centre if rv_size_is_none(size) else pt.full(size, centre)

    @staticmethod
    def logp(value: TensorVariable, mu: TensorVariable, rho: TensorVariable, q: TensorVariable) -> TensorVariable:
        """Give the log-density."""
        log_density = -absolute_power((value - mu) / rho, q) - pt.log(rho) - log_unit_volume(q)
        return check_parameters(log_density, rho > 0, q > 0, msg="rho > 0, q > 0")

    @staticmethod
    def logcdf(value: TensorVariable, mu: TensorVariable, rho: TensorVariable, q: TensorVariable) -> TensorVariable:
        """Give the log-probability of being at or below the value."""
        return check_parameters(log_lower_tail((value - mu) / rho, q), rho > 0, q > 0, msg="rho > 0, q > 0")

    @staticmethod
    def logccdf(value: TensorVariable, mu: TensorVariable, rho: TensorVariable, q: TensorVariable) -> TensorVariable:
        """Give the log-probability of being above the value."""
        return check_parameters(log_lower_tail((mu - value) / rho, q), rho > 0, q > 0, msg="rho > 0, q > 0")

    @staticmethod
    def icdf(value: TensorVariable, mu: TensorVariable, rho: TensorVariable, q: TensorVariable) -> TensorVariable:
        """Give the quantile at the probability ``value``."""
        quantiles = check_icdf_value(mu + rho * quantile(value, q), value)
        return check_icdf_parameters(quantiles, rho > 0, q > 0, msg="rho > 0, q > 0")


class MixedNormRV(SymbolicRandomVariable):
    """Random variable behind `MixedNorm`."""

    name = "mixed_norm"
    extended_signature = "[rng],[size],(),(),()->[rng],(m)"
    _print_name = ("MixedNorm", "\\operatorname{MixedNorm}")

    @classmethod
    def rv_op(cls, strength: Any, q: Any, n_entries: Any, *, size: Any = None, rng: Any = None) -> TensorVariable:
        """Build the graph of a draw: a gamma radius times a direction on the q-sphere."""
        strength, q = as_float_tensor(strength), as_float_tensor(q)
        n_entries = pt.as_tensor(n_entries, dtype="int64", ndim=0)
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        batch = implicit_size_from_params(strength, q, ndims_params=(0, 0)) if rv_size_is_none(size) else size
        next_rng, entries = standard_draws(rng, q[..., None], (*batch, n_entries))
        # The direction of independent standard entries follows the cone measure of the q-sphere.
        direction = entries / row_norm(entries, q)[..., None]
        scale = 1.0 / check_icdf_parameters(strength, strength > 0, msg="strength > 0")
        next_rng, radius = pt.random.gamma(n_entries, scale=scale, size=batch, rng=next_rng, return_next_rng=True)
        return cls(inputs=[rng, size, strength, q, n_entries], outputs=[next_rng, radius[..., None] * direction])(
            rng, size, strength, q, n_entries
        )


class MixedNorm(Continuous):
    r"""Distribution of a row whose log-density falls with its q-norm.

    .. math::

       p(w \mid \lambda, q) = \frac{\lambda^m \, \Gamma(1 + m/q)}{m! \, [2 \Gamma(1 + 1/q)]^m}
       \exp(-\lambda \|w\|_q), \qquad w \in R^m

    The prior whose negative log-density is the l1,q penalty ``strength * sum_i ||w^i||_q`` when every row of W has it.
    The norm ``||w||_q`` follows Gamma(m, rate = strength), independent of the direction ``w / ||w||_q``. q = 1 is m
    independent Laplace entries; m = 1 is the Laplace distribution at every q.

    Parameters
    ----------
    strength : tensor_like of float
        Rate lambda, > 0; broadcasts over the rows.
    q : tensor_like of float
        Order of the norm, > 0; may be infinite; broadcasts over the rows.
    n_entries : int, optional
        Number m of entries of a row. Read off the last axis of ``shape``, ``dims`` or ``observed`` where one of them
        is given; needed only with ``size`` or with none of them.

    Examples
    --------
    Five rows of three entries, the last row with a prior ten times as strong:

    >>> import pymc as pm
    >>> from bayesmtfs.models import MixedNorm
    >>> rows = MixedNorm.dist([1.0, 1.0, 1.0, 1.0, 10.0], 2.0, shape=(5, 3))
    >>> pm.draw(rows, random_seed=1, mode="FAST_COMPILE").shape
    (5, 3)
    >>> pm.logp(rows, [[1.0, 2.0, 2.0]] * 5).eval(mode="FAST_COMPILE").round(4)
    array([ -6.2242,  -6.2242,  -6.2242,  -6.2242, -26.3164])
    """

    rv_type = MixedNormRV
    rv_op = MixedNormRV.rv_op

    @classmethod
    def dist(cls, strength: Any, q: Any, n_entries: Any = None, **kwargs: Any) -> TensorVariable:
        """Build a variable outside a model; the last axis of ``shape`` is a row."""
        n_entries = get_support_shape_1d(support_shape=n_entries, shape=convert_shape(kwargs.get("shape")))
        if n_entries is None:
            raise ValueError(
                "MixedNorm does not know how many entries a row has; pass shape, dims or observed, whose last axis is "
                "the row, or n_entries"
            )
        return super().dist([as_float_tensor(strength), as_float_tensor(q), n_entries], **kwargs)

    @staticmethod
    def support_point(rv: TensorVariable, *parameters: Variable) -> TensorVariable:
        """Give the row of zeros."""
        return pt.zeros_like(rv)

    @staticmethod
    def logp(
        value: TensorVariable, strength: TensorVariable, q: TensorVariable, n_entries: TensorVariable
    ) -> TensorVariable:
        """Give the log-density of every row."""
        m = value.shape[-1].astype(config.floatX)
        log_normaliser = pt.gammaln(1.0 + m) - pt.gammaln(1.0 + m / q) + m * (log_unit_volume(q) - pt.log(strength))
        log_density = -strength * row_norm(value, q) - log_normaliser
        return check_parameters(log_density, strength > 0, q > 0, msg="strength > 0, q > 0")


class MatrixGeneralizedNormalRV(SymbolicRandomVariable):
    """Random variable behind `MatrixGeneralizedNormal`."""

    name = "matrix_generalized_normal"
    extended_signature = "[rng],[size],(p),(m,m),()->[rng],(p,m)"
    _print_name = ("MatrixGeneralizedNormal", "\\operatorname{MatrixGeneralizedNormal}")

    @classmethod
    def rv_op(cls, row_scale: Any, task_factor: Any, q: Any, *, size: Any = None, rng: Any = None) -> TensorVariable:
        """Build the graph of a draw."""
        row_scale, task_factor, q = as_float_tensor(row_scale), as_float_tensor(task_factor), as_float_tensor(q)
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        parameters = (row_scale, task_factor, q)
        batch = implicit_size_from_params(*parameters, ndims_params=cls.ndims_params) if rv_size_is_none(size) else size
        shape = (*batch, row_scale.shape[-1], task_factor.shape[-1])
        next_rng, standard = standard_draws(rng, q[..., None, None], shape)
        row_factor = check_icdf_parameters(row_scale, row_scale > 0, msg="row_scale > 0")[..., :, None]
        draws = row_factor * (standard @ task_factor)
        return cls(inputs=[rng, size, *parameters], outputs=[next_rng, draws])(rng, size, *parameters)


class MatrixGeneralizedNormal(Continuous):
    r"""Matrix-variate generalized normal distribution of W (features by tasks).

    .. math::

       W = \mathrm{diag}(\rho) \, Z \, \Omega, \qquad z_{ij} \sim GN(0, 1, q) \text{ independent}

       \ln p(W) = -\sum_{ij} |z_{ij}|^q - p m \ln(2 \Gamma(1 + 1/q)) - m \sum_i \ln \rho_i - p \ln |\det \Omega|,
       \qquad Z = \mathrm{diag}(1/\rho) \, W \, \Omega^{-1}

    At q = 2 row i is normal with covariance ``rho_i^2 / 2 * Omega^T Omega`` (Zhang, Yeung and Xu 2010 print
    ``Omega Omega^T``, which does not agree with the exponent of their own density). ``(rho, Omega)`` and
    ``(c rho, Omega / c)`` are the same distribution: fix the scale of one of them.

    Parameters
    ----------
    row_scale : tensor_like of float
        Scales rho of the rows, (..., p), > 0.
    task_factor : tensor_like of float
        Invertible matrix Omega, (..., m, m), such as the symmetric square root of a task correlation matrix.
    q : tensor_like of float
        Shape, > 0; may be infinite.

    Examples
    --------
    >>> import pymc as pm
    >>> from bayesmtfs.models import MatrixGeneralizedNormal
    >>> W = MatrixGeneralizedNormal.dist([1.0, 2.0, 3.0], [[1.0, 0.5], [0.0, 1.0]], 2.0)
    >>> pm.draw(W, random_seed=1, mode="FAST_COMPILE").shape
    (3, 2)
    """

    rv_type = MatrixGeneralizedNormalRV
    rv_op = MatrixGeneralizedNormalRV.rv_op

    @classmethod
    def dist(cls, row_scale: Any, task_factor: Any, q: Any, **kwargs: Any) -> TensorVariable:
        """Build a variable outside a model."""
        row_scale, task_factor = as_float_tensor(row_scale), as_float_tensor(task_factor)
        if row_scale.ndim < 1:
            raise ValueError("row_scale is a single number; pass one scale per row, shape (p,)")
        if task_factor.ndim < 2:
            raise ValueError(f"task_factor has {task_factor.ndim} dimensions; pass a square matrix, shape (m, m)")
        return super().dist([row_scale, task_factor, as_float_tensor(q)], **kwargs)

    @staticmethod
    def support_point(rv: TensorVariable, *parameters: Variable) -> TensorVariable:
        """Give the matrix of zeros."""
        return pt.zeros_like(rv)

    @staticmethod
    def logp(
        value: TensorVariable, row_scale: TensorVariable, task_factor: TensorVariable, q: TensorVariable
    ) -> TensorVariable:
        """Give the log-density of the matrix."""
        scaled = value / row_scale[..., :, None]
        # Z Omega = diag(1/rho) W, solved as Omega^T Z^T = (diag(1/rho) W)^T.
        standard = pt.linalg.solve(task_factor.mT, scaled.mT, b_ndim=2).mT
        log_determinant = pt.linalg.slogdet(task_factor)[1]
        p, m = (value.shape[axis].astype(config.floatX) for axis in (-2, -1))
        log_density = (
            -pt.sum(absolute_power(standard, q[..., None, None]), axis=(-2, -1))
            - p * m * log_unit_volume(q)
            - m * pt.sum(pt.log(row_scale), axis=-1)
            - p * log_determinant
        )
        # A singular factor would have infinite density; it is no parameter of the distribution.
        invertible = log_determinant > -np.inf
        message = "row_scale > 0, q > 0, task_factor invertible"
        return check_parameters(log_density, row_scale > 0, q > 0, invertible, msg=message)


# ---------------------------------------------------------------------- powers, norms and tails, safe at 0 and far out


def absolute_power(u: TensorVariable, q: TensorVariable) -> TensorVariable:
    """Give ``|u|^q``, with derivative 0 at u = 0; at q = inf it is 0 inside [-1, 1] and infinite outside."""
    size = pt.abs(u)
    # The inner switch keeps 0^(q - 1) and ln 0 out of the gradient, the outer one puts the value right.
    power = pt.switch(size > 0, pt.switch(size > 0, size, 1.0) ** finite_exponent(q), 0.0)
    return pt.switch(pt.isinf(q), pt.switch(size > 1, np.inf, 0.0), power)


def finite_exponent(q: TensorVariable) -> TensorVariable:
    """Replace q = inf by 1, so that a branch that is not taken stays finite together with its gradient."""
    return pt.switch(pt.isinf(q), 1.0, q)


def row_norm(w: TensorVariable, q: TensorVariable) -> TensorVariable:
    """Give ``||w||_q`` (...) over the last axis of w (..., m), with gradient 0 at w = 0.

    The entries are divided by the largest one first, so that no power overflows or vanishes.
    """
    largest = pt.max(pt.abs(w), axis=-1)
    # The norm does not depend on the number it is scaled by, so that number is a constant to the gradient.
    scale = disconnected_grad(pt.switch(largest > 0, largest, 1.0))
    finite_q = finite_exponent(q)
    power_sum = pt.sum(absolute_power(w / scale[..., None], finite_q[..., None]), axis=-1)
    root = pt.switch(largest > 0, power_sum, 1.0) ** (1.0 / finite_q)
    return pt.switch(pt.isinf(q), largest, pt.switch(largest > 0, scale * root, 0.0))


def log_unit_volume(q: TensorVariable) -> TensorVariable:
    """Give ``ln(2 Gamma(1 + 1/q))``: the log-normaliser of one standard generalized normal entry."""
    return np.log(2.0) + pt.gammaln(1.0 + 1.0 / q)


def log_lower_tail(u: TensorVariable, q: TensorVariable) -> TensorVariable:
    """Give ``ln P(z <= u)`` for a standard generalized normal z, accurate also where the probability underflows."""
    finite_q = finite_exponent(q)
    inverse_q = 1.0 / finite_q
    x = absolute_power(u, finite_q)
    central = x < LINEAR_CENTRE
    slope = 0.5 / pt.gamma(1.0 + inverse_q)
    log_centre = pt.log(0.5 + slope * pt.switch(central, u, 0.0))

    two_sided = pt.gammaincc(inverse_q, pt.switch(central, 1.0, x))
    far = two_sided < SMALLEST_TAIL
    log_two_sided = pt.switch(far, log_far_tail(inverse_q, x, far), pt.log(pt.switch(far, 1.0, two_sided)))
    log_outside = pt.switch(u < 0, np.log(0.5) + log_two_sided, pt.log1p(-0.5 * two_sided))

    log_uniform = pt.log(pt.clip(0.5 * (1.0 + u), 0.0, 1.0))
    return pt.switch(pt.isinf(q), log_uniform, pt.switch(central, log_centre, log_outside))


def log_far_tail(a: TensorVariable, x: TensorVariable, far: TensorVariable) -> TensorVariable:
    """Give ``ln Q(a, x)`` far out by the continued fraction of the incomplete gamma function.

    ``Gamma(a, x) = e^-x x^a / (x + 1 - a - 1(1 - a) / (x + 3 - a - 2(2 - a) / (x + 5 - a - ...)))``
    (Abramowitz and Stegun 6.5.31 after an even contraction).
    """
    # Outside the far region any point where the fraction is well behaved will do.
    x_far = pt.switch(pt.and_(far, x < np.inf), x, 600.0 + 2.0 * a)
    denominator = x_far + 2 * FRACTION_LEVELS + 1 - a
    for level in range(FRACTION_LEVELS, 0, -1):
        denominator = x_far + 2 * level - 1 - a - level * (level - a) / denominator
    log_tail = -x_far + a * pt.log(x_far) - pt.gammaln(a) - pt.log(denominator)
    return pt.switch(x < np.inf, log_tail, -np.inf)


def quantile(probability: TensorVariable, q: TensorVariable) -> TensorVariable:
    """Give the u with ``P(z <= u) = probability`` for a standard generalized normal z; -inf and inf at 0 and 1."""
    finite_q = finite_exponent(q)
    inverse_q = 1.0 / finite_q
    inside = pt.abs(2.0 * probability - 1.0)
    outside = 2.0 * pt.minimum(probability, 1.0 - probability)
    x = pt.switch(inside < 0.5, pt.gammaincinv(inverse_q, inside), pt.gammainccinv(inverse_q, outside))
    size = pt.switch(x < LINEAR_CENTRE, inside * pt.gamma(1.0 + inverse_q), x**inverse_q)
    return pt.sign(probability - 0.5) * pt.switch(pt.isinf(q), inside, size)
