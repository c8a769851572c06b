"""Convolutions with channels last on Hopper's tensor cores, from boxes that TMA brings.

A block computes a box of results and some of their channels. Step by step, a tap and up to 64
channels at a time, TMA brings what the tap sees and the filter into shared memory, ``stages - 1``
steps ahead of the tensor cores, which read both there. Results leave through shared memory, so that
rows of them are stored whole.
"""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.topi.nn.box_copies import widths
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.pieces.box_products import by_groups, copy, multiply, over_threads
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import image_axes, scheduled


def schedule_box_products(d: BoxDeclaration, tile: BoxProductTile) -> Schedule:
    """The schedule of a forward pass, or of a gradient by the input."""
    s = scheduled(d.output, d.sum, d.phased, *d.numbers, *d.copies)
    copy(s, d.copies)
    boxes, taps = (s.cache_read(t, "shared", [d.sum]) for t in (d.left, d.right))
    staged = d.phased
    if staged is None:
        staged = s.cache_write(d.output, "shared")
    s[staged].set_scope("shared")
    step = widths(d.problem.dtype).step(extent_of(d.sum.op.reduce_axis[-1]))
    block = _store(s[d.output], d, tile)
    for numbers in d.numbers:
        _share(s[numbers], tile, block, s[d.output])
    group = _stage(s[staged], d, tile, block, s[d.output])

    sums = s[d.sum]
    sums.set_scope("fragment")
    sums.compute_at(s[staged], group)
    *pixel, f = sums.op.axis
    pixel, phase = pixel[:3], pixel[3:]
    *taken, c = sums.op.reduce_axis
    c, k = sums.split(c, factor=step)
    sums.reorder(*phase, *taken, c, *pixel, f, k)
    multiply(sums, d, tile, (*pixel, f), sums.fuse(*taken, c), k, (s[boxes], s[taps]))
    return s


def _store(out: Stage, d: BoxDeclaration, tile: BoxProductTile) -> IterVar:
    """Whole rows of results from shared memory; returns the loop over blocks."""
    n, c, h, w = image_axes(out, d.problem.layout)
    sizes, axes = (*tile.box, tile.channels), [n, h, w, c]
    phases, within = list[IterVar](), [list[IterVar]() for _ in axes]
    if d.phased is not None:
        for k, (step, alone) in enumerate(zip(d.problem.stride, d.alone, strict=True), 1):
            axes[k], phase = out.split(axes[k], factor=step)
            (within[k] if alone else phases).append(phase)
    pairs = [out.split(a, factor=e) for a, e in zip(axes, sizes, strict=True)]
    *blocks, part = (outer for outer, _ in pairs)
    *pixel, c = (x for (_, inner), more in zip(pairs, within, strict=True) for x in (inner, *more))
    out.reorder(*blocks, *phases, part, *pixel, c)
    block = out.fuse(*blocks, *phases, part)
    out.bind(block, te.thread_axis("blockIdx.x"))
    chunk = min(widths(d.output.dtype).chunk, tile.channels)
    c, lane = out.split(c, factor=math.gcd(_wide(d), chunk))
    out.unroll(over_threads(out, out.fuse(*pixel, c), tile.groups))
    out.vectorize(lane)
    return block


def _share(numbers: Stage, tile: BoxProductTile, block: IterVar, out: Stage) -> None:
    """What is the same for a channel, computed once for a block."""
    numbers.set_scope("shared")
    numbers.compute_at(out, block)
    over_threads(numbers, numbers.op.axis[0], tile.groups)


def _stage(
    staged: Stage, d: BoxDeclaration, tile: BoxProductTile, block: IterVar, out: Stage
) -> IterVar:
    """Results of a block in shared memory, the epilogue included; returns the loop over groups."""
    staged.compute_at(out, block)
    images, rows, columns = tile.box
    axes = list(staged.op.axis)
    phase = [] if d.phased is None else [axes.pop(3)]
    extents = {4: (images, rows, columns), 3: (images, columns), 2: (columns,)}
    for axis, extent in zip(axes, (*extents[len(axes)], tile.channels), strict=True):
        staged.align_bounds(axis, extent)
    if phase:
        n, h, w, c = axes
    else:
        n, c, h, w = image_axes(staged, d.problem.layout)
    stored = widths(d.output.dtype)
    staged.storage_align(staged.op.axis[-2], stored.row, stored.chunk)  # no bank twice
    return by_groups(staged, tile, phase, (n, h, w), c, _wide(d) % 2 == 0)


def _wide(d: BoxDeclaration) -> int:
    """Channels of the result."""
    return extent_of(d.sum.op.axis[-1])
