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
# # Online streams: how good is a learner that sees every row once?
#
# **Question.** Rows arrive one after another, tasks come late or rarely, and nothing can be kept. How soon are the
# relevant features known, how much is lost against a fit that has all rows at once, and what happens when a new task
# appears?
#
# `OnlineMixedNormRegressor` is the dual averaging of Yang, King and Lyu (2010): after every round the weights minimise
# the averaged gradients plus the penalty, so that they are sparse at any time.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesmtfs as bm

FULL = os.environ.get("BAYESMTFS_FULL") == "1"
ROWS = 3000 if FULL else 600  # per task
BATCH = 20
GAMMA = 10.0  # weight of the quadratic term, see "The step size" below

sim = bm.simulate_tasks(n_tasks=6, n_features=50, n_relevant=6, n_samples=ROWS, snr=2.0, random_state=0)
X, y, tasks = (array.reshape(6, ROWS, -1) for array in (sim.X, sim.y, sim.tasks))  # sorted by task


def batch(start, present=range(6)):
    """Return the next rows of the tasks that are present."""
    chosen = list(present)
    rows = slice(start, start + BATCH)
    return X[chosen, rows].reshape(-1, 50), y[chosen, rows].ravel(), tasks[chosen, rows].ravel()


# %% [markdown]
# ## Learning as rows arrive
#
# Every batch is predicted first and learned from afterwards. The comparator is the batch fit to all rows, which nobody
# has while the stream runs; the difference of the losses, added up, is the *regret*.

# %%
whole = bm.MixedNormRegressorCV(n_penalties=20, penalty_ratio=0.02, rule="one_se", cv=3, random_state=0)
whole.fit(sim.X, sim.y, tasks=sim.tasks)
online = bm.OnlineMixedNormRegressor(penalty_strength=whole.penalty_strength_, gamma=GAMMA)
history = {"rows": [], "loss": [], "best_loss": [], "features": []}
for start in range(0, ROWS, BATCH):
    X_new, y_new, tasks_new = batch(start)
    guess = online.predict(X_new, tasks=tasks_new) if start else np.zeros(len(y_new))
    history["rows"].append(6 * (start + BATCH))
    history["loss"].append(np.mean((y_new - guess) ** 2) / 2)
    history["best_loss"].append(np.mean((y_new - whole.predict(X_new, tasks=tasks_new)) ** 2) / 2)
    online.partial_fit(X_new, y_new, tasks=tasks_new)
    history["features"].append(int(online.get_support().sum()))
figure = bm.plots.online_progress(history, figure=plt.figure(figsize=(7, 6.5), layout="constrained"))
figure.axes[2].axhline(sim.support.sum(), color="0.5", ls="--", label="relevant in truth")
figure.axes[2].axhline(whole.get_support().sum(), color="C1", ls=":", label="batch fit")
figure.axes[2].legend(fontsize=8)
plt.show()

# %% [markdown]
# The loss falls, the regret flattens, and noise leaves the model until the relevant features stay. The coefficients of
# the stream against those of the batch fit at the same penalty:

# %%
bm.plots.compare_coefficients(whole, online, label=3)
plt.show()

# %% [markdown]
# ## The step size
#
# `gamma` weighs the quadratic term: larger is slower and safer. The method diverges while `gamma sqrt(t)` is below
# about half of `|x|^2`, which is 50 here. `gamma="auto"` starts just where it is safe. A smaller number learns faster
# after a wild beginning, and one that is too small never recovers: watch `progressive_loss_`.

# %%
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
for gamma in ("auto", 20.0, 10.0, 5.0):
    learner, loss = bm.OnlineMixedNormRegressor(penalty_strength=whole.penalty_strength_, gamma=gamma), []
    for start in range(0, ROWS, BATCH):
        X_new, y_new, tasks_new = batch(start)
        learner.partial_fit(X_new, y_new, tasks=tasks_new)
        loss.append(learner.progressive_loss_)
    ax.plot(6 * np.arange(BATCH, ROWS + 1, BATCH), loss, label=f"gamma = {gamma if gamma == 'auto' else f'{gamma:g}'}")
ax.axhline(np.mean(history["best_loss"]), color="0.5", ls="--", label="batch fit, in hindsight")
ax.set(xlabel="rows seen", ylabel="mean loss so far", ylim=(0, 8))
ax.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Three kinds of sparsity
#
# DA-iMTFS zeroes single coefficients, DA-aMTFS whole features, DA-MTFTS features and, among those that stay, single
# tasks.

