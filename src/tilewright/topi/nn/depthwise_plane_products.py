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
from tilewright.topi.nn.images import or_zero
from tilewright.topi.operators.conv import Conv

#: Places of a row, of the image or the result, in an instruction.
PLACES = 8


@dataclass(frozen=True)
class PlaneProducts:
    """How a problem is cut into products.

    Parameters
    ----------
    channels : of how many neighbours planes are staged together; they divide those of the image.
    images : how many are computed, or a multiple.
    """

    problem: Conv
    channels: int
    images: int

    @property
    def _turned(self) -> bool:
        return self.problem.pass_ == "dgrad"

    @property
    def image(self) -> tuple[int, int]:
        """Height and width of what is convolved: x, or in a gradient by the input dy."""
        return self.problem.out_image if self._turned else self.problem.image

    @property
    def result(self) -> tuple[int, int]:
        """Height and width of the result: y, or dx; in a gradient by the filter dy."""
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

    def row(self, block: Any, pair: Any) -> tuple[list[Any], Any]:
        """The conditions under which a row of the result has that block of a filter with a pair of
        rows of the image, and which; of a forward pass."""
        return self._divided(
            pair * 2 + self.problem.padding[0] - self.down(block, 0), -self.steps(0)[1],
            self.result[0],
        )  # fmt: skip

    def block_of(self, kh: Any, half: Any) -> tuple[list[Any], Any]:
        """The conditions under which there is a block with row ``kh`` of the filter, and which."""
        found = self._distances
        at = kh * self.problem.dilation[0] - found.start - half * self.steps(0)[0]
        return self._divided(at, found.step, self.blocks)

    @staticmethod
    def _divided(at: Any, step: int, extent: int) -> tuple[list[Any], Any]:
        where = [at >= 0, at <= (extent - 1) * step]
        if step > 1:
            where.append(te.floormod(at, step).equal(0))
            at = te.floordiv(at, step)
        return where, at

    def across(self, column: Any, out: Any) -> Any:
        """How far across the filter the tap of two columns, of image and result, lies."""
        image, result = self.steps(1)
        return column * image + out * result + self.problem.padding[1]

    def tap(self, d: int, at: Any) -> tuple[list[Any], Any]:
        """The conditions under which there is a tap so far along dimension ``d``, and which."""
        return self._divided(at, self.problem.dilation[d], self.problem.kernel[d])

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
    p = t.problem
    staged = _staged(t, image, t.pixels, "StagedPlanes")
    planes = _places(t, staged)

    def element(c: Any, block: Any, half: Any, out: Any, place: Any) -> Any:
        _, skipped = t.first(c % t.channels, half)
        column = place - skipped
        found, kh = t.tap(0, t.down(block, half))
        also, kw = t.tap(1, t.across(column, out))
        inside = te.all(*found, *also, column >= 0, column < t.image[1])
        return or_zero([inside], filter[c, 0, kh, kw])

    matrices = te.compute(
        (p.channels, t.blocks, 2, PLACES, PLACES), element, name="PlaneMatrices",
        varargs_names=["c", "block", "half", "out", "place"],
    )  # fmt: skip
    pair, half, place = (
        te.reduce_axis((0, n), name=name)
        for n, name in ((t.pairs, "pair"), (2, "half"), (PLACES, "place"))
    )

    def product(n: Any, c: Any, h: Any, w: Any) -> Any:
        a = matrices[c, t.block(pair, h), half, w, place].astype(p.accumulate)
        b = planes[n, c, pair, half, place].astype(p.accumulate)
        return te.sum(a * b, axis=[pair, half, place])

    total = te.compute(
        (staged.shape[0], p.channels, t.result[0], PLACES), product, name="PlaneSums",
        tag="plane_products", varargs_names=["n", "c", "h", "w"],
    )  # fmt: skip
    return PlaneStages(staged, planes, matrices, total)


def _staged(t: PlaneProducts, image: Tensor, pixels: int, name: str) -> Tensor:
    """Images as elements of groups of channels, with images of zeros for a whole tile of them."""
    width = int(image.shape[3])
    images = (image.shape[0] + t.images - 1) // t.images * t.images

    def read(n: Any, g: Any, e: Any) -> Any:
        pixel = e % pixels
        value = image[n, g * t.channels + e // pixels, pixel // width, pixel % width]
        return or_zero([n < image.shape[0]], value)

    made: Tensor = te.compute(
        (images, t.problem.channels // t.channels, t.channels * pixels), read, name=name,
        varargs_names=["n", "g", "e"],
    )  # fmt: skip
    return made


def _places(t: PlaneProducts, staged: Tensor) -> Tensor:
    """Places of pairs of rows; those beyond a plane are zero, so that nothing that is not finite
    gets from one to another."""
    zero, (height, width) = te.const(0, staged.dtype), t.image
    full = (t.pixels - PLACES) // width

    def read(n: Any, c: Any, pair: Any, half: Any, place: Any) -> Any:
        row = pair * 2 + half
        start, skipped = t.first(c % t.channels, row)
        pixel = row * width + place - skipped
        value = staged[n, c // t.channels, start + place]
        # Only before the first row and behind the last ones is another plane, or none.
        begun, ended = te.any(row > 0, pixel >= 0), te.any(row <= full, pixel < t.pixels)
        own = te.select(te.all(begun, ended), value, zero)
        return or_zero([row < height], own)

    made: Tensor = te.compute(
        (staged.shape[0], t.problem.channels, t.pairs, 2, PLACES), read, name="Planes",
        varargs_names=["n", "c", "pair", "half", "place"],
    )  # fmt: skip
    return made
