"""A logistic loss with one factor per row for skglm's group solvers, whose own has none."""

import numpy as np
from numba import float64, int32
from peer_forms import block_design, read_blocks, with_intercept_columns
from peers import Answers, Prepared
from skglm.datafits import LogisticGroup
from skglm.estimators import GeneralizedLinearEstimator
from skglm.penalties import WeightedGroupL2
from skglm.solvers import GroupProxNewton
from workloads import Problem


class WeightedLogisticGroup(LogisticGroup):
    """sum_i factor_i ln(1 + exp(-y_i eta_i)) for skglm; compiled by skglm at the first fit."""

    def __init__(self, grp_ptr, grp_indices, factors):  # type: ignore[no-untyped-def]
        self.grp_ptr, self.grp_indices, self.factors = grp_ptr, grp_indices, factors

    def get_spec(self):  # type: ignore[no-untyped-def]
        """Types of the attributes."""
        return (("grp_ptr", int32[:]), ("grp_indices", int32[:]), ("lipschitz", float64[:]), ("factors", float64[:]))

    def params_to_dict(self):  # type: ignore[no-untyped-def]
        """Arguments of the constructor."""
        return {"grp_ptr": self.grp_ptr, "grp_indices": self.grp_indices, "factors": self.factors}

    def raw_grad(self, y, Xw):  # type: ignore[no-untyped-def]
        """Gradient in the linear predictor."""
        return -y * self.factors / (1 + np.exp(y * Xw))

    def raw_hessian(self, y, Xw):  # type: ignore[no-untyped-def]
        """Second derivative in the linear predictor."""
        inverse = np.exp(-y * Xw)
        return self.factors * inverse / (1 + inverse) ** 2

    def value(self, y, w, Xw):  # type: ignore[no-untyped-def]
        """Loss."""
        return (self.factors * np.log(1.0 + np.exp(-y * Xw))).sum()


def build_logistic(problem: Problem) -> Prepared:
    """Prox-Newton on the dense block design, with one unpenalised column per task as its intercept."""
    data, m = problem.data, problem.data.n_tasks
    design = np.asfortranarray(with_intercept_columns(block_design(data, centre=False), data).toarray())
    starts = np.concatenate([np.arange(data.n_features + 1) * m, data.n_features * m + 1 + np.arange(m)])
    starts, columns = starts.astype(np.int32), np.arange(design.shape[1], dtype=np.int32)
    weights = np.concatenate([np.ones(data.n_features), np.zeros(m)])
    y = data.stacked_targets

    def solve(tol: float) -> Answers:
        model = GeneralizedLinearEstimator(
            WeightedLogisticGroup(starts, columns, data.row_factors),
            WeightedGroupL2(problem.strength, weights, starts, columns),
            GroupProxNewton(tol=tol, max_iter=200, fit_intercept=False),
        )
        return [read_blocks(model.fit(design, y).coef_, data)]

    return Prepared(solve)
