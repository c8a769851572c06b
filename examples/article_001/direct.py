"""Depthwise convolution on a GPU as article 001 has it: tiles in tiles, and the filter split.

A block copies the part of some images that it needs, padded, and a filter to shared memory. Four
neighbouring threads compute the same ``rows`` by ``columns`` results, each with a quarter of the
filter's columns, so that a thread meets few columns of the image for each of its sums; two steps
of a butterfly of shuffles add the four up. The threads of a warp have the same rows of neighbouring
images where there are several, so that they leave out the same rows of padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import Any

from direct_stages import (
    PARTS,
    Direct,
    DirectStages,
    along,
    depthwise_direct,
)

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.devices import COMMON_SHARED, REGISTERS
from tilewright.target.target import Target
from tilewright.topi.declare import Declaration, finished, placeholders
from tilewright.topi.gpu.machine import MACHINE
from tilewright.topi.gpu.register_model import CODE, cover
from tilewright.topi.nn.images import Images
from tilewright.topi.operators.conv import Conv
from tilewright.topi.parameters import flag
from tilewright.topi.stages import scheduled
from tilewright.topi.template import Template

#: Bytes of the widest access.
_VECTOR = 16
#: Elements of the image that a thread has under way to shared memory.
_AHEAD = 8
#: Registers of a thread for what it sums and loads.
_REGISTERS = 160
#: Bytes of shared memory of a block on GPUs with the most, of an SM, and its registers.
_SHARED, _ALL_SHARED, _ALL_REGISTERS = COMMON_SHARED, MACHINE.block_shared, REGISTERS
#: Tiles worth trying, at most.
_MOST = 64
#: Multiplications in the time of a shuffle and its addition, of a vector of 16 bytes from shared
#: memory, and of an element on its way there.
_SHUFFLE, _LOAD, _COPY = 5, 16, 16
#: Bytes of shared memory that a block can have on every GPU from compute capability 7.0 on.
_LEAST = 64 * 1024
#: Threads that keep an SM busy.
_RESIDENT = 512


@dataclass(frozen=True)
class DirectTile:
    """A thread sums ``rows`` by ``columns`` results of an image, over ``taps`` rows of the filter
    at once; a block has four such threads for each of ``down`` by ``across`` tiles of each of
    ``images`` images. With ``wide``, the image is converted before it is put into shared memory."""

    rows: int = 4
    columns: int = 16
    taps: int = 2
    down: int = 8
    across: int = 2
    images: int = 4
    wide: int = flag()


@dataclass(frozen=True)
class DirectDeclaration(Declaration):
    """A problem cut as ``cut`` says."""

    cut: Direct
    stages: DirectStages


def declare_direct(p: Conv, tile: DirectTile, batch: Any = None) -> DirectDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    inputs = placeholders(p, batch)
    image, filter = list(inputs.values())[:2]
    cut = _cut(p, tile)
    stages = depthwise_direct(cut, image, filter)
    sh, sw = (a.phases for a in cut.along)
    sums = Images(p.layout).compute(
        image.shape[0], p.result_channels, p.result_shape[2:],
        lambda n, c, at: stages.sums[n, c, at[0] % sh, at[1] % sw, at[0] // sh, at[1] // sw],
        "Result",
    )  # fmt: skip
    result = finished(p, sums, inputs)
    return DirectDeclaration(p, inputs, result, stages.sums, None, None, cut, stages)


def schedule_direct(d: Declaration, tile: DirectTile = DirectTile()) -> Schedule:
    """The schedule of what :func:`declare_direct` makes of a problem with the same ``tile``."""
    assert isinstance(d, DirectDeclaration)
    cut, made = d.cut, d.stages
    s = scheduled(d.output, made.image, made.taps, made.parts, made.sums)
    pixels = s.cache_read(made.image, "local", [made.parts])
    weights = s.cache_read(made.taps, "local", [made.parts])
    out, sums, parts = s[d.output], s[made.sums], s[made.parts]
    sh, sw = (a.phases for a in cut.along)

    n, c, h, w = out.op.axis
    n, image = out.split(n, factor=tile.images)
    h, a = out.split(h, factor=sh)
    w, b = out.split(w, factor=sw)
    h, row = out.split(h, factor=tile.rows)
    w, column = out.split(w, factor=tile.columns)
    h, down = out.split(h, factor=tile.down)
    w, across = out.split(w, factor=tile.across)
    vector = (
        1
        if sw > 1
        else gcd(d.problem.result_shape[3], tile.columns, _VECTOR // dtype(d.problem.dtype).bytes)
    )
    column, lane = out.split(column, factor=vector)
    tiles = (across, down) if _apart(tile) else (down, across)
    out.reorder(n, c, a, b, h, w, *tiles, image, row, column, lane)
    block = out.fuse(n, c, a, b, h, w)
    thread = out.fuse(*tiles)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(thread, te.thread_axis((0, tile.down * tile.across), "threadIdx.z"))
    out.bind(image, te.thread_axis((0, tile.images), "threadIdx.y"))
    out.unroll(row)
    out.unroll(column)
    out.vectorize(lane)

    for stage in (sums, parts):
        stage.set_scope("local")
        stage.compute_at(out, image)
        for axis, whole in zip(stage.op.axis[4:6], (tile.rows, tile.columns), strict=True):
            stage.align_bounds(axis, whole)
    for axis in sums.op.axis:
        sums.unroll(axis)
    sums.bind(sums.op.reduce_axis[0], te.thread_axis((0, PARTS), "threadIdx.x"))
    *outer, h, w, k = parts.op.axis
    to, ti, ui = parts.op.reduce_axis
    parts.reorder(k, *outer, to, ti, h, ui, w)
    parts.bind(k, te.thread_axis((0, PARTS), "threadIdx.x"))
    for axis in (*outer, ti, h, ui, w):
        parts.unroll(axis)
    step = cut.along[1]
    _load(s[pixels], parts, to, gcd(cut.part * step.spread, tile.columns * step.step))
    _load(s[weights], parts, to, cut.part)

    for tensor in (made.image, made.taps):
        stage = s[tensor]
        stage.set_scope("shared")
        stage.compute_at(out, block)
        *axes, rows, columns = stage.op.axis
        vector = _VECTOR // stage.op.outputs[0].dtype.bytes
        stage.storage_align(rows, vector, 0)
        if tensor is made.image:
            # Vectors of the four parts of two images, or of two rows, meet no bank twice.
            if tile.images > 1:
                stage.storage_align(axes[0], 2 * vector, vector)
            elif _apart(tile):
                stage.storage_align(rows, 2 * vector, vector)
        _copy(stage, [*axes, rows, columns], tile)
    return s


def _apart(tile: DirectTile) -> bool:
    """Whether neighbours of a warp are tiles one below the other, an odd number of rows apart, so
    that these can be kept apart in shared memory."""
    return tile.images == 1 and tile.rows % 2 == 1


def _load(stage: Stage, at: Stage, axis: IterVar, aligned: int) -> None:
    """Into registers, in vectors of up to 16 bytes where columns begin at multiples of some."""
    stage.compute_at(at, axis)
    *outer, column = stage.op.axis
    wide = gcd(aligned, _VECTOR // stage.op.outputs[0].dtype.bytes)
    stage.align_bounds(column, wide)
    column, lane = stage.split(column, factor=wide)
    for loop in (*outer, column):
        stage.unroll(loop)
    stage.vectorize(lane)


def _copy(stage: Stage, axes: list[IterVar], tile: DirectTile) -> None:
    """Neighbouring threads fetch neighbouring elements."""
    rest, x = stage.split(stage.fuse(*axes), factor=PARTS)
    rest, y = stage.split(rest, factor=tile.images)
    rest, z = stage.split(rest, factor=tile.down * tile.across)
    stage.unroll(stage.split(rest, factor=_AHEAD)[1])
    stage.bind(x, te.thread_axis((0, PARTS), "threadIdx.x"))
    stage.bind(y, te.thread_axis((0, tile.images), "threadIdx.y"))
    stage.bind(z, te.thread_axis((0, tile.down * tile.across), "threadIdx.z"))


def _cut(p: Conv, tile: DirectTile) -> Direct:
    return Direct(p, tile.rows, tile.columns, tile.down, tile.across, tile.taps, bool(tile.wide))


def suits_direct(p: Conv) -> bool:
    """Whether :func:`schedule_direct` is for a problem: one whose filter has a column for each of
    its threads, and whose image fits shared memory in parts."""
    return (
        p.rank == 2
        and p.accumulate in ("float32", "float64")
        and (p.pass_ == "forward" or p.multiplier == 1)
        and along(p)[1].taps >= PARTS
        and next(_tiles(p, _LEAST), None) is not None
    )


def direct_tiles(p: Conv, target: Target) -> list[DirectTile]:
    """Tiles that fit the target's shared memory, the best guess first."""
    limit = max(_LEAST, min(_SHARED, target.limits.shared_memory))
    found = sorted(_tiles(p, limit), key=lambda pair: pair[0])
    return [tile for _, tile in found[:_MOST]]


