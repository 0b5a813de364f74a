"""Penalties on the rows of W: rows that are zero as a whole, a choice of the norm within a row, single zeros in it.

The penalty is ``lam * sum_i c_i (||w^i||_q + r_i ||w^i||_1)`` with 1 <= q <= inf and row weights c. Without the second
term (r = 0) it is the l_{1,q} norm of Zhang, Yeung and Xu 2010, problem (1) (q = 2: Obozinski, Taskar and Jordan 2006;
q = inf: Turlach, Venables and Wright 2005), up to a constant minus the logarithm of `models.MixedNorm`. The proximal step
of a row is in :mod:`bayesmtfs.priors.row_prox`.

With a task sparsity r > 0, at q = 2, it also selects the tasks that use a feature (MTFTS, Yang, King and Lyu 2010; the
sparse group lasso of Friedman, Hastie and Tibshirani 2010 up to the scale of r). Its proximal step is a soft threshold
followed by a scaling of the row, their eq. (12) and (11).
"""

import math
from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Self

import numpy as np

from bayesmtfs.priors.row_prox import ZERO_SLACK, prox_rows
from bayesmtfs.types import FloatArray, IntArray


class RowCurvature(NamedTuple):
    """Hessian ``diag(diagonal_i) - scale_i direction_i direction_i'`` of a penalty at each of some rows.

    A row may take several lines of the arrays: ``starts`` (R + 1,) then says where each begins.
    """

    diagonal: FloatArray  # (R, k), or (R, 1) where it is the same for all entries; inf holds an entry in its place
    scale: FloatArray  # (R,)
    direction: FloatArray  # (R, k)
    starts: IntArray | None = None


class Penalty(ABC):
    """A norm of every row of a matrix (R, k), times a strength; a user's own penalty is a subclass.

    With its value, dual norm and proximal step it runs through the generic convex solver, certificate included. A row
    may be padded with zeros, which must change nothing.

    Attributes
    ----------
    strength : float
        Penalty strength lam, at least 0.
    has_row_steps : bool
        Whether the penalty is one of those that the compiled row steps know, described by ``norm_q``, ``task_sparsity``
        and ``weights``.

    Examples
    --------
    >>> class Lasso(Penalty):
    ...     def __init__(self, strength=1.0):
    ...         self.strength = strength
    ...
    ...     def value(self, rows):
    ...         return self.strength * float(np.abs(rows).sum())
    ...
    ...     def dual_norm(self, rows):
    ...         return np.abs(rows).max(axis=1)
    ...
    ...     def prox(self, rows, step):
    ...         return soft_threshold(rows, step * self.strength)
    >>> Lasso().with_strength(0.5).value(np.array([[3.0, -4.0]]))
    3.5
    """

    strength: float
    has_row_steps: ClassVar[bool] = False

    @abstractmethod
    def value(self, rows: FloatArray) -> float:
        """Penalty, strength included."""

    @abstractmethod
    def dual_norm(self, rows: FloatArray) -> FloatArray:
        """Smallest strength (R,) at which this row of the gradient keeps the coefficients at zero."""

    @abstractmethod
    def prox(self, rows: FloatArray, step: float | FloatArray) -> FloatArray:
        """Proximal point ``argmin_z 1/2 ||z - rows||^2 + step * penalty(z)``, as a new array."""

    def with_strength(self, strength: float) -> Self:
        """Return the same penalty at another strength."""
        other = copy(self)
        other.strength = strength
        return other


