"""A module on the simulator: arrays of the CPU in, findings out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import DType
from tilewright.ir.errors import ArgumentError
from tilewright.ir.func import Module
from tilewright.ir.stmt import Allocate
from tilewright.ir.visit import walk
from tilewright.lower.pipeline import for_backend
from tilewright.runtime.array_view import ArrayView
from tilewright.runtime.narrow_floats import bits_type, from_bits, is_narrow, to_bits
from tilewright.runtime.program import Resources
from tilewright.runtime.signature import Signature, outputs
from tilewright.runtime.sim.cost import Cost
from tilewright.runtime.sim.findings import Findings, Sites
from tilewright.runtime.sim.machine import KernelCode, form
from tilewright.runtime.sim.memory import Memory
from tilewright.runtime.sim.report import Finding, SimReport
from tilewright.runtime.sim.values import numpy_type
from tilewright.target import Target


class SimProgram:
    """A module compiled for target "sim": closures over NumPy.

    :meth:`launch` raises :class:`SimulationError` where a kernel does something that a GPU would
    hide; :meth:`simulate` returns everything that was seen.
    """

    devices = ("cpu",)

    def __init__(self, module: Module, target: Target) -> None:
        self.module, self.target = module, target
        self._sites = Sites()
        self._funcs = [for_backend(func, "sim") for func in module.funcs]
        self._kernels = [KernelCode(func, self._sites, False) for func in self._funcs]
        self._outputs = set().union(*(kernel.written for kernel in self._kernels))

    @property
    def source(self) -> str:
        """The loops that are executed."""
        return repr(self.module)

    assembly = source

    @property
    def resources(self) -> Mapping[str, Resources]:
        """Shared memory by kernel; registers are the compiler's to give out, and here is none."""
        found = {}
        for func in self.module.funcs:
            total = 0
            for node in walk(func.body):
                if isinstance(node, Allocate) and node.buffer.scope == "shared":
                    size = node.buffer.size
                    total += getattr(size, "value", 0) * node.buffer.dtype.bytes
            found[func.name] = Resources(shared_memory=total)
        return found

    def artifacts(self) -> dict[str, bytes]:
        """Nothing: closures are made in less time than a file is read."""
        return {}

    def launch(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], stream: Any = None
    ) -> None:
        """Run it once; nothing is written where it raises :class:`SimulationError`."""
        findings = Findings(self._sites)
        memories = self._bind(arrays, scalars)
        for kernel in self._kernels:
            kernel.run(memories, scalars, findings, None)
            if findings.all:
                break
        else:
            self._check_outputs(memories, findings)
        SimReport(findings.all).check()
        self._write_back(arrays, memories)

    def simulate(self, arrays: Sequence[ArrayView], scalars: Mapping[str, int]) -> SimReport:
        """Run it once to its end, whatever is wrong, and report; outputs are written."""
        sites = Sites()
        kernels = [KernelCode(func, sites, True) for func in self._funcs]
        findings = Findings(sites)
        report = SimReport()
        cost = Cost(report)
        memories = self._bind(arrays, scalars)
        for kernel in kernels:
            kernel.run(memories, scalars, findings, cost)
        self._check_outputs(memories, findings)
        report.findings = findings.all
        self._write_back(arrays, memories)
        return report

    def measure(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], number: int, repeat: int
    ) -> list[float]:
        """Seconds a launch of the simulator, which say nothing about a GPU."""
        found = []
        for _ in range(repeat):
            start = time.perf_counter()
            for _ in range(number):
                self.launch(arrays, scalars)
            found.append((time.perf_counter() - start) / number)
        return found

    def _bind(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int]
    ) -> dict[Buffer, Memory]:
        """Memories for all buffers of the module."""
        buffers = [p for p in self.module.params if isinstance(p, Buffer)]
        memories: dict[Buffer, Memory] = {}
        for buffer, array in zip(buffers, arrays, strict=True):
            if array.pointer != array.span[0]:
                raise ArgumentError(
                    f"{buffer.name} has negative strides: pass np.ascontiguousarray(it)"
                )
            made = form(buffer, scalars)
            data = np.zeros(made.size, numpy_type(buffer.dtype))
            data[made.offsets()] = _elements(array, buffer.dtype)
            memories[buffer] = Memory(buffer, made, data=data, tracked=buffer in self._outputs)
        for buffer in self.module.workspaces:
            memories[buffer] = Memory(buffer, form(buffer, scalars))
        return memories

    def _check_outputs(self, memories: Mapping[Buffer, Memory], findings: Findings) -> None:
        for buffer in self.module.params:
            if not isinstance(buffer, Buffer) or buffer not in self._outputs:
                continue
            memory = memories[buffer]
            assert memory.written is not None
            missing = ~memory.written[memory.form.offsets()]
            if missing.any():
                index = tuple(int(i) for i in np.argwhere(missing)[0])
                count = int(np.count_nonzero(missing))
                name = f"{buffer.name}[{', '.join(map(str, index))}]"
                detail = f"{name} is never written, nor are {count - 1} others of {missing.size}"
                kernel = next(k.func.name for k in self._kernels if buffer in k.written)
                findings.put(
                    ("unwritten output", buffer),
                    Finding("unwritten output", kernel, None, buffer.name, index, detail),
                )

    def _write_back(self, arrays: Sequence[ArrayView], memories: Mapping[Buffer, Memory]) -> None:
        buffers = [p for p in self.module.params if isinstance(p, Buffer)]
        for buffer, array in zip(buffers, arrays, strict=True):
            if buffer in self._outputs:
                memory = memories[buffer]
                found = memory.data[memory.form.offsets()]
                raw = _raw(array, buffer.dtype)
                t = buffer.dtype
                raw[...] = to_bits(found, t) if is_narrow(t) else found


