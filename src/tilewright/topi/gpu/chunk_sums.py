"""How sums of a filter's gradient are added up: those of a block's threads, then the blocks'."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.topi.declare import Declaration

#: Taps of a block, and threads that share one.
_TAPS, _ADDERS = 32, 16


def add_in_block(
    parts: Stage, channels: int, threads: Sequence[tuple[IterVar, int]]
) -> tuple[IterVar, IterVar, IterVar]:
    """Each block computes one chunk of ``parts``, (chunk, KH, KW, channel), of so many channels, a
    row of the filter at a time, with its threads, the outermost axis first, with their extents.

    Returns the axes of blocks, of the filter's rows and of the innermost threads.
    """
    chunk, ky, kx, c = parts.op.axis
    group, c = parts.split(c, factor=channels)
    parts.reorder(chunk, group, ky, kx, c)
    block = parts.fuse(chunk, group)
    parts.bind(block, te.thread_axis("blockIdx.x"))
    parts.unroll(ky)
    _, flat = parts.split(parts.fuse(kx, c), factor=math.prod(n for _, n in threads))
    (tz, _), (ty, middle), (tx, inner) = threads
    rest, x = parts.split(flat, factor=inner)
    z, y = parts.split(rest, factor=middle)
    for axis, thread in ((z, tz), (y, ty), (x, tx)):
        parts.bind(axis, thread)
    return block, ky, x


def add_chunks(s: Schedule, d: Declaration) -> None:
    """Some threads add the chunks, (chunk, KH, KW, channel), of a tap, and theirs in order."""
    out = s[d.output]
    added = s[s.cache_write(d.output, "local") if d.sum is d.output else d.sum]
    c, m, ky, kx = out.op.axis
    out.reorder(ky, kx, c, m)  # as the chunks lie
    block, x = out.split(out.fuse(ky, kx, c, m), factor=_TAPS)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(x, te.thread_axis("threadIdx.x"))
    added.set_scope("local")
    added.compute_at(out, x)
    turns, y = added.split(added.op.reduce_axis[0], factor=_ADDERS)
    added.unroll(turns)  # so that the chunks are loaded at once
    added.bind(y, te.thread_axis("threadIdx.y"))