# %%
kinds = {"individual": "DA-iMTFS", "features": "DA-aMTFS", "features_and_tasks": "DA-MTFTS"}
figure, axes = plt.subplots(1, 4, figsize=(11, 4), sharey=True, layout="constrained")
limit = np.abs(sim.coef).max()
shown = np.argsort(~sim.support, kind="stable")[:20]
summary = {}
for ax, (kind, name) in zip(axes, [("truth", "truth"), *kinds.items()], strict=True):
    coef = sim.coef
    if kind != "truth":
        learner = bm.OnlineMixedNormRegressor(
            sparsity=kind, penalty_strength=whole.penalty_strength_ / (2 if kind == "individual" else 1), task_sparsity=0.2,
            gamma=GAMMA, random_state=0,
        )  # fmt: skip
        coef = learner.fit(sim.X, sim.y, tasks=sim.tasks).coef_
        summary[name] = {
            "features": int(learner.get_support().sum()),
            "coefficients": int((coef != 0).sum()),
            "squared error of W": np.sum((coef - sim.coef) ** 2) / np.sum(sim.coef**2),
        }
    ax.imshow(np.where(coef == 0, np.nan, coef)[:, shown].T, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit)
    ax.set_title(name)
    ax.set_xlabel("task")
    ax.set_facecolor("0.9")
axes[0].set_yticks(range(20), labels=[f"x{i}" for i in shown], fontsize=7)
axes[0].set_ylabel("feature (grey: exactly zero)")
pd.DataFrame(summary).T

# %% [markdown]
# ## Rare and late tasks
#
# Task 5 appears only after half of the stream, task 4 in one batch of five. Each task has its own clock, so that an
# absent task waits instead of being averaged with zeros; features that the others have found are there for the
# newcomer.

# %%
learner = bm.OnlineMixedNormRegressor(penalty_strength=whole.penalty_strength_, gamma=GAMMA)
errors = {task: ([], []) for task in range(6)}
for number, start in enumerate(range(0, ROWS, BATCH)):
    present = [0, 1, 2, 3] + ([4] if number % 5 == 0 else []) + ([5] if start >= ROWS // 2 else [])
    X_new, y_new, tasks_new = batch(start, present)
    learner.partial_fit(X_new, y_new, tasks=tasks_new)
    for place, task in enumerate(learner.tasks_):
        errors[int(task)][0].append(start + BATCH)
        errors[int(task)][1].append(np.sum((learner.coef_[place] - sim.coef[task]) ** 2) / np.sum(sim.coef[task] ** 2))
figure, ax = plt.subplots(figsize=(7, 3.5), layout="constrained")
words = {4: "task 4: one batch of five", 5: "task 5: from the middle on"}
for task, (seen, error) in errors.items():
    ax.plot(
        seen,
        error,
        color=f"C{task - 3}" if task > 3 else "0.7",
        label=words.get(task, "always there" if task == 0 else None),
    )
ax.set(xlabel="rows of the stream, per task", ylabel="squared error of the coefficients", ylim=(0, 1.1))
ax.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Stop and go on
#
# A learner that is saved between two batches and loaded again goes on as if nothing had happened, to the last bit.

# %%
first, second = batch(0), batch(BATCH)
straight = bm.OnlineMixedNormRegressor(penalty_strength=0.1).partial_fit(*first[:2], tasks=first[2])
with tempfile.TemporaryDirectory() as folder:
    straight.save(Path(folder) / "learner.nc")
    resumed = bm.load(Path(folder) / "learner.nc")
straight.partial_fit(*second[:2], tasks=second[2])
resumed.partial_fit(*second[:2], tasks=second[2])
bool(np.array_equal(straight.coef_, resumed.coef_))

# %% [markdown]
# ## What to take away
#
# - One pass finds the relevant features after a few hundred rows per task, and its regret flattens.
# - Its coefficients stay smaller than those of the batch fit, and the number of features wavers on the way: treat an
#   early selection as provisional.
# - `gamma` matters more than anything else. Scale the features, begin with "auto", and try smaller values.
# - Tasks may be absent, rare or new; nothing has to be declared beforehand.
# - If all rows fit into memory, use the batch estimators: they are as fast and better. If only sums per task fit,
#   `bm.moments` gives the batch fit itself.
