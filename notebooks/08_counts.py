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
# # Counts: how often, for how long, and what drives it
#
# **Question.** Ten clinics count the visits of their patients, over years that differ from patient to patient. Which of 100
# measurements go with more visits, and what does it cost to take counts for numbers?
#
# The counts are simulated: eight measurements matter, each with its own effect in every clinic, and patients differ beyond
# what is measured (a negative binomial of dispersion 1: the variance of a count of mean mu is mu + mu^2).

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import nbinom

import bayesmtfs as bm

FULL = os.environ.get("BAYESMTFS_FULL") == "1"
N_CLINICS, N_PATIENTS, N_MEASURED, N_RELEVANT = 10, 80, 100, 8

rng = np.random.default_rng(3)
X = rng.normal(size=(N_CLINICS * N_PATIENTS, N_MEASURED))
clinic = np.repeat([f"clinic {k}" for k in range(N_CLINICS)], N_PATIENTS)
truth = np.zeros((N_MEASURED, N_CLINICS))
truth[:N_RELEVANT] = 0.4 * rng.normal(size=(N_RELEVANT, N_CLINICS))
years = rng.uniform(0.5, 5.0, len(X))
rate = np.exp(0.5 + np.sum(X * truth.T[np.repeat(np.arange(N_CLINICS), N_PATIENTS)], axis=1))
visits = rng.poisson(years * rate * rng.gamma(1.0, 1.0, len(X))).astype(float)
frame = pd.DataFrame(X, columns=[f"m{i}" for i in range(N_MEASURED)]).assign(years=years)

# %% [markdown]
# ## Exposure
#
# A patient who was followed for four years has about four times the visits of one who was followed for one. That is no
# effect to be learned but a known factor: `exposure="years"` names the column, and the model is
# `visits ~ years * exp(x'w + b)`. The coefficients then speak of visits per year.

# %%
cv = {"n_penalties": 50 if FULL else 20, "penalty_ratio": 0.03, "cv": 5, "random_state": 0}
fits = {
    "Gaussian, ln(y + 1)": bm.MixedNormRegressorCV(**cv).fit(frame, np.log1p(visits), tasks=clinic),
    "Poisson": bm.MixedNormRegressorCV(loss="poisson", **cv).fit(frame, visits, tasks=clinic, exposure="years"),
    "negative binomial": bm.MixedNormRegressorCV(loss="negative_binomial", **cv).fit(
        frame, visits, tasks=clinic, exposure="years"
    ),
}

# %% [markdown]
# ## What is found
#
# Features in the order of their rows' norms. The Gaussian fit also has to explain the years, as a feature among others.

# %%
fig, axes = plt.subplots(1, 3, figsize=(12, 3.2), layout="constrained")
for ax, (name, fit) in zip(axes, fits.items(), strict=True):
    norms = np.linalg.norm(fit.coef_[:, :N_MEASURED], axis=0)
    relevant = np.arange(N_MEASURED) < N_RELEVANT
    ax.vlines(np.flatnonzero(relevant), 0, norms[relevant], color="C0", lw=3, label="matters")
    ax.vlines(np.flatnonzero(~relevant), 0, norms[~relevant], color="0.6", lw=1.5, label="does not")
    ax.set(title=name, xlabel="measurement", ylabel="norm of the row")
axes[0].legend()

# %%
pd.DataFrame(
    {
        name: {
            "relevant kept": int((np.linalg.norm(fit.coef_[:, :N_RELEVANT], axis=0) > 0).sum()),
            "others kept": int((np.linalg.norm(fit.coef_[:, N_RELEVANT:N_MEASURED], axis=0) > 0).sum()),
        }
        for name, fit in fits.items()
    }
).T

# %% [markdown]
# ## Predictions
#
# `predict` gives expected visits over the years of each row, `score` the share of the deviance that is explained (D2): 0
# for one rate for all, 1 for a perfect fit. Without the column (or with `exposure=`) predictions are for other times.

# %%
counts = fits["negative binomial"]
print(f"D2 {counts.score(frame, visits, tasks=clinic):.2f}")
print("expected in their own years:", counts.predict(frame, tasks=clinic)[:3].round(1))
print("expected in one year:       ", counts.predict(frame.drop(columns="years"), tasks=clinic)[:3].round(1))

# %% [markdown]
# ## Which of the two families?
#
# Poisson counts vary as much as their mean. Where they vary more, Poisson errors are too small, and large counts pull
# harder than they should: above, the Poisson fit keeps more measurements that do not matter. How much more they vary is
# seen from the probabilities of the counts at the fitted means, for several dispersions (near 0 is Poisson).

# %%
mean = counts.predict(frame, tasks=clinic)
dispersions = np.geomspace(0.05, 5.0, 40)
log_probability = [np.mean(nbinom.logpmf(visits, 1 / a, 1 / (1 + a * mean))) for a in dispersions]
fig, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
ax.semilogx(dispersions, log_probability)
ax.set(xlabel="dispersion", ylabel="mean log-probability")
print(f"best dispersion {dispersions[int(np.argmax(log_probability))]:.2f} (the counts were made with 1)")

# %% [markdown]
# A posterior is `bm.BayesianRegressor(loss="negative_binomial(1)").fit(frame, visits, tasks=clinic, exposure="years")`:
# `docs/pages/which_family.md` says which routes each family has.
