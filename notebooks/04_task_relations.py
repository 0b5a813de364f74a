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
# # Task relations: which tasks behave alike, and does it help to know?
#
# **Question.** Tasks may share features and more: coefficients that are alike (two hospitals of one kind), opposite
# (supply and demand), or unrelated. Can the relations be learned from the data, and do predictions get better by them?
#
# Ten simulated tasks: seven that are alike, two with all signs turned, and one outlier with features of its own.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bayesmtfs as bm

FULL = os.environ.get("BAYESMTFS_FULL") == "1"
REPEATS = 20 if FULL else 3
N_TEST = 200


def simulated(n_train, relatedness=0.9, seed=0):
    """Tasks of three kinds, and which rows are for training."""
    sim = bm.simulate_tasks(
        n_tasks=10, n_features=30, n_relevant=8, n_samples=n_train + N_TEST, snr=2.0, relatedness=relatedness,
        opposed_tasks=[7, 8] if relatedness else 0, outlier_tasks=[9], random_state=seed,
    )  # fmt: skip
    place = np.arange(len(sim.y)) - sim.data.offsets[sim.data.task]  # the simulated rows are sorted by task
    return sim, place < n_train


def fit(method, sim, train):
    """Fit to the training rows."""
    return method.fit(sim.X[train], sim.y[train], tasks=sim.tasks[train])


# %% [markdown]
# ## Learning the relations
#
# `MatrixVariateRegressor` gives the rows of W a covariance over tasks. `coefficients="integrated"` averages over the
# coefficients instead of taking their mode.

# %%
sim, train = simulated(n_train=40)
related = fit(bm.MatrixVariateRegressor(coefficients="integrated"), sim, train)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.3), layout="constrained")
bm.plots.task_relations(related, cluster=False, ax=left)
left.set_title("learned from 40 rows per task")
image = right.imshow(sim.task_correlation, cmap="RdBu_r", vmin=-1, vmax=1)
right.set_xticks(range(10))
right.set_yticks(range(10))
right.set_title("truth: correlation of the coefficients")
figure.colorbar(image, ax=right)
plt.show()

# %% [markdown]
# The block of seven, the two opposed tasks (blue: their coefficients have the other sign) and the outlier without
# relations are all there. With many tasks, leave `cluster=True` (the default): similar tasks then stand side by side.

# %%
bm.plots.coefficient_heatmap(related, most=12)
plt.show()


# %% [markdown]
# ## Does it help?
#
# Mean squared error of the signal x'w, in units of the noise variance, over the number of training rows per task, for
# four methods: relations learned with W integrated out, the same without relations, relations with the mode of W, and
# an l1,2 penalty.


# %%
def methods():
    """Fresh estimators, by name."""
    return {
        "relations, W integrated out": bm.MatrixVariateRegressor(coefficients="integrated"),
        "no relations, W integrated out": bm.JeffreysRegressor(coefficients="integrated"),
        "relations, mode of W": bm.MatrixVariateRegressor(tol=1e-3),
        "l1,2 penalty": bm.MixedNormRegressorCV(n_penalties=12, penalty_ratio=0.03, cv=3, random_state=0),
    }


def test_errors(sizes, relatedness):
    """Mean error of the predicted signal, method by number of training rows."""
    table = pd.DataFrame(0.0, index=sizes, columns=list(methods()))
    for n_train in sizes:
        for seed in range(REPEATS):
            sim, train = simulated(n_train, relatedness, seed)
            for name, method in methods().items():
                fit(method, sim, train)
                test_tasks = sim.tasks[~train]
                signal = np.sum(sim.X[~train] * sim.coef[test_tasks], axis=1)
                wrong = (signal - method.predict(sim.X[~train], tasks=test_tasks)) / sim.noise[test_tasks]
                table.loc[n_train, name] += np.mean(wrong**2) / REPEATS
    return table


SIZES = [20, 30, 45]
errors = {"tasks are related": test_errors(SIZES, 0.9), "tasks share features only": test_errors(SIZES, 0.0)}
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
for ax, (words, table) in zip(axes, errors.items(), strict=True):
    table.plot(ax=ax, marker="o", legend=ax is axes[0])
    ax.set(
        title=words,
        xlabel="training rows per task",
        ylabel="error of the signal / noise variance",
        xticks=SIZES,
        yscale="log",
    )
    ax.set(ylim=(0.35, 1.8))
    ax.set_yticks([0.4, 0.6, 0.8, 1, 1.4], labels=["0.4", "0.6", "0.8", "1", "1.4"])
    ax.minorticks_off()

# %%
pd.concat(errors, axis=1).T.round(2)

# %% [markdown]
# ## Relations on a stream, for classification
#
# `SmoothedClassifier` and `OnlineSmoothedClassifier` learn other relations: how much task k should learn from the
# *rows* of task j. They are non-negative and every row sums to one; an opposed task is of no use there. See
# `murugesan2016`.

# %%
labels = bm.simulate_tasks(
    n_tasks=8, n_features=10, n_relevant=6, n_samples=80, kind="classification", relatedness=0.95, opposed_tasks=[6, 7],
    random_state=0,
)  # fmt: skip
smoothed = bm.SmoothedClassifier(concentration=0.3, smoothing=0.3).fit(labels.X, labels.y, tasks=labels.tasks)
bm.plots.task_relations(smoothed)
plt.show()

# %% [markdown]
# ## What to take away
#
# - Relations can be learned, signs included, where several features are shared: every shared feature is one observation
#   of the task covariance.
# - With W integrated out, they lower the error by about a tenth. A mode of W does not profit: it has committed itself
#   before the relations are known.
# - Where tasks share features only, learning relations costs nothing: they are shrunk to zero, and both fits agree.
# - With fewer rows than features and no relations, a plain l1,2 penalty can still be the best predictor.
# - If all tasks are alike, `shared_mean=True` in the penalised estimators is the simpler tool.
