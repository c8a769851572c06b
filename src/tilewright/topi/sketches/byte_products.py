"""Convolutions and products of 8-bit integers on tensor cores of any GPU since Ampere.

A block computes results that follow one another, by some of their channels. Step by step, a tap and
some channels at a time, threads ask for 16 bytes each of what the tap sees and of the filter,
``stages - 1`` steps ahead (cp.async); zeros outside of the image are stored. Warps load fragments
of both, channels of the sum side by side, and multiply them (mma.sync). Results leave through
shared memory, as those of :mod:`~tilewright.topi.sketches.box_products`.
"""

from __future__ import annotations

from tilewright.schedule import Schedule, Stage
from tilewright.target import instructions as found
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_products import over_threads, step_of
from tilewright.topi.pieces.box_results import share, stage_results, staged
from tilewright.topi.pieces.box_stores import store
from tilewright.topi.pieces.operand_copies import copy
from tilewright.topi.pieces.warp_tiles import WarpProductTile
from tilewright.topi.problem import Problem
from tilewright.topi.stages import scheduled

#: Bytes of an asynchronous copy; of a fragment rows, columns of two products, and what is summed.
_COPIED, _ROWS, _COLUMNS, _DEEP = 16, 16, 16, 32
#: By the type of images: the product, and the load of what results see.
_INSTRUCTIONS = {
    "int8": (found.mma_s8, found.ldmatrix_a_s8),
    "uint8": (found.mma_u8_s8, found.ldmatrix_a_u8),
}


def form(p: Problem, tile: WarpProductTile) -> str:
    """The declaration of a problem: of pixels where it has images."""
    return "pixels" if getattr(p, "rank", 0) else "boxes"


def schedule_byte_products(d: BoxDeclaration, tile: WarpProductTile) -> Schedule:
    """The schedule of a forward pass."""
    s = scheduled(d.output, d.sum, d.by_pixels, *d.numbers, *d.copies)
    copy(s, d.copies)
    boxes, taps = (s.cache_read(t, "shared", [d.sum]) for t in (d.left, d.right))
    seen, filters = (s.cache_read(t, "fragment", [d.sum]) for t in (boxes, taps))
    results, out = staged(s, d), s[d.output]
    block, box, _ = store(out, d, tile)
    for numbers in d.numbers:
        share(s[numbers], tile, block, out)
    warp = stage_results(s[results], d, tile, box, out)

    sums = s[d.sum]
    sums.set_scope("fragment")
    sums.compute_at(s[results], warp)
    depth = min(tile.depth, step_of(d))
    *taken, c = sums.op.reduce_axis
    c, k = sums.split(c, factor=depth)
    sums.reorder(*taken, c, k)
    at = sums.fuse(*taken, c)
    *_, n, y, x, f = sums.op.axis
    sums.align_bounds(n, tile.of_groups[0])
    sums.align_bounds(f, tile.own)
    part, k = sums.split(k, factor=_DEEP)
    (no, n), (fo, f) = sums.split(n, factor=_ROWS), sums.split(f, factor=_COLUMNS // 2)
    sums.reorder(at, part, y, x, no, fo, n, f, k)
    sums.unroll(part, no, fo)
    multiply, load_seen = _INSTRUCTIONS[d.problem.dtype]
    sums.tensorize(n, multiply)

    for fragment, load, rows in ((seen, load_seen, -6), (filters, found.ldmatrix_b_s8, -4)):
        stage = s[fragment]
        stage.compute_at(sums, part)
        row, c = stage.op.axis[rows], stage.op.axis[-1]
        (ro, r), (co, c) = stage.split(row, factor=_ROWS), stage.split(c, factor=_DEEP)
        stage.reorder(ro, co, *((r, c) if rows == -6 else (c, r)))
        stage.unroll(ro, co)
        stage.tensorize(r if rows == -6 else c, load)
    first, second = d.boxes.blocks
    for shared, rows, extent, width in (
        (boxes, -6, tile.pixels, first), (taps, -4, tile.channels, second),
    ):  # fmt: skip
        stage = s[shared]
        stage.compute_at(sums, at)
        stage.align_bounds(stage.op.axis[rows], extent)
        _copy(stage, tile, width or depth)
    return s


def _copy(stage: Stage, tile: WarpProductTile, row: int) -> None:
    """Fill a tile in shared memory, of rows of that many bytes, in the background."""
    stage.swizzle(row)
    stage.pipeline(tile.stages)
    *outer, c = stage.op.axis
    c, lane = stage.split(c, factor=_COPIED)
    kind = str(stage.op.outputs[0].dtype)
    stage.tensorize(lane, found.copy_async(_COPIED, kind))
    stage.unroll(over_threads(stage, stage.fuse(*outer, c), tile))
