"""What can do a problem: a schedule of the library, or a kernel of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from tilewright.runtime.kernel import Kernel
from tilewright.runtime.signature import evaluate
from tilewright.target import Target
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
    name : as it stands in records, "cpu.lines".
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

    def candidates(self, problem: Problem, target: Target) -> list[Any]:
        """The parameters worth trying, the best guess first; at least one."""

    def build(self, problem: Problem, config: Any, target: Target) -> Built:
        """Something to call; raises :class:`TilewrightError` where it cannot be built."""

    def workspace(self, problem: Problem, config: Any, target: Target) -> int:
        """Bytes of memory that a call takes beside its arrays."""

    def to_values(self, config: Any) -> dict[str, Any]:
        """Parameters as records have them."""

    def parse(self, values: Mapping[str, Any]) -> Any:
        """Their inverse; raises :class:`TilewrightError` for strange ones."""


def most_batch(problem: Problem) -> int:
    """The largest batch in which all offsets are below 2^31, so that 32 bits count them; or any."""
    (h, w), (oh, ow) = problem.image, problem.out_image
    top, left, bottom, right = problem.padding
    padded = (h + top + bottom) * (w + left + right)
    room = max(problem.channels * padded, problem.out_channels * oh * ow)
    return (2**31 - 1) // room or 2**31 - 1


class BuiltKernel:
    """A kernel with the time that it takes."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, *args: Any) -> None:
        self.kernel(*args)

    def seconds(self, arrays: Sequence[Any]) -> float:
        return self.kernel.time(*arrays, repeat=7).median


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
        t = self.template
        if target.is_gpu != t.gpu:
            return f"{t.name} is for {'GPUs' if t.gpu else 'CPUs'}"
        if problem.layout.endswith("C") != t.channels_last:
            return f"{t.name} is for channels {'last' if t.channels_last else 'first'}"
        if problem.pass_ not in t.passes:
            return f"{t.name} has no {problem.pass_}"
        return "" if t.fits(problem, target) else f"{t.name} is for other problems"

    def candidates(self, problem: Problem, target: Target) -> list[Any]:
        return self.template.candidates(problem, target)

    def kernel(
        self, problem: Problem, config: Any, target: Target, symbolic_batch: bool = False
    ) -> Kernel:
        """The kernel; with ``symbolic_batch`` it takes any batch up to :func:`most_batch`."""
        from tilewright import te
        from tilewright.runtime.compile import build

        batch = te.var("n", most=most_batch(problem)) if symbolic_batch else None
        found = self.template.declare(problem, config, batch)
        return build(self.template.schedule(found, config), found.args, target)

    def build(self, problem: Problem, config: Any, target: Target) -> BuiltKernel:
        return BuiltKernel(self.kernel(problem, config, target))

    def workspace(self, problem: Problem, config: Any, target: Target) -> int:
        module = self.kernel(problem, config, target).program.module
        return sum(evaluate(w.size, {}) * w.dtype.bytes for w in module.workspaces)

    def to_values(self, config: Any) -> dict[str, Any]:
        return asdict(config)

    def parse(self, values: Mapping[str, Any]) -> Any:
        return self.template.parse(values)
