"""What the schedules of a GPU make a thread and a block do: products of pairs of channels, of tiles
of channels-last images in shared memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.select.counts import Array, Staged
from tilewright.target.devices import WARP, WIDEST
from tilewright.topi.columns import tile_of
from tilewright.topi.gpu.machine import BARRIERS
from tilewright.topi.gpu.pair_tiles import PRODUCT, bands, load_passes, loads, products, registers
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.pair_cuts import pair_cut
from tilewright.topi.pieces.strip_tiles import PairTile, SparsePairTile

#: Bytes of an element.
_SIZE = 2
#: Instructions that make a register of a band.
_BAND = 12.0
#: Registers that a thread has anyway.
_ANYWAY = 24


def pairs(p: Conv, *values: Array) -> Staged:
    """Of :class:`PairTile`, whose fields ``values`` has in their order."""
    return _pairs(p, values, PairTile)


def sparse_pairs(p: Conv, *values: Array) -> Staged:
    """Of :class:`SparsePairTile`."""
    return _pairs(p, values, SparsePairTile)


def _pairs(p: Conv, values: tuple[Array, ...], kind: type[PairTile]) -> Staged:
    rows, *_, turns, stages = values
    tile = tile_of(kind, values)
    cut: Any = pair_cut(p, tile)
    ones = np.ones(len(rows))
    image = p.image if p.pass_ == "dgrad" else p.out_image
    read = p.out_image if p.pass_ == "dgrad" else p.image
    steps = p.stride if p.pass_ == "forward" else (1, 1)
    h, w, c, images_per_mma, own = (
        tile.high,
        tile.wide,
        tile.channels,
        tile.images_per_mma,
        tile.own,
    )
    high, wide = cut.seen(h, w)
    warps, made, code = tile.down * tile.across * tile.lots, bands(cut), products(cut)
    grid = [
        np.ceil(n / size) for n, size in zip((p.batch, *image), (images_per_mma, h, w), strict=True)
    ]
    beside, count = np.ceil(p.channels / c), math.prod(grid)
    blocks, results = np.ceil(count / turns) * beside, 2 * rows * own
    runs, each = images_per_mma * high * wide, 2 * own * WARP / (4 * WARP)
    stored, width = results * _SIZE / WIDEST, _SIZE * own
    inside = images_per_mma * np.minimum(high, read[0]) * np.minimum(wide, read[1])
    copied = runs * c * _SIZE
    return Staged(
        threads=warps * WARP, x=WARP * ones, blocks=blocks, results=results * turns, turns=turns,
        shared=stages * copied + images_per_mma * h * w * (c + 8) * _SIZE + BARRIERS,
        held=registers(cut) - _ANYWAY,
        loads=4 * loads(cut) / (own / 2), load_bytes=width,
        ahead=copied / (warps * WARP) / width,
        rounds=np.where(stages > 1, 1 + 0.2 * turns, turns),
        stores=turns * stored, store_bytes=WIDEST * ones,
        multiplies=code * PRODUCT[cut.pixels], conversions=results / 2,
        filter_loads=made / turns, others=60 + _BAND * made / turns + 2 * stored + each,
        unique=turns * inside * c * _SIZE, code=code,
        run=np.where(beside > 1, c, p.channels * wide) * _SIZE, step=width,
        store_step=WIDEST * ones, extra=math.prod(p.kernel) * c * _SIZE * blocks,
        spare=(grid[1] * h / image[0], grid[2] * w / image[1], beside * c / p.channels,
               high * wide / (h * w * math.prod(steps)), grid[0] * images_per_mma / p.batch),
        tile=values, kind=own / 2 + 8 * stages, conflicts=load_passes(tile, wide, high, steps),
        copied=copied, runs=runs, stages=stages * ones,
    )  # fmt: skip
