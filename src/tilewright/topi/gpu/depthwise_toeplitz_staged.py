"""Depthwise convolution with large filters on Hopper's tensor cores, from staged images, channels
first.

The products of :mod:`~tilewright.topi.nn.depthwise_toeplitz_staged`: input rows are copied to
shared memory in the background, some rows at a time, and all warpgroups of a block multiply them
there, each for its own output rows. Registers hold sums and nothing else; an input row is read
from memory once for all output rows of a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from operator import itemgetter
from typing import Any

from tilewright.ir.dtype import dtype
from tilewright.schedule import Schedule
from tilewright.target.devices import REGISTERS
from tilewright.target.instructions import wgmma
from tilewright.target.target import Target
from tilewright.topi.columns import columns, listed
from tilewright.topi.cut import declare_images
from tilewright.topi.gpu.machine import MACHINE
from tilewright.topi.gpu.staging import LANES, stage_blocks, stage_boxes
from tilewright.topi.gpu.toeplitz import (
    SHARED,
    Team,
    ToeplitzDeclaration,
    begin,
    shared_bytes,
    suits,
)
from tilewright.topi.nn.depthwise_toeplitz_staged import (
    IMAGES,
    StagedToeplitz,
    depthwise_toeplitz_staged,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.parameters import flag, later

_DEPTH = 16
#: Outputs of the widest instruction, and registers of an SM and of a thread beside sums.
_WIDEST, _OTHER = 256, 40
#: Bytes that waiting for boxes takes.
_BARRIERS = 1024
#: Rows that are copied at once by TMA, and copies of them; one copy ahead is too late.
_AHEAD = ((4, 4), (8, 3), (2, 4), (2, 3), (4, 3), (0, 1))
#: The same of copies by threads.
_STAGES = (*product((2, 4, 8), (2, 3, 4)), (0, 1))


@dataclass(frozen=True)
class StagedTile:
    """A warpgroup computes ``rows`` by ``columns`` outputs of 64 images at once, ``turns`` times
    down the image; a block has ``groups`` of them, and copies ``staged`` input rows at once,
    ``stages - 1`` times ahead, or, where that is 0, whole images. A block goes on with ``channels``
    channels, one after the other, and copies rows of the next while it multiplies those of one.
    Where ``box`` is not 0, ``box`` columns of all images are copied at once, by TMA."""

    rows: int = 4
    columns: int = 32
    groups: int = 2
    turns: int = 4
    staged: int = flag(4)
    stages: int = 3
    channels: int = later(1)
    box: int = later(0)


def declare_staged(p: Conv, tile: StagedTile, batch: Any = None) -> ToeplitzDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    return declare_images(_cut(p, tile), depthwise_toeplitz_staged, batch)


def schedule_staged(d: ToeplitzDeclaration, tile: StagedTile = StagedTile()) -> Schedule:
    """The schedule of what :func:`declare_staged` makes of a problem with the same ``tile``."""
    cut, kind = d.cut, d.problem.dtype
    assert isinstance(cut, StagedToeplitz)
    s, group = begin(d, Team(LANES, tile.groups), tile.turns, channels=tile.channels)
    sums = s[d.stages.sum]
    sums.set_scope("fragment")
    sums.compute_at(s[d.output], group)
    n, c, h, w = sums.op.axis
    q, phase, j = sums.op.reduce_axis
    for axis, whole in ((n, IMAGES), (h, cut.rows), (w, cut.columns)):
        sums.align_bounds(axis, whole)
    turn, q = sums.split(q, factor=max(1, tile.staged))
    step, j = sums.split(j, factor=_DEPTH)
    half, j = sums.split(j, factor=8)
    eight, n = sums.split(n, factor=8)
    across, w = sums.split(w, factor=cut.columns)
    far, w = sums.split(w, factor=4 * cut.share)
    quarter, w = sums.split(w, factor=cut.share)
    pair, side = sums.split(w, factor=2)
    sums.reorder(
        across, c, turn, q, phase, step, eight, n, h, far, pair, quarter, side, half, j
    )  # fmt: skip
    sums.unroll(step)
    swizzle = tile.box * dtype(kind).bytes
    sums.tensorize(eight, wgmma(tile.rows * tile.columns, kind, "k", "k", (swizzle, 0)))

    image = s[d.stages.image]
    channel = s[d.output].leaf_iter_vars[1]  # the outermost loop of a block
    if tile.staged:
        image.compute_at(sums, turn)
        # So that each block has all turns, and none of them sees padding alone.
        even = cut.tiles[0] % (tile.groups * tile.turns) == 0 and cut.kernel[0] > 1
        image.pipeline(tile.stages, over=channel if even else None)
    else:
        image.compute_at(s[d.output], channel)
        if tile.stages > 1:
            image.pipeline(tile.stages)
    if tile.box:
        stage_boxes(image)
    else:
        stage_blocks(image, image.op.axis[:-4], cut.image[1], tile.groups)
    return s


def suits_staged(p: Conv) -> bool:
    """Whether :func:`schedule_staged` is for a problem: one whose filters fit shared memory, and
    whose rows are even, so that they can be copied in the background."""
    width = p.out_image[1] if p.pass_ == "dgrad" else p.image[1]
    return suits(p) and width % 2 == 0 and len(_ranked(p)) > 0


def staged_tiles(p: Conv, target: Target) -> Sequence[StagedTile]:
    """Tiles that fit shared memory, the best guess first."""
    return _ranked(p)


@lru_cache(64)
def _ranked(p: Conv) -> Sequence[StagedTile]:
    return listed(columns(StagedTile, [t for _, t in sorted(_tiles(p), key=itemgetter(0))]))


def _tiles(p: Conv) -> Iterator[tuple[float, tuple[int, ...]]]:
    """The parameters of tiles, with how slow these are predicted to be."""
    height, width = p.result_image
    size = dtype(p.dtype).bytes
    for wide, rows, groups in product((8, 16, 32, 64), (1, 2, 4, 8, 16), (1, 2, 4)):
        if wide >= 2 * max(8, width) or rows * groups >= 2 * height:
            continue
        held = rows * wide // 2 + _OTHER
        if rows * wide > _WIDEST or groups * LANES * held > REGISTERS:
            continue
        cut = _cut(p, StagedTile(rows, wide, groups))
        down, across = cut.tiles
        channels, boxes, filter_bytes = _in_turn(p, across), _boxes(cut), shared_bytes(cut)
        widths = {n: replace(cut, box=n).staged_columns for n in boxes}
        products = down * across * cut.steps * cut.depth * rows * wide * (1 + 32 / (rows * wide))
        for (staged, stages), along, box in product(_STAGES, channels, boxes):
            high = stages * staged * cut.stride[0] if staged else cut.image[0]
            space = filter_bytes + high * IMAGES * widths[box] * size + _BARRIERS * (box > 0)
            if space > SHARED or (box and (staged, stages) not in _AHEAD):
                continue
            blocks = min(SHARED // space, REGISTERS // (groups * LANES * held))
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
    blocks = -(-p.batch // IMAGES) * across * p.result_channels
    found = [1]
    for channels in (2, 3, 4):
        rounds = blocks / channels / MACHINE.sms
        if p.result_channels % channels == 0 and math.ceil(rounds) - rounds < 0.1 * rounds:
            found[1:] = [channels]
    return found


def _boxes(cut: StagedToeplitz) -> list[int]:
    """Columns of boxes: none, and where rows begin at multiples of 16 bytes, as many as a row that
    is staged consists of."""
    if cut.image[1] % 8:
        return [0]
    fit = [n for n in (64, 32, 16) if cut.staged_columns % n == 0 and _whole(cut, n)]
    return [0, *fit[:1]]


def _whole(cut: StagedToeplitz, box: int) -> bool:
    """Whether what a product sums over lies in one row of a box, and tiles read whole rows: those
    that begin with one, or that some of them, which begin elsewhere, reach beyond."""
    (_, across), apart = cut.tiles, cut.columns * cut.stride[1]
    if across == 1 or apart % box == 0:
        return True
    return apart % _DEPTH == 0 and any(n * apart % box + cut.depth > box for n in range(across))


def _cut(p: Conv, tile: StagedTile) -> StagedToeplitz:
    return StagedToeplitz(p, tile.rows, tile.columns, IMAGES, tile.groups, tile.staged, tile.box)
