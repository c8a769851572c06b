"""What products of boxes have in common: how TMA brings them, and loops that make blocks of 8."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import tma_load, wgmma
from tilewright.te import Tensor
from tilewright.topi.nn.box_copies import ROW, widths
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.pieces.box_tiles import LANES, BoxProductTile
from tilewright.topi.pieces.tiling import extent_of

#: Threads of a block that copies.
_THREADS = 256


def load(
    stage: Stage, sums: Stage, at: IterVar, first: int, box: Sequence[int], stages: int
) -> None:
    """Copy a factor of ``sums`` by boxes, of axes from the ``first`` on, into swizzled memory,
    ``stages - 1`` iterations of the loop ``at`` ahead."""
    stage.compute_at(sums, at)
    for axis, extent in zip(stage.op.axis[first:], box[:-1], strict=False):
        stage.align_bounds(axis, extent)
    kind = str(stage.op.outputs[0].dtype)
    row = box[-1] * dtype(kind).bytes
    stage.swizzle(row)
    stage.pipeline(stages)
    stage.tensorize(stage.op.axis[first], tma_load(box, kind, swizzle=row))


def multiply(
    sums: Stage, d: BoxDeclaration, tile: BoxProductTile, result: Sequence[IterVar], at: IterVar,
    k: IterVar, factors: tuple[Stage, Stage],
) -> None:  # fmt: skip
    """Sum products in the registers of a warpgroup: of a step ``k``, which the loop ``at`` is over
    and each of ``factors`` is brought for, for the axes of the ``result``, channels last."""
    w, (boxes, taps) = widths(d.problem.dtype), factors
    step = w.step(extent_of(d.sum.op.reduce_axis[-1]))
    own = tile.of_groups
    for axis, extent in zip(result, (*own, tile.channels), strict=True):
        sums.align_bounds(axis, extent)
    *pixel, f = result
    part, k = sums.split(k, factor=w.deep)
    turned = d.boxes.turned
    outer, _, inner = innermost(sums, pixel, own)
    columns = list(sums.split(f, factor=8))
    if turned:
        columns = [*sums.split(columns[0], factor=ROW // 8), columns[1]]
    sums.reorder(at, part, *outer, *inner, *columns, *sums.split(k, factor=w.chunk))
    sums.unroll(part)
    row = step * 128 // w.row
    kind = "tf32" if d.problem.dtype == "float32" else d.problem.dtype
    sums.tensorize(
        outer[0],
        wgmma(tile.channels, kind, left="k", right="j" if turned else "k",
              swizzles=(row, 2 * ROW if turned else row)),
    )  # fmt: skip
    load(boxes, sums, at, len(d.left.shape) - 6, (*tile.box, step), tile.stages)
    if turned:
        load(taps, sums, at, 1, (step, ROW), tile.stages)
    else:  # behind the phase, where there are some
        load(taps, sums, at, len(d.right.shape) - 4, (tile.channels, step), tile.stages)


def by_groups(
    stage: Stage, tile: BoxProductTile, outside: Sequence[IterVar], pixel: Sequence[IterVar],
    c: IterVar, pairs: bool,
) -> IterVar:  # fmt: skip
    """Divide the results of a block among its warpgroups, of which the loop is returned; with
    ``pairs`` of channels stored at once."""
    parts = [stage.split(x, factor=own) for x, own in zip(pixel, tile.of_groups, strict=True)]
    stage.reorder(*outside, *(first for first, _ in parts), *(last for _, last in parts), c)
    group = stage.fuse(*(first for first, _ in parts))
    stage.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    if pairs:
        stage.vectorize(stage.split(c, factor=2)[1])
    return group


def copy(s: Schedule, copies: Sequence[Tensor]) -> None:
    """Make ``copies`` in kernels of their own, of 16 bytes a thread."""
    for t in copies:
        stage = s[t]
        *others, c = stage.op.axis
        c, lane = stage.split(c, factor=widths(str(t.dtype)).chunk)
        block, thread = stage.split(stage.fuse(*others, c), factor=_THREADS)
        stage.bind(block, te.thread_axis("blockIdx.x"))
        stage.bind(thread, te.thread_axis("threadIdx.x"))
        stage.vectorize(lane)


def over_threads(stage: Stage, axis: IterVar, groups: int) -> IterVar:
    """Divide a loop among the threads of ``groups`` warpgroups; returns the loop that is left."""
    turn, thread = stage.split(axis, factor=groups * LANES)
    group, thread = stage.split(thread, factor=LANES)
    stage.bind(group, te.thread_axis((0, groups), "threadIdx.y"))
    stage.bind(thread, te.thread_axis((0, LANES), "threadIdx.x"))
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
