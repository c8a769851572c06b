"""A graph as kernels in order, on memory that is planned."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.graph.constants import Constants, on_device
from tilewright.graph.graph import Graph
from tilewright.graph.kernels import build_all
from tilewright.graph.memory import ALIGNED, Lifetime, Plan, plan
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Constant, Node, Value
from tilewright.ir.dtype import dtype
from tilewright.runtime.array import view
from tilewright.runtime.array_view import ArrayView, dense_strides
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.ndarray import NDArray, empty, storage_type
from tilewright.target import Target
from tilewright.topi.problem import Problem, TensorType

#: An array on the device: NumPy's on a CPU.
Array = Any
#: What launches a kernel on the addresses of its arguments.
Launch = Callable[[tuple[int, ...]], None]


@dataclass(frozen=True)
class Step:
    """A kernel with the places of its arguments among the buffers, and what it sees there, the
    result last."""

    node: Node
    kernel: Kernel
    arguments: tuple[int, ...]
    types: tuple[TensorType, ...]


class Executor:
    """What runs a graph. Any number of threads may, each with memory of its own.

    ``progress`` is given the number of kernels that are built, and of all; ``launcher`` makes of
    each what launches it on addresses, by default as the kernel does by itself.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        progress: Callable[[int, int], None] | None = None,
        launcher: Callable[[Kernel, Problem], Launch] | None = None,
    ) -> None:
        self.graph, self.target = graph, target
        nodes = [n for n in graph.nodes if n.operator != "reshape"]
        kernels = build_all([n.problem for n in nodes], target, progress)
        self.kernels = tuple(kernels.values())
        self.lifetimes, places = _lifetimes(graph, nodes)
        self.plan: Plan = plan(self.lifetimes)
        # Buffers: intermediate values, inputs and outputs, then constants and what is prepared.
        index = dict(places)
        for value in (*graph.inputs, *map(owner, graph.outputs.values())):
            index.setdefault(value, len(index))
        self._index = index
        self._device = {"cuda": "cuda:0", "opencl": "opencl:0"}.get(target.kind, "cpu")
        known = Constants(len(index), self._device)
        self.steps = tuple(_step(n, kernels[n.problem.key], index, known) for n in nodes)
        self._constants = known.arrays
        self._launches = [
            ((launcher or _launch_of)(s.kernel, s.node.problem), s.arguments) for s in self.steps
        ]
        self._given = [index[owner(x)] for x in (*graph.inputs, *graph.outputs.values())]
        self._free: list[list[Array]] = []
        self._bound: list[tuple[list[Array], list[int]]] = []
        self._lock = threading.Lock()

    def run(
        self, inputs: Mapping[str, np.ndarray[Any, Any]], times: list[float] | None = None
    ) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs by name, in new arrays; ``times`` takes the seconds of each step."""
        with self._lock:
            buffers = self._free.pop() if self._free else None
        buffers = self._state() if buffers is None else buffers
        try:
            return self._run(buffers, inputs, times)
        finally:
            with self._lock:
                self._free.append(buffers)

    def launch(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Run on memory of the caller's: the addresses of dense tensors in the order of the graph's
        inputs, and of its outputs, of which none is a constant. On a GPU, on the stream that the
        launcher takes."""
        with self._lock:
            found = self._bound.pop() if self._bound else None
        if found is None:
            buffers = self._state()
            found = buffers, [0 if b is None else view(b).pointer for b in buffers]
        pointers = found[1]
        for k, pointer in zip(self._given, (*inputs, *outputs), strict=True):
            pointers[k] = pointer
        try:
            for run, arguments in self._launches:
                run(tuple([pointers[k] for k in arguments]))
        finally:
            with self._lock:
                self._bound.append(found)

    def _run(
        self, buffers: list[Array], inputs: Mapping[str, np.ndarray[Any, Any]],
        times: list[float] | None,
    ) -> dict[str, np.ndarray[Any, Any]]:  # fmt: skip
        for x in self.graph.inputs:
            buffers[self._index[x]] = self._on_device(inputs[x.name])
        made = {}
        for name, value in self.graph.outputs.items():
            memory = owner(value)
            if isinstance(memory, Constant):
                made[name] = memory.array.copy()
            else:
                made[name] = buffers[self._index[memory]] = self._empty(memory)
        if self._device == "cpu" and self.target.kind == "llvm":
            self._launch(buffers, times)
        else:
            self._call(buffers, times)
        return {
            name: _numpy(made[name]).reshape(value.shape)
            for name, value in self.graph.outputs.items()
        }

    def _launch(self, buffers: Sequence[Array], times: list[float] | None) -> None:
        pointers = [0 if b is None else b.ctypes.data for b in buffers]
        for step in self.steps:
            begin = time.perf_counter() if times is not None else 0.0
            step.kernel.program.launch_raw([pointers[k] for k in step.arguments], ())  # type: ignore[attr-defined]
            if times is not None:
                times.append(time.perf_counter() - begin)

    def _call(self, buffers: Sequence[Array], times: list[float] | None) -> None:
        for step in self.steps:
            begin = time.perf_counter() if times is not None else 0.0
            step.kernel(
                *(_seen(buffers[k], t) for k, t in zip(step.arguments, step.types, strict=True))
            )
            if times is not None:
                times.append(time.perf_counter() - begin)

    def _state(self) -> list[Array]:
        """Buffers with memory for intermediate values, and the constants."""
        buffers: list[Array] = [None] * (len(self._index) + len(self._constants))
        for k, found in self._constants.items():
            buffers[k] = found
        arena = _aligned(self.plan.nbytes) if self._device == "cpu" else None
        for value, k in self._index.items():
            if k not in self.plan.offsets:
                continue
            if arena is None:
                buffers[k] = self._empty(value)
            else:
                at, kind = self.plan.offsets[k], storage_type(dtype(value.dtype))
                size = math.prod(value.shape) * kind.itemsize
                buffers[k] = arena[at : at + size].view(kind).reshape(value.shape)
        return buffers

    def _empty(self, value: Value) -> Array:
        made = empty(value.shape, value.dtype, self._device)
        return made._memory if self._device == "cpu" else made

    def _on_device(self, source: np.ndarray[Any, Any]) -> Array:
        return on_device(source, self._device)


