import numpy as np
import pytest

from bayesmtfs.priors import MixedNorm, SparseGroup, row_penalty


def test_mixed_norm_without_task_sparsity():
    penalty = row_penalty(0.3, 3.0)
    assert isinstance(penalty, MixedNorm)
    assert (penalty.strength, penalty.norm_q, penalty.weights) == (0.3, 3.0, None)
    assert isinstance(row_penalty(0.3, np.inf, np.zeros(4)), MixedNorm)


def test_sparse_group_with_task_sparsity():
    weights = np.array([1.0, 2.0])
    penalty = row_penalty(0.3, 2, task_sparsity=0.1, weights=weights)
    assert isinstance(penalty, SparseGroup)
    assert (penalty.strength, penalty.task_sparsity) == (0.3, 0.1)
    assert penalty.weights is weights


@pytest.mark.parametrize("norm_q", [1.0, 3.0, np.inf])
def test_task_sparsity_needs_the_euclidean_norm(norm_q):
    with pytest.raises(ValueError, match=r"task_sparsity is 0.1 and norm_q is .*; pass norm_q=2, or task_sparsity=0"):
        row_penalty(0.3, norm_q, task_sparsity=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((-1.0, 2.0), "penalty_strength"), ((1.0, 0.5), "norm_q"), ((1.0, 2.0, -0.1), "task_sparsity")],
)
def test_wrong_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=f"{message} is .*; pass"):
        row_penalty(*arguments)
