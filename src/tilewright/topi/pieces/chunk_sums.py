"""How sums of a filter's gradient are added up: those of a block's threads, then the blocks'.

Images are shared out among blocks in chunks. Blocks write what they have of each, and a second
kernel adds it up; of one chunk they write the result, and there is no second kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.tiling import bind, extent_of

#: Taps of a block, and threads that share one.
_TAPS, _ADDERS = 32, 16


@dataclass(frozen=True)
class ChunkStage:
    """What the blocks of the first kernel compute.

    Attributes
    ----------
    stage : the chunks, or of one chunk the result.
    outer : its axes over chunks; none of one chunk.
    row, column, channel : its other axes, those of the filter and of the result's channels.
    total : what a thread sums of a tap.
    own : its stage.
    """

    stage: Stage
    outer: tuple[IterVar, ...]
    row: IterVar
    column: IterVar
    channel: IterVar
    total: Tensor
    own: Stage

    def keep_at(self, lane: IterVar) -> None:
        """Threads sum a tap at ``lane``, a loop of :attr:`stage`."""
        self.own.set_scope("local")
        self.own.compute_at(self.stage, lane)


def chunk_stage(s: Schedule, d: Declaration, total: Tensor, chunks: int) -> ChunkStage:
    """The stage that blocks compute, of ``total``, (KH, KW, channel), which the result is made of:
    a sum over ``chunks`` first, of which one may be all; where there are more, what adds them up is
    scheduled."""
    out, added = s[d.output], s[total]
    c, m, ky, kx = out.op.axis
    out.reorder(ky, kx, c, m)  # as the chunks lie
    if chunks == 1:
        return ChunkStage(out, (), ky, kx, out.fuse(c, m), total, added)
    parts = s.rfactor(total, added.op.reduce_axis[0])
    add_chunks(out, added, ahead=True)
    own = s.cache_write(parts, "local")
    chunk, ky, kx, c = s[parts].op.axis
    return ChunkStage(s[parts], (chunk,), ky, kx, c, own, s[own])


def add_chunks(out: Stage, added: Stage, shared: bool = True, ahead: bool = False) -> None:
    """A second kernel, in which some threads add the partial sums of a tap, and theirs in order;
    one thread where no sums are ``shared``. They are loaded at once where they are ``ahead``."""
    block, x = out.split(out.fuse(*out.leaf_iter_vars), factor=_TAPS)
    bind(out, block, x)
    added.compute_at(out, x)
    if shared:
        turns, y = added.split(added.op.reduce_axis[0], factor=_ADDERS)
        if ahead:
            added.unroll(turns)
        added.bind(y, te.thread_axis("threadIdx.y"))


def chunk_blocks(results: int) -> int:
    """Blocks of :func:`add_chunks`."""
    return -(-results // _TAPS)


def add_in_block(
    chunks: ChunkStage, channels: int, threads: Sequence[IterVar]
) -> tuple[IterVar, IterVar]:
    """Each block computes one chunk of ``channels`` channels, a row of the filter at a time, with
    its threads, of which the last are neighbours.

    Returns the axes of blocks and of the filter's rows.
    """
    parts, ky, kx = chunks.stage, chunks.row, chunks.column
    group, c = parts.split(chunks.channel, factor=channels)
    parts.reorder(*chunks.outer, group, ky, kx, c)
    block = parts.fuse(*chunks.outer, group)
    parts.bind(block, te.thread_axis("blockIdx.x"))
    parts.unroll(ky)
    _, flat = parts.split(parts.fuse(kx, c), factor=extent_of(*threads))
    rest, x = parts.split(flat, factor=extent_of(threads[2]))
    z, y = parts.split(rest, factor=extent_of(threads[1]))
    for axis, thread in zip((z, y, x), threads, strict=True):
        parts.bind(axis, thread)
    chunks.keep_at(x)
    return block, ky
