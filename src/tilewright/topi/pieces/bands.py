"""Sums over windows as products with banded (Toeplitz) matrices, made by the schedule.

The column of a window is *skewed* by that of the result: the column of the image that both say is
what is summed over (docs/decisions/0019-windows-as-products.md). Where the rows of a product are
images, so is the row: one row of the image then meets a matrix for each row of the result, and
these lie one behind the other, so that the window of them that a row meets slides by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

from tilewright.ir.expr import Expr, Load
from tilewright.ir.visit import distinct
from tilewright.schedule import Schedule
from tilewright.te import ComputeOp, Tensor
from tilewright.topi.nn.convolved import Convolved

#: Columns of the image that an instruction sums over, those that a thread loads with three others,
#: 16 bytes each, and what tiles begin at a multiple of.
_DEPTH, _CHUNK, _VECTOR = 16, 32, 8


@dataclass(frozen=True)
class Bands(Convolved):
    """How windows are cut into products, in 16 bits: of ``images`` images (one: of rows of one), a
    product has ``rows`` by ``columns`` results of each."""

    images: int
    rows: int
    columns: int

    @cached_property
    def whole(self) -> bool:
        """Whether a tile has whole rows: columns in the padding are then never multiplied."""
        return self.result[1] <= self.columns

    @cached_property
    def seen(self) -> int:
        """Columns that a tile sees."""
        seen = self.sees(1, self.columns)
        if self.whole:
            return max(1, min(seen - self.before[1], self.image[1]))
        return seen + self.first

    @cached_property
    def chunk(self) -> int:
        """Columns that four threads load at once."""
        return _CHUNK if self.seen > _DEPTH else _DEPTH

    @cached_property
    def depth(self) -> int:
        """Columns that a tile sums over."""
        return -(-self.seen // self.chunk) * self.chunk

    @cached_property
    def first(self) -> int:
        """How many columns before its first a window begins, so that chunks begin where vectors
        do."""
        return -self.before[1] % (self.chunk if self.whole else _VECTOR)

    @cached_property
    def steps(self) -> int:
        """Rows of one phase of the stride that a tile sees, where a product has several images."""
        return -(-self.sees(0, self.rows) // self.stride[0])

    @property
    def taps(self) -> int:
        """A row of what the image is convolved with, between zeros."""
        return self.depth + (self.columns - 1) * self.stride[1]

    @cached_property
    def matrices(self) -> int:
        """Those of a filter, with those of zeros, in the same case."""
        return self.stride[0] * (self.steps + self.rows - 1)

    @cached_property
    def matrix_bytes(self) -> int:
        """Of the matrices, and of the rows of the filter between zeros, of 16 bits."""
        return 2 * self.matrices * (self.depth * self.columns + self.taps)

    def met(self, tile: int) -> int:
        """Rows of the image that a tile, the ``tile``-th from above, meets; where it has rows of
        one image, of the filter that meet some of it."""
        (sh, _), (step, _), height = self.stride, self.dilation, self.image[0]
        first, seen = tile * self.rows * sh - self.before[0], self.sees(0, self.rows)
        if self.images > 1:
            one = step if self.rows == 1 else 1  # between the taps of one row there are none
            return len(range(-(min(0, first) // one) * one, min(height - first, seen), one))
        last = first + (self.rows - 1) * sh
        rows = range(0, self.kernel[0] * step, step)
        return sum(last + row >= 0 and first + row < height for row in rows)

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        h, w = self.result
        return -(-h // self.rows), -(-w // self.columns)

    @property
    def share(self) -> int:
        """Neighbouring results of a thread."""
        return self.columns // 4


@dataclass(frozen=True)
class StagedBands(Bands):
    """How windows are cut into products of images that lie in shared memory.

    Parameters
    ----------
    groups : tiles of ``rows`` rows, one below the other, that share what is staged.
    staged : rows of one phase of the stride that are staged at once, 0 for whole images.
    box : columns of an image in one row of what is staged, 0 for blocks of 8 by 8.
    """

    groups: int = 1
    staged: int = 4
    box: int = 0

    @cached_property
    def first(self) -> int:
        """As of others; where a tile has whole rows, boxes begin where these do, too."""
        return -self.before[1] % max(self.chunk, self.box) if self.whole else super().first

    @cached_property
    def block_rows(self) -> int:
        """Rows of results of all groups."""
        return self.rows * self.groups

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles down and across an image, those of whole blocks."""
        h, w = self.result
        return -(-h // self.block_rows) * self.groups, -(-w // self.columns)

    @cached_property
    def lead(self) -> int:
        """Rows of one phase before those that a block sees, such that the rows that are staged at
        once begin with the image's first: padding costs no stage that it shares."""
        return -(self.before[0] // self.stride[0]) % self.staged if self.staged else 0

    @cached_property
    def block_steps(self) -> int:
        """Rows of one phase of the stride that all groups see, in whole stages."""
        count = self.lead + self.steps - self.rows + self.block_rows
        return -(-count // self.staged) * self.staged if self.staged else count

    @cached_property
    def staged_columns(self) -> int:
        """Columns of the image that all tiles across see."""
        seen = (self.tiles[1] - 1) * self.columns * self.stride[1] + self.depth
        return -(-seen // self.box) * self.box if self.box else seen


class Products(NamedTuple):
    """The stages: ``sums`` of products of ``image`` and ``matrix``, which is made of ``taps``, rows
    of what the image is convolved with, between zeros."""

    sums: Tensor
    image: Tensor
    matrix: Tensor
    taps: Tensor


def as_products(
    s: Schedule, total: Tensor, image: Tensor, filter: Tensor, cut: Bands, scope: str
) -> Products:
    """Make a sum over windows of ``image``, of whose axes the last two are rows and columns, one of
    products with matrices that lie in ``scope``.

    Axes of the sums are (..., row tile, row, column tile, column), before which images are two too
    where a product has several; they are summed over (..., row, chunk, column), or (..., row,
    phase, chunk, column), rows in two where some of them are staged at once: rows of results are
    then (group, row). Values that are not finite in the image spread over a tile.
    """
    sums, chunk, (sh, sw), slides = s[total], cut.chunk, cut.stride, cut.images > 1
    staged = cut if isinstance(cut, StagedBands) else None
    block, together = (staged.block_rows, max(1, staged.staged)) if staged else (cut.rows, 1)
    *outer, h, w = sums.op.axis
    *_, di, dj = sums.op.reduce_axis
    if slides:
        sums.split(sums.pad_to(outer[0], cut.images), factor=cut.images)
    _, row = sums.split(sums.pad_to(h, block), factor=block)
    _, column = sums.split(sums.pad_to(w, cut.columns), factor=cut.columns)
    if slides:
        lead = sh * staged.lead if staged else 0
        r = sums.skew(di, row, scale=sh, step=cut.dilation[0], offset=lead)
        q, _ = sums.split(sums.pad_to(r, sh * together), factor=sh)
    if staged:
        sums.split(q, factor=together)
        sums.split(row, factor=cut.rows)
    j = sums.skew(dj, column, scale=sw, step=cut.dilation[1], offset=cut.first)
    filled = max(chunk, staged.box) if staged and cut.whole else chunk  # by whole boxes
    sums.split(sums.pad_to(j, filled), factor=chunk)
    made = s.cache_write(total, "fragment")

    *outer, hi, _, wi = s[made].op.axis
    *rest, jo, ji = s[made].op.reduce_axis
    tap: Any = rest[-1]
    if slides:  # so that neighbouring rows of results have neighbouring matrices
        own = hi.var + (outer[-1].var * cut.rows if staged else 0)
        number = rest[-2].var + (rest[-3].var * together if staged else 0)
        tap = own * sh - number * sh - rest[-1].var
    j = jo.var * chunk + ji.var
    *of_filter, _, _ = _indices(s, made, filter)
    kept = s.reindex(image, made, _indices(s, made, image), "shared" if staged else "fragment")
    matrix = s.reindex(filter, made, [*of_filter, tap, wi, j], scope)
    *of_row, i, j = s[matrix].op.axis
    taps = s.reindex(filter, matrix, [*of_row, j.var - i.var * sw], "shared")
    over = [*outer[1:2], hi, wi, ji] if slides else [hi, wi, ji]
    over += [] if cut.whole else [jo]
    around = [*rest[-2:], outer[-1]] if staged and staged.staged else []
    s[made].guard_by_zeros(kept, matrix, over=over, finite=True, around=around)
    s[matrix].transform_layout(partial(_places, cut, sh if slides else 1, staged is None))
    return Products(made, kept, s[matrix].op.output(0), taps)


def _places(cut: Bands, phases: int, turned: bool, *at: Any) -> list[Any]:
    """Where an element of a matrix lies, in blocks of 8 by 8: a thread has :attr:`Bands.share`
    neighbours of a row of results, two of them in each block; and of what it loads of a row of the
    image, where columns are ``turned``, two neighbours."""
    *of, e, w, j = at
    own, chunk = cut.share, cut.chunk
    columns = j // 8, j % 8
    if turned:
        within = j // 2 % (chunk // 8), j // (chunk // 4) % 4 * 2 + j % 2
        columns = j // chunk * (chunk // 8) + within[0], within[1]
    return [
        *of, *((e % phases, e // phases) if phases > 1 else (e,)),
        w // 2 % (own // 2), columns[0], w // own * 2 + w % 2, columns[1],
    ]  # fmt: skip


def _indices(s: Schedule, reader: Tensor, tensor: Tensor) -> list[Expr]:
    """Those at which a stage reads a tensor."""
    op = s[reader].op
    assert isinstance(op, ComputeOp)
    found = [
        e.indices
        for body in op.body
        for e in distinct(body)
        if isinstance(e, Load) and e.buffer is tensor.buffer
    ]
    return list(found[0])
