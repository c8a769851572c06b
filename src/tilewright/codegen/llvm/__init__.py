"""LLVM IR from lowered programs, as text."""

from tilewright.codegen.llvm.module import Generated, generate

__all__ = ["Generated", "generate"]
