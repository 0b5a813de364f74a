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
# # Your own data: from a table to an answer
#
# **Question.** You have a table with a column that says which group a row belongs to and a column to predict. Which
# columns matter, in which groups, and how good are the predictions?
#
# Put the path of a CSV or Parquet file and the names of two columns below, and run everything. Without a path, the
# notebook writes a small table of made-up house sales in seven towns and uses that, with all that real tables have:
# text columns, groups of different sizes, missing values, a column that one group does not have.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, KFold

import bayesmtfs as bm

FULL = os.environ.get("BAYESMTFS_FULL") == "1"
DRAWS = 3000 if FULL else 1000

TABLE = None  # such as "sales.csv"
TARGET = "price"
TASK = "town"


def house_sales():
    """Make a table up: price by area, age, garden and heating; noise columns; seven towns of different size."""
    rng = np.random.default_rng(0)
    towns = np.repeat(["Ash", "Birch", "Cedar", "Elm", "Fir", "Oak", "Yew"], [90, 40, 60, 35, 80, 50, 45])
    n = len(towns)
    town = np.unique(towns, return_inverse=True)[1]
    table = pd.DataFrame({"town": towns, "area": rng.normal(110, 30, n).round(), "age": rng.integers(0, 90, n)})
    table["garden"] = rng.gamma(2.0, 150.0, n).round()
    table["heating"] = rng.choice(["gas", "oil", "heat pump"], n)
    for i in range(12):
        table[f"sensor_{i}"] = rng.normal(size=n).round(3)
    per_area, per_year = rng.normal(2.2, 0.5, 7), rng.normal(-0.8, 0.3, 7)
    premium = table["heating"].map({"gas": 0.0, "oil": -15.0, "heat pump": 30.0})
    price = 80 + per_area[town] * table["area"] + per_year[town] * table["age"] + premium
    price += np.where(town < 3, 0.12, 0.0) * table["garden"] + rng.normal(0, 30, n)
    table["price"] = price.round(1)
    table.loc[rng.choice(n, 12, replace=False), "price"] = np.nan  # sales whose price is not known
    return table


if TABLE is None:
    table = house_sales()
else:
    table = pd.read_parquet(TABLE) if Path(TABLE).suffix == ".parquet" else pd.read_csv(TABLE)
table.head()

# %% [markdown]
# ## Look before you fit

# %%
sizes = table.groupby(TASK)[TARGET].agg(["size", "count", "mean", "std"])
sizes.rename(columns={"size": "rows", "count": "with target"}).round(1)

# %% [markdown]
# ## From the table to a fit
#
# Rows without a target or with missing features are left out. Text columns are marked as categorical;
# `TaskData.from_frame` turns them into indicator columns that enter or leave together. Features on different scales
# need `standardize=True` in the penalised fits; EM and posterior take care of that themselves.

# %%
complete = table.dropna()
texts = complete.columns.difference([*complete.select_dtypes("number"), TASK])
complete = complete.astype(dict.fromkeys(texts, "category"))
data = bm.TaskData.from_frame(complete, target=TARGET, task=TASK)
print(f"{len(table) - len(complete)} of {len(table)} rows left out;", data)

# %%
penalised = bm.MixedNormRegressorCV(n_penalties=30, rule="one_se", standardize=True, random_state=0).fit(data)
bm.plots.regularisation_path(penalised)
plt.show()

# %%
em = bm.JeffreysRegressor().fit(data)
posterior = bm.BayesianRegressor(draws=DRAWS, tune=DRAWS, chains=2, random_state=0).fit(data)
print("penalised:", ", ".join(penalised.result_.feature_names[penalised.get_support()]))
print("EM:       ", ", ".join(em.result_.feature_names[em.get_support()]))

# %% [markdown]
# The path above is in the units of the columns (price per square metre, per year, per kind of heating), so that its
# heights cannot be compared; inclusion probabilities can.

# %%
bm.plots.selection_frequency(posterior, most=15)
plt.show()

