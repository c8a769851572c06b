"""Launching compiled kernels on one device, and timing them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.func import Func, Module
from tilewright.runtime.cuda_call import Call, Kernel, failure, make_call
from tilewright.runtime.cuda_driver import Device, Memory, check, load_driver, relaxed_capture
from tilewright.runtime.cuda_graph import CudaGraph, Stream
from tilewright.runtime.cuda_plan import Launches
from tilewright.runtime.cuda_quick import Launch, Part, made_of
from tilewright.target.boxes import TensorMap

#: How many combinations of symbolic extents are remembered.
_PLANS = 256
#: How many launches go into one CUDA graph when a kernel is timed.
_GRAPH = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """A call for given extents: how to make it, what of, and bytes of each workspace; and which
    arrays have no elements, and bytes of what stands in for them in maps."""

    call: Call
    kernels: tuple[tuple[Func, tuple[int, ...]], ...]  # with grid and block
    handles: tuple[Kernel, ...]
    words: tuple[int, ...]  # of scalars
    workspaces: tuple[int, ...]
    empty: tuple[tuple[int, ...], int] = ((), 0)


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
        alignment: int = 1,
        written: Collection[int] = (),
    ) -> None:
        driver = load_driver()
        self._overlaps = overlaps and place.capability >= 90
        self._module, self._place, self._shared = module, place, tuple(dynamic_shared)
        self._alignment = alignment
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
        self._launches = Launches(module, maps, written)
        # A call is given the addresses of buffers and then of maps.
        self._addresses, self._maps = self._launches.addresses, self._launches.maps
        self._scalars = self._launches.scalars
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._workspaces: dict[int, list[Memory]] = {}
        self._zeros: Memory | None = None

    def launch(
        self, pointers: tuple[int, ...], scalars: tuple[int, ...], stream: int, torch: Any
    ) -> None:
        """Launch all kernels in order on ``stream``.

        Workspaces come from ``torch`` where given (its current stream is ``stream`` then), else
        they are kept from call to call, one set a stream.
        """
        plan = self._plans.get(scalars) or self._plan(scalars)
        if not plan.handles:
            return
        entered = self._place.enter()
        try:
            held: Any = None
            if plan.workspaces:
                held, extra = self._allocate(plan.workspaces, stream, torch)
                pointers = pointers + extra
            described = self._described(pointers, plan) if plan.empty[0] else pointers
            storage = self._maps.storage(described, scalars) if self._maps else None
            if storage is not None:
                pointers += storage.addresses
            answer = plan.call(stream, pointers)
            if answer != 0:
                status, k = failure(answer)
                func, sizes = plan.kernels[k]
                grid, block = sizes[:3], sizes[3:]
                check(
                    (load_driver().CUresult(status),),
                    f"launching {func.name}, grid {grid}, block {block}",
                )
            del held, storage
        finally:
            self._place.leave(entered)

    def quick(self, scalars: tuple[int, ...], torch: Any, otherwise: Launch) -> Launch:
        """:meth:`launch` for these ``scalars`` on torch's current stream, as a function of the
        addresses that looks up no more than may change from call to call.

        ``otherwise`` does it where an address is not aligned, and where the driver refuses: in a
        thread that has no context yet, or another one; it says why where it cannot either.
        """
        plan = self._plans.get(scalars) or self._plan(scalars)
        if plan.empty[0]:
            return otherwise
        arrays = self._addresses - len(plan.workspaces) - len(self._maps)
        part = Part(
            plan.handles, scalars, plan.words, arrays, plan.workspaces, self._maps,
            self._alignment, self._place.ordinal, self,
        )  # fmt: skip
        return made_of(part, torch, otherwise)

    def _plan(self, scalars: tuple[int, ...]) -> Plan:
        calls, kernels = [], []
        for k, sizes in self._launches.sizes(scalars):
            kernels.append((self._module.funcs[k], sizes))
            calls.append(
                Kernel(
                    self._functions[k], sizes, self._shared[k], self._launches.parameters[k],
                    self._launches.structures[k], self._overlaps,
                )
            )  # fmt: skip
        spaces = self._launches.spaces(scalars)
        words = tuple(
            x & (2**v.dtype.bits - 1) for v, x in zip(self._scalars, scalars, strict=True)
        )
        call = make_call(calls, self._addresses, words, self._alignment)
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        empty = self._maps.stand_ins(scalars) if kernels else ((), 0)
        plan = Plan(call, tuple(kernels), tuple(calls), words, spaces, empty)
        self._plans[scalars] = plan
        return plan

    def _described(self, pointers: tuple[int, ...], plan: Plan) -> tuple[int, ...]:
        """What maps are of: zeros in the place of arrays that have no elements."""
        places, nbytes = plan.empty
        if self._zeros is None or self._zeros.nbytes < nbytes:
            source = ctypes.create_string_buffer(nbytes)  # held until it is copied
            self._zeros = Memory(nbytes, self._place.ordinal)
            self._zeros.write(ctypes.addressof(source), nbytes)
        zeros = self._zeros.pointer
        return tuple(zeros if k in places else p for k, p in enumerate(pointers))

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


def measure(place: Device, once: Callable[[int], None], number: int, repeat: int) -> list[float]:
    """Seconds a call of ``once``, averaged over ``number`` calls, ``repeat`` times.

    ``once`` launches on the stream that it is given. The launches are recorded in CUDA graphs, so
    that the host's time between them does not count; after one call to warm up.
    """
    with place.current():
        check(load_driver().cuCtxSynchronize())
        stream = Stream(place)
        once(stream.handle)
        stream.synchronize()
        batch = min(number, _GRAPH)

        def several(count: int) -> CudaGraph:
            def record(on: int) -> None:
                for _ in range(count):
                    once(on)

            return CudaGraph(stream, record)

        graphs = [several(batch)] * (number // batch)
        graphs += [several(number % batch)] if number % batch else []
        graphs[0].launch(stream.handle)  # uploads it
        stream.synchronize()
        times = []
        for _ in range(repeat):
            begin = stream.mark()
            for graph in graphs:
                graph.launch(stream.handle)
            end = stream.mark()
            stream.synchronize()
            times.append(end.since(begin) / number)
        return times
