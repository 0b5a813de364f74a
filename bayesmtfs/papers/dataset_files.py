"""Find a data file in a local folder, in the cache or at an address, and read it only if its SHA-256 hash is right.

The order is: the folder ``data_home`` (or the environment variable ``BAYESMTFS_DATA``), then the cache
(``BAYESMTFS_CACHE``, or the user's cache folder), then the base address ``BAYESMTFS_DATA_URL``, from which the file is
fetched into the cache. A download is verified before it takes its name in the cache, so that a broken one leaves
nothing behind. What is parsed are the very bytes that were verified.
"""

import hashlib
import io
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pooch
import scipy.sparse as sp
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from bayesmtfs.papers.dataset_registry import REGISTRY, DataFile

FOLDER_VARIABLE = "BAYESMTFS_DATA"
CACHE_VARIABLE = "BAYESMTFS_CACHE"
ADDRESS_VARIABLE = "BAYESMTFS_DATA_URL"

Folder = str | os.PathLike[str] | None
Status = Literal["ready", "altered", "to download", "missing"]


class DatasetNotFound(FileNotFoundError):  # noqa: N818
    """A data file is in none of the places that were looked in."""


class Location(NamedTuple):
    """Where a file would be taken from now."""

    status: Status
    place: str | None  # path or address; None when the file is nowhere


def local_folder(data_home: Folder = None) -> Path | None:
    """Folder of the user: the argument, else the environment variable, else None."""
    folder = data_home if data_home is not None else os.environ.get(FOLDER_VARIABLE) or None
    return None if folder is None else Path(folder).expanduser()


def cache_folder() -> Path:
    """Folder that downloads go to; it need not exist yet."""
    return Path(os.environ.get(CACHE_VARIABLE) or pooch.os_cache("bayesmtfs")).expanduser()


def address_of(file: DataFile) -> str | None:
    """Address the file is fetched from, or None if no base address is set."""
    base = os.environ.get(ADDRESS_VARIABLE)
    return f"{base.rstrip('/')}/{file.name}" if base else None


def locate(file: DataFile, data_home: Folder = None) -> Location:
    """Say where a file would be taken from, without fetching it.

    Parameters
    ----------
    file : DataFile
        The file and its hash.
    data_home : path, optional
        Local folder; None stands for the environment variable ``BAYESMTFS_DATA``.

    Returns
    -------
    Location
        ``status`` is "ready" (there and verified), "altered" (there with another hash), "to download" or "missing".
    """
    folder = local_folder(data_home)
    if folder is not None and (folder / file.name).is_file():
        return _location_on_disk(file, folder / file.name)
    cached, address = cache_folder() / file.name, address_of(file)
    if cached.is_file() and (address is None or _hash_of(cached.read_bytes()) == file.sha256):
        return _location_on_disk(file, cached)
    return Location("missing", None) if address is None else Location("to download", address)


class AvailableFile(NamedTuple):
    """One file of a data set, and where it would come from."""

    name: str  # of the data set: its loader is load_<name>
    file: str
    size: int  # bytes
    status: Status
    place: str | None  # path or address; None when the file is nowhere


def available(data_home: Folder = None) -> list[AvailableFile]:
    """List the files of all data sets and where each would be taken from now; nothing is fetched."""
    return [
        AvailableFile(facts.name, file.name, file.size, *locate(file, data_home))
        for facts in REGISTRY.values()
        for file in facts.files
    ]


