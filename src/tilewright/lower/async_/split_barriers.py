"""A barrier that does nothing but free copies becomes arrivals, which only who fills them awaits.

Behind a barrier of a pipeline, a thread has copies filled that all others have used. Where this is
all that the barrier keeps apart, no thread but that one has to wait for it: the others go on, and
wait when they come to a copy that is not filled yet. So warpgroups run out of step, and one keeps
the tensor cores busy while another is between its products.

The statement stays a barrier, for the simulator and for code generators without arrivals. Proofs
take it to come before those alone who fill copies:
where other threads use their memory again, for what has taken the place of copies there, another
barrier stands (:mod:`~tilewright.lower.async_.insert_barriers`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import IntImm
from tilewright.ir.func import Func
from tilewright.ir.stmt import Instr, Stmt, Store, Sync
from tilewright.ir.visit import Rewriter, Steps, loads, statements, stores
from tilewright.lower.analysis.around_barriers import Accesses, around_barriers
from tilewright.lower.async_.producer_warps import check_producer
from tilewright.target.queues import LATE_TILES

#: Threads of a warp, which arrive together.
WARP = 32


def split_barriers(func: Func) -> Func:
    """``func`` with those barriers marked; it stands after barriers were inserted."""
    late = set[Buffer]() if func.producer else _late(func.body)
    syncs = (s for s in statements(func.body) if isinstance(s, Sync))
    frees = {s for s in syncs if s.frees and not late & set(s.frees)}
    if frees and block_threads(func) and not _exchanges(func.body):
        before, behind = around_barriers(func.body, frees)
        alone = {s for s in frees if not _kept_apart(before[s], behind[s], s.frees, late)}
        func = replace(func, body=_Split(alone).stmt(func.body))
    check_producer(func, block_threads(func))
    return func


def block_threads(func: Func) -> int | None:
    """The threads of a block, where their number is known, and whole warps."""
    extents = [a.extent for a in func.launch if a.tag.startswith("threadIdx")]
    known = [n.value for n in extents if isinstance(n, IntImm)]
    count = math.prod(known)
    return count if len(known) == len(extents) and count % WARP == 0 else None


def _exchanges(body: Stmt) -> bool:
    """Whether threads may read in global memory what others have written there: the sides of a
    barrier are looked at for shared memory alone."""
    written = {s.buffer for s in stores(body) if s.buffer.scope == "global"}
    return any(load.buffer in written for load in loads(body))


def _late(body: Stmt) -> set[Buffer]:
    """What nothing but loads on the queue for late ones fills, whose ends all threads wait for
    before they read it."""
    filled, found = Counter[Buffer](), Counter[Buffer]()
    for s in statements(body):
        if isinstance(s, Instr) and s.instruction.queue == LATE_TILES:
            filled.update(store.buffer for store in stores(s))
        elif isinstance(s, Store):
            found[s.buffer] += 1
    return {buffer for buffer, count in filled.items() if found[buffer] == count}


def _kept_apart(
    before: Accesses, behind: Accesses, copies: Collection[object], late: Collection[object]
) -> bool:
    """Whether a barrier orders accesses to anything but ``copies``, and ``late`` loads that are
    read behind it."""
    return any(
        buffer is other
        and (written or again)
        and buffer not in copies
        and (again or buffer not in late)
        for buffer, written in before
        for other, again in behind
    )


class _Split(Rewriter):
    def __init__(self, alone: set[Sync]) -> None:
        self.alone = alone

    def steps(self, s: Stmt) -> Steps:
        if isinstance(s, Sync) and s in self.alone:
            return replace(s, split=True)
        return (yield from super().steps(s))
