"""The loops in which a block stores results of products of boxes, from shared memory."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.target.devices import WARP
from tilewright.target.instructions import tma_store
from tilewright.topi.nn.box_copies import ROW, widths
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.nn.images import Images
from tilewright.topi.pieces.block_tiles import BlockTile
from tilewright.topi.pieces.box_products import over_threads
from tilewright.topi.pieces.box_tiles import ROWS, BoxProductTile
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.stages import image_axes


def store(
    out: Stage, d: BoxDeclaration, tile: BlockTile, one_by_one: bool = False, alike: bool = True,
    together: bool = False,
) -> tuple[IterVar, IterVar, tuple[IterVar, IterVar] | None]:  # fmt: skip
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
    lanes = math.gcd(images.block or wide_of(d), chunk) if images.last or images.block else 1
    *own, c = own
    if isinstance(tile, BoxProductTile) and tile.stores:
        return block, box, _by_boxes(out, tile, own, c, str(d.output.dtype))
    c, lane = out.split(c, factor=lanes)
    if isinstance(tile, BoxProductTile) and tile.staged:
        out.vectorize(lane)
        return block, box, _by_warps(out, tile, own, c, lane, lanes)
    out.unroll(over_threads(out, out.fuse(*own, c), tile))
    out.vectorize(lane)
    return block, box, None


def _by_warps(
    out: Stage, tile: BoxProductTile, pixel: list[IterVar], c: IterVar, lane: IterVar, lanes: int
) -> tuple[IterVar, IterVar]:
    """Let each warp store what it has in its fragments, a part of it at a time; returns the loops
    over groups and over parts."""
    q = out.fuse(*pixel)
    if tile.turned:
        at, rest = c, q
    else:
        at, rest = q, c
    group, at = out.split(at, nparts=tile.groups)
    warp, at = out.split(at, nparts=tile.lanes // WARP)
    part, rest = out.split(rest, factor=tile.staged // (1 if tile.turned else lanes))
    q, c = (rest, at) if tile.turned else (at, rest)
    out.reorder(group, part, warp, q, c, lane)
    turn, thread = out.split(out.fuse(q, c), factor=WARP)
    out.reorder(turn, warp, thread, lane)
    out.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    out.bind(out.fuse(warp, thread), te.thread_axis((0, tile.lanes), "threadIdx.x"))
    out.unroll(turn)
    return group, part


def wide_of(d: BoxDeclaration) -> int:
    """Channels of the result."""
    return extent_of(d.sum.op.axis[-1])


def _by_boxes(
    out: Stage, tile: BoxProductTile, pixel: list[IterVar], c: IterVar, kind: str
) -> tuple[IterVar, IterVar]:
    """Let TMA store what each group of threads has, in boxes of :data:`ROW` channels."""
    group, q = out.split(out.fuse(*pixel), nparts=tile.groups)
    part, c = out.split(c, factor=tile.staged)
    some, c = out.split(c, factor=ROW)
    out.reorder(group, part, some, q, c)
    out.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    out.unroll(some)
    out.tensorize(q, tma_store((ROWS, ROW), kind, swizzle=2 * ROW))
    return group, part


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
