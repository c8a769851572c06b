"""The tiles worth trying for attention on tensor cores."""

from __future__ import annotations

from itertools import product

from tilewright.target.devices import COMMON_SHARED, H200, REGISTERS, RESERVED
from tilewright.target.target import Target
from tilewright.topi.gpu.machine import occupancy
from tilewright.topi.operators.attention import Attention
from tilewright.topi.pieces.attention import (
    AttentionGroupTile,
    AttentionMmaTile,
    reads_mask_ahead,
)
from tilewright.topi.pieces.group_rows import GROUP_ROWS
from tilewright.topi.problem import Problem

#: Elements of a query, or of a value, whose parts registers have room for.
_WIDEST = 128
#: Keys of which a thread has the scores of its rows in registers, at most.
_KEYS = 256
#: What rows of a block cost beside those of a warp: keys and values that are copied; and what a
#: few warps of an SM wait for each other.
_COPIES, _WAITS = 0.5, 4
#: Of steps: keys that could be multiplied in the time that one costs beside its products, warps
#: that double it as they wait for one another, and what copies cost that come late.
_TURN, _MEET, _EARLY = 12, 20, 0.5
#: Elements between rows in shared memory.
_GAP = 8
#: 16-bit numbers of 16 bytes.
_CHUNK = 8
#: Bytes of shared memory of an SM.
_SHARED = 160 * 1024
#: Of warpgroups: keys of a step; how many could be multiplied in the time that a step costs beside
#: them; registers that a compiler does without; and what few warps of an SM wait for each other.
_GROUP_STEPS, _STEP, _SPARED, _LATE = (64, 96, 128), 24, 32, 2.75
#: How much longer steps take that read as much of a mask ahead as more keys than these have.
_SEEN, _NARROW = 1.12, 64
#: Warps, keys of a step, and how many copies of what a step reads; registers of a thread, at most,
#: and how much faster keys are read for twice as many rows.
_WARPS, _STEPS, _STAGES, _MOST_HELD, _TWICE = range(1, 9), (64, 32), (3, 2), 240, 0.75


def suits(p: Problem) -> bool:
    """Whether tensor cores multiply it, and registers have room for its rows."""
    return (
        isinstance(p, Attention)
        and p.dtype in ("float16", "bfloat16")
        and p.accumulate == "float32"
        and max(p.depth, p.width) <= _WIDEST
    )


def suits_groups(p: Problem) -> bool:
    """Whether warpgroups multiply it, and TMA brings its keys and values: their rows are multiples
    of 16 bytes long, and fill matrices that are as high as a warpgroup's."""
    return (
        suits(p)
        and isinstance(p, Attention)
        and p.depth % _CHUNK == p.width % _CHUNK == 0
        and p.keys > GROUP_ROWS
        and p.rows > GROUP_ROWS // 2
    )


def attention_mma_times(p: Attention, target: Target) -> dict[AttentionMmaTile, float]:
    """For :func:`~tilewright.topi.sketches.attention_mma.schedule_attention_mma`, with how long
    they take beside one another, in no unit: of all keys at once where a thread has room for their
    scores, or in steps."""
    keys, depth, width = (-(-n // 16) * 16 for n in (p.keys, p.depth, p.width))
    found = dict[AttentionMmaTile, float]()
    for warps, high in product(_WARPS, (1, 2)):
        rows = 16 * high * warps
        if warps * high > 1 and rows >= p.rows + 16:
            continue
        cost = -(-p.rows // rows) * rows / p.rows * (1 + _COPIES / warps)
        shared = 2 * keys * (depth + width + 2 * _GAP)
        if keys <= _KEYS and shared <= COMMON_SHARED and high == 1:
            held = 18 + keys * 17 // 32 + width // 2 + depth // 4
            waits = _waits(warps, held, shared, _WAITS)
            found[AttentionMmaTile(warps)] = cost * waits
        for step, stages in product(_STEPS, _STAGES):
            shared = 2 * stages * step * (depth + width + 2 * _GAP)
            held = 20 + high * (3 * step // 4 + width // 2 + depth // 4)
            if step >= keys or shared > COMMON_SHARED or held > _MOST_HELD or warps % 2:
                continue
            filled = -(-keys // step) * step / keys * (1 + _TURN / step)
            each = (_TWICE if high == 2 else 1.0) * (1 + warps / _MEET) * (1 + _EARLY / stages)
            waits = _waits(warps, held, shared, _LATE)
            found[AttentionMmaTile(warps, step, stages, high)] = cost * filled * each * waits
    return found or {AttentionMmaTile(1, 16, 1): 0.0}


def _waits(warps: int, held: int, shared: int, late: float) -> float:
    """How much longer it takes as an SM has few warps, of which one alone would take ``late`` times
    as long more: of blocks whose threads hold as many registers, as NVRTC counted, and that have
    this much shared memory."""
    blocks = min(REGISTERS // (32 * held * warps), _SHARED // shared)
    return 1 + late / (max(1, blocks) * warps)


def attention_group_times(p: Attention, target: Target) -> dict[AttentionGroupTile, float]:
    """For :func:`~tilewright.topi.sketches.attention_wgmma.schedule_attention_wgmma`, with
    how long they take beside one another, in no unit: of the blocks that an SM has, as many at once
    as it has room for, and of the longest one, which may begin last."""
    depth, width = (-(-n // 64) * 64 for n in (p.depth, p.width))
    whole = [-(-p.keys // 16) * 16] if p.keys <= _KEYS else []
    found, masked = dict[AttentionGroupTile, float](), reads_mask_ahead(p)
    for groups, step in product(range(1, 5), (*whole, *_GROUP_STEPS)):
        steps, most = -(-p.keys // step), REGISTERS // (32 * 4 * groups)
        rows = GROUP_ROWS * groups
        stages = min(steps, 3)
        tile = AttentionGroupTile(groups, step, stages)
        shared = 2 * (stages * step * (depth + width) + rows * depth)
        held = 28 + width // 2 + (step // 2 if steps == 1 else step * 3 // 4)
        held += step * tile.masks // 8 * masked
        # What is read of a mask is held while it is awaited.
        if shared > H200.block_shared - RESERVED or held - _SPARED * (not masked) > most:
            continue
        each = -(-p.batch * p.heads * -(-p.rows // rows) // H200.sms)
        resident = max(1, occupancy(H200, 4 * groups, min(held, most), shared))
        full, rest = divmod(each, resident)
        # Blocks that all begin at once wait for the one with most steps.
        taken = _taken(p, rows, step) if p.causal and each > resident else steps
        work = groups * (step + _STEP)

        def time(blocks: int, work: float = work, groups: int = groups) -> float:
            """Of a step of some blocks at once."""
            return blocks * work * (1 + _LATE / (4 * groups * blocks)) if blocks else 0.0

        cost = taken * (full * time(resident) + time(rest)) + (steps - taken) * time(1)
        found[tile] = cost * (_SEEN if masked and step > _NARROW else 1.0)
    return found


def _taken(p: Attention, rows: int, step: int) -> float:
    """Steps that a block takes in the mean where rows attend to keys up to their own alone."""
    steps, ends = -(-p.keys // step), range(rows, p.rows + rows, rows)
    return sum(min(steps, -(-end // step)) for end in ends) / len(ends)
