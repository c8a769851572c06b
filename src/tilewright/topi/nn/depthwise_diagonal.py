"""Depthwise convolution as products of matrices whose factors are diagonal, channels last.

Sixteen pixels of eight channels, at two neighbouring taps of a filter's row, are a matrix of 16 by
16: its columns are first the channels as the one tap sees them, then as the other does. Multiplied
with two diagonals of the filter, one below the other, it is what both taps add to those pixels of
the eight channels. One in eight of the products counts, the others are with zeros; tensor cores
have so many more that it pays where arithmetic binds, and 16-bit numbers need no conversion.

A row of the input is loaded for each pair of taps once, for all output rows of a tile that see it:
the reduction goes over the rows that a tile sees, and a row counts for an output row where a tap
joins them. What is not finite in the image spreads to the eight channels, and to the pixel before
where a row of the filter has an odd number of taps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.depthwise_forward import whole
from tilewright.topi.nn.images import Images, padded

#: Pixels and channels of a product, and taps of it.
PIXELS, CHANNELS, TAPS = 16, 8, 2


@dataclass(frozen=True)
class Cut(Convolved, ABC):
    """How a problem is cut into products with diagonals.

    Parameters
    ----------
    rows : output rows that a row of the input is loaded for at once.
    tile : rows, columns and channels of results, of which whole ones are computed; multiples of
        ``rows``, :attr:`columns` and :data:`CHANNELS`.
    """

    rows: int
    tile: tuple[int, int, int]

    @property
    @abstractmethod
    def columns(self) -> int:
        """Columns of results of one product."""

    @abstractmethod
    def seen(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the input that products for so many of results read."""


@dataclass(frozen=True)
class Diagonal(Cut):
    """A :class:`Cut` into products of two taps."""

    @property
    def columns(self) -> int:
        return PIXELS

    @property
    def pairs(self) -> int:
        """Pairs of taps of a row of the filter, the last with a zero where they are odd."""
        return -(-self.kernel[1] // TAPS)

    @property
    def seen_rows(self) -> int:
        """Rows of the input that ``rows`` of results see."""
        return self._reach(0, self.rows, self.kernel[0])

    def seen(self, rows: int, columns: int) -> tuple[int, int]:
        return self._reach(0, rows, self.kernel[0]), self._reach(1, columns, self.pairs * TAPS)

    def _reach(self, d: int, results: int, taps: int) -> int:
        return (results - 1) * self.stride[d] + (taps - 1) * self.dilation[d] + 1


@dataclass(frozen=True)
class DiagonalStages:
    """The stages: the padded ``image``; its ``pixels`` as taps see them; the ``diagonals`` of the
    filter, by eights of channels first; and the ``sum`` of products."""

    image: Tensor
    pixels: Tensor
    diagonals: Tensor
    sum: Tensor


def depthwise_diagonal(t: Diagonal, image: Tensor, filter: Tensor) -> DiagonalStages:
    """The stages of a forward pass, or of a gradient by the input with stride 1, in NHWC.

    ``pixels`` is (images, rows, columns of results, eights of channels, pairs, taps, channels),
    ``diagonals`` (eights of channels, rows, pairs, taps, channels, channels).
    """
    p, images, (sh, sw), (dh, dw) = t.problem, Images(t.problem.layout), t.stride, t.dilation
    height, width = (whole(n, size) for n, size in zip(t.result, t.tile, strict=False))
    channels = whole(p.channels, t.tile[2])
    source = padded(images, image, t.before, t.seen(height, width), "PaddedInput", channels)
    batch, eights, zero = image.shape[0], channels // CHANNELS, te.const(0, p.dtype)

    pixels = te.compute(
        (batch, t.seen(height, width)[0], width, eights, t.pairs, TAPS, CHANNELS),
        lambda n, row, w, e, q, tap, ci: source[
            n, row, w * sw + (q * TAPS + tap) * dw, e * CHANNELS + ci
        ],
        name="Pixels", varargs_names=["n", "row", "w", "e", "q", "tap", "ci"],
    )  # fmt: skip

    def diagonal(e: Any, di: Any, q: Any, tap: Any, ci: Any, cj: Any) -> Any:
        c = e * CHANNELS + cj
        where, (kh, kw) = t.tap(di * dh, (q * TAPS + tap) * dw)
        inside = [ci.equal(cj), *where, *([c < p.channels] if channels > p.channels else [])]
        return te.if_then_else(te.all(*inside), filter[c, 0, kh, kw], zero)

    diagonals = te.compute(
        (eights, t.kernel[0], t.pairs, TAPS, CHANNELS, CHANNELS), diagonal, name="Diagonals",
        varargs_names=["e", "di", "q", "tap", "ci", "cj"],
    )  # fmt: skip

    r = te.reduce_axis((0, t.seen_rows), name="r")
    q, tap = te.reduce_axis((0, t.pairs), name="q"), te.reduce_axis((0, TAPS), name="tap")
    ci = te.reduce_axis((0, CHANNELS), name="ci")

    def product(n: Any, c: Any, at: list[Any]) -> Any:
        h, w = at
        first = h // t.rows * t.rows * sh
        below = r - h % t.rows * sh  # rows between the output's window and this row
        joined = [below >= 0, below <= (t.kernel[0] - 1) * dh]
        di = below
        if dh > 1:
            joined.append(te.floormod(below, dh).equal(0))
            di = te.floordiv(below, dh)
        x = pixels[n, first + r, w, c // CHANNELS, q, tap, ci]
        f = diagonals[c // CHANNELS, di, q, tap, ci, c % CHANNELS]
        return te.sum(
            x.astype(p.accumulate) * f.astype(p.accumulate),
            axis=[r, q, tap, ci],
            where=te.all(*joined),
        )

    total = images.compute(batch, channels, (height, width), product, "DiagonalSum", "diagonal")
    return DiagonalStages(source, pixels, diagonals, total)
