"""The gradient of a depthwise convolution by its filter in 16 bits on tensor cores, channels first.

The products are those of :mod:`~tilewright.topi.pieces.row_bands`. Each warp goes through the tiles
of a chunk of one channel: it loads rows of x and of dy straight into the registers where
instructions want them, moves those of dy by the columns of the filter there, and keeps all sums in
registers. In the end a block adds up what its warps have, in a fixed order, and a second kernel the
chunks, where there are several.
"""

from __future__ import annotations

from math import gcd

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import mma_bf16, mma_f16
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.chunk_sums import add_chunks
from tilewright.topi.pieces.row_band_cuts import ROWS, RowBands, RowBandTile, row_bands
from tilewright.topi.pieces.row_bands import RowBandProducts, as_row_bands
from tilewright.topi.stages import scheduled

_INSTRUCTIONS = {"float16": mma_f16, "bfloat16": mma_bf16}
_LANES = 32


def schedule_row_bands(d: Declaration, tile: RowBandTile = RowBandTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a gradient by the filter in NCHW
    whose sums are in float32."""
    cut, s = row_bands(d.problem, tile), scheduled(d.output, d.sum)
    made = as_row_bands(s, d, cut, tile)
    out, total = s[d.output], made.total
    if d.sum is not d.output:
        s[d.sum].compute_inline()
    if tile.chunks > 1:
        parts = s.rfactor(total, s[total].op.reduce_axis[0])
        add_chunks(out, s[total], ahead=True)
        out, total = s[parts], s.cache_write(parts, "local")
    ty = te.thread_axis((0, tile.warps), "threadIdx.y")
    *outer, c, m, h, w = out.op.axis
    block = out.fuse(*outer, c, m)
    out.bind(block, te.thread_axis("blockIdx.x"))
    _, tap = out.split(out.fuse(h, w), factor=_LANES * tile.warps)
    y, x = out.split(tap, factor=_LANES)
    out.bind(y, ty)
    out.bind(x, te.thread_axis((0, _LANES), "threadIdx.x"))
    sums = s[total]
    sums.compute_at(out, x)
    sums.unroll(sums.op.reduce_axis[-1])  # so that shared memory is read at once
    kept = s[made.kept]
    kept.compute_at(out, block)
    kept.bind(kept.op.axis[3], ty)
    step = _multiply(s, made, cut, d.problem.dtype, (out, block), ty)
    # Rows begin at multiples of what vectors divide their widths.
    (_, wide), (_, high) = d.problem.image, d.problem.out_image
    loaded = [(made.x, wide, cut.share * cut.problem.stride[1])]
    for tensor, width, share in (*loaded, *((part, high, cut.share) for part in made.dy)):
        stage = s[tensor]
        stage.compute_at(s[made.products], step)
        factor = gcd(width, share, int(tensor.shape[-1]), 8)
        vector, lane = stage.split(stage.op.axis[-1], factor=factor)
        stage.unroll(vector)
        stage.vectorize(lane)
        if tile.stages > 1:
            stage.pipeline(tile.stages)
    return s


def _multiply(
    s: Schedule, made: RowBandProducts, cut: RowBands, kind: str, at: tuple[Stage, IterVar],
    ty: IterVar,
) -> IterVar:  # fmt: skip
    """The products, ``at`` a loop of a stage. Returns the loop over tiles."""
    products = s[made.products]
    products.compute_at(*at)
    chunk, c, m, warp, kw, phase, half, i, row = products.op.axis
    for axis, extent in ((half, 2), (i, ROWS), (row, ROWS)):
        products.align_bounds(axis, extent)  # also where a filter of one row asks for one half
    step, block, side, thread, own = products.op.reduce_axis
    deep, own = products.split(own, factor=4)
    high, low = products.split(own, factor=2)
    multiplied = [half, i, row, high, thread, low]
    products.reorder(chunk, c, m, warp, step, block, kw, side, phase, deep, *multiplied)
    products.bind(warp, ty)
    products.unroll(block, kw, side, phase, deep)
    products.tensorize(half, _INSTRUCTIONS[kind])
    for tensor, loop in ((made.seen, phase), (made.moved, side)):
        stage = s[tensor]
        stage.compute_at(products, loop)
        stage.unroll(*stage.op.axis[3:])
    return step
