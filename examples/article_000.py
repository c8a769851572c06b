"""Depthwise convolution on a GPU as article 000 schedules it: tiles in shared memory.

Of ``depthwise_conv2d_nchw`` and what is fused to it, as a user declares them.

  python examples/article_000.py                   # on a simulated GPU, which counts accesses
  python examples/article_000.py --target cuda     # or opencl: how long it takes
  tilewright lower examples/article_000.py --func example --target sim
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np

import tilewright
from tilewright import te, topi
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


def example(channels: int = 4, size: int = 64) -> tuple[Schedule, list[Tensor]]:
    """The schedule of a convolution by filters of 3 x 3, with the tensors of a call."""
    image = te.placeholder((1, channels, size, size), name="Input")
    filters = te.placeholder((channels, 1, 3, 3), name="Filter")
    out = topi.nn.depthwise_conv2d_nchw(image, filters, stride=1, padding=1)
    return schedule_shared(out), [image, filters, out]


def main() -> None:
    """Run it, compare it with NumPy in double precision, and print what it costs."""
    from tilewright.runtime.sim import simulate

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--target", default="sim", help="sim (by default), cuda or opencl")
    target = parser.parse_args().target
    schedule, tensors = example()
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(t.shape).astype("float32") for t in tensors[:2])
    y = np.zeros(x.shape, "float32")
    wide = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    expected = np.einsum("nchwij,cij->nchw", windows, w[:, 0])
    kernel = tilewright.build(schedule, tensors, target)
    kernel(x, w, y)
    print(f"relative error {np.linalg.norm(y - expected) / np.linalg.norm(expected):.1e}")
    if target == "sim":
        print(simulate(tilewright.lower(schedule, tensors, target), [x, w, y]))
    else:
        print(f"{kernel.time(x, w, y).median * 1e6:.2f} us")


if __name__ == "__main__":
    main()
