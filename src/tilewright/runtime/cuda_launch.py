"""Launching compiled kernels on one device, and timing them."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.codegen.arguments import variables
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TargetError
from tilewright.ir.func import Func, Module
from tilewright.runtime.cuda_call import Configuration, launch_function
from tilewright.runtime.cuda_driver import (
    Device,
    Memory,
    check,
    device_count,
    load_driver,
    relaxed_capture,
)
from tilewright.runtime.cuda_maps import Room, TensorMaps
from tilewright.runtime.signature import evaluate
from tilewright.target.boxes import TensorMap

_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
#: The largest grid and block (CUDA programming guide, "Technical specifications").
_MOST = (2**31 - 1, 65535, 65535, 1024, 1024, 64)
#: So many combinations of symbolic extents are remembered.
_PLANS = 256
#: Workspaces begin at multiples of so many bytes, as the driver's and torch's own memory does.
_ALIGNMENT = 512
#: So many launches go into one CUDA graph when a kernel is timed.
_GRAPH = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """A call for given extents: which kernels with which grids, and bytes of each workspace."""

    launches: tuple[tuple[int, tuple[int, ...]], ...]  # (kernel, grid and block)
    workspaces: tuple[int, ...]


class _Arguments:
    """The values of all parameters, and for each kernel the addresses of its own, and its maps.

    The driver reads them during a launch, so each thread has its own.
    """

    def __init__(self, count: int, kernels: Sequence[Sequence[int]], maps: TensorMaps) -> None:
        self.values = (ctypes.c_uint64 * max(count, 1))()
        self.room = Room(len(maps))
        start, rooms = ctypes.addressof(self.values), self.room.addresses
        self._keep = [
            (ctypes.c_void_p * max(len(k) + len(m), 1))(
                *(start + 8 * i for i in k), *(rooms[i] for i in m)
            )
            for k, m in zip(kernels, maps.of_kernel, strict=True)
        ]
        self.addresses = [ctypes.addressof(array) for array in self._keep]


class Loaded:
    """The kernels of a module in the context of one device."""

    def __init__(
        self,
        module: Module,
        place: Device,
        cubin: bytes,
        symbols: Sequence[str],
        dynamic_shared: Sequence[int],
        overlaps: bool = False,
        maps: Sequence[Sequence[TensorMap]] | None = None,
    ) -> None:
        driver = load_driver()
        self._launch_kernel = launch_function()
        self._overlaps = overlaps and place.capability >= 90
        self._configurations: dict[tuple[int, tuple[int, ...], int], Configuration] = {}
        self._module, self._place, self._shared = module, place, tuple(dynamic_shared)
        self._image = ctypes.create_string_buffer(cubin, len(cubin))
        self._functions: list[int] = []
        with place.current(), relaxed_capture():
            loaded = check(
                driver.cuModuleLoadData(ctypes.addressof(self._image)),
                f"loading {module.name} on {place.name}",
            )
            for symbol, shared in zip(symbols, dynamic_shared, strict=True):
                function = check(driver.cuModuleGetFunction(loaded, symbol.encode()))
                if shared:
                    which = driver.CUfunction_attribute
                    check(
                        driver.cuFuncSetAttribute(
                            function,
                            which.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                            shared,
                        ),
                        f"{symbol} asks for {shared} bytes of shared memory",
                    )
                self._functions.append(int(function))
        self._keep = loaded
        arrays = [p for p in module.params if isinstance(p, Buffer)]
        self._scalars = variables(module)
        slots = {p: i for i, p in enumerate((*arrays, *module.workspaces, *self._scalars))}
        self._count = len(slots)
        none: list[list[TensorMap]] = [[] for _ in module.funcs]
        self._maps = TensorMaps(
            module, none if maps is None else maps, [*arrays, *module.workspaces], self._scalars
        )
        self._pack = struct.Struct(f"={self._count}Q").pack_into
        self._kernels = [[slots[p] for p in func.params] for func in module.funcs]
        self._masks = tuple(2**v.dtype.bits - 1 for v in self._scalars)
        self._local = threading.local()
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._workspaces: dict[int, list[Memory]] = {}

    def launch(
        self, pointers: tuple[int, ...], scalars: tuple[int, ...], stream: int, torch: Any
    ) -> None:
        """Launch all kernels in order on ``stream``.

        Workspaces come from ``torch`` where given (its current stream is ``stream`` then), else
        they are kept from call to call, one set a stream.
        """
        plan = self._plans.get(scalars) or self._plan(scalars)
        entered = self._place.enter()
        try:
            held: Any = None
            if plan.workspaces:
                held, extra = self._allocate(plan.workspaces, stream, torch)
                pointers = pointers + extra
            try:
                packed: _Arguments = self._local.arguments
            except AttributeError:
                packed = self._local.arguments = _Arguments(self._count, self._kernels, self._maps)
            if self._maps:
                self._maps.put(packed.room, pointers, scalars)
            if scalars:
                pointers += tuple(v & m for v, m in zip(scalars, self._masks, strict=True))
            self._pack(packed.values, 0, *pointers)
            for k, sizes in plan.launches:
                how = self._configure(k, sizes, stream)
                address = packed.addresses[k]
                status = self._launch_kernel(how.address, self._functions[k], address, 0)
                if status != 0:
                    name, grid, block = self._module.funcs[k].name, sizes[:3], sizes[3:]
                    failed = load_driver().CUresult(status)
                    check((failed,), f"launching {name}, grid {grid}, block {block}")
            del held
        finally:
            self._place.leave(entered)

    def quick(
        self,
        scalars: tuple[int, ...],
        torch: Any,
        alignment: int,
        unaligned: Callable[[tuple[int, ...]], None],
    ) -> Callable[[tuple[int, ...]], None]:
        """:meth:`launch` for these ``scalars`` on torch's current stream, as a function of the
        addresses that looks up no more than may change from call to call; ``unaligned`` does it
        where an address is no multiple of ``alignment``, a power of two."""
        plan = self._plans.get(scalars) or self._plan(scalars)
        device, ordinal = torch._C._cuda_getDevice, self._place.ordinal
        current, alone = torch._C._cuda_getCurrentRawStream, device_count() == 1
        local, pack, call = self._local, self._pack, self._launch_kernel
        values = tuple(v & m for v, m in zip(scalars, self._masks, strict=True))
        starts, size = _starts(plan.workspaces)
        maps = self._maps if len(self._maps) else None
        empty, byte, place = torch.empty, torch.uint8, torch.device("cuda", ordinal)
        by_stream: dict[int, list[tuple[int, int, int, Configuration]]] = {}
        beyond = alignment - 1

        def launch(pointers: tuple[int, ...]) -> None:
            for p in pointers:
                if p & beyond:
                    unaligned(pointers)
                    return
            stream = current(ordinal)
            steps = by_stream.get(stream)
            if steps is None:
                steps = [
                    (how.address, self._functions[k], k, how)
                    for k, sizes in plan.launches
                    for how in (self._configure(k, sizes, stream),)
                ]
                if len(by_stream) >= _PLANS:
                    by_stream.clear()
                by_stream[stream] = steps
            # The first launch of a thread makes the context current. A device changes with torch's;
            # where somebody made another context current, the driver refuses the launch.
            packed = getattr(local, "arguments", None)
            if packed is None or not (alone or device() == ordinal):
                self.launch(pointers, scalars, stream, torch)
                return
            if starts:
                held = empty(size, dtype=byte, device=place)  # until all is launched
                base = held.data_ptr()
                pointers = (*pointers, *[base + at for at in starts])
            pack(packed.values, 0, *pointers, *values)
            if maps is not None:
                maps.put(packed.room, pointers, scalars)
            addresses = packed.addresses
            for how, function, k, _ in steps:
                if call(how, function, addresses[k], 0):
                    self.launch(pointers, scalars, stream, torch)  # or says why not
                    return

        return launch

    def _configure(self, k: int, sizes: tuple[int, ...], stream: int) -> Configuration:
        """How to launch a kernel on a stream."""
        how = self._configurations.get((k, sizes, stream))
        if how is None:
            if len(self._configurations) >= _PLANS:
                self._configurations.clear()
            how = Configuration(sizes, self._shared[k], stream, self._overlaps)
            self._configurations[k, sizes, stream] = how
        return how

    def _plan(self, scalars: tuple[int, ...]) -> Plan:
        values = {v.name: x for v, x in zip(self._scalars, scalars, strict=True)}
        launches = []
        for k, func in enumerate(self._module.funcs):
            sizes = _sizes(func, values)
            if all(sizes):
                launches.append((k, sizes))
        spaces = tuple(
            max(evaluate(w.size, values), 1) * w.dtype.bytes for w in self._module.workspaces
        )
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        plan = self._plans[scalars] = Plan(tuple(launches), spaces)
        return plan

    def _allocate(
        self, sizes: tuple[int, ...], stream: int, torch: Any
    ) -> tuple[Any, tuple[int, ...]]:
        """Workspaces, and their addresses."""
        if torch is not None:
            tensors = [
                torch.empty(n, dtype=torch.uint8, device=f"cuda:{self._place.ordinal}")
                for n in sizes
            ]
            return tensors, tuple(t.data_ptr() for t in tensors)
        kept = self._workspaces.get(stream)
        if kept is None or any(m.nbytes < n for m, n in zip(kept, sizes, strict=True)):
            if kept is not None:  # earlier launches may still be using them
                check(load_driver().cuStreamSynchronize(load_driver().CUstream(stream)))
            kept = [Memory(n, self._place.ordinal) for n in sizes]
            self._workspaces[stream] = kept
        return kept, tuple(m.pointer for m in kept)


def _starts(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where workspaces begin in memory that holds them all, and how much that is, in bytes."""
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return starts, end


