"""Pictures: what is drawn, not how it looks."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from bayesmtfs import FitResult
from bayesmtfs.plots import coefficient_heatmap
from bayesmtfs.results import Convergence


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def fit(coef):
    coef = np.asarray(coef, dtype=float)
    return FitResult(
        method="Some",
        coef=coef,
        intercept=np.zeros(len(coef)),
        task_names=[f"t{i}" for i in range(len(coef))],
        feature_names=[f"f{i}" for i in range(coef.shape[1])],
        convergence=Convergence(converged=True, n_iter=1),
    )


def test_heatmap_shows_selected_rows_largest_first():
    axes = coefficient_heatmap(fit([[1.0, 0.0, -3.0], [0.5, 0.0, 2.0]]))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["f2", "f0"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["t0", "t1"]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[-3.0, 2.0], [1.0, 0.5]])
    assert axes.images[0].get_clim() == (-3.0, 3.0)
    assert axes.get_title() == "Some: 2 of 3 features selected"


def test_heatmap_stays_readable_when_large():
    coef = np.random.default_rng(0).standard_normal((139, 10_000))
    axes = coefficient_heatmap(fit(coef))
    assert axes.images[0].get_array().shape == (40, 139)
    assert len(axes.get_xticklabels()) <= 40


def test_heatmap_of_nothing_and_on_given_axes():
    own = plt.figure().add_subplot()
    axes = coefficient_heatmap(fit(np.zeros((2, 3))), ax=own)
    assert axes is own and "0 of 3" in axes.get_title()
