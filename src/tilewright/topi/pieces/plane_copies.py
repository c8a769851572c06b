"""Planes of neighbouring channels, one behind the other, copied in chunks as large as can be."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage
from tilewright.target.instructions import copy_async

#: Threads of a warp; elements of 16 bits that a thread copies at once, at most.
_LANES, _CHUNK = 32, 8
#: Images in shared memory are an odd multiple of 16 bytes apart, 8 elements of every 16, so that
#: eight of them meet no bank twice.
APART = 16, 8


def copy_planes(
    staged: Stage, axes: Sequence[IterVar], image: Sequence[int], channels: int
) -> None:
    """Copy images as groups of ``channels`` channels have them to shared memory, in the background:
    ``axes`` of the stage, of which the first are images."""
    n, *planes = axes
    staged.set_scope("shared")
    staged.storage_align(n, *APART)
    chunk, own = spread_chunks(staged, n, planes, image, channels, len(planes) > 2)
    staged.tensorize(own, copy_async(chunk, str(staged.op.outputs[0].dtype)))


def spread_chunks(
    stage: Stage,
    images: Any,
    planes: list[Any],
    image: Sequence[int],
    channels: int,
    apart: bool = False,
) -> tuple[int, Any]:
    """All of it by all threads of a block, in which each channel has a warp, in the largest chunks
    there are; how many elements one has, and its axis. Planes whose rows and columns are the last
    two of ``planes`` may be taken ``apart``, where they are whole chunks.

    As many threads as there are chunks of an image go from one of the block's ``images`` to
    another, so that each finds its place in an image once.
    """
    threads, chunk = _LANES * channels, chunk_of(channels, image)
    elements = channels * image[0] * image[1]
    outer = planes[:-2] if apart and prod(image) % chunk == 0 else []
    at, own = stage.split(stage.fuse(*planes[len(outer) :]), factor=chunk)
    at = stage.fuse(*outer, at)
    turn, n = stage.split(images, factor=max(1, threads * chunk // elements))
    stage.reorder(turn, n, at, own)
    rest, thread = stage.split(stage.fuse(n, at), factor=threads)
    y, x = stage.split(thread, factor=_LANES)
    stage.bind(y, te.thread_axis((0, channels), "threadIdx.y"))
    stage.bind(x, te.thread_axis((0, _LANES), "threadIdx.x"))
    stage.unroll(turn)
    stage.unroll(rest)
    return chunk, own


def chunk_of(channels: int, image: Sequence[int]) -> int:
    """Elements of planes of ``channels`` channels that are copied at once: whole rows, or what
    neither begins nor ends with rows, so that it is one chunk whatever row it lies in."""
    together, width = gcd(channels * image[0] * image[1], _CHUNK), image[1]
    return width if together % width == 0 else together
