import errno
import hashlib
import io
import json
import math
import os
import pickle
import resource
import stat
import struct
from contextlib import contextmanager
from pathlib import Path

import arviz as az
import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bayesmtfs
from bayesmtfs.results import persistence
from bayesmtfs.results.persistence import (
    CorruptFileError,
    NewerFormatError,
    StoredFile,
    decode,
    encode,
    prepare,
    read_payload,
    write_entries,
)

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


@pytest.mark.parametrize("module", ["persistence", "fit_result"])
def test_no_way_to_run_code_in_the_source(module):
    source = (Path(bayesmtfs.__file__).parent / "results" / f"{module}.py").read_text()
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


# ----------------------------------------------------------------------


NUMPY_SCALARS = st.one_of(
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.integers(-(2**63), 2**63 - 1).map(np.int64),
    st.integers(0, 255).map(np.uint8),
    st.booleans().map(np.bool_),
    st.text().map(np.str_),
)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), NUMPY_SCALARS)
KEYS = st.one_of(st.text(), st.just("$float"), st.integers(), st.tuples(st.integers(), st.text()))
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
    ),
    max_leaves=12,
)
UNICODE = st.characters(exclude_categories=["Cs"])
DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(sizes=(32, 64), endianness="?"),
    hnp.unicode_string_dtypes(endianness="?", max_len=7),
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)


def any_array(dtype):
    elements = hnp.from_dtype(dtype, alphabet=UNICODE) if dtype.kind == "U" else hnp.from_dtype(dtype)
    return hnp.arrays(dtype, SHAPES, elements=elements)


