"""Depthwise convolution of small images on tensor cores of any GPU since Ampere, channels first.

The products of :mod:`~tilewright.topi.nn.depthwise_plane_products`. A block copies planes of
neighbouring channels, of some images, to shared memory in the background, in chunks as large as
can be. Each warp has one of the channels: it gathers the channel's matrices in registers, once, and
then multiplies 16 images after another. Results go through shared memory, as planes of a few
pixels lie side by side there as they do in memory, and are stored in large chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target.instructions import mma_bf16, mma_f16
from tilewright.topi.cut import CutDeclaration, declare_images
from tilewright.topi.gpu.banded_tiles import SHARED
from tilewright.topi.gpu.machine import MACHINE, is_planar
from tilewright.topi.nn.depthwise_plane_products import (
    PLACES,
    PlaneProducts,
    PlaneStages,
    depthwise_plane_products,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.plane_copies import APART, chunk_of, copy_planes, spread_chunks
from tilewright.topi.stages import scheduled

_LANES, _IMAGES = 32, 16
_INSTRUCTIONS = {"float16": mma_f16, "bfloat16": mma_bf16}
#: Rows of an image, and registers of a thread that matrices, sums and images may take, at most.
_MOST, REGISTERS = 16, 160
#: Instructions of a warp around its products, about, and around those of one turn more.
AROUND, _TURN = 150, 20
#: Tiles of images that a block goes through, at most.
_TOGETHER = 4
#: Bytes of memory that two blocks had better not share.
_SECTOR = 32


PlaneProductDeclaration = CutDeclaration[PlaneProducts, PlaneStages]


@dataclass(frozen=True)
class PlaneProductTile:
    """A block has ``channels`` warps, each with one channel. It goes ``turns`` times through 16 *
    ``images`` images, which are copied ``stages - 1`` turns ahead."""

    channels: int = 8
    images: int = 1
    turns: int = 4
    stages: int = 4


def declare_plane_products(
    p: Conv, tile: PlaneProductTile, batch: Any = None
) -> PlaneProductDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    cut = PlaneProducts(p, tile.channels, _IMAGES * tile.images * tile.turns)
    return declare_images(cut, depthwise_plane_products, batch)


def schedule_plane_products(
    d: PlaneProductDeclaration, tile: PlaneProductTile = PlaneProductTile()
) -> Schedule:
    """The schedule of what :func:`declare_plane_products` makes with the same ``tile``."""
    cut, made, kind = d.cut, d.stages, d.problem.dtype
    s = scheduled(d.output, made.staged, made.image, made.matrices, made.sum)
    results = s.cache_write(d.output, "shared")
    out, parts, sums = s[d.output], s[results], s[made.sum]
    ty = te.thread_axis((0, tile.channels), "threadIdx.y")

    n, c, h, w = out.op.axis
    many, n = out.split(n, factor=cut.images)
    turn, n = out.split(n, factor=_IMAGES * tile.images)
    c, channel = out.split(c, factor=tile.channels)
    out.reorder(many, c, turn, n, channel, h, w)
    block = out.fuse(many, c)
    out.bind(block, te.thread_axis("blockIdx.x"))
    _, own = spread_chunks(out, n, [channel, h, w], cut.result, tile.channels)
    out.vectorize(own)

    parts.compute_at(out, turn)
    n, own, h, w = parts.op.axis
    parts.storage_align(n, *APART)
    part, n = parts.split(n, factor=_IMAGES)
    parts.reorder(own, part, n, h, w)
    parts.bind(own, ty)

    sums.set_scope("fragment")
    sums.compute_at(parts, part)
    n, c, h, w = sums.op.axis
    pair, half, place = sums.op.reduce_axis
    sums.align_bounds(n, _IMAGES)
    sums.align_bounds(w, PLACES)
    sums.reorder(c, pair, h, n, w, half, place)
    sums.unroll(pair)
    sums.unroll(h)
    sums.tensorize(n, _INSTRUCTIONS[kind])

    image = s[made.image]
    image.set_scope("fragment")
    image.compute_at(sums, c)
    _, both = image.split(image.op.axis[-1], factor=2)
    image.vectorize(both)

    matrices = s[made.matrices]
    matrices.set_scope("fragment")
    matrices.compute_at(out, block)
    matrices.bind(matrices.op.axis[0], ty)

    staged = s[made.staged]
    staged.compute_at(out, turn)
    if tile.stages > 1:
        staged.pipeline(tile.stages)
    copy_planes(staged, staged.op.axis, cut.image, tile.channels)
    return s


def has_small_images(p: Conv) -> bool:
    """Whether products of whole images are for a problem of any pass: in 16 bits, of images of at
    most eight columns."""
    return (
        is_planar(p)
        and p.multiplier == 1
        and max(p.image[1], p.out_image[1]) <= PLACES
        and max(p.image[0], p.out_image[0]) <= _MOST
    )


def suits_plane_products(p: Conv) -> bool:
    """Whether :func:`schedule_plane_products` is for a problem."""
    return p.pass_ in ("forward", "dgrad") and has_small_images(p)


def guesses(p: Conv) -> Iterator[tuple[float, PlaneProductTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    for channels, images, turns in product((16, 8, 4, 2), (1, 2, 4), (1, 2, 4)):
        cut = PlaneProducts(p, channels, _IMAGES * images * turns)
        rows, pixels = cut.result[0], cut.result[0] * cut.result[1]
        chunks = chunk_of(channels, cut.image), chunk_of(channels, cut.result)
        held = 2 * cut.blocks + 4 * (rows + cut.pairs)
        if p.channels % channels or chunks[0] < 2 or held > REGISTERS:
            continue
        if images * turns >= 2 * max(1, -(-p.batch // _IMAGES)) or images * turns > _TOGETHER:
            continue
        blocks = -(-p.batch // cut.images) * (p.channels // channels)
        copies = 8 * (cut.pixels / chunks[0] + pixels / chunks[1]) / _LANES
        each = rows * cut.pairs + 4 * cut.pairs + 8 * rows + _IMAGES * copies
        work = AROUND + 4 * cut.blocks + turns * (images * each + _TURN)
        busiest = -(-blocks // MACHINE.sms) * channels * work
        # What is loaded while something else is multiplied, and stored.
        alone = 1 + 0.5 / (turns * -(-blocks // MACHINE.sms))
        for stages in (1,) if turns == 1 else (turns, turns + 1):
            shared = (images * (stages * cut.pixels + pixels)) * _IMAGES * channels * 2
            if shared <= SHARED:
                near = 1 + abs(channels - 8) / 128 + (stages > turns) / 8
                near += (channels * cut.pixels * 2 % _SECTOR > 0) / 16
                yield busiest * alone * near, PlaneProductTile(channels, images, turns, stages)
