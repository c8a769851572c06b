"""The gradient by the filter of a depthwise convolution of small images on tensor cores of any GPU
since Ampere, channels first.

The products of :func:`~tilewright.topi.nn.depthwise_plane_products.depthwise_plane_gradient`: a
block copies planes of x and dy of neighbouring channels to shared memory in the background, some
images at a time. Each warp has one of the channels, whose products of all rows of x with all rows
of dy it keeps in registers, those that are as far apart as one. In the end they go through shared
memory, where their diagonals are summed. Each tap is summed by one thread in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.target.instructions import mma_bf16, mma_f16
from tilewright.topi.cut import CutDeclaration, declare_sums
from tilewright.topi.gpu.banded_tiles import SHARED
from tilewright.topi.gpu.depthwise_plane_products import (
    AROUND,
    REGISTERS,
    chunk_of,
    copy_planes,
    has_small_images,
)
from tilewright.topi.gpu.machine import MACHINE
from tilewright.topi.nn.depthwise_plane_products import (
    PLACES,
    PlaneGradientStages,
    PlaneProducts,
    depthwise_plane_gradient,
)
from tilewright.topi.operators.conv import Conv
from tilewright.topi.stages import scheduled

_LANES, _IMAGES = 32, 16
_INSTRUCTIONS = {"float16": mma_f16, "bfloat16": mma_bf16}
#: By how much the places of a row of the filter are further apart in shared memory than it has
#: columns, so that fewer of a diagonal conflict in a bank; and what a row takes there.
_APART = 2
ROW_FLOATS = PLACES * (PLACES + _APART)


PlaneGradientDeclaration = CutDeclaration[PlaneProducts, PlaneGradientStages]


@dataclass(frozen=True)
class PlaneGradientTile:
    """A block has ``channels`` warps, each with one channel, and goes through the batch by 16 *
    ``images`` images, which it copies ``stages - 1`` times ahead."""

    channels: int = 8
    images: int = 1
    stages: int = 4


def declare_plane_gradient(
    p: Conv, tile: PlaneGradientTile, batch: Any = None
) -> PlaneGradientDeclaration:
    """The program of a problem, cut as ``tile`` says; ``batch`` as in :func:`declare`."""
    cut = PlaneProducts(p, tile.channels, _IMAGES * tile.images)
    return declare_sums(cut, depthwise_plane_gradient, batch)


def schedule_plane_gradient(
    d: PlaneGradientDeclaration,
    tile: PlaneGradientTile = PlaneGradientTile(),
) -> Schedule:
    """The schedule of what :func:`declare_plane_gradient` makes with the same ``tile``."""
    cut, made, kind = d.cut, d.stages, d.problem.dtype
    kept = (*made.staged, made.x, made.dy, made.products, made.rows, made.sums)
    s = scheduled(d.output, *kept)
    out, sums, rows, products = s[d.output], s[made.sums], s[made.rows], s[made.products]
    ty = te.thread_axis((0, tile.channels), "threadIdx.y")

    c, one, h, w = out.op.axis
    block, c = out.split(c, factor=tile.channels)
    across = min(_LANES, 1 << (d.problem.kernel[-1] - 1).bit_length())
    down, h = out.split(h, factor=_LANES // across)
    parts, w = out.split(w, factor=across)
    out.reorder(block, c, one, down, parts, h, w)
    tap = out.fuse(h, w)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(c, ty)
    out.bind(tap, te.thread_axis((0, _LANES), "threadIdx.x"))
    out.unroll(down)
    if made.sums is not d.output:
        sums.set_scope("local")
        sums.compute_at(out, tap)
    sums.unroll(sums.op.reduce_axis[0])

    rows.set_scope("shared")
    rows.compute_at(out, block)
    c, kh, place, w = rows.op.axis
    rows.bind(c, ty)
    rows.unroll(kh)
    rows.align_bounds(place, PLACES)
    rows.align_bounds(w, PLACES)
    rows.storage_align(place, PLACES, _APART)
    _, both = rows.split(w, factor=2)
    rows.vectorize(both)

    products.set_scope("fragment")
    products.compute_at(out, block)
    c, e, half, place, w = products.op.axis
    i, n, pair = products.op.reduce_axis
    for axis, extent in ((half, 2), (place, PLACES), (w, PLACES)):
        products.align_bounds(axis, extent)
    step, n = products.split(n, factor=_IMAGES)
    products.reorder(c, i, step, e, pair, half, place, w, n)
    products.bind(c, ty)
    products.unroll(step, e, pair)
    products.tensorize(half, _INSTRUCTIONS[kind])

    for tensor in (made.x, made.dy):
        stage = s[tensor]
        stage.set_scope("fragment")
        stage.compute_at(products, step)
        stage.unroll(stage.op.axis[2])
    s[made.dy].align_bounds(made.dy.op.axis[2], cut.result[0])  # also rows that no tap meets
    for tensor, image in zip(made.staged, (cut.image, cut.result), strict=True):
        stage = s[tensor]
        stage.compute_at(products, i)
        copy_planes(stage, image, tile.channels)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
    return s


def suits_plane_gradient(p: Conv) -> bool:
    """Whether :func:`schedule_plane_gradient` is for a problem: one of small images, of at most
    eight columns, of which some row meets the filter."""
    return p.pass_ == "wgrad" and has_small_images(p) and _is_met(p)


def _is_met(p: Conv) -> bool:
    """Whether a row of the filter ever lies on one of the image: else there is no product."""
    seen = (
        row * p.stride[0] + kh * p.dilation[0] - p.padding[0]
        for row in range(p.out_image[0])
        for kh in range(p.kernel_h)
    )
    return any(0 <= row < p.image[0] for row in seen)


def guesses(p: Conv) -> Iterator[tuple[float, PlaneGradientTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    for channels, images, stages in product((16, 8, 4, 2), (1, 2, 4), (5, 4, 3, 2, 1)):
        cut = PlaneProducts(p, channels, _IMAGES * images)
        turns = -(-p.batch // cut.images)
        rows, pixels = cut.result[0], cut.result[0] * cut.result[1]
        if p.channels % channels or (images > 1 and stages > turns) or stages > turns + 1:
            continue
        chunks = chunk_of(channels, cut.image), chunk_of(channels, cut.result)
        held = 4 * cut.blocks + 4 * cut.pairs + 2 * rows
        shared = 2 * stages * cut.images * (cut.pixels + pixels) + 4 * ROW_FLOATS * p.kernel_h
        if min(chunks) < 2 or held > REGISTERS or shared * channels > SHARED:
            continue
        copies = 16 * (cut.pixels / chunks[0] + pixels / chunks[1]) / _LANES * _IMAGES / 2
        each = rows * cut.pairs + 6 * (2 * cut.pairs + rows) + copies
        once = AROUND + p.kernel_h * p.kernel_w / _LANES * 2 * cut.result[1]
        blocks = p.channels // channels
        busiest = -(-blocks // MACHINE.sms) * channels * (once + turns * images * each)
        ahead = min(5, turns + 1)  # stages that load all at once, or as much as pays
        near = 1 + abs(channels - 8) / 64 + abs(stages - ahead) / 16 + images / 64
        yield busiest * near, PlaneGradientTile(channels, images, stages)
