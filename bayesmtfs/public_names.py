"""Where each public name lives: the one list that lazy loading and the reading of saved files share."""

MODULES = ("baselines", "datasets", "families", "models", "moments", "plots", "selection")

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
    "FisherScoreSelector": "bayesmtfs.papers.baselines.fisher_score",
    "FixedRelationsClassifier": "bayesmtfs.papers.baselines.foml",
    "HingeSelector": "bayesmtfs.papers.baselines.svm21",
    "IndependentClassifier": "bayesmtfs.papers.baselines.independent",
    "IndependentRegressor": "bayesmtfs.papers.baselines.independent",
    "LearnedRelationsClassifier": "bayesmtfs.papers.baselines.omtrl",
    "PassiveAggressiveClassifier": "bayesmtfs.papers.baselines.passive_aggressive",
    "PassiveAggressiveRegressor": "bayesmtfs.papers.baselines.passive_aggressive",
    "PooledClassifier": "bayesmtfs.papers.baselines.pooled",
    "PooledRegressor": "bayesmtfs.papers.baselines.pooled",
    "RandomSelector": "bayesmtfs.papers.baselines.random_ranking",
    "RobustRegressionSelector": "bayesmtfs.papers.baselines.rfs",
    "SharedHypothesesClassifier": "bayesmtfs.papers.baselines.shamo",
    "SharedLossClassifier": "bayesmtfs.papers.baselines.shared_loss",
    "SharedMeanClassifier": "bayesmtfs.papers.baselines.ridge",
    "SharedMeanRegressor": "bayesmtfs.papers.baselines.ridge",
    "SharedStructureSelector": "bayesmtfs.papers.baselines.fssi",
    "SparseMultinomialSelector": "bayesmtfs.papers.baselines.sbmlr",
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
