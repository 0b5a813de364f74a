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
tree at the root, the arrays in ``/bayesmtfs/arrays`` and the JSON text in ``/bayesmtfs/header``; `payload`
says what is in them.

The hash guards against damage, not against forgery: it is not a signature. A forged file still cannot make the loader
run code, follow links out of the file, or take much more memory than the file has bytes.
"""

import hashlib
import os
import secrets
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bayesmtfs.results.payload import Array, StoredFile, prepare, read_payload, write_entries

if TYPE_CHECKING:
    from xarray import DataTree

__all__ = ["CorruptFileError", "NewerFormatError", "StoredFile", "read", "write"]

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
    path : path-like
        File to write. Its folder must exist; no suffix is added; an existing file is replaced.
    kind : str
        What the content is; `read` gives it back.
    header : dict
        None, bool, int, float (inf and nan too), str, NumPy scalars and arrays, in lists, tuples and dicts.
    arrays : mapping of str to array
        Arrays of bool, integers, float32, float64, strings, or objects that could stand in ``header``.
    tree : xarray.DataTree, optional
        Labelled arrays, such as posterior draws, with attributes that could stand in ``header``.
    dims : mapping of str to sequence of str, optional
        Names of the axes of ``arrays``, for other programs that open the file. Default: ``<name>_axis<k>``.

    Raises
    ------
    FileNotFoundError, IsADirectoryError, OSError
        When the file cannot be written there.
    TypeError, ValueError
        When a value cannot be stored; the message names it.
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
    """Read a file that `write` wrote.

    Length, content hash and version are checked before the payload is parsed; only what the file's own description
    lists is read, links out of the file are not followed, and no array may declare more bytes than the file has.

    Parameters
    ----------
    path : path-like
        File to read.

    Returns
    -------
    StoredFile
        The same values, with the same types and dtypes.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    CorruptFileError
        When it is no bayesmtfs file, or was cut off or altered.
    NewerFormatError
        When a later version of bayesmtfs wrote it.
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
