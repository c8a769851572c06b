"""What a call of a graph works on: memory for its values, for one call at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.graph.arenas import Block
from tilewright.graph.constants import Array, aligned, on_device
from tilewright.graph.errors import ModelError
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Constant, Value
from tilewright.ir.dtype import dtype
from tilewright.runtime.array import view
from tilewright.runtime.array_view import ArrayView, dense_strides
from tilewright.runtime.narrow_floats import storage_type
from tilewright.runtime.ndarray import NDArray, empty
from tilewright.topi.problem import TensorType

if TYPE_CHECKING:
    from tilewright.graph.executor import Executor


class State:
    """Buffers by number, and how kernels are called on them.

    This one calls kernels with views of arrays, as every target takes them.
    """

    def __init__(self, executor: Executor) -> None:
        self.executor, self.graph = executor, executor.graph
        self.buffers: list[Array] = [None] * executor.buffers
        for k, found in executor.constants.items():
            self.buffers[k] = found
        self.place({v: k for v, k in executor.index.items() if k in executor.plan.offsets})

    def place(self, values: Mapping[Value, int]) -> None:
        """Give intermediate values their memory: on a CPU in one block."""
        offsets = self.executor.plan.offsets
        arena = aligned(self.executor.plan.nbytes) if self.executor.device == "cpu" else None
        for value, k in values.items():
            if arena is None:
                self.buffers[k] = self.empty(value)
            else:
                kind = storage_type(dtype(value.dtype))
                size = math.prod(value.shape) * kind.itemsize
                at = arena[offsets[k] : offsets[k] + size]
                self.buffers[k] = at.view(kind).reshape(value.shape)

    def empty(self, value: Value) -> Array:
        """Memory for a value."""
        if self.executor.device != "cpu":
            return empty(value.shape, value.dtype, self.executor.device)
        kind = storage_type(dtype(value.dtype))
        return aligned(math.prod(value.shape) * kind.itemsize).view(kind).reshape(value.shape)

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        times: list[float] | None,
    ) -> dict[str, Any]:
        """The outputs by name, in new arrays where ``outputs`` has none."""
        for x in self.graph.inputs:
            given = inputs[x.name]
            there = isinstance(given, ArrayView)
            self.buffers[self.executor.index[x]] = given if there else self.brought(x, given)
        made = {}
        for name, value in self.graph.outputs.items():
            memory, into = owner(value), outputs.get(name)
            if isinstance(memory, Constant):
                if isinstance(into, ArrayView):
                    raise ModelError(f"{name} is known before the call: give it no place")
                continue
            if isinstance(into, ArrayView):
                found = into
            elif into is not None and self.executor.device == "cpu" and not self._reads(into):
                found = into.reshape(memory.shape)
            else:
                found = self.storage(memory)
            made[name] = self.buffers[self.executor.index[memory]] = found
        self.launch(times)
        return {
            name: into
            if isinstance(into := outputs.get(name), ArrayView)
            else given_back(_numpy(made.get(name, value)), value, into)
            for name, value in self.graph.outputs.items()
        }

    def _reads(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether an input lies where an array does: kernels may read it when they have begun to
        write."""
        given = (self.buffers[self.executor.index[x]] for x in self.graph.inputs)
        return any(isinstance(x, np.ndarray) and np.may_share_memory(x, array) for x in given)

    def brought(self, value: Value, given: np.ndarray[Any, Any]) -> Array:
        """An input of the host's, where kernels are."""
        return on_device(given, self.executor.device)

    def storage(self, value: Value) -> Array:
        """Memory for an output of the host's, where kernels are."""
        return self.empty(value)

    def bind(
        self, inputs: Mapping[str, ArrayView], outputs: Mapping[str, ArrayView]
    ) -> Callable[[], None]:
        """A function that runs the graph on arrays of the caller's."""
        for x in self.graph.inputs:
            self.buffers[self.executor.index[x]] = inputs[x.name]
        for name, value in self.graph.outputs.items():
            self.buffers[self.executor.index[owner(value)]] = outputs[name]
        return self.bound()

    def bound(self) -> Callable[[], None]:
        """:meth:`launch` on buffers that stay as they are."""
        return lambda: self.launch(None)

    def pointers(self) -> list[int]:
        """Where the buffers are: 0 for what a call brings."""
        return [0 if b is None else view(b).pointer for b in self.buffers]

    def launch(self, times: list[float] | None) -> None:
        """Run all steps; ``times`` takes the seconds of each."""
        for step in self.executor.steps:
            begin = time.perf_counter() if times is not None else 0.0
            arguments = zip(step.arguments, step.types, strict=True)
            step.kernel(*(seen(self.buffers[k], t) for k, t in arguments))
            if times is not None:
                times.append(time.perf_counter() - begin)


