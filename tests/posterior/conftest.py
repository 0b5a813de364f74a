import numpy as np
import pytest

from bayesmtfs import TaskData, simulate_tasks


@pytest.fixture(scope="session")
def small():
    """Four tasks of unequal size whose features and targets are far from standard units."""
    sim = simulate_tasks(n_tasks=4, n_features=6, n_samples=[20, 30, 25, 40], n_relevant=2, snr=3.0, random_state=1)
    scale = np.geomspace(0.1, 10, 6)
    return TaskData.from_long(3 + sim.X * scale, 100 + 5 * sim.y, tasks=sim.tasks)


@pytest.fixture(scope="session")
def lacking():
    """Two tasks, the second without the first feature."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    X[15:, 0] = 0.0
    present = np.array([[True, False], [True, True], [True, True]])
    data = TaskData.from_long(X, rng.normal(size=30), tasks=np.repeat(["a", "b"], 15))
    return data, present
