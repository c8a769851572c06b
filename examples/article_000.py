"""Depthwise convolution on a GPU as article 000 schedules it: tiles in shared memory.

Of ``depthwise_conv2d_nchw`` and what is fused to it, as a user declares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.schedule import Schedule
from tilewright.te import Tensor
from tilewright.topi.nn.padding import static
from tilewright.topi.pieces.tiling import bind_all, thread_axes


@dataclass(frozen=True)
class SharedTile:
    """The parameters that the article's loop goes over.

    A block takes one input channel and its filters, and computes ``block_h`` by ``block_w``
    outputs of each with ``threads_y`` by ``threads_x`` threads, each of which is ``vthreads_y`` by
    ``vthreads_x`` virtual ones. The taps of ``taps`` filter rows are written out, those of all
    where it is 0; large filters take long to compile so.
    """

    block_h: int = 32
    block_w: int = 32
    threads_y: int = 8
    threads_x: int = 8
    vthreads_y: int = 1
    vthreads_x: int = 1
    taps: int = 0


def schedule_shared(output: Tensor, tile: SharedTile = SharedTile()) -> Schedule:
    """The schedule of article 000 for ``output``, a depthwise convolution or what is fused to it.

    Input tile and filter go through shared memory; each thread sums into registers.
    """
    s = te.create_schedule(output.op)
    conv = next(x.op for x in s.stages if x.op.tag.startswith("depthwise_conv2d")).outputs[0]
    source, *_, filter = conv.op.inputs
    for stage in s.stages:
        if isinstance(stage.op, te.ComputeOp) and stage.op not in (output.op, conv.op):
            stage.compute_inline()
    if conv is output:
        local = s.cache_write(conv, "local")
    else:
        local = conv
        s[conv].set_scope("local")
    data = s.cache_read(source, "shared", [local])
    weights = s.cache_read(filter, "shared", [local])

    out = s[output]
    n, c, h, w = out.op.axis
    c, m = out.split(c, factor=static(filter.shape[1], "the channel multiplier"))
    threads = thread_axes(tile.threads_y, tile.threads_x)
    ty, tx = threads
    by, hi = out.split(h, factor=tile.block_h)
    bx, wi = out.split(w, factor=tile.block_w)
    tvy, hi = out.split(hi, nparts=tile.vthreads_y)
    yt, yi = out.split(hi, nparts=tile.threads_y)
    tvx, wi = out.split(wi, nparts=tile.vthreads_x)
    xt, xi = out.split(wi, nparts=tile.threads_x)
    out.reorder(n, c, by, bx, tvy, tvx, yt, xt, m, yi, xi)
    block = out.fuse(by, bx)
    out.bind(out.fuse(n, c), te.thread_axis("blockIdx.y"))
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(tvy, te.thread_axis((0, tile.vthreads_y), "vthread", name="vy"))
    out.bind(tvx, te.thread_axis((0, tile.vthreads_x), "vthread", name="vx"))
    out.bind(yt, ty)
    out.bind(xt, tx)
    sums = s[local]
    sums.compute_at(out, xt)
    axes, (di, dj) = sums.op.axis, sums.op.reduce_axis
    if tile.taps:
        do, di = sums.split(di, factor=min(tile.taps, static(filter.shape[2], "the filter")))
        sums.reorder(do, di, dj, *axes)
    sums.unroll(di, dj, *axes)
    out.unroll(m, yi, xi)
    for cached in (data, weights):
        s[cached].compute_at(out, block)
        # Neighbouring threads fetch neighbouring elements of the tile.
        s[cached].unroll(bind_all(s[cached], s[cached].fuse(*s[cached].op.axis), threads))
    return s
