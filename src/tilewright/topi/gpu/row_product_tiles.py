"""The tiles worth trying for products of rows of dy and rows of x, best guess first."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.target.devices import REGISTERS
from tilewright.topi.columns import Tiles, combinations, listed, pick
from tilewright.topi.gpu.banded_tiles import SHARED
from tilewright.topi.gpu.machine import is_planar
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.row_product_cuts import RowProducts, RowProductTile, row_cut

#: Outputs of the widest instruction that is used, and of all instructions of a block, by thread.
_WIDEST, _SUMS = 256, REGISTERS // 2


def suits_row_products(p: Conv) -> bool:
    """Whether :func:`schedule_row_products` is for a problem: one of stride 1 down the image, whose
    rows are at most 64 wide, and even, so that they can be copied in the background."""
    return (
        is_planar(p)
        and p.stride[0] == 1
        and p.dilation[0] == 1
        and max(p.image[1], p.out_image[1]) <= 64
        and p.image[1] % 2 == 0
        and p.out_image[1] % 2 == 0
        and _meets_zeros(p)
    )


def _meets_zeros(p: Conv) -> bool:
    """Whether columns of padding are zeros of x alone: where all results of a row begin to see the
    image by the same tap, or cease to, or none sees its first column, or one sees padding alone,
    less is known of a tap."""
    left, step, apart = p.padding[1], p.stride[1], p.dilation[1]
    if left % math.gcd(step, apart):
        return False
    seen = [left - at * step for at in range(p.out_image[1])]
    whole = p.kernel[1] - 1
    first = [max(0, -(-x // apart)) for x in seen]
    last = [min(whole, (x + p.image[1] - 1) // apart) for x in seen]
    if any(begin > end for begin, end in zip(first, last, strict=True)):
        return False
    return not (max(first) == min(first) > 0) and not (min(last) == max(last) < whole)


@lru_cache(64)
def row_product_tiles(p: Conv) -> Tiles[RowProductTile]:
    """Tiles that fit shared memory, the best guess first."""
    size, bare = dtype(p.dtype).bytes, RowProducts(p, 1, 1, 1, 1)
    together, groups, images, stages, turns = combinations(
        (1, 2, 4, 8, 16, 32), (1, 2, 4), (16, 32, 64), (2, 3, 4), (1, 2, 4, 8)
    )
    steps = -(-bare.positions // (turns * bare.taps)) * bare.taps
    tile = RowProductTile(together, groups, images, steps, stages)
    cut, width = row_cut(p, tile), together * bare.columns
    kept = width * groups * 64  # sums of a block
    space = stages * cut.staged * size + groups * 64 * (cut.columns + 8) * 4
    fits = ((turns == 1) | (steps >= 4)) & (width >= 16) & (width <= _WIDEST) & (kept <= _SUMS)
    fits &= (images < 2 * max(16, p.batch)) & (space <= SHARED)
    fits &= cut.rows * cut.taps < 2 * np.maximum(p.kernel[0], together * cut.taps)
    products = cut.blocks * cut.rows * cut.positions * cut.columns
    again = 1 + 64 / width + 0.2 * cut.blocks + 0.05 * turns
    alone = np.where(2 * space <= SHARED, 1.0, 1.02)
    near = 1 + (abs(stages - 3) + images / 16) / 32
    order = np.argsort(products * again * alone * near, kind="stable")
    return listed(pick(tile, order[fits[order]]))
