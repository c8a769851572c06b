"""Blocks that take turns at boxes, of which a call decides how many there are."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright import te
from tilewright.ir.expr import IntImm
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.topi.gpu.machine import MACHINE
from tilewright.topi.nn.box_sums import BoxDeclaration

#: Blocks are few that are less than this part of those which SMs have at once.
_FEW = 8


def is_free(d: BoxDeclaration) -> bool:
    """Whether a call decides what the batch is."""
    return not isinstance(d.image.shape[0], IntImm)


def take_turns(
    out: Stage, loops: Sequence[IterVar], apart: Sequence[IterVar], ranks: Sequence[IterVar],
    own: Sequence[IterVar], blocks: int = 0, boxes: int = 0,
) -> tuple[IterVar, IterVar]:  # fmt: skip
    """Let each of ``blocks`` compute every ``blocks``-th iteration of some ``loops``, for each of
    those that lie ``apart``, along blockIdx.y; or as many blocks as there have to be ``boxes`` of
    them each, so that none has nothing to do. Blocks of a cluster are ``ranks`` of one. The first
    of the loops is over the batch: nothing is divided by an extent that a call decides. Returns the
    loops over blocks and over the boxes of each, around its ``own``."""
    out.reorder(*apart, *loops, *ranks, *own)
    if blocks:
        box, block = out.split(out.fuse(*loops), factor=blocks)
    else:
        block, box = out.split(out.fuse(*loops), factor=boxes)
    out.reorder(*apart, block, *ranks, box, *own)
    if apart:
        out.bind(out.fuse(*apart), te.thread_axis("blockIdx.y"))
    return out.fuse(block, *ranks), box


def blocks_for(boxes: int, each: int, others: int) -> int:
    """How many blocks take turns at ``boxes``, for each of ``others``: those of which each has
    ``each``, but none that would wait until all SMs have done what they began with.

    >>> blocks_for(98, 6, 8), blocks_for(1568, 24, 2), blocks_for(40, 3, 1)
    (16, 66, 14)
    """
    count = -(-boxes // each)
    full = max(1, count * others // MACHINE.sms) * MACHINE.sms
    few = full < count * others < full + MACHINE.sms // _FEW
    return max(1, full // others) if few else count
