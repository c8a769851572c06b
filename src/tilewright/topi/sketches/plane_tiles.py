"""Depthwise convolution on Hopper, channels first, of tiles of planes in shared memory.

A block has tiles of some channels, of one image after another. What a tile sees, halo and padding
included, comes into shared memory as one box, by TMA, while the tile before it is computed: no
thread has a guard or computes an address, rows are read as vectors wherever the image's begin, and
neighbours share what both of them see. A thread has the filter of its channel in registers, and
computes rows of a few columns, one below the other; a row of the image that it read and converted
serves all rows of results whose windows hold it.
"""

from __future__ import annotations

from tilewright.ir.itervar import Range
from tilewright.schedule import Schedule
from tilewright.target.instructions import tma_load
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.loop_order import ROLLING, place_loads
from tilewright.topi.pieces.plane_tiles import PlaneBoxTile, PlaneCut, plane_cut, read_at_once
from tilewright.topi.pieces.tiling import bind
from tilewright.topi.pieces.windows import load_vectors
from tilewright.topi.stages import scheduled


def schedule_plane_tiles(d: Declaration, tile: PlaneBoxTile = PlaneBoxTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a convolution in NCHW of one
    filter a channel, whose gradients by the input have stride 1."""
    p, cut, s = d.problem, plane_cut(d.problem, tile), scheduled(d.output, d.sum)
    total, image = _in_tiles(s, d, cut)
    if d.sum is not d.output:
        s[d.sum].compute_inline()
    out, sums = s[d.output], s[total]
    data = s.cache_read(image, "local", [total], p.accumulate)
    taps = s.cache_read(d.weights, "local", [total], p.accumulate)

    n, c, h, w = out.op.axis
    w, lane = out.split(w, factor=tile.columns)
    across, tx = out.split(w, factor=tile.threads_x)
    h, row = out.split(h, factor=tile.rows)
    down, ty = out.split(h, factor=tile.threads_y)
    along, tz = out.split(c, factor=tile.channels)
    n, turn = out.split(n, factor=tile.turns)
    out.reorder(n, along, down, across, tz, ty, tx, turn, row, lane)
    bind(out, out.fuse(n, along, down, across), tz, ty, tx)
    out.unroll(row)
    (out.unroll if p.result_shape[-1] % tile.columns else out.vectorize)(lane)

    sums.compute_at(out, row)
    sums.unroll(*sums.op.reduce_axis, *sums.op.axis)
    loads = s[data]
    place_loads(loads, ROLLING, out, row, turn, sums, sums.op.reduce_axis[0])
    load_vectors(loads, read_at_once(p, tile, cut))
    kept = s[taps]
    kept.compute_at(out, tx)
    kept.unroll(*kept.op.axis)

    box = s[image]
    box.compute_at(out, turn)
    if tile.stages > 1:
        box.pipeline(tile.stages)
    *_, plane, _, column = box.op.axis
    box.align_bounds(column, cut.row_stride)
    box.tensorize(plane, tma_load(cut.box, p.dtype))
    return s


def _in_tiles(s: Schedule, d: Declaration, cut: PlaneCut) -> tuple[Tensor, Tensor]:
    """The sums over tiles, and the image in tiles with all that they see."""
    sums, (channels, high, wide) = s[d.sum], cut.size
    (sh, sw), (dh, dw) = cut.stride, cut.dilation
    n, c, h, w = sums.op.axis
    sums.split(c, factor=channels)
    sums.split(sums.pad_to(h, high), factor=high)
    sums.split(sums.pad_to(w, wide), factor=wide)
    total = s.cache_write(d.sum, "local")
    n, e, c, down, h, across, w = s[total].op.axis
    di, dj = s[total].op.reduce_axis
    whole = Range.from_extent(-cut.margin, cut.row_stride)
    rows, columns = h.var * sh + di.var * dh, w.var * sw + dj.var * dw
    image = s.reindex(d.source, total, [n, e, down, across, c, rows, (columns, whole)], "shared")
    s[total].guard_by_zeros(image, finite=True)  # what is beyond an image, nobody reads
    return total, image
