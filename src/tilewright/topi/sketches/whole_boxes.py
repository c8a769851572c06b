"""Convolutions with channels last on Hopper's tensor cores, of boxes that all taps read.

Where the filter of a tile is small, a block keeps it in shared memory and computes one box of
results after the other. TMA brings what all taps of a box see, once, while the one before is
multiplied and stored; taps read parts of it. Of larger filters it brings a tap after another, again
for each box. A block that computes a single box brings it, and the filter, in steps of channels,
and multiplies those that are there.
"""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.boxes import MOST_DIMENSIONS
from tilewright.topi.nn.box_problems import ROW
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_added import bring_added, hold, parted
from tilewright.topi.pieces.box_ends import finish
from tilewright.topi.pieces.box_multiply import multiply
from tilewright.topi.pieces.box_products import load, step_of
from tilewright.topi.pieces.box_results import share, staged
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.box_windows import pool, pooled
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.step_sums import (
    add_steps,
    are_apart,
    axes_of,
    boxes_together,
    steps,
    steps_of_channels,
)
from tilewright.topi.pieces.thread_order import digits, in_order_of_threads, leaves_directly
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled

#: Steps that are written out, at most: where an instruction is of a constant place in a box, it
#: takes a few others to say so, and more than the products where there are few channels.
_WRITTEN = 32


def schedule_whole_boxes(d: BoxDeclaration, tile: BoxProductTile) -> Schedule:
    """The schedule of a forward pass, or of a gradient by the input."""
    added = parted(d, tile)
    in_steps = tile.boxes == 1 and tile.stages > 1 and not are_apart(d.problem)
    directly = leaves_directly(d, tile)
    kept = () if directly else (d.phased, d.by_pixels, d.before)
    s = scheduled(d.after or d.output, d.output, d.sum, *kept, *d.numbers, *d.copies, *added)
    copy(s, d.copies)
    part = None
    if are_apart(d.problem):
        part = s.rfactor(d.sum, steps(s[d.sum], d)[0])
    boxes, taps = (s.cache_read(t, "shared", [part or d.sum]) for t in (d.left, d.right))
    windows = pooled(s, d)
    results, out = d.output if directly else staged(s, d), s[d.output]
    if directly:
        in_order_of_threads(s[taps], d, tile)
    block, box, at_sums = finish(s, d, tile, results, one_by_one=True)
    pool(s, d, windows)
    for numbers in d.numbers:
        share(s[numbers], tile, block, out)
    for t in added:
        ahead = 1 if in_steps else 2 if tile.staged else tile.stages
        bring_added(s[t], tile, box, out, ahead, bool(tile.staged))
    hold(s, d, tile, block, at_sums, True, bool(added))

    sums, step = s[d.sum], step_of(d)
    sums.set_scope("fragment")
    sums.compute_at(*at_sums)
    reader, at_box, at_filter = out, box, block
    if part is None:
        *channels, at, k = steps_of_channels(sums, d) if in_steps else steps(sums, d)
        phase, result = axes_of(sums.op.axis, d)
        tap = at
        if tile.streamed:  # by rows of taps, since others wait for each
            *_, row, _ = sums.op.reduce_axis
            at, tap = sums.split(at, factor=extent_of(row))
        sums.reorder(*phase, *channels, *dict.fromkeys((at, tap)), *result, k)
        multiply(sums, d, tile, result, tap, k)
        if tap is not at or extent_of(at) <= _WRITTEN:
            sums.unroll(tap)
        for c in channels:
            reader, at_box = sums, c
            at_filter = block if tile.turned or tile.kept else c
    else:
        at = add_steps(s, d.sum, part, d, tile)
    own: tuple[int, ...] = (*d.reach(tile.box), d.boxes.blocks[0] or d.boxes.slices * step)
    if in_steps and boxes_together(d) > 1:
        own = (boxes_together(d), *own)
    # Between steps of a filter, the box of the next results comes whenever it does.
    late, produced = bool(tile.streamed and not tile.staged), bool(tile.staged)
    load(s[boxes], reader, at_box, -len(own), own, tile.stages, False, producer=produced, late=late)
    if tile.streamed:
        _load_filter(s[taps], d, tile, sums, at, directly, tile.streamed, over=box)
    else:
        early = at_filter is block  # all of it, which is asked for first
        _load_filter(
            s[taps], d, tile, out if early else reader, at_filter, directly,
            tile.stages if in_steps and not early else 1,
        )  # fmt: skip
    return s


def _load_filter(
    taps: Stage, d: BoxDeclaration, tile: BoxProductTile, reader: Stage, at: IterVar,
    directly: bool, stages: int, over: IterVar | None = None,
) -> None:  # fmt: skip
    """Bring the filter of a tile; in several ``stages`` that of a step of channels, or a tap after
    another ``over`` boxes of results."""
    step, second, first, apart = step_of(d), d.boxes.blocks[1], -2, True
    box: tuple[int, ...] = (tile.channels, second or step)
    if directly:
        first, box = -4, (*digits(d, tile), second or step)
    elif d.boxes.turned:
        box = (step, ROW)
    elif over is None and stages > 1 and not second and 3 + d.space <= MOST_DIMENSIONS:
        # All taps are one box. How many of them there are is known, of channels only up to a tile.
        seen = [extent_of(tap) for tap in d.sum.op.reduce_axis[:-1]]
        first, box, apart = first - len(seen) - 1, (*seen, boxes_together(d), *box), False
        taps.align_bounds(taps.op.axis[-2], tile.channels)
    produced = stages > 1 and bool(tile.staged)
    load(taps, reader, at, first, box, stages, apart, over, producer=produced)
