"""The parameters worth trying for a gradient by the filter on a GPU, the best guess first."""

from __future__ import annotations

import math
from itertools import product
from math import gcd

from tilewright.ir.dtype import dtype
from tilewright.target.target import Target
from tilewright.topi.gpu.depthwise_wgrad import ReductionTile
from tilewright.topi.gpu.turns import busiest, evenly
from tilewright.topi.gpu.window import MULTIPROCESSORS, REGISTERS, cover, power
from tilewright.topi.problem import Problem

#: Multiplications written out in a kernel, and loads of the image: either makes long code, and
#: loads, each behind a question whether it is padding, compile for more than a minute where there
#: are 3,000.
_CODE, _LOADS = 6000, 1500
#: Threads of a multiprocessor, at most, as far as there is work: few, and as many as are resident
#: at once where each has 128, 96 or 64 registers, so that none are left for another turn.
_THREADS = (256, 512, 640, 1024)


def reduction_tiles(p: Problem, target: Target) -> list[ReductionTile]:
    """For the schedules of :mod:`~tilewright.topi.gpu.depthwise_wgrad`."""
    last, size = p.layout.endswith("C"), dtype(p.dtype).bytes
    widest = gcd(power(16 // size), p.channels) if last and p.multiplier == 1 else 1
    (oh, ow), whole = p.out_image, p.kernel_h
    found: list[tuple[float, ReductionTile]] = []
    vectors = dict.fromkeys((widest, max(1, widest // 2), max(1, widest // 4)))
    for vector, rows, columns in product(
        vectors, (1, 2, 4, 7, 8, 14), (1, 2, 4, 7, 8) if last else (2, 4, 7, 8)
    ):
        if rows >= 2 * oh or columns >= 2 * max(2, ow):
            continue
        for taps in dict.fromkeys((whole, -(-whole // 2), 1)):
            sums = taps * p.kernel_w * vector
            across = (columns - 1) * p.stride[1] + (p.kernel_w - 1) * p.dilation[1] + 1
            # Rows are loaded one after another, and forgotten.
            live = taps * across * vector / (1 if size >= 4 else 1.5) + columns * vector
            down = (rows - 1) * p.stride[0] + (taps - 1) * p.dilation[0] + 1
            if sums + live > REGISTERS or sums * rows * columns > _CODE or down * across > _LOADS:
                continue
            loads = (down * across + rows * columns) * -(-whole // taps) / (rows * columns)
            waste = -(-oh // rows) * rows / oh * (-(-ow // columns) * columns / ow)
            width = vector * size if last else columns * size if ow % columns == 0 else size
            # If the compiler moves all loads of a tile to its beginning, so many registers.
            most = sums + (down * across + rows * columns) * vector / (1 if size >= 4 else 2)
            crowded = max(1.0, (sums + live) / 64) * max(1.0, most / 96) ** 2
            cost = (loads + 2) * waste * math.sqrt(16 / min(16, width)) * crowded
            tiles = p.batch * -(-oh // rows) * -(-ow // columns)
            for tile in _shared_out(p, last, (rows, columns, taps, vector), tiles):
                found.append((cost, tile))
    found.sort(key=lambda pair: pair[0])
    return [tile for _, tile in found] or [ReductionTile(1, 1, 1, 1, 32, 1, 8)]


def _shared_out(
    p: Problem, last: bool, tile: tuple[int, int, int, int], tiles: int
) -> list[ReductionTile]:
    """With so many threads and partial sums that a GPU is busy, and not more than there is work;
    those first of which the busiest multiprocessor has least."""
    *_, taps, vector = tile
    across, parts = -(-p.out_channels // vector), -(-p.kernel_h // taps)
    shapes = (
        ((4, cover(across, 32)), (8, cover(across, 16)), (4, cover(across, 64)))
        if last
        else ((32, 4), (32, 2))
    )
    found = []
    for (lanes, threads), wanted in product(shapes, _THREADS):
        threads = min(threads, across)
        blocks, turns = -(-across // threads) * parts, -(-tiles // lanes)
        most = min(wanted * MULTIPROCESSORS // (across * parts * lanes), tiles // (2 * lanes), 512)
        chunks = evenly(blocks, turns, most)
        work = busiest(blocks, turns, chunks) * lanes * threads
        found.append((work, ReductionTile(*tile, lanes, threads, chunks)))
    found.sort(key=lambda pair: pair[0])
    return list(dict.fromkeys(tile for _, tile in found))
