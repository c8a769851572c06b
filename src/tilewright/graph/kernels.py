"""The kernels of a graph: each problem once, built side by side where there are many to build."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from tilewright.graph.batches import Work
from tilewright.ir.errors import TilewrightError
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.progress import Progress, shown
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi.batch import Batch
from tilewright.topi.problem import Problem

#: Seconds of this thread's work after which processes beside this one are worth starting, and
#: kernels for them.
_PATIENCE, _FEW = 1.0, 8

#: Of which problems there is no kernel for any batch, where there is one for theirs.
_REFUSED: set[tuple[Problem, Batch, Target]] = set()


class Built(NamedTuple):
    """A kernel, and the counts that its launch is given: of a batch, where it is for any; and the
    name that it has in a saved model."""

    kernel: Kernel
    counts: tuple[int, ...] = ()
    name: str = ""


def build_all(
    works: Sequence[Work],
    target: Target,
    progress: Progress | None = None,
    saved: Mapping[str, Kernel] = MappingProxyType({}),
) -> dict[str, Built]:
    """The kernels of all work, by the keys of its problems, those of a ``saved`` model by their
    names first; raises :class:`SelectError` for one without. ``progress`` as for :func:`shown`."""
    unique = {w.problem.key: w for w in works}
    found = {
        key: Built(saved[name], counts, name)
        for key, work in unique.items()
        for name, counts in reversed(_names(work))
        if name in saved
    }
    for key in found:
        del unique[key]
    with shown(progress) as told:
        _add(found, unique, target, told)
    return found


def _add(
    found: dict[str, Built], unique: Mapping[str, Work], target: Target, progress: Progress
) -> None:
    """Build the kernels of work, by the keys of its problems."""
    begin, alone = time.thread_time(), True
    for key, work in unique.items():
        rest = [w for k, w in unique.items() if k not in found]
        # Those that the cache has take milliseconds each; others are built by all cores.
        if alone and len(rest) >= _FEW and time.thread_time() - begin > _PATIENCE:
            from tilewright.select.ahead import Wanted, compile_ahead  # a warm start needs neither

            alone = False
            done = len(unique) - len(rest)

            def finished(_: Wanted) -> None:
                nonlocal done
                done += 1
                progress(done, len(unique))

            wanted = [
                Wanted(w.problem, target)
                if w.expected is None
                else Wanted(w.expected[0], target, w.expected[1])
                for w in rest
            ]
            compile_ahead(wanted, "heuristic", finished, ours=True)
        found[key] = _build(work, target)
        if alone:
            progress(len(unique) - len(rest) + 1, len(unique))
    if not alone:  # two may have been one kernel
        progress(len(unique), len(unique))


def _names(work: Work) -> list[tuple[str, tuple[int, ...]]]:
    """What kernels that can do some work are called, and with what counts: the best first."""
    own: list[tuple[str, tuple[int, ...]]] = [(work.problem.key, ())]
    if work.expected is None:
        return own
    problem, batch = work.expected
    return [(f"{problem.key} for any {batch}", work.counts), *own]


def _build(work: Work, target: Target) -> Built:
    (name, counts), *own = _names(work)
    refused = None
    if work.expected is not None and (key := (*work.expected, target)) not in _REFUSED:
        problem, batch = work.expected
        try:
            if (found := chosen_kernel(problem, target, batch)) is not None:
                return Built(found, counts, name)
        except TilewrightError:
            refused = key
    made = chosen_kernel(work.problem, target)
    if made is None:
        from tilewright.select import SelectError, reason

        raise SelectError(reason(work.problem, target))
    if refused is not None:  # by what it is, and not for want of a library, a device or memory
        _REFUSED.add(refused)
    return Built(made, (), own[0][0] if own else name)
