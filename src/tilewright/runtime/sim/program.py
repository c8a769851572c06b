"""A module on the simulator: arrays of the CPU in, findings out."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import ArgumentError
from tilewright.ir.expr import Var
from tilewright.ir.func import Module
from tilewright.ir.stmt import Allocate
from tilewright.ir.visit import walk
from tilewright.runtime.array import ArrayView, view
from tilewright.runtime.program import Resources
from tilewright.runtime.sim.cost import Cost
from tilewright.runtime.sim.findings import Findings, Sites
from tilewright.runtime.sim.machine import KernelCode, Scalars, evaluate, form
from tilewright.runtime.sim.memory import Memory
from tilewright.runtime.sim.report import Finding, SimReport
from tilewright.runtime.sim.values import from_bits, numpy_type, to_bits
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
        self._kernels = [KernelCode(func, self._sites, False) for func in module.funcs]
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
        memories, bound = self._bind(arrays, scalars)
        for kernel in self._kernels:
            kernel.run(memories, bound, findings, None)
            if findings.all:
                break
        else:
            self._check_outputs(memories, findings)
        SimReport(findings.all).check()
        self._write_back(arrays, memories)

    def simulate(self, arrays: Sequence[ArrayView], scalars: Mapping[str, int]) -> SimReport:
        """Run it once to its end, whatever is wrong, and report; outputs are written."""
        sites = Sites()
        kernels = [KernelCode(func, sites, True) for func in self.module.funcs]
        findings = Findings(sites)
        report = SimReport()
        cost = Cost(report)
        memories, bound = self._bind(arrays, scalars)
        for kernel in kernels:
            kernel.run(memories, bound, findings, cost)
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
    ) -> tuple[dict[Buffer, Memory], Scalars]:
        """Memories for all buffers of the module, and the variables by identity."""
        bound: dict[Var, Any] = {}
        buffers = [p for p in self.module.params if isinstance(p, Buffer)]
        for name, var in self._variables().items():
            if name in scalars:
                bound[var] = scalars[name]
        memories: dict[Buffer, Memory] = {}
        for buffer, array in zip(buffers, arrays, strict=True):
            made = form(buffer, bound)
            data = np.zeros(made.size, numpy_type(buffer.dtype))
            data[made.offsets()] = _elements(array)
            memories[buffer] = Memory(buffer, made, data=data, tracked=buffer in self._outputs)
        for buffer in self.module.workspaces:
            memories[buffer] = Memory(buffer, form(buffer, bound))
        return memories, bound

    def _variables(self) -> dict[str, Var]:
        found: dict[str, Var] = {}
        for params in (self.module.params, *(func.params for func in self.module.funcs)):
            for p in params:
                if isinstance(p, Var):
                    found.setdefault(p.name, p)
                else:
                    for extent in p.shape:
                        found.update((v.name, v) for v in walk(extent) if isinstance(v, Var))
        return found

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
                raw = _raw(array)
                raw[...] = to_bits(found) if buffer.dtype.kind == "bfloat" else found


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


def _raw(array: ArrayView) -> np.ndarray[Any, Any]:
    """The memory of a view as a NumPy array; bfloat16 as its bits."""
    if array.device != "cpu":
        raise ArgumentError(
            f"target 'sim' takes arrays of the CPU, not of {array.device}: copy it with .cpu()"
        )
    kind = np.dtype("uint16") if array.dtype.kind == "bfloat" else numpy_type(array.dtype)
    if not array.size:
        return np.zeros(array.shape, kind)
    return np.asarray(_Interface(array, kind))


def _elements(array: ArrayView) -> np.ndarray[Any, Any]:
    raw = _raw(array)
    found: np.ndarray[Any, Any] = from_bits(raw) if array.dtype.kind == "bfloat" else raw
    return found


def compile_module(
    module: Module, target: Target, artifacts: dict[str, bytes] | None = None
) -> SimProgram:
    """The backend of target "sim"; there are no artifacts to use."""
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

    Raises :class:`ArgumentError` for an array that does not fit; what the program does wrong is in
    the report.
    """
    if len(arrays) != len(module.params):
        raise ArgumentError(
            f"{module.name} takes {len(module.params)} arguments, got {len(arrays)}"
        )
    views: list[ArrayView] = []
    scalars: dict[str, int] = {}
    bound: dict[Var, int] = {}
    for p, given in zip(module.params, arrays, strict=True):
        if isinstance(p, Var):
            bound[p] = scalars[p.name] = int(given)
            continue
        found = view(given)
        views.append(found)
        if len(found.shape) == len(p.shape):
            for extent, size in zip(p.shape, found.shape, strict=True):
                if isinstance(extent, Var) and extent not in bound:
                    bound[extent] = scalars[extent.name] = size
    for buffer, found in zip(
        [p for p in module.params if isinstance(p, Buffer)], views, strict=True
    ):
        _check(buffer, found, bound)
    return SimProgram(module, Target.parse("sim")).simulate(views, scalars)


def _check(buffer: Buffer, found: ArrayView, bound: Mapping[Var, int]) -> None:
    shape = tuple(evaluate(extent, bound) for extent in buffer.shape)
    bits = buffer.dtype.kind == "bfloat" and found.dtype == "uint16"
    if found.shape != shape or not (found.dtype == buffer.dtype or bits):
        raise ArgumentError(
            f"argument {buffer.name} must be of shape {shape} and type {buffer.dtype}, got "
            f"{found.shape} and {found.dtype}"
        )
    if bits:
        found.dtype = buffer.dtype
