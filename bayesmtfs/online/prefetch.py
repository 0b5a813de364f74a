"""A hint to the processor: fetch this entry of a matrix into the cache, since it is needed soon.

The gradient sums of a sparse stream are read and written at random places of a large matrix. A load that misses the
cache holds up all that comes after it; a hint does not, so that the waiting times of a row's entries overlap.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

FOR_WRITING, KEEP_CLOSE, DATA = 1, 3, 1  # arguments of llvm.prefetch

code: Any = cgutils  # writes the instructions that stand behind a compiled call


def _fetch_entry(_: Any, matrix: Any, row: Any, column: Any) -> Any:
    """Fetch ``matrix[row, column]``, both not negative; nothing changes but the time that it takes later."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(matrix)(context, builder, arguments[0])
        address = code.get_item_pointer(context, builder, matrix, array, arguments[1:], wraparound=False)
        number, pointer = code.int32_t, code.voidptr_t
        kind = code.ir.FunctionType(code.ir.VoidType(), [pointer, number, number, number])
        hint = code.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        options = [number(option) for option in (FOR_WRITING, KEEP_CLOSE, DATA)]
        builder.call(hint, [builder.bitcast(address, pointer), *options])
        return context.get_dummy_value()

    return types.void(matrix, types.intp, types.intp), generate


prefetch: Any = intrinsic(_fetch_entry)
