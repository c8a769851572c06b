"""Calls of a graph on an OpenCL device: all kernels with their arguments set, in one queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.graph.constants import Array
from tilewright.graph.memory import slots
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.state import State, seen
from tilewright.graph.value import Constant, Value
from tilewright.ir.dtype import dtype
from tilewright.runtime.array import view
from tilewright.runtime.array_view import ArrayView
from tilewright.runtime.ndarray import Device as Place
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.opencl import OpenCLProgram
from tilewright.runtime.opencl_commands import Command, Commands
from tilewright.runtime.opencl_device import Device, Memory, device, load_opencl

if TYPE_CHECKING:
    from tilewright.graph.executor import Executor


class OpenCLState(State):
    """Memory on a device, with buffers of their own for inputs and outputs of the host's.

    The arguments of kernels are set by the first call, and by another one that is given other
    arrays of the device.
    """

    def __init__(self, executor: Executor) -> None:
        self.device: Device = device(executor.device.partition(":")[2] or "0")
        self._own: dict[Value, Array] = {}
        self._spaces: list[Memory] = []
        self._found: tuple[list[Array], list[list[Command]], Commands] | None = None
        super().__init__(executor)
        values = (*self.graph.inputs, *map(owner, self.graph.outputs.values()))
        self._given = [executor.index[x] for x in values if not isinstance(x, Constant)]

    def place(self, values: Mapping[Value, int]) -> None:
        """Blocks of memory that values take turns in: memory objects have no addresses inside."""
        blocks, sizes = slots(self.executor.lifetimes)
        where = Place.parse(self.executor.device)
        spaces = [Memory(size, self.device, where.index) for size in sizes]
        for value, k in values.items():
            own = spaces[blocks[k]]
            self.buffers[k] = NDArray(value.shape, dtype(value.dtype), where, own, own.pointer)

    def brought(self, value: Value, given: np.ndarray[Any, Any]) -> Array:
        return self.storage(value).copyfrom(given)

    def storage(self, value: Value) -> Array:
        if value not in self._own:
            self._own[value] = self.empty(value)
        return self._own[value]

    def launch(self, times: list[float] | None) -> None:
        if any(view(self.buffers[k]).device == "cpu" for k in self._given):
            super().launch(times)  # arrays that are copied at each call
        elif times is None:
            self._commands()[1]()
        else:
            self._timed(times)

    def bound(self) -> Callable[[], None]:
        if any(view(self.buffers[k]).device == "cpu" for k in self._given):
            return super().bound()
        return self._commands()[1]

    def _commands(self) -> tuple[list[list[Command]], Commands]:
        """Those of each step, and of all."""
        given = [self.buffers[k] for k in self._given]
        if self._found is None or not all(map(_same, given, self._found[0])):
            steps = self._prepared()
            flat = [command for step in steps for command in step]
            self._found = given, steps, Commands(self.device.queue, flat)
        return self._found[1:]

    def _prepared(self) -> list[list[Command]]:
        made = []
        programs: list[tuple[OpenCLProgram, list[ArrayView], dict[str, int]]] = []
        for step in self.executor.steps:
            arguments = zip(step.arguments, step.types, strict=True)
            views = [seen(self.buffers[k], t) for k, t in arguments]
            program = step.kernel.program
            assert isinstance(program, OpenCLProgram)
            programs.append((program, *step.kernel.signature.bind(views)))
        sizes = [program.spaces(scalars) for program, _, scalars in programs]
        # One step after the other: all have the same.
        for k in range(len(self._spaces), max(map(len, sizes), default=0)):
            most = max(found[k] for found in sizes if len(found) > k)
            self._spaces.append(Memory(most, self.device))
        for (program, views, scalars), found in zip(programs, sizes, strict=True):
            made.append(program.commands(views, scalars, self._spaces[: len(found)]))
        return made

    def _timed(self, times: list[float]) -> None:
        """Each step by the device's clock."""
        cl = load_opencl()
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        queue = cl.CommandQueue(self.device.context, self.device.handle, properties=profiling)
        self.device.queue.finish()
        steps = [Commands(queue, step).events() for step in self._commands()[0]]
        queue.finish()
        times += [1e-9 * sum(e.profile.end - e.profile.start for e in step) for step in steps]


def _same(a: Array, b: Array) -> bool:
    return a is b or view(a).owner is view(b).owner
