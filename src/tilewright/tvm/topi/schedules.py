"""``generic.schedule_*`` and those of x86, cuda and others: one choice for every operator."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import IntImm
from tilewright.ir.visit import exprs
from tilewright.schedule import Schedule, create_schedule
from tilewright.target import Target, current_target
from tilewright.te import ComputeOp, ExternOp, IterVar, PlaceholderOp, Tensor, thread_axis

#: Threads of a block, and lanes of a vector.
_THREADS, _LANES = 256, 16


def schedule_any(outs: Any, *_: Any, **__: Any) -> Schedule:
    """A schedule of ``outs`` for the target of the enclosing ``with``, "llvm" without one: what
    moves or maps elements is computed where it is read, and other stages each in a nest of its own,
    on all cores or threads."""
    given = list(outs) if isinstance(outs, (list, tuple)) else [outs]
    tensors = [t for t in given if isinstance(t, Tensor) and not isinstance(t.op, PlaceholderOp)]
    s = create_schedule([t.op for t in tensors])
    read = {t.op for stage in s.stages if isinstance(stage.op, ExternOp) for t in stage.op.inputs}
    target = current_target() or Target.parse("llvm")
    for stage in s.stages:
        op = stage.op
        if not isinstance(op, ComputeOp):
            continue
        light = op.tag.split(",")[0] in ("elemwise", "broadcast", "injective")
        kept = op in s.outputs or op in read
        if light and not kept and not op.reduce_axis and len(op.outputs) == 1:
            stage.compute_inline()
            continue
        if target.is_gpu:
            _on_threads(stage, op)
        elif op.axis:
            _on_cores(stage, op)
    return s


def _extent(axis: IterVar) -> int:
    found = axis.dom.extent if axis.dom is not None else None
    return found.value if isinstance(found, IntImm) else 0


def _on_cores(stage: Any, op: ComputeOp) -> None:
    last = op.axis[-1]
    if _extent(last) % _LANES == 0 and _extent(last) and len(op.axis) > 1 and not _depend(op):
        _, inner = stage.split(last, factor=_LANES)
        if op.reduce_axis:
            stage.reorder(*op.reduce_axis, inner)
        stage.vectorize(inner)
    if len(op.axis) > 1 and _extent(op.axis[0]) != 1:
        stage.parallel(op.axis[0])


def _depend(op: ComputeOp) -> bool:
    """Whether how much is summed depends on the element."""
    own = {axis.var for axis in op.axis}
    domains = [axis.dom for axis in op.reduce_axis if axis.dom is not None]
    return any(node in own for dom in domains for node in exprs(dom.extent))


def _on_threads(stage: Any, op: ComputeOp) -> None:
    whole = stage.fuse(*op.axis)
    block, thread = stage.split(whole, factor=_THREADS)
    stage.bind(block, thread_axis("blockIdx.x"))
    stage.bind(thread, thread_axis("threadIdx.x"))