@dataclass(frozen=True, eq=False)
class RowPenalty(Penalty):
    """Penalty ``strength * sum_i weights_i (||w^i||_q + task_sparsity_i ||w^i||_1)`` on the rows of a matrix (R, k).

    Parameters
    ----------
    strength : float
        Penalty strength lam, at least 0.
    norm_q : float
        Norm within a row, in [1, inf].
    task_sparsity : float or (R,) array
        Weight r of the 1-norm against the 2-norm, at least 0; anything above 0 needs ``norm_q=2``.
    weights : (R,) array, optional
        Factor of the strength per row, at least 0, as majorisation-minimisation needs it. None: 1 for every row.

    Examples
    --------
    >>> import numpy as np
    >>> prior = RowPenalty(strength=1.0, norm_q=2)
    >>> rows = np.array([[3.0, 4.0], [0.3, 0.4]])
    >>> prior.value(rows)
    5.5
    >>> prior.prox(rows, step=1.0)
    array([[2.4, 3.2],
           [0. , 0. ]])
    >>> RowPenalty(1.0, task_sparsity=0.5).prox(np.array([[4.5, 3.5, 0.4], [0.9, 0.8, 0.7]]), step=1.0)
    array([[3.2, 2.4, 0. ],
           [0. , 0. , 0. ]])
    """

    strength: float
    norm_q: float = 2.0
    task_sparsity: float | FloatArray = 0.0
    weights: FloatArray | None = None

    has_row_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_strength(self.strength)
        check_norm_q(self.norm_q, smallest=1.0)
        check_not_negative("task_sparsity", self.task_sparsity, ", such as 0.1 (0: whole rows only)")
        if self.weights is not None and not all_not_negative(self.weights):
            raise ValueError(
                "weights has entries that are negative, infinite or NaN; pass finite weights of at least 0"
            )
        if self.entrywise and self.norm_q != 2.0:
            raise ValueError(
                f"task_sparsity is {self.task_sparsity} and norm_q is {self.norm_q}, but it is defined with norm_q=2 "
                "only; pass norm_q=2, or task_sparsity=0"
            )

    @cached_property
    def entrywise(self) -> bool:
        """Whether single entries are penalised, too: some task sparsity is above 0."""
        if isinstance(self.task_sparsity, float | int):  # by far the commonest, and asked often
            return self.task_sparsity > 0.0
        return bool(np.any(np.asarray(self.task_sparsity) > 0.0))

    @property
    def is_euclidean(self) -> bool:
        """Whether the penalty is the 2-norm of each row, weights apart."""
        return self.norm_q == 2.0 and not self.entrywise

    def value(self, rows: FloatArray) -> float:
        """Penalty, strength and weights included."""
        norms = self.norms(rows)
        if self.entrywise:
            norms = norms + self.sparsities(len(rows)) * row_norms(rows, 1.0)
        return float(self.strengths(len(rows)) @ norms)

    def norms(self, rows: FloatArray) -> FloatArray:
        """q-norm (R,) of every row, without strength and weights."""
        return row_norms(rows, self.norm_q)

    def dual_norm(self, rows: FloatArray) -> FloatArray:
        """The q*-norm (R,) of every row, ``1/q + 1/q* = 1``, over its weight; or that of `_sparse_dual_norms`."""
        if self.entrywise:
            norms = _sparse_dual_norms(rows, self.sparsities(len(rows)))
        elif self.norm_q == 2.0:
            norms = _euclidean_norms(rows)
        else:
            norms = row_norms(rows, dual_exponent(self.norm_q))
        return norms if self.weights is None else divided_by_weights(norms, self.weights)

    def largest_dual_norm(self, n_entries: int) -> float:
        """Bound of the dual norm of a row of so many entries and Euclidean length 1, without weights."""
        return float(n_entries ** max(1.0 / dual_exponent(self.norm_q) - 0.5, 0.0))

    def strengths(self, n_rows: int) -> FloatArray:
        """Strength times weight (R,) of every row."""
        return self.strength * per_row("weights", 1.0 if self.weights is None else self.weights, n_rows)

    def sparsities(self, n_rows: int) -> FloatArray:
        """Task sparsity (R,) of every row."""
        return per_row("task_sparsity", self.task_sparsity, n_rows)

    def with_strength(self, strength: float) -> Self:
        """Return the same penalty at another strength."""
        return replace(self, strength=strength)

    def take(self, rows: IntArray) -> Self:
        """Return the penalty of some of the rows."""
        one_for_all = isinstance(self.task_sparsity, float | int) or np.ndim(self.task_sparsity) == 0
        if self.weights is None and one_for_all:
            return self
        weights = None if self.weights is None else self.weights[rows]
        sparsity = self.task_sparsity if one_for_all else np.asarray(self.task_sparsity)[rows]
        return replace(self, weights=weights, task_sparsity=sparsity)

    def is_like(self, other: Self) -> bool:
        """Whether two penalties differ in their strength at most."""
        same_norm = self.norm_q == other.norm_q and self.weights is other.weights
        return same_norm and (self.task_sparsity is other.task_sparsity or not (self.entrywise or other.entrywise))

    def prox(self, rows: FloatArray, step: float | FloatArray) -> FloatArray:
        """Proximal point ``argmin_z 1/2 ||z - rows||^2 + sum_i step_i penalty_i(z^i)`` as a new array, steps (R,) or one.

        Rows are exactly zero where their dual norm is at most the step times the strength.
        """
        steps = per_row("step", step, len(rows))
        if not np.all(steps >= 0.0):
            raise ValueError("step has negative entries or NaN; pass steps of at least 0")
        thresholds = steps * self.strengths(len(rows))
        if self.entrywise:
            return _sparse_prox(np.asarray(rows, dtype=np.float64), thresholds, self.sparsities(len(rows)))
        points = np.array(rows, dtype=np.float64, order="C")
        prox_rows(points, thresholds, float(self.norm_q))
        return points

    def gradient(self, rows: FloatArray, tied: float = 0.0) -> FloatArray:
        """Gradient (R, k), or a subgradient at a kink: 0 for entries that are 0.

        At q = inf entries count as the largest of their row up to a relative difference ``tied``, and share evenly.
        """
        norms = self.norms(rows)[:, np.newaxis]
        units = np.abs(rows) / np.where(norms > 0.0, norms, 1.0)
        if self.norm_q == np.inf:
            largest = units >= 1.0 - tied
            sizes = largest / np.maximum(largest.sum(axis=1, keepdims=True), 1)
        else:
            sizes = units ** (self.norm_q - 1.0)
        if self.entrywise:
            sizes = sizes + self.sparsities(len(rows))[:, np.newaxis]
        return self.strengths(len(rows))[:, np.newaxis] * sizes * np.sign(rows)

    def curvature(self, rows: FloatArray, stiff: float, tied: float = 0.0) -> RowCurvature:
        """Curvature at rows that are not zero, on which Newton steps of quadratic models rest.

        For 1 < q < inf and ``u = |w| / ||w||_q`` the Hessian of a row is ``lam (q - 1) / ||w||_q [diag(u^(q-2)) - z z']``
        with ``z = sign(w) u^(q-1)``. Entries stay where the penalty has a kink: zeros at q = 1 are held, and those that
        share the largest absolute value at q = inf, up to a relative difference ``tied``, are bound to each other.
        ``stiff`` is the curvature that binds entries, and above which they are held.
        """
        q, sizes, norms = self.norm_q, np.abs(rows), self.norms(rows)
        if q == 1.0 or rows.shape[1] == 1:
            return RowCurvature(np.where(sizes > 0, 0.0, np.inf), np.ones(len(rows)), np.zeros_like(rows))
        units = sizes / norms[:, np.newaxis]
        if q == np.inf:
            largest = units >= 1.0 - tied
            counts = largest.sum(axis=1, keepdims=True)
            bound = largest & (counts > 1)
            direction = np.where(bound, np.sign(rows), 0.0) / np.sqrt(counts)
            return RowCurvature(np.where(bound, stiff, 0.0), np.full(len(rows), stiff), direction)
        scale = np.minimum((q - 1.0) * self.strengths(len(rows)) / norms, stiff)
        diagonal = scale[:, np.newaxis]
        if self.entrywise:
            diagonal = np.where(sizes > 0, diagonal, np.inf)
        elif q != 2.0:
            with np.errstate(divide="ignore"):
                diagonal = diagonal * units ** (q - 2.0)
            diagonal = np.where(diagonal > stiff, np.inf, diagonal)
        return RowCurvature(diagonal, scale, np.sign(rows) * units ** (q - 1.0))


