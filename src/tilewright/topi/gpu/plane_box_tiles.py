"""The tiles worth trying for tiles of planes in shared memory, best guess first.

The guess is a time, of what an SM issues, what comes through the second-level cache and
what memory moves, the slowest of which hides most of the others. Its numbers are those of an H200;
which of these tiles is taken there, records and the trees of the choice decide.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.topi.columns import Array, best, columns, combinations, listed, pick
from tilewright.topi.gpu.machine import (
    CACHE,
    ISSUE,
    MACHINE,
    MEMORY,
    micros,
    occupancy,
    slides,
)
from tilewright.topi.gpu.register_model import divisors
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.plane_tiles import (
    CHUNK,
    PlaneBoxTile,
    PlaneCut,
    plane_cut,
    read_at_once,
)

#: Multiplications written out that the instruction cache still holds, and at most.
_CACHED, _CODE = 1900, 4096
#: How many tiles are worth trying; registers of a thread beside inputs, filters and sums.
_MOST, _OTHERS = 120, 24
_ROWS, _COLUMNS, _PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 14, 16), (2, 4, 8), (1, 2, 3, 4, 7, 8)
#: Threads of a block, about and at most; images of a block.
_THREADS, _LARGEST, _TURNS = (96, 128, 192, 256, 384), 512, (2, 4, 8, 16, 32)
#: Channels of a block, at most.
_CHANNELS = 64


def suits_plane_boxes(p: Conv) -> bool:
    """Whether tiles of planes are for a problem: its rows are multiples of 16 bytes long, and its
    filters fit registers."""
    width = p.out_image[1] if p.pass_ == "dgrad" else p.width
    return p.rank == 2 and width * dtype(p.dtype).bytes % CHUNK == 0 and slides(p)


@functools.lru_cache(64)
def plane_box_tiles(p: Conv) -> Sequence[PlaneBoxTile]:
    """Tiles that fit."""
    bare = _threads(p)
    if not len(bare.rows):
        return ()
    cost, found = _blocks(p, bare)
    return listed(pick(found, best(cost, _MOST)))


def _threads(p: Conv) -> Any:
    """The threads of one channel, that have registers for what they do, whose code is not long."""
    height, width = p.result_image
    bare = columns(PlaneBoxTile, [
        (rows, own, y, x, 1, 1, 1)
        for rows in _ROWS
        for own in _COLUMNS
        if whole(height, rows) <= 1.2 * height and whole(width, own) <= 1.2 * width
        for y in dict.fromkeys([-(-height // (rows * n)) for n in _PARTS])
        for x in dict.fromkeys([-(-width // (own * n)) for n in _PARTS])
        if y * x <= _LARGEST
    ])  # fmt: skip
    code = bare.rows * bare.columns * p.kernel_h * p.kernel_w
    return pick(bare, (_registers(p, bare) <= 240) & (code <= _CODE))


def _registers(p: Conv, tile: Any) -> Array:
    """Registers of a thread."""
    cut, (kh, kw) = Convolved(p), p.kernel
    kept = ((kh - 1) * cut.dilation[0] + 1) * cut.sees(1, tile.columns)
    return np.asarray(kept + kh * kw + 2 * tile.columns + _OTHERS)


def _blocks(p: Conv, bare: Any) -> tuple[Array, Any]:
    """The same in blocks of several channels, through several images. The microseconds that they
    are predicted to take come first."""
    largest = divisors(p.result_channels, _CHANNELS)
    largest = np.pad(largest, (0, max(_THREADS) - _CHANNELS), "edge").tolist()
    own = (bare.threads_y * bare.threads_x).tolist()
    wanted = {n: {max(1, threads // n) for threads in _THREADS} for n in set(own)}
    channels = [list({largest[w] for w in wanted[n]}) for n in own]
    turns = [1, *(t for t in _TURNS if t <= p.batch)]
    which = np.repeat(np.arange(len(own)), [len(found) for found in channels])
    each, turn = combinations(range(len(which)), turns)
    tile = pick(
        bare, which[each], channels=np.array([n for found in channels for n in found])[each],
        turns=turn, stages=np.minimum(turn, 2),
    )  # fmt: skip
    cut: Any = plane_cut(p, bare)
    made = replace(cut, size=tile.size, row_stride=cut.row_stride[which[each]])
    return _micros(p, tile, made), tile


def _micros(p: Conv, tile: Any, cut: PlaneCut) -> Array:
    """The microseconds that tiles are predicted to take, infinite where they do not fit."""
    size, vector = dtype(p.dtype).bytes, read_at_once(p, tile, cut)
    high, wide = cut.sees(0, tile.rows), cut.sees(1, tile.columns)
    loads = high * -(-(wide + cut.margin % vector) // vector)
    converted = (high * wide + tile.rows * tile.columns) * (size == 2)
    code = tile.rows * tile.columns * p.kernel_h * p.kernel_w + loads + converted
    code = code + 2 * tile.rows + 60
    issued = code * (1 + 0.2 * np.maximum(0.0, code / _CACHED - 1))

    channels, rows, row_stride = cut.box
    apart = tile.size[2] * cut.stride[1] * size  # from a box to the one beside it
    fits = np.maximum(rows, row_stride) <= LARGEST
    fits &= (cut.grid[2] == 1) | (apart % CHUNK == 0)
    warps = -(-tile.channels * tile.threads_y * tile.threads_x // 32)
    box = channels * rows * row_stride * size
    resident = occupancy(MACHINE, warps, _registers(p, tile), tile.stages * box)
    fits, resident = fits & (resident > 0), np.maximum(resident, 1)
    grid = math.prod(cut.grid)
    blocks = -(-p.batch // tile.turns) * grid
    waves = blocks / (resident * MACHINE.sms)
    issue = p.batch * grid * warps * (issued * ISSUE + loads)
    issue += blocks * warps * p.kernel_h * p.kernel_w
    issue *= (1 + 7 / (resident * warps)) / MACHINE.clock / MACHINE.sms
    moved = _bytes(p, cut)
    halo = rows * np.maximum(cut.sees(1, tile.size[2]) * size, 64) * channels
    cache = (p.batch * grid * halo + moved / 2) / CACHE
    waits = np.where(tile.stages == 1, 1.0, 0.7)
    return np.where(fits, micros(issue, cache, moved / MEMORY, waves, waits, resident), np.inf)


def _bytes(p: Conv, cut: PlaneCut) -> int:
    """Bytes that are read and written."""
    images = math.prod(cut.image) + math.prod(cut.result)
    return p.batch * p.channels * images * dtype(p.dtype).bytes
