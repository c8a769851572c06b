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
#: Rows of which a thread adds parts at once, at most: as many vectors of sums are in registers.
_MOST_ROWS = 16


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


def rows_of(rows: int, vectors: int, count: int, threads: int) -> int:
    """How many rows that follow one another each thread of ``count`` blocks adds, where those of
    all ``vectors`` of a row are neighbours; 0 where they cannot, or have too many.

    >>> rows_of(128, 32, 2, 256), rows_of(200, 64, 2, 256), rows_of(128, 48, 2, 256)
    (8, 0, 0)
    """
    at_once, left = divmod(threads, vectors)
    if left or not at_once or rows % (count * at_once):
        return 0
    each = rows // (count * at_once)
    return each if each <= _MOST_ROWS else 0


def share_out(
    out: Stage, row: IterVar, vector: IterVar, lane: IterVar, count: int, own: int,
    shape: tuple[int, int],
) -> None:  # fmt: skip
    """Divide the results of a tile, whose vectors have a ``lane`` for each element, among the
    ``count`` blocks of a cluster, and theirs among groups of some threads (``shape``): to each, in
    turn, vectors of ``own`` rows that follow one another, or of any, where that is 0."""
    groups, lanes = shape
    if own:
        rank, row = out.split(row, nparts=count)
        row, turn = out.split(row, factor=own)
        out.reorder(rank, row, vector, turn, lane)
        thread = out.fuse(row, vector)
    else:
        rank, at = out.split(out.fuse(row, vector), nparts=count)
        turn, thread = out.split(at, factor=groups * lanes)
    out.bind(rank, te.thread_axis(RANK))
    out.unroll(turn)
    group, thread = out.split(thread, factor=lanes)
    out.bind(group, te.thread_axis((0, groups), "threadIdx.y"))
    out.bind(thread, te.thread_axis((0, lanes), "threadIdx.x"))


def sum_parts(sums: Stage, out: Stage) -> None:
    """Add the parts in their order, in registers, all at once that a thread has within the loops
    over threads: no load waits for another."""
    sums.set_scope("local")
    threads = [x for x, mark in out.marks.items() if mark.thread is not None]
    sums.compute_at(out, max(threads, key=out.leaf_iter_vars.index))
    (part,) = sums.op.reduce_axis
    *others, lane = sums.op.axis
    sums.reorder(part, *others, lane)
    sums.unroll(part, *others)
    sums.vectorize(lane)
