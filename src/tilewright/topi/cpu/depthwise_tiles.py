"""Depthwise convolution of bfloat16 with large filters on a CPU, channels first, in tiles of AMX.

The stages are those of :mod:`~tilewright.topi.nn.depthwise_tiles`. A task takes one channel of some
images: it copies them with their padding, puts the filter's taps in pairs, and sums groups of tiles
that stay in tile registers over all taps, ``down`` by ``across`` products at a time. Both factors
are loaded from where they lie: the image's rows follow each other, those of a matrix of taps are
views of the same pairs.

A core multiplies two tiles in 16 cycles and has the result after 52 (Intel's optimization manual,
chapter on AMX), so that it is busy with four sums in flight. It loads a tile of rows that lie as
lines of the cache in 8 cycles, one of rows across two lines in 16. Each of 8 tile registers holds a
sum or a factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright.schedule import Schedule
from tilewright.target.instructions import (
    amx_bf16,
    amx_load_bf16,
    amx_store_f32,
    pairs_bf16,
    turned_pairs_bf16,
)
from tilewright.target.target import Target
from tilewright.topi.cut import CutDeclaration, declare_images
from tilewright.topi.nn.depthwise_tiles import (
    DEPTH,
    SIDE,
    TiledToeplitz,
    TileStages,
    depthwise_tiles,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.stages import scheduled

TileDeclaration = CutDeclaration[TiledToeplitz, TileStages]


@dataclass(frozen=True)
class AmxTile:
    """``down`` by ``across`` tiles of sums of each of ``channels`` channels are held in registers;
    rows of ``images`` images make up a tile.

    A row of a matrix of taps is 64 bytes that begin anywhere: where ``copied`` is 1 they are copied
    to where lines of the cache begin. A tile of the image is loaded when it is multiplied, or where
    ``together`` is 1 before any of a step is. Sums and factors that are held at once have 8
    registers: ``down * across * channels``, ``across`` and 1, or ``down`` if ``together``.
    """

    down: int = 2
    across: int = 2
    images: int = 1
    channels: int = 1
    copied: int = 0
    together: int = 0


def declare_amx(p: Conv, tile: AmxTile, batch: Any = None) -> TileDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    cut = TiledToeplitz.of(p, tile.down, tile.across, tile.images, tile.channels)
    return declare_images(cut, depthwise_tiles, batch, _element)


def _element(t: TiledToeplitz, total: Any, n: Any, c: Any, h: Any, w: Any) -> Any:
    """The sum of an output."""
    g, rows = t.images, t.tile_rows
    return total[n // g, c, h // rows, w // SIDE, h % rows * g + n % g, w % SIDE]


def schedule_amx(d: TileDeclaration, tile: AmxTile = AmxTile()) -> Schedule:
    """The schedule of what :func:`declare_amx` makes of a problem with the same ``tile``."""
    made, cut = d.stages, d.cut
    kept = [made.image, made.taps, made.pairs, made.left, made.right, made.sum]
    kept += [made.rows] if tile.copied else []
    s = scheduled(d.output, *kept)
    total = s.cache_write(made.sum, "local")
    out, stored, sums = s[d.output], s[made.sum], s[total]
    n, c, h, w = out.op.axis
    n, image = out.split(n, factor=cut.images)
    c, channel = out.split(c, factor=tile.channels)
    h, row = out.split(h, factor=cut.rows)
    w, column = out.split(w, factor=cut.columns)
    strip, lane = out.split(column, factor=SIDE)
    out.reorder(n, c, w, h, channel, image, row, strip, lane)
    task = out.fuse(n, c)
    out.parallel(task)
    out.unroll(strip)
    out.vectorize(lane)

    stored.compute_at(out, h)
    _, c, down, across, r, w = stored.op.axis
    stored.unroll(c, down, across)
    stored.tensorize(r, amx_store_f32)

    sums.compute_at(out, h)
    b, c, down, across, r, w = sums.op.axis
    q, pair, side = sums.op.reduce_axis
    block, pair = sums.split(pair, factor=SIDE)
    for axis, whole in ((c, tile.channels), (down, tile.down), (across, tile.across)):
        sums.align_bounds(axis, whole)
    sums.reorder(b, q, block, c, down, across, r, w, pair, side)
    sums.unroll(c, down, across)
    sums.tensorize(r, amx_bf16)

    left, right = s[made.left], s[made.right]
    for stage, at in ((right, c), (left, c if tile.together else down)):
        stage.set_scope("local")
        stage.compute_at(sums, at)
        stage.unroll(stage.op.axis[2])
    left.tensorize(left.op.axis[-2], amx_load_bf16)
    right.tensorize(right.op.axis[-3], amx_load_bf16)

    if tile.copied:
        rows = s[made.rows]
        rows.compute_at(out, task)
        *_, w, k = rows.op.axis
        rows.vectorize(rows.fuse(w, k))
    padded, taps, pairs = s[made.image], s[made.taps], s[made.pairs]
    for stage in (padded, taps, pairs):
        stage.compute_at(out, task)
    *_, line, w = padded.op.axis
    padded.split(line, factor=cut.images)
    padded.align_bounds(w, DEPTH)
    padded.vectorize(padded.split(w, factor=DEPTH)[1])
    at = taps.op.axis[-1]
    taps.align_bounds(at, SIDE)
    vector, lane = taps.split(at, factor=SIDE)
    taps.unroll(vector)
    taps.vectorize(lane)
    v = pairs.op.axis[-2]
    pairs.align_bounds(v, SIDE)
    turned = d.problem.pass_ == "dgrad"
    instruction = pairs_bf16 if turned else turned_pairs_bf16[cut.stride[1]]
    pairs.tensorize(pairs.split(v, factor=SIDE)[1], instruction)
    return s


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
