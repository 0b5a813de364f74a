"""Relations between tasks."""

import numpy as np
import pytest

from bayesmtfs.plots import task_relations


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
