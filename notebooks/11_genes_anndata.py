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
# # Genes and donors: which genes tell stimulated cells from resting ones, in every donor?
#
# **Question.** Single cells of six donors, some stimulated and some not, in an `AnnData` table: counts of genes (`X`,
# sparse), donors and conditions of cells (`obs`), names of genes (`var`). Which genes respond in all donors, which in
# some, and which do not?
#
# A donor is a task. Pooling cells of all donors takes what is special to the largest donor for general; one fit per
# donor has too few cells. The data are simulated, so that the answer is known.

# %%
import os
import warnings

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.sparse as sp

import bayesmtfs as bm

FULL = os.environ.get("BAYESMTFS_FULL") == "1"
N_GENES, N_DONORS = (2000 if FULL else 400), 6
rng = np.random.default_rng(4)
cells_of = rng.integers(80, 200, N_DONORS)
donor = np.repeat(np.arange(N_DONORS), cells_of)
stimulated = rng.random(len(donor)) < 0.5

# %% [markdown]
# ## The table
#
# Counts are negative binomial, with a depth of its own for every cell and a level of its own for every gene and
# donor. Six genes respond in all donors, four in three of them, and two in a single one.

# %%
response = np.zeros((N_GENES, N_DONORS))
response[:6] = 0.9 * rng.choice([-1, 1], 6)[:, None]
response[6:10, :3] = 1.1
response[10, 4], response[11, 5] = 1.6, -1.6
level = rng.normal(0.3, 1.0, N_GENES)[:, None] + 0.4 * rng.standard_normal((N_GENES, N_DONORS))
depth = rng.lognormal(0.0, 0.3, len(donor))
mean = depth[:, None] * np.exp(level[:, donor].T + response[:, donor].T * stimulated[:, None])
counts = rng.poisson(mean * rng.gamma(2.0, 0.5, mean.shape))

cells = anndata.AnnData(
    X=sp.csr_matrix(counts.astype(np.float32)),
    obs=pd.DataFrame(
        {"donor": [f"donor {i}" for i in donor], "condition": np.where(stimulated, "stimulated", "resting")},
        index=[f"cell {i}" for i in range(len(donor))],
    ),
    var=pd.DataFrame(index=[f"gene {i}" for i in range(N_GENES)]),
)
cells

# %% [markdown]
# ## From AnnData to a fit
#
# Counts are divided by the depth of their cell and put on a log scale, which keeps zeros zero and the matrix sparse.
# The rest is three arguments: the matrix, a column of `obs` as target, a column of `obs` as task.

# %%
depths = np.asarray(cells.X.sum(axis=1)).ravel()
cells.layers["log"] = (sp.diags(np.median(depths) / depths) @ cells.X).log1p().tocsr()
X, y, tasks = cells.layers["log"], cells.obs["condition"].to_numpy(), cells.obs["donor"].to_numpy()

penalised = bm.MixedNormClassifierCV(standardize=True, n_penalties=20, rule="one_se", random_state=0)
penalised.fit(X.toarray(), y, tasks=tasks)  # standardising centres columns, and fills them
print(penalised.classes_, penalised.coef_.shape, "selected:", int(penalised.get_support().sum()))

# %% [markdown]
# ## In which donors, and how sure?
#
# The penalised fit selects genes for all donors together. The posterior with exact zeros says in which donors, and
# how probable that is. `max_features` screens: the genes that hold most of a fit with all of them are sampled, the
# others are listed as left out (`bayesmtfs` warns of that; here it is what we ask for).

# %%
posterior = bm.BayesianClassifier(
    max_features=40, draws=1500 if FULL else 300, tune=300, chains=2, random_state=0, progress=False
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    posterior.fit(X.toarray(), y, tasks=tasks)
names = np.asarray(cells.var_names)
found = bm.selection.discoveries(posterior, of="features", level=0.1)
print("genes at a false discovery rate of 10%:", names[found.selected].tolist())

# %%
probability = pd.DataFrame(posterior.task_inclusion_probability_.T, index=names, columns=posterior.tasks_)
shown = probability.loc[probability.max(axis=1).sort_values(ascending=False).index[:16]]
figure, axes = plt.subplots(1, 2, figsize=(10, 5), sharey=True, layout="constrained")
truth = pd.DataFrame(np.abs(response), index=names).loc[shown.index]
axes[0].imshow(truth, cmap="Greys", vmin=0, aspect="auto")
axes[0].set(title="true response (size)", xticks=range(N_DONORS), yticks=range(len(shown)), yticklabels=shown.index)
picture = axes[1].imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto")
axes[1].set(title="posterior probability of an effect", xticks=range(N_DONORS))
for axis in axes:
    axis.set_xlabel("donor")
figure.colorbar(picture, ax=axes[1])
plt.show()

# %% [markdown]
# ## Back into the table
#
# Results belong to genes, so they go into `var` and `varm`, where other tools of the same world find them.

# %%
cells.var["inclusion_probability"] = posterior.inclusion_probability_
cells.var["penalised"] = penalised.get_support()
cells.varm["effect"] = posterior.coef_.T  # genes x donors
kinds = pd.Series("none", index=names)
kinds.iloc[:12] = ["all donors"] * 6 + ["three donors"] * 4 + ["one donor"] * 2
table = cells.var.assign(truth=kinds).groupby("truth", sort=False)
print(
    table.agg(
        genes=("penalised", "size"),
        penalised=("penalised", "sum"),
        probable=("inclusion_probability", lambda p: (p > 0.5).sum()),
    )
)

# %% [markdown]
# ## What it says
#
# - A donor is a task, a column of `obs` is the target: no adapter is needed, and sparse layers go in as they are where
#   nothing is centred (`standardize=False`).
# - The penalised fit predicts, and keeps genes that do not respond beside those that do. The posterior names few that are
#   wrong, and says in which donors; a gene that responds in a single donor is the hardest to be sure of.
# - These are effects *given the other genes*, of the cells of each donor. Whether donors stand for a population of
#   people is a question about six of them, not about their cells.
