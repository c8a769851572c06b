"""The parameters worth trying for a problem on a CPU, the best guess first.

Sums should fill the vector registers and not more: a core that is slow to add has to have some ten
sums in flight, and what does not fit is spilled.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TypeVar

from tilewright.ir.dtype import dtype
from tilewright.ir.errors import TargetError
from tilewright.target.target import Target
from tilewright.topi.cpu.depthwise_blocks import BlockTile
from tilewright.topi.cpu.depthwise_channels import ChannelTile
from tilewright.topi.cpu.depthwise_fast_fir import FirTile
from tilewright.topi.cpu.depthwise_lines import LineTile
from tilewright.topi.cpu.depthwise_pairs import PairTile
from tilewright.topi.cpu.depthwise_wgrad import GradTile
from tilewright.topi.operators.conv import Conv
from tilewright.topi.problem import Problem

_Tile = TypeVar("_Tile", ChannelTile, BlockTile, LineTile)
#: Bytes of a line of the caches.
_LINE = 64


def features(target: Target) -> frozenset[str]:
    """What the processor of a target has, in LLVM's names."""
    from tilewright.runtime.llvm_host import processor

    try:
        return processor(target.arch).features
    except TargetError:  # code for a machine that this one is not
        return frozenset()


def lanes(p: Problem, target: Target) -> int:
    """Sums in a vector of the target."""
    has = features(target)
    size = 64 if "avx512f" in has else 32 if "avx2" in has else 16
    return size // (8 if p.accumulate == "float64" else 4)


def power(most: int) -> int:
    """The greatest power of two that is not more."""
    return 1 << (most.bit_length() - 1)


def registers(target: Target, lanes_: int) -> int:
    """Vectors of sums that leave registers for what they are made of."""
    return 24 if lanes_ >= 16 else 12


