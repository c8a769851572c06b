"""The tiles worth trying for attention on a CPU."""

from __future__ import annotations

from tilewright.ir.dtype import dtype
from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import lanes, registers
from tilewright.topi.operators.attention import Attention
from tilewright.topi.pieces.attention import AttentionTile
from tilewright.topi.problem import Problem

#: Rows by vectors of a tile of registers.
SHAPES = ((6, 4), (8, 3), (4, 4), (12, 2), (4, 6), (8, 2), (4, 2), (2, 4), (4, 1), (1, 4), (1, 1))
#: Bytes of the scores of a block, and tasks of a thread.
_BLOCK, _TASKS = 2**16, 3


def suits(p: Problem) -> bool:
    """Whether it is attention."""
    return isinstance(p, Attention)


def attention_times(p: Attention, target: Target) -> dict[AttentionTile, float]:
    """The tiles worth trying: of as many sums as registers hold, in blocks of rows whose scores
    stay in the first-level cache, or the second; tasks enough for all threads."""
    from tilewright.runtime.llvm_host import thread_count

    wide = lanes(p, target)
    keys, width = -(-p.keys // wide), -(-p.width // wide)
    found = dict[AttentionTile, float]()
    for rows, vectors in SHAPES:
        if rows * vectors <= registers(target, wide) and (rows <= p.rows or rows == 1):
            vectors, across = min(vectors, keys), min(vectors, width)
            most = max(1, _BLOCK // (rows * keys * wide * dtype(p.accumulate).bytes))
            blocks = -(-p.rows // rows)
            times = max(1, min(most, blocks, 4))
            tasks = p.batch * p.heads
            wanted = _TASKS * thread_count(target)
            parts = 1 if tasks >= wanted else max(1, min(-(-wanted // tasks), blocks // times))
            waste = blocks * rows / p.rows * -(-keys // vectors) * vectors / keys
            waste *= -(-width // across) * across / width
            tile = AttentionTile(rows, vectors, across, wide, rows * times, parts)
            found.setdefault(tile, waste * (1 / rows + 1 / vectors + 1))
    return found
