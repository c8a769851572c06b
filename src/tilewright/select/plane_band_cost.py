"""What the schedules of a GPU make a thread and a block do: products of rows of planes with bands
of filters, of tiles of planes in shared memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.select.counts import Array, Staged
from tilewright.target.devices import WARP, WIDEST
from tilewright.topi.columns import tile_of
from tilewright.topi.gpu.machine import BARRIERS
from tilewright.topi.gpu.pair_tiles import PRODUCT
from tilewright.topi.gpu.plane_band_tiles import (
    PER_CHUNK,
    SIZE,
    bands,
    chunks,
    loads,
    products,
    registers,
    shared,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.plane_band_cuts import PIXELS, READ, band_cut, row_conflicts
from tilewright.topi.pieces.strip_tiles import PLANE_OUTPUTS, PlaneBandTile

#: Instructions that make a register of a band; registers that a thread has anyway.
_BAND, _ANYWAY = 8.0, 24


def plane_bands(p: Conv, *values: Array) -> Staged:
    """Of :class:`PlaneBandTile`, whose fields ``values`` has in their order."""
    rows, _, _, down, across, channels, turns, stages, boxed = values
    tile = tile_of(PlaneBandTile, values)
    cut: Any = band_cut(p, tile)
    ones, image, read, wide = np.ones(len(rows)), cut.result, cut.image, cut.wide
    (h, w, _), (images_per_mma, _, high, row_stride) = tile.size, cut.box
    made, code = bands(cut), products(cut)
    warps = down * across * channels
    grid = [
        np.ceil(n / size) for n, size in zip((p.batch, *image), (images_per_mma, h, w), strict=True)
    ]
    beside, count = p.channels / channels, math.prod(grid)
    blocks, results = np.ceil(count / turns) * beside, rows * 16 * PLANE_OUTPUTS / WARP
    lines = images_per_mma * channels * high
    copied, stored = lines * row_stride * SIZE, results * SIZE / WIDEST
    inside = images_per_mma * channels * np.minimum(high, read[0]) * np.minimum(wide, read[1])
    own = np.where(boxed, 0, PER_CHUNK * chunks(cut) / (warps * WARP))
    return Staged(
        threads=warps * WARP, x=WARP * ones, blocks=blocks, results=results * turns, turns=turns,
        shared=shared(cut, tile) + BARRIERS, held=registers(cut) - _ANYWAY,
        loads=loads(cut), load_bytes=READ * SIZE * ones,
        ahead=copied / (warps * WARP) / (READ * SIZE),
        rounds=np.where(stages > 1, 1 + 0.2 * turns, turns),
        stores=turns * stored, store_bytes=WIDEST * ones,
        multiplies=code * PRODUCT[PIXELS // 2], conversions=results / 2,
        filter_loads=made / turns,
        others=60 + _BAND * made / turns + 2 * stored + results / 2 + own,
        unique=turns * inside * SIZE, code=code,
        run=np.minimum(wide, read[1]) * SIZE, step=READ * SIZE * ones,
        store_step=WIDEST * ones, extra=math.prod(p.kernel) * channels * SIZE * blocks,
        spare=(grid[1] * h / image[0], grid[2] * w / image[1], grid[0] * images_per_mma / p.batch,
               high * row_stride / (h * w * math.prod(cut.stride)),
               np.ceil(count / turns) * turns / count),
        tile=values, kind=stages + 4 * boxed, conflicts=row_conflicts(cut),
        copied=copied, runs=lines, stages=stages * ones,
    )  # fmt: skip
