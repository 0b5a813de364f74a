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
# # Yang, King and Lyu 2010: can exam scores be predicted from a stream?
#
# **Question.** *Online learning for multi-task feature selection* learns from one row at a time and keeps sparse
# weights. On the School data (exam scores of 139 London schools, one task each), is it as good as a batch fit, are
# joint penalties better than separate ones, and is there something that predicts better still?
#
# The paper's three models: **iMTFS** zeroes single coefficients (q = 1), **aMTFS** whole features (q = 2), **MTFTS**
# features and single tasks among them. "DA" is dual averaging, the online version.

# %%
import os
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesmtfs as bm

FULL = os.environ.get("BAYESMTFS_FULL") == "1"
SPLITS, EPOCHS = (20, 120) if FULL else (3, 40)
N_TRAIN = 11  # rows per school: half of the smallest school

try:
    found = bm.datasets.load_school(progress=False)
    X, y, tasks = np.array(found.X), np.asarray(found.y), np.asarray(found.tasks)
    names = np.array(found.feature_names)
    X[:, np.abs(X).max(axis=0) > 1.5] /= 100  # the two percentages
    source, is_school = "the School data", True
except bm.datasets.DatasetNotFound:
    sim = bm.simulate_tasks(
        n_tasks=139, n_features=27, n_relevant=10, n_samples=40, snr=0.5, relatedness=0.9, random_state=0
    )
    X, y, tasks = 0.5 * sim.X, 20 + 12 * sim.y / sim.y.std(), sim.tasks  # scales of the School data
    names = np.array([f"x{i}" for i in range(27)])
    source, is_school = "SIMULATED data (the School data are not there)", False
print(source, X.shape, len(np.unique(tasks)), "tasks")

# %% [markdown]
# ## The protocol
#
# Eleven training rows per school, all others for testing; scores minus the mean of the training rows, no intercepts.
# The figure of merit is the share of the *pooled* test variance that is explained: the paper says "within each task",
# but only the pooled variance fits its numbers. Penalties are those that suit the loss used here (half of the squared
# error, averaged within schools).


# %%
def training_rows(seed):
    """Eleven rows of each school."""
    rng = np.random.default_rng(seed)
    mask = np.zeros(len(y), dtype=bool)
    for task in np.unique(tasks):
        mask[rng.choice(np.flatnonzero(tasks == task), N_TRAIN, replace=False)] = True
    return mask


def run(model, seed):
    """Explained variance in percent, non-zero coefficients, seconds."""
    train = training_rows(seed)
    mean = y[train].mean()
    started = time.perf_counter()
    model.fit(X[train], y[train] - mean, tasks=tasks[train])
    taken = time.perf_counter() - started
    error = y[~train] - mean - model.predict(X[~train], tasks=tasks[~train])
    return 100 * (1 - np.mean(error**2) / np.var(y[~train])), np.count_nonzero(model.coef_), taken


stream = {"fit_intercept": False, "epochs": EPOCHS, "random_state": 0}
methods = {  # name: (estimator, printed explained variance)
    "iMTFS": (bm.MixedNormRegressor(norm_q=1, penalty_strength=1.5, fit_intercept=False), 13.5),
    "DA-iMTFS": (bm.OnlineMixedNormRegressor("individual", 1.0, gamma=5.0, **stream), 13.5),
    "aMTFS": (bm.MixedNormRegressor(penalty_strength=12.0, fit_intercept=False), 21.0),
    "DA-aMTFS": (bm.OnlineMixedNormRegressor("features", 12.0, gamma=1.0, **stream), 20.8),
    "DA-MTFTS": (bm.OnlineMixedNormRegressor("features_and_tasks", 10.0, gamma=1.0, **stream), 20.8),
    "pooled ridge": (bm.baselines.PooledRegressor(), None),
    "shared mean + aMTFS": (bm.MixedNormRegressor(penalty_strength=12.0, shared_mean=True, tol=1e-3), None),
}
runs = {name: np.array([run(model, seed) for seed in range(SPLITS)]) for name, (model, _) in methods.items()}
table = pd.DataFrame(
    {
        name: {
            "explained variance (%)": values[:, 0].mean(),
            "standard error": values[:, 0].std(ddof=1) / SPLITS**0.5,
            "in the paper": methods[name][1],
            "non-zero coefficients": values[:, 1].mean(),
            "seconds": values[1:, 2].mean(),
        }
        for name, values in runs.items()
    }
).T.astype(float)
table.round(2)

