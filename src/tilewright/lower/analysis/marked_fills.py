"""Statements that fill a buffer for a pipeline: where they stand, and by which queue."""

from __future__ import annotations

from tilewright.ir.stmt import Allocate, FillAhead, Instr, Remark, Seq, Stmt
from tilewright.ir.visit import statements


def marked(body: Stmt) -> list[FillAhead]:
    """The marked statements that are carried out once an iteration, in order."""
    found: list[FillAhead] = []
    waiting = [body]
    while waiting:
        match waiting.pop():
            case FillAhead() as mark:
                found.append(mark)
            case Remark(body=inner) | Allocate(_, inner):
                waiting.append(inner)
            case Seq(stmts):
                waiting += reversed(stmts)
    return found


def queue_of(mark: FillAhead) -> str:
    """The queue of the asynchronous instructions of a marked statement, or nothing."""
    issued = (x.instruction.queue for x in statements(mark.body) if isinstance(x, Instr))
    return next((str(queue) for queue in issued if queue), "")
