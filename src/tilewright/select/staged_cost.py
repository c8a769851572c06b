"""What the schedules of a GPU make a thread and a block do: those that copy tiles of images, halo
included, to shared memory, from which their threads load, channels first or last.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.select.counts import Array, Staged
from tilewright.target.devices import WARP, WIDEST
from tilewright.topi.columns import tile_of
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.gpu.gradient_pixel_tiles import wavefronts
from tilewright.topi.gpu.machine import BARRIERS
from tilewright.topi.nn.depthwise_byte_dots import APART
from tilewright.topi.nn.depthwise_byte_dots import seen as of_words
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.gradient_tiles import GradientTiles
from tilewright.topi.pieces.pixel_boxes import BoxTile, has_dots, multiplied, seen
from tilewright.topi.pieces.plane_tiles import PlaneBoxTile, plane_cut, read_at_once
from tilewright.topi.pieces.reduction_tiles import GradientPixelTile


def boxes(p: Conv, *values: Array) -> Staged:
    """Of :class:`BoxTile`, whose fields ``values`` has in their order."""
    tile = tile_of(BoxTile, values)
    rows, columns, vector, z, y, x, turns, stages, keeps, *_ = values
    size, (kh, kw), ones = dtype(p.dtype).bytes, p.kernel, np.ones(len(rows))
    each_row, own, stored = multiplied(p, tile)
    dots, narrow, steps = has_dots(p, tile), size <= 2, p.stride if p.pass_ == "forward" else (1, 1)
    image, read = p.out_image, p.image
    if p.pass_ == "dgrad":
        image, read = read, image
    box: tuple[Any, ...] = seen(p, tile)
    (h, w, c), (high, wide, channels) = tile.within(p), box
    rows, columns = np.minimum(rows, image[0]), np.minimum(columns, image[1])
    turns = np.minimum(turns, np.ceil(image[0] / h))
    kind, stages = keeps + 2 * stages, np.minimum(stages, turns)
    threads, width, results = z * y * x, vector * size, rows * columns
    grid = [np.ceil(image[0] / (h * turns)), np.ceil(image[1] / w), np.ceil(p.channels / c)]
    blocks = p.batch * grid[0] * grid[1] * grid[2]
    down, across = (
        (n - 1) * step + (k - 1) * spread + 1
        for n, step, k, spread in zip((rows, columns), steps, p.kernel, p.dilation, strict=True)
    )
    each, copied = np.ceil(width / WIDEST), high * wide * channels * size
    taps = kh * channels * stored
    weights = np.where(keeps, each, np.ceil(vector * 4 / WIDEST) * rows) * kh * own
    # Words of pixels stand for two columns each.
    across, turned = np.where(dots, of_words(p, columns), across), np.where(dots, 0.75, 1.6)
    held = np.where(dots, across // APART, across)
    kept = ((kh - 1) * p.dilation[0] + 1) * held * vector + keeps * kh * own * vector
    tx, ty, tz = _places(x, y)
    pixel = tz * (rows * steps[0] * wide)[:, None] + ty * (columns * steps[1])[:, None]
    conflicts = bank_conflicts(pixel * channels[:, None] * size + tx * width[:, None], width)
    inside = np.minimum(high * turns, read[0]) * np.minimum(wide, read[1])
    even = p.channels % vector == 0
    return Staged(
        threads=threads, x=x, blocks=blocks, results=results * vector * turns, turns=turns,
        shared=stages * copied + taps + BARRIERS, held=kept / 2 + columns * vector,
        loads=down * across * each, load_bytes=np.minimum(width, WIDEST),
        ahead=copied / threads / np.minimum(width, WIDEST),
        rounds=np.where(stages > 1, 1 + 0.2 * turns, turns),
        stores=turns * results * np.where(even, each, vector),
        store_bytes=np.where(even, np.minimum(width, WIDEST), size),
        multiplies=results * vector * kh * each_row,
        conversions=narrow * vector * (
            turned * down * across + results / 2 + np.where(dots, 0, keeps * kh * kw)
        ),
        filter_loads=weights, others=60 + 2.0 * results + kh * kw * channels / threads * 3,
        unique=inside * channels * size, code=results * vector * kh * each_row,
        run=np.where(grid[2] > 1, channels, p.channels * wide) * size,
        step=width, store_step=width, extra=kh * kw * channels * size * blocks,
        spare=(grid[0] * h * turns / image[0], grid[1] * w / image[1],
               grid[2] * c / p.channels, high * wide / (h * w * math.prod(steps)),
               ones * (p.channels % channels == 0)),
        tile=values, kind=kind, conflicts=conflicts, copied=copied,
        runs=high * wide, stages=stages * ones,
    )  # fmt: skip


def gradient_boxes(p: Conv, *values: Array) -> Staged:
    """Of :class:`GradientPixelTile`, whose fields ``values`` has in their order."""
    tile = tile_of(GradientPixelTile, values)
    cut: Any = GradientTiles(p, tile)
    rows, columns, vector, lanes, images, down, across, stages, chunks, *_ = values
    size, (kh, kw), ones = dtype(p.dtype).bytes, p.kernel, np.ones(len(rows))
    narrow, width, threads = size == 2, vector * size, lanes * across * images * down
    x_part, dy_part = cut.x_part(rows, columns), cut.dy_part(rows, columns)
    grid, high, wide, channels, sees = cut.grid, tile.height, tile.width, tile.channels, cut.sees
    runs = math.prod(cut.x_tile[:3]) + math.prod(cut.dy_tile[:3])
    copied, groups = runs * channels * size, np.ceil(p.channels / channels)
    tiles = np.ceil(p.batch / images) * math.prod(grid)
    turns = np.ceil(tiles / chunks)
    each, sums = np.ceil(width / WIDEST), kh * kw * vector
    pairs = [
        np.where(cut.products(k) > 0, cut.products(k), every)
        for k, every in enumerate((rows * kh, columns * kw))
    ]
    conflicts = wavefronts(cut)
    over, back = math.prod(x_part), math.prod(dy_part)
    kept = np.where(sees > 0, kh * x_part[1] + columns, kh * columns + x_part[1])
    return Staged(
        threads=threads, x=lanes, blocks=chunks * groups,
        results=rows * columns * vector * turns, turns=turns, held=sums + kept * vector,
        shared=np.minimum(stages, turns) * copied + threads * kw * vector * 4 + BARRIERS,
        loads=(over + back) * each, load_bytes=np.minimum(width, WIDEST),
        ahead=np.maximum(1, stages - 1) * copied / threads / np.minimum(width, WIDEST),
        rounds=np.where(stages > 1, 1 + 0.2 * turns, turns) + chunks / 64,
        stores=sums * (3 + across * images * down / threads * channels),
        store_bytes=4 * ones, multiplies=math.prod(pairs) * vector,
        conversions=narrow * (over + back) * vector, filter_loads=0 * ones,
        others=60 + 3.0 * rows, unique=turns * copied, code=rows * columns * sums,
        run=np.where(groups > 1, channels, p.channels * cut.x_tile[2]) * size,
        step=width, store_step=4 * ones, extra=2.0 * chunks * p.out_channels * kh * kw * 4,
        spare=(grid[0] * high / np.where(sees > 0, p.out_image[0], p.height),
               grid[1] * wide / p.out_image[1], turns * chunks / tiles,
               groups * channels / p.channels, np.ceil(p.batch / images) * images / p.batch,
               copied / (images * high * wide * channels * size)),
        tile=(*values[:8], np.log2(chunks), *values[9:]), kind=stages * ones,
        conflicts=(over * conflicts[0] + back * conflicts[1]) / (over + back),
        copied=copied, runs=runs, stages=stages * ones,
    )  # fmt: skip


def _places(lanes: Array, across: Array) -> tuple[Array, Array, Array]:
    """(sets, threads of a warp): where the threads of the first warp are along each dimension."""
    thread = np.arange(WARP)[None, :]
    rest = thread // lanes[:, None]
    return thread % lanes[:, None], rest % across[:, None], rest // across[:, None]


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
        shared=np.minimum(stages, turns) * copied + BARRIERS,
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
