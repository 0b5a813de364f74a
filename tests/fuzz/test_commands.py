"""Odd tables and odd options: the command line ends with an exit code and a sentence."""

import fuzz
import pytest


@pytest.mark.parametrize("number", [25, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["tables", "commands"])
def test_the_command_line_answers(tmp_path, kind, number):
    strategy, trial = fuzz.trials(tmp_path)[kind]
    assert fuzz.run_trials(strategy, trial, number, start=0)["refused"] > 0
