"""The calibration run from the command line, with few fits."""

import sys

import calibration


def test_quick_run_prints_and_draws(monkeypatch, capsys, tmp_path):
    picture = tmp_path / "ranks.png"
    monkeypatch.setattr(sys, "argv", ["calibration.py", "--fits", "2", "--picture", str(picture)])
    calibration.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(calibration.GIBBS_CASES | calibration.LABEL_CASES)
    assert all("2 fits" in line and "wrong signs" in line for line in lines)
    assert picture.stat().st_size > 10_000