def read_verified(file: DataFile, published_at: str, data_home: Folder = None, progress: bool = True) -> bytes:
    """Content of a file, fetched if need be, with the hash checked.

    Parameters
    ----------
    file : DataFile
        The file and its hash.
    published_at : str
        Where the original data are published, for the message when the file is nowhere.
    data_home : path, optional
        Local folder; None stands for the environment variable ``BAYESMTFS_DATA``.
    progress : bool, default True
        Show a progress bar while downloading.

    Returns
    -------
    bytes
        The whole file.

    Raises
    ------
    DatasetNotFound
        The file is neither in the folder nor in the cache nor at the address.
    ValueError
        The file is there, but its hash is not the registered one.
    ConnectionError
        The download broke off.
    """
    status, place = locate(file, data_home)
    if place is None:
        looked_in = [str(folder) for folder in (local_folder(data_home), cache_folder()) if folder is not None]
        raise DatasetNotFound(
            f"{file.name} ({file.size} bytes) is not in {' nor in '.join(looked_in)}; pass data_home= or set "
            f"{FOLDER_VARIABLE} to the folder that holds it, or set {ADDRESS_VARIABLE} to a base address it can be "
            f"fetched from. The original data are published at {published_at}"
        )
    path = _fetch(file, place, published_at, progress) if status == "to download" else Path(place)
    return _checked_content(file, path)


def read_arrays(
    file: DataFile, published_at: str, data_home: Folder = None, progress: bool = True
) -> dict[str, NDArray[Any]]:
    """Arrays of a verified ``.npz`` file; parameters as in `read_verified`."""
    content = io.BytesIO(read_verified(file, published_at, data_home, progress))
    with np.load(content, allow_pickle=False) as archive:
        return dict(archive)


def read_sparse(file: DataFile, published_at: str, data_home: Folder = None, progress: bool = True) -> Any:
    """CSR matrix of a verified ``.npz`` file as scipy writes it; parameters as in `read_verified`."""
    return sp.load_npz(io.BytesIO(read_verified(file, published_at, data_home, progress))).tocsr()


def _hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _location_on_disk(file: DataFile, path: Path) -> Location:
    return Location("ready" if _hash_of(path.read_bytes()) == file.sha256 else "altered", str(path))


def _checked_content(file: DataFile, path: Path) -> bytes:
    content = path.read_bytes()
    found = _hash_of(content)
    if found != file.sha256:
        raise ValueError(
            f"{path} is not the registered {file.name}: expected {file.size} bytes with SHA-256 {file.sha256}, found "
            f"{len(content)} bytes with SHA-256 {found}; it was not read. Replace or delete it"
        )
    return content


def _fetch(file: DataFile, address: str, published_at: str, progress: bool) -> Path:
    """Put the file into the cache; leave nothing half written."""
    folder = cache_folder()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), disable=not progress) as display:
            bar = _DownloadBar(display, file)
            return Path(pooch.retrieve(address, f"sha256:{file.sha256}", file.name, folder, progressbar=bar))
    except ValueError as error:  # pooch's word for a wrong hash (it names both) and for an address it cannot read
        raise ValueError(f"{file.name} was not accepted from {address}: {error} Check {ADDRESS_VARIABLE}") from error
    except OSError as error:  # every error of the connection is one, and so is a cache that cannot be written
        response = getattr(error, "response", None)  # there if the server answered with an error, and not yet read
        status = None if response is None else response.status_code
        if response is not None:
            response.close()
        if status in (404, 410):
            raise DatasetNotFound(
                f"there is no {file.name} at {address} (HTTP status {status}); set {ADDRESS_VARIABLE} to a base "
                f"address that holds it. The original data are published at {published_at}"
            ) from error
        raise ConnectionError(
            f"{file.name} could not be fetched from {address} into {folder}: {error}; nothing was kept, try again"
        ) from error


class _DownloadBar:
    """What pooch asks of a progress bar, drawn by rich; the surrounding ``with`` of the display ends it."""

    def __init__(self, display: Progress, file: DataFile) -> None:
        self.total = file.size  # pooch overwrites it with what the server announces, 0 if nothing
        self._size = file.size
        self._display = display
        self._bar = display.add_task(file.name, total=file.size)

    def update(self, n_bytes: int) -> None:
        """Count bytes that arrived."""
        self._display.advance(self._bar, n_bytes)

    def reset(self) -> None:
        """Start counting anew."""
        self._display.reset(self._bar)

    def close(self) -> None:
        """Say that the file is complete."""
        self._display.update(self._bar, completed=self._size)
