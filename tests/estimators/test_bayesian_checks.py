"""scikit-learn's contract of the Bayesian estimators, with few draws: the contract does not depend on their number.

The classifier runs without a sampler of its own, which would compile a model for every check.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from bayesmtfs.estimators.bayesian import BayesianClassifier, BayesianRegressor

FEW = {"draws": 50, "tune": 50, "chains": 2, "n_jobs": 1}


@parametrize_with_checks(
    [
        BayesianRegressor(sampler="gibbs", **FEW),
        BayesianRegressor(sampler="gibbs", shared_mean=True, **FEW),
        BayesianClassifier(sampler="fast", draws=50, chains=2),
    ]
)
@pytest.mark.filterwarnings("ignore::bayesmtfs.protocols.PosteriorWarning")
@pytest.mark.filterwarnings("ignore::bayesmtfs.protocols.SelectionWarning")
@pytest.mark.filterwarnings("ignore:SCIPY_ARRAY_API:UserWarning")
def test_scikit_learn_contract(estimator, check):
    check(estimator)
