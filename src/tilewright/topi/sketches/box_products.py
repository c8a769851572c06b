"""Convolutions with channels last on Hopper's tensor cores, from boxes that TMA brings.

A block computes a box of results and some of their channels. Step by step, a tap and up to 64
channels at a time, TMA brings what the tap sees and the filter into shared memory, ``stages - 1``
steps ahead of the tensor cores, which read both there; where a block computes several boxes, also
from one to the next. Results leave through shared memory, so that rows of them are stored whole.
"""

from __future__ import annotations

from tilewright.schedule import Schedule
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_added import bring_added, hold, parted
from tilewright.topi.pieces.box_ends import finish
from tilewright.topi.pieces.box_multiply import multiply
from tilewright.topi.pieces.box_products import bring
from tilewright.topi.pieces.box_results import share, staged
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.box_windows import pool, pooled
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.step_sums import add_steps, are_apart, axes_of, steps
from tilewright.topi.pieces.thread_order import in_order_of_threads, leaves_directly
from tilewright.topi.stages import scheduled


def schedule_box_products(d: BoxDeclaration, tile: BoxProductTile) -> Schedule:
    """The schedule of a forward pass, or of a gradient by the input."""
    directly = leaves_directly(d, tile)
    kept = () if directly else (d.phased, d.by_pixels, d.before)
    added = parted(d, tile) if tile.added else ()
    s = scheduled(d.output, d.sum, *kept, *d.numbers, *d.copies, *added)
    copy(s, d.copies)
    part = None
    if are_apart(d.problem):
        part = s.rfactor(d.sum, steps(s[d.sum], d)[0])
    boxes, taps = (s.cache_read(t, "shared", [part or d.sum]) for t in (d.left, d.right))
    windows = pooled(s, d)
    results, out = d.output if directly else staged(s, d), s[d.output]
    alike = bool(d.numbers) or d.phased is not None or bool(tile.kept)
    if directly:
        in_order_of_threads(s[taps], d, tile)
    block, box, at_sums = finish(s, d, tile, results, one_by_one=tile.boxes > 1, alike=alike)
    pool(s, d, windows)
    for numbers in d.numbers:
        share(s[numbers], tile, block, out)
    for t in added:
        bring_added(s[t], tile, box, out, 1 + bool(tile.staged), bool(tile.staged))
    hold(s, d, tile, block, at_sums, alike or tile.boxes == 1, bool(added))

    sums = s[d.sum]
    sums.set_scope("fragment")
    sums.compute_at(*at_sums)
    if part is None:
        at, k = steps(sums, d)
        phase, result = axes_of(sums.op.axis, d)
        sums.reorder(*phase, at, *result, k)
        multiply(sums, d, tile, result, at, k)
    else:
        at = add_steps(s, d.sum, part, d, tile)
    first = (out, block) if tile.kept and tile.boxes == 1 else None
    bring(sums, d, tile, at, s[boxes], s[taps], box if tile.boxes > 1 else None, first)
    return s
