"""Depthwise convolution as products with banded matrices on tensor cores, channels first.

What a row of a filter adds to ``columns`` results of a row is a product with a Toeplitz matrix of
its taps: the column of the window is *skewed* by that of the result, and the column of the image
that both say is what is summed over. Rows of the products are rows of the image. A thread takes its
elements of the matrix from the row of the filter, in shared memory, into the registers that the
instruction reads. The matrix is made by the schedule (docs/decisions/0019-windows-as-products.md).
Values that are not finite in the image spread along ``columns``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from tilewright import te
from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule, Stage
from tilewright.target.instructions import mma_bf16, mma_f16
from tilewright.te import Tensor
from tilewright.topi.declare import Declaration
from tilewright.topi.stages import scheduled

_MULTIPLY = {"float16": mma_f16, "bfloat16": mma_bf16}
#: Threads of a warp, rows of an instruction, and columns that four threads load as 16 bytes each.
_LANES, _ROWS, _CHUNK = 32, 16, 32


@dataclass(frozen=True)
class BandedTile:
    """A warp computes ``16 * tiles`` rows of ``columns`` results of one image; a block has
    ``groups`` of them down an image. Rows of the image are loaded ``stages - 1`` rows of the filter
    ahead."""

    tiles: int = 2
    columns: int = 32
    groups: int = 1
    stages: int = 2


class _Bands(NamedTuple):
    """The stages that multiply, and the rows of the filter."""

    sums: Tensor
    image: Tensor
    matrix: Tensor
    rows: Tensor


def schedule_banded(d: Declaration, tile: BandedTile = BandedTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a forward pass in NCHW of which
    rows of the result lie as far apart as those of the image; sums are in float32.

    Raises :class:`ScheduleError` for other strides.
    """
    s = scheduled(d.output, d.sum)
    made = _as_products(s, d, tile)
    group, channel = _store(s[d.output], d.problem.out_image[1], tile)
    _multiply(s, d, made, tile, group)
    rows = s[made.rows]
    rows.compute_at(s[d.output], channel)
    step, flat = rows.split(rows.fuse(*rows.op.axis), factor=_LANES * tile.groups)
    y, x = rows.split(flat, factor=_LANES)
    rows.unroll(step)  # so that the filter is loaded at once
    rows.bind(y, te.thread_axis((0, tile.groups), "threadIdx.y"))
    rows.bind(x, te.thread_axis((0, _LANES), "threadIdx.x"))
    return s


def _as_products(s: Schedule, d: Declaration, tile: BandedTile) -> _Bands:
    """The sums as products of tiles of the image with matrices of the filter."""
    p, sums = d.problem, s[d.sum]
    height, chunk = _ROWS * tile.tiles, _CHUNK
    n, c, h, w = sums.op.axis
    di, dj = sums.op.reduce_axis
    sums.split(sums.pad_to(h, height), factor=height)
    _, column = sums.split(sums.pad_to(w, tile.columns), factor=tile.columns)
    whole = p.out_image[1] <= tile.columns
    before = -p.padding[1] % (chunk if whole else 8)  # so that chunks begin where vectors do
    j = sums.skew(dj, column, scale=p.stride[1], step=p.dilation[1], offset=before)
    sums.split(sums.pad_to(j, chunk), factor=chunk)
    total = s.cache_write(d.sum, "fragment")
    s[d.sum].compute_inline()

    n, c, ho, hi, wo, wi = s[total].op.axis
    di, jo, ji = s[total].op.reduce_axis
    row = ho.var * height + hi.var + di.var * p.dilation[0]
    j = jo.var * chunk + ji.var
    seen = [n, c.var // p.multiplier, row, wo.var * (tile.columns * p.stride[1]) + j]
    image = s.reindex(d.source, total, seen, "fragment")
    matrix = s.reindex(d.weights, total, [c, di, wi, j], "fragment")
    *of_row, i, j = s[matrix].op.axis
    rows = s.reindex(d.weights, matrix, [*of_row, j.var - i.var * p.stride[1]], "shared")
    over = [hi, wi, ji] if whole else [hi, wi, jo, ji]
    s[total].guard_by_zeros(image, matrix, over=over, finite=True)
    own = tile.columns // 4  # neighbouring results of a thread
    s[matrix].transform_layout(
        lambda c, di, w, j: [
            c, di, w // 2 % (own // 2), j // chunk * 4 + j // 2 % 4,
            w // own * 2 + w % 2, j // (chunk // 4) % 4 * 2 + j % 2,
        ]
    )  # fmt: skip
    return _Bands(total, image, s[matrix].op.output(0), rows)


def _store(out: Stage, width: int, tile: BandedTile) -> tuple[IterVar, IterVar]:
    """The result among blocks and warps. Returns the loops over warps and over blocks."""
    n, c, h, w = out.op.axis
    down, row = out.split(h, factor=_ROWS * tile.tiles)
    below, group = out.split(down, factor=tile.groups)
    across, w = out.split(w, factor=tile.columns)
    vector, lane = out.split(w, factor=gcd(width, tile.columns // 4))
    out.reorder(n, c, below, across, group, row, vector, lane)
    block = out.fuse(n, c, below, across)
    out.bind(block, te.thread_axis("blockIdx.x"))
    out.bind(group, te.thread_axis((0, tile.groups), "threadIdx.y"))
    out.vectorize(lane)
    return group, block


def _multiply(s: Schedule, d: Declaration, made: _Bands, tile: BandedTile, group: IterVar) -> None:
    sums, image, matrix = s[made.sums], s[made.image], s[made.matrix]
    sums.compute_at(s[d.output], group)
    _, _, ho, hi, wo, wi = sums.op.axis
    di, chunk, j = sums.op.reduce_axis
    thread, j = sums.split(j, factor=_CHUNK // 4)
    step, j = sums.split(j, factor=4)
    half, low = sums.split(j, factor=2)
    quarter, wi = sums.split(wi, factor=tile.columns // 4)
    pair, side = sums.split(wi, factor=2)
    tiles, row = sums.split(hi, factor=_ROWS)
    sums.reorder(ho, wo, di, chunk, step, pair, tiles, row, quarter, side, half, thread, low)
    sums.unroll(chunk, step, pair, tiles)
    sums.tensorize(row, _MULTIPLY[d.problem.dtype])
    image.compute_at(sums, di)
    _, lane = image.split(image.op.axis[-1], factor=gcd(d.problem.image[1], _CHUNK // 4))
    image.vectorize(lane)
    if tile.stages > 1:
        image.pipeline(tile.stages)
    matrix.compute_at(sums, pair)
