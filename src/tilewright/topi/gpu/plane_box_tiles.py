"""The tiles worth trying for :mod:`~tilewright.topi.gpu.depthwise_plane_tiles`, best guess first.

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
from tilewright.topi.gpu.depthwise_plane_tiles import (
    PIECE,
    PlaneBoxTile,
    plane_cut,
    read_at_once,
)
from tilewright.topi.gpu.machine import Machine, sees_nothing
from tilewright.topi.gpu.window import MULTIPROCESSORS
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.nn.depthwise_plane_tiles import PlaneCut
from tilewright.topi.problem import Problem

#: Multiplications written out that the instruction cache still holds, and at most.
_CACHED, _CODE = 1900, 4096
#: So many tiles are worth trying; registers of a thread beside inputs, filters and sums.
_MOST, _OTHERS = 120, 24
_ROWS, _COLUMNS, _PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 14, 16), (2, 4, 8), (1, 2, 3, 4, 7, 8)
#: Threads of a block, about and at most; images of a block.
_THREADS, _LARGEST, _TURNS = (96, 128, 192, 256, 384), 512, (2, 4, 8, 16, 32)


def plane_box_tiles(p: Problem, target: Target) -> list[PlaneBoxTile]:
    """Tiles that fit."""
    return list(_ranked(p))


def suits_plane_boxes(p: Problem) -> bool:
    """Whether tiles of planes are for a problem: its rows are multiples of 16 bytes long, and its
    filters fit registers."""
    width = p.out_image[1] if p.pass_ == "dgrad" else p.width
    return (
        p.rank == 2
        and p.pass_ != "wgrad"
        and p.multiplier == 1
        and width * dtype(p.dtype).bytes % PIECE == 0
        and (p.pass_ == "forward" or p.stride == (1, 1))
        and not sees_nothing(p)
        and any(cost < math.inf for cost, _ in _tiles(p))
    )


@dataclass(frozen=True)
class _Thread:
    """What a thread does in a turn: instructions, loads among them, and registers."""

    issued: float
    loads: int
    registers: int


@functools.lru_cache(64)
def _ranked(p: Problem) -> tuple[PlaneBoxTile, ...]:
    found = heapq.nsmallest(_MOST, _tiles(p), key=lambda pair: pair[0])
    return tuple(dict.fromkeys(tile for cost, tile in found if cost < math.inf))


def _tiles(p: Problem) -> Iterator[tuple[float, PlaneBoxTile]]:
    """Tiles, with the microseconds that they are thought to take."""
    height, width = p.result_image
    for rows, columns in product(_ROWS, _COLUMNS):
        if whole(height, rows) > 1.2 * height or whole(width, columns) > 1.2 * width:
            continue
        thread = _thread(p, PlaneBoxTile(rows, columns, 1, 1, 1, 1, 1))
        if thread is None:
            continue
        down, across = (
            dict.fromkeys(-(-n // (own * parts)) for parts in _PARTS)
            for n, own in ((height, rows), (width, columns))
        )
        for y, x in product(down, across):
            yield from _blocks(p, PlaneBoxTile(rows, columns, y, x, 1, 1, 1), thread)


def _blocks(
    p: Problem, tile: PlaneBoxTile, thread: _Thread
) -> Iterator[tuple[float, PlaneBoxTile]]:
    """The same in blocks of so many channels, through so many images."""
    own = tile.threads_y * tile.threads_x
    if own > _LARGEST:
        return
    wanted = {max(1, threads // own) for threads in _THREADS}
    divisors = [n for n in range(1, 65) if p.result_channels % n == 0]
    for channels in {max(n for n in divisors if n <= w) for w in wanted}:
        one = replace(tile, channels=channels)
        for turns in (1, *(t for t in _TURNS if t <= p.batch)):
            made = replace(one, turns=turns, stages=min(turns, 2))
            yield _micros(p, made, thread), made


def _thread(p: Problem, tile: PlaneBoxTile) -> _Thread | None:
    """What threads of a tile do; None where they have no room for it, or their code is long."""
    cut, size = plane_cut(p, tile), dtype(p.dtype).bytes
    (kh, kw), vector = p.kernel, read_at_once(p, tile, cut)
    multiplies = tile.rows * tile.columns * kh * kw
    wide = cut.sees(1, tile.columns)
    kept = ((kh - 1) * cut.dilation[0] + 1) * wide
    registers = kept + kh * kw + 2 * tile.columns + _OTHERS
    if registers > 240 or multiplies > _CODE:
        return None
    high = cut.sees(0, tile.rows)
    loads = high * -(-(wide + cut.margin % vector) // vector)
    converted = (high * wide + tile.rows * tile.columns) * (size == 2)
    code = multiplies + loads + converted + 2 * tile.rows + 60
    return _Thread(code * (1 + 0.2 * max(0.0, code / _CACHED - 1)), loads, registers)


def _micros(p: Problem, tile: PlaneBoxTile, thread: _Thread) -> float:
    """The microseconds that a tile is thought to take, infinite where it does not fit."""
    cut, size = plane_cut(p, tile), dtype(p.dtype).bytes
    channels, rows, pitch = cut.box
    apart = tile.size[2] * cut.stride[1] * size  # from a box to the one beside it
    if max(rows, pitch) > LARGEST or (cut.grid[2] > 1 and apart % PIECE):
        return math.inf
    warps = -(-tile.channels * tile.threads_y * tile.threads_x // 32)
    box = channels * rows * pitch * size
    resident = Machine.resident(warps, thread.registers, tile.stages * box + Machine.OWN)
    if not resident:
        return math.inf
    tiles = p.batch * math.prod(cut.grid)
    blocks = -(-p.batch // tile.turns) * math.prod(cut.grid)
    waves = blocks / (resident * MULTIPROCESSORS)
    issue = tiles * warps * (thread.issued * Machine.ISSUE + thread.loads)
    issue += blocks * warps * p.kernel_h * p.kernel_w
    issue *= (1 + 7 / (resident * warps)) / Machine.CYCLES / MULTIPROCESSORS
    moved = _bytes(p, cut)
    halo = rows * max(cut.sees(1, tile.size[2]) * size, 64) * channels
    cache = (tiles * halo + moved / 2) / Machine.CACHE
    slowest = math.pow(issue**4 + cache**4 + (moved / Machine.MEMORY) ** 4, 0.25)
    tail = math.ceil(waves) / waves if waves < 3 else 1.0
    waits = math.ceil(waves) * (1.0 if tile.stages == 1 else 0.7) / math.sqrt(resident)
    return slowest * tail + waits


def _bytes(p: Problem, cut: PlaneCut) -> int:
    """Bytes that are read and written."""
    images = math.prod(cut.image) + math.prod(cut.result)
    return p.batch * p.channels * images * dtype(p.dtype).bytes
