"""The tiles worth trying for products with banded matrices of staged images, on Hopper."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from operator import itemgetter

from tilewright.ir.dtype import dtype
from tilewright.target.devices import REGISTERS
from tilewright.topi.columns import columns, listed
from tilewright.topi.gpu.banded_tiles import SHARED, suits
from tilewright.topi.gpu.machine import BARRIERS, MACHINE
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.band_tiles import GROUP_LANES, GROUP_ROWS, StagedTile
from tilewright.topi.pieces.staged_cuts import StagedBands

_DEPTH = 16
#: Outputs of the widest instruction, and registers of an SM and of a thread beside sums.
_WIDEST, _OTHER = 256, 40
#: Rows that are copied at once by TMA, and copies of them; one copy ahead is too late.
_AHEAD = ((4, 4), (8, 3), (2, 4), (2, 3), (4, 3), (0, 1))
#: The same of copies by threads.
_STAGES = (*product((2, 4, 8), (2, 3, 4)), (0, 1))


def suits_staged(p: Conv) -> bool:
    """Whether products of staged images are for a problem: one whose filters fit shared memory, and
    whose rows are even, so that they can be copied in the background."""
    width = p.out_image[1] if p.pass_ == "dgrad" else p.image[1]
    return suits(p) and width % 2 == 0


@lru_cache(64)
def staged_tiles(p: Conv) -> Sequence[StagedTile]:
    """Tiles that fit shared memory, the best guess first."""
    return listed(columns(StagedTile, [t for _, t in sorted(_tiles(p), key=itemgetter(0))]))


def _tiles(p: Conv) -> Iterator[tuple[float, tuple[int, ...]]]:
    """The parameters of tiles, with how slow these are predicted to be."""
    height, width = p.result_image
    size = dtype(p.dtype).bytes
    for wide, rows, groups in product((8, 16, 32, 64), (1, 2, 4, 8, 16), (1, 2, 4)):
        if wide >= 2 * max(8, width) or rows * groups >= 2 * height:
            continue
        held = rows * wide // 2 + _OTHER
        if rows * wide > _WIDEST or groups * GROUP_LANES * held > REGISTERS:
            continue
        cut = _cut(p, StagedTile(rows, wide, groups))
        down, across = cut.tiles
        channels, boxes, filter_bytes = _in_turn(p, across), _boxes(cut), cut.matrix_bytes
        widths = {n: replace(cut, box=n).staged_columns for n in boxes}
        products = down * across * cut.steps * cut.depth * rows * wide * (1 + 32 / (rows * wide))
        for (staged, stages), along, box in product(_STAGES, channels, boxes):
            high = stages * staged * cut.stride[0] if staged else cut.image[0]
            space = filter_bytes + high * GROUP_ROWS * widths[box] * size + BARRIERS * (box > 0)
            if space > SHARED or (box and (staged, stages) not in _AHEAD):
                continue
            blocks = min(SHARED // space, REGISTERS // (groups * GROUP_LANES * held))
            alone = 1.0 + 0.6 / groups + 0.1 / blocks
            # The first rows are waited for, unless they come while others are multiplied.
            again = 1.2 if staged and down > groups and not box else 1.0
            copied = (0.9 if box else 1.0) * (0.97 if along > 1 else 1.0)
            near = 1 + (abs(staged - 4) + abs(stages - 3)) / 64 if staged else 1.0
            if box:
                near = 1 + _AHEAD.index((staged, stages)) / 64
            tile = rows, wide, groups, down // groups, staged, stages, along, box
            yield products * alone * again * copied * near, tile


def _in_turn(p: Conv, across: int) -> list[int]:
    """Channels that a block goes through: one, and as many as let all SMs be busy for
    the same time."""
    blocks = -(-p.batch // GROUP_ROWS) * across * p.result_channels
    found = [1]
    for channels in (2, 3, 4):
        rounds = blocks / channels / MACHINE.sms
        if p.result_channels % channels == 0 and math.ceil(rounds) - rounds < 0.1 * rounds:
            found[1:] = [channels]
    return found


def _boxes(cut: StagedBands) -> list[int]:
    """Columns of boxes: none, and where rows begin at multiples of 16 bytes, as many as a row that
    is staged consists of."""
    if cut.image[1] % 8:
        return [0]
    fit = [n for n in (64, 32, 16) if cut.staged_columns % n == 0 and _whole(cut, n)]
    return [0, *fit[:1]]


def _whole(cut: StagedBands, box: int) -> bool:
    """Whether what a product sums over lies in one row of a box, and tiles read whole rows: those
    that begin with one, or that some of them, which begin elsewhere, reach beyond."""
    (_, across), apart = cut.tiles, cut.columns * cut.stride[1]
    if across == 1 or apart % box == 0:
        return True
    return apart % _DEPTH == 0 and any(n * apart % box + cut.depth > box for n in range(across))


def _cut(p: Conv, tile: StagedTile) -> StagedBands:
    return StagedBands(p, *tile.product, tile.groups, tile.staged, tile.box)
