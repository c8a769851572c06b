"""Prefetch hints: the address that a later iteration reads, as a call without effect.

``prefetch(A, i, 2)`` on a stage that reads ``A[i * 8 + j]`` in a loop over ``j`` inside ``i`` puts
``T.prefetch(A[min(i * 8 + 16, extent - 1)])`` at the start of the body of ``i``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Call, Expr, Load, Var
from tilewright.ir.ops import add, clip, sub
from tilewright.ir.parts import Part, in_parts
from tilewright.ir.stmt import Evaluate, Stmt, seq
from tilewright.ir.visit import loads, substitute


def prefetch_hint(
    body: Sequence[Expr], buffer: Buffer, var: Var, offset: Expr, start: Mapping[Var, Expr],
    parts: Sequence[Part] = (),
) -> Stmt:  # fmt: skip
    """Hints for every read of ``buffer`` in ``body``, ``offset`` iterations of ``var`` ahead.

    ``start`` gives the loops further in their first value, and ``parts`` what names in ``body``
    stand for, which have no value yet. Where an index is itself read from memory there is no hint:
    ahead of the last iterations that memory may not be there. Nor is there one of an index that is
    large.
    """
    mapping: dict[Var, Expr] = {**start, var: add(var, offset)}
    for name, value in parts:
        mapping[name] = substitute(value, mapping)
    hints: dict[Load, None] = {}
    for expr in body:
        for read in loads(expr):
            if read.buffer is not buffer:
                continue
            indices = tuple(
                clip(substitute(i, mapping), 0, sub(extent, 1))
                for i, extent in zip(read.indices, buffer.shape, strict=True)
            )
            if not any(map(_reads, indices)) and not in_parts(indices)[0]:
                hints[Load(buffer, indices, None)] = None
    return seq(*(Evaluate(Call(dtype("int32"), "prefetch", (hint,))) for hint in hints))


def _reads(index: Expr) -> bool:
    return next(loads(index), None) is not None
