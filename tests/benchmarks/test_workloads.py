"""The certificate bounds what it claims, and every package is given our objective."""

import warnings

import certificate
import cvxpy as cp
import growth
import numpy as np
import peers
import pytest
import scipy.sparse as sp
import timing
import workloads
from scipy.optimize import minimize_scalar

NAMES = [case.name for case in workloads.CASES]
SMOOTH = ["W1 /3", "W2 /10", "W3 /10", "W4 /10", "W5 /10", "W6 q=inf own", "W6 q=3 wide", "W6 q=1.5 own"]


def quick_problem(name, seed=0):
    case = next(case for case in workloads.CASES if case.name == name)
    return case.problem(seed, quick=True)


def clarabel_answer(problem):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may say that 1e-10 was missed by a little: the gap decides
        return peers.build_cvxpy(problem, 1).solve(1e-10)[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_seed_is_another_draw_of_the_same_shape(name):
    first, again, other = quick_problem(name, 0), quick_problem(name, 0), quick_problem(name, 1)
    assert first.data.n_features == other.data.n_features
    assert first.data.n_tasks == other.data.n_tasks
    assert np.array_equal(first.data.stacked_targets, again.data.stacked_targets)
    assert first.strength == again.strength != other.strength
    if first.data.loss in ("logistic", "hinge"):
        assert all(set(y) == {-1.0, 1.0} for y in first.data.targets)


@pytest.mark.parametrize("name", ["W3 /10", "W5 /10", "W1 /3"])
def test_predictors_and_adjoint_belong_together(name):
    data = quick_problem(name).data
    rng = np.random.default_rng(0)
    W = rng.standard_normal((data.n_features, data.n_tasks))
    theta = [rng.standard_normal(len(y)) for y in data.targets]
    forward = sum(eta @ part for eta, part in zip(data.predictors(W), theta, strict=True))
    assert forward == pytest.approx(np.sum(W * data.adjoint(theta)), rel=1e-10)


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "absolute"])
def test_best_intercept_is_the_minimum(loss):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(31) < 0.3, 1.0, -1.0) if loss in ("logistic", "hinge") else rng.standard_normal(31)
    eta = 3 * rng.standard_normal(31)
    found = certificate.mean_loss(loss, y, eta + certificate.best_intercept(loss, y, eta))
    wanted = minimize_scalar(lambda b: certificate.mean_loss(loss, y, eta + b), bounds=(-30, 30), method="bounded")
    assert found <= wanted.fun + 1e-9


@pytest.mark.parametrize("name", SMOOTH)
def test_gap_is_small_at_the_optimum_and_bounds_the_suboptimality_elsewhere(name):
    problem = quick_problem(name)
    W, b = clarabel_answer(problem)
    assert -1e-9 <= certificate.relative_gap(problem, problem.strength, W, b) <= 1e-6
    optimum = certificate.objective(problem.data, problem.norm_q, problem.strength, W, b)
    rng = np.random.default_rng(0)
    for size in (1e-3, 1e-1):
        V = W + size * np.abs(W).max() * rng.standard_normal(W.shape)
        excess = certificate.objective(problem.data, problem.norm_q, problem.strength, V, b) - optimum
        gap = certificate.relative_gap(problem, problem.strength, V, b) * certificate.null_objective(problem.data)
        assert gap >= excess > 0


@pytest.mark.parametrize("name", ["W7 hinge", "W7 absolute"])
def test_bound_for_losses_with_kinks_meets_the_primal_optimum(name):
    problem = quick_problem(name)
    W, b = clarabel_answer(problem)
    assert -1e-9 <= certificate.relative_gap(problem, problem.strength, W, b) <= 1e-7
    assert certificate.relative_gap(problem, problem.strength, 1.1 * W, b) > 1e-5


