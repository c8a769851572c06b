"""How warps and warpgroups multiply with banded matrices, one row of the image after another.

A warp loads matrices into its registers, 16 by 16 at a time, so that 32 images need half as many
loads as 16 for each product; a warpgroup multiplies with them as they lie in shared memory, of
several rows of results at once. Rows in the padding are not visited.
"""

from __future__ import annotations

from math import gcd

from tilewright.ir.itervar import IterVar
from tilewright.schedule import Schedule
from tilewright.target.instructions import (
    ldmatrix_b_blocks_bf16,
    ldmatrix_b_blocks_f16,
    mma_bf16,
    mma_f16,
    wgmma,
)
from tilewright.topi.pieces.band_cuts import Bands
from tilewright.topi.pieces.band_tiles import LANES, ROWS
from tilewright.topi.pieces.bands import Products

_WARP = {
    "float16": (mma_f16, ldmatrix_b_blocks_f16),
    "bfloat16": (mma_bf16, ldmatrix_b_blocks_bf16),
}


def multiply(s: Schedule, made: Products, cut: Bands, lanes: int, stages: int) -> None:
    """The products of ``lanes`` threads, one row of the image after another, which are loaded
    ``stages - 1`` ahead."""
    sums, kind = s[made.sums], str(made.image.dtype)
    *outer, h, wo, w = sums.op.axis
    *rest, chunk, j = sums.op.reduce_axis
    thread, j = sums.split(j, factor=cut.chunk // 4)
    step, j = sums.split(j, factor=4)
    half, low = sums.split(j, factor=2)
    quarter, w = sums.split(w, factor=cut.share)
    pair, side = sums.split(w, factor=2)
    multiplied = [quarter, side, half, thread, low]
    sums.unroll(chunk, step)
    if lanes > LANES:
        row, written = outer.pop(1), list[IterVar]()
        multiplied, instruction = [h, pair, *multiplied], wgmma(cut.rows * cut.columns, kind)
    else:
        instruction, load = _WARP[kind]
        if cut.images == 1:
            tiles, row = sums.split(h, factor=ROWS)
            written = [pair, tiles]
            s[made.matrix].compute_at(sums, pair)
        else:
            tiles, row = sums.split(outer.pop(1), factor=ROWS)
            pairs, pair = sums.split(pair, factor=2)
            written = [h, pairs, tiles, pair]
            loads = s[s.cache_read(made.matrix, "fragment", [made.sums])]
            loads.compute_at(sums, pairs)
            *of, jo, ko, ji, ki = loads.op.axis
            loads.reorder(*of, jo, ji, ko, ki)
            loads.tensorize(jo, load)
    sums.reorder(*outer, wo, *rest, chunk, step, *written, row, *multiplied)
    sums.unroll(*written)
    sums.tensorize(row, instruction)
    image = s[made.image]
    image.compute_at(sums, rest[-1])
    _, lane = image.split(image.op.axis[-1], factor=gcd(cut.image[1], cut.chunk // 4))
    image.vectorize(lane)
    if stages > 1:
        image.pipeline(stages)
