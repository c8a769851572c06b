"""Gradients by the filter whose boxes a producer copies, and what they are predicted to take.

An SM has one block of one tile. What products, the second-level cache and memory take overlaps;
what a block waits for its first step, and results or the parts of them that it stores, do not.
Parts are added by another kernel, or by the blocks of a cluster, in their shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tilewright.ir.dtype import dtype
from tilewright.target.devices import REGISTERS
from tilewright.topi.gpu.box_cluster_tiles import SIZES, SLOTS
from tilewright.topi.gpu.box_shapes import clusters
from tilewright.topi.gpu.machine import BARRIERS, CACHE, MACHINE, MEMORY
from tilewright.topi.gpu.produced_boxes import has_registers
from tilewright.topi.nn.box_problems import ROW
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import LANES, ROWS, BoxGradientTile
from tilewright.topi.pieces.cluster_sums import lanes_of, parts_bytes
from tilewright.topi.problem import Problem

#: Filters, and channels, of a tile; steps that a block has memory for, and tiles of an SM.
_FILTERS, _CHANNELS = (64, 128, 192, 256), (256, 192, 128, 64)
_MOST, _LEAST, _ROUNDS = 12, 3, 2
#: Bytes of the pixels of a step, of a channel.
_BYTES = 128
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
    one; how much longer products take of clusters that leave parts to another kernel; and how far
    the slowest hides the others."""

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
    together: float = 0.08
    power: float = 2.5


#: Fitted to 183 tiles of the 1x1 and 3x3 layers of ResNet-50 in float16 at batch 64, on an H200,
#: within 7 %; what parts take by hand, for which tiles are few.
RATES = Rates()
#: Registers of a thread beside its sums and what it multiplies.
_OTHERS = 32


@dataclass(frozen=True)
class Sums:
    """What is summed: results of some ``rows`` by ``columns`` for each of ``taps``, in as many
    ``steps``; the ``bytes`` that memory moves, and whether a sum may be a cluster's alone.

    As large a part of the pixels of a step as ``apart`` are in images of their own; a step takes
    ``longer``, as many times. ``row`` is how many rows or columns a box has at least, and ``held``
    are registers of a thread for what it multiplies."""

    bytes: float
    rows: int
    columns: int
    taps: int
    steps: int
    rates: Rates = RATES
    apart: float = 0.0
    longer: float = 1.0
    alone: bool = True
    row: int = ROW
    held: int = 0

    def count(self, rows: int, columns: int) -> int:
        """How many tiles have all results."""
        return self.taps * -(-self.rows // rows) * -(-self.columns // columns)

    def micros(self, tile: BoxGradientTile) -> float:
        """The microseconds that a tile is predicted to take."""
        r, rows, columns, splits = self.rates, tile.filters, tile.channels, tile.splits
        blocks, cluster = self.count(rows, columns) * splits, tile.dy_to * tile.x_to
        meet = splits if tile.cluster == 1 else tile.cluster  # blocks that add what they have
        slots = SLOTS[meet] if meet else MACHINE.sms // cluster * cluster
        rounds, results = -(-blocks // slots), rows * columns
        steps = rounds * -(-self.steps // splits)
        times = r.products + r.narrow / columns + r.cluster * (cluster > 1)
        times += r.together * (tile.cluster > 1)
        times *= self.longer * (1 + r.apart * self.apart) * results * _BYTES
        times /= 2 * MACHINE.products * MACHINE.clock
        brought = (rows / tile.dy_to + columns / tile.x_to) * _BYTES
        sides = ((rows, self.rows), (columns, self.columns))
        boxes = sum(own // ROW if every % self.row else 1 for own, every in sides)
        overlapping = (
            steps * r.asked * boxes,
            steps * (times + r.step / (tile.stages - 1)),
            steps * r.cache * brought * min(slots, blocks) / CACHE,
            r.memory * self.bytes / MEMORY,
        )
        found = r.begin + float(sum(x**r.power for x in overlapping) ** (1 / r.power))
        if meet:
            found += rounds * (r.meeting + 4 * results * (meet - 1) / meet / r.exchanged)
            splits, results = splits // meet, results // meet
        if splits == 1 and self.alone:
            return found + 2 * results / r.stored
        every = self.taps * self.rows * self.columns
        added = r.launch + r.added * 4 * splits * every / MEMORY
        return found + rounds * 4 * results / r.stored + added

    def tiles(self) -> Iterator[tuple[BoxGradientTile, float]]:
        """Tiles, and the microseconds that each is predicted to take."""
        for rows, columns in product(_FILTERS, _CHANNELS):
            fits = rows <= max(ROWS, self.rows) and columns <= max(ROW, self.columns)
            narrow = min(rows, columns) < _SQUARE < max(rows, columns)
            produced = has_registers(rows, columns + 2 * self.held)
            if narrow or not fits or not (produced or self._has_registers(rows, columns)):
                continue
            count, step = self.count(rows, columns), (rows + columns) * _BYTES
            left, parts = MACHINE.block_shared - BARRIERS, parts_bytes(rows, columns)
            stages, fewer = (min(_MOST, x // step) for x in (left, left - parts))
            tile = BoxGradientTile(rows, columns, stages, producer=int(produced))
            shared = clusters(-(-self.columns // columns), -(-self.rows // rows))
            for dy_to, x_to in shared if stages >= _LEAST else ():
                for splits in _parts(self.steps, count):
                    made = replace(tile, splits=splits, dy_to=dy_to, x_to=x_to)
                    yield made, self.micros(made)
            tile = replace(tile, stages=fewer)
            for blocks in SIZES if fewer > _LEAST else ():
                lanes = lanes_of(rows * columns, blocks, rows // ROWS * LANES)
                if (
                    lanes
                    and self.alone
                    and blocks * count <= SLOTS[blocks]
                    and blocks <= self.steps
                ):
                    made = replace(tile, splits=blocks, cluster=1)
                    yield made, self.micros(made)
                splits = SLOTS[blocks] // (blocks * count) * blocks
                if lanes and blocks < splits <= self.steps:
                    made = replace(tile, splits=splits, cluster=blocks)
                    yield made, self.micros(made)

    def _has_registers(self, rows: int, columns: int) -> bool:
        """Whether threads have enough without a producer, where they hold what they multiply."""
        most = REGISTERS // (rows // ROWS * LANES) // 8 * 8
        return self.held > 0 and columns // 2 + self.held + _OTHERS <= min(most, 255)


def bytes_moved(problem: Problem, p: Convolution) -> float:
    """Bytes that memory moves: with strides, not what no tap sees of an image."""
    seen = math.prod(min(1, k / s) for k, s in zip(p.kernel, p.stride, strict=True))
    image = p.batch * p.channels * math.prod(p.image) * dtype(p.dtype).bytes
    return problem.bytes - (1 - seen) * image


def _parts(steps: int, tiles: int) -> list[int]:
    """In how many parts pixels may be summed: in one, or so that each SM has up to as many blocks,
    and in no fewer that have as many steps at most.

    >>> _parts(196, 32), _parts(49, 144)
    ([1, 4, 8], [1])
    """
    each = {-(-steps // max(1, n * MACHINE.sms // tiles)) for n in range(1, _ROUNDS + 1)}
    return sorted({1, *(-(-steps // own) for own in each)})
