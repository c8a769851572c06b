"""The loops in which a block stores results of products of boxes, from shared memory or from the
registers of threads that hold parts of them."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.target.devices import WARP
from tilewright.target.instructions import tma_store
from tilewright.topi.nn.box_problems import ROW, widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.nn.images import Images
from tilewright.topi.pieces.block_tiles import BlockTile
from tilewright.topi.pieces.box_blocks import blocks_of, wide_of
from tilewright.topi.pieces.box_products import over_threads
from tilewright.topi.pieces.box_tiles import ROWS, WARP_ROWS
from tilewright.topi.pieces.cluster_sums import CLUSTERS, lanes_of, rows_of, share_out
from tilewright.topi.pieces.thread_order import neighbours


def store(
    out: Stage, d: BoxDeclaration, tile: BlockTile, one_by_one: bool = False, alike: bool = True,
    together: bool = False, cluster: int = 1, in_turn: bool = False,
) -> tuple[IterVar, IterVar, tuple[IterVar, IterVar] | None]:  # fmt: skip
    """Whole rows of results from shared memory, or in layouts in which channels lie in blocks, or
    first, whole rows of those; returns the loops over blocks and over the boxes of each, as
    :func:`~tilewright.topi.pieces.box_blocks.blocks_of`, and where warps or TMA store parts of
    these, those over groups and parts. Of a ``cluster``, each block along blockIdx.x stores its
    share of the results of one. Boxes go to blocks ``in_turn`` as there."""
    along = "blockIdx.x" if cluster == 1 else CLUSTERS
    block, box, pixel, channels = blocks_of(
        out, d, tile, one_by_one, alike, together, along, in_turn=in_turn
    )
    images, flat = Images(d.problem.result_layout), [x for place in pixel for x in place]
    *own, c = [*flat, *channels] if images.last else [channels[0], *flat, *channels[1:]]
    chunk = min(widths(d.output.dtype).chunk, tile.channels)
    lanes = math.gcd(images.block or wide_of(d), chunk) if images.last or images.block else 1
    if tile.stores:
        return block, box, _by_boxes(out, tile, own, c, str(d.output.dtype))
    if cluster > 1:
        results, threads = math.prod(tile.box) * tile.channels, tile.groups * tile.lanes
        lanes = math.gcd(lanes_of(results, cluster, threads), lanes)
    some = tile.staged
    if together and images.last and wide_of(d) < widths(d.output.dtype).chunk:
        some = wide_of(d)
        if d.phased is not None:  # neighbours are of several phases
            c, some = out.fuse(own.pop(), c), some * d.problem.stride[-1]
            lanes = math.gcd(some, chunk)
    if d.pooled > 1:
        lanes = math.gcd(lanes, windows_each(tile, d.pooled))
    c, lane = out.split(c, factor=lanes)
    if tile.staged:
        out.vectorize(lane)
        return block, box, _by_warps(out, tile, own, c, lane, lanes, some, _results_of(d))
    if cluster > 1:
        rows = math.prod(tile.box) if max(tile.box[1:]) == 1 else 0
        each = rows_of(rows, tile.channels // lanes, cluster, tile.groups * tile.lanes)
        share_out(out, out.fuse(*own), c, lane, cluster, each, (tile.groups, tile.lanes))
    else:
        out.unroll(over_threads(out, out.fuse(*own, c), tile))
    out.vectorize(lane)
    return block, box, None


def windows_each(tile: BlockTile, window: int) -> int:
    """Results that a thread stores at once where they are pooled, of a tile or of a warp's rows and
    ``staged`` channels; 0 where not all threads store as many."""
    count, threads = math.prod(tile.box) * tile.channels, tile.groups * tile.lanes
    if tile.staged:
        count, threads = WARP_ROWS * tile.staged, WARP
    return 0 if count % (window**2 * threads) else count // (window**2 * threads)


def store_directly(
    out: Stage, d: BoxDeclaration, tile: BlockTile, one_by_one: bool = False, alike: bool = True
) -> tuple[IterVar, IterVar, IterVar]:
    """The same from registers, where they :func:`~tilewright.topi.pieces.thread_order
    .leaves_directly`; returns the loop over groups, too."""
    block, box, pixel, channels = blocks_of(out, d, tile, one_by_one, alike)
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
    c, lane = out.split(c, factor=neighbours(d.problem, wide_of(d), tile.channels))
    out.reorder(*groups, *outer, c, *own, *within, lane)
    group = out.fuse(*groups)
    out.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    out.vectorize(lane)
    return block, box, group


def _by_warps(
    out: Stage, tile: BlockTile, pixel: list[IterVar], c: IterVar, lane: IterVar, lanes: int,
    some: int, each: int,
) -> tuple[IterVar, IterVar]:  # fmt: skip
    """Let each warp store what it has in its fragments, a part of it of ``some`` channels at a
    time, where there are ``each`` results to a pixel of a box; returns the loops over groups and
    over parts."""
    q = out.fuse(*pixel)
    at, rest = (c, q) if tile.turned else (q, c)
    wide = 1 if tile.turned else tile.channels // tile.own_channels
    group, at = out.split(at, nparts=tile.groups // wide)
    if wide > 1:  # groups of some channels each
        beside, rest = out.split(rest, nparts=wide)
        out.reorder(group, beside, at, rest, lane)
        group = out.fuse(group, beside)
    warp, at = out.split(at, nparts=tile.lanes // WARP)
    part, rest = out.split(rest, factor=tile.staged * each if tile.turned else some // lanes)
    q, c = (rest, at) if tile.turned else (at, rest)
    out.reorder(group, part, warp, q, c, lane)
    turn, thread = out.split(out.fuse(q, c), factor=WARP)
    out.reorder(turn, warp, thread, lane)
    out.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    out.bind(out.fuse(warp, thread), te.thread_axis((0, tile.lanes), "threadIdx.x"))
    out.unroll(turn)
    return group, part


def _results_of(d: BoxDeclaration) -> int:
    """Results to a pixel of a box: with those of phases that see nothing, which are stored beside
    the one that does."""
    if d.phased is None:
        return 1
    return math.prod(n for n, alone in zip(d.problem.stride, d.alone, strict=True) if alone)


def _by_boxes(
    out: Stage, tile: BlockTile, pixel: list[IterVar], c: IterVar, kind: str
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
