"""How sums of products of boxes that several blocks have parts of are added."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.expr import Expr, IntImm
from tilewright.schedule import Schedule
from tilewright.target.devices import WARP
from tilewright.te import ComputeOp, Tensor
from tilewright.topi.nn.box_sums import BoxDeclaration
from tilewright.topi.pieces.box_products import terms_of
from tilewright.topi.pieces.reads import loads
from tilewright.topi.pieces.tiling import bind, bind_all, extent_of, thread_axes

#: Threads of a block that add parts of different results, where there are many, or few; and what
#: each adds at once.
_THREADS, _FEW, _LANES = 128, 32, 4
#: Threads of a block that turns what it adds, the most rows that it has, and results in a sector.
_TURNING, _ROWS, _SECTOR = 256, 256, 8
#: Parts of a result that a thread loads at once, those that are one thread's where others would
#: take as long, and threads that share those of a result at most.
_AT_ONCE, _ALONE, _SHARED = 8, 32, 32
#: Threads that are enough to have all SMs wait for memory.
_ENOUGH = 128 * 1024


def in_parts(s: Schedule, d: BoxDeclaration, count: int) -> Tensor:
    """Parts of the sum of a declaration, ``count`` of them, of taps and channels that follow one
    another, or are ``count`` steps apart where phases have different numbers of taps: so each part
    ends where its phase does. The part is the first axis."""
    sums = s[d.sum]
    *taken, c = sums.op.reduce_axis
    c, _ = sums.split(c, factor=terms_of(d))
    sums.reorder(*taken, c)
    steps = sums.fuse(*taken, c)
    if d.phased is None:
        part, _ = sums.split(steps, nparts=count)
    else:
        _, part = sums.split(steps, factor=count)
    writer: Tensor = s.rfactor(d.sum, part)
    return writer


def add_parts(s: Schedule, output: Tensor, total: Tensor, windows: Tensor | None = None) -> None:
    """Add the parts of a ``total`` in a kernel of their own, that of the ``output``. Where results
    are few and parts many, several threads share the parts of a result: one would wait for
    memory again and again. Of ``windows`` in registers a thread adds those of one result after the
    other."""
    turned = _turned_along(output, total)
    if turned is not None:
        _add_turned(s, output, total, turned)
        return
    out, sums = s[output], s[total]
    (part,) = sums.op.reduce_axis
    # Not where the batch is symbolic.
    known = all(x.dom and isinstance(x.dom.extent, IntImm) for x in out.op.axis)
    alone = windows is not None or not known
    sharing = 1 if alone else sharing_of(extent_of(*out.op.axis), extent_of(part))
    lanes = math.gcd(extent_of(out.op.axis[-1]), _LANES) if sharing == 1 else 1
    at, lane = out.split(out.fuse(*out.op.axis), factor=lanes)
    at, thread = out.split(at, factor=_THREADS if sharing == 1 else _FEW)
    out.bind(at, te.thread_axis("blockIdx.x"))
    out.bind(thread, te.thread_axis("threadIdx.x"))
    out.vectorize(lane)
    sums.set_scope("local")
    if windows is None:
        sums.compute_at(out, thread)
    else:
        pooled = s[windows]
        pooled.compute_at(out, thread)
        taps = list(pooled.op.reduce_axis)
        pooled.reorder(*taps, *pooled.op.axis)
        pooled.unroll(*taps)
        pooled.vectorize(pooled.op.axis[-1])
        sums.compute_at(pooled, taps[-1])
    if sharing > 1:
        part, shared = sums.split(part, factor=sharing)
        sums.bind(shared, te.thread_axis("threadIdx.y"))
    turn, part = sums.split(part, factor=min(_AT_ONCE, extent_of(part)))
    sums.unroll(part)  # none of its loads waits for another
    if sharing == 1:
        sums.reorder(turn, part, *sums.op.axis)
        sums.vectorize(sums.op.axis[-1])


def _turned_along(output: Tensor, total: Tensor) -> int | None:
    """The axis of an output along which neighbours in a ``total`` are its results, where the output
    is that in another order; None of others."""
    op = output.op
    read = list(loads(op)) if isinstance(op, ComputeOp) and total in op.inputs else []
    if len(read) != 1:
        return None
    (x,) = read
    axes: list[Expr] = [a.var for a in op.axis]
    if x.indices[-1] not in axes[:-1]:
        return None
    return axes.index(x.indices[-1])


def _add_turned(s: Schedule, output: Tensor, total: Tensor, along: int) -> None:
    """The same where neighbours in the parts are results ``along`` another axis than the last: a
    tile is added in the order of the parts, and turned in shared memory. It has a sector of the
    last axis, and all of the others, with which that may be numbered in the parts."""
    sums, out = s[s.cache_write(total, "local")], s[output]
    *others, last = out.op.axis
    row = others.pop(along)
    wide = max(1, min(_SECTOR, _ROWS // extent_of(*others)))
    over, row = out.split(row, factor=WARP)
    across, column = out.split(last, factor=wide)
    out.reorder(over, across, row, *others, column)
    block = bind(out, out.fuse(over, across))
    lanes = math.gcd(extent_of(last), wide, _LANES)
    rest, lane = out.split(out.fuse(row, *others, column), factor=lanes)
    out.unroll(bind_all(out, rest, thread_axes(_TURNING)))
    out.vectorize(lane)
    tile = s[total]
    tile.set_scope("shared")
    tile.compute_at(out, block)
    # Rows are an odd number of words apart, so that threads that read a column meet other banks.
    tile.storage_align(tile.op.axis[-2], WARP, 1)
    lanes = math.gcd(extent_of(total.op.axis[-1]), _LANES)
    rest, lane = tile.split(tile.fuse(*tile.op.axis), factor=lanes)
    rest, thread = tile.split(rest, factor=_TURNING)
    tile.bind(thread, thread_axes(_TURNING)[0])
    tile.unroll(rest)
    tile.vectorize(lane)
    sums.compute_at(tile, thread)
    (part,) = sums.op.reduce_axis
    turn, part = sums.split(part, factor=min(_AT_ONCE, extent_of(part)))
    sums.unroll(part)
    sums.reorder(turn, part, *sums.op.axis)
    sums.vectorize(sums.op.axis[-1])


def sharing_of(results: int, parts: int) -> int:
    """How many threads share the ``parts`` of each of some results."""
    sharing = 1
    while (
        parts > max(_ALONE, _AT_ONCE * sharing)
        and 2 * sharing <= _SHARED
        and 2 * sharing * results < _ENOUGH
    ):
        sharing *= 2
    return sharing