def own_penalty(penalty: Penalty | None, strength: float, norm_q: float, task_sparsity: float | FloatArray) -> Penalty:
    """A user's own penalty at a strength, or where there is none the one that norm and task sparsity describe."""
    if penalty is None:
        return RowPenalty(strength, norm_q, task_sparsity)
    if not isinstance(penalty, Penalty):
        raise TypeError(
            f"penalty is a {type(penalty).__name__}; pass an object of a subclass of bayesmtfs.priors.Penalty"
        )
    check_strength(strength)
    return penalty.with_strength(strength)


def row_norms(rows: FloatArray, norm_q: float) -> FloatArray:
    """q-norm (R,) of every row, for any q > 0, scaled so that no power over- or underflows."""
    values = np.asarray(rows, dtype=np.float64)
    short = values.shape[1] < values.shape[0]  # a reduction of each short row by itself costs more than its arithmetic
    sizes, axis = (np.abs(values.T, order="C"), 0) if short else (np.abs(values), 1)
    peaks: FloatArray = np.max(sizes, axis=axis, initial=0.0)
    if norm_q == np.inf:
        return peaks
    sizes /= np.expand_dims(np.where(peaks > 0.0, peaks, 1.0), axis)
    powers: FloatArray = np.sum(np.square(sizes, out=sizes) if norm_q == 2.0 else sizes**norm_q, axis=axis)
    return peaks * (np.sqrt(powers) if norm_q == 2.0 else powers ** (1.0 / norm_q))


