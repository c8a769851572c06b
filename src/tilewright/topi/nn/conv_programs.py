"""Programs of a convolution's results as schedules take them."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir.expr import Reduce
from tilewright.te import ComputeOp, Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.operators.conv_program import ConvProgram, pooled_window


@dataclass(frozen=True)
class ConvRows(Declaration):
    """A depthwise convolution whose pixels are normalised: its ``results``, as they are rounded,
    and ``totals``, what is reduced of the channels of each."""

    results: Tensor
    totals: tuple[Tensor, ...]


def declare_rows(p: ConvProgram, given: Any = None) -> ConvRows:
    """The program of a problem that normalises rows; ``given`` as in
    :func:`~tilewright.topi.declare.declare`."""
    conv = p.inner.declare(given)
    d = p.behind(conv)
    assert isinstance(d, Declaration)
    found, waiting = list[Tensor](), [d.output]
    while waiting:
        t = waiting.pop()
        if t is conv.output or t in found or not isinstance(t.op, ComputeOp):
            continue
        waiting += t.op.inputs
        found += [t] if isinstance(t.op.body[0], Reduce) else []
    return ConvRows(
        d.problem, d.inputs, d.output, d.sum, d.padded, d.packed, conv.output, tuple(found)
    )


def declare_pooled(p: ConvProgram, given: Any = None, form: str = "") -> BoxDeclaration:
    """The program of a problem whose results are pooled, behind a ``form`` of its convolution."""
    d = p.behind(p.inner.declare_as(form, given))
    assert isinstance(d, BoxDeclaration)
    (before,) = d.output.op.inputs
    return replace(d, before=before, pooled=pooled_window(p))


#: The declarations of this module, by name.
FORMS: dict[str, Any] = {
    "rows": declare_rows,
    **{
        f"pooled {name}": functools.partial(declare_pooled, form=name)
        for name in ("boxes", "whole boxes", "pixels")
    },
}
