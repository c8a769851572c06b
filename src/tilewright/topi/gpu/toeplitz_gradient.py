"""Gradients by large filters as products: how blocks share out the filter, and images in chunks.

A block has, of one channel, some rows and columns of the filter, and a team of its threads for each
of some chunks of images. Chunks are written in float32, and a second kernel adds them, in their
order. Where all images are one chunk, blocks write the result, and there is no second kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.topi.cut import CutDeclaration
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.gpu.toeplitz import ToeplitzDeclaration
from tilewright.topi.nn.depthwise_toeplitz import Toeplitz, depthwise_toeplitz_wgrad
from tilewright.topi.operators.conv import Conv

#: Threads of a block that add chunks.
_ADDERS = 128


def suits_gradient(p: Conv, types: Sequence[str] = ("float16", "bfloat16")) -> bool:
    """Whether a gradient by the filter of one of some types can be declared so: not one of large
    dilations, whose rows are read in part."""
    return (
        p.rank == 2
        and p.pass_ == "wgrad"
        and p.dtype in types
        and p.accumulate == "float32"
        and p.dilation[0] == 1
    )


def declare_chunks(cut: Toeplitz, chunks: int, batch: Any = None) -> ToeplitzDeclaration:
    """The gradient of the problem of ``cut``; ``batch`` as in :func:`declare`."""
    p = cut.problem
    inputs = placeholders(p, batch)
    made = depthwise_toeplitz_wgrad(cut, chunks, inputs["data"], inputs["grad"])

    def added(c: Any, k: Any, h: Any, w: Any) -> Any:
        if chunks == 1:
            return made.sum[0, c * p.multiplier + k, h, w]
        chunk = te.reduce_axis((0, chunks), name="chunk")
        return te.sum(made.sum[chunk, c * p.multiplier + k, h, w], axis=chunk)

    sums = te.compute(p.filter_shape, added, name="Sums")
    result = finished(p, sums, inputs)
    return CutDeclaration(p, inputs, result, sums, None, None, cut, made)


def share_out(s: Schedule, d: ToeplitzDeclaration, teams: int, lanes: int) -> tuple[Stage, IterVar]:
    """Schedule what blocks write, ``lanes`` columns at once, and what adds it up.

    Returns the stage of a team's sums, in fragments, and the axis of threads over teams.
    """
    cut, total = d.cut, d.stages.sum
    tz = te.thread_axis((0, teams), "threadIdx.z")
    if d.sum.op.reduce_axis == ():
        out = s[d.output]
        s[total].set_scope("fragment")
        if d.sum is not d.output:
            s[d.sum].compute_inline()
        c, m, h, w = out.op.axis
        c, team = out.split(out.fuse(c, m), factor=1)
        first = [c]
    else:
        out, total = s[total], s.cache_write(total, "fragment")
        chunk, c, h, w = out.op.axis
        blocks, team = out.split(chunk, factor=teams)
        first = [blocks, c]
        _add(s, d)
    down, h = out.split(h, factor=cut.rows)
    across, w = out.split(w, factor=cut.columns)
    vector, lane = out.split(w, factor=lanes)
    out.reorder(*first, down, across, team, h, vector, lane)
    out.bind(out.fuse(*first, down, across), te.thread_axis("blockIdx.x"))
    out.bind(team, tz)
    out.vectorize(lane)
    sums = s[total]
    sums.compute_at(out, team)
    return sums, tz


def _add(s: Schedule, d: ToeplitzDeclaration) -> None:
    """The second kernel, of which a thread adds the chunks of a tap."""
    last = s[d.output]
    block, x = last.split(last.fuse(*last.op.axis), factor=_ADDERS)
    last.bind(block, te.thread_axis("blockIdx.x"))
    last.bind(x, te.thread_axis("threadIdx.x"))
    if d.sum is not d.output:
        s[d.sum].set_scope("local")
        s[d.sum].compute_at(last, x)
