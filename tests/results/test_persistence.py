import errno
import hashlib
import os
import pickle
import resource
import stat
import struct
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import bayesmtfs
from bayesmtfs.results import persistence
from bayesmtfs.results.persistence import CorruptFileError, NewerFormatError

HEADER = {"params": {"norm_q": float("inf"), "groups": np.array([0, 0, 1])}, "names": ("a", "b")}
ARRAYS = {
    "coef": np.random.default_rng(0).normal(size=(2, 3)),
    "kept": np.array([True, False, True]),
    "tasks": np.array(["north", "süd"]),
}
DIMS = {"coef": ["task", "feature"], "kept": ["feature"], "tasks": ["task"]}


@pytest.fixture
def tree() -> xr.DataTree:
    draws = xr.Dataset(
        {"coef": (("chain", "draw", "feature"), np.random.default_rng(1).normal(size=(2, 4, 3)))},
        coords={"feature": ["x0", "x1", "x2"], "chain": [0, 1], "draw": range(4)},
    )
    return xr.DataTree.from_dict({"posterior": draws})


@pytest.fixture
def saved(tmp_path, tree) -> Path:
    path = tmp_path / "fit"
    persistence.write(path, "demo", HEADER, ARRAYS, tree, dims=DIMS)
    return path


def sign(path: Path, version: int = 1) -> None:
    """Give a file the header that the module's documentation describes."""
    payload = path.read_bytes()[512:]
    fields = struct.pack(">9sHQ", b"BAYESMTFS", version, len(payload))
    digest = hashlib.sha256(fields.ljust(512, b"\0") + payload).digest()
    path.write_bytes((fields + digest).ljust(512, b"\0") + payload)


def test_everything_comes_back(saved, tree):
    stored = persistence.read(saved)
    assert stored.kind == "demo"
    assert stored.header["names"] == ("a", "b")
    assert stored.header["params"]["norm_q"] == float("inf")
    np.testing.assert_array_equal(stored.header["params"]["groups"], [0, 0, 1], strict=True)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(stored.arrays[name], array, strict=True)
    xr.testing.assert_identical(stored.tree, tree)


def test_the_header_is_the_documented_one(saved):
    written = saved.read_bytes()
    sign(saved)
    assert saved.read_bytes() == written


def test_the_same_content_gives_the_same_bytes(saved, tree):
    again = saved.with_name("again")
    persistence.write(again, "demo", HEADER, ARRAYS, tree, dims=DIMS)
    assert again.read_bytes() == saved.read_bytes()


# --- damaged and foreign files ----------------------------------------------------------------------------------------


def test_truncated_anywhere_is_refused(saved):
    content = saved.read_bytes()
    for length in [0, 1, 8, 9, 50, 511, 512, 513, *range(600, len(content), 997), len(content) - 1]:
        saved.write_bytes(content[:length])
        with pytest.raises(CorruptFileError, match="truncated|empty|not a bayesmtfs file"):
            persistence.read(saved)


def test_every_flipped_byte_is_noticed(saved):
    content = saved.read_bytes()
    for offset in [*range(60), 300, 511, 512, *range(513, len(content), 331), len(content) - 1]:
        flipped = content[offset] ^ 0xFF
        saved.write_bytes(content[:offset] + bytes([flipped]) + content[offset + 1 :])
        with pytest.raises(CorruptFileError):
            persistence.read(saved)


def test_an_appended_byte_is_noticed(saved):
    saved.write_bytes(saved.read_bytes() + b"\0")
    with pytest.raises(CorruptFileError, match="truncated or altered"):
        persistence.read(saved)


def test_the_hash_is_checked_before_anything_is_parsed(saved, monkeypatch):
    content = bytearray(saved.read_bytes())
    content[-10] ^= 1
    saved.write_bytes(content)
    monkeypatch.setattr(persistence, "read_payload", lambda *_: pytest.fail("an altered file was parsed"))
    with pytest.raises(CorruptFileError, match="content hash differs"):
        persistence.read(saved)


def write_npz(path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, a=np.zeros(3))


