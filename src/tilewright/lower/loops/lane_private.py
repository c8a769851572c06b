"""Whether the iterations of a loop can be done all at once.

They can where no iteration writes what another one reads or writes. That is shown buffer by
buffer: some of the indices are the same expressions of the loop's variable in every access, speak
of no other loop inside, and differ from one iteration to the next.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.arith import Analyzer
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Call, Expr, Load, Var
from tilewright.ir.stmt import AllReduce, Evaluate, For, Instr, Let, Stmt, Store
from tilewright.ir.visit import distinct, exprs
from tilewright.lower.substitution import put


def iterations_are_private(analyzer: Analyzer, var: Var, body: Stmt, private: set[Buffer]) -> bool:
    """Whether iterations over ``var`` touch disjoint elements of every buffer that they write.

    Buffers in ``private`` are each iteration's own.
    """
    accesses: dict[Buffer, list[tuple[Expr, ...]]] = {}
    written: set[Buffer] = set()
    inner: set[Expr] = set()
    named: dict[Expr, Expr] = {}
    for node in distinct(body):
        match node:
            case Load(buffer, indices):
                accesses.setdefault(buffer, []).append(indices)
            case Store(buffer, indices):
                accesses.setdefault(buffer, []).append(indices)
                written.add(buffer)
            case For(bound):
                inner.add(bound)
            case Let(bound, value) | E.LetExpr(bound, value):
                named[bound] = put(value, named)
            case Call(_, name) if name.startswith("extern:"):
                return False
            case AllReduce() | Instr() | Evaluate():
                return False
    for buffer in written - private:
        places = {tuple(put(i, named) for i in indices) for indices in accesses[buffer]}
        common = [index for index, *rest in zip(*places, strict=True) if set(rest) <= {index}]
        own = [e for e in common if not any(x in inner or isinstance(x, Load) for x in exprs(e))]
        if len(places) == 1 and len(own) == len(buffer.shape):
            # the place in memory may be simpler than the indices that it is made of
            own = [*own, analyzer.simplify(replace(buffer, layout=None).offset(tuple(own)))]
        if not _injective(analyzer, var, own):
            return False
    return True


def _injective(analyzer: Analyzer, var: Var, indices: list[Expr]) -> bool:
    """Whether two values of ``var`` never give the same indices."""
    found = set(indices)
    while (joined := _join(found)) is not None:
        found = joined
    for e in found:
        step = analyzer.simplify(ops.sub(put(e, {var: var + 1}), e))
        if ops.is_const(step) and not ops.is_const(step, 0):
            return True
    return False


def _join(indices: set[Expr]) -> set[Expr] | None:
    """Replace a quotient and a remainder of one value by that value: both together tell as much."""
    for e in indices:
        if not isinstance(e, E.FloorMod):
            continue
        quotients = [ops.floordiv(e.a, e.b)]
        if isinstance(e.a, E.FloorDiv):  # (x // c) // d is written x // (c * d)
            quotients.append(ops.floordiv(e.a.a, ops.mul(e.a.b, e.b)))
        for quotient in quotients:
            if quotient in indices:
                return (indices - {e, quotient}) | {e.a}
    return None