class HostState(State):
    """Of programs for the CPU, which take addresses: all are one call.

    Intermediate values lie in a block that calls take in turn, unless :meth:`pointers` has given it
    one of its own.
    """

    def __init__(self, executor: Executor) -> None:
        from tilewright.runtime.llvm_sequence import LLVMSequence

        super().__init__(executor)
        self._programs: list[Any] = [step.kernel.program for step in executor.steps]
        steps = executor.steps
        offsets = [k for step in steps for k in step.offsets]
        places = [step.arguments for step in steps]
        self._all = LLVMSequence(self._programs, places, offsets, [step.counts for step in steps])
        self._known = np.zeros(executor.buffers, np.uint64)
        for k, found in executor.constants.items():
            self._known[k] = found.ctypes.data
        self._given = sorted({k for k in executor.given if k not in executor.plan.offsets})

    def place(self, values: Mapping[Value, int]) -> None:
        """Intermediate values have no memory until a call."""
        offsets = self.executor.plan.offsets
        self._inner = np.array(list(offsets), np.intp)
        self._offsets = np.array(list(offsets.values()), np.uint64)
        self._arena: Block | None = None

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        times: list[float] | None,
    ) -> dict[str, Any]:
        try:
            return super().run(inputs, outputs, times)
        finally:
            for k in self._given:  # the caller's, and no longer needed
                self.buffers[k] = None

    def launch(self, times: list[float] | None) -> None:
        arenas, nbytes = self.executor.arenas, self.executor.plan.nbytes
        arena = arenas.take(nbytes) if self._arena is None else self._arena
        try:
            self._launch(self._addresses(arena), times)
        finally:
            if self._arena is None:
                arenas.give(arena)

    def _launch(self, pointers: np.ndarray[Any, Any], times: list[float] | None) -> None:
        if times is None:
            self._all.place(pointers)
            self._all()
            return
        known = pointers.tolist()
        for step, program in zip(self.executor.steps, self._programs, strict=True):
            begin = time.perf_counter()
            program.launch_raw(step.addresses(known), step.counts)
            times.append(time.perf_counter() - begin)

    def _addresses(self, arena: Block) -> np.ndarray[Any, Any]:
        found = self._known.copy()
        found[self._inner] = np.uint64(arena.ctypes.data) + self._offsets
        for k in self._given:
            if (b := self.buffers[k]) is not None:
                found[k] = b.pointer if isinstance(b, ArrayView) else b.ctypes.data
        return found

    def pointers(self) -> list[int]:
        if self._arena is None:
            self._arena = aligned(self.executor.plan.nbytes)
        found: list[int] = self._addresses(self._arena).tolist()
        return found

    def bound(self) -> Callable[[], None]:
        self._all.place(self.pointers())
        return lambda: self._all()  # which keeps the memory that it runs on


def seen(buffer: Array, t: TensorType) -> ArrayView:
    """A buffer as a kernel sees it, whatever shape it has elsewhere."""
    return replace(view(buffer), shape=t.shape, strides=dense_strides(t.shape))


def given_back(found: np.ndarray[Any, Any], value: Value, into: Any) -> Any:
    """An output in its shape; in the array that the caller gave, where there is one."""
    made = found.reshape(value.shape)
    if into is None:
        return made
    if not np.may_share_memory(into, made):
        np.copyto(into, made)
    return into


def _numpy(found: Any) -> np.ndarray[Any, Any]:
    if isinstance(found, Value):
        memory = owner(found)
        assert isinstance(memory, Constant)
        return memory.array.copy()
    made: np.ndarray[Any, Any] = found.numpy() if isinstance(found, NDArray) else found
    return made
