"""What can do a problem: a schedule of the library, or a kernel of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tilewright.ir.errors import ScheduleError
from tilewright.ir.expr import Var
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.signature import evaluate
from tilewright.target import Target
from tilewright.topi.batch import Batch
from tilewright.topi.declare import Given
from tilewright.topi.declared import Declared
from tilewright.topi.problem import Problem
from tilewright.topi.template import Template


class Built(Protocol):
    """What an algorithm builds: called with the arrays of the problem's declaration."""

    def __call__(self, *args: Any) -> None: ...

    def seconds(self, arrays: Sequence[Any]) -> float:
        """Time a run, the median of many; the last array is written."""


class Algorithm(Protocol):
    """One way to do problems.

    Attributes
    ----------
    name : as in records, "cpu.lines".
    version : what its speed depends on beside this library; measurements of another version do not
        count.
    reproducible : whether two runs agree bit for bit.
    vendor : whether it is another library's, and taken only where it was measured to be faster.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def reproducible(self) -> bool: ...

    @property
    def vendor(self) -> bool: ...

    def can(self, problem: Problem, target: Target) -> str:
        """Why it cannot do a problem on a target; empty where it can."""

    def candidates(self, problem: Problem, target: Target) -> Sequence[Any]:
        """The parameters worth trying, the best guess first; at least one."""

    def build(self, problem: Problem, config: Any, target: Target) -> Built:
        """Something to call; raises :class:`TilewrightError` where it cannot be built."""

    def workspace(self, problem: Problem, config: Any, target: Target) -> int:
        """Bytes of memory that a call takes beside its arrays."""

    def to_values(self, config: Any) -> dict[str, Any]:
        """Parameters as records have them."""

    def parse(self, values: Mapping[str, Any]) -> Any:
        """Their inverse; raises :class:`TilewrightError` for strange ones."""


class BuiltKernel:
    """A kernel with the time that it takes."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, *args: Any) -> None:
        self.kernel(*self.kernel.prepared(args))

    def seconds(self, arrays: Sequence[Any]) -> float:
        return self.kernel.time(*self.kernel.prepared(arrays), repeat=7).median


@dataclass(frozen=True)
class Scheduled:
    """A template of :mod:`tilewright.topi.templates`; all of these are reproducible."""

    template: Template

    @property
    def name(self) -> str:
        return self.template.name

    @property
    def version(self) -> str:
        return ""

    @property
    def reproducible(self) -> bool:
        return True

    @property
    def vendor(self) -> bool:
        return False

    def can(self, problem: Problem, target: Target) -> str:
        return self.template.why_not(problem, target)

    def candidates(self, problem: Problem, target: Target) -> Sequence[Any]:
        return self.template.candidates(problem, target)

    def kernel(
        self,
        problem: Problem,
        config: Any,
        target: Target,
        batch: Batch | None = None,
        strides: tuple[int, ...] | None = None,
    ) -> Kernel:
        """The kernel; with a ``batch`` it takes any count of it up to the problem's ``most_of``,
        and with ``strides`` (in elements, in the order of the layout) a first operand that lies so.

        Raises :class:`ScheduleError` where the program is not that of other counts.
        """
        from tilewright import te
        from tilewright.runtime.compile import build

        count = te.var("n", most=problem.most_of(batch)) if batch is not None else None
        given = None if count is None and strides is None else Given(count, strides, batch)
        found = self.template.declare(problem, config, given)
        if batch is not None and count is not None:
            _check_counts(problem, batch, found, count)
        constants = [found.inputs[name] for name in problem.constants]
        tensors = {**found.inputs, "result": found.output}
        lies = {tensors[name]: apart for name, apart in problem.strides_of().items()}
        scheduled = self.template.schedule(found, config)
        return build(scheduled, found.args, target, constants=constants, strides=lies)

    def build(self, problem: Problem, config: Any, target: Target) -> BuiltKernel:
        return BuiltKernel(self.kernel(problem, config, target))

    def workspace(self, problem: Problem, config: Any, target: Target) -> int:
        module = self.kernel(problem, config, target).program.module
        return sum(evaluate(w.size, {}) * w.dtype.bytes for w in module.workspaces)

    def to_values(self, config: Any) -> dict[str, Any]:
        return asdict(config)

    def parse(self, values: Mapping[str, Any]) -> Any:
        return self.template.parse(values)


def _check_counts(p: Problem, batch: Batch, found: Declared, count: Var) -> None:
    """That what is declared has the result of a problem of any count: of three."""
    for number in (batch.count, batch.count + 1, 2 * batch.count + 3):
        shape = tuple(evaluate(e, {count.name: number}) for e in found.output.shape)
        if shape != p.at(batch, number).result.shape:
            raise ScheduleError(
                f"{p} has another result of {number} than its program, {shape}",
                mend="Build it for each batch",
            )
