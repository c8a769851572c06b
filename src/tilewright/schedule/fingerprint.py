"""The fingerprint of a schedule: equal for schedules that lower to the same program.

Compiled kernels are kept under it, so that a process that schedules the same program again neither
lowers, nor proves, nor compiles. Variables and buffers are numbered in the order in which they are
met, so that it does not depend on the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, FloatImm, Reducer, Var
from tilewright.ir.itervar import IterVar
from tilewright.ir.stmt import Access, Stmt
from tilewright.schedule.relations import Fuse, Single, Split
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.stage import Stage
from tilewright.target.instruction import Instruction
from tilewright.te.operation import ComputeOp, ExternOp
from tilewright.te.tensor import Tensor


def fingerprint(schedule: Schedule, args: Sequence[Any], extra: str = "") -> str:
    """Hex digits that name what ``schedule`` computes over ``args``, and how."""
    writer = _Writer()
    parts = [
        extra,
        writer.text(tuple(args)),
        writer.text(tuple(t for op in schedule.outputs for t in op.outputs)),
    ]
    parts += (writer.stage(s) for s in schedule.stages)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class _Writer:
    def __init__(self) -> None:
        self.numbers: dict[object, int] = {}
        self.memo: dict[Expr, str] = {}

    def _number(self, thing: object) -> tuple[int, bool]:
        new = thing not in self.numbers
        return self.numbers.setdefault(thing, len(self.numbers)), new

    def text(self, value: Any) -> str:
        """``value`` as text that holds all that matters of it."""
        match value:
            case Var():
                number, new = self._number(value)
                limit = "" if value.most is None else f"<={value.most}"
                return f"v{number}:{value.dtype}:{value.name}{limit}" if new else f"v{number}"
            case Buffer():
                number, new = self._number(value)
                if not new:
                    return f"b{number}"
                layout = value.layout
                where = (
                    ""
                    if layout is None
                    else self.texts((layout.strides, layout.base, layout.swizzle))
                )
                shape = self.text(value.shape)
                return (
                    f"b{number}:{value.name}:{value.dtype}{shape}{value.scope}{value.align}{where}"
                )
            case IterVar():
                dom = "" if value.dom is None else self.texts((value.dom.min, value.dom.extent))
                return f"a{self.text(value.var)}{value.kind}{value.tag}{dom}"
            case Tensor():
                return self.text(value.buffer)
            case FloatImm(t, number):
                return f"{t}{float(number).hex()}"
            case Reducer() | Stmt() | Access():
                return self._node(value)
            case Expr():
                if value not in self.memo:
                    first = self._node(value)  # numbers what is new; later texts do not repeat it
                    self.memo[value] = f"e{len(self.memo)}"
                    return first
                return self.memo[value]
            case Instruction():
                operands = self.texts(tuple(value.buffers))
                return f"i{value.name}{operands}{self.text(value.update)}"
            case tuple() | list():
                return self.texts(value)
            case dict():
                return self.texts(tuple(value.items()))
        return repr(value)

    def texts(self, values: Iterable[Any]) -> str:
        return f"({','.join(self.text(v) for v in values)})"

    def _node(self, node: Any) -> str:
        names = getattr(node, "__match_args__", ())
        return f"{type(node).__name__}{self.texts(getattr(node, n) for n in names)}"

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
            (stage.rolling, stage.ahead),
            stage.swizzled,
            stage.alignments,
            stage.bounds_alignments,
        ]
        for axis, mark in stage.marks.items():
            thread = () if mark.thread is None else mark.thread
            instruction = () if mark.instruction is None else mark.instruction
            parts.append((axis, mark.kind.value, thread, mark.pragmas, instruction))
            parts.append(tuple(mark.prefetches))
        return self.texts(parts)


def _relation(relation: Split | Fuse | Single) -> tuple[Any, ...]:
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
