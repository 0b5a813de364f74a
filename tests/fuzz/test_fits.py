"""Every estimator on awkward data: it fits, finitely, or says why not."""

import fuzz
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bayesmtfs import MixedNormRegressor, OnlineMixedNormRegressor

FEW = settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


def test_some_of_everything_fits_or_refuses():
    outcomes = fuzz.run_trials(fuzz.fits(), lambda example: fuzz.try_fit(*example), number=60, start=0)
    assert outcomes["fitted"] > 0 and outcomes["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzz.NAMES)
def test_each_fits_or_refuses(name):
    outcomes = fuzz.run_trials(fuzz.fits((name,)), lambda example: fuzz.try_fit(*example), number=100, start=0)
    assert outcomes["fitted"] > 0


@FEW
@given(exponent_x=st.integers(-150, 150), exponent_y=st.integers(-150, 150))
def test_units_from_the_smallest_to_the_largest(exponent_x, exponent_y):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 3)), rng.standard_normal(20)
    unit_x, unit_y = 10.0**exponent_x, 10.0**exponent_y
    problem = fuzz.Problem(X * unit_x, y * unit_y, None)
    fuzz.try_fit("MixedNormRegressor", True, problem)


@pytest.mark.parametrize("model", [MixedNormRegressor(penalty_strength=0.1), OnlineMixedNormRegressor()])
def test_thousands_of_tasks_of_one_row(model):
    n = 5000
    X = np.random.default_rng(1).standard_normal((n, 2))
    model.fit(X, X[:, 0], tasks=np.arange(n))
    assert model.coef_.shape == (n, 2) and np.isfinite(model.coef_).all()


@pytest.mark.slow
def test_a_million_tasks_of_one_row():
    n = 1_000_000
    X = np.random.default_rng(1).standard_normal((n, 2))
    model = OnlineMixedNormRegressor(penalty_strength=0.1).fit(X, X[:, 0], tasks=np.arange(n))
    assert model.coef_.shape == (n, 2) and np.isfinite(model.coef_).all()


def test_a_fault_is_noticed(monkeypatch):
    """What the other tests rely on: infinite coefficients, wrong errors and hangs do not pass."""
    problem = fuzz.Problem(np.eye(3), np.arange(3.0), None)

    class Broken(MixedNormRegressor):
        def fit(self, X, y, tasks=None):
            super().fit(X, y, tasks=tasks)
            self.coef_ = self.coef_ * np.nan
            return self

    monkeypatch.setattr(fuzz, "make_estimator", lambda name: Broken())
    with pytest.raises(fuzz.FaultError, match="coef_ is not finite"):
        fuzz.try_fit("MixedNormRegressor", False, problem)
    with pytest.raises(fuzz.FaultError, match="CPU time"), fuzz.limited(0.05):
        while True:
            pass
