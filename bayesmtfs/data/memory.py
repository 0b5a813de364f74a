"""Refuse work that cannot fit into memory before it takes any: an error in words, instead of a process that is killed."""

import os


def total_memory() -> int | None:
    """Bytes of memory that this machine has; None where that is not known."""
    if not hasattr(os, "sysconf"):
        return None
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def check_memory(needed: int, what: str, way_out: str) -> None:
    """Raise a ``MemoryError`` where more memory is needed than the machine has.

    Parameters
    ----------
    needed : bytes
    what : what takes them, in the plural
    way_out : what to do instead

    Examples
    --------
    >>> check_memory(10**18, "relations of all tasks", "fit fewer tasks")
    Traceback (most recent call last):
    MemoryError: relations of all tasks take 931322574.6 GiB, more than this machine has; fit fewer tasks
    """
    total = total_memory()
    if total is not None and needed > total:
        raise MemoryError(f"{what} take {needed / 2**30:.1f} GiB, more than this machine has; {way_out}")
