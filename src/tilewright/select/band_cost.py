"""What the schedules of a GPU make a thread and a block do: gradients by the filter in NCHW as
bands of products of rows."""

from __future__ import annotations

import math

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.select.counts import Array, Cost
from tilewright.target.devices import WARP, WIDEST
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.row_band_cuts import DEPTH, ROWS, RowBandTile, row_bands

#: Threads of a warp that have one row.
_SHARES = 4
#: Instructions in whose time tensor cores multiply matrices of 16 by 16 by 8.
_PRODUCT = 6.6


def bands(p: Conv, *values: Array) -> Cost:
    """Of :class:`RowBandTile`, whose fields ``values`` has in their order."""
    blocks, columns, warps, stages, chunks = values
    tiles = [RowBandTile(*map(int, one)) for one in zip(*values, strict=True)]
    cuts = [row_bands(p, tile) for tile in tiles]
    size, (kh, kw), ones = dtype(p.dtype).bytes, p.kernel, np.ones(len(tiles))
    down, phases = p.stride[0], math.prod(p.stride)
    grid = np.array([cut.grid for cut in cuts], "float64").T
    parts = np.array([len(cut.points) + 1 for cut in cuts], "float64")
    count = p.batch * grid[0] * grid[1]
    turns = np.ceil(count / (chunks * warps))
    share = columns / _SHARES * size
    whole = np.gcd(p.width * size, share.astype("int64")).astype("float64")
    width = np.minimum(whole, WIDEST)
    groups = (blocks + 1) * phases + blocks
    loads = groups * share / width + blocks * (parts - 1)
    products = blocks * columns / DEPTH * kw * down
    rows = groups * ROWS * columns + ROWS * blocks * 8 * (parts - 1)
    ahead = np.where(stages > 1, stages * loads * width / 4, 0)
    return Cost(
        threads=warps * WARP, x=WARP * ones, blocks=chunks * p.out_channels,
        results=ROWS * blocks * columns / WARP * turns, turns=turns,
        held=4.0 * kw * down + 20 + ahead + (phases - 1) * share / size,
        shared=warps * kw * down * 512, loads=loads, load_bytes=width,
        ahead=np.where(stages > 1, stages * loads, (1 + 2.0 * phases) * share / width),
        rounds=turns * np.where(stages > 1, 1 / stages, blocks) + chunks / 64,
        stores=8.0 * kw * down * ones, store_bytes=4 * ones, multiplies=products * _PRODUCT,
        conversions=products, filter_loads=0 * ones, others=40 + 2 * loads,
        unique=turns * warps * rows * size, code=products * ones, run=columns * size, step=share,
        store_step=4 * ones, extra=2.0 * chunks * p.out_channels * kh * kw * 4,
        spare=(grid[0] * blocks * ROWS / p.out_image[0],
               grid[1] * columns * p.stride[1] / p.image[1],
               turns * chunks * warps / count, rows / (ROWS * blocks * columns),
               math.prod(p.kernel) / (kw * ROWS * down) * ones),
        tile=(blocks, columns, warps, stages, np.log2(chunks)), kind=stages * ones,
    )  # fmt: skip
