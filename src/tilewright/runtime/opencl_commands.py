"""Kernels whose arguments are set once: a call puts all of them into a queue, in order.

pyopencl takes some microseconds for each kernel, more than a small one runs. So the driver's
function is called directly, where the library that pyopencl is linked to shows it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.ir.errors import TargetError
from tilewright.runtime.opencl_device import load_opencl

_Sizes = ctypes.c_size_t * 3


@dataclass(frozen=True)
class Command:
    """A kernel with its arguments, which it alone has.

    Attributes
    ----------
    kernel : a ``pyopencl.Kernel`` that nothing else sets arguments of.
    total, group : work-items in all, and of a group, by dimension.
    keep : memory objects, which a kernel does not keep alive itself.
    """

    kernel: Any
    total: tuple[int, int, int]
    group: tuple[int, int, int]
    keep: tuple[Any, ...]


class Commands:
    """What a call of it puts into ``queue``, a ``pyopencl.CommandQueue`` that keeps its order."""

    def __init__(self, queue: Any, commands: Sequence[Command]) -> None:
        self.queue, self.commands = queue, tuple(commands)
        self._enqueue, self._flush = _functions()
        self._calls = [
            (
                ctypes.c_void_p(queue.int_ptr), ctypes.c_void_p(c.kernel.int_ptr),
                ctypes.c_uint(3), None, _Sizes(*c.total), _Sizes(*c.group),
                ctypes.c_uint(0), None, None,
            )
            for c in self.commands
        ]  # fmt: skip

    def __call__(self) -> None:
        """Enqueue all; does not wait. Raises :class:`TargetError` where the driver refuses."""
        enqueue = self._enqueue
        if enqueue is None:
            self.events()
            return
        for call in self._calls:
            if status := enqueue(*call):
                raise TargetError(f"clEnqueueNDRangeKernel: the driver's status is {status}")
        if self._calls:
            self._flush(self._calls[0][0])

    def events(self) -> list[Any]:
        """Enqueue all, and return their events."""
        launch = load_opencl().enqueue_nd_range_kernel
        return [launch(self.queue, c.kernel, c.total, c.group) for c in self.commands]


@cache
def _functions() -> tuple[Callable[..., int] | None, Callable[..., int]]:
    """``clEnqueueNDRangeKernel`` and ``clFlush`` of the library that pyopencl is linked to; None
    where its names are not to be seen from here."""
    try:
        library = ctypes.CDLL(load_opencl()._cl.__file__)
        return library.clEnqueueNDRangeKernel, library.clFlush
    except (AttributeError, OSError):
        return None, lambda _: 0
