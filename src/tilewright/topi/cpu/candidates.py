"""The parameters worth trying for a problem on a CPU, the best guess first.

Sums should fill the vector registers and not more: a core that is slow to add has to have some ten
sums in flight, and what does not fit is spilled.
"""

from __future__ import annotations

from tilewright.ir.errors import TargetError
from tilewright.target.target import Target
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
    """Sizes of tiles, the one that wastes least of ``extent`` first."""
    sizes = [s for s in range(1, room + 1) if s <= extent]
    return sorted(sizes, key=lambda s: (-(-extent // s) * s - extent, -s))


def channel_tiles(p: Problem, target: Target) -> list[ChannelTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_channels.schedule_channels`."""
    wide = lanes(p, target)
    phases = p.stride[0] * p.stride[1] if p.pass_ == "dgrad" else 1
    groups = -(-p.width // p.stride[1]) if p.pass_ == "dgrad" else p.out_image[1]
    room = max(1, registers(target, wide) // phases)
    taps = 3 if p.kernel_h <= 3 and p.kernel_w <= 5 else 1
    # Rows share what they load where all taps are written out.
    found = [
        ChannelTile(columns, 1, wide, rows, taps)
        for rows in ((2, 1) if taps == 3 and phases == 1 and p.stride[0] == 1 else (1, 2))
        for columns in _cover(groups, min(room // rows, 12))[:4]
    ]
    found += [
        ChannelTile(columns, 2, wide, 1, taps) for columns in _cover(groups, min(room // 2, 8))[:2]
    ]
    found += [ChannelTile(columns, 1, wide, 1, taps, 8) for columns in _cover(groups, 8)[:1]]
    return found or [ChannelTile(1, 1, wide)]


def line_tiles(p: Problem, target: Target) -> list[LineTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_lines.schedule_lines`."""
    wide = lanes(p, target)
    dgrad = p.pass_ == "dgrad"
    image = p.image if dgrad else p.out_image
    rows_of, columns_of = (-(-e // s) if dgrad else e for e, s in zip(image, p.stride, strict=True))
    phases = p.stride[0] * p.stride[1] if dgrad else 1
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