def _euclidean_norms(rows: FloatArray) -> FloatArray:
    """2-norm (R,) of every row, by the short way where the largest can neither over- nor underflow."""
    with np.errstate(over="ignore"):
        norms: FloatArray = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return norms if 1e-100 < norms.max(initial=0.0) < 1e100 else row_norms(rows, 2.0)


def row_sizes(rows: FloatArray, sizes: IntArray | None) -> IntArray:
    """Entries per row (R,) that count: ``sizes``, or the number of columns where it is None."""
    n_rows, n_columns = np.shape(rows)
    if sizes is None:
        return np.full(n_rows, n_columns)
    if np.shape(sizes) != (n_rows,):
        raise ValueError(f"sizes has shape {np.shape(sizes)} but there are {n_rows} rows; pass one size per row")
    return np.asarray(sizes)


def soft_threshold(values: FloatArray, threshold: float | FloatArray) -> FloatArray:
    """``sign(values) (|values| - threshold)_+``, entry by entry."""
    return np.sign(values) * np.maximum(np.abs(values) - threshold, 0.0) + 0.0  # no zero with a sign


def dual_exponent(norm_q: float) -> float:
    """Exponent q* of the dual norm, ``1/q + 1/q* = 1``."""
    if norm_q == 1.0:
        return math.inf
    return 1.0 if norm_q == math.inf else norm_q / (norm_q - 1.0)


def log_entry_volume(norm_q: float) -> float:
    """``ln(2 Gamma(1 + 1/q))``, the integral of ``exp(-|z|^q)`` over the real line; ln 2 at q = inf."""
    return math.log(2.0) + math.lgamma(1.0 + 1.0 / norm_q)


