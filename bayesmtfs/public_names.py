"""Where each public name lives: the one list that lazy loading and the reading of saved files share."""

MODULES = ("baselines", "datasets", "families", "models", "moments", "plots", "selection")

ESTIMATORS = {
    "BayesianClassifier": "bayesmtfs.estimators.bayesian",
    "BayesianRegressor": "bayesmtfs.estimators.bayesian",
    "DiscriminativeSelector": "bayesmtfs.estimators.discriminative",
    "GeneralizedNormalClassifier": "bayesmtfs.estimators.em",
    "GeneralizedNormalRegressor": "bayesmtfs.estimators.em",
    "JeffreysClassifier": "bayesmtfs.estimators.em",
    "JeffreysRegressor": "bayesmtfs.estimators.em",
    "MatrixVariateClassifier": "bayesmtfs.estimators.em",
    "MatrixVariateRegressor": "bayesmtfs.estimators.em",
    "MixedNormClassifier": "bayesmtfs.estimators.penalised",
    "MixedNormClassifierCV": "bayesmtfs.estimators.penalised_cv",
    "MixedNormRegressor": "bayesmtfs.estimators.penalised",
    "MixedNormRegressorCV": "bayesmtfs.estimators.penalised_cv",
    "OnlineMixedNormClassifier": "bayesmtfs.estimators.online",
    "OnlineMixedNormRegressor": "bayesmtfs.estimators.online",
    "OnlineSmoothedClassifier": "bayesmtfs.estimators.smoothed",
    "OnlineSmoothedRegressor": "bayesmtfs.estimators.smoothed",
    "SmoothedClassifier": "bayesmtfs.estimators.smoothed",
    "SmoothedRegressor": "bayesmtfs.estimators.smoothed",
}

BASELINES = {
    "FisherScoreSelector": "bayesmtfs.papers.baselines.rankings",
    "FixedRelationsClassifier": "bayesmtfs.papers.baselines.streams",
    "HingeSelector": "bayesmtfs.papers.baselines.rankings",
    "IndependentClassifier": "bayesmtfs.papers.baselines.ridge",
    "IndependentRegressor": "bayesmtfs.papers.baselines.ridge",
    "LearnedRelationsClassifier": "bayesmtfs.papers.baselines.streams",
    "PassiveAggressiveClassifier": "bayesmtfs.papers.baselines.streams",
    "PassiveAggressiveRegressor": "bayesmtfs.papers.baselines.streams",
    "PooledClassifier": "bayesmtfs.papers.baselines.ridge",
    "PooledRegressor": "bayesmtfs.papers.baselines.ridge",
    "RandomSelector": "bayesmtfs.papers.baselines.rankings",
    "RobustRegressionSelector": "bayesmtfs.papers.baselines.rankings",
    "SharedHypothesesClassifier": "bayesmtfs.papers.baselines.ridge",
    "SharedLossClassifier": "bayesmtfs.papers.baselines.streams",
    "SharedMeanClassifier": "bayesmtfs.papers.baselines.ridge",
    "SharedMeanRegressor": "bayesmtfs.papers.baselines.ridge",
    "SharedStructureSelector": "bayesmtfs.papers.baselines.rankings",
    "SparseMultinomialSelector": "bayesmtfs.papers.baselines.rankings",
}

HOMES = ESTIMATORS | {
    "FitResult": "bayesmtfs.results.fit_result",
    "TaskData": "bayesmtfs.data.tasks",
    "compare": "bayesmtfs.selection.comparison",
    "load": "bayesmtfs.estimators.base",
    "mixed_norm_path": "bayesmtfs.estimators.path",
    "report": "bayesmtfs.reporting",
    "simulate_tasks": "bayesmtfs.data.simulation",
}
