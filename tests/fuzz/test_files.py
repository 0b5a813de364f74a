"""Damaged, forged and foreign files: `bayesmtfs.load` refuses them in words and takes no memory for them."""

import resource
import subprocess
import sys
from pathlib import Path

import fuzz
import h5py
import numpy as np
import pytest
from hypothesis import strategies as st

import bayesmtfs as bm
from bayesmtfs.results import persistence

BENCHMARKS = Path(fuzz.__file__).parent


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return fuzz.saved_model(tmp_path_factory.mktemp("saved"))


@pytest.fixture
def load_bytes(tmp_path):
    def load(content: bytes) -> str:
        (tmp_path / "file").write_bytes(content)
        return fuzz.try_load(tmp_path / "file")

    return load


def test_damaged_files_are_refused(model_file, load_bytes):
    content = model_file.read_bytes()

    def trial(damaged: bytes) -> str:
        outcome = load_bytes(damaged)
        assert outcome == "refused" or damaged == content
        return outcome

    assert fuzz.run_trials(fuzz.damages(content), trial, number=300, start=0)["refused"] > 100


def test_anything_is_refused(load_bytes):
    anything = st.binary(max_size=2000)
    outcomes = fuzz.run_trials(anything | anything.map(fuzz.sign), load_bytes, number=100, start=0)
    assert set(outcomes) == {"refused"}


FORGED = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, {folder!r})
import fuzz
with tempfile.TemporaryDirectory() as folder:
    strategy, trial = fuzz.trials(Path(folder))["forged"]
    print(dict(fuzz.run_trials(strategy, trial, number={number}, start={start})))
"""


@pytest.mark.parametrize("number", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_forged_files_kill_nothing(number):
    """Damage under a valid hash reaches the HDF5 library; in a process of its own, should that die."""
    code = FORGED.format(folder=str(BENCHMARKS), number=number, start=number)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "refused" in done.stdout


@pytest.fixture
def little_memory():
    """Let this process take no more than 1 GB beyond what it has."""
    old = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**30, old[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, old)


@pytest.mark.parametrize("compression", ["gzip", None])
def test_bombs_are_refused_before_memory_is_taken(model_file, tmp_path, little_memory, compression):
    bomb = tmp_path / "bomb"
    bomb.write_bytes(model_file.read_bytes())
    with h5py.File(bomb, "r+") as file:
        arrays = file["bayesmtfs/arrays"]
        del arrays["coef"]
        more = {"chunks": (1, 2**20), "compression": compression} if compression else {}
        arrays.create_dataset("coef", (3, 2**34), "f8", **more)  # 412 GB of zeros in a few bytes
    bomb.write_bytes(fuzz.sign(bomb.read_bytes()[fuzz.HEADER_SIZE :]))
    with pytest.raises(persistence.CorruptFileError, match="more than the file holds"):
        bm.load(bomb)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"method": "MixedNormRegressor"', b'"method": "MixedNormRegresser"'),
        (b'"estimator"', b'"estimatar"'),
        (b'"params"', b'"porams"'),
        (b'"penalty_strength"', b'"penalty_strangth"'),
        (b'"form"', b'"farm"'),
        (b'"fitted": {', b'"fittad": {'),
        (b'"columns"', b'"calumns"'),
        (b'"method"', b'"mathod"'),
    ],
)
def test_other_names_inside_are_refused(model_file, tmp_path, old, new):
    payload = model_file.read_bytes()[fuzz.HEADER_SIZE :]
    assert old in payload and len(old) == len(new)
    (tmp_path / "forged").write_bytes(fuzz.sign(payload.replace(old, new)))
    with pytest.raises(persistence.CorruptFileError):
        bm.load(tmp_path / "forged")


def test_a_file_cannot_replace_methods(model_file, tmp_path):
    stored = persistence.read(model_file)
    stored.header["estimator"]["fitted"]["predict"] = np.zeros(3)
    persistence.write(tmp_path / "forged", stored.kind, stored.header, stored.arrays, stored.tree)
    with pytest.raises(persistence.CorruptFileError, match="predict"):
        bm.load(tmp_path / "forged")
