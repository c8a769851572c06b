"""What a schedule of the sketches leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage

#: ``rows`` of ``columns``, which are all there are, are one vector.
WHOLE_ROWS = 2


@dataclass(frozen=True)
class Tiling:
    """The tile of a thread of a GPU, or of an iteration of a CPU's parallel loop.

    Attributes
    ----------
    rows : neighbours along the last dimension but one.
    columns : neighbours along the last dimension, of which a CPU computes a vector.
    threads : of a block, on a GPU.
    unroll : whether the innermost loop of a reduction is written out.
    vectors : whether a thread of a GPU computes ``columns`` as a vector: 0, 1, or
        :data:`WHOLE_ROWS`; and a CPU ``rows``.
    window : whether a thread of a GPU keeps what a row of a window's taps reads.
    """

    rows: int = 1
    columns: int = 1
    threads: int = 128
    unroll: int = 0
    vectors: int = 0
    window: int = 0


@dataclass(frozen=True)
class Nest:
    """The loops of a stage, cut into tiles: ``outer`` over tiles, ``inner`` in a tile."""

    outer: IterVar
    inner: tuple[IterVar, ...]


def tile(stage: Stage, axes: Sequence[IterVar], rows: int, columns: int) -> Nest:
    """Cut the last two of ``axes`` into tiles of ``rows`` by ``columns``; the loops over tiles
    become one, which a single number has, too."""
    *outer, last = axes or (stage.fuse(),)
    inner: list[IterVar] = []
    if rows > 1 and outer:
        row, within = stage.split(outer.pop(), factor=rows)
        outer.append(row)
        inner.append(within)
    column, within = stage.split(last, factor=columns)
    inner.append(within)
    stage.reorder(*outer, column, *inner)
    return Nest(stage.fuse(*outer, column), tuple(inner))


def bind(stage: Stage, block: IterVar, *threads: IterVar) -> IterVar:
    """Blocks of a GPU take ``block``, which it returns, and their threads ``threads``, the last of
    which are neighbours."""
    stage.bind(block, te.thread_axis("blockIdx.x"))
    for axis, name in zip(threads, "zyx"[3 - len(threads) :], strict=True):
        stage.bind(axis, te.thread_axis(f"threadIdx.{name}"))
    return block


def spread(stage: Stage, axes: Sequence[IterVar], threads: int) -> IterVar:
    """Threads, or work-items, over all of ``axes``, in blocks of as many; returns the loop of a
    block's."""
    block, thread = stage.split(stage.fuse(*axes), factor=threads)
    bind(stage, block, thread)
    return thread


def bind_all(stage: Stage, rest: IterVar, threads: Sequence[IterVar]) -> IterVar:
    """A loop among threads, the last of which are neighbours and take neighbouring turns. Returns
    the loop over what each of them does."""
    for thread in reversed(threads):
        rest, lane = stage.split(rest, factor=extent_of(thread))
        stage.bind(lane, thread)
    return rest


def extent_of(*threads: IterVar) -> int:
    """How many there are."""
    return prod(int(t.dom.extent) for t in threads if t.dom is not None)


def thread_axes(*extents: int) -> list[IterVar]:
    """Threads of a block, of which the last are neighbours."""
    names = "zyx"[3 - len(extents) :]
    return [te.thread_axis((0, n), f"threadIdx.{x}") for n, x in zip(extents, names, strict=True)]


def copy_vectors(stage: Stage, axes: Sequence[IterVar], threads: int, vector: int) -> None:
    """All of a stage by all threads of a block, ``vector`` elements at a time."""
    rest, lane = stage.split(stage.fuse(*axes), factor=vector)
    stage.unroll(bind_all(stage, rest, thread_axes(threads)))
    stage.vectorize(lane)
