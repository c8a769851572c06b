"""Sums of products of boxes, in registers that tensor cores add to or that threads do.

Hopper's tensor cores add products of 8-bit floats with about 14 bits, whatever the type of sums
(DeepSeek-AI, "DeepSeek-V3 Technical Report", 3.3.2). So what they add in one step, up to 128
products of each result, is a sum of its own, which threads add to those before in float32; where
problems allow precision "half", and for all other types, tensor cores add all of it.
"""

from __future__ import annotations

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.pieces.box_products import multiply, step_of
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.problem import Problem


def are_apart(p: Problem) -> bool:
    """Whether threads add up what tensor cores add in a step."""
    return p.is_float8 and p.precision != "half"


def steps(sums: Stage, d: BoxDeclaration) -> tuple[IterVar, IterVar]:
    """The loop over steps, of taps and channels, and that over the channels of a step."""
    *taken, c = sums.op.reduce_axis
    c, k = sums.split(c, factor=step_of(d))
    order = [c, *taken] if d.boxes.whole else [*taken, c]
    sums.reorder(*order, k)
    return sums.fuse(*order), k


def add_steps(
    s: Schedule, total: Tensor, part: Tensor, d: BoxDeclaration, tile: BoxProductTile
) -> IterVar:
    """Add to ``total`` in registers a ``part`` for each step; returns the loop over steps."""
    sums, products = s[total], s[part]
    (at,) = sums.op.reduce_axis
    *_, f = result = sums.op.axis[-4:]
    for axis, extent in zip(result, (*tile.of_groups, tile.channels), strict=True):
        sums.align_bounds(axis, extent)
    sums.reorder(at, *result)
    sums.vectorize(sums.split(f, factor=2)[1])
    products.set_scope("fragment")
    products.compute_at(sums, at)
    step, *axes = products.op.axis
    multiply(products, d, tile, axes[-4:], step, products.op.reduce_axis[-1])
    return at
