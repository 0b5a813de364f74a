import signal

import pytest


@pytest.fixture(autouse=True)
def hears_ctrl_c():
    """A process that was started in the background may have been told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