def _cover(extent: int, limit: int) -> list[int]:
    """Sizes of tiles, the one that costs least for ``extent`` first.

    A tile costs its size, what lies beyond the end included, and something for itself.
    """
    sizes = [s for s in range(1, limit + 1) if s <= extent]
    return sorted(sizes, key=lambda s: (-(-extent // s) * (s + 1.5), -s))


def _groups(p: Conv) -> tuple[int, int, int]:
    """Rows and columns of what a tile is a part of, and the sums that each of its pixels has."""
    if p.pass_ != "dgrad":
        return *p.out_image, 1
    (h, w), (sh, sw) = p.image, p.stride
    return -(-h // sh), -(-w // sw), sh * sw


def exceeds_caches(p: Conv, target: Target) -> bool:
    """Whether the result alone is more than the last-level cache holds.

    Then nothing that reads it afterwards finds it there. Results that fit are better kept, although
    a kernel by itself, whose result nobody reads, is faster if it streams them.
    """
    from tilewright.runtime.caches import last_level
    from tilewright.runtime.llvm_host import thread_count

    nbytes = prod(p.result_shape) * dtype(p.dtype).bytes
    return nbytes > last_level(thread_count(target))


def _streamed(found: list[_Tile], p: Conv, target: Target, row: int) -> list[_Tile]:
    """With streaming stores where they pay: vectors are lines, of which rows of ``row`` elements
    consist. Next to the first guess stands the same without them."""
    wide = lanes(p, target)
    whole = wide * dtype(p.dtype).bytes == _LINE and row % wide == 0
    if not whole or not exceeds_caches(p, target):
        return found
    first, *others = (replace(tile, stream=1) for tile in found)
    return [first, found[0], *others]


def channel_tiles(p: Conv, target: Target) -> list[ChannelTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_channels.schedule_channels`."""
    wide = lanes(p, target)
    height, width, phases = _groups(p)
    limit = max(1, registers(target, wide) // phases)
    taps = 3 if p.kernel_h <= 3 and p.kernel_w <= 5 else 1
    # Where all taps are written out, registers hold what is loaded beside the sums.
    shapes = [
        (2, 4, 1),
        (3, 4, 1),
        (2, 2, 2),
        (2, 7, 1),
        (1, 7, 1),
        (2, 4, 2),
        (1, 4, 1),
        (1, 8, 2),
    ]
    if taps == 1:
        shapes = [(2, 7, 1), (1, 8, 1), (2, 4, 2), (2, 4, 1), (1, 4, 2), (1, 12, 1), (3, 4, 1)]
    found = [
        ChannelTile(columns, vectors, wide, rows, taps)
        for rows, most, vectors in shapes
        if rows <= height and rows * vectors <= limit
        for columns in _cover(width, min(limit // (rows * vectors), most))[:1]
    ]
    found += [ChannelTile(columns, 1, wide, 1, taps, 8) for columns in _cover(width, 8)[:1]]
    return _streamed(found or [ChannelTile(1, 1, wide)], p, target, p.result_shape[-1])


#: The number of taps from which copying the part of an image that a task reads may pay.
_COPY = 100
#: The least number of tasks that share the work well among some threads.
_TASKS = 8
#: What blocks try: rows and columns of a tile, vectors, and whether the image is copied.
_WRITTEN_OUT = (
    (3, 4, 8, 0), (2, 4, 2, 0), (3, 4, 2, 0), (2, 7, 8, 0),
    (2, 4, 8, 0), (2, 7, 1, 0), (3, 4, 1, 0), (2, 4, 4, 0),
)  # fmt: skip
_MIDDLE = (
    (1, 16, 2, 0), (2, 8, 2, 0), (3, 4, 8, 0), (1, 16, 1, 0),
    (4, 4, 1, 0), (1, 16, 2, 1), (4, 4, 1, 1), (2, 8, 1, 1),
)  # fmt: skip
_LARGE = (
    (4, 4, 1, 1), (1, 16, 1, 1), (2, 8, 1, 1), (4, 4, 2, 1),
    (1, 16, 2, 1), (1, 8, 1, 1), (2, 8, 1, 0), (1, 16, 2, 0),
)  # fmt: skip


def suits_blocks(p: Conv) -> bool:
    """Whether channels of the result read the same channels of the image, and all pixels alike."""
    return p.multiplier == 1 and (p.pass_ == "forward" or p.stride == (1, 1))


def block_tiles(p: Conv, target: Target) -> list[BlockTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_blocks.schedule_blocks`."""
    wide = lanes(p, target)
    height, width, _ = _groups(p)
    limit = registers(target, wide) * 2 // 3
    small, reach = p.kernel_h <= 3 and p.kernel_w <= 5, p.kernel_h * p.kernel_w
    taps = 3 if small else 1
    blocks = -(-p.channels // wide)
    found = []
    for rows, most, vectors, copy in (
        _WRITTEN_OUT if small else _LARGE if reach >= _COPY else _MIDDLE
    ):
        fit = min(most, limit // rows)
        if rows > height or fit < min(most, 4):
            continue
        columns = _cover(width, fit)[0]
        vectors = min(vectors, blocks)
        bands = -(-_TASKS // (p.batch * -(-blocks // vectors)))
        tiles = -(-height // rows)
        band = 0 if bands == 1 else -(-tiles // bands)
        found.append(BlockTile(rows, columns, wide, taps, band, copy, vectors))
    found = found or [BlockTile(1, _cover(width, limit)[0], wide)]
    return _streamed(found, p, target, p.result_shape[-1])


#: The number of taps within the image, a pixel, that pays for additions that save products.
_MANY_TAPS = 300
#: What fast FIR algorithms try: halvings, rows and columns of a tile, columns of the filter.
_HALVED = ((1, 1, 4, 4, 2), (1, 1, 4, 2, 2), (1, 1, 4, 4, 4), (1, 2, 2, 8, 3))
_HALVED_NARROW = ((1, 1, 4, 2, 2), (1, 1, 2, 4, 2), (1, 2, 2, 4, 3))


def suits_fir(p: Conv) -> bool:
    """Whether the filter is so large that fewer products are worth it."""
    pixels = p.batch * p.out_channels * p.out_image[0] * p.out_image[1]
    return (
        p.rank == 2
        and p.multiplier == 1
        and p.stride == p.dilation == (1, 1)
        and p.accumulate in ("float32", "float64")
        and p.flops >= 2 * _MANY_TAPS * pixels
    )


def fir_tiles(p: Conv, target: Target) -> list[FirTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_fast_fir.schedule_fir`."""
    wide = lanes(p, target)
    blocks = -(-p.channels // wide)
    images = max(1, min(p.batch, p.batch * blocks // _TASKS))
    return [
        FirTile(down, across, rows, columns, taps, wide, 1, images)
        for down, across, rows, columns, taps in (_HALVED if wide >= 16 else _HALVED_NARROW)
    ]


def suits_pairs(p: Conv) -> bool:
    """Whether a problem is one of bfloat16 with enough taps to pay for putting them in pairs."""
    return (
        p.rank == 2
        and p.dtype == "bfloat16"
        and p.accumulate == "float32"
        and p.multiplier == 1
        and p.stride == p.dilation == (1, 1)
        and p.kernel_w >= 4
        and p.kernel_h * p.kernel_w >= 25
    )


#: What pairs try: rows and columns of a tile, pairs of taps written out, rows one by one.
_PAIRED = ((2, 8, 1, 1), (4, 4, 1, 1), (4, 4, 2, 0), (2, 8, 2, 1), (2, 8, 1, 0), (1, 16, 1, 1))


def pair_tiles(p: Conv, _: Target) -> list[PairTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_pairs.schedule_pairs`."""
    height, width, _phases = _groups(p)
    fit = [t for t in _PAIRED if t[0] <= height and t[1] < 2 * width]
    return [PairTile(*t) for t in fit] or [PairTile(1, 4)]


def line_tiles(p: Conv, target: Target) -> list[LineTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_lines.schedule_lines`."""
    wide = lanes(p, target)
    rows_of, columns_of, phases = _groups(p)
    limit = max(1, registers(target, wide) // phases)
    most = -(-columns_of // wide)
    found = [
        LineTile(rows, vectors, wide, taps)
        for vectors in sorted({min(most, v, limit) for v in (2, 1, 4)}, key=lambda v: abs(v - 2))
        for rows in _cover(rows_of, min(8, max(1, limit // vectors)))[:3]
        for taps in dict.fromkeys(
            min(k, p.kernel_h) for k in ((7, 3) if p.kernel_h > 7 else (3, 7))
        )
    ]
    return _streamed(found or [LineTile(1, 1, wide, 1)], p, target, p.result_shape[-1])


def grad_tiles(p: Conv, target: Target) -> list[GradTile]:
    """For the schedules of :mod:`~tilewright.topi.cpu.depthwise_wgrad`."""
    wide = lanes(p, target)
    limit = max(1, registers(target, wide) // p.kernel_w)
    rows = list(dict.fromkeys((min(p.kernel_h, limit), min(p.kernel_h, max(1, limit // 2)), 1)))
    pixels = (1, 2, 4) if p.layout.endswith("C") and p.kernel_w <= 9 else (1,)
    vectors = (1, 2) if p.layout.endswith("C") else (1,)
    return [GradTile(r, v, wide, px) for v in vectors for px in pixels for r in rows]
