"""The comparison of samplers, on tiny data, and its figures."""

import sys

import numpy as np
import posterior
import pytest


def test_quick_run_prints_a_figure_for_each_exponent(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["posterior.py", "--quick"])
    posterior.main()
    out = capsys.readouterr().out
    assert out.count("bayesmtfs Gibbs") == 3
    assert "4 tasks, q learned" in out


def test_independent_draws_count_fully():
    rng = np.random.default_rng(0)
    figures = posterior.figures_of("one", {"x": rng.standard_normal((2, 1000, 3))}, 2.0, 0.0)
    assert figures.bulk == pytest.approx(2000, rel=0.25)
    assert figures.rate <= figures.bulk / 2.0
    assert figures.r_hat < posterior.GOOD_R_HAT
