"""The calibration run from the command line, with few fits."""

import sys

import calibration


def test_quick_run_prints_and_draws(monkeypatch, capsys, tmp_path):
    plot = tmp_path / "ranks.png"
    monkeypatch.setattr(sys, "argv", ["calibration.py", "--fits", "2", "--plot", str(plot)])
    monkeypatch.setattr(calibration, "FAMILY_CASES", {})
    for name in ("GIBBS_CASES", "LABEL_CASES"):  # one each: every other one compiles another sampler
        monkeypatch.setattr(calibration, name, dict(list(getattr(calibration, name).items())[:1]))
    calibration.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("2 fits" in line and "wrong signs" in line for line in lines)
    assert plot.stat().st_size > 10_000
