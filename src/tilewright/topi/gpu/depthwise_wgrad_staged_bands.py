"""The gradient of a depthwise convolution by its filter in 16 bits on Hopper's tensor cores,
channels first, from tiles in shared memory.

The sums of :mod:`~tilewright.topi.nn.depthwise_wgrad_staged_bands`. A block has one channel and
goes through the copies of a chunk, which the copying unit brings to shared memory; each of its
warps has a tile of each. All else is as in :mod:`~tilewright.topi.gpu.depthwise_wgrad_bands`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.gpu.depthwise_wgrad_bands import schedule_band_sums
from tilewright.topi.nn.depthwise_wgrad_bands import SHARES
from tilewright.topi.nn.depthwise_wgrad_staged_bands import (
    StagedBands,
    StagedBandSums,
    depthwise_wgrad_staged_bands,
)
from tilewright.topi.problem import Problem

#: Elements of 16 bytes, and lanes whose loads of as many pass the banks of shared memory together.
VECTOR, _TOGETHER = 8, 8


@dataclass(frozen=True)
class StagedBandTile:
    """A warp takes ``blocks`` times 8 rows of ``columns`` columns of a copy, which has ``images``
    by ``down`` by ``across`` such tiles; there are ``stages`` copies. ``chunks`` blocks share those
    of a channel."""

    blocks: int = 2
    columns: int = 64
    down: int = 4
    across: int = 2
    images: int = 1
    stages: int = 2
    chunks: int = 12

    @property
    def warps(self) -> int:
        """Of a block."""
        return self.images * self.down * self.across


@dataclass(frozen=True)
class StagedBandDeclaration(Declaration):
    """A gradient by the filter from bands of products of copies, cut as ``cut`` says."""

    cut: StagedBands
    stages: StagedBandSums


def declare_staged_bands(
    p: Problem, tile: StagedBandTile, batch: Any = None
) -> StagedBandDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    inputs = placeholders(p, batch)
    cut = staged_bands_of(p, tile)
    made = depthwise_wgrad_staged_bands(cut, inputs["data"], inputs["grad"])
    result = finished(p, made.sums.sums, inputs)
    return StagedBandDeclaration(p, inputs, result, made.sums.sums, None, None, cut, made)


def staged_bands_of(p: Problem, tile: StagedBandTile) -> StagedBands:
    """How ``tile`` cuts a problem."""

    def cut(pitch: tuple[int, int], margin: int) -> StagedBands:
        return StagedBands(
            p, tile.blocks, tile.columns, tile.warps, tile.chunks, tile.images, tile.down,
            tile.across, pitch, margin,
        )  # fmt: skip

    margin = -cut((0, 0), 0).around[0] % VECTOR  # rows of copies begin at multiples of 16 bytes
    x, dy = cut((0, 0), margin).needed
    return cut((_pitch(x, tile.columns), _pitch(dy, tile.columns)), margin)


@cache
def _pitch(columns: int, together: int) -> int:
    """So many elements, at least ``columns``, from one row of a copy to the next that fewest lanes
    of a warp meet in a bank, which share ``together`` columns of a row."""
    least, share = -(-columns // VECTOR) * VECTOR, together // SHARES

    def cost(pitch: int) -> tuple[int, int]:
        lanes = range(_TOGETHER * VECTOR // min(VECTOR, share))
        places = {lane // SHARES * pitch + lane % SHARES * share for lane in lanes}
        banks = {place + k for place in places for k in range(0, min(VECTOR, share), 2)}
        return max(Counter(b % (_TOGETHER * VECTOR) for b in banks).values()), pitch

    return min(range(least, least + _TOGETHER * VECTOR, VECTOR), key=cost)


def schedule_staged_bands(d: Declaration, tile: StagedBandTile = StagedBandTile()) -> Schedule:
    """The schedule of what :func:`declare_staged_bands` makes with the same ``tile``."""
    assert isinstance(d, StagedBandDeclaration)
    cut, made = d.cut, d.stages
    s, step = schedule_band_sums(d, cut, made.sums, made.staged, (VECTOR, VECTOR))
    for tensor, shape in zip(made.staged, (cut.x_tile, cut.dy_tile), strict=True):
        stage = s[tensor]
        stage.set_scope("shared")
        stage.compute_at(*step)
        stage.align_bounds(stage.op.axis[-2], shape[-2])
        stage.align_bounds(stage.op.axis[-1], shape[-1])
        if tile.stages > 1:
            stage.pipeline(tile.stages)
        stage.tensorize(stage.op.axis[1], tma_load(shape, d.problem.dtype))
    return s
