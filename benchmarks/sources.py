"""Mixed norm on an EEG lead field: ours against MNE-Python's `mixed_norm_solver`, both to a certified gap of 1e-6.

    minimise over W:   1/2 ||Y - A W||^2 + strength * sum over locations of ||W_location||

One orientation per location, or three that enter together as one group of columns. The lead field and the sources are
those of `evidence`; the penalty is lambda_max over a ``fraction``. Answers are held against the duality gap computed here.
"""

from typing import NamedTuple

import numpy as np
from certificate import TARGET
from evidence import lead_field, seconds
from numpy.typing import NDArray

from bayesmtfs import MixedNormRegressor

FloatArray = NDArray[np.float64]


class Recording(NamedTuple):
    """A simulated recording in average reference."""

    A: FloatArray  # (sensors, locations * n_orient)
    Y: FloatArray  # (sensors, times)
    n_orient: int

    def norms(self, rows: FloatArray) -> FloatArray:
        """(locations,) Frobenius norms of the rows of each location."""
        norms: FloatArray = np.linalg.norm(rows.reshape(-1, self.n_orient * rows.shape[1]), axis=1)
        return norms

    @property
    def largest_penalty(self) -> float:
        """Strength at which all is zero."""
        return float(self.norms(self.A.T @ self.Y).max())

    def relative_gap(self, W: FloatArray, strength: float) -> float:
        """Duality gap of W over the objective at W = 0, by its residuals scaled into the balls."""
        residual = self.Y - self.A @ W
        square, cross = float(np.vdot(residual, residual)), float(np.vdot(residual, self.Y))
        primal = 0.5 * square + strength * float(self.norms(W).sum())
        scale = min(cross / square, strength / float(self.norms(self.A.T @ residual).max()))
        return (primal - scale * cross + 0.5 * scale**2 * square) / (0.5 * float(np.vdot(self.Y, self.Y)))


def recording(n_orient: int, seed: int, n_times: int = 40, n_active: int = 4, snr: float = 4.0) -> Recording:
    """Simulate a few sources that oscillate, and white noise; a fixed orientation is drawn at each location."""
    rng, field = np.random.default_rng(seed), lead_field()
    n_locations = field.shape[1] // 3
    direction = rng.standard_normal((n_locations, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    fixed = np.einsum("slo,lo->sl", field.reshape(len(field), n_locations, 3), direction)
    active = rng.choice(n_locations, n_active, replace=False)
    phase = rng.uniform(1, 3, (n_active, 1)) * np.arange(n_times) / n_times + rng.random((n_active, 1))
    signal = fixed[:, active] @ (rng.uniform(0.5, 1.5, (n_active, 1)) * np.sin(2 * np.pi * phase))
    noise = float(np.sqrt(np.mean((signal - signal.mean(axis=0)) ** 2) / snr))
    Y = signal + noise * rng.standard_normal(signal.shape)
    A = fixed if n_orient == 1 else field
    A = A - A.mean(axis=0)
    size = np.linalg.norm(A, axis=0).mean()
    return Recording(np.ascontiguousarray(A / size), (Y - Y.mean(axis=0)) / size, n_orient)


def against_mixed_norm_solver(n_orient: int, fraction: float, seed: int) -> tuple[float, float]:
    """CPU seconds of ours and of MNE's solver on one recording; MNE's tolerance is an absolute gap."""
    from mne.inverse_sparse.mxne_optim import mixed_norm_solver

    data = recording(n_orient, seed)
    strength = data.largest_penalty / fraction
    groups = None if n_orient == 1 else np.repeat(np.arange(data.A.shape[1] // n_orient), n_orient)
    ours = MixedNormRegressor(penalty_strength=strength, loss_scale="sum", fit_intercept=False, groups=groups)
    mine = min(seconds(lambda: ours.fit(data.A, data.Y)) for _ in range(3))
    _check("bayesmtfs", data, ours.coef_.T, strength)
    tol = TARGET * 0.5 * float(np.vdot(data.Y, data.Y))
    found = []
    settings = {"tol": tol, "maxit": 100_000, "debias": False, "n_orient": n_orient, "verbose": "ERROR"}
    theirs = seconds(lambda: found.append(mixed_norm_solver(data.Y, data.A, strength, **settings)))
    W = np.zeros((data.A.shape[1], data.Y.shape[1]))
    W[found[0][1]] = found[0][0]
    _check("mixed_norm_solver", data, W, strength)
    return mine, theirs


def _check(who: str, data: Recording, W: FloatArray, strength: float) -> None:
    gap = data.relative_gap(W, strength)
    if not gap <= TARGET * (1 + 1e-6):
        raise RuntimeError(f"{who}: a relative gap of {gap:.1e}")
