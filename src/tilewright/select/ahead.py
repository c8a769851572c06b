"""Kernels that are compiled ahead, side by side: processes beside this one put them into the cache.

Compiling is Python's work for the most part, and a process does one such task at a time.
"""

from __future__ import annotations

import queue
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tilewright.runtime import cache_folder
from tilewright.runtime.kernel import Kernel
from tilewright.select.algorithm import Scheduled
from tilewright.select.choice import Choice, SelectError, options
from tilewright.select.first_buildable import first_buildable, spills_of
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi.batch import Batch
from tilewright.topi.problem import Problem
from tilewright.tune.process import Worker, WorkerDied, WorkerTimeout
from tilewright.tune.worker import serve

#: Seconds that one kernel may take.
_MOST = 600.0
_HELLO = {"do": "nothing"}


@dataclass(frozen=True)
class Wanted:
    """A kernel that is wanted: for one problem, or for all counts of a ``batch``."""

    problem: Problem
    target: Target
    batch: Batch | None = None
    strides: tuple[int, ...] | None = None


def compile_ahead(
    wanted: Sequence[Wanted], policy: str, done: Callable[[Wanted], None], processes: int = 0,
    ours: bool = False,
) -> int:  # fmt: skip
    """Put the kernels that are chosen by ``policy`` into the cache, and say by how many processes.
    With ``ours`` they are those of :func:`~tilewright.select.remembered.chosen_kernel`, which then
    finds them by their problems.

    ``done`` is called in this thread as each is finished, also where it could not be built: that is
    found again, and said, where it is asked for. ``processes`` are as many as there are cores by
    default. Nothing is done, and 0 returned, where nothing is cached or one process would do it.
    """
    from tilewright.runtime.llvm_host import available_cores

    count = min(len(wanted), processes or available_cores())
    if cache_folder.folder() is None or count < 2:
        return 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(count) as pool:
        workers = [Worker(Path(folder, f"{k}.log"), _HELLO, module=__name__) for k in range(count)]
        free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in workers:
            free.put(worker)

        def one(kernel: Wanted) -> Wanted:
            worker = free.get()
            try:
                worker.call(_request(kernel, policy, ours), _MOST)
            except (WorkerDied, WorkerTimeout):
                pass  # the caller builds it, and meets what is wrong
            finally:
                free.put(worker)
            return kernel

        try:
            # Those with most work first: they take longest.
            order = sorted(wanted, key=lambda x: -x.problem.flops)
            for found in as_completed([pool.submit(one, x) for x in order]):
                done(found.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.close()
    return count


def build_chosen(
    problem: Problem,
    target: Target,
    policy: str,
    batch: Batch | None = None,
    strides: tuple[int, ...] | None = None,
    ours: bool = False,
) -> tuple[Kernel, Choice] | None:
    """The kernel of the first choice that can be built, for all counts of a ``batch`` if there is
    one, for a first operand of such strides; None where there are none.

    Raises :class:`NotOurs` where that is another library's, unless only ``ours`` are asked for.
    """

    def build(choice: Choice) -> Kernel:
        if not isinstance(choice.algorithm, Scheduled):
            raise NotOurs(choice)
        return choice.algorithm.kernel(problem, choice.config, choice.target, batch, strides)

    choices = options(problem, target, policy)
    own = (c for c in choices if not c.algorithm.vendor) if ours else choices
    return first_buildable(own, build, spills_of)


class NotOurs(Exception):
    """The choice is another library's kernel."""

    def __init__(self, choice: Choice) -> None:
        super().__init__(str(choice))
        self.choice = choice


def _request(kernel: Wanted, policy: str, ours: bool) -> dict[str, Any]:
    return {
        "do": "kernel", "problem": kernel.problem.to_dict(), "target": str(kernel.target),
        "policy": policy, "batch": None if kernel.batch is None else asdict(kernel.batch),
        "strides": kernel.strides, "ours": ours,
    }  # fmt: skip


def _kernel(
    problem: dict[str, Any], target: str, policy: str, batch: dict[str, Any] | None,
    strides: list[int] | None, ours: bool,
) -> dict[str, Any]:  # fmt: skip
    """In a process of its own: build a kernel, for the cache."""
    lies = None if strides is None else tuple(strides)
    free = None if batch is None else Batch(batch["count"], tuple(batch["inputs"]))
    known, machine = Problem.from_dict(problem), Target.parse(target)
    try:
        if ours:
            chosen_kernel(known, machine, free)
        else:
            build_chosen(known, machine, policy, free, lies)
    except (NotOurs, SelectError) as reason:
        return {"reason": str(reason)}
    return {}


def _nothing() -> dict[str, Any]:
    return {}


def main() -> None:
    """What such a process does."""
    serve({"nothing": _nothing, "kernel": _kernel})
