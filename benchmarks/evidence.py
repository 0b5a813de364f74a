"""M-SBL on an EEG lead field, and one task of ARD: ours with W integrated out against MNE-Python and scikit-learn.

The lead field is that of a sphere: 128 electrodes of a standard montage, average reference, sources on a volume grid with
one orientation each. MNE's `gamma_map` is told the true noise; ours learns it, one for all times or one for each.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bayesmtfs import JeffreysRegressor

FloatArray = NDArray[np.float64]
GRID = 7.5  # millimetres between neighbouring sources


class Recording(NamedTuple):
    """A simulated recording."""

    design: FloatArray  # (sensors, sources)
    Y: FloatArray  # (sensors, times)
    noise: float
    active: NDArray[np.int64]  # sources


@cache
def lead_field() -> FloatArray:
    """(128, 3 locations) Lead field in three orientations."""
    import mne

    mne.set_log_level("ERROR")
    montage = mne.channels.make_standard_montage("biosemi128")
    info = mne.create_info(montage.ch_names, 500.0, "eeg")
    info.set_montage(montage)
    sphere = mne.make_sphere_model("auto", "auto", info)
    source = mne.setup_volume_source_space(pos=GRID, sphere=sphere, sphere_units="m", mindist=5.0)
    forward = mne.make_forward_solution(info, trans=None, src=source, bem=sphere, eeg=True, meg=False)
    return np.asarray(forward["sol"]["data"])


def recording(n_sources: int, seed: int, n_times: int = 40, n_active: int = 4, snr: float = 4.0) -> Recording:
    """Simulate a few sources that oscillate, and white noise, in average reference."""
    rng, field = np.random.default_rng(seed), lead_field()
    places = np.sort(rng.choice(field.shape[1] // 3, n_sources, replace=False))
    orientation = rng.standard_normal((n_sources, 3))
    orientation /= np.linalg.norm(orientation, axis=1, keepdims=True)
    A = np.stack([field[:, 3 * i : 3 * i + 3] @ v for i, v in zip(places, orientation, strict=True)], axis=1)
    A -= A.mean(axis=0)
    A /= np.linalg.norm(A, axis=0).mean()
    W, clock = np.zeros((n_sources, n_times)), np.arange(n_times) / n_times
    active = rng.choice(n_sources, n_active, replace=False)
    for i in active:
        W[i] = rng.uniform(0.5, 1.5) * np.sin(2 * np.pi * (rng.uniform(1, 3) * clock + rng.random()))
    signal = A @ W
    noise = float(np.sqrt(np.mean(signal**2) / snr))
    Y = signal + noise * rng.standard_normal(signal.shape)
    return Recording(A, Y - Y.mean(axis=0), noise, active)


def seconds(run: Callable[[], Any]) -> float:
    """CPU seconds of a call."""
    begin = time.process_time()
    run()
    return time.process_time() - begin


def against_gamma_map(n_sources: int, seed: int, shared_noise: bool) -> tuple[float, float]:
    """CPU seconds of ours and of MNE's optimiser on one recording."""
    from mne.inverse_sparse._gamma_map import _gamma_map_opt  # the public function wants files of a whole recording

    data = recording(n_sources, seed)
    ours = JeffreysRegressor(
        coefficients="integrated", fit_intercept=False, shared_noise=shared_noise, scale_target=False
    )
    mine = min(seconds(lambda: ours.fit(data.design, data.Y)) for _ in range(2))
    theirs = min(seconds(lambda: _gamma_map_opt(data.Y, data.design, data.noise**2)) for _ in range(1))
    return mine, theirs


def against_ard(n_tasks: int, seed: int) -> tuple[float, float]:
    """CPU seconds of one integrated fit to some tasks, and of scikit-learn's ARDRegression task by task."""
    from sklearn.linear_model import ARDRegression

    rng, n, p = np.random.default_rng(seed), 150, 100
    X = rng.standard_normal((n, p))
    W = np.zeros((p, n_tasks))
    W[rng.choice(p, 8, replace=False)] = rng.standard_normal((8, n_tasks))
    Y = X @ W + rng.standard_normal((n, n_tasks))
    ours = JeffreysRegressor(coefficients="integrated", scale_target=False)
    mine = min(seconds(lambda: ours.fit(X, Y)) for _ in range(3))
    theirs = min(seconds(lambda: [ARDRegression().fit(X, y) for y in Y.T]) for _ in range(3))
    return mine, theirs
