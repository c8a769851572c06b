"""A kernel with a pipeline that a producer fills is marked: one more warp copies its boxes.

The program stays as it is, what every thread does, of which one asks for boxes. The code generator
takes it apart: the producer does what concerns boxes, as that thread would, and the others do the
rest. That is the same program where nothing but arrivals, and waits for boxes, orders what the
others do with the memory of boxes and what fills it: the producer comes to no barrier of the block.
So barriers are inserted as if those that free copies kept nothing else apart
(:mod:`~tilewright.lower.async_.insert_barriers`), and the proof asks for the rest
(:meth:`~tilewright.lower.analysis.dependence.Dependences.with_producer`).
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir.errors import LoweringError
from tilewright.ir.func import Func
from tilewright.ir.stmt import FillAhead, For, Instr, Seq, Stmt, Sync
from tilewright.ir.visit import children, statements
from tilewright.target.queues import QUEUES


def producer_warps(func: Func) -> Func:
    """``func`` marked where a pipeline asks for it; it stands before pipelines are lowered.

    Raises :class:`LoweringError` where such a pipeline copies no boxes.
    """
    produced = [s for s in statements(func.body) if isinstance(s, FillAhead) and s.producer]
    for mark in produced:
        if not _copies_boxes(mark.body):
            raise LoweringError(
                f"pipeline of {mark.buffer.name!r}: a producer copies boxes, and these are none. "
                "Tensorize the stage with tma_load, or leave out `producer`"
            )
    return replace(func, producer=True) if produced else func


def _copies_boxes(s: Stmt) -> bool:
    issued = [x.instruction for x in statements(s) if isinstance(x, Instr)]
    return bool(issued) and all(i.queue and QUEUES[i.queue].apart for i in issued)


def _fills_behind(s: Stmt, met: bool = False) -> bool:
    """Whether boxes are copied where a barrier of the cluster may have been passed, or was ``met``
    already."""
    if isinstance(s, Instr):
        return met and bool(s.instruction.queue) and QUEUES[s.instruction.queue].apart
    around = met or (isinstance(s, For) and _meets(s))
    for child in children(s):
        if isinstance(child, Stmt):
            if _fills_behind(child, around):
                return True
            around = around or (isinstance(s, Seq) and _meets(child))
    return False


def _meets(s: Stmt) -> bool:
    return any(isinstance(x, Sync) and x.scope == "cluster" for x in statements(s))


def check_producer(func: Func, threads: int | None) -> None:
    """Raises :class:`LoweringError` where a producer would have to come to a barrier of the block,
    or of a cluster, for which it has to have ended, or to no arrivals at all, or where the
    ``threads`` of a block are no whole warps."""
    if func.producer and _fills_behind(func.body):
        raise LoweringError(
            f"kernel {func.name}: a producer copies boxes behind a barrier of the cluster, which "
            "waits for all warps of its blocks that have not ended. Leave out `producer`"
        )
    frees = [s for s in statements(func.body) if isinstance(s, Sync) and s.frees]
    if func.producer and not all(s.split for s in frees):
        names = ", ".join(sorted({repr(b.name) for s in frees if not s.split for b in s.frees}))
        raise LoweringError(
            f"pipeline of {names}: its copies are freed by a barrier of the block, which a "
            "producer does not come to. Bind whole warps, or leave out `producer`"
        )
    if func.producer and threads is None:
        raise LoweringError(
            f"kernel {func.name}: a producer is one more warp of the block, whose threads are no "
            "known number of whole warps. Bind whole warps, or leave out `producer`"
        )
