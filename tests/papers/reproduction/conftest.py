"""Data that are missing, or needed."""

import pytest

from bayesmtfs.papers.datasets import available


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """No data files anywhere."""
    monkeypatch.setenv("BAYESMTFS_DATA", str(tmp_path))
    monkeypatch.setenv("BAYESMTFS_CACHE", str(tmp_path))
    monkeypatch.delenv("BAYESMTFS_DATA_URL", raising=False)


@pytest.fixture
def need_data():
    """Skip the test unless the files of a data set are on this machine."""

    def need(*names):
        missing = {found.name for found in available() if found.name in names and found.status != "ready"}
        if missing:
            pytest.skip(f"set BAYESMTFS_DATA to the folder that holds {', '.join(sorted(missing))}")

    return need
