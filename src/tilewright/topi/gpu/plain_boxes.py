"""Tiles of products of boxes that threads which multiply ask for, and what they take on Hopper.

What a problem gives is gathered once (:class:`Given`); each shape of a tile then has times for the
stages that an SM has memory for, whole or in parts. A producer's are in :mod:`.produced_boxes`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from tilewright.topi.gpu.box_lines import copying, crossing, short_row, slid_over
from tilewright.topi.gpu.box_shapes import GROUPS, boxes_of, clusters, turned_shapes
from tilewright.topi.gpu.box_sizes import (
    STAGES,
    Sizes,
    added_bytes,
    channels_of,
    computes_numbers,
    convolution_of,
    direct_channels,
    each_image,
    has_short_rows,
    stores_last,
    suited,
)
from tilewright.topi.gpu.box_times import (
    MOST_ADDED,
    SOON,
    VOLUMES,
    WAITED,
    in_sectors,
    moved_rows,
    rates_of,
    reads_results,
    resident_blocks,
    time_of,
)
from tilewright.topi.gpu.machine import BARRIERS, CACHE, MACHINE
from tilewright.topi.gpu.produced_boxes import (
    parts_of_sectors,
    rows_brought,
    slower,
    whole_turns,
)
from tilewright.topi.nn.box_phases import all_phases, most_taps
from tilewright.topi.nn.box_problems import of_a_group, sliced, widths
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import ROWS, BoxProductTile
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.problem import Problem

#: How many times as long it takes a thread whose channels are rows, and that has no two neighbours
#: of them, to store results.
_TURNED = 1.2
#: Microseconds that blocks of one box each take at least, and more for each that an SM has.
_LEAST, _BLOCK = 1.3, 0.3
#: Microseconds that a sum in parts gains where its filter is a constant, whose boxes are asked for
#: before the kernel before has ended: of elements of a filter from which on that counts, and of
#: results so few that SMs have room for blocks then (`benchmarks/network_tiles.py`, at batch 1).
_EARLY, _MANY_TAPS, _FEW_RESULTS = 0.5, 1 << 19, 32 * ROWS * ROWS
#: Microseconds that a box gains which a block computes behind another, shared by the blocks of an
#: SM, and the stages from which on it gains any.
_BEHIND, _AHEAD = 1.51, 3
#: How many times as long phases of unequal taps take together as equal ones, and where blocks of
#: an SM hide it from one another.
_UNEVEN, _UNEVEN_BESIDE = 1.34, 1.0
#: How much longer large tiles, of which there are three stages, and more than two tiles of an SM
#: take without a producer than predicted.
_PLAIN, _WIDE_TILE = 1.05, 128 * 256
#: The same of several boxes of bytes, where an SM has several blocks of them.
_BYTES = 1.1
#: The same of tiles of 8-bit floats that have no producer.
_FLOAT8 = 1.1
#: How many times as long as predicted a sum in parts takes where rows begin within sectors
#: (`tilewright bench gemm`, products of few rows).
_WITHIN = 1.06
#: How many times as much the cache moves at most, where rows do not begin where its lines do.
_SECTORS = 1.7


class Adding(NamedTuple):
    """What sums in parts take besides, in microseconds: a launch that adds them, less what it
    overlaps; a part that a thread adds; the blocks of an SM. What all read of what the cache moves;
    how much less steps wait that are all asked for at once, as a part of what they would; how many
    times as long blocks take whose channels are rows, where each SM has one, and more for the part
    of SMs, beyond :data:`_SPARE`, that have none; and what more blocks than SMs take."""

    launch: float
    part: float
    block: float
    read: float
    soon: float
    turned: float
    idle: float
    crowded: float = 0.0


#: That of 16 bits, fitted to 146 tiles of ResNet-50's layers at batch 1, of integers of 8, to 50,
#: and of other types.
_ADDING = Adding(-0.5, 0.03, 0.6, 0.35, 1, 0.75, 0.34)
_ADDING_BYTES = Adding(-0.25, 0.03, 0, 0.75, 0, 1, 0, 0.9)
_ADDING_OTHERS = Adding(0.6, 0.1, 0, 0.75, 0, 1, 0)
_SPARE = 0.22


class Shape(NamedTuple):
    """Results and channels of a tile, its box, and whether channels are rows of instructions; rows
    and columns of its product, boxes and tiles that cover the results of a phase, bytes of a step
    and of a result as storing it counts, and how many blocks may share a box, or a filter."""

    rows: int
    channels: int
    box: tuple[int, ...]
    turned: bool
    sides: tuple[int, int]
    number: int
    tiles: int
    step: int
    stored: float
    shared: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Given:
    """What tiles of a problem, as boxes compute it ``p``, are chosen by. Where pixels of a row lie
    ``beside`` one another, neighbours are results of different groups of threads; what TMA brings
    of windows takes ``longer``.

    Attributes
    ----------
    several : whether it is products of several matrices, an image each.
    slices : parts of a row of shared memory that are multiplied apart.
    before : microseconds of copies.
    boxes, every, direct : boxes of results by the rows that a tile has for each, channels that a
        tile may have, and those whose results leave shared memory out.
    crossed, short, slow : lines of memory that a row lies in, whether rows of the filter are short,
        and how much more the cache takes for pixels and filters.
    steps, own : those of a result whose phase has most, and in the mean.
    alike : whether the boxes of a block have the same channels, of which it computes numbers.
    last : whether channels of the problem itself lie last, not in blocks.
    halves : whether its factors have 16 bits.
    """

    problem: Problem
    p: Convolution
    of: Sizes
    split: bool
    longer: float
    beside: int
    several: bool
    slices: int
    before: float
    boxes: dict[int, list[tuple[int, ...]]]
    every: list[int]
    direct: list[int]
    crossed: float
    short: bool
    slow: tuple[float, float]
    steps: int
    own: float
    alike: bool
    last: bool
    halves: bool

    def shapes(self) -> Iterator[Shape]:
        """Those that tiles may have."""
        every = self.direct if self.beside > 1 else self.every
        for groups, channels in product(self.boxes, every):
            for box in self.boxes[groups]:
                yield self.shape(ROWS * groups, channels, box, False)
        p = self.p
        # Of two neighbours of a turned one, which are pixels, what is added lies far apart.
        may_turn = not (are_apart(p) or (reads_results(self.problem) and not self.split))
        alone = max(self.of.extents[1:]) == 1 and self.slices == 1 and self.beside == 1
        if alone and may_turn:
            for rows, channels, box, turned in turned_shapes(p, self.of.extents, self.split):
                # A tile has channels of one group.
                if p.groups == 1 or of_a_group(p)[1] % channels == 0:
                    yield self.shape(rows, channels, box, turned)

    def shape(self, rows: int, channels: int, box: tuple[int, ...], turned: bool) -> Shape:
        """That of a tile."""
        p, of, number = self.p, self.of, self.of.boxes(box)
        parts = -(-p.result_channels // channels)
        tiles = number * parts
        if p.groups > 1:  # others have other boxes
            parts = of_a_group(p)[1] // channels if self.slices == 1 else 1
        many = self.last and not (self.several or self.split) and tiles * of.phases >= MACHINE.sms
        directly = channels in self.direct and not turned
        # Threads store pairs of bytes no sooner than two bytes.
        apart = turned and of.stored > 1
        return Shape(
            rows, channels, box, turned, (channels, rows) if turned else (rows, channels),
            number, tiles, (rows * self.slices + channels) * of.depth,
            (of.stored if directly else of.written) * (_TURNED if apart else 1),
            tuple(clusters(parts, number)) if many else ((1, 1),),
        )  # fmt: skip


def given(problem: Problem, split: bool, windows: bool, beside: int) -> Given:
    """What tiles of a problem are chosen by, which are in parts where they are ``split``, and have
    results that follow one another where boxes are ``windows``."""
    several = each_image(problem)
    p = several or suited(problem)
    assert p is not None
    of, longer = Sizes.of(p, p.accumulate if split else problem.result_dtype), 1.0
    if windows:
        longer = VOLUMES if len(of.extents) > 3 else 1
        single = (1,) * (len(of.extents) - 1)
        of = replace(of, extents=(math.prod(of.extents), *single), strides=(1, *single))
    boxes = {n: boxes_of(of, ROWS * n, several is not None) for n in GROUPS}
    if beside > 1:
        unmoved = max(p.kernel) == 1 and not any(p.padding) and of.extents[-1] % beside == 0
        across = [beside * n for n in ((1, 2, 4, 8, 16) if unmoved else (1,))]
        boxes = {beside: boxes_of(of, ROWS * beside, across=across)}
    every, slices, crossed = channels_of(problem, p), sliced(p), 1.0
    if not of.block:
        crossed = crossing(slid_over(p)[0] * (16 // widths(p.dtype).chunk), of.depth * slices)
    direct = direct_channels(problem, p, every)
    if several is not None and of.stored == 2:  # whose filters lie otherwise
        direct = []
    return Given(
        problem, p, of, split, longer, beside, several is not None, slices,
        copying(convolution_of(problem), p), boxes, every, direct, crossed,
        has_short_rows(problem, p), slower(p), of.taps * of.parts, of.mean * of.parts,
        computes_numbers(p), stores_last(problem, p), widths(p.dtype).chunk == 8,
    )  # fmt: skip


def in_parts(g: Given, shape: Shape) -> Iterator[tuple[BoxProductTile, float]]:
    """Tiles of which each of several blocks adds some of the steps, and another kernel all."""
    tiles, of, most = shape.tiles * g.of.phases, g.of, g.steps
    if of.phases > 1:
        most = most_taps(all_phases(g.p)) * of.parts
    into = _parts(most, tiles * g.own / most, g.own < most)
    results = math.prod(of.extents) * of.phases * g.p.result_channels
    known = g.halves and g.problem.constants and math.prod(g.p.filter_shape) >= _MANY_TAPS
    early = _EARLY if known and results <= _FEW_RESULTS else 0.0
    written = of.written
    adding = _ADDING_BYTES if g.p.is_quantized else _ADDING if g.halves else _ADDING_OTHERS
    wait, seen, crossing = rates_of(g.p).wait, shape.rows + shape.channels, max(g.slow) > 1
    for stages, resident, time in _staged(g, shape, 0) if into else ():
        if of.phases > 1 and stages < _AHEAD:
            continue
        uneven = _uneven(of, resident)
        for splits in into:
            each = g.own / splits
            cost = time(
                each * uneven, tiles * splits, size=written,
                brought=each * shape.step,
            )  # fmt: skip
            if crossing:
                brought = rows_brought(max(g.slow), seen, each, tiles * splits)
                cost = max(cost, brought) * (_WITHIN if brought else 1)
            if shape.turned:
                idle = 1 - tiles * splits / MACHINE.sms
                alone = adding.turned + adding.idle * max(0, idle - _SPARE)
                cost *= alone if tiles * splits <= MACHINE.sms else 1
            elif each * uneven <= stages:
                cost -= adding.soon * wait * each * uneven / (stages - 1)
            cost += g.before + adding.launch + adding.part * splits - early
            cost += adding.block * tiles * splits / MACHINE.sms
            cost += adding.crowded * (tiles * splits > MACHINE.sms)
            cost += 4 * (splits + 1) * results / (adding.read * CACHE)
            yield (
                BoxProductTile.of(
                    shape.box, shape.channels, stages, splits, turned=int(shape.turned)
                ),
                cost,
            )


def at_once(
    g: Given, shape: Shape, late: bool, producer: bool
) -> Iterator[tuple[BoxProductTile, float]]:  # fmt: skip
    """Tiles of which a block adds all steps, for one box or several; where it is ``late``, TMA
    brings what is added to results. A ``producer`` may copy boxes of other shapes."""
    of, channels = g.of, shape.channels
    there, read = added_bytes(g.problem, shape.rows, channels) if late else (0, 0)
    if late and (not there or read or channels > MOST_ADDED or g.steps > SOON):
        return
    tiles, slow = shape.tiles, g.slow
    partly = in_sectors(channels * of.stored, g.p.result_channels * of.stored)
    partial = 1.0
    if channels < g.p.result_channels and not shape.turned:
        partial = parts_of_sectors(g.p, of, channels)
    least = _LEAST + _BLOCK * tiles * of.phases / MACHINE.sms if g.halves else 0.0
    directly = channels in g.direct and not shape.turned
    slowest, quantized, alone = max(slow), g.problem.is_quantized, _FLOAT8 if g.p.is_float8 else 1
    numbered = shape.turned and channels == ROWS and "channel" in g.problem.epilogue_shapes
    waited = WAITED * (numbered and not quantized)
    for stages, resident, time in _staged(
        g, shape, of.staged(g.problem, shape.rows, channels, directly) + there, late
    ):
        few = stages <= 3 and shape.rows * channels >= _WIDE_TILE
        longer = _PLAIN if producer and (few or tiles > 2 * MACHINE.sms) else 1
        for boxes_to, filters_to in shape.shared:
            cluster = boxes_to * filters_to
            seen = g.longer * shape.rows * g.slices
            brought = g.own * (seen / boxes_to + channels / filters_to) * of.depth
            cost = g.before + time(
                g.own * _uneven(of, resident), tiles * of.phases, size=shape.stored,
                cluster=cluster, brought=brought,
            )  # fmt: skip
            if slowest > 1:
                sectors = seen * slow[0] + channels * slow[1]
                cost = max(cost, tiles * g.own * sectors * of.depth / (_SECTORS * CACHE))
                if tiles <= MACHINE.sms and cluster == 1:
                    rows = shape.rows + channels
                    cost = max(cost, rows_brought(slowest, rows, g.own, tiles))
            if quantized:
                short = tiles * g.own * (seen + channels) / MACHINE.sms
                cost = max(cost, short * short_row(g.p, of.depth, of.parts)) * partly
            cost = longer * partial * max(cost, least) * alone + waited
            tile = BoxProductTile.of(
                shape.box, channels, stages, turned=int(shape.turned), boxes_to=boxes_to,
                filters_to=filters_to, added=int(late),
            )  # fmt: skip
            yield tile, cost
            each = _boxes_of_block(g, shape, stages, resident, (boxes_to, filters_to))
            if each > 1:
                more = _BYTES if quantized and resident > 1 else 1
                yield replace(tile, boxes=each), more * (cost - _BEHIND * (each - 1) / resident)


def _staged(
    g: Given, shape: Shape, kept: int, late: bool = False
) -> Iterator[tuple[int, int, Callable[..., float]]]:
    """Stages that an SM has memory for beside ``kept`` bytes, the blocks that it holds, and what
    these take, by steps, blocks and what else :func:`.time_of` asks for."""
    p, of, blocks = g.p, g.of, 0.0
    if of.block:
        every = of.depth // of.block
        rows = shape.rows * moved_rows(g.p, g.beside) / g.beside
        blocks = every * (rows + g.short * shape.channels)
    for stages in STAGES:
        resident = resident_blocks(g.problem, *shape.sides, stages * shape.step + BARRIERS + kept)
        if resident and not (shape.turned and stages < _AHEAD):
            yield stages, resident, functools.partial(
                time_of, g.problem, *shape.sides, of.depth * of.terms, stages=stages,
                resident=resident, slices=g.slices, brought_rows=blocks,
                added_there=late, crossing=g.crossed, turned=shape.turned, rates=rates_of(p),
            )  # fmt: skip


def _boxes_of_block(
    g: Given, shape: Shape, stages: int, resident: int, shared: tuple[int, int]
) -> int:  # fmt: skip
    """The most boxes that a block computes one behind the other, and gains by it."""
    if stages < _AHEAD or g.of.phases > 1:
        return 1
    cluster, number = math.prod(shared), shape.number // shared[1]
    slots = MACHINE.sms * resident // cluster
    if g.alike:
        each = behind_one_another(number, shape.tiles // cluster, slots)
    else:
        each = -(-shape.tiles // cluster // slots)
    if shape.channels in g.direct and not shape.turned and shape.channels > g.p.result_channels:
        each = whole_turns(each, number)
    return each


def behind_one_another(boxes: int, blocks: int, slots: int) -> int:
    """The most boxes, of those that each tile's channels have, that a block may compute without
    more rounds than ``blocks`` with one each take, where ``slots`` of them are at work at once."""
    rounds, parts = -(-blocks // slots), blocks // boxes
    for each in range(rounds, 1, -1):
        if -(-(-(-boxes // each) * parts) // slots) * each <= rounds:
            return each
    return 1


def _uneven(of: Sizes, resident: int) -> float:
    """How many times as long a result takes as one whose phase has as many steps as the mean."""
    if of.phases == 1:
        return 1
    return _UNEVEN if resident == 1 else _UNEVEN_BESIDE


def _parts(steps: int, blocks: float, uneven: bool) -> list[int]:
    """In how many parts steps may be summed, so that most SMs have a block and few have many; none
    where blocks are enough for half of them, or for all where some have more steps than others."""
    enough = MACHINE.sms if uneven else MACHINE.sms / 2
    most = int(2 * MACHINE.sms / blocks) if blocks <= enough else 0
    return [n for n in range(2, min(steps, most) + 1) if steps % n == 0][-3:]
