"""LLVM IR from lowered programs, as text: :func:`tilewright.codegen.llvm.module.generate`."""

from tilewright.codegen.llvm.generated import ENTRY, Generated

__all__ = ["ENTRY", "Generated"]
