"""Programs whose neighbours lie apart in what they read: images that are turned, on a GPU; and
tiles of some of them on a CPU, by :mod:`~tilewright.topi.sketches.loops`.

A block moves a tile through shared memory. It is read as neighbours lie in the argument, and
written as they lie in the result, in vectors both times. Rows of the tile are an odd number of
words apart, so that threads that read a column of it meet other banks.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr, Load
from tilewright.ir.visit import walk
from tilewright.schedule import Schedule
from tilewright.te import ComputeOp
from tilewright.topi.declared import Declared
from tilewright.topi.pieces.counts import declared, elements
from tilewright.topi.pieces.reads import above, computed, extent, is_own, loads
from tilewright.topi.pieces.sums import inline, reduces
from tilewright.topi.pieces.tiling import Tiling, bind, bind_all, copy_vectors, thread_axes
from tilewright.topi.problem import Problem

#: Of a CPU: pixels whose addresses are a multiple of ``_PLACES`` bytes apart share few places of a
#: cache, so that the lines of ``_MANY`` are gone before their next number is read, unless ``_ROWS``
#: numbers are read at once.
_PLACES, _MANY, _ROWS = 256, 512, 32


@dataclass(frozen=True)
class TurnTile:
    """A block has ``columns`` neighbours of the result by ``rows`` of the argument, of which a
    thread reads ``loads`` and writes ``stores`` at a time."""

    rows: int = 32
    columns: int = 32
    threads: int = 256
    loads: int = 1
    stores: int = 1


@functools.lru_cache(512)
def turned_of(p: Problem) -> tuple[str, int] | None:
    """The argument that a program turns, and the axis of the result along which its neighbours lie;
    None where there is none, or several, or what is turned is not where it is read."""
    d = declared(p)
    ops = list(computed(d.output))
    large = [n for n, x in d.inputs.items() if elements(x) >= elements(d.output)]
    if len(large) != 1 or any(reduces(op) or len(op.body) != 1 for op in ops):
        return None
    x = d.inputs[large[0]]
    of_x = {x.buffer, *(op.output(0).buffer for op in ops)}
    turns = [(op, load) for op in ops for load in loads(op)
             if load.buffer in of_x and not is_own(op, load)]  # fmt: skip
    if len(turns) != 1 or elements(x) != elements(d.output):
        return None
    # All that is read as it lies is read before.
    ((turn, load),) = turns
    before = above([turn.output(0)])
    if any(x in op.inputs and op.output(0) not in before for op in ops):
        return None
    place = _place(turn, load)
    return None if place is None or d.output.ndim != place[1] else (large[0], place[0])


def _place(op: ComputeOp, load: Load) -> tuple[int, int] | None:
    """The axis of an operation along which neighbours of an argument lie, and how many axes it has;
    None where it moves them otherwise, or not."""
    axes: list[Expr] = [a.var for a in op.axis]
    indices = list(load.indices)
    if any(i not in axes and any(v in axes for v in walk(i)) for i in indices):
        return None
    if indices[-1] not in axes[:-1] or axes[-1] not in indices:
        return None
    return axes.index(indices[-1]), len(axes)


def schedule_turned(d: Declared, t: TurnTile = TurnTile()) -> Schedule:
    """The schedule of a program that has :func:`turned_of`."""
    found = turned_of(d.problem)
    assert found is not None, d.problem
    name, along = found
    s = inline(d.output).schedule
    x, out = d.inputs[name], s[d.output]
    tile = s[s.cache_read(x, "shared", [st.op for st in s.stages if x in st.op.inputs])]
    *outer, last = out.op.axis
    row = outer.pop(along)
    rows, row = out.split(row, factor=t.rows)
    columns, column = out.split(last, factor=t.columns)
    out.reorder(*outer, rows, columns, row, column)
    block = bind(out, out.fuse(*outer, rows, columns))
    rest, lane = out.split(out.fuse(row, column), factor=t.stores)
    out.unroll(bind_all(out, rest, thread_axes(t.threads)))
    out.vectorize(lane)
    tile.compute_at(out, block)
    words = max(1, 4 // dtype(x.dtype).bytes)
    tile.storage_align(tile.op.axis[-2], 32 * words, words)
    copy_vectors(tile, tile.op.axis, t.threads, t.loads)
    return s


def pixel_tiles(p: Problem, lanes: int) -> list[Tiling]:
    """What is tried first of what a CPU turns: vectors of as many neighbours of the argument, where
    these are the result's rows, which are shorter; lines of them, each read once, where those of
    one column compete for places of a cache. None for other programs."""
    *_, rows, columns = (0, 0, *p.result.shape)
    few, many = columns < lanes <= rows, rows and rows % _ROWS == 0 and columns >= _MANY
    found = turned_of(p) if few or many else None
    if found is None or found[1] != len(p.result.shape) - 2:
        return []
    if few:
        return [Tiling(lanes, columns, 1, vectors=1)]
    apart = rows * dtype(str(declared(p).inputs[found[0]].dtype)).bytes
    return [Tiling(_ROWS, lanes, 1, 1)] if apart % _PLACES == 0 else []


def shapes_of(p: Problem) -> tuple[int, int]:
    """How many neighbours there are, in the argument and in the result."""
    found = turned_of(p)
    assert found is not None, p
    d = declared(p)
    return int(d.output.shape[found[1]]), int(extent(d.output.op.axis[-1]))
