import numpy as np

from bayesmtfs.estimators.bayesian import BayesianClassifier, BayesianRegressor


def test_every_parameter_reaches_the_sampler():
    """Each parameter that concerns sampling changes the request."""
    changes = {
        "prior": "jeffreys",
        "norm_q": "learn",
        "sampler": "nuts",
        "draws": 7,
        "tune": 8,
        "chains": 9,
        "expected_features": 3,
        "global_scale": 0.3,
        "learn_global_scale": False,
        "tail_shape": 0.7,
        "spike_shape": 0.8,
        "row_scale_bounds": (0.1, 1.0),
        "norm_q_bounds": (2.0, 5.0),
        "shared_noise": True,
        "shared_mean": True,
        "mean_strength": 3.0,
        "penalty_strength": 4.0,
        "relation_concentration": 3.0,
        "target_accept": 0.95,
        "max_features": 17,
        "fit_intercept": False,
        "standardize": True,
        "random_state": 5,
        "n_jobs": 3,
        "progress": False,
    }
    plain = BayesianRegressor(random_state=0)
    asked = plain._request(), plain._stated_prior()
    for name, value in changes.items():
        changed = BayesianRegressor(**{"random_state": 0, name: value})
        assert (changed._request(), changed._stated_prior()) != asked, name


def test_seeds():
    for seed, wanted in ((3, 3), (np.int64(4), 4)):
        assert BayesianRegressor(random_state=seed)._request().random_seed == wanted
    drawn = [BayesianRegressor(random_state=np.random.RandomState(1))._request().random_seed for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_classifier_has_all_parameters_of_the_regressor():
    regressor, classifier = BayesianRegressor().get_params(), BayesianClassifier().get_params()
    assert classifier == regressor | {"loss": "logistic"}
    assert BayesianClassifier(tune=5, groups=[1]).get_params()["groups"] == [1]
