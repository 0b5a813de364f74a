"""How sure a selection is."""

from types import SimpleNamespace

import numpy as np
import pytest

from bayesmtfs.plots import selection_frequency


def test_frequencies_are_bars_most_frequent_first():
    stability = SimpleNamespace(
        selection_frequency=np.array([0.2, 0.9, 0.0]), feature_names=np.array(["a", "b", "c"]), threshold=0.75
    )
    axes = selection_frequency(stability)
    assert [bar.get_width() for bar in axes.patches] == [0.9, 0.2]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "a"]
    assert axes.lines[0].get_xdata()[0] == 0.75
    assert axes.get_xlim() == (0, 1)


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="selection frequencies"):
        selection_frequency(3)
