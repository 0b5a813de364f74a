"""Two ways of compiling that spare what a function does not need, and one thread for the linear algebra around it.

`inner` is for functions that only compiled code calls. `numba.njit` builds two more functions around each one: by which
Python calls it, and by which C does. Where arguments are tuples of many arrays these are longer than the loops inside, and
a third of a first fit went into building them.

`lean` is for functions that make no arrays. Numba counts the references to every array that a function is given; where
arguments are tuples of many arrays and the loops are short, the counting takes longer than the loops.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar

from numba import njit
from threadpoolctl import ThreadpoolController

Function = TypeVar("Function", bound=Callable[..., Any])
# Outside the interpreter's lock, without counts of references; `inner` takes them, too
LEAN: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def inner(**options: Any) -> Callable[[Function], Function]:
    """`numba.njit` with the cache and without what Python calls by: a call from Python is a `TypeError`.

    Examples
    --------
    >>> @inner(cache=False)
    ... def twice(x):
    ...     return 2 * x
    >>> twice(1.0)
    Traceback (most recent call last):
    TypeError: twice is called by compiled code only; compile it with numba.njit to call it from Python
    """

    def compiled(function: Function) -> Function:
        def refuse(*_: Any, **__: Any) -> None:
            raise TypeError(
                f"{function.__name__} is called by compiled code only; compile it with numba.njit to call it from Python"
            )

        settings: dict[str, Any] = {"cache": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
        found: Any = njit(**settings)(function)
        if found is not function:  # compilation may be switched off
            # A call from Python finds what was entered in the table of a dispatcher, else it asks to compile
            found._insert, found._compile_for_args = _not_entered, refuse
        return found

    return compiled


def lean(**options: Any) -> Callable[[Function], Function]:
    """`numba.njit` with the cache, outside the interpreter's lock, without counts of references.

    Examples
    --------
    >>> @lean(cache=False)
    ... def twice(x):
    ...     return 2 * x
    >>> twice(1.0)
    2.0
    """
    settings = {"cache": True, **LEAN, **options}
    return njit(**settings)


def one_thread() -> AbstractContextManager[Any]:
    """Hold the linear algebra libraries at one thread: on small matrices threads wait for each other more than they work.

    Examples
    --------
    >>> with one_thread():
    ...     pass
    """
    held: AbstractContextManager[Any] = _blas().limit(limits=1)
    return held


@cache
def _blas() -> ThreadpoolController:
    """Return the threads of the linear algebra libraries; finding them takes milliseconds."""
    return ThreadpoolController()


def _not_entered(*_: Any) -> None:
    """Leave what was compiled out of the table of calls from Python."""
