"""Posterior of task relations and of the exponent: against the shapes the draws come from."""

import numpy as np
import pytest
from scipy import stats

import bayesmtfs as bm
from bayesmtfs.selection import exponent_posterior, task_relations

N_DRAWS = 8000


@pytest.fixture(scope="module")
def relations(tree_of):
    """Correlations of three tasks; each is 2 Beta - 1."""
    shapes = {(0, 1): (8, 2), (0, 2): (3, 3), (1, 2): (2, 5)}
    rng = np.random.default_rng(0)
    draws = np.tile(np.eye(3), (N_DRAWS, 1, 1))
    for (s, t), shape in shapes.items():
        draws[:, s, t] = draws[:, t, s] = 2 * rng.beta(*shape, N_DRAWS) - 1
    tree = tree_of(np.zeros((N_DRAWS, 2, 3)), tasks=["a", "b", "c"], chains=2, task_relations=draws)
    return shapes, task_relations(tree, prob=0.8)


def test_pairs_have_the_moments_of_their_laws(relations):
    shapes, found = relations
    for (s, t), shape in shapes.items():
        beta = stats.beta(*shape)
        for values, truth in [
            (found.mean, 2 * beta.mean() - 1),
            (found.lower, 2 * beta.ppf(0.1) - 1),
            (found.upper, 2 * beta.ppf(0.9) - 1),
            (found.positive_probability, beta.sf(0.5)),
        ]:
            assert values[s, t] == values[t, s] == pytest.approx(truth, abs=0.03)


def test_frame_has_the_surest_pair_first(relations):
    _, found = relations
    frame = found.to_frame()
    assert frame[["task", "other_task"]].values.tolist() == [["a", "b"], ["b", "c"], ["a", "c"]]
    assert (np.diff(frame["local_false_sign_rate"]) >= 0).all()
    assert frame["mean"][0] == found.mean[0, 1]
    assert repr(found) == "TaskRelations(3 tasks; the 80% intervals of 1 of 3 pairs leave out 0)"


def test_a_posterior_without_relations_is_refused(tree_of):
    with pytest.raises(
        ValueError, match="posterior has no task_relations; fit a Bayesian estimator with prior='matrix"
    ):
        task_relations(tree_of(np.zeros((10, 2, 3))))


def q_tree(tree_of, draws):
    return tree_of(np.zeros((len(draws), 2, 3)), norm_q=draws)


def test_draws_of_the_prior_identify_nothing(tree_of):
    rng = np.random.default_rng(1)
    draws = 1 / rng.uniform(1 / 50, 1, N_DRAWS)
    found = exponent_posterior(q_tree(tree_of, draws))
    assert found.relative_width == pytest.approx(1.0, abs=0.02) and not found.identified
    assert found.sparse_probability == pytest.approx(found.prior_sparse_probability, abs=0.02)
    assert found.prior_sparse_probability == pytest.approx((1 - 2 / 3) / (1 - 1 / 50))
    assert "hardly identify it" in found.summary()


def test_a_narrow_posterior_identifies_q(tree_of):
    normal = stats.norm(1.6, 0.1)
    found = exponent_posterior(q_tree(tree_of, normal.rvs(N_DRAWS, random_state=2)), bounds=(1, 16), prob=0.9)
    assert found.identified and found.bounds == (1.0, 16.0)
    assert (found.lower, found.median, found.upper) == pytest.approx(normal.ppf([0.05, 0.5, 0.95]), abs=0.02)
    assert found.sparse_probability == pytest.approx(normal.cdf(1.5), abs=0.02)
    assert "hardly" not in found.summary() and found.summary().startswith("q is 1.6 (median)")


@pytest.mark.parametrize(
    ("draws", "options", "message"),
    [
        (np.full(50, 2.0), {}, "q was fixed; fit with norm_q='learn'"),
        (np.full(50, np.inf), {}, "q was fixed; fit with norm_q='learn'"),
        (None, {}, "q was fixed; fit with norm_q='learn'"),
        (np.linspace(2, 20, 50), {"bounds": (1, 16)}, r"bounds is \(1, 16\) but norm_q has draws from 2 to 20"),
        (np.linspace(2, 20, 50), {"bounds": (16, 1)}, r"bounds is \(16, 1\); pass two numbers 0 < low < high"),
        (np.linspace(2, 20, 50), {"prob": 2}, "prob is 2; pass a number between 0 and 1"),
    ],
)
def test_bad_arguments(tree_of, draws, options, message):
    tree = tree_of(np.zeros((50, 2, 3)), norm_q=draws)
    with pytest.raises(ValueError, match=message):
        exponent_posterior(tree, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bayesmtfs.types.PosteriorWarning")
def test_relations_of_a_sampled_posterior():
    sim = bm.simulate_tasks(
        n_tasks=3, n_features=10, n_relevant=8, n_samples=50, relatedness=0.9, opposed_tasks=1, snr=10, random_state=0
    )
    model = bm.BayesianRegressor(prior="matrix_variate", draws=200, tune=200, chains=2, random_state=0)
    found = task_relations(model.fit(sim.X, sim.y, tasks=sim.tasks))
    pairs = np.triu_indices(3, k=1)
    np.testing.assert_array_equal(np.sign(found.mean[pairs]), np.sign(sim.task_correlation[pairs]))
    assert found.local_false_sign_rate[pairs].max() < 0.2
    np.testing.assert_allclose(found.mean, model.task_relations_)
