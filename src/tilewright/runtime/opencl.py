"""OpenCL: modules compiled by the device's driver, launched through pyopencl.

Arrays are :class:`~tilewright.runtime.ndarray.NDArray` on "opencl", ``pyopencl.array.Array``, or
arrays of the host. A device that is the CPU works in the host's memory; for others host arrays
are copied there and back. A call with host arrays waits for its end.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from tilewright.codegen.arguments import outputs, variables
from tilewright.codegen.opencl import generate
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ArgumentError, TargetError
from tilewright.ir.func import Func, Module
from tilewright.runtime.array_view import ArrayView
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.opencl_commands import Command, Commands
from tilewright.runtime.opencl_device import Device, Memory, device, host_bytes, load_opencl
from tilewright.runtime.program import Resources
from tilewright.runtime.signature import evaluate
from tilewright.target import Target
from tilewright.target.devices import OPENCL, opencl_device

#: PoCL's wheel brings LLVM 14 and compiles for no processor that is younger than it.
_UNKNOWN_CPU = (
    "{place.handle.platform.version} does not know this processor, {place.name}, and cannot "
    'compile for it: build for the target "llvm", which runs on every CPU; or install a newer PoCL '
    "(sudo apt-get install pocl-opencl-icd, or conda install pocl) and set "
    "OCL_ICD_VENDORS=/etc/OpenCL/vendors, or where its .icd file is"
)


#: The tag of kernels for a device that is not there, which are text.
TEXT = "text"


def cache_tag(target: Target) -> str:
    """What compiled code depends on besides the program."""
    place = _found(target)
    return TEXT if place is None else place.tag


def _found(target: Target) -> Device | None:
    """The device of a target; None where there is none and its name says what it computes with, so
    that there is text for it."""
    try:
        return device(target.arch)
    except TargetError as error:
        if opencl_device(target.arch) is None:
            raise TargetError(
                f"{error}; known without being here are {', '.join(d.name for d in OPENCL)}"
            ) from None
        return None


def allocate(nbytes: int, where: str = "opencl:0") -> Memory:
    """Memory for an array on a device such as "opencl:0"."""
    index = where.partition(":")[2] or "0"
    return Memory(nbytes, device(index), int(index))


def synchronize(where: str = "opencl:0") -> None:
    """Wait for all work on a device."""
    device(where.partition(":")[2] or "0").queue.finish()


class OpenCLProgram:
    """A module compiled for an OpenCL device; see :class:`tilewright.runtime.program.Program`.

    Of a device that is known by its name and not there, it has the text alone.
    """

    devices: tuple[str, ...] = ("opencl", "cpu")

    def __init__(self, module: Module, target: Target, files: Mapping[str, bytes]) -> None:
        self.module, self.target = module, target
        self._found = _found(target)
        meta = json.loads(files["meta.json"])
        self.source = files["source.cl"].decode()
        self._symbols: list[str] = meta["symbols"]
        self._written = {module.params[k] for k in meta["written"]}
        binary, here = files.get("program.bin"), self._found
        self._program: Any = None if here is None else _built(here, self.source, binary)
        self._meta = files["meta.json"]
        symbols = self._symbols if here is not None else ()
        self._kernels = [getattr(self._program, symbol) for symbol in symbols]
        self._named = dict(zip(symbols, self._kernels, strict=True))
        self._buffers = [p for p in module.params if isinstance(p, Buffer)]
        self.scalars = variables(module)
        self._workspaces: dict[int, list[Memory]] = {}
        self._lock = threading.Lock()  # a kernel holds its arguments until it is enqueued
        for func, kernel in zip(module.funcs, self._kernels, strict=here is not None):
            self._check_limits(func, kernel)

    @property
    def place(self) -> Device:
        """The device; raises :class:`TargetError` where it is not there."""
        return self._found or device(self.target.arch)

    def _check_limits(self, func: Func, kernel: Any) -> None:
        cl, handle = load_opencl(), self.place.handle
        info = cl.kernel_work_group_info
        local = kernel.get_work_group_info(info.LOCAL_MEM_SIZE, handle)
        if local > handle.local_mem_size:
            raise TargetError(
                f"kernel {func.name} needs {local} bytes of local memory, {self.place.name} has "
                f"{handle.local_mem_size}: use smaller tiles"
            )

    @cached_property
    def resources(self) -> Mapping[str, Resources]:
        """Local memory of each kernel; OpenCL tells no registers."""
        info = load_opencl().kernel_work_group_info
        found = {}
        for func, kernel in zip(self.module.funcs, self._kernels, strict=bool(self._kernels)):
            shared = kernel.get_work_group_info(info.LOCAL_MEM_SIZE, self.place.handle)
            found[func.name] = Resources(None, int(shared), None, None)
        return found

    @cached_property
    def assembly(self) -> str:
        """The program as the driver holds it, where that is text (PTX of NVIDIA's)."""
        binary = self._binary()
        try:
            return binary.rstrip(b"\0").decode("ascii")
        except UnicodeDecodeError:
            raise TargetError(
                f"{self.place.name} holds its code as {len(binary)} bytes that are no text"
            ) from None

    def _binary(self) -> bytes:
        if self._program is None:
            device(self.target.arch)  # says that there is none
        found: bytes = self._program.get_info(load_opencl().program_info.BINARIES)[0]
        return found

    def artifacts(self) -> dict[str, bytes]:
        files = {"source.cl": self.source.encode(), "meta.json": self._meta}
        return files if self._found is None else {**files, "program.bin": self._binary()}

    def launch(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], stream: Any = None
    ) -> None:
        """``stream`` is a ``pyopencl.CommandQueue`` of the device's context."""
        queue = self._queue(stream)
        memories, copies = self._memories(arrays)
        self._enqueue(queue, memories, scalars)
        for k, memory, low, nbytes in copies:
            if self._buffers[k] in self._written:
                self._fetch(queue, memory, low, nbytes)
        if copies:
            queue.finish()

    def _queue(self, stream: Any) -> Any:
        if stream is None:
            return self.place.queue
        if getattr(stream, "context", None) != self.place.context:
            raise ArgumentError(
                f"stream must be a pyopencl.CommandQueue of the context of {self.place.name} "
                "(tilewright.runtime.opencl_device.device().context)"
            )
        return stream

    def _memories(
        self, arrays: Sequence[ArrayView]
    ) -> tuple[list[Any], list[tuple[int, Any, int, int]]]:
        """Memory objects of the device for ``arrays``, and those of the host among them."""
        cl = load_opencl()
        memories: list[Any] = []
        copies = []
        mode = cl.mem_flags.USE_HOST_PTR if self.place.host else cl.mem_flags.COPY_HOST_PTR
        for k, a in enumerate(arrays):
            if a.device != "cpu":
                memory = _device_memory(a)
                if memory.context != self.place.context:
                    raise ArgumentError(
                        f"{self._buffers[k].name} is on {a.device}, the kernel is for "
                        f"{self.place.name}: allocate the array on that device"
                    )
                memories.append(memory)
                continue
            low, high = a.span
            if high == low:
                memories.append(cl.Buffer(self.place.context, cl.mem_flags.READ_WRITE, 1))
                continue
            if a.pointer != low:
                raise ArgumentError(
                    f"{self._buffers[k].name} has negative strides: pass np.ascontiguousarray(it)"
                )
            flags = cl.mem_flags.READ_WRITE | mode
            host = host_bytes(low, high - low)
            memory = cl.Buffer(self.place.context, flags, hostbuf=host)
            memories.append(memory)
            copies.append((k, memory, low, high - low))
        return memories, copies

    def _fetch(self, queue: Any, memory: Any, low: int, nbytes: int) -> None:
        """What a kernel wrote is seen by the host."""
        cl = load_opencl()
        if not self.place.host:
            cl.enqueue_copy(queue, host_bytes(low, nbytes), memory)
            return
        mapped, _ = cl.enqueue_map_buffer(queue, memory, cl.map_flags.READ, 0, nbytes, "uint8")
        mapped.base.release(queue)

    def _enqueue(self, queue: Any, memories: Sequence[Any], scalars: Mapping[str, int]) -> None:
        cl, sizes = load_opencl(), self.spaces(scalars)
        with self._lock:
            kept = self._workspaces.get(queue.int_ptr, [])
            if len(kept) < len(sizes) or any(
                m.nbytes < n for m, n in zip(kept, sizes, strict=False)
            ):
                queue.finish()
                kept = self._workspaces[queue.int_ptr] = [Memory(n, self.place) for n in sizes]
            values = self._values([*memories, *(m.buffer for m in kept)], scalars)
            for func, symbol, grid, block in self.ranges(scalars):
                kernel = self._named[symbol]
                kernel.set_args(*(values[p] for p in func.params))
                total = tuple(g * b for g, b in zip(grid, block, strict=True))
                cl.enqueue_nd_range_kernel(queue, kernel, total, block)

    def values(self, memories: Sequence[Any], scalars: Mapping[str, Any]) -> dict[Any, Any]:
        """What kernels take, by parameter: what arrays, then workspaces, lie in; and scalars."""
        buffers = (*self._buffers, *self.module.workspaces)
        values: dict[Any, Any] = dict(zip(buffers, memories, strict=True))
        return values | {v: scalars[v.name] for v in self.scalars}

    def _values(self, memories: Sequence[Any], scalars: Mapping[str, int]) -> dict[Any, Any]:
        import numpy as np

        typed = {v.name: np.dtype(str(v.dtype)).type(scalars[v.name]) for v in self.scalars}
        return self.values(memories, typed)

    def ranges(
        self, scalars: Mapping[str, int]
    ) -> Iterator[tuple[Func, str, tuple[int, int, int], tuple[int, int, int]]]:
        """The kernels that are launched, with their symbols, grids and blocks."""
        for func, symbol in zip(self.module.funcs, self._symbols, strict=True):
            grid, block = self._sizes(func, scalars)
            if all(grid):
                yield func, symbol, grid, block

    def _sizes(
        self, func: Func, scalars: Mapping[str, int]
    ) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Grid and block; raises :class:`TargetError` where the device takes no such block."""
        extents = {axis.tag: evaluate(axis.extent, scalars) for axis in func.launch}
        gx, gy, gz = (max(extents.get(f"blockIdx.{c}", 1), 0) for c in "xyz")
        bx, by, bz = (extents.get(f"threadIdx.{c}", 1) for c in "xyz")
        grid, block = (gx, gy, gz), (bx, by, bz)
        if self._found is None:
            return grid, block
        handle = self._found.handle
        most, each = handle.max_work_group_size, handle.max_work_item_sizes
        threads = block[0] * block[1] * block[2]
        if threads > most or any(b > m for b, m in zip(block, each, strict=False)):
            raise TargetError(
                f"kernel {func.name}: a work-group of {block} items; {self.place.name} takes at "
                f"most {most}, and {tuple(each)} along each axis: bind smaller factors to threadIdx"
            )
        return grid, block

    def spaces(self, scalars: Mapping[str, int]) -> list[int]:
        """Bytes of the memory objects that kernels hand to one another."""
        return [max(evaluate(w.size, scalars), 1) * w.dtype.bytes for w in self.module.workspaces]

    def commands(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], spaces: Sequence[Memory]
    ) -> list[Command]:
        """The kernels of a launch with arrays of the device, which must not move; ``spaces`` have
        at least the bytes that :meth:`spaces` says, and are used by one launch at a time."""
        memories, copies = self._memories(arrays)
        assert not copies, "arrays of the host have no memory that stays"
        made = []
        values = self._values([*memories, *(m.buffer for m in spaces)], scalars)
        for func, symbol, grid, block in self.ranges(scalars):
            kernel = load_opencl().Kernel(self._program, symbol)
            given = [values[p] for p in func.params]
            kernel.set_args(*given)
            x, y, z = (g * b for g, b in zip(grid, block, strict=True))
            made.append(Command(kernel, (x, y, z), block, tuple(given)))
        return made

    def bound(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int]
    ) -> Callable[[], None] | None:
        """A launch with these arrays, which must not move; None where some are the host's."""
        if any(a.device == "cpu" for a in arrays):
            return None
        spaces = [Memory(n, self.place) for n in self.spaces(scalars)]
        return Commands(self.place.queue, self.commands(arrays, scalars, spaces))

    def measure(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], number: int, repeat: int
    ) -> list[float]:
        """Seconds a launch, by the host's clock; arrays of the host are moved once, before."""
        queue = self.place.queue
        memories, copies = self._memories(arrays)
        self._enqueue(queue, memories, scalars)
        queue.finish()
        times = []
        for _ in range(repeat):
            start = time.perf_counter()
            for _ in range(number):
                self._enqueue(queue, memories, scalars)
            queue.finish()
            times.append((time.perf_counter() - start) / number)
        for k, memory, low, nbytes in copies:
            if self._buffers[k] in self._written:
                self._fetch(queue, memory, low, nbytes)
        queue.finish()
        return times


