"""What long work says of itself: an estimate, bars side by side, one display at a time."""

import time

import pytest

from bayesmtfs import progress
from bayesmtfs.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_time_is_estimated_from_the_beginning_of_the_work(clock, capsys):
    with Progress("sampling", True, size="1000 features, 8 tasks") as work:
        clock[0] = 1.0
        work.update(0.01)
        assert capsys.readouterr().err == ""  # too early
        clock[0] = 4.0
        work.update(1 / 60)
        clock[0] = 5.0
        work.update(0.03)
    assert capsys.readouterr().err.strip() == "sampling: about 4 minutes: 1000 features, 8 tasks"


def test_short_work_and_work_that_is_not_to_be_shown_say_nothing(clock, capsys):
    for enabled, fraction in ((True, 0.5), (False, 0.001), (None, 0.001)):
        with Progress("sampling", enabled) as work:
            clock[0] += 4.0
            work.update(fraction)
    assert capsys.readouterr().err.strip() == ""


def test_chains_have_bars_of_their_own(clock):
    with Progress("sampling", True, part="chain") as work:
        clock[0] = 3.0
        work.update(0.5, "2 divergences", parts=[0.75, 0.25])
        bars = work._display.tasks
        assert [bar.description for bar in bars] == ["sampling, chain 1", "sampling, chain 2"]
        assert [bar.completed for bar in bars] == [0.75, 0.25] and bars[0].fields["note"] == "2 divergences"


def test_a_fit_inside_of_a_longer_work_has_no_second_display(clock):
    with Progress("cross-validation", True) as outer:
        clock[0] = 3.0
        outer.update(0.1)
        with Progress("path", True) as inner:
            clock[0] = 9.0
            inner.update(0.5)
            assert inner._display is None and outer._display is not None
    assert progress._shown == []
    with Progress("path", True) as inner:
        clock[0] = 20.0
        inner.update(0.5)
        assert inner._display is not None
