"""Depthwise convolution with large filters on Hopper's tensor cores, channels first.

The products of :mod:`~tilewright.topi.nn.depthwise_toeplitz`: a warpgroup sums ``rows`` rows of
``columns`` outputs of 64 images in its registers. It loads one row of the input after another
straight into the registers that the instruction reads, ``stages - 1`` rows ahead, each thread 16
bytes at once; the matrices of the filter are made once a block, in shared memory, where the
instruction reads them itself. Rows in the padding are not visited, columns in the padding are not
multiplied where an image is as wide as a tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule, Stage, create_schedule
from tilewright.target.instructions import wgmma
from tilewright.target.target import Target
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.nn.depthwise_toeplitz import (
    IMAGES,
    Toeplitz,
    ToeplitzStages,
    depthwise_toeplitz,
)
from tilewright.topi.nn.images import Images
from tilewright.topi.problem import Problem

#: Threads of a warpgroup.
_LANES = 128
#: Bytes of shared memory that blocks may take.
_SHARED = 227 * 1024
#: Registers of a multiprocessor, and of a thread beside those of products.
_REGISTERS, _OTHER = 65536, 36
#: The widest product of one instruction.
_WIDEST = 256


@dataclass(frozen=True)
class ToeplitzTile:
    """A warpgroup computes ``rows`` by ``columns`` outputs of 64 images at once, ``turns`` times
    from above down the image; a block has ``groups`` of them. Input rows are loaded ``stages - 1``
    ahead."""

    rows: int = 4
    columns: int = 32
    groups: int = 2
    turns: int = 4
    stages: int = 4


@dataclass(frozen=True)
class ToeplitzDeclaration(Declaration):
    """A problem as products with Toeplitz matrices."""

    cut: Toeplitz
    stages: ToeplitzStages


def declare_toeplitz(p: Problem, tile: ToeplitzTile, batch: Any = None) -> ToeplitzDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    inputs = placeholders(p, batch)
    image, filter = list(inputs.values())[:2]
    cut = Toeplitz(p, tile.rows, tile.columns)
    stages = depthwise_toeplitz(cut, image, filter)
    n = image.shape[0]
    sums = Images(p.layout).compute(
        n, p.result_channels, cut.result, lambda n, c, at: stages.sum[n, c, at[0], at[1]], "Sums"
    )
    result = finished(p, sums, inputs)
    return ToeplitzDeclaration(p, inputs, result, stages.sum, None, None, cut, stages)


def schedule_toeplitz(d: Declaration, tile: ToeplitzTile = ToeplitzTile()) -> Schedule:
    """The schedule of what :func:`declare_toeplitz` makes of a problem with the same ``tile``."""
    assert isinstance(d, ToeplitzDeclaration)
    cut, made = d.cut, d.stages
    s = create_schedule(d.output.op)
    kept = {t.op for t in (made.taps, made.matrices, made.image, made.sum, d.output)}
    for stage in s.stages:
        if stage.op not in kept and stage.op.axis:
            stage.compute_inline()
    out, sums, image = s[d.output], s[made.sum], s[made.image]
    ty = te.thread_axis((0, tile.groups), "threadIdx.y")

    n, c, h, w = out.op.axis
    many, n = out.split(n, factor=IMAGES)
    down, row = out.split(h, factor=tile.rows)
    turn, group = out.split(down, factor=tile.groups)
    below, turn = out.split(turn, factor=tile.turns)
    across, w = out.split(w, factor=tile.columns)
    vector, lane = out.split(w, factor=_wide(cut.result[1], tile.columns // 4))
    out.reorder(many, c, below, across, turn, group, n, row, vector, lane)
    block = out.fuse(many, c, below, across)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(group, ty)
    out.vectorize(lane)

    for tensor, scope in ((made.taps, "shared"), (made.matrices, "shared")):
        s[tensor].set_scope(scope)
        s[tensor].compute_at(out, block)
    _together(s[made.taps], tile, 1, ty)
    _together(s[made.matrices], tile, 8, ty)

    sums.set_scope("fragment")
    sums.compute_at(out, group)
    n, c, h, w = sums.op.axis
    for axis, whole in ((n, IMAGES), (h, tile.rows), (w, tile.columns)):
        sums.align_bounds(axis, whole)
    q, phase, j = sums.op.reduce_axis
    part, j = sums.split(j, factor=cut.chunk)
    thread, j = sums.split(j, factor=cut.chunk // 4)
    step, j = sums.split(j, factor=4)
    half, low = sums.split(j, factor=2)
    across, w = sums.split(w, factor=tile.columns)
    quarter, w = sums.split(w, factor=tile.columns // 4)
    pair, side = sums.split(w, factor=2)
    sums.reorder(across, c, q, phase, part, step, n, h, pair, quarter, side, half, thread, low)
    sums.unroll(part)
    sums.unroll(step)
    sums.tensorize(n, wgmma(tile.rows * tile.columns, d.problem.dtype))

    image.set_scope("fragment")
    image.compute_at(sums, phase)
    *_, column = image.op.axis
    _, lane = image.split(column, factor=_wide(gcd(cut.image[1], 8), cut.chunk // 4))
    image.vectorize(lane)
    if tile.stages > 1:
        image.pipeline(tile.stages)
    return s


def _wide(extent: int, most: int) -> int:
    """The largest power of two that divides ``extent``, up to ``most`` and 8."""
    return gcd(extent, min(most, 8))


def _together(stage: Stage, tile: ToeplitzTile, vector: int, ty: Any) -> None:
    """All threads of a block compute a stage, ``vector`` elements of its last axis each."""
    *axes, last = stage.op.axis
    outer, lane = stage.split(last, factor=vector)
    flat = stage.fuse(*axes, outer)
    _, flat = stage.split(flat, factor=_LANES * tile.groups)
    y, x = stage.split(flat, factor=_LANES)
    stage.bind(y, ty)
    stage.bind(x, te.thread_axis((0, _LANES), "threadIdx.x"))
    if vector > 1:
        stage.vectorize(lane)


def suits_toeplitz(p: Problem) -> bool:
    """Whether :func:`schedule_toeplitz` is for a problem: one whose filters fit shared memory."""
    return (
        p.rank == 2
        and p.dtype in ("float16", "bfloat16")
        and p.accumulate == "float32"
        and (p.pass_ == "forward" or (p.stride == (1, 1) and p.multiplier == 1))
        and next(_tiles(p), None) is not None
    )


def toeplitz_tiles(p: Problem, target: Target) -> list[ToeplitzTile]:
    """Tiles whose matrices fit shared memory, the best guess first."""
    return [tile for _, tile in sorted(_tiles(p), key=lambda pair: pair[0])]


def _tiles(p: Problem) -> Iterator[tuple[float, ToeplitzTile]]:
    """Tiles, with how slow they are thought to be."""
    height, width = p.image if p.pass_ == "dgrad" else p.out_image
    for columns, rows in product((8, 16, 32, 64), (1, 2, 4, 8, 16)):
        if columns >= 2 * max(8, width) or rows >= 2 * height or rows * columns > _WIDEST:
            continue
        cut = Toeplitz(p, rows, columns)
        last = (columns - 1) * cut.stride[1]
        elements = cut.stride[0] * cut.matrices * (cut.depth * columns + cut.depth + last)
        size = elements * dtype(p.dtype).bytes
        if size > _SHARED:
            continue
        down, across = cut.tiles
        products = down * across * cut.steps * cut.depth * rows * columns
        narrow = 1 + 64 / (rows * columns)  # registers are read for fewer products
        for groups, stages in ((2, 4), (4, 2), (2, 2), (1, 4), (1, 2), (2, 3), (4, 3)):
            held = rows * columns // 2 + stages * cut.depth // 4 + _OTHER
            if groups > down or groups * _LANES * held > _REGISTERS:
                continue
            # Two blocks of a multiprocessor load and store while the other multiplies.
            # Of the widest products the compiler takes some apart where it moves their registers.
            alone = 1.25 if 2 * size > _SHARED or groups * rows * columns > 256 else 1.0
            alone *= 1.25 if rows * columns == _WIDEST else 1.0
            tile = ToeplitzTile(rows, columns, groups, -(-down // groups), stages)
            near = 1 + (abs(stages - 4) + abs(groups - 2)) / 64
            yield products * narrow * alone * near, tile
