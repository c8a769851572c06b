"""Whether a declaration reads only what is there, whatever its schedule.

Its axes are loops over whatever a call makes of their extents, and memory does not change.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from tilewright.arith import Analyzer
from tilewright.arith.encode import Instance
from tilewright.arith.system import System
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Reduce, Var
from tilewright.ir.func import Func
from tilewright.ir.itervar import IterVar
from tilewright.ir.parts import in_parts
from tilewright.ir.stmt import Evaluate, For, ForKind, If, Stmt, let, seq
from tilewright.lower.analysis.accesses import Access, Kernel, collect
from tilewright.lower.analysis.beyond import beyond
from tilewright.lower.analysis.domain import begin, enter
from tilewright.te.operation import ComputeOp


def declared(axes: Iterable[IterVar], symbols: Iterable[Var]) -> Analyzer:
    """What is known where ``axes`` of a declaration range, and of ``symbols``, a call's extents."""
    analyzer = Analyzer()
    for var in symbols:
        analyzer.symbol(var)
    for axis in axes:
        assert axis.dom is not None
        analyzer.bind(axis.var, axis.dom.min, axis.dom.extent)
    return analyzer


def declared_in_bounds(op: ComputeOp, buffers: Container[Buffer]) -> bool:
    """Whether a declaration is proved to read only what is there of ``buffers``. Of a choice, what
    is not chosen is not read."""
    kernel = collect(_loops(op))
    reads = [a for a in kernel.accesses if a.buffer in buffers]
    return not any(_leaves(kernel, read) for read in reads)


def _leaves(kernel: Kernel, read: Access) -> bool:
    instance = Instance(System(), read.lanes)
    begin(kernel, instance, ())
    enter(kernel, instance, read.node, (*read.guards, *read.used))
    instance.system.settle()
    return beyond(instance, read) is not None


def _loops(op: ComputeOp) -> Func:
    """A program that makes every read of a declaration."""
    first = op.body[0]
    body: Stmt
    if isinstance(first, Reduce):
        conditions, (condition,) = in_parts((first.condition,))
        body = let(conditions, If(condition, _evaluated(first.source)))
        for axis in reversed(op.reduce_axis):
            assert axis.dom is not None
            body = For(axis.var, axis.dom.min, axis.dom.extent, ForKind.SERIAL, body)
        body = seq(_evaluated(first.init), body)
    else:
        body = _evaluated(op.body)
    for axis in reversed(op.axis):
        assert axis.dom is not None
        body = For(axis.var, axis.dom.min, axis.dom.extent, ForKind.SERIAL, body)
    arrays = dict.fromkeys(t.buffer for t in (*op.inputs, *op.outputs))
    return Func("declared", tuple(arrays), body)


def _evaluated(values: tuple[Expr, ...]) -> Stmt:
    parts, left = in_parts(values)
    return let(parts, seq(*map(Evaluate, left)))
