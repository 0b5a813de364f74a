"""Finding, verifying and fetching data files, the last from a server on this machine."""

import hashlib
import io
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import scipy.sparse as sp

from bayesmtfs.papers import dataset_files
from bayesmtfs.papers.dataset_files import (
    DataFile,
    DatasetFacts,
    DatasetNotFound,
    available,
    cache_folder,
    locate,
    read_arrays,
    read_verified,
)

PUBLISHED_AT = "https://example.org/the-original"


def described(name: str, content: bytes) -> DataFile:
    return DataFile(name, len(content), hashlib.sha256(content).hexdigest())


def archive(**arrays) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


CONTENT = archive(X=np.arange(6.0).reshape(3, 2), names=np.array(["a", "b"]))
FILE = described("small.npz", CONTENT)


class Server:
    """Files by path, the paths asked for, and how many bytes each answer falls short of what it announces."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.cut_off = 0
        self.status = 200
        self.address = ""


@pytest.fixture
def server(monkeypatch):
    """Serve made-up files on this machine, set as the base address."""
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            content = state.files.get(self.path)
            self.send_response(404 if content is None else state.status)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write((content or b"")[: len(content or b"") - state.cut_off])

        def log_message(self, *_) -> None:
            """Keep the output of the tests clean."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.address = f"http://127.0.0.1:{http.server_port}/data"
    monkeypatch.setenv("BAYESMTFS_DATA_URL", state.address)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """Start from nowhere: no folder, no address, an empty cache."""
    for variable in ("BAYESMTFS_DATA", "BAYESMTFS_DATA_URL"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "cache"
    monkeypatch.setenv("BAYESMTFS_CACHE", str(folder))
    return folder


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / FILE.name).write_bytes(CONTENT)
    return folder


