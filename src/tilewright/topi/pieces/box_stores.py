"""How results of products of boxes leave: through shared memory, so that rows are stored whole, or
from registers of threads that hold parts of them."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.topi.nn.box_copies import widths
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.nn.images import Images
from tilewright.topi.pieces.block_tiles import BlockTile
from tilewright.topi.pieces.box_products import neighbours, over_threads
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import image_axes


def store(
    out: Stage, d: BoxDeclaration, tile: BlockTile, one_by_one: bool = False, alike: bool = True,
    together: bool = False,
) -> tuple[IterVar, IterVar]:  # fmt: skip
    """Whole rows of results from shared memory, or in layouts in which channels lie in blocks, or
    first, whole rows of those; returns the loops over blocks and over the boxes of each, as
    :func:`_blocks`."""
    block, box, pixel, channels = _blocks(out, d, tile, one_by_one, alike, together)
    images = Images(d.problem.result_layout)
    flat = [x for place in pixel for x in place]
    *own, c = [*flat, *channels] if images.last else [channels[0], *flat, *channels[1:]]
    chunk = min(widths(d.output.dtype).chunk, tile.channels)
    lanes = (
        math.gcd(images.block or extent_of(d.sum.op.axis[-1]), chunk)
        if images.last or images.block
        else 1
    )
    c, lane = out.split(c, factor=lanes)
    out.unroll(over_threads(out, out.fuse(*own, c), tile))
    out.vectorize(lane)
    return block, box


def store_directly(
    out: Stage, d: BoxDeclaration, tile: BlockTile, one_by_one: bool = False, alike: bool = True
) -> tuple[IterVar, IterVar, IterVar]:
    """The same from registers, where they :func:`~tilewright.topi.pieces.thread_order
    .leaves_directly`; returns the loop over groups, too."""
    block, box, pixel, channels = _blocks(out, d, tile, one_by_one, alike)
    within = [x for _, *more in pixel for x in more]
    if d.boxes.beside > 1:  # of which each group has every fourth pixel
        *rows, x = (x for x, *_ in pixel)
        x, among = out.split(x, factor=d.boxes.beside)
        groups, own = [among], [*rows, x]
    else:
        images, *space = tile.of_groups
        sizes = (images, *space[len(space) + 1 - len(pixel) :])
        parts = [out.split(x, factor=n) for (x, *_), n in zip(pixel, sizes, strict=True)]
        groups, own = [first for first, _ in parts], [last for _, last in parts]
    *outer, c = channels
    c, lane = out.split(c, factor=widths(d.output.dtype).chunk)
    out.reorder(*groups, *outer, c, *own, *within, lane)
    group = out.fuse(*groups)
    out.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    out.vectorize(lane)
    return block, box, group


def _blocks(
    out: Stage, d: BoxDeclaration, tile: BlockTile, one_by_one: bool, alike: bool,
    together: bool = False,
) -> tuple[IterVar, IterVar, list[list[IterVar]], list[IterVar]]:  # fmt: skip
    """The loops over blocks and over the boxes of each, which are one unless a block computes them
    ``one_by_one``, and of a box those over pixels and over channels. Boxes of a block have the same
    channels and phase where it has ``alike`` ones, and of all phases where these are
    ``together``."""
    images = Images(d.problem.result_layout)
    if images.block:
        n, c, *space, within_block = out.op.axis
    else:
        n, c, *space = image_axes(out, images.layout)
    sizes: tuple[int, ...] = (*tile.box, tile.channels // (images.block or 1))
    axes = [n, *space, c]
    number, channels, extents = images.extents([extent_of(a) for a in out.op.axis])
    gone = [1] * (len(space) - len(extents))
    extents = [number, *gone, *extents, channels // (images.block or 1)]
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
    pairs = [out.split(a, factor=e) for a, e in zip(axes, sizes, strict=True)]
    *tiles, wide = (-(-extent // e) for extent, e in zip(extents, sizes, strict=True))
    *blocks, part = (outer for outer, _ in pairs)
    places = [[inner, *more] for (_, inner), more in zip(pairs, within, strict=True)]
    (c,) = places.pop()
    flat = [x for place in places for x in place]
    own = [*flat, c] if images.last else [c, *flat, *([within_block] if images.block else [])]
    out.reorder(*blocks, *phases, part, *own)
    whole, *ranks = neighbours(out, out.fuse(*blocks), math.prod(tiles), tile.filters_to)
    part, *more = neighbours(out, part, wide, tile.boxes_to)
    ranks += more
    if one_by_one:
        outer = [*phases, part] if alike else []
        loops = [whole] if alike else [part, whole]
        out.reorder(*outer, *loops, *ranks, *own)
        block, box = out.split(out.fuse(*loops), factor=tile.boxes)
        out.reorder(block, *ranks, box)
        block = out.fuse(*outer, block, *ranks)
    else:
        out.reorder(whole, *phases, part, *ranks, *own)
        block = box = out.fuse(whole, *phases, part, *ranks)
    out.bind(block, te.thread_axis("blockIdx.x"))
    return block, box, places, [c, *([within_block] if images.block else [])]
