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
# # Quickstart: which features matter, in which tasks, and how sure is that?
#
# **Question.** Ten groups (schools, hospitals, sensors, ...) measured the same thirty features. Each group has too few
# rows for a regression of its own. Which features drive the target, and is what we find real?
#
# The data are simulated, so that the answer is known: five features matter, in all groups, with sizes that differ from
# group to group. A *task* is one group. The same data go through three routes that all give the same kind of result:
#
# 1. a **penalised** fit, quick, with its penalty chosen by cross-validation;
# 2. an **EM** fit, which needs no penalty and shrinks less;
# 3. a **posterior**, which says how sure all of it is.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesmtfs as bm

FULL = os.environ.get("BAYESMTFS_FULL") == "1"
DRAWS = 4000 if FULL else 1500

sim = bm.simulate_tasks(
    n_tasks=10, n_features=30, n_relevant=5, n_samples=60, snr=1.0, design="ar", correlation=0.5, random_state=0
)
relevant = [f"x{i}" for i in np.flatnonzero(sim.support)]
sim, relevant

# %% [markdown]
# ## 1. Penalised
#
# `MixedNormRegressorCV` fits a whole path of penalties. A feature enters or leaves for all tasks at once, because the
# penalty is on the norm of its coefficients over the tasks. `rule="one_se"` takes the strongest penalty that predicts
# about as well as the best one.

# %%
penalised = bm.MixedNormRegressorCV(n_penalties=30, penalty_ratio=0.01, rule="one_se", random_state=0)
penalised.fit(sim.X, sim.y, tasks=sim.tasks)
bm.plots.regularisation_path(penalised)
plt.show()

# %%
print(penalised.result_.summary())

# %% [markdown]
# ## 2. EM
#
# `JeffreysRegressor` learns the scale of every feature instead of one penalty for all. Features that do not help are
# dropped exactly, and those that stay are shrunk little.

# %%
em = bm.JeffreysRegressor(random_state=0).fit(sim.X, sim.y, tasks=sim.tasks)
axes = bm.plots.compare_coefficients(penalised, em)
axes.set_title("The penalised fit shrinks towards zero, EM hardly does")
plt.show()

# %% [markdown]
# ## 3. Posterior
#
# One word changes, and there are intervals. `inclusion_probability_` is the probability that a feature's effect exceeds
# 0.05 standard deviations in at least one task.

# %%
posterior = bm.BayesianRegressor(draws=DRAWS, tune=DRAWS, chains=4, random_state=0)
posterior.fit(sim.X, sim.y, tasks=sim.tasks)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
bm.plots.row_norms(posterior, most=12, ax=left)
bm.plots.selection_frequency(posterior, most=12, ax=right)
figure.suptitle("relevant in truth: " + ", ".join(relevant))
plt.show()

# %% [markdown]
# In which tasks? The heatmap has the posterior means; the truth is beside it, in the same order of features.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
bm.plots.coefficient_heatmap(posterior, most=10, ax=left)
shown = [int(label.get_text().lstrip("x")) for label in left.get_yticklabels()]
limit = np.abs(posterior.coef_).max()
image = right.imshow(sim.coef[:, shown].T, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit)
right.set_yticks(range(len(shown)), labels=[f"x{i}" for i in shown])
right.set_xticks(range(10))
right.set_xlabel("task")
right.set_title("truth")
figure.colorbar(image, ax=right, label="coefficient")
plt.show()

# %% [markdown]
# ## Side by side
#
# How near is each route to the truth, and what did it keep?

# %%
fits = {"penalised": penalised, "EM": em, "posterior": posterior}
pd.DataFrame(
    {
        name: {
            "relevant features found (of 5)": int(fit.get_support()[sim.support].sum()),
            "features kept wrongly": int(fit.get_support()[~sim.support].sum()),
            "squared error of the coefficients": np.sum((fit.coef_ - sim.coef) ** 2) / np.sum(sim.coef**2),
        }
        for name, fit in fits.items()
    }
).T

# %% [markdown]
# Predictions take the task beside the row; a posterior also gives their deviation. `bm.report` writes one page with
# tables, plots and diagnostics that opens without a network, and `save` keeps a fit in one file.

# %%
mean, deviation = posterior.predict(sim.X[:3], tasks=sim.tasks[:3], return_std=True)
with tempfile.TemporaryDirectory() as folder:
    bm.report(fits, Path(folder) / "report.html")
    posterior.save(Path(folder) / "posterior.nc")
    again = bm.load(Path(folder) / "posterior.nc")
pd.DataFrame(
    {"predicted": mean, "deviation": deviation, "loaded from the file": again.predict(sim.X[:3], tasks=[0, 0, 0])}
)

# %% [markdown]
# ## What to take away
#
# - `fit(X, y, tasks=labels)` is all that the three routes need; `get_support()`, `coef_`, `result_` and the plots
#   are the same for each.
# - A penalised fit is a quick screen. With `rule="one_se"` it found the right features here; its coefficients are too
#   small by a third or more, and nothing says how sure they are.
# - EM keeps the same features and is nearer to the truth, without a penalty to choose.
# - A posterior says how sure a feature is, and in which task: five features are certain, two more are a toss-up (about
#   one half) and turn out to be noise. Do not read a probability of 0.55 as a discovery.
# - Next: `02_bayesian_vs_penalised` on what the routes disagree about, `06_your_own_data` on tables as they come.
