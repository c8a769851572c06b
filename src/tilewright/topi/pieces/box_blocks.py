"""The loops over blocks and their boxes, of a stage of results of products of boxes."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.topi.nn.box_phases import all_phases
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.nn.images import Images
from tilewright.topi.pieces.block_tiles import BlockTile
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.box_turns import blocks_for, is_free, take_turns
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import image_axes


def blocks_of(
    out: Stage, d: BoxDeclaration, tile: BlockTile, one_by_one: bool, alike: bool,
    together: bool = False, along: str = "blockIdx.x", by_box: bool = False, in_turn: bool = False,
) -> tuple[IterVar, IterVar, list[list[IterVar]], list[IterVar]]:  # fmt: skip
    """The loops over blocks and over the boxes of each, which are one unless a block computes them
    ``one_by_one``, and of a box those over pixels and over channels. Boxes of a block have the same
    channels and phase where it has ``alike`` ones, and of all phases where these are
    ``together``. Blocks lie ``along`` an axis of the launch. Tiles of the channels of a box follow
    one another ``by_box``, else those of all boxes with the same channels do. Boxes that follow
    one another are a block's, or go to all blocks ``in_turn``: what neighbours both see is then in
    the cache."""
    images = Images(d.problem.result_layout)
    if images.block:
        n, c, *space, within_block = out.op.axis
    else:
        n, c, *space = image_axes(out, images.layout)
    stored = (tile.box[0], *(n // d.pooled for n in tile.box[1:]))
    sizes: tuple[int, ...] = (*stored, tile.channels // (images.block or 1))
    axes = [n, *space, c]
    # Tiles are counted for the batch that is expected, which a call may have another than.
    number, channels, extents = images.extents(d.problem.result.shape)
    free = is_free(d)
    gone = [1] * (len(space) - len(extents))
    extents = [number, *gone, *extents, channels // (images.block or 1)]
    if together and images.last and channels < widths(d.output.dtype).chunk:
        sizes = (*tile.box, channels)  # so that no thread has what is not there
    phases, within = list[IterVar](), [list[IterVar]() for _ in axes]
    if d.phased is not None:
        for k, (step, alone) in enumerate(zip(d.problem.stride, d.alone, strict=True), 1):
            axes[k], phase = out.split(axes[k], factor=step)
            extents[k] = -(-extents[k] // step)
            (within[k] if alone or together else phases).append(phase)
    if d.numbered:
        *pixel, c = axes
        out.reorder(*pixel, *phases, *(x for more in within for x in more), c)
        sizes, axes = (tile.images, sizes[-1]), [out.fuse(*pixel), c]
        extents = [math.prod(extents[:-1]), extents[-1]]
        within = [[x for more in within for x in more], []]
    elif d.in_rows:
        out.reorder(n, *space, c)
        sizes, axes = (tile.images, tile.columns, sizes[-1]), [n, out.fuse(*space), c]
        extents = [extents[0], math.prod(extents[1:-1]), extents[-1]]
        within = [[], [], []]
    # Of an unknown number of boxes, those of a cluster follow one another along the batch.
    ranks, several, extent = list[IterVar](), tile.filters_to if free else 1, sizes[0]
    sizes = (extent * several, *sizes[1:])
    pairs = [out.split(a, factor=e) for a, e in zip(axes, sizes, strict=True)]
    if several > 1:
        rank, inner = out.split(pairs[0][1], factor=extent)
        pairs[0], ranks = (pairs[0][0], inner), [rank]
    *tiles, wide = (-(-most // e) for most, e in zip(extents, sizes, strict=True))
    *blocks, part = (outer for outer, _ in pairs)
    places = [[inner, *more] for (_, inner), more in zip(pairs, within, strict=True)]
    (c,) = places.pop()
    flat = [x for place in places for x in place]
    own = [*flat, c] if images.last else [c, *flat, *([within_block] if images.block else [])]
    out.reorder(*blocks, *phases, part, *ranks, *own)
    whole = out.fuse(*blocks)
    if not ranks:
        whole, *ranks = neighbours(out, whole, math.prod(tiles), tile.filters_to)
    part, *more = neighbours(out, part, wide, tile.boxes_to)
    ranks += more
    if one_by_one and free:
        parts, count = wide // tile.boxes_to, math.prod(tiles)
        apart, loops, others = [*phases, part], [whole], wide * several
        others *= math.prod(d.problem.stride) if phases else 1
        if not alike:
            apart, loops, count, others = [], [whole, part], count * parts, others // parts
        # What keeps a filter asks for it before its first box: it has one.
        turns = 0 if d.boxes.whole else blocks_for(count, tile.boxes, others)
        block, box = take_turns(out, loops, apart, ranks, own, turns, tile.boxes)
    elif one_by_one:
        outer = [*phases, part] if alike else []
        loops = [whole] if alike else [whole, part] if by_box else [part, whole]
        out.reorder(*outer, *loops, *ranks, *own)
        if in_turn:
            box, block = out.split(out.fuse(*loops), nparts=tile.boxes)
        else:
            block, box = out.split(out.fuse(*loops), factor=tile.boxes)
        out.reorder(block, *ranks, box)
        block = out.fuse(*outer, block, *ranks)
    elif phases and isinstance(tile, BoxProductTile) and tile.staged and not free:
        # Where an SM has one block, those that take longest come first: of phases with most taps.
        out.reorder(*phases, whole, part, *own)
        block = box = out.fuse(*phases, whole, part)
        seen = [[n for _, n in cut.seen] for cut in all_phases(d.problem)]
        first, last = (math.prod(n[k] for n in seen) for k in (0, -1))
        out.pragma(block, "descending", first < last)
    else:
        out.reorder(whole, *phases, part, *ranks, *own)
        block = box = out.fuse(whole, *phases, part, *ranks)
    out.bind(block, te.thread_axis(along))
    return block, box, places, [c, *([within_block] if images.block else [])]


def wide_of(d: BoxDeclaration) -> int:
    """Channels of the result."""
    return extent_of(d.sum.op.axis[-1])


def neighbours(stage: Stage, axis: IterVar, blocks: int, count: int) -> list[IterVar]:
    """An axis of ``blocks``: that of clusters and, behind it, that of the ``count`` blocks of each,
    if these are several.

    Raises :class:`ScheduleError` where there is no whole number of clusters.
    """
    if count == 1:
        return [axis]
    if blocks % count:
        raise stage.error(
            f"{blocks} blocks are no clusters of {count}", axis,
            "Let each block copy for itself, or give it another tile",
        )  # fmt: skip
    return list(stage.split(axis, factor=count))
