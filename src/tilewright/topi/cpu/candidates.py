"""The parameters worth trying for a problem on a CPU, the best guess first.

Sums should fill the vector registers and not more: a core that is slow to add has to have some ten
sums in flight, and what does not fit is spilled.
"""

from __future__ import annotations

from tilewright.ir.errors import TargetError
from tilewright.target.target import Target
from tilewright.topi.cpu.depthwise_blocks import BlockTile
from tilewright.topi.cpu.depthwise_channels import ChannelTile
from tilewright.topi.cpu.depthwise_lines import LineTile
from tilewright.topi.cpu.depthwise_wgrad import GradTile
from tilewright.topi.problem import Problem


def lanes(p: Problem, target: Target) -> int:
    """Sums in a vector of the target."""
    from tilewright.runtime.llvm_host import processor

    try:
        features = processor(target.arch).features
    except TargetError:  # code for a machine that this one is not
        features = frozenset()
    size = 64 if "avx512f" in features else 32 if "avx2" in features else 16
    return size // (8 if p.accumulate == "float64" else 4)


def registers(target: Target, lanes_: int) -> int:
    """Vectors of sums that leave room for what they are made of."""
    return 24 if lanes_ >= 16 else 12


def _cover(extent: int, room: int) -> list[int]:
    """Sizes of tiles, the one that costs least for ``extent`` first.

    A tile costs its size, what lies beyond the end included, and something for itself.
    """
    sizes = [s for s in range(1, room + 1) if s <= extent]
    return sorted(sizes, key=lambda s: (-(-extent // s) * (s + 1.5), -s))


def _groups(p: Problem) -> tuple[int, int, int]:
    """Rows and columns of what a tile is a part of, and the sums that each of its pixels has."""
    if p.pass_ != "dgrad":
        return *p.out_image, 1
    (h, w), (sh, sw) = p.image, p.stride
    return -(-h // sh), -(-w // sw), sh * sw


def channel_tiles(p: Problem, target: Target) -> list[ChannelTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_channels.schedule_channels`."""
    wide = lanes(p, target)
    height, width, phases = _groups(p)
    room = max(1, registers(target, wide) // phases)
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
        if rows <= height and rows * vectors <= room
        for columns in _cover(width, min(room // (rows * vectors), most))[:1]
    ]
    found += [ChannelTile(columns, 1, wide, 1, taps, 8) for columns in _cover(width, 8)[:1]]
    return found or [ChannelTile(1, 1, wide)]


#: From so many taps on, copying the part of an image that a task reads is soon worth it.
_COPY = 100


def reaches_far(p: Problem) -> bool:
    """Whether a filter is so large that loading, and what is beyond the image, count most."""
    return p.multiplier == 1 and p.kernel_h * p.kernel_w >= 25


def block_tiles(p: Problem, target: Target) -> list[BlockTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_blocks.schedule_blocks`."""
    wide = lanes(p, target)
    height, width, phases = _groups(p)
    room = max(1, min(16, registers(target, wide)) // phases)
    copies = (1, 0) if p.kernel_h * p.kernel_w >= _COPY else (0, 1)
    shapes = ((4, 4), (1, room), (2, 8), (1, 8))
    if not copies[0]:
        shapes = ((1, room), (2, 8), (1, 8), (4, 4))
    return [
        BlockTile(rows, columns, wide, 1, 0, copy)
        for copy in copies
        for rows, most in shapes
        if rows <= min(height, room)
        for columns in _cover(width, min(room // rows, most))[:1]
    ] or [BlockTile(1, 1, wide)]


def line_tiles(p: Problem, target: Target) -> list[LineTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_lines.schedule_lines`."""
    wide = lanes(p, target)
    rows_of, columns_of, phases = _groups(p)
    room = max(1, registers(target, wide) // phases)
    most = -(-columns_of // wide)
    found = [
        LineTile(rows, vectors, wide, taps)
        for vectors in sorted({min(most, v, room) for v in (2, 1, 4)}, key=lambda v: abs(v - 2))
        for rows in _cover(rows_of, min(8, max(1, room // vectors)))[:3]
        for taps in dict.fromkeys(
            min(k, p.kernel_h) for k in ((7, 3) if p.kernel_h > 7 else (3, 7))
        )
    ]
    return found or [LineTile(1, 1, wide, 1)]


def grad_tiles(p: Problem, target: Target) -> list[GradTile]:
    """For the schedules of :mod:`~tilewright.topi.cpu.depthwise_wgrad`."""
    wide = lanes(p, target)
    room = max(1, registers(target, wide) // p.kernel_w)
    rows = list(dict.fromkeys((min(p.kernel_h, room), min(p.kernel_h, max(1, room // 2)), 1)))
    pixels = (1, 2, 4) if p.layout.endswith("C") and p.kernel_w <= 9 else (1,)
    vectors = (1, 2) if p.layout.endswith("C") else (1,)
    return [GradTile(r, v, wide, px) for v in vectors for px in pixels for r in rows]
