"""Names of the baselines: all exist, also under the papers' names."""

import pytest

from bayesmtfs import baselines
from bayesmtfs.public_names import BASELINES


@pytest.mark.parametrize("name", [*BASELINES, *baselines.PAPER_NAMES])
def test_every_name_is_a_class(name):
    assert getattr(baselines, name).__name__ == baselines.PAPER_NAMES.get(name, name)
    assert name in dir(baselines)


def test_other_names_are_errors():
    with pytest.raises(AttributeError, match="nothing"):
        _ = baselines.nothing
