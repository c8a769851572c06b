"""How sums of products of boxes that several blocks have parts of are added."""

from __future__ import annotations

import math

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.nn.box_windows import BoxDeclaration
from tilewright.topi.pieces.box_products import terms_of
from tilewright.topi.pieces.tiling import extent_of

#: Threads of a block that adds parts, and what each adds at once.
_THREADS, _LANES = 128, 4
#: Parts of a result that a thread loads at once.
_AT_ONCE = 8


def in_parts(s: Schedule, d: BoxDeclaration, count: int) -> Tensor:
    """Parts of the sum of a declaration, ``count`` of them, of taps and channels that follow one
    another; the part is the first axis."""
    sums = s[d.sum]
    *taken, c = sums.op.reduce_axis
    c, _ = sums.split(c, factor=terms_of(d))
    sums.reorder(*taken, c)
    part, _ = sums.split(sums.fuse(*taken, c), nparts=count)
    writer: Tensor = s.rfactor(d.sum, part)
    return writer


def add_parts(s: Schedule, output: Tensor, total: Tensor) -> None:
    """Add the parts of a ``total`` in a kernel of their own, that of the ``output``."""
    out, sums = s[output], s[total]
    lanes = math.gcd(extent_of(out.op.axis[-1]), _LANES)
    at, lane = out.split(out.fuse(*out.op.axis), factor=lanes)
    at, thread = out.split(at, factor=_THREADS)
    out.bind(at, te.thread_axis("blockIdx.x"))
    out.bind(thread, te.thread_axis("threadIdx.x"))
    out.vectorize(lane)
    sums.set_scope("local")
    sums.compute_at(out, thread)
    (part,) = sums.op.reduce_axis
    turn, part = sums.split(part, factor=min(_AT_ONCE, extent_of(part)))
    sums.reorder(turn, part, *sums.op.axis)
    sums.unroll(part)  # none of its loads waits for another
    sums.vectorize(sums.op.axis[-1])