def write_plain_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["a"] = np.zeros(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("feature,coef\nage,1.0\n" * 100), "is not a bayesmtfs file"),
        (lambda path: path.write_bytes(pickle.dumps(list(range(500)))), "is not a bayesmtfs file"),
        (write_npz, "is not a bayesmtfs file"),
        (write_plain_hdf5, "is not a bayesmtfs file"),
        (lambda path: path.touch(), "is empty"),
        (lambda path: path.mkdir(), "is a directory"),
        (os.mkfifo, "is not a regular file"),
    ],
)
def test_foreign_files_are_refused(tmp_path, make, message):
    path = tmp_path / "foreign"
    make(path)
    with pytest.raises(CorruptFileError, match=message):
        persistence.read(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing does not exist; pass the path that was given to save"):
        persistence.read(tmp_path / "nothing")


def test_a_newer_format_asks_for_an_upgrade(saved):
    sign(saved, version=2)
    with pytest.raises(NewerFormatError, match="written by a newer format .* upgrade bayesmtfs"):
        persistence.read(saved)


# --- forged files: the hash is right, the content is not --------------------------------------------------------------


def replace_coef(make):
    def edit(file):
        del file["bayesmtfs/arrays/coef"]
        make(file["bayesmtfs/arrays"])

    return edit


def replace_text(old: str, new: str):
    def edit(file):
        text = file["bayesmtfs/header"][()].tobytes().decode().replace(old, new)
        del file["bayesmtfs/header"]
        file["bayesmtfs"].create_dataset("header", data=np.frombuffer(text.encode(), dtype=np.uint8))

    return edit


def path_through_a_link(file):
    file["bayesmtfs/arrays/loop"] = h5py.SoftLink("/bayesmtfs/arrays")
    replace_text('"kept":', '"loop/kept":')(file)


def virtual_coef(group):
    layout = h5py.VirtualLayout(shape=(2, 3), dtype="f8")
    layout[:] = h5py.VirtualSource("elsewhere.h5", "secret", shape=(2, 3))
    group.create_virtual_dataset("coef", layout)


FORGERIES = {
    "huge and compressed": replace_coef(
        lambda group: group.create_dataset("coef", (10**7, 10**7), "f8", chunks=(1000, 1000), compression="gzip")
    ),
    "in chunks": replace_coef(lambda group: group.create_dataset("coef", data=np.zeros((2, 3)), chunks=(1, 3))),
    "huge and never written": replace_coef(lambda group: group.create_dataset("coef", (10**7, 10**7), "f8")),
    "small and never written": replace_coef(lambda group: group.create_dataset("coef", (2, 3), "f8")),
    "a link to a file": replace_coef(
        lambda group: group.__setitem__("coef", h5py.ExternalLink("/etc/hostname", "/coef"))
    ),
    "a link inside": replace_coef(lambda group: group.__setitem__("coef", h5py.SoftLink("/posterior/coef"))),
    "data in another file": replace_coef(
        lambda group: group.create_dataset("coef", (2, 3), "f8", external=[("/etc/hostname", 0, 48)])
    ),
    "virtual": replace_coef(virtual_coef),
    "variable-length strings": replace_coef(
        lambda group: group.create_dataset("coef", data=["a"], dtype=h5py.string_dtype())
    ),
    "missing": replace_coef(lambda group: None),
    "a group": replace_coef(lambda group: group.create_group("coef")),
    "other dtype": replace_text('"<f8"', '"<f4"'),
    "object dtype": replace_text('"<f8"', '"|O"'),
    "structured dtype": replace_text('"<f8"', '"i4,i4"'),
    "strings longer than stored": replace_text('"<U5"', '"<U100000000"'),
    "a path instead of a name": path_through_a_link,
    "infinity outside JSON": replace_text('{"$float": "inf"}', "Infinity"),
    "unknown tag": replace_text('"$float"', '"$call"'),
    "array that is not there": replace_text('{"$array": 0}', '{"$array": 7}'),
    "deeply nested": replace_text('["a", "b"]', "[" * 100_000 + "]" * 100_000),
    "not JSON": replace_text("{", "("),
    "no kind": replace_text('"kind"', '"sort"'),
    "no header": lambda file: file.__delitem__("bayesmtfs/header"),
}


@pytest.mark.parametrize("edit", FORGERIES.values(), ids=FORGERIES.keys())
def test_forged_content_is_refused(saved, edit):
    with h5py.File(saved, "r+") as file:
        edit(file)
    sign(saved)
    with pytest.raises(CorruptFileError, match="does not follow the format"):
        persistence.read(saved)


def test_many_names_for_one_array_do_not_multiply_memory(tmp_path):
    path = tmp_path / "linked"
    persistence.write(path, "demo", {}, {f"a{k}": np.zeros(1000 if k == 0 else 1) for k in range(50)})
    with h5py.File(path, "r+") as file:
        for k in range(1, 50):
            del file[f"bayesmtfs/arrays/a{k}"]
            file[f"bayesmtfs/arrays/a{k}"] = file["bayesmtfs/arrays/a0"]
    sign(path)
    with pytest.raises(CorruptFileError, match="more than the file holds"):
        persistence.read(path)


def test_bytes_that_are_not_hdf5_are_refused(saved):
    saved.write_bytes(bytes(512) + b"no HDF5 here" * 100)
    sign(saved)
    with pytest.raises(CorruptFileError, match="does not follow the format"):
        persistence.read(saved)


def test_loading_unpickles_nothing(saved, monkeypatch):
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, lambda *_, **__: pytest.fail("unpickled something"))
    persistence.read(saved)


