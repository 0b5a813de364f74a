"""Bayesian and penalised multi-task feature selection."""

from bayesmtfs.tasks import TaskData

__version__ = "0.1.0"

__all__ = ["TaskData"]
