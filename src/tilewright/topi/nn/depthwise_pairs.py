"""Depthwise convolution of bfloat16, taps in pairs: two products are added at once.

In ``ImagePairs`` a pixel of a channel lies beside its right neighbour, in ``FilterPairs`` a tap of
an even column beside the next one, so that an instruction takes two products of each of 16
channels. Images are padded with zeros as far as tiles of outputs and steps of taps read; what is
beyond is left out. What is not finite in the image spreads to results as many columns away as a
tile and a step have together. A gradient by the input with stride 1 is the convolution of dy with
the filter rotated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.depthwise_fast_fir import FastFir
from tilewright.topi.nn.images import Images, or_zero

#: Channels that one instruction sums; all stages but the image and the result have whole vectors.
LANES = 16


@dataclass(frozen=True)
class PairStages:
    """The stages: the image and the filter with zeros around, in pairs, and the sums."""

    image: Tensor
    image_pairs: Tensor
    filter: Tensor
    filter_pairs: Tensor
    sum: Tensor


def depthwise_pairs(cut: FastFir, image: Tensor, filter: Tensor) -> PairStages:
    """The stages of a problem in NHWC, cut into tiles but not halved; its steps are even."""
    p, rows, columns = cut.problem, cut.rows, cut.columns
    images, turned = Images(p.layout), p.pass_ == "dgrad"
    batch, channels = images.meaning(image.shape)[0], -(-p.channels // LANES) * LANES
    high, wide = (line.pixels + sum(line.borders) for line in (rows, columns))
    top, left = rows.borders[0], columns.borders[0]

    def pixel(n: Any, i: Any, j: Any, c: Any) -> Any:
        y, x = i - top, j - left
        inside = te.all(y >= 0, y < rows.size, x >= 0, x < columns.size, c < p.channels)
        return or_zero([inside], image[images.order(n, c, [y, x])])

    def tap(i: Any, j: Any, c: Any) -> Any:
        at = (p.kernel_h - 1 - i, p.kernel_w - 1 - j) if turned else (i, j)
        inside = te.all(i < p.kernel_h, j < p.kernel_w, c < p.channels)
        return or_zero([inside], filter[(c, 0, *at)])

    padded = te.compute((batch, high, wide + 1, channels), pixel, name="PaddedInput")
    image_pairs = te.compute(
        (batch, high, wide, channels, 2),
        lambda n, i, j, c, k: padded[n, i, j + k, c],
        name="ImagePairs",
    )
    packed = te.compute((rows.taps, columns.taps, channels), tap, name="PackedFilter")
    filter_pairs = te.compute(
        (rows.taps, columns.taps // 2, channels, 2),
        lambda i, j, c, k: packed[i, j * 2 + k, c],
        name="FilterPairs",
    )
    di = te.reduce_axis((0, rows.taps), name="di")
    dj = te.reduce_axis((0, columns.taps // 2), name="dj")
    side = te.reduce_axis((0, 2), name="side")

    def total(n: Any, i: Any, j: Any, c: Any) -> Any:
        y, x = i + di + (rows.first(0) + top), j + dj * 2 + (columns.first(0) + left)
        where = rows.where(0, i, di) + columns.where(0, j, dj * 2)
        one = image_pairs[n, y, x, c, side].astype(p.accumulate)
        term = one * filter_pairs[di, dj, c, side].astype(p.accumulate)
        return te.sum(term, axis=[di, dj, side], where=te.all(*where))

    sums = te.compute((batch, rows.result, columns.result, channels), total, name="PairSums")
    return PairStages(padded, image_pairs, packed, filter_pairs, sums)
