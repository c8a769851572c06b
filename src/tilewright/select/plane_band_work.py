"""What the schedules of a GPU make a thread and a block do: products of rows of planes with bands
of filters, of tiles of planes in shared memory."""

from __future__ import annotations

import math

import numpy as np

from tilewright.select.counts import Array, Staged
from tilewright.topi.gpu.depthwise_plane_bands import PlaneBandTile, band_cut
from tilewright.topi.gpu.pair_tiles import PRODUCT
from tilewright.topi.gpu.plane_band_tiles import (
    PER_PIECE,
    SIZE,
    bands,
    conflicts,
    loads,
    pieces,
    products,
    registers,
    shared,
)
from tilewright.topi.nn.depthwise_plane_bands import OUTPUTS, PIXELS, READ
from tilewright.topi.problem import Problem

#: Bytes that an instruction moves at most, threads of a warp, and bytes of shared memory of a block
#: beside its tiles.
_WIDEST, _WARP, _OWN = 16, 32, 1024
#: Instructions that make a register of a band; registers that a thread has anyway.
_BAND, _ANYWAY = 8.0, 24


def plane_bands(p: Problem, *values: Array) -> Staged:
    """Of :class:`PlaneBandTile`, whose fields ``values`` has in their order."""
    tiles = [PlaneBandTile(*map(int, one)) for one in zip(*values, strict=True)]
    cuts = [band_cut(p, tile) for tile in tiles]
    both = list(zip(cuts, tiles, strict=True))
    rows, _, _, down, across, channels, turns, stages, boxed = values
    ones, image, read = np.ones(len(tiles)), cuts[0].result, cuts[0].image
    h, w, deep, high, pitch, wide = np.array(
        [(*t.size[:2], t.matrix[0], *c.box[2:], c.wide) for c, t in both], "float64"
    ).T
    made, held, code, loaded, meetings, space, copies = np.array(
        [
            (
                bands(c),
                registers(c),
                products(c),
                loads(c),
                conflicts(c, t),
                shared(c, t),
                pieces(c),
            )
            for c, t in both
        ],
        "float64",
    ).T
    warps = down * across * channels
    grid = [np.ceil(n / size) for n, size in zip((p.batch, *image), (deep, h, w), strict=True)]
    beside, count = p.channels / channels, math.prod(grid)
    blocks, results = np.ceil(count / turns) * beside, rows * 16 * OUTPUTS / _WARP
    lines = deep * channels * high
    copied, stored = lines * pitch * SIZE, results * SIZE / _WIDEST
    inside = deep * channels * np.minimum(high, read[0]) * np.minimum(wide, read[1])
    own = np.where(boxed, 0, PER_PIECE * copies / (warps * _WARP))
    return Staged(
        threads=warps * _WARP, x=_WARP * ones, blocks=blocks, results=results * turns, turns=turns,
        shared=space + _OWN, held=held - _ANYWAY,
        loads=loaded, load_bytes=READ * SIZE * ones,
        ahead=copied / (warps * _WARP) / (READ * SIZE),
        rounds=np.where(stages > 1, 1 + 0.2 * turns, turns),
        stores=turns * stored, store_bytes=_WIDEST * ones,
        multiplies=code * PRODUCT[PIXELS // 2], conversions=results / 2,
        filter_loads=made / turns,
        others=60 + _BAND * made / turns + 2 * stored + results / 2 + own,
        unique=turns * inside * SIZE, code=code,
        run=np.minimum(wide, read[1]) * SIZE, step=READ * SIZE * ones,
        store_step=_WIDEST * ones, extra=math.prod(p.kernel) * channels * SIZE * blocks,
        spare=(grid[1] * h / image[0], grid[2] * w / image[1], grid[0] * deep / p.batch,
               high * pitch / (h * w * math.prod(cuts[0].stride)),
               np.ceil(count / turns) * turns / count),
        tile=values, kind=stages + 4 * boxed, conflicts=meetings,
        copied=copied, pieces=lines, stages=stages * ones,
    )  # fmt: skip