# %%
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
places = np.arange(len(table))
colours = [
    "C1" if name.startswith("DA") else "0.6" if "-" not in name and "MTF" not in name else "C0" for name in table.index
]
ax.barh(places, table["explained variance (%)"], xerr=table["standard error"], color=colours)
if is_school:
    ax.plot(table["in the paper"], places, "k|", ms=16, mew=2, label="printed")
    ax.legend(loc="upper right")
ax.set_yticks(places, labels=table.index)
ax.invert_yaxis()
ax.set_xlabel("explained variance (%)")
ax.set_title(f"{source.split(' (')[0]}: blue batch, orange online, grey pooled")
plt.show()

# %% [markdown]
# ## Which features, in which schools?
#
# The joint penalty keeps the same features for all schools; DA-MTFTS drops single schools from them.

# %%
train = training_rows(0)
figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
for ax, name in zip(axes, ("aMTFS", "DA-MTFTS"), strict=True):
    model = methods[name][0]
    X_named = pd.DataFrame(X[train], columns=names)
    model.fit(X_named, y[train] - y[train].mean(), tasks=tasks[train])
    bm.plots.coefficient_heatmap(model, most=15, ax=ax)
    ax.set_xticks(range(0, len(model.tasks_), 20), labels=model.tasks_[::20], rotation=0)
    ax.set_xlabel("school (one in 20 is named)")
    ax.set_title(f"{name}: {int(model.get_support().sum())} of {len(names)} features")

# %% [markdown]
# ## Over the stream
#
# How explained variance and sparsity develop over the epochs of DA-aMTFS. With `gamma=1`, below what is safe for these
# rows, the first epochs are wild (off the scale), and what follows is better than a safe start would give.

# %%
test, mean = ~train, y[train].mean()
learner = bm.OnlineMixedNormRegressor("features", 12.0, gamma=1.0, fit_intercept=False)
rng = np.random.default_rng(0)
rows, steps = np.flatnonzero(train), []
for _ in range(EPOCHS):
    order = rng.permutation(rows)
    learner.partial_fit(X[order], y[order] - mean, tasks=tasks[order])
    error = y[test] - mean - learner.predict(X[test], tasks=tasks[test])
    steps.append((100 * (1 - np.mean(error**2) / np.var(y[test])), int(learner.get_support().sum())))
figure, (upper, lower) = plt.subplots(2, 1, figsize=(7, 4.5), sharex=True, layout="constrained")
upper.plot(np.arange(1, EPOCHS + 1), [step[0] for step in steps])
upper.axhline(table.loc["aMTFS", "explained variance (%)"], color="0.5", ls="--", label="batch")
upper.set_ylim(-10, 40)
upper.set_ylabel("explained variance (%)")
upper.legend()
lower.plot(np.arange(1, EPOCHS + 1), [step[1] for step in steps])
lower.set_ylabel("features in use")
lower.set_xlabel("epoch")
plt.show()

# %% [markdown]
# ## What to take away
#
# This is about the real data; where they are not there, everything above is a simulation.
#
# - On the School data the printed figures reproduce: joint penalties explain about half as much again as separate ones,
#   and the online versions come within a point of the batch fits.
# - "Faster than batch" does not hold at this size: both take a fraction of a second.
# - A mean that all schools share (`shared_mean=True`), or even one plain ridge fit for all of them, explains far more
#   than any of the paper's models. Penalties that pull every school to zero are the wrong prior here: schools are
#   alike. Ask first what tasks should be shrunk *to*.
# - `bayesmtfs reproduce yang2010` runs the whole table.
