"""What the schedules of a GPU make a thread and a block do: products of pairs of channels, of tiles
of channels-last images in shared memory."""

from __future__ import annotations

import math

import numpy as np

from tilewright.select.counts import Array, Staged
from tilewright.topi.gpu.depthwise_channel_pairs import PairTile, SparsePairTile, pair_cut
from tilewright.topi.gpu.pair_tiles import (
    PRODUCT,
    bands,
    load_passes,
    loads,
    products,
    registers,
)
from tilewright.topi.problem import Problem

#: Bytes that an instruction moves at most, threads of a warp, bytes of an element, and bytes of
#: shared memory of a block beside its tiles.
_WIDEST, _WARP, _SIZE, _OWN = 16, 32, 2, 1024
#: Instructions that make a register of a band.
_BAND = 12.0
#: Registers that a thread has anyway.
_ANYWAY = 24


def pairs(p: Problem, *values: Array) -> Staged:
    """Of :class:`PairTile`, whose fields ``values`` has in their order."""
    return _pairs(p, values, PairTile)


def sparse_pairs(p: Problem, *values: Array) -> Staged:
    """Of :class:`SparsePairTile`."""
    return _pairs(p, values, SparsePairTile)


def _pairs(p: Problem, values: tuple[Array, ...], kind: type[PairTile]) -> Staged:
    tiles = [kind(*map(int, one)) for one in zip(*values, strict=True)]
    cuts = [pair_cut(p, tile) for tile in tiles]
    rows, *_, turns, stages = values
    ones = np.ones(len(tiles))
    image = p.image if p.pass_ == "dgrad" else p.out_image
    read = p.out_image if p.pass_ == "dgrad" else p.image
    steps = p.stride if p.pass_ == "forward" else (1, 1)
    seen = [cut.seen(tile.high, tile.wide) for cut, tile in zip(cuts, tiles, strict=True)]
    high, wide = np.array(seen, "float64").T
    h, w, c, deep, warps, own = np.array(
        [(t.high, t.wide, t.channels, t.deep, t.down * t.across * t.lots, t.own) for t in tiles],
        "float64",
    ).T
    made, held, code, loaded, multiplied = np.array(
        [
            (bands(x), registers(x), products(x), loads(x), products(x) * PRODUCT[x.pixels])
            for x in cuts
        ],
        "float64",
    ).T
    grid = [np.ceil(n / size) for n, size in zip((p.batch, *image), (deep, h, w), strict=True)]
    beside, count = np.ceil(p.channels / c), math.prod(grid)
    blocks, results = np.ceil(count / turns) * beside, 2 * rows * own
    pieces, each = deep * high * wide, 2 * own * _WARP / (4 * _WARP)
    stored, width = results * _SIZE / _WIDEST, _SIZE * own
    conflicts = [
        load_passes(tile, int(at[1]), int(at[0]), steps)
        for tile, at in zip(tiles, seen, strict=True)
    ]
    inside = deep * np.minimum(high, read[0]) * np.minimum(wide, read[1])
    copied = pieces * c * _SIZE
    return Staged(
        threads=warps * _WARP, x=_WARP * ones, blocks=blocks, results=results * turns, turns=turns,
        shared=stages * copied + deep * h * w * (c + 8) * _SIZE + _OWN, held=held - _ANYWAY,
        loads=4 * loaded / (own / 2), load_bytes=width,
        ahead=copied / (warps * _WARP) / width,
        rounds=np.where(stages > 1, 1 + 0.2 * turns, turns),
        stores=turns * stored, store_bytes=_WIDEST * ones,
        multiplies=multiplied, conversions=results / 2,
        filter_loads=made / turns, others=60 + _BAND * made / turns + 2 * stored + each,
        unique=turns * inside * c * _SIZE, code=code,
        run=np.where(beside > 1, c, p.channels * wide) * _SIZE, step=width,
        store_step=_WIDEST * ones, extra=math.prod(p.kernel) * c * _SIZE * blocks,
        spare=(grid[1] * h / image[0], grid[2] * w / image[1], beside * c / p.channels,
               high * wide / (h * w * math.prod(steps)), grid[0] * deep / p.batch),
        tile=values, kind=own / 2 + 8 * stages, conflicts=np.array(conflicts),
        copied=copied, pieces=pieces, stages=stages * ones,
    )  # fmt: skip
