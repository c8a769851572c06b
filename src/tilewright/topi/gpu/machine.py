"""An H200, as guesses at the time of a tile see it; what tiles of eights of channels ask for."""

from __future__ import annotations

import math

from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.problem import Problem

#: Channels of 16 bits in 16 bytes.
CHANNELS = 8


class Machine:
    """Cycles of a multiprocessor in a microsecond, bytes that the second-level cache and memory
    move in one; of a multiprocessor, bytes of shared memory, registers, warps and blocks; bytes
    that a block takes beside its tiles."""

    CYCLES, CACHE, MEMORY = 1755.0, 6.5e6, 4.2e6
    SHARED, REGISTERS, WARPS, BLOCKS, OWN = 227 * 1024, 65536, 64, 32, 1100
    #: Cycles of a multiprocessor for one product, one load of operands, one instruction.
    PRODUCT, LOAD, ISSUE = 1.65, 4.0, 0.25

    @classmethod
    def resident(cls, warps: int, registers: int, space: int) -> int:
        """Blocks of so many warps, registers a thread and bytes that a multiprocessor holds."""
        room = min(cls.REGISTERS // (warps * 32 * registers), cls.WARPS // warps, cls.BLOCKS)
        return min(cls.SHARED // space, room)

    @classmethod
    def busy(cls, products: int, loads: int, eights: int, others: int) -> float:
        """Cycles of a multiprocessor for what a warp does, with so many ``others`` instructions.
        Pixels of even eights of channels meet the same banks, unless they are swizzled."""
        passes = 1 if eights in (2, 4, 8) else math.gcd(eights, 8)
        pipes = products * cls.PRODUCT, loads * passes * cls.LOAD
        issued = (products + loads + others) * cls.ISSUE
        return math.pow(pipes[0] ** 2 + pipes[1] ** 2 + issued**2, 0.5)


def has_eights(p: Problem) -> bool:
    """Whether a problem, of any pass, is of 16 bits and of eights of channels."""
    return (
        p.rank == 2
        and p.dtype in ("float16", "bfloat16")
        and p.accumulate == "float32"
        and p.multiplier == 1
        and p.channels % CHANNELS == 0
        and (p.pass_ != "dgrad" or p.stride == (1, 1))
    )


def sees_nothing(p: Problem) -> bool:
    """Whether all that windows see along rows, or along columns, is padding, as where they pass
    over a small image: no copying unit can be asked for that."""
    cut = Convolved(p)

    def beside(d: int) -> bool:
        windows = (at * cut.stride[d] - cut.before[d] for at in range(cut.result[d]))
        taps = range(0, cut.sees(d, 1), cut.dilation[d])
        return not any(0 <= first + tap < cut.image[d] for first in windows for tap in taps)

    return beside(0) or beside(1)


def eights_of(p: Problem) -> list[int]:
    """Eights of channels that blocks may have without much waste, one at least."""
    few = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12)
    return [n for n in few if whole(p.channels, n * CHANNELS) <= 1.15 * p.channels]
