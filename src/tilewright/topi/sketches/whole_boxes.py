"""Convolutions with channels last on Hopper's tensor cores, of boxes that all taps read.

Where the filter of a tile is small, a block keeps it in shared memory and computes one box of
results after the other. TMA brings what all taps of a box see, once, while the one before is
multiplied and stored; taps read parts of it. Of larger filters it brings a tap after another, again
for each box.
"""

from __future__ import annotations

from tilewright.schedule import Schedule
from tilewright.topi.nn.box_copies import ROW
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_added import bring_added, parted
from tilewright.topi.pieces.box_ends import finish
from tilewright.topi.pieces.box_multiply import multiply
from tilewright.topi.pieces.box_products import load, step_of
from tilewright.topi.pieces.box_results import share, staged
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.box_windows import pool, pooled
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.step_sums import add_steps, are_apart, axes_of, steps
from tilewright.topi.pieces.thread_order import digits, in_order_of_threads, leaves_directly
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import scheduled

#: Steps that are written out, at most: where an instruction is of a constant place in a box, it
#: takes a few others to say so, and more than the products where there are few channels.
_WRITTEN = 32


def schedule_whole_boxes(d: BoxDeclaration, tile: BoxProductTile) -> Schedule:
    """The schedule of a forward pass, or of a gradient by the input."""
    added = parted(d, tile)
    directly = leaves_directly(d, tile)
    kept = () if directly else (d.phased, d.by_pixels, d.before)
    s = scheduled(d.output, d.sum, *kept, *d.numbers, *d.copies, *added)
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
        bring_added(s[t], tile, box, out, 2 if tile.staged else tile.stages, bool(tile.staged))

    sums, step = s[d.sum], step_of(d)
    sums.set_scope("fragment")
    sums.compute_at(*at_sums)
    if part is None:
        *_, row, _ = sums.op.reduce_axis
        at, k = steps(sums, d)
        phase, result = axes_of(sums.op.axis, d)
        tap = at
        if tile.streamed:  # by rows of taps, since others wait for each
            at, tap = sums.split(at, factor=extent_of(row))
        sums.reorder(*phase, *dict.fromkeys((at, tap)), *result, k)
        multiply(sums, d, tile, result, tap, k)
        if tap is not at or extent_of(at) <= _WRITTEN:
            sums.unroll(tap)
    else:
        at = add_steps(s, d.sum, part, d, tile)
    first, second = d.boxes.blocks
    own = (*d.reach(tile.box), first or d.boxes.slices * step)
    # Between steps of a filter, the box of the next results comes whenever it does.
    late, produced = bool(tile.streamed and not tile.staged), bool(tile.staged)
    load(s[boxes], out, box, -2 - d.space, own, tile.stages, False, producer=produced, late=late)
    box_of_taps: tuple[int, ...] = (tile.channels, second or step)
    if d.boxes.turned:
        box_of_taps = step, ROW
    if directly:
        box_of_taps = (*digits(d, tile), second or step)
    if tile.streamed:
        load(
            s[taps], sums, at, -len(box_of_taps), box_of_taps, tile.streamed, over=box,
            producer=produced,
        )  # fmt: skip
    else:
        load(s[taps], out, block, -len(box_of_taps), box_of_taps, 1)
    return s
