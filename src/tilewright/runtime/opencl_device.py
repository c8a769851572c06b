"""OpenCL devices: their contexts, queues and memory, through pyopencl."""

from __future__ import annotations

import contextlib
import ctypes
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.ir.errors import TargetError
from tilewright.runtime.array_view import ArrayView, numpy_dtype

INSTALL = "python -m pip install 'tilewright[opencl]'"


@cache
def load_opencl() -> Any:
    """The module ``pyopencl``; raises :class:`TargetError` where it is missing."""
    # Else PoCL 3.0 tells LLVM that iterations, which it makes of threads, share no memory, though
    # a private array that threads index is one for all: what they store in it is lost at times.
    os.environ.setdefault("POCL_WORK_GROUP_METHOD", "loops")
    try:
        import pyopencl
    except ImportError as error:
        raise TargetError(f"OpenCL needs pyopencl ({error}): {INSTALL}") from None
    return pyopencl


@dataclass(frozen=True, eq=False)
class Device:
    """One OpenCL device with a context and a queue that keeps its order.

    Attributes
    ----------
    half : whether it computes in float16.
    host : whether it is the CPU, so that it can work in the host's memory.
    shared : whether work-groups have memory of their own; else what they share is emulated.
    """

    name: str
    handle: Any
    context: Any
    queue: Any
    half: bool
    host: bool
    shared: bool

    @property
    def tag(self) -> str:
        """What compiled code depends on."""
        h = self.handle
        return f"{h.platform.name} {h.platform.version} {h.name} {h.version} {h.driver_version}"


@cache
def devices() -> tuple[Device, ...]:
    """All devices, GPUs first.

    Raises :class:`TargetError` where there is none.
    """
    cl = load_opencl()
    found = []
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        platforms = []
    for place in platforms:
        with contextlib.suppress(cl.Error):
            found += place.get_devices()
    if not found:
        raise TargetError(f"there is no OpenCL device; for the CPU: {INSTALL}")
    found.sort(key=lambda d: not d.type & cl.device_type.GPU)
    made = []
    for handle in found:
        context = cl.Context([handle])
        queue = cl.CommandQueue(context, handle)
        half = "cl_khr_fp16" in handle.extensions.split()
        host = bool(handle.type & cl.device_type.CPU)
        shared = handle.local_mem_type == cl.device_local_mem_type.LOCAL
        made.append(Device(text_of(handle.name), handle, context, queue, half, host, shared))
    return tuple(made)


@cache
def device(name: str = "") -> Device:
    """The first device whose name, or whose platform's name, contains ``name``.

    A number is a position among :func:`devices`. Raises :class:`TargetError` where there is none.
    """
    found = devices()
    if name.isdigit() and int(name) < len(found):
        return found[int(name)]
    wanted = name.lower()
    for d in found:
        if wanted in d.name.lower() or wanted in d.handle.platform.name.lower():
            return d
    names = ", ".join(repr(d.name) for d in found)
    raise TargetError(f"there is no OpenCL device {name!r}; there are {names}")


def view_of(array: Any) -> ArrayView:
    """A ``pyopencl.array.Array`` as a view."""
    t = numpy_dtype(array.dtype.str, array.dtype)
    strides = tuple(s // t.bytes for s in array.strides)
    index = next(
        (i for i, d in enumerate(devices()) if d.context.devices == array.context.devices), 0
    )
    pointer = array.base_data.int_ptr + array.offset if array.base_data is not None else 0
    return ArrayView(pointer, array.shape, strides, t, f"opencl:{index}", False, array)


def host_bytes(address: int, nbytes: int) -> Any:
    """Memory of the host as something that pyopencl copies from and to."""
    return (ctypes.c_char * nbytes).from_address(address)


def text_of(name: str) -> str:
    """A name as the driver gives it, without the NULs and blanks that some leave behind it."""
    return name.partition("\0")[0].strip()


class Memory:
    """Memory of a device, given back when the object is dropped."""

    def __init__(self, nbytes: int, place: Device, index: int = 0) -> None:
        cl = load_opencl()
        self.device = f"opencl:{index}"
        self.nbytes, self._place = nbytes, place
        self.buffer = cl.Buffer(place.context, cl.mem_flags.READ_WRITE, max(nbytes, 1))
        self.pointer: int = self.buffer.int_ptr

    def write(self, source: int, nbytes: int) -> None:
        """Copy ``nbytes`` from the host address ``source``, and wait."""
        if nbytes:
            cl = load_opencl()
            cl.enqueue_copy(self._place.queue, self.buffer, host_bytes(source, nbytes))
            self._place.queue.finish()

    def read(self, target: int, nbytes: int) -> None:
        """Copy ``nbytes`` to the host address ``target``, after all work so far, and wait."""
        if nbytes:
            cl = load_opencl()
            cl.enqueue_copy(self._place.queue, host_bytes(target, nbytes), self.buffer)
            self._place.queue.finish()
