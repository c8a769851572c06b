"""Gradients by the input in TF32 on Hopper's tensor cores that read the filter as it lies.

Step by step TMA brings what a tap sees of dy and the filter, in which channels of the result lie
side by side, across the sum. Tensor cores read TF32 in shared memory only where it lies along that:
channels of the result are the rows of an instruction, whose factor threads have in registers. So no
kernel turns the filter first. Results leave from registers: those of a warp are whole sectors of
memory.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import wgmma
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_blocks import blocks_of
from tilewright.topi.pieces.box_products import innermost, load, step_of
from tilewright.topi.pieces.box_tiles import ROWS, WARP_ROWS, BoxProductTile
from tilewright.topi.pieces.step_sums import axes_of, steps
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled


def schedule_held_products(d: BoxDeclaration, tile: BoxProductTile) -> Schedule:
    """The schedule of a gradient by the input whose filter is read as it lies."""
    s, w, step = scheduled(d.output, d.sum), widths(d.problem.dtype), step_of(d)
    seen, taps = (s.cache_read(t, "shared", [d.sum]) for t in (d.left, d.right))
    held = s.cache_read(taps, "fragment", [d.sum])
    out, sums, several = s[d.output], s[d.sum], tile.boxes > 1
    # Neighbours are read and stored at once where threads store zeros of other phases, too; else
    # instructions, which read them in other pairs of registers, would wait for moves.
    own, phased = 2 if any(d.alone) else 1, d.phased is not None
    _, box, places, (c,) = blocks_of(out, d, tile, several, alike=phased, by_box=True)
    group, c = out.split(c, factor=ROWS)
    c, pair = out.split(c, factor=own)
    out.reorder(group, c, *(x for place in places for x in place), pair)
    out.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    out.vectorize(pair)

    sums.set_scope("fragment")
    sums.compute_at(out, group)
    at, k = steps(sums, d)
    phase, (*pixel, f) = axes_of(sums.op.axis, d)
    sums.reorder(*phase, at, *pixel, f, k)
    for axis, extent in zip((*pixel, f), (*tile.box, ROWS), strict=True):
        sums.align_bounds(axis, extent)
    part, k = sums.split(k, factor=w.deep)
    warp, f = sums.split(f, factor=WARP_ROWS)
    rows = list(sums.split(f, factor=own if own > 1 else WARP_ROWS // 2))
    outer, _, inner = innermost(sums, pixel, tile.box)
    rows = rows[::-1] if own > 1 else rows
    sums.reorder(at, part, warp, *rows, *outer, *inner, *sums.split(k, factor=w.chunk))
    sums.unroll(part)
    multiplied = wgmma(math.prod(tile.box), "tf32", left="registers", swizzles=(0, 4 * step))
    sums.tensorize(warp, multiplied)
    loads = s[held]
    loads.compute_at(sums, at)
    loads.set_scope("fragment")
    *others, c = loads.op.axis
    c, pair = loads.split(c, factor=own)
    loads.unroll(*others, c)
    loads.vectorize(pair)

    alone, over = bool(tile.staged), box if several else None
    load(
        s[seen], sums, at, -2 - 2 * d.space, (*tile.box, step), tile.stages, over=over,
        windows=d.boxes.windows, producer=alone,
    )  # fmt: skip
    single = not phased and all(extent_of(x) == 1 for x in d.sum.op.reduce_axis[:-1])
    _two_apart(s[taps], step, d.space)
    first, brought = -3 - d.space, [step // 2, 2, w.row]
    if single and extent_of(d.sum.op.axis[-1]) % tile.channels == 0:  # one box has all channels
        first, brought = first - 2, [tile.channels // w.row, 1, *brought]
    load(s[taps], sums, at, first, brought, tile.stages, over=over, producer=alone)
    return s


def _two_apart(taps: Stage, step: int, space: int) -> None:
    """Keep the rows of a step of the filter in such an order that those which four threads load at
    once are two apart: so no two conflict in a bank. Images have as many dimensions as
    ``space``."""

    def rows(*index: Any) -> list[Any]:
        *outer, k = index[: -1 - space]
        return [*outer, k // step, k % (step // 2), k % step // (step // 2), *index[-1 - space :]]

    taps.transform_layout(rows)
