"""Measuring the candidates for the kernels of a model: what ``load_and_run`` calls a fast run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.graph.executor import Executor

#: Layouts that load_and_run is asked for; ours are chosen for the target, whatever is asked for.
LAYOUTS = ("nchw4", "chwn4", "nchw44", "nchw44-dot", "nchw88", "nchw32", "nchw64", "nhwcd4")


def search(
    executor: Executor,
    inputs: dict[str, Any],
    seconds: float | None,
    progress: Callable[[int, int], None],
) -> tuple[int, int]:
    """Measure the candidates of each kernel's problem, that which takes longest first, until the
    ``seconds`` are over; of None to the end. How many are known then, and of how many.

    What was measured is kept, and taken by the next model that is compiled, in this process or
    another; what is known is not measured again. ``progress`` is given the same numbers.
    """
    from tilewright.select import choose

    begin, times = time.perf_counter(), list[float]()
    executor.run(inputs)
    executor.run(inputs, times)
    total: dict[str, float] = {}
    problems = {}
    for step, taken in zip(executor.steps, times, strict=True):
        problem = step.node.problem
        problems[problem.key] = problem
        total[problem.key] = total.get(problem.key, 0.0) + taken
    done = 0
    for key in sorted(total, key=lambda key: -total[key]):
        if seconds is not None and time.perf_counter() - begin > seconds:
            break
        with contextlib.suppress(TilewrightError):  # there is what was chosen without measuring
            choose(problems[key], executor.target, policy="profile")
        done += 1
        progress(done, len(problems))
    return done, len(problems)
