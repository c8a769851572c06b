"""Tiles of a single box each whose blocks ask for all of a filter first, and what they take.

A filter that is a constant is asked for before the kernel before has ended. What a block waits for
after that is its part of the image: where channels are the rows of instructions, that of as few
pixels as these have columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from tilewright.target.instructions.tma_load import ALIGN, LARGEST
from tilewright.target.instructions.wgmma import has_columns
from tilewright.topi.gpu.box_sizes import Sizes, has_short_rows
from tilewright.topi.gpu.box_times import (
    SHORT_ROWS,
    WAITED,
    arithmetic,
    reads_results,
    resident_blocks,
)
from tilewright.topi.gpu.machine import BARRIERS, CACHE, MACHINE
from tilewright.topi.nn.box_factors import reach
from tilewright.topi.nn.box_problems import is_turned, sliced
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import ROWS, BoxProductTile
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.problem import Problem

#: Types that were measured, of which both factors have the same.
_TYPES = ("float16", "bfloat16", "int8")
#: Bytes of a row that an instruction multiplies.
_INSTRUCTION = 32
#: Results of a tile whose channels are rows of instructions, and blocks of an SM at most.
_OWN, _BUSY = (8, 16, 24, 32, 48, 64, 96), 2


class Rates(NamedTuple):
    """Microseconds of a launch, of each step but one, of a block more of an SM, and of results that
    do not leave from registers; how often rows of boxes count, those of blocks of channels, of taps
    one by one, and of a filter that is no constant, and what all blocks read of what the cache
    moves; cycles of an instruction, and of each of its columns; and how often what is computed of
    sums counts."""

    launch: float
    step: float
    block: float
    through: float
    rows: float
    short: float
    taps: float
    late: float
    cache: float
    read: float
    column: float
    computed: float


#: Those of tiles of integers of 8 bits whose channels are rows, of others of them, and of 16 bits,
#: fitted to 143, 151 and 70 tiles of ResNet-50's layers at batch 1, to 10, 8 and 11 %, on an H200.
_BYTES = Rates(1.16, 0.094, 0.235, 0.133, 0.6, 0.775, 0.757, 0.776, 0.686, 2.1, 0.26, 2.3)
_BYTES_BY_PIXELS = Rates(1.0, 0.048, 0.67, 0.62, 0.36, 0.456, 1.0, 0.17, 1.26, 17.4, 0.1, 2.37)
_HALVES = Rates(1.46, 0.09, 0.146, 0.344, 0.724, 1.0, 0.921, 0.462, 0.194, 8.4, 0.126, 1.0)


def has_first_filters(problem: Problem, p: Convolution, of: Sizes) -> bool:
    """Whether there are such tiles of a problem, as boxes compute it ``p``."""
    alone = p.groups == 1 and of.phases == 1 and sliced(p) == 1 and not is_turned(p)
    plain = not (are_apart(problem) or reads_results(problem)) and len(of.extents) < 5
    return p.pass_ == "forward" and alone and plain and p.dtype in _TYPES


def turned_tiles(
    problem: Problem, p: Convolution, of: Sizes, whole: bool, together: int = 1
) -> Iterator[tuple[BoxProductTile, float]]:
    """Those whose channels are rows of instructions, of ``whole`` boxes, some of which come
    ``together``, or of taps one by one; and what they are predicted to take, in microseconds."""
    if not has_first_filters(problem, p, of) or (not whole and has_short_rows(problem, p)):
        return
    steps = of.parts if whole else of.taps * of.parts
    filters = of.taps * of.parts * ROWS * of.depth
    if filters + BARRIERS > MACHINE.block_shared:
        return
    parts = -(-p.result_channels // ROWS)
    for own in (n for n in _OWN if has_columns(n, p.dtype)):
        for box in _boxes(of, own):
            seen = reach(p, box) if whole else box
            pixels = math.prod(seen)
            if box[-1] == 1 and max(seen[1:]) > 1:
                continue  # pixels of several images do not follow one another
            if max(seen) > LARGEST or (steps > 1 and pixels * of.depth % ALIGN):
                continue
            if of.block and pixels * of.block % ALIGN and of.depth > of.block:
                continue
            blocks = of.boxes(box) * parts
            busy = -(-blocks // MACHINE.sms)
            shared = filters + steps * pixels * of.depth + of.staged(problem, own, ROWS) + BARRIERS
            if busy > min(_BUSY, resident_blocks(problem, ROWS, own, shared)):
                continue
            for stages in dict.fromkeys((1, -(-steps // together) + 1)):
                if (whole and stages == 2) or (stages == 1 and not whole):
                    continue  # of one step all is waited for, or nothing is whole
                tile = BoxProductTile.of(box, ROWS, stages, turned=1, kept=int(not whole))
                yield tile, time_of_single(problem, of, tile, blocks, steps * pixels, filters)


def time_of_single(
    problem: Problem, of: Sizes, tile: BoxProductTile, blocks: int, pixels: int, filters: int,
    directly: bool = False, short: bool = False,
) -> float:  # fmt: skip
    """Microseconds of such tiles, or of single boxes of bytes that results leave ``directly``, of
    ``blocks``, each of which brings some ``pixels`` of a step's depth, and ``filters`` bytes, in
    ``short`` rows where these are those of a block of channels."""
    r = (_BYTES if tile.turned else _BYTES_BY_PIXELS) if problem.is_quantized else _HALVES
    steps, moved = max(tile.stages - 1, 1), SHORT_ROWS * MACHINE.clock
    busy, results = -(-blocks // MACHINE.sms), math.prod(tile.box)
    rows = r.short * pixels * (of.depth // of.block) if of.block else r.rows * pixels
    if short:
        rows += r.short * filters / of.block
    high, columns = (ROWS, results) if tile.turned else (results, tile.channels)
    brought = busy * rows * (r.taps if tile.kept and tile.turned else 1) / moved / steps
    count = of.taps * of.parts * of.depth // _INSTRUCTION * (high // ROWS)
    multiplied = busy * count * (r.read + r.column * columns) / MACHINE.clock / steps
    found = r.launch + brought + (steps - 1) * (max(brought, multiplied) + r.step) + multiplied
    found += r.block * (busy - 1) + r.through * (not directly)
    found += r.cache * blocks * (filters + pixels * of.depth) / CACHE
    if "filter" not in problem.constants:
        found += r.late * busy * filters / of.depth / moved
    if problem.epilogue:
        found += r.computed * arithmetic(problem, high, columns, busy)
    if busy > 1 and "channel" in problem.epilogue_shapes and not problem.is_quantized:
        found += WAITED
    return float(found)


def _boxes(of: Sizes, own: int) -> list[tuple[int, ...]]:
    """Boxes of ``own`` results: any that follow one another, or rows of eight."""
    outer = (1,) * (len(of.extents) - 2)
    if max(of.extents[1:]) == 1:
        return [(own, *outer, 1)]
    if max(of.extents[1:-1]) == 1:
        return [(*outer, 1, own)]
    return [(*outer, own // 8, 8)]
