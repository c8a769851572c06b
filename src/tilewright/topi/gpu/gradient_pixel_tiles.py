"""The tiles worth trying for a gradient by the filter from staged tiles, the best guess first.

A guess is the time of the busiest SM: what its warps issue, or what it copies.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.target.devices import (
    BANKS,
    REGISTERS,
    RESERVED,
    SECTOR,
    THREAD_REGISTERS,
    WARP,
    WORD,
)
from tilewright.topi.columns import Array, combinations, listed, once, pick
from tilewright.topi.gpu.banks import bank_conflicts
from tilewright.topi.gpu.machine import HALVES, MACHINE, is_planar, occupancy, sees_nothing
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.gradient_tiles import GradientTiles
from tilewright.topi.pieces.reduction_tiles import GradientPixelTile

#: Bytes of shared memory that a block has beside its tiles; registers of a thread beside sums and
#: pixels.
_OWN, _OTHERS = 1024, 24
#: Cycles in which an SM copies a kilobyte from memory, or from the second-level cache, and cycles
#: until a first tile is there.
_MEMORY, _CACHE, _LATENCY = 52, 36, 1500
#: Bytes of rows that caches move as slowly as shorter ones.
_NARROW = 64
#: Multiplications written out in a kernel, and threads of a block.
_CODE, _THREADS = 5000, 512
#: Instructions of a tile that neither load nor multiply, and cycles in which the threads of a block
#: wait for one another and for a tile that is there.
_TURN, _WAITS = 90, 300
#: Of the time in which it multiplies, reads or copies, the part that hides behind nothing else.
_APART = 0.15
#: Tiles that are tried: the best of each tiling, this many of those in which a thread has the
#: same columns and channels, and the best of the others.
_COUNT, _ALIKE, _OTHERS_TRIED = 40, 5, 12
#: Instructions that a scheduler with this many warps issues in a cycle, about.
_BUSY = np.array((0.0, 0.6, 0.8, 0.88, 0.92, 0.94))
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
    """Tiles that fit shared memory and registers, the best guess first."""
    cost, tiles = _shared_out(p, _blocks(p))
    order = np.argsort(cost, kind="stable")
    thread = np.stack([tiles.vector, tiles.columns, tiles.lanes])[:, order]
    parts = np.stack([tiles.across, tiles.images, tiles.down])[:, order]
    found: list[int] = []
    alike: Counter[tuple[int, ...]] = Counter()
    firsts = np.sort(once([*thread, *parts])[0])
    for at, *one in zip(firsts.tolist(), *thread[:, firsts].tolist(), strict=True):
        if alike[tuple(one)] < _ALIKE:
            alike[tuple(one)] += 1
            found.append(at)
    others = np.ones(len(order), "bool")
    others[found] = False
    tried = np.array([*found[:_COUNT], *np.flatnonzero(others)[:_OTHERS_TRIED]], "int64")
    return listed(pick(tiles, order[tried]))


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


def _shared_out(p: Conv, bare: Any) -> tuple[Array, Any]:
    """Among as many blocks as SMs hold at once, where they fit. The cycles that this is predicted
    to take come first."""
    (kh, kw), size = p.kernel, dtype(p.dtype).bytes
    cut: Any = GradientTiles(p, bare)
    threads = bare.lanes * bare.across * bare.images * bare.down
    copied = (math.prod(cut.x_tile) + math.prod(cut.dy_tile)) * size
    shared = bare.stages * copied + threads * kw * bare.vector * 4 + _OWN
    registers = -(-_held(p, bare.vector, bare.columns) // 8) * 8
    fit = occupancy(MACHINE, threads // WARP, registers, shared)
    sides = np.stack([*np.broadcast_arrays(*cut.x_tile, *cut.dy_tile)])
    which = np.flatnonzero(
        (sides.max(axis=0) <= 256) & (shared + RESERVED <= MACHINE.block_shared) & (fit > 0)
    )
    which, fewer = combinations(which, (0, 1))
    blocks = np.maximum(1, fit[which] - fewer)
    once = (fewer == 0) | (blocks < fit[which])
    which, blocks = which[once], blocks[once]

    tile = pick(bare, which)
    threads, copied, cut = threads[which], copied[which], GradientTiles(p, tile)
    warps = threads // WARP
    groups = -(-p.channels // cut.tile.channels)
    count = -(-p.batch // tile.images) * math.prod(cut.grid)
    pairs, x_part, dy_part = _seen(cut)
    loads = math.prod(x_part), math.prod(dy_part)
    converted = sum(loads) * tile.vector * (2 - size // 2)
    issued = pairs * tile.vector + sum(loads) + converted + _TURN
    moved = sum(n * passes for n, passes in zip(loads, wavefronts(cut), strict=True))
    row = cut.tile.channels * size
    partly = np.where((row | p.channels * size) % SECTOR == 0, 0, SECTOR)
    slowly = (row + partly) / row * np.maximum(1.0, _NARROW / row)

    chunks = np.maximum(1, np.minimum(count, blocks * MACHINE.sms // groups))
    steps = -(-count // chunks)
    resident = -(-np.minimum(blocks * MACHINE.sms, chunks * groups) // MACHINE.sms)
    waves = -(-chunks * groups // (blocks * MACHINE.sms))
    each = -(-resident * warps // 4)  # warps of the busiest scheduler
    busy = np.stack([
        each * issued / _BUSY[np.minimum(each, len(_BUSY) - 1)],
        resident * (warps * moved + copied / 128),
        resident * copied / 1024 * _CACHE * slowly,
    ])  # fmt: skip
    slowest = busy.max(axis=0)
    turn = _WAITS / resident + slowest + _APART * (busy[0] + busy[1] + busy[2] - slowest)
    whole = p.bytes / np.minimum(MACHINE.sms, chunks * groups) / 1024 * _MEMORY
    first = resident * copied / 1024 * _MEMORY + _LATENCY
    last = 300 + 2 * kh * kw * tile.vector + chunks / 16 * 40
    time = waves * (np.maximum(steps * turn, whole) + first + last)
    return time, pick(tile, slice(None), chunks=chunks)


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
