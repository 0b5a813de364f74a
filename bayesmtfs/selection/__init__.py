"""Which features to trust: selection beyond one fit."""

from bayesmtfs.selection.stability import Stability, stability

__all__ = ["Stability", "stability"]
