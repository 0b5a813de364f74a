"""Patterns of tasks: counted by hand, and against the probabilities that made the draws."""

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.results.fit_result import Convergence
from bayesmtfs.selection import patterns
from bayesmtfs.selection.patterns import kind_probabilities, sharing
from bayesmtfs.types import SelectionWarning

ROWS = np.array([[1, 1, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)


@pytest.fixture(scope="module")
def included():
    """(1000, 3, 3) Draws: feature 0 in all tasks or in two, feature 1 in one or none, feature 2 never."""
    draws = np.zeros((1000, 3, 3), dtype=bool)
    draws[:700, 0], draws[700:, 0] = ROWS[0], ROWS[1]
    draws[:600, 1] = ROWS[2]
    return draws


def test_patterns_and_kinds_by_hand(tree_of, included):
    found = patterns(tree_of(1.0 * included, included=included, tasks=["a", "b", "c"]))
    assert found.patterns[0] == ((("a", "b", "c"), 0.7), (("a", "b"), 0.3))
    assert found.patterns[1] == ((("b",), 0.6), ((), 0.4))
    assert found.patterns[2] == (((), 1.0),)
    np.testing.assert_allclose(found.kinds, [[0.7, 0.3, 0, 0], [0, 0, 0.6, 0.4], [0, 0, 0, 1]])
    assert found.kind.tolist() == ["all", "specific", "none"]
    np.testing.assert_allclose(found.inclusion_probability, [1.0, 0.6, 0.0])
    np.testing.assert_allclose(found.task_probability, included.mean(axis=0).T)
    # features that a has: 1, b: 1.6, c: 0.7; both a and b: 1, either: 1.6
    np.testing.assert_allclose(found.sharing[0], [1.0, 1 / 1.6, 0.7])
    assert repr(found) == "Patterns(2 of 3 features in the model with probability over 1/2: 1 all, 0 some, 1 specific)"


@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_frames(tree_of, included, backend):
    found = patterns(tree_of(1.0 * included, included=included, tasks=["a", "b", "c"]))
    whole, long = found.to_frame(backend=backend), found.to_frame("patterns", backend=backend)
    assert list(whole.columns) == ["feature", "kind", "all", "some", "specific", "none", "likeliest_tasks"]
    assert list(whole["likeliest_tasks"]) == ["all", "b", "none"]
    assert list(long["tasks"]) == ["all", "a, b", "b", "none", "none"] and list(long["n_tasks"]) == [3, 2, 1, 0, 0]
    np.testing.assert_allclose(np.asarray(long["probability"]), [0.7, 0.3, 0.6, 0.4, 1.0])


def test_probabilities_sum_to_one_and_are_those_of_single_tasks(tree_of):
    rng = np.random.default_rng(0)
    draws = rng.random((3000, 4, 11)) < rng.random((4, 11)) ** 0.2  # more tasks than bits in a byte
    found = patterns(tree_of(1.0 * draws, included=draws))
    np.testing.assert_allclose(found.kinds.sum(axis=1), 1.0)
    for i, listed in enumerate(found.patterns):
        probability = [one.probability for one in listed]
        assert probability == sorted(probability, reverse=True) and min(probability) >= 0.01
        for one in listed[:3]:
            row = np.isin(np.arange(11), one.tasks)
            assert one.probability == pytest.approx((draws[:, i] == row).all(axis=1).mean())


def test_one_task_is_all_and_a_feature_of_one_task_is_specific(tree_of):
    single = np.random.default_rng(0).random((100, 2, 1)) < 0.7
    assert patterns(tree_of(1.0 * single, included=single)).kind.tolist() == ["all", "all"]
    on = np.ones((10, 3, 4), dtype=bool)
    on[:, 1, 2:] = on[:, 2, 1:] = False
    np.testing.assert_array_equal(
        kind_probabilities(on, np.array([4, 2, 1])), [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]
    )


def test_features_that_a_task_lacks_do_not_count_against_all(tree_of):
    on = np.ones((20, 2, 3), dtype=bool)
    on[:, 1, 2] = False
    absent = np.array([[False, False], [False, False], [False, True]])
    result = bm.FitResult(
        method="BayesianRegressor",
        coef=np.ones((3, 2)),
        intercept=np.zeros(3),
        task_names=[0, 1, 2],
        feature_names=["x0", "x1"],
        convergence=Convergence(converged=True, n_iter=1),
        posterior=tree_of(1.0 * on, included=on),
        absent=absent,
    )
    assert patterns(result).kind.tolist() == ["all", "all"]
    assert patterns(result.posterior).kind.tolist() == ["all", "some"]


def test_tasks_that_never_share_and_tasks_without_features():
    on = np.zeros((50, 3, 3), dtype=bool)
    on[:, 0, 0] = on[:, 1, 1] = True
    np.testing.assert_array_equal(sharing(on), np.diag([1.0, 1.0, 0.0]))


def test_a_prior_without_exact_zeros_needs_a_size_and_is_warned_of(conjugate_tree):
    sim = bm.simulate_tasks(n_tasks=3, n_features=6, n_relevant=2, n_samples=60, snr=10, random_state=1)
    with pytest.warns(SelectionWarning, match="the prior has no exact zeros"):
        found = patterns(conjugate_tree(sim, spike=0.01), sim.X, sim.y, sim.tasks)
    np.testing.assert_array_equal(found.inclusion_probability > 0.5, sim.support)
    with pytest.raises(ValueError, match="X is missing"):
        patterns(conjugate_tree(sim))
    with pytest.raises(ValueError, match="of is 'rows'; pass 'features' or 'patterns'"):
        found.to_frame("rows")
