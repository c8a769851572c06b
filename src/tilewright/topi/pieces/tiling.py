"""What a schedule of the sketches leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Stage


@dataclass(frozen=True)
class Tiling:
    """The tile of a thread of a GPU, or of an iteration of a CPU's parallel loop.

    Attributes
    ----------
    rows : neighbours along the last dimension but one.
    columns : neighbours along the last dimension, of which a CPU computes a vector.
    threads : of a block, on a GPU.
    unroll : whether the innermost loop of a reduction is written out.
    """

    rows: int = 1
    columns: int = 1
    threads: int = 128
    unroll: int = 0


@dataclass(frozen=True)
class Nest:
    """The loops of a stage, cut into tiles: ``outer`` over tiles, ``inner`` in a tile."""

    outer: IterVar
    inner: tuple[IterVar, ...]


def tile(stage: Stage, axes: Sequence[IterVar], rows: int, columns: int) -> Nest:
    """Cut the last two of ``axes`` into tiles of ``rows`` by ``columns``; the loops over tiles
    become one."""
    *outer, last = axes
    inner: list[IterVar] = []
    if rows > 1 and outer:
        row, within = stage.split(outer.pop(), factor=rows)
        outer.append(row)
        inner.append(within)
    column, within = stage.split(last, factor=columns)
    inner.append(within)
    stage.reorder(*outer, column, *inner)
    return Nest(stage.fuse(*outer, column), tuple(inner))
