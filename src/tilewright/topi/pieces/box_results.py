"""How results of products of boxes leave: through shared memory, so that rows are stored whole."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.nn.box_copies import widths
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.nn.images import Images
from tilewright.topi.pieces.block_tiles import BlockTile
from tilewright.topi.pieces.box_products import by_groups, neighbours, over_threads
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import image_axes

#: By the number of dimensions, how results with channels last lie.
_LAST = {2: "NC", 3: "NWC", 4: "NHWC", 5: "NDHWC"}


def staged(s: Schedule, d: BoxDeclaration) -> Tensor:
    """Results of a block, in shared memory."""
    found = d.phased if d.by_pixels is None else d.by_pixels
    if found is None:
        found = s.cache_write(d.output, "shared")
    s[found].set_scope("shared")
    return found


def store(
    out: Stage, d: BoxDeclaration, tile: BlockTile, one_by_one: bool = False, alike: bool = True,
    together: bool = False,
) -> tuple[IterVar, IterVar]:  # fmt: skip
    """Whole rows of results from shared memory, or in layouts in which channels lie in blocks, or
    first, whole rows of those; returns the loops over blocks and over the boxes of each, which are
    one unless it computes them ``one_by_one``. Those have the same channels and phase where a block
    has ``alike`` ones, and of all phases where these are ``together``."""
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
    *pixel, c = (x for (_, inner), more in zip(pairs, within, strict=True) for x in (inner, *more))
    own = [*pixel, c] if images.last else [c, *pixel, *([within_block] if images.block else [])]
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
    chunk = min(widths(d.output.dtype).chunk, tile.channels)
    lanes = math.gcd(images.block or _wide(d), chunk) if images.last or images.block else 1
    *own, c = own
    c, lane = out.split(c, factor=lanes)
    out.unroll(over_threads(out, out.fuse(*own, c), tile))
    out.vectorize(lane)
    return block, box


def share(numbers: Stage, tile: BlockTile, block: IterVar, out: Stage) -> None:
    """What is the same for a channel, computed once for a block."""
    numbers.set_scope("shared")
    numbers.compute_at(out, block)
    over_threads(numbers, numbers.op.axis[0], tile)


def stage_results(
    staged: Stage, d: BoxDeclaration, tile: BlockTile, block: IterVar, out: Stage,
    together: bool = False,
) -> IterVar:  # fmt: skip
    """Results of a block in shared memory, the epilogue included; returns the loop over groups,
    each of which has its results of all phases ``together``, or of one phase after the other."""
    staged.compute_at(out, block)
    axes = list(staged.op.axis)
    phase = [] if d.phased is None else [axes.pop(-2)]
    for axis, extent in zip(axes, (*extents_of(tile, len(axes) - 1), tile.channels), strict=True):
        staged.align_bounds(axis, extent)
    if phase:
        n, *space, c = axes
    else:
        layout = d.problem.result_layout
        n, c, *space = image_axes(staged, layout if d.by_pixels is None else _LAST[len(axes)])
    stored = widths(d.output.dtype)
    row = min(stored.row, max(tile.channels, stored.chunk))
    staged.storage_align(staged.op.axis[-2], row, stored.chunk)  # no bank twice
    outside, inside = ([], phase) if together else (phase, [])
    if together:
        staged.unroll(*phase)
    return by_groups(staged, tile, outside, (n, *space), c, _wide(d) % 2 == 0, inside)


def extents_of(tile: BlockTile, rank: int) -> tuple[int, ...]:
    """Those of a tile along the dimensions that results have but channels."""
    images, *space = tile.box
    return images, *space[len(space) + 1 - rank :]


def _wide(d: BoxDeclaration) -> int:
    """Channels of the result."""
    return extent_of(d.sum.op.axis[-1])
