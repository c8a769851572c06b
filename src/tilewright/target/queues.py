"""Queues of asynchronous instructions: how a thread waits for those that it issued.

An asynchronous instruction goes on while its thread does. Until it is waited for, what it writes
is not there and what it reads must not change. The instructions of a queue are committed in groups,
which end in their order.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AsyncQueue:
    """A queue, with its actions as text of CUDA C++.

    ``fence`` makes registers that were written before visible to its instructions; ``proxy``, in
    front of a barrier, has what threads did with shared memory come before. ``wait`` has the place
    ``{pending}``; ``wait_all``, where it is given, is for no pending groups, and the one to take
    before what threads read themselves. It may end the function, which has to be a kernel, and
    calls :data:`AWAIT_PRODUCTS`. ``ordered`` tells whether an instruction may use the results of an
    earlier one of the queue without waiting; ``collective``, whether all threads of a block commit
    and wait together, also where one of them issues; ``apart``, whether it writes shared memory
    otherwise than threads do, so that what these did there before, not what it writes, needs
    ``proxy``.
    """

    name: str
    commit: str
    wait: str
    wait_all: str = ""
    fence: str = ""
    proxy: str = ""
    ordered: bool = False
    collective: bool = False
    apart: bool = False

    def text(self, action: str, pending: int = 0) -> str:
        """An action of :class:`tilewright.ir.stmt.Queue` as a statement."""
        if action == "wait" and pending == 0 and self.wait_all:
            return self.wait_all
        return str(getattr(self, action)).format(pending=pending)


#: A function of the prelude (:mod:`tilewright.codegen.cuda_prelude`) that is always true.
AWAIT_PRODUCTS = "await_products"


def _asm(instruction: str) -> str:
    return f'asm volatile("{instruction};" ::: "memory");'


_PROXY = _asm("fence.proxy.async.shared::cta")

#: The queues of tile loads: that of most, and one of those that are waited for later than others
#: that are asked for after them.
TILES, LATE_TILES = "tma", "tma_late"

#: By name. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Non-bulk copy", "Tensor
#: copy" with objects of :mod:`tilewright.codegen.mbarriers` that have the names of their queues.
QUEUES = {
    "wgmma": AsyncQueue(
        "wgmma",
        commit=_asm("wgmma.commit_group.sync.aligned"),
        wait=_asm("wgmma.wait_group.sync.aligned {pending}"),
        wait_all=f"if (!{AWAIT_PRODUCTS}()) return;",
        fence=_asm("wgmma.fence.sync.aligned"),
        proxy=_PROXY,
        ordered=True,
    ),
    "cp.async": AsyncQueue(
        "cp.async",
        commit=_asm("cp.async.commit_group"),
        wait=_asm("cp.async.wait_group {pending}"),
    ),
    **{
        name: AsyncQueue(
            name,
            commit=f"{name}.commit();",
            wait=f"{name}.wait({{pending}});",
            proxy=_PROXY,
            collective=True,
            apart=True,
        )
        for name in (TILES, LATE_TILES)
    },
    "tma_store": AsyncQueue(
        "tma_store",
        commit=_asm("cp.async.bulk.commit_group"),
        wait=_asm("cp.async.bulk.wait_group.read {pending}"),
        proxy=_PROXY,
    ),
}
