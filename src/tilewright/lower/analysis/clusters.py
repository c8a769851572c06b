"""Clusters: neighbouring blocks along blockIdx.x that share what one of them copies, or memory.

There are as many blocks in one as the instructions of a kernel say that copy to all of them. Where
a kernel has memory of scope "cluster", they are all blocks along blockIdx.x, and each keeps one
element of the first dimension: others read it there ("distributed shared memory").
"""

from __future__ import annotations

from tilewright.ir.expr import IntImm
from tilewright.ir.func import Func
from tilewright.ir.stmt import Instr, Stmt
from tilewright.ir.visit import allocated, statements

#: The axis of the launch along which blocks are neighbours.
AXIS = "blockIdx.x"


def cluster_of(body: Stmt) -> int:
    """The blocks of a cluster that share copies; 1 where there are none.

    >>> from tilewright.ir.stmt import Seq
    >>> cluster_of(Seq(()))
    1
    """
    return max((s.instruction.cluster for s in statements(body) if isinstance(s, Instr)), default=1)


def blocks_of_cluster(func: Func) -> int:
    """The blocks of a cluster that share copies or memory; 1 where there are none, or where it is
    not known how many."""
    if not any(b.scope == "cluster" for b in allocated(func.body)):
        return cluster_of(func.body)
    extent = func.extent(AXIS)
    return extent.value if isinstance(extent, IntImm) else 1
