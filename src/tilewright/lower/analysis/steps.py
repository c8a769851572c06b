"""How many stores and instructions a statement carries out."""

from __future__ import annotations

from functools import lru_cache

from tilewright.arith import Analyzer
from tilewright.ir.expr import Expr, IntImm
from tilewright.ir.stmt import Allocate, For, ForKind, If, Let, Remark, Seq, Stmt
from tilewright.ir.visit import children


def steps(s: Stmt, unknown: int = 1) -> int:
    """The number, where vectors are done at once and loops of unknown length ``unknown`` times.

    >>> from tilewright.lower.ir_builder import *
    >>> i, j, n = axes("i j n")
    >>> A = buffer("A", 4)
    >>> steps(loop(i, 4, loop(j, n, store(A[i], 0.0)), store(A[i], 1.0)), unknown=8)
    36
    """
    total = 0
    waiting = [(s, 1)]
    while waiting:
        s, times = waiting.pop()
        match s:
            case For():
                waiting.append((s.body, times * turns(s, unknown)))
            case Seq() | If() | Allocate() | Let() | Remark():
                waiting += [(x, times) for x in children(s) if isinstance(x, Stmt)]
            case _:
                total += times
    return total


def turns(s: For, unknown: int = 1) -> int:
    """The iterations of a loop, vectors at once; the greatest number where it is written out."""
    if s.kind is ForKind.VECTORIZED:
        return 1
    if isinstance(s.extent, IntImm):
        return s.extent.value
    most = _most(s.extent) if s.kind is ForKind.UNROLLED else None
    return most or unknown


@lru_cache(256)
def _most(extent: Expr) -> int | None:
    return Analyzer().bounds(extent).hi
