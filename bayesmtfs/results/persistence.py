"""One file for arrays, settings and draws, which is read back exactly or refused with a reason.

A file is a header of 512 bytes followed by a NetCDF-4 (HDF5) payload; nothing in it is ever executed:

========  ==================================================================================
bytes     content
========  ==================================================================================
0-8       ``BAYESMTFS``
9-10      format version, big-endian; this header keeps its form in every version
11-18     length of the payload in bytes, big-endian
19-50     SHA-256 of the header (these 32 bytes taken as zero) followed by the payload
51-511    zero
512-      the payload
========  ==================================================================================

HDF5 calls the first 512 bytes a user block and skips them, so other programs read the file as it is:
``h5py.File(path)``, ``xarray.open_datatree(path, engine="h5netcdf")`` and ``arviz.from_netcdf(path,
engine="h5netcdf")`` (the engine must be named, since xarray's guess looks at byte 0 only). They find the groups of the
tree at the root, the arrays in ``/bayesmtfs/arrays`` and the JSON text in ``/bayesmtfs/header``.

In the text are the settings, the attributes and the type of every array. It is strict JSON: infinities, NaN, tuples and
NumPy scalars are objects with one key that begins with ``$``, arrays inside the settings are in ``/bayesmtfs/nested``.
Numbers are stored uncompressed and strings as UTF-8 characters of fixed width (at least as many bytes as the NumPy dtype
has characters). Reading an array therefore never takes more memory than its bytes in the payload (four times that for
strings), so that one limit, the length of the payload, bounds what a file can ask for.

The hash guards against damage, not against forgery: it is not a signature. A forged file still cannot make the loader
run code, follow links out of the file, or take much more memory than the file has bytes.
"""

import hashlib
import json
import math
import os
import secrets
import shutil
import struct
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from xarray import DataTree


# ---------------------------------------------------------------------- the payload


Array = NDArray[Any]

_OWN_GROUP = "bayesmtfs"
_NUMERIC = frozenset("i1 i2 i4 i8 u1 u2 u4 u8 f4 f8".split())
_NUMPY_SCALARS: dict[str, Any] = {
    scalar.__name__: scalar for scalar in (np.bool_, np.str_, *(np.dtype(code).type for code in sorted(_NUMERIC)))
}


class StoredFile(NamedTuple):
    """What a file holds."""

    kind: str  # what the content is, such as "FitResult"
    header: dict[str, Any]
    arrays: dict[str, Array]
    tree: "DataTree | None"


class Entry(NamedTuple):
    """One array and its place in the stream."""

    group: tuple[str, ...]
    name: str
    array: Array
    dims: tuple[str, ...]
    truth: bool = False  # whether its integers stand for True and False


def prepare(
    kind: str,
    header: dict[str, Any],
    arrays: Mapping[str, Array],
    tree: "DataTree | None",
    dims: Mapping[str, Sequence[str]],
) -> list[Entry]:
    """List every array to be written, the JSON text as the last one; arguments as in `write`."""
    entries: list[Entry] = []
    nested: list[Array] = []
    document = {
        "kind": kind,
        "header": encode(header, nested, "header"),
        "arrays": {
            name: _describe(entries, (_OWN_GROUP, "arrays"), name, array, dims.get(name))
            for name, array in arrays.items()
        },
        "tree": None if tree is None else _describe_tree(entries, tree, nested),
    }
    document["nested"] = [
        _describe(entries, (_OWN_GROUP, "nested"), str(index), array) for index, array in enumerate(nested)
    ]
    text = np.frombuffer(json.dumps(document, allow_nan=False).encode("ascii"), dtype=np.uint8)
    entries.append(Entry((_OWN_GROUP,), "header", text, ("header_length",)))
    return entries


