"""Drawn programs, built for a target and compared with what their declaration means."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from tests.support.declared import OutOfBounds, declared, numpy_type
from tests.support.graphs import Graph
from tests.support.pocl import takes_too_long
from tests.support.schedules import FLOATS, INTEGERS
from tests.support.well_formed import check

from tilewright.ir.dtype import dtype, int_range
from tilewright.ir.errors import LoweringError, ScheduleError, VerificationError
from tilewright.ir.expr import IntImm, Var
from tilewright.ir.func import Module
from tilewright.ir.stmt import For, ForKind, Stmt
from tilewright.ir.visit import children
from tilewright.lower.pipeline import lower
from tilewright.runtime.build import backend
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.signature import outputs
from tilewright.runtime.sim import SimulationError, simulate
from tilewright.runtime.sim.values import poison
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.te import Tensor
from tilewright.verify import verify

Array = np.ndarray[Any, Any]
#: What sim executes in some seconds.
_MOST_STEPS = 500_000


@dataclass
class Outcome:
    """What became of a program: "right", "refused", or a way to be wrong.

    "wrong": another result; "missed": verify proved what sim, or the declaration itself, finds a
    defect in; "unproved": verify refused what is wrong indeed; "doubted": verify refused what seems
    right. "rejected" is a program that verify refused and that promised nothing.
    """

    kind: str
    detail: str = ""


class Case:
    """Declared tensors, integers for the inputs, and what the outputs then are.

    ``sizes`` are the values of symbolic extents and of scalars, ``wild`` the names of the inputs
    that take values from all over their type. ``illegal`` says what the declaration reads beyond an
    input, and what is not ``defined`` reads beyond some tensor.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        sizes: Mapping[Var, int] | None = None,
        wild: Container[str] = (),
        seed: int = 7,
    ) -> None:
        sizes = sizes or {}
        extents = {e for t in (*inputs, *outputs) for e in t.shape}
        self.scalars = {v: value for v, value in sizes.items() if v not in extents}
        self.arguments = [*inputs, *outputs, *self.scalars]
        self.outputs = list(outputs)
        rng = np.random.default_rng(seed)
        self.inputs = []

        def shape_of(t: Tensor) -> list[int]:
            return [e.value if isinstance(e, IntImm) else sizes[e] for e in t.shape]

        for t in inputs:
            shape = shape_of(t)
            low = 0 if t.dtype.startswith("u") or t.dtype == "bool" else -4
            drawn = rng.integers(low, 2 if t.dtype == "bool" else 5, shape)
            if t.name in wild and t.dtype in INTEGERS:
                drawn = _wild(rng, drawn, t.dtype)
            elif t.name in wild and t.dtype in FLOATS:
                drawn = np.where(rng.integers(0, 3, shape) == 0, _odd(rng, shape), drawn)
            self.inputs.append(drawn.astype(numpy_type(t.dtype)))
        self.illegal, self.defined, self.expected = "", True, list[Array]()
        try:
            self.expected = declared(outputs, dict(zip(inputs, self.inputs)), sizes)
        except OutOfBounds as error:
            # What is between the stages may be a tile, with room for what no tensor has.
            self.defined = False
            self.expected = [np.zeros(shape_of(t), numpy_type(t.dtype)) for t in outputs]
            if any(t.buffer is error.buffer for t in inputs):
                self.illegal = str(error)
        self.inputs = [_stored(a, t.dtype) for a, t in zip(self.inputs, inputs)]

    @staticmethod
    def of(graph: Graph, said: Mapping[str, int] | None = None, seed: int = 7) -> Case:
        """Of a drawn graph, with what is ``said`` of its symbolic extent and its scalars."""
        names = graph.text.names
        inputs, outputs = [k.name for k in graph.inputs], graph.outputs
        sizes = {names[k]: v for k, v in (graph.sizes(0) if said is None else said).items()}
        return Case(
            [names[k] for k in inputs], [names[k] for k in outputs], sizes, graph.wild, seed
        )

    def call(self, outputs: Sequence[Array]) -> list[Any]:
        """The arguments of a call that writes ``outputs``."""
        return [*self.inputs, *outputs, *self.scalars.values()]

    def blank(self) -> list[Array]:
        """Outputs in which an element that nobody writes shows."""
        made = [np.empty_like(_stored(a, t.dtype)) for a, t in zip(self.expected, self.outputs)]
        for a in made:
            a.reshape(-1).view(np.uint8)[...] = 0xA5
        return made

    def differs(self, found: Sequence[Array]) -> str:
        for t, got, want in zip(self.outputs, found, self.expected):
            if t.dtype == "bfloat16":
                got = (got.astype(np.uint32) << 16).view(np.float32)
            if not np.array_equal(got, want, equal_nan=want.dtype.kind == "f"):
                wrong = np.argwhere(~((got == want) | (np.isnan(want) & np.isnan(got))))
                at = tuple(int(i) for i in wrong[0])
                return (
                    f"{t.name}{list(at)} is {got[at]} and not {want[at]}; "
                    f"{len(wrong)} of {want.size} elements are wrong"
                )
        return ""


