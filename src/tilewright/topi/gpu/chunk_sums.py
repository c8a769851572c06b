"""The kernel that adds up what blocks have summed of a filter's gradient."""

from __future__ import annotations

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration

#: Taps of a block, and threads that share one.
_TAPS, _ADDERS = 32, 16


def add_chunks(s: Schedule, d: Declaration) -> None:
    """Some threads add the chunks, (chunk, KH, KW, channel), of a tap, and theirs in order."""
    out = s[d.output]
    added = s[s.cache_write(d.output, "local") if d.sum is d.output else d.sum]
    c, m, ky, kx = out.op.axis
    out.reorder(ky, kx, c, m)  # as the chunks lie
    block, x = out.split(out.fuse(ky, kx, c, m), factor=_TAPS)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(x, te.thread_axis("threadIdx.x"))
    added.set_scope("local")
    added.compute_at(out, x)
    turns, y = added.split(added.op.reduce_axis[0], factor=_ADDERS)
    added.unroll(turns)  # so that the chunks are loaded at once
    added.bind(y, te.thread_axis("threadIdx.y"))