def _tiles(p: Conv, limit: int) -> Iterator[tuple[float, DirectTile]]:
    """Tiles, with how slow they are predicted to be."""
    high, wide = (a.groups for a in along(p))
    kept = (1,) if p.dtype == p.accumulate else (1, 0)
    for rows, columns, taps in product(_extents(high), _extents(wide), (1, 2, 4)):
        if columns < 4 or taps > p.kernel_h:
            continue
        cut = Direct(p, rows, columns, 1, 1, taps, True)
        if rows * columns + _loaded(cut) > _REGISTERS or rows * columns * taps * cut.part > CODE:
            continue
        strips, whole = -(-high // rows), max(1, min(4, wide // columns))
        shapes: set[tuple[int, int, int]] = {
            (cover(strips, max(1, min(64, threads // (PARTS * images)) // across)), across, images)
            for across in (whole, 1)
            for images in (1, 2, 4, 8)
            for threads in (128, 256, 512)
            if images < 2 * p.batch
        }
        for shape, each in product(sorted(shapes), kept):
            tile = DirectTile(rows, columns, taps, *shape, each)
            shared = _shared(_cut(p, tile), tile)
            if shared <= limit:
                yield _cost(_cut(p, tile), tile, shared), tile


def _extents(most: int) -> list[int]:
    """Rows, or columns, of a tile."""
    sizes = (1, 2, 3, 4, 8, 16) if most % 7 else (1, 2, 4, 7, 8, 14, 16)
    return [n for n in sizes if n < max(8, 2 * most)]


def _loaded(cut: Direct) -> int:
    """Registers for a row of the image, and for the taps that it meets."""
    step = cut.along[1]
    return (cut.columns - 1) * step.step + cut.part * step.spread + cut.taps * cut.part


def _bytes(cut: Direct) -> int:
    """Of an element of the image in shared memory."""
    p = cut.problem
    return dtype(p.accumulate if cut.wide else p.dtype).bytes


def _shared(cut: Direct, tile: DirectTile) -> int:
    """Bytes of a block."""
    high, wide = (cut.seen(k, results) for k, results in enumerate(cut.block))
    image = tile.images * (high * (wide * _bytes(cut) + _VECTOR) + _VECTOR)
    taps = PARTS * cut.part * dtype(cut.problem.accumulate).bytes + _VECTOR
    return image + cut.steps * cut.taps * taps


def _cost(cut: Direct, tile: DirectTile, shared: int) -> float:
    """Multiplications in the time that all blocks of an SM take."""
    p, threads = cut.problem, PARTS * tile.down * tile.across * tile.images
    (down, step), results = cut.along, tile.rows * tile.columns
    seen = (tile.rows - 1) * down.step + (tile.taps - 1) * down.spread + 1
    reach = (tile.columns - 1) * step.step + (cut.part - 1) * step.spread + 1
    aligned = gcd(cut.part * step.spread, tile.columns * step.step)
    vectors = seen * -(-reach // gcd(aligned, _VECTOR // _bytes(cut)))
    multiplied = results * cut.taps * cut.part * (1.0 if tile.wide else 1.2)
    loaded = (
        vectors * (1.0 if tile.images > 1 or _apart(tile) else 2.0) + cut.taps * cut.part / 4
    ) * _LOAD
    steps = cut.steps * (max(multiplied, loaded) + min(multiplied, loaded) / 4)
    area = cut.seen(0, cut.block[0]) * cut.seen(1, cut.block[1]) * tile.images
    whole = steps + 2 * results * _SHUFFLE + area / threads * _COPY
    registers = results + _loaded(cut) + 32
    fit = min(_ALL_REGISTERS // (registers * threads), _ALL_SHARED // (shared + 1024))
    fit = max(1, fit)
    blocks = cut.blocks[0] * cut.blocks[1] * -(-p.batch // tile.images)
    blocks *= p.result_channels * down.phases * step.phases
    resident = threads * min(fit, -(-blocks // MACHINE.sms))
    idle = math.sqrt(max(1.0, _RESIDENT / resident))
    turns = -(-blocks // (MACHINE.sms * fit)) * fit
    return whole * threads * max(turns, blocks / MACHINE.sms) * idle


#: As the library's templates are: what it is for, and its candidates.
TEMPLATE = Template(
    "article_001.direct", DirectTile, schedule_direct, ("forward", "dgrad"), False, True,
    direct_tiles, ("cuda", "sim"), shared=True, where=suits_direct, least=70,
    declares=declare_direct,
)  # fmt: skip
