"""The space of article 003: depthwise convolution on a GPU, 2,880 configurations.

The article "TVM: 2D Depth Conv GPU Optimization", section 2.2, names the ingredients and the
count, not the template. This one has: tiles of the height and of the width, orders of the loops
over tiles (of which those outside of the threads are blocks, those inside are a thread's own
loop), the order of the reduction's axes, a copy of the padded input in shared memory, sums in
registers, and how far loops are unrolled. At the article's shape, 5 * 6 * 4 * 2 * 2 * 2 * 3.
"""

from __future__ import annotations

from tilewright import te
from tilewright.schedule import Schedule, Stage
from tilewright.topi.nn import depthwise_conv2d_nchw
from tilewright.tune.dispatch import get_config
from tilewright.tune.template import template

NAME = "article_003/depthwise_conv2d"
#: (B, C, H, W, K) of the article.
SHAPE = (3, 4, 16, 32, 7)


@template(NAME)
def depthwise_conv2d(B: int, C: int, H: int, W: int, K: int) -> tuple[Schedule, list[te.Tensor]]:
    """Input (B, C, H, W) by filters (C, 1, K, K), K odd, padded so that the size stays; float32."""
    cfg = get_config()
    data = te.placeholder((B, C, H, W), name="A")
    kernel = te.placeholder((C, 1, K, K), name="W")
    out = depthwise_conv2d_nchw(data, kernel, 1, (K - 1) // 2)
    padded = out.op.inputs[0]
    s = te.create_schedule(out.op)

    stage = s[out]
    b, c, h, w = stage.op.axis
    cfg.define_split("tile_h", h, num_outputs=2)
    cfg.define_split("tile_w", w, num_outputs=2)
    # (ho, wo, hi, wi): what precedes the threads hi and wi is a block, what follows them a loop.
    cfg.define_reorder(
        "order", list("HWhw"), "candidate",
        candidate=[(0, 1, 2, 3), (1, 0, 2, 3), (0, 2, 3, 1), (1, 2, 3, 0)],
    )  # fmt: skip
    cfg.define_reorder("order_r", list("yx"), "all")
    cfg.define_knob("shared", [False, True])
    cfg.define_knob("local", [False, True])
    cfg.define_knob("auto_unroll_max_step", [0, 16, 512])

    conv, source = out, padded
    if padded is not data:
        s[padded].compute_inline()
    if cfg["local"].val:
        conv = s.cache_write(out, "local")
    if cfg["shared"].val:
        source = s.cache_read(padded, "shared", [conv])

    bc = stage.fuse(b, c)
    ho, hi = cfg["tile_h"].apply(s, out, h)
    wo, wi = cfg["tile_w"].apply(s, out, w)
    order = cfg["order"].apply(s, out, [ho, wo, hi, wi])
    block = stage.fuse(ho, wo) if order[0] is ho and order[1] is wo else order[0]
    if order[0] is wo and order[1] is ho:
        block = stage.fuse(wo, ho)
    stage.bind(bc, te.thread_axis("blockIdx.x"))
    stage.bind(block, te.thread_axis("blockIdx.y"))
    stage.bind(hi, te.thread_axis("threadIdx.y"))
    stage.bind(wi, te.thread_axis("threadIdx.x"))

    sums = s[conv]
    if conv is not out:
        sums.compute_at(stage, order[-1])
    ry, rx = sums.op.reduce_axis
    spatial = [axis for axis in sums.leaf_iter_vars if axis.kind != "reduce"]
    sums.reorder(*spatial, *cfg["order_r"].order([ry, rx]))
    if source is not padded:
        s[source].compute_at(stage, block)
        _fetch(s[source], cfg["tile_h"].size[-1], cfg["tile_w"].size[-1])
    if cfg["auto_unroll_max_step"].val:
        stage.pragma(bc, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    return s, [data, kernel, out]


def _fetch(stage: Stage, rows: int, columns: int) -> None:
    """Neighbouring threads of ``rows`` by ``columns`` fetch neighbouring elements."""
    whole = stage.fuse(*stage.op.axis)
    rest, x = stage.split(whole, factor=columns)
    _, y = stage.split(rest, factor=rows)
    stage.bind(y, te.thread_axis((0, rows), "threadIdx.y"))
    stage.bind(x, te.thread_axis((0, columns), "threadIdx.x"))
