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
# # Survival times: which markers matter, in which hospitals, and for how long one lives
#
# **Question.** Six hospitals follow patients until they die or leave the study. Which of 60 markers go with an early death,
# and what is the chance of a patient to live for another year?
#
# The times are simulated. Five markers matter in all hospitals, with effects of their own; each hospital has its own
# baseline; four of ten patients leave before anything happens.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

import bayesmtfs as bm

FULL = os.environ.get("BAYESMTFS_FULL") == "1"
N_HOSPITALS, N_PATIENTS, N_MARKERS, N_RELEVANT = 6, 100, 60, 5

rng = np.random.default_rng(2)
X = rng.normal(size=(N_HOSPITALS * N_PATIENTS, N_MARKERS))
hospital = np.repeat(np.arange(N_HOSPITALS), N_PATIENTS)
truth = np.zeros((N_MARKERS, N_HOSPITALS))
truth[:N_RELEVANT] = 0.5 + 0.2 * rng.normal(size=(N_RELEVANT, N_HOSPITALS))
risk = np.sum(X * truth.T[hospital], axis=1)
years = rng.exponential((1.0 + hospital) * np.exp(-risk))
leaves = rng.exponential(1.5 * (1.0 + hospital) * np.exp(-0.5 * risk))
y = np.array(
    list(zip(years <= leaves, np.minimum(years, leaves), strict=True)), dtype=[("event", bool), ("time", float)]
)
print(f"{np.mean(~y['event']):.0%} are censored")

# %% [markdown]
# ## A penalised fit
#
# Cox's partial likelihood compares those who die with those who are at risk at that time, within each hospital. The penalty
# keeps or drops a marker in all hospitals at once.

# %%
cv = {"n_penalties": 50 if FULL else 20, "penalty_ratio": 0.03, "cv": 5, "random_state": 0, "rule": "one_se"}
model = bm.MixedNormSurvivalCV(**cv).fit(X, y, tasks=hospital)
alone = [
    bm.MixedNormSurvivalCV(norm_q=1, **cv).fit(X[hospital == h], y[hospital == h]).coef_[0] for h in range(N_HOSPITALS)
]
kept = model.get_support(indices=True)
print("kept together:", kept.tolist(), " concordance", round(model.score(X, y, tasks=hospital), 3))
print("kept by hospital alone:", [int(np.count_nonzero(coef)) for coef in alone])

# %% [markdown]
# ## A posterior of the markers that were kept
#
# The partial likelihood is what is left of the full one when nothing is known of the baselines (Kalbfleisch 1978); its
# posterior is sampled by NUTS, and baselines are drawn along with the coefficients. Looking at the data twice makes the
# intervals a little too sure; with few markers leave the first step out.

# %%
draws = {"draws": 1000 if FULL else 300, "tune": 1000 if FULL else 500, "chains": 2}
markers = kept[:10]
posterior = bm.BayesianSurvival(random_state=0, **draws).fit(X[:, markers], y, tasks=hospital)
fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for place, marker in enumerate(markers):
    at = place + np.linspace(-0.25, 0.25, N_HOSPITALS)
    ax.errorbar(at, posterior.coef_[:, place], 1.645 * posterior.coef_std_[:, place], fmt=".", color="C0")
    ax.plot(at, truth[marker], "k_", ms=8)
ax.set(xlabel="marker", ylabel="log hazard ratio", xticks=range(len(markers)), xticklabels=markers)
ax.set_title("90% intervals by hospital; dashes are the truth")

# %% [markdown]
# ## How long?
#
# The survival function of a patient, with what is not known of coefficients and baseline.

# %%
fig, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for color, patient in zip(("C0", "C1"), (np.argmin(risk), np.argmax(risk)), strict=True):
    row = X[[patient]][:, markers]
    mean, low, high = posterior.predict_survival_function(row, tasks=hospital[[patient]], interval=0.9)
    times = posterior.event_times_
    ax.step(times, mean[0], where="post", color=color)
    ax.fill_between(times, low[0], high[0], step="post", color=color, alpha=0.25, lw=0)
    scale = (1.0 + hospital[patient]) * np.exp(-risk[patient])
    ax.plot(times, np.exp(-times / scale), "--", color=color, lw=1)
ax.set(xlabel="years", ylabel="probability to live on", xlim=(0, 6), title="dashed: the truth")
