# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Where in the brain? EEG sources with MNE-Python
#
# **Question.** 64 electrodes see a mixture of a few small sources somewhere in the head. There are hundreds of places
# where a source may be, and it keeps its place while its strength changes. Which places are active?
#
# That is feature selection for several tasks: a feature is a place, with three columns for the three directions of a
# current; a task is an instant; and a place that is silent is silent at all instants. It is also what `mixed_norm`
# and `gamma_map` of [MNE-Python](https://mne.tools) are for. So: is our $\ell_{1,2}$ norm the same as theirs, and
# what does integrating the coefficients out change?
#
# Everything here is made without a network: a spherical head, a standard cap, a grid of places, simulated sources.

# %%
import os
import time
import warnings

import matplotlib.pyplot as plt
import mne
import numpy as np

import bayesmtfs as bm

mne.set_log_level("ERROR")
FULL = os.environ.get("BAYESMTFS_FULL") == "1"
N_SIMULATIONS = 30 if FULL else 4
NOISE = 1e-6  # volts: the deviation of an electrode

montage = mne.channels.make_standard_montage("biosemi64")
info = mne.create_info(montage.ch_names, 100.0, "eeg").set_montage(montage)
sphere = mne.make_sphere_model(r0="auto", head_radius="auto", info=info)
source_space = mne.setup_volume_source_space(sphere=sphere, pos=15.0, exclude=40.0, mindist=8.0)
forward = mne.make_forward_solution(info, trans=None, src=source_space, bem=sphere, eeg=True, meg=False)
noise_covariance = mne.make_ad_hoc_cov(info, std={"eeg": NOISE})

gain = forward["sol"]["data"]  # electrodes x (places x 3 directions), in volts per ampere-metre
places = forward["source_rr"]
n_places, times = len(places), np.arange(20) / 100
print(f"{len(gain)} electrodes, {n_places} places with 3 directions, {len(times)} instants")

# %% [markdown]
# ## Three sources
#
# Each is a short wave of its own frequency, in a direction of its own, at least 4 cm from the others.


# %%
def simulate(seed):
    """Places of three sources, and what the electrodes record."""
    rng = np.random.default_rng(seed)
    chosen = []
    while len(chosen) < 3:
        new = int(rng.integers(n_places))
        if all(np.linalg.norm(places[new] - places[old]) > 0.04 for old in chosen):
            chosen.append(new)
    currents = np.zeros((n_places, 3, len(times)))
    for number, place in enumerate(chosen):
        direction = rng.standard_normal(3)
        wave = np.sin(2 * np.pi * (5 + 3 * number) * times + rng.uniform(0, 6)) * np.exp(-(((times - 0.1) / 0.06) ** 2))
        currents[place] = 100e-9 * np.outer(direction / np.linalg.norm(direction), wave)
    recorded = gain @ currents.reshape(-1, len(times)) + NOISE * rng.standard_normal((len(gain), len(times)))
    evoked = mne.EvokedArray(recorded, info)
    evoked.set_eeg_reference(projection=True)
    return chosen, currents, evoked


true_places, true_currents, evoked = simulate(seed=1)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.5))
left.plot(1000 * times, 1e6 * evoked.data.T, color="tab:blue", alpha=0.3)
left.set(xlabel="ms", ylabel="microvolt", title="what 64 electrodes record")
strength = 1e9 * np.linalg.norm(true_currents, axis=1)
for place in true_places:
    right.plot(
        1000 * times,
        strength[place],
        label=f"place {place}, {1000 * np.linalg.norm(places[place]):.0f} mm from the origin",
    )
right.set(xlabel="ms", ylabel="nAm", title="the three sources")
right.legend()
plt.show()

# %% [markdown]
# ## From MNE's objects to X and Y
#
# An electrode is a row. Whitening by the noise covariance makes the noise one; deep places get columns of a length
# nearer to that of shallow ones, with the depth prior that MNE's sparse methods use. Four lines, and public functions
# only: an adapter of ours would not make that shorter.

# %%
whitener, _ = mne.cov.compute_whitener(noise_covariance, evoked.info, pca=True)
prior = mne.forward.compute_depth_prior(
    forward, evoked.info, exp=0.8, limit=None, limit_depth_chs="whiten", combine_xyz="fro", noise_cov=noise_covariance
)
X, Y = whitener @ gain * np.sqrt(prior), whitener @ evoked.data
directions = np.repeat(np.arange(n_places), 3)  # the three columns of a place enter or leave together


def currents_of(model):
    """Currents (places, 3, instants), in ampere-metres."""
    return (model.coef_ * np.sqrt(prior)).T.reshape(n_places, 3, -1)


# %% [markdown]
# ## The same problem has the same answer
#
# `mixed_norm` minimises $\frac12 \|Y - XW\|_F^2 + \alpha \sum_{\text{places}} \|W_{\text{place}}\|_F$ with $\alpha$
# in per cent of the strength at which nothing is left. Ours is `loss_scale="sum"`, without intercepts, with the
# places as groups.

# %%
ALPHA = 40.0
started = time.process_time()
dipoles = mne.inverse_sparse.mixed_norm(
    evoked,
    forward,
    noise_covariance,
    alpha=ALPHA,
    loose=1.0,
    debias=False,
    time_pca=False,
    return_as_dipoles=True,
    tol=1e-8,
)
theirs_seconds, started = time.process_time() - started, time.process_time()
largest = np.linalg.norm((X.T @ Y).reshape(n_places, -1), axis=1).max()
settings = {"loss_scale": "sum", "fit_intercept": False, "groups": directions, "tol": 1e-10}
penalised = bm.MixedNormRegressor(penalty_strength=ALPHA / 100 * largest, **settings).fit(X, Y)
ours_seconds = time.process_time() - started