def _wild(rng: np.random.Generator, small: Array, type: str) -> Array:
    """``small`` with values of the whole range of the type among them, and those at its ends."""
    low, high = int_range(dtype(type))
    powers = [p for k in range(1, 64) for p in (2**k - 1, 2**k, 2**k + 1, -(2**k))]
    ends = [low, low + 1, -2, -1, 0, 1, 2, high // 2, high // 2 + 1, high - 1, high]
    pool = [v for v in (*ends, *ends, *powers) if low <= v <= high]
    shape = small.shape
    drawn = rng.choice(np.array(pool, np.int64), shape)
    anywhere = rng.integers(low, high, shape, np.int64, endpoint=True)
    which = rng.integers(0, 4, shape)
    return np.where(which == 0, small, np.where(which == 1, anywhere, drawn))


def _odd(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    return rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0]), tuple(shape))


def _stored(a: Array, type: str) -> Array:
    """An array as kernels take it: bfloat16 as its bits."""
    return (a.view(np.uint32) >> 16).astype(np.uint16) if type == "bfloat16" else a


def judge(cases: Case | Sequence[Case], s: Schedule, target: str, promised: bool = True) -> Outcome:
    """Build the schedule with proofs, run it on every case, compare.

    ``promised`` says that the program is legal and of a kind that verify can prove.
    """
    cases = [cases] if isinstance(cases, Case) else cases
    machine = Target.parse(target)
    try:
        module = lower(s, cases[0].arguments, machine, trace=check)
    except (LoweringError, ScheduleError) as error:
        return Outcome("refused", str(error))
    try:
        for func in module.funcs:
            verify(func)
    except VerificationError as error:
        if not promised or not all(case.defined for case in cases):
            return Outcome("rejected", str(error))
        return _doubted(cases, module, error)
    for case in cases:
        if case.illegal and not _harmless(case, module):
            return Outcome("missed", case.illegal)
    if machine.kind == "opencl" and takes_too_long(module):
        return Outcome("refused", "PoCL unrolls a loop with many barriers")
    if machine.kind == "sim" and sum(_steps(func.body) for func in module.funcs) > _MOST_STEPS:
        return Outcome("large", f"more than {_MOST_STEPS} steps")
    kernel = Kernel(backend(machine).compile_module(module, machine), outputs(module))
    for case in cases:
        if not case.defined:
            continue
        found = case.blank()
        try:
            kernel(*case.call(found))
        except SimulationError as error:
            return Outcome("missed", str(error))
        wrong = case.differs(found)
        if wrong:
            return Outcome("wrong", wrong)
    return Outcome("right")


def _steps(s: Stmt) -> int:
    """How many statements sim executes, all threads at once, at most."""
    inner = sum(_steps(x) for x in children(s) if isinstance(x, Stmt))
    if isinstance(s, For) and s.kind is not ForKind.THREAD and isinstance(s.extent, IntImm):
        return s.extent.value * inner
    return max(inner, 1)


def _harmless(case: Case, module: Module) -> bool:
    """Whether the program reads what is there where the declaration does not, as sim has it: what
    no output needs is left out, and :meth:`Schedule.reindex` has zeros there.

    On a CPU, elements of tiles that no output needs may be copies of what nobody wrote, of which
    verify asks nothing; the outputs have to be the same whatever that is.
    """
    made = []
    for fill in (poison, lambda t: 1):
        found = case.blank()
        with patch("tilewright.runtime.sim.memory.poison", fill):
            findings = simulate(module, case.call(found)).findings
        if not findings:
            return True
        if module.target.is_gpu or any(f.kind != "uninitialised read" for f in findings):
            return False
        made.append([a.tobytes() for a in found])
    return made[0] == made[1]


def _doubted(cases: Sequence[Case], module: Module, error: VerificationError) -> Outcome:
    """Whether what verify refuses is wrong indeed, as sim has it."""
    text = str(error)
    if "where the target allows" in text:
        return Outcome("refused", text)
    for case in cases if module.target.is_gpu else ():
        found = case.blank()
        report = simulate(module, case.call(found))
        wrong = str(report.findings[0]) if report.findings else case.differs(found)
        if wrong:
            return Outcome("unproved", f"{text}\n{wrong}")
    return Outcome("doubted", text)
