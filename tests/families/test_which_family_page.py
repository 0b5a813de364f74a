"""The table of the page "Which family?": every cell is what a fit does."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.families import base_name, find_family, names
from bayesmtfs.gibbs import chain

PAGE = Path(__file__).parents[2] / "docs" / "pages" / "which_family.md"
LINES = PAGE.read_text(encoding="utf-8").splitlines()
HEADING = next(line for line in LINES if line.startswith("| family |"))
ROWS = {
    cells[0].strip("` "): dict(zip(HEADING.split("|")[1:-1], cells, strict=True))
    for cells in ([cell.strip() for cell in line.split("|")[1:-1]] for line in LINES[LINES.index(HEADING) + 2 :])
    if len(cells) == HEADING.count("|") - 1
}
SAID = {loss: {name.strip(): cell for name, cell in row.items()} for loss, row in ROWS.items()}


def data(loss):
    """A handful of rows of two tasks."""
    rng = np.random.default_rng(0)
    X, tasks = rng.normal(size=(40, 2)), np.arange(40) % 2
    eta = X[:, 0] + rng.normal(size=40)
    family = find_family(loss)
    if family.targets == "counts":
        return X, np.floor(np.exp(np.minimum(eta, 2.0))), tasks
    if family.targets == "survival":
        return X, np.array(list(zip(eta < 1.0, np.exp(-eta), strict=True)), [("event", bool), ("time", float)]), tasks
    if family.targets == "labels":
        return X, (eta > -0.7) + ((eta > 0.7) & family.coupled).astype(int), tasks
    return X, eta, tasks


def takes(loss, name, **settings):
    """Whether an estimator fits; if not, its error names a way out."""
    kind = {"survival": "Survival", "labels": "Classifier"}.get(find_family(loss).targets, "Regressor")
    cls = getattr(bm, name + kind, None)
    if cls is None:
        return False
    X, y, tasks = data(loss)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            coef = cls(loss=loss, **settings).fit(X, y, tasks=tasks).coef_
    except ValueError as error:
        assert re.search(r"use |pass |leave it out", str(error)), error
        return False
    assert np.isfinite(coef).all()
    return True


def test_the_table_has_every_family():
    assert {base_name(loss) for loss in SAID} == set(names())


@pytest.mark.parametrize("loss", SAID)
def test_fits_are_as_the_table_says(loss):
    said = SAID[loss]
    routes = {
        "penalised, path, folds": ("MixedNorm", {}),
        "with `shared_mean`": ("MixedNorm", {"shared_mean": True}),
        "MM": ("GeneralizedNormal", {}),
        "EM": ("Jeffreys", {}),
        "streams": ("OnlineMixedNorm", {}),
    }
    found = {route: "yes" if takes(loss, name, **settings) else "no" for route, (name, settings) in routes.items()}
    assert found == {route: said[route] for route in routes}


@pytest.mark.parametrize("loss", SAID)
def test_samplers_are_as_the_table_says(loss):
    family, said = find_family(loss), SAID[loss]
    X, y, tasks = data(loss)
    y = np.ones(40) if family.targets == "survival" else 2.0 * y - 1.0 if family.targets == "labels" else y
    rows = bm.TaskData.from_long(X, y, tasks)
    gibbs = chain.supports(rows, family, "generalized_normal")
    density = family.offers("log_density") or family.free_level
    assert said["posterior"] == ("Gibbs" if gibbs else "NUTS" if family.offers("pymc_dist") and density else "no")
    assert said['`prior="spike"`'] == ("yes" if family.augmentation is not None else "no")