@pytest.mark.parametrize("module", ["persistence", "payload", "results", "provenance"])
def test_no_way_to_run_code_in_the_source(module):
    source = Path(bayesmtfs.__file__).with_name(f"{module}.py").read_text()
    for word in ("pickle", "marshal", "eval(", "exec(", "__import__", "allow_pickle", "import_module"):
        assert word not in source


# --- placing the file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fit", "fit.v1.nc", "größe mit raum", "x" * 255])
@pytest.mark.parametrize("as_type", [str, Path])
def test_one_file_at_exactly_the_path(tmp_path, name, as_type):
    persistence.write(as_type(tmp_path / name), "demo", {}, {})
    assert os.listdir(tmp_path) == [name]
    assert persistence.read(as_type(tmp_path / name)).kind == "demo"


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    persistence.write("fit", "demo", {}, {})
    assert os.listdir(tmp_path) == ["fit"]


def test_a_directory_is_not_written_to(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a directory; pass the path of a file inside it"):
        persistence.write(tmp_path, "demo", {}, {})


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="folder .*nowhere does not exist; create it first"):
        persistence.write(tmp_path / "nowhere" / "fit", "demo", {}, {})


def test_a_special_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="is not a regular file"):
        persistence.write(tmp_path / "pipe", "demo", {}, {})


def test_links_and_permissions_are_kept(tmp_path, saved):
    saved.chmod(0o640)
    link = tmp_path / "latest"
    link.symlink_to(saved)
    persistence.write(link, "other", {}, {})
    assert link.is_symlink()
    assert persistence.read(saved).kind == "other"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o640


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def limited_disk():
    """Let no file grow beyond 20 kB, which is what a full disk looks like to a program.

    Only around the call that is tested: the test runner writes its own report to a file, too.
    """
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def assert_old_file_is_whole(path: Path, before: bytes) -> None:
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    assert persistence.read(path).kind == "demo"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file(saved, monkeypatch, call):
    before = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, no_space)
        with pytest.raises(OSError, match="No space left"):
            persistence.write(saved, "new", {}, ARRAYS)
    assert_old_file_is_whole(saved, before)


def test_a_full_disk_leaves_the_old_file(saved):
    before = saved.read_bytes()
    with pytest.raises(OSError, match="File too large"), limited_disk():
        persistence.write(saved, "new", {}, {"coef": np.ones(100_000)})
    assert_old_file_is_whole(saved, before)


@pytest.mark.parametrize("cause", [OSError(28, "No space left on device"), RuntimeError("unknown")])
def test_an_error_of_the_disk_is_not_hidden_by_the_library(saved, monkeypatch, cause):
    before = saved.read_bytes()

    def fail(*_):
        raise SystemError("returned a result with an exception set") from cause

    monkeypatch.setattr(persistence, "write_entries", fail)
    with pytest.raises(OSError if isinstance(cause, OSError) else SystemError, match="No space left|exception set"):
        persistence.write(saved, "new", {}, {})
    assert_old_file_is_whole(saved, before)


def test_a_value_that_cannot_be_saved_leaves_the_old_file(saved):
    before = saved.read_bytes()
    with pytest.raises(ValueError, match="not valid Unicode"):
        persistence.write(saved, "new", {}, {"names": np.array(["\ud800"])})
    assert_old_file_is_whole(saved, before)


def test_a_header_that_contains_itself(tmp_path):
    header: dict[str, object] = {}
    header["self"] = header
    with pytest.raises(ValueError, match="contains itself"):
        persistence.write(tmp_path / "fit", "demo", header, {})
    assert os.listdir(tmp_path) == []


# --- other programs ---------------------------------------------------------------------------------------------------


def test_h5py_opens_the_file(saved, tree):
    with h5py.File(saved) as file:
        assert file.userblock_size == 512
        np.testing.assert_array_equal(file["bayesmtfs/arrays/coef"][()], ARRAYS["coef"])
        np.testing.assert_array_equal(file["posterior/coef"][()], tree["posterior/coef"].values)


def test_xarray_opens_the_file_as_netcdf(saved, tree):
    with xr.open_datatree(saved, engine="h5netcdf") as opened:
        xr.testing.assert_equal(opened["posterior"].to_dataset(), tree["posterior"].to_dataset())
        arrays = opened["bayesmtfs/arrays"]
        assert arrays["coef"].dims == ("task", "feature")
        assert arrays["kept"].dtype == bool
        assert arrays["tasks"].values.tolist() == ["north", "süd"]
