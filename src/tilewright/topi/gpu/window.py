"""What the tiles of a depthwise convolution cost a thread, before anything is compiled."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache

from tilewright.ir.dtype import dtype
from tilewright.topi.problem import Problem

#: Threads that keep a large GPU busy, and the multiprocessors of one.
BUSY, MULTIPROCESSORS = 100_000, 132
#: Threads of a warp, banks of shared memory, and bytes of one.
_WARP, _BANKS, _BANK = 32, 32, 4
#: Multiplications written out in a kernel, at most: what NVRTC compiles in a second or two.
CODE = 4096
#: Registers of a thread that sums and inputs may fill, beside addresses and the like.
REGISTERS = 200


class Window:
    """The input that a tile of results sees, in forward passes and gradients by the input.

    Attributes
    ----------
    phases : by dimension, the stride of a gradient by the input, whose results are of so many
        kinds; 1 elsewhere.
    groups : the results of a kind along each dimension.
    """

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.gathers = p.pass_ == "dgrad"
        self.phases = p.stride if self.gathers else (1, 1)
        image = p.image if self.gathers else p.out_image
        self.groups = tuple(-(-e // s) for e, s in zip(image, self.phases, strict=True))

    def taps(self, k: int) -> int:
        """Along one dimension, those that one result sees."""
        return -(-self.p.kernel[k] // self.phases[k])

    def seen(self, k: int, results: int, taps: int) -> int:
        """Inputs along one dimension of so many results and taps."""
        step = 1 if self.gathers else self.p.stride[k]
        spread = 1 if self.phases[k] > 1 else self.p.dilation[k]
        return (results - 1) * step + (taps - 1) * spread + 1

    def registers(
        self, rows: int, columns: int, lanes: int, taps: int, by_row: bool, wide: bool
    ) -> float:
        """Sums, and inputs as they are kept: in 16 bits, or converted (``wide``)."""
        kinds = self.phases[0] * self.phases[1]
        kept = taps if by_row else self.seen(0, rows, taps)
        inputs = kept * self.seen(1, columns, self.taps(1)) * lanes
        narrow = dtype(self.p.dtype).bytes == 2 and not wide
        return (1 if by_row else rows) * columns * lanes * kinds + inputs / (2 if narrow else 1)

    def code(self, rows: int, columns: int, lanes: int, taps: int) -> int:
        """Multiplications written out."""
        kinds = self.phases[0] * self.phases[1]
        return rows * columns * lanes * kinds * taps * self.taps(1)

    def loads(self, rows: int, columns: int, taps: int) -> float:
        """Inputs loaded for each result of a kind."""
        block = self.seen(0, rows, taps) * self.seen(1, columns, self.taps(1))
        return block * -(-self.taps(0) // taps) / (rows * columns)

    def waste(self, rows: int, columns: int) -> float:
        """Results computed for each that there is."""
        return math.prod(
            -(-g // n) * n / g for g, n in zip(self.groups, (rows, columns), strict=True)
        )


def power(limit: int) -> int:
    """The largest power of two up to ``limit``."""
    return 1 << (max(1, limit).bit_length() - 1)


def cover(extent: int, most: int) -> int:
    """The number of threads, at most ``most``, that cover ``extent`` with the least waste."""
    rounds = -(-extent // most)
    return -(-extent // rounds)


def divisor(extent: int, most: int) -> int:
    """The largest divisor of ``extent`` up to ``most``."""
    return next(d for d in range(min(extent, most), 0, -1) if extent % d == 0)


def guess(loads: float, threads: float, width: float, held: float) -> float:
    """How slow a tile may be: loads for each result, dearer where they are narrow (``width``, in
    bytes) or too few threads run to hide the time that they take, for want of work or because each
    holds many registers."""
    narrow, idle = math.sqrt(16 / min(16, width)), math.sqrt(max(1.0, BUSY / threads))
    return (loads + 2) * narrow * idle * max(1.0, held / 64) ** 2


@cache
def passes(extents: tuple[int, ...], apart: tuple[int, ...]) -> int:
    """Passes over the banks of shared memory that a warp takes to read.

    Of one bank a warp reads one word in a pass; its lanes go through axes of so many parts that
    are so many bytes apart, and each reads as many bytes as the first ones are.
    """
    words = set()
    for thread in range(_WARP):
        place = 0
        for extent, distance in zip(extents, apart, strict=True):
            place += thread % extent * distance
            thread //= extent
        words |= {place // _BANK + k for k in range(-(-apart[0] // _BANK))}
    return max(Counter(word % _BANKS for word in words).values())
