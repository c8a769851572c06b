"""Calls of a graph on a GPU: one block of memory, one stream, and one launch from the third on."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.state import State, given_back
from tilewright.graph.value import Constant, Value
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import TargetError
from tilewright.runtime.array import view
from tilewright.runtime.array_view import ArrayView
from tilewright.runtime.cuda_driver import Memory, device, stream_handle
from tilewright.runtime.cuda_graph import CudaGraph, Mark, Stream
from tilewright.runtime.narrow_floats import storage_type
from tilewright.runtime.ndarray import Device, NDArray, array, empty

if TYPE_CHECKING:
    from tilewright.graph.executor import Executor


class CudaState(State):
    """Memory on a GPU, with buffers of their own for inputs and outputs, and a stream.

    The first call launches each kernel. The second records the launches, and those after it repeat
    them by one call of the driver. Where the driver refuses that, a warning says so, once, and
    kernels are launched one by one.
    """

    def __init__(self, executor: Executor) -> None:
        self.device = device(int(executor.device.partition(":")[2] or 0))
        super().__init__(executor)
        self.stream = Stream(self.device)
        self._other: Stream | None = None  # of branches: workspaces are those of a stream
        self.captures, self.calls = executor.capture, 0
        self._graph: CudaGraph | None = None
        self._launches: list[tuple[Callable[..., None], tuple[int, ...], tuple[int, ...]]] = []

    def place(self, values: Mapping[Value, int]) -> None:
        offsets, where = self.executor.plan.offsets, Device.parse(self.executor.device)
        arena = Memory(self.executor.plan.nbytes, self.device.ordinal)
        for value, k in values.items():
            at = arena.pointer + offsets[k]
            self.buffers[k] = NDArray(value.shape, dtype(value.dtype), where, arena, at)

    def run(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], times: list[float] | None
    ) -> dict[str, Any]:
        """The outputs by name: arrays of the host, or of the device where an input is there.

        What is on the device is taken in the order of the caller's current stream.
        """
        if not self._launches:
            self._own_buffers()
        given = [*inputs.values(), *outputs.values()]
        there = any(isinstance(x, ArrayView) for x in given)
        with self.device.current():
            caller = stream_handle(None, self.device.ordinal) if there else 0
            if there:
                self.stream.wait_for(caller)
            for x in self.graph.inputs:
                self._bring(self.buffers[self.executor.index[x]], inputs[x.name])
            if there and not all(isinstance(x, ArrayView) for x in inputs.values()):
                self.stream.synchronize()  # memory of the host may be written to again
            self.launch(times)
            made = {
                n: self._output(v, outputs.get(n), there) for n, v in self.graph.outputs.items()
            }
            if there:
                self.stream.wait_in(caller)
            if any(isinstance(x, np.ndarray) for x in made.values()):
                self.stream.synchronize()
        return {
            name: given_back(x, value, outputs.get(name)) if isinstance(x, np.ndarray) else x
            for (name, x), value in zip(made.items(), self.graph.outputs.values(), strict=True)
        }

    def _own_buffers(self) -> None:
        values = (*self.graph.inputs, *map(owner, self.graph.outputs.values()))
        for value in values:
            if not isinstance(value, Constant):
                self.buffers[self.executor.index[value]] = self.empty(value)
        self._number()

    def _number(self) -> None:
        pointers = self.pointers()
        self._launches = [
            (step.kernel.program.launch_raw, step.addresses(pointers), step.counts)  # type: ignore[attr-defined]
            for step in self.executor.steps
        ]

    def _bring(self, buffer: NDArray, given: Any) -> None:
        if isinstance(given, ArrayView):
            self.stream.copy(buffer._pointer, given.pointer, buffer.nbytes)
        else:
            data = np.ascontiguousarray(given)
            self.stream.to_device(buffer._pointer, data.ctypes.data, buffer.nbytes)

    def _output(self, value: Value, into: Any, there: bool) -> Any:
        """An output, where it is to be; that of the host is there once the stream is done."""
        memory = owner(value)
        if isinstance(memory, Constant):
            found = memory.array.reshape(value.shape)
            if into is None:
                return array(found, self.executor.device, value.dtype) if there else found.copy()
            if isinstance(into, ArrayView):
                self.stream.to_device(into.pointer, found.ctypes.data, found.nbytes)
                return into
            return found
        buffer = self.buffers[self.executor.index[memory]]
        if there and not isinstance(into, np.ndarray):
            made = into
            if made is None:
                made = empty(value.shape, value.dtype, self.executor.device)
            self.stream.copy(view(made).pointer, buffer._pointer, buffer.nbytes)
            return made
        host = np.empty(value.shape, storage_type(dtype(value.dtype)))
        self.stream.to_host(
            host.ctypes.data, buffer._pointer, math.prod(host.shape) * host.itemsize
        )
        return host

    def launch(self, times: list[float] | None) -> None:
        if times is not None:
            self._timed(times)
        elif not self.captures or self.calls == 0:
            self._each(self.stream.handle)
        elif self._captured():
            assert self._graph is not None
            self._graph.launch(self.stream.handle)
        else:
            self._each(self.stream.handle)
        self.calls += 1

    def _captured(self) -> bool:
        """Whether launches are recorded, now where they were not."""
        if self._graph is None and self.captures:
            try:
                self._graph = CudaGraph(self.stream, self._beside)
            except TargetError as error:
                self.captures = False
                warnings.warn(
                    f"{self.graph.name}: {error}; its kernels are launched one by one "
                    "(capture=False does so without this warning)",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return self._graph is not None

    def _each(self, stream: int) -> None:
        ordinal = self.device.ordinal
        for launch, pointers, counts in self._launches:
            launch(pointers, counts, stream, ordinal)

    def _beside(self, stream: int) -> None:
        """As :meth:`_each`, with branches on a stream of their own; for a recording alone, which
        both streams are parts of."""
        found = self.executor.branches
        if found is None or not any(found.streams):
            self._each(stream)
            return
        self._other = Stream(self.device)
        both = self.stream, self._other
        self._other.wait_until(self.stream.mark())
        marks: dict[int, Mark] = {}
        for k, (launch, pointers, counts) in enumerate(self._launches):
            own, awaited = both[found.streams[k]], found.waits[k]
            if awaited is not None:
                own.wait_until(marks[awaited])
            launch(pointers, counts, own.handle, self.device.ordinal)
            if k in found.awaited:
                marks[k] = own.mark()
        self.stream.wait_until(self._other.mark())

    def _timed(self, times: list[float]) -> None:
        """Each kernel by the device's clock."""
        marks = [self.stream.mark()]
        for launch, pointers, counts in self._launches:
            launch(pointers, counts, self.stream.handle, self.device.ordinal)
            marks.append(self.stream.mark())
        self.stream.synchronize()
        times += [b.since(a) for a, b in itertools.pairwise(marks)]

    def bound(self) -> Callable[[], None]:
        """Runs on the caller's current stream."""
        self._number()

        def run() -> None:
            with self.device.current():
                caller = stream_handle(None, self.device.ordinal)
                if self.captures and self.calls and self._captured():
                    assert self._graph is not None
                    self._graph.launch(caller)
                    return
                self.stream.wait_for(caller)
                self._each(self.stream.handle)
                self.stream.wait_in(caller)
                self.calls += 1

        return run