def _device_memory(a: ArrayView) -> Any:
    """The memory object behind a view of an array on a device."""
    owner = a.owner
    if isinstance(owner, NDArray):
        return owner._memory.buffer
    if isinstance(owner, Memory):
        return owner.buffer
    if hasattr(owner, "base_data"):
        if owner.offset:
            raise ArgumentError(
                "a pyopencl array that starts inside another's memory cannot be passed: pass "
                "array.copy()"
            )
        return owner.base_data
    raise ArgumentError(f"a {type(owner).__name__} is no array of OpenCL's")


def _built(place: Device, source: str, binary: bytes | None) -> Any:
    """The compiled program, of ``binary`` where the driver takes it."""
    cl = load_opencl()
    if binary:
        try:
            return cl.Program(place.context, [place.handle], [binary]).build()
        except cl.Error:
            pass  # of another version of the driver
    try:
        return cl.Program(place.context, source).build(cache_dir=False)
    except cl.RuntimeError as error:
        if "unknown target CPU" in str(error):
            raise TargetError(_UNKNOWN_CPU.format(place=place)) from None
        lines = "\n".join(f"{n + 1:5d} {line}" for n, line in enumerate(source.splitlines()))
        raise TargetError(
            f"the OpenCL source does not compile for {place.name}:\n{error}\n{lines}"
        ) from None


def unusable(place: Device) -> str:
    """Why nothing can be compiled for a device; empty where it can."""
    try:
        _built(place, "kernel void probe() {}", None)
    except TargetError as error:
        return str(error).partition("\n")[0]
    return ""


def compile_module(
    module: Module,
    target: Target,
    artifacts: dict[str, bytes] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> OpenCLProgram:
    """Generate OpenCL C for ``module`` and compile it for the device that ``target`` names.

    Raises :class:`TargetError` where pyopencl or a device is missing, or the program exceeds it.
    """
    if artifacts:
        return OpenCLProgram(module, target, artifacts)
    meanwhile()
    place = _found(target)
    known = opencl_device(target.arch) if place is None else None
    half = known.half if known is not None else place is not None and place.half
    aligned = place is None or not place.host
    made = generate(module, half, target.limits.warp_size, aligned=aligned)
    meta = {"symbols": [k.symbol for k in made.kernels], "written": list(outputs(module))}
    files = {"source.cl": made.text.encode(), "meta.json": json.dumps(meta).encode()}
    return OpenCLProgram(module, target, files)
