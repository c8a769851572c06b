"""The gradient of a depthwise convolution by a large filter on tensor cores, channels first.

The products of :func:`~tilewright.topi.nn.depthwise_toeplitz.depthwise_toeplitz_wgrad`: the
filter's gradient by one image is that image convolved with dy, so a warp sums ``tiles`` times 16
rows of ``columns`` of a filter over the images of its chunk. The rows of dy lie in shared memory,
from where each thread takes the elements of their matrices.

Of float32 the same in TF32 (:mod:`~tilewright.topi.gpu.toeplitz_tf32`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule, create_schedule
from tilewright.target.devices import STATIC_SHARED
from tilewright.target.instructions import mma_bf16, mma_f16
from tilewright.topi.gpu.toeplitz import ToeplitzDeclaration, load_image, wide
from tilewright.topi.gpu.toeplitz_gradient import declare_chunks, share_out
from tilewright.topi.gpu.toeplitz_tf32 import LANES, ROWS, fill, fits, idle, multiply
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz
from tilewright.topi.operators.conv import Conv
from tilewright.topi.stages import scheduled

_INSTRUCTIONS = {"float16": mma_f16, "bfloat16": mma_bf16}
#: Registers of a thread that sums and rows of images may take.
_REGISTERS = 160
#: Bytes of shared memory that the rows of dy of a block may take.
_SHARED = STATIC_SHARED


@dataclass(frozen=True)
class GradientTile:
    """A warp sums 16 * ``tiles`` rows of ``columns`` of a filter over every ``chunks``-th image; a
    block has ``teams`` chunks. Rows of an image are loaded ``stages - 1`` rows of dy ahead."""

    tiles: int = 2
    columns: int = 32
    chunks: int = 8
    teams: int = 4
    stages: int = 2


def declare_gradient(p: Conv, tile: GradientTile, batch: Any = None) -> ToeplitzDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    return declare_chunks(Toeplitz(p, ROWS * tile.tiles, tile.columns, 1), tile.chunks, batch)


def schedule_gradient(d: ToeplitzDeclaration, tile: GradientTile = GradientTile()) -> Schedule:
    """The schedule of what :func:`declare_gradient` makes of a problem with the same ``tile``."""
    cut, made, teams = d.cut, d.stages, min(tile.teams, tile.chunks)
    s = create_schedule(d.output.op)
    matrices = s[made.matrices]
    sums, tz = share_out(s, d, teams, wide(cut.columns // 4, 4))
    tx = te.thread_axis((0, LANES), "threadIdx.x")
    chunk, c, h, w = sums.op.axis
    i, q, j = sums.op.reduce_axis
    part, j = sums.split(j, factor=cut.chunk)
    thread, j = sums.split(j, factor=cut.chunk // 4)
    step, j = sums.split(j, factor=4)
    half, low = sums.split(j, factor=2)
    quarter, w = sums.split(w, factor=cut.columns // 4)
    pair, side = sums.split(w, factor=2)
    tiles, row = sums.split(h, factor=ROWS)
    sums.reorder(chunk, c, i, q, part, step, pair, tiles, row, quarter, side, half, thread, low)
    sums.unroll(part, step, pair, tiles)
    sums.tensorize(row, _INSTRUCTIONS[d.problem.dtype])

    image = s[made.image]
    image.set_scope("fragment")
    image.compute_at(sums, q)
    _, lane = image.split(image.op.axis[3], factor=wide(cut.image[1], cut.chunk // 4))
    image.vectorize(lane)
    if tile.stages > 1:
        image.pipeline(tile.stages)
    matrices.set_scope("fragment")
    matrices.compute_at(sums, pair)
    taps = s[made.taps]
    taps.set_scope("shared")
    taps.compute_at(sums, i)
    _, flat = taps.split(taps.fuse(*taps.op.axis), factor=LANES * teams)
    z, x = taps.split(flat, factor=LANES)
    taps.bind(z, tz)
    taps.bind(x, tx)
    return s


def guesses(p: Conv) -> Iterator[tuple[float, GradientTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    height, width = p.kernel
    for columns, tiles in product((16, 32, 64), (1, 2, 4)):
        if columns >= 2 * max(16, width) or ROWS * tiles >= 2 * max(ROWS, height):
            continue
        cut = Toeplitz(p, ROWS * tiles, columns, 1)
        down, across = cut.tiles
        products = down * across * tiles * cut.depth * columns
        rows = cut.kernel[0] * (cut.depth + (columns - 1) * cut.stride[1]) * 2
        for stages, teams in product((2, 3, 1), (4, 2, 1, 8)):
            held = tiles * (columns * 2 + stages * cut.depth // 4)
            if held > _REGISTERS or teams > p.batch or teams * rows > _SHARED:
                continue
            blocks = p.out_channels * down * across
            for chunks in dict.fromkeys((teams, 2 * teams, 4 * teams)):
                if chunks > max(teams, p.batch):
                    continue
                idle = max(1.0, 400 / (blocks * chunks // teams))
                again = 1 + 4 / tiles  # elements of a matrix are gathered for fewer products
                near = 1 + (abs(stages - 2) + abs(teams - 4)) / 32 + chunks / 256
                yield (
                    products * again * idle * near,
                    GradientTile(tiles, columns, chunks, teams, stages),
                )


def schedule_split_gradient(
    d: ToeplitzDeclaration, tile: GradientTile = GradientTile()
) -> Schedule:
    """The same in TF32, of what :func:`declare_gradient` makes with the same ``tile``."""
    made, teams = d.stages, min(tile.teams, tile.chunks)
    stages = (made.image, made.parts, made.taps, made.matrices, made.rows, made.sum)
    s = scheduled(d.output, *stages, d.sum)
    sums, _ = share_out(s, d, teams, 2)

    chunk, c, h, w = sums.op.axis
    i, q = sums.op.reduce_axis
    tiles, row = sums.split(h, factor=ROWS)
    sums.reorder(chunk, c, i, q, tiles, row, w)
    sums.unroll(tiles)
    load_image(d, s[made.image], sums, q, tile.stages)
    multiply(s, made, sums, 2, tiles, q, tiles)
    fill(s[made.taps], (sums, i), [("threadIdx.z", teams)])
    return s


def split_guesses(p: Conv) -> Iterator[tuple[float, GradientTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    height, width = p.kernel
    for columns, tiles in product((16, 32, 64), (1, 2, 4)):
        if columns >= 2 * max(16, width) or ROWS * tiles >= 2 * max(ROWS, height):
            continue
        cut = Toeplitz(p, ROWS * tiles, columns, 1)
        down, across = cut.tiles
        products = down * across * tiles * cut.products
        for stages, teams in product((2, 1), (2, 1, 4)):
            rows = teams * cut.kernel[0]
            if teams > p.batch or not fits(cut, rows, tiles, tiles * (stages - 1), 1):
                continue
            for chunks in dict.fromkeys(teams * n for n in (1, 2, 4, 8, 16)):
                if chunks > max(teams, p.batch // 2):
                    continue
                again = 1 + 1 / (4 * tiles)  # elements of a matrix are gathered for fewer products
                near = 1 + abs(stages - 2) / 16 + abs(teams - 2) / 16 + chunks / 256
                warps = chunks * p.out_channels * down * across
                yield (
                    products * again * near * idle(warps),
                    GradientTile(tiles, columns, chunks, teams, stages),
                )
