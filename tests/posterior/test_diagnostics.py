import warnings

import numpy as np
import pytest

from bayesmtfs.posterior.diagnostics import ENTRIES, Diagnostics, diagnose, warn_of_problems, warn_of_tails
from bayesmtfs.posterior.tree import SampledDraws
from bayesmtfs.types import PosteriorWarning


def draws_of(**variables):
    fixed = variables.pop("fixed", ())
    statistics = variables.pop("statistics", {})
    return SampledDraws("nuts", variables, statistics=statistics, fixed=frozenset(fixed))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def good(rng):
    return {"coef": rng.normal(size=(4, 600, 3, 2)), "row_scale": np.exp(rng.normal(size=(4, 600, 3)))}


def test_independent_draws_have_no_problems(good):
    found = diagnose(draws_of(**good))
    assert found.problems() == [] and found.largest_rhat < 1.01
    assert [row.variable for row in found.table] == ["coef", "row_scale"] and found.table[0].n_entries == 6


def test_tails_without_a_mean_are_named(good, rng):
    """Of labels; draws of a Cauchy distribution mix well and have no mean."""
    found = diagnose(draws_of(**good), labels=True)
    assert found.pareto_shape < 0.4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_tails(found)
    good["coef"][:, :, 1, 1] = rng.standard_cauchy((4, 600))
    found = diagnose(draws_of(**good), labels=True)
    assert found.problems() == [] and 0.7 < found.pareto_shape < 1.4
    assert Diagnostics.from_dict(found.as_dict()) == found
    with pytest.warns(PosteriorWarning, match="labels are separable"):
        warn_of_tails(found)
    assert diagnose(draws_of(**good)).pareto_shape is None


def test_tails_of_coefficients_that_are_mostly_zero_are_those_of_the_other_draws(good, rng):
    """Under a prior with exact zeros; nine tenths of the draws are 0, and the other tenth is positive."""
    absent = rng.random((4, 600)) < 0.9
    for heavy, expected in ((False, (-1.0, 0.5)), (True, (0.5, 2.0))):
        used = np.abs(rng.standard_cauchy((4, 600)) if heavy else rng.normal(size=(4, 600)))
        good["coef"][:, :, 0, 0] = np.where(absent, 0.0, 100.0 * used)
        good["coef"][:, :, 0, 1] = np.where(rng.random((4, 600)) < 0.999, 0.0, 1e9)
        low, high = expected
        assert low < diagnose(draws_of(**good), labels=True).pareto_shape < high


def test_shifted_chain_is_seen(good):
    good["coef"][0, :, 1, 1] += 1.0
    found = diagnose(draws_of(**good))
    assert "R-hat is above 1.01 for coef" in found.problems()[0] and found.table[0].rhat > 1.05


def test_chain_that_stands_still_is_a_failure(good):
    good["row_scale"][2, :, 0] = 1.0
    found = diagnose(draws_of(**good))
    assert np.isnan(found.largest_rhat)
    assert "R-hat is not a number for row_scale" in found.problems()[0]


def test_scale_that_runs_to_zero_is_a_failure(good):
    good["row_scale"][1, 300:, 2] = 0.0
    assert np.isnan(diagnose(draws_of(**good)).table[1].rhat)


def test_scales_are_judged_on_the_logarithm(good, rng):
    # Two chains near zero that differ by many decades: the plain scale has no eyes for it
    log_scale = rng.normal(size=(4, 600, 1)) - np.array([300.0, 20.0, 20.0, 20.0])[:, None, None]
    good["row_scale"] = np.exp(log_scale)
    assert diagnose(draws_of(**good)).table[1].rhat > 1.5


def test_fixed_variables_and_absent_entries_are_not_judged(good):
    good["coef"][:, :, 2, 1] = 0.0
    relations = np.broadcast_to(np.eye(2), (4, 600, 2, 2)).copy()
    relations[:, :, 0, 1] = good["coef"][:, :, 0, 0]
    found = diagnose(draws_of(**good, norm_q=np.full((4, 600), 2.0), task_relations=relations, fixed=["norm_q"]))
    assert found.problems() == []
    assert [(row.variable, row.n_entries) for row in found.table] == [
        ("coef", 5),
        ("row_scale", 3),
        ("task_relations", 1),
    ]


def test_worst_entry_among_many_is_found(rng):
    coef = rng.normal(size=(2, 400, 4 * ENTRIES, 1))
    coef[0, :, 77] += 2.0
    slow = rng.normal(size=(2, 400)).cumsum(axis=1)
    coef[:, :, 99, 0] = slow - slow.mean(axis=1, keepdims=True)
    found = diagnose(draws_of(coef=coef)).table[0]
    assert found.rhat > 1.5 and found.ess_bulk < 60 and found.n_entries == 4 * ENTRIES


def test_chain_of_another_width_among_many_entries_is_found(rng):
    """Its mean and its memory are those of the others: only distances from the mean tell."""
    coef = rng.normal(size=(4, 400, 10 * ENTRIES, 1))
    assert diagnose(draws_of(coef=coef)).largest_rhat < 1.03
    coef[2, :, 777] *= 5.0
    assert diagnose(draws_of(coef=coef)).largest_rhat > 1.1


def test_one_chain_is_compared_with_itself(rng):
    drift = np.linspace(0, 3, 400)[None, :, None, None] + 0.1 * rng.normal(size=(1, 400, 1, 1))
    assert diagnose(draws_of(coef=drift)).largest_rhat > 1.5


@pytest.mark.parametrize("depth", ["depth", "tree_depth"])
def test_statistics_of_nuts(good, rng, depth):
    energy = rng.normal(size=(4, 600)).cumsum(axis=1)
    diverging = np.zeros((4, 600), dtype=bool)
    diverging[1, :3] = True
    statistics = {"energy": energy, "diverging": diverging, depth: np.full((4, 600), 10)}
    found = diagnose(draws_of(**good, statistics=statistics))
    text = "; ".join(found.problems())
    assert found.divergences == 3 and found.bfmi < 0.3 and found.depth_share == 1.0
    assert "3 divergences" in text and "BFMI" in text and "100.0% of the trajectories were cut off" in text


def test_warning_names_variables_and_remedy(good):
    good["coef"][0] += 1.0
    found = diagnose(draws_of(**good))
    with pytest.warns(PosteriorWarning, match="R-hat is above 1.01 for coef .*; raise draws"):
        warn_of_problems(found, "", "raise draws")


def test_interruption_and_messages_are_told(good):
    interrupted = SampledDraws("gibbs", good, interrupted=True)
    with pytest.warns(PosteriorWarning, match="interrupted, 600 draws per chain are kept; it did not settle; wait"):
        warn_of_problems(diagnose(interrupted), "it did not settle", "wait")


def test_good_draws_do_not_warn(good):
    warn_of_problems(diagnose(draws_of(**good)), "", "raise draws")


def test_table_survives_a_file_and_makes_a_frame(good):
    found = diagnose(draws_of(**good))
    assert Diagnostics.from_dict(found.as_dict()) == found
    assert found.to_frame()["variable"].tolist() == ["coef", "row_scale"]
    assert found.to_frame("polars").shape == (2, 5)


def test_independent_draws_need_no_chains(good):
    found = diagnose(SampledDraws("variational", good, independent=True))
    assert found.table == () and np.isnan(found.largest_rhat) and found.problems() == []
