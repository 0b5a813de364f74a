"""Entries, patterns and credible sets of fits with exact zeros: what is drawn is what selection says."""

import numpy as np
import pytest
import xarray as xr

from bayesmtfs import selection
from bayesmtfs.plots import credible_sets, entry_probability, patterns, selection_frequency
from bayesmtfs.reporting.sections import section


@pytest.fixture
def spike(fit):
    """A fit of five features and three tasks; features 1 and 2 are alike and one of them is always in."""
    rng = np.random.default_rng(0)
    on = np.zeros((400, 5, 3), dtype=bool)
    on[:, 0] = True
    first = rng.random(400) < 0.6
    on[first, 1, 0] = on[~first, 2, 0] = True
    on[:200, 3, :2] = True
    correlation = np.eye(5, dtype=np.float32)
    correlation[1, 2] = correlation[2, 1] = 0.9
    axes = ("chain", "draw", "feature", "task")
    coords = {"feature": [f"f{i}" for i in range(5)], "task": ["t0", "t1", "t2"]}
    draws = xr.Dataset({"coef": (axes, 1.0 * on[None]), "included": (axes, on[None])}, coords)
    constant = xr.Dataset({"feature_correlation": (("feature", "feature_bis"), correlation)})
    tree = xr.DataTree.from_dict({"posterior": draws, "constant_data": constant})
    return fit(on.mean(axis=0).T, method="BayesianRegressor", posterior=tree)


def test_entries_are_a_heat_map_of_probabilities(spike):
    found = selection.patterns(spike)
    axes = entry_probability(spike)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[0] == "f0" and "f4" not in names  # never in the model
    order = [int(name[1:]) for name in names]
    np.testing.assert_allclose(axes.images[0].get_array(), found.task_probability[:, order].T)
    assert axes.images[0].get_clim() == (0.0, 1.0)
    np.testing.assert_array_equal(entry_probability(found, most=2).images[0].get_array().shape, (2, 3))


def test_patterns_are_bars_of_kinds(spike):
    found = selection.patterns(spike)
    axes = patterns(spike)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["all tasks", "some tasks", "one task"]
    order = [int(label.get_text()[1:]) for label in axes.get_yticklabels()]
    widths = np.array([[bar.get_width() for bar in bars] for bars in axes.containers])
    np.testing.assert_allclose(widths, found.kinds[order, :3].T)
    assert "t0, t1 (50%)" in [text.get_text() for text in axes.texts]


def test_sets_are_coloured_at_their_features(spike):
    axes = credible_sets(spike)
    groups = [tuple(points.get_offsets()[:, 0].astype(int)) for points in axes.collections[2:]]
    assert groups == [(0,), (1, 2)]
    assert axes.get_title() == "BayesianRegressor: 2 credible sets"
    assert axes.get_legend().get_texts()[1].get_text() == "f1, f2: 100%, 1 of 3 tasks"
    assert "0 credible sets" in credible_sets(spike, sets=[]).get_title()


def test_the_report_shows_them_and_only_where_there_are_exact_zeros(spike, posterior):
    shown = section(spike, "spike", "a")
    for words in ("In which tasks:", "How the tasks share a feature:", "Credible sets:"):
        assert words in shown
    assert "Credible sets:" not in section(posterior(np.ones((20, 2, 2))), "other", "b")


def test_fits_without_exact_zeros_are_refused(posterior, fit):
    for draw in (patterns, entry_probability):
        with pytest.raises(
            ValueError, match="has no draws with exact zeros; fit a Bayesian estimator with prior='spike'"
        ):
            draw(posterior(np.ones((20, 2, 2))))
    with pytest.raises(ValueError, match="no draws with exact zeros"):
        patterns(fit([[1.0]]))


def test_frequencies_say_what_they_are_of(spike):
    class Fitted:
        inclusion_probability_ = np.array([1.0, 0.6, 0.4, 0.5, 0.0])
        effect_size = 0.05
        result_ = spike

    assert selection_frequency(Fitted()).get_xlabel() == "probability of being in the model"
