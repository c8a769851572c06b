"""Depthwise convolution as products with Toeplitz matrices, of images that are staged.

As :func:`~tilewright.topi.nn.depthwise_toeplitz.depthwise_toeplitz`; the rows of the image do not
go to the threads that multiply them, but lie as instructions read them from shared memory: in
blocks of 8 columns by 8 images, or in rows of as many columns as a box has. So ``groups`` tiles of
output rows, one below the other, share the input rows that they have in common: the sum goes over
the rows that any of them needs, and each tile leaves out those that are not its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.depthwise_toeplitz import (
    Toeplitz,
    ToeplitzStages,
    filters,
    toeplitz_matrices,
)

#: Images of one product.
IMAGES = 64


@dataclass(frozen=True)
class StagedToeplitz(Toeplitz):
    """How a problem is cut into products.

    Parameters
    ----------
    groups : tiles of ``rows`` rows that share what is staged.
    staged : input rows of one phase of the stride that are staged at once, 0 for whole images.
    box : columns of an image in one row of what is staged, 0 for blocks of 8 by 8.
    """

    groups: int = 1
    staged: int = 4
    box: int = 0

    @cached_property
    def block_rows(self) -> int:
        """Output rows of all groups."""
        return self.rows * self.groups

    @cached_property
    def tiles(self) -> tuple[int, int]:
        """Tiles down and across an image, those of whole blocks."""
        h, w = self.result
        return -(-h // self.block_rows) * self.groups, -(-w // self.columns)

    @cached_property
    def lead(self) -> int:
        """Input rows of one phase before those that a block reads, such that the rows that are
        staged at once begin with the image's first: padding costs no stage that it shares."""
        return -(self.before[0] // self.stride[0]) % self.staged if self.staged else 0

    @cached_property
    def block_steps(self) -> int:
        """Input rows of one phase of the stride that all groups read, in whole stages."""
        count = self.lead + self.steps - self.rows + self.block_rows
        return -(-count // self.staged) * self.staged if self.staged else count

    @cached_property
    def staged_columns(self) -> int:
        """Columns of the image that all tiles across read."""
        seen = (self.tiles[1] - 1) * self.columns * self.stride[1] + self.depth
        return -(-seen // self.box) * self.box if self.box else seen

    def column(self, block: Any, inner: Any) -> Any:
        """As they lie."""
        return block * 8 + inner

    def places(self, j: Any, w: Any) -> tuple[Any, ...]:
        jo, _, ji, _ = super().places(j, w)
        return jo, j // 8, ji, j % 8


def depthwise_toeplitz_staged(t: Toeplitz, image: Tensor, filter: Tensor) -> ToeplitzStages:
    """The stages of a forward pass, or of a gradient by the input with stride 1, in NCHW."""
    assert isinstance(t, StagedToeplitz)
    p, (sh, sw), (top, _) = t.problem, t.stride, t.before
    (height, width), zero = t.image, te.const(0, image.dtype)
    batch, down = image.shape[0], t.tiles[0] // t.groups * t.block_rows
    taps, matrices = toeplitz_matrices(
        t, filter, sh, t.matrices, lambda f, e: (t.steps - 1 - e) * sh + f
    )
    # Of rows that are staged some at a time, those in the padding are zeros; of others, nothing.
    above, rows = 0, height
    if t.staged:
        above, rows = top + t.lead * sh, (down - t.block_rows + t.block_steps) * sh

    tiles = [("wo", t.staged_columns // 8), ("no", IMAGES // 8), ("ni", 8), ("wi", 8)]
    if t.box:
        tiles = [("wo", t.staged_columns // t.box), ("ni", IMAGES), ("wi", t.box)]

    def element(b: Any, c: Any, row: Any, wo: Any, *at: Any) -> Any:
        *no, ni, wi = at
        n, h = b * IMAGES + sum(x * 8 for x in no) + ni, row - above
        w = wo * (t.box or 8) + wi + t.first
        inside = te.all(n < batch, h >= 0, h < height, w >= 0, w < width)
        return te.if_then_else(inside, image[n, c, h, w], zero)

    many = (batch + t.images - 1) // t.images * t.images
    staged = te.compute(
        (many // IMAGES, image.shape[1], rows, *(extent for _, extent in tiles)), element,
        name="StagedImage", varargs_names=["b", "c", "row", *(name for name, _ in tiles)],
    )  # fmt: skip
    q, f = te.reduce_axis((0, t.block_steps), name="q"), te.reduce_axis((0, sh), name="phase")
    j = te.reduce_axis((0, t.depth), name="j")

    def product(n: Any, c: Any, h: Any, w: Any) -> Any:
        # Of the block that shares what is staged.
        begin = h // t.block_rows * t.block_rows - t.lead
        own = q - t.lead - h % t.block_rows // t.rows * t.rows
        row = (begin + q) * sh + f
        where = [row >= top, row < top + height, own >= 0, own < t.steps]
        if t.staged:  # whole stages need not be loaded where none of their rows is used
            first = (begin + q // t.staged * t.staged) * sh
            where = [first + t.staged * sh > top, first < top + height, *where]
        matrix = matrices[c, f, h % t.rows - own + (t.steps - 1), *t.places(j, w)]
        column = w // t.columns * t.columns * sw + j
        at: tuple[Any, ...] = (column // 8, n // 8 % 8, n % 8, column % 8)
        if t.box:
            at = (column // t.box, n % IMAGES, column % t.box)
        value = staged[(n // IMAGES, c // filters(p), row - top + above, *at)]
        return te.sum(
            value.astype(p.accumulate) * matrix.astype(p.accumulate),
            axis=[q, f, j],
            where=te.all(*where),
        )

    total = te.compute(
        (many, p.result_channels, down, t.tiles[1] * t.columns), product, name="ToeplitzSum",
        tag="toeplitz",
    )  # fmt: skip
    return ToeplitzStages(taps, matrices, staged, total)