def write_entries(stream: BinaryIO, entries: Sequence[Entry], user_block: int) -> None:
    """Write a NetCDF-4 file into ``stream``, leaving ``user_block`` bytes free at its beginning."""
    # Imported here, because few fits are saved and everybody would wait for h5py at `import bayesmtfs`.
    import h5netcdf
    import h5py

    with (
        h5py.File(stream, "w", userblock_size=user_block, track_order=True) as storage,
        h5netcdf.File(storage, "r+") as netcdf,
    ):
        # All dimensions first: a variable whose name is also a dimension needs to know it.
        for entry in entries:
            group = _group_at(netcdf, entry.group)
            for dim, size in zip(entry.dims, entry.array.shape, strict=True):
                if dim not in group.dimensions:
                    group.dimensions[dim] = size
                elif group.dimensions[dim].size != size:
                    raise ValueError(
                        f"{entry.name} has {size} entries along {dim!r}, another array {group.dimensions[dim].size}; "
                        "give the axes different names"
                    )
        for entry in entries:
            variable = _group_at(netcdf, entry.group).create_variable(entry.name, entry.dims, data=entry.array)
            if entry.truth:
                variable.attrs["dtype"] = "bool"
            elif entry.array.dtype.kind == "S":
                variable.attrs["_Encoding"] = "utf-8"


def _group_at(netcdf: Any, path: tuple[str, ...]) -> Any:
    group = netcdf
    for step in path:
        group = group.groups[step] if step in group.groups else group.create_group(step)
    return group


def read_payload(stream: BinaryIO, limit: int) -> StoredFile:
    """Read back what `write_entries` wrote, refusing arrays that declare more than ``limit`` bytes together."""
    import h5py

    with h5py.File(stream, "r") as storage:
        reader = _Reader(storage, limit)
        text = reader.stored((_OWN_GROUP, "header"), np.dtype("u1")).tobytes()
        document = json.loads(text, parse_constant=_refuse_constant)
        nested = [
            reader.array((_OWN_GROUP, "nested", str(index)), description)
            for index, description in enumerate(document["nested"])
        ]
        arrays = {
            name: reader.array((_OWN_GROUP, "arrays", name), description)
            for name, description in document["arrays"].items()
        }
        tree = None if document["tree"] is None else _read_tree(reader, document["tree"], nested)
    return StoredFile(document["kind"], decode(document["header"], nested), arrays, tree)


