"""Models as sources that need nothing of Tilewright's: :mod:`tilewright.runtime.export`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tilewright.graph.errors import ModelError
from tilewright.graph.executor import Executor
from tilewright.graph.memory import slots
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Constant
from tilewright.ir.errors import TargetError
from tilewright.runtime.export import Named, Step, Work, write


def export(
    executors: Executor | Mapping[int, Executor], folder: Path, name: str | None = None
) -> list[Path]:
    """Write what an executor runs, or several by their batches, into ``folder``, which is made; the
    files, the header first. One for a GPU is ``abroad``: the program that is written prepares
    constants.

    Functions begin with ``name``, by default the folder's. Raises :class:`ModelError` for sim, for
    outputs that are constants, and for kernels of instructions that C has no words for, and what
    :func:`tilewright.runtime.export.write` does.
    """
    each = {0: executors} if isinstance(executors, Executor) else executors
    try:
        return write([_work(x, batch) for batch, x in each.items()], folder, name)
    except TargetError as error:
        raise ModelError(str(error)) from None


def _work(executor: Executor, batch: int) -> Work:
    graph, index = executor.graph, executor.index
    fixed = [n for n, x in graph.outputs.items() if isinstance(owner(x), Constant)]
    if fixed:
        raise ModelError(
            f"{', '.join(fixed)} of {graph.name} is a constant, which no kernel writes: "
            "leave it out of the model's outputs, and give inputs that have elements"
        )
    outputs = graph.outputs.items()
    return Work(
        graph.name,
        executor.target,
        tuple(Named(x.name, index[x], x.type) for x in graph.inputs),
        tuple(Named(n, index[owner(x)], x.type) for n, x in outputs),
        _steps(executor),
        executor.constants,
        executor.known.ahead,
        executor.plan.offsets,
        executor.plan.nbytes,
        slots(executor.lifetimes),
        batch,
    )


def _steps(executor: Executor) -> tuple[Step, ...]:
    beside = executor.branches
    event = {k: 1 + n for n, k in enumerate(sorted(beside.awaited))} if beside is not None else {}
    found = []
    for k, s in enumerate(executor.steps):
        step = Step(s.kernel, s.arguments, s.offsets, s.types, s.counts, s.node.operator)
        if beside is not None:
            awaited = beside.waits[k]
            waits = 0 if awaited is None else event[awaited]
            step = step._replace(stream=beside.streams[k], waits=waits, marks=event.get(k, 0))
        found.append(step)
    return tuple(found)
