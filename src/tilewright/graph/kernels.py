"""The kernels of a graph: each problem once, built side by side where there are many to build."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.graph.batches import Work
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.kernel import Kernel
from tilewright.select import SelectError, reason
from tilewright.select.ahead import Wanted, compile_ahead
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi.batch import Batch
from tilewright.topi.problem import Problem

#: Seconds after which processes beside this one are worth starting, and kernels for them.
_PATIENCE, _FEW = 1.0, 8

Progress = Callable[[int, int], None]

#: Of which problems there is no kernel for any batch.
_REFUSED: set[tuple[Problem, Batch, Target]] = set()


class Built(NamedTuple):
    """A kernel, and the counts that its launch is given: of a batch, where it is for any."""

    kernel: Kernel
    counts: tuple[int, ...] = ()


def build_all(
    works: Sequence[Work], target: Target, progress: Progress | None = None
) -> dict[str, Built]:
    """The kernels of all work, by the keys of its problems; raises :class:`SelectError` for one
    without."""
    unique = {w.problem.key: w for w in works}
    found: dict[str, Built] = {}
    begin, alone = time.perf_counter(), True
    for key, work in unique.items():
        rest = [w for k, w in unique.items() if k not in found]
        # Those that the cache has take milliseconds each; others are built by all cores.
        if alone and len(rest) >= _FEW and time.perf_counter() - begin > _PATIENCE:
            alone = False
            done = len(found)

            def told(_: Wanted) -> None:
                nonlocal done
                done += 1
                if progress is not None:
                    progress(done, len(unique))

            wanted = [
                Wanted(w.problem, target)
                if w.expected is None
                else Wanted(w.expected[0], target, w.expected[1])
                for w in rest
            ]
            compile_ahead(wanted, "heuristic", told)
        found[key] = _build(work, target)
        if alone and progress is not None:
            progress(len(found), len(unique))
    return found


def _build(work: Work, target: Target) -> Built:
    if work.expected is not None:
        found = _of_any_batch(*work.expected, target)
        if found is not None:
            return Built(found, work.counts)
    made = chosen_kernel(work.problem, target)
    if made is None:
        raise SelectError(reason(work.problem, target))
    return Built(made)


def _of_any_batch(problem: Problem, batch: Batch, target: Target) -> Kernel | None:
    """None where no choice has one, which is found once."""
    key = problem, batch, target
    if key in _REFUSED:
        return None
    try:
        return chosen_kernel(problem, target, batch)
    except TilewrightError:
        _REFUSED.add(key)
        return None
