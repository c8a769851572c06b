"""What the schedules of a GPU make a thread and a block do: those that copy tiles of channels-last
images, halo included, to shared memory, from which their threads load."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.select.counts import Array, Staged
from tilewright.topi.gpu.depthwise_pixel_tiles import BoxTile
from tilewright.topi.gpu.depthwise_wgrad_tiles import GradientPixelTile, cut_of
from tilewright.topi.problem import Problem

#: Bytes that an instruction moves at most, banks of shared memory, and threads of a warp.
_WIDEST, _BANKS, _WARP = 16, 32, 32
#: Bytes of shared memory of a block beside its tiles.
_OWN = 1024


def boxes(p: Problem, *values: Array) -> Staged:
    """Of :class:`BoxTile`, whose fields ``values`` has in their order."""
    t = _sets(BoxTile, values)
    size, (kh, kw), ones = dtype(p.dtype).bytes, p.kernel, np.ones(len(values[0]))
    narrow, (down, across) = size == 2, p.stride if p.pass_ == "forward" else (1, 1)
    threads, width = t.threads_z * t.threads_y * t.threads_x, t.vector * size
    image = p.image if p.pass_ == "dgrad" else p.out_image
    h, w, c = _within(t, (*image, p.channels))
    rows, columns = (
        (n - 1) * step + (k - 1) * spread + 1
        for n, step, k, spread in zip((h, w), (down, across), p.kernel, p.dilation, strict=True)
    )
    channels = c
    high, wide = (
        (n - 1) * step + (k - 1) * spread + 1
        for n, step, k, spread in zip(
            (t.rows, t.columns), (down, across), p.kernel, p.dilation, strict=True
        )
    )
    tiles = [np.ceil(image[0] / (h * t.turns)), np.ceil(image[1] / w), np.ceil(p.channels / c)]
    blocks = p.batch * math.prod(tiles)
    each, results = np.ceil(width / _WIDEST), t.rows * t.columns
    copied = rows * columns * channels * size
    taps = kh * kw * channels * np.where(t.keeps, size, 4)
    weights = np.where(t.keeps, each, np.ceil(t.vector * 4 / _WIDEST) * t.rows) * kh * kw
    x, y, z = _places(t.threads_x, t.threads_y)
    pixel = z * t.rows[:, None] * down * columns[:, None] + y * t.columns[:, None] * across
    conflicts = bank_conflicts(pixel * channels[:, None] * size + x * width[:, None], width)
    read = p.out_image if p.pass_ == "dgrad" else p.image
    inside = np.minimum(rows * t.turns, read[0]) * np.minimum(columns, read[1])
    even = p.channels % t.vector == 0
    return Staged(
        threads=threads, x=t.threads_x, blocks=blocks, results=results * t.vector * t.turns,
        turns=t.turns, shared=t.stages * copied + taps + _OWN,
        held=((kh - 1) * p.dilation[0] + 1) * wide * t.vector + t.columns * t.vector
        + t.keeps * kh * kw * t.vector,
        loads=high * wide * each, load_bytes=np.minimum(width, _WIDEST),
        ahead=copied / threads / np.minimum(width, _WIDEST),
        rounds=np.where(t.stages > 1, 1 + 0.2 * t.turns, t.turns),
        stores=t.turns * results * np.where(even, each, t.vector),
        store_bytes=np.where(even, np.minimum(width, _WIDEST), size),
        multiplies=results * t.vector * kh * kw,
        conversions=narrow * (high * wide + results / 2 + t.keeps * kh * kw) * t.vector,
        filter_loads=weights, others=60 + 2.0 * results + kh * kw * channels / threads * 3,
        unique=inside * channels * size, code=results * t.vector * kh * kw,
        run=np.where(tiles[2] > 1, channels, p.channels * columns) * size,
        extra=kh * kw * channels * size * blocks,
        spare=(tiles[0] * h * t.turns / image[0], tiles[1] * w / image[1],
               tiles[2] * c / p.channels, rows * columns / (h * w * down * across),
               ones * (p.channels % channels == 0)),
        tile=values, kind=t.keeps + 2 * t.stages, conflicts=conflicts, copied=copied,
        pieces=rows * columns, stages=t.stages * ones,
    )  # fmt: skip


def _within(t: Any, extents: tuple[int, int, int]) -> list[Array]:
    """:meth:`BoxTile.within` of many tiles."""
    own, threads = (t.rows, t.columns, t.vector), (t.threads_z, t.threads_y, t.threads_x)
    return [
        np.minimum(n, extent) * np.minimum(m, np.ceil(extent / n))
        for n, m, extent in zip(own, threads, extents, strict=True)
    ]


def gradient_boxes(p: Problem, *values: Array) -> Staged:
    """Of :class:`GradientPixelTile`, whose fields ``values`` has in their order."""
    t = _sets(GradientPixelTile, values)
    cut = cut_of(p, t)
    size, (kh, kw), ones = dtype(p.dtype).bytes, p.kernel, np.ones(len(values[0]))
    narrow, width = size == 2, t.vector * size
    threads = t.lanes * t.across * t.images * t.down
    x_tile, dy_tile = ([n * ones for n in shape] for shape in (cut.x_tile, cut.dy_tile))
    pieces = np.asarray(math.prod(x_tile[:3]) + math.prod(dy_tile[:3]))
    copied, channels = pieces * cut.channels * size, cut.channels * ones
    grid, groups = [np.ceil(n * ones) for n in cut.grid], np.ceil(p.channels / channels)
    tiles = np.ceil(p.batch / t.images) * math.prod(grid)
    turns = np.ceil(tiles / t.chunks)
    step = p.stride[1]
    across = (t.columns - 1) * step + kw
    over, back = t.rows * across, (t.rows + kh - 1) * t.columns
    each, sums = np.ceil(width / _WIDEST), kh * kw * t.vector
    x, y, z = _places(t.lanes, t.across)
    apart, high, wide = (n[:, None] for n in (t.rows * ones, *x_tile[1:3]))
    image = z // t.down[:, None]
    pixel = (image * high + z % t.down[:, None] * apart) * wide + y * t.columns[:, None] * step
    conflicts = bank_conflicts(pixel * channels[:, None] * size + x * width[:, None], width)
    return Staged(
        threads=threads, x=t.lanes, blocks=t.chunks * groups,
        results=t.rows * t.columns * t.vector * turns, turns=turns,
        held=sums + (kh * t.columns + across) * t.vector,
        shared=t.stages * copied + threads * kw * t.vector * 4 + _OWN,
        loads=(over + back) * each, load_bytes=np.minimum(width, _WIDEST),
        ahead=np.maximum(1, t.stages - 1) * copied / threads / np.minimum(width, _WIDEST),
        rounds=np.where(t.stages > 1, 1 + 0.2 * turns, turns) + t.chunks / 64,
        stores=sums * (3 + t.across * t.images * t.down / threads * cut.channels),
        store_bytes=4 * ones, multiplies=t.rows * t.columns * sums,
        conversions=narrow * (over + back) * t.vector, filter_loads=0 * ones,
        others=60 + 3.0 * t.rows, unique=turns * copied, code=t.rows * t.columns * sums,
        run=np.where(groups > 1, channels, p.channels * wide[:, 0]) * size,
        extra=2.0 * t.chunks * p.out_channels * kh * kw * 4,
        spare=(grid[0] * cut.height / p.height, grid[1] * cut.width / p.out_image[1],
               turns * t.chunks / tiles, groups * channels / p.channels,
               np.ceil(p.batch / t.images) * t.images / p.batch,
               copied / (t.images * cut.height * cut.width * channels * size)),
        tile=(*values[:8], np.log2(t.chunks), *values[9:]), kind=t.stages * ones,
        conflicts=conflicts, copied=copied, pieces=pieces, stages=t.stages * ones,
    )  # fmt: skip


def _sets(config: Any, values: tuple[Array, ...]) -> Any:
    """All sets as one tile, whose fields are arrays: what follows from a tile by arithmetic follows
    from all of them."""
    return config(*values)


def _places(lanes: Array, across: Array) -> tuple[Array, Array, Array]:
    """(sets, threads of a warp): where the threads of the first warp are along each dimension."""
    thread = np.arange(_WARP)[None, :]
    rest = thread // lanes[:, None]
    return thread % lanes[:, None], rest % across[:, None], rest // across[:, None]


def bank_conflicts(address: Array, width: Array) -> Array:
    """How many words of one bank a warp reads, whose threads read ``width`` (sets,) bytes, up to 16
    at a time, at ``address`` (sets, threads); the same word counts once."""
    count = max(1, int(min(width.max(initial=4), _WIDEST) // 4))
    first = (address // 4).astype("int64")
    inside = np.minimum(np.arange(count), np.maximum(width // 4 - 1, 0)[:, None]).astype("int64")
    words = np.sort((first[:, :, None] + inside[:, None, :]).reshape(len(first), -1), axis=1)
    new = np.diff(words, axis=1, prepend=-1) != 0
    place = np.arange(len(words))[:, None] * _BANKS + words % _BANKS
    counts = np.bincount(place[new], minlength=len(words) * _BANKS)
    return np.asarray(counts.reshape(-1, _BANKS).max(axis=1), "float64")
