"""Copies of operands that boxes cannot bring as they lie, each in a kernel of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright import te
from tilewright.ir.dtype import dtype
from tilewright.ir.itervar import IterVar
from tilewright.ir.visit import uses
from tilewright.schedule import Schedule, Stage
from tilewright.target.devices import WARP
from tilewright.te import ComputeOp, Tensor
from tilewright.topi.broadcast import shape_of
from tilewright.topi.nn.box_problems import widths
from tilewright.topi.pieces.reads import loads
from tilewright.topi.pieces.tiling import bind, bind_all, copy_vectors, extent_of, thread_axes

_THREADS = 256  # of a block that copies


def copy(s: Schedule, copies: Sequence[Tensor]) -> None:
    """Make ``copies`` in kernels of their own, of 16 bytes a thread, or of all channels where these
    are few: what is read is known then, but for where. Where what is read side by side lies along
    another axis, a block turns a tile in shared memory; or, of what is computed from several
    elements, threads beside one another go along that, each with a whole sector of 32 bytes."""
    for t in copies:
        stage = s[t]
        *others, c = stage.op.axis
        w, channels = widths(str(t.dtype)), extent_of(c)
        beside = stage.op.axis[_read_along(t)]
        if beside is not c and channels > w.deep and extent_of(beside) >= WARP:
            others.remove(beside)
            source = _read_once(t)
            if source is not None:
                _turn(s, stage, source, others, beside, c)
                continue
            c, lane = stage.split(c, factor=w.deep)
            more, lane = stage.split(lane, factor=w.chunk)
            stage.reorder(*others, c, beside, more, lane)
            stage.unroll(more)
            c = stage.fuse(c, beside)
        else:
            own = math.gcd(channels, _side_by_side(t), w.chunk) if beside is c else 1
            few = own < max(2, w.chunk // 4)  # elements are loaded one by one
            whole = channels if few and channels <= w.deep else w.chunk
            c, lane = stage.split(c, factor=whole if few else own)
        block, thread = stage.split(stage.fuse(*others, c), factor=_THREADS)
        stage.bind(block, te.thread_axis("blockIdx.x"))
        stage.bind(thread, te.thread_axis("threadIdx.x"))
        stage.vectorize(lane)


def _turn(
    s: Schedule, stage: Stage, source: Tensor, others: Sequence[IterVar], beside: IterVar,
    last: IterVar,
) -> None:  # fmt: skip
    """A copy of ``source``, whose elements lie side by side along ``beside``: a tile of it is read
    in rows of these, and written in rows of the ``last`` axis."""
    kind = dtype(source.dtype)
    tile = s[s.cache_read(source, "shared", [stage.op])]
    columns, words = 2 * WARP, max(1, 4 // kind.bytes)
    (over, row), (across, column) = (stage.split(x, factor=columns) for x in (beside, last))
    stage.reorder(*others, over, across, row, column)
    block = bind(stage, stage.fuse(*others, over, across))
    rest, lane = stage.split(
        stage.fuse(row, column), factor=widths(str(stage.op.output(0).dtype)).chunk
    )
    stage.unroll(bind_all(stage, rest, thread_axes(_THREADS)))
    stage.vectorize(lane)
    tile.compute_at(stage, block)
    # Rows are an odd number of words apart, so that threads that read a column meet other banks.
    tile.storage_align(tile.op.axis[-2], WARP * words, words)
    copy_vectors(tile, tile.op.axis, _THREADS, 16 // kind.bytes)


def _read_once(t: Tensor) -> Tensor | None:
    """The argument that a copy reads an element of for each of its own; None of others."""
    found = list(loads(t.op)) if isinstance(t.op, ComputeOp) else []
    if len(found) != 1:
        return None
    (x,) = t.op.inputs
    return x if not isinstance(x.op, ComputeOp) else None


def _side_by_side(t: Tensor) -> int:
    """Of how many elements rows are in what a copy reads, where it reads one; else 1."""
    last = [shape_of(i)[-1] for i in t.op.inputs]
    return last[0] if len(last) == 1 and isinstance(last[0], int) else 1


def _read_along(t: Tensor) -> int:
    """The axis along which neighbours of a copy lie side by side in what it reads, also through
    what it is made of; the last one where there are several."""
    op, found = t.op, set[int]()
    if isinstance(op, ComputeOp):
        for x in loads(op):
            at = next(_read_along(i) for i in op.inputs if i.buffer is x.buffer)
            found |= {k for k, a in enumerate(op.axis) if uses(x.indices[at], {a.var})}
    return found.pop() if len(found) == 1 else len(t.shape) - 1