def per_row(name: str, values: float | FloatArray, n_rows: int) -> FloatArray:
    """One number per row (R,), from one number for all or one per row; ``name`` is the argument they came as."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim == 0:
        return np.full(n_rows, numbers)
    if numbers.shape != (n_rows,):
        raise ValueError(f"{name} has shape {numbers.shape} but there are {n_rows} rows; pass one number per row")
    return numbers


def divided_by_weights(norms: FloatArray, weights: FloatArray) -> FloatArray:
    """``norms / weights`` with 0 / 0 = 0: a row without weight is held at zero by a zero gradient only."""
    if np.all(weights):
        return norms / weights
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(norms == 0.0, 0.0, norms / weights)


def check_strength(strength: float) -> None:
    """Refuse a penalty strength that is negative, infinite or not a number."""
    check_not_negative("penalty_strength", strength, ", such as 0.1 (0 means no penalty)")


def check_not_negative(name: str, numbers: float | FloatArray, advice: str) -> None:
    """Refuse numbers that are negative, infinite or not a number."""
    if not all_not_negative(numbers):
        raise ValueError(f"{name} is {numbers}; pass a finite number of at least 0{advice}")


def all_not_negative(numbers: float | FloatArray) -> bool:
    """Whether all numbers are finite and at least 0."""
    if isinstance(numbers, float | int):
        return 0.0 <= numbers < math.inf
    return bool(np.all(np.isfinite(numbers)) and np.all(np.asarray(numbers) >= 0.0))


def check_norm_q(norm_q: float, smallest: float) -> None:
    """Refuse a norm below ``smallest`` (or not above 0 where that is 0) or not a number."""
    if not (norm_q >= smallest and norm_q > 0.0):
        wanted = "a number above 0" if smallest == 0.0 else f"a number of at least {smallest:g}"
        raise ValueError(f"norm_q is {norm_q}; pass {wanted}, such as 2, or np.inf for the largest entry")


def _sparse_prox(rows: FloatArray, row_thresholds: FloatArray, sparsities: FloatArray) -> FloatArray:
    """Soft threshold by ``t r`` (eq. 12), then scaling by ``(1 - t / norm)_+`` (eq. 11)."""
    shrunk = soft_threshold(rows, (row_thresholds * sparsities)[:, np.newaxis])
    norms = row_norms(shrunk, 2.0)
    kept = norms > row_thresholds * (1.0 + ZERO_SLACK * (1.0 + sparsities))
    factors = np.where(kept, norms - row_thresholds, 0.0) / np.where(kept, norms, 1.0)
    return factors[:, np.newaxis] * shrunk + 0.0  # no zero with a sign


def _sparse_dual_norms(rows: FloatArray, sparsities: FloatArray) -> FloatArray:
    """Smallest t with ``||soft(v, t r)||_2 <= t`` of every row v.

    With the entries sorted by size, entry k is above its threshold at the solution exactly where
    ``r^2 sum_{j<k} (|v_j| - |v_k|)^2 < v_k^2``; the entries above it leave a quadratic in t.
    """
    sizes = np.sort(np.abs(np.asarray(rows, dtype=np.float64)), axis=1)[:, ::-1]
    peaks = sizes[:, 0]
    sizes = sizes / np.where(peaks > 0.0, peaks, 1.0)[:, np.newaxis]
    places, sums, squares = np.arange(1, sizes.shape[1] + 1), np.cumsum(sizes, axis=1), np.cumsum(sizes**2, axis=1)
    spread_above = squares - 2.0 * sizes * sums + places * sizes**2
    above = (sparsities[:, np.newaxis] ** 2 * spread_above < sizes**2) | (places == 1)
    counts = np.sum(above, axis=1)
    last = (np.arange(len(sizes)), counts - 1)
    total, square = sums[last], squares[last]
    deviations = np.where(places <= counts[:, np.newaxis], sizes - (total / counts)[:, np.newaxis], 0.0)
    # t = S2 / (r S1 + sqrt(r^2 S1^2 - (k r^2 - 1) S2)), the root written without cancellation
    discriminant = square - sparsities**2 * counts * np.sum(deviations**2, axis=1)
    denominator = sparsities * total + np.sqrt(np.maximum(discriminant, 0.0))
    return peaks * (square / np.where(denominator > 0.0, denominator, 1.0))
