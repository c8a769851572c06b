"""Devices, arrays, compiling and caching, launching, timing."""

from tilewright.runtime.array import view
from tilewright.runtime.array_view import ArrayView
from tilewright.runtime.build import build, find
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.ndarray import Device, NDArray, array, empty
from tilewright.runtime.program import Program, Resources
from tilewright.runtime.save import load
from tilewright.runtime.timing import Timing

__all__ = [
    "ArrayView", "Device", "Kernel", "NDArray", "Program", "Resources", "Timing", "array", "build",
    "empty", "find", "load", "view",
]  # fmt: skip
