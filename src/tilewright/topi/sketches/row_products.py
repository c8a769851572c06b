"""The gradient of a depthwise convolution by a large filter on Hopper's tensor cores, channels
first.

The products are those of :mod:`~tilewright.topi.pieces.row_products`. A block has a channel and
rows of its filter: it copies images to shared memory in the background, some at a time, from where
instructions of its warpgroups read both operands; all sums stay in registers until the end. Then
they go through shared memory, where their diagonals are summed. Each tap is summed by one thread
in a fixed order.
"""

from __future__ import annotations

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import wgmma
from tilewright.topi.declare import Declaration
from tilewright.topi.gpu.staging import LANES, stage_blocks
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.pieces.row_product_cuts import DEPTH, RowProducts, RowProductTile, row_cut
from tilewright.topi.pieces.row_products import DiagonalProducts, as_row_products
from tilewright.topi.pieces.tiling import bind
from tilewright.topi.stages import scheduled

#: Threads of a warp, which have columns of the filter.
_LANES = 32


def schedule_row_products(d: Declaration, tile: RowProductTile = RowProductTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a gradient by the filter in NCHW
    whose stride and dilation are 1 down the image."""
    p, cut, s = d.problem, row_cut(d.problem, tile), scheduled(d.output, d.sum)
    made = as_row_products(s, d, cut)
    out, sums, parts = s[d.output], s[d.sum], s[made.kept]
    ty, tx = te.thread_axis((0, tile.groups), "threadIdx.y"), te.thread_axis("threadIdx.x")
    columns = p.kernel[1]
    windows = Convolved(p)
    if windows.sees(1, columns) - windows.before[1] <= windows.image[1]:
        # Threads beyond the filter would read beyond the products, where no condition stops them.
        lanes = max(n for n in range(1, _LANES + 1) if columns % n == 0)
    else:
        lanes = _LANES
    c, k, h, w = out.op.axis
    h, tap = out.split(h, factor=cut.taps)
    h, j = out.split(h, factor=tile.together)
    rows, group = out.split(h, factor=tile.groups)
    out.reorder(c, k, rows, j, group, tap, w)
    block = bind(out, out.fuse(c, k, rows))
    out.unroll(j)
    out.bind(group, ty)
    taps, tap = out.split(tap, factor=min(cut.taps, LANES // _LANES))
    across, w = out.split(w, factor=lanes)
    out.reorder(taps, across, tap, w)
    x = out.fuse(tap, w)
    out.bind(x, tx)
    if d.sum is not d.output:
        sums.set_scope("local")
        sums.compute_at(out, x)
    sums.unroll(sums.op.reduce_axis[0])

    parts.compute_at(out, j)
    _, _, group, _, _, o, w = parts.op.axis
    parts.storage_align(o, 32, 8)
    parts.align_bounds(w, 2, made.first % 2)
    _, pair = parts.split(w, factor=2)
    parts.vectorize(pair)
    parts.bind(group, ty)
    turn = _multiply(s, made, cut, (out, block), ty)
    for tensor, extent in ((made.x, p.image[1]), (made.dy, p.out_image[1])):
        stage = s[tensor]
        stage.compute_at(s[made.products], turn)
        stage.pipeline(tile.stages)
        outer = list(stage.op.axis[:-4])
        if tensor is made.x:  # rows come as they do in the image
            outer[-2:] = reversed(outer[-2:])
        stage_blocks(stage, outer, extent, tile.groups)
    return s


def _multiply(
    s: Schedule, made: DiagonalProducts, cut: RowProducts, at: tuple[Stage, IterVar], ty: IterVar
) -> IterVar:
    """The products, ``at`` a loop of a stage. Returns the loop over what is staged."""
    products = s[made.products]
    products.compute_at(*at)
    c, m, group, j, tap, o, w = products.op.axis
    i, turn, t, n = products.op.reduce_axis
    products.bind(group, ty)
    whole = ((group, cut.groups), (j, cut.together), (tap, cut.taps), (o, cut.width))
    for axis, extent in whole:
        products.align_bounds(axis, extent)
    products.align_bounds(w, cut.columns, made.first % cut.columns)
    wide, low = products.split(o, factor=8)
    across, column = products.split(w, factor=8)
    step, n = products.split(n, factor=DEPTH)
    eight, n = products.split(n, factor=8)
    turn = products.fuse(i, turn)
    multiplied = [tap, wide, low, j, across, column, eight, n]
    products.reorder(c, m, turn, group, t, step, *multiplied)
    products.unroll(step)
    kind = str(made.x.dtype)
    products.tensorize(tap, wgmma(cut.together * cut.columns, kind, "i", "j"))
    return turn
