"""Depthwise problems as products of matrices, im2col stored or implicit.

A channel is a group of its own, so that a product has as many rows as a channel has filters, which
is one mostly: little is read twice, and of a tensor core's rows most are idle. Article 001 starts
from here, and so do comparisons; what is faster is everywhere.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule
from tilewright.target.target import Target
from tilewright.topi.cpu.candidates import lanes
from tilewright.topi.cpu.conv2d_im2col import ColumnTile, schedule_conv2d_columns
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.gpu.conv2d_lanes import LaneTile, schedule_conv2d_lanes
from tilewright.topi.gpu.conv2d_mma import MmaTile, schedule_conv2d_mma
from tilewright.topi.nn.conv2d_im2col import Windows, images_of, products
from tilewright.topi.problem import Problem

_Tile: TypeAlias = MmaTile | LaneTile | ColumnTile
#: Bytes of columns that are stored, at most.
_STORED = 2**28
#: Taps of a large filter.
_TAPS = 49


def declare_products(p: Problem, tile: _Tile, batch: Any = None) -> Declaration:
    """The program of a problem, its matrices filled up to the tiles of ``tile``; ``batch`` as in
    :func:`declare`."""
    inputs = placeholders(p, batch)
    image, filter = list(inputs.values())[:2]
    kh, kw = p.kernel
    w = _windows(p, image.shape[0])

    def read(g: Any, m: Any, c: Any, i: Any, j: Any) -> Any:
        turned = p.pass_ == "dgrad"
        return filter[(g, m, kh - 1 - i, kw - 1 - j) if turned else (g, m, i, j)]

    made = products(w, image, read, p.dtype, p.accumulate, tile.whole)
    result = finished(p, images_of(w, made.product), inputs)
    return Declaration(p, inputs, result, made.product, None, None)


def _windows(p: Problem, batch: Any) -> Windows:
    if p.pass_ == "dgrad":
        reach = [(k - 1) * d for k, d in zip(p.kernel, p.dilation, strict=True)]
        before = reach[0] - p.padding[0], reach[1] - p.padding[1]
        return Windows(batch, p.channels, 1, 1, p.out_image, p.kernel, (1, 1), before, p.dilation,
                       p.image)  # fmt: skip
    return Windows(batch, p.channels, 1, p.multiplier, p.image, p.kernel, p.stride,
                   (p.padding[0], p.padding[1]), p.dilation, p.out_image)  # fmt: skip


def schedule_products_mma(d: Declaration, tile: MmaTile) -> Schedule:
    """:func:`~tilewright.topi.gpu.conv2d_mma.schedule_conv2d_mma` of a problem."""
    return schedule_conv2d_mma(d.output, tile)


def schedule_products_lanes(d: Declaration, tile: LaneTile) -> Schedule:
    """:func:`~tilewright.topi.gpu.conv2d_lanes.schedule_conv2d_lanes` of a problem."""
    return schedule_conv2d_lanes(d.output, tile)


def schedule_products_cpu(d: Declaration, tile: ColumnTile) -> Schedule:
    """:func:`~tilewright.topi.cpu.conv2d_im2col.schedule_conv2d_columns` of a problem."""
    return schedule_conv2d_columns(d.output, tile)


def suits_products(p: Problem) -> bool:
    """Whether a problem of a large filter can be declared so: images in two dimensions, whose
    gradients by the input are convolutions."""
    forward = p.pass_ == "forward" or (p.stride == (1, 1) and p.multiplier == 1)
    known = p.rank == 2 and p.accumulate in ("float32", "float64")
    return known and forward and math.prod(p.kernel) >= _TAPS


def suits_products_mma(p: Problem) -> bool:
    """Whether tensor cores multiply what is in a problem."""
    return suits_products(p) and p.dtype in ("float16", "bfloat16") and p.accumulate == "float32"


def mma_tiles(p: Problem, target: Target) -> list[MmaTile]:
    """For :func:`schedule_products_mma`."""
    return [
        MmaTile(16 * -(-_filters(p) // 16), 128, 32, 1, 4, stages, implicit)
        for implicit, stages in ((1, 1), (0, 3))
        if implicit or _stored(p) <= _STORED
    ]


def lane_tiles(p: Problem, target: Target) -> list[LaneTile]:
    """For :func:`schedule_products_lanes`."""
    return [
        LaneTile(_filters(p), 256, 8, 1, 64, stages, implicit)
        for implicit, stages in ((1, 1), (0, 3))
        if implicit or (_stored(p) <= _STORED and p.dtype == p.accumulate)
    ]


def column_tiles(p: Problem, target: Target) -> list[ColumnTile]:
    """For :func:`schedule_products_cpu`."""
    filters, wide = _filters(p), lanes(p, target)
    vectors = max(1, min(4, 16 // filters))
    return [
        ColumnTile(filters, vectors, wide, implicit)
        for implicit in (1, 0)
        if implicit or _stored(p) <= _STORED
    ]


def _filters(p: Problem) -> int:
    return 1 if p.pass_ == "dgrad" else p.multiplier


def _stored(p: Problem) -> int:
    """Bytes of the columns of all images."""
    image = p.result_image
    return p.batch * p.channels * math.prod(image) * math.prod(p.kernel) * dtype(p.dtype).bytes
