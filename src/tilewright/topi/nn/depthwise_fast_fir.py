"""Depthwise convolution with fewer products: fast FIR algorithms in two dimensions.

Along one dimension, the even and odd outputs of a filter are sums over the even and odd inputs.
With ``x_s[i] = x[2 i + s]``, ``y_r[o] = y[2 o + r]`` and ``W_d[m] = filter[before + 2 m + d]``, and
``*`` for the correlation of half the length, ``y_0 = W_0 * x_0 + W_1 * x_1`` and ``y_1 = W_-1 * x_0
+ W_0 * x_1``: four of them. Three are enough, since W_0 stands in both (a Toeplitz matrix of two by
two):

    P_-1 = (W_-1 - W_0) * x_0      P_0 = W_0 * (x_0 + x_1)      P_1 = (W_1 - W_0) * x_1
    y_0 = P_0 + P_1                y_1 = P_0 + P_-1

(S. Winograd, Arithmetic Complexity of Computations, 1980; Z.-J. Mou and P. Duhamel, Short-length
FIR filters and their use in fast nonrecursive filtering, 1991.) Once in both dimensions this leaves
9 of 16 products, twice 81 of 256, for additions that grow with the images and not with the filters.
Errors of rounding are about those of the direct sum, but relative to the largest number in a window
and next to it: what is not finite spreads to results as far as ``2 ** levels * (step + 1)`` from
those whose windows have it.

A gradient by the input with stride 1 is the convolution of dy with the filter rotated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.te import Tensor
from tilewright.topi.nn.images import Images, or_zero
from tilewright.topi.operators.conv import Conv


@dataclass(frozen=True)
class Line:
    """One dimension, halved ``levels`` times; a part has a digit of -1, 0 or 1 for each time.

    Parameters
    ----------
    size, result, kernel, before : of the image, the result, the filter, and the padding.
    group, step : how many outputs of a product are summed at once, over how many taps, all of which
        are computed where any has to be: the others read zeros.
    """

    size: int
    result: int
    kernel: int
    before: int
    levels: int
    group: int
    step: int

    @property
    def phases(self) -> int:
        return int(2**self.levels)

    @property
    def parts(self) -> int:
        return int(3**self.levels)

    def digits(self, part: Any) -> list[Any]:
        """The digits of a part, those of the first halving first."""
        if self.levels == 1:
            return [part - 1]
        return [part // 3**k % 3 - 1 for k in range(self.levels)]

    def first(self, part: Any) -> Any:
        """Where a part of the filter begins, in its own elements."""
        most = 0
        for k, digit in enumerate(self.digits(part)):
            most = most + te.max(digit, 0) * 2**k
        return -((most + self.before) // self.phases)

    @property
    def _reaches(self) -> list[tuple[int, int]]:
        """Where each part of the filter begins and ends."""
        found = []
        for digits in itertools.product((-1, 0, 1), repeat=self.levels):
            most = sum(max(d, 0) * 2**k for k, d in enumerate(digits))
            least = sum(min(d, 0) * 2**k for k, d in enumerate(digits))
            end = (self.kernel - 1 - self.before - least) // self.phases
            found.append((-((most + self.before) // self.phases), end))
        return found

    @property
    def taps(self) -> int:
        """Taps of a part of the filter, whole steps."""
        most = max(end - first + 1 for first, end in self._reaches)
        return -(-most // self.step) * self.step

    @property
    def pixels(self) -> int:
        """Elements of a part of the image."""
        return -(-self.size // self.phases)

    @property
    def outputs(self) -> int:
        """Elements of a product."""
        return -(-self.result // self.phases)

    def where(self, part: Any, output: Any, tap: Any) -> list[Any]:
        """The conditions under which any output of a group meets the image in a step of taps."""
        at = output // self.group * self.group + tap // self.step * self.step + self.first(part)
        return [at >= 2 - self.group - self.step, at < self.pixels]

    @property
    def borders(self) -> tuple[int, int]:
        """Zeros before and after a part of the image that groups and steps read."""
        least, most, last = 0, self.pixels - 1, self.group + self.step - 2
        for first, _ in self._reaches:
            for output in range(0, self.outputs, self.group):
                for tap in range(0, self.taps, self.step):
                    at = first + output + tap
                    if -last <= at < self.pixels:
                        least, most = min(least, at), max(most, at + last)
        return -least, most - self.pixels + 1

    def of_image(self, read: Callable[[Any], Any], part: Any, at: Any) -> Any:
        """An element of a part of the image: a sum of phases. ``at`` counts its border."""
        inner, total = at - self.borders[0], None
        for phase in range(self.phases):
            where = [
                digit >= 0 if phase >> k & 1 else digit <= 0
                for k, digit in enumerate(self.digits(part))
            ]
            own = inner * self.phases + phase
            where += [inner >= 0] if self.borders[0] else []
            where += [own < self.size]
            term = or_zero(where, read(own))
            total = term if total is None else total + term
        return total

    def of_filter(self, read: Callable[[Any], Any], part: Any, at: Any) -> Any:
        """An element of a part of the filter: a signed sum of taps."""
        total = None
        for taken in itertools.product((0, 1), repeat=self.levels):
            own = (at + self.first(part)) * self.phases + self.before
            where = []
            for k, (digit, less) in enumerate(zip(self.digits(part), taken, strict=True)):
                if less:
                    where.append(te.any(digit < 0, digit > 0))
                else:
                    own = own + digit * 2**k
            where += [own >= 0, own < self.kernel]
            term = or_zero(where, read(own))
            if total is None:
                total = term
            else:
                total = total - term if sum(taken) % 2 else total + term
        return total

    def of_result(self, output: Any) -> list[Any]:
        """The parts whose products add up to an output."""
        phase, found = output % self.phases, []
        for middle in itertools.product((0, 1), repeat=self.levels):
            part: Any = 0
            for k, zero in enumerate(middle):
                bit = phase if self.levels == 1 else phase // 2**k % 2
                part = part + (1 if zero else 2 - 2 * bit) * 3**k
            found.append(part)
        return found


@dataclass(frozen=True)
class FastFir:
    """How a problem is cut: its rows and columns."""

    problem: Conv
    rows: Line
    columns: Line

    @property
    def result(self) -> tuple[int, int]:
        return self.rows.result, self.columns.result

    @staticmethod
    def of(p: Conv, levels: tuple[int, int], group: tuple[int, int], step: int) -> FastFir:
        """A forward pass, or a gradient by the input, of stride and dilation 1, in two dimensions.

        ``levels`` and ``group`` are of rows and columns; ``step`` is of columns.
        """
        image, result, before = p.image, p.out_image, p.padding[:2]
        if p.pass_ == "dgrad":
            image, result = result, image
            before = p.kernel_h - 1 - before[0], p.kernel_w - 1 - before[1]
        rows, columns = (
            Line(image[k], result[k], p.kernel[k], before[k], levels[k], group[k], (1, step)[k])
            for k in (0, 1)
        )
        return FastFir(p, rows, columns)


@dataclass(frozen=True)
class FastFirStages:
    """The stages: halved rows of the image and of the filter, where rows are halved, then the parts
    of both; ``packed`` is the filter with its channels side by side, ``products`` the sums."""

    image_rows: Tensor
    image: Tensor
    packed: Tensor
    filter_rows: Tensor
    filter: Tensor
    products: Tensor
    sums: Tensor


def depthwise_fast_fir(cut: FastFir, image: Tensor, filter: Tensor) -> FastFirStages:
    """The stages of a problem; all of them but the last have channels last, whatever the layout."""
    p, rows, columns = cut.problem, cut.rows, cut.columns
    images = Images(p.layout)
    batch, channels = images.meaning(image.shape)[0], p.channels
    turned = p.pass_ == "dgrad"

    def tap(i: Any, j: Any, c: Any) -> Any:
        at = (p.kernel_h - 1 - i, p.kernel_w - 1 - j) if turned else (i, j)
        return filter[(c, 0, *at)].astype(p.accumulate)

    def pixel(n: Any, c: Any, i: Any, j: Any) -> Any:
        return image[images.order(n, c, [i, j])].astype(p.accumulate)

    high, wide = (line.pixels + sum(line.borders) for line in (rows, columns))
    image_rows = te.compute(
        (batch, rows.parts, high, columns.size, channels),
        lambda n, a, i, j, c: rows.of_image(lambda h: pixel(n, c, h, j), a, i),
        name="ImageRows",
    )
    parts = te.compute(
        (batch, rows.parts, columns.parts, high, wide, channels),
        lambda n, a, b, i, j, c: columns.of_image(lambda w: image_rows[n, a, i, w, c], b, j),
        name="ImageParts",
    )
    packed = te.compute((*p.kernel, channels), tap, name="PackedFilter")
    filter_rows = te.compute(
        (rows.parts, rows.taps, p.kernel_w, channels),
        lambda a, i, j, c: rows.of_filter(lambda h: packed[h, j, c], a, i),
        name="FilterRows",
    )
    taps = te.compute(
        (rows.parts, columns.parts, rows.taps, columns.taps, channels),
        lambda a, b, i, j, c: columns.of_filter(lambda w: filter_rows[a, i, w, c], b, j),
        name="FilterParts",
    )
    di, dj = te.reduce_axis((0, rows.taps), name="di"), te.reduce_axis((0, columns.taps), name="dj")

    def product(n: Any, a: Any, b: Any, i: Any, j: Any, c: Any) -> Any:
        y = i + di + (rows.first(a) + rows.borders[0])
        x = j + dj + (columns.first(b) + columns.borders[0])
        where = rows.where(a, i, di) + columns.where(b, j, dj)
        term = parts[n, a, b, y, x, c] * taps[a, b, di, dj, c]
        return te.sum(term, axis=[di, dj], where=te.all(*where))

    products = te.compute(
        (batch, rows.parts, columns.parts, rows.outputs, columns.outputs, channels),
        product,
        name="Products",
    )

    def total(n: Any, c: Any, at: list[Any]) -> Any:
        places = at[0] // rows.phases, at[1] // columns.phases
        lines = [
            _add(products[(n, a, b, *places, c)] for b in columns.of_result(at[1]))
            for a in rows.of_result(at[0])
        ]
        return _add(lines)

    result = (rows.result, columns.result)
    sums = images.compute(batch, channels, result, total, "Sums")
    return FastFirStages(image_rows, parts, packed, filter_rows, taps, products, sums)


def _add(terms: Any) -> Any:
    first, *others = terms
    for term in others:
        first = first + term
    return first
