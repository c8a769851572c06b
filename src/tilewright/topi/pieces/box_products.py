"""What products of boxes have in common: how TMA brings them, and loops that make blocks of 8."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.target.boxes import MOST_DIMENSIONS
from tilewright.target.instructions import tma_load
from tilewright.topi.nn.box_problems import ROW, widths
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.block_tiles import BlockTile, ThreadTile
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.thread_order import digits, leaves_directly
from tilewright.topi.pieces.tiling import extent_of


def load(
    stage: Stage, reader: Stage, at: IterVar, first: int, box: Sequence[int], stages: int,
    apart: bool = True, over: IterVar | None = None, windows: bool = False, cluster: int = 1,
    producer: bool = False, swizzled: bool = True, late: bool = False,
) -> None:  # fmt: skip
    """Copy a factor by boxes, of axes from the ``first`` on, into memory that is ``swizzled`` or
    not, ``stages - 1`` iterations of a reader's loop ``at`` ahead, also from one iteration of a
    loop ``over`` it to the next; boxes lie ``apart``, or overlap, or are of ``windows``, blocks of
    a ``cluster`` have the same ones, and ``late`` ones are awaited after others that are asked for
    behind them."""
    stage.compute_at(reader, at)
    axes = stage.op.axis[first:]
    if apart:
        for axis, extent in zip(axes, box[:-1], strict=False):
            stage.align_bounds(axis, extent)
    kind = str(stage.op.outputs[0].dtype)
    row = box[-1] * dtype(kind).bytes if swizzled else 0
    if swizzled:
        stage.swizzle(row)
    if stages > 1:
        stage.pipeline(stages, over=over, producer=producer)
    if windows:
        box = (box[0], box[-1])
    stage.tensorize(axes[0], tma_load(box, kind, row, windows, cluster, late))


def bring(
    sums: Stage, d: BoxDeclaration, tile: BoxProductTile, at: IterVar, boxes: Stage, taps: Stage,
    over: IterVar | None = None, first: tuple[Stage, IterVar] | None = None,
) -> None:  # fmt: skip
    """Copy both factors of a step of the loop ``at`` ahead of it, as :func:`load` does; or all of
    the filter ``first``, at a loop of another stage."""
    step = step_of(d)
    own: tuple[int, ...] = (*tile.box, d.boxes.slices * step)
    box: tuple[int, ...] = (step, ROW) if d.boxes.turned else (tile.channels, step)
    block, second = d.boxes.blocks
    if block:
        *outer, columns = tile.box
        beside = d.boxes.beside
        own = (step // block, *outer, columns // beside, beside * block)
    if second:
        box = (step // second, tile.channels, second)
    where = -2 - d.space - bool(second)
    wide, rows = extent_of(d.sum.op.axis[-1]), tile.channels // ROW
    if d.boxes.turned and rows > 1 and wide % ROW == 0 and 3 + d.space <= MOST_DIMENSIONS:
        where, box = where - 1, (rows, *box)  # one box has several rows of channels
    if leaves_directly(d, tile):
        where, box = where - 2, (*digits(d, tile), step)
    if first is not None:  # step by step, of a filter with channels last
        taps.transform_layout(lambda f, *at: (*at[:-1], at[-1] // step, f, at[-1] % step))
        load(taps, *first, -2, box, 1)
    load(
        boxes, sums, at, -2 - 2 * d.space - bool(block), own, tile.stages, over=over,
        windows=d.boxes.windows, cluster=tile.boxes_to, producer=bool(tile.staged),
    )  # fmt: skip
    if first is None:
        load(
            taps, sums, at, where, box, tile.stages, over=over, cluster=tile.filters_to,
            producer=bool(tile.staged),
        )  # fmt: skip


def terms_of(d: BoxDeclaration) -> int:
    """Products that a step sums for a result."""
    return 3 * d.boxes.halves or step_of(d)


def step_of(d: BoxDeclaration) -> int:
    """Channels that a step brings of either factor."""
    return 2 * d.boxes.halves or widths(d.problem.dtype).step(extent_of(d.sum.op.reduce_axis[-1]))


def by_groups(
    stage: Stage, tile: BlockTile, outside: Sequence[IterVar], pixel: Sequence[IterVar],
    c: IterVar, pairs: bool, inside: Sequence[IterVar] = (), thread: IterVar | None = None,
) -> IterVar:  # fmt: skip
    """Divide the results of a block among its groups of threads, of which the loop is returned,
    ``outside`` and ``inside`` of which are others; with ``pairs`` of channels stored at once. The
    ``thread`` axis may be that of a loop around."""
    if thread is None:
        thread = te.thread_axis((0, tile.groups), "threadIdx.y")
    if tile.turned:  # neighbours of a channel are those of one thread
        group, c = stage.split(c, factor=tile.own_channels)
        stage.reorder(*outside, group, *pixel, c)
        stage.bind(group, thread)
        return group
    parts = [stage.split(x, factor=own) for x, own in zip(pixel, tile.of_groups, strict=True)]
    first, c = stage.split(c, factor=tile.own_channels)
    groups = [*(first for first, _ in parts), first]
    stage.reorder(*outside, *groups, *inside, *(last for _, last in parts), c)
    group = stage.fuse(*groups)
    stage.bind(group, thread)
    if pairs:
        stage.vectorize(stage.split(c, factor=2)[1])
    return group


def over_threads(stage: Stage, axis: IterVar, tile: ThreadTile) -> IterVar:
    """Divide a loop among the threads of the groups of a tile; returns the loop that is left."""
    turn, thread = stage.split(axis, factor=tile.groups * tile.lanes)
    group, thread = stage.split(thread, factor=tile.lanes)
    stage.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    stage.bind(thread, te.thread_axis((0, tile.lanes), "threadIdx.x"))
    return turn


def innermost(
    stage: Stage, axes: Sequence[IterVar], extents: Sequence[int], count: int = 8
) -> tuple[list[IterVar], list[int], list[IterVar]]:
    """Loops of ``extents``, powers of two, apart into those of the innermost ``count`` iterations,
    which come last, and the others, with the extents of these."""
    outer: list[IterVar] = []
    left: list[int] = []
    inner: list[IterVar] = []
    for axis, extent in zip(reversed(axes), reversed(extents), strict=True):
        taken = min(extent, count)
        count //= taken
        first, last = stage.split(axis, factor=taken)
        outer.insert(0, first)
        left.insert(0, extent // taken)
        inner.insert(0, last)
    return outer, left, inner
