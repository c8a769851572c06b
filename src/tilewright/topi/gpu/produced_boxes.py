"""Tiles of boxes that a producer copies, and what they are predicted to take on Hopper.

The warps that multiply store results by parts, each its own, while others multiply: so a block
computes one tile after the other, and has memory for more steps. What products, the second-level
cache, memory and stores take overlaps; what a block waits for its first step, and the stores of
its last tile, do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

from tilewright.ir.dtype import dtype
from tilewright.target.devices import WARP
from tilewright.topi.gpu.box_lines import short_row
from tilewright.topi.gpu.box_shapes import all_sms, clusters
from tilewright.topi.gpu.box_times import moved_bytes, step_of_blocks
from tilewright.topi.gpu.machine import BARRIERS, CACHE, MACHINE, MEMORY, most_registers
from tilewright.topi.nn.box_phases import is_phased
from tilewright.topi.nn.box_problems import ROW
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_added import holds
from tilewright.topi.pieces.box_tiles import LANES, ROWS, BoxProductTile, columns_of
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.problem import Problem

if TYPE_CHECKING:
    from tilewright.topi.gpu.box_sizes import Sizes

#: Channels of a part of the results, the most first; steps for which a block has memory.
_PARTS, _STAGES = (128, 64, 32), (6, 5, 4, 3)
#: The same of channels that no row of memory divides, where less memory gives further steps and a
#: block has one tile: warps store short rows.
_FINER = 16
#: Channels of a tile, also where they divide no result; and results of one that fills all SMs.
_CHANNELS, _TALLEST = (192,), 128
#: Registers of a thread beside its sums.
_OTHERS = 30
#: Columns of as many sums as numbers that a thread reads of the channels of results at once, which
#: leave from registers.
_NUMBERED = 32

#: Boxes of what is added to results that a block has memory for; how many times as long as
#: predicted a tile takes that has them, less where TMA stores its results, too; and how many times
#: as long as memory products of one tap take from which on steps need that memory more.
_AHEAD, _ADDED, _ADDED_STORED, _BUSY = 2, 1.06, 1.02, 1.05

#: Microseconds that a tile of integers of one step takes at least, and more for each result, whose
#: numbers are read or kept: no warp begins the next one before it has stored what it has.
_TILE, _RESULT = 0.5, (1.05e-4, 0.3e-4)

#: How many times as long as through shared memory results of 16 bits take from registers; tiles
#: that keep numbers, by whether they are of integers; that hold what is added to several boxes, but
#: no numbers; and a single box of 16 bits, from how many results on.
DIRECT, _KEPT, _APART, _SINGLE, _HIGH = 0.6, {False: 0.97, True: 0.865}, 1.1, 0.9, 192

#: What is left of how much longer tiles take that have no more results, or channels, and these as
#: rows, where an SM has one of many steps.
_NARROW, _ALONE = 128, 0.45
#: Steps of a tile, at least, of which an SM has several whose channels are rows of instructions.
_DEEP = 16
#: Results of a part where channels are rows of instructions.
_PIXELS = (64, 40, 32, 24, 16, 8)

After: TypeAlias = Callable[[int, int, bool], float]
Bytes: TypeAlias = Callable[[int, int], int]
Behind: TypeAlias = Callable[[int, int, int], int]


@dataclass(frozen=True)
class Rates:
    """How many times as long products take as they could, and more for each column fewer than one;
    how much counts of what comes through the cache, more where rows begin within lines, or within
    sectors, and of memory; bytes that an SM stores in a microsecond beside others, and of its last
    tile; microseconds until a block has its first step, and of each step by the stages; how far the
    slowest hides the others; how much longer products take of a cluster that shares pixels, or
    filters, stores by TMA, steps where some tiles have more of them than others, and more than
    :data:`_FEW` warpgroups."""

    products: float = 0.45
    narrow: float = 72.6
    cache: float = 0.388
    lines: float = 1.15
    sectors: float = 1.75
    memory: float = 0.455
    stored: float = 27_100
    last: float = 44_300
    begin: float = 1.6
    step: float = 0.215
    power: float = 1.61
    cluster: float = 0.037
    filters: float = 0.15
    boxed: float = 1.03
    uneven: float = 1.0
    tall: float = 1.06


#: Those of 16 bits; of 8, fitted to 30 tiles of 18 layers, and of TF32, to 33 of 16.
RATES = Rates()
_BYTES = Rates(
    products=0.0, narrow=78.1, cache=0.4, memory=0.593, stored=24_400, last=55_900, begin=2.46,
    step=0.127,
)  # fmt: skip
_WIDE = Rates(
    products=0.595, narrow=64.0, cache=0.36, memory=0.75, stored=28_100, last=48_400, begin=1.36,
    step=0.182, power=1.75, uneven=1.33,
)  # fmt: skip
#: How many rows that begin within sectors TMA brings an SM in a microsecond (H200, products
#: of few rows, 2026-11-27), and microseconds until the first is there.
_ROWS, _FIRST = 300, 0.6
#: Bytes of lines and sectors of the cache.
_LINE, _SECTOR = 128, 32
#: How many times as long tiles of bytes take that are a single warpgroup's; and by what part of the
#: time that rows of blocks take they delay what overlaps them.
_LOW, _BLOCKS = 1.045, 0.05
#: How many times as long as memory products take where they bind.
_BINDS = 1.3
#: Warpgroups that are few, and how many times as long blocks that share boxes take of which memory
#: has few.
_FEW, _SHALLOW = 3, 1.1
#: How many times as long few tiles take whose rows are no whole sectors of memory, of channels in
#: 16 bits.
_PARTIAL, _WHOLE = 1.4, 16
#: Results of a tile that takes that much longer.
_SIZE = 128 * 256


def produced(
    problem: Problem, p: Convolution, of: Sizes, steps: float, boxes: Sequence[tuple[int, ...]],
    channels: Sequence[int], after: After, behind: Behind, added: Bytes,
    direct: Sequence[int] = (), alike: Behind | None = None, beside: int = 1,
) -> Iterator[tuple[BoxProductTile, float]]:  # fmt: skip
    """Tiles of ``boxes`` by ``channels`` of a problem, as boxes compute it ``p``, each a sum of
    ``steps``, and what they take.

    ``after`` says what an epilogue takes of rows by columns, where TMA brings what is added to
    them or threads read it, ``behind`` how many boxes a block computes, given the number of all
    boxes, of tiles, and of blocks at once, and ``added`` how many bytes TMA may bring of what is
    added. Of ``direct`` channels results leave shared memory out, and numbers may be kept where the
    boxes of a block are ``alike``, of which that says how many it computes.
    """
    wide, results = p.result_channels, math.prod(of.extents) * of.phases
    few = 2 * results * wide < MACHINE.sms * ROWS * ROWS  # of which sums have parts
    if few or are_apart(p):  # whose threads add, and hide no more than they did
        return
    # Where products bind, blocks that share boxes wait for each other without gain.
    products = results * wide * steps * of.depth / 2
    products /= MACHINE.products * MACHINE.clock * MACHINE.sms
    binds = products > _BINDS * problem.bytes / MEMORY and max(slower(p)) == 1
    shared = p.groups == 1 and not binds and of.phases == 1
    busy = of.taps > 1 or products > _BUSY * problem.bytes / MEMORY
    more = [n for n in _CHANNELS if n < wide and n not in channels and p.groups == 1]
    more = [] if of.block else more
    # A filter that lies across the sum comes in whole rows of memory.
    fits = p.groups == of.phases == 1 and p.pass_ == "forward" and of.stored == 2 and not of.block

    def channels_for(box: tuple[int, ...]) -> list[int]:
        filling = fits and math.prod(box) <= _TALLEST
        return [*channels, *more, *(all_sms(of.boxes(box), wide, channels) if filling else [])]

    every = [(x, own) for x in boxes for own in channels_for(x)]
    for box, own in every:
        rows, number, parts = math.prod(box), of.boxes(box), -(-wide // own)
        tiles = number * parts * of.phases
        # Of others threads have no neighbours in memory, nor whole vectors of bytes.
        apart = of.stored != dtype("float16").bytes and own & (own - 1)
        numbered = problem.is_quantized and own in direct and "channel" in problem.epilogue_shapes
        held = own + numbered * _NUMBERED
        if 2 * tiles < MACHINE.sms or apart or not has_registers(rows, held):
            continue
        alone = of.phases > 1 or behind(number, tiles, MACHINE.sms) == 1
        through = own not in direct or of.stored == dtype("float16").bytes
        there = added(rows, own) * (1 if alone else _AHEAD) if through and not busy else 0
        found = [(1, x) for x in _staged(problem, p, of, box, own, wide, False, there) if there]
        if own in direct or not found:
            found += [(0, x) for x in _staged(problem, p, of, box, own, wide, own in direct)]
        results, numbers = holds(problem, rows, own, True)
        partial = parts_of_sectors(p, of, own)
        for late, (stages, part, stores) in found:
            longer = (_ADDED_STORED if stores else _ADDED) if late else 1
            longer *= partial
            directly = own in direct and not late
            time = after(rows, own, bool(late or (directly and results)))
            several = alike is not None and directly and numbers and of.phases == 1 and not results
            for (boxes_to, filters_to), kept in product(
                clusters(parts, number) if shared else [(1, 1)], (0, 1) if several else (0,)
            ):
                cluster, turn = boxes_to * filters_to, alike if kept and alike else behind
                each = turn(number // filters_to, tiles // cluster, MACHINE.sms // cluster)
                each = each if of.phases == 1 else 1  # of which others have more to do
                if own in direct and own > wide:
                    each = whole_turns(each, number // filters_to)
                tile = BoxProductTile.of(
                    box, own, stages, boxes=each, boxes_to=boxes_to, filters_to=filters_to,
                    staged=part, stores=int(stores), added=late, kept=kept,
                )  # fmt: skip
                cost = predicted(
                    problem, p, of, steps, tiles, tile, time, directly=directly, beside=beside
                )
                if kept:
                    cost *= _KEPT[problem.is_quantized]
                elif directly and each > 1:
                    cost *= _APART if results and not numbers else 1
                elif directly and through and rows >= _HIGH:
                    cost *= _SINGLE
                if not kept or each > 1:
                    yield tile, longer * cost


def parts_of_sectors(p: Convolution, of: Sizes, channels: int) -> float:
    """How many times as long tiles of some ``channels`` take whose rows are no whole sectors of
    memory: of results in 16 bits, where these are few."""
    results = math.prod(of.extents) * of.phases * p.result_channels
    few = of.stored == 2 and results <= MACHINE.sms * ROWS * ROWS * 2
    return _PARTIAL if few and channels % _WHOLE else 1.0


def in_turn(boxes: int, blocks: int, slots: int) -> int:
    """How many of all ``blocks`` with one box each are one block's, where ``slots`` are at work at
    once and boxes that follow one another need not have the same channels."""
    return -(-blocks // slots)


def whole_turns(each: int, boxes: int) -> int:
    """The most boxes of a block, up to ``each``, of which all blocks have as many: where results of
    fewer channels than a tile has leave from registers, conditions of both would be around sums.

    >>> whole_turns(8, 12), whole_turns(5, 12), whole_turns(3, 7)
    (6, 4, 1)
    """
    return next(n for n in range(min(each, boxes), 0, -1) if boxes % n == 0)


def produced_turned(
    problem: Problem, p: Convolution, of: Sizes, steps: float,
    shapes: Iterable[tuple[int, int, tuple[int, ...], bool]], after: After, behind: Behind,
) -> Iterator[tuple[BoxProductTile, float]]:  # fmt: skip
    """The same of ``shapes``, results, channels and the box, whose channels are rows of
    instructions; where each SM has one: stores of several took longer than what they overlap. Not
    so where rows of memory begin within lines, blocks share them, and steps are many."""
    if dtype(problem.dtype).bytes != 2 or of.phases > 1:
        return
    crosses = max(slower(p)) > 1 and p.groups == 1 and steps >= _DEEP
    for rows, own, box, turned in shapes:
        number, parts = of.boxes(box), -(-p.result_channels // own)
        tiles = number * parts
        alone = tiles <= MACHINE.sms
        if 2 * tiles <= MACHINE.sms or not (turned and (alone or crosses)):
            continue
        if not has_registers(own, rows):
            continue
        left = MACHINE.block_shared - BARRIERS - of.staged(problem, 0, own)
        cut = [x for x in _PIXELS if rows % x == 0 and (x & (x - 1) == 0 or rows // x % 2)]
        found = _most(left, rows, own, of, [(x, _rows(problem, of, x, own)) for x in cut])
        if found is None:
            continue
        for boxes_to, filters_to in clusters(parts, number) if crosses else [(1, 1)]:
            cluster = boxes_to * filters_to
            if cluster == 1 and not alone:
                continue
            each = behind(number // filters_to, tiles // cluster, MACHINE.sms // cluster)
            tile = BoxProductTile.of(
                box, own, found[0], boxes=each, turned=1, boxes_to=boxes_to,
                filters_to=filters_to, staged=found[1],
            )  # fmt: skip
            yield tile, predicted(problem, p, of, steps, tiles, tile, after(own, rows, False))


def predicted(
    problem: Problem, p: Convolution, of: Sizes, steps: float, tiles: int, tile: BoxProductTile,
    after: float = 0.0, rates: Rates | None = None, directly: bool = False, beside: int = 1,
) -> float:  # fmt: skip
    """Microseconds that ``tiles`` of ``steps`` each take, with what is ``after`` each, whose
    results leave ``directly`` from registers, and rows of blocks have ``beside`` pixels."""
    r, own, rows = rates or rates_of(problem), tile.channels, math.prod(tile.box)
    cluster = tile.boxes_to * tile.filters_to
    slots = MACHINE.sms // cluster * cluster
    rounds = -(-tiles // slots)
    taken, begin = rounds * steps, r.begin
    if of.phases > 1:  # a block has one tile, and some have more steps
        taken, begin = max(of.taps * of.parts, r.uneven * tiles / slots * steps), rounds * r.begin
    high, columns = (own, rows) if tile.turned else (rows, own)
    alone = tile.turned and rounds == 1 and steps > _DEEP and max(own, rows) <= _NARROW
    times = r.products + r.narrow * (_ALONE if alone else 1) / columns_of(columns, problem.dtype)
    wider = tile.turned and rows > own  # what is shared is the larger factor
    shared = (r.filters if wider else r.cluster) * (tile.boxes_to > 1)
    shared += r.filters * (tile.filters_to > 1)
    times += shared * (_SIZE / (rows * own)) ** 2
    multiplied = rows * own * of.depth / (2 * MACHINE.products * MACHINE.clock) * times
    pixels, filters = slower(p, r)
    brought = rows / tile.boxes_to * pixels + own / tile.filters_to * filters
    brought *= of.depth * min(slots, tiles)
    written = of.stored if tile.staged == own else of.written
    stores = rows * own * written * (r.boxed if tile.stores else 1)
    if directly and of.stored == dtype("float16").bytes:
        stores *= DIRECT
    overlapping = (
        taken * (multiplied + r.step / (tile.stages - 1)),
        taken * r.cache * brought / CACHE,
        r.memory * moved_bytes(problem) / MEMORY,
        rounds * (stores / r.stored + after),
    )
    hidden = sum(x**r.power for x in overlapping) ** (1 / r.power)
    if problem.is_quantized and steps <= 1:
        hidden = max(hidden, rounds * (_TILE + _RESULT[tile.kept] * rows * own))
    if problem.is_quantized:
        hidden = max(hidden, taken * (rows + own) * short_row(p, of.depth, of.parts))
    if of.block:  # of which tiles that keep numbers bring as many
        of_box, of_filter = rows / tile.boxes_to, own / tile.filters_to
        short = taken * step_of_blocks(p, of.depth / of.block * of_box, of_filter, beside)
        hidden = max(hidden, short / (_KEPT[True] if tile.kept else 1)) + _BLOCKS * short
    tall = r.tall if high // ROWS > _FEW else 1.0
    tall *= _LOW if problem.is_quantized and high == ROWS else 1.0
    tall *= _SHALLOW if cluster > 1 and tile.stages <= _STAGES[-1] else 1.0
    return float(tall * (begin + hidden + stores / r.last + after))


def rates_of(p: Problem) -> Rates:
    """Those of a problem's types."""
    return _BYTES if p.is_quantized else _WIDE if p.dtype == "float32" else RATES


