"""Fragments of pixels in shared memory, which ldmatrix loads sixteen by sixteen: as rows of a
product, or turned, as what is summed."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.target.instruction import Instruction
from tilewright.target.instructions import tma_load
from tilewright.topi.nn.tap_gradients import box_of_rows
from tilewright.topi.operators.conv import Conv
from tilewright.topi.pieces.box_products import innermost
from tilewright.topi.pieces.tap_tiles import TapGradientTile


def load_fragments(
    stage: Stage, others: Sequence[IterVar], pixel: Sequence[IterVar], c: IterVar,
    box: Sequence[int], instruction: Instruction, turned: bool,
) -> None:  # fmt: skip
    """Load the pixels of a ``box``, eight of which are neighbours along rows, with channels ``c``,
    for each iteration of ``others``; channels come first where they are ``turned``."""
    c, eight = stage.split(c, factor=8)
    c, pair = stage.split(c, factor=2)
    whole, extents, inner = innermost(stage, pixel, box)
    whole, _, pairs = innermost(stage, whole, extents, 2)
    pixels, channels = [*pairs, *inner], [pair, eight]
    block = [*channels, *pixels] if turned else [*pixels, *channels]
    stage.reorder(*others, *whole, c, *block)
    stage.unroll(*others, *whole, c)
    stage.tensorize(block[0], instruction)


def bring_rows(stage: Stage, sums: Stage, at: IterVar, p: Conv, tile: TapGradientTile) -> None:
    """Copy rows of few channels as they lie, ahead of iterations of the loop ``at``."""
    stage.compute_at(sums, at)
    if tile.stages > 1:
        stage.pipeline(tile.stages)
    stage.tensorize(stage.op.axis[-3], tma_load(box_of_rows(p, tile), p.dtype))
