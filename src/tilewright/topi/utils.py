"""Small helpers under the names of TVM's ``topi.utils``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import IntImm
from tilewright.ir.ops import as_expr
from tilewright.schedule import Schedule
from tilewright.te import ComputeOp, Operation


def get_const_int(expr: Any) -> int:
    """An extent as an integer.

    Raises :class:`LanguageError` where it is symbolic.
    """
    found = Analyzer().simplify(as_expr(expr))
    if not isinstance(found, IntImm):
        raise LanguageError(f"{expr!r} is symbolic, and has no value while a program is written")
    return found.value


def get_const_tuple(shape: Sequence[Any]) -> tuple[Any, ...]:
    """A shape with its constant extents as integers; symbolic ones stay expressions."""
    found = (Analyzer().simplify(as_expr(extent)) for extent in shape)
    return tuple(e.value if isinstance(e, IntImm) else e for e in found)


def traverse_inline(
    s: Schedule, final_op: Operation, callback: Callable[[Operation], object]
) -> None:
    """Inline what is elementwise from ``final_op`` up to operations of another kind.

    Elementwise is what carries the tag of an elementwise, broadcasting or injective operator.
    Outputs are not inlined; ``callback`` sees every operation met, inputs first.
    """
    seen: set[Operation] = set()

    def visit(op: Operation) -> None:
        if op in seen or not isinstance(op, ComputeOp):
            return
        seen.add(op)
        if op.tag.split(",")[0] in ("elemwise", "broadcast", "injective"):
            if op not in s.outputs:
                s[op].compute_inline()
            for tensor in op.inputs:
                visit(tensor.op)
        callback(op)

    visit(final_op)
