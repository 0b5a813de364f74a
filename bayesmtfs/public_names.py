"""Where each public name lives: the one list that lazy loading and the reading of saved files share."""

MODULES = ("baselines", "datasets", "families", "models", "moments", "plots", "selection")


def _homes(package: str, **names: str) -> dict[str, str]:
    """Each name with its module, of modules with the names that they hold."""
    return {name: f"{package}.{module}" for module, held in names.items() for name in held.split()}


ESTIMATORS = _homes(
    "bayesmtfs.estimators",
    bayesian="BayesianClassifier BayesianRegressor",
    bayesian_survival="BayesianSurvival",
    discriminative="DiscriminativeSelector",
    em="GeneralizedNormalClassifier GeneralizedNormalRegressor JeffreysClassifier JeffreysRegressor "
    "MatrixVariateClassifier MatrixVariateRegressor",
    penalised="MixedNormClassifier MixedNormRegressor",
    penalised_cv="MixedNormClassifierCV MixedNormRegressorCV MixedNormSurvivalCV",
    online="OnlineMixedNormClassifier OnlineMixedNormRegressor",
    survival="GeneralizedNormalSurvival MixedNormSurvival",
    smoothed="OnlineSmoothedClassifier OnlineSmoothedRegressor SmoothedClassifier SmoothedRegressor",
)

BASELINES = _homes(
    "bayesmtfs.papers.baselines",
    rankings="FisherScoreSelector HingeSelector RandomSelector RobustRegressionSelector SharedStructureSelector "
    "SparseMultinomialSelector",
    ridge="IndependentClassifier IndependentRegressor PooledClassifier PooledRegressor SharedHypothesesClassifier "
    "SharedMeanClassifier SharedMeanRegressor",
    streams="FixedRelationsClassifier LearnedRelationsClassifier PassiveAggressiveClassifier "
    "PassiveAggressiveRegressor SharedLossClassifier",
)

HOMES = ESTIMATORS | {
    "FitResult": "bayesmtfs.results.fit_result",
    "TaskData": "bayesmtfs.data.tasks",
    "compare": "bayesmtfs.selection.comparison",
    "load": "bayesmtfs.estimators.base",
    "mixed_norm_path": "bayesmtfs.estimators.path",
    "report": "bayesmtfs.reporting",
    "simulate_tasks": "bayesmtfs.data.simulation",
}
