import threading

import pytest

from bayesmtfs.posterior import parallel
from bayesmtfs.posterior.parallel import n_workers, run_chains


@pytest.mark.parametrize("n_jobs", [1, 2, None])
def test_chains_come_back_in_order(n_jobs):
    def run(chain, report):
        report(1.0)
        return chain

    assert run_chains(run, 5, n_jobs, False) == [0, 1, 2, 3, 4]


def test_errors_of_a_chain_are_raised():
    def run(chain, report):
        if chain == 1:
            raise ValueError("chain 1 is broken")
        return chain

    with pytest.raises(ValueError, match="chain 1 is broken"):
        run_chains(run, 3, 2, False)


def test_interruption_stops_the_chains_and_keeps_what_they_have(monkeypatch):
    begun = threading.Event()

    def run(chain, report):
        done = 0
        try:
            while True:
                done += 1
                report(0.5)
                begun.set()
        except KeyboardInterrupt:
            return done

    def interrupted(*arguments):
        begun.wait(10)
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel, "_watch", interrupted)
    assert all(done >= 1 for done in run_chains(run, 2, 2, False))


def test_number_of_workers():
    assert n_workers(1, 4) == 1 and n_workers(8, 4) == 4 and 1 <= n_workers(None, 4) <= 4 and n_workers(-1, 1) == 1
