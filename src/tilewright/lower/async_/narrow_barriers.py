"""A barrier of the block that keeps threads of a warp apart alone is one of the warp.

Warps that need not wait for each other run out of step: one stores results while another one's
products keep the tensor cores busy. That is of use where a producer copies what all of them
multiply, and they come to no barrier of the block otherwise; elsewhere barriers stay as they are.

A barrier is one of a warp where the program has no conflict between threads then either, nor with
what they read in the background: a wait for that tells other threads nothing without a barrier of
the block behind it. The pass stands behind all those to whom barriers of the block say what may be
done with memory.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.func import Func
from tilewright.ir.stmt import For, Stmt, Sync
from tilewright.ir.visit import Rewriter, Steps, children, statements
from tilewright.lower.analysis.accesses import collect
from tilewright.lower.analysis.background import background
from tilewright.lower.analysis.dependence import Dependences


def narrow_barriers(func: Func) -> Func:
    """``func`` with those barriers narrowed, if it has a producer."""
    if not func.producer or not _is_ordered(func):
        return func
    found = [s for s in statements(func.body) if isinstance(s, Sync) and not s.frees]
    # The innermost are met most often; one in front of all loops may do the same once.
    for s in sorted(found, key=_loops_around(func.body).__getitem__, reverse=True):
        if s.scope == "shared":
            made = replace(func, body=_Narrow(s).stmt(func.body))
            func = made if _is_ordered(made) else func
    return func


def _loops_around(body: Stmt) -> dict[Stmt, int]:
    """By statement, the number of loops around it."""
    found, waiting = dict[Stmt, int](), [(body, 0)]
    while waiting:
        s, depth = waiting.pop()
        found[s] = depth
        inside = depth + isinstance(s, For)
        waiting += [(child, inside) for child in children(s) if isinstance(child, Stmt)]
    return found


def _is_ordered(func: Func) -> bool:
    """Whether no two threads of a block conflict, nor one with what goes on in the background."""
    kernel = collect(func)
    conflict = next(Dependences(kernel).between_threads(split=True), None)
    return conflict is None and not background(kernel).conflicts


class _Narrow(Rewriter):
    def __init__(self, barrier: Sync) -> None:
        self.barrier = barrier

    def steps(self, s: Stmt) -> Steps:
        if s is self.barrier:
            return replace(self.barrier, scope="warp")
        return (yield from super().steps(s))
