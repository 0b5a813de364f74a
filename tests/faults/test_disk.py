"""Disks that are full and files that cannot be read or written: a clear error, and the old file as it was."""

import builtins
import errno
import os
from pathlib import Path

import numpy as np
import pytest

import bayesmtfs as bm
from bayesmtfs.cli.console import new_folder


@pytest.fixture
def model():
    return bm.MixedNormRegressor(penalty_strength=0.01).fit(np.eye(4), np.arange(4.0))


@pytest.fixture
def saved(model, tmp_path):
    model.save(tmp_path / "model")
    return tmp_path / "model"


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_save_on_a_full_disk_keeps_the_old_model(model, saved, monkeypatch, call):
    before = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, no_space)
        with pytest.raises(OSError, match="No space left"):
            model.save(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["model"]
    np.testing.assert_array_equal(bm.load(saved).coef_, model.coef_)


def test_a_full_disk_while_the_payload_is_written(model, saved, monkeypatch):
    import h5py

    before = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(h5py, "File", no_space)
        with pytest.raises(OSError, match="No space left"):
            model.save(saved)
    assert saved.read_bytes() == before and os.listdir(saved.parent) == ["model"]


def test_an_unreadable_file_is_an_oserror(saved, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(saved))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(builtins, "open", refuse)
    with pytest.raises(PermissionError, match="model"):
        bm.load(saved)


def test_a_folder_on_a_full_disk_keeps_the_old_one(tmp_path, monkeypatch):
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "old").write_text("kept")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", no_space)
        with pytest.raises(OSError, match="No space left"), new_folder(tmp_path / "fit", force=True) as folder:
            (folder / "new").write_text("lost")
    assert (tmp_path / "fit" / "old").read_text() == "kept"


def test_a_second_failure_puts_the_old_folder_back(tmp_path, monkeypatch):
    """The old folder has been moved aside when the new one cannot take its place."""
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "old").write_text("kept")
    moves, replace = [], os.replace

    def second_fails(*paths):
        moves.append(paths)
        if len(moves) == 2:
            no_space()
        replace(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", second_fails)
        with pytest.raises(OSError, match="No space left"), new_folder(tmp_path / "fit", force=True) as folder:
            (folder / "new").write_text("lost")
    assert (tmp_path / "fit" / "old").read_text() == "kept"
    assert os.listdir(tmp_path) == ["fit"]
