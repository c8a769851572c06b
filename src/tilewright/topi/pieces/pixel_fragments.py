"""Fragments of pixels in shared memory, which ldmatrix loads sixteen by sixteen: as rows of a
product, or turned, as what is summed."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.target.instruction import Instruction
from tilewright.topi.pieces.box_products import innermost


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
