"""What tests of single programs that were found wrong share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.drawn_programs import Case, judge

from tilewright import te
from tilewright.ir.expr import Var
from tilewright.schedule import Schedule
from tilewright.te import Tensor

ARGMAX = te.comm_reducer(
    lambda a, b: (
        te.if_then_else(te.any(a[1] > b[1], te.all(a[1].equal(b[1]), a[0] <= b[0])), a[0], b[0]),
        te.max(a[1], b[1]),
    ),
    lambda t0, t1: (te.const(2**30, t0), te.min_value(t1)),
    name="argmax",
)


def agree(
    s: Schedule,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    target: str,
    sizes: Mapping[Var, int] | None = None,
) -> None:
    """The schedule is proved right and computes, bit for bit, what is declared."""
    found = judge(Case(inputs, outputs, sizes), s, target)
    assert found.kind == "right", found
