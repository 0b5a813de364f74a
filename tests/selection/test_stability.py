"""Stability selection: frequencies, halves, bounds, messages; and Nogueira's stability of sets."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import bayesmtfs as bm
from bayesmtfs.selection import set_stability, stability
from bayesmtfs.selection.stability import (
    _draw_halves,
    _first_features,
    error_bounds,
    largest_number,
    smallest_threshold,
    unimodal_factor,
)
from bayesmtfs.types import ConvergenceWarning, SelectionWarning


@pytest.fixture(scope="module")
def sim():
    return bm.simulate_tasks(n_tasks=3, n_features=15, n_relevant=3, n_samples=[20, 31, 24], random_state=2)


@pytest.fixture(scope="module")
def labels():
    return bm.simulate_tasks(n_tasks=2, n_features=8, n_relevant=2, n_samples=50, kind="classification", random_state=0)


def halves_of(data, n_pairs, by_class, seed):
    return _draw_halves(data, n_pairs, by_class, np.random.RandomState(seed))


def test_frequencies_equal_brute_force(sim):
    model = bm.MixedNormRegressor(penalty_strength=0.3, norm_q=1)
    found = stability(model, sim.X, sim.y, sim.tasks, n_pairs=4, random_state=7)
    data = bm.TaskData.from_long(sim.X, sim.y, sim.tasks)
    chosen = []
    for half in halves_of(data, 4, False, 7):
        rows = data.order[half]
        chosen.append(clone(model).fit(sim.X[rows], sim.y[rows], tasks=sim.tasks[rows]).coef_ != 0)
    np.testing.assert_array_equal(found.task_frequency, np.mean(chosen, axis=0))
    np.testing.assert_array_equal(found.selection_frequency, np.mean([c.any(axis=0) for c in chosen], axis=0))
    np.testing.assert_array_equal(found.n_selected, [c.any(axis=0).sum() for c in chosen])
    assert found.average_selected == np.mean(found.n_selected)
    assert not hasattr(model, "coef_")


def test_halves_are_complementary_and_balanced_within_tasks(sim):
    data = bm.TaskData.from_long(sim.X, sim.y, sim.tasks)
    halves = halves_of(data, 6, False, 0)
    for first, second in zip(halves[::2], halves[1::2], strict=True):
        np.testing.assert_array_equal(first, ~second)
        assert np.abs(np.bincount(data.task[first]) - np.bincount(data.task[second])).max() <= 1
    assert len({half.tobytes() for half in halves}) == 12


def test_halves_are_balanced_within_classes(labels):
    data = bm.TaskData.from_long(labels.X, np.where(labels.y > 0, 1.0, -1.0), labels.tasks)
    part = 2 * data.task + (data.y > 0)
    for first in halves_of(data, 5, True, 1)[::2]:
        assert np.abs(np.bincount(part[first], minlength=4) - np.bincount(part[~first], minlength=4)).max() <= 1


def test_cells_of_a_row_stay_together_in_the_wide_form():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((20, 3))
    Y[rng.random(Y.shape) < 0.3] = np.nan
    data = bm.TaskData.from_wide(rng.standard_normal((20, 4)), Y)
    for half in halves_of(data, 5, False, 3):
        assert not set(data.rows[half]) & set(data.rows[~half])


def test_number_of_jobs_does_not_change_a_bit(sim):
    model = bm.MixedNormRegressor()
    one, two = (
        stability(model, sim.X, sim.y, sim.tasks, n_pairs=3, n_features=3, n_jobs=jobs, random_state=5)
        for jobs in (1, 2)
    )
    for name in ("selection_frequency", "task_frequency", "n_selected"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()


@pytest.mark.parametrize("n_features", [1, 3, 6])
def test_first_features_of_the_path(n_features):
    # With an orthonormal design feature i enters when the penalty falls below the length of its coefficients
    rng = np.random.default_rng(4)
    X = np.linalg.qr(rng.standard_normal((40, 6)))[0] * np.sqrt(40)
    order, W = [4, 1, 5, 0, 3, 2], np.zeros((6, 2))
    W[order] = np.outer([3.0, 2.4, 1.9, 1.5, 1.2, 1.0], [0.6, -0.8])
    data = bm.TaskData.from_wide(X, X @ W)
    selected, converged = _first_features(bm.MixedNormRegressor(fit_intercept=False), data, n_features)
    assert converged and (selected[0] == selected[1]).all()
    assert set(np.flatnonzero(selected[0])) == set(order[:n_features])


def test_recovery_and_what_follows_from_the_expected_errors():
    easy = bm.simulate_tasks(n_tasks=3, n_features=15, n_relevant=3, n_samples=80, random_state=0)
    options = {"expected_false": 1.0, "n_pairs": 5, "random_state": 0}
    model = bm.MixedNormRegressor(tol=1e-4)
    fewer = stability(model, easy.X, easy.y, easy.tasks, **options)
    assert fewer.n_features == 2 and fewer.threshold == 0.75
    assert fewer.error_bounds().meinshausen_buehlmann <= 1.0
    assert not (fewer.get_support() & ~easy.support).any()
    found = stability(model, easy.X, easy.y, easy.tasks, n_features=3, **options)
    assert found.threshold == pytest.approx((1 + 9 / 15) / 2)
    np.testing.assert_array_equal(found.get_support(), easy.support)
    assert set(found.selected) == {f"x{i}" for i in np.flatnonzero(easy.support)}


def test_false_selections_on_noise_stay_within_the_bound():
    # Independent noise features are exchangeable, so that theorem 1 of Meinshausen and Buehlmann holds
    p, kept = 20, []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, Y = rng.standard_normal((24, p)), rng.standard_normal((24, 2))
        found = stability(
            bm.MixedNormRegressor(tol=1e-3), X, Y, n_features=4, n_pairs=10, threshold=0.8, random_state=seed
        )
        assert (found.n_selected == 4).all()
        kept.append(found.get_support().sum())
    bound = found.error_bounds().meinshausen_buehlmann
    assert bound == pytest.approx(16 / (0.6 * 20))
    error = np.std(kept) / np.sqrt(len(kept))
    assert np.mean(kept) <= bound + 3 * error


@pytest.mark.parametrize("form", ["long", "classes", "frame", "wide"])
def test_every_form(labels, form):
    model = bm.MixedNormClassifier(tol=1e-4)
    names = [f"x{i}" for i in range(8)]
    if form == "long":
        arguments = (labels.X, np.where(labels.y > 0, "yes", "no"), labels.tasks)
    elif form == "classes":
        arguments = (labels.X, np.digitize(labels.X[:, 0], [-0.5, 0.5]))
    elif form == "frame":
        model.set_params(task_column="school")
        arguments = (pd.DataFrame(labels.X, columns=names).assign(school=labels.tasks), labels.y)
    else:
        Y = np.column_stack([labels.X[:, 0] > 0, labels.X[:, 1] > 0]).astype(float)
        Y[::7, 1] = np.nan
        arguments = (labels.X, Y)
    found = stability(model, *arguments, n_pairs=2, n_features=2, random_state=0)
    assert found.selection_frequency.shape == (8,)
    assert found.task_frequency.shape == (3 if form == "classes" else 2, 8)
    assert found.feature_names.tolist() == names
    assert (found.task_frequency.max(axis=0) <= found.selection_frequency).all()


def test_summary_says_what_is_bounded(sim):
    found = stability(bm.MixedNormRegressor(), sim.X, sim.y, sim.tasks, n_pairs=5, n_features=3, random_state=0)
    text = found.summary()
    bounds = found.error_bounds()
    assert "A half selects 3.0 features on average, and 3 at most." in text
    assert f"at most {bounds.worst_case:.3g}, without assumptions" in text
    assert f"selects with a probability of {3 / 15:.3g} or less" in text
    assert f"The same: at most {bounds.unimodal:.3g}, if the frequencies" in text
    assert repr(found).startswith(
        f"Stability({found.get_support().sum()} of 15 features kept at threshold 0.75; 5 pairs"
    )
    assert found.get_support(threshold=1.0).sum() <= found.get_support(threshold=0.6).sum()
    assert (
        "The same"
        not in stability(
            bm.MixedNormRegressor(penalty_strength=0.01), sim.X, sim.y, sim.tasks, n_pairs=1, random_state=0
        ).summary()
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.5}, r"threshold is 0.5; pass a number above 0.5 and up to 1"),
        ({"threshold": 1.1}, r"threshold is 1.1; pass"),
        ({"n_pairs": 0}, r"n_pairs is 0; pass a whole number of at least 1"),
        ({"n_features": 0}, r"n_features is 0; pass a whole number between 1 and 15"),
        ({"n_features": 16}, r"n_features is 16; pass a whole number between 1 and 15"),
        ({"expected_false": 0.0}, r"expected_false is 0.0; pass a positive number"),
        ({"expected_false": 0.01}, r"expected_false is 0.01, too small for 15 features .* pass at least 0.133"),
        ({"expected_false": 1, "n_features": 9}, r"no threshold is enough; pass n_features of at most 3"),
        ({"expected_false": 1, "n_features": 2, "threshold": 0.9}, r"pass two, they determine the third"),
    ],
)
def test_bad_arguments(sim, options, message):
    with pytest.raises(ValueError, match=message):
        stability(bm.MixedNormRegressor(), sim.X, sim.y, sim.tasks, **options)


def test_features_are_counted_only_where_they_enter_one_by_one(sim):
    for model in (bm.MixedNormRegressor(shared_mean=True), bm.MixedNormRegressor(groups=np.arange(15) // 3)):
        with pytest.raises(ValueError, match="leave n_features and expected_false out"):
            stability(model, sim.X, sim.y, sim.tasks, n_features=2)


def test_every_estimator_with_coefficients_can_be_asked(sim):
    model = bm.JeffreysRegressor()
    found = stability(model, sim.X, sim.y, sim.tasks, n_pairs=2, random_state=0)
    data = bm.TaskData.from_long(sim.X, sim.y, sim.tasks)
    rows = [data.order[half] for half in halves_of(data, 2, False, 0)]
    chosen = [clone(model).fit(sim.X[half], sim.y[half], tasks=sim.tasks[half]).get_support() for half in rows]
    np.testing.assert_array_equal(found.selection_frequency, np.mean(chosen, axis=0))
    with pytest.raises(
        ValueError, match="needs a penalty path, which JeffreysRegressor does not have; leave n_features"
    ):
        stability(model, sim.X, sim.y, sim.tasks, n_features=2)
    for other in (LinearRegression(), bm.DiscriminativeSelector()):
        with pytest.raises(TypeError, match="pass an estimator of this package that has coefficients"):
            stability(other, sim.X, sim.y, sim.tasks)


def test_groups_are_selected_whole(sim):
    model = bm.MixedNormRegressor(groups=np.arange(15) // 3, penalty_strength=0.5)
    found = stability(model, sim.X, sim.y, sim.tasks, n_pairs=3, random_state=0)
    frequencies = found.selection_frequency.reshape(5, 3)
    assert (frequencies == frequencies[:, :1]).all() and 0 < frequencies.max()


def test_a_task_that_cannot_be_cut_is_named(sim, labels):
    tasks = np.where(np.arange(len(sim.y)) == 0, 99, sim.tasks)
    with pytest.raises(ValueError, match="task 99 cannot be cut into two halves: every task needs at least two rows;"):
        stability(bm.MixedNormRegressor(), sim.X, sim.y, tasks)
    rare = np.where((labels.tasks == 1) & (np.arange(100) != 75), 0, labels.y > 0).astype(int)
    rare[75] = 1
    with pytest.raises(ValueError, match="task 1 cannot be cut .* at least two rows of each class"):
        stability(bm.MixedNormClassifier(), labels.X, rare, labels.tasks)


def test_empty_selections_and_unsolved_halves_are_warned_of(sim):
    with pytest.warns(SelectionWarning, match="no half selects any feature; lower penalty_strength"):
        nothing = stability(bm.MixedNormRegressor(penalty_strength=1e6), sim.X, sim.y, sim.tasks, n_pairs=1)
    assert not nothing.get_support().any() and nothing.error_bounds().worst_case == 0
    hasty = bm.MixedNormRegressor(penalty_strength=1e-3, max_iter=1, solver="proximal_gradient")
    with pytest.warns(ConvergenceWarning, match="2 of 2 halves were not solved to tolerance; raise the estimator's"):
        stability(hasty, sim.X, sim.y, sim.tasks, n_pairs=1, random_state=0)


# ---------------------------------------------------------------------- bounds


def test_special_case_of_meinshausen_and_buehlmann():
    # After their theorem 1: a threshold of 0.9 and q = sqrt(0.8 p) features give at most one expected error
    p = 5000
    bounds = error_bounds(np.sqrt(0.8 * p), p, threshold=0.9, n_pairs=50)
    assert bounds.meinshausen_buehlmann == pytest.approx(1.0)
    assert bounds.worst_case == bounds.meinshausen_buehlmann


def test_at_threshold_one_the_bound_is_q_squared_over_p():
    assert error_bounds(7, 100, threshold=1.0, n_pairs=30).worst_case == pytest.approx(0.49)


def largest_tail(mean, level, n_pairs):
    """Largest P(Y >= level) over the unimodal distributions on {0, 1/B, ..., 1} with this mean, by linear programs."""
    grid = np.arange(n_pairs + 1) / n_pairs
    rises = np.eye(n_pairs, n_pairs + 1) - np.eye(n_pairs, n_pairs + 1, k=1)
    best = 0.0
    for mode in range(n_pairs + 1):
        signs = np.where(np.arange(n_pairs) < mode, 1.0, -1.0)
        found = linprog(
            -(grid >= level - 1e-9).astype(float),
            A_ub=signs[:, None] * rises,
            b_ub=np.zeros(n_pairs),
            A_eq=np.stack([np.ones(n_pairs + 1), grid]),
            b_eq=[1.0, mean],
        )
        best = max(best, -found.fun) if found.status == 0 else best
    return best


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("reached", [12, 14, 15, 16, 18, 20])
def test_unimodal_bound_is_the_extreme_of_all_unimodal_distributions(share, reached):
    # A feature that a half selects with probability theta is selected by both halves with probability theta^2, and
    # its frequency reaches tau only where that of both halves reaches 2 tau - 1
    n_pairs = 10
    threshold = reached / (2 * n_pairs)
    factor = unimodal_factor(share, threshold, n_pairs)
    extreme = largest_tail(share**2, 2 * threshold - 1, n_pairs)
    if np.isnan(factor):
        assert threshold <= 0.5 + min(share**2, 1 / (2 * n_pairs) + 0.75 * share**2)
    else:
        assert factor * share**2 == pytest.approx(extreme, rel=1e-6)
        assert factor * share**2 < share**2 / (2 * threshold - 1)


def test_a_threshold_acts_as_the_next_frequency():
    assert unimodal_factor(0.1, 0.61, 10) == unimodal_factor(0.1, 0.65, 10)
    assert unimodal_factor(0.1, 0.6, 10) == unimodal_factor(0.1, 0.6 - 1e-15, 10)


@pytest.mark.parametrize(("share", "threshold", "n_pairs"), [(0.6, 0.9, 50), (0.1, 0.51, 50), (0.1, 0.9, 1)])
def test_unimodal_bound_is_not_given_where_it_does_not_hold(share, threshold, n_pairs):
    # theta above 1 / sqrt(3); thresholds below 1/2 + 1/B
    assert np.isnan(unimodal_factor(share, threshold, n_pairs))


def test_planning_inverts_the_bound():
    p = 300
    for threshold in (0.6, 0.75, 0.9, 1.0):
        q = largest_number(2.0, p, threshold)
        assert error_bounds(q, p, threshold, 50).worst_case <= 2.0 + 1e-9
        assert error_bounds(q + 1, p, threshold, 50).worst_case > 2.0
        assert smallest_threshold(2.0, p, q) <= threshold
        assert error_bounds(q, p, smallest_threshold(2.0, p, q), 50).worst_case == pytest.approx(2.0)


# ---------------------------------------------------------------------- agreement of sets


def random_sets(number, p, k, keep, rng):
    """Sets of size k that share ``keep`` fixed features."""
    sets = np.zeros((number, p), dtype=bool)
    sets[:, :keep] = True
    for row in sets:
        row[keep + rng.choice(p - keep, k - keep, replace=False)] = True
    return sets


def test_equal_sets_are_fully_stable():
    found = set_stability(np.tile(np.arange(10) < 3, (5, 1)))
    assert found.value == pytest.approx(1.0) and found.low == pytest.approx(1.0) and found.high == pytest.approx(1.0)


def test_random_sets_have_no_stability():
    found = set_stability(random_sets(2000, 30, 6, 0, np.random.default_rng(0)))
    assert abs(found.value) < 0.01 and found.low < 0 < found.high


def test_sets_of_one_size_have_the_average_pairwise_kuncheva_index():
    sets = random_sets(8, 20, 5, 2, np.random.default_rng(1)).astype(float)
    common = sets @ sets.T
    pairs = common[np.triu_indices(8, 1)]
    kuncheva = (pairs - 25 / 20) / (5 - 25 / 20)
    assert set_stability(sets).value == pytest.approx(kuncheva.mean())


def test_interval_covers_the_population_value():
    rng = np.random.default_rng(2)
    probability = np.concatenate([np.full(5, 0.8), np.full(25, 0.1)])
    share = probability.mean()
    truth = 1.0 - np.mean(probability * (1 - probability)) / (share * (1 - share))
    found = [set_stability(rng.uniform(size=(60, 30)) < probability) for _ in range(300)]
    covered = np.mean([one.low <= truth <= one.high for one in found])
    assert 0.88 <= covered <= 0.99
    assert np.mean([one.value for one in found]) == pytest.approx(truth, abs=0.01)


@pytest.mark.parametrize("sets", [np.ones((1, 4)), np.ones((3, 4)), np.zeros((3, 4))])
def test_nothing_to_compare_is_nan(sets):
    assert np.isnan(set_stability(sets).value)


def test_shape_is_checked():
    with pytest.raises(ValueError, match="one row per set"):
        set_stability([True, False])