def _sizes(func: Func, values: dict[str, int]) -> tuple[int, ...]:
    """Grid and block; raises :class:`TargetError` where they are larger than a launch can be."""
    extents = {axis.tag: evaluate(axis.extent, values) for axis in func.launch}
    sizes = tuple(max(extents.get(tag, 1), 0) for tag in _TAGS)
    for tag, size, most in zip(_TAGS, sizes, _MOST, strict=True):
        if size > most:
            raise TargetError(
                f"kernel {func.name}: {tag} has {size} indices, CUDA allows {most}: split the axis "
                "and bind its parts to two of x, y and z"
            )
    threads = sizes[3] * sizes[4] * sizes[5]
    if threads > 1024:
        raise TargetError(
            f"kernel {func.name}: a block of {threads} threads, CUDA allows 1024: bind smaller "
            "factors to threadIdx"
        )
    return sizes


def measure(place: Device, once: Callable[[int], None], number: int, repeat: int) -> list[float]:
    """Seconds a call of ``once``, averaged over ``number`` calls, ``repeat`` times.

    ``once`` launches on the stream that it is given. The launches are recorded in CUDA graphs, so
    that the host's time between them does not count; after one call to warm up.
    """
    driver = load_driver()
    with place.current(), contextlib.ExitStack() as stack:
        check(driver.cuCtxSynchronize())
        flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        stream = check(driver.cuStreamCreate(flags))
        stack.callback(driver.cuStreamDestroy, stream)
        once(int(stream))
        check(driver.cuStreamSynchronize(stream), "the kernel failed")
        batch = min(number, _GRAPH)
        run = _graph(driver, stream, once, batch, stack)
        rest = _graph(driver, stream, once, number % batch, stack) if number % batch else None
        events = []
        for _ in range(2):
            event = check(driver.cuEventCreate(0))
            stack.callback(driver.cuEventDestroy, event)
            events.append(event)
        run()  # uploads the graph
        check(driver.cuStreamSynchronize(stream))
        times = []
        for _ in range(repeat):
            check(driver.cuEventRecord(events[0], stream))
            for _ in range(number // batch):
                run()
            if rest is not None:
                rest()
            check(driver.cuEventRecord(events[1], stream))
            check(driver.cuStreamSynchronize(stream), "the kernel failed")
            milliseconds = check(driver.cuEventElapsedTime(events[0], events[1]))
            times.append(float(milliseconds) * 1e-3 / number)
        return times


def _graph(
    driver: Any, stream: Any, once: Callable[[int], None], count: int, stack: contextlib.ExitStack
) -> Callable[[], None]:
    """A function that replays ``count`` calls of ``once``."""
    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    check(driver.cuStreamBeginCapture(stream, mode))
    try:
        for _ in range(count):
            once(int(stream))
    finally:
        graph = check(driver.cuStreamEndCapture(stream))
    stack.callback(driver.cuGraphDestroy, graph)
    executable = check(driver.cuGraphInstantiate(graph, 0))
    stack.callback(driver.cuGraphExecDestroy, executable)
    return lambda: check(driver.cuGraphLaunch(executable, stream))
