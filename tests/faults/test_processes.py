"""Processes that are killed or interrupted from outside, and what they leave on disk."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.results import persistence

# Saves ever larger results over one file; says when it starts
SAVING = """
import sys
import numpy as np
from bayesmtfs.results import persistence
print("saving", flush=True)
for k in range(10**9):
    persistence.write(sys.argv[1], "demo", {"number": k}, {"coef": np.full(200_000, float(k))})
"""

# One long fit, whose state is printed when Ctrl-C ends it
FITTING = """
import warnings
import numpy as np
import bayesmtfs as bm
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.standard_normal((300, 10))
model = bm.MixedNormRegressor(penalty_strength=1e-4, loss="absolute", solver="extragradient", tol=1e-15, max_iter=10**9)
print("fitting", flush=True)
model.fit(X, X[:, 0] + rng.standard_normal(300))
print(model.converged_, np.isfinite(model.coef_).all())
"""


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that has said its first word."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None and process.stdout.readline()
    return process


@pytest.mark.parametrize("seconds", [0.05, 0.11, 0.23])
def test_a_killed_process_leaves_a_whole_file(tmp_path, seconds):
    path = tmp_path / "fit"
    persistence.write(path, "demo", {"number": -1}, {"coef": np.full(200_000, -1.0)})
    with started(SAVING, str(path)) as process:
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
    stored = persistence.read(path)
    assert stored.header["number"] >= -1
    assert (stored.arrays["coef"] == stored.header["number"]).all()
    # At most the one temporary file that was being written is left, and it is hidden
    left = [name for name in os.listdir(tmp_path) if name != "fit"]
    assert len(left) <= 1 and all(name.startswith(".bayesmtfs-") for name in left)


def test_ctrl_c_ends_a_fit_with_what_there_is():
    with started(FITTING) as process:
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert output.split() == ["False", "True"]


def test_no_unpickling_on_the_way_of_loading():
    """Loading touches these files only; none of them can run what a file brings."""
    root = Path(bm.__file__).parent
    modules = ["results/persistence", "results/fit_result"]
    modules += [str(path.relative_to(root).with_suffix("")) for path in (root / "estimators").glob("*.py")]
    for name in modules:
        source = (root / f"{name}.py").read_text()
        for word in ("pickle", "marshal", "joblib.load", "eval(", "exec(", "allow_pickle=True", "__import__"):
            assert word not in source, f"{word} in {name}"


def test_tables_are_read_without_unpickling(tmp_path):
    from bayesmtfs.cli.tables import read_table

    np.savez(tmp_path / "objects.npz", x=np.array([{"a": 1}, None], dtype=object))
    with pytest.raises(ValueError, match=r"objects\.npz cannot be read"):
        read_table(tmp_path / "objects.npz")
