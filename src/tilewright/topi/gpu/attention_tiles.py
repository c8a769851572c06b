"""The tiles worth trying for attention on tensor cores."""

from __future__ import annotations

from itertools import product

from tilewright.target.devices import COMMON_SHARED, REGISTERS
from tilewright.target.target import Target
from tilewright.topi.operators.attention import Attention
from tilewright.topi.pieces.attention import GROUP_ROWS, AttentionGroupTile, AttentionMmaTile
from tilewright.topi.problem import Problem

#: Elements of a query, or of a value, whose parts registers have room for.
_WIDEST = 128
#: Keys of which a thread has the scores of its rows in registers, at most.
_KEYS = 256
#: What rows of a block cost beside those of a warp: keys and values that are copied; and what a
#: few warps of an SM wait for each other.
_COPIES, _WAITS = 0.5, 4
#: Keys that could be multiplied in the time that a step costs beside its products.
_TURN = 8
#: Elements between rows in shared memory.
_GAP = 8
#: 16-bit numbers of 16 bytes.
_CHUNK = 8
#: Bytes of shared memory of an SM.
_SHARED = 160 * 1024
#: Bytes of shared memory of a block, and registers of a thread, at most.
_MOST_SHARED, _MOST_HELD = 200 * 1024, 200
#: Warps, keys of a step, and how many copies of what a step reads.
_WARPS, _STEPS, _STAGES = range(1, 9), (64, 128, 32), (2, 3)


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
    of 16 bytes long, and there are some steps of them."""
    return (
        suits(p)
        and isinstance(p, Attention)
        and p.depth % _CHUNK == p.width % _CHUNK == 0
        and not has_few_keys(p)
    )


def has_few_keys(p: Attention) -> bool:
    """Whether registers have room for the scores of all keys, which are made once then."""
    return p.keys <= _KEYS


def attention_mma_tiles(p: Attention, target: Target) -> list[AttentionMmaTile]:
    """For :func:`~tilewright.topi.sketches.attention_mma.schedule_attention_mma`, the best guess
    first: scores are made once where a thread has room for those of all keys."""
    keys, depth, width = (-(-n // 16) * 16 for n in (p.keys, p.depth, p.width))
    found = []
    for warps in _WARPS:
        rows = 16 * warps
        if warps > 1 and rows >= p.rows + 16:
            continue
        cost = -(-p.rows // rows) * rows / p.rows * (1 + _COPIES / warps)
        shared = 2 * keys * (depth + width + 2 * _GAP)
        if keys <= _KEYS and shared <= COMMON_SHARED:
            held = 18 + keys * 17 // 32 + width // 2 + depth // 4
            waits = _waits(warps, held, shared)
            found.append((cost * waits, AttentionMmaTile(warps)))
        for step, stages in product(_STEPS, _STAGES):
            shared = 2 * stages * step * (depth + width + 2 * _GAP)
            if step < keys and shared <= COMMON_SHARED and warps % 2 == 0:
                # Scores are made twice, and threads wait for each other in each step.
                filled = 1.5 * (-(-keys // step) * step / keys) * (1 + _TURN / step)
                held = 36 + step + width // 2 + depth // 4
                waits = _waits(warps, held, shared)
                found.append((cost * filled * waits, AttentionMmaTile(warps, step, stages)))
    return [tile for _, tile in sorted(found, key=lambda x: x[0])] or [AttentionMmaTile(1, 16, 1)]


def _waits(warps: int, held: int, shared: int) -> float:
    """How much longer it takes as an SM has few warps, of blocks whose threads hold as many
    registers, as NVRTC counted, and that have this much shared memory."""
    blocks = min(REGISTERS // (32 * held * warps), _SHARED // shared)
    return 1 + _WAITS / (max(1, blocks) * warps)


def attention_group_tiles(p: Attention, target: Target) -> list[AttentionGroupTile]:
    """For :func:`~tilewright.topi.sketches.attention_wgmma.schedule_attention_wgmma`, the best
    guess first."""
    depth, width = (-(-n // 64) * 64 for n in (p.depth, p.width))
    found = []
    for groups, step, stages in product((1, 2, 3), (64, 96, 128), (2, 3)):
        rows = GROUP_ROWS * groups
        shared = 2 * stages * step * (depth + width)
        held = 24 + step * 3 // 4 + width // 2 + depth // 4
        if shared > _MOST_SHARED or 128 * groups * held > REGISTERS or held > _MOST_HELD:
            continue
        cost = -(-p.rows // rows) * rows / p.rows * (1 + _COPIES / groups)
        cost *= -(-p.keys // step) * step / p.keys * (1 + _TURN / step)
        found.append(
            (cost * _waits(4 * groups, held, shared), AttentionGroupTile(groups, step, stages))
        )
    return [tile for _, tile in sorted(found, key=lambda x: x[0])]
