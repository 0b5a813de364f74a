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
# # Inside scikit-learn: can pipelines and searches know about tasks?
#
# **Question.** You have a table with gaps, texts and numbers, and a scikit-learn pipeline around it. Can a multi-task
# fit take the place of the last step, be searched over like any other, and select columns for other models?
#
# A pipeline passes on X and y, and nothing else. The task therefore travels as a column of X, and `task_column=` says
# which.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LassoCV, Ridge
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import bayesmtfs as bm

# %% [markdown]
# ## A table
#
# Six shops, 80 sales in each. Prices depend on area, age and kind, and each shop has its own slopes; twenty columns of
# measurements do not matter. A tenth of the ages is missing.

# %%
rng = np.random.default_rng(0)
n_shops, n_sales = 6, 80
shop = np.repeat([f"shop {letter}" for letter in "ABCDEF"], n_sales)
number = np.repeat(np.arange(n_shops), n_sales)
table = pd.DataFrame({f"probe {i}": rng.standard_normal(len(shop)) for i in range(20)})
table.insert(0, "area", rng.gamma(9, 10, len(shop)))
table.insert(1, "age", rng.integers(0, 60, len(shop)).astype(float))
table.insert(2, "kind", rng.choice(["flat", "house", "loft"], len(shop)))
per_area, per_year = rng.normal(2.0, 0.5, n_shops), rng.normal(-1.0, 0.5, n_shops)
bonus = table["kind"].map({"flat": 0.0, "house": 25.0, "loft": 40.0}) * rng.normal(1.0, 0.3, n_shops)[number]
price = 50 + 20 * number + per_area[number] * table["area"] + per_year[number] * table["age"] + bonus
price = price.to_numpy() + rng.normal(0, 20, len(shop))
table.loc[rng.random(len(shop)) < 0.1, "age"] = np.nan
table["shop"] = shop
table.head()

# %% [markdown]
# ## The pipeline
#
# The column transformer fills gaps, expands categories, scales numbers, and hands the shop through as it is. With
# `set_output(transform="pandas")` its columns keep their names, so that the last step finds the task by name.

# %%
numbers = [name for name in table if name not in ("kind", "shop")]
prepare = ColumnTransformer(
    [
        ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        ("kind", OneHotEncoder(drop="first", sparse_output=False), ["kind"]),
        ("task", "passthrough", ["shop"]),
    ],
    verbose_feature_names_out=False,
).set_output(transform="pandas")
pipeline = Pipeline(
    [("prepare", prepare), ("fit", bm.MixedNormRegressor(task_column="shop", loss_scale="sum", standardize=True))]
)
pipeline.fit(table, price)
names = pipeline["fit"].feature_names_in_
print("features:", len(pipeline["fit"].get_feature_names_out()), "kept of", pipeline["fit"].coef_.shape[1])
print("tasks:", pipeline["fit"].tasks_.tolist())

# %% [markdown]
# ## A search
#
# Every parameter can be searched, and folds should keep every task: `StratifiedKFold` cut by shop does that. (With
# the `CV` classes of this package the same is one word, faster, and along a path; a search is for what they do not
# choose, such as steps of the pipeline.)

# %%
folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(table, shop))
search = GridSearchCV(
    pipeline,
    {
        "fit__penalty_strength": np.geomspace(30, 3000, 6),
        "fit__norm_q": [1, 2],
        "prepare__numbers__simpleimputer__add_indicator": [False, True],
    },
    cv=folds,
)
search.fit(table, price)
results = pd.DataFrame(search.cv_results_)
figure, axis = plt.subplots(figsize=(7, 3.5))
without = results[~results["param_prepare__numbers__simpleimputer__add_indicator"].astype(bool)]
for norm, part in without.groupby("param_fit__norm_q"):
    strengths = part["param_fit__penalty_strength"].astype(float)
    error = part["std_test_score"] / 5**0.5
    axis.errorbar(strengths, part["mean_test_score"], error, label=f"q = {norm}")
axis.set(xscale="log", xlabel="penalty_strength", ylabel="R2, mean and standard error of 5 folds")
axis.legend()
plt.show()
print(search.best_params_)

# %% [markdown]
# ## Beside other last steps
#
# The same folds for: a constant; one lasso for all shops, with the shop as a category; a ridge per shop (the baseline
# `IndependentRegressor`, which takes the same column); and ours.

# %%
one_model = ColumnTransformer(
    [
        ("numbers", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        ("categories", OneHotEncoder(drop="first", sparse_output=False), ["kind", "shop"]),
    ]
)
last_steps = {
    "a constant": make_pipeline(one_model, DummyRegressor()),
    "one lasso, shop as category": make_pipeline(one_model, LassoCV()),
    "one ridge, shop as category": make_pipeline(one_model, Ridge()),
    "a ridge per shop": make_pipeline(prepare, bm.baselines.IndependentRegressor(task_column="shop")),
    "l1,2, searched": search.best_estimator_,
    "l1,2 by its own cross-validation": make_pipeline(
        prepare, bm.MixedNormRegressorCV(task_column="shop", standardize=True, n_penalties=30, random_state=0)
    ),
    "EM": make_pipeline(prepare, bm.JeffreysRegressor(task_column="shop", random_state=0)),
}
scores = {name: cross_val_score(model, table, price, cv=folds) for name, model in last_steps.items()}
figure, axis = plt.subplots(figsize=(7, 3.5))
for place, (name, score) in enumerate(reversed(scores.items())):
    axis.errorbar(score.mean(), place, xerr=score.std() / 5**0.5, fmt="o", color="tab:blue")
axis.set_yticks(range(len(scores)), list(reversed(scores)))
axis.set(xlabel="R2 on rows of the other folds, mean and standard error")
plt.show()
for name, score in scores.items():
    print(f"{name:36}{score.mean():6.3f}")

# %% [markdown]
# ## As a selector for another model
#
# Every estimator here is also a transformer: `transform` keeps the columns that were selected, and the names go
# along. The task column is not one of them, since selection is about features.

# %%
selectors = {
    "l1,2, one_se": bm.MixedNormRegressorCV(task_column="shop", standardize=True, rule="one_se", random_state=0),
    "the same without standardize": bm.MixedNormRegressorCV(task_column="shop", rule="one_se", random_state=0),
    "EM": bm.JeffreysRegressor(task_column="shop", random_state=0),
}
for name, model in selectors.items():
    kept = make_pipeline(prepare, model).fit(table, price)[-1].get_feature_names_out().tolist()
    probes = sum(column.startswith("probe") for column in kept)
    print(
        f"{name}: {', '.join(column for column in kept if not column.startswith('probe'))}, and {probes} of 20 probes"
    )

# %% [markdown]
# ## What it says
#
# - `task_column=` is all that pipelines and searches need; frames keep names, arrays take a column number.
# - Folds must keep every task: an unknown task at prediction is an error that lists the known ones, unless
#   `unknown_task="mean"`.
# - Fill gaps inside the pipeline, so that medians come from training rows only.
# - The penalty is on coefficients, so units matter: the 0/1 columns of `kind` have small deviations, and a penalty that
#   lets them in lets probes in too. `standardize=True` scales within tasks, which no step before it can do; EM and
#   posteriors do not depend on the units of features.
