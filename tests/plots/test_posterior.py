"""Selection frequencies, relations between tasks, q, posterior predictive checks."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from bayesmtfs.plots import norm_q, predictive_check, selection_frequency, task_relations


def test_q_of_draws(posterior):
    draws = np.random.default_rng(0).uniform(1.5, 3.0, 400)
    axes = norm_q(posterior(np.ones((400, 1, 1)), norm_q=draws))
    np.testing.assert_allclose(1 / axes.lines[0].get_xdata()[0], np.median(draws))
    assert sum(patch.get_height() * patch.get_width() for patch in axes.patches[:40]) == pytest.approx(1.0)


def test_q_of_an_em_fit(fit):
    axes = norm_q(SimpleNamespace(result_=fit([[1.0]]), norm_q_=2.5, norm_q_interval_=(2.0, 4.0)))
    assert 1 / axes.lines[0].get_xdata()[0] == pytest.approx(2.5)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["90%: 2 to 4", "estimate: 2.5"]
    with pytest.raises(ValueError, match="norm_q='learn'"):
        norm_q(fit([[1.0]]))


@pytest.mark.parametrize("labels", [False, True])
def test_predictive_check_shows_observed_and_drawn(posterior, labels):
    rng = np.random.default_rng(0)
    drawn, observed = rng.standard_normal((1, 30, 25)), rng.standard_normal(25)
    if labels:
        drawn, observed = np.sign(drawn), np.sign(observed)
    result = posterior(np.ones((30, 1, 1)))
    tree = result.posterior.copy()
    tree["posterior_predictive"] = xr.DataTree(xr.Dataset({"y": (("chain", "draw", "obs"), drawn)}))
    tree["observed_data"] = xr.DataTree(xr.Dataset({"y": (("obs",), observed)}))
    axes = predictive_check(SimpleNamespace(result_=type(result)(**{**vars(result), "posterior": tree})), n_draws=10)
    if labels:
        assert axes.lines[0].get_xdata()[0] == (observed > 0).mean()
    else:
        assert len(axes.lines) == 11
        np.testing.assert_array_equal(axes.lines[-1].get_xdata(), np.sort(observed))


def test_fits_without_predictive_draws_are_refused(fit):
    with pytest.raises(ValueError, match="posterior predictive"):
        predictive_check(fit([[1.0]]))


def test_similar_tasks_are_neighbours(fit):
    groups = np.array([0, 1, 0, 1])
    relations = np.where(groups[:, None] == groups, 0.8, -0.5)
    np.fill_diagonal(relations, 1.0)
    axes = task_relations(fit(np.ones((4, 2)), task_relations=relations))
    order = [int(label.get_text()[1:]) for label in axes.get_xticklabels()]
    assert groups[order].tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    np.testing.assert_array_equal(axes.images[0].get_array(), relations[np.ix_(order, order)])
    assert axes.images[0].get_clim() == (-0.8, 0.8)


def test_order_of_names_on_request(fit):
    axes = task_relations(fit(np.ones((3, 2)), task_relations=np.eye(3)), cluster=False)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["t0", "t1", "t2"]


def test_fits_without_relations_are_refused(fit):
    with pytest.raises(ValueError, match="no task relations"):
        task_relations(fit([[1.0]]))


def test_frequencies_are_bars_most_frequent_first():
    stability = SimpleNamespace(
        selection_frequency=np.array([0.2, 0.9, 0.0]), feature_names=np.array(["a", "b", "c"]), threshold=0.75
    )
    axes = selection_frequency(stability)
    assert [bar.get_width() for bar in axes.patches] == [0.9, 0.2]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "a"]
    assert axes.lines[0].get_xdata()[0] == 0.75
    assert axes.get_xlim() == (0, 1)


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="selection frequencies"):
        selection_frequency(3)