# %% [markdown]
# ## In which groups?
#
# In standard deviations of the target per standard deviation of the column, so that rows can be compared. Pale cells
# are those whose sign is not sure (it is wrong with more than 5% probability).

# %%
unit = np.asarray(data.X).std(axis=0) / np.asarray(data.y).std()
shown = np.argsort(-posterior.inclusion_probability_, kind="stable")[:8]
effect = (posterior.coef_ * unit)[:, shown].T
sure = posterior.local_false_sign_rate_[:, shown].T < 0.05
limit = np.abs(effect).max()
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
image = ax.imshow(effect, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto", alpha=np.where(sure, 1.0, 0.35))
for (i, j), value in np.ndenumerate(effect):
    ax.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color="k" if sure[i, j] else "0.5")
ax.set_yticks(range(len(shown)), labels=posterior.result_.feature_names[shown])
ax.set_xticks(range(len(posterior.tasks_)), labels=posterior.tasks_)
figure.colorbar(image, ax=ax, label="effect in standard deviations")
plt.show()

# %% [markdown]
# ## Does the model describe the data, and which one predicts best?

# %%
bm.plots.predictive_check(posterior)
plt.show()

# %%
candidates = {
    "each town alone (ridge)": bm.baselines.IndependentRegressor(),
    "all towns pooled (ridge)": bm.baselines.PooledRegressor(),
    "l1,2": bm.MixedNormRegressor(standardize=True),
    "EM": bm.JeffreysRegressor(),
}
comparison = bm.compare(candidates, data, cv=5).to_frame()
comparison[["name", "error", "error_se", "difference", "difference_se", "n_selected"]].round(2)

# %% [markdown]
# ## In a pipeline
#
# `task_column=` names the column that holds the group, so that grid searches and pipelines of scikit-learn work on the
# table itself.

# %%
numbers = complete.select_dtypes("number").drop(columns=TARGET).assign(**{TASK: complete[TASK]})
search = GridSearchCV(
    bm.MixedNormRegressor(task_column=TASK, standardize=True),
    {"norm_q": [1, 2], "penalty_strength": [1.0, 3.0, 10.0]},
    cv=KFold(3, shuffle=True, random_state=0),
)
search.fit(numbers, complete[TARGET])
search.best_params_

# %% [markdown]
# ## Groups with different columns, and groups never seen
#
# One frame per group is aligned by the names of its columns; what a group does not have is fixed at zero there and
# reported as absent. A group that was not in the fit is an error, unless you say what to do with it.

# %%
parts = {name: part.drop(columns=TASK) for name, part in numbers.groupby(TASK)}
last = list(parts)[-1]
parts[last] = parts[last].drop(columns=parts[last].columns[2])  # the last town has no such column
pairs = [(part, complete.loc[part.index, TARGET]) for part in parts.values()]
ragged = bm.TaskData.from_list(pairs, task_names=list(parts))
uneven = bm.MixedNormRegressor(standardize=True, unknown_task="mean").fit(ragged)
new_rows = pairs[0][0].head(2)
pd.DataFrame({"row": [0, 1], "prediction for a new town": uneven.predict(new_rows, tasks=["Pine", "Pine"])}).round(1)

# %% [markdown]
# ## Keep it and show it
#
# One file per fit and one page about all of them. The same from the command line, which takes columns of text as
# categories and leaves out rows without a price: `bayesmtfs fit sales.csv --target price --task town --out results`.

# %%
folder = Path(tempfile.mkdtemp())
posterior.save(folder / "posterior.nc")
bm.report({"penalised": penalised, "EM": em, "posterior": posterior}, folder / "report.html", "House sales")
print("written:", ", ".join(sorted(path.name for path in folder.iterdir())))

# %% [markdown]
# ## What to take away
#
# - `TaskData.from_frame(table, target=..., task=...)` and `fit` are enough for a table as it comes.
# - Compare with fitting each group alone and with pooling: if one of them is as good, take the simpler thing.
# - Rank columns by inclusion probability, groups by the sign's error rate; both are free of units.
# - `standardize=True` belongs to penalised fits of columns on different scales.
