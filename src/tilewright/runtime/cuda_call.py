"""Calling the driver's ``cuLaunchKernelEx`` in under a microsecond.

The bindings of Python wrap every handle and make an object of the status; a launch through them
costs several times as much as the launch itself. Here the arguments are numbers: the addresses of
structures that were filled once, as declared in ``cuda.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

from tilewright.runtime.cuda_driver import check, load_driver

#: The first version that has the function.
_VERSION = 11080
#: CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_SERIALIZATION = 6

#: The status of a launch; of the addresses of a configuration, a function, the addresses of its
#: arguments, and 0. Other threads run meanwhile: the driver waits where its queue is full.
Launch = Callable[[int, int, int, int], int]


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint32), ("pad", ctypes.c_uint32), ("value", ctypes.c_uint64 * 8))


class _Configuration(ctypes.Structure):
    _fields_ = (
        ("sizes", ctypes.c_uint32 * 6),  # of the grid, then of a block
        ("shared", ctypes.c_uint32),  # bytes of dynamic shared memory
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    )


class Configuration:
    """How a kernel is launched: ``sizes`` are its grid and block, ``stream`` a handle.

    With ``overlaps``, its blocks may take their places as those of the kernel before it leave
    theirs (CUDA programming guide, "Programmatic Dependent Launch").
    """

    __slots__ = ("_attribute", "_what", "address")

    def __init__(self, sizes: Sequence[int], shared: int, stream: int, overlaps: bool) -> None:
        self._attribute = _Attribute(_SERIALIZATION)
        self._attribute.value[0] = 1
        self._what = _Configuration(
            (ctypes.c_uint32 * 6)(*sizes), shared, stream, ctypes.addressof(self._attribute),
            1 if overlaps else 0,
        )  # fmt: skip
        self.address = ctypes.addressof(self._what)


@cache
def launch_function() -> Launch:
    """The driver's function."""
    address = check(load_driver().cuGetProcAddress(b"cuLaunchKernelEx", _VERSION, 0))
    pointer = ctypes.c_void_p
    made: Launch = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer, pointer, pointer)(int(address))
    return made
