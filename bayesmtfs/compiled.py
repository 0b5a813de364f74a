"""Compiling without what a function does not need, and one thread for the linear algebra around it.

`inner` is for functions that compiled code calls. `numba.njit` makes machine code of each function by itself: with all that
it calls, optimised once more on every level of calls, and with two functions around it by which Python and C call it. Where
only compiled code calls, none of that is ever run, and it took two fifths of a first fit. An `inner` function is brought to
LLVM's language and no further, and becomes machine code as a part of what Python calls (`bayesmtfs.compiled_parts`).

`lean` is for functions that make no arrays. Numba counts the references to every array that a function is given; where
arguments are tuples of many arrays and the loops are short, the counting takes longer than the loops.

The collector of garbage rests while a function of this package is compiled: numba makes a million objects, none of which
goes before it is done, and looking through them again and again took a seventh of a first fit.
"""

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from types import FunctionType
from typing import Any, TypeVar

from numba import njit
from numba.core.event import Event, Listener, register
from threadpoolctl import ThreadpoolController

THREADS_PAY = 5e8  # operations of a step, from which threads of linear algebra do more than they cost

PartCompiler: Any = None  # each function is compiled by itself
with suppress(ImportError, AttributeError):  # of a numba that is built otherwise
    from bayesmtfs.compiled_parts import PartCompiler

Function = TypeVar("Function", bound=Callable[..., Any])
# Outside the interpreter's lock, without counts of references; `inner` takes them, too
LEAN: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def inner(**options: Any) -> Callable[[Function], Function]:
    """`numba.njit` with the cache, for functions that compiled code calls.

    A call from Python, as tests make them, compiles the function once more, by itself.

    Examples
    --------
    >>> @inner(cache=False)
    ... def twice(x):
    ...     return 2 * x
    >>> @lean(cache=False)
    ... def four_times(x):
    ...     return twice(twice(x))
    >>> four_times(1.0), twice(1.0)
    (4.0, 2.0)
    """

    def compiled(function: Function) -> Function:
        settings: dict[str, Any] = {"cache": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
        if PartCompiler is not None:
            settings["pipeline_class"] = PartCompiler
        found: Any = njit(**settings)(function)
        if found is function:  # compilation is switched off
            return function
        enter = found._insert  # into the table in which a call from Python looks first

        @cache
        def alone() -> Any:
            copied = FunctionType(
                function.__code__, function.__globals__, None, function.__defaults__, function.__closure__
            )
            copied.__qualname__ = f"{function.__qualname__}_alone"  # the name of its file in the cache
            made: Any = njit(**({"cache": True} | options))(copied)
            made._insert = enter
            return made

        found._insert = _not_entered
        found._compile_for_args = lambda *arguments: alone()._compile_for_args(*arguments)
        return found

    return compiled


class _Rest(Listener):
    """Hold the collector of garbage while a function of this package, and what it calls, is compiled."""

    def __init__(self) -> None:
        self.was_on: list[bool] = []  # of the functions that are being compiled, from the outermost

    def on_start(self, event: Event) -> None:
        """Stop the collector."""
        if _is_ours(event):
            self.was_on.append(gc.isenabled())
            gc.disable()

    def on_end(self, event: Event) -> None:
        """Start it again, if it ran."""
        if _is_ours(event) and self.was_on.pop():
            gc.enable()


def _is_ours(event: Event) -> bool:
    return str(event.data["dispatcher"].py_func.__module__).startswith("bayesmtfs.")


register("numba:compile", _Rest())


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


def threads_that_pay(operations: float) -> AbstractContextManager[Any]:
    """Hold the linear algebra libraries at one thread where a step takes fewer operations than threads are worth.

    Examples
    --------
    >>> with threads_that_pay(1e6):
    ...     pass
    """
    return one_thread() if operations < THREADS_PAY else nullcontext()


@cache
def _blas() -> ThreadpoolController:
    """Return the threads of the linear algebra libraries; finding them takes milliseconds."""
    return ThreadpoolController()


def _not_entered(*_: Any) -> None:
    """Leave what was compiled out of the table of calls from Python."""
