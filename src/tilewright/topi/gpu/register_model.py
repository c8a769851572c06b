"""What the tiles of a depthwise convolution cost a thread, before anything is compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.topi.columns import Array, number
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import Convolution

#: Threads that keep a large GPU busy.
BUSY = 100_000
#: Multiplications written out in a kernel, at most: what NVRTC compiles in a second or two.
CODE = 4096
#: Registers of a thread that sums and inputs may fill, beside addresses and the like.
REGISTERS = 200


def in_planes(p: Convolution) -> Conv:
    """A depthwise problem as one of images of two dimensions: each plane of a result is one."""
    if isinstance(p, Conv):
        return p
    images = p.image if p.pass_ == "dgrad" else p.out_image
    rows, columns = p.dims[-2:]
    return Conv(
        operator="depthwise_conv2d", pass_=p.pass_, batch=p.batch * math.prod(images[:-2]),
        channels=p.channels, height=rows.extent, width=columns.extent, multiplier=p.multiplier,
        kernel_h=rows.taps, kernel_w=columns.taps, stride=(rows.stride, columns.stride),
        dilation=(rows.dilation, columns.dilation),
        padding=(rows.before, columns.before, rows.after, columns.after), dtype=p.dtype,
        accumulate=p.accumulate, layout="NHWC" if p.channels_last else "NCHW",
    )  # fmt: skip


def planes_seen(p: Convolution) -> int:
    """Planes of an image that one of a result sees."""
    strides = p.stride if p.pass_ == "dgrad" else [1] * len(p.stride)
    return math.prod(-(-k // s) for k, s in zip(p.kernel[:-2], strides, strict=False))


class Window:
    """The input that a tile of results sees, in forward passes and gradients by the input.

    What is counted of tiles are integers, or columns.

    Attributes
    ----------
    phases : by dimension, the stride of a gradient by the input, whose results are of that number
        of kinds; 1 elsewhere.
    groups : the results of a kind along each dimension.
    planes : of the image, that a result sees.
    """

    def __init__(self, given: Convolution) -> None:
        self.p = p = in_planes(given)
        self.planes = planes_seen(given)
        self.gathers = p.pass_ == "dgrad"
        self.phases = p.stride if self.gathers else (1, 1)
        image = p.image if self.gathers else p.out_image
        self.groups = tuple(-(-e // s) for e, s in zip(image, self.phases, strict=True))

    def taps(self, k: int) -> int:
        """Along one dimension, those that one result sees."""
        return -(-self.p.kernel[k] // self.phases[k])

    def seen(self, k: int, results: Any, taps: Any) -> Any:
        """Inputs along one dimension of given results and taps."""
        step = 1 if self.gathers else self.p.stride[k]
        spread = 1 if self.phases[k] > 1 else self.p.dilation[k]
        return (results - 1) * step + (taps - 1) * spread + 1

    def registers(
        self, rows: Any, columns: Any, lanes: Any, taps: Any, by_row: Any, wide: Any
    ) -> Any:
        """Sums, and inputs as they are kept: in 16 bits, or converted (``wide``), as bytes are."""
        kinds = self.phases[0] * self.phases[1]
        kept = np.where(by_row, taps * self.planes, self.seen(0, rows, taps))
        inputs = kept * self.seen(1, columns, self.taps(1)) * lanes
        # What several planes of taps need is kept as it is multiplied.
        packed = dtype(self.p.dtype).bytes == 2 and self.planes == 1
        narrow = np.where(wide, 1, 2) if packed else 1
        return np.where(by_row, 1, rows) * columns * lanes * kinds + inputs / narrow

    def code(self, rows: Any, columns: Any, lanes: Any, taps: Any) -> Any:
        """Multiplications written out."""
        kinds = self.phases[0] * self.phases[1]
        return rows * columns * lanes * kinds * taps * self.taps(1) * self.planes

    def loads(self, rows: Any, columns: Any, taps: Any) -> Any:
        """Inputs loaded for each result of a kind."""
        block = self.seen(0, rows, taps) * self.seen(1, columns, self.taps(1))
        return block * -(-self.taps(0) // taps) * self.planes / (rows * columns)

    def waste(self, rows: Any, columns: Any) -> Any:
        """Results computed for each that there is."""
        return math.prod(
            -(-g // n) * n / g for g, n in zip(self.groups, (rows, columns), strict=True)
        )


def power(limit: Any) -> Any:
    """The largest power of two up to ``limit``."""
    return number(1 << (np.frexp(np.maximum(1, limit))[1] - 1))


def cover(extent: Any, most: Any) -> Any:
    """The number of threads, at most ``most``, that cover ``extent`` with the least waste."""
    rounds = -(-extent // most)
    return -(-extent // rounds)


def divisor(extent: int, most: int) -> int:
    """The largest divisor of ``extent`` up to ``most``."""
    return next(d for d in range(min(extent, most), 0, -1) if extent % d == 0)


def divisors(extent: int, most: int) -> Array:
    """By number up to ``most``, the largest divisor of ``extent`` up to that."""
    numbers = np.arange(most + 1)
    divides = extent % np.maximum(1, numbers) == 0
    return np.maximum.accumulate(np.where(divides, numbers, 0))


def guess(loads: Any, threads: Any, width: Any, held: Any) -> Any:
    """How slow a tile may be: loads for each result, dearer where they are narrow (``width``, in
    bytes) or too few threads run to hide the time that they take, for want of work or because each
    holds many registers."""
    narrow, idle = (16 / np.minimum(16, width)) ** 0.5, np.maximum(1.0, BUSY / threads) ** 0.5
    return (loads + 2) * narrow * idle * np.maximum(1.0, held / 64) ** 2
