"""The kernels of a graph: each problem once, built side by side where there are many to build."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tilewright.runtime.kernel import Kernel
from tilewright.select import SelectError, reason
from tilewright.select.ahead import Wanted, compile_ahead
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi.problem import Problem

#: Seconds after which processes beside this one are worth starting, and kernels for them.
_PATIENCE, _FEW = 1.0, 8

Progress = Callable[[int, int], None]


def build_all(
    problems: Sequence[Problem], target: Target, progress: Progress | None = None
) -> dict[str, Kernel]:
    """The kernels of problems, by their keys; raises :class:`SelectError` for one without."""
    unique = {p.key: p for p in problems}
    found: dict[str, Kernel] = {}
    begin, alone = time.perf_counter(), True
    for key, problem in unique.items():
        rest = [p for k, p in unique.items() if k not in found]
        # Those that the cache has take milliseconds each; others are built by all cores.
        if alone and len(rest) >= _FEW and time.perf_counter() - begin > _PATIENCE:
            alone = False
            done = len(found)

            def told(_: Wanted) -> None:
                nonlocal done
                done += 1
                if progress is not None:
                    progress(done, len(unique))

            compile_ahead([Wanted(p, target, False) for p in rest], "heuristic", told)
        found[key] = _build(problem, target)
        if alone and progress is not None:
            progress(len(found), len(unique))
    return found


def _build(problem: Problem, target: Target) -> Kernel:
    made = chosen_kernel(problem, target)
    if made is None:
        raise SelectError(reason(problem, target))
    return made
