"""Which problems suit tiles of AMX, and the parameters worth trying for one, the best guess first.

A core multiplies two tiles in 16 cycles and has the result after 52 (Intel's optimization manual,
chapter on AMX), so that it is busy with four sums in flight. It loads a tile of rows that lie as
lines of the cache in 8 cycles, one of rows across two lines in 16. Each of 8 tile registers holds a
sum or a factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tilewright.target.target import Target
from tilewright.topi.cpu.depthwise_tiles import AmxTile
from tilewright.topi.nn.depthwise_tiles import DEPTH, SIDE, TiledToeplitz
from tilewright.topi.operators.conv import Conv

#: Taps from which on what a task does beside multiplying is paid for.
_TAPS = 25
_REGISTERS, _MOST = 8, 8
_MULTIPLY, _LATENCY, _LOAD, _ACROSS_LINES = 16, 52, 8, 16
#: Cycles of a tile's sums from its register to the result, and of a line of the padded image.
_STORE, _LINE = 130, 2
#: Cycles of a row of a matrix that is stored, and of 16 pairs.
_ROW, _PAIRS = 1.5, 6


def suits_amx(p: Conv) -> bool:
    """Whether a problem is one of bfloat16 that the products of tiles compute, and large enough."""
    return (
        p.rank == 2
        and p.dtype == "bfloat16"
        and p.accumulate == "float32"
        and p.kernel_w >= 4
        and p.kernel_h * p.kernel_w >= _TAPS
        and p.stride[1] <= 2
        and (p.pass_ == "forward" or (p.stride == (1, 1) and p.multiplier == 1))
    )


def amx_tiles(p: Conv, _: Target) -> list[AmxTile]:
    """For :func:`~tilewright.topi.cpu.depthwise_tiles.schedule_amx`."""
    found = sorted(((cycles(p, tile), tile) for tile in _tiles(p)), key=lambda pair: pair[0])
    # How fast tiles across lines are loaded is little known: each way of loading is tried early.
    variants = list(dict.fromkeys((t.copied, t.together) for _, t in found))
    first = [next(t for _, t in found if (t.copied, t.together) == variant) for variant in variants]
    return list(dict.fromkeys([*first, *(t for _, t in found)]))[:_MOST]


def cycles(p: Conv, tile: AmxTile) -> float:
    """About how many cycles of one core it takes, those of an image's share of a task."""
    cut = TiledToeplitz.of(p, tile.down, tile.across, tile.images)
    (down, across), blocks, (sh, _) = cut.tiles, cut.depth // DEPTH, cut.stride
    step = cut.dilation[0]
    rows = 0  # of the filter, those that each group of tiles down meets the image with
    for group in range(down):
        first = group * cut.rows * sh - cut.before[0]
        for q in range(cut.kernel[0]):
            at = first + q * step
            rows += at + (cut.rows - 1) * sh >= 0 and at < cut.image[0]
    sums = tile.down * tile.across * tile.channels
    loads = tile.down * _LOAD + tile.across * (_LOAD if tile.copied else _ACROSS_LINES)
    busy = max(sums * _MULTIPLY, _LATENCY, tile.channels * loads)
    total = rows * across * blocks * busy / tile.channels
    total += down * across * tile.down * tile.across * _STORE
    total += cut.stored_rows * tile.images * cut.stored_columns / DEPTH * _LINE
    total += cut.kernel[0] * cut.pairs / SIDE * _PAIRS
    if tile.copied:
        later = (tile.across - 1) * SIDE // 2 * cut.stride[1]
        total += cut.kernel[0] * (cut.depth // 2 + later) * _ROW
    groups = -(-p.batch // tile.images)
    return total * groups / p.batch


def _tiles(p: Conv) -> Iterator[AmxTile]:
    height, width = p.result_image
    images = [g for g in (1, 2, 4, 8, 16) if g < 2 * p.batch]
    if p.pass_ == "forward" and p.stride[0] > 1:
        images = [g for g in images if g in (1, SIDE)]
    many = [m for m in (1, 2, 4) if p.result_channels % m == 0]
    for g, channels, down, across in product(images, many, range(1, 7), range(1, 4)):
        if (down - 1) * (SIDE // g) >= height or (across - 1) * SIDE >= width:
            continue
        sums = down * across * channels
        if sums > 6:
            continue
        for copied, together in ((0, 0), (1, 0), (0, 1)):
            held = sums + across + (down if together else 1)
            if held <= _REGISTERS and not (together and down == 1):
                yield AmxTile(down, across, g, channels, copied, together)
