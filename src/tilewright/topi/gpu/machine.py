"""What guesses at the time of a tile take a GPU for; what tiles of eight channels need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.target.devices import H200, REGISTERS, RESERVED, SCHEDULERS, WARP, Gpu
from tilewright.topi.columns import number
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import Convolution

#: Types of 16 bits, and channels of these in 16 bytes.
HALVES, CHANNELS = ("float16", "bfloat16"), 8


#: The GPU of which the guesses at times are.
MACHINE = H200
#: Bytes a microsecond that tiles reach from its second-level cache, and from its memory.
CACHE, MEMORY = 6.5 / 7 * MACHINE.cache, 4.2 / 4.3 * MACHINE.bandwidth
#: Bytes of shared memory of a block for barriers, and until swizzled memory begins.
BARRIERS = 1024
#: Cycles of an SM for one product of matrices, one load of operands, one instruction.
_PRODUCT, _LOAD, ISSUE = 1.65, 4.0, 1 / SCHEDULERS


def occupancy(machine: Gpu, warps: Any, registers: Any, shared: Any) -> Any:
    """Blocks that an SM holds, of ``warps`` warps, ``registers`` a thread, and ``shared`` bytes of
    shared memory beside what the system takes; integers, or columns.

    >>> occupancy(MACHINE, warps=8, registers=64, shared=40_000)
    4
    """
    fit = np.minimum(REGISTERS // (registers * WARP * warps), machine.warps // warps)
    fit = np.minimum(fit, machine.blocks)
    return number(np.minimum(machine.shared // (shared + RESERVED), fit))


def most_registers(warps: int) -> int:
    """Those that a thread of a block of some warps may have: warps are dealt out to schedulers,
    and registers by eights.

    >>> most_registers(8), most_registers(9), most_registers(4)
    (255, 168, 255)
    """
    held = REGISTERS // SCHEDULERS // (-(-warps // SCHEDULERS) * WARP)
    return min(held // 8 * 8, 255)


def busy(products: Any, loads: Any, others: Any) -> Any:
    """Cycles of an SM for what a warp does, with ``others`` more instructions."""
    issued = (products + loads + others) * ISSUE
    return ((products * _PRODUCT) ** 2 + (loads * _LOAD) ** 2 + issued**2) ** 0.5


def micros(
    issue: Any, cache: Any, memory: Any, waves: Any, waits: Any, resident: Any, few: int = 3
) -> Any:
    """Microseconds that a kernel is predicted to take.

    Parameters
    ----------
    issue, cache, memory : those of what SMs issue, of what comes through the second-level cache,
        and of what memory moves; the slowest hides most of the others.
    waves : how many times all SMs have the ``resident`` blocks that each holds, each of which
        ``waits`` for what it reads first. Of less than ``few`` the last, which is not full, counts.
    """
    slowest = np.sqrt(np.sqrt(issue**4 + cache**4 + memory**4))
    tail = (np.ceil(waves) / waves) ** (waves < few)
    return slowest * tail + np.ceil(waves) * waits / np.sqrt(resident)


def is_planar(p: Conv, types: Sequence[str] = HALVES) -> bool:
    """Whether a problem is one of images of two dimensions, in one of some types, by default those
    of 16 bits, with sums in float32."""
    return p.rank == 2 and p.dtype in types and p.accumulate == "float32"


def slides(p: Conv) -> bool:
    """Whether results are those of one filter a channel that slides over an image: of a forward
    pass, or of a gradient by the input without strides."""
    return (
        p.multiplier == 1
        and p.pass_ != "wgrad"
        and (p.pass_ == "forward" or p.stride == (1, 1))
        and not sees_nothing(p)
    )


def sees_nothing(p: Convolution) -> bool:
    """Whether all that windows see along a dimension is padding, as where they pass over a small
    image: TMA cannot be asked for that."""
    cut = Convolved(p)

    def beside(d: int) -> bool:
        windows = (at * cut.stride[d] - cut.before[d] for at in range(cut.result[d]))
        taps = range(0, cut.sees(d, 1), cut.dilation[d])
        return not any(0 <= first + tap < cut.image[d] for first in windows for tap in taps)

    return any(beside(d) for d in range(len(p.image)))
