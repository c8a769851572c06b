"""The tiles worth trying for :mod:`~tilewright.topi.gpu.depthwise_pixel_tiles`, best guess first.

The guess is a time, of what a multiprocessor issues, what comes through the second-level cache and
what memory moves, the slowest of which hides most of the others. Its numbers are those of an H200;
which of these tiles is taken there, records and the trees of the choice decide.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tilewright.ir.dtype import dtype
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.target.target import Target
from tilewright.topi.gpu.depthwise_pixel_tiles import BoxTile, seen
from tilewright.topi.gpu.window import MULTIPROCESSORS, passes
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.problem import Problem

#: Of an H200: instructions that a multiprocessor issues in a microsecond, bytes that the
#: second-level cache and memory move in one.
_ISSUED, _CACHE, _MEMORY = 4 * 1755.0, 6.5e6, 4.2e6
#: Of a multiprocessor: bytes of shared memory, registers, warps and blocks.
_SHARED, _REGISTERS, _WARPS, _BLOCKS = 227 * 1024, 65536, 64, 32
#: Bytes that a block takes beside its tiles.
_OWN = 1100
#: Multiplications written out that the instruction cache still holds, and at most.
_CACHED, _CODE = 1900, 4096
#: So many tiles are worth trying, of so many ways to fill the registers of a thread.
_MOST, _THREADS = 160, 28
#: Registers of a thread beside those that inputs, filters and sums take.
_OTHERS = 22


@dataclass(frozen=True)
class _Thread:
    """What a thread does in a turn: instructions but reads, reads of inputs, and its registers."""

    tile: BoxTile
    code: float
    reads: int
    registers: int

    def issued(self, conflicts: int = 1) -> float:
        """Instructions, those that wait for the instruction cache counting more."""
        code = self.code + self.reads * conflicts
        return code * (1 + 0.2 * max(0.0, code / _CACHED - 1))


def box_tiles(p: Problem, target: Target) -> list[BoxTile]:
    """Tiles that fit, the best guess first."""
    return list(_ranked(p))


@functools.lru_cache(64)
def _ranked(p: Problem) -> tuple[BoxTile, ...]:
    found = heapq.nsmallest(_MOST, _tiles(p), key=lambda pair: pair[0])
    least = BoxTile(1, 1, 1, 1, 1, 16 // dtype(p.dtype).bytes, keeps=0)
    return tuple(tile for cost, tile in found if cost < math.inf) or (least,)


def _tiles(p: Problem) -> Iterator[tuple[float, BoxTile]]:
    """Tiles, with the microseconds that they are thought to take."""
    height, width = p.result_image
    lanes = _lanes(p)
    for thread in heapq.nsmallest(_THREADS, _threads(p, {v for _, v in lanes}), key=_dear):
        rows, columns = thread.tile.rows, thread.tile.columns
        across = dict.fromkeys(-(-width // (columns * parts)) for parts in (1, 2, 3, 4, 7))
        for (x, vector), y, z in product(lanes, across, (1, 2, 4)):
            fits = vector == thread.tile.vector and 64 <= x * y * z <= 512
            if not fits or rows * z >= 2 * height:
                continue
            tile = replace(thread.tile, threads_x=x, threads_y=y, threads_z=z)
            turns = -(-height // (rows * z))
            yield _micros(p, tile, thread), tile
            for t in {2, 4, turns} - {1}:
                if t < 2 * turns:
                    made = replace(tile, turns=t, stages=2)
                    yield _micros(p, made, thread), made


def _lanes(p: Problem) -> list[tuple[int, int]]:
    """Threads along channels, and channels of each, of boxes with whole pieces of 16 bytes."""
    size = dtype(p.dtype).bytes
    found = []
    for vector, lanes in product((4, 2, 1), (8, 12, 16, 18, 20, 24, 32, 36, 48, 64, 72, 96)):
        channels = lanes * vector
        pieces = channels * size % 16 == 0 and vector * size <= 8
        if pieces and channels <= LARGEST and whole(p.channels, channels) <= 1.15 * p.channels:
            found.append((lanes, vector))
    return found or [(16 // size, 1)]


def _threads(p: Problem, vectors: set[int]) -> Iterator[_Thread]:
    """What threads may compute."""
    (kh, kw), narrow = p.kernel, dtype(p.dtype).bytes == 2
    height, width = p.result_image
    rows, columns = (
        [n for n in sizes if whole(extent, n) <= 1.2 * extent] or [1]
        for extent, sizes in (
            (height, (1, 2, 3, 4, 5, 7, 8, 14, 28)),
            (width, (1, 2, 3, 4, 5, 7, 8)),
        )
    )
    for vector, r, c, keeps in product(sorted(vectors), rows, columns, (1, 0)):
        tile = BoxTile(r, c, vector, 1, 1, 1, keeps=keeps)
        high, wide, _ = seen(p, tile)
        kept = ((kh - 1) * p.dilation[0] + 1) * wide * vector + keeps * kh * kw * vector
        registers = kept // 2 + c * vector + _OTHERS
        multiplies = r * c * vector * kh * kw
        if max(kept, registers) > 250 or multiplies > _CODE:
            continue
        filters = kh * kw * (1 + narrow * vector if keeps else r)
        converted = 1.6 * high * wide * vector * narrow
        code = multiplies + filters + converted + r * c * (1 + narrow) + 80
        yield _Thread(tile, code, high * wide, max(32, registers))


def _dear(thread: _Thread) -> float:
    """Instructions for each result, dearer where few warps have room for their registers."""
    results = thread.tile.rows * thread.tile.columns * thread.tile.vector
    warps = _REGISTERS / (32 * thread.registers)
    return thread.issued() / results * (1 + 7 / warps)


def _micros(p: Problem, tile: BoxTile, thread: _Thread) -> float:
    """The microseconds that a tile is thought to take, infinite where it does not fit."""
    size, (kh, kw) = dtype(p.dtype).bytes, p.kernel
    step = p.stride[1] if p.pass_ == "forward" else 1
    warps = -(-tile.threads_x * tile.threads_y * tile.threads_z // 32)
    rows, columns, channels = seen(p, tile)
    taps = kh * kw * channels * (size if tile.keeps else 4)
    space = tile.stages * rows * columns * channels * size + taps + _OWN
    if space > _SHARED or max(rows, columns) > LARGEST:
        return math.inf
    room = min(_REGISTERS // (warps * 32 * thread.registers), _WARPS // warps, _BLOCKS)
    resident = min(_SHARED // space, room)
    if not resident:
        return math.inf
    (height, width), (h, w, c) = p.result_image, tile.whole
    down, across, beside = -(-height // (h * tile.turns)), -(-width // w), -(-p.channels // c)
    blocks = p.batch * down * across * beside
    waves = blocks / (resident * MULTIPROCESSORS)
    apart = tile.columns * step * channels * size
    conflicts = passes((tile.threads_x, tile.threads_y), (tile.vector * size, apart))
    turns = blocks * tile.turns
    issue = turns * warps * thread.issued(conflicts) / _ISSUED / MULTIPROCESSORS
    issue *= 1 + 7 / (resident * warps)
    written = p.batch * height * width * p.channels * size
    box = rows * columns * max(channels * size + 12, 80)  # short rows take as long as longer ones
    cache = (turns * box + written) / _CACHE
    read = p.batch * math.prod(p.out_image if p.pass_ == "dgrad" else p.image) * p.channels * size
    # Parts of pixels reach memory one after the other.
    memory = (read + written) / _MEMORY * (1.24 if beside > 1 else 1.0)
    slowest = math.pow(issue**4 + cache**4 + memory**4, 0.25)
    tail = math.ceil(waves) / waves if waves < 2 else 1.0
    waits = math.ceil(waves) * (0.76 if tile.stages == 1 else 0.53) / math.sqrt(resident)
    return slowest * tail + waits
