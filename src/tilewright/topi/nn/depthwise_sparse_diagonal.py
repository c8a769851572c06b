"""Depthwise convolution as products with diagonals, channels last.

Four rows of the input, at eight pixels of eight channels, meet two rows of the output, at one
column of the filter, in one product with diagonals: ``y[o, c, j] += f[o, c, t] * x[t, c, j]``, with
the tap of the filter in which input row ``t`` and output row ``o`` meet, or zero where they do not.
Pairs of output rows that see the same four rows share them.

An instruction for it (:mod:`~tilewright.target.instructions.mma_sparse`) has each diagonal in two
halves, of four channels, of which one is zero. What is not finite in the image spreads to its
channel of the other half, with that instruction to the neighbours of both too, and to what zeros
keep apart from it in the rows around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.depthwise_diagonal import CHANNELS, Cut, DiagonalStages
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.nn.images import Images, padded

#: Rows and columns of results of a product, of :data:`CHANNELS` channels, and rows of the input.
PAIR, PIXELS, FOUR = 2, 8, 4
#: Channels of a half.
_HALF = 4


@dataclass(frozen=True)
class SparseDiagonal(Cut):
    """A :class:`~tilewright.topi.nn.depthwise_diagonal.Cut` into products of four rows with two;
    ``rows`` is even."""

    @property
    def columns(self) -> int:
        return PIXELS

    @property
    def groups(self) -> int:
        """Fours of input rows that two output rows see."""
        return -(-((self.kernel[0] - 1) * self.dilation[0] + self.stride[0] + 1) // FOUR)

    @property
    def unit(self) -> int:
        """Rows of the input from one four that is loaded to the next."""
        return gcd(PAIR * self.stride[0], FOUR)

    @property
    def loaded(self) -> int:
        """Fours of input rows that ``rows`` of results see."""
        last = (self.rows - PAIR) * self.stride[0] + (self.groups - 1) * FOUR
        return last // self.unit + 1

    def seen(self, rows: int, columns: int) -> tuple[int, int]:
        return (
            (rows - PAIR) * self.stride[0] + self.groups * FOUR,
            (columns - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1] + 1,
        )


def depthwise_sparse_diagonal(s: SparseDiagonal, image: Tensor, filter: Tensor) -> DiagonalStages:
    """The stages of a forward pass, or of a gradient by the input with stride 1, in NHWC.

    ``pixels`` is (images, tiles down, fours of rows, columns of results, eights of channels,
    columns of the filter, rows, channels), ``diagonals`` (eights of channels, fours of rows,
    columns of the filter, output rows, channels, rows, halves).
    """
    p, images, (sh, sw), dw = s.problem, Images(s.problem.layout), s.stride, s.dilation[1]
    height, width = (whole(n, size) for n, size in zip(s.result, s.tile, strict=False))
    channels = whole(p.channels, s.tile[2])
    source = padded(images, image, s.before, s.seen(height, width), "PaddedInput", channels)
    batch, eights, zero = image.shape[0], channels // CHANNELS, te.const(0, p.dtype)
    apart = s.rows * sh  # rows of the input from one tile to the next

    pixels = te.compute(
        (batch, height // s.rows, s.loaded, width, eights, s.kernel[1], FOUR, CHANNELS),
        lambda n, down, q, w, e, kw, t, c: source[
            n, down * apart + q * s.unit + t, w * sw + kw * dw, e * CHANNELS + c
        ],
        name="Pixels", varargs_names=["n", "down", "q", "w", "e", "kw", "t", "c"],
    )  # fmt: skip

    def diagonal(e: Any, g: Any, kw: Any, o: Any, c: Any, t: Any, half: Any) -> Any:
        channel = e * CHANNELS + c
        where, (row, column) = s.tap(g * FOUR + t - o * sh, kw * dw)
        inside = [half.equal(c // _HALF), *where]
        inside += [channel < p.channels] if channels > p.channels else []
        return te.if_then_else(te.all(*inside), filter[channel, 0, row, column], zero)

    diagonals = te.compute(
        (eights, s.groups, s.kernel[1], PAIR, CHANNELS, FOUR, CHANNELS // _HALF), diagonal,
        name="Diagonals", varargs_names=["e", "g", "kw", "o", "c", "t", "half"],
    )  # fmt: skip

    q, kw = te.reduce_axis((0, s.loaded), name="q"), te.reduce_axis((0, s.kernel[1]), name="kw")
    t = te.reduce_axis((0, FOUR), name="t")
    half = te.reduce_axis((0, CHANNELS // _HALF), name="half")

    def product(n: Any, c: Any, at: list[Any]) -> Any:
        h, w = at
        e, own, pair = c // CHANNELS, c % CHANNELS, h % s.rows // PAIR
        below = q * s.unit - pair * (PAIR * sh)  # rows between the pair's window and the four
        seen = [below >= 0, below < s.groups * FOUR]
        if s.unit < FOUR:
            seen.append(te.floormod(below, FOUR).equal(0))
        x = pixels[n, h // s.rows, q, w, e, kw, t, half * _HALF + own % _HALF]
        f = diagonals[e, te.floordiv(below, FOUR), kw, h % PAIR, own, t, half]
        return te.sum(
            f.astype(p.accumulate) * x.astype(p.accumulate),
            axis=[q, kw, t, half],
            where=te.all(*seen),
        )

    total = images.compute(batch, channels, (height, width), product, "DiagonalSum", "diagonal")
    return DiagonalStages(source, pixels, diagonals, total)
