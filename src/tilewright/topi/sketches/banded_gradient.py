"""The gradient of a depthwise convolution by a large filter on tensor cores, channels first.

The gradient by one image is that image convolved with dy, stride and dilation changing places: a
warp sums rows of a filter over the images of a chunk, as products with the banded matrices of
:mod:`~tilewright.topi.pieces.bands`. The rows of dy lie in shared memory, from where each thread
takes the elements of their matrices. Chunks are parts of the sum over images that ``rfactor``
makes, and a second kernel adds them in their order; of one chunk there is none.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any

from tilewright.schedule import Schedule
from tilewright.topi.declare import Declaration
from tilewright.topi.pieces.band_cuts import BLOCK, Bands
from tilewright.topi.pieces.band_parts import (
    PartProducts,
    as_part_products,
    fill_taps,
    multiply_parts,
)
from tilewright.topi.pieces.band_tiles import LANES, GradientTile
from tilewright.topi.pieces.bands import Products, as_products
from tilewright.topi.pieces.counts import Counts
from tilewright.topi.pieces.tiling import bind, bind_all, extent_of, spread, thread_axes
from tilewright.topi.sketches.banded import multiply
from tilewright.topi.stages import scheduled

#: Threads of a block that add chunks.
_ADDERS = 128


def schedule_banded_gradient(d: Declaration, tile: GradientTile = GradientTile()) -> Schedule:
    """The schedule of :func:`~tilewright.topi.declare.declare`, of a gradient by the filter in NCHW
    whose sums are in float32."""
    s, cut = scheduled(d.output, d.sum), Bands(d.problem, *tile.product)
    total = d.sum
    if tile.chunks > 1:
        _, chunk = s[d.sum].split(s[d.sum].op.reduce_axis[0], factor=tile.chunks)
        total = s.rfactor(d.sum, chunk, 0)
    made: Products | PartProducts
    if cut.terms:
        made = as_part_products(s, total, d.source, d.weights, cut)
    else:
        made = as_products(s, total, d.source, d.weights, cut, "fragment")
    if total is not d.output:
        s[total].compute_inline()
    teams, *_ = threads = thread_axes(min(tile.teams, tile.chunks), 1, LANES)
    if tile.chunks > 1:  # chunks lie as whole tiles of taps
        out, whole = s[made.sums], made.sums
        out.set_scope("global")
        made = made._replace(sums=s.cache_write(whole, "fragment"))
        chunk, c, m, down, h, across, *own, w = out.op.axis
        block, team = out.split(chunk, factor=extent_of(teams))
        first = [block, c, m]
        thread = spread(s[d.output], s[d.output].op.axis, _ADDERS)
        if d.sum is not d.output:
            s[d.sum].set_scope("local")
            s[d.sum].compute_at(s[d.output], thread)
    else:
        out = s[d.output]
        c, m, h, w = out.op.axis
        c, team = out.split(out.fuse(c, m), factor=1)
        down, h = out.split(h, factor=cut.rows)
        across, w = out.split(w, factor=cut.columns)
        *own, w = out.split(w, factor=BLOCK) if cut.terms else (w,)
        first = [c]
    vector, lane = out.split(w, factor=gcd(cut.share, 4))
    out.reorder(*first, down, across, team, h, *own, vector, lane)
    bind(out, out.fuse(*first, down, across))
    out.bind(team, teams)
    out.vectorize(lane)
    sums = s[made.sums]
    sums.compute_at(out, team)
    taps = s[made.taps]
    if isinstance(made, PartProducts):
        multiply_parts(s, made, cut, tile.stages)
        fill_taps(s, made, threads)
    else:
        multiply(s, made, cut, LANES, tile.stages)
        bind_all(taps, taps.fuse(*taps.op.axis), threads)
    taps.compute_at(sums, sums.op.reduce_axis[0])
    return s


def banded_gradient_counts(p: Any, tile: GradientTile) -> Counts:
    """Of :func:`schedule_banded_gradient`, of both kernels."""
    cut, teams = Bands(p, *tile.product), min(tile.teams, tile.chunks)
    (down, across), (_, rows, columns), results = cut.tiles, tile.product, prod(p.result.shape)
    tiles, chunks = p.out_channels * down * across, tile.chunks
    met = sum(cut.met(k) for k in range(down))
    kept = chunks * tiles * rows * columns if chunks > 1 else 0
    return Counts(
        -(-chunks // teams) * tiles + (-(-results // _ADDERS) if chunks > 1 else 0), LANES * teams,
        p.batch * p.out_channels * across * met * rows * columns * cut.depth,
        -(-p.batch // chunks) * chunks * tiles * cut.kernel[0] * cut.taps,
        results + kept,
    )  # fmt: skip
