"""What a block multiplies of a product that several blocks have a part of."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.te import Tensor
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_multiply import multiply
from tilewright.topi.pieces.box_products import bring
from tilewright.topi.pieces.box_tiles import BoxProductTile
from tilewright.topi.pieces.step_sums import add_steps, are_apart, axes_of


class PartSums(NamedTuple):
    """The ``total`` of a part in registers, the sums of its steps where those are apart, and the
    factors in shared memory."""

    total: Tensor
    steps: Tensor | None
    boxes: Tensor
    taps: Tensor


def part_sums(s: Schedule, d: BoxDeclaration, writer: Tensor) -> PartSums:
    """Caches of what ``writer`` stores, and of what it reads."""
    total, steps = s.cache_write(writer, "fragment"), None
    if are_apart(d.problem):
        steps = s.rfactor(total, s[total].op.reduce_axis[0])
    boxes, taps = (s.cache_read(t, "shared", [steps or total]) for t in (d.left, d.right))
    return PartSums(total, steps, boxes, taps)


def multiply_part(
    s: Schedule, d: BoxDeclaration, tile: BoxProductTile, found: PartSums, parts: Stage,
    group: IterVar,
) -> None:  # fmt: skip
    """Schedule them: computed at the loop ``group`` of the stage ``parts`` that stores the part."""
    sums = s[found.total]
    sums.compute_at(parts, group)
    if found.steps is None:
        at, k = sums.op.reduce_axis
        phase, result = axes_of(sums.op.axis[1:], d)
        sums.reorder(*phase, at, *result, k)
        multiply(sums, d, tile, result, at, k)
    else:
        at = add_steps(s, found.total, found.steps, d, tile)
    bring(sums, d, tile, at, s[found.boxes], s[found.taps])
