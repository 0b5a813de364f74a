import numpy as np
import pytest
import xarray as xr

from bayesmtfs.posterior.tree import STATISTICS, predictive_checks


def tree_of(observed, drawn, task):
    obs = ("obs",)
    return xr.DataTree.from_dict(
        {
            "/posterior": xr.Dataset(coords={"task": ["a", "b"]}),
            "/posterior_predictive": xr.Dataset({"y": (("chain", "draw", "obs"), drawn)}),
            "/observed_data": xr.Dataset({"y": (obs, observed)}),
            "/constant_data": xr.Dataset({"task_index": (obs, task)}),
        }
    )


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_data_of_the_model_look_like_it(rng):
    """Over many data sets from the model itself, p-values are uniform."""
    task = np.repeat([0, 1], 25)
    drawn = rng.normal(size=(2, 200, 50))
    found = np.array([predictive_checks(tree_of(rng.normal(size=50), drawn, task)).p_values for _ in range(60)])
    assert found.shape == (60, 2, 5)
    np.testing.assert_allclose(found.mean(axis=(0, 1)), 0.5, atol=0.12)
    np.testing.assert_allclose(found.std(axis=(0, 1)), np.sqrt(1 / 12), atol=0.08)


def test_what_the_model_does_not_make_is_seen(rng):
    task = np.repeat([0, 1], 50)
    observed = np.concatenate([3.0 * rng.normal(size=50), rng.exponential(size=50) - 1.0])
    found = predictive_checks(tree_of(observed, rng.normal(size=(2, 200, 100)), task))
    frame = found.to_frame()
    assert frame["task"].tolist() == ["a", "b"] and list(frame.columns[1:]) == list(STATISTICS)
    assert frame["sd"][0] == 0.0 and frame["skewness"][1] < 0.02 and frame["smallest"][0] == 1.0


def test_trees_without_predictions_are_refused():
    with pytest.raises(ValueError, match="tree has no group posterior_predictive"):
        predictive_checks(xr.DataTree.from_dict({"/posterior": xr.Dataset()}))
