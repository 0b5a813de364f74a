"""The watch for Ctrl-C: it notices, holds, nests, and leaves other handlers alone."""

import signal
import threading

import pytest

from bayesmtfs.progress import Progress


def press():
    signal.raise_signal(signal.SIGINT)


def test_it_is_noticed_though_something_inside_catches_it():
    with Progress("", False) as watch:
        watch.check()
        try:
            press()
        except KeyboardInterrupt:
            pass
        with pytest.raises(KeyboardInterrupt):
            watch.check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("hold", [False, True])
def test_the_outer_watch_notices_what_the_inner_one_does_not_hold(hold):
    with Progress("", False) as outer:
        with Progress("", False, hold=hold) as inner:
            try:
                press()
                assert hold
            except KeyboardInterrupt:
                assert not hold
        assert inner.pressed and outer.pressed == (not hold)


def test_other_threads_and_other_handlers_are_left_alone():
    handlers = []

    def enter():
        with Progress("", False) as watch:
            handlers.append(signal.getsignal(signal.SIGINT))
            watch.check()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        enter()
    finally:
        signal.signal(signal.SIGINT, old)
    assert handlers == [signal.default_int_handler, signal.SIG_IGN]
