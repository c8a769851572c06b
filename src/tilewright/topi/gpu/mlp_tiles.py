"""The tiles worth trying for two products in one kernel: on Hopper, and of few rows."""

from __future__ import annotations

import functools
import math
from itertools import product

from tilewright.ir.dtype import dtype
from tilewright.target.devices import H200, WARP, WIDEST
from tilewright.topi.gpu.box_cluster_tiles import SLOTS, exchanged
from tilewright.topi.gpu.machine import BARRIERS, occupancy
from tilewright.topi.operators.mlp import Mlp
from tilewright.topi.pieces.cluster_sums import lanes_of, parts_bytes
from tilewright.topi.pieces.group_rows import GROUP_ROWS, LANES, ROW
from tilewright.topi.pieces.mlp import MlpTile
from tilewright.topi.problem import Problem
from tilewright.topi.sketches.few_rows import FewRowTile

#: Columns whose sums registers have room for beside those of a step, and registers of a thread.
_WIDEST, _MOST = 192, 255
#: Elements of a row that a thread has in registers to normalise it.
_DEEPEST = 256
#: Warpgroups, hidden elements of a step, and copies of what a step reads.
_GROUPS, _STEPS, _STAGES = (1, 2, 3, 4), (32, 64, 128), (2, 3, 4)
#: What is added to a variance at least where that may be zero: the root of less is none of float32.
_SMALL = 1e-36
#: Rows that are few, and the microseconds of one kernel of them beyond which two are no slower.
_FEW, _LONGEST = 64, 2.2
#: Microseconds that such a kernel adds to a network, and a vector of weights of a thread; bytes of
#: weights that a block reads in one; and bytes of what is hidden, at most. Fitted to 14 tiles of
#: EfficientNet-B0 at a batch of 1 on an H200, where two kernels add 1.8 to 2.4.
_ADDS, _VECTOR, _RATE, _HIDDEN = 0.9, 0.12, 50e3, 16 << 10
#: 16-bit numbers of 16 bytes.
_CHUNK = 8
#: Microseconds: of a launch, of rows that are normalised, of 64 hidden elements, and of each
#: warpgroup of an SM for them; how much longer steps take by each element of a row more than 256,
#: of few hidden elements, and with one copy ahead by each warpgroup, where an SM has one block.
#: Fitted to 50 times of ConvNeXt's layers at batches of 1, 8 and 64 on an H200; and what each
#: doubling of a cluster takes beside what it exchanges, to three at batch 1.
_BEGIN, _NORM, _STEP, _EACH, _MEETING = 1.5, 0.7, 0.75, 0.67, 0.85
_LONGER, _SHORT, _LATE = 0.0005, 1.2, 0.06


@functools.lru_cache(maxsize=64)
def mlp_times(p: Problem) -> dict[MlpTile, float]:
    """For :func:`~tilewright.topi.sketches.mlp.schedule_mlp`, where warpgroups multiply it and TMA
    brings its factors: tiles, and what they are predicted to take, in microseconds."""
    if (
        not isinstance(p, Mlp)
        or p.dtype not in ("float16", "bfloat16")
        or p.accumulate != "float32"
        or p.k % _CHUNK
        or p.n % _CHUNK
        or p.m <= GROUP_ROWS // 2
        or (p.norm and p.k > _DEEPEST)
    ):
        return {}
    depth, width = (-(-n // ROW) * ROW for n in (p.k, p.n))
    numbers = sum(
        math.prod(t.shape[1:]) * dtype(t.dtype).bytes
        for name, t in p.inputs().items() if name.startswith("inner_")
    )  # fmt: skip
    # Hidden elements that a step is filled up with have a variance of zero.
    exact = any("norm" in step.name and step.values[0] < _SMALL for step in p.steps)
    found: dict[MlpTile, float] = {}
    for groups, step, most, splits in product(_GROUPS, _STEPS, _STAGES, (1, *SLOTS)):
        rows, steps = GROUP_ROWS * groups, -(-p.hidden // step)
        if steps % splits or not lanes_of(rows * p.n, splits, groups * LANES):
            continue
        steps //= splits
        stages = min(most, steps)
        ahead = stages * step * (2 * (depth + width) + numbers)
        shared = 2 * rows * depth * (2 if p.norm else 1) + ahead + BARRIERS
        shared += parts_bytes(rows, width) * (splits > 1)
        registers = width // 2 + step * 3 // 4 + _others(width, stages)
        if width > _WIDEST or registers > _MOST or (exact and p.hidden % step):
            continue
        resident = occupancy(H200, groups * LANES // WARP, -(-registers // 8) * 8, shared)
        if not resident:
            continue
        blocks = -(-p.m // rows) * splits
        resident = min(resident, -(-blocks // H200.sms))
        if splits > 1 and blocks > resident * SLOTS[splits]:
            continue
        each = (_STEP + _EACH * groups * resident) * step / 64 * (_SHORT if step < 64 else 1)
        each *= 1 + _LONGER * (depth + width - 256)
        each *= 1 + _LATE * groups * (stages < 3 and resident == 1)
        rounds = -(-blocks // (H200.sms * resident))
        found[MlpTile(groups, step, stages, splits)] = (
            _BEGIN + rounds * (steps * each + _NORM * bool(p.norm))
            + _MEETING * math.log2(splits) + exchanged(rows * width, splits)
        )  # fmt: skip
    return found


def _others(width: int, stages: int) -> int:
    """Registers of a thread beside its sums, as NVRTC counted."""
    return 68 if width > 2 * ROW else 28 if stages > 2 else 16


@functools.lru_cache(maxsize=64)
def few_row_times(p: Problem) -> dict[FewRowTile, float]:
    """For :func:`~tilewright.topi.sketches.few_rows.schedule_few_rows`, where blocks that compute
    all that is hidden of their rows are worth it: tiles, and what they are predicted to take, in
    microseconds."""
    if not isinstance(p, Mlp) or p.norm or p.m > _FEW:
        return {}
    size = dtype(p.dtype).bytes
    vector = next(v for v in (8, 4, 2, 1) if p.k % v == 0 and v * size <= WIDEST)
    found: dict[FewRowTile, float] = {}
    for rows, threads, lanes, columns in product(
        (1, 2, 4, 8), (128, 256, 512), (8, 16, 32), (2, 1)
    ):
        if p.n % columns or (rows > 1 and rows >= 2 * p.m) or rows * p.hidden * size > _HIDDEN:
            continue
        across = -(-p.n // (threads * columns))
        blocks = -(-p.m // rows) * across
        turns = -(-p.hidden // (threads // lanes))
        vectors = rows * turns * -(-p.k // (lanes * vector))
        read = p.hidden * (p.k + min(p.n, threads * columns)) * size
        takes = _ADDS + vectors * _VECTOR + -(-blocks // H200.sms) * read / _RATE
        found[FewRowTile(rows, threads // lanes, lanes, vector, columns)] = takes
    return found if min(found.values(), default=math.inf) < _LONGEST else {}
