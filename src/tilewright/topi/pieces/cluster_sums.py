"""Parts of sums that the blocks of a cluster keep for each other, and how they are added."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage

#: The axis of the launch along which lie the blocks of a cluster, and that of clusters.
RANK, CLUSTERS = "blockIdx.x", "blockIdx.y"
#: Elements of a row of parts, of 32 bits, are a multiple of the first and, so that no bank has two
#: of what a warp stores at once, those behind it: where rows have channels, or pixels do.
_ROW, _BEHIND, _BEHIND_TURNED = 32, 8, 4
#: Parts that a thread reads at once, 16 bytes: of more, neighbours would share sectors of 32 bytes,
#: each of which comes from another block twice.
_AT_ONCE = 4


def keep_parts(
    parts: Stage, out: Stage, block: IterVar, sizes: Sequence[int], turned: bool = False
) -> None:
    """Keep the parts of a tile of some ``sizes``, the first axis of which is the part, each in the
    memory of a block; neighbours in a row are those of a thread unless it is ``turned``."""
    parts.set_scope("cluster")
    parts.compute_at(out, block)
    part, *result = parts.op.axis
    for axis, extent in zip(result, sizes, strict=True):
        parts.align_bounds(axis, extent)
    parts.storage_align(result[-2], _ROW, _BEHIND_TURNED if turned else _BEHIND)
    parts.bind(part, te.thread_axis(RANK))


def parts_bytes(rows: int, channels: int) -> int:
    """Bytes of shared memory that a tile's part takes.

    >>> parts_bytes(64, 64)
    18432
    """
    row = -(-(channels - _BEHIND) // _ROW) * _ROW + _BEHIND
    return 4 * rows * row


def lanes_of(results: int, count: int, threads: int) -> int:
    """How many results of a tile, which are neighbours, each thread adds at once, so that all of a
    cluster of ``count`` blocks have as many; 0 where they cannot.

    >>> lanes_of(64 * 64, 4, 128), lanes_of(64 * 32, 8, 128), lanes_of(96 * 64, 8, 256)
    (4, 2, 1)
    """
    each, left = divmod(results, count * threads)
    return 0 if left else math.gcd(each, _AT_ONCE)


def share_out(out: Stage, at: IterVar, count: int) -> IterVar:
    """Divide the results of a tile among the ``count`` blocks of a cluster; returns the loop over
    those of a block."""
    rank, at = out.split(at, nparts=count)
    out.bind(rank, te.thread_axis(RANK))
    return at


def sum_parts(sums: Stage, out: Stage, at: IterVar) -> None:
    """Add the parts in their order, in registers, where a thread needs them."""
    sums.set_scope("local")
    sums.compute_at(out, at)
    (part,) = sums.op.reduce_axis
    sums.reorder(part, *sums.op.axis)
    sums.unroll(part)  # none of its loads waits for another
    sums.vectorize(sums.op.axis[-1])
