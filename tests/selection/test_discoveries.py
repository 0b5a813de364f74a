"""Sets with a controlled false discovery rate: largest, calibrated, and counted draw by draw."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bayesmtfs as bm
from bayesmtfs.selection import discoveries
from bayesmtfs.selection.discoveries import largest_set, running_rate, sign_errors, size_errors
from bayesmtfs.types import SelectionWarning

# what discoveries of entries say of every prior in this file but the last
NO_ZEROS = "ignore:the prior has no exact zeros"


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7), st.sampled_from([0.0, 0.1, 0.3, 0.5]))
@settings(max_examples=60, deadline=None)
def test_no_larger_set_is_allowed(twentieths, level):
    error = np.array(twentieths) / 20
    found = largest_set(error, level)
    sizes = [
        size
        for size in range(len(error) + 1)
        if any(
            np.mean(error[list(chosen)]) <= level + 1e-12 for chosen in combinations(range(len(error)), size) if size
        )
    ]
    assert found.sum() == max(sizes, default=0)
    if found.any():
        assert error[found].mean() <= level + 1e-12
        assert error[found].max() <= error[~found].min(initial=1.0)


def test_running_rate_is_the_mean_of_the_surer_ones():
    error = np.array([[0.2, 0.0], [0.6, 0.1]])
    np.testing.assert_allclose(running_rate(error), [[0.1, 0.0], [0.225, 0.05]])


N_REPEATS, P, M = 150, 20, 2


def two_groups_posterior(rng):
    """Rows with means of variance 4 or 0.01, observed with noise 1: the truth, and exact draws of its posterior."""
    groups = np.array([4.0, 0.01])
    theta = np.sqrt(rng.choice(groups, (P, 1))) * rng.standard_normal((P, M))
    x = theta + rng.standard_normal(theta.shape)
    # log-density of a row in each group: its entries are N(0, variance + 1)
    log_density = -0.5 * M * np.log(groups + 1) - 0.5 * np.sum(x**2, axis=1, keepdims=True) / (groups + 1)
    first = 1 / (1 + np.exp(log_density[:, 1] - log_density[:, 0]))
    variance = np.where(rng.random((500, P)) < first, *groups)[:, :, None]
    share = variance / (variance + 1)
    return theta, x * share + np.sqrt(share) * rng.standard_normal((500, P, M))


@pytest.mark.filterwarnings("ignore:no .* is sure enough", NO_ZEROS)
@pytest.mark.parametrize("of", ["features", "entries"])
def test_rate_of_wrong_signs_is_calibrated(tree_of, of):
    rng = np.random.default_rng(11)
    shares, expected, covered = [], [], []
    for _ in range(N_REPEATS):
        theta, draws = two_groups_posterior(rng)
        result = discoveries(tree_of(draws), by="sign", of=of, level=0.1)
        positive = np.mean(draws > 0, axis=0)
        wrong = (theta > 0) != (positive > 0.5)
        if of == "features":
            wrong = wrong[np.arange(P), np.abs(positive - 0.5).argmax(axis=1)]
        n_selected, false = max(result.selected.sum(), 1), int(wrong.T[result.selected].sum())
        shares.append(false / n_selected)
        expected.append(result.expected_false / n_selected)
        covered.append(result.false_interval[0] <= false <= result.false_interval[1])
    error = np.std(shares) / np.sqrt(N_REPEATS)
    assert np.mean(shares) <= 0.1 + 2 * error
    assert abs(np.mean(shares) - np.mean(expected)) <= 3 * error
    assert np.mean(covered) >= 0.85
    assert np.mean(expected) > 0.05  # the level is used


def test_errors_by_hand():
    effect = np.array([[[0.3, 0.0], [0.1, -0.1]], [[-0.3, 0.4], [0.1, 0.3]], [[0.2, 0.5], [0.2, 0.1]]])
    np.testing.assert_array_equal(
        size_errors(effect, 0.15, "features"), [[False, True], [False, False], [False, False]]
    )
    np.testing.assert_array_equal(
        size_errors(effect, 0.15, "entries")[:, 1], [[True, True], [True, False], [False, True]]
    )
    # feature 0 is surest in task 0 or 1 (one error in three draws each): the first is taken; feature 1 in task 0
    np.testing.assert_array_equal(sign_errors(effect, "features"), [[False, False], [True, False], [False, False]])
    np.testing.assert_array_equal(sign_errors(effect, "entries")[:, 0], [[False, True], [True, False], [False, False]])


@pytest.fixture(scope="module")
def sim():
    return bm.simulate_tasks(n_tasks=3, n_features=10, n_relevant=3, n_samples=80, snr=8, random_state=2)


@pytest.mark.filterwarnings(NO_ZEROS)
@pytest.mark.parametrize("of", ["features", "entries"])
@pytest.mark.parametrize("by", ["size", "sign"])
def test_what_follows_from_a_posterior(sim, conjugate_tree, of, by):
    tree = conjugate_tree(sim, spike=0.01)
    found = discoveries(tree, sim.X, sim.y, sim.tasks, of=of, by=by, level=0.02)
    assert found.selected.shape == found.error_probability.shape == ((10,) if of == "features" else (3, 10))
    np.testing.assert_array_equal(found.get_support(), sim.support)
    assert set(found.features) == {f"x{i}" for i in np.flatnonzero(sim.support)}
    assert found.expected_false == pytest.approx(found.error_probability[found.selected].sum())
    assert found.expected_false <= 0.02 * found.selected.sum() + 1e-12
    assert found.rate[found.selected].max() <= 0.02 < found.rate[~found.selected].min()
    low, high = found.false_interval
    assert np.mean((found.false_counts >= low) & (found.false_counts <= high)) >= 0.89
    assert (
        f"{found.selected.sum()} of {found.selected.size} {of} are kept at a false discovery rate of 0.02"
        in found.summary()
    )
    assert repr(found).startswith(
        f"Discoveries({found.selected.sum()} of {found.selected.size} {of} at level 0.02 by {by}"
    )


@pytest.mark.filterwarnings(NO_ZEROS)
@pytest.mark.parametrize("backend", ["pandas", "polars"])
def test_frame_of_entries(sim, conjugate_tree, backend):
    found = discoveries(conjugate_tree(sim), by="sign", of="entries")
    whole, kept = found.to_frame(backend=backend), found.to_frame(selected_only=True, backend=backend)
    assert list(whole.columns) == ["feature", "task", "error_probability", "rate", "selected"]
    assert len(whole) == 30 and len(kept) == found.selected.sum()
    np.testing.assert_array_equal(np.asarray(whole["error_probability"]), found.error_probability.T.ravel())
    assert found.get_support(indices=True).tolist() == np.flatnonzero(found.selected.any(axis=0)).tolist()


def test_an_empty_set_is_warned_of(tree_of):
    draws = np.random.default_rng(0).standard_normal((500, 4, 1))
    with pytest.warns(
        SelectionWarning, match="no feature is sure enough for a false discovery rate of 0.01: the surest"
    ):
        found = discoveries(tree_of(draws), by="sign", level=0.01)
    assert not found.selected.any() and found.expected_false == 0 and found.false_interval == (0, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 0.0}, "level is 0.0; pass a number between 0 and 1"),
        ({"of": "rows"}, "of is 'rows'; pass 'features' or 'entries'"),
        ({"by": "p-value"}, "by is 'p-value'; pass 'inclusion' or 'size' or 'sign'"),
        ({"effect_size": np.nan}, "effect_size is nan; pass a finite number"),
        ({}, "X is missing: effects are measured in standard deviations"),
        ({"by": "inclusion"}, "by is 'inclusion', but the posterior has no variable included"),
    ],
)
def test_bad_arguments(sim, conjugate_tree, options, message):
    with pytest.raises(ValueError, match=message):
        discoveries(conjugate_tree(sim), **options)


@pytest.mark.parametrize("by", ["size", "sign"])
def test_entries_of_a_prior_without_exact_zeros_are_warned_of(sim, conjugate_tree, by):
    with pytest.warns(SelectionWarning, match="the prior has no exact zeros: .* fit with prior='spike'"):
        discoveries(conjugate_tree(sim), sim.X, sim.y, sim.tasks, of="entries", by=by)


@pytest.mark.parametrize("of", ["features", "entries"])
def test_with_exact_zeros_what_is_in_the_model_counts_and_no_data_are_needed(tree_of, of):
    rng = np.random.default_rng(3)
    probability = np.array([[0.99, 0.9, 0.2], [0.03, 0.01, 0.02], [0.5, 0.0, 1.0]])
    included = rng.random((2000, 3, 3)) < probability
    found = discoveries(tree_of(included * 1e-9, included=included), of=of, level=0.06)
    error = 1 - included.mean(axis=0) if of == "entries" else 1 - included.any(axis=2).mean(axis=0)
    np.testing.assert_allclose(found.error_probability, error.T)
    np.testing.assert_array_equal(found.selected, largest_set(error, 0.06).T)
    assert found.by == "inclusion" and "that are not in the model: 0." in found.summary()
    assert found.features.tolist() == ["x2", "x0"]
    np.testing.assert_array_equal(found.false_counts, _errors(included, found.selected, of))


def _errors(included, selected, of):
    """Number of kept ones that are not in the model, draw by draw."""
    on = included.any(axis=2) if of == "features" else included.transpose(0, 2, 1)
    return (~on & selected).sum(axis=tuple(range(1, on.ndim)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning", "ignore:no .* is sure enough")
def test_sets_of_sampled_posteriors_are_calibrated():
    """Signs below a false sign rate of 0.05, and sets by size, over simulated regressions fitted from end to end.

    The truth has exact zeros, which the prior does not: at a size that the data resolve this makes no difference.
    """
    wrong_signs, wrong_sizes = [], []
    for seed in range(40):
        sim = bm.simulate_tasks(n_tasks=5, n_features=15, n_relevant=4, n_samples=40, snr=2, random_state=seed)
        model = bm.BayesianRegressor(draws=500, tune=500, chains=2, sampler="gibbs", random_state=0)
        model.fit(sim.X, sim.y, tasks=sim.tasks)
        sure = model.local_false_sign_rate_ < 0.05
        wrong_signs += (np.sign(model.coef_) != np.sign(sim.coef))[sure].tolist()
        found = discoveries(model, sim.X, sim.y, sim.tasks, level=0.1, effect_size=0.1)
        effect = np.abs(sim.coef * sim.X.std(axis=0) / sim.y.std()).max(axis=0)
        wrong_sizes += (effect[found.selected] <= 0.1).tolist()
    assert len(wrong_signs) > 200 and len(wrong_sizes) > 100
    assert np.mean(wrong_signs) <= 0.05 + 2 * np.std(wrong_signs) / np.sqrt(len(wrong_signs))
    assert np.mean(wrong_sizes) <= 0.1