def encode(value: Any, nested: list[Array] | None, where: str) -> Any:
    """Turn a value into strict JSON.

    Arrays are moved to ``nested`` (None: refused), and ``where`` names the value in errors.

    Examples
    --------
    >>> encode({"norm_q": float("inf"), "shape": (2, 3)}, [], "settings")
    {'norm_q': {'$float': 'inf'}, 'shape': {'$tuple': [2, 3]}}
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if type(value) is list:
        return [encode(entry, nested, f"{where}[{k}]") for k, entry in enumerate(value)]
    if type(value) is tuple:
        return {"$tuple": encode(list(value), nested, where)}
    if type(value) is dict:
        return _encode_dict(value, nested, where)
    if isinstance(value, np.ndarray) and nested is not None:
        nested.append(value)
        return {"$array": len(nested) - 1}
    if isinstance(value, np.generic) and type(value).__name__ in _NUMPY_SCALARS:
        return {"$numpy": [type(value).__name__, encode(value.item(), nested, where)]}
    raise TypeError(
        f"{where} is of type {type(value).__name__}, which cannot be saved; use None, bool, int, float, str, NumPy "
        "scalars and arrays, or lists, tuples and dicts of these"
    )


def _encode_dict(value: dict[Any, Any], nested: list[Array] | None, where: str) -> dict[str, Any]:
    # Keys that JSON has no room for, and those that would read as a tag, go into a list of pairs.
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {key: encode(entry, nested, f"{where}.{key}") for key, entry in value.items()}
    pairs = [
        [encode(key, nested, f"{where} key {key!r}"), encode(entry, nested, f"{where}[{key!r}]")]
        for key, entry in value.items()
    ]
    return {"$dict": pairs}


def decode(value: Any, nested: Sequence[Array]) -> Any:
    """Turn what `encode` gave back into the value."""
    if isinstance(value, list):
        return [decode(entry, nested) for entry in value]
    if not isinstance(value, dict):
        return value
    if not any(key.startswith("$") for key in value):
        return {key: decode(entry, nested) for key, entry in value.items()}
    ((tag, content),) = value.items()
    match tag:
        case "$float":
            return float(content)
        case "$tuple":
            return tuple(decode(content, nested))
        case "$dict":
            return {decode(key, nested): decode(entry, nested) for key, entry in content}
        case "$array":
            return nested[content]
        case "$numpy":
            return _NUMPY_SCALARS[content[0]](decode(content[1], nested))
    raise ValueError(f"unknown tag {tag}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _describe(
    entries: list[Entry], group: tuple[str, ...], name: str, values: Array, dims: Sequence[str] | None = None
) -> dict[str, Any]:
    """Add one array to ``entries`` and say how to read it back."""
    where = "/".join((*group, name))
    array = np.asarray(values)
    if not name or "/" in name or "\0" in name:
        raise ValueError(f"{where!r} cannot be the name of a stored array; use a name without '/'")
    if array.dtype.kind not in "bUO" and array.dtype.str[1:] not in _NUMERIC:
        raise TypeError(
            f"{where} has dtype {array.dtype}, which cannot be saved; convert it to bool, integers, float32, float64 "
            "or str"
        )
    description: dict[str, Any] = {"dtype": array.dtype.str}
    # NumPy's own strings cannot end in NUL.
    if array.dtype.kind == "O" and not all(type(entry) is str and not entry.endswith("\0") for entry in array.flat):
        plain = [encode(entry, None, f"{where}[{index}]") for index, entry in enumerate(array.ravel())]
        return description | {"shape": list(array.shape), "values": plain}
    names = tuple(dims) if dims is not None else tuple(f"{name}_axis{axis}" for axis in range(array.ndim))
    if len(names) != array.ndim:
        raise ValueError(f"{where} has {array.ndim} axes but dims names {len(names)}; pass one name per axis")
    packed = _packed(name, array)
    if packed.ndim > array.ndim:
        names = (*names, f"string{packed.shape[-1]}")
    entries.append(Entry(group, name, packed, names, array.dtype.kind == "b"))
    return description


def _describe_tree(entries: list[Entry], tree: "DataTree", nested: list[Array]) -> dict[str, Any]:
    # The shallow copy turns a branch of a larger tree into a tree of its own, with the coordinates it inherits.
    tree = tree.copy()
    nodes = {}
    for node in tree.subtree:
        group = tuple(node.path.strip("/").split("/")) if node.path != "/" else ()
        dataset = node.to_dataset(inherit=False)
        variables = {}
        for name, variable in dataset.variables.items():
            _check_place(group, name, variable.dims)
            variables[name] = {
                "array": _describe(entries, group, str(name), variable.values, list(map(str, variable.dims))),
                "dims": list(variable.dims),
                "attributes": encode(dict(variable.attrs), nested, f"attributes of {name}"),
                "coordinate": name in dataset.coords,
            }
        nodes[node.path] = {"attributes": encode(dict(dataset.attrs), nested, "attributes"), "variables": variables}
    return {"name": tree.name, "nodes": nodes}


def _check_place(group: tuple[str, ...], name: Hashable, dims: Sequence[Hashable]) -> None:
    if not all(isinstance(label, str) for label in (name, *dims)):
        raise TypeError(f"{name!r} with dimensions {tuple(dims)!r} cannot be saved; rename them to strings in the tree")
    if (*group, name)[0] == _OWN_GROUP:
        raise ValueError(f"{_OWN_GROUP!r} names a part of the file itself; rename it in the tree")


def _read_tree(reader: "_Reader", description: dict[str, Any], nested: Sequence[Array]) -> "DataTree":
    import xarray as xr

    datasets = {}
    for path, node in description["nodes"].items():
        group = tuple(path.strip("/").split("/")) if path != "/" else ()
        variables = {
            name: xr.Variable(
                variable["dims"],
                reader.array((*group, name), variable["array"]),
                decode(variable["attributes"], nested),
            )
            for name, variable in node["variables"].items()
        }
        coordinates = {name: variables.pop(name) for name, entry in node["variables"].items() if entry["coordinate"]}
        datasets[path] = xr.Dataset(variables, coordinates, decode(node["attributes"], nested))
    return xr.DataTree.from_dict(datasets, name=description["name"])


def _packed(name: str, array: Array) -> Array:
    """An array as it is in the stream; that of strings has one more axis."""
    if array.dtype.kind == "b":
        return array.view(np.int8)
    if array.dtype.kind not in "UO":
        return array
    strings = array.astype(str)
    try:
        encoded = np.strings.encode(strings, "utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} holds text that is not valid Unicode ({error}); clean it first") from error
    width = max(1, strings.dtype.itemsize // 4, encoded.dtype.itemsize)
    fixed = np.ascontiguousarray(encoded.astype(f"S{width}"))
    return fixed.view("S1").reshape(*strings.shape, width)


class _Reader:
    """Reads arrays of one file, as long as they stay within a number of bytes."""

    def __init__(self, storage: Any, limit: int):
        self._storage = storage
        self._bytes_left = limit

    def array(self, path: tuple[str, ...], description: dict[str, Any]) -> Array:
        """Array at ``path`` with the dtype it was given with."""
        dtype = np.dtype(description["dtype"])
        if "values" in description:
            values = [decode(value, ()) for value in description["values"]]
            return np.fromiter(values, dtype=object, count=len(values)).reshape(description["shape"])
        if dtype.kind == "b":
            return self.stored(path, np.dtype("i1")).astype(np.bool_)
        if dtype.str[1:] in _NUMERIC:
            return self.stored(path, dtype)
        if dtype.kind not in "UO":
            raise ValueError(f"{path[-1]} declares dtype {dtype}, which is never written")
        characters = self.stored(path, np.dtype("S1"))
        *shape, width = characters.shape
        if dtype.kind == "U" and dtype.itemsize // 4 > width:
            raise ValueError(f"{path[-1]} declares longer strings than are stored")
        return np.strings.decode(characters.view(f"S{width}").reshape(shape), "utf-8").astype(dtype)

    def stored(self, path: tuple[str, ...], dtype: np.dtype[Any]) -> Array:
        """Array at ``path`` as it is in the stream, once its declared size is known to be true."""
        dataset = self._find(path)
        if dataset.dtype != dtype or dataset.is_virtual or dataset.external:
            raise ValueError(f"{path[-1]} is not stored as {dtype} in the file itself")
        if dataset.size == 0:
            return np.empty(dataset.shape, dtype)
        self._bytes_left -= dataset.nbytes
        if self._bytes_left < 0 or dataset.chunks is not None or dataset.id.get_storage_size() < dataset.nbytes:
            raise ValueError(f"{path[-1]} declares shape {dataset.shape}, which is more than the file holds")
        array: Array = dataset[...]
        return array

    def _find(self, path: tuple[str, ...]) -> Any:
        import h5py

        found = self._storage
        for step in path:
            # NetCDF's name for a variable that is called like a dimension it does not have.
            renamed = f"_nc4_non_coord_{step}"
            name = renamed if step == path[-1] and renamed in found else step
            if "/" in name or not isinstance(found.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"{step} is missing, or a link to another place")
            found = found[name]
        return found


# ---------------------------------------------------------------------- the file


MAGIC = b"BAYESMTFS"
FORMAT_VERSION = 1
HEADER_SIZE = 512

_HEADER = struct.Struct(">9sHQ32s")
_CHUNK = 1 << 20


class CorruptFileError(ValueError):
    """A file that is not a bayesmtfs file, or no longer the one that was written."""


class NewerFormatError(ValueError):
    """A file written in a later format than this version of bayesmtfs reads."""


def write(
    path: str | os.PathLike[str],
    kind: str,
    header: dict[str, Any],
    arrays: Mapping[str, Array],
    tree: "DataTree | None" = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write one file at exactly ``path``, whole or not at all.

    The bytes go to a temporary file in the same folder, are forced to disk and take the place of ``path`` in one
    step. When anything fails, the temporary file is removed and an older file at ``path`` stays as it was.

    Parameters
    ----------
    path : file to write; its folder must exist, no suffix is added, an existing file is replaced
    kind : what the content is; `read` gives it back
    header : None, bool, int, float (inf and nan too), str, NumPy scalars and arrays, in lists, tuples and dicts
    arrays : of bool, integers, float32, float64, strings, or objects that could stand in ``header``
    tree : labelled arrays, such as posterior draws, with attributes that could stand in ``header``
    dims : names of the axes of ``arrays``, for other programs that open the file; default: ``<name>_axis<k>``
    """
    try:
        entries = prepare(kind, header, arrays, tree, dims or {})
    except RecursionError as error:
        raise ValueError("header is nested too deeply or contains itself; flatten it") from error
    with replacing(path) as stream:
        try:
            write_entries(stream, entries, HEADER_SIZE)
        except SystemError as error:
            raise _error_of_the_disk(error) from error
        length = stream.seek(0, os.SEEK_END) - HEADER_SIZE
        digest = _digest(stream, FORMAT_VERSION, length)
        stream.seek(0)
        stream.write(_pack_header(FORMAT_VERSION, length, digest))


