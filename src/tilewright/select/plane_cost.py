"""What the schedules of a GPU make a thread and a block do: those that copy tiles of planes, halo
included, to shared memory, from which their threads load."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.select.counts import Array, Staged
from tilewright.target.devices import WARP, WIDEST
from tilewright.topi.columns import tile_of
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.plane_tiles import PlaneBoxTile, plane_cut, read_at_once

#: Bytes of shared memory of a block beside its tiles.
_OWN = 1024


def plane_boxes(p: Conv, *values: Array) -> Staged:
    """Of :class:`PlaneBoxTile`, whose fields ``values`` has in their order."""
    rows, columns, y, x, channels, turns, stages = values
    tile = tile_of(PlaneBoxTile, values)
    cut: Any = plane_cut(p, tile)
    size, (kh, kw), ones = dtype(p.dtype).bytes, p.kernel, np.ones(len(rows))
    narrow, (sh, sw), (dh, _) = size == 2, cut.stride, cut.dilation
    image, read, threads = cut.result, cut.image, y * x * channels
    (_, high, row_stride), margin, vector = cut.box, cut.margin, read_at_once(p, tile, cut)
    down, across, sees = cut.sees(0, rows), cut.sees(1, columns), cut.sees(1, tile.size[2])
    grid = cut.grid
    blocks = np.ceil(p.batch / turns) * math.prod(grid)
    width, copied = vector * size, channels * high * row_stride * size
    loads = down * np.ceil((across + margin % vector) / vector)
    thread = np.arange(WARP)[None, :]
    part = thread // x[:, None]
    row = part // y[:, None] * high[:, None] + part % y[:, None] * (rows * sh)[:, None]
    place = (row * row_stride[:, None] + thread % x[:, None] * (columns * sw)[:, None]) * size
    results, taps, even = rows * columns, kh * kw, image[1] % columns == 0
    stored = np.where(even, np.minimum(columns * size, WIDEST), size)
    inside = np.minimum(high, read[0]) * np.minimum(sees, read[1])
    return Staged(
        threads=threads, x=x, blocks=blocks, results=results * turns, turns=turns,
        shared=stages * copied + _OWN,
        held=((kh - 1) * dh + 1) * across + taps + columns,
        loads=loads, load_bytes=width, ahead=copied / threads / width,
        rounds=np.where(stages > 1, 1 + 0.2 * turns, turns),
        stores=turns * results * size / stored, store_bytes=stored,
        multiplies=results * taps, conversions=narrow * (down * across + results / 2),
        filter_loads=taps / turns, others=60 + 2.0 * rows,
        unique=turns * channels * inside * size, code=results * taps,
        run=np.minimum(sees, read[1]) * size, step=columns * sw * size, store_step=columns * size,
        extra=taps * size * channels * blocks,
        spare=(grid[1] * rows * y / image[0], grid[2] * columns * x / image[1],
               high * row_stride / (rows * y * columns * x * sh * sw),
               np.ceil(p.batch / turns) * turns / p.batch),
        tile=values, kind=stages * ones, conflicts=bank_conflicts(place, width), copied=copied,
        runs=channels * high, stages=stages * ones,
    )  # fmt: skip
