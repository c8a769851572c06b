"""How results of products of boxes leave: through shared memory, so that rows are stored whole."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.nn.box_copies import widths
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.pieces.box_products import by_groups, load, over_threads
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import image_axes


def staged(s: Schedule, d: BoxDeclaration) -> Tensor:
    """Results of a block, in shared memory."""
    found = d.phased
    if found is None:
        found = s.cache_write(d.output, "shared")
    s[found].set_scope("shared")
    return found


def store(
    out: Stage, d: BoxDeclaration, tile: BoxProductTile, one_by_one: bool = False
) -> tuple[IterVar, IterVar]:
    """Whole rows of results from shared memory; returns the loops over blocks and over the boxes
    of each, which are one unless it computes them ``one_by_one``."""
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
    if one_by_one:
        if len(d.problem.layout) == 2:  # rows first: beyond the last there is no second image
            blocks.reverse()
        out.reorder(*phases, part, *blocks, *pixel, c)
        block, box = out.split(out.fuse(*blocks), factor=tile.boxes)
        block = out.fuse(*phases, part, block)
    else:
        out.reorder(*blocks, *phases, part, *pixel, c)
        block = box = out.fuse(*blocks, *phases, part)
    out.bind(block, te.thread_axis("blockIdx.x"))
    chunk = min(widths(d.output.dtype).chunk, tile.channels)
    c, lane = out.split(c, factor=math.gcd(_wide(d), chunk))
    out.unroll(over_threads(out, out.fuse(*pixel, c), tile.groups))
    out.vectorize(lane)
    return block, box


def parted(d: BoxDeclaration, tile: BoxProductTile) -> tuple[Tensor, ...]:
    """What TMA brings of what is added to results: all of it where a tile has whole rows of it."""
    rows = (extent_of(t.op.axis[-1]) for t in d.added)
    return d.added if all(tile.channels % row == 0 for row in rows) else ()


def bring_added(
    added: Stage, tile: BoxProductTile, block: IterVar, out: Stage, stages: int
) -> None:
    """What is added to results, in shared memory before it is needed, a box of it ahead."""
    added.set_scope("shared")
    _, *pixel, c = added.op.axis
    load(added, out, block, 1, (*_extents(tile, len(pixel)), extent_of(c)), stages)


def share(numbers: Stage, tile: BoxProductTile, block: IterVar, out: Stage) -> None:
    """What is the same for a channel, computed once for a block."""
    numbers.set_scope("shared")
    numbers.compute_at(out, block)
    over_threads(numbers, numbers.op.axis[0], tile.groups)


def stage_results(
    staged: Stage, d: BoxDeclaration, tile: BoxProductTile, block: IterVar, out: Stage
) -> IterVar:
    """Results of a block in shared memory, the epilogue included; returns the loop over groups."""
    staged.compute_at(out, block)
    axes = list(staged.op.axis)
    phase = [] if d.phased is None else [axes.pop(3)]
    for axis, extent in zip(axes, (*_extents(tile, len(axes) - 1), tile.channels), strict=True):
        staged.align_bounds(axis, extent)
    if phase:
        n, h, w, c = axes
    else:
        n, c, h, w = image_axes(staged, d.problem.layout)
    stored = widths(d.output.dtype)
    staged.storage_align(staged.op.axis[-2], stored.row, stored.chunk)  # no bank twice
    return by_groups(staged, tile, phase, (n, h, w), c, _wide(d) % 2 == 0)


def _extents(tile: BoxProductTile, rank: int) -> tuple[int, ...]:
    """Those of a tile along the dimensions that results have but channels."""
    images, rows, columns = tile.box
    return {3: (images, rows, columns), 2: (images, columns), 1: (columns,)}[rank]


def _wide(d: BoxDeclaration) -> int:
    """Channels of the result."""
    return extent_of(d.sum.op.axis[-1])
