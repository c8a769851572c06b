"""Convolution by Winograd's minimal filtering: a product of matrices for each point of a tile.

A tile of ``m`` by ``m`` results of a 3x3 filter depends on ``n = m + 2`` by ``n`` pixels. Both are
values of polynomials: with ``B``, ``G`` and ``A`` of Toom and Cook, in two dimensions

    V = B^T d B    U = G g G^T    M[i, j] = sum over channels of U[i, j] * V[i, j]    Y = A^T M A

so that each result takes ``n^2 / m^2`` products, 4 with m = 2 and 2.25 with m = 4, in place of 9
(S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, Fast Algorithms for
Convolutional Neural Networks, 2016). Each point ``i, j`` is a product of matrices, of tiles by
channels and channels by filters.

The points are 0, infinity, and pairs of opposite numbers near 1, which keep the error within some
two times that of the direct sum (B. Barabasz et al., Error Analysis and Improving the Accuracy of
Winograd Convolution for Deep Neural Networks, 2020); coefficients of pairs are equal but for signs,
so that half of the additions are shared. Of numbers that are not finite, what is not finite spreads
over the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.declare import finished, placeholders
from tilewright.topi.declared import Declared
from tilewright.topi.nn.images import Images, or_zero, within
from tilewright.topi.once import once
from tilewright.topi.operators.convolution import Convolution

#: Taps of a filter along a dimension.
TAPS = 3
#: By results of a tile along a dimension, the points beside infinity.
POINTS = {
    2: (Fraction(0), Fraction(1), Fraction(-1)),
    4: (Fraction(0), Fraction(5, 8), Fraction(-5, 8), Fraction(3, 2), Fraction(-3, 2)),
}
#: Channels of the widest vector.
_LANES = 16

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Transforms:
    """The matrices of tiles of ``results`` by ``results``.

    >>> [[int(x) for x in row] for row in Transforms(2).image]
    [[-1, 0, 1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, -1, 0, 1]]
    """

    results: int

    @property
    def size(self) -> int:
        """Pixels along a dimension that a tile depends on, and points."""
        return self.results + TAPS - 1

    @once
    def image(self) -> Matrix:
        """B^T: rows of points, columns of pixels."""
        points = POINTS[self.results]
        rows = [_polynomial([q for q in points if q != p]) for p in points]
        return tuple(_filled(row, self.size) for row in (*rows, _polynomial(points)))

    @once
    def filter(self) -> Matrix:
        """G: rows of points, columns of taps."""
        points, found = POINTS[self.results], []
        for p in points:
            apart = Fraction(1)
            for q in points:
                apart *= p - q if q != p else 1
            found.append(tuple(p**k / apart for k in range(TAPS)))
        return (*found, _filled([Fraction(0)] * (TAPS - 1) + [Fraction(1)], TAPS))

    @once
    def result(self) -> Matrix:
        """A^T: rows of results, columns of points."""
        last = self.results - 1
        return tuple(
            (*(p**k for p in POINTS[self.results]), Fraction(int(k == last)))
            for k in range(self.results)
        )


def _polynomial(roots: Sequence[Fraction]) -> list[Fraction]:
    """The coefficients of the product of ``x - root``, that of x^0 first."""
    found = [Fraction(1)]
    for root in roots:
        up, down = [Fraction(0), *found], [*found, Fraction(0)]
        found = [a - root * b for a, b in zip(up, down, strict=True)]
    return found


def _filled(row: Sequence[Fraction], size: int) -> tuple[Fraction, ...]:
    return (*row, *[Fraction(0)] * (size - len(row)))


def transformed(matrix: Matrix, at: Any, read: Callable[[int], Any], dtype: str) -> Any:
    """Row ``at`` of a product with a vector, whose elements are ``read``: a choice of rows, which
    an unrolled loop decides."""
    *rows, found = (_combined(row, read, dtype) for row in matrix)
    for k in reversed(range(len(rows))):
        found = te.Select(at.equal(k), rows[k], found)
    return found


def _combined(row: Sequence[Fraction], read: Callable[[int], Any], dtype: str) -> Any:
    """The sum over even columns and that over odd ones, in which rows of opposite points differ in
    the sign alone, so that each is computed once for both."""
    halves = [[(k, row[k]) for k in range(first, len(row), 2) if row[k]] for first in (0, 1)]
    found: Any = None
    for terms in halves:
        if not terms:
            continue
        sign = 1 if terms[-1][1] > 0 else -1
        total: Any = None
        for k, factor in reversed(terms):
            value = read(k) if abs(factor) == 1 else read(k) * te.const(float(abs(factor)), dtype)
            total = (
                value if total is None else total + value if factor * sign > 0 else total - value
            )
        if found is None:
            found = total if sign > 0 else -total
        else:
            found = found + total if sign > 0 else found - total
    return found


@dataclass(frozen=True)
class WinogradDeclaration(Declared):
    """A convolution with filters of 3x3 and stride 1, by tiles of ``results`` by ``results``.

    Tiles of all images are counted row by row. ``turned`` is the image with channels last, None
    where they are, and ``pixels`` those of a tile, with its padding: (tile, row, column, channel).
    ``image`` is V as (point, point, tile, channel), ``sum`` the products as (point, point, tile,
    channel of the result), and ``result`` Y as (tile, row, column, channel). ``taps`` is the filter
    as (block of channels of the result, row, column, channel, channel of the block), and ``filter``
    U likewise, with points: what a task reads in turn is together. What is called ``_rows`` is
    halfway: transformed along one dimension.
    """

    problem: Convolution
    results: int
    turned: Tensor | None
    pixels: Tensor
    image_rows: Tensor
    image: Tensor
    taps: Tensor
    filter_rows: Tensor
    filter: Tensor
    sum: Tensor
    sum_rows: Tensor
    result: Tensor


def declare_winograd(p: Convolution, results: int, given: Any = None) -> WinogradDeclaration:
    """The program of a problem; ``given`` as in :func:`~tilewright.topi.declare.declare`."""
    t, images, kind = Transforms(results), Images(p.layout), p.accumulate
    inputs = placeholders(p, given)
    x, w = inputs["data"], inputs["filter"]
    batch, channels, filters, n = x.shape[0], p.channels, p.out_channels, t.size
    high, wide = (-(-e // results) for e in p.out_extents)
    count = batch * (high * wide)

    turned = None
    if not images.last:
        turned = te.compute(
            (batch, *p.image_extents, channels), lambda b, *at: x[(b, at[-1], *at[:-1])],
            name="Turned",
        )  # fmt: skip

    def pixel(tile: Any, c: Any, *at: Any) -> Any:
        """A pixel of a tile; zero in the padding, and beyond the last row or column."""
        corner = (tile // wide % high, tile % wide)
        place = [k * results + i - d.before for k, i, d in zip(corner, at, p.dims, strict=True)]
        inside = within(place, p.image_extents)
        b = tile // (high * wide)
        read = (turned or x)[(b, *place, c)]
        return or_zero(inside, read)

    pixels = te.compute(
        (count, n, n, channels), lambda tile, r, s, c: pixel(tile, c, r, s), name="Pixels"
    )
    image_rows = te.compute(
        (count, n, n, channels),
        lambda tile, i, s, c: transformed(t.image, i, lambda r: pixels[tile, r, s, c], kind),
        name="ImageRows",
    )
    image = te.compute(
        (n, n, count, channels),
        lambda i, j, tile, c: transformed(t.image, j, lambda s: image_rows[tile, i, s, c], kind),
        name="Image",
    )
    block = _LANES if filters % _LANES == 0 else filters
    taps = te.compute(
        (filters // block, TAPS, TAPS, channels, block),
        lambda f, r, s, c, g: w[p.filter_place(f * block + g, c, (r, s))],
        name="Taps",
    )
    filter_rows = te.compute(
        (filters // block, channels, n, TAPS, block),
        lambda f, c, i, s, g: transformed(t.filter, i, lambda r: taps[f, r, s, c, g], kind),
        name="FilterRows",
    )
    filter = te.compute(
        (filters // block, n, n, channels, block),
        lambda f, i, j, c, g: transformed(t.filter, j, lambda s: filter_rows[f, c, i, s, g], kind),
        name="Filter",
    )
    rc = te.reduce_axis((0, channels), "rc")
    total = te.compute(
        (n, n, count, filters),
        lambda i, j, tile, f: te.sum(
            image[i, j, tile, rc] * filter[f // block, i, j, rc, f % block], axis=rc
        ),
        name="Sums",
    )
    sum_rows = te.compute(
        (count, results, n, filters),
        lambda tile, r, j, f: transformed(t.result, r, lambda i: total[i, j, tile, f], kind),
        name="SumRows",
    )
    result = te.compute(
        (count, results, results, filters),
        lambda tile, r, s, f: transformed(t.result, s, lambda j: sum_rows[tile, r, j, f], kind),
        name="Result",
    )

    def gathered(b: Any, f: Any, at: list[Any]) -> Any:
        h, v = at
        tile = (b * high + h // results) * wide + v // results
        return result[tile, h % results, v % results, f]

    conv = images.compute(batch, filters, p.out_extents, gathered, "Conv")
    return WinogradDeclaration(
        p, inputs, finished(p, conv, inputs), results, turned, pixels, image_rows, image,
        taps, filter_rows, filter, total, sum_rows, result,
    )  # fmt: skip


def _form(results: int) -> Callable[..., WinogradDeclaration]:
    return lambda p, given=None: declare_winograd(p, results, given)


#: The declarations of this module, by name.
FORMS = {f"winograd{results}": _form(results) for results in POINTS}
