"""What the schedules of a GPU make a thread and a block do: those that copy tiles of planes, halo
included, to shared memory, from which their threads load."""

from __future__ import annotations

import math

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.select.counts import Array, Staged
from tilewright.select.staged_work import bank_conflicts
from tilewright.topi.gpu.depthwise_plane_tiles import PlaneBoxTile, plane_cut, read_at_once
from tilewright.topi.problem import Problem

#: Threads of a warp, bytes that an instruction moves at most, bytes of shared memory of a block
#: beside its tiles.
_WARP, _WIDEST, _OWN = 32, 16, 1024


def plane_boxes(p: Problem, *values: Array) -> Staged:
    """Of :class:`PlaneBoxTile`, whose fields ``values`` has in their order."""
    tiles = [PlaneBoxTile(*map(int, one)) for one in zip(*values, strict=True)]
    cuts = [plane_cut(p, tile) for tile in tiles]
    rows, columns, y, x, channels, turns, stages = values
    size, (kh, kw), ones = dtype(p.dtype).bytes, p.kernel, np.ones(len(tiles))
    narrow, (sh, sw), (dh, _) = size == 2, cuts[0].stride, cuts[0].dilation
    image, read, threads = cuts[0].result, cuts[0].image, y * x * channels
    vector, high, pitch, down, across, sees, margin = np.array(
        [
            (read_at_once(p, t, c), *c.box[1:], c.sees(0, t.rows), c.sees(1, t.columns),
             c.sees(1, t.size[2]), c.margin)
            for t, c in zip(tiles, cuts, strict=True)
        ],
        "float64",
    ).T  # fmt: skip
    grid = np.array([c.grid for c in cuts], "float64").T
    blocks = np.ceil(p.batch / turns) * math.prod(grid)
    width, copied = vector * size, channels * high * pitch * size
    loads = down * np.ceil((across + margin % vector) / vector)
    thread = np.arange(_WARP)[None, :]
    part = thread // x[:, None]
    row = part // y[:, None] * high[:, None] + part % y[:, None] * (rows * sh)[:, None]
    place = (row * pitch[:, None] + thread % x[:, None] * (columns * sw)[:, None]) * size
    results, taps, even = rows * columns, kh * kw, image[1] % columns == 0
    stored = np.where(even, np.minimum(columns * size, _WIDEST), size)
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
               high * pitch / (rows * y * columns * x * sh * sw),
               np.ceil(p.batch / turns) * turns / p.batch),
        tile=values, kind=stages * ones, conflicts=bank_conflicts(place, width), copied=copied,
        pieces=channels * high, stages=stages * ones,
    )  # fmt: skip
