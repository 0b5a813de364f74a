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
# # Which variants, in which tissues? From z-scores to credible sets
#
# **Question.** Several genetic variants near each other are correlated, and an effect may be there in some tissues only.
# Published tables hold z-scores, not people. Which variants matter, in which tissues, and how sure is that?
#
# 100 simulated variants in blocks of 20 correlated ones, 400 people, 6 tissues. Three variants matter: one in all tissues,
# one in three of them, one in a single tissue.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

import bayesmtfs as bm

FULL = os.environ.get("BAYESMTFS_FULL") == "1"
N_PEOPLE, N_VARIANTS, N_TISSUES = 400, 100, 6
SETTINGS = {"draws": 2000 if FULL else 1000, "tune": 1000, "chains": 4}

rng = np.random.default_rng(8)
block = np.arange(N_VARIANTS) // 20
distance = np.abs(np.subtract.outer(np.arange(N_VARIANTS), np.arange(N_VARIANTS)))
latent = np.where(np.equal.outer(block, block), 0.99**distance, 0.0)
root = np.linalg.cholesky(latent)
X = sum((rng.standard_normal((N_PEOPLE, N_VARIANTS)) @ root.T > 0.5).astype(float) for _ in range(2))

truth = np.zeros((N_VARIANTS, N_TISSUES))
truth[10] = 0.35
truth[47, :3] = -0.4
truth[83, 5] = 0.6
Y = X @ truth + rng.standard_normal((N_PEOPLE, N_TISSUES))

# %% [markdown]
# ## What is published
#
# For every variant and tissue the z-score of a simple regression, and the correlations of the variants. The strongest
# z-scores have strong neighbours: marginal scores cannot tell which variant it is.

# %%
centred = X - X.mean(axis=0)
slopes = centred.T @ (Y - Y.mean(axis=0)) / np.sum(centred**2, axis=0)[:, None]
residual = (Y - Y.mean(axis=0))[:, None, :] - centred[:, :, None] * slopes
errors = np.sqrt(np.sum(residual**2, axis=0) / (N_PEOPLE - 2) / np.sum(centred**2, axis=0)[:, None])
z = slopes / errors

figure, axis = plt.subplots(figsize=(8, 3), layout="constrained")
axis.plot(np.abs(z), ".", markersize=4)
axis.set(xlabel="variant", ylabel="|z|, one colour per tissue")
for variant in np.flatnonzero(truth.any(axis=1)):
    axis.axvline(variant, color="0.7", zorder=0)

# %% [markdown]
# ## A posterior from z-scores
#
# `moments.from_summary` turns z-scores and correlations into the sums that a fit needs (and warns if the two do not fit
# each other). The default prior has exact zeros, of variants and of their entries.

# %%
tissues = [f"tissue {t}" for t in range(N_TISSUES)]
summary = bm.moments.from_summary(
    {name: z[:, t] for t, name in enumerate(tissues)}, correlation=np.corrcoef(X.T), n=N_PEOPLE
)
model = bm.BayesianRegressor(**SETTINGS, random_state=0, progress=False).fit_moments(summary)
model.prior_, model.inclusion_probability_.round(2)[[10, 47, 83]]

# %% [markdown]
# ## Which of the correlated variants: credible sets
#
# A set holds at least one variant of the model with a probability of 95%. The probability of a single variant may be far
# from 1 while the set is certain.

# %%
sets = bm.selection.credible_sets(model, coverage=0.95)
for found in sets:
    print(f"variants {found.features.tolist()}: probability {found.probability:.3f}, purity {found.purity:.2f}")
    print("    in", ", ".join(map(str, found.tasks)))
bm.plots.credible_sets(model)
plt.show()

# %% [markdown]
# ## In which tissues: entries and patterns

# %%
entries = bm.selection.discoveries(model, of="entries", level=0.05)
entries.to_frame(selected_only=True)

# %%
bm.plots.entry_probability(model)
plt.show()

# %%
shared = bm.selection.patterns(model).to_frame()
shared[model.inclusion_probability_ > 0.5]

# %% [markdown]
# ## How right is it?
#
# Of the entries that are called sure at 5%, how many have no effect; and does every set hold a true variant?

# %%
sure = entries.selected.T
relevant = np.flatnonzero(truth.any(axis=1))
print(f"{sure.sum()} entries, {np.sum(sure & (truth == 0))} of them without effect; {np.sum(truth != 0)} have one")
print(f"{sum(bool(np.isin(found.features, relevant).any()) for found in sets)} of {len(sets)} sets hold a true variant")

# %% [markdown]
# **Answer.** z-scores and correlations are enough to say which variants matter, as sets where they cannot be told apart,
# and in which tissues. A wrong sign in the published table, or correlations of other people, is what to fear: the check
# of `from_summary` looks for both. The figures of many such data sets, beside other packages, are in the page
# "In which tasks, and how sure?".
