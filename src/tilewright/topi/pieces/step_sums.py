"""Sums of products of boxes, in registers that tensor cores add to or that threads do.

What tensor cores add to a sum they round towards zero, so the errors of many of TF32 add up to one
side (docs/decisions/0004-float32-on-tensor-cores.md); and of products of 8-bit floats Hopper's keep
about 14 bits, whatever the type of sums (DeepSeek-AI, "DeepSeek-V3 Technical Report", 3.3.2). So
where results are to be those of float32, what they add in one step, up to 16 channels of float32,
the products with small halves first, or 128 of 8-bit floats for each result, is a sum of its own,
which threads add to those before. Where problems allow more, and for all other types, tensor cores
add all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.broadcast import shape_of
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_multiply import multiply
from tilewright.topi.pieces.box_products import terms_of
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.tiling import extent_of
from tilewright.topi.problem import Problem


def are_apart(p: Problem) -> bool:
    """Whether threads add up what tensor cores add in a step."""
    return p.precision != "half" if p.is_float8 else p.precision == "tf32x3"


def steps(sums: Stage, d: BoxDeclaration) -> tuple[IterVar, IterVar]:
    """The loop over steps, of taps and channels, and that over the channels of a step."""
    *taken, c = sums.op.reduce_axis
    c, k = sums.split(c, factor=terms_of(d))
    order = [c, *taken] if d.boxes.whole else [*taken, c]
    sums.reorder(*order, k)
    return sums.fuse(*order), k


def steps_of_channels(sums: Stage, d: BoxDeclaration) -> tuple[IterVar, IterVar, IterVar]:
    """The loops over the channels of steps, over all taps, and over the channels of a step."""
    *taps, c = sums.op.reduce_axis
    c, k = sums.split(c, factor=terms_of(d))
    c, some = sums.split(c, factor=boxes_together(d))
    sums.reorder(c, some, *taps, k)
    return c, sums.fuse(some, *taps), k


def boxes_together(d: BoxDeclaration) -> int:
    """How many boxes of up to 64 channels are brought as one: two of a convolution with a single
    tap that has pairs of whole ones, since asking for a box takes as long as bringing a small
    one."""
    *taps, c = d.sum.op.reduce_axis
    single = all(extent_of(tap) == 1 for tap in taps) and not (d.boxes.turned or d.boxes.blocks[0])
    # What is summed is filled up with zeros: the channels that there are have pairs, too.
    rows = (*(shape_of(read)[-1] for read in d.left.op.inputs), extent_of(c))
    in_pairs = all(isinstance(n, int) and n % (2 * terms_of(d)) == 0 for n in rows)
    return 2 if single and d.space <= 2 and in_pairs else 1


def axes_of(axes: Sequence[IterVar], d: BoxDeclaration) -> tuple[list[IterVar], list[IterVar]]:
    """Of the axes of sums that of the phase, where there is one, and those of a result."""
    *outer, f = axes
    phase = [] if d.phased is None else [outer.pop()]
    place = 1 + d.space + (d.boxes.beside > 1)
    return phase, [*outer[-place:], f]


def add_steps(
    s: Schedule, total: Tensor, part: Tensor, d: BoxDeclaration, tile: BoxProductTile
) -> IterVar:
    """Add to ``total`` in registers a ``part`` for each step; returns the loop over steps."""
    sums, products = s[total], s[part]
    (at,) = sums.op.reduce_axis
    phase, result = axes_of(sums.op.axis, d)
    for axis, extent in zip(result, (*tile.of_groups, tile.channels), strict=True):
        sums.align_bounds(axis, extent)
    sums.reorder(*phase, at, *result)
    sums.vectorize(sums.split(result[-1], factor=2)[1])
    products.set_scope("fragment")
    products.compute_at(sums, at)
    step, k = products.op.axis[0], products.op.reduce_axis[-1]
    phase, result = axes_of(products.op.axis, d)
    products.reorder(*phase, step, *result, k)
    multiply(products, d, tile, result, step, k)
    return at
