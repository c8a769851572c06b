"""A barrier of the block that keeps threads of a warp apart alone is one of the warp.

Warps that need not wait for each other run out of step: one stores results while another one's
products keep the tensor cores busy. That is of use where a producer copies what all of them
multiply, and they come to no barrier of the block otherwise; elsewhere barriers stay as they are.

A barrier is one of a warp where the program has no conflict between threads then either. It stands
behind all passes to whom barriers of the block say what may be done with memory. One behind which
memory may be written again that an instruction in the background has read stays of the block: the
wait for that instruction is in front of it, and tells other threads nothing without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.ir.func import Func
from tilewright.ir.stmt import For, Instr, Queue, Stmt, Sync
from tilewright.ir.visit import Rewriter, Steps, children, loads, statements, stores
from tilewright.lower.analysis.accesses import collect
from tilewright.lower.analysis.dependence import Dependences
from tilewright.target.queues import LATE_TILES, TILES

#: The queues of loads that fill boxes.
_BOXES = (TILES, LATE_TILES)


def narrow_barriers(func: Func) -> Func:
    """``func`` with those barriers narrowed, if it has a producer."""
    if not func.producer or not _is_ordered(func):
        return func
    kept = set(_behind_waits(func.body))
    found = [s for s in statements(func.body) if isinstance(s, Sync) and not s.frees]
    # The innermost are met most often; one in front of all loops may do the same once.
    for s in sorted(found, key=_loops_around(func.body).__getitem__, reverse=True):
        if s.scope == "shared" and s not in kept:
            made = replace(func, body=_Narrow(s).stmt(func.body))
            func = made if _is_ordered(made) else func
    return func


def _behind_waits(body: Stmt) -> Iterator[Sync]:
    """Barriers of the block between which and the one before is a wait for instructions that read
    what threads store in shared memory: copies of a pipeline are freed otherwise."""
    issued = [s for s in statements(body) if isinstance(s, Instr)]
    boxes = {x.buffer for s in issued if s.instruction.queue in _BOXES for x in stores(s)}
    read = {
        s.instruction.queue
        for s in issued
        if any(x.buffer.scope == "shared" and x.buffer not in boxes for x in loads(s))
    }
    waited = False
    for s in statements(body):
        if isinstance(s, Queue) and s.action == "wait":
            waited = waited or s.queue in read
        elif isinstance(s, Sync) and s.scope == "shared" and not s.split:
            if waited:
                yield s
            waited = False


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
    """Whether no two threads of a block conflict."""
    return next(Dependences(collect(func)).between_threads(split=True), None) is None


class _Narrow(Rewriter):
    def __init__(self, barrier: Sync) -> None:
        self.barrier = barrier

    def steps(self, s: Stmt) -> Steps:
        if s is self.barrier:
            return replace(self.barrier, scope="warp")
        return (yield from super().steps(s))
