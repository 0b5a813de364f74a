import math
import platform

import numpy as np
import pytest

from bayesmtfs.results.provenance import Convergence, current_versions, frozen_copy


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"converged": True, "n_iter": 1}, "Converged in 1 iteration."),
        (
            {"converged": True, "n_iter": 3, "objective": 2.0},
            "Converged in 3 iterations; the objective 2 has no certificate on this route.",
        ),
        (
            {"converged": False, "n_iter": 9, "objective": 2.0, "gap": 0.5, "tol": 1e-4},
            "NOT converged after 9 iterations (tol 0.0001); the objective 2 is at most 0.5 above its minimum; "
            "raise max_iter or tol.",
        ),
        (
            {"converged": True, "n_iter": 500, "message": "R-hat is at most 1.004."},
            "Converged in 500 iterations. R-hat is at most 1.004.",
        ),
    ],
)
def test_the_verdict_is_a_sentence(fields, verdict):
    assert Convergence(**fields).verdict() == verdict


def test_a_route_without_certificate_has_no_gap():
    assert Convergence(converged=True, n_iter=1, gap=math.nan).gap is None
    assert Convergence(converged=True, n_iter=1, gap=0.0).gap == 0.0


def test_numpy_scalars_become_plain():
    ended = Convergence(converged=np.bool_(True), n_iter=np.int64(3), objective=np.float32(0.5), gap=np.float64(0.1))
    assert [type(value) for value in (ended.converged, ended.n_iter, ended.objective, ended.gap)] == [
        bool,
        int,
        float,
        float,
    ]


def test_the_trace_is_a_snapshot():
    trace = np.array([3.0, 2.0])
    ended = Convergence(converged=True, n_iter=2, objective_trace=trace)
    trace[0] = 0.0
    assert ended.objective_trace.tolist() == [3.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        ended.objective_trace[0] = 1.0


def test_versions_are_those_in_use():
    versions = current_versions()
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == np.__version__
    versions["numpy"] = "changed"
    assert current_versions()["numpy"] == np.__version__


def test_frozen_copy_leaves_the_original_writable():
    original = np.zeros(2)
    copy = frozen_copy(original)
    original[0] = 1.0
    assert copy.tolist() == [0.0, 0.0]
    assert not copy.flags.writeable
