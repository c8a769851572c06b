"""A program's reductions, and what stands between them, of which nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.expr import Reduce
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage, create_schedule
from tilewright.te import ComputeOp, Tensor
from tilewright.te.operation import Operation
from tilewright.topi.reduction import STORED


@dataclass(frozen=True)
class Sums:
    """A schedule whose element-wise stages are inlined.

    Attributes
    ----------
    before : reductions that other reductions read, in the order of the program, and what is tagged
        so: each is stored.
    last : the reduction that ``output`` is made of element by element, in registers; None where
        there is none, or several.
    """

    schedule: Schedule
    output: Tensor
    before: tuple[Tensor, ...]
    last: Tensor | None


def inline(output: Tensor) -> Sums:
    """The schedule of a program that ends in ``output``, its element-wise stages inlined."""
    s = create_schedule(output.op)
    found = [x.op.outputs[0] for x in s.stages if stored(x.op, output)]
    for stage in s.stages:
        inner = isinstance(stage.op, ComputeOp) and not stored(stage.op, output)
        if inner and stage.op is not output.op:
            stage.compute_inline()
    read = {t for x in found for t in _reductions(x, found)}
    rest = [t for t in found if t not in read]
    last = rest[0] if len(rest) == 1 else None
    if last is output:
        last = s.cache_write(output, "local")
    elif last is not None and last.shape != output.shape:
        last = None  # each element is read by several of the output's
    before = tuple(t for t in found if t not in (last, output) and not (last and t is rest[0]))
    return Sums(s, output, before, last)


def reduce_in_lanes(
    s: Schedule, tensor: Tensor, axis: IterVar, lanes: int, into: Stage, at: IterVar
) -> None:
    """Reduce over ``axis``, all that a tensor is reduced over, in vectors: each of some ``lanes``
    has its part, and halves of these come together in vectors, too, one waiting for the other as
    often as they are halved. Vectors are computed at an axis of the stage ``into``."""
    stage = s[tensor]
    parts: list[Stage] = []
    while not parts or (lanes > 2 and lanes % 2 == 0):
        lanes = lanes // 2 if parts else lanes
        _, lane = stage.split(axis, factor=lanes)
        parts.append(s[s.rfactor(tensor, lane, tensor.ndim)])
        (axis,) = stage.op.reduce_axis
    stage.unroll(axis)
    for part in parts:
        part.set_scope("local")
        part.compute_at(into, at)
        *before, lane = part.op.axis
        part.reorder(*before, *part.op.reduce_axis, lane)
        part.vectorize(lane)
    for part in parts[1:]:
        part.unroll(*part.op.reduce_axis)


def reduces(op: ComputeOp) -> bool:
    """Whether an operation reduces."""
    return isinstance(op.body[0], Reduce)


def stored(op: Operation, output: Tensor) -> bool:
    """Whether an operation is computed once, for all that read it; an output has no readers."""
    if not isinstance(op, ComputeOp):
        return False
    return reduces(op) or (op.tag == STORED and op is not output.op)


def _reductions(x: Tensor, known: list[Tensor]) -> set[Tensor]:
    """The reductions that one reads, through element-wise stages or not."""
    found: set[Tensor] = set()
    waiting = list(x.op.inputs)
    while waiting:
        t = waiting.pop()
        if t in known:
            found.add(t)
        else:
            waiting += t.op.inputs
    return found
