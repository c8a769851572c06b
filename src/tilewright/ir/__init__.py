"""The program as data: types, expressions, statements, buffers, and one generic rewriter."""

from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.func import Func, LaunchAxis, Module
from tilewright.ir.itervar import IterVar, Range

__all__ = ["Buffer", "DType", "Func", "IterVar", "LaunchAxis", "Layout", "Module", "Range", "dtype"]
