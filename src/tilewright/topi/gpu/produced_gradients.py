"""Gradients by the filter whose boxes a producer copies, and what they are predicted to take.

An SM has one block of one tile. What products, the second-level cache and memory take overlaps;
what a block waits for its first step, and results or the parts of them that it stores, do not.
Parts are added by another kernel, or by the blocks of a cluster, in their shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from tilewright.ir.dtype import dtype
from tilewright.topi.gpu.box_cluster_tiles import SIZES, SLOTS
from tilewright.topi.gpu.box_shapes import clusters
from tilewright.topi.gpu.machine import BARRIERS, CACHE, MACHINE, MEMORY
from tilewright.topi.gpu.produced_boxes import has_registers
from tilewright.topi.nn.box_copies import ROW
from tilewright.topi.nn.box_filter_sums import PIXELS
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import LANES, ROWS, BoxGradientTile
from tilewright.topi.pieces.cluster_sums import lanes_of, parts_bytes
from tilewright.topi.problem import Problem

#: Filters, and channels, of a tile; steps that a block has memory for, and tiles of an SM.
_FILTERS, _CHANNELS = (64, 128, 192, 256), (256, 192, 128, 64)
_MOST, _LEAST, _ROUNDS = 12, 3, 2
#: Filters and channels of which a tile has fewer of one only if it has no more of the other.
_SQUARE = 128


@dataclass(frozen=True)
class Rates:
    """How many times as long products take as they could, more for each column fewer than one, in
    a cluster that shares boxes, and of pixels of as many images; how much counts of what comes
    through the cache, and of memory; microseconds until a block has its first step, and of each
    step by the stages, and of each box that a producer asks for; bytes that an SM stores in a
    microsecond; those of a launch that adds parts, and how much counts of what memory takes for
    them; those in which blocks of a cluster meet, and bytes of parts that one reads of others in
    one; and how far the slowest hides the others."""

    products: float = 0.683
    narrow: float = 39.2
    cluster: float = 0.238
    apart: float = 0.45
    cache: float = 0.393
    memory: float = 0.988
    begin: float = 0.4
    step: float = 0.158
    asked: float = 0.118
    stored: float = 33_000
    launch: float = 1
    added: float = 1.2
    meeting: float = 0.8
    exchanged: float = 90_000
    power: float = 2.5


#: Fitted to 183 tiles of the 1x1 and 3x3 layers of ResNet-50 in float16 at batch 64, on an H200,
#: within 7 %; what parts take by hand, for which tiles are few.
_RATES = Rates()


@dataclass(frozen=True)
class _Sums:
    """What is summed: the results of a filter's taps, in boxes of pixels, of which as large a part
    as ``apart`` are in images of their own; and how many times as long a step takes, as its rows
    lie in several lines of memory."""

    problem: Problem
    p: Convolution
    taps: int
    steps: int
    apart: float
    longer: float
    windows: bool

    @cached_property
    def bytes(self) -> float:
        """What memory moves: with strides, not what no tap sees of an image."""
        p = self.p
        seen = math.prod(min(1, k / s) for k, s in zip(p.kernel, p.stride, strict=True))
        image = p.batch * p.channels * math.prod(p.image) * dtype(p.dtype).bytes
        return self.problem.bytes - (1 - seen) * image

    def tiles(self, filters: int, channels: int) -> int:
        """How many tiles have all results."""
        return self.taps * -(-self.p.out_channels // filters) * -(-self.p.channels // channels)

    def micros(self, tile: BoxGradientTile, r: Rates = _RATES) -> float:
        """What a tile is predicted to take."""
        p, filters, channels, splits = self.p, tile.filters, tile.channels, tile.splits
        blocks, cluster = self.tiles(filters, channels) * splits, tile.dy_to * tile.x_to
        slots = SLOTS[splits] if tile.cluster else MACHINE.sms // cluster * cluster
        rounds, results = -(-blocks // slots), filters * channels
        steps = rounds * -(-self.steps // splits)
        times = r.products + r.narrow / channels + r.cluster * (cluster > 1)
        times *= self.longer * (1 + r.apart * self.apart) * results * 2 * PIXELS
        times /= 2 * MACHINE.products * MACHINE.clock
        brought = (filters / tile.dy_to + channels / tile.x_to) * 2 * PIXELS
        rows = ((filters, p.out_channels, False), (channels, p.channels, self.windows))
        boxes = sum(own // ROW if each or every % ROW else 1 for own, every, each in rows)
        overlapping = (
            steps * r.asked * boxes,
            steps * (times + r.step / (tile.stages - 1)),
            steps * r.cache * brought * min(slots, blocks) / CACHE,
            r.memory * self.bytes / MEMORY,
        )
        found = r.begin + float(sum(x**r.power for x in overlapping) ** (1 / r.power))
        if tile.cluster:
            others = 4 * results * (splits - 1) / splits / r.exchanged
            return found + r.meeting + others + 2 * results / splits / r.stored
        if splits == 1:
            return found + 2 * results / r.stored
        every = self.taps * self.p.out_channels * self.p.channels
        added = r.launch + r.added * 4 * splits * every / MEMORY
        return found + rounds * 4 * results / r.stored + added


def produced_gradients(
    problem: Problem, p: Convolution, taps: int, steps: int, apart: float, longer: float,
    windows: bool,
) -> Iterator[tuple[BoxGradientTile, float]]:  # fmt: skip
    """Tiles of a problem without groups, and what they take, whose pixels are as many ``steps``.
    ``apart`` is the logarithm of the images of a step by that of its pixels, and ``longer`` how
    many times as long a step takes that is short of whole lines of memory; ``windows`` come by rows
    of channels."""
    sums = _Sums(problem, p, taps, steps, apart, longer, windows)
    for filters, channels in product(_FILTERS, _CHANNELS):
        fits = filters <= max(ROWS, p.out_channels) and channels <= max(ROW, p.channels)
        narrow = min(filters, channels) < _SQUARE < max(filters, channels)
        if narrow or not (fits and has_registers(filters, channels)):
            continue
        tiles, step = sums.tiles(filters, channels), (filters + channels) * 2 * PIXELS
        left, parts = MACHINE.block_shared - BARRIERS, parts_bytes(filters, channels)
        stages, fewer = (min(_MOST, x // step) for x in (left, left - parts))
        shared = clusters(-(-p.channels // channels), -(-p.out_channels // filters))
        for dy_to, x_to in shared if stages >= _LEAST else ():
            for splits in _parts(steps, tiles):
                tile = BoxGradientTile(filters, channels, stages, splits, dy_to, x_to, producer=1)
                yield tile, sums.micros(tile)
        for splits in SIZES if fewer > _LEAST else ():
            lanes = lanes_of(filters * channels, splits, filters // ROWS * LANES)
            if lanes and splits * tiles <= SLOTS[splits] and splits <= steps:
                tile = BoxGradientTile(filters, channels, fewer, splits, producer=1, cluster=1)
                yield tile, sums.micros(tile)


def _parts(steps: int, tiles: int) -> list[int]:
    """In how many parts pixels may be summed: in one, or so that each SM has up to as many blocks,
    and in no fewer that have as many steps at most.

    >>> _parts(196, 32), _parts(49, 144)
    ([1, 4, 8], [1])
    """
    each = {-(-steps // max(1, n * MACHINE.sms // tiles)) for n in range(1, _ROUNDS + 1)}
    return sorted({1, *(-(-steps // own) for own in each)})
