"""Depthwise convolution of small images as products of matrices: the whole filter is unrolled.

For one channel, all pixels of a result are one product of all pixels of the image with a matrix of
taps, the same for all images: they are its rows. Its blocks of one row of the image by one of the
result are Toeplitz matrices of one row of the filter, and those as far apart are alike: of 49 by 49
pixels, 13 blocks of 8 by 8 are all that there is.

Two rows of the image meet one of the result in one instruction, so blocks come in pairs,
``M[e, half, column of the result, place in the row of the image]``. Planes of neighbouring channels
lie one after another in memory. Where a row begins at an odd element its places are one further,
so that two neighbours are always one word of memory, and the block of taps is moved alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.problem import Problem

#: Places of a row, of the image or the result, in an instruction.
PLACES = 8


@dataclass(frozen=True)
class PlaneProducts:
    """How a forward pass, or a gradient by the input, is cut into products.

    Parameters
    ----------
    channels : of so many, neighbours, planes are staged together; they divide those of the image.
    images : so many, or a multiple, are computed.
    """

    problem: Problem
    channels: int
    images: int

    @property
    def _turned(self) -> bool:
        return self.problem.pass_ == "dgrad"

    @property
    def image(self) -> tuple[int, int]:
        """Height and width of what is convolved: x, or dy."""
        return self.problem.out_image if self._turned else self.problem.image

    @property
    def result(self) -> tuple[int, int]:
        """Height and width of the result: y, or dx."""
        return self.problem.image if self._turned else self.problem.out_image

    @property
    def pixels(self) -> int:
        """Of an image."""
        return self.image[0] * self.image[1]

    @property
    def pairs(self) -> int:
        """Pairs of rows of an image."""
        return -(-self.image[0] // 2)

    def steps(self, d: int) -> tuple[int, int]:
        """By how much the tap is further, along dimension ``d``, at the next row of the image, and
        of the result: y sees x at ``stride * oh``, dx sees dy where that is itself."""
        stride = self.problem.stride[d]
        return (-stride, 1) if self._turned else (1, -stride)

    @cached_property
    def _distances(self) -> range:
        """Along the filter, of the first row of each pair from each row of the result."""
        (image, result), before = self.steps(0), self.problem.padding[0]
        found = [
            2 * s * image + row * result + before
            for s in range(self.pairs)
            for row in range(self.result[0])
        ]
        return range(min(found), max(found) + 1, gcd(2 * image, result))

    @property
    def blocks(self) -> int:
        """Pairs of blocks of a filter."""
        return len(self._distances)

    def block(self, pair: Any, row: Any) -> Any:
        """The number of the pair of blocks for a pair of rows of the image and a row of the
        result."""
        (image, result), found = self.steps(0), self._distances
        at = pair * (2 * image // found.step) + row * (result // found.step)
        return at + (self.problem.padding[0] - found.start) // found.step

    def down(self, block: Any, half: Any) -> Any:
        """How far down the filter the tap of a row of the image lies; see :meth:`tap`."""
        found = self._distances
        return block * found.step + found.start + half * self.steps(0)[0]

    def across(self, column: Any, out: Any) -> Any:
        """How far across the filter the tap of two columns, of image and result, lies."""
        image, result = self.steps(1)
        return column * image + out * result + self.problem.padding[1]

    def tap(self, d: int, at: Any) -> tuple[list[Any], Any]:
        """The conditions under which there is a tap so far along dimension ``d``, and which."""
        size, step = self.problem.kernel[d], self.problem.dilation[d]
        where = [at >= 0, at <= (size - 1) * step]
        if step > 1:
            where.append(te.floormod(at, step).equal(0))
            at = te.floordiv(at, step)
        return where, at

    def first(self, channel: Any, row: Any) -> tuple[Any, Any]:
        """Where a row's first place lies among the elements of the channels that are staged
        together, an even number; and in which place its first column is, 0 or 1."""
        at = channel * self.pixels + row * self.image[1]
        return te.floordiv(at, 2) * 2, te.floormod(at, 2)


@dataclass(frozen=True)
class PlaneStages:
    """The stages: ``staged`` images (n, groups of channels, their elements), ``image`` (n, c, pairs
    of rows, 2, places), ``matrices`` (c, blocks, 2, columns of the result, places) and ``sum``, of
    the products (n, c, rows and columns of the result), of whole tiles of images."""

    staged: Tensor
    image: Tensor
    matrices: Tensor
    sum: Tensor


def depthwise_plane_products(t: PlaneProducts, image: Tensor, filter: Tensor) -> PlaneStages:
    """The stages of a forward pass or a gradient by the input, in NCHW, one filter a channel."""
    p, zero = t.problem, te.const(0, image.dtype)
    (height, width), (rows, _) = t.image, t.result
    images = (image.shape[0] + t.images - 1) // t.images * t.images

    def stage(n: Any, g: Any, e: Any) -> Any:
        pixel = e % t.pixels
        read = image[n, g * t.channels + e // t.pixels, pixel // width, pixel % width]
        return te.if_then_else(n < image.shape[0], read, zero)

    staged = te.compute(
        (images, p.channels // t.channels, t.channels * t.pixels), stage, name="StagedPlanes",
        varargs_names=["n", "g", "e"],
    )  # fmt: skip

    def place(n: Any, c: Any, pair: Any, half: Any, place: Any) -> Any:
        row = pair * 2 + half
        start, skipped = t.first(c % t.channels, row)
        column = place - skipped
        pixel = row * width + column
        read = staged[n, c // t.channels, start + place]
        own = te.select(te.all(pixel >= 0, pixel < t.pixels), read, zero)
        return te.if_then_else(row < height, own, zero)

    padded = te.compute(
        (images, p.channels, t.pairs, 2, PLACES), place, name="Planes",
        varargs_names=["n", "c", "pair", "half", "place"],
    )  # fmt: skip

    def element(c: Any, block: Any, half: Any, out: Any, place: Any) -> Any:
        _, skipped = t.first(c % t.channels, half)
        column = place - skipped
        found, kh = t.tap(0, t.down(block, half))
        also, kw = t.tap(1, t.across(column, out))
        inside = te.all(*found, *also, column >= 0, column < width)
        return te.if_then_else(inside, filter[c, 0, kh, kw], zero)

    matrices = te.compute(
        (p.channels, t.blocks, 2, PLACES, PLACES), element, name="PlaneMatrices",
        varargs_names=["c", "block", "half", "out", "place"],
    )  # fmt: skip
    pair, half, place_ = (
        te.reduce_axis((0, n), name=name)
        for n, name in ((t.pairs, "pair"), (2, "half"), (PLACES, "place"))
    )

    def product(n: Any, c: Any, h: Any, w: Any) -> Any:
        a = padded[n, c, pair, half, place_].astype(p.accumulate)
        b = matrices[c, t.block(pair, h), half, w, place_].astype(p.accumulate)
        return te.sum(b * a, axis=[pair, half, place_])

    total = te.compute(
        (images, p.channels, rows, PLACES), product, name="PlaneSums", tag="plane_products",
        varargs_names=["n", "c", "h", "w"],
    )  # fmt: skip
    return PlaneStages(staged, padded, matrices, total)