@pytest.mark.parametrize("name", SMOOTH)
def test_nothing_is_selected_at_the_largest_penalty(name):
    problem = quick_problem(name)
    nothing = np.zeros((problem.data.n_features, problem.data.n_tasks))
    top = certificate.largest_penalty(problem.data, problem.norm_q)
    assert certificate.relative_gap(problem, top, nothing) == pytest.approx(0.0, abs=1e-10)
    assert certificate.relative_gap(problem, 0.9 * top, nothing) > 1e-4


@pytest.mark.parametrize("competitor", [peers.OURS, *peers.PEERS], ids=lambda one: one.name)
@pytest.mark.parametrize("name", ["W1 /3", "W3 /10", "W4 /10", "W6 q=inf wide"])
def test_every_package_solves_our_objective(name, competitor):
    problem = quick_problem(name)
    try:
        prepared = competitor.build(problem, 1)
    except (ImportError, peers.NotApplicable) as reason:
        pytest.skip(str(reason))
    entry = timing.Entry(name, 0, "1", competitor.name, "failed")
    timing.descend(entry, competitor, prepared, problem, budget=20.0)
    assert entry.status == "certified"
    assert entry.gap <= certificate.TARGET


def test_lasso_is_our_objective_at_q_1():
    wide = quick_problem("W1 /3")
    top = certificate.largest_penalty(wide.data, 1.0)
    problem = workloads.Problem("lasso", wide.data, 1.0, np.array([top / 5]))
    [(W, b)] = peers.build_scikit_learn(problem, 1).solve(1e-9)
    assert certificate.relative_gap(problem, problem.strength, W, b) <= 1e-7


def test_scikit_learn_path_is_certified_at_every_strength():
    problem = quick_problem("W1 path")
    answers = peers.build_scikit_learn(problem, 1).solve(1e-8)
    assert len(answers) == len(problem.strengths) == 100
    assert timing.worst_gap(problem, answers) <= certificate.TARGET


@pytest.mark.parametrize("name", ["W3 /10", "W5 /10"])
def test_block_design_is_the_same_linear_map(name):
    from peer_forms import block_design, read_blocks, with_intercept_columns

    data = quick_problem(name).data
    rng = np.random.default_rng(0)
    W, b = rng.standard_normal((data.n_features, data.n_tasks)), rng.standard_normal(data.n_tasks)
    design = with_intercept_columns(block_design(data, centre=False), data)
    assert sp.issparse(design)
    beta = np.concatenate([W.ravel(), b])
    wanted = np.concatenate([eta + c for eta, c in zip(data.predictors(W), b, strict=True)])
    assert np.allclose(design @ beta, wanted, atol=1e-10)
    read_W, read_b = read_blocks(beta, data)
    assert np.array_equal(read_W, W)
    assert np.array_equal(read_b, b)


def test_what_goes_wrong_is_written_down():
    def broken(problem, n_threads):
        raise RuntimeError("no luck")

    def absent(problem, n_threads):
        raise ImportError("no module")

    def useless(problem, n_threads):
        return peers.Prepared(lambda tol: [(np.zeros((problem.data.n_features, problem.data.n_tasks)), None)])

    rivals = [peers.Competitor(build.__name__, build, [1e-2, 1e-4]) for build in (broken, absent, useless)]
    entries = timing.compare(quick_problem("W1 /3"), 0, rivals, repeats=1)
    assert [entry.status for entry in entries] == ["failed", "not installed", "not certified"]
    assert "no luck" in entries[0].note
    assert len(entries[2].curve) == 2


def test_exponent_of_a_power_law():
    assert growth.exponent((1, 2, 4), [3.0, 3.0 * 2**1.7, 3.0 * 4**1.7]) == pytest.approx(1.7)


def test_unknown_workload_is_named():
    with pytest.raises(ValueError, match="W9"):
        workloads.chosen_cases(["W1", "W9"])
    assert {case.name for case in workloads.chosen_cases(["W1 /3", "W3"])} > {"W1 /3", "W3 /10", "W3 gaussian /10"}
    assert cp.CLARABEL in cp.installed_solvers()
