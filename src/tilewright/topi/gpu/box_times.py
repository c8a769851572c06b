"""What blocks of products of boxes are predicted to take on Hopper.

The numbers are those of an H200, fitted to 1700 tiles of the forward passes and gradients of 22
layers of ResNet-50, at batch 64 and 1, and of linear layers, in float16, where the tiles that it
takes are 2 % slower than the best of each that was measured.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from tilewright.target.devices import WARP
from tilewright.topi.gpu.machine import (
    CACHE,
    MACHINE,
    MEMORY,
    micros,
    most_registers,
    occupancy,
)
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.box_tiles import LANES, ROWS, columns_of
from tilewright.topi.pieces.step_sums import are_apart
from tilewright.topi.problem import Problem

#: What a block waits besides for the numbers of its channels, before its first step, in
#: microseconds, unless channels are rows, of which a thread keeps a few in 16 bits; to how many
#: results an SM adds in one what its threads read, and what TMA has brought; and the most channels
#: of a tile, and steps, of which it brings that: warps that have many sums each are few, and wait
#: for what they read of shared memory, which many steps need.
_NUMBERS, ADDED, ADDED_THERE, MOST_ADDED, SOON = 1.4, 10_000, 40_000, 128, 8
#: Rows of a tile of which the warps hide from one another what they read to add it.
READERS = 128
#: Microseconds that a block of one tile waits for the numbers of its channels where no other hides
#: that: of a single warpgroup whose channels are rows of instructions, and of whole boxes.
WAITED = 0.8
#: How many times as long instructions take that multiply slices of rows, which are short; and the
#: same of the pixels that TMA brings of windows in three dimensions.
_SLICED, VOLUMES = 1.4, 2.4
#: Rows that TMA brings an SM in a cycle, whether of 32 bytes or of 128, of those that take turns
#: with products; and beside a producer.
SHORT_ROWS, _PRODUCED_ROWS = 0.6, 0.65
#: By what part a step is slower whose rows all lie in one line of memory more.
_CROSSED = 0.5
#: Bytes of a sector of memory, and by which power of its parts tiles take longer that have some.
_SECTOR, _PARTLY = 32, 0.25
#: Cycles of a warp beside its instructions for an element, of which other warps hide the most.
_LATENCY = 7.0
#: Registers of a thread beside its sums, fewer of one that holds what is read beside them where it
#: has no more; and of fewer rounds than this the last counts.
_OTHERS, _FEWER, _FEW = 50, 40, 21


@dataclass(frozen=True)
class Rates:
    """What steps and blocks take.

    Parameters
    ----------
    products, narrow, cluster : how many times as long products take as they could; more of it for
        each column fewer than one, since the same rows are read again, and in a cluster.
    begin, wait : microseconds that a block waits for its first step, and a step for its boxes if
        none were loaded ahead.
    stored, alone : bytes of results that an SM stores in a microsecond, and how much of that time
        nothing else overlaps where it has one block.
    reads, kept : how many times as much the cache moves of what several SMs read, and memory of
        what the cache still has.
    """

    products: float
    narrow: float
    cluster: float
    begin: float
    wait: float
    stored: float
    alone: float
    reads: float
    kept: float


#: Those of results; of those in 8 bits, fitted to 110 tiles of the same forward passes, and in
#: float32, to 85 of forward passes and gradients in TF32; and of gradients by the filter.
_RESULTS = Rates(0.261, 78.4, 0.302, 1.6, 0.58, 37_500, 0.3, 3.69, 1.25)
_BYTES = Rates(0.504, 61.0, 0.302, 1.1, 0.379, 82_700, 0.15, 2.83, 1.14)
_WIDE = Rates(0.624, 86.0, 0.302, 1.6, 0.421, 39_500, 0.14, 2.0, 1.18)
SUMS_OF_PIXELS = Rates(0.57, 43.0, 0.45, 0.26, 0.44, 26_600, 0.0, 1.83, 4.3)


def reads_results(p: Problem) -> bool:
    """Whether threads read what is added to each result."""
    return "output" in p.epilogue_shapes


def time_of(
    p: Problem, rows: int, columns: int, step: float, steps: float, blocks: int, stages: int,
    resident: int, size: float, brought: float, slices: int = 1, brought_rows: float = 0,
    cluster: int = 1, added_there: bool = False, crossing: float = 1, turned: bool = False,
    rates: Rates = _RESULTS, sharing: int = 1,
) -> float:  # fmt: skip
    """Microseconds of blocks that add ``steps`` products of ``rows`` by ``columns``, of ``step``
    bytes each, of factors of which they bring ``brought`` bytes, of each step ``brought_rows`` that
    are short, and store results of ``size`` bytes. Of ``slices`` of the rows, each multiplies its
    part of the columns; an SM holds ``resident`` blocks. What is added to results is in shared
    memory where it is ``added_there``. A row that is brought lies in ``crossing`` lines of memory,
    in the mean. Channels are rows where they are ``turned``. ``sharing`` blocks each compute a
    part of a tile's results from its sums."""
    times = rates.products + rates.narrow / columns_of(columns // slices, p.dtype)
    times += rates.cluster * (cluster > 1)
    rate = 2 * MACHINE.products * MACHINE.clock / times
    stores = rows * columns * size / rates.stored
    multiplied = rows * columns * step / rate * crossed_steps(crossing)
    if brought_rows:
        multiplied = max(multiplied, brought_rows / (SHORT_ROWS * MACHINE.clock))
    alone = steps * multiplied + stores
    cache = blocks * brought / (rates.reads * CACHE)
    memory = moved_bytes(p) / (rates.kept * MEMORY)
    waves = blocks / (MACHINE.sms * resident)
    begin = rates.begin + steps * rates.wait / (stages - 1) + rates.alone * stores * (resident == 1)
    if p.epilogue:
        added = ADDED_THERE if added_there else ADDED
        late = arithmetic(p, rows, columns, resident) + rows * columns * reads_results(p) / added
        alone += late / sharing
        few = turned and not p.is_quantized
        begin += _NUMBERS * ("channel" in p.epilogue_shapes and not few)
    found = micros(blocks * alone / MACHINE.sms, cache, memory, waves, begin, resident, _FEW)
    return float(found) * (_SLICED if slices > 1 else 1)


def moved_bytes(p: Problem) -> int:
    """Bytes that memory moves for a problem: of integers without the pixels that a single tap steps
    over, with which rates of other types were fitted."""
    if not (p.is_quantized and isinstance(p, Convolution) and max(p.kernel) == 1):
        return p.bytes
    gone = max(0, math.prod(p.image) - math.prod(p.out_image))
    return p.bytes - p.batch * p.channels * gone


def step_of_blocks(p: Convolution, rows: float, channels: float, beside: int) -> float:
    """Microseconds in which a producer brings an SM a step: ``rows`` of a block, if each has one
    pixel, and those of a filter of ``channels``, less what it shares with others."""
    every = rows * moved_rows(p, beside) / beside + channels
    return every / (_PRODUCED_ROWS * MACHINE.clock)


def moved_rows(p: Convolution, beside: int) -> float:
    """How many times as long rows of pixels ``beside`` one another take whose taps see them in as
    many places: but for one of these they do not begin where rows of memory do."""
    return 2 - 1 / p.kernel[-1] if beside > 1 else 1.0


def crossed_steps(crossing: float) -> float:
    """How many times as long steps take whose rows lie in as many lines of memory."""
    return 1 + _CROSSED * (crossing - 1)


def in_sectors(size: int, whole: int) -> float:
    """How many times as long tiles take that store as many bytes of a pixel, of the ``whole`` that
    it has, where these are parts of sectors of memory."""
    found: float = max(1.0, min(_SECTOR, whole) / size) ** _PARTLY
    return found


def rates_of(p: Problem) -> Rates:
    """What steps and blocks take of a problem's types."""
    return _BYTES if p.is_quantized else _WIDE if p.dtype == "float32" else _RESULTS


def arithmetic(p: Problem, rows: int, columns: int, resident: int) -> float:
    """Microseconds that an SM with ``resident`` blocks issues what is computed of the results of
    a tile beyond their sums: nothing of the same block overlaps it."""
    count = p.epilogue_instructions
    warps = resident * rows // ROWS * LANES // WARP
    hidden = 1 + _LATENCY / warps**2
    return rows * columns * count * hidden / (MACHINE.lanes * MACHINE.clock)


def resident_blocks(p: Problem, rows: int, columns: int, shared: int, more: int = 0) -> int:
    """Blocks that an SM holds, whose threads have some ``more`` registers."""
    held, warps = 2 if are_apart(p) else 1, rows // ROWS * LANES // WARP
    registers = -(-(held * columns // 2 + _OTHERS + more) // 8) * 8
    if more and registers > most_registers(warps):  # then a compiler finds some
        registers = -(-(held * columns // 2 + _FEWER + more) // 8) * 8
    if registers > 255:
        return 0
    return _resident(warps, registers, shared)


@functools.lru_cache(maxsize=4096)
def _resident(warps: int, registers: int, shared: int) -> int:
    return int(occupancy(MACHINE, warps, registers, shared))