def _error_of_the_disk(error: BaseException) -> BaseException:
    """The OSError behind an error of h5py, whose callbacks meet it twice: Python 3.13 calls that a SystemError."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError):
        found = found.__cause__ or found.__context__
    return error if found is None else OSError(found.errno, found.strerror)


def read(path: str | os.PathLike[str]) -> StoredFile:
    """Read a file that `write` wrote: the same values, with the same types and dtypes.

    Length, content hash and version are checked before the payload is parsed; only what the file's own description
    lists is read, links out of the file are not followed, and no array may declare more bytes than the file has. A file
    that is not bayesmtfs's, or was cut off or altered, is a `CorruptFileError`, one of a later version a
    `NewerFormatError`.
    """
    path = Path(path)
    if path.is_dir():
        raise CorruptFileError(f"{path} is a directory; pass the path of the file that save wrote")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; pass the path that was given to save")
    if not path.is_file():
        raise CorruptFileError(f"{path} is not a regular file; pass the path of the file that save wrote")
    with path.open("rb") as stream:
        length = _verify(stream, path)
        try:
            return read_payload(stream, length)
        except MemoryError:
            raise
        except Exception as error:
            raise CorruptFileError(
                f"{path} passes its content hash but does not follow the format ({error}); it was not written by "
                "bayesmtfs, save the fit again"
            ) from error


def _pack_header(version: int, length: int, digest: bytes = bytes(32)) -> bytes:
    return _HEADER.pack(MAGIC, version, length, digest).ljust(HEADER_SIZE, b"\0")


def _digest(stream: BinaryIO, version: int, length: int) -> bytes:
    digest = hashlib.sha256(_pack_header(version, length))
    stream.seek(HEADER_SIZE)
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.digest()


def _verify(stream: BinaryIO, path: Path) -> int:
    """Length of the payload, once the file is known to be the one that was written."""
    found = os.fstat(stream.fileno()).st_size
    if found == 0:
        raise CorruptFileError(f"{path} is empty; it was cut off while being copied, or is not the saved file")
    head = stream.read(HEADER_SIZE)
    if not head.startswith(MAGIC):
        raise CorruptFileError(f"{path} is not a bayesmtfs file: it does not begin with {MAGIC.decode()}")
    if found < HEADER_SIZE:
        raise CorruptFileError(f"{path} is truncated: {found} bytes, the header alone has {HEADER_SIZE}; copy it again")
    _, version, length, digest = _HEADER.unpack_from(head)
    if found != HEADER_SIZE + length:
        raise CorruptFileError(
            f"{path} is truncated or altered: {found} bytes, its header says {HEADER_SIZE + length}; copy it again"
        )
    if head != _pack_header(version, length, digest) or digest != _digest(stream, version, length):
        raise CorruptFileError(f"{path} was altered after it was written: its content hash differs; copy it again")
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{path} was written by a newer format ({version}, this version reads up to {FORMAT_VERSION}); "
            "upgrade bayesmtfs"
        )
    return int(length)


def _writable_target(path: Path) -> Path:
    # A link is kept: what it points to is replaced.
    target = path.resolve()
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a directory; pass the path of a file inside it")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; create it first or pass another path")
    if target.exists() and not target.is_file():
        raise OSError(f"{path} is not a regular file; pass the path of a file")
    return target


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A temporary file beside ``path`` that takes its place in one step when the block ends well."""
    target = _writable_target(Path(path))
    temporary = target.with_name(f".bayesmtfs-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("x+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
