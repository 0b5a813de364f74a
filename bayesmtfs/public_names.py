"""Where each public name lives: the one list that lazy loading and the reading of saved files share."""

MODULES = ("baselines", "datasets", "models", "moments", "plots", "selection")

ESTIMATORS = {
    "BayesianClassifier": "bayesmtfs.estimators.bayesian",
    "BayesianRegressor": "bayesmtfs.estimators.bayesian",
    "DiscriminativeSelector": "bayesmtfs.estimators.discriminative",
    "GeneralizedNormalClassifier": "bayesmtfs.estimators.generalized_normal",
    "GeneralizedNormalRegressor": "bayesmtfs.estimators.generalized_normal",
    "JeffreysClassifier": "bayesmtfs.estimators.jeffreys",
    "JeffreysRegressor": "bayesmtfs.estimators.jeffreys",
    "MatrixVariateClassifier": "bayesmtfs.estimators.matrix_variate",
    "MatrixVariateRegressor": "bayesmtfs.estimators.matrix_variate",
    "MixedNormClassifier": "bayesmtfs.estimators.penalised",
    "MixedNormClassifierCV": "bayesmtfs.estimators.penalised_cv",
    "MixedNormRegressor": "bayesmtfs.estimators.penalised",
    "MixedNormRegressorCV": "bayesmtfs.estimators.penalised_cv",
    "OnlineMixedNormClassifier": "bayesmtfs.estimators.online",
    "OnlineMixedNormRegressor": "bayesmtfs.estimators.online",
    "OnlineSmoothedClassifier": "bayesmtfs.estimators.online_smoothed",
    "OnlineSmoothedRegressor": "bayesmtfs.estimators.online_smoothed",
    "SmoothedClassifier": "bayesmtfs.estimators.smoothed",
    "SmoothedRegressor": "bayesmtfs.estimators.smoothed",
}

BASELINES = {
    "FisherScoreSelector": "bayesmtfs.baselines.fisher_score",
    "FixedRelationsClassifier": "bayesmtfs.baselines.foml",
    "HingeSelector": "bayesmtfs.baselines.svm21",
    "IndependentClassifier": "bayesmtfs.baselines.independent",
    "IndependentRegressor": "bayesmtfs.baselines.independent",
    "LearnedRelationsClassifier": "bayesmtfs.baselines.omtrl",
    "PassiveAggressiveClassifier": "bayesmtfs.baselines.passive_aggressive",
    "PassiveAggressiveRegressor": "bayesmtfs.baselines.passive_aggressive",
    "PooledClassifier": "bayesmtfs.baselines.pooled",
    "PooledRegressor": "bayesmtfs.baselines.pooled",
    "RandomSelector": "bayesmtfs.baselines.random_ranking",
    "RobustRegressionSelector": "bayesmtfs.baselines.rfs",
    "SharedHypothesesClassifier": "bayesmtfs.baselines.shamo",
    "SharedLossClassifier": "bayesmtfs.baselines.shared_loss",
    "SharedMeanClassifier": "bayesmtfs.baselines.ridge",
    "SharedMeanRegressor": "bayesmtfs.baselines.ridge",
    "SharedStructureSelector": "bayesmtfs.baselines.fssi",
    "SparseMultinomialSelector": "bayesmtfs.baselines.sbmlr",
}

HOMES = ESTIMATORS | {
    "FitResult": "bayesmtfs.results",
    "TaskData": "bayesmtfs.tasks",
    "compare": "bayesmtfs.selection.comparison",
    "load": "bayesmtfs.estimators.loading",
    "mixed_norm_path": "bayesmtfs.estimators.path",
    "report": "bayesmtfs.reporting",
    "simulate_tasks": "bayesmtfs.simulation",
}