def same(left, right):
    """Whether two values are equal in type and content, NaN equal to NaN and -0.0 different from 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and same(left.tolist(), right.tolist())
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left), list(right)) and same(list(left.values()), list(right.values()))
    if isinstance(left, (float, np.floating)):
        return repr(left) == repr(right)
    return left == right


def through_stream(kind="kind", header=None, arrays=None, payload_tree=None, dims=None) -> StoredFile:
    stream = io.BytesIO()
    write_entries(stream, prepare(kind, header or {}, arrays or {}, payload_tree, dims or {}), user_block=512)
    return read_payload(stream, limit=len(stream.getvalue()))


@settings(deadline=None, derandomize=True)
@given(VALUES)
def test_every_value_survives_strict_json(value):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    text = json.dumps(encode(value, [], "value"), allow_nan=False)
    assert same(decode(json.loads(text, parse_constant=refuse), []), value)


def test_values_that_json_would_change_keep_their_type():
    value = {"q": math.inf, "shape": (2, (3,)), 1: None, "$tuple": [np.float32(0.1), -0.0, np.bool_(True)]}
    assert same(decode(encode(value, [], "value"), []), value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, {"b": object()}]}, r"settings\.a\[1\]\.b is of type object"),
        ({"a": {1, 2}}, r"settings\.a is of type set"),
        ({"a": 1 + 2j}, r"settings\.a is of type complex"),
        ({"a": np.complex128(1)}, r"settings\.a is of type complex128"),
        ({"a": b"bytes"}, r"settings\.a is of type bytes"),
    ],
)
def test_a_value_that_cannot_be_saved_is_named(value, where):
    with pytest.raises(TypeError, match=where):
        encode(value, [], "settings")


def test_unknown_tag_is_refused():
    with pytest.raises(ValueError, match=r"unknown tag \$call"):
        decode({"$call": "os.system"}, [])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(DTYPES.flatmap(any_array))
def test_arrays_come_back_bit_for_bit(array):
    back = through_stream(arrays={"array": array}).arrays["array"]
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "bc", ""],
        [1, "one", None],
        [("a", 1), ("b", 2)],
        [1.5, math.inf, True],
        ["ends in NUL\0", "x"],
        [],
    ],
)
def test_arrays_of_objects_come_back_as_objects(labels):
    array = np.fromiter(labels, dtype=object, count=len(labels))
    back = through_stream(arrays={"labels": array}).arrays["labels"]
    assert back.dtype == object
    assert same(back.tolist(), labels)


def test_fortran_order_strides_and_wide_strings():
    arrays = {
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "strided": np.arange(10)[::3],
        "flags": np.array([True, False, True, True])[::2],
        "names": np.array(["a", "bb"], dtype="<U40"),
        "greek": np.array([["α", "日本語", "a\0b"]]),
        "scalar name": np.array("x"),
    }
    assert same(through_stream(arrays=arrays).arrays, arrays)


def test_arrays_inside_the_header_are_stored_beside_it():
    header = {"groups": np.array([0, 0, 1]), "deep": [{"names": np.array(["x", "y"], dtype=object)}, np.zeros((0, 2))]}
    assert same(through_stream(header=header).header, header)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array(["2020-01-01"], dtype="M8[D]"), r"arrays/name has dtype datetime64\[D\]"),
        (np.array([1j]), "arrays/name has dtype complex128"),
        (np.array([1], dtype=np.float16), "arrays/name has dtype float16"),
        (np.array([b"x"]), r"arrays/name has dtype \|S1"),
        (np.array([object()]), r"arrays/name\[0\] is of type object"),
        (np.array([{"a": np.zeros(2)}]), r"arrays/name\[0\]\.a is of type ndarray"),
    ],
)
def test_an_array_that_cannot_be_saved_is_named(array, message):
    with pytest.raises(TypeError, match=message):
        prepare("kind", {}, {"name": array}, None, {})


def test_text_that_is_not_unicode_is_refused():
    with pytest.raises(ValueError, match="names holds text that is not valid Unicode"):
        through_stream(arrays={"names": np.array(["\ud800"])})


@pytest.mark.parametrize("name", ["", "a/b", "a\0"])
def test_impossible_names_are_refused(name):
    with pytest.raises(ValueError, match="cannot be the name of a stored array"):
        prepare("kind", {}, {name: np.zeros(1)}, None, {})


def test_an_array_may_be_called_like_a_dimension():
    arrays = {"b_axis0": np.ones((2, 1)), "b": np.zeros(3), "c": np.arange(4.0), "c_axis0": np.zeros(2)}
    assert same(through_stream(arrays=arrays).arrays, arrays)


def test_dims_must_name_every_axis():
    with pytest.raises(ValueError, match="coef has 2 axes but dims names 1"):
        prepare("kind", {}, {"coef": np.zeros((2, 3))}, None, {"coef": ["task"]})


def test_axes_with_one_name_have_one_length():
    with pytest.raises(ValueError, match="b has 3 entries along 'task', another array 2"):
        through_stream(arrays={"a": np.zeros(2), "b": np.zeros(3)}, dims={"a": ["task"], "b": ["task"]})


@pytest.fixture
def payload_tree() -> xr.DataTree:
    draws = xr.Dataset(
        {
            "coef": (("chain", "draw", "feature"), np.random.default_rng(0).normal(size=(2, 3, 2)), {"units": "cm"}),
            "empty": (("chain", "none"), np.zeros((2, 0))),
            "single": ((), np.float32(3.5)),
        },
        coords={
            "feature": ["α", "b"],
            "chain": [0, 1],
            "weight": ("feature", [1.0, 2.0]),
            "label": ("feature", np.array(["x", "yy"], dtype=object)),
        },
        attrs={"sample_dims": ["chain", "draw"], "tuning": None, "settings": {"max": math.inf}},
    )
    stats = xr.Dataset(
        {
            "diverging": (("chain", "draw"), np.array([[True, False, False], [False, True, False]])),
            "message": (("chain", "draw"), np.array([[None, "bad", None]] * 2, dtype=object)),
            "depth": (("chain", "draw"), np.arange(6, dtype=np.uint64).reshape(2, 3)),
        }
    )
    root = xr.Dataset({"shared": ("feature", [1, 2])}, coords={"feature": ["α", "b"]}, attrs={"fit": (1, 2)})
    groups = {"/": root, "posterior": draws, "sample_stats": stats, "nested/deeper": stats[["depth"]]}
    return xr.DataTree.from_dict(groups, name="fit")


def test_a_tree_comes_back_with_types_and_attributes(payload_tree):
    back = through_stream(payload_tree=payload_tree).tree
    xr.testing.assert_identical(back, payload_tree)
    assert back.name == "fit"
    for node in payload_tree.subtree:
        assert same(back[node.path].attrs, node.attrs)
        for name, variable in node.variables.items():
            assert back[node.path].variables[name].dtype == variable.dtype


def test_a_branch_keeps_the_coordinates_it_inherits():
    root = xr.Dataset(coords={"feature": ["a", "b"]})
    payload_tree = xr.DataTree.from_dict({"/": root, "fit": xr.Dataset({"coef": ("feature", [1.0, 2.0])})})
    back = through_stream(payload_tree=payload_tree["fit"]).tree
    assert back["coef"].coords["feature"].values.tolist() == ["a", "b"]


def test_an_arviz_tree_comes_back():
    draws = np.random.default_rng(1).normal(size=(2, 10, 3))
    payload_tree = az.from_dict({"posterior": {"coef": draws}, "observed_data": {"y": np.arange(4.0)}})
    xr.testing.assert_identical(through_stream(payload_tree=payload_tree).tree, payload_tree)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        ({"bayesmtfs": xr.Dataset({"a": 1})}, ValueError, "'bayesmtfs' names a part of the file itself"),
        ({"/": xr.Dataset({"bayesmtfs": 1})}, ValueError, "'bayesmtfs' names a part of the file itself"),
        ({"/": xr.Dataset({1: ("x", [1.0])})}, TypeError, "rename them to strings"),
        ({"/": xr.Dataset({"a": ((2,), [1.0])})}, TypeError, "rename them to strings"),
        ({"/": xr.Dataset(attrs={"f": print})}, TypeError, r"attributes\.f is of type builtin"),
    ],
)
def test_a_tree_that_cannot_be_saved(groups, error, message):
    with pytest.raises(error, match=message):
        prepare("kind", {}, {}, xr.DataTree.from_dict(groups), {})