def _step(node: Node, kernel: Kernel, index: Mapping[Value, int], known: Constants) -> Step:
    """A step whose arguments are constants, what its kernel prepares of them, and other values."""
    values = [owner(x) for x in (*node.inputs, node)]
    types = [*node.problem.inputs().values(), node.problem.result]
    made: Sequence[int] = ()
    takes: Sequence[int] = range(len(values))
    if (ahead := kernel.preparation) is not None:
        made, takes = known.prepared(ahead, [values[k] for k in ahead.reads]), ahead.takes
        types += reversed([TensorType(*t) for t in ahead.types])  # from the end on, as in ``takes``

    def place(k: int) -> int:
        if k < 0:
            return made[-1 - k]
        x = values[k]
        return known[x] if isinstance(x, Constant) else index[x]

    return Step(node, kernel, tuple(map(place, takes)), tuple(types[k] for k in takes))


def _launch_of(kernel: Kernel, problem: Problem) -> Launch:
    return lambda pointers: kernel.program.launch_raw(pointers, ())  # type: ignore[attr-defined]


def _lifetimes(graph: Graph, nodes: Sequence[Node]) -> tuple[list[Lifetime], dict[Value, int]]:
    """Of each intermediate value, and its number."""
    outputs = {owner(x) for x in graph.outputs.values()}
    begin = {n: k for k, n in enumerate(nodes) if n not in outputs}
    end = dict(begin)
    for k, node in enumerate(nodes):
        for x in map(owner, node.inputs):
            if x in end and isinstance(x, Node):
                end[x] = k
    sizes = {n: math.prod(n.shape) * dtype(n.dtype).bytes for n in begin}
    return (
        [Lifetime(begin[n], end[n], sizes[n]) for n in begin],
        {n: k for k, n in enumerate(begin)},
    )


def _seen(buffer: Array, t: TensorType) -> ArrayView:
    """A buffer as a kernel sees it, whatever shape it has elsewhere."""
    return replace(view(buffer), shape=t.shape, strides=dense_strides(t.shape))


def _numpy(found: Array) -> np.ndarray[Any, Any]:
    made: np.ndarray[Any, Any] = found.numpy() if isinstance(found, NDArray) else found
    return made


def _aligned(nbytes: int) -> np.ndarray[Any, Any]:
    memory = np.empty(nbytes + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return memory[start : start + nbytes]
