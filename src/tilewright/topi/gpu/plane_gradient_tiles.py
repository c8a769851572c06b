"""The tiles worth trying for gradients by the filter of small images on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tilewright.topi.gpu.banded_tiles import SHARED
from tilewright.topi.gpu.depthwise_plane_products import AROUND, REGISTERS, has_small_images
from tilewright.topi.gpu.machine import MACHINE
from tilewright.topi.nn.depthwise_plane_products import PLACES, PlaneProducts
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.plane_copies import chunk_of
from tilewright.topi.pieces.plane_gradients import APART, DEPTH, PlaneGradientTile

_LANES = 32
#: What a row of the filter takes in shared memory.
ROW_FLOATS = PLACES * (PLACES + APART)


def suits_plane_gradient(p: Conv) -> bool:
    """Whether :func:`~tilewright.topi.sketches.plane_gradient.schedule_plane_gradient` is for a
    problem: one of small images, of at most eight columns, of which all rows and columns meet some
    of dy, and the other way round, with some padding behind its columns, without dilation."""
    return (
        p.pass_ == "wgrad" and has_small_images(p) and p.dilation == (1, 1)
        and all(_is_met(p, d) for d in (0, 1))
    )  # fmt: skip


def _is_met(p: Conv, d: int) -> bool:
    """Whether all of x and dy meet along a dimension."""
    last = (p.out_image[d] - 1) * p.stride[d] - p.padding[d]
    reads = last < p.image[d] <= last + p.kernel[d] - d
    return reads and p.padding[d] < p.kernel[d] >= p.stride[d]


def guesses(p: Conv) -> Iterator[tuple[float, PlaneGradientTile]]:
    """Tiles that fit, with how slow they are predicted to be."""
    for channels, images, stages in product((16, 8, 4, 2), (1, 2, 4), (5, 4, 3, 2, 1)):
        cut = PlaneProducts(p, channels, DEPTH * images)
        turns = -(-p.batch // cut.images)
        rows, pixels = cut.result[0], cut.result[0] * cut.result[1]
        if p.channels % channels or (images > 1 and stages > turns) or stages > turns + 1:
            continue
        chunks = chunk_of(channels, cut.image), chunk_of(channels, cut.result)
        held = 4 * cut.blocks + 4 * cut.pairs + 2 * rows
        shared = 2 * stages * cut.images * (cut.pixels + pixels) + 4 * ROW_FLOATS * p.kernel_h
        if min(chunks) < 2 or held > REGISTERS or shared * channels > SHARED:
            continue
        copies = 16 * (cut.pixels / chunks[0] + pixels / chunks[1]) / _LANES * DEPTH / 2
        each = rows * cut.pairs + 6 * (2 * cut.pairs + rows) + copies
        once = AROUND + p.kernel_h * p.kernel_w / _LANES * 2 * cut.result[1]
        blocks = p.channels // channels
        busiest = -(-blocks // MACHINE.sms) * channels * (once + turns * images * each)
        ahead = min(5, turns + 1)  # stages that load all at once, or as much as pays
        near = 1 + abs(channels - 8) / 64 + abs(stages - ahead) / 16 + images / 64
        yield busiest * near, PlaneGradientTile(channels, images, stages)
