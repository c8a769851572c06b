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
from typing import Any

from tilewright.schedule import Schedule
from tilewright.target.devices import REGISTERS
from tilewright.target.instructions import wgmma
from tilewright.topi.cut import declare_images
from tilewright.topi.gpu.toeplitz import (
    SHARED,
    Team,
    ToeplitzDeclaration,
    begin,
    load_image,
    product_axes,
    shared_bytes,
)
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz, depthwise_toeplitz
from tilewright.topi.operators.conv import Conv

#: Images of one instruction, threads of a warpgroup, and outputs of the widest instruction.
_IMAGES, _LANES, _WIDEST = 64, 128, 256
#: Registers of an SM, and of a thread beside those of products.
_OTHER = 36


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


def declare_toeplitz(p: Conv, tile: ToeplitzTile, batch: Any = None) -> ToeplitzDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    return declare_images(Toeplitz(p, tile.rows, tile.columns, _IMAGES), depthwise_toeplitz, batch)


def schedule_toeplitz(d: ToeplitzDeclaration, tile: ToeplitzTile = ToeplitzTile()) -> Schedule:
    """The schedule of what :func:`declare_toeplitz` makes of a problem with the same ``tile``."""
    s, group = begin(d, Team(_LANES, tile.groups), tile.turns)
    sums = s[d.stages.sum]
    sums.compute_at(s[d.output], group)
    a = product_axes(d, sums, _IMAGES)
    sums.reorder(
        a.across, a.c, a.q, a.phase, a.chunk, a.step,
        a.n, a.h, a.pair, a.quarter, a.side, a.half, a.thread, a.low,
    )  # fmt: skip
    sums.tensorize(a.n, wgmma(tile.rows * tile.columns, d.problem.dtype))
    load_image(d, s[d.stages.image], sums, a.phase, tile.stages)
    return s


def guesses(p: Conv) -> Iterator[tuple[float, ToeplitzTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    height, width = p.result_image
    for columns, rows in product((8, 16, 32, 64), (1, 2, 4, 8, 16)):
        if columns >= 2 * max(8, width) or rows >= 2 * height or rows * columns > _WIDEST:
            continue
        cut = Toeplitz(p, rows, columns, _IMAGES)
        size = shared_bytes(cut)
        if size > SHARED:
            continue
        down, across = cut.tiles
        products = down * across * cut.steps * cut.depth * rows * columns
        narrow = 1 + 64 / (rows * columns)  # registers are read for fewer products
        for groups, stages in ((2, 4), (4, 2), (2, 2), (1, 4), (1, 2), (2, 3), (4, 3)):
            held = rows * columns // 2 + stages * cut.depth // 4 + _OTHER
            if groups > down or groups * _LANES * held > REGISTERS:
                continue
            # Two blocks of an SM load and store while the other multiplies.
            alone = 1.25 if 2 * size > SHARED else 1.0
            # Four warpgroups leave no room for another block, and share the matrices.
            alone *= 1.01 if groups * rows * columns > 256 else 1.0
            # Of the widest products the compiler takes some apart where it moves their registers.
            alone *= 1.25 if rows * columns == _WIDEST else 1.0
            tile = ToeplitzTile(rows, columns, groups, -(-down // groups), stages)
            wanted = 4 if rows < 8 else 2
            swapped = rows < 8 and groups * stages == 8
            near = 1 + (0 if swapped else abs(stages - wanted) + abs(groups - 2)) / 64
            yield products * narrow * alone * near, tile