def files_in(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_local_folder_by_argument_or_variable(home, monkeypatch, tmp_path):
    assert read_verified(FILE, PUBLISHED_AT, home) == CONTENT
    assert locate(FILE, home) == ("ready", str(home / FILE.name))
    monkeypatch.setenv("BAYESMTFS_DATA", str(home))
    assert read_verified(FILE, PUBLISHED_AT) == CONTENT
    with pytest.raises(DatasetNotFound):  # the argument comes before the variable
        read_verified(FILE, PUBLISHED_AT, tmp_path / "elsewhere")


def test_local_folder_comes_before_the_address(home, server):
    assert read_verified(FILE, PUBLISHED_AT, home) == CONTENT
    assert server.asked == []


def test_arrays_and_sparse_matrices(home):
    arrays = read_arrays(FILE, PUBLISHED_AT, home)
    assert arrays["X"].tolist() == [[0, 1], [2, 3], [4, 5]] and arrays["names"].tolist() == ["a", "b"]
    stream = io.BytesIO()
    matrix = sp.csr_matrix(np.diag([1, 0, 3]))
    sp.save_npz(stream, matrix)
    (home / "sparse.npz").write_bytes(stream.getvalue())
    read = read_arrays(described("sparse.npz", stream.getvalue()), PUBLISHED_AT, home)["X"]
    assert read.format == "csr" and np.array_equal(read.toarray(), matrix.toarray())


def test_pickled_objects_are_refused(home):
    content = archive(X=np.array([{"any": "object"}], dtype=object))
    (home / "pickled.npz").write_bytes(content)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_arrays(described("pickled.npz", content), PUBLISHED_AT, home)


def test_altered_local_file_is_not_parsed(home, monkeypatch):
    altered = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    (home / FILE.name).write_bytes(altered)
    monkeypatch.setattr(dataset_files.np, "load", lambda *_, **__: pytest.fail("parsed before the hash was checked"))
    with pytest.raises(ValueError) as caught:
        read_arrays(FILE, PUBLISHED_AT, home)
    for part in (str(home / FILE.name), FILE.sha256, hashlib.sha256(altered).hexdigest()):
        assert part in str(caught.value)
    assert locate(FILE, home)[0] == "altered"


def test_nowhere_says_what_to_do_and_where_the_original_is(tmp_path, cache):
    with pytest.raises(DatasetNotFound) as caught:
        read_verified(FILE, PUBLISHED_AT, tmp_path)
    assert isinstance(caught.value, FileNotFoundError)
    for part in (FILE.name, str(tmp_path), str(cache), "data_home", "BAYESMTFS_DATA ", "BAYESMTFS_DATA_URL"):
        assert part in str(caught.value)
    assert PUBLISHED_AT in str(caught.value)
    assert locate(FILE) == ("missing", None)


@pytest.mark.parametrize("slash", ["", "/"])
def test_good_download_is_kept_in_the_cache(server, cache, monkeypatch, slash):
    monkeypatch.setenv("BAYESMTFS_DATA_URL", server.address + slash)
    server.files["/data/small.npz"] = CONTENT
    assert locate(FILE) == ("to download", f"{server.address}/small.npz")
    assert read_verified(FILE, PUBLISHED_AT, progress=False) == CONTENT
    assert files_in(cache) == ["small.npz"]
    assert read_verified(FILE, PUBLISHED_AT, progress=False) == CONTENT
    assert server.asked == ["/data/small.npz"]  # the second time it came from the cache
    assert locate(FILE) == ("ready", str(cache / "small.npz"))
    monkeypatch.delenv("BAYESMTFS_DATA_URL")  # and the address is no longer needed
    assert read_verified(FILE, PUBLISHED_AT) == CONTENT


def test_altered_download_is_refused_and_not_kept(server, cache):
    server.files["/data/small.npz"] = b"something else"
    with pytest.raises(ValueError) as caught:
        read_verified(FILE, PUBLISHED_AT, progress=False)
    for part in ("small.npz", server.address, FILE.sha256, hashlib.sha256(b"something else").hexdigest()):
        assert part in str(caught.value)
    assert files_in(cache) == []


@pytest.mark.parametrize("progress", [False, True])
def test_cut_off_download_leaves_nothing_behind(server, cache, progress):
    server.files["/data/small.npz"] = CONTENT
    server.cut_off = 10
    with pytest.raises(ConnectionError, match="small.npz could not be fetched from .*; nothing was kept, try again"):
        read_verified(FILE, PUBLISHED_AT, progress=progress)
    assert files_in(cache) == []
    server.cut_off = 0
    assert read_verified(FILE, PUBLISHED_AT, progress=progress) == CONTENT


def test_absent_file_at_the_address(server, cache):
    with pytest.raises(DatasetNotFound) as caught:
        read_verified(FILE, PUBLISHED_AT, progress=False)
    for part in (f"no small.npz at {server.address}/small.npz", "404", "BAYESMTFS_DATA_URL", PUBLISHED_AT):
        assert part in str(caught.value)
    assert files_in(cache) == []


def test_server_that_fails_or_is_not_there(server, monkeypatch):
    server.files["/data/small.npz"], server.status = CONTENT, 503
    with pytest.raises(ConnectionError, match="503"):
        read_verified(FILE, PUBLISHED_AT, progress=False)
    monkeypatch.setenv("BAYESMTFS_DATA_URL", "http://127.0.0.1:9")
    with pytest.raises(ConnectionError, match="could not be fetched"):
        read_verified(FILE, PUBLISHED_AT, progress=False)


def test_address_of_an_unknown_kind(monkeypatch):
    monkeypatch.setenv("BAYESMTFS_DATA_URL", "gopher://example.org")
    with pytest.raises(ValueError, match="Check BAYESMTFS_DATA_URL"):
        read_verified(FILE, PUBLISHED_AT, progress=False)


def test_altered_cache_is_fetched_anew_or_refused(server, cache, monkeypatch):
    cache.mkdir()
    (cache / FILE.name).write_bytes(b"damaged")
    server.files["/data/small.npz"] = CONTENT
    assert locate(FILE)[0] == "to download"
    assert read_verified(FILE, PUBLISHED_AT, progress=False) == CONTENT
    (cache / FILE.name).write_bytes(b"damaged")
    monkeypatch.delenv("BAYESMTFS_DATA_URL")
    assert locate(FILE)[0] == "altered"
    with pytest.raises(ValueError, match="Replace or delete it"):
        read_verified(FILE, PUBLISHED_AT)


@pytest.mark.parametrize("progress", [False, True])
def test_progress_bar_can_be_switched_off(server, capsys, progress):
    server.files["/data/small.npz"] = CONTENT
    read_verified(FILE, PUBLISHED_AT, progress=progress)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert (f"{len(CONTENT)}/{len(CONTENT)} bytes" in shown.err) is progress
    read_verified(FILE, PUBLISHED_AT, progress=True)
    assert capsys.readouterr() == ("", "")  # from the cache there is nothing to show


def test_cache_of_the_user_unless_told_otherwise(cache, monkeypatch):
    assert cache_folder() == cache
    monkeypatch.delenv("BAYESMTFS_CACHE")
    assert "bayesmtfs" in str(cache_folder())


def test_available_lists_every_file_and_its_place(home, server, monkeypatch):
    other = described("other.npz", b"other")
    facts = DatasetFacts("small", (FILE, other), "", "", PUBLISHED_AT)
    monkeypatch.setattr(dataset_files, "REGISTRY", {"small": facts})
    assert available(home) == [
        ("small", "small.npz", len(CONTENT), "ready", str(home / "small.npz")),
        ("small", "other.npz", 5, "to download", f"{server.address}/other.npz"),
    ]
    assert server.asked == []
