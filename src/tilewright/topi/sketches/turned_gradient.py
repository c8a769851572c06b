"""Gradients by the filter in TF32 on Hopper's tensor cores, of images with channels last.

Step by step TMA brings pixels of dy that follow one another and what a tap sees of x, in both of
which channels lie side by side, across the sum. Tensor cores read TF32 in shared memory only where
it lies along that: threads turn what the tap sees there, and have what they multiply of dy in
registers. Each of ``splits`` blocks sums a part of the pixels; another kernel adds these in a fixed
order.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import wgmma
from tilewright.te import Tensor
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_products import innermost, load
from tilewright.topi.pieces.box_tiles import BoxGradientTile
from tilewright.topi.pieces.gradient_blocks import (
    box_steps,
    split_steps,
    summed_in_blocks,
)
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled

#: Rows of a block in shared memory, and pixels that lie side by side there, and channels that a
#: thread reads at once.
_EIGHT, _FOUR = 8, 4


def schedule_turned_gradient(d: BoxDeclaration, tile: BoxGradientTile) -> Schedule:
    """The schedule of :func:`~tilewright.topi.nn.box_filter_sums.filter_sums` in TF32."""
    s, w = scheduled(d.output, d.sum, *d.copies), widths(d.problem.dtype)
    copy(s, d.copies)
    writer, total, added = d.output, d.sum, 0
    kept: tuple[Tensor, ...] = ()
    split = tile.splits > 1 or d.placed
    total = s.cache_write(total, "fragment") if total is writer and not split else total
    at, pixel = box_steps(s[total], d)
    if split:
        writer, added, kept = split_steps(s, d, total, at, tile)
        total = s.cache_write(writer, "fragment")
        at, *pixel = s[total].op.reduce_axis
    else:
        s[total].set_scope("fragment")
    left, right = (s.cache_read(t, "shared", [total]) for t in (d.left, d.right))
    held = s.cache_read(left, "fragment", [total])
    turned = s.cache_read(right, "shared", [total])

    others, m, taps, c = summed_in_blocks(s, d, total, writer, kept, added, tile)
    sums = s[total]
    # Of rows that four threads read at once no two conflict in a bank: they are two apart.
    whole, extents, half = innermost(sums, pixel, d.boxes.pixels, 2)
    whole, _, four = innermost(sums, whole, extents, _FOUR)
    sums.reorder(*others, *taps, at, *whole, m, *sums.split(c, factor=_EIGHT), *half, *four)
    sums.unroll(*whole)
    sums.tensorize(m, wgmma(tile.channels, "tf32", left="registers"))
    loads = s[held]
    loads.compute_at(sums, at)
    loads.set_scope("fragment")
    loads.unroll(*loads.op.axis)
    _turn(s, right, turned, (sums, at), tile, d.space)

    first = -2 - d.space
    every = [extent_of(x) for x in (d.sum.op.axis[0], d.sum.op.axis[-1])]
    windows = (False, d.boxes.windows)
    for x, own, n, several, to in zip(
        (left, right), (tile.filters, tile.channels), every, windows, (tile.dy_to, tile.x_to),
        strict=True,
    ):  # fmt: skip
        high = (own // w.row,) if own > w.row and n % w.row == 0 and not several else ()
        load(
            s[x], sums, at, first - len(high), (*high, *d.boxes.pixels, w.row), tile.stages,
            windows=several, cluster=to, producer=bool(tile.producer),
        )  # fmt: skip
    return s


def _turn(
    s: Schedule, box: Tensor, turned: Tensor, at: tuple[Stage, IterVar], tile: BoxGradientTile,
    space: int,
) -> None:  # fmt: skip
    """Turn what a step has in a box of pixels: into blocks of eight channels by four pixels, which
    are two apart. A thread turns four channels of four pixels, so that neither reads nor writes
    meet a bank twice. Images have as many dimensions as ``space``."""

    def blocks(*index: Any) -> list[Any]:
        *outer, c = index
        n = outer.pop(len(outer) - space - 1)
        return [*outer, c // _EIGHT, n // _EIGHT, n % 2, c % _EIGHT, n % _EIGHT // 2]

    stage = s[turned]
    stage.compute_at(*at)
    stage.transform_layout(blocks)
    stage = s[s[turned].op.output(0)]
    *outer, eights, n, half, c, four = stage.op.axis
    stage.storage_align(eights, 32, _FOUR)
    quad, c = stage.split(c, factor=_FOUR)
    stage.reorder(n, half, *outer, eights, quad, c, four)
    vector = stage.fuse(n, half, *outer, eights, quad)
    turn, thread = stage.split(vector, factor=tile.groups * tile.lanes)
    group, thread = stage.split(thread, factor=tile.lanes)
    stage.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    stage.bind(thread, te.thread_axis((0, tile.lanes), "threadIdx.x"))
    stage.unroll(turn, c)
    stage.vectorize(four)
    loads = s[s.cache_read(box, "local", [stage.op])]
    loads.compute_at(stage, thread)
    *rows, c = loads.op.axis
    loads.unroll(*rows)
    loads.vectorize(c)
