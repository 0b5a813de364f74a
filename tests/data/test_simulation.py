"""Simulated tasks: the laws that are promised, checked against scipy and closed forms."""

import numpy as np
import pytest
from scipy.linalg import toeplitz
from scipy.special import expit
from scipy.stats import gennorm, kstest, uniform

from bayesmtfs.data.simulation import SimulatedTasks, simulate_tasks

DESIGNS = [("independent", 0.5), ("ar", 0.7), ("ar", -0.4), ("factor", 0.6)]


def feature_covariance(design: str, correlation: float, n_features: int) -> np.ndarray:
    """Covariance of the features, written out."""
    if design == "ar":
        return toeplitz(float(correlation) ** np.arange(n_features))
    off_diagonal = correlation if design == "factor" else 0.0
    return np.where(np.eye(n_features, dtype=bool), 1.0, off_diagonal)


def truth_and_data(sim: SimulatedTasks) -> list[np.ndarray]:
    tasks = [] if sim.tasks is None else [sim.tasks]
    return [sim.X, sim.y, *tasks, sim.coef, sim.intercept, sim.support, sim.noise]


@pytest.mark.parametrize("shared_design", [False, True])
@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_same_seed_gives_the_same_bits(shared_design, kind):
    settings = dict(shared_design=shared_design, kind=kind, missing=0.2, intercept_scale=1.0, n_samples=20)
    first, again = (simulate_tasks(random_state=3, **settings) for _ in range(2))
    for a, b in zip(truth_and_data(first), truth_and_data(again), strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
    other = simulate_tasks(random_state=4, **settings)
    assert not np.array_equal(first.X, other.X) and not np.array_equal(first.coef, other.coef)
    assert not np.array_equal(first.support, other.support) and not np.array_equal(first.intercept, other.intercept)


def test_no_seed_gives_new_numbers():
    assert not np.array_equal(simulate_tasks().X, simulate_tasks().X)


def test_one_ingredient_changes_and_the_others_stay():
    base = simulate_tasks(random_state=0)
    noisier = simulate_tasks(random_state=0, snr=0.5)
    flatter = simulate_tasks(random_state=0, norm_q=np.inf)
    assert np.array_equal(base.coef, noisier.coef) and np.array_equal(base.X, noisier.X)
    assert np.allclose(noisier.noise, base.noise * np.sqrt(10.0)) and not np.array_equal(base.y, noisier.y)
    assert np.array_equal(base.X, flatter.X) and np.array_equal(base.support, flatter.support)


@pytest.mark.parametrize("design, correlation", DESIGNS)
def test_signal_to_noise_ratio(design, correlation):
    sim = simulate_tasks(
        n_tasks=3,
        n_features=12,
        n_samples=20_000,
        n_relevant=6,
        snr=3.0,
        design=design,
        correlation=correlation,
        intercept_scale=2.0,
        random_state=1,
    )
    S = feature_covariance(design, correlation, 12)
    np.testing.assert_allclose(sim.noise**2, np.einsum("ti,ij,tj->t", sim.coef, S, sim.coef) / 3.0, rtol=1e-12)
    for t in range(3):
        X, y = sim.X[sim.tasks == t], sim.y[sim.tasks == t]
        signal = X @ sim.coef[t]
        residual = y - signal - sim.intercept[t]
        assert np.var(signal) / np.var(residual) == pytest.approx(3.0, rel=0.06)
        assert abs(residual.mean()) < 4 * sim.noise[t] / np.sqrt(20_000)


@pytest.mark.parametrize("shared_design", [False, True])
@pytest.mark.parametrize("design, correlation", DESIGNS)
def test_correlation_of_the_design(design, correlation, shared_design):
    sim = simulate_tasks(
        n_tasks=2,
        n_features=8,
        n_samples=20_000,
        n_relevant=2,
        design=design,
        correlation=correlation,
        shared_design=shared_design,
        random_state=2,
    )
    np.testing.assert_allclose(np.cov(sim.X.T), feature_covariance(design, correlation, 8), atol=0.04)
    assert np.abs(sim.X.mean(axis=0)).max() < 0.04


def test_rows_are_sparse_and_shared_by_the_tasks():
    sim = simulate_tasks(n_tasks=7, n_features=30, n_relevant=4, random_state=0)
    assert sim.support.sum() == 4
    assert np.array_equal(sim.coef != 0, np.tile(sim.support, (7, 1)))


@pytest.mark.parametrize("norm_q", [0.7, 1.0, 1.5, 2.0, 4.0, 50.0, 2000.0, np.inf])
def test_shape_of_the_coefficients(norm_q):
    sim = simulate_tasks(n_tasks=300, n_features=40, n_samples=1, n_relevant=40, norm_q=norm_q, random_state=5)
    # At q = 2000 the generalized normal is uniform to within 1e-3, which 12000 draws cannot tell apart.
    law = uniform(-1, 2) if norm_q > 100 else gennorm(norm_q)
    assert kstest(sim.coef.ravel(), law.cdf).pvalue > 0.01
    assert sim.row_scale == 1.0 and sim.norm_q == norm_q


def test_coefficients_correlate_as_told():
    sim = simulate_tasks(
        n_tasks=6,
        n_features=20_000,
        n_samples=1,
        n_relevant=20_000,
        relatedness=0.6,
        outlier_tasks=[0],
        opposed_tasks=[2, 4],
        random_state=6,
    )
    sign = np.array([0, 1, -1, 1, -1, 1])
    expected = np.where(np.eye(6, dtype=bool), 1.0, 0.6 * np.outer(sign, sign))
    np.testing.assert_array_equal(sim.task_correlation, expected)
    np.testing.assert_allclose(np.corrcoef(sim.coef), expected, atol=0.03)
    np.testing.assert_allclose(sim.coef.var(axis=1), gennorm(2.0).var(), rtol=0.05)


def test_fully_related_tasks_are_equal_and_opposed_ones_their_negative():
    sim = simulate_tasks(n_tasks=5, relatedness=1.0, outlier_tasks=1, opposed_tasks=2, norm_q=1.0, random_state=7)
    assert sim.outlier.tolist() == [False, False, False, False, True]
    assert sim.opposed.tolist() == [False, False, True, True, False]
    assert np.array_equal(sim.coef[0], sim.coef[1])
    assert np.array_equal(sim.coef[2:4], -sim.coef[:2])


def test_outliers_have_relevant_features_of_their_own():
    sim = simulate_tasks(n_tasks=4, n_features=60, n_relevant=6, outlier_tasks=(1, 3), random_state=8)
    supports = sim.coef != 0
    assert supports.sum(axis=1).tolist() == [6, 6, 6, 6]
    assert np.array_equal(supports[0], supports[2])
    assert len({row.tobytes() for row in supports}) == 3
    assert np.array_equal(sim.support, supports.any(axis=0))


def test_missing_cells_of_a_shared_design():
    sim = simulate_tasks(n_tasks=4, n_samples=50, shared_design=True, missing=0.3, random_state=9)
    assert sim.X.shape == (50, 50) and sim.y.shape == (50, 4) and sim.tasks is None
    gone = np.isnan(sim.y)
    assert gone.sum(axis=0).tolist() == [15, 15, 15, 15]
    assert not np.array_equal(gone[:, 0], gone[:, 1])
    assert sim.data.shared_design and sim.data.n_observations == 4 * 35


def test_missing_rows_of_own_designs():
    sim = simulate_tasks(n_tasks=3, n_samples=[10, 40, 2], missing=0.75, random_state=10)
    assert np.bincount(sim.tasks).tolist() == [2, 10, 1]
    assert len(sim.X) == len(sim.y) == 13 and np.isfinite(sim.y).all()


def test_sizes_may_differ_between_tasks():
    sim = simulate_tasks(n_tasks=3, n_samples=np.array([5, 1, 9]), n_features=4, n_relevant=2, random_state=0)
    assert np.bincount(sim.tasks).tolist() == np.diff(sim.data.offsets).tolist() == [5, 1, 9]


@pytest.mark.parametrize("shared_design", [False, True])
def test_data_and_truth_are_in_one_order(shared_design):
    sim = simulate_tasks(
        n_tasks=12, snr=np.inf, intercept_scale=1.0, missing=0.1, shared_design=shared_design, random_state=11
    )
    assert np.array_equal(sim.noise, np.zeros(12)) and sim.data.task_names.tolist() == list(range(12))
    np.testing.assert_allclose(sim.data.y, sim.data.linear_predictor(sim.coef.T, sim.intercept), atol=1e-12)
    eta = sim.X @ sim.coef.T + sim.intercept
    expected = np.where(np.isnan(sim.y), np.nan, eta) if shared_design else eta[np.arange(len(eta)), sim.tasks]
    np.testing.assert_allclose(sim.y, expected, atol=1e-12)


def test_intercepts_are_normal_with_the_scale_given():
    sim = simulate_tasks(n_tasks=4000, n_features=2, n_samples=1, n_relevant=1, intercept_scale=2.5, random_state=12)
    assert kstest(sim.intercept / 2.5, "norm").pvalue > 0.01
    assert not simulate_tasks(random_state=0).intercept.any()


def test_without_relevant_features_there_is_only_noise():
    sim = simulate_tasks(n_tasks=2, n_relevant=0, n_samples=5000, random_state=13)
    assert not sim.coef.any() and not sim.support.any()
    assert kstest(sim.y, "norm").pvalue > 0.01


@pytest.mark.parametrize("shared_design", [False, True])
def test_labels_follow_the_logistic_model(shared_design):
    sim = simulate_tasks(
        n_tasks=3,
        n_samples=20_000,
        n_features=10,
        n_relevant=5,
        snr=2.0,
        design="ar",
        intercept_scale=1.0,
        shared_design=shared_design,
        kind="classification",
        random_state=14,
    )
    assert set(np.unique(sim.y)) == {-1.0, 1.0}
    probability = expit(sim.data.linear_predictor(sim.coef.T, sim.intercept))
    positive = sim.data.y == 1
    deciles = np.digitize(probability, np.quantile(probability, np.arange(0.1, 1.0, 0.1)))
    for decile in range(10):
        here = deciles == decile
        p = probability[here]
        assert abs(np.sum(positive[here] - p)) < 4 * np.sqrt(np.sum(p * (1 - p)))
    variances = np.einsum("ti,ij,tj->t", sim.coef, feature_covariance("ar", 0.5, 10), sim.coef)
    assert variances.mean() / (np.pi**2 / 3) == pytest.approx(2.0)
    np.testing.assert_allclose(sim.noise, np.pi / np.sqrt(3))
    # The coefficients are those of rho = 1 times one number.
    plain = simulate_tasks(n_tasks=3, n_samples=1, n_features=10, n_relevant=5, random_state=14).coef
    np.testing.assert_allclose(sim.coef, sim.row_scale * plain)


def test_repr_says_what_it_is():
    text = repr(simulate_tasks(n_tasks=2, n_samples=30, shared_design=True, kind="classification", random_state=0))
    expected = "classification: 60 observations, 2 tasks, 50 features, 10 relevant; one design"
    assert text == f"SimulatedTasks({expected})"


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"n_tasks": 0}, "n_tasks is 0; pass an integer of at least 1"),
        ({"n_tasks": True}, "n_tasks is True"),
        ({"n_features": 2.5}, "n_features is 2.5; pass an integer"),
        ({"n_relevant": 51}, "n_relevant is 51; pass at most n_features = 50"),
        ({"n_samples": 0}, "n_samples is 0; pass an integer of at least 1"),
        ({"n_samples": [5, 5]}, "n_samples has 2 entries but n_tasks is 5; pass one size per task"),
        ({"n_samples": [5, 5, 5, 5, 0]}, r"n_samples\[4\] is 0"),
        ({"n_samples": [5] * 5, "shared_design": True}, "shared_design is True; pass one number of rows"),
        ({"norm_q": 0}, "norm_q is 0; pass a number above 0"),
        ({"relatedness": 1.5}, "relatedness is 1.5; pass a number from 0 to 1"),
        ({"snr": -1}, "snr is -1; pass a number above 0"),
        ({"snr": np.nan}, "snr is nan"),
        ({"snr": np.inf, "kind": "classification"}, "snr is inf, which classification does not have"),
        ({"design": "toeplitz"}, "design is 'toeplitz'; pass one of"),
        ({"design": "ar", "correlation": 1.0}, "correlation is 1.0; pass a number between -1 and 1"),
        ({"design": "factor", "correlation": -0.1}, "correlation is -0.1; pass a number of at least 0"),
        ({"missing": 1.0}, "missing is 1.0; pass a share of at least 0 and below 1"),
        ({"intercept_scale": -1}, "intercept_scale is -1; pass a number of at least 0"),
        ({"kind": "ranking"}, "kind is 'ranking'; pass one of"),
        ({"random_state": -1}, "random_state is -1; pass an integer of at least 0"),
        ({"random_state": 1.0}, "random_state is 1.0; pass an integer"),
        ({"outlier_tasks": 6}, "outlier_tasks is 6; pass at most 5 tasks"),
        ({"outlier_tasks": [5]}, r"outlier_tasks is \[5\]; pass numbers of tasks among"),
        ({"outlier_tasks": [1], "opposed_tasks": [1], "relatedness": 0.5}, "an outlier or opposed, not both"),
        ({"opposed_tasks": 1}, "opposed_tasks needs relatedness above 0"),
    ],
)
def test_errors_name_the_argument_and_the_way_out(wrong, message):
    with pytest.raises(ValueError, match=message):
        simulate_tasks(**wrong)
