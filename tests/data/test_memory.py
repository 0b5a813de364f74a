"""What cannot fit into memory is refused in words before any is taken."""

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.data import memory


def matrix_variate(model):
    n_tasks = 100
    X = np.random.default_rng(0).standard_normal((2 * n_tasks, 3))
    y = X[:, 0] if "Regressor" in type(model).__name__ else np.tile(["no", "yes"], n_tasks)
    return model.fit(X, y, tasks=np.repeat(np.arange(n_tasks), 2))


@pytest.mark.parametrize("model", [bm.MatrixVariateRegressor(), bm.MatrixVariateClassifier()])
def test_relations_of_too_many_tasks(model, monkeypatch):
    """100 tasks take 4 x 8 x 100^2 bytes: as 1e5 tasks do on a machine a million times as large."""
    monkeypatch.setattr(memory, "total_memory", lambda: 319_999)
    with pytest.raises(MemoryError, match="between all pairs of 100 tasks take 0.0 GiB.*neighbours=5"):
        matrix_variate(model)
    assert not hasattr(model, "coef_")


def test_what_fits_is_left_alone(monkeypatch):
    memory.check_memory(1000, "numbers", "none")
    monkeypatch.setattr(memory, "total_memory", lambda: None)
    memory.check_memory(10**30, "numbers", "none")


def test_total_memory_is_that_of_the_machine(monkeypatch):
    with open("/proc/meminfo") as file:
        kilobytes = int(file.readline().split()[1])
    assert memory.total_memory() == pytest.approx(1024 * kilobytes, rel=1e-6)
    monkeypatch.delattr(memory.os, "sysconf")
    assert memory.total_memory() is None
