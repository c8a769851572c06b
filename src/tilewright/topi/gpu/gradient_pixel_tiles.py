"""The tiles worth trying for a gradient by the filter from staged tiles, the best guess first.

The guess is a time (:mod:`~tilewright.topi.gpu.staged_times`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.target.devices import (
    BANKS,
    REGISTERS,
    THREAD_REGISTERS,
    WARP,
    WORD,
)
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.topi.columns import Array, combinations, once, pick
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.gpu.machine import BARRIERS, HALVES, MACHINE, is_planar, sees_nothing
from tilewright.topi.gpu.staged_times import Work, brought, spare_of, worth_trying
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.gradient_tiles import GradientTiles
from tilewright.topi.pieces.reduction_tiles import GradientPixelTile

#: Registers of a thread beside sums and pixels.
_OTHERS = 24
#: Multiplications written out in a kernel, and threads of a block.
_CODE, _THREADS = 5000, 512
#: Instructions of a tile that neither load nor multiply, and of a block beside its sums; how much
#: longer those of a warp take that no other hides, which are less where each has many sums.
_TURN, _ONCE, _LATENCY = 90, 300, 2.0
#: Bytes that the banks of shared memory pass together.
_LINE = BANKS * WORD


def suits_pixel_sums(p: Conv) -> bool:
    """Whether :func:`~tilewright.topi.sketches.tile_sums.schedule_tile_sums` is for a
    problem: one whose pixels lie at multiples of 16 bytes, and whose filter fits registers."""
    return (
        is_planar(p, (*HALVES, "float32"))
        and p.dilation == (1, 1)
        and p.multiplier == 1
        and p.channels * dtype(p.dtype).bytes % 16 == 0
        and not sees_nothing(p)
    )


@functools.lru_cache(64)
def gradient_pixel_tiles(p: Conv) -> Sequence[GradientPixelTile]:
    """Tiles that fit shared memory and registers, the best guess first: in as many blocks as SMs
    hold at once, or with one less in each."""
    tile = _blocks(p)
    done = work(p, tile)
    held = done.resident(tile.stages)
    which, fewer = combinations(np.flatnonzero(held), (0, 1))
    some, resident = done.pick(which), np.maximum(1, held[which] - fewer)
    chunks = np.clip(resident * MACHINE.sms // some.beside, 1, some.line)
    found = pick(tile, which, chunks=chunks)
    return worth_trying(found, some.micros(-(-some.line // chunks), found.stages, resident))


def work(p: Conv, tile: Any) -> Work:
    """What blocks of tiles do."""
    cut: Any = GradientTiles(p, tile)
    size = dtype(p.dtype).bytes
    threads = tile.lanes * tile.across * tile.images * tile.down
    groups = -(-p.channels // tile.channels)
    line = -(-p.batch // tile.images) * math.prod(cut.grid)
    pairs, x_part, dy_part = _seen(cut)
    loads = math.prod(x_part), math.prod(dy_part)
    read = sum(n * passes for n, passes in zip(loads, wavefronts(cut), strict=True)) / 4
    issued = pairs * tile.vector + sum(loads) * (1 + tile.vector * (2 - size // 2)) + _TURN
    sides = np.stack([*np.broadcast_arrays(*cut.x_tile, *cut.dy_tile)]).max(axis=0)
    rows = math.prod(cut.x_tile[:3]) + math.prod(cut.dy_tile[:3])
    return Work(
        warps=-(-threads // WARP), registers=-(-_held(p, tile.vector, tile.columns) // 8) * 8,
        staged=rows * tile.channels * size, kept=threads * p.kernel_w * tile.vector * 4 + BARRIERS,
        line=line, beside=groups, products=0, loads=read, issued=issued,
        once=_ONCE + 2 * math.prod(p.kernel) * tile.vector,
        brought=brought(rows, tile.channels * size), moved=p.bytes, fits=sides <= LARGEST,
        latency=_LATENCY, spare=spare_of(
            (p.out_image[0] if cut.sees else p.height, p.out_image[1], p.channels, p.batch),
            (tile.height, tile.width, tile.channels, tile.images),
        ),
    )  # fmt: skip


def _blocks(p: Conv) -> Any:
    """Blocks for whose threads there are registers."""
    found = []
    height = p.out_image[0] if p.stride[0] > 1 else p.height
    for vector, width in [(v, n) for v in (1, 2) for n in (2, 4, 7, 8)]:
        held = _held(p, vector, width)
        if width >= 2 * max(2, p.out_image[1]) or held > THREAD_REGISTERS:
            continue
        parts = np.array(_parts(p, width), "int64").reshape(-1, 3)
        lanes, part, rows, stages = combinations(
            _lanes(p, vector), range(len(parts)), (2, 4, 7, 8, 10, 14), (2, 3)
        )
        across, images, down = parts[part].T
        threads = lanes * across * images * down
        fits = (threads % WARP == 0) & (threads <= _THREADS) & (threads * held <= REGISTERS)
        fits &= rows * width * math.prod(p.kernel) * vector <= _CODE
        fits &= rows * down < 2 * max(2, height)
        same = (np.full_like(rows, n) for n in (width, vector))
        one = np.ones_like(rows)
        found.append(np.stack([rows, *same, lanes, images, down, across, stages, one])[:, fits])
    return GradientPixelTile(*np.concatenate([np.zeros((9, 0), "int64"), *found], axis=1))


def _held(p: Conv, vector: Any, columns: Any) -> Any:
    """Registers of a thread."""
    (kh, kw), seen = p.kernel, (columns - 1) * p.stride[1] + p.kernel[1]
    kept, new = (seen, columns) if p.stride[0] > 1 else (columns, seen)
    return kh * kw * vector + (kh * kept + new) * vector + _OTHERS


def _lanes(p: Conv, vector: int) -> list[int]:
    """Threads for the channels of a tile, such that its pixels are whole multiples of 16 bytes."""
    size = dtype(p.dtype).bytes * vector
    least = 16 // math.gcd(16, size)
    found = [n for n in (2, 4, 8, 16, 24, 32, 36, 48, 64) if n % least == 0]
    groups = {n: -(-p.channels // (n * vector)) for n in found}
    waste = {n: groups[n] * n * vector / p.channels for n in found}
    # Pixels of fewer than 32 bytes are read as slowly as those.
    wide = [n for n in found if n * size >= 32 or groups[n] == 1] or found[:1]
    return [n for n in wide if waste[n] <= 1.25] or [min(wide, key=lambda n: (waste[n], -n))]


def _parts(p: Conv, columns: int) -> list[tuple[int, int, int]]:
    """Parts of a tile across, images and down."""
    whole = -(-p.out_image[1] // columns)
    found = dict.fromkeys(-(-whole // n) for n in (1, 2, 4))
    return [
        (across, images, down)
        for across in found
        for images, down in ((1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (4, 1), (8, 1), (16, 1))
        if across * columns <= 128 and images < 2 * max(16, p.batch)
    ]


def _seen(cut: Any) -> tuple[Any, list[Any], list[Any]]:
    """Of a part of a tile: pairs of a pixel of dy and a tap that are multiplied, and the rows and
    columns of x and of dy that are read."""
    p, pairs = (
        cut.problem,
        [cut.tile.rows * cut.problem.kernel_h, cut.tile.columns * cut.problem.kernel_w],
    )
    x_part = [*cut.x_part(cut.tile.rows, cut.tile.columns)]
    dy_part = [*cut.dy_part(cut.tile.rows, cut.tile.columns)]
    for k in range(2):
        known = cut.products(k)
        pairs[k] = np.where(known > 0, known, pairs[k])
        for part, image in ((x_part, p.image), (dy_part, p.out_image)):
            part[k] = np.where(known > 0, np.minimum(part[k], image[k]), part[k])
    return math.prod(pairs), x_part, dy_part


def wavefronts(cut: GradientTiles) -> tuple[Array, Array]:
    """Passes over the banks of shared memory that a warp takes to read its vectors from a tile of
    x, and from one of dy."""
    steps = (cut.step, cut.problem.stride[1]), (1, 1)
    x, dy = (_passes(cut, *one) for one in zip((cut.x_tile, cut.dy_tile), steps, strict=True))
    return x, dy


def _passes(cut: GradientTiles, shape: tuple[Any, ...], step: tuple[int, int]) -> Array:
    """The same from a tile of that shape, whose parts are ``step`` rows and columns apart for each
    of theirs."""
    size = dtype(cut.problem.dtype).bytes
    pixel, (_, high, wide, _) = shape[3] * size, shape
    apart = (
        cut.tile.columns * step[1] * pixel,
        cut.tile.rows * step[0] * wide * pixel,
        high * wide * pixel,
    )
    known = (
        cut.tile.vector * size,
        cut.tile.lanes,
        cut.tile.across,
        cut.tile.down,
        *(n % _LINE for n in apart),
    )
    sets = np.stack(np.broadcast_arrays(*(np.atleast_1d(n) for n in known)))
    first, back = once(sets)  # most conflict as others do
    width, lanes, across, down, *steps = sets[:, first, None]
    part, thread = np.arange(WARP) // lanes, np.arange(WARP)
    address = thread % lanes * width + part % across * steps[0]
    address += part // across % down * steps[1] + part // across // down * steps[2]
    address += part * (WARP * _LINE)  # those of other parts are others, in the same bank
    return bank_conflicts(address, width[:, 0])[back]
