"""The tiles worth trying for tiles of planes in shared memory, best guess first.

The guess is a time (:mod:`~tilewright.topi.gpu.staged_times`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.target.devices import WARP, WIDEST
from tilewright.target.instructions.tma_load import LARGEST
from tilewright.topi.columns import Array, columns, combinations, pick
from tilewright.topi.gpu.machine import slides
from tilewright.topi.gpu.register_model import divisors
from tilewright.topi.gpu.staged_times import Work, brought, in_turns, spare_of
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.plane_tiles import CHUNK, PlaneBoxTile, plane_cut, read_at_once

#: Multiplications written out at most.
_CODE = 4096
#: Registers of a thread beside inputs, filters and sums.
_OTHERS = 24
_ROWS, _COLUMNS, _PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 14, 16), (2, 4, 8), (1, 2, 3, 4, 7, 8)
#: Threads of a block, about and at most.
_THREADS, _LARGEST = (96, 128, 192, 256, 384), 512
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
    tile = _blocks(p, _threads(p))
    return in_turns(tile, work(p, tile))


def work(p: Conv, tile: Any) -> Work:
    """What blocks of tiles do."""
    cut: Any = plane_cut(p, tile)
    (channels, rows, row_stride), size = cut.box, dtype(p.dtype).bytes
    high, wide = cut.sees(0, tile.rows), cut.sees(1, tile.columns)
    vector, grid = read_at_once(p, tile, cut), cut.grid
    loads = high * -(-(wide + cut.margin % vector) // vector)
    results, taps = tile.rows * tile.columns, math.prod(p.kernel)
    converted = (high * wide + results) * (size == 2)
    apart = tile.size[2] * cut.stride[1] * size  # from a box to the one beside it
    moved = p.batch * p.channels * (math.prod(cut.image) + math.prod(cut.result)) * size
    return Work(
        warps=-(-channels * tile.threads_y * tile.threads_x // WARP), registers=_registers(p, tile),
        staged=channels * rows * row_stride * size, kept=0, line=p.batch, beside=math.prod(grid),
        products=0, loads=loads * vector * size / WIDEST,
        issued=results * taps + loads + converted + 2 * tile.rows + 60, once=taps,
        brought=brought(channels * rows, cut.sees(1, tile.size[2]) * size), moved=moved,
        fits=(np.maximum(rows, row_stride) <= LARGEST)
        & ((grid[2] == 1) | (apart % CHUNK == 0)),
        spare=spare_of(cut.result, tile.size[1:], (rows, row_stride)),
    )  # fmt: skip


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


def _blocks(p: Conv, bare: Any) -> Any:
    """The same in blocks of several channels, of about as many threads as are wanted."""
    largest = divisors(p.result_channels, max(_THREADS))
    own, wanted = combinations(range(len(bare.rows)), _THREADS)
    each = np.maximum(1, wanted // (bare.threads_y * bare.threads_x)[own])
    return pick(bare, own, channels=largest[np.minimum(each, _CHANNELS)])
