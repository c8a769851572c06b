"""What schedules of products with Toeplitz matrices have in common.

The declaration is that of :mod:`~tilewright.topi.nn.depthwise_toeplitz`. Groups of threads of a
block compute tiles of outputs of some images, one below the other, and load one row of the image
after another into the fragments that they multiply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import TypeAlias

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.devices import H200
from tilewright.topi.cut import CutDeclaration
from tilewright.topi.nn.depthwise_toeplitz import SHARE, Toeplitz, ToeplitzStages
from tilewright.topi.operators.conv import Conv
from tilewright.topi.stages import scheduled

#: A problem as products with Toeplitz matrices.
ToeplitzDeclaration: TypeAlias = CutDeclaration[Toeplitz, ToeplitzStages]
#: Bytes of shared memory that blocks may take on GPUs with the most.
SHARED = H200.block_shared


@dataclass(frozen=True)
class Team:
    """The threads of a block: ``lanes`` along x, which hold fragments together, ``groups`` of them
    along y, which compute tiles one below the other, ``teams`` of these along z, of other images.
    """

    lanes: int
    groups: int
    teams: int = 1

    @property
    def threads(self) -> int:
        return self.lanes * self.groups * self.teams

    @property
    def others(self) -> tuple[tuple[str, int], ...]:
        """The axes of threads but x, with their extents."""
        return ("threadIdx.y", self.groups), ("threadIdx.z", self.teams)


def suits(p: Conv, types: Sequence[str] = ("float16", "bfloat16")) -> bool:
    """Whether a problem of one of some types can be declared so."""
    return (
        p.rank == 2
        and p.dtype in types
        and p.accumulate == "float32"
        and (p.pass_ == "forward" or (p.stride == (1, 1) and p.multiplier == 1))
    )


def begin(
    d: ToeplitzDeclaration,
    team: Team,
    turns: int,
) -> tuple[Schedule, IterVar]:
    """The schedule of the results, whose axis of groups is returned.

    A group computes ``turns`` tiles, every ``groups``-th down the image.
    """
    cut, made = d.cut, d.stages
    stages = (made.taps, made.matrices, made.image, made.sum, made.rows, made.parts)
    s = scheduled(d.output, *stages)
    out = s[d.output]
    ty = te.thread_axis((0, team.groups), "threadIdx.y")
    tz = te.thread_axis((0, team.teams), "threadIdx.z")
    n, c, h, w = out.op.axis
    many, n = out.split(n, factor=cut.images)
    own, n = out.split(n, nparts=team.teams)
    down, row = out.split(h, factor=cut.rows)
    turn, group = out.split(down, factor=team.groups)
    below, turn = out.split(turn, factor=turns)
    across, w = out.split(w, factor=cut.columns)
    vector, lane = out.split(w, factor=wide(cut.result[1], cut.columns // 4))
    out.reorder(many, c, below, across, own, turn, group, n, row, vector, lane)
    block = out.fuse(many, c, below, across)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(group, ty)
    out.bind(own, tz)
    out.vectorize(lane)
    return s, group


def load_image(d: ToeplitzDeclaration, image: Stage, sums: Stage, at: IterVar, stages: int) -> None:
    """Load rows of the image into fragments where ``sums`` is at ``at``, ``stages - 1`` ahead."""
    image.set_scope("fragment")
    image.compute_at(sums, at)
    *_, column = image.op.axis
    _, lane = image.split(column, factor=wide(d.cut.image[1], SHARE))
    image.vectorize(lane)
    if stages > 1:
        image.pipeline(stages)


def wide(extent: int, most: int) -> int:
    """The largest power of two up to ``most`` that divides ``extent``."""
    return gcd(extent, most)
