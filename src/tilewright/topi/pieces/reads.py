"""What the stages of a program read of one another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.ir.expr import Expr, IntImm, Load
from tilewright.ir.ops import is_const
from tilewright.ir.visit import walk
from tilewright.te import ComputeOp, Tensor
from tilewright.te.operation import Operation
from tilewright.topi.nn.padding import static
from tilewright.topi.pieces.counts import declared, elements
from tilewright.topi.pieces.sums import reduces
from tilewright.topi.problem import Problem


def computed(output: Tensor) -> Iterator[ComputeOp]:
    """Each operation that computes, once."""
    waiting, seen = [output.op], {output.op}
    while waiting:
        op = waiting.pop()
        if isinstance(op, ComputeOp):
            yield op
            new = {t.op for t in op.inputs} - seen
            waiting += new
            seen |= new


def above(tensors: list[Tensor]) -> set[Tensor]:
    """Tensors, and all that they are made of."""
    found, waiting = set(tensors), list(tensors)
    while waiting:
        new = set(waiting.pop().op.inputs) - found
        found |= new
        waiting += new
    return found


def loads(op: ComputeOp) -> Iterator[Load]:
    return (e for body in op.body for e in walk(body) if isinstance(e, Load))


def extent(axis: Any) -> Any:
    fixed = axis.dom is not None and is_const(axis.dom.min, 0)
    return axis.dom.extent.value if fixed and isinstance(axis.dom.extent, IntImm) else None


def is_own(op: ComputeOp, x: Load, rank: int | None = None, behind: bool = False) -> bool:
    """Whether an operation reads an element that stands where its own does, or, of a reduction,
    where its axes stand behind ``rank`` others. A tensor of fewer dimensions has the first of
    these, or those ``behind``."""
    rank = len(op.axis) if rank is None else rank
    inner = op.reduce_axis if reduces(op) else op.axis[rank:]
    own: list[Expr] = [a.var for a in (*op.axis[:rank], *inner)]
    skipped = len(own) - len(x.indices)
    return skipped >= 0 and all(
        i is v or (is_const(i, 0) and is_const(extent, 1))
        for i, v, extent in zip(
            x.indices, own[skipped if behind else 0 :], x.buffer.shape, strict=False
        )
    )


def windows_of(op: Operation) -> Tensor | None:
    """What a reduction reads in windows of several dimensions that overlap along the last dimension
    but one, the last its own; None of others."""
    if not isinstance(op, ComputeOp) or not reduces(op):
        return None
    if len(op.reduce_axis) < 2 or len(op.inputs) != 1 or len(op.axis) < 3:
        return None
    (x,) = op.inputs
    *_, along, last = op.axis
    taps, count = extent(op.reduce_axis[-1]), extent(along)
    if x.ndim != len(op.axis) or None in (taps, count, extent_of(x)):
        return None
    slides = all(
        i.indices[-1] is last.var
        and {along.var, op.reduce_axis[-1].var} <= set(walk(i.indices[-2]))
        for i in loads(op)
    )
    return x if slides and extent_of(x) < taps * count else None


def extent_of(x: Tensor) -> int | None:
    """Of the last dimension but one, where that is known."""
    found = x.shape[-2]
    return found.value if isinstance(found, IntImm) else found if isinstance(found, int) else None


def most_elements(p: Problem, wide: int) -> tuple[int, ...]:
    """The shape of the result, or, where its rows are no vectors, of the reduction before it that
    has the most elements."""
    if not p.result.shape or p.result.shape[-1] >= wide:
        return p.result.shape
    d = declared(p)
    made = [op.output(0) for op in computed(d.output) if reduces(op)]
    largest = max((d.output, *made), key=elements)
    return tuple(static(e, "a tensor") for e in largest.shape)
