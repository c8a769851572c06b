"""Rows of images in shared memory, copied in the background as tensor cores read them."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.target.instructions import copy_async, tma_load

#: Threads of a warpgroup, along x.
LANES = 128
#: Bytes that a thread asks for at once, at most.
_BYTES = 16


def stage_blocks(stage: Stage, outer: Sequence[IterVar], width: int, groups: int) -> None:
    """Copy what ``stage`` holds to shared memory with all threads of ``groups`` warpgroups.

    Parameters
    ----------
    stage : its last dimensions are blocks of columns, blocks of images, images and columns.
    outer : its other axes, in the order in which they are gone through.
    width : the columns of a row of the image, an even number.

    Neighbouring threads fill neighbouring places, and those of a warp read whole sectors.
    """
    kind = stage.op.outputs[0].dtype
    together = gcd(width, _BYTES // dtype(kind).bytes)
    *_, blocks, images, image, column = stage.op.axis
    stage.set_scope("shared")
    part, own = stage.split(column, factor=together)
    stage.reorder(*outer, images, blocks, part, image, own)
    _, flat = stage.split(stage.fuse(*outer, images, blocks, part, image), factor=LANES * groups)
    y, x = stage.split(flat, factor=LANES)
    stage.bind(y, te.thread_axis((0, groups), "threadIdx.y"))
    stage.bind(x, te.thread_axis((0, LANES), "threadIdx.x"))
    stage.tensorize(own, copy_async(together, str(kind)))


def stage_boxes(stage: Stage) -> None:
    """Copy what ``stage`` holds to shared memory by TMA, one box after another: its last two
    dimensions, images and as many columns as a swizzled row has."""
    images = stage.op.axis[-2]
    kind = stage.op.outputs[0].dtype
    extents = [int(n) for n in stage.op.outputs[0].shape[-2:]]
    stage.set_scope("shared")
    swizzle = extents[-1] * dtype(kind).bytes
    stage.swizzle(swizzle)
    stage.tensorize(images, tma_load(extents, str(kind), swizzle=swizzle))


def share_rows(stage: Stage, row: IterVar, column: IterVar, columns: int, threads: int) -> IterVar:
    """Rows of columns among threads, each of which stays with its column: what it
    does for a row is then a constant apart from what it does for the next one. Returns the loop
    over threads, which is to be bound."""
    row, own = stage.split(row, factor=max(1, threads // columns))
    return stage.fuse(own, column)
