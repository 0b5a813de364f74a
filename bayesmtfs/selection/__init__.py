"""Which features to trust: selection beyond one fit."""

from bayesmtfs.selection.benchmark import SelectorBenchmark, benchmark_selectors
from bayesmtfs.selection.credible_sets import CredibleSet, credible_sets
from bayesmtfs.selection.discoveries import Discoveries, discoveries
from bayesmtfs.selection.effects import Effects, effects
from bayesmtfs.selection.patterns import Pattern, Patterns, patterns
from bayesmtfs.selection.projection import ProjectionSelection, projection_selection
from bayesmtfs.selection.relations import ExponentPosterior, TaskRelations, exponent_posterior, task_relations
from bayesmtfs.selection.stability import Stability, set_stability, stability

__all__ = [
    "CredibleSet",
    "Discoveries",
    "Effects",
    "ExponentPosterior",
    "Pattern",
    "Patterns",
    "ProjectionSelection",
    "SelectorBenchmark",
    "Stability",
    "TaskRelations",
    "benchmark_selectors",
    "credible_sets",
    "discoveries",
    "effects",
    "exponent_posterior",
    "patterns",
    "projection_selection",
    "set_stability",
    "stability",
    "task_relations",
]