class _Interface:
    """Memory as NumPy's array interface describes it."""

    def __init__(self, array: ArrayView, type: np.dtype[Any]) -> None:
        self.owner = array.owner
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "typestr": type.str,
            "data": (array.pointer, array.readonly),
            "strides": tuple(stride * type.itemsize for stride in array.strides),
        }


def _raw(array: ArrayView, type: DType) -> np.ndarray[Any, Any]:
    """The memory of a view as a NumPy array; floats that NumPy lacks as their bits."""
    if array.device != "cpu":
        raise ArgumentError(
            f"target 'sim' takes arrays of the CPU, not of {array.device}: copy it with .cpu()"
        )
    kind = bits_type(type) if is_narrow(type) else numpy_type(type)
    if not array.size:
        return np.zeros(array.shape, kind)
    return np.asarray(_Interface(array, kind))


def _elements(array: ArrayView, type: DType) -> np.ndarray[Any, Any]:
    raw = _raw(array, type)
    found: np.ndarray[Any, Any] = from_bits(raw, type) if is_narrow(type) else raw
    return found


def compile_module(
    module: Module,
    target: Target,
    artifacts: dict[str, bytes] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> SimProgram:
    """The backend of target "sim"; there are no artifacts to use."""
    meanwhile()
    return SimProgram(module, target)


def cache_tag(target: Target) -> str:
    """The version of NumPy: nothing is kept in the cache."""
    return f"numpy-{np.__version__}"


def simulate(module: Module, arrays: Sequence[Any]) -> SimReport:
    """Run ``module`` on arrays of the CPU and report what a GPU would hide.

    Parameters
    ----------
    module : lowered for a GPU target.
    arrays : one a parameter of the module, in order: anything that
        :func:`tilewright.runtime.array.view` takes for buffers, integers for variables. Symbolic
        extents are read off the shapes.

    Raises :class:`ArgumentError` for an array that does not fit; what the program does wrong is
    in the report.
    """
    views, scalars = Signature(module, outputs(module), SimProgram.devices).bind(arrays)
    return SimProgram(module, Target.parse("sim")).simulate(views, scalars)
