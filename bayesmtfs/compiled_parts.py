"""Numba's compiler up to LLVM's language, for functions that become machine code as parts of others.

These are extensions of classes inside numba, which promises nothing about them. They are held against what they need when
this file is imported; `bayesmtfs.compiled` does without them where that fails.
"""

from collections.abc import Callable
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.typed_passes import NativeLowering

NEEDED = (
    (JITCodeLibrary, "_optimize_final_module"),
    (JITCodeLibrary, "_finalize_final_module"),
    (JITCodeLibrary, "_finalize_dynamic_globals"),
    (JITCodeLibrary, "_ensure_finalized"),
    (JITCodeLibrary, "serialize_using_bitcode"),
    (JITCodeLibrary, "serialize_using_object_code"),
    (CompilerBase, "compile_extra"),
    (CompilerBase, "define_pipelines"),
    (DefaultPassBuilder, "define_nopython_pipeline"),
)
for _class, _name in NEEDED:
    getattr(_class, _name)


class _Part(JITCodeLibrary):
    """Code that is linked into what calls it: not optimised before, and not made to machine code by itself."""

    def _optimize_final_module(self) -> None:
        """Leave that to what calls it."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """Give the cache LLVM's language, as there is nothing else."""
        name, kind, code = self.serialize_using_bitcode()
        return name, kind, code


@register_pass(mutates_CFG=False, analysis_only=False)
class _EnterPart(LoweringPass):
    """Make a part known to what calls it, as numba does with machine code."""

    _name = "enter_part"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Enter the part by an object that stands where the address of machine code would."""
        state.cr = state.cr._replace(cfunc=object())
        state.library._ensure_finalized()
        state.targetctx.insert_user_function(state.cr.cfunc, state.cr.fndesc, [state.library])
        return True


class PartCompiler(CompilerBase):
    """Numba's compiler up to LLVM's language."""

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        """Compile into a part."""
        self.state.library = _Part(self.state.targetctx.codegen(), function.__qualname__)
        self.state.flags.no_compile = True
        return super().compile_extra(function)

    def define_pipelines(self) -> list[Any]:
        """Numba's passes, and one that enters the part."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_EnterPart, NativeLowering)
        passes.finalize()
        return [passes]