def place_of(dipole):
    """Number of the place of a dipole."""
    return int(np.argmin(np.linalg.norm(places - dipole.pos[0], axis=1)))


ours = np.linalg.norm(currents_of(penalised), axis=1)
theirs = np.zeros_like(ours)
for dipole in dipoles:
    theirs[place_of(dipole)] = dipole.amplitude
difference = np.abs(ours - theirs).max() / theirs.max()
print(
    f"places of MNE: {np.flatnonzero(theirs.any(axis=1)).tolist()}, ours: {np.flatnonzero(ours.any(axis=1)).tolist()}"
)
print(f"largest difference of amplitudes: {difference:.1e} of the largest one")
print(f"CPU s: MNE {theirs_seconds:.2f}, ours {ours_seconds:.2f}")
assert difference < 1e-3

# %% [markdown]
# ## Integrated
#
# With the coefficients integrated out, every place has a variance of its own, and the evidence sets most of them to
# zero (`coefficients="integrated"`; `gamma_map` rests on the same idea, with a noise that is given). A penalty
# shrinks what it keeps and needs a strength, which `mixed_norm` takes from Stein's unbiased estimate of the risk
# (`alpha="sure"`); its rounds of reweighting undo some of the shrinkage.

# %%
evidence = bm.JeffreysRegressor(coefficients="integrated", fit_intercept=False, groups=directions)


def estimates(evoked):
    """Strength by place of each method, and its CPU seconds."""
    Y = whitener @ evoked.data
    common = {
        "evoked": evoked,
        "forward": forward,
        "noise_cov": noise_covariance,
        "loose": 1.0,
        "return_as_dipoles": True,
    }
    theirs = {
        "MNE mixed_norm": lambda: mne.inverse_sparse.mixed_norm(alpha="sure", random_state=0, **common),
        "MNE mixed_norm, 10 rounds": lambda: mne.inverse_sparse.mixed_norm(alpha=ALPHA, n_mxne_iter=10, **common),
        "MNE gamma_map": lambda: mne.inverse_sparse.gamma_map(alpha=1.0, xyz_same_gamma=True, **common),
    }
    found = {}
    for name, estimate in theirs.items():
        started, strength = time.process_time(), np.zeros(n_places)
        for dipole in estimate():
            strength[place_of(dipole)] = np.linalg.norm(dipole.amplitude)
        found[name] = strength, time.process_time() - started
    started = time.process_time()
    strength = np.linalg.norm(currents_of(evidence.fit(X, Y)), axis=(1, 2))
    found["ours, integrated"] = strength, time.process_time() - started
    return found


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of reweighting that is not finished
    found = estimates(evoked)
figure, axes = plt.subplots(1, len(found), figsize=(14, 3.6), sharey=True)
for axis, (name, (strength, _)) in zip(axes, found.items(), strict=True):
    active = np.flatnonzero(strength > 0.01 * strength.max())
    axis.scatter(*(1000 * places[:, :2].T), s=6, color="lightgrey")
    axis.scatter(
        *(1000 * places[active, :2].T), s=150 * strength[active] / strength.max() + 10, color="tab:blue", alpha=0.7
    )
    axis.scatter(*(1000 * places[true_places, :2].T), s=140, marker="+", color="black", linewidth=1.5)
    axis.set(title=f"{name}\n{len(active)} places", xlabel="mm, left to right", aspect="equal")
axes[0].set_ylabel("mm, back to front")
figure.suptitle("seen from above; crosses: the truth", y=1.08)
plt.show()

# %% [markdown]
# ## Over several heads' worth of sources
#
# Two distances: from a true source to the nearest place that was found (missed sources are far), and from a place
# that was found to the nearest true source (false ones are far). The grid has a step of 15 mm.


# %%
def score(strength, chosen):
    """Number of places, mean distance of the truth to what was found, and of what was found to the truth, in mm."""
    active = np.flatnonzero(strength > 0.01 * strength.max())
    apart = 1000 * np.linalg.norm(places[chosen][:, None] - places[active][None], axis=2)
    return len(active), apart.min(axis=1).mean(), apart.min(axis=0).mean()


scores = {}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for seed in range(N_SIMULATIONS):
        chosen, _, recording = simulate(seed)
        for name, (strength, seconds) in estimates(recording).items():
            scores.setdefault(name, []).append((*score(strength, chosen), seconds))

heading = f"mean of {N_SIMULATIONS} recordings"
print(f"{heading:32}{'places':>8}{'truth to found':>16}{'found to truth':>16}{'CPU s':>8}")
for name, rows in scores.items():
    n_found, missed, wrong, seconds = np.mean(rows, axis=0)
    print(f"{name:32}{n_found:8.1f}{missed:13.1f} mm{wrong:13.1f} mm{seconds:8.1f}")

# %% [markdown]
# ## What it says
#
# - The penalised fits are one problem, and agree to the tolerance of the solvers. Take MNE's when you work in MNE;
#   take ours for its certificate, another q, task sparsity, or cross-validation.
# - The two integrated fits find places nearest to the truth, and about as many as there are. `gamma_map` is told the noise,
#   ours learns it. What is left of the distances is the grid's step, and deep sources, for which electrodes cannot tell
#   neighbours apart. A handful of recordings says no more than that; `BAYESMTFS_FULL=1` makes thirty.
# - The sphere, the grid and the independent noise are kinder than a real head. Real noise goes into the whitener.
