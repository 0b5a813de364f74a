"""Which features to trust: selection beyond one fit."""

from bayesmtfs.selection.false_discovery import Discoveries, discoveries
from bayesmtfs.selection.inclusion import Effects, effects
from bayesmtfs.selection.judge import benchmark_selectors
from bayesmtfs.selection.judge_result import SelectorBenchmark
from bayesmtfs.selection.judge_stability import set_stability
from bayesmtfs.selection.projection import projection_selection
from bayesmtfs.selection.projection_result import ProjectionSelection
from bayesmtfs.selection.relations import ExponentPosterior, TaskRelations, exponent_posterior, task_relations
from bayesmtfs.selection.stability import Stability, stability

__all__ = [
    "Discoveries",
    "Effects",
    "ExponentPosterior",
    "ProjectionSelection",
    "SelectorBenchmark",
    "Stability",
    "TaskRelations",
    "benchmark_selectors",
    "discoveries",
    "effects",
    "exponent_posterior",
    "projection_selection",
    "set_stability",
    "stability",
    "task_relations",
]
