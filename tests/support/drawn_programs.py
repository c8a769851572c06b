"""Drawn programs, built for a target and compared with what their declaration means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.support.declared import declared, numpy_type
from tests.support.graphs import Graph

from tilewright.ir.errors import LoweringError, ScheduleError, VerificationError
from tilewright.ir.expr import IntImm, Var
from tilewright.ir.func import Module
from tilewright.lower.pipeline import lower
from tilewright.runtime.build import backend
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.signature import outputs
from tilewright.runtime.sim import SimulationError, simulate
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.te import Tensor
from tilewright.verify import verify

Array = np.ndarray[Any, Any]


@dataclass
class Outcome:
    """What became of a program: "right", "refused", or a way to be wrong.

    "wrong": another result; "missed": verify proved what sim finds a defect in; "unproved": verify
    refused what is wrong indeed; "doubted": verify refused what seems right.
    """

    kind: str
    detail: str = ""


class Case:
    """Declared tensors, integers for the inputs, and what the outputs then are.

    ``sizes`` are the values of symbolic extents.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        sizes: Mapping[Var, int] | None = None,
    ) -> None:
        self.tensors = [*inputs, *outputs]
        self.outputs = list(outputs)
        sizes = sizes or {}
        rng = np.random.default_rng(7)
        self.inputs = []
        for t in inputs:
            shape = [e.value if isinstance(e, IntImm) else sizes[e] for e in t.shape]
            low = 0 if t.dtype.startswith("u") else -4
            self.inputs.append(rng.integers(low, 5, shape).astype(numpy_type(t.dtype)))
        self.expected = declared(outputs, dict(zip(inputs, self.inputs)), sizes)
        self.inputs = [_stored(a, t.dtype) for a, t in zip(self.inputs, inputs)]

    @staticmethod
    def of(graph: Graph) -> Case:
        """Of a drawn graph."""
        names = graph.text.names
        inputs, outputs = [k.name for k in graph.inputs], graph.outputs
        sizes = {names["n"]: graph.n} if graph.n else {}
        return Case([names[k] for k in inputs], [names[k] for k in outputs], sizes)

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
            if not np.array_equal(got, want):
                wrong = np.argwhere(~((got == want) | (np.isnan(want) & np.isnan(got))))
                at = tuple(int(i) for i in wrong[0])
                return (
                    f"{t.name}{list(at)} is {got[at]} and not {want[at]}; "
                    f"{len(wrong)} of {want.size} elements are wrong"
                )
        return ""


def _stored(a: Array, type: str) -> Array:
    """An array as kernels take it: bfloat16 as its bits."""
    return (a.view(np.uint32) >> 16).astype(np.uint16) if type == "bfloat16" else a


def judge(case: Case, s: Schedule, target: str) -> Outcome:
    """Build the schedule with proofs, run it, compare."""
    machine = Target.parse(target)
    try:
        module = lower(s, case.tensors, machine)
    except (LoweringError, ScheduleError) as error:
        return Outcome("refused", str(error))
    try:
        for func in module.funcs:
            verify(func)
    except VerificationError as error:
        return _doubted(case, module, error)
    kernel = Kernel(backend(machine).compile_module(module, machine), outputs(module))
    found = case.blank()
    try:
        kernel(*case.inputs, *found)
    except SimulationError as error:
        return Outcome("missed", str(error))
    wrong = case.differs(found)
    return Outcome("wrong", wrong) if wrong else Outcome("right")


def _doubted(case: Case, module: Module, error: VerificationError) -> Outcome:
    """Whether what verify refuses is wrong indeed, as sim has it."""
    text = str(error)
    if not module.attrs["target"].is_gpu:
        return Outcome("doubted", text)
    found = case.blank()
    report = simulate(module, [*case.inputs, *found])
    if report.findings:
        return Outcome("unproved", f"{text}\n{report.findings[0]}")
    wrong = case.differs(found)
    if wrong:
        return Outcome("unproved", f"{text}\n{wrong}")
    return Outcome("doubted", text)
