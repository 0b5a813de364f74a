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
    "SmoothedClassifier": "bayesmtfs.estimators.smoothed",
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
