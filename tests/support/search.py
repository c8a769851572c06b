"""Many random problems on a target: every failure is kept, none stops the search."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from tests.support.depthwise import TOLERANCE, run
from tests.support.wide_problems import wide_problems

from tilewright.ir.errors import TilewrightError
from tilewright.select.algorithm import Scheduled
from tilewright.select.registry import algorithms, find
from tilewright.target import Target
from tilewright.topi.operators.conv import Conv


@dataclass(frozen=True)
class Failure:
    """What went wrong; prints as the call of :func:`check` that does so again."""

    problem: Conv
    algorithm: str
    config: dict[str, Any]
    target: Target
    what: str

    def __str__(self) -> str:
        return (
            f"# {self.what}\ncheck(Problem.from_json({self.problem.to_json()!r}),\n"
            f"      {self.algorithm!r}, {self.config}, {str(self.target)!r})"
        )


def check(p: Conv, algorithm: str, config: dict[str, Any], target: str | Target) -> None:
    """Build one candidate and compare what it computes of random numbers with float64."""
    machine = Target.parse(target)
    found = find(algorithm)
    assert isinstance(found, Scheduled)
    kernel = found.kernel(p, found.parse(config), machine)
    error = run(p, kernel, device="cuda" if machine.kind == "cuda" else "cpu")
    assert error < TOLERANCE[p.dtype], f"relative error {error:.2g}"


def search(target: str, examples: int, name: str, **fixed: Any) -> None:
    """Check ``examples`` random problems, each with one of all its candidates.

    ``name`` decides which problems these are where the profile asks for the same ones every time;
    ``fixed`` is as for :func:`~tests.support.wide_problems.wide_problems`. Failures are printed as
    they were drawn: shrinking them would compile for minutes.
    """
    machine, failures = of_this_device(target), list[Failure]()
    able = [a for a in algorithms() if isinstance(a, Scheduled)]

    @settings(max_examples=examples, phases=[Phase.generate], database=None)
    @given(st.data())
    def one(data: st.DataObject) -> None:
        if failures and _lost(machine):
            return
        p = data.draw(wide_problems(**fixed))
        choices = [a for a in able if not a.can(p, machine)]
        assert choices, f"there is no schedule for {p}"
        chosen = data.draw(st.sampled_from(choices))
        config = chosen.to_values(data.draw(st.sampled_from(chosen.candidates(p, machine))))
        try:
            check(p, chosen.name, config, machine)
        except Exception as error:
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            failures.append(Failure(p, chosen.name, config, machine, what))

    (seed(name)(one) if settings().derandomize else one)()
    assert not failures, _report(target, failures)


def of_this_device(target: str) -> Target:
    """A target; of CUDA for the architecture of the GPU that is there, without which schedules
    that need a newer one than the oldest are none for a problem."""
    found = Target.parse(target)
    if found.kind != "cuda" or found.arch:
        return found
    from tilewright.runtime.cuda import resolve_arch

    return found.with_arch(resolve_arch(found))


def _lost(target: Target) -> bool:
    """Whether a kernel has broken the device for this process."""
    if target.kind != "cuda":
        return False
    from tilewright.runtime.cuda import synchronize

    try:
        synchronize()
    except TilewrightError:
        return True
    return False


def _report(target: str, failures: Iterable[Failure]) -> str:
    """The smallest first."""
    ordered = sorted(failures, key=lambda f: (f.problem.nominal_flops, str(f)))
    return f"{len(ordered)} failed on {target}:\n" + "\n".join(map(str, ordered))
