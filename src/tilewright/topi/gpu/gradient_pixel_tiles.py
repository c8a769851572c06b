"""The tiles worth trying for a gradient by the filter from staged tiles, the best guess first.

A guess is the time of the busiest multiprocessor: what its warps issue, or what it copies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.ir.dtype import dtype
from tilewright.target.target import Target
from tilewright.topi.gpu.depthwise_wgrad_tiles import GradientPixelTile, cut_of
from tilewright.topi.gpu.machine import sees_nothing
from tilewright.topi.gpu.window import MULTIPROCESSORS, passes
from tilewright.topi.nn.depthwise_wgrad_tiles import GradientTiles
from tilewright.topi.problem import Problem

#: Bytes of shared memory of a multiprocessor, of which a block has this much beside its tiles, and
#: what one block may take.
_SHARED, _OWN, _BLOCK = 228 * 1024, 2048, 227 * 1024
#: Registers of a multiprocessor, of a thread, and those of a thread beside sums and pixels.
_REGISTERS, _MOST, _OTHERS = 65536, 255, 24
#: Cycles in which a multiprocessor copies a kilobyte from memory, or from the second-level cache,
#: and cycles until a first tile is there.
_MEMORY, _CACHE, _LATENCY = 52, 36, 1500
#: Bytes that caches move at once, and what they do so much more slowly than whole lines.
_SECTOR, _NARROW = 32, 64
#: Multiplications written out in a kernel, and threads of a block.
_CODE, _THREADS = 5000, 512
#: Instructions of a tile that neither load nor multiply, and cycles in which the threads of a block
#: wait for one another and for a tile that is there.
_TURN, _WAITS = 90, 300
#: Of the time in which it multiplies, reads or copies, the part that hides behind nothing else.
_APART = 0.15
#: Tiles that are tried: the best of each way to cut, so many of those in which a thread has the
#: same columns and channels, and the best of the others.
_COUNT, _ALIKE, _OTHERS_TRIED = 40, 5, 12
#: Instructions that a scheduler with so many warps issues in a cycle, about.
_BUSY = (0.0, 0.6, 0.8, 0.88, 0.92, 0.94)
_WARP = 32


def suits_pixel_sums(p: Problem) -> bool:
    """Whether :func:`~tilewright.topi.gpu.depthwise_wgrad_tiles.schedule_pixel_sums` is for a
    problem: one whose pixels lie at multiples of 16 bytes, and whose filter fits registers."""
    return (
        p.rank == 2
        and p.pass_ == "wgrad"
        and p.dtype in ("float16", "bfloat16", "float32")
        and p.accumulate == "float32"
        and p.dilation == (1, 1)
        and p.multiplier == 1
        and p.channels * dtype(p.dtype).bytes % 16 == 0
        and not sees_nothing(p)
        and next(_tiles(p), None) is not None
    )


def gradient_pixel_tiles(p: Problem, target: Target) -> list[GradientPixelTile]:
    """Tiles that fit shared memory and registers, the best guess first."""
    found: list[GradientPixelTile] = []
    others: list[GradientPixelTile] = []
    cuts: set[tuple[int, ...]] = set()
    alike: Counter[tuple[int, ...]] = Counter()
    for _, tile in sorted(_tiles(p), key=lambda pair: pair[0]):
        thread = tile.vector, tile.columns, tile.lanes
        cut = (*thread, tile.across, tile.images, tile.down)
        if cut in cuts or alike[thread] == _ALIKE:
            others.append(tile)
        else:
            cuts.add(cut)
            alike[thread] += 1
            found.append(tile)
    return found[:_COUNT] + others[:_OTHERS_TRIED]


def _tiles(p: Problem) -> Iterator[tuple[float, GradientPixelTile]]:
    """Tiles, with how many cycles they are thought to take."""
    kh, kw = p.kernel
    height = p.out_image[0] if p.stride[0] > 1 else p.height
    for vector, columns in product((1, 2), (2, 4, 7, 8)):
        if columns >= 2 * max(2, p.out_image[1]):
            continue
        sums = kh * kw * vector
        seen = (columns - 1) * p.stride[1] + kw
        kept, new = (seen, columns) if p.stride[0] > 1 else (columns, seen)
        held = sums + (kh * kept + new) * vector + _OTHERS
        if held > _MOST:
            continue
        for lanes, parts, rows in product(
            _lanes(p, vector), _parts(p, columns), (2, 4, 7, 8, 10, 14)
        ):
            across, images, down = parts
            if rows * columns * sums > _CODE or rows * down >= 2 * max(2, height):
                continue
            tile = GradientPixelTile(rows, columns, vector, lanes, images, down, across)
            threads = math.prod(n for _, n in tile.threads)
            if threads % _WARP or threads > _THREADS or threads * held > _REGISTERS:
                continue
            for stages in (2, 3):
                yield from _shared_out(p, replace(tile, stages=stages), held)


def _lanes(p: Problem, vector: int) -> list[int]:
    """Threads for the channels of a tile, such that its pixels are whole multiples of 16 bytes."""
    size = dtype(p.dtype).bytes * vector
    least = 16 // math.gcd(16, size)
    found = [n for n in (2, 4, 8, 16, 24, 32, 36, 48, 64) if n % least == 0]
    groups = {n: -(-p.channels // (n * vector)) for n in found}
    waste = {n: groups[n] * n * vector / p.channels for n in found}
    # Pixels of fewer than 32 bytes are read as slowly as those.
    wide = [n for n in found if n * size >= 32 or groups[n] == 1] or found[:1]
    return [n for n in wide if waste[n] <= 1.25] or [min(wide, key=lambda n: (waste[n], -n))]


def _parts(p: Problem, columns: int) -> list[tuple[int, int, int]]:
    """Parts of a tile across, images and down."""
    whole = -(-p.out_image[1] // columns)
    found = dict.fromkeys(-(-whole // n) for n in (1, 2, 4))
    return [
        (across, images, down)
        for across in found
        for images, down in ((1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (4, 1), (8, 1), (16, 1))
        if across * columns <= 128 and images < 2 * max(16, p.batch)
    ]


def _shared_out(
    p: Problem, tile: GradientPixelTile, held: int
) -> Iterator[tuple[float, GradientPixelTile]]:
    """Among as many blocks as multiprocessors hold at once."""
    (kh, kw), size, cut = p.kernel, dtype(p.dtype).bytes, cut_of(p, tile)
    if max(*cut.x_tile, *cut.dy_tile) > 256:
        return
    threads = math.prod(n for _, n in tile.threads)
    warps = threads // _WARP
    copied = (math.prod(cut.x_tile) + math.prod(cut.dy_tile)) * size
    shared = tile.stages * copied + threads * kw * tile.vector * 4 + _OWN
    if shared > _BLOCK:
        return
    registers = -(-held // 8) * 8
    fit = min(_SHARED // shared, _REGISTERS // (registers * threads), 2048 // threads)
    groups = -(-p.channels // cut.channels)
    count = -(-p.batch // tile.images) * math.prod(cut.grid)

    pairs, x_part, dy_part = _seen(cut)
    products = pairs * tile.vector
    loads = math.prod(x_part), math.prod(dy_part)
    converted = sum(loads) * tile.vector * (2 - size // 2)
    issued = products + sum(loads) + converted + _TURN
    moved = loads[0] * wavefronts(tile, cut.x_tile, (cut.step, p.stride[1]), size)
    moved += loads[1] * wavefronts(tile, cut.dy_tile, (1, 1), size)
    row = cut.channels * size
    partly = 0 if (row | p.channels * size) % _SECTOR == 0 else _SECTOR
    slowly = (row + partly) / row * max(1.0, _NARROW / row)
    for blocks in {fit, max(1, fit - 1)}:
        chunks = max(1, min(count, blocks * MULTIPROCESSORS // groups))
        steps = -(-count // chunks)
        resident = -(-min(blocks * MULTIPROCESSORS, chunks * groups) // MULTIPROCESSORS)
        waves = -(-chunks * groups // (blocks * MULTIPROCESSORS))
        each = -(-resident * warps // 4)  # warps of the busiest scheduler
        busy = (
            each * issued / _BUSY[min(each, len(_BUSY) - 1)],
            resident * (warps * moved + copied / 128),
            resident * copied / 1024 * _CACHE * slowly,
        )
        turn = _WAITS / resident + max(busy) + _APART * (sum(busy) - max(busy))
        whole = p.bytes / min(MULTIPROCESSORS, chunks * groups) / 1024 * _MEMORY
        first = resident * copied / 1024 * _MEMORY + _LATENCY
        last = 300 + 2 * kh * kw * tile.vector + chunks / 16 * 40
        time = waves * (max(steps * turn, whole) + first + last)
        yield time, replace(tile, chunks=chunks)


def _seen(cut: GradientTiles) -> tuple[int, tuple[int, int], tuple[int, int]]:
    """Of a part of a tile: pairs of a pixel of dy and a tap that are multiplied, and the rows and
    columns of x and of dy that are read."""
    p, pairs = cut.problem, [cut.rows * cut.problem.kernel_h, cut.columns * cut.problem.kernel_w]
    x_part = [*cut.x_part(cut.rows, cut.columns)]
    dy_part = [*cut.dy_part(cut.rows, cut.columns)]
    for k in range(2):
        known = cut.products(k)
        if known:
            pairs[k] = known
            x_part[k], dy_part[k] = min(x_part[k], p.image[k]), min(dy_part[k], p.out_image[k])
    return math.prod(pairs), (x_part[0], x_part[1]), (dy_part[0], dy_part[1])


def wavefronts(
    tile: GradientPixelTile, shape: tuple[int, ...], step: tuple[int, int], size: int
) -> int:
    """Passes over the banks of shared memory that a warp takes to read its vectors from a tile of
    that shape, whose parts are ``step`` rows and columns apart for each of theirs."""
    apart, extents, pixel = [tile.vector * size], [tile.lanes], shape[3] * size
    if tile.lanes % _WARP:  # lanes of a warp read several parts
        apart.append(tile.columns * step[1] * pixel)
        apart.append(tile.rows * step[0] * shape[2] * pixel)
        apart.append(shape[1] * shape[2] * pixel)
        extents += [tile.across, tile.down, tile.images]
    return passes(tuple(extents), tuple(apart))
