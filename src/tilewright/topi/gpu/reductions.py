"""The parameters worth trying for a gradient by the filter on a GPU, the best guess first, and into
how many chunks its work is divided, so that no SM waits for another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.target.target import Target
from tilewright.topi.columns import Array, combinations, listed, number, once, pick
from tilewright.topi.gpu.machine import MACHINE
from tilewright.topi.gpu.register_model import (
    REGISTERS,
    cover,
    in_planes,
    planes_seen,
    power,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.convolution import Convolution
from tilewright.topi.pieces.reduction_tiles import ReductionTile

#: Multiplications written out in a kernel, and loads of the image: either makes long code, and
#: loads, each behind a question whether it is padding, compile for more than a minute where there
#: are 3,000.
_CODE, _LOADS = 6000, 1500
#: Threads of an SM, at most, as far as there is work: few, and as many as are resident
#: at once where each has 128, 96 or 64 registers, so that none are left for another turn.
_THREADS = (256, 512, 640, 1024)


def reduction_tiles(given: Convolution, target: Target) -> Sequence[ReductionTile]:
    """For :func:`~tilewright.topi.sketches.reductions.schedule_reductions`."""
    p, planes = in_planes(given), planes_seen(given)
    cost, parts = _parts(p, planes)
    if not len(cost):
        return [ReductionTile(1, 1, 1, 1, 32, 1, 8)]
    work, which, tiles = _shared_out(p, planes, parts)
    return listed(pick(tiles, np.lexsort((work, which, cost[which]))))


def _parts(p: Conv, planes: int) -> tuple[Array, list[Array]]:
    """Rows, columns, taps and channels of a thread, after how slow these may be; a filter has so
    many ``planes``."""
    last, size = p.channels_last, dtype(p.dtype).bytes
    widest = gcd(power(16 // size), p.channels) if last and p.multiplier == 1 else 1
    (oh, ow), whole = p.out_image, p.kernel_h
    vector, rows, columns, taps = combinations(
        dict.fromkeys((widest, max(1, widest // 2), max(1, widest // 4))),
        (1, 2, 4, 7, 8, 14),
        (1, 2, 4, 7, 8) if last else (2, 4, 7, 8),
        dict.fromkeys((whole, *([-(-whole // 2)] if planes == 1 else []), 1, whole * planes)),
    )  # of several planes, rows of one, or all
    high, deep = np.minimum(taps, whole), -(-taps // whole)
    sums = taps * p.kernel_w * vector
    across = (columns - 1) * p.stride[1] + (p.kernel_w - 1) * p.dilation[1] + 1
    # Rows are loaded one after another, and forgotten.
    live = high * across * vector / (1 if size >= 4 else 1.5) + columns * vector
    down = deep * ((rows - 1) * p.stride[0] + (high - 1) * p.dilation[0] + 1)
    loads = (down * across + rows * columns) * -(-whole * planes // taps) / (rows * columns)
    waste = -(-oh // rows) * rows / oh * (-(-ow // columns) * columns / ow)
    width = vector * size if last else np.where(ow % columns == 0, columns * size, size)
    # If the compiler moves all loads of a tile to its beginning, it needs this many registers.
    most = sums + (down * across + rows * columns) * vector / (1 if size >= 4 else 2)
    crowded = np.maximum(1.0, (sums + live) / 64) * np.maximum(1.0, most / 96) ** 2
    cost = (loads + 2) * waste * np.sqrt(16 / np.minimum(16, width)) * crowded
    fits = (rows < 2 * oh) & (columns < 2 * max(2, ow)) & (sums + live <= REGISTERS)
    fits &= (sums * rows * columns <= _CODE) & (down * across <= _LOADS)
    return cost[fits], [n[fits] for n in (rows, columns, taps, vector)]


def _shared_out(p: Conv, planes: int, parts: list[Array]) -> tuple[Array, Array, Any]:
    """With as many threads and partial sums as keep a GPU busy, and not more than there is work.
    What the busiest SM has of it comes first, then which of ``parts`` it is."""
    shapes = ((4, 32), (8, 16), (4, 64)) if p.channels_last else ((32, 4), (32, 2))
    wanted = _THREADS if planes == 1 else _THREADS[1:]  # of volumes few were much slower
    which, shape, wanted = combinations(range(len(parts[0])), range(len(shapes)), wanted)
    rows, columns, taps, vector = (n[which] for n in parts)
    tiles = p.batch * -(-p.out_image[0] // rows) * -(-p.out_image[1] // columns)
    across, down = -(-p.out_channels // vector), -(-p.kernel_h * planes // taps)
    lanes, threads = np.array(shapes)[shape].T
    if p.channels_last:
        threads = cover(across, threads)
    threads = np.minimum(threads, across)
    blocks, turns = -(-across // threads) * down, -(-tiles // lanes)
    most = np.minimum(wanted * MACHINE.sms // (across * down * lanes), tiles // (2 * lanes))
    chunks = evenly(blocks, turns, np.minimum(most, 512))
    work = busiest(blocks, turns, chunks) * lanes * threads
    return work, which, ReductionTile(rows, columns, taps, vector, lanes, threads, chunks)


def busiest(blocks: Any, turns: Any, chunks: Any) -> Any:
    """Turns of the SM with most, where each of the ``chunks`` chunks of ``turns`` has
    ``blocks`` blocks; integers, or columns.

    >>> busiest(blocks=48, turns=98, chunks=11), busiest(blocks=48, turns=98, chunks=13)
    (36, 40)
    """
    return -(-chunks * blocks // MACHINE.sms) * -(-turns // chunks)


def evenly(blocks: Any, turns: Any, most: Any) -> Any:
    """The number of chunks, at most ``most`` and more than half of that, with which the busiest
    SM has fewest turns, the largest of several: about as many blocks for each, and
    about as many turns for each block; integers, or columns.

    >>> evenly(blocks=48, turns=98, most=13)
    11
    """
    most = np.maximum(1, np.minimum(most, turns))
    blocks, turns, most = np.broadcast_arrays(blocks, turns, most)
    sets = np.stack([most.ravel(), blocks.ravel(), turns.ravel()])
    first, back = once(sets)  # those with few chunks come first
    found = np.concatenate([_evenly(some) for some in np.array_split(sets[:, first], 8, axis=1)])
    return number(found[back].reshape(most.shape))


def _evenly(sets: Any) -> Any:
    most, blocks, turns = sets[:, :, None]
    chunks = np.maximum(most - np.arange(most.max(initial=1)), most // 2 + 1)
    least = np.argmin(busiest(blocks, turns, chunks), axis=1)
    return np.take_along_axis(chunks, least[:, None], axis=1)[:, 0]
