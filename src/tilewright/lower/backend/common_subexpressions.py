"""Index arithmetic that statements have in common is done once, under a name.

Stands last, for reading and for speed: nothing behind it looks for affine forms. It comes after
buffers are flat, since an offset may be simpler than the indices that it is made of: a tile that is
filled by one running index is stored at that index.

>>> from tilewright.lower.ir_builder import *
>>> i, j = axes("i j")
>>> A, B = buffer("A", 64), buffer("B", 64)
>>> place = i * 8 + j
>>> body = store(B[place], A[place] + A[place + 1])
>>> print(common_subexpressions(func(loop(i, 7, loop(j, 8, body)))).body)
for i in range(7):
    for j in range(8):
        cse_v0: T.int32 = i * 8 + j
        B[cse_v0] = A[cse_v0] + A[cse_v0 + 1]

Names do not reach into loops, where they would hold registers for long. Only pure arithmetic that
cannot fail is shared, so it may be done ahead of the condition that guards its use.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, IntImm, Var
from tilewright.ir.func import Func
from tilewright.ir.stmt import Evaluate, If, Let, Seq, Stmt, Store, seq
from tilewright.ir.visit import Rewriter, Steps, children, substitute

_ARITHMETIC = (E.Add, E.Sub, E.Mul, E.Min, E.Max, E.BitAnd, E.BitOr, E.BitXor, E.Shl, E.Shr)
_DIVISION = (E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod)


def common_subexpressions(func: Func) -> Func:
    """Name the index arithmetic that occurs twice in a run of statements."""
    return replace(func, body=_Share().stmt(func.body))


class _Share(Rewriter):
    def __init__(self) -> None:
        self.names = 0

    def expr(self, e: Expr) -> Expr:
        return e

    def steps(self, s: Stmt) -> Steps:
        if _straight(s):
            return self.share(s)
        if not isinstance(s, Seq):
            return (yield from super().steps(s))
        made: list[Stmt] = []
        run: list[Stmt] = []
        for x in s.stmts:
            if _straight(x):
                run.append(x)
                continue
            if run:
                made.append(self.share(seq(*run)))
            run = []
            made.append((yield self.steps(x)))
        if run:
            made.append(self.share(seq(*run)))
        return seq(*made)

    def share(self, s: Stmt) -> Stmt:
        """``s``, a run without loops, under the names of what occurs in it twice."""
        repeated = _repeated(s)
        mapping: dict[Expr, Expr] = {}
        lets: list[tuple[Var, Expr]] = []
        for e in repeated:  # those inside of others first
            var = Var.of(f"cse_v{self.names}", e)
            self.names += 1
            lets.append((var, substitute(e, mapping)))
            mapping[e] = var
        made: Stmt = substitute(s, mapping)
        for var, value in reversed(lets):
            made = Let(var, value, made)
        return made


def _straight(s: Stmt) -> bool:
    match s:
        case Seq(stmts):
            return all(map(_straight, stmts))
        case If(_, then, orelse):
            return _straight(then) and (orelse is None or _straight(orelse))
    return isinstance(s, (Store, Evaluate))


def _repeated(s: Stmt) -> list[Expr]:
    """What is worth a name in ``s``, from the inside out.

    An expression counts once for each place it stands in, where the places inside an expression
    that is itself repeated count once.
    """
    places: Counter[Expr] = Counter()
    order: list[Expr] = []
    cost: dict[Expr, int] = {}  # operations, 0 where it may not be named

    def visit(e: Expr) -> None:
        places[e] += 1
        if places[e] > 1:
            return
        for child in children(e):
            assert isinstance(child, Expr)
            visit(child)
        cost[e] = _cost(e, cost)
        order.append(e)

    def descend(s: Stmt) -> None:
        for child in children(s):
            if isinstance(child, Expr):
                visit(child)
            else:
                descend(child)

    descend(s)
    return [e for e in order if places[e] > 1 and cost[e] > 1]


def _cost(e: Expr, cost: dict[Expr, int]) -> int:
    """How many operations a nameable integer expression takes; variables and constants are 1."""
    if not e.dtype.is_int or e.dtype.lanes > 1:
        return 0
    if isinstance(e, (Var, IntImm)):
        return 1
    if isinstance(e, _DIVISION) and isinstance(e.b, IntImm) and e.b.value != 0:
        return cost[e.a] and cost[e.a] + 1
    if isinstance(e, _ARITHMETIC):
        if isinstance(e.a, Var) and isinstance(e.b, IntImm) and isinstance(e, (E.Add, E.Sub)):
            return -1  # part of the address of whatever uses it
        return cost[e.a] and cost[e.b] and abs(cost[e.a]) + abs(cost[e.b])
    return 0
