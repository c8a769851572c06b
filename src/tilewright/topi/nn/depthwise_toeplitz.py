"""Depthwise convolution as products of matrices: the filter, not the image, is unrolled.

For one row of the input and one channel, ``rows`` rows of ``columns`` outputs are a product of the
input's columns with a matrix of filter taps, ``T[j, o] = filter[kh, j - o * stride + padding]``, a
Toeplitz matrix with zeros where there is no such tap. Images share it, so the rows of the product
are images: the implicit batched product of MegEngine (article 001). One input row meets the
matrices of neighbouring filter rows in neighbouring output rows, so these lie side by side, filter
rows falling, between matrices of zeros; the window of ``rows`` of them slides by one for each row
of the input.

A gradient by the input with stride 1 is the convolution of dy with the filter rotated, and is
declared alike. So is a gradient by the filter: that of one image is x convolved with a filter as
large as dy, which is dy itself, with stride and dilation changing places. What is not finite in
the image spreads to results ``rows`` and ``columns`` around that no tap joins to it, as it is
multiplied with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.convolved import Convolved
from tilewright.topi.nn.toeplitz_sums import Factors, in_parts, summed
from tilewright.topi.operators.conv import Conv

#: Columns that one instruction sums over, and neighbours of a row of outputs that a thread has: so
#: few that each instruction is of a tile without gaps, and those without taps are left out.
DEPTH, SHARE = 8, 2


@dataclass(frozen=True)
class Toeplitz(Convolved):
    """How a problem is cut into products.

    Parameters
    ----------
    rows, columns : the outputs of one product, of each image; powers of two, columns 8 at least.
    images : how many images are computed, or a multiple.
    """

    problem: Conv
    rows: int
    columns: int
    images: int

    @cached_property
    def first(self) -> int:
        """The image's column that the first output column of a tile begins at, from that one's
        own; a multiple of 8. Where one tile holds whole rows, the image's column 0 itself."""
        if self.result[1] <= self.columns:
            return 0
        return -(-(-self.before[1] // 8) * 8)

    @cached_property
    def depth(self) -> int:
        """Columns of the image that a tile reads, a multiple of what an instruction takes."""
        reach = (self.kernel[1] - 1) * self.dilation[1] - self.before[1] - self.first
        seen = (self.columns - 1) * self.stride[1] + reach + 1
        if self.result[1] <= self.columns:
            seen = min(seen, self.image[1])
        return max(1, -(-seen // DEPTH)) * DEPTH

    @cached_property
    def products(self) -> int:
        """Blocks of 8 by 8 of one matrix that have taps: float32 is multiplied block by block."""
        found = 0
        for j in range(0, self.depth, 8):
            for w in range(0, self.columns, 8):
                found += all(self.meets(j, w))
        return found

    @cached_property
    def steps(self) -> int:
        """Input rows of one phase of the stride that a tile reads."""
        reach = (self.kernel[0] - 1) * self.dilation[0] + 1
        return -(-reach // self.stride[0]) + self.rows - 1

    @cached_property
    def matrices(self) -> int:
        """Matrices of one phase, those of zeros included."""
        return self.steps + self.rows - 1

    @cached_property
    def tiles(self) -> tuple[int, int]:
        """Tiles down and across an image."""
        h, w = self.result
        return -(-h // self.rows), -(-w // self.columns)

    def places(self, j: Any, w: Any) -> tuple[Any, ...]:
        """Where column ``j`` and output ``w`` stand in a matrix: the number of a diagonal, and a
        place in its blocks."""
        out = w % self.columns
        diagonal = j // 8 + (self.columns // 8 - 1 - out // 8) * self.stride[1]
        return diagonal, out % 8, j % 8

    def meets(self, j: Any, w: Any) -> list[Any]:
        """The conditions under which a block of 8 by 8 with column ``j`` and output ``w`` has taps.
        It is of neighbours, and an instruction takes no more than one."""
        at = self.first + self.before[1] + j // 8 * 8 - w % self.columns // 8 * 8 * self.stride[1]
        reach = (self.kernel[1] - 1) * self.dilation[1]
        return [at + 7 >= 0, at - 7 * self.stride[1] <= reach]


@dataclass(frozen=True)
class ToeplitzStages:
    """The stages of the products: ``taps`` are filter rows between zeros, ``matrices`` the Toeplitz
    matrices, in blocks of 8 by 8, ``image`` the padded image, ``sum`` the products, of whole tiles
    of images. Taps and matrices are in parts, and ``rows`` and ``parts`` are those of
    :class:`~tilewright.topi.nn.toeplitz_sums.Sums`."""

    taps: Tensor
    matrices: Tensor
    image: Tensor
    sum: Tensor
    rows: Tensor
    parts: Tensor


def depthwise_toeplitz(t: Toeplitz, image: Tensor, filter: Tensor) -> ToeplitzStages:
    """The stages of a forward pass, or of a gradient by the input with stride 1, in NCHW."""
    p, (sh, sw), (top, _) = t.problem, t.stride, t.before
    taps, matrices = toeplitz_matrices(
        t, filter, sh, t.matrices, lambda f, e: (t.steps - 1 - e) * sh + f
    )
    padded = _padded(t, image, t.image[0], 0)

    def factors(q: Any, f: Any, j: Any, n: Any, c: Any, h: Any, w: Any) -> Any:
        row = (h // t.rows * t.rows + q) * sh + f - top
        return (
            (n, c // filters(p), row, w // t.columns * t.columns * sw + j),
            (c, f, h % t.rows - q + (t.steps - 1), *t.places(j, w)),
            [row >= 0, row < t.image[0]],
        )

    rows = [("q", t.steps), ("phase", sh)]
    return _stages(t, taps, matrices, padded, padded.shape[0], rows, factors)


def depthwise_toeplitz_rows(t: Toeplitz, image: Tensor, filter: Tensor) -> ToeplitzStages:
    """The same for few images, whose rows are those of the products.

    A matrix then meets ``rows`` rows of one image, each in the output row that it belongs to, and
    none are zeros; rows in the padding are zeros of the image.
    """
    p, (sh, sw), (top, _) = t.problem, t.stride, t.before
    (kernel, step), height = (t.kernel[0], t.dilation[0]), t.image[0]
    taps, matrices = toeplitz_matrices(t, filter, 1, kernel, lambda f, e: e * step)
    padded = _padded(t, image, (t.tiles[0] * t.rows - 1) * sh + (kernel - 1) * step + 1, top)

    def factors(q: Any, f: Any, j: Any, n: Any, c: Any, h: Any, w: Any) -> Any:
        tile = h // t.rows * t.rows * sh + q * step - top  # the first of its rows
        return (
            (n, c // filters(p), h * sh + q * step, w // t.columns * t.columns * sw + j),
            (c, f, q, *t.places(j, w)),
            [tile + (t.rows - 1) * sh >= 0, tile < height],
        )

    rows = [("q", kernel), ("phase", 1)]
    return _stages(t, taps, matrices, padded, padded.shape[0], rows, factors)


def depthwise_toeplitz_wgrad(
    t: Toeplitz, chunks: int, data: Tensor, grad: Tensor
) -> ToeplitzStages:
    """The stages of a gradient by the filter in NCHW; ``sum`` has (chunks, channels, height, width)
    and adds every ``chunks``-th image. The rows of a product are those of the filter."""
    p, (sh, sw), (top, _) = t.problem, t.stride, t.before
    (kernel, step), height = (t.kernel[0], t.dilation[0]), t.image[0]
    m, batch, last = p.multiplier, data.shape[0], (t.columns - 1) * sw
    zero = te.const(0, grad.dtype)

    def tap(n: Any, c: Any, e: Any, at: Any) -> Any:
        where, (kh, kw) = t.tap(e * step, at - last + t.first + t.before[1])
        return te.if_then_else(te.all(n < batch, *where), grad[n, c, kh, kw], zero)

    turns = (batch + chunks - 1) // chunks
    images = turns * chunks
    taps = te.compute(
        (images, p.out_channels, kernel, t.depth + last), tap, name="TapRows",
        varargs_names=["n", "c", "e", "at"],
    )  # fmt: skip
    taps, matrices = _toeplitz(t, taps)
    padded = _padded(t, data, (t.tiles[0] * t.rows - 1) * sh + (kernel - 1) * step + 1, top, images)

    def factors(i: Any, q: Any, j: Any, chunk: Any, c: Any, h: Any, w: Any) -> Any:
        n = i * chunks + chunk
        tile = h // t.rows * t.rows * sh + q * step - top
        return (
            (n, c // m, h * sh + q * step, w // t.columns * t.columns * sw + j),
            (n, c, q, *t.places(j, w)),
            [tile + (t.rows - 1) * sh >= 0, tile < height],
        )

    return _stages(t, taps, matrices, padded, chunks, [("i", turns), ("q", kernel)], factors)


def filters(p: Conv) -> int:
    """Filters of an input channel, of which each has a result of its own."""
    return 1 if p.pass_ == "dgrad" else p.multiplier


def toeplitz_matrices(
    t: Toeplitz, filter: Tensor, phases: int, count: int, row: Callable[[Any, Any], Any]
) -> tuple[Tensor, Tensor]:
    """Filter rows between zeros, and the matrices made of them: ``count`` for each phase, of which
    each is of the tap at ``row(phase, number)``."""
    p, zero, sw = t.problem, te.const(0, filter.dtype), t.stride[1]
    m, last = filters(p), (t.columns - 1) * sw

    def tap(c: Any, phase: Any, e: Any, at: Any) -> Any:
        where, (kh, kw) = t.tap(row(phase, e), at - last + t.first + t.before[1])
        return te.if_then_else(te.all(*where), filter[c // m, c % m, kh, kw], zero)

    taps = te.compute(
        (p.result_channels, phases, count, t.depth + last), tap, name="TapRows",
        varargs_names=["c", "phase", "e", "at"],
    )  # fmt: skip
    return _toeplitz(t, taps)


def _toeplitz(t: Toeplitz, taps: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices of rows of taps, of which each has three indices of its own; and these rows. Both
    are in parts, and blocks of 8 by 8 on a diagonal, which are alike, are one."""
    sw = t.stride[1]
    rows = in_parts(t.problem, taps, "TapParts")
    matrices = te.compute(
        (*rows.shape[:-1], t.depth // 8 + (t.columns // 8 - 1) * sw, 8, 8),
        lambda *at: rows[(*at[:-3], at[-3] * 8 + at[-1] + (7 - at[-2]) * sw)],
        name="Toeplitz",
        varargs_names=["part", "a", "b", "e", "diagonal", "ji", "ki"],
    )
    return rows, matrices


def _padded(t: Toeplitz, image: Tensor, rows: int, top: int, images: Any = None) -> Tensor:
    """Whole tiles of images, from ``top`` rows above them on, with zeros where there is nothing."""
    height, width = t.image
    zero = te.const(0, image.dtype)
    if images is None:
        images = (image.shape[0] + t.images - 1) // t.images * t.images
    columns = (t.tiles[1] - 1) * t.columns * t.stride[1] + t.depth

    def read(n: Any, c: Any, h: Any, w: Any) -> Any:
        h, w = h - top, w + t.first
        inside = [n < image.shape[0], w >= 0, w < width]
        if (rows, top) != (height, 0):
            inside += [h >= 0, h < height]
        return te.if_then_else(te.all(*inside), image[n, c, h, w], zero)

    made: Tensor = te.compute((images, image.shape[1], rows, columns), read, name="PaddedImage")
    return made


def _stages(
    t: Toeplitz, taps: Tensor, matrices: Tensor, image: Tensor, images: Any,
    rows: list[tuple[str, Any]], factors: Factors,
) -> ToeplitzStages:  # fmt: skip
    """All stages; sums of ``images`` images are computed."""
    down, across = t.tiles
    shape = (images, t.problem.result_channels, down * t.rows, across * t.columns)
    made = summed(t.problem, image, matrices, shape, rows, t.depth, factors, t.meets)
    return ToeplitzStages(taps, matrices, image, made.sum, made.rows, made.parts)
