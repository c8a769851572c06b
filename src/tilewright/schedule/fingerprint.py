"""The fingerprint of a schedule: equal for schedules that lower to the same program.

Compiled kernels are kept under it, so that a process that schedules the same program again neither
lowers, nor proves, nor compiles. Variables and buffers are numbered in the order in which they are
met, so that it does not depend on the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, FloatImm, Reducer, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.stmt import Access, Stmt
from tilewright.schedule.relations import Fuse, Pad, Relation, Single, Skew, Split
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.target.instruction import Instruction
from tilewright.te.operation import ComputeOp, ExternOp
from tilewright.te.scan import ScanOp
from tilewright.te.tensor import Tensor


def fingerprint(schedule: Schedule, args: Sequence[Any], extra: str = "") -> str:
    """Hex digits that name what ``schedule`` computes over ``args``, and how."""
    writer = _Writer()
    parts = [
        extra,
        writer.text(schedule.resolved(args)),
        writer.text(tuple(t for op in schedule.outputs for t in op.outputs)),
    ]
    parts += (writer.stage(s) for s in schedule.stages)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class _Written(NamedTuple):
    """Text that stands as it is among what is still to be written."""

    text: str


class _Done(NamedTuple):
    """The end of an expression among what is still to be written."""

    expr: Expr


_COMMA, _CLOSE = _Written(","), _Written(")")


class _Writer:
    def __init__(self) -> None:
        self.numbers: dict[object, int] = {}
        self.memo: dict[Expr, str] = {}

    def _number(self, thing: object) -> tuple[int, bool]:
        new = thing not in self.numbers
        return self.numbers.setdefault(thing, len(self.numbers)), new

    def text(self, value: Any) -> str:
        """``value`` as text that holds all that matters of it."""
        written: list[str] = []
        waiting: list[Any] = [value]  # what is still to be written, the next last
        while waiting:
            item = waiting.pop()
            if isinstance(item, _Written):
                written.append(item.text)
            elif isinstance(item, _Done):  # what was new is numbered; later texts do not repeat it
                self.memo[item.expr] = f"e{len(self.memo)}"
            else:
                self._write(item, written, waiting)
        return "".join(written)

    def _write(self, value: Any, written: list[str], waiting: list[Any]) -> None:
        """Write a value, or its beginning with the rest put before what waits."""
        match value:
            case Var():
                number, new = self._number(value)
                limit = f">={value.least}" if value.least else ""
                limit += "" if value.most is None else f"<={value.most}"
                written.append(
                    f"v{number}:{value.dtype}:{value.name}{limit}" if new else f"v{number}"
                )
            case Buffer():
                number, new = self._number(value)
                if not new:
                    written.append(f"b{number}")
                    return
                layout = value.layout
                where = (
                    ""
                    if layout is None
                    else self.text((layout.strides, layout.base, layout.swizzle))
                )
                shape = self.text(value.shape)
                written.append(
                    f"b{number}:{value.name}:{value.dtype}{shape}{value.scope}{value.align}{where}"
                )
            case IterVar():
                dom = "" if value.dom is None else self.text((value.dom.min, value.dom.extent))
                written.append(f"a{self.text(value.var)}{value.kind}{value.tag}{dom}")
            case Tensor():
                waiting.append(value.buffer)
            case FloatImm(t, number):
                written.append(f"{t}{float(number).hex()}")
            case Reducer() | Stmt() | Access():
                self._node(value, written, waiting)
            case Expr():
                known = self.memo.get(value)
                if known is not None:
                    written.append(known)
                    return
                waiting.append(_Done(value))
                self._node(value, written, waiting)
            case Instruction():
                operands = self.text(tuple(value.buffers))
                written.append(f"i{value.name}{operands}{self.text(value.update)}")
            case tuple() | list():
                self._series(value, written, waiting)
            case dict():
                self._series(tuple(value.items()), written, waiting)
            case _:
                written.append(repr(value))

    def _series(self, values: Sequence[Any], written: list[str], waiting: list[Any]) -> None:
        written.append("(")
        waiting.append(_CLOSE)
        for place in range(len(values) - 1, -1, -1):
            waiting.append(values[place])
            if place:
                waiting.append(_COMMA)

    def _node(self, node: Any, written: list[str], waiting: list[Any]) -> None:
        names = getattr(node, "__match_args__", ())
        written.append(type(node).__name__)
        self._series([getattr(node, n) for n in names], written, waiting)

    def stage(self, stage: Stage) -> str:
        """Everything that a schedule says of one stage."""
        op = stage.op
        body = op.body if isinstance(op, (ComputeOp, ExternOp)) else ()
        at = stage.attachment
        place = "" if at.stage is None else at.stage.schedule.stages.index(at.stage)
        parts: list[Any] = [
            op.name,
            tuple(op.outputs),
            stage.roots,
            body,
            tuple(_relation(r) for r in stage.relations),
            tuple(stage.leaf_iter_vars),
            stage.scope,
            (at.kind, place, () if at.axis is None else at.axis),
            stage.env,
            () if stage.store_predicate is None else stage.store_predicate,
            (stage.pipelined, () if stage.pipelined_over is None else stage.pipelined_over),
            *(("produced",) if stage.produced else ()),
            (stage.rolling, stage.ahead),
            (() if stage.rolls_along is None else stage.rolls_along, stage.beside is None),
            stage.swizzled,
            stage.alignments,
            stage.bounds_alignments,
        ]
        if isinstance(op, ScanOp):  # which tensors are one with which output
            parts.append((op.inits, op.updates, op.states))
        for axis, mark in stage.marks.items():
            thread = () if mark.thread is None else mark.thread
            instruction = () if mark.instruction is None else mark.instruction
            parts.append((axis, mark.kind.value, thread, mark.pragmas, instruction))
            parts.append(tuple(mark.prefetches))
        return self.text(parts)


def _relation(relation: Relation) -> tuple[Any, ...]:
    match relation:
        case Split(parent, outer, inner, factor, nparts):
            return (
                "split",
                parent,
                outer,
                inner,
                () if factor is None else factor,
                () if nparts is None else nparts,
            )
        case Fuse(outer, inner, fused):
            return ("fuse", outer, inner, fused)
        case Single(axis):
            return ("single", axis)
        case Skew(parent, by, child, scale, step, offset):
            return ("skew", parent, by, child, scale, step, offset)
        case Pad(parent, child, whole):
            return ("pad", parent, child, whole)
