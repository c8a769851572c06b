"""What schedules of declared problems begin with: the stages in place, their axes by meaning."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage, create_schedule
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.nn.images import Images


@dataclass(frozen=True)
class Stages:
    """A schedule in which ``out`` writes the result, epilogue included, and ``sums``, in registers,
    is the sum; nothing else stands behind the sum."""

    schedule: Schedule
    declaration: Declaration
    out: Stage
    sums: Stage
    sum: Tensor

    @property
    def padded(self) -> Stage | None:
        found = self.declaration.padded
        return None if found is None else self.schedule[found]

    @property
    def packed(self) -> Stage | None:
        found = self.declaration.packed
        return None if found is None else self.schedule[found]


def scheduled(output: Tensor, *kept: Tensor | None) -> Schedule:
    """The schedule of ``output`` with stages of its own for ``kept``, those that there are; all
    others, element-wise ones, are inlined."""
    s = create_schedule(output.op)
    own = {t.op for t in (output, *kept) if t is not None}
    for stage in s.stages:
        if stage.op not in own and stage.op.axis:
            stage.compute_inline()
    return s


def begin(d: Declaration, *kept: Tensor | None) -> Stages:
    """The stages of a declaration, the element-wise ones inlined, but for those ``kept``."""
    s = scheduled(d.output, d.sum, d.padded, d.packed, *kept)
    if d.sum is d.output:
        total = s.cache_write(d.output, "local")
    else:
        total = d.sum
        s[total].set_scope("local")
    return Stages(s, d, s[d.output], s[total], total)


def space_axes(stage: Stage, layout: str) -> list[IterVar]:
    """The axes of a stage that makes images: batch, channels, then rows, of which there is one
    where there are none, and columns; planes before them where there are some."""
    n, c, space = Images(layout).meaning(stage.op.axis)
    if len(space) == 1:
        space = list(stage.split(space[0], nparts=1))
    return [n, c, *space]


def image_axes(stage: Stage, layout: str) -> list[IterVar]:
    """:func:`space_axes`, or of a matrix, whose rows are images of one pixel."""
    if len(layout) == 2:
        row, c = stage.op.axis
        n, h = stage.split(row, factor=1)
        return [n, c, *stage.split(h, factor=1)]
    return space_axes(stage, layout)


def plane_axes(stage: Stage, layout: str) -> tuple[IterVar, IterVar, IterVar, IterVar]:
    """The axes (n, c, h, w) of a stage that makes images, of whose planes, where there are some,
    each is one of the batch."""
    n, c, *planes, h, w = image_axes(stage, layout)
    if planes:
        others = (h, w, c) if layout.endswith("C") else (c, h, w)
        stage.reorder(n, *planes, *others)
        n = stage.fuse(n, *planes)
    return n, c, h, w


def tap_axes(stage: Stage, rank: int) -> tuple[list[IterVar], IterVar, IterVar]:
    """The reduction axes of a sum over taps: those before them, vertical, horizontal."""
    axes = list(stage.op.reduce_axis)
    if rank == 1:
        return axes[:-1], *stage.split(axes[-1], nparts=1)
    return axes[:-2], axes[-2], axes[-1]