def slower(p: Convolution, r: Rates = RATES) -> tuple[float, float]:
    """How many times as much pixels, and filters, take of the cache as those whose channels begin
    where lines of it do."""
    size = dtype(p.dtype).bytes
    apart = p.out_channels if p.pass_ == "dgrad" else p.channels, p.channels
    pixels, filters = (
        1.0 if n * size % _LINE == 0 else r.lines if n * size % _SECTOR == 0 else r.sectors
        for n in apart
    )
    return pixels, filters


def rows_brought(slow: float, rows: int, steps: float, blocks: int) -> float:
    """Microseconds that an SM takes to bring rows of memory, of as many steps of each of its
    ``blocks``, where rows begin within sectors, as ``slow`` as :func:`slower` says."""
    if slow < RATES.sectors:
        return 0.0
    return _FIRST + -(-blocks // MACHINE.sms) * steps * rows / _ROWS


def _staged(
    problem: Problem, p: Convolution, of: Sizes, box: tuple[int, ...], channels: int, wide: int,
    directly: bool, added: int = 0,
) -> Iterator[tuple[int, int, bool]]:  # fmt: skip
    """The most stages that a block has memory for beside boxes of ``added`` bytes, the most
    channels of a part of results beside them, and whether TMA stores it; all of them where they
    leave ``directly``."""
    rows = math.prod(box)
    # Numbers of channels, if there are any, are those of all.
    left = MACHINE.block_shared - BARRIERS - of.staged(problem, 0, channels) - added
    parts = [x for x in _PARTS if channels % x == 0 and not directly] or [channels]
    single = of.boxes(box) * -(-wide // channels) * of.phases <= MACHINE.sms
    if single and channels % ROW and channels % _FINER == 0 and not directly:
        parts.append(_FINER)
    found = _most(
        left, rows, channels, of,
        [(x, 0 if directly else _rows(problem, of, rows, x)) for x in parts],
    )  # fmt: skip
    if found is None:
        return
    yield *found, False
    stages, part = found
    plain = of.stored == dtype("float16").bytes and not is_phased(p) and not directly
    if plain and wide % ROW == 0 and part % ROW == 0 and max(box[1:]) == 1:
        yield stages, part, True


def _rows(problem: Problem, of: Sizes, rows: int, part: int) -> int:
    """Bytes of a part of results."""
    return of.staged(problem, rows, part) - of.staged(problem, 0, part)


def most_stages(rows: int, columns: int, step: int) -> int | None:
    """The most steps of ``step`` bytes that a block has memory for whose results leave from
    registers; None where it has too few of these, or not for three."""
    if not has_registers(rows, columns):
        return None
    left = (MACHINE.block_shared - BARRIERS) // step
    return min(left, _STAGES[0]) if left >= _STAGES[-1] else None


def has_registers(rows: int, columns: int) -> bool:
    """Whether a thread has enough."""
    return columns // 2 + _OTHERS <= most_registers(rows // ROWS * LANES // WARP + 1)


def _most(
    left: int, rows: int, channels: int, of: Sizes, parts: Sequence[tuple[int, int]]
) -> tuple[int, int] | None:
    """The most stages, and of ``parts``, with the bytes that each has, the first that is left."""
    for stages in _STAGES:
        for part, staged in parts:
            if stages * (rows + channels) * of.depth + staged <= left:
                return stages, part
    return None
