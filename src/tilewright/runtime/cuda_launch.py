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
from tilewright.runtime.cuda_driver import Device, Memory, check, load_driver, relaxed_capture
from tilewright.runtime.signature import evaluate

_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
#: The largest grid and block (CUDA programming guide, "Technical specifications").
_MOST = (2**31 - 1, 65535, 65535, 1024, 1024, 64)
#: So many combinations of symbolic extents are remembered.
_PLANS = 256
#: So many launches go into one CUDA graph when a kernel is timed.
_GRAPH = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """A call for given extents: which kernels with which grids, and bytes of each workspace."""

    launches: tuple[tuple[int, tuple[int, ...]], ...]  # (kernel, grid and block)
    workspaces: tuple[int, ...]


class _Arguments:
    """The values of all parameters, and for each kernel the addresses of its own.

    The driver reads them during a launch, so each thread has its own.
    """

    def __init__(self, count: int, kernels: Sequence[Sequence[int]]) -> None:
        self.values = (ctypes.c_uint64 * max(count, 1))()
        start = ctypes.addressof(self.values)
        self._keep = [
            (ctypes.c_void_p * max(len(k), 1))(*(start + 8 * i for i in k)) for k in kernels
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
    ) -> None:
        driver = load_driver()
        self._launch_kernel, self._stream_type = driver.cuLaunchKernel, driver.CUstream
        self._launch_overlapped = driver.cuLaunchKernelEx
        self._overlaps = overlaps and place.capability >= 90
        self._configurations: dict[tuple[int, tuple[int, ...], int], Any] = {}
        self._module, self._place, self._shared = module, place, tuple(dynamic_shared)
        self._image = ctypes.create_string_buffer(cubin, len(cubin))
        self._functions = []
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
                self._functions.append(function)
        self._keep = loaded
        arrays = [p for p in module.params if isinstance(p, Buffer)]
        self._scalars = variables(module)
        slots = {p: i for i, p in enumerate((*arrays, *module.workspaces, *self._scalars))}
        self._count = len(slots)
        self._pack = struct.Struct(f"={self._count}Q").pack_into
        self._kernels = [[slots[p] for p in func.params] for func in module.funcs]
        self._masks = tuple(2**v.dtype.bits - 1 for v in self._scalars)
        self._local = threading.local()
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._streams: dict[int, Any] = {}
        self._workspaces: dict[int, list[Memory]] = {}

    def launch(
        self, pointers: tuple[int, ...], scalars: tuple[int, ...], stream: int, torch: Any
    ) -> None:
        """Launch all kernels in order on ``stream``.

        Workspaces come from ``torch`` where given (its current stream is ``stream`` then), else
        they are kept from call to call, one set a stream.
        """
        plan = self._plans.get(scalars) or self._plan(scalars)
        handle = self._streams.get(stream)
        if handle is None:
            handle = self._streams[stream] = self._stream_type(stream)
        entered = self._place.enter()
        try:
            held: Any = None
            if plan.workspaces:
                held, extra = self._allocate(plan.workspaces, stream, torch)
                pointers = pointers + extra
            try:
                packed: _Arguments = self._local.arguments
            except AttributeError:
                packed = self._local.arguments = _Arguments(self._count, self._kernels)
            if scalars:
                pointers += tuple(v & m for v, m in zip(scalars, self._masks, strict=True))
            self._pack(packed.values, 0, *pointers)
            for k, sizes in plan.launches:
                gx, gy, gz, bx, by, bz = sizes
                if self._overlaps:
                    how = self._configurations.get((k, sizes, stream))
                    if how is None:
                        how = self._configure(k, sizes, stream)
                    status = self._launch_overlapped(
                        how, self._functions[k], packed.addresses[k], 0
                    )
                else:
                    status = self._launch_kernel(
                        self._functions[k], gx, gy, gz, bx, by, bz, self._shared[k], handle,
                        packed.addresses[k], 0,
                    )  # fmt: skip
                if status[0] != 0:
                    name = self._module.funcs[k].name
                    check(status, f"launching {name}, grid {gx, gy, gz}, block {bx, by, bz}")
            del held
        finally:
            self._place.leave(entered)

    def _configure(self, k: int, sizes: tuple[int, ...], stream: int) -> Any:
        """How to launch a kernel so that its blocks may take their places as those of the kernel
        before it leave theirs."""
        driver = load_driver()
        overlap = driver.CUlaunchAttribute()
        overlap.id = (
            driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        overlap.value.programmaticStreamSerializationAllowed = 1
        how = driver.CUlaunchConfig()
        how.gridDimX, how.gridDimY, how.gridDimZ = sizes[:3]
        how.blockDimX, how.blockDimY, how.blockDimZ = sizes[3:]
        how.sharedMemBytes, how.hStream = self._shared[k], self._streams[stream]
        how.attrs, how.numAttrs = [overlap], 1
        if len(self._configurations) >= _PLANS:
            self._configurations.clear()
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
                check(load_driver().cuStreamSynchronize(self._streams[stream]))
            kept = [Memory(n, self._place.ordinal) for n in sizes]
            self._workspaces[stream] = kept
        return kept, tuple(m.pointer for m in kept)


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
