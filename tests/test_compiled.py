"""Functions that are compiled as parts of others: the same numbers, errors and cache as compiled by themselves."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError
from numba.core.event import Listener, register, unregister
from threadpoolctl import threadpool_info, threadpool_limits

import bayesmtfs as bm
from bayesmtfs.compiled import LEAN, inner, lean, threads_that_pay

KERNELS = """
from bayesmtfs.compiled import LEAN, inner, lean

@inner(**LEAN)
def square(x):
    return x * x

@inner(**LEAN, fastmath={"reassoc", "contract"})
def sum_of_squares(values):
    total = 0.0
    for k in range(len(values)):
        total += square(values[k])
    return total

@lean()
def mean_square(values):
    return sum_of_squares(values) / len(values)

@lean()
def length(values):
    return sum_of_squares(values) ** 0.5
"""


@inner()
def root(x):
    """Raise an error for negative numbers."""
    if x < 0.0:
        raise ValueError("no root of a negative number")
    return x**0.5


@inner(error_model="numpy")
def sum_of_roots(values, power=1.0):
    """Call another part, with a default for one argument."""
    total = 0.0
    for k in range(len(values)):
        total += root(values[k]) ** power
    return total


@njit
def both(values, pairs):
    """Call parts by several types of arguments."""
    return sum_of_roots(values), sum_of_roots(values, 2.0), sum_of_roots(pairs)


def test_parts_give_what_python_gives():
    values = np.random.default_rng(0).exponential(size=20)
    wanted = np.sqrt(values).sum(), values.sum(), np.sqrt(values[::2]).sum()
    np.testing.assert_allclose(both(values, values[::2]), wanted, rtol=1e-12)
    np.testing.assert_allclose(sum_of_roots(values), wanted[0], rtol=1e-12)
    np.testing.assert_allclose(sum_of_roots(values, 2.0), wanted[1], rtol=1e-12)
    np.testing.assert_allclose(sum_of_roots(values[::2]), wanted[2], rtol=1e-12)


@pytest.mark.parametrize(
    "call", [lambda values: both(values, values[::2]), sum_of_roots, lambda values: root(values[1])]
)
def test_errors_of_parts_reach_python(call):
    with pytest.raises(ValueError, match="no root of a negative number"):
        call(np.array([1.0, -1.0]))


def test_parts_stay_in_the_cache_for_other_processes(tmp_path):
    (tmp_path / "kernels.py").write_text(KERNELS)
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(sys.modules["bayesmtfs"].__file__).parents[1])]),
    }

    def in_a_process_of_its_own(name):
        script = f"""
import numpy as np, kernels
found = kernels.{name}(np.array([3.0, 4.0]))
hits = [len(getattr(kernels, name).stats.cache_hits) for name in ("{name}", "sum_of_squares", "square")]
print(found, *hits)
"""
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return [float(number) for number in done.stdout.split()]

    assert in_a_process_of_its_own("mean_square") == [12.5, 0, 0, 0]
    assert in_a_process_of_its_own("length") == [5.0, 0, 1, 0]  # the part, with what it calls
    assert in_a_process_of_its_own("length") == [5.0, 1, 0, 0]
    assert in_a_process_of_its_own("sum_of_squares") == [25.0, 0, 0, 1]  # by itself, from the same parts
    kept = sorted((tmp_path / "cache").rglob("sum_of_squares*"))
    assert in_a_process_of_its_own("sum_of_squares") == [25.0, 0, 0, 0]
    assert kept == sorted((tmp_path / "cache").rglob("sum_of_squares*"))


def test_functions_are_compiled_by_themselves_where_numba_is_built_otherwise(tmp_path):
    """Numba promises nothing about the classes that parts extend."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    script = """
import numba
import numba.core.compiler_machinery as machinery
del machinery.register_pass  # which numba itself has used by now
import numpy as np, kernels, bayesmtfs.compiled
assert bayesmtfs.compiled.PartCompiler is None
print(kernels.mean_square(np.array([3.0, 4.0])), kernels.sum_of_squares(np.array([3.0, 4.0])))
"""
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(sys.modules["bayesmtfs"].__file__).parents[1])]),
    }
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["12.5", "25.0"]


class Watch(Listener):
    """Whether the collector ran at each step of the compiler."""

    def __init__(self):
        self.seen = []

    def on_start(self, event):
        self.seen.append(gc.isenabled())

    def on_end(self, event):
        self.seen.append(gc.isenabled())


@pytest.fixture
def steps():
    """Watch the compiler, and leave the collector on."""
    watch = Watch()
    register("numba:run_pass", watch)
    yield watch.seen
    unregister("numba:run_pass", watch)
    gc.enable()


def of_the_package(function):
    """The function as if it stood in the package."""
    function.__module__ = "bayesmtfs.somewhere"
    return lean(cache=False)(function)


@pytest.mark.parametrize("on", [True, False])
def test_collector_rests_while_a_function_is_compiled(steps, on):
    @of_the_package
    def total(values):
        count = 0.0
        for k in range(len(values)):
            count += max(values[k], 0.0)
        return count

    (gc.enable if on else gc.disable)()
    assert total(np.array([1.0, -1.0])) == 1.0
    assert gc.isenabled() == on
    assert steps and not any(steps)


def test_other_packages_are_left_alone(steps):
    assert njit(lambda x: x + 1.0)(1.0) == 2.0
    assert steps and all(steps)


def test_collector_runs_again_after_an_error():
    @of_the_package
    def wrong(x):
        return x.nothing_of_that_name

    with pytest.raises(TypingError):
        wrong(1.0)
    assert gc.isenabled()


@inner(**LEAN)
def _difference(x, y):
    return x - y


def test_arguments_by_name():
    assert _difference(y=1.0, x=3.0) == 2.0


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_threads_of_linear_algebra_are_held_where_steps_are_small():
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        with threads_that_pay(1e6):
            assert set(blas_threads()) == {1}
        with threads_that_pay(1e12):
            assert blas_threads() == before


@pytest.mark.parametrize("n_rows", [20, 4000])
def test_fits_hold_them_by_the_size_of_the_data(n_rows, monkeypatch):
    seen = []
    monkeypatch.setattr(bm.JeffreysRegressor, "_fit", lambda self, data: seen.append(max(blas_threads())))
    X = np.random.default_rng(0).standard_normal((n_rows, 300))
    with threadpool_limits(2, "blas"):
        expected = 1 if n_rows == 20 else max(blas_threads())
        bm.JeffreysRegressor().fit(X, X[:, 0])
    assert seen == [expected]
