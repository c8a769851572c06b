"""Clusters: neighbouring blocks along blockIdx.x that share what one of them copies.

There are as many blocks in one as the instructions of a kernel say that copy to all of them.
"""

from __future__ import annotations

from tilewright.ir.stmt import Instr, Stmt
from tilewright.ir.visit import statements

#: The axis of the launch along which blocks are neighbours.
AXIS = "blockIdx.x"


def cluster_of(body: Stmt) -> int:
    """The blocks of a cluster; 1 where there are none.

    >>> from tilewright.ir.stmt import Seq
    >>> cluster_of(Seq(()))
    1
    """
    return max((s.instruction.cluster for s in statements(body) if isinstance(s, Instr)), default=1)
